"""Two replicas on one machine: savings of prefix affinity compared with round robin, and the cost of a loss.

    python integration/bench/replicas.py [--model DIR] [--seconds N]

Chats of several tenants: every tenant has a system prompt, and one cache does not hold all of them. Prints a table in Markdown."""

import argparse
import concurrent.futures
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Service, wait_for
from test_replicas import ready, series

TENANTS, WORDS, CLIENTS = 10, 110, 8
LIMITS = ["--max-total-tokens", 1024, "--max-input-tokens", 1000, "--max-batch-total-tokens", 4000, "--max-batch-prefill-tokens", 1000]


def prompt(tenant, turn):
    return f"{tenant} " + " ".join(f"word{tenant} {i * tenant}" for i in range(WORDS)) + f" {turn}"


def load(s, requests, seed=1):
    """The same requests in the same order for every arrangement; seconds it took."""
    draw = random.Random(seed)
    work = [(draw.randrange(TENANTS), i) for i in range(requests)]

    def one(w):
        r = s.post("/generate", {"inputs": prompt(*w), "parameters": {"max_new_tokens": 8, "ignore_eos": True}})
        assert r.status_code == 200, r.text

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one, work))
    return time.monotonic() - began


def row(name, model, args, requests):
    with Service(model, args=[*LIMITS, *args]) as s:
        n = int(args[1]) if args and args[0] == "--replicas" else 1
        wait_for(lambda: n == 1 or ready(s) == n, 60)
        seconds = load(s, requests)
        hit, asked = s.metric("prefix_hit_tokens"), s.metric("prefix_query_tokens")
        sent = series(s, "replica_requests_total")
    shares = " + ".join(f"{v:.0f}" for v in sent.values()) or f"{requests}"
    print(f"| {name} | {shares} | {hit:,.0f} | {asked - hit:,.0f} | {100 * hit / asked:.0f} % | {requests / seconds:.1f} |", flush=True)
    return hit


def loss(model, requests):
    """The longest gap between two tokens of 16 streams when their replica is killed."""
    with Service(model, args=["--replicas", 2]) as s:
        wait_for(lambda: ready(s) == 2, 60)
        gaps, begun = [], []

        def one(i):
            last, worst, n = None, 0.0, 0
            for e in s.events("/generate_stream", {"inputs": f"{i} once", "parameters": {"max_new_tokens": 400, "ignore_eos": True, "seed": i}}):
                now = time.monotonic()
                worst = max(worst, now - last) if last else worst
                last, n = now, n + ("token" in e)
                begun.append(1)
            gaps.append(worst)
            return n

        with concurrent.futures.ThreadPoolExecutor(requests) as pool:
            asked = [pool.submit(one, i) for i in range(requests)]
            wait_for(lambda: len(begun) > 4 * requests, 60)
            killed = time.monotonic()
            os.kill(s.shards()[0], signal.SIGKILL)
            whole = sum(f.result() == 400 for f in asked)
            wait_for(lambda: ready(s) == 2, 60)
            back = time.monotonic() - killed
        handed = s.metric("tgi_replica_handovers")
    print(f"\n{requests} streams of 400 tokens, one of two replicas killed: {whole} whole, {handed:.0f} handed over; longest gap {1000 * max(gaps):.0f} ms, without the loss {1000 * sorted(gaps)[0]:.0f} ms; both replicas ready again after {back:.1f} s.")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=DEMO)
    p.add_argument("--requests", type=int, default=240)
    a = p.parse_args()
    print("| arrangement | requests of each | cached tokens | computed tokens | hits | requests/s |\n|---|---|---|---|---|---|")
    row("one group, all cores", a.model, [], a.requests)
    turns = row("two replicas, round robin", a.model, ["--replicas", "2", "--replica-policy", "round-robin"], a.requests)
    prefix = row("two replicas, by prefix", a.model, ["--replicas", "2"], a.requests)
    print(f"\nCached tokens by prefix: {prefix / turns:.2f} times those of round robin.")
    loss(a.model, 16)


if __name__ == "__main__":
    main()
