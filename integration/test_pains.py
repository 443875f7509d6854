"""Reports of users of other servers, each a sentence that a test decides: docs/results/pains.md says which sentence is whose."""

import concurrent.futures
import os
import random
import signal
import subprocess
import time

import anthropic
import huggingface_hub
import pytest
import requests
from serving import BIN, DEMO, SLOW, Scripted, Service, wait_for

CACHE = ["--kv-cache-memory", "5e7", "--threads", 1]
SHORT = {"inputs": "Once", "parameters": {"max_new_tokens": 4}}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def service():
    with Service(DEMO, args=CACHE) as s:
        yield s


def test_no_program_has_more_than_ten_megabytes(tmp_path):
    """The third: each program, without its symbols."""
    for name in ("launcher", "router", "model-server"):
        subprocess.run(["strip", "-o", tmp_path / name, BIN / name], check=True)
        assert (tmp_path / name).stat().st_size <= 10 << 20, name


@pytest.mark.parametrize("num_shard,fault", [(1, signal.SIGKILL), (2, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_a_group_that_comes_back_is_not_ready_and_serves_within_five_seconds(num_shard, fault):
    """The eighth and the fifteenth."""
    with Service(DEMO, num_shard, args=CACHE) as s:
        s.post("/generate", SHORT)
        os.kill(s.shards()[-1], fault)
        struck = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answer = pool.submit(s.post, "/generate", SHORT)
            for code in (503, 200):
                wait_for(lambda code=code: requests.get(s.url + "/readyz", timeout=30).status_code == code, 30)
            assert time.monotonic() - struck < 5 * SLOW
            assert answer.result().status_code == 200 and time.monotonic() - struck < 5 * SLOW
        a = s.audit()
        assert a["scheduler"]["known"] == 0 and a["scheduler"]["blocks"]["used"] == 0 and a["requests"]["permits_held"] == 0


def test_a_drawn_seed_is_told_and_draws_the_same_again(service):
    """The thirty-eighth: without a seed two answers differ, and the seed that was used repeats each."""
    ask = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 30, "do_sample": True, "details": True}}
    first, second = (service.post("/generate", ask).json() for _ in range(2))
    assert first["generated_text"] != second["generated_text"]
    for answer in (first, second):
        seed = answer["details"]["seed"]
        assert isinstance(seed, int)
        again = service.post("/generate", {**ask, "parameters": {**ask["parameters"], "seed": seed}}).json()
        assert again["generated_text"] == answer["generated_text"]


def test_a_next_turn_computes_the_new_tokens_only_beside_32_others(service):
    """The thirty-sixth. A block has 16 tokens."""
    words = random.Random(36)

    def ask(prompt):
        r = service.post("/v1/completions", {"prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True}).json()
        return r["choices"][0]["text"], r["usage"]

    prompts = [" ".join(words.choice(("the", "cat", "sat", "on", "a", "big", "red", "mat")) for _ in range(60)) for _ in range(33)]
    said = [ask(p) for p in prompts]
    for p, (text, usage) in reversed(list(zip(prompts, said))):
        cached = ask(p + text + " And then")[1]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= usage["prompt_tokens"] - 16, (cached, usage)


def test_stream_answer_metrics_and_ids_count_the_same_in_random_requests(service):
    """The twenty-ninth: plain, stopped by a string, cut by a length, sampled."""
    rng = random.Random(29)
    total = asked = 0
    before = {m: service.metric(m) or 0 for m in ("tgi_request_generated_tokens_sum", "tgi_request_generated_tokens_count")}
    for _ in range(40):
        ask = {"prompt": " ".join(rng.choice(("Once", "upon", "a", "time", "the", "dog")) for _ in range(rng.randint(1, 12))),
               "max_tokens": rng.randint(1, 40), "temperature": rng.choice((0, 1)), "seed": rng.randint(1, 1 << 30)}  # fmt: skip
        if rng.random() < 0.5:
            ask["stop"] = [rng.choice(("the", "a", ".", " w", "\n"))]
        whole = service.post("/v1/completions", {**ask, "logprobs": 0, "return_token_ids": True}).json()
        events = [e for e in service.events("/v1/completions", {**ask, "stream": True, "stream_options": {"include_usage": True}}) if e != "[DONE]"]
        assert "".join(e["choices"][0]["text"] for e in events if e["choices"]) == whole["choices"][0]["text"]
        assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        assert events[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
        assert len(whole["choices"][0]["token_ids"]) == whole["usage"]["completion_tokens"]
        total += 2 * whole["usage"]["completion_tokens"]
        asked += 2
    wait_for(lambda: service.metric("tgi_request_generated_tokens_count") - before["tgi_request_generated_tokens_count"] == asked, 10)
    assert service.metric("tgi_request_generated_tokens_sum") - before["tgi_request_generated_tokens_sum"] == total


def test_a_failure_in_a_stream_is_an_exception_of_anthropics_and_huggingfaces_clients():
    """The twenty-eighth; openai's is in test_responses.py."""
    with Scripted(TEMPLATE, {"fail": {"Decode": ["broken", 1000]}}) as s:
        client = anthropic.Anthropic(base_url=s.url, api_key="-", max_retries=0)
        said = {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "[[one two three]]"}]}
        with pytest.raises(anthropic.APIError, match="broken"), client.messages.stream(**said) as stream:
            list(stream)
        hub = huggingface_hub.InferenceClient(model=s.url)
        with pytest.raises(Exception, match="broken"):
            list(hub.text_generation("[[one two three]]", stream=True, details=True, max_new_tokens=20))


def test_a_stop_string_is_left_out_with_drafts_too():
    """The twenty-sixth: the same events' text with and without drafts, and no byte of the string."""
    words = "Once upon a time there was a big cat. Once upon a time there was a big dog. Once upon a time"
    ask = {"prompt": words, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "stream": True}
    texts = {}
    for drafts in (0, 4):
        with Service(DEMO, args=[*CACHE, "--speculate", drafts]) as s:
            free = "".join(e["choices"][0]["text"] for e in s.events("/v1/completions", ask) if e != "[DONE]")
            stops = [free[at : at + n] for at, n in ((5, 3), (17, 6), (30, 1), (41, 9))]
            texts[drafts] = [free]
            for stop in stops:
                got = "".join(e["choices"][0]["text"] for e in s.events("/v1/completions", {**ask, "stop": [stop]}) if e != "[DONE]")
                assert got == free[: free.index(stop)], stop
                texts[drafts].append(got)
    assert texts[0] == texts[4]


def test_a_nul_in_a_text_to_tokenize_is_data(service):
    text = "Once\x00upon a\x00"
    forms = {"inputs": lambda r: [t["id"] for t in r], "prompt": lambda r: r["tokens"], "content": lambda r: r["tokens"]}
    for key, ids in forms.items():
        r = service.post("/tokenize", {key: text, "add_special": False, "add_special_tokens": False})
        assert r.status_code == 200, r.text
        without = service.post("/tokenize", {key: "Onceupon a", "add_special": False, "add_special_tokens": False}).json()
        assert ids(r.json()) != ids(without)
        back = service.post("/detokenize", {"tokens": ids(r.json())}).json()
        assert back.get("prompt", back.get("content")).endswith(text), (key, back)
    assert service.post("/generate", {"inputs": text}).status_code in (400, 422)
