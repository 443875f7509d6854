"""A request gets bit-identical log-probabilities in any schedule: alone and whole, in a batch, in chunks, after a prefix that another request
computed, in a copy of a half-filled block, as one of n."""

import concurrent.futures
import json
import random

import pytest
import requests
from serving import DEMO, FEW_BITS, Service, seed_for


@pytest.fixture(autouse=True)
def several_threads(monkeypatch):
    """Of each shard, which is one in other tests (conftest.py)."""
    monkeypatch.setenv("THREADS", "2")


TALES = ["Once upon a time, there was a little girl named Lily.", "Tom had a big red ball.", "One day, a dog"]
MORE = [" She was very happy.", " He went to the park.", " The sun was warm", " and then", " They played all day."]


def prompt(rng):
    """Few beginnings, many ends: prefixes are shared up to anywhere in a block."""
    return rng.choice(TALES) + "".join(rng.choices(MORE, k=rng.randint(0, 14)))


def asked(rng, i):
    p = {"max_new_tokens": rng.randint(1, 30), "details": True}
    if i % 2:
        p |= {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": i}
    return {"inputs": prompt(rng), "parameters": p}


def answer(s, body, headers=None):
    r = requests.post(s.url + "/generate", json=body, headers=headers, timeout=120)
    assert r.status_code == 200, r.text
    return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]


def alone(s, body):
    """Whole, without blocks of other requests: a request for the prompt's own log-probabilities shares nothing."""
    return answer(s, body | {"parameters": body["parameters"] | {"decoder_input_details": True}})


def leave_early(s, body):
    with requests.post(s.url + "/generate_stream", json=body, stream=True, timeout=120) as r:
        next(r.iter_lines())


@pytest.mark.parametrize("num_shard,few", [(1, []), (2, []), (1, FEW_BITS)])
def test_no_schedule_changes_a_bit(num_shard, few):
    rng = random.Random(seed_for(num_shard))
    work = [asked(rng, i) for i in range(30 if few or num_shard == 2 else 60)]  # schedules are the router's
    with Service(DEMO, num_shard, args=few) as s:
        want = [alone(s, b) for b in work]
    args = ["--max-batch-prefill-tokens", "40", "--target-inter-token-ms", "1", "--max-concurrent-requests", "200", *few]
    with Service(DEMO, num_shard, args=args) as s, concurrent.futures.ThreadPoolExecutor(24) as pool:
        for _ in range(3 if len(work) == 60 else 2):
            order = list(range(len(work)))
            rng.shuffle(order)
            for i in range(10):
                pool.submit(leave_early, s, asked(rng, i))
            jobs = {}
            for i in order:
                body = work[i] | {"parameters": work[i]["parameters"] | {"priority": rng.randint(-2, 2)}}
                headers = {"x-gateway-inference-fairness-id": str(rng.randint(0, 3))}
                jobs[i] = pool.submit(answer, s, body, headers)
            for i in order:
                assert jobs[i].result() == want[i], work[i]
        metrics = requests.get(s.url + "/metrics", timeout=10).text
        counts = {l.split()[0]: float(l.split()[1]) for l in metrics.splitlines() if l and l[0] != "#"}
        assert counts["prefix_hit_tokens"] > 1000 and counts["tgi_kv_copies"] > 10


def completion(s, **body):
    r = requests.post(s.url + "/v1/completions", json={"model": "tgi", "logprobs": 1, **body}, timeout=120)
    assert r.status_code == 200, r.text
    return r.json()


def test_a_conversation_in_parts_computes_one_token_a_part():
    """As LMTP's clients do: a few tokens, then all of it again for a few more."""
    text = TALES[0] + "".join(MORE) * 30
    body = {"inputs": text, "parameters": {"max_new_tokens": 200, "details": True, "ignore_eos": True}}
    with Service(DEMO) as s:
        whole = alone(s, body)
        ids = [t["id"] for t in requests.post(s.url + "/tokenize", json={"inputs": text}, timeout=10).json()]
    with Service(DEMO) as s:
        k, part = 0, 0
        while k < len(whole):
            n = min([16, 3, 1, 7, 13][part % 5], len(whole) - k)
            said = ids + [t for t, _ in whole[:k]]
            r = completion(s, prompt=said, max_tokens=n, temperature=0, ignore_eos=True)
            assert r["choices"][0]["logprobs"]["token_logprobs"] == [lp for _, lp in whole[k : k + n]]
            if part:
                assert r["usage"]["prompt_tokens_details"]["cached_tokens"] == len(said) - 1
            k, part = k + n, part + 1


@pytest.mark.parametrize("stream", [False, True])
def test_n_answers_are_those_of_n_requests_and_compute_the_prompt_once(stream):
    body = {"prompt": TALES[0] + "".join(MORE), "max_tokens": 24, "temperature": 0.9}
    with Service(DEMO) as s:
        want = [completion(s, **body, seed=100 + i)["choices"][0]["text"] for i in range(4)]
    with Service(DEMO) as s:
        if stream:
            r = requests.post(
                s.url + "/v1/completions",
                json={
                    "model": "tgi",
                    **body,
                    "seed": 100,
                    "n": 4,
                    "stream": True,
                    "stream_options": {"include_usage": True},
                },
                stream=True,
                timeout=60,
            )
            got, usage = [""] * 4, None
            for line in r.iter_lines():
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    for c in chunk["choices"]:
                        got[c["index"]] += c["text"]
                    usage = chunk["usage"] if not chunk["choices"] else usage
        else:
            r = completion(s, **body, seed=100, n=4)
            got, usage = [c["text"] for c in r["choices"]], r["usage"]
        assert got == want
        metrics = requests.get(s.url + "/metrics", timeout=10).text
        computed = [l for l in metrics.splitlines() if l.startswith("tgi_batch_prompt_tokens_sum")]
        assert float(computed[0].split()[1]) == usage["prompt_tokens"] + 3  # one token for each of the others
        assert "tgi_shared_prompts 3" in metrics


def test_best_of_shows_the_best():
    body = {"prompt": TALES[1], "max_tokens": 12, "temperature": 1.2, "seed": 5}
    with Service(DEMO, args=["--max-best-of", "4"]) as s:
        each = completion(s, **body, n=4)["choices"]
        best = completion(s, **body, n=2, best_of=4)

        def mean(c):
            return sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])

        ranked = sorted(each, key=mean, reverse=True)
        assert [c["text"] for c in best["choices"]] == [c["text"] for c in ranked[:2]]
        assert [c["index"] for c in best["choices"]] == [0, 1]
        assert best["usage"]["completion_tokens"] == sum(len(c["logprobs"]["tokens"]) for c in each)
