"""--response-store: conversations continued by id; responses that are read, listed, deleted and computed in the background; crashes and full
disks."""

import concurrent.futures
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import time

import openai
import pytest
import requests
from deep import deep
from serving import BIN, DEMO, SLOW, Scripted, Service, strict, wait_for
from tool_talk import CALL, TEMPLATE, WEATHER


def client_of(s, key="-"):
    return openai.OpenAI(base_url=s.url + "/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "tokenizer_config.json"
    path.write_text(json.dumps({"chat_template": TEMPLATE}))
    return ["--tokenizer-config-path", path]


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Slow enough that a test finds its requests still running."""
    return deep(tmp_path_factory.mktemp("store") / "deep", 60)


@pytest.fixture(scope="module")
def s(tmp_path_factory, template):
    folder = tmp_path_factory.mktemp("store") / "kept"
    with Service(DEMO, args=["--response-store", folder, *template]) as service:
        service.kept = folder
        yield service


FEW = dict(model="m", max_output_tokens=8, temperature=0)


def text_of(r):
    return "".join(p.text for o in r.output if o.type == "message" for p in o.content)


def test_what_was_answered_can_be_read(s):
    c = client_of(s)
    made = c.responses.create(input="Once upon a time", instructions="Be kind.", metadata={"a": "b"}, **FEW)
    assert made.id.startswith("resp_") and made.store and made.previous_response_id is None and not made.background
    assert strict(c.responses.retrieve(made.id)) == made
    streamed = list(c.responses.create(input="Once", stream=True, **FEW))[-1].response
    assert c.responses.retrieve(streamed.id) == streamed
    (item,) = c.responses.input_items.list(made.id).data
    assert item.role == "user" and item.content[0].text == "Once upon a time" and item.id
    assert c.responses.delete(made.id) is None
    for ask in (c.responses.retrieve, c.responses.delete, c.responses.cancel, c.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as e:
            ask(made.id)
        assert f"Response with id '{made.id}' not found." in str(e.value) and e.value.code == "not_found"
    unkept = c.responses.create(input="Once", store=False, **FEW)
    assert unkept.store is False
    with pytest.raises(openai.NotFoundError):
        c.responses.retrieve(unkept.id)
    assert (s.kept / "responses.sqlite").stat().st_mode & 0o777 == 0o600 and s.kept.stat().st_mode & 0o777 == 0o700
    r = requests.put(s.url + "/v1/responses/x", timeout=30)
    assert r.status_code == 405 and {"GET", "DELETE"} <= set(r.headers["allow"].split(", "))
    assert requests.get(s.url + "/v1/responses/x/y", timeout=30).status_code == 404


def test_a_conversation_goes_on_by_its_id(s):
    """The prompt is the one of a client that sends everything each time."""
    c = client_of(s)
    turns = ["Tell me of a cat.", [{"role": "user", "content": "And a dog?"}], "Go on.", [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "The end?"}]}]]
    last, whole = None, []
    for turn in turns:
        r = c.responses.create(input=turn, previous_response_id=last and last.id, **FEW)
        whole += [{"role": "user", "content": turn}] if isinstance(turn, str) else turn
        sent = c.responses.create(input=whole, store=False, **FEW)
        assert text_of(r) == text_of(sent) and r.usage.input_tokens == sent.usage.input_tokens
        assert r.previous_response_id == (last and last.id)
        whole += [o.model_dump(exclude_none=True) for o in r.output]
        last = r
    assert last.usage.input_tokens > 60
    items = c.responses.input_items.list(last.id, order="asc", limit=100).data
    assert [i.role for i in items] == ["user", "assistant"] * 3 + ["user"] and items[2].content[0].text == "And a dog?"
    assert len({i.id for i in items}) == len(items)
    for order, want in ("asc", items), ("desc", items[::-1]):
        paged = list(c.responses.input_items.list(last.id, limit=2, order=order))  # the SDK asks for page after page
        assert [i.id for i in paged] == [i.id for i in want]
    with pytest.raises(openai.BadRequestError, match="`limit` must be"):
        c.responses.input_items.list(last.id, limit=1000)
    # a branch from the middle, and what follows one that is gone
    branch = c.responses.create(input="Another way.", previous_response_id=r.previous_response_id, **FEW)
    c.responses.delete(r.previous_response_id)
    for gone in (branch.id, "resp_none", "x" * 200):
        with pytest.raises(openai.BadRequestError) as e:
            c.responses.create(input="x", previous_response_id=gone, **FEW)
        assert e.value.param == "previous_response_id" and "not found" in str(e.value)
        assert e.value.code == "previous_response_not_found"
    branch = c.responses.create(input="Hello.", **FEW)
    more = c.responses.create(input="x", previous_response_id=branch.id, **FEW)
    for how, want in ({"input": whole[:-1]}, last), ({"input": "x", "previous_response_id": branch.id}, more):
        counted = requests.post(s.url + "/v1/responses/input_tokens", json=how, timeout=30).json()
        assert counted["input_tokens"] == want.usage.input_tokens


def test_calls_and_reasoning_are_part_of_it(tmp_path):
    tools = [{"type": "function", "name": "get_weather", "parameters": WEATHER}]
    with Scripted(TEMPLATE, args=["--response-store", tmp_path / "kept"]) as s:
        c = client_of(s)
        asked = c.responses.create(model="m", input=f"[[<think>Hm.</think>I look.\n{CALL}]]", tools=tools)
        assert [o.type for o in asked.output] == ["reasoning", "message", "function_call"]
        answer = {"type": "function_call_output", "call_id": asked.output[2].call_id, "output": "[[Rain.]]"}
        r = c.responses.create(model="m", input=[answer], previous_response_id=asked.id, tools=tools)
        whole = [{"role": "user", "content": f"[[<think>Hm.</think>I look.\n{CALL}]]"}, *[o.model_dump(exclude_none=True) for o in asked.output], answer]
        sent = c.responses.create(model="m", input=whole, tools=tools, store=False)
        assert text_of(r) == text_of(sent) != "" and r.usage.input_tokens == sent.usage.input_tokens
        listed = c.responses.input_items.list(r.id, order="asc").data
        assert [i.type for i in listed] == ["message", "reasoning", "message", "function_call", "function_call_output"]


def test_what_cannot_be_asked_for(s):
    c = client_of(s)
    with pytest.raises(openai.BadRequestError, match="`background` needs `store`"):
        c.responses.create(input="x", background=True, store=False, **FEW)
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        c.responses.cancel(c.responses.create(input="x", **FEW).id)
    with Service(DEMO) as bare:
        c = client_of(bare)
        assert c.responses.create(input="x", store=True, **FEW).store is False
        for more in ({"background": True}, {"previous_response_id": "x"}):
            with pytest.raises(openai.BadRequestError, match="nothing is stored"):
                c.responses.create(input="x", **more, **FEW)
        with pytest.raises(openai.NotFoundError, match="--response-store"):
            c.responses.retrieve("x")


def test_each_key_has_its_own(tmp_path, template):
    keys = tmp_path / "keys"
    keys.write_text("first ann\nsecond bob\n")
    args = ["--response-store", tmp_path / "kept", "--api-key-file", keys, *template]
    with Service(DEMO, args=args) as s:
        ann, bob = client_of(s, "first"), client_of(s, "second")
        made = ann.responses.create(input="Once", **FEW)
        assert ann.responses.retrieve(made.id) == made
        for ask in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel, bob.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                ask(made.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            bob.responses.create(input="x", previous_response_id=made.id, **FEW)
        with pytest.raises(openai.AuthenticationError):
            client_of(s, "third").responses.retrieve(made.id)
    keys.write_text("second ann\nfirst bob\n")  # names are not what it goes by
    with Service(DEMO, args=args) as s:
        assert client_of(s, "first").responses.retrieve(made.id) == made
        with pytest.raises(openai.NotFoundError):
            client_of(s, "second").responses.retrieve(made.id)


def test_in_the_background(slow, tmp_path, template):
    long = dict(model="m", input="Once", max_output_tokens=100, temperature=0, extra_body={"ignore_eos": True})
    s = Service(slow, args=["--response-store", tmp_path / "kept", *template])
    try:
        c = client_of(s)
        want = c.responses.create(**long)
        r = c.responses.create(background=True, **long)
        assert r.status == "queued" and r.background and r.output == [] and r.usage is None
        assert c.responses.retrieve(r.id).status == "in_progress"
        with pytest.raises(openai.BadRequestError, match="still in progress"):
            c.responses.create(input="x", previous_response_id=r.id, model="m")
        wait_for(lambda: c.responses.retrieve(r.id).status == "incomplete", 60)
        done = c.responses.retrieve(r.id)
        assert text_of(done) == text_of(want) and done.usage.output_tokens == 100
        assert c.responses.cancel(r.id) == done  # too late: as it is
        # one that is cancelled stays so, and holds nothing
        r = c.responses.create(background=True, **long)
        wait_for(lambda: s.audit()["requests"]["permits_held"] == 1)
        assert c.responses.cancel(r.id).status == "cancelled" and c.responses.cancel(r.id).status == "cancelled"
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.audit()["requests"]["live"] == 0)
        assert c.responses.retrieve(r.id).status == "cancelled"
        # one that is deleted does not come back
        r = c.responses.create(background=True, **long)
        c.responses.delete(r.id)
        wait_for(lambda: s.audit()["requests"]["live"] == 0)
        with pytest.raises(openai.NotFoundError):
            c.responses.retrieve(r.id)
        # not even if the client leaves before the answer
        r = c.responses.create(background=True, **long)
        with socket.create_connection(("127.0.0.1", s.port)) as gone:
            gone.sendall(f"DELETE /v1/responses/{r.id} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_for(lambda: s.audit()["requests"]["live"] == 0)
        with pytest.raises(openai.NotFoundError):
            c.responses.retrieve(r.id)
        r = c.responses.create(background=True, **long)
        with socket.create_connection(("127.0.0.1", s.port)) as gone:
            gone.sendall(f"POST /v1/responses/{r.id}/cancel HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_for(lambda: s.audit()["requests"]["live"] == 0)
        assert c.responses.retrieve(r.id).status == "cancelled"
        # a stream whose client leaves goes on
        events = c.responses.create(background=True, stream=True, **long)
        id = next(iter(events)).response.id
        events.close()
        wait_for(lambda: c.responses.retrieve(id).status == "incomplete", 60)
        assert text_of(c.responses.retrieve(id)) == text_of(want)
        # many at once, half of them cancelled
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            ids = [f.result().id for f in [pool.submit(c.responses.create, background=True, **long) for _ in range(12)]]
            list(pool.map(c.responses.cancel, ids[::2]))
        wait_for(lambda: s.audit()["requests"]["live"] == 0, 120)
        states = [c.responses.retrieve(i) for i in ids]
        assert [r.status for r in states] == ["cancelled", "incomplete"] * 6
        assert {text_of(r) for r in states[1::2]} == {text_of(want)}
        # shards that end: it goes on; a router that ends: it has failed, and what was whole is there
        r = c.responses.create(background=True, **long)
        wait_for(lambda: s.audit()["requests"]["permits_held"] == 1)
        os.kill(s.shards()[0], signal.SIGKILL)
        wait_for(lambda: c.responses.retrieve(r.id).status == "incomplete", 60)
        assert text_of(c.responses.retrieve(r.id)) == text_of(want)
        lost = c.responses.create(background=True, **long)
        c.responses.retrieve(lost.id)  # it is in the file
        (router,) = [p for p in s.children() if os.readlink(f"/proc/{p}/exe").endswith("/router")]
        os.kill(router, signal.SIGKILL)
        s.p.wait(60)
    finally:
        s.stop(signal.SIGKILL)
    with Service(slow, args=["--response-store", tmp_path / "kept", *template]) as s:
        c = client_of(s)
        assert c.responses.retrieve(r.id).status == "incomplete"
        lost = c.responses.retrieve(lost.id)
        assert lost.status == "failed" and "restarted" in lost.error.message


def test_a_kill_leaves_whole_responses(tmp_path, template):
    """Written over and over while the router is killed: each that was read before is there afterwards."""
    args = ["--response-store", tmp_path / "kept", *template]
    seen = {}
    for _ in range(3):
        s = Service(DEMO, args=args)
        c = client_of(s)
        for id, r in seen.items():
            assert c.responses.retrieve(id) == r

        def ask(i, c=c):
            for k in range(50):
                r = c.responses.create(input=f"{i} {k}", **FEW)
                assert c.responses.retrieve(r.id) == r  # it is in the file now
                seen[r.id] = r

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(ask, i) for i in range(6)]
            n = len(seen)
            wait_for(lambda n=n: len(seen) >= n + 20, 60)
            for p in s.children():
                if os.readlink(f"/proc/{p}/exe").endswith("/router"):
                    os.kill(p, signal.SIGKILL)
            assert any(f.exception() for f in asked)
        s.p.wait(60)
    db = sqlite3.connect(tmp_path / "kept/responses.sqlite")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM responses").fetchone()[0] >= len(seen) >= 60


def test_bounds(tmp_path, template):
    args = ["--response-store", tmp_path / "kept", "--response-store-count", 5, "--response-store-ttl", 3 * SLOW, *template]
    with Service(DEMO, args=args) as s:
        c = client_of(s)
        made = [c.responses.create(input=f"{i}", **FEW).id for i in range(9)]
        there = [i for i in made if requests.get(f"{s.url}/v1/responses/{i}", timeout=30).status_code == 200]
        assert there == made[4:]
        time.sleep(4.1 * SLOW)
        assert requests.get(f"{s.url}/v1/responses/{made[-1]}", timeout=30).status_code == 404
        c.responses.create(input="x", **FEW)
    assert sqlite3.connect(tmp_path / "kept/responses.sqlite").execute("SELECT count(*) FROM responses").fetchone() == (1,)
    with Service(DEMO, args=["--response-store", tmp_path / "small", "--response-store-bytes", 20000, *template]) as s:
        c = client_of(s)
        first = c.responses.create(input="first", **FEW)
        for _ in range(30):
            last = c.responses.create(input="word " * 40, **FEW)
        assert c.responses.retrieve(last.id) == last
        with pytest.raises(openai.NotFoundError):
            c.responses.retrieve(first.id)
        big = c.responses.create(input=[{"role": "user", "content": "x"}], metadata={"k": "y" * 30000}, **FEW)
        assert big.status and requests.get(f"{s.url}/v1/responses/{big.id}", timeout=30).status_code == 404
        assert "a response was not stored" in s.log and c.responses.retrieve(last.id) == last
    rows = sqlite3.connect(tmp_path / "small/responses.sqlite").execute("SELECT sum(bytes) FROM responses").fetchone()[0]
    assert 10000 < rows <= 20000 and (tmp_path / "small/responses.sqlite").stat().st_size < 100000


def test_a_full_disk_costs_no_answer(tmp_path, template, monkeypatch):
    """Files may not grow any more: as on a full disk, writes fail and reads do not."""
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: popen(*a, preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN), **k))
    with Service(DEMO, args=["--response-store", tmp_path / "kept", *template]) as s:
        c = client_of(s)
        made = c.responses.create(input="Once", **FEW)
        assert c.responses.retrieve(made.id) == made
        (router,) = [p for p in s.children() if os.readlink(f"/proc/{p}/exe").endswith("/router")]
        logged = s.log_path.stat().st_size
        resource.prlimit(router, resource.RLIMIT_FSIZE, (max(logged, 65536) + 4096, resource.RLIM_INFINITY))
        text = "word " * 300
        answers = [c.responses.create(input="Once", metadata={"k": text}, **FEW) for _ in range(60)]
        assert {text_of(r) for r in answers} == {text_of(made)}
        with pytest.raises(openai.InternalServerError, match="cannot be stored"):
            c.responses.create(input="Once", background=True, metadata={"k": text}, **FEW)
        gone = [r for r in answers if requests.get(f"{s.url}/v1/responses/{r.id}", timeout=30).status_code == 404]
        assert gone and c.responses.retrieve(made.id) == made
        resource.prlimit(router, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(lambda: "a response was not stored" in s.log)
        again = c.responses.create(input="Once", **FEW)  # there is room again
        assert c.responses.retrieve(again.id) == again


def test_folders_that_are_of_no_use(tmp_path, s):
    (tmp_path / "text").mkdir()
    (tmp_path / "text/responses.sqlite").write_text("this is no database, and long enough to be read as one " * 40)
    (tmp_path / "newer").mkdir()
    with sqlite3.connect(tmp_path / "newer/responses.sqlite") as db:
        db.execute("PRAGMA user_version = 7")
    (tmp_path / "file").write_text("")
    for folder, words, code in ((tmp_path / "text", "not a database", 1), (tmp_path / "newer", "another version", 78), (tmp_path / "file", "Not a directory", 66), (s.kept, "locked", 1)):
        r = subprocess.run([BIN / "router", "--tokenizer-name", DEMO, "--port", "0", "--response-store", folder], capture_output=True, text=True, timeout=60)
        assert r.returncode == code and words in r.stderr, (r.returncode, r.stderr)
