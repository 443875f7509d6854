"""The gain of speculation: tokens/s of one stream with and without.

    python integration/bench/speculation.py [--layers 48] [--tokens 300] [--rounds 3]

The served model is the bundled demo made deeper by layers that change nothing (integration/deep.py); the draft model is the demo.
So every greedy draft is right, and a draft token costs demo's layers over `--layers` of a target step: the best case of a
draft model as much smaller. The n-gram case repeats itself by a grammar. One thread for each of the two models."""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from deep import deep
from serving import DEMO, Service, wait_for

SAYS = {"inputs": "Once upon a time", "parameters": {"details": True, "ignore_eos": True}}
REPEATS = {"inputs": "one two three four one two", "parameters": {"details": True, "ignore_eos": True}}
REPEATS["parameters"]["grammar"] = {"type": "regex", "value": "( three four one two)*"}


def rate(s, body, tokens):
    body = {"inputs": body["inputs"], "parameters": body["parameters"] | {"max_new_tokens": tokens}}
    times = []
    for _ in s.events("/generate_stream", body):
        times.append(time.monotonic())
    return (len(times) - 1) / (times[-1] - times[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--layers", type=int, default=48)
    p.add_argument("--tokens", type=int, default=300)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = deep(pathlib.Path(folder) / "model", a.layers)
        one = ["--threads", "1"]
        variants = {
            "plain": (one, SAYS),
            "draft model": ([*one, "--draft-model-id", DEMO, "--draft-threads", "1"], SAYS),
            "plain, repeats": (one, REPEATS),
            "n-gram, repeats": ([*one, "--speculate", "8"], REPEATS),
            "n-gram, says": ([*one, "--speculate", "8"], SAYS),
        }
        got = {name: [] for name in variants}
        for _ in range(a.rounds):
            for name, (args, body) in variants.items():
                with Service(model, args=args) as s:
                    if "draft" in name:
                        wait_for(lambda s=s: s.metric("tgi_draft_model") == 1, 60)
                    rate(s, body, 30)
                    got[name].append(rate(s, body, a.tokens))
        for name, v in got.items():
            base = got["plain, repeats" if "repeats" in name else "plain"]
            print(f"{name:18} {statistics.median(v):8.0f} tokens/s  {statistics.median(v) / statistics.median(base):5.2f}x  ({min(v):.0f} to {max(v):.0f})")


if __name__ == "__main__":
    main()
