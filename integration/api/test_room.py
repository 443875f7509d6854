"""OpenAI's limits on /v1, and answers that are clipped to what fits; TGI's own on TGI's routes."""

import pytest
from serving import DEMO, Service

ROOM, PROMPT, PERMITS = 96, 64, 4


@pytest.fixture(scope="module")
def s():
    args = ["--max-total-tokens", ROOM, "--max-input-tokens", PROMPT, "--max-concurrent-requests", PERMITS]
    with Service(DEMO, args=args) as service:
        yield service


def answer(s, path, body, status=200):
    r = s.post(path, body)
    assert r.status_code == status, r.text
    return r.json()


def messages(text):
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("length", [ROOM, 100_000, 4294967295, -1, None])
def test_what_does_not_fit_is_clipped(s, length):
    free = {"ignore_eos": True, "temperature": 0}
    a = answer(s, "/v1/completions", {"prompt": "Once", "max_tokens": length, **free})
    assert a["usage"]["total_tokens"] == ROOM and a["choices"][0]["finish_reason"] == "length"
    a = answer(s, "/v1/chat/completions", {"messages": messages("Once"), "max_tokens": length, **free})
    assert a["usage"]["total_tokens"] == ROOM and a["choices"][0]["finish_reason"] == "length"
    a = answer(s, "/v1/responses", {"input": "Once", "max_output_tokens": length, **free})
    assert a["usage"]["total_tokens"] == ROOM and a["status"] == "incomplete"
    if length is not None:
        a = answer(s, "/v1/messages", {"messages": messages("Once"), "max_tokens": length, **free})
        assert a["usage"]["input_tokens"] + a["usage"].get("cache_read_input_tokens", 0) + a["usage"]["output_tokens"] == ROOM
        assert a["stop_reason"] == "max_tokens"


def test_tgis_routes_keep_tgis_error(s):
    r = s.post("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": ROOM}})
    assert r.status_code == 422 and "`inputs` tokens + `max_new_tokens` must be <= 96" in r.json()["error"]


def test_what_is_too_long_is_said_in_the_protocols_words(s):
    long = "the little cat " * 50
    for path, body, name in [
        ("/v1/completions", {"prompt": long}, "prompt"),
        ("/v1/chat/completions", {"messages": messages(long)}, "messages"),
        ("/v1/responses", {"input": long}, "input"),
    ]:
        e = answer(s, path, body, 400)["error"]
        assert e["param"] == name and e["code"] == "context_length_exceeded", e
        assert "maximum context length" in e["message"] and "inputs" not in e["message"] and "max_new" not in e["message"]
    e = answer(s, "/v1/messages", {"messages": messages(long), "max_tokens": 5}, 400)["error"]
    assert e["type"] == "invalid_request_error" and e["message"].startswith("prompt is too long: ") and f" > {PROMPT} maximum" in e["message"]


def test_many_choices_come_from_one_prefill(s):
    before = s.metric("tgi_batch_prompt_tokens_sum") or 0
    body = {"prompt": "In the beginning there was a very small cat that liked to sleep", "n": 8, "seed": 5, "max_tokens": 6, "temperature": 1}
    a = answer(s, "/v1/completions", body)
    assert [c["index"] for c in a["choices"]] == list(range(8))
    assert a["usage"]["completion_tokens"] <= 48
    computed = s.metric("tgi_batch_prompt_tokens_sum") - before
    assert computed <= a["usage"]["prompt_tokens"] + 7  # the others copy all but the last token
    one = [answer(s, "/v1/completions", {**body, "n": 1, "seed": 5 + k})["choices"][0]["text"] for k in range(8)]
    assert [c["text"] for c in a["choices"]] == one


def test_more_prompts_than_permits_take_turns(s):
    """A list longer than --max-concurrent-requests is served as its parts end, in order, streamed or not."""
    prompts = [f"Once upon a time {k}" for k in range(40)]
    body = {"prompt": prompts, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    a = answer(s, "/v1/completions", body)
    assert [c["index"] for c in a["choices"]] == list(range(40))
    assert a["usage"]["completion_tokens"] == 120
    for k in (0, 17, 39):
        assert a["choices"][k]["text"] == answer(s, "/v1/completions", {**body, "prompt": prompts[k]})["choices"][0]["text"]
    texts = dict.fromkeys(range(40), "")
    for event in s.events("/v1/completions", {**body, "stream": True}):
        for c in event["choices"] if event != "[DONE]" else []:
            texts[c["index"]] += c["text"]
    assert [texts[c["index"]] for c in a["choices"]] == [c["text"] for c in a["choices"]]
    assert s.metric("tgi_request_failure") in (None, 0)


def test_the_limits_of_lists(s):
    for body, text in [
        ({"prompt": ["x"] * 2049}, "exceeds the maximum allowed batch size of 2048"),
        ({"prompt": ["x"] * 100, "n": 100}, "`n` times the number of prompts must be <= 8192. Given: 10000"),
        ({"prompt": "x", "n": 129}, "`n` must be > 0 and <= 128"),
    ]:
        assert text in answer(s, "/v1/completions", body, 400)["error"]["message"]


def test_alternatives_and_stops(s):
    body = {"messages": messages("Once"), "max_tokens": 3, "logprobs": True, "top_logprobs": 20, "ignore_eos": True, "temperature": 0}
    a = answer(s, "/v1/chat/completions", {**body, "stop": [f"never {k}" for k in range(16)]})
    assert [len(t["top_logprobs"]) for t in a["choices"][0]["logprobs"]["content"]] == [20] * 3


def test_zero_and_minus_one(s):
    body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    likeliest = answer(s, "/v1/completions", body)["choices"][0]["text"]
    assert answer(s, "/v1/completions", {**body, "temperature": 1, "top_p": 0})["choices"][0]["text"] == likeliest
    drawn = {answer(s, "/v1/completions", {**body, "temperature": 1.5, "seed": -1})["choices"][0]["text"] for _ in range(8)}
    assert len(drawn) > 1
    same = {answer(s, "/v1/completions", {**body, "temperature": 1.5, "seed": -7})["choices"][0]["text"] for _ in range(4)}
    assert len(same) == 1
