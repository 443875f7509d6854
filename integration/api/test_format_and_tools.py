"""A response format together with tools: the answer matches the format or consists of calls, in every notation for calls."""

import json

import jsonschema
import pytest
from serving import DEMO, Service

SCHEMA = {"type": "object", "properties": {"day": {"enum": [1, 2]}, "ok": {"type": "boolean"}}, "required": ["day", "ok"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "out", "strict": True, "schema": SCHEMA}}
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}
SEEDS = range(40)
WAYS = {  # what a template that writes calls so contains
    "hermes": "<tool_call>",
    "bare": "<|python_tag|>",
    "list": "<|tool_call|>",
    "named": "[TOOL_CALLS]",
    "around": "<｜tool▁call▁begin｜>",
    "tags": "<function=",
}


def tool(strict):
    return {"type": "function", "function": {"name": "f", "parameters": PARAMETERS, "strict": strict}}


@pytest.fixture(scope="module", params=WAYS)
def s(request, tmp_path_factory):
    template = tmp_path_factory.mktemp("t") / "t.json"
    source = "{%- for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson if tools }}{# " + WAYS[request.param] + " #}"
    template.write_text(json.dumps({"chat_template": source}))
    with Service(DEMO, args=["--tokenizer-config-path", template]) as service:
        service.way = request.param
        begins = service.post("/tokenize", {"content": '{"day', "add_special": False}).json()["tokens"]
        service.begins = [str(t) for t in begins]
        yield service


def chat(s, seed, **kw):
    body = {"messages": [{"role": "user", "content": "Ann?"}], "temperature": 1.9, "max_tokens": 90, "seed": seed, "logprobs": True, "response_format": FORMAT, **kw}
    if seed % 2:  # the demo model prefers a call
        body["logit_bias"] = dict.fromkeys(s.begins, 12)
    r = s.post("/v1/chat/completions", body)
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]


@pytest.mark.parametrize("strict", [False, True])
def test_an_answer_is_of_the_format_or_a_call(s, strict):
    kinds = set()
    for seed in SEEDS:
        choice = chat(s, seed, tools=[tool(strict)])
        text, calls = choice["message"].get("content"), choice["message"].get("tool_calls")
        if choice["finish_reason"] == "length":
            continue
        said = "".join(t["token"] for t in choice["logprobs"]["content"])  # with what is no content: markers
        if calls:
            kinds.add("call")
            if strict and s.way == "hermes":
                for c in calls:
                    assert c["function"]["name"] == "f"
                    jsonschema.validate(json.loads(c["function"]["arguments"]), PARAMETERS)
        elif said.lstrip()[:1] == "{":
            kinds.add("format")
            jsonschema.validate(json.loads(text), SCHEMA)
        else:  # a marker, and then no call after all
            assert said.lstrip()[:1] in "<[" and not (strict and s.way == "hermes"), said
    assert "format" in kinds
    if s.way == "hermes" and strict:
        assert "call" in kinds


def test_a_forced_call_leaves_the_format_out(s):
    message = chat(s, 1, tools=[tool(True)], tool_choice="required")["message"]
    assert message["tool_calls"][0]["function"]["name"] == "f"


def test_without_tools_the_format_is_all(s):
    for kw in ({"tools": [tool(True)], "tool_choice": "none"}, {"tools": []}):
        choice = chat(s, 2, **kw)
        assert not choice["message"].get("tool_calls") and choice["message"]["content"].lstrip()[0] == "{"


def test_other_routes(s):
    f = {"type": "function", "name": "f", "parameters": PARAMETERS, "strict": False}
    body = {"input": "Ann?", "max_output_tokens": 90, "tools": [f], "text": {"format": {"type": "json_schema", "name": "out", "schema": SCHEMA}}}
    r = s.post("/v1/responses", body)
    assert r.status_code == 200, r.text
    body = {"messages": [{"role": "user", "content": "Ann?"}], "max_tokens": 90, "tools": [{"name": "f", "input_schema": PARAMETERS}]}
    r = s.post("/v1/messages", {**body, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    assert r.status_code == 200, r.text


def test_tgis_grammars_do_not_go_with_tools(s):
    body = {"messages": [{"role": "user", "content": "Ann?"}], "tools": [tool(False)], "response_format": {"type": "json_object", "value": SCHEMA}}
    r = s.post("/v1/chat/completions", body)
    assert r.status_code == 400 and "mutually exclusive" in r.json()["error"]["message"]
