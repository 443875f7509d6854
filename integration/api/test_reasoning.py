"""Reasoning before an answer is separated from it, also with a response format or a forced call."""

import json

import openai
import pytest
from serving import DEMO, Scripted, Service

OPENS = "{%- for m in messages %}{{ m.content ~ '\\n' }}{% endfor %}{{ 'assistant:' }}{%- if enable_thinking is not defined or enable_thinking %}{{ '<think>\\n' }}{% else %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{# <tool_call> {{ tools }} #}"
MAY = "{%- for m in messages %}{{ m.content ~ '\\n' }}{% endfor %}{{ 'assistant:' }}{# <think></think> #}"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def client_of(s):
    return openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)


@pytest.fixture(scope="module", params=[OPENS, MAY], ids=["the prompt opens it", "the model may"])
def scripted(request):
    with Scripted(request.param) as s:
        yield client_of(s), "" if request.param == OPENS else "<think>"


def answers(client, text, **kw):
    """The message, whole and streamed."""
    kw = dict(model="m", messages=[{"role": "user", "content": f"[[{text}]]"}], **kw)
    m = client.chat.completions.create(**kw).choices[0].message
    reasoning, content, arguments = "", "", ""
    for chunk in client.chat.completions.create(**kw, stream=True):
        d = chunk.choices[0].delta
        reasoning += getattr(d, "reasoning_content", None) or ""
        content += d.content or ""
        arguments += "".join(c.function.arguments for c in d.tool_calls or [])
    assert (reasoning, content) == (getattr(m, "reasoning_content", ""), m.content or "")
    assert arguments == "".join(c.function.arguments for c in m.tool_calls or [])
    return reasoning, content, arguments


def test_it_stands_before_a_constrained_answer(scripted):
    client, open = scripted
    assert answers(client, f'{open}so</think>\n{{"n": 1}}', response_format=FORMAT) == ("so", '{"n": 1}', "")
    call = f'{open}so</think>\n{{"name": "f", "arguments": {{"n": 1}}, "parameters": {{"n": 1}}}}'
    reasoning, content, arguments = answers(client, call, tools=TOOLS, tool_choice="required")
    assert (reasoning, content, json.loads(arguments)) == ("so", "", {"n": 1})


MARKS = [
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
    ("<|think:start|>", "<|think:end|>"),
]


@pytest.mark.parametrize("open,close", MARKS)
def test_markers_of_other_families(open, close):
    """Some of them are special tokens, whose text is left out elsewhere."""
    with Scripted(MAY.replace("<think>", open.strip()).replace("</think>", close), {"special": True}) as s:
        assert answers(client_of(s), f"\n{open}so </think>{close}Yes.") == ("so </think>", "Yes.", "")
        assert answers(client_of(s), f'\n{open}so{close}{{"n": 1}}', response_format=FORMAT) == ("so", '{"n": 1}', "")


def test_the_prompt_is_left_open():
    with Scripted(OPENS) as s:
        body = {"messages": [{"role": "user", "content": "x"}], "response_format": FORMAT}
        assert s.post("/apply-template", body).json()["prompt"].endswith("<think>\n")
        closed = {**body, "reasoning_effort": "none"}
        assert s.post("/apply-template", closed).json()["prompt"].endswith("</think>\n\n")


ON, OFF, UNSAID = "assistant:<think>\n", "assistant:<think>\n\n</think>\n\n", "assistant:<think>\n"


