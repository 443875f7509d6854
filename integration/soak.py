"""A mixed load for some time: streams that are read, abandoned and slowed, chats, tools, schemas, samplers, invalid bodies, shards that die.

    make soak-service SAN=1 SOAK=600
    python integration/soak.py --seconds 600 --clients 32 --connections 2000 --kill-every 0

`--connections` are kept open beside the clients, and one in a hundred of them asks something each second: with them the run is a day's
in small, whose last minute is compared with its first (`--minute`: how long they are).

Each client draws what it asks next from SEED (printed; give it again to repeat the order of one client). At the end nothing may be held,
no request may have had a 5xx but those of a killed shard, greedy answers must be the same as at the beginning, and with SAN=1 no
sanitizer may have said a word."""

import argparse
import collections
import http.client
import json
import multiprocessing
import os
import random
import signal
import socket
import statistics
import threading
import time

import requests
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
    leaves = rng.random() < 0.2
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120 * SLOW)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    if leaves and not stream:  # it gives up before there is an answer
        time.sleep(rng.choice((0, 0.01, 0.1)))
        c.sock.shutdown(socket.SHUT_RDWR)
        counts["left"] += 1
        c.close()
        return
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


PROBE = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20, "ignore_eos": True}}


def timed(s, end, took, troubles):
    """The same request again and again: when it was sent, and how long it took."""
    session = requests.Session()
    while time.monotonic() < end:
        begun = time.monotonic()
        try:
            code = session.post(s.url + "/generate", json=PROBE, timeout=120 * SLOW).status_code
        except requests.RequestException as e:
            code = type(e).__name__
        if code != 200:
            troubles.append(f"a probe: {code}")
        took.append((begun, time.monotonic() - begun))
        time.sleep(0.02)


def ask_again(c, rng):
    """Something over a connection that is open; whether it still was."""
    body = json.dumps({"inputs": "The cat", "parameters": {"max_new_tokens": rng.randrange(1, 5)}}).encode()
    post = b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    c.settimeout(60 * SLOW)
    try:
        c.sendall(rng.choice((b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", post)))
        got = c.recv(4096)
    except (BrokenPipeError, ConnectionResetError):
        return False
    assert not got or got.startswith(b"HTTP/1.1 200"), got[:60]
    c.setblocking(False)
    try:  # what did not come with its beginning
        while c.recv(4096):
            pass
    except BlockingIOError:
        return True
    return False


def keep_open(port, n, end, counts, troubles):
    """n connections that stay, each replaced when the server closes it for its silence; one in a hundred asks something each second."""

    def new():
        return socket.create_connection(("127.0.0.1", port), timeout=60 * SLOW)

    kept, rng = [new() for _ in range(n)], random.Random(n)
    while time.monotonic() < end:
        for i in rng.sample(range(n), -(-n // 100)):
            try:
                if not ask_again(kept[i], rng):
                    counts["replaced"] += 1
                    kept[i].close()
                    kept[i] = new()
            except (OSError, AssertionError) as e:
                troubles.append(f"a kept connection: {type(e).__name__}: {e}")
        time.sleep(1)
    for c in kept:
        c.close()


def pace(end, out):
    """How long the same work takes another process: what else runs on the machine slows it as it slows the service."""
    took = []
    while time.monotonic() < end:
        begun = time.monotonic()
        sum(range(400_000))
        took.append((begun, time.monotonic() - begun))
        time.sleep(0.2)
    out.put(took)


def medians(took, begun, end, minute):
    """Of the first and the last minute."""
    first = [t for at, t in took if at - begun < minute]
    last = [t for at, t in took if end - at < minute]
    return statistics.median(first), statistics.median(last)


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
    p.add_argument("--connections", type=int, default=0)
    p.add_argument("--minute", type=float, default=60)
    p.add_argument("--ratio", type=float, default=0, help="the most that p50 may have grown, as a factor; 0: any")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    a = p.parse_args()
    print(f"soak: {a.seconds:.0f} s, {a.clients} clients, --seed {a.seed}", flush=True)
    counts, troubles = collections.Counter(), []
    with Service(DEMO, 2, args=["--threads", 1, "--speculate", 3]) as s:
        took, before = [], greedy(s)
        begun = time.monotonic()
        end = begun + a.seconds
        threads = [threading.Thread(target=client, args=(s.port, a.seed + i, end, counts, troubles)) for i in range(a.clients)]
        if a.kill_every:
            threads.append(threading.Thread(target=killer, args=(s, a.kill_every * SLOW, end)))
        works = multiprocessing.Queue()
        beside = multiprocessing.Process(target=pace, args=(end, works))
        beside.start()
        threads.append(threading.Thread(target=timed, args=(s, end, took, troubles)))
        if a.connections:
            threads.append(threading.Thread(target=keep_open, args=(s.port, a.connections, end, counts, troubles)))
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        paces = works.get(timeout=60)
        beside.join()
        wait_for(lambda: s.audit()["scheduler"]["known"] == 0, 60 * SLOW)
        audit, after = s.audit(), greedy(s)
        log = s.log
    first, last = medians(took, begun, end, min(a.minute, a.seconds / 3))
    slower = (lambda v: v[1] / v[0])(medians(paces, begun, end, min(a.minute, a.seconds / 3)))
    print(dict(counts), f"{len(troubles)} connections failed", flush=True)
    print(f"{len(took)} probes: p50 {first * 1e3:.1f} ms in the first minute, {last * 1e3:.1f} ms in the last, {last / first:.2f}; the machine's other work {slower:.2f}", flush=True)
    assert not troubles, troubles[:5]
    assert audit["scheduler"]["blocks"]["used"] == 0 and audit["requests"]["permits_held"] == 0, audit
    assert before == after
    assert not [k for k in counts if isinstance(k, int) and k >= 500], counts
    words = [line for line in log.splitlines() if "ERROR: AddressSanitizer" in line or "runtime error:" in line or "LeakSanitizer" in line]
    assert not words, words[:5]
    assert not a.ratio or last <= a.ratio * first * max(slower, 1), (first, last, slower)
    print("clean")


if __name__ == "__main__":
    main()
