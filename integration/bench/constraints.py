"""Compares constraints with llguidance: which schemas each accepts, and the cost of a mask.

    pip download --no-binary :all: --no-deps jsonschema; tar xf jsonschema-*.tar.gz
    pip install llguidance numpy check-jsonschema
    make build/tests/bench/constraint build/tests/tools/schema_cases
    python integration/bench/constraints.py --suite jsonschema-*/json/tests/draft2020-12 --tokenizer DIR

Schemas: those of JSON-Schema-Test-Suite and those of SchemaStore that check-jsonschema ships. Masks are of the schemas that both accept:
three answers of up to 160 tokens each, every token drawn from the mask, time of the thread on the processor.
"""

import argparse
import glob
import json
import os
import random
import subprocess
import tempfile
import time

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

ANSWERS, TOKENS = 3, 160


def suite(folder):
    for pattern in ("*.json", "optional/*.json", "optional/format/*.json"):
        for path in sorted(glob.glob(os.path.join(folder, pattern))):
            with open(path) as f:
                yield from (group["schema"] for group in json.load(f))


def store():
    import check_jsonschema

    for path in sorted(glob.glob(os.path.join(os.path.dirname(check_jsonschema.__file__), "builtin_schemas", "*", "*.json"))):
        with open(path) as f:
            yield json.load(f)


def ours(build, schemas):
    records = b"".join(b"S %d\n%s\n" % (len(s), s) for s in schemas)
    out = subprocess.run([f"{build}/tests/tools/schema_cases"], input=records, capture_output=True, check=True).stdout.decode()
    return [line.startswith("ok") for line in out.splitlines()]


def compiled(tokenizer, schema):
    if schema in (b"true", b"false"):  # a schema, too, but not for its reader
        schema = b'{"allOf":[%s]}' % schema
    m = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema.decode()))
    return None if m.get_error() else m


def answer(tokenizer, matcher, rng, spent):
    mask = allocate_token_bitmask(1, tokenizer.vocab_size)
    for _ in range(TOKENS):
        t0 = time.thread_time_ns()
        fill_next_token_bitmask(matcher, mask, 0)
        took = time.thread_time_ns() - t0
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8).reshape(-1), bitorder="little")[: tokenizer.vocab_size])
        allowed = allowed[allowed != tokenizer.eos_token]
        if not len(allowed):
            spent.append(took / 1e3)
            return
        token = int(allowed[rng.randrange(len(allowed))])
        t0 = time.thread_time_ns()
        alive = matcher.consume_token(token)
        spent.append((took + time.thread_time_ns() - t0) / 1e3)
        if not alive or matcher.is_stopped():
            return


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--suite", required=True)
    args.add_argument("--tokenizer", required=True, help="a folder with tokenizer.json")
    args.add_argument("--build", default="build")
    args = args.parse_args()
    with open(os.path.join(args.tokenizer, "tokenizer.json")) as f:
        tokenizer = LLTokenizer(f.read())
    small = LLTokenizer("byte")
    both = []
    for name, schemas in (("suite", suite(args.suite)), ("SchemaStore", store())):
        texts = [json.dumps(s, separators=(",", ":")).encode() for s in schemas]
        mine, theirs = ours(args.build, texts), [compiled(small, t) is not None for t in texts]
        print(f"{name}: {len(texts)} schemas, accepted here {sum(mine)}, by llguidance {sum(theirs)}", flush=True)
        both += [t for t, a, b in zip(texts, mine, theirs) if a and b]
    with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as f:
        f.write(b"\n".join(both) + b"\n")
        f.flush()
        print("here      ", subprocess.run([f"{args.build}/tests/bench/constraint", args.tokenizer, "@" + f.name], capture_output=True, text=True, check=True).stdout.strip(), flush=True)
    rng, spent, compile_ms = random.Random(42), [], 0.0
    for text in both:
        t0 = time.thread_time_ns()
        compiled(tokenizer, text)
        compile_ms += (time.thread_time_ns() - t0) / 1e6
        for _ in range(ANSWERS):
            answer(tokenizer, compiled(tokenizer, text), rng, spent)
    spent.sort()
    n = len(spent)
    print(f"llguidance schemas {len(both)} compile mean {compile_ms / len(both):.2f} ms masks {n} mean {sum(spent) / n:.1f} "
          f"median {spent[n // 2]:.1f} p99 {spent[n * 99 // 100]:.1f} worst {spent[-1]:.1f} us")


if __name__ == "__main__":
    main()
