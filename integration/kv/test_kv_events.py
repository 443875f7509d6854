"""KV events: the content of the prefix tree, published over ZeroMQ in vLLM's format; and vllm-router, which routes by them."""

import json
import pathlib
import shutil
import struct
import sys
import time

import msgpack
import pytest
import requests
import zmq
from serving import DEMO, Process, Service, free_port, wait_for

BLOCK = 16
PROMPT = list(range(50, 50 + 70))
FIELDS = {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"}


def service(port, replay=None, model=DEMO, args=(), **more):
    config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{port}", **more}
    if replay:
        config["replay_endpoint"] = f"tcp://127.0.0.1:{replay}"
    return Service(model, args=["--kv-events-config", json.dumps(config), *args])


def complete(s, ids=PROMPT, n=4, **more):
    r = s.post("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": n, "temperature": 0, **more})
    assert r.status_code == 200, r.text
    return r.json()


class Reader:
    """A subscriber with the tree that it was told of: tokens of each prefix by hash."""

    def __init__(self, port, topic=b"", hwm=0):
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVHWM, hwm)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.tree, self.numbers, self.events, self.ranks = {}, [], [], set()
        time.sleep(0.3)  # a subscription takes a moment

    def take(self, number, payload):
        self.numbers.append(number)
        stamp, events, rank = msgpack.unpackb(payload)
        assert abs(time.time() - stamp) < 3600
        self.ranks.add(rank)
        for e in events:
            self.events.append(e)
            if e["type"] == "BlockStored":
                assert set(e) == FIELDS and e["block_size"] == BLOCK and e["medium"] == "GPU" and e["lora_id"] is None
                parent, tokens = e["parent_block_hash"], e["token_ids"]
                assert len(tokens) == BLOCK * len(e["block_hashes"])
                for i, h in enumerate(e["block_hashes"]):
                    before = [] if parent is None else self.tree[parent]
                    self.tree[h] = before + tokens[i * BLOCK : (i + 1) * BLOCK]
                    parent = h
            elif e["type"] == "BlockRemoved":
                for h in e["block_hashes"]:
                    del self.tree[h]  # none is removed that was not stored
            else:
                assert e == {"type": "AllBlocksCleared"}
                self.tree.clear()

    def read(self, ms=500):
        while self.socket.poll(ms):
            topic, number, payload = self.socket.recv_multipart()
            self.take(struct.unpack(">q", number)[0], payload)
        return self

    def close(self):
        self.socket.close(0)


def replay(port, start):
    q = zmq.Context.instance().socket(zmq.DEALER)
    q.connect(f"tcp://127.0.0.1:{port}")
    q.send_multipart([b"", struct.pack(">q", start)])
    out = []
    while True:
        assert q.poll(5000), "no answer"
        empty, number, payload = q.recv_multipart()
        assert empty == b""
        if struct.unpack(">q", number)[0] == -1:
            assert payload == b""
            q.close(0)
            return out
        out.append((struct.unpack(">q", number)[0], payload))


def test_the_tree_is_told_and_told_again():
    port, again = free_port(), free_port()
    with service(port, again) as s:
        r = Reader(port)
        complete(s)
        complete(s, PROMPT[:40] + [7] * 40)
        r.read()
        held = sorted(r.tree.values())
        whole = [PROMPT[:n] for n in (16, 32, 48, 64)]
        assert all(w in held for w in whole), held
        assert PROMPT[:32] + PROMPT[32:40] + [7] * 8 in held
        assert r.numbers == list(range(len(r.numbers))) and r.ranks == {0}
        n = len(r.events)
        complete(s)  # nothing new
        assert len([e for e in r.read().events[n:] if e["type"] == "BlockStored"]) == 0

        late = Reader(port)
        for number, payload in replay(again, 0):
            late.take(number, payload)
        assert late.numbers == r.numbers and late.tree == r.tree
        assert [k for k, _ in replay(again, 2)] == r.numbers[2:]
        assert replay(again, 10**6) == []
        r.close(), late.close()


