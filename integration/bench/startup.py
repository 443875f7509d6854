#!/usr/bin/env python3
"""Seconds from exec to ready: model-server alone (its `shard ready` line), and the launcher with router and shards (the first
200 of GET /health), and from SIGTERM to the end of all of them.   startup.py CHECKPOINT [--rounds N] [--bin build/bin] [options of the launcher...]
The files are read once before, so that the page cache holds them; peak memory is the largest resident size of the shard, with and
without the pages of the mapped checkpoint."""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request


def warm(folder):
    for f in filter(pathlib.Path.is_file, pathlib.Path(folder).iterdir()):
        with open(f, "rb", buffering=0) as r:
            while r.read(1 << 24):
                pass


class Peak(threading.Thread):
    """The largest resident and anonymous size of a process, by looking every 10 ms."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.rss, self.anon = pid, 0, 0
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.01):
            try:
                text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
            except OSError:
                return
            found = dict(re.findall(r"(Rss\w+|VmRSS):\s+(\d+)", text))
            self.rss = max(self.rss, int(found.get("VmRSS", 0)))
            self.anon = max(self.anon, int(found.get("RssAnon", 0)))


def stop(p):
    p.send_signal(signal.SIGTERM)
    p.wait(60)


def shard(args, rest):
    with tempfile.TemporaryDirectory() as d:
        cmd = [f"{args.bin}/model-server", "serve", args.checkpoint, "--uds-path", f"{d}/s", *rest]
        start = time.perf_counter()
        p = subprocess.Popen(cmd, stdout=subprocess.PIPE, text=True)
        peak = Peak(p.pid)
        for line in p.stdout:
            if "shard ready" in line:
                took = time.perf_counter() - start
                break
        else:
            raise SystemExit(f"the shard ended: {p.wait()}")
        peak.over.set()
        stop(p)
        return took, peak.rss / 1e6, peak.anon / 1e6


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def resident(pid):
    """GB of a process and of all below it."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    try:
        mine = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:  # it has ended since
        mine = None
    return int(mine[1] if mine else 0) / 1e6 + sum(resident(c) for c in children.stdout.split())


def first_request(port, tokens):
    """Seconds of the first request: a prompt of about so many tokens, one token of an answer."""
    body = json.dumps({"inputs": "a b c d " * (tokens // 4), "parameters": {"max_new_tokens": 1}}).encode()
    r = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", body, {"Content-Type": "application/json"}
    )
    start = time.perf_counter()
    with urllib.request.urlopen(r, timeout=300) as answer:
        answer.read()
    return time.perf_counter() - start


def launcher(args, rest):
    """Seconds to ready, GB resident then, seconds of the first and of the second request, and of the end."""
    port = free_port()
    with tempfile.TemporaryDirectory() as d:
        cmd = [f"{args.bin}/launcher", "--model-id", args.checkpoint, "--port", str(port)]
        cmd += ["--hostname", "127.0.0.1", "--shard-uds-path", f"{d}/s", *rest]
        start = time.perf_counter()
        p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        log = []
        threading.Thread(target=lambda: log.extend(p.stdout), daemon=True).start()
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                if p.poll() is not None:
                    raise SystemExit("the launcher ended:\n" + "".join(log))
                time.sleep(0.002)
        took, rss = time.perf_counter() - start, resident(p.pid)
        first = [first_request(port, args.prompt) for _ in range(2)]
        start = time.perf_counter()
        stop(p)
        ended = time.perf_counter() - start
        if args.log:
            print("".join(log))
        return took, rss, first, ended


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("--bin", default=os.environ.get("BIN_DIR", "build/bin"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--log", action="store_true")
    p.add_argument("--prompt", type=int, default=64, help="tokens of the first request's prompt, about")
    p.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    args, rest = p.parse_known_args()
    others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(args.busy)]
    try:
        measure(args, rest)
    finally:
        for o in others:
            o.kill()
            o.wait()


def measure(args, rest):
    warm(args.checkpoint)
    alone = [shard(args, rest) for _ in range(args.rounds)]
    whole = [launcher(args, rest) for _ in range(args.rounds)]
    print("| exec to ready | median s | best | worst | peak resident GB | of it anonymous |")
    print("|---|---|---|---|---|---|")
    took = [a[0] for a in alone]
    rss, anon = (max(a[i] for a in alone) for i in (1, 2))
    print(
        f"| model-server | {statistics.median(took):.2f} | {min(took):.2f} | {max(took):.2f} | {rss:.2f} | {anon:.2f} |"
    )
    ready, rss, requests, ended = zip(*whole)
    first, second = zip(*requests)
    print(
        f"| launcher, router, shard | {statistics.median(ready):.2f} | {min(ready):.2f} | {max(ready):.2f} | | |"
    )
    print(
        f"| first request after ready | {statistics.median(first):.2f} | {min(first):.2f} | {max(first):.2f} | | |"
    )
    print(f"| the same request again | {statistics.median(second):.2f} | {min(second):.2f} | {max(second):.2f} | | |")
    print(f"| SIGTERM to the end | {statistics.median(ended):.2f} | {min(ended):.2f} | {max(ended):.2f} | | |")
    print(f"\nResident when ready, all processes: {max(rss):.2f} GB")


if __name__ == "__main__":
    main()
