"""OpenAI's Responses API with its own SDK: answers, typed events, items of all kinds, structured output, refusals."""

import json

import openai
import pydantic
import pytest
from serving import Scripted, strict
from tool_talk import CALL, TEMPLATE, WEATHER, fixtures

TOOLS = [
    {"type": "function", "name": "get_weather", "description": "d", "parameters": WEATHER, "strict": True},
    {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
]


def client_of(s):
    return openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)


demo, s = fixtures(client_of)


def plain(response):
    """Without what differs from one time to the next."""

    def item(o):
        return {k: v for k, v in o.items() if k not in ("id", "call_id")}

    d = response.model_dump(include={"status", "output", "usage", "incomplete_details", "tools"})
    d["output"] = [item(o) for o in d["output"]]
    if d["usage"]:
        d["usage"]["input_tokens_details"] = None
    return d


def check_events(events):
    """Numbers in a row; items one behind the other; each text the sum of its deltas."""
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type in ("response.completed", "response.incomplete")
    at, text, shape = -1, "", []
    for e in map(strict, events[2:-1]):
        kind = e.type.removeprefix("response.")
        if kind == "output_item.added":
            at, text = at + 1, ""
            item = e.item
            assert item.status == "in_progress"
        assert e.output_index == at
        if "item_id" in e.model_fields_set:
            assert e.item_id == item.id
        if kind.endswith(".delta"):
            text += e.delta
            kind = "delta" if shape[-1] != "delta" else None
        elif kind in ("output_text.done", "reasoning_text.done", "reasoning_summary_text.done"):
            assert e.text == text
        elif kind == "function_call_arguments.done":
            assert e.arguments == text
        elif kind in ("content_part.done", "reasoning_summary_part.done"):
            assert e.part.text == text
        elif kind == "output_item.done":
            assert e.item.model_dump() == events[-1].response.output[at].model_dump() and e.item.id == item.id
        if kind:
            shape.append(kind)
    return shape


def both(client, **kw):
    """The answer whole and streamed, which must be the same but for the ids."""
    whole = strict(client.responses.create(**kw))
    events = list(client.responses.create(**kw, stream=True))
    shape = check_events(events)
    assert plain(strict(events[-1].response)) == plain(whole)
    return whole, shape


MESSAGE = ["output_item.added", "content_part.added", "delta", "output_text.done", "content_part.done", "output_item.done"]
REASONING = [k.replace("output_text", "reasoning_text") for k in MESSAGE]
SUMMARY = [k.replace("output_text", "reasoning_summary_text").replace("content_part", "reasoning_summary_part") for k in MESSAGE]
FUNCTION = ["output_item.added", "delta", "function_call_arguments.done", "output_item.done"]


def test_an_answer(demo):
    r, shape = both(demo, model="m", input="Hello!", temperature=0, instructions="Be kind.", metadata={"a": "b"})
    chat = demo.chat.completions.create(
        model="m", temperature=0, messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello!"}]
    )
    assert r.output_text == chat.choices[0].message.content and r.status == "completed" and shape == MESSAGE
    assert (r.usage.input_tokens, r.usage.output_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens
    assert r.id.startswith("resp") and r.model == "m" and r.instructions == "Be kind." and r.metadata == {"a": "b"}
    short, _ = both(demo, model="m", input="Hello!", temperature=0, instructions="Be kind.", max_output_tokens=3, store=False)
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"
    assert short.output[0].status == "incomplete" and r.output_text.startswith(short.output_text)


LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


def texts(logprobs):
    return b"".join(bytes(t.bytes) for t in logprobs).decode()


def test_log_probabilities(demo):
    kw = dict(model="m", input="Tell me a story!", temperature=1, extra_body={"seed": 5}, max_output_tokens=400)
    chat = demo.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Tell me a story!"}], temperature=1, seed=5, max_tokens=400, logprobs=True, top_logprobs=2
    )
    want = [t.model_dump() for t in chat.choices[0].logprobs.content]
    r, _ = both(demo, **kw, **LOGPROBS)
    part = r.output[0].content[0]
    assert [t.model_dump() for t in part.logprobs] == want[: len(part.logprobs)] and len(part.logprobs) >= len(want) - 1, "but for the end"
    assert texts(part.logprobs) == part.text and r.top_logprobs == 2
    assert min(t.logprob for t in part.logprobs) < -0.1 and all(len(t.top_logprobs) == 2 for t in part.logprobs)
    deltas, done = [], None
    for e in demo.responses.create(**kw, **LOGPROBS, stream=True):
        if e.type == "response.output_text.delta":
            assert "".join(t.token for t in e.logprobs) == e.delta
            deltas += e.logprobs
        elif e.type == "response.output_text.done":
            done = e.logprobs
    assert [(t.token, t.logprob) for t in deltas] == [(t.token, t.logprob) for t in part.logprobs] == [(t.token, t.logprob) for t in done]
    bare, _ = both(demo, **kw, include=LOGPROBS["include"])
    assert [t.logprob for t in bare.output[0].content[0].logprobs] == [t.logprob for t in part.logprobs]
    assert all(t.top_logprobs == [] for t in bare.output[0].content[0].logprobs)
    without, _ = both(demo, **kw, include=["reasoning.encrypted_content"])
    assert without.output[0].content[0].logprobs == [] and without.output_text == r.output_text
    with demo.responses.stream(**kw, **LOGPROBS) as stream:
        events = list(stream)
        final = stream.get_final_response().output[0].content[0]
    assert final.logprobs == part.logprobs and events
    for wrong in ({"top_logprobs": 21}, {"top_logprobs": -1}, {"include": "message.output_text.logprobs"}):
        with pytest.raises(openai.BadRequestError):
            demo.responses.create(model="m", input="x", **wrong)


