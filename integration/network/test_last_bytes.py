"""The last bytes of an answer when the network goes away with the process, as a container's does: the router waits, within the
grace time, until its clients have acknowledged what they were sent.

A service in a network namespace of its own, a client outside that reads slowly through a small window; SIGTERM in the middle, and
the network is deleted the moment the process has ended."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time

import pytest
import requests
from serving import BIN, DEMO, SLOW, Process, Service, free_port, scratch, wait_for
from test_tls import certificate

EVENTS = 1900  # and the last one, [DONE]


def ip(*args, check=True):
    return subprocess.run(["ip", *map(str, args)], check=check, capture_output=True, text=True)


@pytest.fixture
def pod():
    """(name, address, device) of a namespace that a pair of virtual devices reaches; skipped, aloud, where that is not permitted."""
    if not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    name, n = f"pod{os.getpid()}", os.getpid() % 16000
    inside, outside = f"10.199.{n // 64}.{n % 64 * 4 + 2}", f"10.199.{n // 64}.{n % 64 * 4 + 1}"
    if ip("netns", "add", name, check=False).returncode != 0:
        pytest.skip("network namespaces are not permitted here")
    try:
        if ip("link", "add", f"o{n}", "type", "veth", "peer", "name", f"i{n}", "netns", name, check=False).returncode != 0:
            pytest.skip("virtual network devices are not permitted here")
        ip("addr", "add", f"{outside}/30", "dev", f"o{n}")
        ip("link", "set", f"o{n}", "up")
        for command in (("addr", "add", f"{inside}/30", "dev", f"i{n}"), ("link", "set", f"i{n}", "up"), ("link", "set", "lo", "up")):
            ip("-n", name, *command)
        yield name, inside, f"o{n}"
    finally:
        ip("netns", "del", name, check=False)
        ip("link", "del", f"o{n}", check=False)


class Pod(Service):
    def __init__(self, name, address, device, args=()):
        self.port, scheme = free_port(), "https" if "--tls-cert" in args else "http"
        self.name, self.address, self.device, self.url = name, address, device, f"{scheme}://{address}:{self.port}"
        folder = scratch()
        argv = ["ip", "netns", "exec", name, BIN / "launcher", "--model-id", DEMO, "--port", self.port]
        Process.__init__(self, [*argv, "--hostname", address, "--shard-uds-path", f"{folder}/s", *args], folder=folder)
        end = time.monotonic() + 60 * SLOW
        while True:
            assert self.alive() and time.monotonic() < end, self.log[-4000:]
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                if requests.get(self.url + "/health", timeout=5, verify=False).status_code == 200:
                    return
            time.sleep(0.05)

    def tear_down(self):
        """As an orchestrator does it: sockets that the kernel still serves keep a namespace alive, but not its devices."""
        ip("link", "del", self.device)
        ip("netns", "del", self.name)

    def metric(self, name):
        text = requests.get(self.url + "/metrics", timeout=10, verify=False).text
        return next(float(x.split()[-1]) for x in text.splitlines() if x.startswith(name + " "))

    def connect(self):
        """With a window of 4 KB, which has to be said before the handshake."""
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(60 * SLOW)
        c.connect((self.address, self.port))
        return c


def ask(path, body):
    text = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


STREAM = ask("/v1/completions", {"model": "m", "prompt": "Once", "max_tokens": EVENTS, "ignore_eos": True, "stream": True, "seed": 1})


def read_slowly(c, s):
    """Hardly anything until the model has written all of it, then small pieces: what is left last lies in the kernel alone, when the router
    has handed over its last byte. SIGTERM before; no network after the process."""
    got, gone = c.recv(1000), False
    end = time.monotonic() + 120 * SLOW
    while s.metric("tgi_request_success") != 1:
        assert time.monotonic() < end
        time.sleep(0.2)
        got += c.recv(500)  # nothing at all for 30 s would be the end of it
    s.p.send_signal(signal.SIGTERM)
    while not got.endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
        time.sleep(0.005)
        if not gone and s.p.poll() is not None:
            s.tear_down()
            gone = True
        try:
            more = c.recv(1000)
        except OSError:
            break
        if not more:
            break
        got += more
    assert s.p.wait(60 * SLOW) == 0, s.log[-3000:]
    return got


def unchunked(body):
    out = b""
    while body and (n := int(body.split(b"\r\n", 1)[0], 16)):
        start = body.index(b"\r\n") + 2
        out, body = out + body[start : start + n], body[start + n + 2 :]
    return out


def check(got):
    events = [x for x in unchunked(got.split(b"\r\n\r\n", 1)[1]).split(b"\n") if x.startswith(b"data:")]
    assert len(events) == EVENTS + 1 and events[-1] == b"data: [DONE]", (len(events), got[-300:])


def test_a_slow_reader_gets_all_events(pod):
    s = Pod(*pod)
    try:
        c = s.connect()
        c.sendall(STREAM)
        check(read_slowly(c, s))
    finally:
        s.stop()


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_a_slow_reader_gets_all_events_over_tls(pod, tmp_path):
    cert, key = certificate(tmp_path, "pod")
    s = Pod(*pod, args=["--tls-cert", cert, "--tls-key", key])
    try:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        c = context.wrap_socket(s.connect())
        c.sendall(STREAM)
        check(read_slowly(c, s))
    finally:
        s.stop()


def test_answers_that_were_given_before_the_signal_arrive(pod):
    """The connection is closed for the router long before SIGTERM; the kernel still has the answer."""
    s = Pod(*pod)
    try:
        c = s.connect()
        whole = ask("/v1/completions", {"model": "m", "prompt": "Once", "max_tokens": EVENTS, "ignore_eos": True, "seed": 1})
        c.sendall(whole.replace(b"Host: x", b"Host: x\r\nConnection: close"))
        wait_for(lambda: "Success method=POST path=/v1/completions" in s.log, 20)
        got = b""
        s.p.send_signal(signal.SIGTERM)
        time.sleep(1)  # nothing is read: it must not end
        assert s.alive(), s.log[-3000:]
        while not got.endswith(b"}"):
            got += c.recv(4096)
        assert s.p.wait(60 * SLOW) == 0
        body = got.split(b"\r\n\r\n", 1)[1]
        assert json.loads(body)["usage"]["completion_tokens"] == EVENTS
    finally:
        s.stop()


def test_a_client_that_reads_nothing_does_not_hold_the_end_for_ever(pod):
    s = Pod(*pod, args=["--graceful-termination-timeout", "3"])
    c = s.connect()
    c.sendall(STREAM)
    c.recv(1000)
    wait_for(lambda: s.log.count("path=/v1/completions") == 1 or s.metric("tgi_request_success") == 1, 60)
    start = time.monotonic()
    s.stop()
    assert time.monotonic() - start < 30 * SLOW
