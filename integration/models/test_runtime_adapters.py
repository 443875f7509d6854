"""LoRA adapters that are loaded and unloaded while the server runs: on all ranks or none, through losses of shards, beside requests."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import threading
import time

import grpc
import openai
import pytest
import requests
from deep import deep
from serving import DEMO, SLOW, Service, free_port, wait_for
from shard import stubs
from test_adapters import PROMPTS, ask, make_adapter
from test_replicas import Router, Shard, ready, replicas, series


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    return {name: make_adapter(root / name, seed) for name, seed in (("red", 1), ("blue", 2), ("green", 3))}


def load(s, name, path, **kw):
    return s.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)}, **kw)


def unload(s, name, **kw):
    return s.post("/v1/unload_lora_adapter", {"lora_name": name}, **kw)


def names(s):
    return [m["id"] for m in requests.get(s.url + "/v1/models", timeout=30).json()["data"]][1:]


def done(r, what):
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/plain"), r.text
    assert r.text == f"Success: LoRA adapter {what} successfully."


def refused(r, status, words):
    assert r.status_code == status, r.text
    error = r.json()["error"]
    assert words in error["message"] and error["type"] == "invalid_request_error", error


def on_target(target, rpc, /, **fields):
    """Behind the router's back."""
    pb = stubs()
    with grpc.insecure_channel(target) as channel:
        return channel.unary_unary(
            f"/generate.v3.TextGenerationService/{rpc}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=getattr(pb, rpc + "Response").FromString,
        )(getattr(pb, rpc + "Request")(**fields), timeout=60 * SLOW)


def on_rank(s, rank, rpc, **fields):
    return on_target(f"unix:{s.folder}/shard-{rank}", rpc, **fields)


def listed(s, rank):
    return [a.name for a in on_rank(s, rank, "Info").adapters]


@pytest.fixture(scope="module")
def want(made):
    flag = ",".join(f"{name}={folder}" for name, folder in made.items())
    with Service(DEMO, args=["--lora-adapters", flag]) as s:
        return {(p, a): ask(s, p, a) for p in PROMPTS for a in (None, *made)}


