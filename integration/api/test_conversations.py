"""/v1/conversations and /v1/responses/compact: conversations that the server keeps, and ones that it makes short."""

import concurrent.futures
import json

import openai
import pytest
import requests
from serving import DEMO, Scripted, Service
from tool_talk import TEMPLATE


@pytest.fixture(scope="module")
def s(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talks")
    template = folder / "tokenizer_config.json"
    template.write_text(json.dumps({"chat_template": TEMPLATE}))
    with Service(DEMO, args=["--response-store", folder / "kept", "--tokenizer-config-path", template]) as service:
        yield service


@pytest.fixture(scope="module")
def scripted():
    with Scripted(TEMPLATE.replace("<think></think>", "")) as service:
        yield service


def client(s, key="-"):
    return openai.OpenAI(base_url=s.url + "/v1", api_key=key, max_retries=0)


FEW = dict(model="m", max_output_tokens=8, temperature=0)


def user(text):
    return {"type": "message", "role": "user", "content": text}


def texts(items):
    return ["".join(p.text for p in i.content) for i in items]


def test_an_object(s):
    c = client(s).conversations
    made = c.create(metadata={"a": "b"}, items=[user("One."), {"role": "assistant", "content": "Two."}])
    assert made.id.startswith("conv_") and made.object == "conversation" and made.metadata == {"a": "b"} and made.created_at > 1e9
    assert c.retrieve(made.id) == made
    assert c.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"} and c.retrieve(made.id).metadata == {"c": "d"}
    gone = c.delete(made.id)
    assert gone.id == made.id and gone.deleted and gone.object == "conversation.deleted"
    for ask in (c.retrieve, c.delete, c.items.list):
        with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found."):
            ask(made.id)
    empty = requests.post(s.url + "/v1/conversations", timeout=30)
    assert empty.status_code == 200 and empty.json()["metadata"] == {}, empty.text


def test_items(s):
    c = client(s).conversations
    talk = c.create(items=[user("One.")])
    added = c.items.create(talk.id, items=[user("Two."), {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c1", "output": "Three."}])
    assert [i.type for i in added.data] == ["message", "function_call", "function_call_output"] and added.first_id == added.data[0].id
    listed = c.items.list(talk.id, order="asc").data
    assert len(listed) == 4 and len({i.id for i in listed}) == 4 and texts(listed[:2]) == ["One.", "Two."]
    assert [i.id for i in c.items.list(talk.id, limit=1)] == [i.id for i in listed[::-1]]
    assert c.items.retrieve(listed[1].id, conversation_id=talk.id) == listed[1]
    assert c.items.delete(listed[1].id, conversation_id=talk.id).id == talk.id
    assert [i.id for i in c.items.list(talk.id, order="asc")] == [listed[i].id for i in (0, 2, 3)]
    for ask in (c.items.retrieve, c.items.delete):
        with pytest.raises(openai.NotFoundError, match="Item with id"):
            ask(listed[1].id, conversation_id=talk.id)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
def test_responses_are_part_of_it(s, stream, store):
    """The prompt is that of a client that sends all items, and the next request sees the answer of the last."""
    c = client(s)
    talk = c.conversations.create(items=[user("Once upon a time"), {"role": "assistant", "content": "a cat"}])
    sent = [user("Once upon a time"), {"role": "assistant", "content": "a cat"}]
    for i, text in enumerate(("sat", "and ran")):
        kw = dict(input=text, conversation=talk.id if i else {"id": talk.id}, store=store, **FEW)
        r = list(c.responses.create(stream=True, **kw))[-1].response if stream else c.responses.create(**kw)
        assert r.conversation.id == talk.id and r.store is store
        sent.append(user(text))
        whole = c.responses.create(input=sent, store=False, **FEW)
        assert whole.output_text == r.output_text and whole.usage.input_tokens == r.usage.input_tokens
        n = c.responses.input_tokens.count(model="m", input=text, conversation=talk.id).input_tokens
        assert n > r.usage.input_tokens, "the answer is part of the next prompt"
        sent += [o.model_dump(exclude_none=True) for o in r.output]
    listed = c.conversations.items.list(talk.id, order="asc").data
    assert [i.role for i in listed] == ["user", "assistant"] * 3 and texts(listed)[2] == "sat" and texts(listed)[3] == sent[3]["content"][0]["text"]
    if store:
        c.responses.delete(r.id)
        assert len(c.conversations.items.list(talk.id).data) == 6, "deleting a response leaves the conversation"


def test_in_the_background(s):
    c = client(s)
    talk = c.conversations.create()
    r = c.responses.create(input="Once", conversation=talk.id, background=True, **FEW)
    while r.status in ("queued", "in_progress"):
        r = c.responses.retrieve(r.id)
    assert r.status in ("completed", "incomplete") and r.conversation.id == talk.id
    assert [i.role for i in c.conversations.items.list(talk.id, order="asc")] == ["user", "assistant"]


def test_changes_at_the_same_time_all_take_effect(s):
    c = client(s)
    talk = c.conversations.create()

    def one(i):
        if i % 2:
            return c.responses.create(input=f"{i}", conversation=talk.id, store=False, **FEW)
        return c.conversations.items.create(talk.id, items=[user(f"{i}")])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(24)))
    listed = list(c.conversations.items.list(talk.id, order="asc", limit=7))
    assert sorted(int(t) for t, i in zip(texts(listed), listed) if i.role == "user") == list(range(24)) and len(listed) == 36


def test_a_restart_keeps_it(tmp_path):
    args = ["--response-store", tmp_path / "kept"]
    with Service(DEMO, args=args) as one:
        talk = client(one).conversations.create(items=[user("Kept.")])
    with Service(DEMO, args=args) as two:
        assert texts(client(two).conversations.items.list(talk.id).data) == ["Kept."]


def test_each_key_has_its_own(tmp_path):
    with Service(DEMO, args=["--response-store", tmp_path / "kept", "--api-key", "ann,bob"]) as s:
        talk = client(s, "ann").conversations.create(items=[user("Mine.")])
        assert texts(client(s, "ann").conversations.items.list(talk.id).data) == ["Mine."]
        for ask in (lambda c: c.conversations.retrieve(talk.id), lambda c: c.conversations.items.create(talk.id, items=[user("x")]), lambda c: c.responses.create(input="x", conversation=talk.id, **FEW)):
            with pytest.raises(openai.NotFoundError, match="Conversation with id"):
                ask(client(s, "bob"))


def test_faults(s, scripted):
    c = client(s)
    talk = c.conversations.create()

    def refused(path, body, word, param=None, to=s):
        r = to.post(path, body)
        e = r.json()["error"]
        assert r.status_code == 400 and word in e["message"] and (param is None or e["param"] == param), r.text

    refused("/v1/conversations", {"items": "x"}, "list", "items")
    refused("/v1/conversations", {"items": ["x"]}, "an item", "items")
    refused("/v1/conversations", {"items": [{"type": "nothing"}]}, "`nothing`", "items")
    refused("/v1/conversations", {"items": [{"type": "message", "role": "king", "content": "x"}]}, "king", "items")
    refused("/v1/conversations", {"metadata": {"a": 1}}, "string", "metadata")
    refused("/v1/conversations", {"metadata": {str(i): "" for i in range(17)}}, "16", "metadata")
    refused(f"/v1/conversations/{talk.id}", {}, "metadata")
    refused(f"/v1/conversations/{talk.id}/items", {}, "items")
    refused("/v1/responses", {"input": "x", "conversation": 5}, "id", "conversation")
    refused("/v1/responses", {"input": "x", "conversation": talk.id, "previous_response_id": c.responses.create(input="x", **FEW).id}, "exclude", "conversation")
    refused("/v1/responses", {"input": "x", "conversation": talk.id}, "nothing is stored", "conversation", scripted)
    refused("/v1/responses", {"input": "x", "previous_response_id": talk.id}, "names a conversation", "previous_response_id")
    assert s.post("/v1/responses", {"input": "x", "conversation": "conv_" + "x" * 100}).status_code == 404
    assert s.post(f"/v1/conversations/{talk.id}/nothing", {"items": []}).status_code == 404
    assert requests.get(s.url + f"/v1/responses/{talk.id}", timeout=30).status_code == 404
    assert requests.get(s.url + f"/v1/conversations/{c.responses.create(input='x', **FEW).id}", timeout=30).status_code == 404
    assert scripted.post("/v1/conversations", {}).status_code == 404
    assert not c.conversations.items.list(talk.id).data


# ---------------------------------------------------------------- compaction


def test_a_conversation_made_short(scripted):
    """The model's summary comes back as one item, which later requests show to the model."""
    talk = [user("What is the plan?"), {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "x"}, user("[[We build a boat.]]")]
    made = client(scripted).responses.compact(model="m", input=talk, instructions="Be kind.")
    assert made.object == "response.compaction" and made.usage.output_tokens > 0
    *users, item = made.output
    assert [u.role for u in users] == ["user"] * 2 and users[0].content[0].text == "What is the plan?"
    assert item.type == "compaction" and item.encrypted_content and item.id.startswith("cmp_")
    sent = [o.model_dump(exclude_none=True) for o in made.output]
    r = scripted.post("/v1/responses", {"input": [user("[["), sent[-1], user("]]")]})  # the model says all that is between
    said = "".join(p["text"] for o in r.json()["output"] for p in o["content"])
    assert "Summary of the conversation so far:\nWe build a boat." in said and "warning" not in r.headers
    with_it, without = (scripted.post("/v1/responses/input_tokens", {"input": t}).json()["input_tokens"] for t in (sent, sent[:-1]))
    assert with_it > without
    r = scripted.post("/v1/responses", {"input": [user("[[x]]"), {"type": "compaction", "encrypted_content": "gAAAA"}]})
    assert r.status_code == 200 and "compaction" in r.headers["warning"], "another server's"
    r = scripted.post("/v1/responses", {"input": [user("[[x]]"), {"type": "compaction", "encrypted_content": "summary.1.???"}]})
    assert r.status_code == 200


def test_a_stored_conversation_made_short(s):
    c = client(s)
    first = c.responses.create(input="Once upon a time", **FEW)
    made = c.responses.compact(model="m", previous_response_id=first.id)
    assert [o.type for o in made.output] == ["message", "compaction"] and made.output[0].content[0].text == "Once upon a time"
    talk = c.conversations.create(items=[user("One."), user("Two.")])
    by_talk = s.post("/v1/responses/compact", {"conversation": talk.id})
    assert by_talk.status_code == 200 and [o["type"] for o in by_talk.json()["output"]] == ["message", "message", "compaction"]
    assert len(c.conversations.items.list(talk.id).data) == 2, "the conversation stays as it is"
    with pytest.raises(openai.NotFoundError):
        c.responses.retrieve(made.id)
    assert s.post("/v1/responses/compact", {}).status_code == 400


def test_one_that_fills_the_context(scripted):
    """The oldest messages are dropped so that there is space for a summary."""
    limits = requests.get(scripted.url + "/info", timeout=30).json()
    talk = [user("word " * 200) for _ in range(limits["max_total_tokens"] // 100)]
    assert scripted.post("/v1/responses", {"input": talk}).status_code == 400
    made = scripted.post("/v1/responses/compact", {"input": talk + [user("[[short]]")]})
    assert made.status_code == 200, made.text
    assert len(made.json()["output"]) == len(talk) + 2