def test_log_probabilities_are_those_of_the_text(s):
    """Not of what was thought, of calls, or of what a stop sequence cut; a message that goes on behind a call has its own."""
    c = client_of(s)
    r, _ = both(c, model="m", input=f"[[<think>Hm, so be it.</think>Let me look there.\n{CALL} And then <this>.]]", tools=TOOLS, **LOGPROBS)
    one, two = [o.content[0] for o in r.output if o.type == "message"]
    assert [o.type for o in r.output] == ["reasoning", "message", "function_call", "message"]
    assert (one.text, two.text) == ("Let me look there.", "And then <this>.")
    for part in (one, two):
        tokens = [t.token for t in part.logprobs]
        assert part.text in "".join(tokens) and part.text not in "".join(tokens[1:]) and part.text not in "".join(tokens[:-1]), "no token more"
    cut, _ = both(c, model="m", input="[[one two three four five]]", extra_body={"stop": ["three four"]}, **LOGPROBS)
    tokens = [t.token for t in cut.output[0].content[0].logprobs]
    assert cut.output_text == "one two " and "three" not in "".join(tokens) and "one two" in "".join(tokens)


def test_tokens_are_counted_before(demo):
    kw = dict(model="m", input=[{"role": "user", "content": "Hello!"}], instructions="Be kind.", tools=TOOLS)
    counted = strict(demo.responses.input_tokens.count(**kw))
    assert counted.input_tokens == demo.responses.create(**kw, max_output_tokens=1).usage.input_tokens and counted.object == "response.input_tokens"
    with pytest.raises(openai.BadRequestError, match="input"):
        demo.responses.input_tokens.count(model="m")


def test_timings_for_clients_of_llama_server(demo):
    asked = {"model": "m", "input": "Hello!", "max_output_tokens": 6, "temperature": 0, "extra_body": {"timings_per_token": True}}
    r = demo.responses.create(**asked).model_dump()
    assert r["timings"]["predicted_n"] == r["usage"]["output_tokens"] == 6 and r["timings"]["prompt_per_second"] >= 0
    events = [e.model_dump() for e in demo.responses.create(**asked, stream=True)]
    assert all("timings" in e for e in events)
    counts = [e["timings"]["predicted_n"] for e in events]
    assert counts == sorted(counts) and counts[-1] == 6 and events[-1]["response"]["timings"]["predicted_n"] == 6
    del asked["extra_body"]
    assert "timings" not in demo.responses.create(**asked).model_dump()


def test_the_stream_helper(demo):
    whole = demo.responses.create(model="m", input="Hello!", temperature=0).output_text
    with demo.responses.stream(model="m", input="Hello!", temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole
    assert [e.snapshot for e in events if e.type == "response.output_text.delta"][-1] == whole


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=10)
    age: int = pydantic.Field(ge=0, le=120)


