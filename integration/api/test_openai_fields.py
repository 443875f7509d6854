"""Less common fields on which tools rely: biases, exact lengths, stop tokens, echoed log-probabilities."""

import json
import math

import pytest
import requests
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


def completion(s, **kw):
    r = s.post("/v1/completions", {"prompt": ONCE, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **kw})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]


def spelled(s, text):
    return s.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]


def stands_in(word, answer):
    return any(answer[i : i + len(word)] == word for i in range(len(answer)))


def test_bad_words_are_not_said(s):
    """vLLM's field: words of one token and of several, as they stand at the start of a text and behind a blank."""
    free = completion(s)
    words = free["text"].split()
    one = next(w for w in words if len(spelled(s, " " + w)) == 1)
    pairs = [" ".join(words[i : i + 2]) for i in range(1, len(words) - 1)]
    several = next(w for w in pairs if stands_in(spelled(s, " " + w), free["token_ids"]))
    for word in (one, several):
        spelling = spelled(s, " " + word)
        assert stands_in(spelling, free["token_ids"]), (word, free)
        for route in ("completion", "chat"):
            if route == "chat":
                r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story!"}], "max_tokens": 30,
                                                    "temperature": 0, "bad_words": [word], "return_token_ids": True})
                assert r.status_code == 200, r.text
                got = r.json()["choices"][0]
            else:
                got = completion(s, bad_words=["zebra crossing", " " + word])
                assert got["text"] != free["text"]
            assert not stands_in(spelling, got["token_ids"]) and not stands_in(spelled(s, word), got["token_ids"])
    # only the last token of a word is masked, and the prompt is no part of it
    first, last = free["token_ids"][:2]
    assert completion(s, bad_words=[ONCE + free["text"]])["text"] == free["text"]
    assert completion(s, bad_words=[several])["token_ids"][0] == first
    assert completion(s, logit_bias={str(last): 0}, bad_words=[])["text"] == free["text"]
    for bad in ("a", [1], [""], [" \n"], ["a"] * 10001):
        assert s.post("/v1/completions", {"prompt": ONCE, "max_tokens": 1, "bad_words": bad}).status_code == 400, bad


def test_temperature_0_is_greedy_beside_cuts(s, client):
    """Many clients always send a top_p. TGI samples with it, at a temperature of 1."""
    kw = dict(model="tgi", messages=[{"role": "user", "content": "Tell me a story!"}], max_tokens=30)
    want = client.chat.completions.create(**kw, temperature=0).choices[0].message.content
    for cut in ({"top_p": 0.95}, {"extra_body": {"top_k": 40}}, {"extra_body": {"min_p": 0.01}}):
        assert {client.chat.completions.create(**kw, temperature=0, **cut).choices[0].message.content for _ in range(3)} == {want}, cut
    anthropic = {"messages": kw["messages"], "max_tokens": 30, "temperature": 0, "top_p": 0.95, "top_k": 40}
    assert {s.post("/v1/messages", {"model": "tgi", **anthropic}).json()["content"][0]["text"] for _ in range(3)} == {want}


def test_tokens_as_vllm_and_llama_cpp_ask_for_them(s):
    ours = [t["id"] for t in s.post("/tokenize", {"inputs": ONCE}).json()]
    vllm = s.post("/tokenize", {"model": "m", "prompt": ONCE, "return_token_strs": True}).json()
    assert vllm["tokens"] == ours and vllm["count"] == len(ours) and vllm["max_model_len"] == 2048
    assert "".join(vllm["token_strs"][-vllm["count"] + 1 :]) == ONCE, "behind the special one"
    bare = s.post("/tokenize", {"prompt": ONCE, "add_special_tokens": False}).json()
    assert bare["tokens"] == ours[1:] == s.post("/tokenize", {"content": ONCE}).json()["tokens"] and bare["token_strs"] is None
    assert s.post("/tokenize", {"content": ONCE, "add_special": True}).json()["tokens"] == ours
    chat = {"messages": [{"role": "user", "content": "Hello!"}]}
    assert s.post("/tokenize", chat).json()["tokens"] == [t["id"] for t in s.post("/chat_tokenize", chat).json()["tokenize_response"]]
    back = s.post("/detokenize", {"tokens": bare["tokens"]}).json()
    assert back["prompt"] == back["content"] == ONCE and s.post("/detokenize", {"ids": bare["tokens"]}).json() == {"text": ONCE}
    assert s.post("/tokenize", {"prompt": 3}).status_code == 422 and s.post("/tokenize", {}).status_code == 422


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
    assert best != sampled.tokens[1:], "unlikely words are not the best ones"
    assert all(top[t] == x for t, x, top in list(zip(sampled.tokens, sampled.token_logprobs, sampled.top_logprobs))[1:])
    bare = client.completions.create(model="tgi", prompt=ONCE, max_tokens=0, echo=True)
    assert bare.choices[0].text == ONCE and bare.choices[0].finish_reason == "length"


