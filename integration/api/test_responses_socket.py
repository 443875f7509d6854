"""The Responses API over WebSocket: OpenAI's client, messages of one's own, and what a connection keeps."""

import json
import re
import socket
import time

import openai
import pytest
import requests
import websockets
from serving import DEMO, Scripted, Service, wait_for
from websockets.sync.client import connect

ECHO = "{%- for m in messages %}{{ '\\n' ~ m.role ~ ': ' ~ m.content }}{% endfor %}{{ '\\nassistant:' }}"


@pytest.fixture(scope="module")
def s():
    with Scripted(ECHO) as service:
        yield service


def ws_of(s, path="/v1/responses", **kw):
    return connect(f"ws://127.0.0.1:{s.port}{path}", max_size=None, compression=None, **kw)


def ask(ws, body=None, type="response.create", **kw):
    """The events of one response, up to its last."""
    ws.send(json.dumps({"type": type, "model": "m", **(body or {}), **kw}))
    events = []
    while not events or events[-1]["type"] not in ("response.completed", "response.incomplete", "error"):
        events.append(json.loads(ws.recv(timeout=60)))
    return events


def text_of(events):
    return "".join(p["text"] for o in events[-1]["response"]["output"] for p in o.get("content", []))


def test_events_are_those_of_the_stream(s):
    body = {"input": "Say it. [[Hello you.]]", "store": False}
    with ws_of(s) as ws:
        got = ask(ws, body)
    r = requests.post(s.url + "/v1/responses", json={**body, "model": "m", "stream": True}, stream=True)
    want = [json.loads(line[6:]) for line in r.iter_lines() if line.startswith(b"data: ")]
    assert [e["type"] for e in got] == [e["type"] for e in want]
    assert [e["sequence_number"] for e in got] == list(range(len(got)))
    assert text_of(got) == text_of(want) == "Hello you."


def test_the_last_response_is_continued_although_nothing_is_stored(s):
    with ws_of(s) as ws:
        first = ask(ws, input="[[One.]]", store=False)[-1]["response"]
        second = ask(ws, input="And? [[Two.]]", previous_response_id=first["id"], store=False)[-1]["response"]
        assert second["previous_response_id"] == first["id"]
        third = ask(ws, input=[{"role": "user", "content": "[[Three.]]"}], previous_response_id=second["id"])
        assert text_of(third) == "Three."
        counts = [r["usage"]["input_tokens"] for r in (first, second, third[-1]["response"])]
        whole = [{"role": "user", "content": "[[One.]]"}, {"role": "assistant", "content": "One."}, {"role": "user", "content": "And? [[Two.]]"}]
        whole += [{"role": "assistant", "content": "Two."}, {"role": "user", "content": "[[Three.]]"}]
        n = requests.post(s.url + "/v1/responses/input_tokens", json={"input": whole}).json()["input_tokens"]
        assert counts[0] < counts[1] < counts[2] == n, "the history is in the prompt"
        assert text_of(ask(ws, input="[[Fork.]]", previous_response_id=first["id"])) == "Fork.", "some earlier ones are kept, too"
        old = ask(ws, input="x", previous_response_id="resp_1")[-1]
        assert (old["type"], old["status"], old["error"]["code"]) == ("error", 400, "previous_response_not_found")
        assert old["error"]["param"] == "previous_response_id"
        fourth = ask(ws, input="[[Four.]]", previous_response_id=third[-1]["response"]["id"])
        assert text_of(fourth) == "Four.", "the connection goes on after an error"
    with ws_of(s) as ws:
        gone = ask(ws, input="x", previous_response_id=fourth[-1]["response"]["id"])[-1]
        assert gone["error"]["code"] == "previous_response_not_found", "another connection has another memory"


def test_a_warm_up_is_continued(s):
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    with ws_of(s) as ws:
        events = ask(ws, input="Long. " * 100, instructions="Be kind.", tools=tools, generate=False)
        warm = events[-1]["response"]
        assert [e["type"] for e in events] == ["response.created", "response.in_progress", "response.completed"]
        assert warm["output"] == [] and warm["usage"]["output_tokens"] == 0 and warm["usage"]["input_tokens"] > 100
        next_one = ask(ws, input="[[Yes.]]", previous_response_id=warm["id"], instructions="Be kind.", tools=tools)
        assert text_of(next_one) == "Yes."
        assert next_one[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] > 50
        empty = ask(ws, input=[], instructions="Be kind.", tools=tools, generate=False)
        assert empty[-1]["type"] == "response.completed"


