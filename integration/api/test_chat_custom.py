"""Custom tools on /v1/chat/completions: a text as input, which may have a grammar."""

import json
import re

import openai
import pytest
from serving import DEMO, Scripted, Service
from tool_talk import TEMPLATE

PATCH = 'a"b\\n \u20ac\n+int x;\n'
GRAMMAR = 'start: "on" | "off"'
NOTE = {"type": "custom", "custom": {"name": "note", "description": "Keeps a text."}}
SWITCH = {"type": "custom", "custom": {"name": "switch", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": GRAMMAR}}}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE.replace("<think></think>", "")) as service:
        yield service


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO) as service:
        yield service


def client(s):
    return openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)


def call_of(name, arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def said(text):
    return [{"role": "user", "content": f"[[{text}]]"}]


def streamed(s, **kw):
    """The message of a stream, put together as SDKs do, the deltas of its calls, and the reason it ended for."""
    message, deltas = {"content": "", "tool_calls": {}}, []
    for chunk in client(s).chat.completions.create(model="m", stream=True, **kw):
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            for d in choice.delta.tool_calls or []:
                d = d.to_dict()
                deltas.append(d)
                call = message["tool_calls"].setdefault(d["index"], {"id": d.get("id"), "type": d.get("type")})
                for kind in ("custom", "function"):
                    for k, v in d.get(kind, {}).items():
                        inner = call.setdefault(kind, {})
                        inner[k] = inner.get(k, "") + v
            reason = choice.finish_reason
    message["tool_calls"] = list(message["tool_calls"].values())
    return message, deltas, reason


def test_a_call_is_answered_as_custom(s):
    calls = call_of("note", {"input": PATCH}) + "\n" + call_of("look", {"at": "a"})
    kw = {"messages": said(calls), "tools": [NOTE, LOOK]}
    r = client(s).chat.completions.create(model="m", **kw)
    note, look = r.choices[0].message.tool_calls
    assert r.choices[0].finish_reason == "tool_calls" and r.choices[0].message.content is None
    assert note.type == "custom" and note.custom.name == "note" and note.custom.input == PATCH and note.id
    assert look.type == "function" and json.loads(look.function.arguments) == {"at": "a"}
    message, deltas, reason = streamed(s, **kw)
    assert reason == "tool_calls" and [c["type"] for c in message["tool_calls"]] == ["custom", "function"]
    assert message["tool_calls"][0]["custom"] == {"name": "note", "input": PATCH}
    assert json.loads(message["tool_calls"][1]["function"]["arguments"]) == {"at": "a"}
    assert len([d for d in deltas if d["index"] == 0]) > 4, "the input arrives in parts"


@pytest.mark.parametrize("arguments, text", [({"x": 1, "input": "late"}, "late"), ({"other": 1}, '{"other": 1}')])
def test_arguments_of_another_form(s, arguments, text):
    kw = {"messages": said(call_of("note", arguments)), "tools": [NOTE]}
    (call,) = client(s).chat.completions.create(model="m", **kw).choices[0].message.tool_calls
    assert call.custom.input == text
    assert streamed(s, **kw)[0]["tool_calls"][0]["custom"] == {"name": "note", "input": text}


def test_a_history_of_calls(s):
    """A call in the history is shown as the function's that stands for the tool, with its result."""
    call = {"id": "call_1", "type": "custom", "custom": {"name": "note", "input": PATCH}}
    history = [{"role": "user", "content": "Note it."}, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "done"}]
    r = client(s).chat.completions.create(model="m", messages=history + said("Fine."), tools=[NOTE])
    assert r.choices[0].message.content == "Fine."
    as_function = {**call, "type": "function", "function": {"name": "note", "arguments": json.dumps({"input": PATCH})}}
    del as_function["custom"]
    prompts = []
    for c in (call, as_function):
        history[1]["tool_calls"] = [c]
        prompts.append(s.post("/apply-template", {"messages": history, "tools": [NOTE]}).json()["prompt"])
    assert prompts[0] == prompts[1] and "note" in prompts[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [{"type": "custom", "custom": {"name": "switch"}}, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "switch"}}]}}])
def test_a_grammar_is_kept_where_the_tool_must_be_called(demo, stream, choice):
    kw = {"messages": [{"role": "user", "content": "Once"}], "tools": [LOOK, SWITCH], "tool_choice": choice, "max_tokens": 20}
    for seed in range(3):
        if stream:
            message, _, reason = streamed(demo, seed=seed, temperature=1.3, **kw)
            (call,) = message["tool_calls"]
        else:
            r = client(demo).chat.completions.create(model="m", seed=seed, temperature=1.3, n=2, **kw)
            calls = [c.message.tool_calls[0].to_dict() for c in r.choices]
            assert calls[0]["id"] != calls[1]["id"] and all(len(c["id"]) == 9 for c in calls)
            call, reason = calls[1], r.choices[1].finish_reason
        assert call["type"] == "custom" and call["custom"]["name"] == "switch" and call["custom"]["input"] in ("on", "off") and reason == "tool_calls"


