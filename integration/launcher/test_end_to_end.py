"""One command, then an answer, for any number of shards."""

import concurrent.futures
import json
import os
import random
import socket
import time

import pytest
from serving import DEMO, SLOW, Service, data, wait_for, seed_for


@pytest.fixture(autouse=True)
def several_threads(monkeypatch):
    """Of each shard, which is one in other tests (conftest.py)."""
    monkeypatch.setenv("THREADS", "2")


def golden(path="models/stories260K"):
    model = data(path)
    return model, json.loads((model / "golden.json").read_text())["prompts"][0]


@pytest.mark.parametrize("num_shard", [1, 2, 4])
def test_greedy_continuation_is_the_expected_text_for_any_num_shard(num_shard):
    model, want = golden()
    with Service(model, num_shard, args=["--dtype", "float32"]) as s:
        body = {"inputs": want["inputs"], "parameters": {"max_new_tokens": want["max_new_tokens"], "details": True}}
        r = s.post("/generate", body)
        assert r.status_code == 200, r.text
        got = [t["id"] for t in r.json()["details"]["tokens"]]
        assert got == want["generated_ids"][: len(got)]
        assert len(got) == want["max_new_tokens"] or r.json()["details"]["finish_reason"] == "eos_token"


def test_openai_client_chats_with_the_demo_model():
    import openai

    with Service(DEMO) as s:
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)
        model = client.models.list().data[0].id
        messages = [{"role": "user", "content": "Hello!"}]
        whole = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=60)
        assert whole.choices[0].finish_reason == "stop", "the demo model stops by itself"
        assert whole.choices[0].message.content.strip()
        stream = client.chat.completions.create(
            model=model,
            messages=messages,
            temperature=0,
            max_tokens=60,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == whole.choices[0].message.content
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


PROMPTS = ["Once upon a time", "The little cat", "Tom and Lily went", "One day, a big", "She was very", "In the park"]


def bodies(n, most=24):
    rng = random.Random(seed_for(7))
    for i in range(n):
        p = {"max_new_tokens": rng.randint(4, most), "details": True}
        if i % 2:
            p |= {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": i}
        yield {"inputs": " and ".join(rng.choices(PROMPTS, k=rng.randint(1, 5))), "parameters": p}


def ids(s, body):
    return [e["token"]["id"] for e in s.events("/generate_stream", body)]


@pytest.mark.parametrize("num_shard", [1, 2])
def test_64_concurrent_streams_get_exactly_what_each_gets_alone(num_shard):
    with Service(DEMO, num_shard, args=["--max-concurrent-requests", "128"]) as s:
        work = list(bodies(64, 24 if num_shard == 1 else 10))  # schedules are the router's
        alone = [ids(s, b) for b in work]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            together = list(pool.map(lambda b: ids(s, b), work))
        assert together == alone
        assert all(alone)


def test_a_rotation_that_looks_at_the_length_shares_no_prefix():
    def tokens(s, n):
        body = {"inputs": "Once upon a time there was a little cat. " * n, "parameters": {"max_new_tokens": 20}}
        return [(e["token"]["id"], e["token"]["logprob"]) for e in s.events("/generate_stream", body)]

    model, args = data("models/stories260K"), ["--dtype", "float32", "--rope-scaling", "dynamic", "--rope-factor", "2"]
    with Service(model, args=args) as s:
        alone = tokens(s, 60)
    with Service(model, args=args) as s:
        tokens(s, 20)
        assert tokens(s, 60) == alone


def resident(s):
    total = 0
    for pid in s.children():
        with open(f"/proc/{pid}/statm") as f:
            total += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def settled(s):
    """resident() when the KV cache, which is taken in the background, is there."""
    before, same = 0, 0
    while same < 3:  # a machine with other work may make it wait
        now = resident(s)
        same = same + 1 if now < before + (1 << 20) else 0
        before = now
        time.sleep(0.5)
    return before


def leave_midway(s, body, after):
    """A raw client that hangs up after `after` seconds, whatever has arrived."""
    payload = json.dumps(body).encode()
    head = f"POST /generate_stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(head.encode() + payload)
        time.sleep(after)


def test_departed_clients_leave_nothing_behind():
    n = 1000 if SLOW == 1 else 200
    with Service(DEMO, args=["--max-concurrent-requests", "64"]) as s:
        rng = random.Random(seed_for(3))

        def one(i):
            body = {"inputs": PROMPTS[i % 6] + f" {i}", "parameters": {"max_new_tokens": 100}}
            leave_midway(s, body, rng.choice([0, 0.001, 0.01, 0.05, 0.1]))

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(one, range(200)))  # reach the working set first
            before = settled(s)
            list(pool.map(one, range(n)))
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0, 30)
        assert resident(s) < before + (16 << 20)
        r = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 5}})
        assert r.status_code == 200 and r.json()["generated_text"]
