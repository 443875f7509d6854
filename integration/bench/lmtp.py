"""Compares LMTP with HTTP: tokens per second of 64 streams, time to the first token of a continuation, memory of idle connections.

    python integration/bench/lmtp.py [--model DIR] [--rows streams,continuation,bias,connections]

Raw sockets on both sides, so that the client costs the same for both: the streams are counted, not parsed."""

import argparse
import json
import os
import pathlib
import resource
import select
import socket
import statistics
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Service  # noqa: E402


class Socket:
    """A WebSocket as thin as it gets: one message out, whole frames in."""

    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        self.buf = b""
        while b"\r\n\r\n" not in self.buf:
            self.buf += self.s.recv(4096)
        head, self.buf = self.buf.split(b"\r\n\r\n", 1)
        assert b" 101 " in head, head

    def say(self, text):
        data = text.encode()
        n = len(data)
        size = struct.pack("!B", 0x80 | n) if n < 126 else struct.pack("!BH", 0xFE, n) if n < 65536 else None
        if size is None:
            size = struct.pack("!BQ", 0xFF, n)
        self.s.sendall(b"\x81" + size + b"\0\0\0\0" + data)  # a mask of zeros changes nothing

    def receive(self):
        while True:
            if len(self.buf) >= 2:
                n, at = self.buf[1] & 127, 2
                if n == 126 and len(self.buf) >= 4:
                    n, at = struct.unpack("!H", self.buf[2:4])[0], 4
                elif n == 127 and len(self.buf) >= 10:
                    n, at = struct.unpack("!Q", self.buf[2:10])[0], 10
                if n not in (126, 127) or at > 2:
                    if len(self.buf) >= at + n:
                        text = self.buf[0] & 15 == 1  # else a ping
                        out, self.buf = self.buf[at : at + n], self.buf[at + n :]
                        if text:
                            return out
                        continue
            more = self.s.recv(1 << 16)
            assert more, "closed"
            self.buf += more


def cpu(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])


def router_of(s):
    return next(p for p in s.children() if os.readlink(f"/proc/{p}/exe").endswith("/router"))


def lmtp_streams(s, prompt, streams, tokens):
    w = Socket(s.port)
    t, frames, left = time.perf_counter(), 0, streams
    for i in range(streams):
        w.say(
            "GENERATE "
            + json.dumps({"prompt": prompt, "max_tokens": tokens, "logit_bias": {"1": -100}, "stream_id": i})
        )
    while left:
        frame = w.receive()
        frames += 1
        left -= frame.count(b'"length"') + frame.count(b'"stop"')
        assert b'"error"' not in frame, frame
    return time.perf_counter() - t, frames


def http_streams(s, text, streams, tokens):
    body = json.dumps({"inputs": text, "parameters": {"max_new_tokens": tokens, "logit_bias": {"1": -100}}}).encode()
    head = f"POST /generate_stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    poll, socks, events = select.epoll(), {}, 0
    t = time.perf_counter()
    for _ in range(streams):
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(head.encode() + body)
        poll.register(c.fileno(), select.EPOLLIN)
        socks[c.fileno()] = [c, b""]
    while socks:
        for fd, _ in poll.poll():
            c, tail = socks[fd]
            data = tail + c.recv(1 << 16)
            events += data.count(b"data:") - tail.count(b"data:")
            socks[fd][1] = data[-16:]
            if data.endswith(b"0\r\n\r\n"):
                poll.unregister(fd)
                c.close()
                del socks[fd]
    return time.perf_counter() - t, events


def continuation(s, rounds=24):
    """lmql's habit: the whole prompt again with every chunk. Seconds to the first token and between tokens, and to the first of a new prompt."""
    w, first, steps, cold = Socket(s.port), [], [], []
    for kind in range(2):
        prompt = [3 + kind + i % 200 for i in range(1500)]
        for r in range(rounds if kind else (5 if rounds > 8 else 0)):
            ask = prompt if kind else [20 + r + i % 150 for i in range(1500)]
            w.say(
                "GENERATE " + json.dumps({"prompt": ask, "max_tokens": 16, "logit_bias": {"1": -100}, "stream_id": 1})
            )
            t, seen = time.perf_counter(), []
            while len(seen) < 16:
                items = json.loads(w.receive().split(b" ", 1)[1])
                now = time.perf_counter()
                if seen:
                    steps.append((now - t) / len(items))
                else:
                    (first if kind and r else cold).append(now - t)
                t = now
                seen += [i["token"] for i in items]
            prompt = prompt + seen
    return statistics.median(first), statistics.median(steps), statistics.median(cold)


