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