HELLO = {"model": "tgi", "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 30}


def said(s, stream=False, path="/v1/chat/completions", **body):
    """The text and the choices (whole, or as the stream's chunks)."""
    if stream:
        chunks = [c for c in s.events(path, {**body, "stream": True}) if c != "[DONE]"]
        text = "".join(c["choices"][0].get("delta", {}).get("content", "") + c["choices"][0].get("text", "") for c in chunks)
        return text, chunks
    r = s.post(path, body)
    assert r.status_code == 200, r.text
    choice = r.json()["choices"][0]
    return choice.get("text") or choice["message"]["content"], [r.json()]


def test_offsets_behind_an_echo_are_those_in_the_text(s):
    """The prompt has characters of several tokens."""
    prompt = 'Zo\u00eb said \u65e5\u672c: "'
    body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 0}
    choice = s.post("/v1/completions", body).json()["choices"][0]
    tokens, offsets = choice["logprobs"]["tokens"][-6:], choice["logprobs"]["text_offset"][-6:]
    assert offsets[0] == len(prompt)
    assert [choice["text"][at : at + len(t)] for t, at in zip(tokens, offsets)] == tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_may_stay(s, stream):
    free, _ = said(s, **HELLO)
    stop = free[6:9]
    cut, _ = said(s, stream, **HELLO, stop=[stop])
    kept, _ = said(s, stream, **HELLO, stop=[stop], include_stop_str_in_output=True)
    assert cut == free[: free.index(stop)] and kept == cut + stop
    assert said(s, stream, **HELLO, stop=[stop], no_stop_trim=True)[0] == kept  # SGLang's name


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_before_min_tokens_is_text(s, stream):
    kw = {**HELLO, "ignore_eos": True}
    _, free = said(s, True, **kw)
    pieces = [c["choices"][0]["delta"]["content"] for c in free]
    for least in range(1, 9):
        at = next(i for i, piece in enumerate(pieces) if i + 1 >= least and "o" in piece)
        text, got = said(s, stream, **kw, stop=["o"], min_tokens=least, return_token_ids=True)
        assert text == "".join(pieces[:at]) + pieces[at].partition("o")[0], least
        assert sum(len(c["choices"][0]["token_ids"]) for c in got) == at + 1


@pytest.mark.parametrize("stream", [False, True])
def test_only_allowed_tokens_come(s, stream):
    allowed = [t["id"] for t in s.post("/tokenize", {"inputs": "a b c"}).json()][1:]
    _, got = said(s, stream, **HELLO, allowed_token_ids=allowed, return_token_ids=True, ignore_eos=True)
    ids = [i for c in got for i in c["choices"][0]["token_ids"]]
    assert len(ids) == 30 and set(ids) <= set(allowed)
    assert got[0]["prompt_token_ids"] == [t["id"] for t in s.post("/chat_tokenize", HELLO).json()["tokenize_response"]]
    assert not any("prompt_token_ids" in c for c in got[1:])
    for bad in ([], [10**6], "a"):
        assert s.post("/v1/chat/completions", {**HELLO, "allowed_token_ids": bad}).status_code == 400
    both = {"allowed_token_ids": allowed, "logit_bias": {str(allowed[-1]): 100, "5": 100}}
    _, got = said(s, stream, **HELLO, **both, return_token_ids=True, ignore_eos=True)
    assert {i for c in got for i in c["choices"][0]["token_ids"]} == {allowed[-1]}


