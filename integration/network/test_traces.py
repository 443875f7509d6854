"""Traces, as a collector sees them."""

import asyncio
import json
import secrets
import socket
import time

import grpc
import pytest
import requests
import websockets
from collector import Collector, attributes
from deep import deep
from serving import DEMO, SLOW, Service, wait_for

BODY = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 5, "ignore_eos": True}}


@pytest.fixture(scope="module")
def c():
    collector = Collector()
    yield collector
    collector.stop()


@pytest.fixture(scope="module")
def s(c, tmp_path_factory):
    model = deep(tmp_path_factory.mktemp("model") / "deep", 60)  # so slow that who leaves was not answered yet
    with Service(model, args=["--otlp-endpoint", c.url, "--otlp-service-name", "tale"]) as service:
        yield service


def parent(sampled=True):
    return secrets.token_hex(16), secrets.token_hex(8), "01" if sampled else "00"


def ask(s, path, body, p, **kw):
    return requests.post(s.url + path, json=body, headers={"traceparent": "00-" + "-".join(p)}, timeout=60 * SLOW, **kw)


def by_name(spans):
    out = {}
    for _, span in spans:
        out.setdefault(span.name, []).append(span)
    return out


def test_a_request_is_a_tree_of_spans(s, c):
    p = parent()
    t0 = time.time_ns()
    r = ask(s, "/generate", {**BODY, "parameters": {**BODY["parameters"], "do_sample": True, "seed": 7, "temperature": 0.5}}, p)
    t1 = time.time_ns()
    spans = c.wait(p[0], 6)
    names = by_name(spans)
    assert sorted(names) == ["POST /generate", "decode", "generate.v3.TextGenerationService/Prefill", "prefill", "queue", "validate"]
    assert all(len(v) == 1 for v in names.values())
    assert {service for service, _ in spans} == {"tale"}
    root = names["POST /generate"][0]
    assert root.parent_span_id.hex() == p[1] and root.kind == 2
    assert r.headers["traceparent"] == f"00-{p[0]}-{root.span_id.hex()}-01"
    a = attributes(root)
    assert a["http.request.method"] == "POST" and a["http.response.status_code"] == 200 and a["url.path"] == "/generate"
    assert a["gen_ai.operation.name"] == "text_completion" and a["gen_ai.request.model"] == a["gen_ai.response.model"]
    assert a["gen_ai.request.max_tokens"] == 5 and a["gen_ai.request.temperature"] == 0.5 and a["gen_ai.request.seed"] == 7
    assert a["gen_ai.usage.input_tokens"] == int(r.headers["x-prompt-tokens"]) and a["gen_ai.usage.output_tokens"] == 5
    assert a["gen_ai.response.finish_reasons"] == ["length"]
    assert [e.name for e in root.events] == ["first_token"]
    assert root.status.code == 0
    parts = [names[n][0] for n in ("validate", "queue", "prefill", "decode")]
    assert all(x.parent_span_id == root.span_id and x.kind == 1 for x in parts)
    assert t0 <= root.start_time_unix_nano and root.end_time_unix_nano <= t1 + 5_000_000_000
    for x, y in zip(parts, parts[1:]):
        assert x.end_time_unix_nano == pytest.approx(y.start_time_unix_nano, abs=100_000)
    first = parts[3].start_time_unix_nano
    assert root.events[0].time_unix_nano == pytest.approx(first, abs=100_000)
    assert a["gen_ai.latency.time_to_first_token"] == pytest.approx((first - root.start_time_unix_nano) / 1e9, abs=1e-3)
    shard = names["generate.v3.TextGenerationService/Prefill"][0]
    assert shard.parent_span_id == parts[2].span_id and shard.kind == 2
    assert attributes(shard)["rpc.method"] == "Prefill" and attributes(shard)["rpc.grpc.status_code"] == 0
    assert parts[2].start_time_unix_nano <= shard.start_time_unix_nano <= shard.end_time_unix_nano
    assert len({x.span_id for _, x in spans}) == 6


