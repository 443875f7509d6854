"""A KV cache for a fraction of the requests: a preempted request gets the answer that it would get alone, bit by bit."""

import json
import random
import shutil

import pytest
from serving import DEMO, FEW_BITS, Service, crowd, seed_for, wait_for

PROMPTS = ["Once upon a time", "The little cat", "Tom and Lily went", "One day, a big", "She was very", "In the park"]
STREAMS = 32


def bodies():
    """Greedy and seeded, with penalties, stop texts and alternatives; each alone takes up to half of the cache."""
    rng = random.Random(seed_for(11))
    for i in range(STREAMS):
        p = {"max_new_tokens": rng.randint(40, 150), "details": True, "top_n_tokens": i % 3}
        if i % 2:
            p |= {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": i}
        if i % 3 == 1:
            p |= {"repetition_penalty": 1.2, "frequency_penalty": 0.3}
        if i % 4 == 2:
            p |= {"stop": [" the little"]}
        if i % 5 == 3:
            p |= {"decoder_input_details": True}
        yield {"inputs": " and ".join(rng.choices(PROMPTS, k=rng.randint(1, 6))), "parameters": p}


def answer(s, body):
    """All of a stream that does not tell the time."""
    if body["parameters"].get("decoder_input_details"):
        r = s.post("/generate", body)
        assert r.status_code == 200, r.text
        return r.json()
    return list(s.events("/generate_stream", body))


def preempted(s, method):
    return s.metric("tgi_preemption_count", method=method) or 0


def run(num_shard, *args, model=DEMO):
    tight = ["--max-concurrent-requests", "128", "--max-batch-total-tokens", "448", "--max-total-tokens", "300"]
    with Service(model, num_shard, args=[*tight, *args]) as s:
        work = list(bodies())
        alone = [answer(s, b) for b in work]
        assert preempted(s, "swap") + preempted(s, "recompute") == 0
        assert crowd(s, answer, work) == alone
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_swap_blocks_used") == 0)
        return preempted(s, "swap"), preempted(s, "recompute"), s.metric("tgi_swapped_blocks", direction="in") or 0


@pytest.mark.parametrize("num_shard,more", [(1, []), (2, []), (1, FEW_BITS)])
def test_computing_again_changes_nothing(num_shard, more):
    swap, again, _ = run(num_shard, *more)
    assert again > 0 and swap == 0


@pytest.mark.parametrize("num_shard", [1, 2])
def test_swapping_changes_nothing(num_shard):
    swap, _, moved_in = run(num_shard, "--swap-space", "0.25")
    assert swap > 0 and moved_in > 0


def test_rotations_that_look_at_the_length_are_computed_as_they_were(tmp_path):
    """From the 65th position on every length has rotations of its own, and keys keep those they were computed with."""
    model = tmp_path / "model"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    config |= {"max_position_embeddings": 64, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    (model / "config.json").write_text(json.dumps(config))
    _, again, _ = run(1, model=model)
    assert again > 0


def test_what_fits_without_preemption_is_not_refused_and_what_never_fits_is():
    with Service(DEMO, 1, args=["--max-batch-total-tokens", "448", "--max-total-tokens", "448"]) as s:
        info = s.post("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 2000}})
        assert info.status_code == 422
        r = s.post("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 400, "details": True}})
        assert r.status_code == 200
