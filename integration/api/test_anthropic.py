"""Anthropic's Messages API with its own SDK: answers, named events, counting, errors and keys."""

import anthropic
import pytest
import requests
from serving import DEMO, Service

MESSAGES = [{"role": "user", "content": "Hello!"}]
GREEDY = {"temperature": 0}  # the SDK has no such argument any more


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, env={"API_KEY": "sesame"}) as service:
        yield service


@pytest.fixture(scope="module")
def client(s):
    return anthropic.Anthropic(base_url=s.url, api_key="sesame", max_retries=0)


def strict(obj):
    return type(obj).model_validate(obj.model_dump(), strict=True)


def input_tokens(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_an_answer(client):
    kw = dict(model="claude", messages=MESSAGES, extra_body=GREEDY)
    m = strict(client.messages.create(**kw, max_tokens=60))
    assert m.id.startswith("msg_") and m.role == "assistant" and m.model == "claude"
    assert m.content[0].type == "text" and m.content[0].text.strip() and m.stop_reason == "end_turn"
    assert m.usage.output_tokens > 0
    short = client.messages.create(**kw, max_tokens=3)
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 3
    assert m.content[0].text.startswith(short.content[0].text)
    counted = client.messages.count_tokens(model="claude", messages=MESSAGES).input_tokens
    assert counted == input_tokens(m.usage) == input_tokens(short.usage)


def test_events_are_those_of_the_protocol(client):
    kw = dict(model="claude", messages=MESSAGES, extra_body=GREEDY, max_tokens=60)
    whole = client.messages.create(**kw)
    with client.messages.stream(**kw) as stream:
        events = [e.type for e in stream if e.type not in ("text", "ping")]
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert events[:2] == ["message_start", "content_block_start"]
    assert events[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(events[2:-3]) == {"content_block_delta"}
    raw = list(client.messages.create(**kw, stream=True))
    assert raw[0].type == "message_start" and raw[0].message.content == [] and raw[0].message.stop_reason is None
    assert "".join(e.delta.text for e in raw if e.type == "content_block_delta") == whole.content[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_stop_sequences_are_named_and_left_out(client, stream):
    free = client.messages.create(model="m", messages=MESSAGES, extra_body=GREEDY, max_tokens=60).content[0].text
    stop = free[len(free) // 2 : len(free) // 2 + 4]
    kw = dict(model="m", messages=MESSAGES, extra_body=GREEDY, max_tokens=60, stop_sequences=["never", stop])
    if stream:
        with client.messages.stream(**kw) as events:
            m = events.get_final_message()
    else:
        m = client.messages.create(**kw)
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == stop
    assert m.content[0].text == free[: free.index(stop)]


def test_conversations_are_those_of_the_chat_route(s, client):
    headers = {"authorization": "Bearer sesame"}
    openai = {
        "messages": [
            {"role": "system", "content": "Be brief. Be kind."},
            {"role": "user", "content": "Hello! Who are you?"},
            {"role": "assistant", "content": "A model."},
            {"role": "user", "content": "Good."},
        ]
    }
    prompt = s.post("/apply-template", openai, headers=headers).json()["prompt"]
    ids = [t["id"] for t in s.post("/chat_tokenize", openai, headers=headers).json()["tokenize_response"]]
    n = client.messages.count_tokens(
        model="m",
        system=[
            {"type": "text", "text": "Be brief. ", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be kind."},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hello! "}, {"type": "text", "text": "Who are you?"}]},
            {"role": "assistant", "content": "A model."},
            {"role": "user", "content": "Good."},
        ],
    ).input_tokens
    assert n == len(ids)
    assert s.post("/detokenize", {"ids": ids}, headers=headers).json()["text"] == prompt
    refused = s.post("/detokenize", {"tokens": [10**6]}, headers=headers)
    assert refused.status_code == 422 and "1000000" in refused.text


def test_a_conversation_goes_on_from_the_cache(client):
    first = client.messages.create(model="m", messages=MESSAGES, extra_body=GREEDY, max_tokens=40)
    said = MESSAGES + [{"role": "assistant", "content": first.content[0].text}, {"role": "user", "content": "And you?"}]
    second = client.messages.create(model="m", messages=said, extra_body=GREEDY, max_tokens=8)
    assert second.usage.cache_read_input_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_exceptions(client, stream):
    kw = dict(model="m", messages=MESSAGES, max_tokens=4, stream=stream)
    with pytest.raises(anthropic.BadRequestError, match="top_p") as e:
        client.messages.create(**kw, extra_body={"top_p": 3})
    assert e.value.body["error"]["type"] == "invalid_request_error" and e.value.request_id or e.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.post("/v1/messages", body={"model": "m", "messages": MESSAGES, "stream": stream}, cast_to=object)
    image = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    with pytest.raises(anthropic.BadRequestError, match="image"):
        client.messages.create(**{**kw, "messages": [{"role": "user", "content": [image]}]})
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        client.messages.create(**kw, tools=[{"name": "f", "input_schema": {}}], extra_body={"tool_choice": {"type": "some"}})
    with pytest.raises(anthropic.BadRequestError, match="nobody"):
        client.messages.create(**kw, tools=[{"name": "f", "input_schema": {}}], tool_choice={"type": "tool", "name": "nobody"})
    with pytest.raises(anthropic.BadRequestError, match="thinking"):
        client.messages.create(**kw, thinking={"type": "sometimes"})
    stranger = anthropic.Anthropic(base_url=client.base_url, api_key="Sesame", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(**kw)


def test_probes_need_no_key(s):
    for path in ("/livez", "/readyz", "/startupz", "/health"):
        assert requests.get(s.url + path).status_code == 200


def test_context_management_and_paths_that_are_not_served(client):
    kw = dict(model="claude", messages=MESSAGES, max_tokens=2)
    for edit, warns in (
        ({"type": "clear_tool_uses_20250919"}, True),
        ({"type": "compact_20260112"}, True),
        ({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}, True),
        ({"type": "clear_thinking_20251015", "keep": "all"}, False),
    ):
        raw = client.messages.with_raw_response.create(**kw, extra_body={"context_management": {"edits": [edit]}})
        assert (edit["type"] in raw.headers.get("warning", "")) == warns and raw.parse().content
    with pytest.raises(anthropic.NotFoundError) as e:
        client.messages.batches.list()
    assert e.value.body["error"]["type"] == "not_found_error" and e.value.body["error"]["message"]