def test_tracestate_goes_with_the_context(s, c):
    p = parent()
    state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    headers = {"traceparent": "00-" + "-".join(p), "tracestate": state}
    r = requests.post(s.url + "/generate", json=BODY, headers=headers, timeout=60 * SLOW)
    assert r.headers["tracestate"] == state
    spans = by_name(c.wait(p[0], 6))
    assert {n for n, v in spans.items() if v[0].trace_state == state} == {"POST /generate", "validate", "queue", "prefill", "decode"}
    for wrong in ({**headers, "tracestate": "no list"}, {"tracestate": state}, {**headers, "traceparent": "nonsense"}):
        assert "tracestate" not in requests.post(s.url + "/generate", json=BODY, headers=wrong, timeout=60 * SLOW).headers


def test_a_stream_of_lmtp_is_a_tree_of_spans(s, c):
    state = "congo=t61rcWkgMzE"

    async def body():
        async with websockets.connect(f"ws://127.0.0.1:{s.port}/") as ws:

            async def ask(kind, p, **fields):
                trace = {"traceparent": "00-" + "-".join(p), "tracestate": state}
                await ws.send(f"{kind} " + json.dumps({"stream_id": p[1], "text": "Once upon a time", **trace, **fields}))

            async def ended(p):
                while True:
                    items = json.loads((await ws.recv()).split(" ", 1)[1])
                    if any(i["stream_id"] == p[1] and (i.get("finish_reason") or "error" in i) for i in items):
                        return

            said, scored, refused, left, unheard = (parent() for _ in range(5))
            await ask("GENERATE", said, max_tokens=5, temperature=0.5, seed=7)
            await ended(said)
            await ask("SCORE", scored, scored_text=" there was")
            await ended(scored)
            await ask("GENERATE", refused, max_tokens=5, top_logprobs=5000)
            await ended(refused)
            await ask("GENERATE", unheard[:2] + ("00",), max_tokens=2)
            await ended(unheard)
            await ask("GENERATE", left, max_tokens=1500, logit_bias={"2": -100, "1": -100, "0": -100})
            await ws.recv()
            return said, scored, refused, left, unheard

    said, scored, refused, left, unheard = asyncio.run(body())
    names = by_name(c.wait(said[0], 6))
    parts = ["decode", "generate.v3.TextGenerationService/Prefill", "prefill", "queue", "validate"]
    assert sorted(names) == ["LMTP GENERATE", *parts]
    root = names["LMTP GENERATE"][0]
    a = attributes(root)
    assert root.parent_span_id.hex() == said[1] and root.kind == 2 and root.trace_state == state and root.status.code == 0
    assert a["network.protocol.name"] == "lmtp" and a["llm.request.id"] == json.dumps(said[1])
    assert a["gen_ai.request.max_tokens"] == 5 and a["gen_ai.request.seed"] == 7 and a["gen_ai.usage.output_tokens"] == 5
    assert a["gen_ai.response.finish_reasons"] == ["length"] and [e.name for e in root.events] == ["first_token"]
    assert all(names[n][0].parent_span_id == root.span_id for n in ("validate", "queue", "prefill", "decode"))
    assert names["generate.v3.TextGenerationService/Prefill"][0].parent_span_id == names["prefill"][0].span_id
    names = by_name(c.wait(scored[0], 6))
    assert attributes(names["LMTP SCORE"][0])["gen_ai.usage.output_tokens"] == 0
    ((_, span),) = c.wait(refused[0], 1)
    assert attributes(span)["error.type"] == "validation" and span.status.code == 0 and span.trace_state == state
    names = by_name(c.wait(left[0], 5))
    assert attributes(names["LMTP GENERATE"][0])["error.type"] == "cancelled"
    assert not c.of(unheard[0])