@pytest.mark.parametrize(
    "fields, end",
    [
        ({"thinking": {"type": "disabled"}}, OFF),
        ({"thinking": {"type": "enabled", "clear_thinking": True}}, ON),
        ({"thinking": {"type": "auto"}}, UNSAID),
        ({"enable_thinking": False}, OFF),
        ({"enable_thinking": None, "thinking": None, "reasoning": None}, UNSAID),
        ({"reasoning": {"enabled": False}}, OFF),
        ({"reasoning": {"effort": "none"}}, OFF),
        ({"reasoning": {"effort": "none"}, "reasoning_effort": "high"}, ON),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, ON),
    ],
)
def test_other_servers_names_for_it(opens, fields, end):
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    assert opens.post("/apply-template", body).json()["prompt"].endswith(end)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"thinking": True}, "thinking"),
        ({"thinking": {"type": "perhaps"}}, "thinking"),
        ({"enable_thinking": "no"}, "enable_thinking"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"thinking": {"type": "disabled"}, "enable_thinking": True}, "thinking"),
        ({"documents": [{"text": "A cat."}]}, "documents"),
        ({"documents": ["A cat."]}, "documents"),
    ],
)
def test_wrong_wishes_are_named(opens, fields, named):
    r = opens.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], **fields})
    assert r.status_code == 400 and f"`{named}`" in r.json()["error"]["message"] and r.json()["error"]["param"] == named


@pytest.fixture(scope="module")
def opens():
    with Scripted(OPENS) as s:
        yield s


def test_it_is_counted_and_left_out(opens):
    body = {"messages": [{"role": "user", "content": "[[so it is</think>\nYes.]]"}]}
    for extra in ({}, {"n": 2}, {"reasoning": {"exclude": True}}, {"include_reasoning": False}):
        whole = opens.post("/v1/chat/completions", {**body, **extra}).json()
        chunks = list(opens.events("/v1/chat/completions", {**body, **extra, "stream": True, "stream_options": {"include_usage": True}}))
        usage = whole["usage"]
        assert chunks[-2]["usage"] == {**usage, "prompt_tokens_details": chunks[-2]["usage"]["prompt_tokens_details"]}
        thought = usage["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < thought < usage["completion_tokens"] and thought % extra.get("n", 1) == 0
        shown = [c["message"].get("reasoning_content") for c in whole["choices"]]
        assert shown == ([None] if extra and "n" not in extra else ["so it is"] * extra.get("n", 1))


def test_a_model_without_it_says_so():
    with Scripted("{%- for m in messages %}{{ m.content }}{% endfor %}{% if documents %}{% for d in documents %}<{{ d.title }}: {{ d.text }}>{% endfor %}{% endif %}") as s:
        body = {"messages": [{"role": "user", "content": "[[Yes.]]"}]}
        r = s.post("/v1/chat/completions", {**body, "thinking": {"type": "enabled"}})
        assert r.status_code == 200 and "thinking" in r.headers["warning"]
        assert "warning" not in s.post("/v1/chat/completions", {**body, "thinking": {"type": "disabled"}}).headers
        texts = {**body, "documents": [{"title": "a", "text": "A cat."}, {"title": "b", "text": "A dog."}]}
        assert s.post("/apply-template", texts).json()["prompt"].endswith("]]<a: A cat.><b: A dog.>")


def test_a_model_thinks_freely_and_then_keeps_to_the_schema(tmp_path):
    """The demo model never closes its thoughts: what it says is what it says without a schema."""
    model = tmp_path / "model"
    model.mkdir()
    for f in DEMO.iterdir():
        (model / f.name).symlink_to(f)
    (model / "chat_template.jinja").write_text(OPENS)
    with Service(model) as s:
        client = client_of(s)
        kw = dict(model="m", messages=[{"role": "user", "content": "Hello!"}], temperature=0, max_tokens=12, extra_body={"ignore_eos": True})
        free = client.chat.completions.create(**kw).choices[0]
        bound = client.chat.completions.create(**kw, response_format=FORMAT).choices[0]
        assert bound.finish_reason == "length" and bound.message.content == "" and bound.message.reasoning_content
        assert bound.message.reasoning_content.startswith(free.message.reasoning_content[:8])
        kw["extra_body"]["chat_template_kwargs"] = {"enable_thinking": False}
        none = client.chat.completions.create(**{**kw, "max_tokens": 60}, response_format=FORMAT).choices[0]
        assert json.loads(none.message.content).keys() == {"n"} or none.finish_reason == "length"
