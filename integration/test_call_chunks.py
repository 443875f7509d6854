"""The members of the chunks of a chat stream with calls, as OpenAI, TGI and llama.cpp send them; read by the openai SDK, too."""

import json

import openai
import pytest
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
