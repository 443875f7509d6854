"""Writes tests/data/sampling_edges.json: each sampling parameter alone and beside each other one, at the ends of its range.

    build/venv-torch/bin/python tests/golden/make_sampling_edges.py     # torch, transformers

The chain is make_sampling.py's. Rows have ties, masked tokens, scores near the limits of fp32, and one likely token; texts are empty, one
token repeated, and every token once. A case where no token is left has "error". tests/unit/model-server/sample/test_chain.c reads the file.
A case whose kept set depends on rounding is left out. "bound" is how much a probability may differ, relatively: 1e-4 and four times
what torch's fp32 differs from its fp64.
"""
import itertools
import json
import math
import pathlib
import random
import struct

import torch

import make_sampling as chains

VOCAB = chains.VOCAB
OUT = pathlib.Path(__file__).parents[1] / "data" / "sampling_edges.json"
LOWEST = -3.4028234663852886e38  # fp32's; what torch.finfo(dtype).min leaves of a masked token


def fp32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


# Values at the ends of a range, on both sides of the neutral value, and one between.
VALUES = {
    "temperature": [1e-6, 0.02, 0.5, 1.9, 100.0, 1e6],
    "repetition_penalty": [1e-6, 0.01, 1.2, 50.0, 1e6],
    "frequency_penalty": [-2.0, 1e-4, 2.0],
    "openai_presence_penalty": [-2.0, 1e-4, 2.0],
    "openai_frequency_penalty": [-2.0, 1e-4, 2.0],
    "top_n_sigma": [1e-5, 0.7, 3.0, 1e30],
    "top_k": [1, 2, 7, VOCAB - 1, VOCAB, VOCAB + 1, 2**31 - 1],
    "top_p": [1e-30, 1e-6, 0.3, 0.8, 0.9999, 1 - 2**-24],
    "min_p": [1e-30, 1e-3, 0.4, 1.0],
    "typical_p": [1e-30, 1e-4, 0.4, 0.9, 0.9999],
    "xtc_threshold": [1e-3, 0.08, 0.5, 0.51, 1.0],
    "dry_multiplier": [1e-3, 1.0, 1e6],
}


def some_rows(rng):
    normal = [rng.gauss(0, 3) for _ in range(VOCAB)]
    steps = [float(rng.randrange(-2, 3)) for _ in range(VOCAB)]
    pairs = [v for v in (rng.gauss(0, 2) for _ in range(VOCAB // 2)) for _ in (0, 1)]
    one = [0.0] * VOCAB
    one[11] = 30.0
    far = [-300.0] * VOCAB
    far[3] = far[30] = 300.0
    alone = [-math.inf] * VOCAB
    alone[39] = -7.5
    two = [-math.inf] * VOCAB
    two[0], two[38] = 1.0, 0.0
    filled = [v if rng.random() < 0.4 else LOWEST for v in normal]
    rows = [normal, steps, pairs, one, far, alone, two, filled, [0.0] * VOCAB, [1e-42] * VOCAB, [v * 1e27 for v in normal],
            [v + 4096 for v in normal], [-0.0 if i % 2 else 0.0 for i in range(VOCAB)]]
    return [[fp32(v) for v in row] for row in rows]


def texts(rng):
    """Prompt and answer."""
    every = rng.sample(range(VOCAB), VOCAB)
    return [([], []), ([], [17]), ([17] * 50, []), ([], [17] * 50), (every, every[:7]), ([1, 2, 3] * 9, [1, 2, 3, 1, 2]),
            (every[:5] + [39] * 5, [38, 39] * 6)]


def masks(rng):
    return [[], [], list(range(VOCAB)), [0], [VOCAB - 1], sorted(rng.sample(range(VOCAB), 20)), [0, 38], [11]]


def biases(rng):
    return [[], [], [], [[t, 100.0] for t in (0, 38)], [[t, -100.0] for t in range(VOCAB)], [[t, round(rng.uniform(-5, 5), 2)] for t in range(VOCAB)]]


def complete(p):
    """Values as fp32, and those that make a threshold or a base act."""
    p = {name: v if isinstance(v, int) else fp32(v) for name, v in p.items()}
    if "xtc_threshold" in p:
        p["xtc_probability"] = 1
    if "dry_multiplier" in p:
        p |= {"dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1}
    return p


def all_masked(case):
    row = chains.ROWS[case["row"]]
    return all(row[t] == -math.inf for t in case["mask"] or range(VOCAB))


def chain(case, dtype, nudge=0.0):
    chains.DTYPE = dtype
    return chains.chain(case, nudge)


def expected(case):
    """What is kept, with log-probabilities, and how much fp32 may change a probability; None: rounding decides."""
    if all_masked(case):
        return {"error": True}
    sides = [chain(case, torch.float64, nudge) for nudge in (-2e-6, 0, 2e-6)] + [chain(case, torch.float32)]
    if any(math.isnan(v) for side in sides for v in side) or len({tuple(v == -math.inf for v in side) for side in sides}) > 1:
        return None
    kept = [[t, round(v, 6)] for t, v in enumerate(sides[1]) if v > -80]
    bound = 1e-4 + 4 * max(abs(sides[1][t] - sides[3][t]) for t, _ in kept)
    return {"kept": kept, "bound": float(f"{bound:.2g}")} if bound < 0.02 else None


def some_cases(rng):
    alone = [{name: v} for name, values in VALUES.items() for v in values]
    both = [{a: v, b: w} for a, b in itertools.combinations(VALUES, 2) for v, w in zip(rng.sample(VALUES[a], 3), rng.sample(VALUES[b], 3))]
    rows, contexts = range(len(chains.ROWS)), texts(rng)
    for p, times in [(p, 4) for p in [{}, *alone]] + [(p, 1) for p in both]:
        for row in rng.sample(rows, times):
            prompt, answer = rng.choice(contexts)
            yield {"row": row, "prompt": prompt, "answer": answer, "bias": rng.choice(biases(rng)), "mask": rng.choice(masks(rng)), "params": complete(p)}


def main():
    rng = random.Random(4)
    chains.ROWS = some_rows(random.Random(3))
    cases, left_out = [], 0
    for case in some_cases(rng):
        result = expected(case)
        if result:
            cases.append(case | result)
        else:
            left_out += 1
    rows = [[v if math.isfinite(v) else None for v in row] for row in chains.ROWS]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f'{{"texts":{json.dumps(chains.TEXTS)},\n"breakers":{json.dumps(chains.BREAKERS)},\n"rows":{json.dumps(rows)},\n"cases":[\n{lines}\n]}}\n')
    print(f"{OUT}: {len(cases)} cases ({sum('error' in c for c in cases)} errors), {left_out} left out, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
