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


def test_the_prompt_is_left_open():
    with Scripted(OPENS) as s:
        body = {"messages": [{"role": "user", "content": "x"}], "response_format": FORMAT}
        assert s.post("/apply-template", body).json()["prompt"].endswith("<think>\n")
        closed = {**body, "reasoning_effort": "none"}
        assert s.post("/apply-template", closed).json()["prompt"].endswith("</think>\n\n")


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