def test_several_answers_errors_and_departures(s, c):
    p = parent()
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2, "max_tokens": 3, "stream": True, "user": "ann"}
    ask(s, "/v1/chat/completions", body, p)
    names = by_name(c.wait(p[0], 10))
    assert len(names["decode"]) == len(names["prefill"]) == 2
    root = attributes(names["POST /v1/chat/completions"][0])
    assert root["gen_ai.operation.name"] == "chat" and root["gen_ai.request.choice.count"] == 2 and root["user.id"] == "ann"
    assert len(root["gen_ai.response.finish_reasons"]) == 2
    assert {attributes(x)["llm.choice.index"] for x in names["decode"]} == {0, 1}

    p = parent()
    assert ask(s, "/generate", {"inputs": ""}, p).status_code == 422
    ((_, span),) = c.wait(p[0], 1)
    assert attributes(span)["error.type"] == "422" and span.status.code == 0, "a client's fault is no error of the server's"

    p = parent()
    k = socket.create_connection(("127.0.0.1", s.port))
    data = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 1500, "ignore_eos": True}})
    k.sendall(
        f"POST /generate HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{'-'.join(p)}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n{data}".encode()
    )
    end = time.monotonic() + 20 * SLOW
    while not s.metric("tgi_batch_current_size") and time.monotonic() < end:
        time.sleep(0.01)
    k.close()
    names = by_name(c.wait(p[0], 5))
    a = attributes(names["POST /generate"][0])
    assert a["error.type"] == "client_left" and a["http.response.status_code"] == 499 and "prefill" in names


def test_who_decides_what_is_recorded(s, c):
    p = parent(sampled=False)
    r = ask(s, "/generate", BODY, p)
    assert r.headers["traceparent"].startswith(f"00-{p[0]}-") and r.headers["traceparent"].endswith("-00")
    fresh = requests.post(s.url + "/generate", json=BODY, headers={"traceparent": "nonsense"}, timeout=60).headers["traceparent"]
    assert len(c.wait(fresh.split("-")[1], 6)) == 6
    assert not c.of(p[0])
    before = len(c.spans)
    for path in ("/health", "/metrics", "/livez"):
        assert "traceparent" not in requests.get(s.url + path, timeout=10).headers
    time.sleep(0.6)
    assert len(c.spans) == before
    assert s.metric("otlp_spans", fate="sent") >= 6 and not s.metric("otlp_spans", fate="dropped")


def test_a_collector_that_is_away_costs_nothing_and_is_found_again():
    c = Collector()
    port = c.port
    c.stop()
    with Service(DEMO, args=["--otlp-endpoint", f"127.0.0.1:{port}"]) as s:
        t = time.monotonic()
        ids = [ask(s, "/generate", BODY, p := parent()) and p[0] for _ in range(20)]
        assert time.monotonic() - t < 10 * SLOW
        s.wait_log("traces cannot be sent")
        c = Collector(port)
        try:
            assert len(c.wait(ids[-1], 6)) == 6
            s.wait_log("again")
        finally:
            c.stop()


def test_what_the_collector_refuses_is_counted():
    c = Collector(status=grpc.StatusCode.INVALID_ARGUMENT)
    try:
        with Service(DEMO, args=["--otlp-endpoint", c.url]) as s:
            ask(s, "/generate", BODY, parent())
            wait_for(lambda: s.metric("otlp_spans", fate="lost") == 5, 30)
            c.status, c.reject = None, 2
            ask(s, "/generate", BODY, parent())
            wait_for(lambda: s.metric("otlp_spans", fate="lost") == 7 and s.metric("otlp_spans", fate="sent") == 3, 30)
    finally:
        c.stop()


def test_a_frozen_collector_does_not_hold_up_requests_or_the_end():
    c = Collector(delay=100)
    with Service(DEMO, args=["--otlp-endpoint", c.url]) as s:
        t = time.monotonic()
        for _ in range(30):
            assert ask(s, "/generate", BODY, parent()).status_code == 200
        assert time.monotonic() - t < 50 * SLOW
        t = time.monotonic()
        s.stop()
        assert time.monotonic() - t < 50 * SLOW
    c.stop()
