"""A listwise reranker: documents of one prompt, and of several, as jina-reranker-v3's equations score them (tests/golden/make_list.py)."""

import json

import pytest
from serving import ROOT, Service

MODEL = ROOT / "tests/data/listwise"
WANT = json.loads((MODEL / "golden.json").read_text())


def ranked(s, query, documents, path="/v1/rerank", **more):
    r = s.post(path, {"query": query, "documents": documents, **more})
    assert r.status_code == 200, r.text
    results = r.json()["results"]
    assert results == sorted(results, key=lambda x: -x["relevance_score"])
    return [x["relevance_score"] for x in sorted(results, key=lambda x: x["index"])]


def near(got, want):
    assert len(got) == len(want)
    worst = max(abs(a - b) for a, b in zip(got, want))
    assert worst < 1e-5, worst


@pytest.mark.parametrize("shards", [1, 2])
def test_scores_are_those_of_the_equations(shards):
    with Service(MODEL, shards, ["--max-batch-prefill-tokens", 4096]) as s:
        query, documents = WANT["query"], WANT["documents"]
        scores = ranked(s, query, documents)
        near(scores, WANT["scores"])
        assert ranked(s, query, documents, "/rerank") == scores
        near(ranked(s, query, documents, instruction=WANT["instruction"]), WANT["told"])
        # what other documents stand in the prompt matters
        near(ranked(s, query, documents[:1]), WANT["alone"][:1])
        near(ranked(s, query, WANT["many"]), WANT["many_scores"])
        r = s.post("/score", {"text_1": query, "text_2": documents}).json()
        assert [d["score"] for d in r["data"]] == scores
        r = s.post("/score", {"text_1": [query] * len(documents), "text_2": documents}).json()
        near([d["score"] for d in r["data"]], WANT["alone"])
        r = s.post("/v1/rerank", {"query": query, "documents": documents, "top_n": 2, "return_documents": True}).json()
        assert len(r["results"]) == 2 and r["results"][0]["document"]["text"] in documents
        s.kill_shard()
        assert ranked(s, query, documents) == scores, "by new shards"


def test_a_prompt_that_is_too_long():
    with Service(MODEL, args=["--max-input-tokens", 200]) as s:
        r = s.post("/v1/rerank", {"query": WANT["query"], "documents": ["w1 " * 190]})
        assert r.status_code == 400 and "at most 200 are allowed" in r.text, r.text
        near(ranked(s, WANT["query"], WANT["documents"][:1]), WANT["alone"][:1])
