"""The access log: exactly one line for each request, whatever its outcome, with numbers that agree with the answer."""

import json
import socket
import time

import pytest
import requests
from deep import deep
from serving import DEMO, SLOW, Service

KEYS = "sk-first\nsk-second  the night shift\n"
BODY = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 5, "ignore_eos": True}}


@pytest.fixture(scope="module")
def s(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEYS)
    model = deep(tmp_path_factory.mktemp("model") / "deep", 60)  # so slow that who leaves was not answered yet
    with Service(model, args=["--json-output", "--log-level", "debug", "--api-key-file", keys]) as service:
        yield service
    assert "sk-" not in service.log, "a key in the log"


def lines(s):
    out = []
    for text in s.log.splitlines():
        line = json.loads(text)  # every line of a log with --json-output is JSON
        if line["target"] == "router" and "request_id" in line["fields"]:
            out.append({"level": line["level"], **line["fields"]})
    return out


def line_of(s, id):
    """The one line of a request; waits a little, to see a second one too."""
    end = time.monotonic() + 20 * SLOW
    while not [x for x in lines(s) if x["request_id"] == id] and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.1)
    found = [x for x in lines(s) if x["request_id"] == id]
    assert len(found) == 1, found
    return found[0]


def head(id, key="sk-second", **more):
    return {"x-request-id": id, "authorization": f"Bearer {key}", **more}


def ask(s, path, body, id, **more):
    return requests.post(s.url + path, json=body, headers=head(id, **more), timeout=60 * SLOW)


def test_a_generation(s):
    r = ask(s, "/generate", {**BODY, "parameters": {**BODY["parameters"], "do_sample": True, "seed": 2**64 - 1}}, "gen-1")
    x = line_of(s, "gen-1")
    assert (x["message"], x["level"], x["method"], x["path"], x["status"]) == ("Success", "INFO", "POST", "/generate", 200)
    assert x["key"] == "the night shift" and x["model"] and x["seed"] == str(2**64 - 1)
    assert x["input_tokens"] == int(r.headers["x-prompt-tokens"]) and x["generated_tokens"] == 5
    assert x["finish_reason"] == "length" and "error" not in x
    for field, header in [("queue", "x-queue-time"), ("inference", "x-inference-time")]:
        assert abs(x[f"{field}_time"] * 1000 - int(r.headers[header])) < 2
    assert x["total_time"] * 1000 > int(r.headers["x-total-time"]) - 2  # with the time that it took to send it
    assert 0 < x["first_token_time"] <= x["total_time"] and x["validation_time"] + x["queue_time"] <= x["first_token_time"]
    assert x["time_per_token"] == pytest.approx(x["inference_time"] / 5, rel=1e-3)
    assert "inputs" not in json.dumps(x) and "Once" not in json.dumps(x)


def test_a_stream_with_a_user_and_several_answers(s):
    body = {"model": "m", "prompt": "Once", "max_tokens": 4, "n": 2, "user": "ann", "stream": True, "ignore_eos": True}
    r = ask(s, "/v1/completions", body, "sse-1", key="sk-first")
    assert r.status_code == 200 and r.text.endswith("data: [DONE]\n\n")
    x = line_of(s, "sse-1")
    assert (x["message"], x["user"], x["key"], x["generations"], x["generated_tokens"]) == ("Success", "ann", "key-1", 2, 8)
    one = line_of_prompt(s, "Once")
    assert x["input_tokens"] == one, "the prompt that both share was sent once"


def line_of_prompt(s, text):
    return len(requests.post(s.url + "/tokenize", json={"inputs": text}, headers=head("tok"), timeout=30).json())


@pytest.mark.parametrize(
    "method,path,kw,status,part",
    [
        ("GET", "/no/such/path", {}, 404, "no such path"),
        ("DELETE", "/generate", {}, 405, "method"),
        ("BREW", "/generate", {}, 405, "method"),
        ("POST", "/generate", {"key": "wrong", "json": BODY}, 401, "API key"),
        ("POST", "/generate", {"data": b"x"}, 415, "Content-Type"),
        ("POST", "/generate", {"data": b"{", "headers": {"content-type": "application/json"}}, 400, "parse"),
        ("POST", "/generate", {"json": {"inputs": ""}}, 422, "empty"),
        ("POST", "/v1/completions", {"json": {"model": "m", "prompt": "x", "n": 999}}, 400, "`n`"),
        ("POST", "/generate", {"data": b"x" * 3_000_000, "headers": {"content-type": "application/json"}}, 413, "length"),
        ("POST", "/tokenize", {"json": {"inputs": "a"}}, 200, None),
        ("GET", "/info", {}, 200, None),
        ("OPTIONS", "/generate", {}, 200, None),
    ],
)
def test_what_is_refused_and_what_generates_nothing(s, method, path, kw, status, part):
    id = f"one-{method}-{path.strip('/').replace('/', '-')}-{status}"
    headers = {**head(id, kw.pop("key", "sk-first")), **kw.pop("headers", {})}
    assert requests.request(method, s.url + path, headers=headers, timeout=30, **kw).status_code == status
    x = line_of(s, id)
    assert (x["method"], x["path"], x["status"]) == (method, path, status) and x["level"] == "INFO"
    assert x["message"] == ("Failed" if part else "Success")
    assert (part or "") in x.get("error", "") and x["total_time"] >= 0


def test_probes_are_written_at_debug(s):
    for path in ("/health", "/livez", "/startupz", "/metrics"):
        id = f"probe-{path[1:]}"
        requests.get(s.url + path, headers=head(id), timeout=30)
        assert line_of(s, id)["level"] == "DEBUG"


def test_clients_that_leave(s):
    for path, status in (("/generate", 499), ("/generate_stream", 200)):
        body = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 1500, "ignore_eos": True}})
        c = socket.create_connection(("127.0.0.1", s.port))
        id = "left" + path.replace("/", "-")
        c.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-first\r\nx-request-id: {id}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        end = time.monotonic() + 20 * SLOW
        while not s.metric("tgi_batch_current_size") and time.monotonic() < end:
            time.sleep(0.01)
        c.close()
        x = line_of(s, id)
        assert (x["message"], x["level"], x["status"]) == ("Dropped", "INFO", status)
        assert x["generated_tokens"] < 1500 and "finish_reason" not in x


def test_a_path_cannot_forge_a_line(s):
    id = "forge"
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(f"GET /x%0a%22%7b{'y' * 600}%c3%a9 HTTP/1.1\r\nHost: x\r\nx-request-id: {id}\r\n\r\n".encode())
    assert b" 404 " in c.recv(1000)
    c.close()
    x = line_of(s, id)
    assert x["path"].startswith('/x\n"{yyy') and len(x["path"]) < 300


def test_text_lines_quote_what_clients_sent():
    with Service(DEMO) as s:
        requests.get(s.url + "/a%0ab%20c=d", headers={"x-request-id": "quoted"}, timeout=30)
        s.wait_log("request_id=quoted")
        line = next(x for x in s.log.splitlines() if "request_id=quoted" in x)
        assert ' path="/a\\nb c=d" status=404 ' in line and " Failed" in line
