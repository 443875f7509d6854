"""Prefill and decode apart: time to the first token of a prompt that another service computed, read over a link, beside computing
it. Prints rows of docs/results/fleet.md.

    python integration/bench/kv_transfer.py MODEL [--tokens 2000] [--rounds 3] [--ranks 1] [--delays 0,0.3,5]

A link is a relay on loopback that holds every byte back for half of the delay in each direction (round trips in ms)."""

import argparse
import collections
import contextlib
import pathlib
import random
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from serving import Service  # noqa: E402
from test_kv_transfer import ASK, ports, reads  # noqa: E402


class Link:
    def __init__(self, port, to, ms):
        self.to, self.half = to, ms / 2000
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for a, b in ((client, server), (server, client)):
                self.pump(a, b)

    def pump(self, source, to):
        """Two threads, so that many pieces are on their way at once."""
        way, there = collections.deque(), threading.Semaphore(0)

        def take():
            while piece := source.recv(1 << 20):
                way.append((time.monotonic() + self.half, piece))
                there.release()

        def give():
            while there.acquire():
                at, piece = way.popleft()
                time.sleep(max(0, at - time.monotonic()))
                to.sendall(piece)

        def quietly(f):
            with contextlib.suppress(OSError):  # the service has ended
                f()

        for f in (take, give):
            threading.Thread(target=quietly, args=(f,), daemon=True).start()


def ask(s, ids, params=None, n=1):
    body = {"model": "m", "prompt": ids, "max_tokens": n, "temperature": 0, "logprobs": 1}
    t0 = time.monotonic()
    r = s.post("/v1/completions", {**body, **({"kv_transfer_params": params} if params else {})})
    assert r.status_code == 200, r.text
    return time.monotonic() - t0, r.json()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=2000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--delays", default="0,0.3,5")
    o = p.parse_args()
    rng = random.Random(1)
    args = ["--max-total-tokens", o.tokens + 64, "--max-input-tokens", o.tokens + 32, "--max-batch-prefill-tokens", o.tokens + 64]

    def service():
        port = ports(o.ranks)
        s = Service(o.model, o.ranks, [*args, "--kv-transfer-address", f"127.0.0.1:{port}"])
        s.transfer_port = port
        return s

    def fresh():
        return [rng.randrange(300, 2000) for _ in range(o.tokens)]

    with service() as first, service() as second:
        for s in (first, second):
            ask(s, [5] * 64)
        computed = []
        for _ in range(o.rounds):
            ids = fresh()
            computed.append(ask(second, ids)[0])
        base = statistics.median(computed)
        cached = statistics.median(ask(second, ids)[0] for _ in range(3))
        print(f"computed {[round(t, 3) for t in computed]}, cached {cached:.3f}", file=sys.stderr)
        for ms in map(float, o.delays.split(",")):
            port = ports(o.ranks)
            links = [Link(port + r, first.transfer_port + r, ms) for r in range(o.ranks)]
            times, n0, bytes0 = [], reads(second, "found"), second.metric("tgi_kv_transfer_bytes")
            for _ in range(o.rounds + 1):  # the first one connects
                ids = fresh()
                _, a = ask(first, ids, ASK)
                t, b = ask(second, ids, {**a["kv_transfer_params"], "remote_port": port})
                assert a["choices"] == b["choices"], "other bits"
                times.append(t)
            assert reads(second, "found") == n0 + o.rounds + 1, second.log[-2000:]
            mib = (second.metric("tgi_kv_transfer_bytes") - bytes0) / (o.rounds + 1) / 2**20
            t = statistics.median(times[1:])
            name = "none" if not ms else f"{ms:g} ms"
            print(f"| {o.ranks} | {o.tokens} | {mib:.0f} MiB | {name} | {base:.3f} s | {t:.3f} s | {t / base:.3f} |", flush=True)
            print(f"  {[round(x, 3) for x in times]}", file=sys.stderr)
            for link in links:
                link.listener.close()


if __name__ == "__main__":
    main()
