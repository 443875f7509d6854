"""Models with recurrent layers: no schedule changes a bit, prompts start from snapshots of a state, and streams survive a shard's crash.
Bits are compared with those of each request alone and whole."""

import concurrent.futures
import random

import pytest
import requests
from serving import Service, crowd, data, seed_for, wait_for
from short_prompts import MORE, TALES, answer, leave_early, streams_survive_a_crash


def asked(rng, i):
    p = {"max_new_tokens": rng.randint(1, 40), "details": True, "ignore_eos": True}
    if i % 2:
        p |= {"do_sample": True, "temperature": 0.9, "seed": i}
    return {"inputs": rng.choice(TALES) + "".join(rng.choices(MORE, k=rng.randint(0, 12))), "parameters": p}


def alone(s, body):
    """Whole, and not from a snapshot: a request for the prompt's own log-probabilities shares nothing."""
    return answer(s, body | {"parameters": body["parameters"] | {"decoder_input_details": True}})


def expect_empty(s):
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_state_cells", state="used") == 0)
    cells = s.audit()["scheduler"]["cells"]
    assert cells["held"] == 0 and cells["total"] == cells["free"] + cells["snapshots"] > 0


def next_turn(s):
    """What goes on behind an answer begins from the state that it left."""
    text = "".join(MORE) * 4
    ids = [t["id"] for t in s.post("/tokenize", {"inputs": text}).json()]
    said = answer(s, {"inputs": text, "parameters": {"max_new_tokens": 60, "details": True, "ignore_eos": True}})
    before = s.metric("tgi_state_snapshot_hits")
    assert s.metric("tgi_state_snapshots") > 0
    r = s.post("/v1/completions", {"model": "m", "prompt": ids + [t for t, _ in said], "max_tokens": 4})
    assert r.status_code == 200, r.text
    assert s.metric("tgi_state_snapshot_hits") == before + 1


@pytest.mark.parametrize("model,num_shard", [("qwen3_next", 1), ("granitemoehybrid", 2), ("nemotron_h", 1), ("lfm2", 1)])
def test_no_schedule_changes_a_bit(model, num_shard):
    rng = random.Random(seed_for(num_shard))
    work = [asked(rng, i) for i in range(40)]
    folder = data(f"arch/{model}")
    with Service(folder, num_shard) as s:
        want = [alone(s, b) for b in work]
        assert s.metric("tgi_state_snapshot_hits") == 0
    args = ["--max-batch-prefill-tokens", "40", "--target-inter-token-ms", "1", "--max-concurrent-requests", "200"]
    with Service(folder, num_shard, args=args) as s, concurrent.futures.ThreadPoolExecutor(24) as pool:
        for _ in range(3):
            order = list(range(len(work)))
            rng.shuffle(order)
            left = [pool.submit(leave_early, s, asked(rng, i)) for i in range(6)]
            jobs = {i: pool.submit(answer, s, work[i]) for i in order}
            for i in order:
                assert jobs[i].result() == want[i], work[i]
            concurrent.futures.wait(left)
        next_turn(s)
        expect_empty(s)


def test_streams_go_on_when_their_shard_is_killed():
    with Service(data("arch/qwen3_next")) as s:
        streams_survive_a_crash(s, 24)
        assert requests.get(s.url + "/health", timeout=10).status_code == 200
        expect_empty(s)


def test_preemption_changes_nothing():
    """A cache of 28 blocks for requests that want up to half of them each."""
    rng = random.Random(seed_for(3))
    work = [asked(rng, i) for i in range(30)]
    for b in work:
        b["parameters"]["max_new_tokens"] *= 3
    with Service(data("arch/qwen3_next"), args=["--max-batch-total-tokens", "448", "--max-total-tokens", "400"]) as s:
        want = [alone(s, b) for b in work]
        assert crowd(s, answer, work) == want
        assert s.metric("tgi_preemption_count", method="recompute") > 0
        assert s.metric("tgi_preemption_count", method="swap") in (None, 0)
        expect_empty(s)


def test_a_conversation_goes_on_from_its_last_answer():
    text = TALES[0] + "".join(MORE) * 2
    with Service(data("arch/qwen3_next")) as s:
        for turn in range(4):
            body = {"inputs": text, "parameters": {"max_new_tokens": 50, "details": True, "ignore_eos": True}}
            want = alone(s, body)
            assert answer(s, body) == want
            assert s.metric("tgi_state_snapshot_hits") == turn
            text += MORE[turn]


def test_n_answers_compute_their_prompt_once():
    body = {"prompt": (TALES[0] + "".join(MORE)) * 2, "model": "tgi", "max_tokens": 8, "logprobs": 1, "temperature": 1, "seed": 5}
    with Service(data("arch/qwen3_next")) as s:
        one = s.post("/v1/completions", {**body, "n": 1}).json()["choices"][0]
        many = s.post("/v1/completions", {**body, "n": 4}).json()
        assert one["text"] in [c["text"] for c in many["choices"]]
        # shared among those that wait, or found in the prefix cache by one that came a step later
        assert s.metric("tgi_prompt_tokens_by_source", source="local_compute") < 2 * many["usage"]["prompt_tokens"]
        expect_empty(s)


def test_the_swap_region_is_off_and_said():
    with Service(data("arch/lfm2"), args=["--speculate", "4", "--swap-space", "0.01"]) as s:
        s.wait_log("the swap region is off: this model has recurrent state")
        assert s.post("/generate", {"inputs": TALES[0], "parameters": {"max_new_tokens": 5}}).status_code == 200