def test_what_is_evicted_is_told():
    port = free_port()
    with service(port, args=["--max-batch-total-tokens", 512, "--max-total-tokens", 300]) as s:
        r = Reader(port)
        for i in range(12):
            complete(s, [100 + i] * 90)
        r.read()
        assert sum(e["type"] == "BlockRemoved" for e in r.events) > 10
        cached = s.metric("kv_blocks", state="cached")
        assert 0 < len(r.tree) <= cached  # blocks that are not full are no hits for others' routers
        r.close()


def test_tenants_and_adapters_are_not_told():
    port = free_port()
    with service(port) as s:
        r = Reader(port)
        complete(s, cache_salt="alice")
        assert r.read().events == []
        complete(s)
        assert len(r.read().tree) >= 4
        r.close()


def test_topics_and_shards_that_are_lost():
    import os
    import signal

    port = free_port()
    with service(port, topic="kv@10.0.0.1:8000@m") as s:
        other, r = Reader(port, b"kv-other"), Reader(port, b"kv@10")
        complete(s)
        assert len(r.read().tree) >= 4 and other.read().events == []
        for pid in s.shards():
            os.kill(pid, signal.SIGKILL)
        complete(s, [9] * 40)
        r.read()
        assert any(e["type"] == "AllBlocksCleared" for e in r.events) and PROMPT[:16] not in r.tree.values()
        r.close(), other.close()


def test_a_subscriber_that_does_not_read_holds_nothing_up():
    port, again = free_port(), free_port()
    with service(port, again, hwm=2, buffer_steps=5) as s:
        slow = Reader(port, hwm=1)
        t0 = time.monotonic()
        for i in range(30):
            complete(s, [200 + i] * 40, n=1)
        took = time.monotonic() - t0
        r = Reader(port)
        complete(s)
        assert len(r.read().tree) >= 4 and took < 60
        assert len(replay(again, 0)) <= 5
        slow.close(), r.close()


@pytest.mark.parametrize(
    "config,said",
    [
        ("{", "--kv-events-config"),
        ('{"endpont": "x"}', "unknown field `endpont`"),
        ('{"publisher": "kafka"}', "is not `zmq`"),
        ('{"endpoint": "nonsense"}', "cannot listen at nonsense"),
        ('{"hwm": -1}', "`hwm` is -1"),
    ],
)
def test_a_wrong_config_is_refused(config, said):
    s = Service(DEMO, args=["--kv-events-config", config], ready=False)
    try:
        wait_for(lambda: not s.alive(), 60)
        assert said in s.log
    finally:
        s.stop()


ROUTER = shutil.which("vllm-router", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("vllm-router")


@pytest.mark.skipif(not ROUTER, reason="vllm-router is not installed (PyPI)")
def test_vllm_router_picks_the_replica_that_has_the_prompt():
    ports = [free_port(), free_port()]
    words = "Once upon a time there was a little girl who had a red ball and a big dog and they played in the park all day"
    services = [service(p) for p in ports]
    try:
        model = requests.get(services[0].url + "/v1/models", timeout=10).json()["data"][0]["id"]
        front = free_port()
        argv = [ROUTER, "--host", "127.0.0.1", "--port", front, "--policy", "kv_aware", "--prometheus-port", free_port()]
        argv += ["--worker-urls", *[s.url for s in services], "--kv-event-block-size", BLOCK, "--kv-event-model", model]
        for s, p in zip(services, ports):
            argv += ["--kv-event-source", f"{s.url}=tcp://127.0.0.1:{p}"]
        router = Process(argv)
        try:
            wait_for(lambda: up(front), 60)
            time.sleep(1)
            body = {"model": model, "prompt": words, "max_tokens": 2, "temperature": 0}
            services[1].post("/v1/completions", body)  # the second one has it
            time.sleep(1)
            before = [s.metric("prefix_hit_tokens") or 0 for s in services]
            for _ in range(4):
                r = requests.post(f"http://127.0.0.1:{front}/v1/completions", json=body, timeout=60)
                assert r.status_code == 200, r.text
            gained = [(s.metric("prefix_hit_tokens") or 0) - b for s, b in zip(services, before)]
            assert gained[0] == 0 and gained[1] >= 4 * BLOCK, router.log[-3000:]
        finally:
            router.stop(timeout=30)
    finally:
        for s in services:
            s.stop()


def up(port):
    try:
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200
    except requests.RequestException:
        return False
