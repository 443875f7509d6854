"""T5's encoder served with T5's tokenizer, compared with its equations in numpy; models with the decoder are refused."""

import concurrent.futures
import json
import os
import shutil
import signal

import numpy as np
import pytest
import requests
import tokenizers
from safetensors.numpy import save_file
from serving import Service, data, wait_for

HIDDEN, HEADS, DIM, FFN, LAYERS, VOCAB = 32, 4, 12, 48, 2, 32128
BUCKETS, FARTHEST = 32, 128
CONFIG = dict(model_type="t5", architectures=["T5EncoderModel"], d_model=HIDDEN, num_heads=HEADS, d_kv=DIM, d_ff=FFN, num_layers=LAYERS,
              vocab_size=VOCAB, feed_forward_proj="gated-gelu", relative_attention_num_buckets=BUCKETS,
              relative_attention_max_distance=FARTHEST, layer_norm_epsilon=1e-6)  # fmt: skip
TEXTS = ["Once upon a time", "the sun is shining", "a", "Über den Wolken, 東京 12,5 %", "a longer text about nothing " * 40]


def weights():
    rng = np.random.default_rng(5)
    shapes = {"shared": (VOCAB, HIDDEN), "encoder.final_layer_norm": (HIDDEN,)}
    for i in range(LAYERS):
        block, mlp = f"encoder.block.{i}.layer.0.", f"encoder.block.{i}.layer.1."
        shapes |= {f"{block}SelfAttention.{m}": (HEADS * DIM, HIDDEN) for m in "qkv"}
        shapes |= {f"{block}SelfAttention.o": (HIDDEN, HEADS * DIM), f"{block}layer_norm": (HIDDEN,), f"{mlp}layer_norm": (HIDDEN,)}
        shapes |= {f"{mlp}DenseReluDense.{m}": (FFN, HIDDEN) for m in ("wi_0", "wi_1")}
        shapes |= {f"{mlp}DenseReluDense.wo": (HIDDEN, FFN)}
    shapes["encoder.block.0.layer.0.SelfAttention.relative_attention_bias"] = (BUCKETS, HEADS)
    w = {n: rng.standard_normal(s, np.float32) * (1 if "bias" in n else 0.2) for n, s in shapes.items()}
    return {f"{n}.weight": (1 + v if "norm" in n else v).astype(np.float32) for n, v in w.items()}


def bucket(distance):
    """Of a key that many positions after the query (arXiv 1910.10683)."""
    half, at = BUCKETS // 2, abs(distance)
    exact = half // 2
    if at >= exact:
        at = min(half - 1, exact + int(np.log(at / exact) / np.log(FARTHEST / exact) * (half - exact)))
    return at + (half if distance > 0 else 0)


def encoder(w, ids):
    """The mean of the final hidden states, with length 1; in doubles."""
    def of(name):
        return w[f"encoder.{name}.weight"].astype(np.float64)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * of(name)

    def heads(x):
        return x.reshape(len(ids), HEADS, DIM).transpose(1, 0, 2)

    table = of("block.0.layer.0.SelfAttention.relative_attention_bias")
    bias = np.array([[table[bucket(k - q)] for k in range(len(ids))] for q in range(len(ids))]).transpose(2, 0, 1)
    x = w["shared.weight"][ids].astype(np.float64)
    for i in range(LAYERS):
        at, mlp = f"block.{i}.layer.0.", f"block.{i}.layer.1."
        n = norm(x, at + "layer_norm")
        q, k, v = (heads(n @ of(f"{at}SelfAttention.{m}").T) for m in "qkv")
        s = q @ k.transpose(0, 2, 1) + bias
        p = np.exp(s - s.max(-1, keepdims=True))
        a = (p / p.sum(-1, keepdims=True)) @ v
        x = x + a.transpose(1, 0, 2).reshape(len(ids), -1) @ of(at + "SelfAttention.o").T
        n = norm(x, mlp + "layer_norm")
        g = n @ of(mlp + "DenseReluDense.wi_0").T
        g = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
        x = x + (g * (n @ of(mlp + "DenseReluDense.wi_1").T)) @ of(mlp + "DenseReluDense.wo").T
    y = norm(x, "final_layer_norm").mean(0)
    return y / np.sqrt(y @ y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("t5")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(data("tokenizers/t5") / name, out / name)
    (out / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), out / "model.safetensors")
    return out


@pytest.fixture(scope="module")
def wanted(folder):
    tokenizer, w = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), weights()
    ids = [tokenizer.encode(t).ids for t in TEXTS]
    assert all(i[-1] == 1 for i in ids) and max(map(len, ids)) > FARTHEST
    return ids, [encoder(w, i) for i in ids]


@pytest.mark.parametrize("ranks", [1, 2])
def test_vectors_over_http(folder, wanted, ranks):
    ids, vectors = wanted
    with Service(folder, num_shard=ranks) as s:
        info = requests.get(s.url + "/info").json()
        assert info["model_type"] == {"embedding": {"dimensions": HIDDEN}} and info["max_input_length"] == 512
        got = s.post("/v1/embeddings", {"input": TEXTS}).json()
        assert got["usage"]["prompt_tokens"] == sum(map(len, ids))
        alone = [s.post("/embed", {"inputs": t}).json()[0] for t in TEXTS]
        for d, one, want in zip(got["data"], alone, vectors):
            assert np.abs(np.array(one) - want).max() < 1e-5
            assert d["embedding"] == one
        assert s.post("/generate", {"inputs": "x"}).status_code == 400


def test_a_killed_shard_comes_back(folder):
    with Service(folder) as s:
        want, old = s.post("/embed", {"inputs": TEXTS}).json(), s.shards()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(s.post, "/v1/embeddings", {"input": [TEXTS[4]] * 50}) for _ in range(4)]
            os.kill(old[0], signal.SIGKILL)
            assert [j.result().status_code for j in jobs] == [200] * 4
        wait_for(lambda: s.shards() and s.shards() != old, 60)
        assert s.post("/embed", {"inputs": TEXTS}).json() == want
