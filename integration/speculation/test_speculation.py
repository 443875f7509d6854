"""Speculative decoding: bit-identical tokens, log-probabilities and texts in fewer steps."""

import random

import pytest
from serving import DEMO, Service, seed_for, together, wait_for

PROMPTS = [
    "Once upon a time, there was a cat. Once upon a time, there was a dog. Once upon a time,",
    "one two three four one two three four one two",
    "The little cat sat. The little dog sat. The little",
    "What is your name?",
    "2 + 3 = 5, 3 + 4 = 7, 4 + 5 =",
]
CHEAP = {"SPECULATE_ROW_COST": "0.03"}  # what warm-up measures on a machine of its own
TIGHT = ["--max-concurrent-requests", "128", "--max-batch-total-tokens", "448", "--max-total-tokens", "300"]


def bodies(n):
    """Greedy and seeded; penalties, stop texts, alternatives, grammars, answers that end early or must not."""
    rng = random.Random(seed_for(5))
    for i in range(n):
        p = {"max_new_tokens": rng.randint(1, 120), "details": True, "top_n_tokens": i % 3}
        if i % 2:
            p |= {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "seed": i}
        if i % 5 == 1:
            p |= {"repetition_penalty": 1.1, "frequency_penalty": 0.2}
        if i % 7 == 2:
            p |= {"stop": [" the", "four one"]}
        if i % 7 == 3:
            p |= {"grammar": {"type": "regex", "value": "((one|two|three|four) ){3,12}"}}
        if i % 7 == 4:
            p |= {"ignore_eos": True}
        if i % 7 == 5:
            p |= {"min_new_tokens": p["max_new_tokens"] // 2}
        yield {"inputs": rng.choice(PROMPTS), "parameters": p}


def answer(s, body):
    events = list(s.events("/generate_stream", body))
    assert events and "error" not in events[-1], events
    return events


def avoiding(s):
    """Answers that must do without some words of what was said freely, with log-probabilities."""
    for prompt in PROMPTS:
        body = {"prompt": prompt, "max_tokens": 40, "temperature": 0.5, "seed": 3, "logprobs": 2}
        free = s.post("/v1/completions", body).json()["choices"][0]["text"].split()
        words = [" ".join(free[i : i + 2]) for i in (1, 4)] + free[8:9]
        r = s.post("/v1/completions", {**body, "bad_words": [w for w in words if w]})
        assert r.status_code == 200, r.text
        yield r.json()["choices"]


def biased(s):
    """Some tokens of what was said freely are forbidden, others favoured; also where the greatest one wins."""
    for i, prompt in enumerate(PROMPTS):
        body = {"prompt": prompt, "max_tokens": 60, "temperature": 0.7 * (i % 2), "seed": 4, "logprobs": 2, "return_token_ids": True}
        free = s.post("/v1/completions", body).json()["choices"][0]["token_ids"]
        bias = {str(t): v for t, v in zip(free[1::3], (-100, 5, -2, 1, -100))}
        r = s.post("/v1/completions", {**body, "logit_bias": bias, "ignore_eos": True})
        assert r.status_code == 200, r.text
        (choice,) = r.json()["choices"]
        assert not {t for t, v in bias.items() if v == -100} & {str(t) for t in choice["token_ids"]}
        yield choice


def crowd(s, work):
    return together(s, answer, work, 24)


def skipped(s):
    return s.metric("tgi_request_skipped_tokens_sum") or 0


@pytest.mark.parametrize("num_shard", [1, 2])
@pytest.mark.parametrize("room", ["wide", "tight"])
def test_no_draft_changes_a_bit(num_shard, room):
    args = TIGHT if room == "tight" else []
    most = (room, num_shard) == ("wide", 1)  # what comes to a draft is chosen before the ranks, each of which waits for the other
    work = list(bodies(48 if most else 24 if num_shard == 1 else 16))
    with Service(DEMO, num_shard) as s:
        want = [answer(s, b) for b in work]
        without = [*avoiding(s), *biased(s)]
        assert skipped(s) == 0
    with Service(DEMO, num_shard, args=["--speculate", "6", *args], env=CHEAP) as s:
        for _ in range(2 if most else 1):
            assert crowd(s, work) == want
        assert [answer(s, b) for b in work] == want  # prompts from the cache
        assert [*avoiding(s), *biased(s)] == without
        assert skipped(s) > 100
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_a_text_that_repeats_itself_takes_a_fraction_of_the_steps():
    body = {"inputs": PROMPTS[1], "parameters": {"max_new_tokens": 100, "details": True, "ignore_eos": True}}
    body["parameters"]["grammar"] = {"type": "regex", "value": "( three four one two){24}"}
    with Service(DEMO, args=["--speculate", "8"], env=CHEAP) as s:
        tokens = len(answer(s, body))
        steps = s.metric("tgi_request_skipped_tokens_count")
        assert skipped(s) + steps == tokens
        assert steps < tokens / 2, (steps, tokens)


def test_too_many_drafts_are_refused_at_the_start():
    with pytest.raises(AssertionError, match="--speculate 65: at most 64"):
        with Service(DEMO, args=["--speculate", "65"]):
            pass