def test_structured_output(demo):
    kw = dict(model="m", input="Tell me of Ann.", text_format=Person, temperature=1.5, extra_body={"seed": 3}, max_output_tokens=300)
    person = demo.responses.parse(**kw).output_parsed
    assert isinstance(person, Person) and 0 <= person.age <= 120
    with demo.responses.stream(**kw) as stream:
        done = [e for e in stream if e.type == "response.output_text.done"]
        assert stream.get_final_response().output_parsed == person == done[0].parsed
    any_object = demo.responses.create(model="m", input="x", text={"format": {"type": "json_object"}}, temperature=0, max_output_tokens=300)
    assert any_object.output_text.startswith("{") and any_object.text.format.type == "json_object"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_forced_calls(demo, choice):
    for seed in range(4):
        kw = dict(model="m", input="How is the weather?", tools=TOOLS, tool_choice=choice, temperature=1.5, extra_body={"seed": seed})
        r, shape = both(demo, **kw)
        (call,) = r.output
        assert shape == FUNCTION and call.type == "function_call" and call.status == "completed" and call.call_id
        arguments = json.loads(call.arguments)
        assert call.name == "now" or (arguments["city"] in ("Rome", "Oslo") and 1 <= arguments["days"] <= 5)
        with demo.responses.stream(**kw) as stream:
            parsed = stream.get_final_response().output[0].parsed_arguments
            assert parsed == (arguments if call.name == "get_weather" else None), "the SDK parses strict tools only"


def test_items_in_the_order_in_which_the_model_wrote_them(s):
    c = client_of(s)
    text = f"<think>Hm.</think>Let me see.\n{CALL}\n{CALL}"
    r, shape = both(c, model="m", input=f"[[{text}]]", tools=TOOLS)
    assert [o.type for o in r.output] == ["reasoning", "message", "function_call", "function_call"]
    assert shape == REASONING + MESSAGE + FUNCTION + FUNCTION and r.status == "completed"
    assert r.output[0].content[0].text == "Hm." and 0 < r.usage.output_tokens_details.reasoning_tokens < r.usage.output_tokens
    one, _ = both(c, model="m", input=f"[[{text}]]", tools=TOOLS, parallel_tool_calls=False)
    assert [o.type for o in one.output] == ["reasoning", "message", "function_call"] and one.parallel_tool_calls is False
    silent, shape = both(c, model="m", input="[[]]")
    assert silent.output_text == "" and silent.output[0].type == "message"


def test_a_reasoning_is_its_own_summary_where_one_is_asked_for(s):
    c = client_of(s)
    r, shape = both(c, model="m", input="[[<think>Hm.</think>Yes.]]", reasoning={"summary": "auto"})
    assert shape == SUMMARY + MESSAGE and r.reasoning.summary == "auto" and r.output_text == "Yes."
    thought = r.output[0]
    assert [p.model_dump() for p in thought.summary] == [{"type": "summary_text", "text": "Hm."}] and not thought.content
    again = [{"role": "user", "content": "?"}, thought.model_dump(exclude_none=True), {"role": "user", "content": "[[So.]]"}]
    assert c.responses.create(model="m", input=again).output_text == "So."
    plain_one, _ = both(c, model="m", input="[[<think>Hm.</think>Yes.]]", reasoning={"summary": None})
    assert plain_one.output[0].summary == [] and plain_one.output[0].content[0].text == "Hm."


def test_a_conversation_is_sent_whole(s):
    c = client_of(s)
    first = c.responses.create(model="m", input=f"[[<think>Hm.</think>I look.\n{CALL}]]", tools=TOOLS)
    said = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
    said += [o.model_dump(exclude_none=True) for o in first.output]
    said.append({"type": "function_call_output", "call_id": first.output[2].call_id, "output": "Sun"})
    said.append({"role": "user", "content": [{"type": "input_text", "text": "[[It is "}, {"type": "input_text", "text": "sunny.]]"}]})
    r = c.responses.create(model="m", input=said, instructions="Be kind.", reasoning={"effort": "none"})
    assert r.output_text == "It is sunny."
    call = {"id": first.output[2].call_id, "type": "function"}
    call["function"] = {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}
    same = [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "Sun", "tool_call_id": call["id"]},
        {"role": "user", "content": "[[It is sunny.]]"},
    ]
    shown = s.post("/chat_tokenize", {"messages": same, "reasoning_effort": "none"}).json()
    assert "thinks:False" in shown["templated_text"]
    assert r.usage.input_tokens == len(shown["tokenize_response"])


