"""Sliding-window layers release the blocks behind their window: no schedule changes a bit, prompts continue from a cached window, and a long
context takes at most its window and a chunk there. Bits are compared with those of one cache for all layers."""

import concurrent.futures
import json
import random
import shutil
import threading
import time

import pytest
from serving import DEMO, Service, crowd, seed_for, wait_for
from short_prompts import MORE, TALES, answer, leave_early, streams_survive_a_crash

BLOCK = 16
ONE_CACHE = ["--swap-space", "0.001"]  # a swap region keeps windows in the cache of all layers


def windowed(folder, kind="smollm3", window=40, positions=2048):
    """The bundled model, as if it had been trained with windows: half of its layers, or all of them."""
    model = folder / f"{kind}-{window}"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": kind, "sliding_window": window, "max_position_embeddings": positions, "use_sliding_window": True}
    config |= {"max_window_layers": 3, "no_rope_layers": [1] * config["num_hidden_layers"]}
    (model / "config.json").write_text(json.dumps(config))
    return model


def asked(rng, i, most=40):
    p = {"max_new_tokens": rng.randint(1, most), "details": True, "ignore_eos": True}
    if i % 2:
        p |= {"do_sample": True, "temperature": 0.9, "seed": i}
    if i % 7 == 3:
        p |= {"decoder_input_details": True}
    return {"inputs": rng.choice(TALES) + "".join(rng.choices(MORE, k=rng.randint(0, 25))), "parameters": p}


def window_blocks(s, state):
    return s.metric("tgi_kv_window_blocks", state=state)


def expect_empty(s):
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and window_blocks(s, "used") == 0)
    windows = s.audit()["scheduler"]["windows"]
    assert windows["held"] == 0 and windows["total"] == windows["free"] + windows["cached"] > 0


@pytest.mark.parametrize("kind,num_shard", [("smollm3", 1), ("smollm3", 2), ("mistral", 1)])
def test_no_schedule_changes_a_bit(kind, num_shard, tmp_path):
    rng = random.Random(seed_for(num_shard))
    work = [asked(rng, i) for i in range(40)]
    model = windowed(tmp_path, kind)
    with Service(model, num_shard, args=ONE_CACHE) as s:
        want = [answer(s, b) for b in work]
        assert window_blocks(s, "used") is None
    args = ["--max-batch-prefill-tokens", "40", "--target-inter-token-ms", "1", "--max-concurrent-requests", "200"]
    with Service(model, num_shard, args=args) as s, concurrent.futures.ThreadPoolExecutor(24) as pool:
        for _ in range(2):
            order = list(range(len(work)))
            rng.shuffle(order)
            left = [pool.submit(leave_early, s, asked(rng, i)) for i in range(6)]
            jobs = {i: pool.submit(answer, s, work[i]) for i in order}
            s.audit()
            for i in order:
                assert jobs[i].result() == want[i], work[i]
            concurrent.futures.wait(left)
        # 640 to 950 tokens, and 540 if a busy machine lets 24 requests arrive before the first prompt is computed
        assert s.metric("prefix_hit_tokens") > 200 and s.metric("tgi_kv_copies") > 5
        expect_empty(s)


@pytest.mark.parametrize("extra", [[], ["--speculate", "4"]])
def test_preemption_changes_nothing(extra, tmp_path):
    """A cache for a fraction of what is asked for: KV blocks and blocks of windows run out."""
    rng = random.Random(seed_for(3))
    work = [asked(rng, i, 120) for i in range(30)]
    model = windowed(tmp_path)
    with Service(model, args=ONE_CACHE) as s:
        want = [answer(s, b) for b in work]
    args = ["--kv-cache-memory", "1000000", "--max-total-tokens", "300", "--max-batch-prefill-tokens", "64", *extra]
    with Service(model, args=args) as s:
        assert [answer(s, b) for b in work] == want
        for _ in range(5):  # with drafts, who is preempted depends on how many of them a step accepts
            assert crowd(s, answer, work) == want
            if s.metric("tgi_preemption_count", method="recompute"):
                break
        assert s.metric("tgi_preemption_count", method="recompute") > 0
        expect_empty(s)


def test_streams_go_on_when_their_shard_is_killed(tmp_path):
    with Service(windowed(tmp_path)) as s:
        streams_survive_a_crash(s, 16)
        expect_empty(s)


def test_a_conversation_goes_on_from_its_last_answer(tmp_path):
    """Whose window is there still, while those before it are gone."""
    with Service(windowed(tmp_path)) as s:
        said = [t["id"] for t in s.post("/tokenize", {"inputs": TALES[0] + "".join(MORE) * 8}).json()]
        for turn in range(4):
            before = s.metric("prefix_hit_tokens") or 0
            body = {"model": "m", "prompt": said, "max_tokens": 60, "ignore_eos": True, "logprobs": 1, "temperature": 0}
            r = s.post("/v1/completions", body | {"return_tokens_as_token_ids": True}).json()
            if turn:
                assert s.metric("prefix_hit_tokens") - before > len(said) - 2 * BLOCK
            said += [int(t.split(":")[1]) for t in r["choices"][0]["logprobs"]["tokens"]] + said[:5]


@pytest.mark.parametrize("kind,memory", [("smollm3", 17_500_000), ("mistral", 10_000_000)])
def test_a_long_context_takes_a_window_and_a_chunk(kind, memory, tmp_path):
    """In memory that holds it only so: one cache of all layers would take 25,165,824 bytes."""
    window, chunk, length = 256, 256, 8192
    model = windowed(tmp_path, kind, window, length)
    args = ["--max-batch-prefill-tokens", str(chunk), "--max-total-tokens", str(length), "--max-input-tokens", str(length - 100)]
    args += ["--kv-cache-memory", str(memory)]
    with Service(model, args=args) as s:
        ids = [5 + i * i % 2000 for i in range(length - 200)]
        most, over = [0], threading.Event()

        def look():
            while not over.is_set():
                most[0] = max(most[0], window_blocks(s, "used"))
                time.sleep(0.02)

        watcher = threading.Thread(target=look)
        watcher.start()
        r = s.post("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": 64, "ignore_eos": True})
        over.set()
        watcher.join()
        assert r.status_code == 200, r.text
        assert r.json()["usage"]["total_tokens"] == length - 200 + 64
        assert window / BLOCK < most[0] <= 1.1 * (window + chunk) / BLOCK
        expect_empty(s)
