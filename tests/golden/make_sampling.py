"""Writes tests/data/sampling_chain.json: whole chains of samplers, and the distributions that they leave.

    build/venv-torch/bin/python tests/golden/make_sampling.py     # torch, transformers

Bias, repetition penalty, temperature, top_k, top_p, min_p and typical_p are transformers' own processors, in fp64.
TGI's and OpenAI's penalties, top-n-sigma, XTC and DRY are written here from their definitions, as plainly as can be.
tests/unit/model-server/sample/test_chain.c reads the file. A case whose kept set depends on rounding is left out.
"""
import functools
import json
import math
import pathlib
import random

import torch
from transformers.generation import logits_process as hf

torch.sort = functools.partial(torch.sort, stable=True)  # which of equal tokens top_p keeps; the processors do not say
VOCAB, CASES = 40, 320
OUT = pathlib.Path(__file__).parents[1] / "data" / "sampling_chain.json"
# Texts of tokens: breakers alone, inside a token, and spread over two and three tokens.
TEXTS = [f"{chr(97 + i % 26)}{i // 26}" for i in range(VOCAB)]
for at, text in {6: ":", 7: "x\ny", 8: "En", 9: "d.", 10: "End", 11: "<", 12: "|", 13: ">"}.items():
    TEXTS[at] = text
BREAKERS = [":", "\n", "End", "<|>"]


DTYPE = torch.float64


def tensor(row):
    return torch.tensor([row], dtype=DTYPE)


def breaks_of(ids):
    """Which tokens complete a breaker, read from the text that they make."""
    text, breaks = "", []
    for t in ids:
        before = len(text)
        text += TEXTS[t]
        breaks.append(any(text.find(b, max(0, before - len(b) + 1)) >= 0 for b in BREAKERS))
    return breaks


def dry(row, ids, p):
    """p-e-w's rule, with every earlier place compared with the end of the context."""
    last_n = p["dry_penalty_last_n"]
    breaks = breaks_of(ids)
    if last_n >= 0:
        ids, breaks = ids[len(ids) - min(last_n, len(ids)):], breaks[len(breaks) - min(last_n, len(breaks)):]
    n = len(ids)
    longest = {}
    for follower in range(1, n):
        length = 0
        while (length < follower and ids[follower - 1 - length] == ids[n - 1 - length]
               and not breaks[n - 1 - length]):
            length += 1
        if length and not breaks[follower]:
            longest[ids[follower]] = max(longest.get(ids[follower], 0), length)
    for t, length in longest.items():
        if length >= p["dry_allowed_length"]:
            row[0, t] -= p["dry_multiplier"] * p["dry_base"] ** (length - p["dry_allowed_length"])


def penalise(row, ids, n_prompt, p):
    """TGI's frequency penalty over the whole context; OpenAI's two over the answer."""
    for t in set(ids):
        row[0, t] -= p.get("frequency_penalty", 0) * ids.count(t) / len(ids)
    answer = ids[n_prompt:]
    for t in set(answer):
        row[0, t] -= p.get("openai_presence_penalty", 0) + p.get("openai_frequency_penalty", 0) * answer.count(t)


def top_n_sigma(row, n):
    finite = row[row.isfinite()]
    if not len(finite):
        return row
    bar = finite.max() - n * finite.std(correction=0)
    return row.masked_fill(row < bar, -math.inf)


def xtc(row, threshold):
    probs = row.softmax(-1)[0].tolist()
    order = sorted((t for t in range(VOCAB) if probs[t] > 0), key=lambda t: (-probs[t], t))
    above = [t for t in order if probs[t] >= threshold]
    for t in above[:-1]:
        row[0, t] = -math.inf


def chain(case, nudge=0.0):
    """The log-probabilities after all samplers. `nudge` moves the bars a little."""
    p, ids = case["params"], case["prompt"] + case["answer"]
    row = tensor(ROWS[case["row"]])
    context = torch.tensor([ids], dtype=torch.long)
    if case["bias"]:
        row = hf.SequenceBiasLogitsProcessor([[[t], v] for t, v in case["bias"]])(context, row)
    if "repetition_penalty" in p and ids:
        row = hf.RepetitionPenaltyLogitsProcessor(p["repetition_penalty"])(context, row)
    penalise(row, ids, len(case["prompt"]), p)
    if "dry_multiplier" in p:
        dry(row, ids, p)
    if case["mask"]:
        row = row.masked_fill(~torch.tensor([[t in case["mask"] for t in range(VOCAB)]]), -math.inf)
    if "temperature" in p:
        row = hf.TemperatureLogitsWarper(p["temperature"])(context, row)
    if "top_n_sigma" in p:
        row = top_n_sigma(row, p["top_n_sigma"] * (1 + nudge))
    warpers = [("top_k", hf.TopKLogitsWarper, int), ("top_p", hf.TopPLogitsWarper, lambda v: min(v * (1 + nudge), 1)),
               ("min_p", hf.MinPLogitsWarper, lambda v: min(v * (1 + nudge), 1)),
               ("typical_p", hf.TypicalLogitsWarper, lambda v: min(v * (1 + nudge), 1 - 1e-9))]
    for name, warper, value in warpers:
        if name in p:
            row = warper(value(p[name]))(context, row)
    if "xtc_probability" in p:
        xtc(row, p["xtc_threshold"] * (1 + nudge))
    return row.log_softmax(-1)[0].tolist()


