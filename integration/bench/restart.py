"""Effects of a killed shard on clients: the longest pause of a stream, and whether its answer is unchanged.

    python integration/bench/restart.py MODEL [--num-shard 2] [--streams 16] [--tokens 200] [--rounds 5]

Half of the streams are sampled with a seed. Each round kills one rank with SIGKILL when all streams run."""

import argparse
import concurrent.futures
import os
import pathlib
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import Service, wait_for


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--num-shard", type=int, default=2)
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    args = ["--threads", max(1, os.cpu_count() // a.num_shard), "--max-shard-restarts", 1000]
    with Service(a.model, num_shard=a.num_shard, args=args) as s:
        begun = []

        def stream(i):
            sampled = {"do_sample": True, "seed": i} if i % 2 else {}
            parameters = {"max_new_tokens": a.tokens, "ignore_eos": True, "details": True, **sampled}
            out, times = [], []
            for e in s.events("/generate_stream", {"inputs": f"Once upon a time {i}", "parameters": parameters}):
                out.append(e)
                times.append(time.monotonic())
                begun.append(i)
            return out, max(y - x for x, y in zip(times, times[1:]))

        def all_streams(kill):
            begun.clear()
            with concurrent.futures.ThreadPoolExecutor(a.streams) as pool:
                work = [pool.submit(stream, i) for i in range(a.streams)]
                wait_for(lambda: len(set(begun)) == a.streams, 600)
                if kill:
                    os.kill(max(s.shards()), signal.SIGKILL)
                done = [w.result() for w in work]
            return [x for x, _ in done], [x for _, x in done]

        want, _ = all_streams(False)
        pauses, same = [], 0
        for _ in range(a.rounds):
            got, gaps = all_streams(True)
            same += sum(x == y for x, y in zip(got, want))
            pauses += gaps
        n = a.rounds * a.streams
        print(f"{a.streams} streams, {a.num_shard} shards, {a.rounds} kills: {same} of {n} answers the same; longest pause of a stream: "
              f"median {statistics.median(pauses):.3f} s, worst {max(pauses):.3f} s; returns counted: {s.metric('tgi_shard_returns'):.0f}")


if __name__ == "__main__":
    main()
