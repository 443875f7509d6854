"""Constrained answers: schemas of many kinds, the OpenAI SDK's structured outputs, tools, hostile requests."""

import concurrent.futures
import json
import random
import re

import jsonschema
import pytest
from schemas import shapes
from serving import DEMO, SLOW, Service, seed_for

CHAT = [{"role": "user", "content": "Tell me of Ann."}]


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--max-concurrent-requests", "64"]) as service:
        yield service


@pytest.fixture(scope="module")
def client(s):
    import openai

    return openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)


def validate(value, schema):
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(value)


def formatted(schema, strict=True, **kw):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": strict, "schema": schema}}, **kw}


# ---------------------------------------------------------------- schemas


def ask(s, schema, seed):
    body = formatted(schema, strict=seed % 2 == 1, model="tgi", messages=CHAT, max_tokens=250, temperature=1.5, seed=seed)
    r = s.post("/v1/chat/completions", body)
    assert r.status_code == 200, f"{r.text}\n{json.dumps(schema)}"
    choice = r.json()["choices"][0]
    return choice["finish_reason"], choice["message"]["content"]


def test_every_answer_is_an_instance_of_its_schema(s):
    asked = shapes(240 if SLOW == 1 else 60, seed=seed_for(1))
    whole = [0, 0]  # in either layout
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda i: ask(s, asked[i], i), range(len(asked)))
        for i, (schema, (finish, text)) in enumerate(zip(asked, answers)):
            if finish == "length":
                continue
            try:
                validate(json.loads(text), schema)
            except (ValueError, jsonschema.ValidationError) as e:
                raise AssertionError(f"{e}\nschema {json.dumps(schema)}\nanswer {text!r}")
            whole[i % 2] += 1
    print(f"{whole} of {len(asked)} answers ended by themselves")
    # Without `strict`, objects may have other properties too, and the model goes on to write some.
    assert whole[0] > len(asked) / 2 * 0.6
    assert whole[1] > len(asked) / 2 * 0.4  # compact: the demo model has seen little of it


def test_schemas_of_all_routes_and_spellings(s):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["n"]}
    p = {"max_new_tokens": 40, "do_sample": True, "temperature": 1.5, "seed": 3}
    grammars = [
        {"type": "json", "value": schema},
        {"type": "json", "value": json.dumps(schema)},
        {"type": "json_object", "value": schema},
        {"type": "json_schema", "value": {"name": "n", "schema": schema}},
    ]
    texts = set()
    for g in grammars:
        r = s.post("/generate", {"inputs": "x", "parameters": {**p, "grammar": g}}).json()
        texts.add(r["generated_text"])
        events = list(s.events("/generate_stream", {"inputs": "x", "parameters": {**p, "grammar": g}}))
        assert events[-1]["generated_text"] == r["generated_text"]
    assert len(texts) == 1
    validate(json.loads(texts.pop()), schema)
    for key, value in {
        "guided_json": schema,
        "structured_outputs": {"json": schema},
        "response_format": {"type": "json_object", "schema": schema},
    }.items():
        body = {"model": "tgi", "prompt": "x", "max_tokens": 40, "temperature": 1.5, "seed": 3, key: value}
        validate(json.loads(s.post("/v1/completions", body).json()["choices"][0]["text"]), schema)


