"""Fields beside OpenAI's common ones that tools rely on: biases, exact lengths, stop tokens, echoed log-probabilities."""

import json
import math

import pytest
from serving import DEMO, Service

ONCE = "Once upon a time"


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def s(request):
    with Service(DEMO, request.param) as service:
        yield service


@pytest.fixture(scope="module")
def client(s):
    import openai

    return openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)


def generate(s, **parameters):
    r = s.post("/generate", {"inputs": ONCE, "parameters": {"max_new_tokens": 12, "details": True, **parameters}})
    assert r.status_code == 200, r.text
    return r.json()["details"]


def ids(details):
    return [t["id"] for t in details["tokens"]]


def test_a_bias_forbids_and_forces(s, client):
    free = ids(generate(s))
    other = ids(generate(s, logit_bias={str(free[0]): -100}))
    assert other[0] != free[0] and free[0] not in other
    forced = ids(generate(s, logit_bias={str(free[3]): 100}))
    assert set(forced) == {free[3]}
    r = client.completions.create(
        model="tgi", prompt=ONCE, max_tokens=4, temperature=0, logit_bias={str(free[3]): 100}, logprobs=1
    )
    assert len(set(r.choices[0].logprobs.tokens)) == 1
    assert all(x > -1e-3 for x in r.choices[0].logprobs.token_logprobs), "log-probabilities are those after the bias"


def test_half_a_vocabulary_may_be_masked(s):
    vocab = json.loads((DEMO / "config.json").read_text())["vocab_size"]
    allowed = set(range(0, vocab, 2))
    mask = {str(i): -100 for i in range(vocab) if i not in allowed}
    out = generate(s, logit_bias=mask, ignore_eos=True, max_new_tokens=40, seed=3, do_sample=True)
    assert len(out["tokens"]) == 40 and set(ids(out)) <= allowed
    assert all(math.isfinite(t["logprob"]) for t in out["tokens"])
    again = generate(s, logit_bias=mask, ignore_eos=True, max_new_tokens=40, seed=3, do_sample=True)
    assert again["tokens"] == out["tokens"]


def test_exact_lengths(s, client):
    for n in (1, 7, 60):
        r = client.chat.completions.create(
            model="tgi",
            messages=[{"role": "user", "content": "Hello!"}],
            max_completion_tokens=n,
            extra_body={"ignore_eos": True},
        )
        assert r.usage.completion_tokens == n
    kw = dict(model="tgi", messages=[{"role": "user", "content": "Hello!"}], temperature=0, max_tokens=60)
    free = client.chat.completions.create(**kw).usage.completion_tokens
    assert free < 50, "the demo model stops by itself"
    long = client.chat.completions.create(**kw, extra_body={"min_tokens": free + 5})
    assert free + 5 <= long.usage.completion_tokens <= 60


def test_a_stop_token_ends_the_answer_and_is_not_in_it(s, client):
    free = generate(s)
    at = next(i for i in range(3, 12) if ids(free)[i] not in ids(free)[:i])
    stopped = generate(s, stop_token_ids=[ids(free)[at]])
    assert ids(stopped) == ids(free)[: at + 1] and stopped["finish_reason"] == "eos_token"
    kw = dict(model="tgi", prompt=ONCE, max_tokens=12, temperature=0, extra_body={"stop_token_ids": [ids(free)[at]]})
    whole = client.completions.create(**kw).choices[0]
    assert whole.text == "".join(t["text"] for t in free["tokens"][:at]) and whole.finish_reason == "stop"
    assert "".join(c.choices[0].text for c in client.completions.create(**kw, stream=True)) == whole.text


def test_seeds_are_64_bits_exact(s):
    big = 2**53
    runs = {seed: ids(generate(s, do_sample=True, temperature=1.5, max_new_tokens=24, seed=seed)) for seed in (big, big + 1)}
    assert runs[big] != runs[big + 1]
    assert generate(s, do_sample=True, seed=2**64 - 1)["seed"] == 2**64 - 1


def test_echo_scores_the_prompt_as_generation_does(s, client):
    """What evaluation tools do for multiple choice: the whole text as the prompt, log-probabilities echoed."""
    made = client.completions.create(model="tgi", prompt=ONCE, max_tokens=8, temperature=0, logprobs=1)
    lp = made.choices[0].logprobs
    prompt = [t["id"] for t in s.post("/tokenize", {"inputs": ONCE}).json()]
    new = ids(generate(s, max_new_tokens=8))
    for n in (0, 1):
        scored = client.completions.create(model="tgi", prompt=prompt + new, max_tokens=n, temperature=0, logprobs=1, echo=True)
        got = scored.choices[0].logprobs
        assert len(got.tokens) == len(prompt) + 8 + n and scored.usage.completion_tokens == n
        assert got.token_logprobs[len(prompt) : len(prompt) + 8] == lp.token_logprobs
        tops = got.top_logprobs[len(prompt) : len(prompt) + 8]
        assert all(max(top.values()) == x for top, x in zip(tops, lp.token_logprobs)), "greedy tokens are the best ones"
    sampled = (
        client.completions.create(model="tgi", prompt=ONCE + " xylophone", max_tokens=0, logprobs=2, echo=True)
        .choices[0]
        .logprobs
    )
    best = [max(top, key=top.get) for top in sampled.top_logprobs[1:]]
    assert best != sampled.tokens[1:], "words that nobody expects are not the best ones"
    assert all(top[t] == x for t, x, top in list(zip(sampled.tokens, sampled.token_logprobs, sampled.top_logprobs))[1:])
    bare = client.completions.create(model="tgi", prompt=ONCE, max_tokens=0, echo=True)
    assert bare.choices[0].text == ONCE and bare.choices[0].finish_reason == "length"