@pytest.mark.parametrize("stream", [False, True])
def test_ids_of_tokens(s, stream):
    kw = dict(path="/v1/completions", model="tgi", prompt=ONCE, max_tokens=6, temperature=0, logprobs=1)
    _, got = said(s, stream, **kw, return_token_ids=True, return_tokens_as_token_ids=True)
    want = ids(generate(s, max_new_tokens=6))
    assert [i for c in got for i in c["choices"][0]["token_ids"]] == want
    assert [t for c in got for t in c["choices"][0]["logprobs"]["tokens"]] == [f"token_id:{i}" for i in want]
    prompt = [t["id"] for t in s.post("/tokenize", {"inputs": ONCE}).json()]
    assert got[0]["choices"][0]["prompt_token_ids"] == prompt
    _, bare = said(s, stream, **{**kw, "logprobs": None}, add_special_tokens=False, return_token_ids=True)
    assert bare[0]["choices"][0]["prompt_token_ids"] == prompt[1:]
    _, chat = said(s, stream, **HELLO, logprobs=True, return_tokens_as_token_ids=True)
    assert chat[0]["choices"][0]["logprobs"]["content"][0]["token"].startswith("token_id:")


def test_prompts_are_cut_at_their_beginning(s):
    prompt = [t["id"] for t in s.post("/tokenize", {"inputs": ONCE}).json()]
    for form in (ONCE, prompt):
        kw = dict(path="/v1/completions", model="tgi", prompt=form, max_tokens=1, return_token_ids=True)
        _, got = said(s, **kw, truncate_prompt_tokens=3)
        kept = got[0]["choices"][0]["prompt_token_ids"]
        assert len(kept) == 3 and kept[-2:] == prompt[-2:] and got[0]["usage"]["prompt_tokens"] == 3
        _, got = said(s, **kw, truncate_prompt_tokens=-1)
        assert got[0]["choices"][0]["prompt_token_ids"] == prompt
    assert s.post("/v1/completions", {"prompt": ONCE, "truncate_prompt_tokens": 0}).status_code == 400
    long = {"prompt": "x " * 5000, "max_tokens": 1}
    assert s.post("/v1/completions", long).status_code == 400


def test_special_tokens_as_text(s):
    end = json.loads((DEMO / "tokenizer_config.json").read_text())["eos_token"]
    kw = {**HELLO, "ignore_eos": True, "max_tokens": 60}
    plain, _ = said(s, **kw)
    shown, _ = said(s, **kw, skip_special_tokens=False)
    assert end in shown and end not in plain and "".join(shown.split(end)).replace("<|", "")[:20] == plain[:20]
    assert said(s, True, **kw, skip_special_tokens=False)[0] == shown
    assert end not in said(s, **{**HELLO, "max_tokens": 60}, skip_special_tokens=False)[0], "what ends the answer is not in it"


def test_how_the_prompt_ends(s):
    start = {"role": "assistant", "content": "Hello, I"}
    asked = {**HELLO, "messages": [*HELLO["messages"], start]}

    def prompt(**kw):
        r = s.post("/apply-template", {**asked, **kw})
        return r.json()["prompt"] if r.status_code == 200 else r.text

    go_on = prompt()
    assert go_on.endswith("Hello, I") and go_on == prompt(continue_final_message=True)
    new = prompt(continue_final_message=False)
    assert new == prompt(add_generation_prompt=True) and new.endswith("<|assistant|>")
    assert prompt(add_generation_prompt=False) == new.removesuffix("<|assistant|>")
    assert "exclude" in prompt(continue_final_message=True, add_generation_prompt=True)
    for stream in (False, True):
        assert said(s, stream, **asked, echo=True)[0] == "Hello, I" + said(s, stream, **asked)[0]
        assert said(s, stream, **asked, echo=True, add_generation_prompt=True)[0] == said(s, stream, **asked, add_generation_prompt=True)[0]


