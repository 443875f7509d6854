#!/usr/bin/env python3
"""What white space costs constrained JSON: of 40 schemas, how many answers of the demo model end by themselves within
40 and 200 tokens, and how much of what it writes is white space.

    python3 integration/bench/whitespace.py [--bin FOLDER]    # FOLDER: programs of another version
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / d) for d in ("", "api")]
parser = argparse.ArgumentParser()
parser.add_argument("--bin")
parser.add_argument("--schemas", type=int, default=40)
options = parser.parse_args()
if options.bin:
    os.environ["BIN_DIR"] = options.bin

from schemas import shapes  # noqa: E402
from serving import DEMO, Service  # noqa: E402

ASKED = shapes(options.schemas)


def outside_strings(text):
    blank = total = 0
    inside = escaped = False
    for c in text:
        total += 1
        if inside:
            inside = escaped or c != '"'
            escaped = c == "\\" and not escaped
        else:
            inside = c == '"'
            blank += c in " \t\n\r"
    return blank, total


def ask(s, i, tokens, strict, temperature):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "strict": strict, "schema": ASKED[i]}}
    body = {"messages": [{"role": "user", "content": "Tell me of Ann."}], "max_tokens": tokens, "temperature": temperature, "seed": i}
    r = s.post("/v1/chat/completions", {**body, "response_format": schema})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["finish_reason"], r.json()["choices"][0]["message"]["content"]


with Service(DEMO, args=["--max-concurrent-requests", "64"]) as s:
    print("| layout | temperature | tokens | ended by themselves | white space, % of characters |")
    print("|---|---|---|---|---|")
    for strict in (False, True):
        for temperature in (0, 1):
            for tokens in (40, 200):
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    got = list(pool.map(lambda i: ask(s, i, tokens, strict, temperature), range(len(ASKED))))
                whole = [text for finish, text in got if finish != "length"]
                for text in whole:
                    json.loads(text)
                blank, total = map(sum, zip(*(outside_strings(text) for _, text in got)))
                name = "strict" if strict else "not strict"
                print(f"| {name} | {temperature} | {tokens} | {len(whole)} of {len(got)} | {100 * blank / total:.0f} |", flush=True)
