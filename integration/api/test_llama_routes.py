"""llama-server's own routes, as its clients (llama.vim, llama.vscode, SillyTavern) use them."""

import concurrent.futures
import contextlib
import json

import pytest
import requests
from serving import DEMO, Service, wait_for

ONCE = "Once upon a time"
GREEDY = {"prompt": ONCE, "n_predict": 12, "temperature": 0}


def completion(s, **body):
    r = s.post("/completion", {**GREEDY, **body})
    assert r.status_code == 200, r.text
    return r.json()


def events(s, **body):
    r = s.post("/completion", {**GREEDY, "stream": True, **body}, stream=True)
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in r.iter_lines() if line]
    assert all(line.startswith(b"data: {") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_an_answer_is_that_of_the_other_routes(s):
    a = completion(s, return_tokens=True)
    other = s.post("/v1/completions", {"prompt": ONCE, "max_tokens": 12, "temperature": 0}).json()
    assert a["content"] == other["choices"][0]["text"] and len(a["tokens"]) == a["tokens_predicted"] == 12
    assert (a["stop"], a["stop_type"], a["stopping_word"], a["truncated"], a["prompt"]) == (True, "limit", "", False, ONCE)
    assert a["tokens_evaluated"] == other["usage"]["prompt_tokens"] and a["tokens_cached"] == a["tokens_evaluated"] + 12
    assert a["generation_settings"]["temperature"] == 0 and a["generation_settings"]["n_predict"] == 12
    t = a["timings"]
    assert t["prompt_n"] + t["cache_n"] == a["tokens_evaluated"] and t["predicted_n"] == 12 and t["predicted_ms"] > 0
    assert completion(s)["tokens"] == []


def test_a_stream_ends_with_the_members_of_an_answer(s):
    whole = completion(s, return_tokens=True)
    parts = events(s)
    assert [p["stop"] for p in parts] == [False] * (len(parts) - 1) + [True]
    assert "".join(p["content"] for p in parts) == whole["content"]
    assert [t for p in parts for t in p["tokens"]] == whole["tokens"]
    last = parts[-1]
    assert last["stop_type"] == "limit" and last["timings"]["predicted_n"] == 12 and "timings" not in parts[0]
    assert {k: last[k] for k in ("prompt", "model", "tokens_evaluated")} == {k: whole[k] for k in ("prompt", "model", "tokens_evaluated")}


def test_prompts_of_text_and_ids(s):
    ids = s.post("/tokenize", {"content": ONCE, "add_special": True}).json()["tokens"]
    head = s.post("/tokenize", {"content": "Once upon", "add_special": True}).json()["tokens"]
    whole = completion(s)["content"]
    assert completion(s, prompt=ids)["content"] == whole
    assert completion(s, prompt=[*head, " a time"])["content"] == whole
    assert completion(s, prompt={"prompt_string": ONCE})["content"] == whole
    several = completion(s, prompt=[ONCE, ids, "The end"])
    assert [a["index"] for a in several] == [0, 1, 2] and several[0]["content"] == several[1]["content"] == whole
    for wrong in ([], [10**6, "x"], [[]], 7, None, [{"a": 1}]):
        assert s.post("/completion", {**GREEDY, "prompt": wrong}).status_code == 400, wrong


def test_stops_and_probabilities(s):
    whole = completion(s)["content"]
    word = whole.split()[2]
    stopped = completion(s, stop=[word])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word) and stopped["content"] == whole[: whole.index(word)]
    probs = completion(s, n_probs=3)["completion_probabilities"]
    assert len(probs) == 12 and all(len(p["top_logprobs"]) == 3 for p in probs)
    assert all(p["id"] == p["top_logprobs"][0]["id"] and p["logprob"] == p["top_logprobs"][0]["logprob"] <= 0 for p in probs)
    assert all(bytes(p["bytes"]).decode(errors="replace") == p["token"] for p in probs)
    assert completion(s, n_predict=0)["tokens_predicted"] == 0
    first = probs[0]["id"]
    for bias in ([[first, False]], [[first, -100]], {str(first): -100}):
        assert completion(s, return_tokens=True, logit_bias=bias)["tokens"][0] != first


