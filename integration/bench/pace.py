#!/usr/bin/env python3
"""Time to first token and gaps between tokens under load, for several values of --target-inter-token-ms.

    pace.py MODEL [--clients 16] [--prompt 128] [--new 64] [--seconds 12] [--target 0 200 100]

Clients start one after the other and each asks again as soon as it is answered, with a prompt that was not sent before.
The limit that is printed beside the times to the first token is what the prompts of all clients take when nothing else is
computed: an empty server, one new token each, all at once."""

import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import time

import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import Service  # noqa: E402


def ask(s, ids, new):
    """Seconds to the first token, and between the others."""
    body = {"model": "m", "prompt": ids, "max_tokens": new, "ignore_eos": True, "temperature": 0, "stream": True}
    at = [time.monotonic()]
    with requests.post(s.url + "/v1/completions", json=body, stream=True, timeout=300) as r:
        for line in r.iter_lines(chunk_size=1):
            if line.startswith(b"data: {"):
                assert "choices" in json.loads(line[6:]), line
                at.append(time.monotonic())
    return at[1] - at[0], [b - a for a, b in zip(at[1:], at[2:])]


def share(v, q):
    v = sorted(v)
    return v[min(len(v) - 1, int(q * len(v)))]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--new", type=int, default=64)
    p.add_argument("--seconds", type=float, default=12)
    p.add_argument("--target", type=int, nargs="+", default=[0, 200])
    a = p.parse_args()
    rng = random.Random(1)

    def prompt():
        return [rng.randint(300, 1900) for _ in range(a.prompt)]

    print("| target ms | limit ms | first token p50 | p95 | gap p50 | p99 | max | tokens/s |")
    print("|---|---|---|---|---|---|---|---|")
    for target in a.target:
        args = ["--target-inter-token-ms", str(target), "--max-concurrent-requests", "256"]
        with Service(a.model, 1, args=args) as s, concurrent.futures.ThreadPoolExecutor(a.clients) as pool:
            ask(s, prompt(), 2)
            t = time.monotonic()
            list(pool.map(lambda ids: ask(s, ids, 1), [prompt() for _ in range(a.clients)]))
            limit = time.monotonic() - t
            end = time.monotonic() + a.seconds

            def client(k):
                time.sleep(k * 0.05)
                out = []
                while time.monotonic() < end:
                    out.append(ask(s, prompt(), a.new))
                return out

            t = time.monotonic()
            done = [x for v in pool.map(client, range(a.clients)) for x in v]
            first = [f * 1e3 for f, _ in done]
            gaps = [g * 1e3 for _, v in done for g in v]
            rate = len(done) * a.new / (time.monotonic() - t)
        print(
            f"| {target} | {limit * 1e3:.0f} | {share(first, .5):.0f} | {share(first, .95):.0f} | {share(gaps, .5):.0f} "
            f"| {share(gaps, .99):.0f} | {max(gaps):.0f} | {rate:.0f} |",
            flush=True,
        )


main()
