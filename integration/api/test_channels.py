"""Answers in channels (gpt-oss's harmony format): reasoning, text and calls on every route, and their form in later prompts."""

import json

import anthropic
import jsonschema
import openai
import pytest
from fake_shard import SPECIAL
from serving import DEMO, Scripted, Service, strict

# What such a template must do, in few words: the roles and channels that OpenAI documents, `thinking`, no text beside a call.
TEMPLATE = """{{- '<|start|>system<|message|>Reasoning: ' ~ (reasoning_effort | default('medium')) ~ '<|end|>' }}
{%- if tools %}{{ '<|start|>developer<|message|>' ~ (tools | map(attribute='function.name') | join(' ')) ~ '<|end|>' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}
{%- if m.content and m.thinking %}{{ raise_exception('content and thinking beside a call') }}{% endif %}
{%- if m.thinking or m.content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + (m.thinking or m.content) + '<|end|>' }}{% endif %}
{%- set f = m.tool_calls[0].function %}
{{- '<|start|>assistant to=functions.' + f.name + '<|channel|>commentary json<|message|>' + (f.arguments | tojson) + '<|call|>' }}
{%- elif m.role == 'assistant' %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
{%- elif m.role == 'tool' %}
{{- '<|start|>functions.f to=assistant<|channel|>commentary<|message|>' + (m.content | tojson) + '<|end|>' }}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
START = "<|start|>assistant"


def said(channel, text, end="<|end|>"):
    return f"<|channel|>{channel}<|message|>{text}{end}"


FINAL = said("analysis", "Let me think.") + START + said("final", "Yes < no.", "<|return|>")
CALL = (
    said("analysis", "A call.")
    + START
    + said("commentary", "I look.")
    + START
    + said("commentary to=functions.f <|constrain|>json", '{"n": 7}', "<|call|>")
)


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE, {"special": True}) as service:
        yield service


def chat(s, text, **kw):
    """The choice whole, checked to be what the stream adds up to."""
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)
    kw = dict(model="m", messages=[{"role": "user", "content": f"[[{text}]]"}], **kw)
    choice = client.chat.completions.create(**kw).choices[0]
    reasoning, content, calls, finish = "", "", [], None
    for chunk in client.chat.completions.create(**kw, stream=True):
        d = chunk.choices[0].delta
        finish = chunk.choices[0].finish_reason or finish
        reasoning += getattr(d, "reasoning_content", None) or ""
        content += d.content or ""
        for c in d.tool_calls or []:
            if c.id:
                calls.append([c.function.name, ""])
            calls[-1][1] += c.function.arguments
    m = choice.message
    assert (reasoning, content) == (getattr(m, "reasoning_content", ""), m.content or "")
    assert calls == [[c.function.name, c.function.arguments] for c in m.tool_calls or []]
    assert finish == choice.finish_reason
    return reasoning, content, calls, finish


def test_a_chat_answer(s):
    assert chat(s, FINAL) == ("Let me think.", "Yes < no.", [], "stop")
    assert chat(s, FINAL, tools=TOOLS) == ("Let me think.", "Yes < no.", [], "stop")
    assert chat(s, "no channels at all") == ("", "no channels at all", [], "stop")


def test_a_chat_call(s):
    call = [["f", '{"n": 7}']]
    assert chat(s, CALL, tools=TOOLS) == ("A call.", "I look.", call, "tool_calls")
    before = " to=functions.f<|channel|>commentary json<|message|>" + '{"n": 7}<|call|>'
    assert chat(s, before, tools=TOOLS) == ("", "", call, "tool_calls")
    unmarked = CALL.removesuffix("<|call|>")  # a shard that does not tell the last token
    assert chat(s, unmarked, tools=TOOLS)[2:] == (call, "tool_calls")
    assert chat(s, CALL) == ("A call.", 'I look.\n{"n": 7}', [], "stop")  # nothing may be called


def test_a_chat_answer_that_is_cut(s):
    assert chat(s, FINAL, max_tokens=3) == ("", "", [], "length")  # in the header
    assert chat(s, FINAL, max_tokens=7) == ("Let me", "", [], "length")
    tokens = len(SPECIAL.findall(CALL)) + sum(-(-len(p) // 3) for p in SPECIAL.split(CALL) if not SPECIAL.fullmatch(p))
    arguments = [["f", '{"n": ']]
    assert chat(s, CALL, tools=TOOLS, max_tokens=tokens - 2) == ("A call.", "I look.", arguments, "length")


def test_reasoning_may_be_left_in_or_out(s):
    body = {"messages": [{"role": "user", "content": f"[[{FINAL}]]"}]}

    def message(**kw):
        return s.post("/v1/chat/completions", {**body, **kw}).json()["choices"][0]["message"]

    assert message(separate_reasoning=False)["content"] == "Let me think.\nYes < no."
    assert message(include_reasoning=False) == {"role": "assistant", "content": "Yes < no."}
    assert message(skip_special_tokens=False)["reasoning_content"] == "Let me think."


def test_responses(s):
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)
    tools = [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]

    def items(text, **kw):
        kw = dict(model="m", input=f"[[{text}]]", **kw)
        events = list(client.responses.create(**kw, stream=True))
        whole = strict(client.responses.create(**kw))
        streamed = events[-1].response
        plain = [
            [
                (
                    i.type,
                    i.arguments if i.type == "function_call" else "".join(p.text for p in i.content),
                )
                for i in r.output
            ]
            for r in (whole, streamed)
        ]
        assert plain[0] == plain[1]
        return plain[0]

    assert items(FINAL) == [("reasoning", "Let me think."), ("message", "Yes < no.")]
    call = [("reasoning", "A call."), ("message", "I look."), ("function_call", '{"n": 7}')]
    assert items(CALL, tools=tools) == call


def test_messages(s):
    client = anthropic.Anthropic(base_url=s.url, api_key="-", max_retries=0)
    tools = [{"name": "f", "input_schema": SCHEMA}]

    def blocks(text, **kw):
        kw = dict(model="m", max_tokens=200, messages=[{"role": "user", "content": f"[[{text}]]"}], **kw)
        whole = strict(client.messages.create(**kw))
        with client.messages.stream(**kw) as stream:
            streamed = stream.get_final_message()
        plain = [
            [(b.type, getattr(b, "input", None) or getattr(b, "thinking", None) or b.text) for b in m.content]
            for m in (whole, streamed)
        ]
        assert plain[0] == plain[1] and whole.stop_reason == streamed.stop_reason
        return plain[0], whole.stop_reason

    assert blocks(FINAL) == ([("thinking", "Let me think."), ("text", "Yes < no.")], "end_turn")
    call = [("thinking", "A call."), ("text", "I look."), ("tool_use", {"n": 7})]
    assert blocks(CALL, tools=tools) == (call, "tool_use")


# ---------------------------------------------------------------- prompts


def prompt(s, **body):
    r = s.post("/apply-template", body)
    assert r.status_code == 200, r.text
    return r.json()["prompt"]


@pytest.mark.parametrize(
    "effort, shown", [(None, "medium"), ("low", "low"), ("high", "high"), ("none", "low"), ("minimal", "low"), ("xhigh", "high")]
)
def test_effort(s, effort, shown):
    body = {"messages": [{"role": "user", "content": "x"}], **({"reasoning_effort": effort} if effort else {})}
    assert f"Reasoning: {shown}<|end|>" in prompt(s, **body)


def test_what_was_thought_and_called_is_shown(s):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"n": 7}'}}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "A call.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "8"},
    ]
    shown = (
        "<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>analysis<|message|>A call.<|end|>"
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"n": 7}<|call|>'
        '<|start|>functions.f to=assistant<|channel|>commentary<|message|>"8"<|end|><|start|>assistant'
    )
    assert prompt(s, messages=history, tools=TOOLS).endswith(shown)
    history[1] = {"role": "assistant", "content": None, "reasoning": "A call.", "tool_calls": [call]}
    assert prompt(s, messages=history, tools=TOOLS).endswith(shown)
    said_only = [history[0], {"role": "assistant", "content": "I look.", "tool_calls": [call]}, history[2]]
    assert "analysis<|message|>I look.<|end|>" in prompt(s, messages=said_only, tools=TOOLS)


def test_an_answer_goes_on(s):
    """The prompt ends within a message of the channel final: what comes is its text."""
    go_on = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "[[ya.<|return|>]] Ni"}]
    assert prompt(s, messages=go_on).endswith("<|channel|>final<|message|>[[ya.<|return|>]] Ni")
    r = s.post("/v1/chat/completions", {"messages": go_on}).json()
    assert r["choices"][0]["message"]["content"] == "ya."


# ---------------------------------------------------------------- answers of a given form


def test_shards_that_know_no_channels():
    """The message has begun in the prompt; a call cannot be forced."""
    with Scripted(TEMPLATE, {"special": True, "takes_reasoning": False}) as s:
        body = {"messages": [{"role": "user", "content": '[[{"n": 1}]]'}], "response_format": FORMAT}
        assert prompt(s, **body).endswith("<|start|>assistant<|channel|>final<|message|>")
        r = s.post("/v1/chat/completions", body).json()
        assert r["choices"][0]["message"]["content"] == '{"n": 1}'
        body = {"messages": body["messages"], "tools": TOOLS, "tool_choice": "required"}
        r = s.post("/v1/chat/completions", body)
        assert r.status_code == 422 or r.status_code == 400
        assert "channels" in r.text


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A model that was never taught channels, and keeps to them all the same."""
    model = tmp_path_factory.mktemp("channels") / "model"
    model.mkdir()
    for f in DEMO.iterdir():
        (model / f.name).symlink_to(f)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    with Service(model) as service:
        yield service