def test_schemas_arrive_as_they_were_written(s):
    exact = 1234567890123456789
    asked = [
        ({"const": exact}, str(exact)),
        ({"type": "integer", "minimum": exact, "maximum": exact}, str(exact)),
        ({"const": "a\0b"}, '"a\\u0000b"'),
        ({"not": {"type": ["number", "string", "array", "object", "boolean"]}}, "null"),
    ]
    for schema, text in asked:
        answers = [
            s.post("/v1/chat/completions", formatted(schema, model="tgi", messages=CHAT, max_tokens=60)).json()["choices"][0]["message"]["content"],
            s.post("/generate", {"inputs": "a", "parameters": {"grammar": {"type": "json", "value": schema}, "max_new_tokens": 60}}).json()["generated_text"],
            s.post("/v1/responses", {"input": "a", "max_output_tokens": 60, "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}})
            .json()["output"][-1]["content"][0]["text"],
        ]
        assert answers == [text] * 3
    # elsewhere it would end a text early
    assert s.post("/generate", {"inputs": "ab", "parameters": {"stop": ["a\0"]}}).status_code == 400


def test_strict_schemas_are_closed(s):
    schema = {"properties": {"a": {"type": "null"}}, "required": ["a"], "maxProperties": 1, "minProperties": 1, "patternProperties": {"^b": False}}
    body = formatted(schema, model="tgi", messages=CHAT, max_tokens=60)
    kinds = set()
    for strict in (True, False):
        body["response_format"]["json_schema"]["strict"] = strict
        for seed in range(8):
            text = s.post("/v1/chat/completions", {**body, "temperature": 2.0, "seed": seed}).json()["choices"][0]["message"]["content"]
            kinds.add((strict, text[:1] == "{"))
            if strict:
                assert json.loads(text) == {"a": None}
    assert kinds == {(True, True), (False, False), (False, True)} or kinds == {(True, True), (False, False)}


def test_patterns_and_choices(s):
    r = s.post("/generate", {"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": r"\d{4}-[a-c]+!"}}}).json()
    assert re.fullmatch(r"\d{4}-[a-c]+!", r["generated_text"]) or len(r["generated_text"]) > 100
    choices = ["a|b", "naïve (1)", "[x]"]
    seen = set()
    for seed in range(12):
        for extra in ({"guided_choice": choices}, {"structured_outputs": {"choice": choices}}):
            body = {"model": "tgi", "messages": CHAT, "temperature": 30, "seed": seed, **extra}
            seen.add(s.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"])
    assert seen <= set(choices) and len(seen) > 1


def test_any_json_object(client):
    r = client.chat.completions.create(
        model="tgi", messages=CHAT, response_format={"type": "json_object"}, temperature=1, seed=4, max_tokens=300
    ).choices[0]
    assert r.message.content.startswith("{")
    assert r.finish_reason == "length" or isinstance(json.loads(r.message.content), dict)


def test_what_cannot_be_promised_is_refused_at_once(client, s):
    import openai

    for schema, place in [
        ({"properties": {"a": {"items": {"type": "array", "uniqueItems": True}}}}, "#/properties/a/items/uniqueItems"),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
        ({"$ref": "https://example.com/x"}, "#/$ref"),
    ]:
        before = s.metric("tgi_batch_inference_count", method="prefill")
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match=re.escape(place)):
                client.chat.completions.create(model="tgi", messages=CHAT, stream=stream, **formatted(schema))
        r = s.post("/generate", {"inputs": "x", "parameters": {"grammar": {"type": "json", "value": schema}}})
        assert r.status_code == 422 and place in r.json()["error"] and r.json()["error_type"] == "validation"
        assert s.metric("tgi_batch_inference_count", method="prefill") == before


# ---------------------------------------------------------------- the SDK's own helpers


def test_parse_gives_pydantic_models(client):
    import pydantic

    class Tag(pydantic.BaseModel):
        label: str = pydantic.Field(max_length=8)
        weight: float | None

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=10)
        age: int = pydantic.Field(ge=0, le=120)
        tags: list[Tag] = pydantic.Field(max_length=2)
        mood: str = pydantic.Field(json_schema_extra={"enum": ["good", "bad"]})

    for seed in range(5):
        r = client.chat.completions.parse(model="tgi", messages=CHAT, response_format=Person, temperature=1.5, seed=seed, max_tokens=400)
        person = r.choices[0].message.parsed
        assert isinstance(person, Person) and person.mood in ("good", "bad") and 0 <= person.age <= 120


PARAMETERS = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Rome", "Oslo", 'Say "so"']}},
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]


def gather(chunks):
    """A stream's message, put together as clients do."""
    content, calls, finish = "", [], None
    for c in chunks:
        for choice in c.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for d in choice.delta.tool_calls or []:
                if d.index == len(calls):
                    calls.append({"id": d.id, "name": d.function.name, "arguments": ""})
                else:
                    assert d.id is None and d.function.name is None
                calls[d.index]["arguments"] += d.function.arguments
    return content, calls, finish


