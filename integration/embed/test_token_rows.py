"""Labels and vectors of tokens: vLLM's /pooling, late interaction in /score and /rerank; against numpy over the served hidden states."""

import json
import shutil

import numpy as np
import pytest
import requests
from gguf_made import tensors
from safetensors.numpy import save_file
from serving import Service, data, wait_for
from torch_made import save

TEXTS = ["Hello world", "a", "the sun is shining on a very long street"]
RNG = np.random.default_rng(4)
LABELS, NARROW = RNG.standard_normal((5, 64), np.float32), RNG.standard_normal((16, 64), np.float32)
BIAS = RNG.standard_normal(5, np.float32)


def folder(to, architecture, more, prefixes=None):
    """embed/bert_mean of another class; with `prefixes` as PyLate saves it."""
    shutil.copytree(data("embed/bert_mean"), to)
    w = {(n if n.startswith("bert.") else f"bert.{n}"): v for n, v in tensors(to)}
    config = json.loads((to / "config.json").read_text()) | {"architectures": [architecture]}
    config["id2label"] = {str(i): f"B-{i}" for i in range(5)}
    (to / "config.json").write_text(json.dumps(config))
    shutil.rmtree(to / "1_Pooling")
    (to / "modules.json").unlink()
    if prefixes:
        kinds = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
        (to / "modules.json").write_text(json.dumps([{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(kinds)]))
        (to / "1_Dense").mkdir()
        save_file(more, to / "1_Dense/model.safetensors")
        dense = {"in_features": 64, "out_features": 16, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
        (to / "1_Dense/config.json").write_text(json.dumps(dense))
        (to / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {}, **prefixes}))
        more = {}
    save_file(w | more, to / "model.safetensors")
    return to


@pytest.fixture(scope="module")
def states():
    """The hidden states of any text."""
    with Service(data("embed/bert_mean")) as s:
        yield lambda text: np.array(s.post("/embed_all", {"inputs": [text]}).json()[0])


@pytest.fixture(scope="module")
def colbert(tmp_path_factory):
    with Service(folder(tmp_path_factory.mktemp("late") / "m", "HF_ColBERT", {"linear.weight": NARROW}), num_shard=2) as s:
        yield s


def softmax(x):
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def late(query, document):
    return (unit(query @ NARROW.T) @ unit(document @ NARROW.T).T).max(1).sum()


def test_labels_of_tokens(states, tmp_path):
    more = {"classifier.weight": LABELS, "classifier.bias": BIAS}
    with Service(folder(tmp_path / "m", "BertForTokenClassification", more)) as s:
        assert requests.get(s.url + "/info").json()["model_type"]["classifier"]["id2label"]["4"] == "B-4"
        for body, of in ({}, softmax), ({"task": "token_classify", "use_activation": False}, lambda x: x):
            got = s.post("/pooling", {"input": TEXTS, **body}).json()
            assert [d["index"] for d in got["data"]] == [0, 1, 2] and got["data"][0]["object"] == "pooling"
            for d, text in zip(got["data"], TEXTS):
                assert np.abs(np.array(d["data"]) - of(states(text) @ LABELS.T + BIAS)).max() < 1e-4
        for path, body in [("/pooling", {"input": "x", "task": "embed"}), ("/embed", {"inputs": "x"}), ("/v1/embeddings", {"input": "x"}),
                           ("/classify", {"input": "x"}), ("/score", {"text_1": "x", "text_2": "y"}), ("/generate", {"inputs": "x"})]:  # fmt: skip
            assert s.post(path, body).status_code == 400, path


def test_vectors_of_tokens(colbert, states):
    got = colbert.post("/pooling", {"input": TEXTS}).json()["data"]
    for d, text in zip(got, TEXTS):
        assert np.abs(np.array(d["data"]) - unit(states(text) @ NARROW.T)).max() < 1e-4
    assert colbert.post("/pooling", {"input": TEXTS, "task": "token_embed"}).json()["data"] == got
    assert colbert.post("/v1/embeddings", {"input": "x"}).status_code == 400
    assert requests.get(colbert.url + "/info").json()["model_type"] == {"embedding": {"dimensions": 16}}


