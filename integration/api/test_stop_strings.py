"""Stop strings at any place of random answers, with characters of several bytes: where the text ends, streamed or not."""

import concurrent.futures
import random

import pytest
from serving import DEMO, SLOW, Service, seed_for

CASES = 500 if SLOW == 1 else 60


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--kv-cache-memory", "2e8", "--speculate", 3]) as service:
        yield service


def whole(s, prompt, seed):
    """The pieces of an answer without stop strings, one for each token, up to a control token, whose text stop strings would meet as well.
    So hot that bytes of characters which never end come, too."""
    p = {"max_new_tokens": 40, "do_sample": True, "temperature": 2.5, "seed": seed, "ignore_eos": True}
    tokens = [e["token"] for e in s.events("/generate_stream", {"inputs": prompt, "parameters": p})]
    n = next((i for i, t in enumerate(tokens) if t["special"]), len(tokens))
    return [t["text"] for t in tokens[:n]]


def cut(pieces, stops):
    """The text before the first stop string, the same with it, and whether there is one, by their definition: the answer ends with the
    first character with which its text has one of them, of several the longest."""
    text = ""
    for piece in pieces:
        text += piece
        if found := [(text.find(x) + len(x), text.find(x)) for x in stops if x in text]:
            end, at = min(found)
            return text[:at], text[:end], True
    return text, text, False


def stops_of(rng, text):
    """Parts of the answer: inside a token, across several, at its beginning, overlapping; and some that never come."""
    out = []
    for _ in range(rng.randint(1, 4)):
        at = rng.choice((0, rng.randrange(len(text))))
        out.append(text[at : at + rng.choice((1, 1, 2, 3, 5, 9))])
    if rng.random() < 0.4:
        out.append(out[0][1:] + "x" if rng.random() < 0.5 else out[0] + "never")
    return [x for x in dict.fromkeys(out) if x and "�" not in x][:4]


def streamed(s, body):
    text, reason = "", None
    for e in s.events("/v1/completions", body | {"stream": True}):
        for c in e["choices"] if isinstance(e, dict) else ():
            text, reason = text + c["text"], c["finish_reason"] or reason
    return text, reason


def one(s, number):
    rng = random.Random(seed_for(9000 + number))
    prompt = rng.choice(("Once upon a time", "Ünïcödé 😀 and 日本", "The cat"))
    pieces = whole(s, prompt, number)
    text = "".join(pieces)
    stops = stops_of(rng, text) if text else []
    if not stops:
        return False
    before, including, found = cut(pieces, stops)
    keep = rng.random() < 0.4
    body = {"prompt": prompt, "max_tokens": len(pieces), "temperature": 2.5, "seed": number, "ignore_eos": True, "stop": stops, "include_stop_str_in_output": keep}
    want = including if keep else before, "stop" if found else "length"
    r = s.post("/v1/completions", body)
    assert r.status_code == 200, r.text
    c = r.json()["choices"][0]
    where = f"case {number}: stops {stops}, pieces {pieces}"
    assert (c["text"], c["finish_reason"]) == want, where
    assert streamed(s, body) == want, where
    return found


def test_the_text_ends_where_its_stop_string_begins(s):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda i: one(s, i), range(CASES)))
    assert sum(found) > CASES / 2, "most of them stop"