@pytest.mark.parametrize("choice", ["required", "any", "get_weather", {"type": "function", "function": {"name": "get_weather"}}])
def test_forced_calls_streamed_and_not(client, choice):
    seen = set()
    for seed in range(6):
        kw = dict(model="tgi", messages=CHAT, tools=TOOLS, tool_choice=choice, temperature=1.5, seed=seed, max_tokens=200)
        whole = client.chat.completions.create(**kw).choices[0]
        (call,) = whole.message.tool_calls
        assert whole.finish_reason == "tool_calls" and whole.message.content is None and len(call.id) == 9
        seen.add(call.function.name)
        validate(json.loads(call.function.arguments), PARAMETERS if call.function.name == "get_weather" else {"maxProperties": 0})
        content, calls, finish = gather(client.chat.completions.create(**kw, stream=True))
        assert (content, finish) == ("", "tool_calls")
        assert [(c["name"], c["arguments"]) for c in calls] == [(call.function.name, call.function.arguments)]
    assert seen <= {"get_weather", "now"} and "get_weather" in seen


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}


def test_allowed_tools_are_the_only_ones(client, s):
    kw = dict(model="tgi", messages=CHAT, tools=TOOLS, temperature=1.5, max_tokens=200)
    seen = {n: set() for n in ("now", "both")}
    for seed in range(6):
        for n, choice in (("now", allowed("required", "now", "now")), ("both", allowed("required", "now", "get_weather"))):
            (call,) = client.chat.completions.create(**kw, seed=seed, tool_choice=choice).choices[0].message.tool_calls
            seen[n].add(call.function.name)
    assert seen == {"now": {"now"}, "both": {"now", "get_weather"}}
    ask = {"messages": CHAT, "tools": TOOLS, "tool_choice": allowed("auto", "now")}
    shown = s.post("/apply-template", ask).json()["prompt"]
    assert "now" in shown and "get_weather" not in shown
    for wrong in (allowed("auto"), allowed("must", "now"), allowed("auto", "later"), {"type": "allowed_tools"}):
        r = s.post("/v1/chat/completions", {**ask, "tool_choice": wrong})
        assert r.status_code == 400 and ("tool_choice" in r.text or "later" in r.text), r.text


def test_several_forced_calls(client):
    most = 0
    for seed in range(8):
        kw = dict(model="tgi", messages=CHAT, tools=TOOLS, tool_choice="required", temperature=1.5, seed=seed, max_tokens=600)
        r = client.chat.completions.create(**kw, parallel_tool_calls=True).choices[0]
        calls = r.message.tool_calls
        assert r.finish_reason == "tool_calls" and len({c.id for c in calls}) == len(calls)
        for c in calls:
            validate(json.loads(c.function.arguments), PARAMETERS if c.function.name == "get_weather" else {})
        most = max(most, len(calls))
        _, streamed, _ = gather(client.chat.completions.create(**kw, parallel_tool_calls=True, stream=True))
        assert [c["arguments"] for c in streamed] == [c.function.arguments for c in calls]
    assert most > 1


def test_cut_calls_are_returned_as_far_as_they_came(client):
    kw = dict(model="tgi", messages=CHAT, tools=TOOLS, tool_choice="get_weather", temperature=0)
    full = client.chat.completions.create(**kw).choices[0].message.tool_calls[0].function.arguments
    cut = set()
    for n in range(1, 200):
        r = client.chat.completions.create(**kw, max_tokens=n).choices[0]
        if r.finish_reason == "tool_calls":
            break
        assert r.finish_reason == "length"
        if r.message.tool_calls:
            cut.add(r.message.tool_calls[0].function.arguments)
            assert full.startswith(r.message.tool_calls[0].function.arguments)
    assert r.finish_reason == "tool_calls" and len(cut) > 2


def test_auto_and_none_leave_text_alone(client, s):
    plain = client.chat.completions.create(model="tgi", messages=CHAT, temperature=0, max_tokens=20).choices[0].message
    kw = dict(model="tgi", messages=CHAT, tools=TOOLS, temperature=0, max_tokens=20)
    none = client.chat.completions.create(**kw, tool_choice="none").choices[0].message
    assert none.content == plain.content and none.tool_calls is None
    auto = client.chat.completions.create(**kw).choices[0]
    content, calls, finish = gather(client.chat.completions.create(**kw, stream=True))
    assert content == auto.message.content and calls == [] and finish == auto.finish_reason
    r = s.post("/chat_tokenize", {"messages": CHAT, "tools": TOOLS, "tool_prompt": "CALL"}).json()
    assert '"get_weather"' in r["templated_text"] and "CALL<" in r["templated_text"]


