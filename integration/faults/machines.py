"""A model over several machines under random losses: ranks that are killed or frozen, machines that are killed or stopped and replaced.

    BIN_DIR=build/bin python integration/faults/machines.py [--seed 1] [--rounds 12] [--nodes 4] [--tls] [-- LAUNCHER OPTIONS]

Each round has four streams; all must end with the tokens that they have without a loss."""

import argparse
import concurrent.futures
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

os.environ.setdefault("THREADS", "1")
os.environ.setdefault("KV_CACHE_MEMORY", "1e8")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from serving import Process  # noqa: E402
from test_cluster import Member, authority  # noqa: E402
from test_nodes import LONG, end_all, start, wait_end  # noqa: E402

KINDS = ("rank", "two ranks", "machine", "stopped machine", "frozen rank")


def lose(kind, r, master, others):
    if "machine" in kind:
        k = r.randrange(len(others))
        others[k].p.send_signal(signal.SIGKILL if kind == "machine" else signal.SIGTERM)
        wait_end(others[k])
        time.sleep(r.random())
        others[k] = Process(others[k].argv)
        return
    for p in r.sample([master, *others], 2 if kind == "two ranks" else 1):
        if shards := p.shards():
            os.kill(r.choice(shards), signal.SIGSTOP if kind == "frozen rank" else signal.SIGKILL)
        time.sleep(r.random() * 0.4)


def main():
    a = argparse.ArgumentParser()
    for name, default in (("seed", 1), ("rounds", 12), ("nodes", 4)):
        a.add_argument(f"--{name}", type=int, default=default)
    a.add_argument("--tls", action="store_true")
    a.add_argument("options", nargs="*")
    a = a.parse_args()
    r, options = random.Random(a.seed), ["--max-shard-restarts", 1000, "--heartbeat-timeout", 3, *a.options]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        if a.tls:
            folder = pathlib.Path(folder)
            options += Member(folder, "member", authority(folder, "ours")).args
        master, others = start(a.nodes, 4, args=options)
        try:
            master.wait_ready()
            want, slowest = master.post("/generate", LONG).json()["details"]["tokens"], 0
            for i in range(a.rounds):
                asked = [pool.submit(master.post, "/generate", LONG) for _ in range(4)]
                time.sleep(r.random() * 0.3)
                kind, begun = r.choice(KINDS), time.monotonic()
                lose(kind, r, master, others)
                for answer in (x.result() for x in asked):
                    assert answer.status_code == 200, answer.text
                    assert answer.json()["details"]["tokens"] == want, "other tokens"
                slowest = max(slowest, time.monotonic() - begun)
                print(f"{i}: {kind}: {time.monotonic() - begun:.1f} s", flush=True)
            codes = [master.stop(), *(wait_end(p) for p in others)]
            assert not any(codes), codes
            print(f"{a.rounds} losses, {4 * a.rounds} streams, all with the same tokens; the slowest round took {slowest:.1f} s")
        finally:
            end_all([master, *others])


main()
