"""Anthropic's tools and thinking with its own SDK: forced calls, calls that a model writes, and their results."""

import json

import anthropic
import jsonschema
import pytest
from serving import strict
from tool_talk import CALL, WEATHER, fixtures

TOOLS = [
    {"name": "get_weather", "description": "The weather.", "input_schema": WEATHER},
    {"name": "now", "input_schema": {"type": "object", "additionalProperties": False}},
]
ASK = [{"role": "user", "content": "How is the weather?"}]


def client_of(s):
    return anthropic.Anthropic(base_url=s.url, api_key="-", max_retries=0)


demo, s = fixtures(client_of)


def both(client, **kw):
    """The answer whole and streamed, which must be the same but for the ids."""
    whole = strict(client.messages.create(**kw))
    with client.messages.stream(**kw) as stream:
        events = [e for e in stream if e.type not in ("ping", "text", "thinking", "input_json", "signature")]
        streamed = strict(stream.get_final_message())

    def plain(m):
        return [{k: v for k, v in b.model_dump().items() if k not in ("id", "parsed_output")} for b in m.content]

    assert plain(streamed) == plain(whole) and streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert events[0].type == "message_start" and [e.type for e in events[-2:]] == ["message_delta", "message_stop"]
    at = -1  # blocks come one after the other, none inside another
    for e in events[1:-2]:
        if e.type == "content_block_start":
            at += 1
        assert e.index == at
    return whole


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_forced_calls(demo, choice):
    seen = set()
    for seed in range(4):
        body = {"temperature": 1.5, "seed": seed}
        m = both(demo, model="m", messages=ASK, tools=TOOLS, tool_choice=choice, max_tokens=300, extra_body=body)
        (call,) = m.content
        assert m.stop_reason == "tool_use" and call.type == "tool_use" and call.id
        jsonschema.validate(call.input, WEATHER if call.name == "get_weather" else {"maxProperties": 0})
        seen.add(call.name)
    assert "get_weather" in seen and (seen == {"get_weather"} or choice["type"] == "any")


def test_a_forced_call_that_is_cut(demo):
    kw = dict(model="m", messages=ASK, tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"})
    m = demo.messages.create(**kw, max_tokens=8, extra_body={"temperature": 0})
    assert m.stop_reason == "max_tokens" and all(b.type != "tool_use" or b.input == {} for b in m.content)


def said(text, **kw):
    return dict(model="m", max_tokens=2000, messages=[{"role": "user", "content": f"[[{text}]]"}], **kw)


def test_calls_that_the_model_writes(s):
    c = client_of(s)
    m = both(c, **said(f"Let me see.\n{CALL}\n{CALL} Done.", tools=TOOLS))
    assert [b.type for b in m.content] == ["text", "tool_use", "tool_use", "text"] and m.stop_reason == "tool_use"
    assert m.content[0].text == "Let me see." and m.content[3].text == "Done."
    assert m.content[1].name == "get_weather" and m.content[1].input == {"city": "Rome", "days": 2}
    assert m.content[1].id != m.content[2].id
    one = both(c, **said(f"Let me see.\n{CALL}\n{CALL} Done.", tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
    assert [b.type for b in one.content] == ["text", "tool_use"] and one.stop_reason == "tool_use"
    assert one.usage.output_tokens < m.usage.output_tokens / 1.5, "the rest is not even computed"
    none = both(c, **said(CALL, tools=TOOLS, tool_choice={"type": "none"}))
    assert [b.type for b in none.content] == ["text"] and none.content[0].text == CALL and none.stop_reason == "end_turn"
    assert both(c, **said("")).content[0].text == ""


def test_thinking_is_a_block_of_its_own(s):
    c = client_of(s)
    m = both(c, **said(f"<think>\nHm < 3.\n</think>\n\nYes.\n{CALL}", tools=TOOLS))
    assert [b.type for b in m.content] == ["thinking", "text", "tool_use"]
    assert m.content[0].thinking == "Hm < 3." and m.content[1].text == "Yes."
    cut = both(c, **{**said("<think>Hm and so on and so on"), "max_tokens": 5})
    assert [b.type for b in cut.content] == ["thinking"] and cut.stop_reason == "max_tokens"


def test_a_conversation_with_tools_reaches_the_template(s):
    c = client_of(s)
    history = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Rome it is.", "signature": ""},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "abc", "name": "get_weather", "input": {"city": "Rome", "days": 2.0}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go on."},
                {"type": "tool_result", "tool_use_id": "abc", "content": [{"type": "text", "text": "Sun"}]},
                {"type": "tool_result", "tool_use_id": "abd", "content": "no", "is_error": True},
            ],
        },
    ]
    call = {"id": "abc", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2.0}}}
    same = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Rome it is.", "tool_calls": [call]},
        {"role": "tool", "content": "Sun", "tool_call_id": "abc"},
        {"role": "tool", "content": "Error: no", "tool_call_id": "abd"},
        {"role": "user", "content": "Go on."},
    ]
    shown = s.post("/chat_tokenize", {"messages": same}).json()
    assert '"days": 2.0' in shown["templated_text"] and "Rome it is." in shown["templated_text"]
    assert c.messages.count_tokens(model="m", messages=history).input_tokens == len(shown["tokenize_response"])
    openai = [{"type": "function", "function": {"name": t["name"], "description": t.get("description", ""), "parameters": t["input_schema"]}} for t in TOOLS]
    shown = s.post("/chat_tokenize", {"messages": same, "tools": openai}).json()["tokenize_response"]
    assert c.messages.count_tokens(model="m", messages=history, tools=TOOLS).input_tokens == len(shown)
    m = c.messages.create(model="m", messages=history + [{"role": "user", "content": "[[fine]]"}], tools=TOOLS, max_tokens=9)
    assert m.content[0].text == "fine"


def test_thinking_is_a_variable_of_the_template(s):
    c = client_of(s)
    for thinking, words in [({"type": "enabled", "budget_tokens": 2000}, True), ({"type": "disabled"}, False)]:
        same = {"messages": ASK, "chat_template_kwargs": {"enable_thinking": words}}
        shown = s.post("/chat_tokenize", same).json()
        assert f"thinks:{words}" in shown["templated_text"]
        n = c.messages.count_tokens(model="m", messages=ASK, thinking=thinking).input_tokens
        assert n == len(shown["tokenize_response"])


def test_a_schema_for_the_answer(demo):
    out = {"format": {"type": "json_schema", "schema": WEATHER}}
    m = demo.messages.create(model="m", messages=ASK, max_tokens=300, extra_body={"output_config": out, "temperature": 1.5, "seed": 1})
    jsonschema.validate(json.loads(m.content[0].text), WEATHER)