def test_the_oldest_items_make_way():
    def item(role, text):
        return {"role": role, "content": text}

    def of_chat(m):
        if m.get("type") == "function_call":
            call = {"id": m["call_id"], "type": "function", "function": {"name": m["name"], "arguments": json.loads(m["arguments"])}}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        if m.get("type") == "function_call_output":
            return {"role": "tool", "content": m["output"], "tool_call_id": m["call_id"]}
        return {"role": "system" if m["role"] == "developer" else m["role"], "content": m["content"]}

    def call(k):
        return [
            {"type": "function_call", "call_id": f"c{k}", "name": "now", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{k}", "output": "It is noon. " * 3},
        ]

    talk = [m for k in range(12) for m in (item("user", f"Question {k}: why?"), item("assistant", f"Answer {k}, for this reason."))]
    middle = [*talk[:6], item("developer", "Now be brief."), *talk[6:], item("user", "[[So it is.]]")]
    loop = [item("user", "What time is it? [[So it is.]]"), *(m for k in range(12) for m in call(k))]
    with Scripted(TEMPLATE, args=["--max-input-tokens", "300", "--max-total-tokens", "340"]) as s:
        c = client_of(s)

        def tokens(items):
            messages = [item("system", "Be kind."), *map(of_chat, items)]
            return len(s.post("/chat_tokenize", {"messages": messages}).json()["tokenize_response"])

        def left(items, **kw):
            body = {"model": "m", "instructions": "Be kind.", "input": items, "truncation": "auto", **kw}
            n = s.post("/v1/responses/input_tokens", body).json()["input_tokens"]
            r = c.responses.create(**body)
            assert r.usage.input_tokens == n and r.truncation == "auto" and r.output_text == "So it is."
            return n

        with pytest.raises(openai.BadRequestError, match="is too long"):
            c.responses.create(model="m", instructions="Be kind.", input=middle)
        for most, kw in ((300, {}), (240, {"max_output_tokens": 100})):
            # the first rest that begins with a question and fits; what the system said stays
            rests = [[*(m for m in middle[:k] if m["role"] == "developer"), *middle[k:]] for k, m in enumerate(middle) if m["role"] == "user"]
            sizes = [tokens(rest) for rest in rests]
            fits = [n for n in sizes if n <= most]
            assert fits and sizes[0] > most and left(middle, **kw) == fits[0]
        # one question and many calls: results never come without their call
        with pytest.raises(openai.BadRequestError):
            c.responses.create(model="m", instructions="Be kind.", input=loop)
        loop.append(item("assistant", "[[So it is.]]"))
        fits = [n for k in range(1, len(loop), 2) if (n := tokens(loop[k:])) <= 300]
        assert left(loop) == fits[0]
        assert left([item("user", "Short. [[So it is.]]")]) == tokens([item("user", "Short. [[So it is.]]")])
        with pytest.raises(openai.BadRequestError, match="is too long"):
            c.responses.create(model="m", input=[item("user", "x"), item("user", "long " * 400)], truncation="auto")


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_named(s, stream):
    c = client_of(s)
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "http://x/y.png", "detail": "auto"}]}
    for named, kw in {
        "previous_response_id": {"previous_response_id": "resp_1"},
        "conversation": {"conversation": "conv_1"},
        "background": {"background": True},
        "truncation": {"truncation": "sometimes"},
        "input_image": {"input": [image]},
        "picture": {"input": [{"type": "picture", "id": "msg_1"}]},
        "allowed_tools": {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "sometimes", "tools": []}},
        "top_p": {"top_p": 3},
        "max_output_tokens": {"max_output_tokens": 0},
    }.items():
        with pytest.raises(openai.BadRequestError, match="tool_choice" if named == "allowed_tools" else named) as e:
            c.responses.create(**{"model": "m", "input": "x", "stream": stream, **kw})
        assert e.value.body["type"] == "invalid_request_error"


def test_a_failure_is_an_exception():
    script = {"fail": {"Decode": ["broken", 1000], "Prefill": ["broken", 0]}}
    with Scripted(TEMPLATE, script) as s:
        c = client_of(s)
        with pytest.raises(openai.InternalServerError, match="broken"):
            c.responses.create(model="m", input="[[one two three]]")
        events = []
        with pytest.raises(openai.APIError, match="broken"):
            events.extend(c.responses.create(model="m", input="[[one two three]]", stream=True))


def test_context_management_has_no_effect(s):
    kw = {"input": "Hello!", "max_output_tokens": 2}
    r = s.post("/v1/responses", {**kw, "context_management": [{"type": "compaction", "compact_threshold": 1000}]})
    assert r.status_code == 200 and "context_management: compaction" in r.headers["warning"]
    assert "warning" not in s.post("/v1/responses", {**kw, "context_management": []}).headers