def test_tokenizer_info(s):
    config = json.loads((DEMO / "tokenizer_config.json").read_text())
    assert requests.get(s.url + "/tokenizer_info", timeout=60).json() == config


def test_what_has_no_mechanism_is_refused(s):
    refused = {
        "kv_transfer_params": {"do_remote_decode": True},
        "modalities": ["text", "audio"],
        "chat_template": "{{ messages }}",
        "guided_whitespace_pattern": " ?",
        "use_beam_search": True,
        "documents": [{"text": "A cat."}],
        "mm_processor_kwargs": {"max_pixels": 3136},
        "stop_regex": "[.!]",
        "custom_logit_processor": "x",
        "session_params": {"id": "a"},
        "return_hidden_states": True,
        "lora_path": "a",
        "input_ids": [1, 2],
        "logits_processors": ["a.b"],
        "vllm_xargs": {"a": 1},
        "response_prefix": "Sure",
        "min_completion_tokens": 3,
        "disable_reasoning": True,
        "prompt_truncate_len": 100,
        "mirostat_target": 1.5,
    }
    for name, value in refused.items():
        r = s.post("/v1/chat/completions", {**HELLO, name: value})
        assert r.status_code == 400 and name in r.text
        assert s.post("/v1/chat/completions", {**HELLO, name: None, "spaces_between_special_tokens": True}).status_code == 200
    assert s.post("/v1/chat/completions", {**HELLO, "modalities": ["text"], "disable_reasoning": False}).status_code == 200
    assert "prompt_embeds" in s.post("/v1/completions", {"prompt": ONCE, "prompt_embeds": "AAAA"}).json()["error"]["message"]


def test_prompt_logprobs_as_vllm_gives_them(s):
    body = {"prompt": ONCE, "max_tokens": 2, "temperature": 0, "prompt_logprobs": 2}
    choice = s.post("/v1/completions", body).json()["choices"][0]
    echoed = s.post("/v1/completions", {**body, "prompt_logprobs": None, "echo": True, "logprobs": 2}).json()["choices"][0]["logprobs"]
    ids = s.post("/tokenize", {"prompt": ONCE}).json()["tokens"]
    listed = choice["prompt_logprobs"]
    assert listed[0] is None and len(listed) == len(ids)
    for i in range(1, len(ids)):
        own = listed[i][str(ids[i])]
        assert own["logprob"] == echoed["token_logprobs"][i]
        ranks = sorted(v["rank"] for v in listed[i].values() if v["rank"])
        assert ranks == [1, 2] and 2 <= len(listed[i]) <= 3
        best = max(listed[i].values(), key=lambda v: v["logprob"])
        assert best["rank"] == 1 and best["logprob"] == max(echoed["top_logprobs"][i].values())
    assert choice["logprobs"] is None
    both = s.post("/v1/completions", {**body, "logprobs": 1}).json()["choices"][0]
    assert both["prompt_logprobs"] == listed and all(len(x) == 1 for x in both["logprobs"]["top_logprobs"])
    chat = s.post("/v1/chat/completions", {**HELLO, "prompt_logprobs": 0}).json()
    assert chat["prompt_logprobs"][0] is None and all(len(x) == 1 for x in chat["prompt_logprobs"][1:])
    for bad in ({"stream": True}, {"prompt_logprobs": -1}):
        r = s.post("/v1/completions", {**body, **bad})
        assert r.status_code in (400, 422) and "prompt_logprobs" in r.text


