"""A mixed load for some time: streams that are read, abandoned and slowed, chats, tools, schemas, samplers, invalid bodies, shards that die.

    make soak-service SAN=1 SOAK=600

Each client draws what it asks next from SEED (printed; give it again to repeat the order of one client). At the end nothing may be held,
no request may have had a 5xx but those of a killed shard, greedy answers must be the same as at the beginning, and with SAN=1 no
sanitizer may have said a word."""

import argparse
import collections
import http.client
import json
import os
import random
import signal
import socket
import threading
import time

from serving import DEMO, SLOW, Service, wait_for

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer"}}, "required": ["name"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
WORDS = "once upon a time there was a cat who lived in a small red house by the sea and said hello to the moon".split()


def text(rng):
    return " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 9, 40, 150))))


def sampling(rng):
    choices = ({}, {"temperature": 0}, {"temperature": 1.3, "top_p": 0.8}, {"top_k": 5, "seed": rng.randrange(99)}, {"min_p": 0.1}, {"n": 3}, {"logprobs": True}, {"stop": [" the"]})
    return rng.choice(choices)


def draw(rng):
    """A path, a body, and whether the answer is a stream."""
    stream, length = rng.random() < 0.5, rng.choice((1, 8, 30, 80))
    chat = [{"role": "user", "content": text(rng)}]
    kind = rng.randrange(9)
    if kind == 0:
        return "/generate_stream" if stream else "/generate", {"inputs": text(rng), "parameters": {"max_new_tokens": length, "details": True}}, stream
    if kind == 1:
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}}
        return "/v1/chat/completions", {"messages": chat, "max_tokens": length, "stream": stream, **form}, stream
    if kind == 2:
        return "/v1/chat/completions", {"messages": chat, "max_tokens": length, "stream": stream, "tools": [TOOL], "tool_choice": rng.choice(("auto", "required"))}, stream
    if kind == 3:
        return "/v1/messages", {"messages": chat, "max_tokens": length, "stream": stream, "model": "m"}, stream
    if kind == 4:
        return "/v1/responses", {"input": text(rng), "max_output_tokens": length + 15, "stream": stream}, stream
    if kind == 5:
        return "/completion", {"prompt": text(rng), "n_predict": length, "stream": stream, "n_probs": rng.choice((0, 3))}, stream
    if kind == 6:
        wrong = rng.choice(({"messages": 7}, {}, {"messages": chat, "temperature": -1}, {"messages": chat, "max_tokens": "x"}))
        return "/v1/chat/completions", wrong, False
    body = {"prompt": text(rng), "max_tokens": length, "stream": stream} | sampling(rng)
    if isinstance(body.get("logprobs"), bool):
        body["logprobs"] = 2
    return "/v1/completions", body, stream


def ask(port, rng, counts):
    path, body, stream = draw(rng)
    leaves = stream and rng.random() < 0.25
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120 * SLOW)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    counts[r.status] += 1
    if leaves:
        r.read(rng.choice((1, 200, 900)))
        c.sock.shutdown(socket.SHUT_RDWR)
        counts["left"] += 1
    else:
        while piece := r.read(4096 if rng.random() < 0.9 else 16):
            if b'"error":{' in piece and r.status == 200:
                counts["error event"] += 1
    c.close()


def client(port, seed, end, counts, troubles):
    rng = random.Random(seed)
    while time.monotonic() < end:
        try:
            ask(port, rng, counts)
        except (OSError, http.client.HTTPException) as e:
            troubles.append(f"{type(e).__name__}: {e}")
            time.sleep(0.1)


def greedy(s):
    return [s.post("/generate", {"inputs": w, "parameters": {"max_new_tokens": 20}}).json()["generated_text"] for w in ("Once upon a time", "The cat", "hello")]


def killer(s, every, end):
    while time.monotonic() + every < end:
        time.sleep(every)
        os.kill(s.shards()[-1], signal.SIGKILL)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--clients", type=int, default=12)
    p.add_argument("--kill-every", type=float, default=45, help="seconds between two kills of a shard; 0: none")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    a = p.parse_args()
    print(f"soak: {a.seconds:.0f} s, {a.clients} clients, --seed {a.seed}", flush=True)
    counts, troubles = collections.Counter(), []
    with Service(DEMO, 2, args=["--threads", 1, "--speculate", 3]) as s:
        before, end = greedy(s), time.monotonic() + a.seconds
        threads = [threading.Thread(target=client, args=(s.port, a.seed + i, end, counts, troubles)) for i in range(a.clients)]
        if a.kill_every:
            threads.append(threading.Thread(target=killer, args=(s, a.kill_every * SLOW, end)))
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wait_for(lambda: s.audit()["scheduler"]["known"] == 0, 60 * SLOW)
        audit, after = s.audit(), greedy(s)
        log = s.log
    print(dict(counts), f"{len(troubles)} connections failed", flush=True)
    assert not troubles, troubles[:5]
    assert audit["scheduler"]["blocks"]["used"] == 0 and audit["requests"]["permits_held"] == 0, audit
    assert before == after
    assert not [k for k in counts if isinstance(k, int) and k >= 500], counts
    words = [line for line in log.splitlines() if "ERROR: AddressSanitizer" in line or "runtime error:" in line or "LeakSanitizer" in line]
    assert not words, words[:5]
    print("clean")


if __name__ == "__main__":
    main()
