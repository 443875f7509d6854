"""An unread log does not block the service: standard output and error are pipes whose other end is open and never read."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import requests
from serving import BIN, DEMO, SLOW, Process, Service, free_port, wait_for

ONCE = {"inputs": "Once", "parameters": {"max_new_tokens": 1}}
HEADERS = {"x-request-id": "x" * 64, "user-agent": "y" * 100}


class Piped(Service):
    """A service whose output goes to a pipe; read() empties it."""

    def __init__(self, argv, port):
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.argv, self.out, self.reading = [str(a) for a in argv], b"", True
        self.reader, writer = os.pipe()
        self.p = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
        os.close(writer)
        self.wanted = threading.Event()
        self.wanted.set()
        self.thread = threading.Thread(target=self.read_on, daemon=True)
        self.thread.start()

    def read_on(self):
        while True:
            self.wanted.wait()
            data = os.read(self.reader, 65536)
            if not data:
                return
            self.out += data

    def read_no_more(self):
        """One more read may be under way; after it nothing is taken."""
        self.wanted.clear()

    @property
    def log(self):
        return self.out.decode(errors="replace")

    def read_to_the_end(self):
        self.wanted.set()
        self.thread.join(60 * SLOW)
        assert not self.thread.is_alive()
        return self.log


def launcher(folder, *args):
    port = free_port()
    argv = [BIN / "launcher", "--model-id", DEMO, "--port", port, "--hostname", "127.0.0.1", "--shard-uds-path", f"{folder}/s"]
    return Piped([*argv, *args], port)


def wire(method, path, body):
    """The bytes of a request on a connection that stays open."""
    head = {"host": "127.0.0.1", **HEADERS, "content-type": "application/json", "content-length": len(body)}
    return b"".join([f"{method} {path} HTTP/1.1\r\n".encode(), *(f"{k}: {v}\r\n".encode() for k, v in head.items()), b"\r\n", body])


def answer(stream):
    """The status of the answer that comes next, read to its end."""
    status, length = int(stream.readline().split()[1]), None
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    assert length is not None
    assert len(stream.read(length)) == length
    return status


def flood(s, n):
    """Each is a line of about 300 bytes, or two. As bytes of a socket: a client's library takes ten times the processor time of
    the three programs."""
    body = json.dumps(ONCE).encode()
    text, nowhere = wire("POST", "/generate", body), wire("POST", "/nowhere", body)
    with socket.create_connection(("127.0.0.1", s.port), 30 * SLOW) as c, c.makefile("rb") as stream:
        for i in range(n):
            c.sendall(nowhere if i % 200 else text)
            assert answer(stream) == (404 if i % 200 else 200)


def test_launcher_and_all_its_children(tmp_path):
    with launcher(tmp_path) as s:
        s.wait_ready()
        s.read_no_more()
        flood(s, 9000)  # over 1 MB of ring, and the pipes; 286 were enough once
        assert requests.get(s.url + "/health", timeout=30).status_code == 200
        s.p.send_signal(signal.SIGTERM)
        assert s.p.wait(30 * SLOW) == 0  # still unread


def test_what_is_missing_is_counted_and_said_when_it_flows_again(tmp_path):
    port = free_port()
    argv = [BIN / "router", "--tokenizer-name", DEMO, "--port", port, "--hostname", "127.0.0.1"]
    shard = Process([BIN / "model-server", "serve", DEMO, "--uds-path", tmp_path / "s"])
    try:
        shard.wait_log("shard ready")
        with Piped([*argv, "--master-shard-uds-path", tmp_path / "s-0"], port) as s:
            s.wait_ready()
            s.read_no_more()
            n = 9000
            flood(s, n)
            missing = s.metric("log_lines_dropped_total")
            assert missing > 0
            s.wanted.set()
            wait_for(lambda: "Log lines were dropped" in s.log, 30)
            s.post("/generate", {**ONCE, "inputs": "last"}, headers={"x-request-id": "the-last"})
            wait_for(lambda: "the-last" in s.log, 30)
            said = [int(x) for x in re.findall(r"they could not be written in time lines=(\d+)", s.log)]
            assert sum(said) == s.metric("log_lines_dropped_total") >= missing
            lines = sum(" path=/nowhere " in x or " path=/generate " in x for x in s.log.splitlines())
            assert lines + sum(said) == n + 1, "each line is there or counted"
    finally:
        shard.stop()


def test_the_last_lines_are_written_if_somebody_reads(tmp_path):
    with launcher(tmp_path) as s:
        s.wait_ready()
        s.read_no_more()
        flood(s, 600)  # more than a pipe holds
        s.p.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        log = s.read_to_the_end()
        assert s.p.wait(30 * SLOW) == 0
    assert "starting graceful shutdown" in log and "Shutting down shards" in log
    assert "dropped" not in log and log.count("path=/nowhere") == 597


def test_a_shard_that_crashes_leaves_its_stack(tmp_path):
    with launcher(tmp_path) as s:
        s.wait_ready()
        s.wait_log("All shards ready")  # the launcher's own look comes after the router's: before it, a death is a failed start
        os.kill(s.shards()[0], signal.SIGABRT)
        s.wait_log("ends the process by signal 6")
        s.wait_log("Restarting the shards")
        assert re.search(r"shard-0: #\d+ \w+\+0x[0-9a-f]+ \(\+0x[0-9a-f]+\)", s.log)
        wait_for(lambda: requests.get(s.url + "/health", timeout=30).status_code == 200, 60)
