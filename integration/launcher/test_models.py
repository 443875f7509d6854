"""Models on demand: one launch, several shard groups, by HTTP's `model` and by LMTP's."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import socket
import threading

import pytest
import requests
import websockets
from deep import deep
from serving import DEMO, SLOW, Service, wait_for

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four names of the demo model: one has no weights, one has many layers and takes its time."""
    top = tmp_path_factory.mktemp("models")
    (top / "one").symlink_to(DEMO)
    deep(top / "slow", 24)
    (top / "org").mkdir()
    (top / "org" / "two").symlink_to(DEMO)
    (top / "broken").mkdir()
    for f in DEMO.iterdir():
        if f.suffix == ".json" or f.suffix == ".jinja":
            (top / "broken" / f.name).symlink_to(f)
    (top / "no-model").mkdir()
    return top


def service(folder, *args):
    return Service(DEMO, args=["--models-folder", folder, "--kv-cache-memory", "5e7", "--threads", 1, *args])


def complete(s, model, **kw):
    return s.post("/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 20, "temperature": 0, **kw})


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120 * SLOW))


def connect(s):
    return websockets.connect(f"ws://127.0.0.1:{s.port}/", max_size=None)


async def ask(ws, kind, **fields):
    await ws.send(kind + " " + json.dumps(fields))


async def until_end(ws, stream_id):
    """All items of one stream, MSGs too."""
    out = []
    while True:
        kind, items = (await ws.recv()).split(" ", 1)
        for i in json.loads(items):
            if i["stream_id"] == stream_id:
                out.append((kind, i))
                if "error" in i or i.get("finish_reason"):
                    return out


