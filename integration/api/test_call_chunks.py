"""The members of the chunks of a chat stream with calls, as OpenAI, TGI and llama.cpp send them; read by the openai SDK, too."""

import json

import openai
import pytest
from serving import DATA
from tool_talk import CALL, WEATHER, fixtures

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
SHOWN = [{}, {"logprobs": True}, {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}]
_, s = fixtures(lambda service: service)


def deltas(s, text, **more):
    body = {"stream": True, "messages": [{"role": "user", "content": f"[[{text}]]"}], "tools": [TOOL], **more}
    return [e["choices"][0]["delta"] for e in s.events("/v1/chat/completions", body) if e != "[DONE]" and e["choices"]]


@pytest.mark.parametrize("shown", SHOWN, ids=["plain", "logprobs", "usage"])
def test_a_stream_that_begins_with_a_call(s, shown):
    got = deltas(s, CALL, **shown)
    opening = next(i for i, d in enumerate(got) if "tool_calls" in d)
    assert all(d["content"] is None for d in got[: opening + 1])
    assert got[opening]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert all("content" not in d for d in got[opening + 1 :])
    assert all(d["role"] == "assistant" for d in got)


@pytest.mark.parametrize("shown", SHOWN, ids=["plain", "logprobs", "usage"])
def test_text_before_a_call_stays_text(s, shown):
    got = deltas(s, "Wait." + CALL, **shown)
    opening = next(i for i, d in enumerate(got) if "tool_calls" in d)
    assert "".join(d.get("content") or "" for d in got[:opening]) == "Wait."
    assert not any("content" in d for d in got[opening:])


@pytest.mark.parametrize("shown", SHOWN, ids=["plain", "logprobs", "usage"])
def test_an_answer_without_a_call_has_no_null(s, shown):
    got = deltas(s, "Sunny.", **shown)
    assert "".join(d["content"] for d in got) == "Sunny."


def test_the_deprecated_form(s):
    body = {"stream": True, "messages": [{"role": "user", "content": f"[[{CALL}]]"}], "functions": [TOOL["function"]]}
    got = [e["choices"][0]["delta"] for e in s.events("/v1/chat/completions", body) if e != "[DONE]"]
    assert got[0]["content"] is None and got[0]["function_call"]["name"] == "get_weather"
    assert all("content" not in d for d in got[1:])


def test_the_sdk_gathers_it(s):
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)
    asked = dict(model="m", messages=[{"role": "user", "content": f"[[{CALL}]]"}], tools=[TOOL])
    with client.chat.completions.stream(**asked) as stream:
        kinds = {e.type for e in stream}
        message = stream.get_final_completion().choices[0].message
    assert message.content is None and json.loads(message.tool_calls[0].function.arguments) == {"city": "Rome", "days": 2}
    assert "content.delta" not in kinds and "tool_calls.function.arguments.done" in kinds


QUOTED = '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>'


def gemma():
    """Gemma 4's own template, which writes texts in calls between quotes of its own."""
    path = DATA / "expected/chat/templates/models_gemma-4.jinja"
    if not path.exists():
        pytest.skip("needs the templates of TEST_DATA")
    return path.read_text()


def test_calls_with_quotes_of_the_format(s):
    got = deltas(s, "Wait." + QUOTED + QUOTED.replace("Rome", "Ro\\\"m\\ne"), chat_template=gemma())
    assert "".join(d.get("content") or "" for d in got) == "Wait."
    calls = [c for d in got for c in d.get("tool_calls") or []]
    said = ["".join(c["function"]["arguments"] for c in calls if c["index"] == i) for i in (0, 1)]
    assert [json.loads(a) for a in said] == [{"city": "Rome", "days": 2}, {"city": 'Ro\\"m\\ne', "days": 2}]
    assert len(calls) > 4, "arguments come in pieces"


def test_their_history(s):
    call = {"id": "123456789", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome", "days": 2}'}}
    talk = [
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "123456789", "content": "sun"},
    ]
    r = s.post("/v1/chat/completions/render", {"messages": talk, "tools": [TOOL], "chat_template": gemma()})
    assert QUOTED + '<|tool_response>response:get_weather{value:<|"|>sun<|"|>}<tool_response|>' in r.json()["prompt"], r.text