def test_the_old_way_of_calling(client):
    old = [t["function"] for t in TOOLS]
    for choice in ({"name": "get_weather"}, "none", "auto"):
        kw = dict(model="tgi", messages=CHAT, functions=old, function_call=choice, temperature=0, max_tokens=200)
        r = client.chat.completions.create(**kw).choices[0]
        name, arguments, content, finish = "", "", "", None
        for chunk in client.chat.completions.create(**kw, stream=True):
            d = chunk.choices[0].delta
            name += (d.function_call and d.function_call.name) or ""
            arguments += (d.function_call and d.function_call.arguments) or ""
            content += d.content or ""
            finish = chunk.choices[0].finish_reason or finish
        assert r.message.tool_calls is None and finish == r.finish_reason and content == (r.message.content or "")
        if isinstance(choice, dict):
            assert finish == "function_call" and r.message.content is None
            assert (name, arguments) == (r.message.function_call.name, r.message.function_call.arguments)
            assert name == "get_weather" and validate(json.loads(arguments), PARAMETERS) is None
        else:
            assert finish in ("stop", "length") and r.message.function_call is None and content


def test_an_old_conversation_is_shown_as_a_new_one(s):
    call = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    old = [*CHAT, {"role": "assistant", "content": None, "function_call": call}, {"role": "function", "name": "get_weather", "content": "Sun"}]
    new = [
        *CHAT,
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call, "id": "call00000"}]},
        {"role": "tool", "name": "get_weather", "content": "Sun", "tool_call_id": "call00000"},
    ]
    for tools in ({}, {"tools": TOOLS}):  # old messages beside new tools, too
        shown = [s.post("/apply-template", {"messages": m, **tools}) for m in (old, new)]
        assert shown[0].status_code == 200 and shown[0].json() == shown[1].json()
    r = s.post("/v1/chat/completions", {"messages": CHAT, "functions": [call], "tools": TOOLS})
    assert r.status_code == 400 and "exclude" in r.text


# ---------------------------------------------------------------- hostile requests


def test_broken_schemas_and_histories_are_never_a_server_error(s):
    rng = random.Random(seed_for(5))
    junk = [None, True, 0, -1, 1e300, "", "x", "#/$defs/q", [], {}, [[]], {"a": {}}, {"type": "object"}, "(", "{"]

    def mutate(v, depth=0):
        if rng.random() < 0.15 or depth > 6:
            return rng.choice(junk)
        if isinstance(v, dict):
            return {(rng.choice(["type", "$ref", "items", k]) if rng.random() < 0.1 else k): mutate(x, depth + 1) for k, x in v.items()}
        return [mutate(x, depth + 1) for x in v] if isinstance(v, list) else v

    history = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
    ]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:

        def one(body):
            r = s.post("/v1/chat/completions", body)
            assert r.status_code == 200 or 400 <= r.status_code < 500, f"{r.status_code} {r.text}\n{json.dumps(body)}"
            return r.status_code

        bodies = []
        for i, schema in enumerate(shapes(150 if SLOW == 1 else 40, seed=seed_for(9))):
            body = {"messages": history if i % 3 else CHAT, "max_tokens": 2}
            tool = [{"type": "function", "function": {"name": "f", "parameters": mutate(schema)}}]
            body |= [{"tools": tool, "tool_choice": "required"}, {"tools": mutate(tool)}, formatted(mutate(schema))][i % 3]
            body["messages"] = mutate(body["messages"]) if i % 5 == 0 else body["messages"]
            bodies.append(body)
        got = list(pool.map(one, bodies))
    assert {200, 400} <= set(got)


# ---------------------------------------------------------------- grammars, white space


def completion(s, **kw):
    r = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 60, "temperature": 1, "seed": 3, **kw})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["text"]