def test_logprobs_of_named_tokens(s):
    body = {"prompt": ONCE, "max_tokens": 5, "temperature": 0, "return_tokens_as_token_ids": True}
    every = s.post("/v1/completions", {**body, "logprobs": 20}).json()["choices"][0]["logprobs"]
    ranked = [int(t.removeprefix("token_id:")) for t in every["top_logprobs"][0]]
    asked = [ranked[7], ranked[2], ranked[15]]
    r = s.post("/v1/completions", {**body, "logprob_token_ids": asked})
    assert r.status_code == 200, r.text
    got = r.json()["choices"][0]["logprobs"]
    assert got["tokens"] == every["tokens"] and got["token_logprobs"] == every["token_logprobs"]
    named = [f"token_id:{i}" for i in asked]
    for token, mine, best in zip(got["tokens"], got["top_logprobs"], every["top_logprobs"]):
        assert list(mine) == named + [t for t in (token,) if t not in named]  # the chosen one is always there
        assert all(v == best[t] for t, v in mine.items() if t in best)
    chat = s.post("/v1/chat/completions", {**HELLO, "max_tokens": 3, "logprob_token_ids": asked}).json()["choices"][0]["logprobs"]["content"]
    assert all(len(t["top_logprobs"]) == 3 for t in chat)
    answer = s.post("/v1/responses", {"model": "tgi", "input": "Hello!", "max_output_tokens": 3, "logprob_token_ids": asked}).json()
    assert all(len(t["top_logprobs"]) == 3 for t in answer["output"][0]["content"][0]["logprobs"])
    for bad in ({"logprob_token_ids": "1"}, {"logprob_token_ids": [10**6]}, {"logprob_token_ids": [1] * 257}, {"logprob_token_ids": [1], "echo": True, "logprobs": 1}):
        r = s.post("/v1/completions", {**body, **bad})
        assert r.status_code == 400 and "logprob_token_ids" in r.text, r.text


def test_a_salt_keeps_cached_prompts_apart(s):
    text = "It was a day like any other when the little dog " * 6

    def cached(**kw):
        r = s.post("/v1/completions", {"prompt": text, "max_tokens": 4, "temperature": 0, **kw})
        assert r.status_code == 200, r.text
        return r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], r.json()["choices"][0]["text"]

    plain = cached()[1]
    assert cached()[0] > 0
    assert cached(cache_salt="mine") == (0, plain)
    assert cached(cache_salt="mine")[0] > 0
    assert cached(cache_salt="other") == (0, plain)
    assert cached(extra_key="third") == (0, plain)  # SGLang's name
    assert s.post("/v1/completions", {"prompt": text, "cache_salt": ""}).status_code in (400, 422)


def test_a_template_of_the_request():
    with Service(DEMO, args=["--trust-request-chat-template"]) as own:
        body = {**HELLO, "chat_template": "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"}
        assert own.post("/apply-template", body).json()["prompt"] == "[user|Hello!]"
        r = own.post("/v1/chat/completions", {**HELLO, "chat_template": "{% for %}"})
        assert r.status_code in (400, 422) and "syntax error" in r.text
        r = own.post("/v1/chat/completions", {**HELLO, "chat_template": "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}"})
        assert r.status_code in (400, 422)


def test_samplers_of_llama_cpp(s):
    sampled = dict(do_sample=True, seed=5, max_new_tokens=60, temperature=1.5)
    plain = generate(s, **sampled)
    for more in ({"top_n_sigma": 1.0}, {"xtc_probability": 1.0, "xtc_threshold": 0.05}, {"dry_multiplier": 5.0, "dry_allowed_length": 1}):
        changed = generate(s, **sampled, **more)
        assert changed["tokens"] != plain["tokens"], more
        assert generate(s, **sampled, **more)["tokens"] == changed["tokens"], "the same seed, the same answer"
    # settings without what they set, and neutral values, change nothing
    for more in ({"xtc_threshold": 0.3}, {"dry_base": 9.0, "dry_penalty_last_n": 4}, {"top_n_sigma": 0.0, "dry_multiplier": 0.0, "xtc_probability": 0.0}):
        assert generate(s, **sampled, **more)["tokens"] == plain["tokens"], more
    greedy = completion(s, max_tokens=200, ignore_eos=True)["token_ids"]
    dry = completion(s, max_tokens=200, ignore_eos=True, dry_multiplier=2.0, top_n_sigma=-1)["token_ids"]
    runs = lambda v, n: len(v) - n + 1 - len({tuple(v[i : i + n]) for i in range(len(v) - n + 1)})
    assert runs(dry, 4) < runs(greedy, 4), "fewer runs of four tokens come twice"
    assert completion(s, max_tokens=200, ignore_eos=True, dry_multiplier=2.0, dry_sequence_breakers=[" "])["token_ids"] != dry
    for bad in ({"xtc_probability": 2}, {"dry_base": 0.5}, {"dry_allowed_length": 0}, {"dry_sequence_breakers": []}, {"dry_sequence_breakers": [""]}):
        assert s.post("/v1/completions", {"prompt": ONCE, "max_tokens": 1, "dry_multiplier": 1, **bad}).status_code in (400, 422), bad


