#!/usr/bin/env python3
"""The gain of draft heads: tokens per step, and tokens/s compared with the same model without them.

    python integration/bench/heads.py PLAIN [--mtp FOLDER] [--medusa FOLDER] [--eagle3 FOLDER] [--batch 1 4 16] [--tokens 200] [--layers 60]
        [--alone 16]

Folders as fit_drafts.py makes them. All are served at once and measured in turn; a ratio is to `plain` of the same round. With
--layers the models are made deeper by layers that change nothing: steps that cost as much more as those of a larger model, and drafts
that are right as often as before. Streams of one batch begin together; half of them are greedy, half sampled at temperature 1. The
status is 1 if one is below 0.97 of plain. With --alone so many streams come one after the other, and only tokens a step are counted:
where SPECULATE_ROW_COST says what a row costs, a run is like the run before."""

import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / d) for d in ("", "speculation")]
from draft_heads import _save, _tensors  # noqa: E402
from serving import Service  # noqa: E402

STARTS = ["Once upon a time", "One day, a girl named Lily", "There was a little dog", "The sun was", "Tom and Sue", "In the park", "A big bear", "Mom said"]


def body(i, tokens):
    p = {"max_new_tokens": tokens, "ignore_eos": True, "details": True}
    if i % 2:
        p |= {"do_sample": True, "temperature": 1.0, "seed": i}
    return {"inputs": STARTS[i % len(STARTS)], "parameters": p}


def deeper(folder, model, layers):
    """`model` with layers that add nothing to the stream; a layer behind its last one stays there."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    have, config["num_hidden_layers"] = config["num_hidden_layers"], layers
    (folder / "config.json").write_text(json.dumps(config))
    t = _tensors(model)
    head = {k: t.pop(k) for k in list(t) if k.startswith(f"model.layers.{have}.")}
    for n in range(have, layers):
        for k in [k for k in t if k.startswith("model.layers.0.")]:
            nothing = k.endswith(("o_proj.weight", "down_proj.weight"))
            t[k.replace(".0.", f".{n}.", 1)] = np.zeros_like(t[k]) if nothing else t[k]
    _save(folder, t | {k.replace(f".{have}.", f".{layers}.", 1): v for k, v in head.items()})
    return folder


def steps(s):
    return s.metric("tgi_request_skipped_tokens_count") or 0, s.metric("tgi_request_skipped_tokens_sum") or 0


def once(s, batch, tokens):
    """The texts, and tokens/s."""
    t0 = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(batch) as pool:
        got = list(pool.map(lambda i: s.post("/generate", body(i, tokens)).json()["generated_text"], range(batch)))
    return got, batch * tokens / (time.monotonic() - t0)


def per_step(before, after):
    n, more = (b - a for a, b in zip(before, after))
    return (n + more) / n if n else 1.0


def measure(services, batch, o):
    """For each kind: the ratios to plain, and tokens a step."""
    before = {kind: steps(s) for kind, s in services.items()}
    want, rates = None, {kind: [] for kind in services}
    for n in range(o.rounds + 1):
        plain = 0.0
        for kind, s in services.items():
            texts, rate = once(s, batch, o.tokens)
            want = want or texts
            assert texts == want, kind
            plain = rate if kind == "plain" else plain
            if n or o.rounds == 1:  # the first one teaches
                rates[kind].append((rate, rate / plain))
    return {kind: (rates[kind], per_step(before[kind], steps(s))) for kind, s in services.items()}


def alone(services, o):
    print("\n| | tokens a step |\n|---|--:|")
    for kind, s in services.items():
        before = steps(s)
        for i in range(o.alone):
            s.post("/generate", body(i, o.tokens)).json()["generated_text"]
        print(f"| {kind} | {per_step(before, steps(s)):.2f} |", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("plain"), p.add_argument("--mtp"), p.add_argument("--medusa"), p.add_argument("--eagle3")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    p.add_argument("--tokens", type=int, default=200), p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--layers", type=int, default=0), p.add_argument("--alone", type=int, default=0)
    o = p.parse_args()
    if o.layers:
        made = pathlib.Path(tempfile.mkdtemp())
        o.plain = deeper(made / "plain", o.plain, o.layers)
        o.mtp = o.mtp and deeper(made / "mtp", o.mtp, o.layers)
    speculate = ["--speculate", "4"]
    kinds = {"plain": (o.plain, []), "n-gram": (o.plain, speculate)}
    kinds |= {"mtp": (o.mtp, speculate)} if o.mtp else {}
    for kind in ("medusa", "eagle3"):
        if getattr(o, kind):
            kinds[kind] = (o.plain, ["--draft-heads", str(pathlib.Path(getattr(o, kind)).resolve())])
    least = 9.0
    with contextlib.ExitStack() as stack:
        services = {}
        for kind, (model, args) in kinds.items():
            services[kind] = stack.enter_context(Service(pathlib.Path(model).resolve(), args=["--threads", "1", *args]))
            print(kind, *[line.split("speculation ", 1)[1] for line in services[kind].log.splitlines() if "row_cost" in line], flush=True)
        if o.alone:
            return alone(services, o)
        print("\n| batch | | tokens/s | of plain | tokens a step |\n|--:|---|--:|--:|--:|")
        for batch in o.batch:
            for kind, (rates, each) in measure(services, batch, o).items():
                of = [r for _, r in rates]
                print(f"| {batch} | {kind} | {statistics.median(r for r, _ in rates):.0f} | {statistics.median(of):.2f} ({min(of):.2f}–{max(of):.2f}) | {each:.2f} |", flush=True)
                least = min(least, statistics.median(of))
    sys.exit(least < 0.97)


if __name__ == "__main__":
    main()