def test_late_interaction(colbert, states):
    want = [late(states(TEXTS[0]), states(t)) for t in TEXTS]
    got = colbert.post("/score", {"text_1": TEXTS[0], "text_2": TEXTS}).json()["data"]
    assert np.allclose([d["score"] for d in got], want, atol=1e-4)
    pairs = colbert.post("/score", {"text_1": TEXTS, "text_2": TEXTS[::-1]}).json()["data"]
    assert np.allclose([d["score"] for d in pairs], [late(states(a), states(b)) for a, b in zip(TEXTS, TEXTS[::-1])], atol=1e-4)
    for path in "/rerank", "/v1/rerank":
        ranked = colbert.post(path, {"query": TEXTS[0], "documents": TEXTS, "top_n": 2}).json()["results"]
        assert [r["index"] for r in ranked] == sorted(range(3), key=lambda i: -want[i])[:2]
        assert np.allclose([r["relevance_score"] for r in ranked], sorted(want, reverse=True)[:2], atol=1e-4)
    assert colbert.post("/rerank", {"query": "x", "texts": ["y"]}).status_code == 400


def test_prefixes_of_pylate(states, tmp_path):
    path = folder(tmp_path / "m", "BertModel", {"linear.weight": NARROW}, {"query_prefix": "sun ", "document_prefix": "world ", "do_query_expansion": False, "skiplist_words": []})
    with Service(path) as s:
        got = s.post("/score", {"text_1": TEXTS[0], "text_2": TEXTS}).json()["data"]
        want = [late(states("sun " + TEXTS[0]), states("world " + t)) for t in TEXTS]
        assert np.allclose([d["score"] for d in got], want, atol=1e-4)
        row = s.post("/pooling", {"input": TEXTS[2]}).json()["data"][0]["data"]
        assert np.abs(np.array(row) - unit(states(TEXTS[2]) @ NARROW.T)).max() < 1e-4


def test_tokens_of_a_model_that_embeds(states):
    with Service(data("embed/bert_mean")) as s:
        vectors = np.array(s.post("/embed", {"inputs": TEXTS}).json())
        ranked = s.post("/v1/rerank", {"query": TEXTS[0], "documents": TEXTS}).json()["results"]
        assert np.allclose([r["relevance_score"] for r in ranked], sorted(vectors @ vectors[0], reverse=True), atol=1e-5)
        assert ranked[0]["index"] == 0 and s.post("/rerank", {"query": "x", "texts": ["y"]}).status_code == 400
        for d, text in zip(s.post("/pooling", {"input": TEXTS, "task": "token_embed"}).json()["data"], TEXTS):
            assert np.abs(np.array(d["data"]) - unit(states(text))).max() < 1e-5
        assert np.array(s.post("/pooling", {"input": "a"}).json()["data"][0]["data"]).ndim == 1
        r = s.post("/pooling", {"input": "a", "task": "token_classify"})
        assert r.status_code == 400 and "embed" in r.text


@pytest.fixture(scope="module")
def m3(tmp_path_factory):
    """BGE-M3's files: those of a model that embeds, and the matrix and the bias of its vectors of tokens."""
    to = tmp_path_factory.mktemp("m3") / "m"
    shutil.copytree(data("embed/xlm_roberta_cls"), to)
    hidden = json.loads((to / "config.json").read_text())["hidden_size"]
    w, bias = RNG.standard_normal((hidden, hidden), np.float32), RNG.standard_normal(hidden, np.float32)
    save(to / "colbert_linear.pt", {"weight": ("F32", w.shape, w.tobytes()), "bias": ("F32", bias.shape, bias.tobytes())})
    return to, w, bias


def test_vectors_of_tokens_of_bge_m3(m3):
    """Of all tokens but the first (arXiv 2402.03216)."""
    path, w, bias = m3
    with Service(path) as s:
        rows = [np.array(r)[1:] @ w.T + bias for r in s.post("/embed_all", {"inputs": TEXTS}).json()]
    with Service(path, args=["--pooling", "colbert"], num_shard=2) as s:
        got = s.post("/pooling", {"input": TEXTS}).json()["data"]
        assert all(np.abs(np.array(d["data"]) - unit(r)).max() < 1e-4 for d, r in zip(got, rows))
        want = [(unit(rows[0]) @ unit(r).T).max(1).sum() for r in rows]
        scores = s.post("/score", {"text_1": TEXTS[0], "text_2": TEXTS}).json()["data"]
        assert np.allclose([d["score"] for d in scores], want, atol=1e-4)
        assert s.post("/v1/embeddings", {"input": "x"}).status_code == 400


def test_vectors_of_bge_m3_need_their_file():
    s = Service(data("embed/xlm_roberta_cls"), args=["--pooling", "colbert"], ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert s.p.returncode != 0 and "--pooling colbert needs colbert_linear.pt" in s.log
