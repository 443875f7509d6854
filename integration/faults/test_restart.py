"""Shards that are killed during requests: they are restarted, and every answer is unchanged."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import threading
import time

import pytest
import requests
import websockets
from deep import deep, other_weights
from serving import SLOW, Service, wait_for, seed_for

ONCE = "Once upon a time"
SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 12}}, "required": ["names"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Slow enough that a test finds its requests still running."""
    return deep(tmp_path_factory.mktemp("restart") / "deep", 20)


def generate(text, **p):
    return "/generate_stream", {"inputs": text, "parameters": {"max_new_tokens": 150, "ignore_eos": True, "details": True, "top_n_tokens": 2, **p}}


def work():
    """Whatever a shard remembers of a request: sampling, penalties, masks, stops, counts, half a prompt."""
    sampled = {"do_sample": True, "temperature": 1.2}
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    return [
        generate(ONCE),
        generate("The cat", seed=7, **sampled),
        generate("A boy", seed=8, repetition_penalty=1.3, frequency_penalty=0.4, top_k=20, **sampled),
        generate("She said", seed=9, typical_p=0.8, watermark=True, stop=["no such words"], **sampled),
        generate("One day " * 300, decoder_input_details=False),
        ("/v1/chat/completions", {**chat, "max_tokens": 300, "temperature": 1.5, "seed": 4, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
        ("/v1/chat/completions", {**chat, "max_tokens": 120, "n": 2, "seed": 5, "temperature": 1, "logprobs": True, "top_logprobs": 2, "ignore_eos": True}),
        ("/v1/completions", {"model": "m", "prompt": ONCE, "stream": True, "max_tokens": 150, "min_tokens": 140, "seed": 3, "logit_bias": {"5": 3}, "temperature": 1, "presence_penalty": 1}),
    ]


def said(event):
    """Without what no two answers have in common. A cache that died has no prompt."""
    if isinstance(event, dict):
        return {k: said(v) for k, v in event.items() if k not in ("id", "created", "cached_tokens", "prompt_tokens_details")}
    return [said(v) for v in event] if isinstance(event, list) else event


def by_choice(events):
    """The choices of `n` come in any order beside each other; each in its own."""
    out = {}
    for e in events:
        choices = e.get("choices") if isinstance(e, dict) else None
        out.setdefault(choices[0]["index"] if choices else None, []).append(said(e))
    return out


def together(s, n=1):
    """Every piece of work n times at once; the answers as lists of events, and a number of those that have begun."""
    begun = []

    def one(w):
        events = s.events(*w)
        out = [next(events)]
        begun.append(1)
        return by_choice(out + list(events))

    pool = concurrent.futures.ThreadPoolExecutor(64)
    return [pool.submit(one, w) for w in work() * n], begun


def kill(s, which=-1):
    p = s.shards()[which]
    os.kill(p, signal.SIGKILL)


@pytest.mark.parametrize("num_shard,more", [(1, []), (2, []), (1, ["--speculate", 4])])
def test_every_stream_goes_on_as_if_nothing_had_happened(model, num_shard, more):
    with Service(model, num_shard=num_shard, args=["--max-batch-size", 12, *more]) as s:
        want = [f.result() for f in together(s)[0]]
        asked, begun = together(s, 2)  # more than the batch holds: some wait
        wait_for(lambda: len(begun) >= 8, 60)
        kill(s)
        # and one that arrives while no shard runs
        late = s.post("/generate", {"inputs": ONCE, "parameters": {"max_new_tokens": 150, "ignore_eos": True}}).json()
        got = [f.result() for f in asked]
        assert got == want * 2
        assert re.search(r"shards lost.*running=[1-9]", s.log), "no request ran at that moment"
        assert late["generated_text"] == want[0][None][-1]["generated_text"]
        assert s.metric("tgi_shard_returns") == 1
        assert requests.get(s.url + "/health", timeout=10).status_code == 200
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
        assert s.log.count("Starting Webserver") == 1 and len(s.shards()) == num_shard


def test_a_websocket_stays_open(model):
    async def ask(ws):
        await ws.send("GENERATE " + json.dumps({"text": ONCE, "max_tokens": 150, "temperature": 1.0, "seed": 6, "stream_id": 1}))

    async def items(ws, n=1000):
        out = []
        while len(out) < n and not (out and out[-1].get("finish_reason")):
            out += json.loads((await ws.recv()).split(" ", 1)[1])
        return out

    async def body(s):
        async with websockets.connect(f"ws://127.0.0.1:{s.port}/", max_size=None) as ws:
            await ask(ws)
            want = await items(ws)
            assert len(want) > 30
            await ask(ws)
            first = await items(ws, 10)
            kill(s)
            assert first + await items(ws) == want

    with Service(model) as s:
        asyncio.run(asyncio.wait_for(body(s), 120 * SLOW))
        wait_for(lambda: s.metric("tgi_shard_returns") == 1, 60)


def test_whoever_kills_twice_ends_and_nobody_else_does(model):
    with Service(model) as s:
        long = {"inputs": ONCE, "parameters": {"max_new_tokens": 1900, "ignore_eos": True}}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            events = s.events("/generate_stream", long)
            for n in (1, 2):
                next(events)
                other = pool.submit(s.post, *generate("The cat", max_new_tokens=600)) if n == 2 else None
                if other:
                    wait_for(lambda: s.metric("tgi_batch_current_size") == 2)
                kill(s)
                wait_for(lambda: s.metric("tgi_shard_returns") == n, 60)
            last = list(events)[-1]
            assert last["error_type"] == "generation" and "Could not connect" in last["error"]
            assert other.result().status_code == 200 and "error" not in other.result().text
        assert s.post("/generate", {"inputs": ONCE, "parameters": {"max_new_tokens": 3}}).status_code == 200


@pytest.mark.parametrize("num_shard", [1, 2])
def test_a_storm_of_kills(model, num_shard):
    """Whatever they interrupt, also coming back: an answer is the right one, or an error."""
    with Service(model, num_shard=num_shard, args=["--max-shard-restarts", 1000, "--max-batch-size", 8]) as s:
        asks = [generate(t, max_new_tokens=60, do_sample=True, seed=i)[1] for i, t in enumerate([ONCE, "The cat", "A boy", "One day " * 200])]
        want = [s.post("/generate", a).json()["generated_text"] for a in asks]
        over = threading.Event()

        def client(i):
            good = bad = 0
            while not over.is_set() or not good:
                r = s.post("/generate", asks[i % 4])
                if r.status_code == 200:
                    assert r.json()["generated_text"] == want[i % 4]
                    good += 1
                else:
                    assert r.status_code == 424 and r.json()["error_type"] == "generation", r.text
                    bad += 1
            return good, bad

        rng = random.Random(seed_for(num_shard))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            clients = [pool.submit(client, i) for i in range(16)]
            for _ in range(8):
                time.sleep(rng.random())  # anywhere: while they serve, die, load or warm up
                there = s.shards()
                if there:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rng.choice(there), signal.SIGKILL)
            over.set()
            counts = [c.result() for c in clients]
        assert sum(good for good, _ in counts) >= 16
        # the last one may have died when no stream needed it any more
        wait_for(lambda: requests.get(s.url + "/health", timeout=10).status_code == 200, 60)
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
        wait_for(lambda: s.audit()["scheduler"]["known"] == 0)
        assert s.audit()["requests"] == {"live": 0, "permits_held": 0, "permits": 128}


@pytest.mark.parametrize("num_shard", [1, 2])
def test_a_shard_that_serves_before_the_launcher_knows_it_is_started_again(model, num_shard):
    """The router finds the shards by itself. A launcher that got no time meanwhile, as on a busy machine, sees the end of the probes and that
    of a shard together, and had taken it for a shard that cannot start."""
    with Service(model, num_shard, ready=False) as s:
        wait_for(lambda: len(s.shards()) == num_shard)
        os.kill(s.p.pid, signal.SIGSTOP)
        try:
            s.wait_ready()
            want = list(s.events(*generate(ONCE)))
            events = s.events(*generate(ONCE))
            got = [next(events)]
            os.kill(s.shards()[-1], signal.SIGSEGV)
        finally:
            os.kill(s.p.pid, signal.SIGCONT)
        got += events
        assert [said(e) for e in got] == [said(e) for e in want], s.log
        assert s.metric("tgi_shard_returns") == 1


def probes(s):
    """pids of the health probes that go on."""
    out = []
    for pid in s.children():
        with contextlib.suppress(OSError):
            if b"health" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                out.append(pid)
    return out


def test_so_is_one_of_a_replica(model):
    """No slot of the start-up board says so: the launcher takes the ends of probes before those of shards."""
    with Service(model, args=["--replicas", 2], ready=False) as s:
        wait_for(lambda: len(probes(s)) + s.log.count("launcher: Replica ready") == 2)
        os.kill(s.p.pid, signal.SIGSTOP)
        try:
            s.wait_ready()
            wait_for(lambda: not probes(s))
            want = list(s.events(*generate(ONCE)))
            for pid in s.shards():
                os.kill(pid, signal.SIGSEGV)
            wait_for(lambda: not s.shards())
        finally:
            os.kill(s.p.pid, signal.SIGCONT)
        wait_for(lambda: s.log.count("launcher: Replica ready") == 4, 60)
        assert [said(e) for e in s.events(*generate(ONCE))] == [said(e) for e in want]
        assert "Replica failed" not in s.log


def test_too_many_deaths_end_the_service(model):
    s = Service(model, args=["--max-shard-restarts", 1])
    try:
        kill(s)
        wait_for(lambda: s.metric("tgi_shard_returns") == 1, 60)
        events = s.events("/generate_stream", {"inputs": ONCE, "parameters": {"max_new_tokens": 1900, "ignore_eos": True}})
        next(events)
        kill(s)
        assert list(events)[-1]["error_type"] == "generation"
        assert s.p.wait(30 * SLOW) == 128 + signal.SIGKILL
        assert "Shard failed: rank 0 was killed by signal 9" in s.log.strip().splitlines()[-1]
    finally:
        s.stop()


@pytest.mark.parametrize("same", [True, False])
def test_a_folder_that_was_replaced_meanwhile_continues_no_stream_with_other_weights(model, tmp_path, same):
    """Copied anew, the files are the same model; with other weights of the same shape they are another one."""
    served = tmp_path / "served"
    shutil.copytree(model, served)
    s = Service(served)
    try:
        want = [said(e) for e in s.events(*generate(ONCE))]
        events = s.events(*generate(ONCE))
        got = [next(events)]
        served.rename(tmp_path / "old")
        if same:
            shutil.copytree(model, served, copy_function=shutil.copyfile)  # with other times
        else:
            other_weights(model, served)
        kill(s)
        got += events
        if same:
            assert [said(e) for e in got] == want
            assert s.stop() == 0
        else:
            assert got[-1]["error_type"] == "generation" and "another model came back" in got[-1]["error"]
            assert s.p.wait(30 * SLOW) == 1
    finally:
        s.stop()


def test_sigterm_does_not_wait_for_them(model):
    s = Service(model)
    try:
        events = s.events("/generate_stream", {"inputs": ONCE, "parameters": {"max_new_tokens": 1900, "ignore_eos": True}})
        next(events)
        kill(s)
        s.wait_log("Restarting the shards")
        t = time.monotonic()
        s.p.send_signal(signal.SIGTERM)
        rest = list(events)
        # either it was too late for the signal to find the process, or it got the signal, and the exit code says so
        lost = rest[-1].get("error_type") == "generation"
        assert lost or rest[-1].get("generated_text")
        assert s.p.wait(30 * SLOW) == lost and time.monotonic() - t < 20 * SLOW
    finally:
        s.stop()
