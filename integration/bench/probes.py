#!/usr/bin/env python3
"""How long /livez takes while many long prompts are tokenized and computed.

    probes.py [--requests 256] [--tokens 30000] [--seconds 30] [--threads 1]

The demo model with more positions. All requests are sent at once, as text; another process asks /livez every two milliseconds over
one connection, and once a second over a new one. What is measured holds the client's own wait for a processor: the same is
measured without any request (`idle`), and beside processes that only compute (`beside`), one for each thread that the load keeps busy."""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import random
import shutil
import socket
import sys
import tempfile
import time

import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Service

ASK = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
WORDS = "once upon a time there was a cat who lived in a small red house by the sea and said hello to the moon".split()


def long_demo(folder, positions):
    """The demo for prompts of that many tokens; what it says there makes no sense."""
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("train"))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = positions
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def words(rng, n):
    """A text of n words; each is one token of the demo, and a few are two."""
    return " ".join(rng.choices(WORDS, k=n))


def ask(c):
    """Seconds of one GET over an open connection."""
    begin = time.monotonic()
    c.sendall(ASK)
    got = b""
    while b"\r\n\r\n" not in got:
        piece = c.recv(4096)
        assert piece, "closed"
        got += piece
    assert got.startswith(b"HTTP/1.1 200"), got
    return time.monotonic() - begin


def probe(port, over, out):
    """Until `over`: one connection for many requests, a new one each second."""
    waits, fresh, due = [], [], time.monotonic()
    c = socket.create_connection(("127.0.0.1", port), timeout=60)
    while not over.is_set():
        waits.append(ask(c))
        if time.monotonic() > due:
            due = time.monotonic() + 1
            begin = time.monotonic()
            with socket.create_connection(("127.0.0.1", port), timeout=60) as new:
                ask(new)
            fresh.append(time.monotonic() - begin)
        time.sleep(0.002)
    out.put((waits, fresh))


def spin(over):
    while not over.is_set():
        sum(range(1000))


def share(v, q):
    v = sorted(v)
    return v[min(len(v) - 1, int(q * len(v)))]


def measured(port, work):
    """Waits of probes while work() runs."""
    over, out = multiprocessing.Event(), multiprocessing.Queue()
    p = multiprocessing.Process(target=probe, args=(port, over, out))
    p.start()
    try:
        work()
    finally:
        over.set()
        waits, fresh = out.get(timeout=120)
        p.join()
    return waits, fresh


def beside_work(port, n, seconds):
    """Waits beside n processes that only compute: what the system's scheduler costs a probe on this machine."""
    over = multiprocessing.Event()
    busy = [multiprocessing.Process(target=spin, args=(over,)) for _ in range(n)]
    for b in busy:
        b.start()
    try:
        return measured(port, lambda: time.sleep(seconds))[0]
    finally:
        over.set()
        for b in busy:
            b.join()


def load(s, n, tokens, seconds):
    """Sends n long prompts at once, and looks how far they come. Those that still wait leave."""
    rng = random.Random(18)
    bodies = [json.dumps({"inputs": words(rng, tokens), "parameters": {"max_new_tokens": 1}}) for _ in range(n)]
    head = {"content-type": "application/json"}

    def post(body):
        try:
            return requests.post(s.url + "/generate", data=body, headers=head, timeout=(60, seconds)).status_code
        except requests.RequestException:
            return None

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        codes = list(pool.map(post, bodies))
    return codes.count(200), len([c for c in codes if c not in (200, None)])


def row(name, waits, fresh=(), more=""):
    ms = [share(waits, q) * 1e3 for q in (0.5, 0.99, 0.999)]
    new = f"{share(fresh, 0.5) * 1e3:.2f}" if fresh else ""
    print(f"| {name} | {len(waits)} | {ms[0]:.2f} | {ms[1]:.2f} | {ms[2]:.2f} | {max(waits) * 1e3:.2f} | {new} | {more} |", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=256)
    p.add_argument("--tokens", type=int, default=30000)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="probes-"))
    model = long_demo(folder / "model", 2 * a.tokens)
    args = ["--threads", a.threads, "--kv-cache-memory", "6e8", "--max-concurrent-requests", a.requests + 8, "--max-input-tokens", a.tokens + 2000]
    print("| beside | probes | p50 ms | p99 | p99.9 | most | new connection p50 | |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    with Service(model, args=args) as s:
        row("idle", *measured(s.port, lambda: time.sleep(a.seconds / 2)))
        row(f"{a.threads + 1} that only compute", beside_work(s.port, a.threads + 1, a.seconds / 2))
        done = []
        waits = measured(s.port, lambda: done.append(load(s, a.requests, a.tokens, a.seconds)))
        prompt = s.metric("tgi_request_input_length_sum") or 0
        row(f"{a.requests} prompts of {a.tokens}", *waits, f"{done[0][0]} answered, {done[0][1]} refused, {prompt:.0f} tokens of prompts")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
