#!/usr/bin/env python3
"""Compares encoder families with transformers: 32 texts of 64 tokens, random weights of each family's default sizes, alternating.

    python integration/bench/embed_families.py [--rounds 6] [--threads 2] [FAMILY...]

Both compute in fp32. Ours is timed through HTTP (/v1/embeddings, ids in, base64 out), transformers by its model alone, on a batch that needs no padding.
Needs torch and transformers 5 (PyPI); the programs from BIN_DIR (build/bin)."""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Service  # noqa: E402

TEXTS, TOKENS = 32, 64
FAMILIES = {
    "mobilebert": {},
    "xlnet": dict(d_model=768, n_layer=12, n_head=12, d_inner=3072),  # the base model; by default it is the large one
    "convbert": {},
    "squeezebert": {},
    "nystromformer": {},
    "fnet": {},
}


def rates(family, rounds, threads):
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **FAMILIES[family])
    model = AutoModel.from_config(config).eval()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embed-", dir="/tmp"))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((DEMO / name).read_bytes())  # ids are sent, not texts
    ids = np.random.default_rng(3).integers(5, 300, (TEXTS, TOKENS))
    batch = torch.tensor(ids)
    args = ["--task", "embed", "--pooling", "mean", "--dtype", "float32", "--threads", threads, "--max-batch-prefill-tokens", TEXTS * TOKENS]
    with Service(folder, args=args) as s:

        def ours():
            r = s.post("/v1/embeddings", {"input": ids.tolist(), "encoding_format": "base64"})
            assert r.status_code == 200, r.text

        def theirs():
            with torch.no_grad():
                model(input_ids=batch, attention_mask=torch.ones_like(batch))

        def timed(run):
            began = time.monotonic()
            run()
            return TEXTS * TOKENS / (time.monotonic() - began)

        ours(), theirs()
        return [(timed(ours), timed(theirs)) for _ in range(rounds)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("families", nargs="*", choices=[*FAMILIES, []], default=[])
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    for family in o.families or FAMILIES:
        rows = rates(family, o.rounds, o.threads)
        here, there = (statistics.median(r[i] for r in rows) for i in (0, 1))
        ratio = statistics.median(a / b for a, b in rows)
        print(f"{family}: here {here:.0f}, transformers {there:.0f} tokens/s, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
