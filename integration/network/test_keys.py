"""Permits are shared among API keys: a key that floods the server does not cause refusals for other keys."""

import contextlib
import json
import threading

import pytest
import requests
from deep import deep
from serving import DEMO, SLOW, Service, wait_for

PERMITS = 6
BUSY = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def s(tmp_path_factory):
    model = deep(tmp_path_factory.mktemp("keys") / "deep", 40)  # long answers take longer than these tests
    with Service(model, env={"API_KEY": "ka,kb,kc"}, args=["--max-concurrent-requests", PERMITS]) as service:
        yield service


def key(name, header="Authorization"):
    return {header: f"Bearer {name}" if header.lower() == "authorization" else name}


def permits(s):
    return requests.get(s.url + "/debug/audit", headers=key("ka"), timeout=20 * SLOW).json()["requests"]["permits_held"]


@contextlib.contextmanager
def streams(s, headers, n, path="/v1/completions"):
    """n answers that have begun and go on: their first events were read. Their permits are back when this is over."""
    before = permits(s)
    held = []  # an iterator that is dropped closes its connection
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            r = requests.post(s.url + path, json=BUSY, headers=headers, stream=True, timeout=60 * SLOW)
            stack.callback(r.close)
            assert r.status_code == 200, r.text
            lines = r.iter_lines()
            held.append(lines)
            while not next(lines).startswith(b"data:"):
                pass
        yield
    wait_for(lambda: permits(s) <= before, 60)  # a client that leaves is noticed, then its step ends


def status(s, headers, n=1):
    body = {"prompt": "x", "max_tokens": 1, "n": n}
    return requests.post(s.url + "/v1/completions", json=body, headers=headers, timeout=60 * SLOW).status_code


def test_a_key_alone_has_all_permits(s):
    with streams(s, key("ka"), PERMITS):
        assert status(s, key("ka")) == 429


def test_others_are_not_refused_within_their_share(s):
    with streams(s, key("ka"), PERMITS):
        with streams(s, key("kb"), PERMITS // 2):
            assert status(s, key("kb")) == 429
            with streams(s, key("kc"), PERMITS // 3):
                assert status(s, key("kc")) == 429
            assert status(s, key("kc"), n=2) == 200
        assert status(s, key("kb"), n=PERMITS // 2) == 200
        assert status(s, key("kb"), n=PERMITS) == 200  # three at a time


def test_a_key_is_one_however_it_is_sent(s):
    with streams(s, key("ka"), PERMITS):
        for headers in (key("ka", "x-api-key"), {"authorization": "bEaReR ka"}, {**key("ka"), "x-gateway-inference-fairness-id": "other"}):
            assert status(s, headers) == 429


def test_googles_clients_read_when_to_try_again(s):
    """Gemini CLI takes the time from the error's details. The header it does not read."""
    with streams(s, key("ka"), PERMITS):
        r = s.post("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "x"}]}]}, headers=key("ka", "x-goog-api-key"))
    (detail,) = r.json()["error"]["details"]
    assert r.status_code == 429 and r.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert detail["@type"].endswith("/google.rpc.RetryInfo") and detail["retryDelay"] == r.headers["retry-after"] + "s"


def test_a_permit_is_back_before_its_answer_is():
    """Who asks again when he has read the answer finds the permit that he had."""
    with Service(DEMO, args=["--max-concurrent-requests", 1]) as one, requests.Session() as session:
        for path in ("/generate", "/v1/completions", "/generate_stream"):
            body = {"inputs": "x", "parameters": {"max_new_tokens": 1}} if "generate" in path else {"prompt": "x", "max_tokens": 1}
            got = [session.post(one.url + path, json=body, timeout=60 * SLOW) for _ in range(60)]
            assert {r.status_code for r in got} == {200} and not any("overloaded" in r.text for r in got), path


def test_a_flood_refuses_nobody_else(s):
    stop, got = threading.Event(), []

    def flood():
        with requests.Session() as session:
            while not stop.is_set():
                r = session.post(s.url + "/v1/completions", json={**BUSY, "max_tokens": 20}, headers=key("ka"), timeout=120 * SLOW)
                got.append((r.status_code, json.loads(r.text)["error"]["code"] if r.status_code != 200 else None))

    threads = [threading.Thread(target=flood) for _ in range(4 * PERMITS)]
    for t in threads:
        t.start()
    try:
        others = [status(s, key("kb")) for _ in range(20)]
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert others == [200] * 20
    assert {code for code, _ in got} == {200, 429}
