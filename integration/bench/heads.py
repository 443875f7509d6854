#!/usr/bin/env python3
"""What draft heads save: tokens per step, and tokens/s beside the same model without them.

    python integration/bench/heads.py PLAIN WITH_MTP [MEDUSA] [--batch 1 4 16] [--tokens 200] [--layers 60]

Folders as fit_drafts.py makes them. With --layers the models are made deeper by layers that change nothing: steps that cost as
much more as those of a larger model, and drafts that are right as often as before. Streams of one batch begin together; half of them are greedy, half sampled at temperature 1."""

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from heads import _save, _tensors  # noqa: E402
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


def run(s, batch, tokens, rounds):
    texts, rates = [], []
    before = steps(s)
    with concurrent.futures.ThreadPoolExecutor(batch) as pool:
        for _ in range(rounds):
            t0 = time.monotonic()
            got = list(pool.map(lambda i: s.post("/generate", body(i, tokens)).json()["generated_text"], range(batch)))
            rates.append(batch * tokens / (time.monotonic() - t0))
            texts = got
    n, more = (b - a for a, b in zip(before, steps(s)))
    return texts, sorted(rates)[len(rates) // 2], (n + more) / n if n else 1.0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("plain"), p.add_argument("mtp"), p.add_argument("medusa", nargs="?")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    p.add_argument("--tokens", type=int, default=200), p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--layers", type=int, default=0)
    o = p.parse_args()
    if o.layers:
        made = pathlib.Path(tempfile.mkdtemp())
        o.plain, o.mtp = deeper(made / "plain", o.plain, o.layers), deeper(made / "mtp", o.mtp, o.layers)
    kinds = {"plain": (o.plain, []), "mtp": (o.mtp, ["--speculate", "4"])}
    if o.medusa:
        kinds["medusa"] = (o.plain, ["--draft-heads", str(pathlib.Path(o.medusa).resolve())])
    want = {}
    for kind, (model, args) in kinds.items():
        with Service(pathlib.Path(model).resolve(), args=["--threads", "1", *args]) as s:
            for line in s.log.splitlines():
                if "row_cost" in line:
                    print(line)
            for batch in o.batch:
                texts, rate, per_step = run(s, batch, o.tokens, o.rounds)
                assert want.setdefault(batch, texts) == texts, kind
                print(f"{kind:7} batch {batch:2}: {rate:8.0f} tokens/s, {per_step:.2f} tokens a step", flush=True)


if __name__ == "__main__":
    main()
