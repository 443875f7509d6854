"""Cohere's chat with its own SDK: answers, events, tools and their results, formats, limits and errors."""

import json

import cohere
import pytest
from serving import DEMO, Scripted, Service
from test_image_inputs import SCRIPT, SMALL, part, saw, text, where
from test_image_inputs import TEMPLATE as IMAGE_TEMPLATE
from tool_talk import CALL, TEMPLATE, WEATHER

MESSAGES = [{"role": "user", "content": "Hello!"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}}
ARGUMENTS = {"city": "Rome", "days": 2}


def client_of(service, key="-"):
    return cohere.ClientV2(api_key=key, base_url=service.url)


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO) as service:
        yield service


@pytest.fixture(scope="module")
def co(demo):
    return client_of(demo)


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE) as service:
        yield service


def said(answer):
    return "".join(part.text for part in answer.message.content if part.type == "text")


def of(events, kind):
    return [e for e in events if e.type == kind]


def test_an_answer(demo, co):
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 60}
    openai = demo.post("/v1/chat/completions", body).json()
    a = co.chat(model="demo", **body)
    assert said(a) == openai["choices"][0]["message"]["content"] and a.finish_reason == "COMPLETE" and len(a.id) > 10
    counts = openai["usage"]["prompt_tokens"], openai["usage"]["completion_tokens"]
    assert (a.usage.tokens.input_tokens, a.usage.tokens.output_tokens) == counts
    assert (a.usage.billed_units.input_tokens, a.usage.billed_units.output_tokens) == counts
    short = co.chat(model="demo", messages=MESSAGES, temperature=0, max_tokens=3)
    assert short.finish_reason == "MAX_TOKENS" and short.usage.tokens.output_tokens == 3 and said(a).startswith(said(short))
    word = said(a).split()[1]
    cut = co.chat(model="demo", messages=MESSAGES, temperature=0, max_tokens=60, stop_sequences=[word])
    assert cut.finish_reason == "STOP_SEQUENCE" and said(cut) == said(a)[: said(a).index(word)]


def test_events(co):
    asked = dict(model="demo", messages=MESSAGES, temperature=0, max_tokens=60)
    whole, events = co.chat(**asked), list(co.chat_stream(**asked))
    kinds = [e.type for e in events]
    assert kinds[:2] == ["message-start", "content-start"] and kinds[-2:] == ["content-end", "message-end"]
    assert set(kinds[2:-2]) == {"content-delta"} and {e.index for e in events[1:-1]} == {0}
    assert events[0].delta.message.role == "assistant" and events[1].delta.message.content.type == "text"
    assert "".join(e.delta.message.content.text for e in of(events, "content-delta")) == said(whole)
    assert events[-1].delta.finish_reason == "COMPLETE" and events[-1].delta.usage.tokens == whole.usage.tokens


def test_sampling(co):
    def draw(**more):
        return said(co.chat(model="demo", messages=MESSAGES, max_tokens=40, temperature=2, **more))

    greedy = said(co.chat(model="demo", messages=MESSAGES, max_tokens=40, temperature=0))
    assert draw(seed=7) == draw(seed=7) and len({draw(seed=i) for i in range(4)}) > 1
    assert draw(seed=5, k=1) == draw(seed=6, k=1) == draw(p=0) == greedy
    for name in ("frequency_penalty", "presence_penalty"):
        assert any(draw(seed=i, **{name: 2}) != draw(seed=i) for i in range(12)), name


def test_logprobs(demo, co):
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 8, "logprobs": True}
    want = demo.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    got = co.chat(model="demo", **body).logprobs
    assert [(x.text, x.logprobs) for x in got] == [(x["token"], [x["logprob"]]) for x in want]
    assert all(len(x.token_ids) == 1 for x in got)
    items = [e.logprobs for e in of(co.chat_stream(model="demo", **body), "content-delta")]
    assert [p for x in items for p in x.logprobs] == [x["logprob"] for x in want]
    assert "".join(x.text for x in items) == "".join(x["token"] for x in want)
    assert [i for x in items for i in x.token_ids] == [i for x in got for i in x.token_ids]


def test_formats(co):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    asked = dict(model="demo", messages=MESSAGES, temperature=0, max_tokens=60)
    a = co.chat(**asked, response_format={"type": "json_object", "json_schema": schema})
    assert isinstance(json.loads(said(a))["a"], bool)
    assert said(co.chat(**asked, response_format={"type": "json_object"})).lstrip().startswith("{")
    assert said(co.chat(**asked, response_format={"type": "text"})) == said(co.chat(**asked))
    with pytest.raises(cohere.BadRequestError, match="response_format"):
        co.chat(**asked, response_format={"type": "xml"})