SMALL = {"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"], "additionalProperties": False}


def test_a_schema_is_kept_in_the_channel_final(demo):
    client = openai.OpenAI(base_url=demo.url + "/v1", api_key="-", max_retries=0)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SMALL}}
    kw = dict(model="m", messages=[{"role": "user", "content": "Hello!"}], temperature=1.2, max_tokens=300)
    ended = 0
    for seed in range(6):
        c = client.chat.completions.create(**kw, seed=seed, response_format=form).choices[0]
        if c.finish_reason == "stop":  # else it was still thinking
            jsonschema.validate(json.loads(c.message.content), SMALL)
            ended += 1
        else:
            assert not c.message.content or c.message.content.startswith("{")
    assert ended


def test_calls_are_forced(demo):
    client = openai.OpenAI(base_url=demo.url + "/v1", api_key="-", max_retries=0)
    tools = [{"type": "function", "function": {"name": n, "parameters": SMALL}} for n in ("f", "g")]
    kw = dict(model="m", messages=[{"role": "user", "content": "Hello!"}], temperature=1.2, max_tokens=300, tools=tools)
    called = 0
    for choice in "required", {"type": "function", "function": {"name": "g"}}:
        for seed in range(6):
            c = client.chat.completions.create(**kw, seed=seed, tool_choice=choice).choices[0]
            if c.finish_reason == "length":
                continue
            assert c.finish_reason == "tool_calls" and not c.message.content
            (call,) = c.message.tool_calls
            jsonschema.validate(json.loads(call.function.arguments), SMALL)
            assert call.function.name in ("g", "f")[: 2 if choice == "required" else 1]
            called += 1
    assert called
