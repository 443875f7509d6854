"""Images through the real programs: tokens equal to transformers' (data/vision), batched, cached, and after a shard was killed."""

import base64
import concurrent.futures
import contextlib
import json
import os
import signal
import time

import pytest
import requests
from serving import DATA, Service, crowd, wait_for

FAMILIES = (
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "gemma3",
    "llava_next",
    "idefics3",
    "smolvlm",
    "mistral3",
    "pixtral",
)
# the expected values were computed in float32; a cache in bfloat16 rounds (docs/results/images.md)
ARGS = ["--payload-limit", 20000000, "--max-batch-prefill-tokens", 1024, "--kv-cache-dtype", "float32"]


def folder(family):
    path = DATA / "vision" / family
    if not path.exists():
        pytest.skip(f"reference data not found: vision/{family}")
    return path


def data_url(name):
    return "data:image/png;base64," + base64.b64encode((DATA / "vision/images" / name).read_bytes()).decode()


def cases(family):
    return [c for c in json.loads((folder(family) / "golden.json").read_text())["cases"] if "greedy_ids" in c]


def body(case, **more):
    """The case as its template makes it of one user's message: pictures, then the question."""
    parts = [{"type": "image_url", "image_url": {"url": data_url(i)}} for i in case["images"]]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]
    special = {"add_special_tokens": case["add_special_tokens"]}
    return {"messages": messages, "max_tokens": len(case["greedy_ids"]), "ignore_eos": True, "temperature": 0, **special, **more}


def answer(s, case, **more):
    r = s.post("/v1/chat/completions", body(case, return_token_ids=True, **more))
    assert r.status_code == 200, r.text
    return r.json()


def greedy(a):
    return a["choices"][0]["token_ids"]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_transformers(family):
    todo = cases(family)
    with Service(folder(family), args=ARGS) as s:
        for case in todo:
            r = s.post("/v1/chat/completions/render", body(case))
            assert r.status_code == 200, (case["images"], r.text)
            assert r.json()["token_ids"] == case["ids"], case["images"]
            assert r.json()["prompt"] == case["prompt"], case["images"]
            a = answer(s, case)
            assert greedy(a) == case["greedy_ids"], case["images"]
            assert a["usage"]["prompt_tokens"] == len(case["ids"])
        # all at once, with texts between them, and from the cache
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            got = list(pool.map(lambda c: answer(s, c), todo * 2))
        for case, a in zip(todo * 2, got):
            assert greedy(a) == case["greedy_ids"], case["images"]


@pytest.fixture(scope="module")
def qwen():
    with Service(folder("qwen2_5_vl"), args=ARGS) as s:
        yield s


def cached(a):
    return a["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_picture_is_found_in_the_cache_and_another_is_not(qwen):
    large = sorted((c for c in cases("qwen2_5_vl") if len(c["images"]) == 1), key=lambda c: -len(c["ids"]))
    first, again = answer(qwen, large[0], cache_salt="cache"), answer(qwen, large[0], cache_salt="cache")
    assert cached(first) == 0 and cached(again) >= len(large[0]["ids"]) // 16 * 16 - 16 > 0
    same = [c for c in large[1:] if len(c["ids"]) == len(large[0]["ids"])]
    for other in same:
        assert cached(answer(qwen, other, cache_salt="cache")) < 16, "two pictures behind equal placeholders"


def test_tgi_inline_is_the_same_prompt(qwen):
    case = next(c for c in cases("qwen2_5_vl") if len(c["images"]) == 1)
    marker = "<|vision_start|><|image_pad|><|vision_end|>"
    inputs = case["prompt"].replace(marker, f"![]({data_url(case['images'][0])})")
    p = {"max_new_tokens": len(case["greedy_ids"]), "details": True, "ignore_eos": True}
    r = qwen.post("/generate", {"inputs": inputs, "parameters": p})
    assert r.status_code == 200, r.text
    assert [t["id"] for t in r.json()["details"]["tokens"]] == case["greedy_ids"]


def test_streams_go_on_beside_pictures(qwen):
    """A text stream in a batch with pictures says what it says alone."""
    plain = next(c for c in cases("qwen2_5_vl") if not c["images"])
    seen = [c for c in cases("qwen2_5_vl") if c["images"]]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        texts = [pool.submit(answer, qwen, plain) for _ in range(4)]
        pictures = [pool.submit(answer, qwen, c, cache_salt=str(i)) for i, c in enumerate(seen)]
        assert all(greedy(t.result()) == plain["greedy_ids"] for t in texts)
        for c, a in zip(seen, pictures):
            assert greedy(a.result()) == c["greedy_ids"], c["images"]


@pytest.mark.parametrize("name", ["bad_bomb_60000x60000.png", "bad_empty.png", "bad_not_an_image.png", "bad_truncated.jpg", "bad_truncated.png"])
def test_bad_pictures_are_refused_and_the_next_works(qwen, name):
    case = next(c for c in cases("qwen2_5_vl") if len(c["images"]) == 1)
    bad = body(case)
    bad["messages"][0]["content"][0]["image_url"]["url"] = data_url(name)
    r = qwen.post("/v1/chat/completions", bad)
    assert r.status_code == 400 and r.json()["error"]["code"] == "invalid_image_format", r.text
    assert greedy(answer(qwen, case)) == case["greedy_ids"]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "gemma3"])
