"""Ollama's API, as its SDK, editors (Copilot, JetBrains, Zed, Continue) and Open WebUI use it."""

import base64
import json
import math
import pathlib

import pytest
import requests
from serving import DEMO, Scripted, Service, data
from test_image_inputs import SCRIPT, SMALL, b64, part, saw, text, where
from test_image_inputs import TEMPLATE as IMAGE_TEMPLATE
from tool_talk import CALL, TEMPLATE, WEATHER

HELLO = {"messages": [{"role": "user", "content": "Hello!"}], "options": {"temperature": 0, "num_predict": 8}}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}}


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO, args=["--served-model-name", "demo"]) as service:
        yield service


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE) as service:
        yield service


def one(s, path, **body):
    r = s.post(path, {"model": "demo", "stream": False, **body})
    assert r.status_code == 200 and r.headers["content-type"] == "application/json", r.text
    return r.json()


def lines(s, path, **body):
    r = s.post(path, {"model": "demo", **body}, stream=True)
    assert r.status_code == 200 and r.headers["content-type"] == "application/x-ndjson", r.text
    got = [json.loads(line) for line in r.iter_lines()]
    assert [x["done"] for x in got] == [False] * (len(got) - 1) + [True]
    return got


def check_end(end):
    assert end["done_reason"] in ("stop", "length") and end["created_at"].endswith("Z")
    assert end["total_duration"] >= end["eval_duration"] > 0 and end["prompt_eval_duration"] > 0
    assert end["eval_count"] == 8 and end["prompt_eval_count"] > 0


def test_a_chat(demo):
    of_openai = demo.post("/v1/chat/completions", {"messages": HELLO["messages"], "temperature": 0, "max_tokens": 8}).json()
    a = one(demo, "/api/chat", **HELLO)
    assert a["message"] == {"role": "assistant", "content": of_openai["choices"][0]["message"]["content"]} and a["model"] == "demo"
    assert a["prompt_eval_count"] == of_openai["usage"]["prompt_tokens"]
    check_end(a)
    streamed = lines(demo, "/api/chat", **HELLO)
    assert "".join(x["message"]["content"] for x in streamed) == a["message"]["content"] and len(streamed) > 5
    check_end(streamed[-1])


def test_a_prompt(demo):
    body = {"prompt": "Hello!", "options": HELLO["options"]}
    a = one(demo, "/api/generate", **body)
    assert a["response"] == one(demo, "/api/chat", **HELLO)["message"]["content"]
    check_end(a)
    assert "".join(x["response"] for x in lines(demo, "/api/generate", **body)) == a["response"]
    raw = one(demo, "/api/generate", prompt="Once upon a time", raw=True, options=HELLO["options"])
    text = demo.post("/v1/completions", {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8}).json()["choices"][0]["text"]
    assert raw["response"] == text
    with_system = one(demo, "/api/generate", system="Be kind.", **body)
    assert with_system["prompt_eval_count"] > a["prompt_eval_count"]


def test_options(demo):
    seeded = {"options": {"seed": 7, "temperature": 1.5, "num_predict": 8, "num_ctx": 4096}, "messages": HELLO["messages"]}
    assert one(demo, "/api/chat", **seeded)["message"] == one(demo, "/api/chat", **seeded)["message"]
    whole = one(demo, "/api/chat", **HELLO)["message"]["content"]
    word = whole.split()[1]
    stopped = one(demo, "/api/chat", messages=HELLO["messages"], options={"temperature": 0, "num_predict": 8, "stop": [word]})
    assert stopped["message"]["content"] == whole[: whole.index(word)] and stopped["done_reason"] == "stop"
    for n in (-1, -2):
        assert one(demo, "/api/chat", messages=HELLO["messages"], options={"temperature": 0, "num_predict": n, "stop": [word]})["done"]
    told = [
        one(demo, "/api/generate", prompt="Once upon a time", raw=True, options={"temperature": 0, "num_predict": 30, **more})["response"]
        for more in ({}, {"repeat_penalty": 9.0}, {"repeat_penalty": 9.0, "repeat_last_n": 0})
    ]
    assert told[0] != told[1] and told[2] == told[0]  # a penalty on the last 0 tokens is none


def test_formats(demo):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    options = {"temperature": 0, "num_predict": 60}
    made = one(demo, "/api/chat", messages=HELLO["messages"], format=schema, options=options)
    assert isinstance(json.loads(made["message"]["content"])["a"], bool)
    assert one(demo, "/api/generate", prompt="Hello!", format="json", options=options)["response"].lstrip().startswith("{")
    r = demo.post("/api/chat", {**HELLO, "format": "xml"})
    assert r.status_code == 400 and "format" in r.json()["error"]


