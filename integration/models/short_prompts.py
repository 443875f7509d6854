"""Short prompts, their answers with log-probabilities, and two checks of concurrent streams."""

import concurrent.futures
import os
import signal

from serving import wait_for

TALES = ["Once upon a time, there was a little girl.", "Tom had a big red ball.", "One day, a dog"]
MORE = [" She was happy.", " He went to the park.", " The sun was warm", " and then", " They played."]


def answer(s, body):
    """The ids and log-probabilities of the generated tokens."""
    r = s.post("/generate", body)
    assert r.status_code == 200, r.text
    return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]


def leave_early(s, body):
    """Closes a stream after its first event."""
    with s.post("/generate_stream", body, stream=True) as r:
        next(r.iter_lines())


def streams_survive_a_crash(s, n):
    """Kills a shard while n requests stream: their texts are those of the same requests before."""
    bodies = [{"inputs": TALES[i % 3] + MORE[i % 5] * (i % 7), "parameters": {"max_new_tokens": 300, "ignore_eos": True}} for i in range(n)]
    want = [s.post("/generate", b).json()["generated_text"] for b in bodies]
    begun = []

    def stream(b):
        events = s.events("/generate_stream", b)
        out = [next(events)]
        begun.append(1)
        return (out + list(events))[-1]["generated_text"]

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        jobs = [pool.submit(stream, b) for b in bodies]
        wait_for(lambda: len(begun) >= 4, 60)
        os.kill(s.shards()[0], signal.SIGKILL)
        assert [j.result() for j in jobs] == want
    assert s.metric("tgi_shard_returns") == 1