def test_a_text_tool_that_must_be_called(demo):
    kw = {"messages": [{"role": "user", "content": "Once"}], "tools": [LOOK, NOTE], "tool_choice": {"type": "custom", "custom": {"name": "note"}}, "max_tokens": 200}
    reasons = set()
    for seed in range(4):
        r = client(demo).chat.completions.create(model="m", seed=seed, temperature=1.2, **kw)
        (call,) = r.choices[0].message.tool_calls
        assert call.type == "custom" and call.custom.name == "note"
        reasons.add(r.choices[0].finish_reason)
    assert "tool_calls" in reasons


def test_what_is_cut_is_said(demo):
    long = {"type": "custom", "custom": {"name": "x", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-f]{900}"}}}}
    kw = {"messages": [{"role": "user", "content": "Once"}], "tools": [long], "tool_choice": "required", "max_tokens": 8}
    r = client(demo).chat.completions.create(model="m", **kw)
    assert r.choices[0].finish_reason == "length" and re.fullmatch("[a-f]+", r.choices[0].message.tool_calls[0].custom.input)
    message, _, reason = streamed(demo, **kw)
    assert reason == "length" and re.fullmatch("[a-f]+", message["tool_calls"][0]["custom"]["input"])


def test_faults(s):
    def refused(body, word):
        r = s.post("/v1/chat/completions", {"messages": said("x"), **body})
        assert r.status_code == 400 and word in r.json()["error"]["message"], r.text

    refused({"tools": [{"type": "custom", "custom": {}}]}, "missing field `name`")
    refused({"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "xml"}}}]}, "`format`")
    refused({"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: nowhere"}}}}], "tool_choice": "required"}, "nowhere")
    refused({"tools": [NOTE], "tool_choice": {"type": "custom", "custom": {"name": "other"}}}, "other")


def test_a_grammar_that_cannot_be_kept_is_told(s):
    """The model and the client read of it; an agent's request is not refused for it."""
    nowhere = {"type": "custom", "custom": {"name": "lost", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: nowhere"}}}}
    r = s.post("/v1/chat/completions", {"messages": said("x"), "tools": [nowhere, NOTE]})
    assert r.status_code == 200 and "the grammar of lost is not enforced" in r.headers["warning"] and "nowhere" in r.headers["warning"]
    assert "warning" not in s.post("/v1/chat/completions", {"messages": said("x"), "tools": [SWITCH, NOTE]}).headers


def test_a_grammar_beside_calls_between_tags_is_told():
    """Their arguments are no JSON, to which a schema could apply."""
    with Scripted(TEMPLATE.replace("<tool_call></tool_call>", "<function=")) as s:
        r = s.post("/v1/chat/completions", {"messages": said("x"), "tools": [SWITCH, NOTE]})
        assert r.status_code == 200 and "the grammar of switch is told to the model" in r.headers["warning"]


PATCHES = """
start: "*** Begin" LF hunk+ "*** End"
hunk: ("+" | "-") /[a-c"]{1,3}/ LF
%import common.LF
"""


@pytest.fixture(scope="module")
def hermes(tmp_path_factory):
    """A model whose calls are JSON between markers. It knows no tools, but prefers a call to an object of the format."""
    config = tmp_path_factory.mktemp("t") / "t.json"
    config.write_text(json.dumps({"chat_template": "{%- for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson if tools }}{# <tool_call> #}"}))
    with Service(DEMO, args=["--tokenizer-config-path", config]) as service:
        yield service


@pytest.mark.parametrize("kw", [{"response_format": {"type": "json_object"}}, {"tool_choice": "required"}], ids=["optional", "one of several"])
def test_a_grammar_is_kept_in_the_arguments_of_a_call(hermes, kw):
    patch = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": PATCHES}}}}
    tools = [patch, SWITCH] if "tool_choice" in kw else [patch]
    seen = set()
    for seed in range(12):
        body = {"messages": [{"role": "user", "content": "Ann?"}], "temperature": 1.9, "max_tokens": 120, "seed": seed, "tools": tools, **kw}
        r = hermes.post("/v1/chat/completions", body)
        assert r.status_code == 200, r.text
        (choice,) = r.json()["choices"]
        for call in [] if choice["finish_reason"] == "length" else choice["message"].get("tool_calls") or []:
            seen.add(call["custom"]["name"])
            form = r'\*\*\* Begin\n([+-][a-c"]{1,3}\n)+\*\*\* End' if call["custom"]["name"] == "patch" else "on|off"
            assert re.fullmatch(form, call["custom"]["input"]), call
    assert "patch" in seen, "what is compared are calls"