def test_a_call_and_its_result(s):
    co = client_of(s)
    asked = [{"role": "user", "content": f"[[<think>Hm.</think>Wait.{CALL}]]"}]
    a = co.chat(model="m", messages=asked, tools=[TOOL])
    assert [(p.type, p.thinking if p.type == "thinking" else p.text) for p in a.message.content] == [("thinking", "Hm."), ("text", "Wait.")]
    (call,) = a.message.tool_calls
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == ARGUMENTS and a.finish_reason == "TOOL_CALL"
    result = {"role": "tool", "tool_call_id": call.id, "content": [{"type": "document", "document": {"data": {"said": "[[Sunny.]]"}}}]}
    assert said(co.chat(model="m", messages=[*asked, a.message.model_dump(exclude_none=True), result], tools=[TOOL])) == "Sunny."
    planned = {"role": "assistant", "tool_plan": "[[A plan.]]", "tool_calls": [call.model_dump()]}
    assert said(co.chat(model="m", messages=[MESSAGES[0], planned], tools=[TOOL])) == "A plan."


def test_events_of_a_call(s):
    co = client_of(s)
    events = list(co.chat_stream(model="m", messages=[{"role": "user", "content": f"[[<think>Hm.</think>Wait.{CALL}]]"}], tools=[TOOL]))
    thought, spoken = ([e for e in events if e.type.startswith("content") and e.index == i] for i in (0, 1))
    assert "".join(e.delta.message.content.thinking for e in of(thought, "content-delta")) == "Hm."
    assert "".join(e.delta.message.content.text for e in of(spoken, "content-delta")) == "Wait."
    calls = [e for e in events if e.type.startswith("tool-call")]
    assert (calls[0].type, calls[-1].type) == ("tool-call-start", "tool-call-end") and {e.index for e in calls} == {0}
    opened = calls[0].delta.message.tool_calls
    assert opened.function.name == "get_weather" and opened.function.arguments == "" and opened.id
    assert json.loads("".join(e.delta.message.tool_calls.function.arguments for e in of(calls, "tool-call-delta"))) == ARGUMENTS
    assert events[-1].delta.finish_reason == "TOOL_CALL"


def test_a_call_that_must_be(co):
    asked = dict(model="demo", messages=MESSAGES, tools=[TOOL], temperature=0, max_tokens=90)
    a = co.chat(**asked, tool_choice="REQUIRED", strict_tools=True)
    arguments = json.loads(a.message.tool_calls[0].function.arguments)
    assert arguments["city"] in ("Rome", "Oslo") and 1 <= arguments["days"] <= 5 and a.finish_reason == "TOOL_CALL"
    assert not co.chat(**asked, tool_choice="NONE").message.tool_calls
    with pytest.raises(cohere.BadRequestError, match="tool_choice"):
        co.chat(model="demo", messages=MESSAGES, tool_choice="REQUIRED")


def test_images():
    with Scripted(IMAGE_TEMPLATE, SCRIPT, takes_images=True) as t:
        asked = [{"role": "user", "content": [text("What?"), part(SMALL)]}]
        assert said(client_of(t).chat(model="m", messages=asked, max_tokens=9)) == saw(where(t, asked)[0], 4, SMALL)


@pytest.mark.parametrize("kind, shown", [("enabled", "True"), ("disabled", "False")])
def test_thinking_reaches_the_template(kind, shown):
    with Scripted(TEMPLATE.replace("{{ ' thinks:' ~ enable_thinking }}", "[[{{ enable_thinking }}]]")) as t:
        assert said(client_of(t).chat(model="m", messages=[{"role": "user", "content": "[[]]"}], thinking={"type": kind})).endswith(shown)


def test_what_has_no_effect_is_reported(demo):
    r = demo.post("/v2/chat", {"messages": MESSAGES, "max_tokens": 2, "safety_mode": "STRICT", "thinking": {"type": "enabled", "token_budget": 5}})
    assert r.status_code == 200 and all(w in r.headers["warning"] for w in ("safety_mode", "token_budget", "this model has none"))


WRONG = [
    ({"p": 2}, "`p`"),
    ({"k": -2}, "`k`"),
    ({"documents": ["A text."]}, "documents"),
    ({"thinking": {"type": "loud"}}, "thinking"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tool_choice": "AUTO", "tools": [TOOL]}, "tool_choice"),
    ({"messages": []}, "messages"),
    ({"messages": [{"content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages"),
]


@pytest.mark.parametrize("body, word", WRONG)
def test_errors(demo, body, word):
    r = demo.post("/v2/chat", {"messages": MESSAGES, **body})
    assert r.status_code == 400 and sorted(r.json()) == ["id", "message"] and word in r.json()["message"], r.text


def test_keys():
    with Service(DEMO, args=["--api-key", "sesame"]) as s:
        with pytest.raises(cohere.UnauthorizedError, match="API key"):
            client_of(s, "other").chat(model="m", messages=MESSAGES)
        assert said(client_of(s, "sesame").chat(model="m", messages=MESSAGES, max_tokens=4))


def test_a_failure_ends_the_stream():
    with Scripted(TEMPLATE, {"fail_request": "its own fault"}) as t:
        (event,) = client_of(t).chat_stream(model="m", messages=MESSAGES)
        assert event.type == "message-end" and event.delta.finish_reason == "ERROR" and "its own fault" in event.delta.error
        with pytest.raises(cohere.InternalServerError, match="its own fault"):
            client_of(t).chat(model="m", messages=MESSAGES, request_options={"max_retries": 0})
