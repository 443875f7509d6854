"""Adapters (PEFT) of models that embed or rerank, against folders whose weights have the update in them."""

import concurrent.futures
import json
import re
import shutil
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file
from serving import Service, data

TEXTS = ["Hello world", "a", "the sun is shining on a very long street"]
RANK, ALPHA = 4, 8
MODULES = {
    "embed/bert_mean": ["attention.self.query", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense"],
    "embed/qwen3_embedding": ["self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"],
    "embed/xlm_roberta_rerank": ["attention.self.key", "output.dense"],
}


def weights(folder):
    """All tensors as float32; files have bfloat16, which numpy does not know."""
    raw = (folder / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            bits = np.frombuffer(raw[8 + n + begin : 8 + n + end], np.uint16 if t["dtype"] == "BF16" else np.float32)
            out[name] = (bits.astype(np.uint32) << 16).view(np.float32).reshape(t["shape"]) if t["dtype"] == "BF16" else bits.reshape(t["shape"])
    return out


def made(to, name, seed):
    """An adapter, and the model with its update."""
    rng, source = np.random.default_rng(seed), data(name)
    whole, pairs = weights(source), {}
    for key in list(whole):
        module = key.removesuffix(".weight")
        if whole[key].ndim == 2 and module.endswith(tuple(f".{m}" for m in MODULES[name])) and "layer" in module:
            out, n = whole[key].shape
            a, b = (rng.normal(0, 0.2, shape).astype(np.float32) for shape in ((RANK, n), (out, RANK)))
            pairs[f"base_model.model.{module}.lora_A.weight"], pairs[f"base_model.model.{module}.lora_B.weight"] = a, b
            whole[key] = whole[key] + ALPHA / RANK * b @ a
    adapter, merged = to / f"adapter{seed}", to / f"merged{seed}"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": MODULES[name]}))
    save_file(pairs, adapter / "adapter_model.safetensors")
    shutil.copytree(source, merged)
    save_file({k: np.ascontiguousarray(v) for k, v in whole.items()}, merged / "model.safetensors")
    return adapter, merged


def vectors(s, texts=TEXTS, **how):
    r = s.post("/v1/embeddings", {"input": texts, **how})
    assert r.status_code == 200, r.text
    return np.array([d["embedding"] for d in r.json()["data"]])


@pytest.mark.parametrize("name, ranks", [("embed/bert_mean", 1), ("embed/bert_mean", 2), ("embed/qwen3_embedding", 2)])
def test_vectors_with_adapters(tmp_path, name, ranks):
    """By `model` or Jina's `task`; several adapters in one batch; each result is the same alone and beside others."""
    two = [made(tmp_path, name, seed) for seed in (1, 2)]
    want = []
    for _, merged in two:
        with Service(merged) as s:
            want.append(vectors(s))
    with Service(data(name)) as s:
        plain = vectors(s)
    with Service(data(name), num_shard=ranks, args=["--lora-adapters", f"one={two[0][0]},two={two[1][0]}"]) as s:
        assert np.array_equal(vectors(s), plain) or ranks > 1 and np.abs(vectors(s) - plain).max() < 1e-5
        alone = [vectors(s, model="one"), vectors(s, model="two")]
        for got, w in zip(alone, want):
            assert np.abs(got - w).max() < 1e-5 and np.abs(got - plain).max() > 1e-2
        assert np.array_equal(vectors(s, task="two"), alone[1])
        jobs = [{}, {"model": "one"}, {"task": "two"}] * 6
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            each = list(pool.map(lambda how: vectors(s, TEXTS * 5, **how)[:3], jobs))
        assert all(np.array_equal(each[i], each[i % 3]) for i in range(len(jobs)))
        assert np.array_equal(each[1], alone[0]) and np.array_equal(each[2], alone[1])
        r = s.post("/v1/embeddings", {"input": "a", "task": "three"})
        assert r.status_code == 400 and "three" in r.json()["error"]["message"]


def test_a_pool_that_holds_one_of_two(tmp_path):
    """Texts of both in one batch: what does not fit waits for the next pass."""
    args = ["--lora-adapters", ",".join(f"{n}={made(tmp_path, 'embed/bert_mean', n)[0]}" for n in (1, 2))]
    with Service(data("embed/bert_mean"), args=args) as s:
        want = [vectors(s, model="1"), vectors(s, model="2")]
        pages, size = (int(re.search(rf"{key}=(\d+)", s.log)[1]) for key in ("pages_of_all", "page_bytes"))
    free = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable")) * 1024
    with Service(data("embed/bert_mean"), args=[*args, "--adapter-memory-fraction", f"{0.75 * pages * size / free:.12f}"]) as s:
        assert "pages=1 " in s.log
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda i: vectors(s, TEXTS * 20, model="12"[i % 2])[:3], range(24)))
        assert all(np.array_equal(v, want[i % 2]) for i, v in enumerate(got))


def test_scores_with_adapters(tmp_path):
    name = "embed/xlm_roberta_rerank"
    adapter, merged = made(tmp_path, name, 3)
    body = {"query": "What is shining?", "documents": TEXTS, "use_activation": False}

    def scores(s, **how):
        return {x["index"]: x["relevance_score"] for x in s.post("/v1/rerank", {**body, **how}).json()["results"]}

    with Service(merged) as s:
        want = scores(s)
    with Service(data(name), args=["--lora-adapters", f"mine={adapter}"]) as s:
        got, plain = scores(s, model="mine"), scores(s)
        assert all(abs(got[i] - want[i]) < 1e-4 for i in want) and any(abs(got[i] - plain[i]) > 1e-2 for i in want)