def test_the_name_decides_who_answers(folder):
    with service(folder) as s:
        first = s.shards()
        listed = [m["id"] for m in requests.get(s.url + "/v1/models").json()["data"]]
        assert sorted(listed[1:]) == ["broken", "one", "org/two", "slow"]
        want = complete(s, "tgi").json()["choices"][0]["text"]
        assert len(s.shards()) == 1  # no request named another

        r = complete(s, "one")
        assert r.status_code == 200, r.text
        assert r.json()["model"] == "one" and r.json()["choices"][0]["text"] == want
        one = set(s.shards()) - set(first)
        assert len(one) == 1
        assert complete(s, "one").json()["choices"][0]["text"] == want
        assert set(s.shards()) - set(first) == one  # nothing was loaded for the second time

        # a second one takes its place, and the first of all stays
        r = complete(s, "org/two")
        assert r.status_code == 200 and r.json()["model"] == "org/two" and r.json()["choices"][0]["text"] == want
        assert set(first) < set(s.shards()) and len(s.shards()) == 2 and not one & set(s.shards())
        assert complete(s, str(DEMO)).json()["choices"][0]["text"] == want

        chat = {"model": "org/two", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
        assert s.post("/v1/chat/completions", chat).json()["model"] == "org/two"
        for name in ("three", "../models/one", "no-model", ".", "one/", "/etc"):
            r = complete(s, name)
            assert r.status_code == 404 and "does not exist" in r.text, (name, r.text)
        r = complete(s, "broken")
        assert r.status_code in (424, 500), r.text
        assert "cannot be loaded" in r.text
        assert complete(s, "one").status_code == 200  # and its place is free again


def test_a_folder_that_is_mounted_later(folder, tmp_path):
    with service(tmp_path / "later") as s:
        assert "the folder of --models-folder cannot be read" in s.log and complete(s, "one").status_code == 404
        (tmp_path / "later").symlink_to(folder)
        assert complete(s, "one").status_code == 200


def test_lmtp_loads_and_says_so(folder):
    async def body(s):
        async with connect(s) as ws:
            await ask(ws, "MODEL_INFO", model="org/two", stream_id=1)
            info = json.loads((await ws.recv()).split(" ", 1)[1])[0]
            assert info["model_info"]["loaded"] is False
            await ask(ws, "GENERATE", model="org/two", text=PROMPT, max_tokens=10, status=True, stream_id=2)
            await ask(ws, "GENERATE", text=PROMPT, max_tokens=10, stream_id=3)  # overtakes it
            here = await until_end(ws, 3)
            there = await until_end(ws, 2)
            told = [i for kind, i in there if kind == "MSG"]
            # the first of them came while stream 3 was read, or there is another one a second later
            assert all(i["status"] == "loading" for i in told)
            tokens = [i["token"] for kind, i in there if kind == "TOKEN"]
            assert tokens == [i["token"] for kind, i in here if kind == "TOKEN"] and len(tokens) == 10
            await ask(ws, "MODEL_INFO", model="org/two", stream_id=4)
            info = json.loads((await ws.recv()).split(" ", 1)[1])[0]
            assert info["model_info"]["vocab_size"] > 0

            # what ends while it waits
            await ask(ws, "GENERATE", model="one", prompt=[1], stream_id=5, status=True, timeout=0.001)
            assert (await until_end(ws, 5))[-1][1]["error"] == "lmtp.timeout"
            await ask(ws, "GENERATE", model="nothing", prompt=[1], stream_id=6)
            assert "nothing" in (await until_end(ws, 6))[-1][1]["error"]
            await ask(ws, "GENERATE", model="broken", prompt=[1], stream_id=7)
            assert "cannot be loaded" in (await until_end(ws, 7))[-1][1]["error"]
            await ask(ws, "GENERATE", model="org/two", prompt=[1], max_tokens=1900, logit_bias={"1": -100}, stream_id=8)
            await ask(ws, "CANCEL", stream_id=9, data={"stream_id": 8})
            assert (await until_end(ws, 8))[-1][1]["error"] == "lmtp.cancelled"

    with service(folder) as s:
        run(body(s))


def test_a_group_that_dies_takes_nobody_with_it(folder):
    with service(folder, "--max-loaded-models", 2) as s:
        first = set(s.shards())
        want = complete(s, "slow").json()["choices"][0]["text"]
        mine = set(s.shards()) - first
        assert complete(s, "org/two").status_code == 200
        body = {"model": "slow", "prompt": PROMPT, "stream": True, "ignore_eos": True, "max_tokens": 300}
        plain = socket.create_connection(("127.0.0.1", s.port), timeout=20 * SLOW)  # which has sent when this returns
        text = json.dumps(body | {"stream": False})
        plain.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        events = s.events("/v1/completions", body)
        next(events)
        for p in mine:
            os.kill(p, signal.SIGKILL)
        assert complete(s, "tgi").json()["choices"][0]["text"] == want
        assert complete(s, "org/two").json()["choices"][0]["text"] == want
        # and what ran on it goes on with its successors
        assert not any("error" in e for e in list(events))
        status = plain.makefile("rb").readline()
        assert int(status.split()[1]) == 200, status
        plain.close()
        assert complete(s, "slow").json()["choices"][0]["text"] == want
        assert len(s.shards()) == 3 and not mine & set(s.shards())


def loading(s, word, but=(), seconds=30):
    """The shard of a group that loads, found as soon as its process runs the program; another one than `but`."""
    found = []

    def look():
        for pid in set(s.shards()) - set(but):
            with contextlib.suppress(OSError):
                if word.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    wait_for(look, seconds)
    return found[0]


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_shard_that_is_lost_while_it_loads_costs_no_request(folder, fault):
    """The load is tried once more; the request that waits is served by it. After a second loss it is told why."""
    with service(folder) as s, concurrent.futures.ThreadPoolExecutor() as pool:
        want = complete(s, "tgi").json()["choices"][0]["text"]
        waits = pool.submit(complete, s, "slow")
        first = loading(s, "shard-m0")
        os.kill(first, fault)
        r = waits.result()
        assert "Model ready" not in s.log.split("Restarting the shards")[0], "it was not loading any more"
        assert r.status_code == 200 and r.json()["choices"][0]["text"] == want, r.text
        assert s.log.count("Restarting the shards") == 1 and first not in s.shards()

        waits = pool.submit(complete, s, "org/two")  # takes its place
        killed = []
        for _ in range(2):
            killed.append(loading(s, "org/two", killed))
            os.kill(killed[-1], signal.SIGKILL)
        r = waits.result()
        assert r.status_code == 500 and "cannot be loaded" in r.text and "signal 9" in r.text, r.text
        assert complete(s, "org/two").status_code == 200


def test_a_shard_that_is_lost_when_it_is_ready_costs_no_request(folder):
    """Between the launcher's word and the end of the router's warm-up."""
    with service(folder) as s, concurrent.futures.ThreadPoolExecutor() as pool:
        for name in ("slow", "one", "slow"):
            ready = s.log.count("Model ready")
            waits = pool.submit(complete, s, name)
            wait_for(lambda ready=ready: s.log.count("Model ready") > ready, 30)
            os.kill(max(s.shards()), signal.SIGKILL)
            assert waits.result().status_code == 200, waits.result().text
    with service(folder, "--max-shard-restarts", 0) as s, concurrent.futures.ThreadPoolExecutor() as pool:
        waits = pool.submit(complete, s, "slow")
        wait_for(lambda: "Model ready" in s.log, 30)
        os.kill(max(s.shards()), signal.SIGKILL)
        assert waits.result().status_code in (200, 424, 500)  # at once, not when --shard-connect-timeout is over
        wait_for(lambda: complete(s, "slow").status_code == 200, 30)


def test_a_group_that_dies_too_often_is_loaded_by_the_next_request(folder):
    with service(folder, "--max-shard-restarts", 0) as s:
        want = complete(s, "slow").json()["choices"][0]["text"]
        body = {"model": "slow", "prompt": PROMPT, "stream": True, "ignore_eos": True, "max_tokens": 1900}
        events = s.events("/v1/completions", body)
        next(events)
        os.kill(max(s.shards()), signal.SIGKILL)
        assert any("error" in e for e in list(events))
        wait_for(lambda: complete(s, "slow").status_code == 200, 30)  # when its end is known
        assert complete(s, "slow").json()["choices"][0]["text"] == want


def test_a_model_in_use_is_not_unloaded(folder):
    with service(folder) as s:
        body = {"model": "slow", "prompt": PROMPT, "stream": True, "ignore_eos": True, "max_tokens": 600}
        events = s.events("/v1/completions", body)
        next(events)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            other = pool.submit(complete, s, "org/two")
            rest = []
            for e in events:
                rest.append(e)
                assert len(rest) % 50 or len(s.shards()) <= 2  # the one that stays, and one
            assert rest[-2]["choices"][0]["finish_reason"] == "length" and rest[-1] == "[DONE]", rest[-2:]
            assert other.result().status_code == 200


def test_sigterm_ends_waiting(folder):
    s = service(folder)
    try:
        results = []
        t = threading.Thread(target=lambda: results.append(complete(s, "one")))
        t.start()
        s.wait_log("Loading model")
        s.p.send_signal(signal.SIGTERM)
        t.join(20 * SLOW)
        assert results and results[0].status_code in (200, 503), results[0].text
    finally:
        assert s.stop() == 0
    assert not [p for p in os.listdir(s.folder) if p.startswith("shard-m0")]