def test_adapters_come_and_go(made, want):
    prompt = PROMPTS[0]
    with Service(DEMO, num_shard=2, args=["--lora-adapters", f"red={made['red']}", "--max-runtime-adapters", 2]) as s:
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="-")
        assert names(s) == ["red"]
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="blue", prompt=prompt)
        done(load(s, "blue", made["blue"]), "'blue' added")
        assert names(s) == ["red", "blue"] and client.models.retrieve("blue").id == "blue"
        assert [listed(s, r) for r in (0, 1)] == [["red", "blue"]] * 2
        for name in (None, "red", "blue"):
            assert ask(s, prompt, name) == want[prompt, name]
        r = client.completions.create(model="blue", prompt=prompt, max_tokens=24, temperature=0, extra_body={"ignore_eos": True, "return_token_ids": True})
        assert r.choices[0].token_ids == want[prompt, "blue"]
        refused(load(s, "blue", made["green"]), 400, "The lora adapter 'blue' has already been loaded.")
        refused(load(s, "", made["green"]), 400, "Both 'lora_name' and 'lora_path' must be provided.")
        refused(s.post("/v1/load_lora_adapter", {"lora_name": "x"}), 400, "must be provided")
        refused(load(s, "tgi", made["green"]), 400, "the model itself")
        refused(load(s, "x", made["green"].parent), 400, "adapter_config.json")
        refused(load(s, "x", made["green"] / "none"), 404, "no such folder")
        refused(unload(s, "x"), 404, "The lora adapter 'x' cannot be found.")
        done(unload(s, "red"), "'red' removed")  # also one that was there from the start
        assert names(s) == ["blue"] and listed(s, 1) == ["blue"]
        # every protocol says so in its own shape
        with pytest.raises(openai.NotFoundError) as e:
            client.chat.completions.create(model="red", messages=[{"role": "user", "content": "Hi"}])
        assert e.value.code == "model_not_found"
        r = s.post("/v1/messages", {"model": "red", "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]})
        assert r.status_code == 404 and r.json()["error"]["type"] == "not_found_error"
        r = s.post("/generate", {"inputs": "x", "parameters": {"adapter_id": "red"}})
        assert r.status_code == 422 and "there is no adapter `red`" in r.json()["error"]
        # a name means what was loaded last, also for prompts that are in the cache
        done(load(s, "red", made["green"]), "'red' added")
        assert ask(s, prompt, "red") == want[prompt, "green"] and ask(s, prompt, "red") == want[prompt, "green"]
        assert ask(s, prompt) == want[prompt, None]
        done(load(s, "third", made["red"]), "'third' added")
        refused(load(s, "fourth", made["red"]), 400, "no place")
        assert names(s) == ["blue", "red", "third"]


def test_all_ranks_or_none(made, want):
    prompt = PROMPTS[1]
    with Service(DEMO, num_shard=2, args=["--max-runtime-adapters", 2]) as s:
        # rank 1 has one of that name already: rank 0 takes back what it did, and the next try works
        on_rank(s, 1, "LoadAdapter", name="blue", path=str(made["red"]))
        refused(load(s, "blue", made["blue"]), 400, "loaded already")
        assert names(s) == [] and [listed(s, r) for r in (0, 1)] == [[], []]
        done(load(s, "blue", made["blue"]), "'blue' added")
        assert ask(s, prompt, "blue") == want[prompt, "blue"]
        # rank 1 has no room
        on_rank(s, 1, "LoadAdapter", name="other", path=str(made["red"]))
        refused(load(s, "green", made["green"]), 400, "no place")
        assert names(s) == ["blue"] and listed(s, 0) == ["blue"]
        # rank 1 has lost it: it is gone on both, as was asked
        on_rank(s, 1, "UnloadAdapter", name="blue")
        done(unload(s, "blue"), "'blue' removed")
        assert listed(s, 0) == [] and ask(s, prompt) == want[prompt, None]


def test_shards_that_come_back_have_them_again(made, want):
    prompt = PROMPTS[2]
    with Service(DEMO, num_shard=2, args=["--lora-adapters", f"red={made['red']},old={made['blue']}", "--max-runtime-adapters", 3]) as s:
        done(load(s, "blue", made["blue"]), "'blue' added")
        done(load(s, "lost", made["green"]), "'lost' added")
        done(unload(s, "red"), "'red' removed")
        done(load(s, "red", made["green"]), "'red' added")
        (made["green"].parent / "moved").symlink_to(made["green"])
        done(load(s, "moved", made["green"].parent / "moved"), "'moved' added")
        (made["green"].parent / "moved").unlink()
        done(unload(s, "lost"), "'lost' removed")
        for returns in (1, 2):
            os.kill(s.shards()[-1], signal.SIGKILL)
            assert ask(s, prompt, "blue") == want[prompt, "blue"]  # waits for them
            assert s.metric("tgi_shard_returns") == returns
            assert sorted(names(s)) == ["blue", "old", "red"]  # what cannot be loaded any more is not served
            assert [sorted(listed(s, r)) for r in (0, 1)] == [["blue", "old", "red"]] * 2
            for name, same in ((None, None), ("old", "blue"), ("red", "green"), ("blue", "blue")):
                assert ask(s, prompt, name) == want[prompt, same]
        assert "an adapter could not be reloaded" in s.log
        done(unload(s, "blue"), "'blue' removed")
        done(load(s, "blue", made["green"]), "'blue' added")
        assert ask(s, prompt, "blue") == want[prompt, "green"]


@pytest.mark.parametrize("args", [[], ["--max-runtime-adapters", 1]])
def test_an_adapter_that_is_gone_ends_its_own_requests_alone(made, want, tmp_path, args):
    """Its folder is removed while the service runs, and the shards are lost."""
    gone = make_adapter(tmp_path / "gone", 4, rank=64)  # the longest rows: pages are smaller without it
    flag = f"gone={gone},red={made['red']}"
    long = {"prompt": PROMPTS[0], "max_tokens": 1500, "stream": True, "ignore_eos": True, "temperature": 0}
    with Service(DEMO, num_shard=2, args=["--lora-adapters", flag, *args]) as s, concurrent.futures.ThreadPoolExecutor(2) as pool:
        red = list(s.events("/v1/completions", {**long, "model": "red"}))
        shutil.rmtree(gone)
        begun = [threading.Event(), threading.Event()]

        def stream(model, event):
            got = []
            for e in s.events("/v1/completions", {**long, "model": model}):
                event.set()
                got.append(e)
            return got

        kept, lost = (pool.submit(stream, *x) for x in zip(("red", "gone"), begun))
        assert all(e.wait(60) for e in begun)
        os.kill(s.shards()[0], signal.SIGKILL)
        texts = [[e["choices"][0]["text"] for e in events if e != "[DONE]"] for events in (red, kept.result())]
        assert texts[0] == texts[1]
        assert lost.result()[-2]["error"]["type"] and lost.result()[-1] == "[DONE]"
        assert names(s) == ["red"] and [listed(s, r) for r in (0, 1)] == [["red"]] * 2
        assert ask(s, PROMPTS[1], "red") == want[PROMPTS[1], "red"] and ask(s, PROMPTS[1]) == want[PROMPTS[1], None]
        refused = s.post("/v1/completions", {"model": "gone", "prompt": "x"})
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
        assert s.post("/generate", {"inputs": "x", "parameters": {"adapter_id": "gone"}}).status_code == 422
        assert s.log.count("an adapter is missing and is not served") == 2 and str(gone) in s.log  # on both ranks
        make_adapter(gone, 2)  # another one in its place
        s.kill_shard()
        assert ask(s, PROMPTS[2], "red") == want[PROMPTS[2], "red"]
        if args:  # who may load adapters does
            done(load(s, "gone", gone), "'gone' added")
        assert ask(s, PROMPTS[2], "gone") == want[PROMPTS[2], "blue"]
        assert sorted(names(s)) == ["gone", "red"]


@pytest.mark.parametrize("how", ["at the start", "at the start, others may come", "while it runs"])
def test_an_adapter_that_was_replaced_continues_no_stream(made, tmp_path, how):
    """Other files are in its folder when the shards come back."""
    folder = make_adapter(tmp_path / "it", 1)
    args = [] if how == "while it runs" else ["--lora-adapters", f"it={folder}"]
    args += [] if how == "at the start" else ["--max-runtime-adapters", 1]
    s = Service(deep(tmp_path / "deep", 60), num_shard=2, args=args)
    try:
        if how == "while it runs":
            done(load(s, "it", folder), "'it' added")
        events = s.events("/v1/completions", {"model": "it", "prompt": PROMPTS[0], "max_tokens": 300, "stream": True, "ignore_eos": True})
        next(events)
        shutil.rmtree(folder)
        make_adapter(folder, 2)
        os.kill(s.shards()[0], signal.SIGKILL)
        end = [e for e in events if e != "[DONE]"][-1]
        assert end["error"]["type"], end
        s.wait_log("files were replaced")  # the launcher writes what the router says a moment later
        wait_for(lambda: names(s) == [])
        assert s.post("/v1/completions", {"model": "it", "prompt": "x"}).status_code == 404
    finally:
        s.stop()


def test_unloading_waits_for_those_who_use_it(made, tmp_path):
    model = deep(tmp_path / "deep", 60)
    config = json.loads((DEMO / "config.json").read_text())
    long = {"model": "blue", "prompt": PROMPTS[0], "max_tokens": 150, "stream": True, "ignore_eos": True, "temperature": 0}
    assert config["num_hidden_layers"] < 60  # the adapter changes the first layers alone
    with Service(model, num_shard=2, args=["--max-runtime-adapters", 2, "--max-batch-size", 2]) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        done(load(s, "blue", made["blue"]), "'blue' added")
        alone = "".join(e["choices"][0]["text"] for e in s.events("/v1/completions", long) if e != "[DONE]")
        begun = threading.Event()

        def stream():
            text = ""
            for e in s.events("/v1/completions", long):
                begun.set()
                text += e["choices"][0]["text"] if e != "[DONE]" else ""
            return text

        asked = [pool.submit(stream) for _ in range(3)]  # the third one waits for a place
        assert begun.wait(60)
        wait_for(lambda: s.metric("tgi_queue_size") == 1)
        gone = pool.submit(unload, s, "blue")
        wait_for(lambda: names(s) == [])
        refused(s.post("/v1/completions", {**long, "stream": False}), 404, "blue")
        refused(load(s, "blue", made["green"]), 400, "is being unloaded")
        done(load(s, "green", made["green"]), "'green' added")  # others do not wait
        assert not gone.done() and not asked[2].done()
        assert [f.result() for f in asked] == [alone] * 3
        done(gone.result(), "'blue' removed")
        # shards that are killed meanwhile, and a client that leaves before its answer
        done(load(s, "blue", made["blue"]), "'blue' added")
        begun.clear()
        last = pool.submit(stream)
        assert begun.wait(60)
        shards = s.shards()
        os.kill(shards[1], signal.SIGSTOP)  # the answer does not end before the client leaves
        with pytest.raises(requests.Timeout):
            requests.post(s.url + "/v1/unload_lora_adapter", json={"lora_name": "blue"}, timeout=0.3)
        os.kill(shards[0], signal.SIGKILL)
        os.kill(shards[1], signal.SIGCONT)
        assert last.result() == alone
        wait_for(lambda: listed(s, 0) == ["green"] and listed(s, 1) == ["green"], 30)
        assert names(s) == ["green"]


def test_many_at_once_beside_requests(made, want):
    """Loads, unloads and requests side by side: each request is answered as its adapter does, or refused."""
    prompt = PROMPTS[0]
    with Service(DEMO, num_shard=2, args=["--max-runtime-adapters", 8]) as s, concurrent.futures.ThreadPoolExecutor(16) as pool:

        def use(k, allowed):
            r = s.post("/v1/completions", {"model": f"a{k}", "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
            assert r.status_code in allowed, r.text
            if r.status_code == 200:
                assert r.json()["choices"][0]["token_ids"] == want[prompt, "blue"]

        def churn(k):
            for _ in range(6):
                assert load(s, f"a{k}", made["blue"]).status_code == 200
                use(k, (200,))
                assert unload(s, f"a{k}").status_code == 200
                use(k, (404,))

        work = [pool.submit(churn, k) for k in range(4)] + [pool.submit(use, i % 4, (200, 404)) for i in range(100)]
        for f in work:
            f.result()
        assert names(s) == [] and listed(s, 0) == [] and listed(s, 1) == []
        s.audit()


@contextlib.contextmanager
def two_replicas(model, *args):
    """With at most two adapters at run time."""
    with Service(model, args=["--replicas", 2, "--threads", 1, "--max-runtime-adapters", 2, "--replica-policy", "round-robin", *args]) as s:
        wait_for(lambda: ready(s) == 2, 60)
        yield s


def targets(s):
    """Of the groups of shards."""
    return sorted(r["name"] for r in replicas(s))


def everywhere(s):
    """What each group lists behind the router's back."""
    return [[a.name for a in on_target(t, "Info").adapters] for t in targets(s)]


def asked_of_both(s, want, prompt, name):
    """Enough at once that both groups get some."""
    before = series(s, "replica_requests_total")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda _: ask(s, prompt, name), range(12))) == [want] * 12
    now = series(s, "replica_requests_total")
    assert all(now[r] > before[r] for r in now), (before, now)


def test_replicas_have_the_same_adapters(made, want):
    """Loaded and unloaded on all of them, or on none."""
    prompt = PROMPTS[0]
    with two_replicas(DEMO, "--lora-adapters", f"red={made['red']}") as s:
        assert names(s) == ["red"]
        done(load(s, "blue", made["blue"]), "'blue' added")
        assert names(s) == ["red", "blue"] and everywhere(s) == [["red", "blue"]] * 2
        for name in (None, "red", "blue"):
            asked_of_both(s, want[prompt, name], prompt, name)
        refused(load(s, "blue", made["green"]), 400, "The lora adapter 'blue' has already been loaded.")
        refused(load(s, "x", made["green"] / "none"), 404, "no such folder")
        refused(unload(s, "x"), 404, "The lora adapter 'x' cannot be found.")
        # one group has no place for it: the other one gives it back
        on_target(targets(s)[1], "LoadAdapter", name="secret", path=str(made["red"]))
        refused(load(s, "green", made["green"]), 400, "no place")
        assert names(s) == ["red", "blue"] and everywhere(s) == [["red", "blue"], ["red", "blue", "secret"]]
        on_target(targets(s)[1], "UnloadAdapter", name="secret")
        done(unload(s, "red"), "'red' removed")
        assert names(s) == ["blue"] and everywhere(s) == [["blue"]] * 2
        refused(s.post("/v1/completions", {"model": "red", "prompt": "x"}), 404, "red")
        done(load(s, "red", made["green"]), "'red' added")
        asked_of_both(s, want[prompt, "green"], prompt, "red")


def test_a_replica_that_comes_back_has_what_changed_meanwhile(made, want):
    prompt = PROMPTS[1]
    with two_replicas(DEMO) as s:
        done(load(s, "blue", made["blue"]), "'blue' added")
        done(load(s, "red", made["red"]), "'red' added")
        gone = s.shards()[0]
        os.kill(gone, signal.SIGSTOP)  # its loss is noticed by the launcher, or by the router
        wait_for(lambda: ready(s) == 1, 60)
        done(unload(s, "red"), "'red' removed")
        done(load(s, "green", made["green"]), "'green' added")
        wait_for(lambda: ready(s) == 2, 60)
        assert gone not in s.shards()
        assert names(s) == ["blue", "green"] and everywhere(s) == [["blue", "green"]] * 2
        for name in ("blue", "green"):
            asked_of_both(s, want[prompt, name], prompt, name)


def test_replicas_that_are_lost_beside_changes(made, want):
    """Changes, requests, and a group that is killed again and again: each is answered as its adapter does, or refused."""
    prompt = PROMPTS[0]
    with two_replicas(DEMO) as s, concurrent.futures.ThreadPoolExecutor(12) as pool:
        stop = threading.Event()

        def use(k):
            n = 0
            while not stop.is_set():
                r = s.post("/v1/completions", {"model": f"a{k}", "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
                assert r.status_code in (200, 404), r.text
                if r.status_code == 200:
                    assert r.json()["choices"][0]["token_ids"] == want[prompt, "blue"]
                    n += 1
            return n

        def churn(k):
            for _ in range(8):
                r = load(s, f"a{k}", made["blue"])
                assert r.status_code == 200, r.text
                r = unload(s, f"a{k}")
                assert r.status_code == 200, r.text

        users = [pool.submit(use, i % 2) for i in range(6)]
        work = [pool.submit(churn, k) for k in range(2)]
        try:
            for _ in range(3):
                wait_for(lambda: ready(s) == 2, 60)
                os.kill(s.shards()[0], signal.SIGKILL)
                time.sleep(0.5)
            for w in work:
                w.result()
        finally:
            stop.set()
        assert sum(u.result() for u in users) > 0
        wait_for(lambda: ready(s) == 2, 60)
        assert names(s) == []
        done(load(s, "blue", made["blue"]), "'blue' added")
        assert everywhere(s) == [["blue"]] * 2


def test_another_router_finds_what_was_loaded(made, want):
    """It does not know the path: a replica without the adapter waits until it is unloaded."""
    ports = [free_port(), free_port()]
    some = ["--max-runtime-adapters", 2]
    shards = [Shard(DEMO, p, *some) for p in ports]
    args = ["--replica-address", ",".join(f"127.0.0.1:{p}" for p in ports), "--shard-return-timeout", 60]
    try:
        r = Router(DEMO, *args)
        wait_for(lambda: ready(r) == 2, 60)
        done(load(r, "blue", made["blue"]), "'blue' added")
        r.stop(signal.SIGKILL)
        shards[1].stop(signal.SIGKILL)
        r = Router(DEMO, *args)
        assert names(r) == ["blue"] and ask(r, PROMPTS[0], "blue") == want[PROMPTS[0], "blue"]
        shards[1] = Shard(DEMO, ports[1], *some)
        r.wait_log("it does not serve the adapter `blue`")
        done(load(r, "red", made["red"]), "'red' added")
        assert ready(r) == 1
        done(unload(r, "blue"), "'blue' removed")
        wait_for(lambda: ready(r) == 2, 60)
        assert [[a.name for a in on_target(f"127.0.0.1:{p}", "Info").adapters] for p in ports] == [["red"]] * 2
        assert r.stop() == 0
    finally:
        for p in shards:
            p.stop(signal.SIGKILL)


def test_unloading_waits_for_users_at_all_replicas(made, tmp_path):
    """Also for requests that wait above the replicas, and for those of a replica that is lost meanwhile."""
    model = deep(tmp_path / "deep", 60)
    long = {"model": "blue", "prompt": PROMPTS[0], "max_tokens": 100, "stream": True, "ignore_eos": True, "temperature": 0}
    with two_replicas(model, "--max-batch-size", 1) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        done(load(s, "blue", made["blue"]), "'blue' added")

        def stream():
            return "".join(e["choices"][0]["text"] if "choices" in e else str(e) for e in s.events("/v1/completions", long) if e != "[DONE]")

        alone = stream()
        asked = [pool.submit(stream) for _ in range(5)]
        wait_for(lambda: s.metric("tgi_queue_size") == 3 and all(r["running"] for r in replicas(s)))
        gone = pool.submit(unload, s, "blue")
        wait_for(lambda: names(s) == [])
        refused(s.post("/v1/completions", {**long, "stream": False}), 404, "blue")
        refused(load(s, "blue", made["green"]), 400, "is being unloaded")
        done(load(s, "green", made["green"]), "'green' added")  # others do not wait
        assert not gone.done()
        os.kill(s.shards()[0], signal.SIGKILL)
        assert [f.result() for f in asked] == [alone] * 5
        done(gone.result(), "'blue' removed")
        wait_for(lambda: ready(s) == 2, 60)
        assert names(s) == ["green"] and everywhere(s) == [["green"]] * 2


def test_who_may(made):
    with Service(DEMO) as s:  # not without the flag
        refused(load(s, "blue", made["blue"]), 404, "--max-runtime-adapters")
        assert s.post("/v1/completions", {"model": "anything", "prompt": "x", "max_tokens": 1}).status_code == 200
    with Service(DEMO, args=["--max-runtime-adapters", 1]) as s:  # without keys: this machine alone
        refused(load(s, "blue", made["blue"], headers={"x-forwarded-for": "10.0.0.1"}), 404, "this machine alone")
        done(load(s, "blue", made["blue"]), "'blue' added")
    port, key = free_port(), {"authorization": "Bearer secret"}
    with Service(DEMO, args=["--max-runtime-adapters", 1, "--api-key", "secret", "--prometheus-port", port]) as s:
        assert load(s, "blue", made["blue"]).status_code == 401 and unload(s, "blue").status_code == 401
        done(load(s, "blue", made["blue"], headers=key), "'blue' added")
        done(unload(s, "blue", headers=key), "'blue' removed")
