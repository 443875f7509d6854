"""A reranker with a head behind each of its last layers (tests/golden/make_layerwise.py), as FlagEmbedding computes it."""

import json
import math
import shutil

import pytest
from serving import ROOT, Service

MODEL = ROOT / "tests/data/layerwise"
GOLDEN = json.loads((MODEL / "golden.json").read_text())
BODY = {"query": GOLDEN["query"], "documents": GOLDEN["documents"]}


def scores(s, path="/v1/rerank", **body):
    r = s.post(path, {**BODY, "raw_scores": True, **body})
    assert r.status_code == 200, r.text
    return [x["relevance_score"] for x in sorted(r.json()["results"], key=lambda x: x["index"])]


def near(got, want):
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < 2e-5


@pytest.mark.parametrize("cut, shards", [(None, 1), (None, 2), ("2", 1), ("3", 2), ("4", 1), ("5", 1)])
def test_scores_behind_a_layer(cut, shards):
    with Service(MODEL, shards, ["--cutoff-layer", cut] if cut else []) as s:
        got = scores(s)
        near(got, GOLDEN["logits"][cut or "5"])
        alone = [scores(s, documents=[d])[0] for d in GOLDEN["documents"]]
        assert alone == got and scores(s, "/rerank") == got
        r = s.post("/rerank", {"query": GOLDEN["query"], "texts": GOLDEN["documents"]}).json()
        near([x["score"] for x in sorted(r, key=lambda x: x["index"])], [1 / (1 + math.exp(-x)) for x in GOLDEN["logits"][cut or "5"]])
        assert s.post("/v1/embeddings", {"input": "x"}).status_code == 400
        if not cut:
            near(scores(s, instruction=GOLDEN["instruction"]), GOLDEN["told"])
        s.kill_shard()
        assert scores(s) == got, "by new shards"


def changed(tmp_path, **keys):
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | keys))
    return folder


@pytest.mark.parametrize(
    "keys, args, why",
    [
        ({}, ["--cutoff-layer", 1], "has scores of 2 to 5"),
        ({}, ["--cutoff-layer", 6], "has scores of 2 to 5"),
        ({}, ["--cutoff-layer", 3, "--task", "embed"], "no layerwise reranker"),
        ({"head_type": "complex"}, [], "`head_type` `complex`"),
        ({"start_layer": 6}, [], "`start_layer` is behind its last layer"),
        ({"start_layer": 0}, [], "`start_layer` must be"),
        ({"head_multi": False}, [], "lm_head.linear_head.weight` is missing"),
        ({"architectures": ["MiniCPMForCausalLM"]}, ["--cutoff-layer", 3], "no layerwise reranker"),
    ],
)
def test_what_is_refused(tmp_path, keys, args, why):
    with pytest.raises(Exception) as e:
        with Service(changed(tmp_path, **keys), args=args):
            pass
    assert why in str(e.value)
