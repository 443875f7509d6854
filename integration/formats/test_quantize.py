"""--quantize from the command line to the answers: close to the exact ones, but not equal, with the same scheme on every rank."""

import json

import pytest
import requests
from serving import DEMO, Service, data
from shard import Router, Shards

# mean absolute error of the log-probabilities of prompt tokens, at most: about three times what was measured
SCHEMES = [("eetq", "int8", 0.06), ("w8a8", "w8a8", 0.08), ("int4", "int4", 0.5), ("fp8", "fp8", 0.2)]


def prompts(model):
    return json.loads((model / "golden.json").read_text())["prompts"]


def logprobs(shards, prompt):
    router = Router(shards)
    r = router.request(prompt["inputs"], max_new=1, prefill_logprobs=True)
    router.finish(router.prefill(r))
    return list(router.last[r.id].prefill_tokens.logprobs)[1:]


@pytest.mark.parametrize("word, name, bound", SCHEMES)
@pytest.mark.parametrize("world", [1, 2])
def test_close_to_the_exact_logprobs(word, name, bound, world):
    model = data("models/stories260K")
    with Shards(model, world, ["--quantize", word]) as s:
        assert s.call("Info", s.pb.InfoRequest()).quantize == name
        assert f"quantize={name}" in s.ranks[0].log
        s.warmup()
        for p in prompts(model)[:2]:
            s.call("ClearCache", s.pb.ClearCacheRequest())
            got, want = logprobs(s, p), [t["logprob"] for t in p["prefill"][1:]]
            error = sum(abs(a - b) for a, b in zip(got, want)) / len(want)
            assert 1e-5 < error < bound, (got, want)


def test_the_launcher_hands_it_down():
    with Service(DEMO, args=["--quantize", "w8a8"]) as s:
        info = requests.get(s.url + "/info", timeout=10).json()
        assert (info["quantize"], info["model_dtype"]) == ("w8a8", "torch.bfloat16"), info
        r = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}})
        assert r.status_code == 200 and r.json()["generated_text"].strip()


def test_a_scheme_that_is_not_here_is_refused_with_the_reason():
    s = Service(DEMO, args=["--quantize", "gptq"], ready=False)
    assert s.p.wait(60) != 0
    assert "--quantize gptq: this checkpoint is not stored quantised" in s.log
