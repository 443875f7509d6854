"""Sparse vectors of a BERT with its head for masked tokens, against the head's equations in numpy over the served hidden states."""

import json
import math
import shutil

import numpy as np
import pytest
import requests
from gguf_made import tensors
from safetensors.numpy import save_file
from serving import Service, data, wait_for
from torch_made import save

TEXTS = ["Hello world", "a", "the sun is shining on a very long street"]


def head(w):
    """Adds the head; its matrix is the table of embeddings."""
    rng = np.random.default_rng(3)
    vocab, hidden = next(v for n, v in w.items() if n.endswith("word_embeddings.weight")).shape
    shapes = {"transform.dense.weight": (hidden, hidden), "transform.dense.bias": (hidden,), "transform.LayerNorm.bias": (hidden,),
              "bias": (vocab,)}  # fmt: skip
    made = {n: 0.2 * rng.standard_normal(s, np.float32) for n, s in shapes.items()}
    made["transform.LayerNorm.weight"] = 1 + 0.2 * rng.standard_normal(hidden, np.float32)
    return {f"cls.predictions.{n}": v for n, v in made.items()}


def folder(to, sparse=None, head_of=head):
    """Of the files of sentence-transformers only with `sparse`."""
    shutil.copytree(data("embed/bert_mean"), to)
    w = dict(tensors(to))
    w |= head_of(w)
    save_file(w, to / "model.safetensors")
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"], "hidden_act": "gelu"}))
    (to / "modules.json").unlink()
    shutil.rmtree(to / "1_Pooling")
    if sparse:
        kinds = [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")]
        listed = [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.sparse_encoder.models.{k}"} for i, (p, k) in enumerate(kinds)]
        (to / "modules.json").write_text(json.dumps(listed))
        (to / "1_SpladePooling").mkdir()
        (to / "1_SpladePooling/config.json").write_text(json.dumps(sparse))
    return w


def expected(w, rows, over=np.max, twice=False):
    """A weight of each token of the vocabulary, of the hidden states of a text."""
    def of(name):
        return w[f"cls.predictions.{name}"].astype(np.float64)

    x = np.array(rows, np.float64) @ of("transform.dense.weight").T + of("transform.dense.bias")
    x *= 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * of("transform.LayerNorm.weight") + of("transform.LayerNorm.bias")
    table = next(v for n, v in w.items() if n.endswith("word_embeddings.weight"))
    x = np.log1p(np.maximum(x @ table.T.astype(np.float64) + of("bias"), 0))
    return over(np.log1p(x) if twice else x, axis=0)


def check(s, w, **how):
    got = s.post("/embed_sparse", {"inputs": TEXTS}).json()
    states = s.post("/embed_all", {"inputs": TEXTS}).json()
    assert len(got) == len(TEXTS)
    for vector, rows in zip(got, states):
        want = expected(w, rows, **how)
        assert all(set(x) == {"index", "value"} and x["value"] > 0 for x in vector)
        assert [x["index"] for x in vector] == sorted(x["index"] for x in vector)
        dense = np.zeros(len(want))
        dense[[x["index"] for x in vector]] = [x["value"] for x in vector]
        assert 0 < len(vector) < len(want) and np.abs(dense - want).max() < 1e-4


def test_a_flag_makes_vectors_of_the_head(tmp_path):
    w = folder(tmp_path / "m")
    with Service(tmp_path / "m", args=["--pooling", "splade"], num_shard=2) as s:
        check(s, w)
        alone = s.post("/embed_sparse", {"inputs": TEXTS[2]}).json()
        assert alone == [s.post("/embed_sparse", {"inputs": TEXTS}).json()[2]]
        info = requests.get(s.url + "/info").json()
        assert info["model_type"]["embedding"]["pooling"] == "splade"
        dense = s.post("/embed", {"inputs": TEXTS[0], "normalize": False}).json()[0]
        assert len(dense) == info["model_type"]["embedding"]["dimensions"]
        assert [i for i, x in enumerate(dense) if x] == [x["index"] for x in s.post("/embed_sparse", {"inputs": TEXTS[0]}).json()[0]]


@pytest.mark.parametrize(
    "sparse, how",
    [
        ({"pooling_strategy": "max", "activation_function": "log1p_relu"}, {"twice": True}),
        ({"pooling_strategy": "sum", "activation_function": "relu"}, {"over": np.sum}),
    ],
)
def test_the_files_of_sentence_transformers(tmp_path, sparse, how):
    w = folder(tmp_path / "m", sparse)
    with Service(tmp_path / "m") as s:
        check(s, w, **how)


def test_other_models_refuse():
    with Service(data("embed/bert_mean")) as s:
        r = s.post("/embed_sparse", {"inputs": "x"})
        assert r.status_code == 400 and "SPLADE" in r.json()["error"]


@pytest.mark.parametrize("model, words", [("embed/qwen3_embedding", "of a qwen3 model"), ("embed/bert_mean", "cls.predictions.transform.dense")])
def test_models_without_such_a_head(model, words):
    s = Service(data(model), args=["--pooling", "splade"], ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert s.p.returncode != 0 and words in s.log


def lexical(to, shape=None):
    """A model of XLM-RoBERTa with the file of BGE-M3: random weights and a bias."""
    shutil.copytree(data("embed/xlm_roberta_cls"), to)
    rng = np.random.default_rng(6)
    hidden = json.loads((to / "config.json").read_text())["hidden_size"]
    w, bias = rng.standard_normal((1, hidden), np.float32), np.array([0.25], np.float32)
    save(to / "sparse_linear.pt", {"weight": ("F32", shape or w.shape, w.tobytes()), "bias": ("F32", bias.shape, bias.tobytes())})
    return w[0].astype(np.float64), 0.25


def test_lexical_weights(tmp_path):
    """BGE-M3's: of each word's token that of its hidden state, the greatest of equal tokens, none of special tokens (arXiv 2402.03216)."""
    w, bias = lexical(tmp_path / "m")
    asked = [*TEXTS, "sun sun the sun", "\u6f22"]
    with Service(tmp_path / "m", args=["--pooling", "lexical"], num_shard=2) as s:
        got, states = (s.post(path, {"inputs": asked}).json() for path in ("/embed_sparse", "/embed_all"))
        for text, vector, rows in zip(asked, got, states):
            ids = [t["id"] for t in s.post("/tokenize", {"inputs": text}).json()]
            assert len(ids) == len(rows) and ids[0] == 0 and ids[-1] == 2
            weights = np.maximum(np.array(rows, np.float64) @ w + bias, 0)
            want = {}
            for i, x in zip(ids, weights):
                if i > 3 and x > 0:  # <s>, <pad>, </s>, <unk>
                    want[i] = max(x, want.get(i, 0))
            assert {x["index"]: x["value"] for x in vector} == pytest.approx(want, abs=1e-4)
        assert max(len(v) for v in got) > 3, "all weights are 0"
        assert [s.post("/embed_sparse", {"inputs": t}).json()[0] for t in asked] == got, "not alike alone and in a batch"


@pytest.mark.parametrize("made, words", [(False, "sparse_linear.pt"), (True, "sparse_linear.pt: tensor `weight` has shape")])
def test_lexical_weights_need_their_file(tmp_path, made, words):
    lexical(tmp_path / "m", shape=(32, 2))
    if not made:
        (tmp_path / "m/sparse_linear.pt").unlink()
    s = Service(tmp_path / "m", args=["--pooling", "lexical"], ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert s.p.returncode != 0 and words in s.log