def test_a_killed_shard_is_sent_the_pictures_again(family):
    case = next(c for c in cases(family) if len(c["images"]) == 1)
    long = body(case, max_tokens=300, return_token_ids=True)
    with Service(folder(family), args=[*ARGS, "--max-shard-restarts", 3]) as s:
        want = s.post("/v1/chat/completions", long).json()["choices"][0]["token_ids"]
        assert want[: len(case["greedy_ids"])] == case["greedy_ids"]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(s.post, "/v1/chat/completions", {**long, "cache_salt": str(i)}) for i in range(4)]
            wait_for(lambda: s.metric("tgi_batch_current_size"))
            s.kill_shard()
            for a in asked:
                r = a.result()
                assert r.status_code == 200, r.text
                assert r.json()["choices"][0]["token_ids"] == want
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(requests.RequestException):
                if requests.get(s.url + "/readyz", timeout=5).status_code == 200:
                    break
        assert greedy(answer(s, case)) == case["greedy_ids"]


@pytest.mark.parametrize(("family", "swap"), [("qwen2_5_vl", 0), ("qwen2_5_vl", 0.25), ("gemma3", 0), ("gemma3", 0.25), ("qwen3_5", 0)])
def test_a_preempted_picture_goes_on_with_the_same_bits(family, swap):
    """A cache for a few of the streams: one that is computed again, or swapped out and in, has the answer that it has alone."""
    seen = [c for c in cases(family) if len(c["images"]) == 1]
    bodies = [body(c, max_tokens=90, return_token_ids=True, logprobs=True, cache_salt=str(i % 7)) for i, c in enumerate(seen * 2)]
    tight = ["--max-batch-total-tokens", 448, "--max-total-tokens", 300, "--swap-space", swap]

    def says(s, one):
        r = s.post("/v1/chat/completions", one)
        assert r.status_code == 200, r.text
        said = r.json()["choices"][0]
        return said["token_ids"], [t["logprob"] for t in said["logprobs"]["content"]]

    with Service(folder(family), args=[*ARGS, *tight]) as s:
        alone = [says(s, b) for b in bodies]
        for case, (ids, _) in zip(seen * 2, alone):
            assert ids[: len(case["greedy_ids"])] == case["greedy_ids"], case["images"]
        preempted = lambda method: s.metric("tgi_preemption_count", method=method) or 0
        assert preempted("swap") + preempted("recompute") == 0
        assert crowd(s, says, bodies) == alone
        assert preempted("swap" if swap else "recompute") > 0
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_swap_blocks_used") == 0)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "gemma3"])
def test_a_prefix_with_an_image_is_found_before_and_after_a_restart(family):
    """After the restart the KV cache and the shard's cache of images are empty; then both fill again."""
    case = max((c for c in cases(family) if len(c["images"]) == 1), key=lambda c: len(c["ids"]))
    with Service(folder(family), args=[*ARGS, "--max-shard-restarts", 3]) as s:
        first, again = answer(s, case), answer(s, case)
        assert cached(first) == 0 and cached(again) > 0
        victim = s.shards()[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: s.metric("tgi_shard_returns") == 1, 30)  # a request before that may still count the old cache
        anew, hit = answer(s, case), answer(s, case)
        assert cached(anew) == 0 and cached(hit) == cached(again)
        assert all(greedy(a) == case["greedy_ids"] for a in (first, again, anew, hit))


def test_a_turn_behind_a_stop_sequence_within_drafts_goes_on_from_the_right_state():
    """A recurrent model whose positions have three axes: the state of an ended answer is saved, after its last drafts were dropped."""
    path, image = folder("qwen3_5"), {"type": "image_url", "image_url": {"url": data_url("exact_56x56.png")}}
    loops = {"logit_bias": {str(t): 100 for t in (83, 92, 76)}}  # an answer that repeats itself, so drafts are right

    def ask(s, messages, n, **more):
        r = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": n, "temperature": 0, "ignore_eos": True, "logprobs": True, **more})
        assert r.status_code == 200, r.text
        return r.json()

    def said(a):
        return [(t["token"], t["logprob"]) for t in a["choices"][0]["logprobs"]["content"]]

    first = [[{"role": "user", "content": [image, {"type": "text", "text": f"abc {i * 'de fg '}"}]}] for i in range(8)]
    turns = []
    with Service(path, args=ARGS) as s:
        for messages in first:
            a = ask(s, messages, 70, **loops)
            text, n = a["choices"][0]["message"]["content"], a["usage"]["prompt_tokens"]
            end = next(i for i in range(30, 60) if (n + i) % 16 == 0) + 1  # a state is saved at the end of a block
            more = [{"role": "assistant", "content": text[:end]}, {"role": "user", "content": "and then"}]
            turns.append((text[:end], messages + more, said(ask(s, messages + more, 12))))
    with Service(path, args=[*ARGS, "--speculate", 4], env={"SPECULATE_ROW_COST": "0.03"}) as s, concurrent.futures.ThreadPoolExecutor(1) as pool:
        beside = pool.submit(ask, s, [{"role": "user", "content": "zzz"}], 3000)  # keeps the batch
        wait_for(lambda: s.metric("tgi_batch_current_size") == 1)
        for messages, (stop, _, _) in zip(first, turns):
            ask(s, messages, 120, stop=[stop], **loops)
        assert not beside.done()
        for _, messages, want in turns:
            assert said(ask(s, messages, 12)) == want
        assert s.metric("tgi_state_snapshot_hits") > 0
        beside.result()