def test_samplers_under_names_of_other_servers(s):
    """typical_p and repeat_penalty, which llama-server's /v1 takes, change the answer as the names of /generate do."""
    ask = {"prompt": "Once upon a time", "max_tokens": 24, "seed": 3}

    def text(**more):
        r = s.post("/v1/completions", {**ask, **more})
        assert r.status_code == 200, r.text
        return r.json()["choices"][0]["text"]

    def tgi(**more):
        parameters = {"max_new_tokens": 24, "seed": 3, "do_sample": True, **more}
        return s.post("/generate", {"inputs": "Once upon a time", "parameters": parameters}).json()["generated_text"]

    assert text(typical_p=0.2) == tgi(typical_p=0.2) != text()
    assert text(repeat_penalty=1.8) == text(repetition_penalty=1.8) != text()
    assert text(repeat_penalty=1.8, repeat_last_n=0) == text()  # of no token
    assert text(repetition_penalty=1.3, repeat_penalty=1.8) == text(repetition_penalty=1.3)
    assert text(guidance_scale=1, negative_prompt="bad") == text()  # guidance is off
    assert text(min_p=1) == text(temperature=0)
    r = s.post("/v1/completions", {**ask, "repeat_penalty": 1.8, "repeat_last_n": 64})
    assert r.status_code == 200 and "repeat_last_n" in r.headers["warning"]


def test_an_empty_prompt_is_the_begin_of_a_text(s):
    """Its tokens are those that the tokenizer puts around any text: vLLM and llama-server serve it."""
    r = s.post("/v1/completions", {"prompt": "", "max_tokens": 4, "temperature": 0, "return_token_ids": True})
    assert r.status_code == 200, r.text
    assert r.json()["usage"]["prompt_tokens"] == 1
    assert r.json()["choices"][0]["prompt_token_ids"] == [0]
    same = s.post("/v1/completions", {"prompt": [0], "max_tokens": 4, "temperature": 0}).json()
    assert r.json()["choices"][0]["text"] == same["choices"][0]["text"]
    for body in ({"prompt": "", "add_special_tokens": False}, {"prompt": []}, {"prompt": [[]]}):
        r = s.post("/v1/completions", body)
        assert r.status_code == 400 and "prompt" in r.text
    assert s.post("/generate", {"inputs": ""}).status_code == 422


@pytest.mark.parametrize("n", [1, 3])
def test_usage_of_a_stream_is_counted_once(s, n):
    """Clients that add up what the chunks carry: asked for, it is in the last chunk alone, and null in the others."""
    body = {"prompt": "Once upon a time", "max_tokens": 6, "n": n, "temperature": 0, "stream": True}
    events = [e for e in s.events("/v1/completions", {**body, "stream_options": {"include_usage": True}}) if e != "[DONE]"]
    assert [e["usage"] for e in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 6 * n
    unasked = [e for e in s.events("/v1/completions", body) if e != "[DONE]"]
    assert sum(e["usage"]["completion_tokens"] for e in unasked if e.get("usage")) == 6 * n, "TGI's last chunk of a choice has its counts"
    many = {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    assert all(e["usage"]["prompt_tokens"] for e in s.events("/v1/completions", many) if e != "[DONE]")
