"""Models with recurrent state: the same request gives the same log-probabilities, bit for bit, alone and whole, in company, in
chunks, from a snapshot that somebody else left, after it made way for others, and by the successor of a shard that was killed."""

import concurrent.futures
import os
import random
import signal

import pytest
from serving import Service, data, seed_for, wait_for

TALES = ["Once upon a time, there was a little girl named Lily. She lived in a house", "Tom had a big red ball. He saw", "One"]
MORE = [" She was very happy.", " He went to the park.", " The sun was warm", " and then", " They played all day."]
RECURRENCES = ["arch/qwen3_5_text", "arch/granitemoehybrid", "arch/lfm2"]  # delta rule, Mamba-2, short convolution


@pytest.fixture
def model():
    return data("arch/qwen3_next")


def work(rng, n, new):
    """Few beginnings, many ends; greedy and seeded."""
    for i in range(n):
        p = {"max_new_tokens": rng.randint(1, new), "details": True, "ignore_eos": True}
        if i % 2:
            p |= {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": i}
        yield {"inputs": rng.choice(TALES) + "".join(rng.choices(MORE, k=rng.randint(0, 5))), "parameters": p}


def answer(s, body):
    r = s.post("/generate", body)
    assert r.status_code == 200, r.text
    return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]


def alone(s, body):
    """Whole and without anybody's help: a request for the prompt's own log-probabilities shares nothing."""
    return answer(s, body | {"parameters": body["parameters"] | {"decoder_input_details": True}})


def crowd(s, bodies, rng):
    """All at once, in any order."""
    order = list(range(len(bodies)))
    rng.shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        jobs = {i: pool.submit(answer, s, bodies[i]) for i in order}
        return [jobs[i].result() for i in range(len(bodies))]


def expect_empty(s):
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_state_cells", state="used") == 0)
    cells = s.audit()["scheduler"]["cells"]
    assert cells["held"] == 0 and cells["total"] == cells["free"] + cells["snapshots"] > 0


@pytest.mark.parametrize("num_shard", [1, 2])
@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_no_schedule_changes_a_bit(recurrence, num_shard):
    model = data(recurrence)
    rng = random.Random(seed_for(num_shard))
    bodies = list(work(rng, 40, 30))
    with Service(model, num_shard) as s:
        want = [alone(s, b) for b in bodies]
        assert s.metric("tgi_state_snapshot_hits") == 0
    args = ["--max-batch-prefill-tokens", "40", "--target-inter-token-ms", "1"]
    with Service(model, num_shard, args=args) as s:
        for _ in range(3):
            assert crowd(s, bodies, rng) == want
        assert s.metric("tgi_state_snapshots") > 10 and s.metric("tgi_state_snapshot_hits") > 20
        expect_empty(s)


def test_making_way_changes_nothing(model):
    """A cache of 28 blocks for requests that want up to half of them each."""
    rng = random.Random(seed_for(3))
    bodies = list(work(rng, 30, 120))
    with Service(model, args=["--max-batch-total-tokens", "448", "--max-total-tokens", "400"]) as s:
        want = [alone(s, b) for b in bodies]
        for _ in range(2):
            assert crowd(s, bodies, rng) == want
        assert s.metric("tgi_preemption_count", method="recompute") > 0
        assert s.metric("tgi_preemption_count", method="swap") in (None, 0)
        expect_empty(s)


def test_a_conversation_goes_on_from_its_last_answer(model):
    text = TALES[0] + "".join(MORE)
    with Service(model) as s:
        hits = 0
        for turn in range(4):
            body = {"inputs": text, "parameters": {"max_new_tokens": 50, "details": True, "ignore_eos": True}}
            want = alone(s, body)
            before = s.metric("prefix_hit_tokens") or 0
            r = s.post("/generate", body).json()
            assert [(t["id"], t["logprob"]) for t in r["details"]["tokens"]] == want
            hits += ((s.metric("prefix_hit_tokens") or 0) - before > 0)
            text += MORE[turn]
        assert hits == 3 and s.metric("tgi_state_snapshot_hits") == 3


def test_n_answers_compute_their_prompt_once(model):
    body = {"prompt": TALES[0] * 4, "model": "tgi", "max_tokens": 8, "logprobs": 1, "temperature": 1, "seed": 5}
    with Service(model) as s:
        one = s.post("/v1/completions", {**body, "n": 1}).json()["choices"][0]
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
        r = s.post("/v1/completions", {**body, "prompt": TALES[0] * 4, "n": 4}).json()
        assert one["text"] in [c["text"] for c in r["choices"]]
        assert s.metric("tgi_state_snapshot_hits") >= 3


def test_the_successor_of_a_killed_shard_goes_on(model):
    rng = random.Random(seed_for(4))
    bodies = [b | {"parameters": b["parameters"] | {"max_new_tokens": 300}} for b in work(rng, 16, 2)]

    def stream(s, begun, body):
        out = []
        for e in s.events("/generate_stream", body):
            out.append((e["token"]["id"], e["token"]["logprob"]))
            begun.append(1)
        return out

    with Service(model) as s, concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        want = [f.result() for f in [pool.submit(stream, s, [], b) for b in bodies]]
        begun = []
        jobs = [pool.submit(stream, s, begun, b) for b in bodies]
        wait_for(lambda: len(begun) > 2 * len(bodies))
        os.kill(s.shards()[0], signal.SIGKILL)
        assert not all(j.done() for j in jobs), "too fast: nothing was killed"
        assert [j.result() for j in jobs] == want
        assert s.metric("tgi_shard_returns") == 1
        expect_empty(s)
