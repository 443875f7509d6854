"""Models without layers (model2vec): the mean of a text's rows, against numpy."""

import json
import shutil

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from serving import Service, data, wait_for

TEXTS = ["Hello world", "a", "the sun is shining on a very long street"]
WIDTH, ROWS = 24, 40


def folder(to, arrays, listed=True):
    to.mkdir()
    shutil.copy(data("embed/bert_mean") / "tokenizer.json", to)
    (to / "config.json").write_text(json.dumps({"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True}))
    if listed:
        kinds = [(".", "StaticEmbedding"), ("1_Normalize", "Normalize")]
        listed = [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"} for i, (p, k) in enumerate(kinds)]
        (to / "modules.json").write_text(json.dumps(listed))
    save_file(arrays, to / "model.safetensors")
    return to


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.Tokenizer.from_file(str(data("embed/bert_mean") / "tokenizer.json"))


@pytest.mark.parametrize("kind", ["plain", "half", "mapped"])
def test_the_mean_of_rows(tmp_path, tokenizer, kind):
    rng, n = np.random.default_rng(1), tokenizer.get_vocab_size()
    arrays = {"embeddings": rng.standard_normal((n, WIDTH), np.float32)}
    if kind == "half":
        arrays["embeddings"] = arrays["embeddings"].astype(np.float16)[:, : WIDTH - 5].copy()
    if kind == "mapped":
        arrays = {"embeddings": rng.standard_normal((ROWS, WIDTH), np.float32), "mapping": rng.integers(0, ROWS, n), "weights": rng.random(n)}
    rows = arrays["embeddings"].astype(np.float64)
    rows = rows[arrays.get("mapping", np.arange(n))] * arrays.get("weights", np.ones(n))[:, None]
    with Service(folder(tmp_path / "m", arrays), num_shard=2 if kind == "mapped" else 1) as s:
        want = np.array([rows[tokenizer.encode(t, add_special_tokens=False).ids].mean(0) for t in TEXTS])
        plain = s.post("/embed", {"inputs": TEXTS, "normalize": False}).json()
        assert np.abs(np.array(plain) - want).max() < 1e-5
        unit = want / np.linalg.norm(want, axis=1, keepdims=True)
        got = s.post("/v1/embeddings", {"input": TEXTS}).json()
        assert np.abs(np.array([d["embedding"] for d in got["data"]]) - unit).max() < 1e-5
        assert got["usage"]["prompt_tokens"] == sum(len(tokenizer.encode(t, add_special_tokens=False).ids) for t in TEXTS)
        cut = s.post("/embed", {"inputs": TEXTS[2], "normalize": False}).json()
        assert cut == [plain[2]]


@pytest.mark.parametrize(
    "arrays, listed, words",
    [
        ({"embeddings": np.zeros((400, 8), np.float32)}, False, "StaticEmbedding"),
        ({"table": np.zeros((400, 8), np.float32)}, True, "embeddings"),
        ({"embeddings": np.zeros((4, 8), np.float32), "mapping": np.full(400, 4)}, True, "4 is no row"),
        ({"embeddings": np.zeros((400, 8), np.float32), "weights": np.zeros(3)}, True, "one a token"),
        ({"embeddings": np.zeros((400, 8), np.int32)}, True, "a matrix of F32"),
    ],
)
def test_what_does_not_fit(tmp_path, arrays, listed, words):
    s = Service(folder(tmp_path / "m", arrays, listed), ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert s.p.returncode != 0 and words in s.log