def test_calls_and_their_results(s):
    asked = [{"role": "user", "content": f"[[<think>Hm.</think>Wait.{CALL}]]"}]
    a = one(s, "/api/chat", messages=asked, tools=[TOOL])["message"]
    assert (a["content"], a["thinking"]) == ("Wait.", "Hm.")
    assert [c["function"] for c in a["tool_calls"]] == [{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]
    got = [x["message"] for x in lines(s, "/api/chat", messages=asked, tools=[TOOL])]
    assert [c["function"] for m in got for c in m.get("tool_calls", [])] == [a["tool_calls"][0]["function"]]
    assert "".join(m.get("thinking", "") for m in got) == "Hm." and "".join(m["content"] for m in got) == "Wait."
    turn = [*asked, a, {"role": "tool", "tool_name": "get_weather", "content": "[[Sunny.]]"}]
    assert one(s, "/api/chat", messages=turn, tools=[TOOL])["message"]["content"] == "Sunny."
    no_ids = [{**c, "id": None} for c in a["tool_calls"]]
    assert s.post("/api/show", {"model": "demo"}).json()["capabilities"] == ["completion", "tools", "thinking"]
    assert one(s, "/api/chat", messages=[*asked, {**a, "tool_calls": no_ids}, turn[-1]], tools=[TOOL])["message"]["content"] == "Sunny."


def test_results_answer_the_calls_before_them():
    """In their order where they name none; the calls have ids, or not."""
    template = "[[{% for m in messages %}{% for c in m.tool_calls %}{{ c.id }} {% endfor %}{{ m.tool_call_id }} {% endfor %}]]{# tools #}"
    with Scripted(template) as t:
        for ids, own in (["a1", None, "c3"], None), ([None] * 3, None), (["a1", "b2", "c3"], "b2"):
            calls = [{"id": i, "function": {"name": "f", "arguments": {}}} for i in ids]
            results = [{"role": "tool", "content": "x"} for _ in ids]
            results[1] |= {"tool_call_id": own} if own else {}
            talk = [{"role": "assistant", "tool_calls": calls[:2]}, *results[:2], {"role": "assistant", "tool_calls": calls[2:]}, results[2]]
            said = one(t, "/api/chat", messages=talk)["message"]["content"].split()
            assert said[:2] == said[2:4] and said[4] == said[5] and len(set(said)) == 3, said


@pytest.mark.parametrize("think, shown", [(True, "True"), (False, "False"), (None, "")])
def test_thinking_is_told_to_the_template(s, think, shown):
    template = TEMPLATE.replace("{{ ' thinks:' ~ enable_thinking }}", "[[{{ enable_thinking }}]]")
    with Scripted(template) as t:
        assert one(t, "/api/chat", messages=[{"role": "user", "content": "[[]]"}], think=think)["message"]["content"].endswith(shown)


def test_images():
    with Scripted(IMAGE_TEMPLATE, SCRIPT, takes_images=True) as t:
        asked = [{"role": "user", "content": [text("What?"), part(SMALL)]}]
        want = saw(where(t, asked)[0], 4, SMALL)
        options = {"num_predict": 9}
        a = one(t, "/api/chat", messages=[{"role": "user", "content": "What?", "images": [b64(SMALL)]}], options=options)
        assert a["message"]["content"] == want
        assert one(t, "/api/generate", prompt="What?", images=[b64(SMALL)], options=options)["response"] == want
        lines = [base64.encodebytes(SMALL).decode()]
        assert one(t, "/api/generate", prompt="What?", images=lines, options=options)["response"] == want
        r = t.post("/api/generate", {"prompt": "What?", "images": lines, "raw": True, "options": options})
        assert r.status_code == 400 and "`images`" in r.json()["error"], r.text
        assert t.post("/api/show", {}).json()["capabilities"] == ["completion", "vision"]


def test_loading_asks_for_nothing(demo):
    for body in ({}, {"messages": []}):
        a = one(demo, "/api/chat", **body, keep_alive="5m")
        assert (a["done"], a["done_reason"], a["message"]["content"]) == (True, "load", "")
    assert one(demo, "/api/generate")["done_reason"] == "load"
    # as ollama's own client loads and unloads
    empty = {"prompt": "", "suffix": "", "system": "", "template": "", "format": ""}
    assert one(demo, "/api/generate", **empty, keep_alive=0)["done_reason"] == "load"


def sizes_of(path):
    """Numbers of elements of a file's matrices."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return [math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__" and len(t["shape"]) > 1]


def test_two_ranks_hold_one_model(demo):
    one = requests.get(demo.url + "/api/tags").json()["models"][0]
    with Service(DEMO, num_shard=2, args=["--served-model-name", "demo"]) as s:
        two = requests.get(s.url + "/api/tags").json()["models"][0]
    assert two["details"] == one["details"] and two["size"] >= one["size"]


def test_what_is_told_of_models(demo):
    (model,) = requests.get(demo.url + "/api/tags").json()["models"]
    (loaded,) = requests.get(demo.url + "/api/ps").json()["models"]
    assert model["name"] == model["model"] == loaded["name"] == "demo"
    shown = demo.post("/api/show", {"model": "demo"}).json()
    limit = requests.get(demo.url + "/v1/models").json()["data"][0]["max_model_len"]
    arch = shown["model_info"]["general.architecture"]
    assert shown["model_info"][f"{arch}.context_length"] == loaded["context_length"] == limit
    weights = [n for f in pathlib.Path(DEMO).glob("*.safetensors") for n in sizes_of(f)]
    parameters = shown["model_info"]["general.parameter_count"]
    assert abs(parameters - sum(weights)) < 0.03 * sum(weights)  # without norms, which are vectors
    config = json.loads((pathlib.Path(DEMO) / "config.json").read_text())
    for m in (model, loaded, shown):
        d = m["details"]
        assert (d["family"], d["families"], d["format"]) == (config["model_type"], [config["model_type"]], "safetensors")
        assert d["quantization_level"] in ("F32", "BF16", "F16")
        assert d["parameter_size"] == f"{parameters / 1e6:.1f}M"
    assert model["size"] == loaded["size"] >= 2 * parameters and loaded["size_vram"] == 0
    assert model["digest"] == loaded["digest"] and len(model["digest"]) == 64 and int(model["digest"], 16)
    (meta,) = [m["meta"] for m in requests.get(demo.url + "/v1/models").json()["data"]]
    assert (meta["n_params"], meta["size"]) == (parameters, model["size"]) and (meta["n_vocab"], meta["n_embd"]) == (config["vocab_size"], config["hidden_size"])
    assert shown["capabilities"] == ["completion"] and "{%" in shown["template"]
    assert tuple(map(int, requests.get(demo.url + "/api/version").json()["version"].split("."))) >= (0, 6, 4)


def test_vectors():
    with Service(data("embed/bert_mean")) as s:
        vectors = [v["embedding"] for v in s.post("/v1/embeddings", {"input": ["a", "b"]}).json()["data"]]
        a = s.post("/api/embed", {"model": "m", "input": ["a", "b"]}).json()
        assert a["embeddings"] == vectors and a["prompt_eval_count"] > 0 and a["model"] == "m"
        assert s.post("/api/embeddings", {"model": "m", "prompt": "a"}).json() == {"embedding": vectors[0]}
        assert len(s.post("/api/embed", {"input": "a", "dimensions": 4}).json()["embeddings"][0]) == 4
        assert s.post("/api/show", {}).json()["capabilities"] == ["embedding"]
        assert s.post("/api/chat", HELLO).status_code == 400


@pytest.mark.parametrize("body, word", [({"messages": 7}, "messages"), ({"messages": [{"role": "user", "content": "x"}], "options": {"top_p": 3}}, "top_p"), ({"messages": [{"content": "x"}]}, "role")])
def test_errors_are_one_text(demo, body, word):
    r = demo.post("/api/chat", body)
    assert r.status_code == 400 and list(r.json()) == ["error"] and word in r.json()["error"], r.text


@pytest.mark.parametrize("field, value", [("Suffix", "x"), ("template", "{{ .Prompt }}"), ("context", [1, 2])])
def test_what_is_not_there_is_refused(demo, field, value):
    r = demo.post("/api/generate", {"prompt": "x", field.lower(): value})
    assert r.status_code == 400 and field in r.json()["error"]


@pytest.mark.parametrize("path, body", [("/api/generate", {"prompt": "Hi"}), ("/api/chat", HELLO), ("/api/show", {"model": "m"}), ("/completion", {"prompt": "Hi"})])
def test_curl_as_ollama_documents_it(demo, path, body):
    """`curl URL -d BODY` calls its body a form; a web page, which names its origin, must call it JSON."""
    text = json.dumps({**body, "stream": False, "n_predict": 3, "options": {"num_predict": 3}})
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "text/plain"}, {}):
        r = requests.post(demo.url + path, data=text.encode(), headers=headers)
        assert r.status_code == 200, r.text
        r = requests.post(demo.url + path, data=text.encode(), headers={**headers, "Origin": "http://elsewhere"})
        assert r.status_code == 415
    assert requests.post(demo.url + path, data=b"a=b").status_code == 400
    assert requests.post(demo.url + "/v1/completions", data=text.encode()).status_code == 415


def test_keys():
    with Service(DEMO, args=["--api-key", "k"]) as s:
        assert s.post("/api/chat", HELLO).json() == {"error": "The API key is missing or wrong: send it as `Authorization: Bearer KEY`."}
        assert requests.get(s.url + "/api/tags").status_code == 200


@pytest.mark.parametrize("path, prompt", [("/api/chat", {"messages": [{"role": "user", "content": "Once"}]}), ("/api/generate", {"prompt": "Once"}), ("/api/generate", {"prompt": "Once", "raw": True})])
def test_log_probabilities(demo, path, prompt):
    body = {**prompt, "logprobs": True, "top_logprobs": 2, "options": {"temperature": 0, "num_predict": 6}}
    whole = one(demo, path, **body)
    assert len(whole["logprobs"]) == whole["eval_count"] == 6
    assert all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 and bytes(t["bytes"]).decode(errors="replace") for t in whole["logprobs"])
    streamed = lines(demo, path, **body)
    assert [t for line in streamed for t in line.get("logprobs", [])] == whole["logprobs"], "each token is in one line"
    assert len(streamed) > 3 and all("logprobs" in line for line in streamed[:-1])
    assert "logprobs" not in one(demo, path, **{**body, "logprobs": False})
    assert all(t["top_logprobs"] == [] for t in one(demo, path, **{**body, "top_logprobs": None})["logprobs"])