def test_a_call_and_its_result(tmp_path):
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    with Scripted(ECHO + "{# <tool_call></tool_call> #}{{ tools | tojson if tools }}") as s, ws_of(s) as ws:
        r = ask(ws, input=f"Do. [[{call}]]", tools=tools)[-1]["response"]
        [item] = [o for o in r["output"] if o["type"] == "function_call"]
        assert json.loads(item["arguments"]) == {"a": 1}
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": "[[Done.]]"}
        assert text_of(ask(ws, input=[result], tools=tools, previous_response_id=r["id"])) == "Done."


def test_messages_that_are_no_requests(s):
    with ws_of(s) as ws:
        for body, words in [("{", "JSON"), ("[]", "type"), ('{"type": "response.nonsense"}', "response.nonsense"), ('{"input": "x"}', "type"),
                            ('{"type": "response.create"}', "input"), ('{"type": "response.create", "input": "x", "background": true}', "background")]:  # fmt: skip
            ws.send(body)
            e = json.loads(ws.recv(timeout=20))
            assert (e["type"], e["status"]) == ("error", 400) and words in e["error"]["message"], (body, e)
        ws.send('{"type": "response.processed", "response_id": "resp_1"}')
        assert text_of(ask(ws, input="[[On.]]")) == "On.", "an acknowledgement has no answer"


def test_lanes_are_named_in_their_events(s):
    """`stream_id`: a client of several conversations tells their events apart; errors, too."""
    with ws_of(s) as ws:
        a, b = (ask(ws, input=f"[[{lane}.]]", stream_id=lane) for lane in "ab")
        assert {e["stream_id"] for e in a} == {"a"} and {e["stream_id"] for e in b} == {"b"}
        assert text_of(ask(ws, input="[[More.]]", stream_id="a", previous_response_id=a[-1]["response"]["id"])) == "More."
        bad = ask(ws, stream_id="b")[-1]
        assert (bad["type"], bad["stream_id"]) == ("error", "b")
        assert all("stream_id" not in e for e in ask(ws, input="[[c]]"))


def test_steering_is_refused_with_its_input(s):
    with ws_of(s) as ws:
        ws.send(json.dumps({"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop!"}))
        e = openai.types.responses.ResponseSteerFailedEvent.model_validate(json.loads(ws.recv(timeout=20)), strict=True)
        assert e.error.code == "steering_not_supported" and (e.steer.input, e.steer.previous_response_id) == ("Stop!", "resp_1")


