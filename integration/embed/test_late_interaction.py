"""Queries and documents of late interaction as sentence-transformers 6 makes them (tests/golden/make_late.py): fillings, lengths, prefixes and
tokens without vectors, by the files of PyLate, of ColBERT's authors and its own."""

import base64
import json
import shutil
import struct

import pytest
from serving import ROOT, Service

LATE = ROOT / "tests/data/late"


def want(name):
    return json.loads((LATE / name / "golden.json").read_text())


def near(got, expected, most=1e-5):
    assert len(got) == len(expected)
    worst = max(abs(a - b) for x, y in zip(got, expected) for a, b in zip(x, y))
    assert worst < most, worst


def pooled(s, **body):
    r = s.post("/pooling", body)
    assert r.status_code == 200, r.text
    return [d["data"] for d in r.json()["data"]]


@pytest.mark.parametrize("name, shards", [("pylate", 1), ("pylate", 2), ("modern", 1), ("stanford", 1), ("native", 1)])
def test_vectors_and_scores(name, shards):
    g = want(name)
    with Service(LATE / name, shards) as s:
        query = pooled(s, input=g["query"], input_type="query")[0]
        near(query, g["query_vectors"])
        documents = pooled(s, input=g["documents"], input_type="document")
        for got, expected in zip(documents, g["document_vectors"]):
            near(got, expected)
        # beside others in one call, and alone
        assert pooled(s, input=[g["query"]] * 2, input_type="query") == [query, query]
        assert pooled(s, input=g["documents"][1], input_type="document")[0] == documents[1]
        r = s.post("/score", {"text_1": g["query"], "text_2": g["documents"]}).json()
        scores = [d["score"] for d in r["data"]]
        near([scores], [g["scores"]], 1e-4)
        r = s.post("/v1/rerank", {"query": g["query"], "documents": g["documents"]}).json()
        assert [x["index"] for x in r["results"]] == sorted(range(len(scores)), key=lambda i: -scores[i])
        assert [x["relevance_score"] for x in r["results"]] == sorted(scores, reverse=True)
        # as in vLLM, without the word all tokens of the text as it is
        assert len(pooled(s, input="w3, w4")[0]) == 5
        r = s.post("/v1/multi-vector", {"input": g["documents"], "input_type": "document"}).json()
        assert [d["embeddings"] for d in r["data"]] == documents and r["object"] == "list" and r["data"][0]["object"] == "embeddings"
        assert s.post("/v1/multi-vector", {"input": g["documents"]}).json()["data"] == r["data"], "documents are the default"
        r = s.post("/v1/multi-vector", {"input": g["query"], "input_type": "query", "dimensions": 4, "embedding_type": "base64"}).json()
        short = [struct.unpack("<4f", base64.b64decode(v)) for v in r["data"][0]["embeddings"]]
        near(short, [[x / sum(y * y for y in v[:4]) ** 0.5 for x in v[:4]] for v in query])
        for body in ({"input": [[1, 2]]}, {"input": "w1", "input_type": "x"}, {"input": "w1", "embedding_type": "int8"}, {"input": "w1", "dimensions": 13}):
            assert s.post("/v1/multi-vector", body).status_code == 400, body
        s.kill_shard()
        assert pooled(s, input=g["query"], input_type="query")[0] == query, "by new shards"


def test_an_unknown_kind_of_text():
    with Service(LATE / "native") as s:
        r = s.post("/pooling", {"input": "w1", "input_type": "question"})
        assert r.status_code == 400 and "must be query or document" in r.text


@pytest.mark.parametrize(
    "name, file, change, why",
    [
        ("native", "sentence_bert_config.json", {"query_expansion": {"strategy": "most", "length": 12}}, "`strategy` `most`"),
        ("native", "2_MultiVectorMask/config.json", {"keep_only_token_ids": [5]}, "`keep_only_token_ids`"),
        ("native", "config.json", {"local_attention": 8}, "with shorter windows"),
        ("stanford", "config.json", {"model_type": "convbert", "embedding_size": 32}, "with another kind of attention"),
        ("pylate", "config_sentence_transformers.json", {"skiplist_words": ["w1"] * 300}, "at most 256"),
    ],
)
def test_files_that_are_refused(tmp_path, name, file, change, why):
    folder = tmp_path / name
    shutil.copytree(LATE / name, folder)
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(Exception) as e:
        with Service(folder):
            pass
    assert why in str(e.value)
