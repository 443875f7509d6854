"""Memory runs out: one allocation in N fails in every process (tests/nomem.c). An answer is right to the last character, or an error
that is not the client's; afterwards everything is as before."""

import concurrent.futures
import json
import os
import platform
import random
import shutil
import struct
import subprocess
import time

import pytest
import requests
from serving import DEMO, ROOT, SLOW, Service, scratch, seed_for, wait_for

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "seed": 4}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}
WORK = [
    ("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "details": True, "decoder_input_details": True, "top_n_tokens": 3}}),
    ("/generate", {"inputs": "Tom had", "parameters": {"max_new_tokens": 12, "stop": ["."], "seed": 3, "temperature": 0.8, "repetition_penalty": 1.2}}),
    ("/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "details": True, "top_n_tokens": 3}}),
    ("/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {**CHAT, "stream": True, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 30, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 30, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/completions", {"model": "m", "prompt": ["One day", "The sun"], "max_tokens": 10, "seed": 1, "dry_multiplier": 0.8, "logit_bias": {"5": -3}, "bad_words": ["the"]}),
    ("/v1/completions", {"model": "m", "prompt": "Once", "max_tokens": 20, "temperature": 0, "structured_outputs": {"regex": "[a-z ]{5,20}"}}),
    ("/v1/responses", {"model": "m", "input": "Hello", "max_output_tokens": 8, "temperature": 0}),
    ("/v1/messages", {"model": "m", "messages": CHAT["messages"], "max_tokens": 8, "temperature": 0}),
    ("/v1/messages", {"model": "m", "messages": CHAT["messages"], "max_tokens": 8, "temperature": 0, "stream": True}),
    ("/api/chat", {"model": "m", "messages": CHAT["messages"], "stream": False, "options": {"num_predict": 8, "temperature": 0}}),
    ("/tokenize", {"inputs": "Once upon a time there was"}),
]
# What no two answers have in common.
OWN = {"id", "created", "created_at", "completed_at", "item_id", "call_id", "request_id", "usage"} | {
    k + "_duration" for k in ("total", "load", "prompt_eval", "eval")
}
ENDS = {"/generate_stream": '"generated_text":"', "/v1/chat/completions": "[DONE]", "/v1/messages": "message_stop"}


def common(value):
    if isinstance(value, dict):
        return {k: common(v) for k, v in value.items() if k not in OWN}
    return [common(v) for v in value] if isinstance(value, list) else value


def said(path, body, text):
    """The comparable part of an answer; None: a stream that ended with an error, or early."""
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    if not body.get("stream") and path != "/generate_stream":
        assert text, f"{path}: no body"
        return common(json.loads(text))
    if '"error"' in text or ENDS[path] not in text:
        return None
    return [common(json.loads(line)) for line in lines if line != "[DONE]"]


def ask(s, i):
    """The status, and the answer if it has one. 0: the connection ended."""
    path, body = WORK[i]
    try:
        r = s.post(path, body)
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return 0, None
    return r.status_code, said(path, body, r.text) if r.ok else r.text


def preload(folder, seed):
    """The environment of programs whose allocations fail as the file folder / "every" says."""
    library, every = folder / "nomem.so", folder / "every"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, ROOT / "tests/nomem.c"], check=True)
    every.write_bytes(bytes(16))
    return {"LD_PRELOAD": str(library), "NOMEM": str(every), "NOMEM_SEED": str(seed)}


def fail(folder, one_in, at_most=2**60):
    with (folder / "every").open("r+b") as f:
        f.write(struct.pack("<QQ", one_in, at_most))


pytestmark = pytest.mark.usefixtures("apart")  # allocations of the program fail, and not those of its libraries
needs_preload = pytest.mark.skipif(
    not shutil.which("cc") or platform.machine() != "x86_64" or "SAN" in os.environ, reason="needs a preloaded library, which is compiled here"
)


@needs_preload
def test_an_answer_is_right_or_an_error():
    folder = scratch()
    seed = seed_for(1)
    env = preload(folder, seed)
    rng = random.Random(seed)
    with Service(DEMO, env=env) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        want = [ask(s, i) for i in range(len(WORK))]
        assert all(status == 200 and answer for status, answer in want)
        right = blamed = 0
        for n in (1000, 200, 50):
            fail(folder, n)
            asked = [rng.randrange(len(WORK)) for _ in range(250)]
            for i, (status, answer) in zip(asked, pool.map(lambda i: ask(s, i), asked)):
                blamed += status not in (0, 200, 424, 429, 500, 503)
                assert status != 200 or answer in (None, want[i][1]), (WORK[i], answer)
                right += status == 200 and answer is not None
            fail(folder, 0)
            wait_for(lambda: requests.get(s.url + "/health", timeout=5 * SLOW).status_code == 200)
            wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
            assert [ask(s, i) for i in range(len(WORK))] == want
            audit = s.audit()
            assert audit["scheduler"]["balanced"] and audit["scheduler"]["known"] == 0 and audit["requests"]["live"] == 0
        assert right > 50
        assert blamed < 10  # a place that takes a lack of memory for the client's fault


@needs_preload
@pytest.mark.parametrize("rank", (0, 1))
def test_of_two_ranks_one_lacks_memory_once(rank):
    """The other one has run the call, or waits for it: the ranks are out of step. Requests are answered all the same, and in time:
    before, the other rank waited for --stall-timeout, 30 s."""
    folder = scratch()
    seed = seed_for(3)
    rng, late, failures = random.Random(seed), [], 0
    rounds = 30 if "SEED" in os.environ else 15  # `make soak` draws others each time
    args = ["--max-shard-restarts", "1000"]
    with Service(DEMO, num_shard=2, args=args, env={**preload(folder, seed), "NOMEM_RANK": str(rank)}) as s, concurrent.futures.ThreadPoolExecutor(6) as pool:
        want = [ask(s, i) for i in range(len(WORK))]
        assert all(status == 200 and answer for status, answer in want)

        def timed(i):
            begun = time.monotonic()
            status, answer = ask(s, i)
            assert status in (0, 200, 424, 429, 500, 503), (WORK[i], status, answer)
            assert status != 200 or answer in (None, want[i][1]), (WORK[i], answer)
            return time.monotonic() - begun

        for _ in range(rounds):
            fail(folder, 60, 1)
            late.append(max(pool.map(timed, [rng.randrange(len(WORK)) for _ in range(6)])))
            failures += (folder / "every").read_bytes()[8] == 0
            fail(folder, 0)
            s.audit()
        assert max(late) < 10, late
        assert failures > rounds * 2 / 3
        wait_for(lambda: requests.get(s.url + "/health", timeout=5).status_code == 200)
        assert [ask(s, i) for i in range(len(WORK))] == want
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