def some_rows(rng):
    normal = [[round(rng.gauss(0, s), 3) for _ in range(VOCAB)] for s in (0.5, 2, 4, 8)]
    coarse = [[rng.randrange(-6, 7) / 2 for _ in range(VOCAB)] for _ in range(2)]
    peak = [round(rng.gauss(0, 1), 3) for _ in range(VOCAB)]
    peak[17] = 20.0
    missing = [v if rng.random() < 0.6 else -math.inf for v in normal[1]]
    return [*normal, *coarse, peak, missing, [1.25] * VOCAB]


def some_context(rng):
    """A text that repeats itself, and where it became the answer."""
    ids = []
    for _ in range(rng.randrange(2, 60)):
        back = rng.choice([3, 5, 8])
        ids.append(ids[-back] if len(ids) >= back and rng.random() < 0.75 else rng.randrange(VOCAB if rng.random() < 0.3 else 14))
    at = rng.choice([0, len(ids), rng.randrange(len(ids))])
    return ids[:at], ids[at:]


def some_params(rng):
    choices = {
        "temperature": lambda: rng.choice([0.1, 0.5, 0.8, 1.3, 3.0]),
        "repetition_penalty": lambda: rng.choice([0.7, 1.05, 1.3, 2.5]),
        "frequency_penalty": lambda: rng.choice([-1.5, 0.5, 2.0]),
        "openai_presence_penalty": lambda: rng.choice([-2.0, -0.4, 0.6, 2.0]),
        "openai_frequency_penalty": lambda: rng.choice([-1.0, 0.3, 2.0]),
        "top_n_sigma": lambda: rng.choice([0.3, 1.0, 2.0]),
        "top_k": lambda: rng.choice([1, 2, 5, 12, VOCAB, VOCAB + 5, 2**31 - 1]),
        "top_p": lambda: rng.choice([1e-6, 0.2, 0.5, 0.9, 0.95, 0.999]),
        "min_p": lambda: rng.choice([0.01, 0.05, 0.3, 0.97]),
        "typical_p": lambda: rng.choice([0.1, 0.3, 0.6, 0.95]),
        "xtc_probability": lambda: 1,
        "dry_multiplier": lambda: rng.choice([0.3, 0.8, 2.5]),
    }
    p = {name: value() for name, value in choices.items() if rng.random() < 0.35}
    if "xtc_probability" in p:
        p["xtc_threshold"] = rng.choice([0.01, 0.05, 0.1, 0.3, 0.5])
    if "dry_multiplier" in p:
        p |= {"dry_base": rng.choice([1.0, 1.3, 1.75]), "dry_allowed_length": rng.choice([1, 2, 3]),
              "dry_penalty_last_n": rng.choice([-1, -1, 0, 1, 7, 25, 1000])}
    return p


def some_case(rng):
    prompt, answer = some_context(rng)
    bias = [[t, rng.choice([-100.0, -2.0, 0.5, 3.0, 100.0])] for t in rng.sample(range(VOCAB), 4)] if rng.random() < 0.3 else []
    mask = sorted(rng.sample(range(VOCAB), rng.choice([1, 2, 9, 30]))) if rng.random() < 0.3 else []
    return {"row": rng.randrange(len(ROWS)), "prompt": prompt, "answer": answer, "bias": bias, "mask": mask,
            "params": some_params(rng)}


def main():
    rng = random.Random(2)
    cases = []
    while len(cases) < CASES:
        case = some_case(rng)
        if case["mask"] and all(ROWS[case["row"]][t] == -math.inf for t in case["mask"]):
            continue
        sides = [chain(case, nudge) for nudge in (-2e-6, 0, 2e-6)]
        if len({tuple(v == -math.inf for v in side) for side in sides}) > 1:
            continue
        case["kept"] = [[t, round(v, 6)] for t, v in enumerate(sides[1]) if v > -80]
        cases.append(case)
    rows = [[v if math.isfinite(v) else None for v in row] for row in ROWS]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f'{{"texts":{json.dumps(TEXTS)},\n"breakers":{json.dumps(BREAKERS)},\n"rows":{json.dumps(rows)},\n"cases":[\n{lines}\n]}}\n')
    print(f"{OUT}: {len(cases)} cases, {OUT.stat().st_size} bytes")


ROWS = some_rows(random.Random(1))
if __name__ == "__main__":
    main()