def bias(s, vocab, rounds=8):
    """Seconds to the first token of a prompt that is in the cache, without and with a bias for half of the vocabulary (0.8 MB at most);
    the message's bytes."""
    w, seconds = Socket(s.port), ([], [])
    biases = ({"1": -100}, {str(i): -100 for i in list(range(1, vocab, 2))[:53000]})
    for r in range(2 * rounds + 2):
        ask = {"prompt": [9] * 40, "max_tokens": 1, "logit_bias": biases[r % 2], "stream_id": 1}
        text = "GENERATE " + json.dumps(ask)
        t = time.perf_counter()
        w.say(text)
        frame = w.receive()
        assert b'"error"' not in frame, frame
        if r > 1:
            seconds[r % 2].append(time.perf_counter() - t)
    return *(statistics.median(x) for x in seconds), len(text)


def many(s, held, tokens):
    """One stream on each connection, all at once."""
    t = time.perf_counter()
    message = json.dumps({"prompt": [1, 5], "max_tokens": tokens, "logit_bias": {"1": -100}, "stream_id": 1})
    for w in held:
        w.say("GENERATE " + message)
    for w in held:
        n = 0
        while n < tokens:
            frame = w.receive()
            assert b'"error"' not in frame, frame
            n += frame.count(b'"token"')
    return time.perf_counter() - t


def row_streams(s, o):
    router = router_of(s)
    text = "Once upon a time"
    prompt = [t["id"] for t in s.post("/tokenize", {"inputs": text}).json()]
    for name, run in (
        ("LMTP", lambda: lmtp_streams(s, prompt, 64, o.tokens)),
        ("HTTP", lambda: http_streams(s, text, 64, o.tokens)),
    ):
        run()
        best = None
        for _ in range(3):
            before = cpu(router)
            spent, pieces = run()
            row = (spent, pieces, cpu(router) - before)
            best = min(best or row, row)
        n = 64 * o.tokens
        print(
            f"{name}: 64 streams, {n / best[0]:8.0f} tokens/s, router {1e6 * best[2] / n:6.1f} us CPU a token, {best[1]} frames or events"
        )


def row_continuation(s, o):
    warm, step, cold = continuation(s, o.rounds)
    print(
        f"prompt of 1500 tokens and more: first token after {1e3 * cold:.2f} ms new, {1e3 * warm:.2f} ms as a continuation;"
        f" a token every {1e3 * step:.2f} ms: ratio {warm / step:.2f}"
    )


def row_bias(s, o):
    vocab = json.loads((pathlib.Path(o.model) / "config.json").read_text())["vocab_size"]
    without, with_, size = bias(s, vocab)
    print(
        f"a message of {size} bytes, nearly all of it logit_bias: first token after {1e3 * with_:.2f} ms, {1e3 * without:.2f} ms without"
    )


def row_connections(s, o):
    router = router_of(s)
    before, held = rss_kib(router), [Socket(s.port) for _ in range(o.idle)]
    time.sleep(0.5)
    print(f"{o.idle} idle connections: {(rss_kib(router) - before) / o.idle:.1f} KiB each (router's resident memory)")
    spent = many(s, held, 8)
    print(f"{o.idle} connections, one stream of 8 tokens each at once: {spent:.2f} s, {8 * o.idle / spent:.0f} tokens/s")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--model", default=DEMO)
    a.add_argument("--idle", type=int, default=1000)
    a.add_argument("--tokens", type=int, default=200)
    a.add_argument("--rows", default="streams,continuation,bias,connections")
    a.add_argument("--rounds", type=int, default=24, help="of the continuation")
    o = a.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with Service(o.model, args=["--max-concurrent-requests", o.idle + 256]) as s:
        for row in o.rows.split(","):
            {"streams": row_streams, "continuation": row_continuation, "bias": row_bias, "connections": row_connections}[row](s, o)


if __name__ == "__main__":
    main()