def test_the_defaults_sample_and_a_seed_repeats(s):
    body = {"prompt": ONCE, "n_predict": 12, "temperature": None}
    a, b = (s.post("/completion", {"prompt": ONCE, "n_predict": 12, "seed": 7}).json() for _ in range(2))
    assert a["content"] == b["content"] and a["generation_settings"]["seed"] == 7
    g = s.post("/completion", body).json()["generation_settings"]
    assert (g["top_k"], round(g["top_p"], 2), round(g["min_p"], 2), g["repeat_penalty"]) == (40, 0.95, 0.05, 1)
    assert completion(s, repeat_penalty=1.3)["generation_settings"]["repeat_penalty"] == 1.3
    answers = {s.post("/completion", {"prompt": ONCE, "n_predict": 12}).json()["content"] for _ in range(8)}
    assert len(answers) > 1


def test_a_grammar_and_a_schema(s):
    assert completion(s, grammar='root ::= "yes" | "no"')["content"] in ("yes", "no")
    made = completion(s, n_predict=64, json_schema={"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False})
    assert isinstance(json.loads(made["content"])["a"], bool)


@pytest.mark.parametrize("field", ["mirostat", "n_indent", "dynatemp_range", "lora"])
def test_what_is_not_there_is_refused(s, field):
    r = s.post("/completion", {**GREEDY, field: [{"id": 0, "scale": 1}] if field == "lora" else 2})
    assert r.status_code == 400 and field in r.json()["error"]["message"]
    assert s.post("/completion", {**GREEDY, field: [] if field == "lora" else 0}).status_code == 200


def test_what_only_moves_work_is_taken(s):
    r = s.post("/completion", {**GREEDY, "cache_prompt": True, "id_slot": -1, "n_keep": 0, "n_discard": 0, "samplers": ["top_k"], "timings_per_token": False})
    assert r.status_code == 200 and "samplers" in r.headers["warning"]


@pytest.mark.parametrize("field", ["n", "n_cmpl"])
def test_several_choices_are_a_list(s, field):
    body = {**GREEDY, "temperature": 1, "seed": 3}
    alone = s.post("/completion", body).json()
    two = s.post("/completion", {**body, field: 2}).json()
    assert [a["index"] for a in two] == [0, 1] and two[0]["content"] == alone["content"] != two[1]["content"]
    four = s.post("/completion", {**body, "prompt": [GREEDY["prompt"], "A"], field: 2}).json()
    assert [a["index"] for a in four] == [0, 1, 2, 3] and [a["content"] for a in four[:2]] == [a["content"] for a in two]
    r = s.post("/completion", {**body, field: 0})
    assert r.status_code == 400 and r.json()["error"]["param"] == field


def test_a_penalty_is_refused_by_its_name(s):
    r = s.post("/completion", {**GREEDY, "repeat_penalty": 0})
    assert r.status_code == 400 and r.json()["error"]["param"] == "repeat_penalty"


def test_props(s):
    p = requests.get(s.url + "/props").json()
    assert p["default_generation_settings"]["n_ctx"] > 0 and p["total_slots"] > 0 and "{%" in p["chat_template"]
    assert p["default_generation_settings"]["params"]["top_k"] == 40 and p["modalities"] == {"vision": False, "audio": False}


def slots(s, **query):
    return requests.get(s.url + "/slots", params=query)


def busy(s):
    return [k["id"] for k in slots(s).json() if k["is_processing"]]


@contextlib.contextmanager
def one_runs(s):
    """A generation that goes on for as long as this does."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with s.held():
            answer = pool.submit(completion, s)
            wait_for(lambda: busy(s) == [0])
            yield
        assert answer.result()["tokens_predicted"] == 12


def test_slots_and_models(s):
    props = requests.get(s.url + "/props").json()
    wait_for(lambda: not busy(s))
    idle = slots(s, fail_on_no_slot=1).json()
    assert len(idle) == props["total_slots"] and {k["n_ctx"] for k in idle} == {props["default_generation_settings"]["n_ctx"]}
    with one_runs(s):
        assert slots(s, fail_on_no_slot=1).status_code == 200
        assert s.metric("tgi_batch_current_size") == 1  # while its prompt is computed
    assert requests.get(s.url + "/models").json() == requests.get(s.url + "/v1/models").json()
    name = requests.get(s.url + "/v1/models").json()["data"][0]["id"]
    assert requests.get(f"{s.url}/models/{name}").json() == requests.get(f"{s.url}/v1/models/{name}").json()


def test_no_slot_is_free():
    with Service(DEMO, args=["--max-batch-size", "1"]) as s:
        assert len(slots(s).json()) == 1
        with one_runs(s):
            assert slots(s, fail_on_no_slot=1).status_code == 503 and slots(s).status_code == 200


def test_pieces(s):
    text = "Once \U0001f917"
    tokens = s.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
    assert [t["id"] for t in tokens] == s.post("/tokenize", {"content": text}).json()["tokens"]
    whole = b"".join(bytes(p) if isinstance(p := t["piece"], list) else p.encode() for t in tokens)
    assert whole.decode().strip() == text and any(isinstance(t["piece"], list) for t in tokens)


def test_only_the_members_that_are_asked_for(s):
    whole = completion(s, seed=2**64 - 1)
    some = completion(s, seed=2**64 - 1, response_fields=["content", "generation_settings/seed", "no/such", "timings/prompt_n"])
    assert set(some) == {"content", "generation_settings/seed", "timings/prompt_n"} and some["content"] == whole["content"]
    assert some["generation_settings/seed"] == 2**64 - 1
    assert set(completion(s, response_fields=[])) == set(whole)


def test_biases_name_tokens_by_texts(s):
    first = completion(s, return_tokens=True)["tokens"][0]
    (piece,) = (t["piece"] for t in [{"piece": completion(s, n_predict=1)["content"]}])
    for bias in ([[piece, False]], [[piece, -100]], {piece: -100}, [[piece, -100], [first, -100]]):
        a = completion(s, return_tokens=True, logit_bias=bias)
        assert a["tokens"][0] != first and {"token": first, "bias": -100} in a["generation_settings"]["logit_bias"]
    assert s.post("/completion", {**GREEDY, "logit_bias": [[{}, 1]]}).status_code == 400


def test_probabilities_behind_the_samplers_and_media_are_refused(s):
    r = s.post("/completion", {**GREEDY, "n_probs": 2, "post_sampling_probs": True})
    assert r.status_code == 400 and r.json()["error"]["param"] == "post_sampling_probs"
    assert s.post("/completion", {**GREEDY, "post_sampling_probs": True}).status_code == 200
    prompt = {"prompt_string": "x <__media__>", "multimodal_data": ["aGk="]}
    assert s.post("/completion", {**GREEDY, "prompt": prompt}).status_code == 400


LONG = "the quick brown fox jumps over the lazy dog " * 40


def told(s, path, body):
    """Of a stream with the progress of its prompt and timings: those events, and the ones behind."""
    got = [e for e in s.events(path, {**body, "stream": True, "return_progress": True, "timings_per_token": True}) if e != "[DONE]"]
    progress = [e for e in got if "prompt_progress" in e]
    assert got[: len(progress)] == progress, "it comes before the answer"
    return progress, got[len(progress) :]


def test_progress_and_timings():
    """The prompt is computed in steps of 64 tokens."""
    chat = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
    with Service(DEMO, args=["--max-batch-prefill-tokens", "64"]) as s:
        for path, body in (("/completion", {**GREEDY, "prompt": LONG, "n_predict": 4, "ignore_eos": True}), ("/v1/completions", {"prompt": "A " + LONG, "max_tokens": 4, "temperature": 0, "ignore_eos": True}), ("/v1/chat/completions", chat)):
            progress, rest = told(s, path, body)
            p = [e["prompt_progress"] for e in progress]
            total = p[0]["total"]
            assert len(p) > 3 and p[0]["processed"] == p[0]["cache"] and p[-1]["processed"] == total, p
            assert [x["processed"] for x in p] == sorted({x["processed"] for x in p}) and {x["total"] for x in p} == {total}
            assert (progress[0]["timings"]["prompt_n"], progress[0]["timings"]["prompt_ms"], progress[0]["timings"]["predicted_n"]) == (0, 0, 0)
            times = [e["timings"] for e in rest]
            assert times[-1]["predicted_n"] == 4 and times[-1]["prompt_n"] + times[-1]["cache_n"] == total
            assert abs(times[-1]["predicted_per_second"] - 3e3 / times[-1]["predicted_ms"]) < 1e-3, "four tokens come in three steps behind the prompt's"
        again, _ = told(s, "/v1/chat/completions", chat)
        assert again[0]["prompt_progress"]["cache"] > 0
        once = s.post("/v1/chat/completions", {**chat, "timings_per_token": True}).json()
        assert once["timings"]["predicted_n"] == 4 and "timings" not in s.post("/v1/chat/completions", chat).json()


def test_what_a_chat_became(s):
    chat = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 2}
    prompt = s.post("/apply-template", chat).json()["prompt"]
    a = s.post("/chat/completions", {**chat, "verbose": True}).json()
    assert a["__verbose"]["prompt"] == prompt and "__verbose" not in s.post("/chat/completions", chat).json()
    chunks = [e for e in s.events("/v1/chat/completions", {**chat, "verbose": True, "stream": True}) if e != "[DONE]"]
    assert chunks[0]["__verbose"]["prompt"] == prompt
    n = s.post("/v1/chat/completions/input_tokens", chat).json()
    assert n == {"input_tokens": a["usage"]["prompt_tokens"]} == s.post("/chat/completions/input_tokens", chat).json()


def test_metrics_by_their_names(s):
    before, cached = s.metric("llamacpp:prompt_tokens_total"), s.metric("llamacpp:prompt_tokens_cached_total")
    made = s.metric("llamacpp:tokens_predicted_total")
    t = [completion(s, prompt=f"{ONCE} there was a number {before}")["timings"] for _ in range(2)]
    assert s.metric("llamacpp:prompt_tokens_total") - before == sum(x["prompt_n"] for x in t)
    assert s.metric("llamacpp:prompt_tokens_cached_total") - cached == sum(x["cache_n"] for x in t) > 0
    assert s.metric("llamacpp:tokens_predicted_total") - made == sum(x["predicted_n"] for x in t)
    assert s.metric("llamacpp:requests_deferred") == 0


@pytest.fixture(scope="module")
def fim(tmp_path_factory):
    """The demo model, of which four rare tokens are called what Qwen's coders call theirs."""
    import shutil

    folder = tmp_path_factory.mktemp("fim")
    shutil.copytree(DEMO, folder, dirs_exist_ok=True)
    t = json.loads((folder / "tokenizer.json").read_text())
    merged = {part for m in t["model"]["merges"] for part in (m if isinstance(m, list) else m.split(" "))}
    free = [k for k, v in sorted(t["model"]["vocab"].items(), key=lambda kv: -kv[1]) if k not in merged and len(k) > 4][:4]
    for name, old in zip(("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"), free, strict=True):
        number = t["model"]["vocab"].pop(old)
        t["model"]["vocab"][name] = number
        t["model"]["merges"] = [m for m in t["model"]["merges"] if "".join(m if isinstance(m, list) else m.split(" ")) != old]
        t["added_tokens"].append({"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    t["added_tokens"].sort(key=lambda a: a["id"])
    (folder / "tokenizer.json").write_text(json.dumps(t))
    with Service(folder) as service:
        yield service


def test_infill(s, fim):
    body = {"input_prefix": "Once upon", "input_suffix": " lived a cat.", "n_predict": 8, "temperature": 0, "cache_prompt": True, "t_max_prompt_ms": 500}
    r = fim.post("/infill", body)
    assert r.status_code == 200, r.text
    a = r.json()
    assert a["prompt"] == "<|fim_prefix|>Once upon<|fim_suffix|> lived a cat.<|fim_middle|>" and a["tokens_predicted"] == 8
    more = fim.post("/infill", {**body, "prompt": " a", "input_extra": [{"filename": "a.c", "text": "int x;"}]}).json()
    assert more["prompt"] == "int x;\n\n--- snippet ---\n\n<|fim_prefix|>Once upon a<|fim_suffix|> lived a cat.<|fim_middle|>"
    names = [fim.post("/tokenize", {"content": f"<|fim_{k}|>"}).json()["tokens"] for k in ("prefix", "suffix", "middle")]
    assert all(len(n) == 1 for n in names)
    ids = fim.post("/infill", {**body, "input_prefix": "a<|fim_middle|>b<|end|>", "input_suffix": "<|fim_prefix|>", "return_tokens": True}).json()
    plain = fim.post("/infill", {**body, "input_prefix": "ab", "input_suffix": "c"}).json()
    assert ids["prompt"] == "<|fim_prefix|>a<|fim_middle|>b<|end|><|fim_suffix|><|fim_prefix|><|fim_middle|>"
    assert ids["tokens_evaluated"] > plain["tokens_evaluated"] + 12, "text of a client became control tokens"
    pad = fim.post("/tokenize", {"content": "<|fim_pad|>"}).json()["tokens"][0]
    end = fim.post("/infill", {**body, "logit_bias": [[pad, 100.0]]}).json()
    assert end["content"] == "" and end["stop_type"] == "eos", "padding ends a middle"
    refused = s.post("/infill", body)
    assert refused.status_code == 400 and "not supported by this model" in refused.json()["error"]["message"]
    assert fim.post("/infill", {"input_prefix": "x"}).status_code == 400


def test_suffix(s, fim):
    """OpenAI's and Ollama's `suffix` is the same prompt; a model without such tokens refuses it, an empty one is none."""
    body = {"max_tokens": 8, "temperature": 0, "prompt": "Once upon", "return_token_ids": True}
    whole = {**body, "prompt": "<|fim_prefix|>Once upon<|fim_suffix|> lived a cat.<|fim_middle|>"}
    want = fim.post("/v1/completions", whole).json()["choices"][0]
    got = fim.post("/v1/completions", {**body, "suffix": " lived a cat."})
    assert got.status_code == 200, got.text
    got = got.json()["choices"][0]
    assert (got["text"], got["prompt_token_ids"]) == (want["text"], want["prompt_token_ids"])
    r = fim.post("/api/generate", {"prompt": "Once upon", "suffix": " lived a cat.", "stream": False, "options": {"temperature": 0, "num_predict": 8}})
    assert r.status_code == 200 and r.json()["response"] == want["text"], r.text
    for wrong in ({"prompt": [1, 2]}, {"echo": True}, {"suffix": 4}):
        r = fim.post("/v1/completions", {**body, "suffix": "x", **wrong})
        assert r.status_code == 400 and r.json()["error"]["param"] in ("suffix", "echo"), r.text
    assert s.post("/v1/completions", {**body, "suffix": ""}).status_code == 200
    assert s.post("/v1/completions", {**body, "suffix": "x"}).status_code == 400


def test_a_limit_of_time_ends_behind_a_line(s):
    body = {"n_predict": 400, "t_max_predict_ms": 1, "grammar": 'root ::= ("a\\n")+', "ignore_eos": True}
    a = completion(s, **body)
    assert a["has_new_line"] and a["stop_type"] == "limit" and a["tokens_predicted"] < 300
    assert events(s, **body)[-1]["stop_type"] == "limit"
