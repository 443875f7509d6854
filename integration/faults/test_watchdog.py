"""Diagnostics: stalls with the stacks of all threads, and the audit of resources. Also exhausted descriptors, oversized bodies and invalid frames:
each gets an answer and a log line."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import time

import pytest
import requests
from serving import DEMO, SLOW, Service, wait_for

ONCE = {"inputs": "Once", "parameters": {"max_new_tokens": 2}}


def router(s):
    return next(p for p in s.children() if pathlib.Path(f"/proc/{p}/comm").read_text().strip() == "router")


def test_a_stall_is_reported_once_with_stacks_and_state():
    """Two ranks, one of which stands still: the other's engine waits for it and makes no progress."""
    with Service(DEMO, num_shard=2, args=["--watchdog-seconds", "1", "--heartbeat-timeout", "0", "--json-output"]) as s:
        s.post("/generate", ONCE)
        shards = s.shards()
        rank1 = next(p for p in shards if b"RANK=1" in pathlib.Path(f"/proc/{p}/environ").read_bytes().split(b"\0"))
        with contextlib.ExitStack() as stack:
            c = stack.enter_context(socket.create_connection(("127.0.0.1", s.port)))
            body = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 1500}}).encode()
            os.kill(rank1, signal.SIGSTOP)
            try:
                c.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                s.wait_log("State of the engine")
                s.wait_log("it writes this")  # the watchdog's own thread is among them
                time.sleep(2.5)  # more looks: still one stall
            finally:
                os.kill(rank1, signal.SIGCONT)
        lines = [json.loads(x) for x in s.log.splitlines() if x.startswith("{")]
        of = [x["fields"] for x in lines if x["fields"]["message"] == "No progress"]
        assert [x["of"] for x in of if x["of"] == "engine thread"] == ["engine thread"]
        state = next(x["fields"] for x in lines if x["fields"]["message"] == "State of the engine")
        assert state["rank"] == 0 and state["doing"] in ("Prefill", "Decode", "run-ahead") and state["blocks_total"] > 0
        stacks = [x["fields"]["message"] for x in lines if x["target"] == "shard-0"]
        assert any(" decoder_forward+0x" in x or " rpc_server_run+0x" in x for x in stacks)
        assert len([x for x in stacks if re.match(r"thread \d+ \(", x)]) >= 4


def test_the_audit_needs_a_key_or_this_machine(tmp_path):
    with Service(DEMO) as s:
        r = requests.get(s.url + "/debug/audit")
        assert r.status_code == 200 and r.json()["scheduler"]["balanced"] is True
        r = requests.get(s.url + "/debug/audit", headers={"x-forwarded-for": "10.0.0.1"})
        assert r.status_code == 404
    with Service(DEMO, args=["--api-key", "secret"]) as s:
        assert requests.get(s.url + "/debug/audit").status_code == 401
        r = requests.get(s.url + "/debug/audit", headers={"authorization": "Bearer secret", "x-forwarded-for": "10.0.0.1"})
        assert r.status_code == 200 and set(r.json()) == {"scheduler", "models", "requests", "connections", "descriptors", "memory"}


def test_the_audit_balances_while_requests_run_and_after_a_storm():
    with Service(DEMO) as s:
        s.post("/generate", ONCE)
        idle = s.audit()
        assert idle["scheduler"]["known"] == 0 and idle["requests"] == {"live": 0, "permits_held": 0, "permits": 128}
        body = json.dumps({"inputs": "Once upon a time", "stream": True, "parameters": {"max_new_tokens": 1900}}).encode()
        head = b"POST /generate_stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        open_ = []
        for _ in range(20):
            c = socket.create_connection(("127.0.0.1", s.port))
            c.sendall(head + body)
            open_.append(c)
        wait_for(lambda: s.audit()["scheduler"]["streams"] == 20, 30)
        with s.held():
            a = s.audit()
            q, b = a["scheduler"], a["scheduler"]["blocks"]
            assert q["balanced"] and b["held"] == b["used"] > 0 and q["streams"] == a["requests"]["live"] == 20
            assert q["known"] == len(q["sequences"]) == 20 and a["requests"]["permits_held"] == 20
            assert sum(x["blocks"] for x in q["sequences"]) <= b["references"]
            assert a["connections"]["http"] >= 20 and a["descriptors"]["open"] >= idle["descriptors"]["open"] + 20
        for c in open_:
            c.close()
        wait_for(lambda: s.audit()["scheduler"]["known"] == 0, 60)
        a = s.audit()
        assert a["scheduler"]["balanced"] and a["scheduler"]["blocks"]["used"] == 0
        assert a["requests"] == idle["requests"]
        wait_for(lambda: s.audit()["descriptors"]["open"] <= idle["descriptors"]["open"] + 1, 30)