def test_grammars_of_llama_cpp_and_lark(s):
    gbnf = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]{1,2} | root'
    lark = 'start: "yes "i NAME\nNAME: /[a-f]{3}/\n'
    for form in (
        {"grammar": gbnf},
        {"guided_grammar": gbnf},
        {"ebnf": gbnf},
        {"guided_grammar": gbnf, "structured_outputs": {"grammar": gbnf}},
        {"structured_outputs": {"grammar": gbnf}},
        {"response_format": {"type": "grammar", "value": gbnf}},
        {"grammar": {"type": "grammar", "value": gbnf}},
    ):
        text = completion(s, **form)
        assert re.match(r"\[[\[\]0-9,]*$", text), text
    assert re.fullmatch("(?i)yes [a-f]{3}", completion(s, grammar=lark))
    assert completion(s, grammar='root ::= "a"{5}') == "aaaaa"
    assert re.fullmatch(r"\d{3}", completion(s, regex=r"\d{3}"))
    r = s.post("/generate", {"inputs": "a", "parameters": {"grammar": {"type": "grammar", "value": 'root ::= "x" "y"'}}})
    assert r.json()["generated_text"] == "xy"
    for bad in ("root ::= a", "start: /(/", "root ::= b\nb ::= c\nc ::= b"):
        r = s.post("/v1/completions", {"prompt": "a", "grammar": bad})
        assert r.status_code in (400, 422) and "grammar" in r.text, r.text


def test_white_space_has_a_bound(s):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer", "maximum": 9}, "maxItems": 3}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    for seed in range(8):
        text = completion(s, json_schema=schema, temperature=1.5, seed=seed, max_tokens=200)
        json.loads(text)
        assert not re.search(r"\S[ \t]{2}|\n\s*\n|[ \t]{9}", text), text
        named = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        for compact in ({"response_format": named}, {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}):
            text = completion(s, temperature=1.5, seed=seed, **compact)
            json.loads(text)
            assert not re.search(r"\s", text), text


def test_an_empty_pattern_is_an_empty_answer(s):
    assert completion(s, guided_regex="") == ""
    assert completion(s, structured_outputs={"choice": [""]}) == ""


def test_a_format_of_no_known_type(s):
    for unknown in ({"type": "xml"}, {"type": "grammar"}):
        r = s.post("/v1/chat/completions", {"messages": CHAT, "response_format": unknown})
        assert r.status_code == 400 and "`json_schema`" in r.json()["error"]["message"], r.text
        assert r.json()["error"]["param"] == "response_format"


def test_one_that_is_too_complex_while_generating_is_a_refusal(s):
    """Only the walk from token to token shows it. It would fail again, so it is not the server's error."""
    schema = {"type": "string", "pattern": "^(?=(.*a.{60}){20}$).{2000,}$"}
    body = formatted(schema, model="tgi", messages=CHAT, max_tokens=300, temperature=1, seed=1)
    r = s.post("/v1/chat/completions", body)
    assert r.status_code == 400 and r.json()["error"]["type"] == "invalid_request_error", r.text
    assert "the constraint is too complex" in r.json()["error"]["message"]
    *_, event, last = s.events("/v1/chat/completions", body | {"stream": True})
    assert event["error"]["http_status_code"] == 400 and last == "[DONE]"
    r = s.post("/generate", {"inputs": "Ann", "parameters": {"max_new_tokens": 300, "grammar": {"type": "json", "value": schema}}})
    assert r.status_code == 422 and r.json()["error_type"] == "validation", r.text


def test_constraints_share_a_budget_of_memory():
    """Each schema is asked once; what is kept of them does not grow beyond the budget, and an answer is the same after it was dropped."""
    names = [[f"value {k} of list {i}" for k in range(3000)] for i in range(12)]
    body = lambda i: formatted({"enum": names[i]}, model="tgi", messages=CHAT, max_tokens=20, temperature=1, seed=1)
    text = lambda i: s.post("/v1/chat/completions", body(i)).json()["choices"][0]["message"]["content"]
    with Service(DEMO, 2, args=["--constraint-memory", "0.016"]) as s:
        first = [text(i) for i in range(len(names))]
        assert 0 < s.metric("tgi_constraint_bytes") <= 0.016 * 2**30
        assert s.metric("tgi_constraint_evictions", what="unused") > 0
        assert [text(i) for i in range(len(names))] == first
        assert 0 < s.metric("tgi_constraint_bytes") <= 0.016 * 2**30
        assert s.metric("tgi_constraint_evictions", what="closed") == 0