def test_a_conversation_updates_its_configuration(s):
    """`configuration_update`, an item: an effort and a format for what follows, until the next one."""
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    update = {"type": "configuration_update", "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}}
    back = {"type": "configuration_update", "text": {"format": {"type": "text"}}}
    with Service(DEMO) as d, ws_of(d) as ws:
        user = {"role": "user", "content": "Once"}
        first = ask(ws, input=[update, user], max_output_tokens=40)
        assert json.loads(text_of(first)) == {"n": 7}
        last = ask(ws, input=[user], previous_response_id=first[-1]["response"]["id"], max_output_tokens=40)
        assert json.loads(text_of(last)) == {"n": 7}, "it stays"
        plain = ask(ws, input=[back, user], previous_response_id=last[-1]["response"]["id"], max_output_tokens=8)
        assert "{" not in text_of(plain)
        r = requests.post(d.url + "/v1/responses", json={"input": [{"type": "configuration_update", "reasoning": {"effort": 5}}, user]})
        assert r.status_code == 400 and "effort" in r.text


def test_requests_are_answered_one_after_the_other(s):
    with ws_of(s) as ws:
        for i in range(40):
            ws.send(json.dumps({"type": "response.create", "input": f"[[Number {i}.]]"}))
        texts = []
        while len(texts) < 40:
            e = json.loads(ws.recv(timeout=60))
            if e["type"] == "response.completed":
                texts.append(text_of([e]))
        assert texts == [f"Number {i}." for i in range(40)]


def test_openais_client(s):
    c = openai.OpenAI(base_url=s.url + "/v1", api_key="-")
    with c.responses.connect() as ws:
        ws.response.create(model="m", input="[[Well.]]", store=False)
        for event in ws:
            if event.type == "response.completed":
                break
        assert event.response.output_text == "Well."


def test_get_is_a_handshake_alone(s):
    r = requests.get(s.url + "/v1/responses")
    assert r.status_code == 405 and r.headers["allow"] == "POST, OPTIONS" and r.json()["error"]["message"]
    with pytest.raises(websockets.InvalidStatus):
        ws_of(s, "/v1/chat/completions")


def test_a_client_that_leaves_ends_its_response():
    with Service(DEMO) as s:
        for leave in (lambda ws: ws.close(), lambda ws: ws.socket.shutdown(socket.SHUT_RDWR)):
            with ws_of(s) as ws:
                ws.send(json.dumps({"type": "response.create", "input": "Once upon a time", "max_output_tokens": 1500}))
                assert json.loads(ws.recv(timeout=20))["type"] == "response.created"
                leave(ws)
        wait_for(lambda: len(re.findall("Dropped.* path=/v1/responses status=200", s.log)) == 2)
        assert s.metric("tgi_request_failure", err="dropped") == 2
        with ws_of(s) as ws:
            assert ask(ws, input="Once", max_output_tokens=4)[-1]["type"] == "response.incomplete"


def test_what_is_too_long_closes_the_connection(s):
    with ws_of(s) as ws:
        ws.send(" " * 3_000_000)
        with pytest.raises(websockets.ConnectionClosedError) as e:
            ws.recv(timeout=20)
        assert e.value.rcvd.code == 1009


def test_keys_and_the_store(tmp_path):
    with Scripted(ECHO, args=["--api-key", "k", "--response-store", str(tmp_path / "kept")]) as s:
        with pytest.raises(websockets.InvalidStatus) as e:
            ws_of(s)
        assert e.value.response.status_code == 401
        key = {"additional_headers": {"Authorization": "Bearer k"}}
        read = lambda r, more="": requests.get(f"{s.url}/v1/responses/{r['id']}{more}", headers=key["additional_headers"])  # noqa: E731
        with ws_of(s, **key) as ws:
            kept = ask(ws, input="[[One.]]")[-1]["response"]
            unkept = ask(ws, input="[[Two.]]", previous_response_id=kept["id"], store=False)[-1]["response"]
            again = ask(ws, input="[[Three.]]", previous_response_id=unkept["id"])[-1]["response"]
            assert read(kept).status_code == read(again).status_code == 200 and read(unkept).status_code == 404
            assert len(read(again, "/input_items").json()["data"]) == 5, "with what was not stored in front of it"
        with ws_of(s, **key) as ws:
            assert text_of(ask(ws, input="[[Four.]]", previous_response_id=again["id"])) == "Four.", "from the store"


def test_the_server_says_goodbye():
    with Scripted(ECHO) as s, ws_of(s) as ws:
        assert text_of(ask(ws, input="[[One.]]")) == "One."
        began = time.monotonic()
        assert s.stop() == 0
        assert time.monotonic() - began < 5
        with pytest.raises(websockets.ConnectionClosed) as e:
            ws.recv(timeout=5)
        assert e.value.rcvd.code == 1001


def test_a_client_that_does_not_read_is_cut_off():
    """More than a megabyte that is unread ends the response; others go on."""
    room = ["--max-total-tokens", "60000", "--max-input-tokens", "30000", "--max-batch-prefill-tokens", "60000"]
    with Scripted(ECHO, {"blocks": 8192}, args=room) as s:
        with ws_of(s, max_queue=4) as ws:
            ws.send(json.dumps({"type": "response.create", "input": "[[" + "abc" * 12000 + "]]"}))
            wait_for(lambda: re.search("Dropped.* path=/v1/responses status=200", s.log), 60)
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    ws.recv(timeout=20)
        wait_for(lambda: Service.metric(s, "kv_blocks", state="used") == 0)
        with ws_of(s) as ws:
            assert text_of(ask(ws, input="[[Well.]]")) == "Well."


@pytest.mark.parametrize("over", ["http", "socket"])
def test_what_events_repeat_of_a_large_request_is_no_slow_client(s, over):
    """Three events hold the request's metadata; two of them come at once."""
    body = {"input": "[[Hi.]]", "store": False, "metadata": {"a": "x" * 1_900_000}}
    if over == "socket":
        with ws_of(s) as ws:
            events = ask(ws, body)
    else:
        r = requests.post(s.url + "/v1/responses", json={**body, "model": "m", "stream": True}, stream=True)
        events = [json.loads(line[6:]) for line in r.iter_lines(1 << 16) if line.startswith(b"data: ")]
    assert text_of(events) == "Hi." and [len(e["response"]["metadata"]["a"]) for e in events if "response" in e] == [1_900_000] * 3


def test_many_connections_at_a_time(s):
    """Each with its own order; those that leave in the middle do not disturb the others."""
    opened = [ws_of(s) for _ in range(40)]
    for i, ws in enumerate(opened):
        ws.__enter__()
        for k in range(3):
            ws.send(json.dumps({"type": "response.create", "input": f"[[Socket {i}, {k}.]]"}))
    for ws in opened[::3]:
        ws.socket.shutdown(socket.SHUT_RDWR)
    for i, ws in enumerate(opened):
        texts = []
        while i % 3 and len(texts) < 3:
            e = json.loads(ws.recv(timeout=60))
            texts += [text_of([e])] if e["type"] == "response.completed" else []
        assert texts == [f"Socket {i}, {k}." for k in range(3)] or i % 3 == 0
        ws.__exit__(None, None, None)