def test_the_audit_shows_every_model(tmp_path):
    (tmp_path / "other").symlink_to(DEMO)
    with Service(DEMO, args=["--kv-cache-memory", "5e7", "--threads", 1, "--models-folder", tmp_path]) as s:
        assert s.audit()["models"] == {}
        body = {"model": "other", "prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True}
        stream = s.post("/v1/completions", body, stream=True)
        lines = stream.iter_lines()  # the answer ends with it
        next(lines)
        (name, of), first = next(iter(s.audit()["models"].items())), s.audit()["scheduler"]
        assert name == "other" and of["permits_held"] == 1 and len(of["scheduler"]["sequences"]) == 1
        assert of["scheduler"]["balanced"] and of["scheduler"]["blocks"]["held"] > 0 and first["known"] == 0
        stream.close()
        wait_for(lambda: s.audit()["models"]["other"]["scheduler"]["known"] == 0, 30)
        of = s.audit()["models"]["other"]
        assert of["permits_held"] == 0 and of["scheduler"]["balanced"] and of["scheduler"]["blocks"]["used"] == 0


def test_descriptors_that_run_out():
    """Streams go on, no thread spins, later requests are served later; one line in the log, not thousands."""
    with Service(DEMO, args=["--json-output"]) as s:
        s.post("/generate", ONCE)
        pid = router(s)
        long = {"model": "m", "prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True}
        stream = s.post("/v1/completions", long, stream=True)
        lines = stream.iter_lines()
        next(lines)
        n = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (n + 10, n + 10))
        held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(40)]
        s.wait_log("Out of file descriptors")
        start = time.monotonic()
        cpu = sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        events = sum(x.startswith(b"data:") for x in lines)
        assert events == 1900, "the stream goes on"
        time.sleep(1)
        spent = sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) - cpu
        assert spent / os.sysconf("SC_CLK_TCK") < 0.9 * (time.monotonic() - start), "it spins"
        assert s.log.count("Out of file descriptors") <= 1 + (time.monotonic() - start) / 5
        held[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        for c in held[:-1]:
            c.close()
        held[-1].settimeout(30 * SLOW)
        assert held[-1].recv(100).startswith(b"HTTP/1.1 200")
        held[-1].close()


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--json-output", "--lmtp-max-message", "4096"]) as service:
        service.post("/generate", ONCE)
        yield service


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_100_mb(s, chunked):
    piece, n = b"x" * (1 << 20), 100
    data = (piece for _ in range(n)) if chunked else piece * n
    name = f"far-too-long-{chunked}"
    r = requests.post(s.url + "/generate", data=data, headers={"content-type": "application/json", "x-request-id": name}, timeout=60 * SLOW)
    assert r.status_code == 413
    s.wait_log(name)
    line = next(json.loads(x)["fields"] for x in s.log.splitlines() if name in x)
    assert line["status"] == 413 and "length limit" in line["error"]
    assert s.post("/generate", ONCE).status_code == 200


FRAMES = {
    "unmasked": (b"\x81\x02hi", 1002),
    "reserved bit": (b"\xc1\x80\0\0\0\0", 1002),
    "unknown opcode": (b"\x83\x80\0\0\0\0", 1002),
    "a long ping": (b"\x89\xfe\x00\x7e\0\0\0\0" + b"x" * 126, 1002),
    "a continuation of nothing": (b"\x80\x80\0\0\0\0", 1002),
    "not UTF-8": (b"\x81\x82\0\0\0\0\xff\xfe", 1007),
    "too big": (b"\x81\xfe\x20\x00\0\0\0\0" + b"x" * 8192, 1009),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_are_none(s, name):
    frame, code = FRAMES[name]
    lines = s.log.count(f'"code":{code}')
    with socket.create_connection(("127.0.0.1", s.port), timeout=20 * SLOW) as c:
        c.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        got = c.recv(4096)
        assert got.startswith(b"HTTP/1.1 101")
        rest = got.split(b"\r\n\r\n", 1)[1]
        c.sendall(frame)
        while len(rest) < 4:
            more = c.recv(4096)
            assert more, "closed without a Close frame"
            rest += more
        assert rest[0] == 0x88 and struct.unpack(">H", rest[2:4])[0] == code
    wait_for(lambda: s.log.count(f'"code":{code}') == lines + 1, 20)
