"""Adapters (PEFT) of models that embed or rerank, against folders whose weights have the update in them."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file
from serving import Service, data, wait_for
from test_replicas import ready

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


TASKS = ["retrieval.query", "retrieval.passage", "separation"]
QUERY = "find the "


def with_tasks(to):
    """As Jina Embeddings 3 lies in its repository: adapters of all matrices and tables in the checkpoint. The folders of each task with
    the update in the weights, and one without any."""
    rng, rank, n = np.random.default_rng(5), 4, len(TASKS)
    source = data("embed/xlm_roberta_cls")
    config = json.loads((source / "config.json").read_text())
    config |= {"position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "lora_rank": rank, "lora_alpha": 2,
               "auto_map": {"AutoConfig": "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig"}}
    flash = {"attention.self.query": None, "attention.output.dense": "mixer.out_proj", "attention.output.LayerNorm": "norm1",
             "intermediate.dense": "mlp.fc1", "output.LayerNorm": "norm2", "output.dense": "mlp.fc2"}
    old, new = weights(source), {}
    old = {k.removeprefix("roberta."): v for k, v in old.items() if "pooler" not in k and "position" not in k}
    for key, v in old.items():
        if ".self." in key and ".query." not in key:
            continue
        if ".self.query." in key:
            v = np.concatenate([old[key.replace("query", part)] for part in ("query", "key", "value")])
            key = key.replace("attention.self.query", "mixer.Wqkv")
        key = key.replace("encoder.layer.", "encoder.layers.").replace("embeddings.LayerNorm", "emb_ln")
        for a, b in flash.items():
            key = key.replace(a, b) if b else key
        new["roberta." + key] = v
    plain, inside, merged = dict(new), {}, [dict(new) for _ in TASKS]
    for key, v in new.items():
        if v.ndim == 1:
            inside[key] = v
            continue
        table, base = "embeddings" in key, key.removesuffix("weight") + "parametrizations.weight."
        shapes = ((n, v.shape[0], rank), (n, rank, v.shape[1])) if table else ((n, rank, v.shape[1]), (n, v.shape[0], rank))
        a, b = (rng.normal(0, 0.3, s).astype(np.float32) for s in shapes)
        inside |= {base + "original": v, base + "0.lora_A": a, base + "0.lora_B": b}
        for t in range(n):
            merged[t][key] = v + (a[t] @ b[t] if table else b[t] @ a[t]) * 2 / rank
    dense = np.eye(64, dtype=np.float32)  # of vectors that nothing reads
    inside |= {"roberta.pooler.dense.parametrizations.weight.original": dense, "roberta.pooler.dense.bias": dense[0],
               "roberta.pooler.dense.parametrizations.weight.0.lora_A": np.stack([dense[:rank]] * n),
               "roberta.pooler.dense.parametrizations.weight.0.lora_B": np.stack([dense[:, :rank]] * n)}
    folders = []
    more = {"lora_adaptations": TASKS, "task_instructions": {TASKS[0]: QUERY, TASKS[1]: "", TASKS[2]: ""}}
    for name, tensors, keys in [("inside", inside, more), ("plain", plain, {}), *((t, m, {}) for t, m in zip(TASKS, merged))]:
        shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("golden.json"))
        (to / name / "config.json").write_text(json.dumps(config | keys))
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, to / name / "model.safetensors")
        folders.append(to / name)
    return folders


@pytest.mark.parametrize("ranks", [1, 2])
def test_adapters_inside_the_checkpoint(tmp_path, ranks):
    """Jina's `task` chooses one and its prompt, and so does what asks for a query's prompt; none is used where none is asked for."""
    whole, plain, *merged = with_tasks(tmp_path)
    with Service(plain) as s:
        base = vectors(s)
    want = []
    for i, folder in enumerate(merged):
        with Service(folder) as s:
            want.append(vectors(s, [QUERY + t for t in TEXTS] if i == 0 else TEXTS))
    with Service(whole, num_shard=ranks) as s:
        assert np.abs(vectors(s) - base).max() < 1e-5
        alone = [vectors(s, task=t) for t in TASKS]
        for got, w in zip(alone, want):
            assert np.abs(got - w).max() < 1e-5 and np.abs(got - base).max() > 1e-2
        assert np.array_equal(vectors(s, input_type="query"), alone[0]) and np.array_equal(vectors(s, input_type="passage"), alone[1])
        assert np.array_equal(vectors(s, prompt_name=TASKS[0], task=TASKS[0]), alone[0])
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            each = list(pool.map(lambda i: vectors(s, TEXTS * 5, task=TASKS[i % 3])[:3], range(18)))
        assert all(np.array_equal(v, alone[i % 3]) for i, v in enumerate(each))
        r = s.post("/v1/embeddings", {"input": "a", "task": "three"})
        assert r.status_code == 400 and "three" in r.json()["error"]["message"]


@pytest.mark.parametrize("change, word", [({"lora_adaptations": TASKS[:2]}, "shape"), ({"lora_rank": 3}, "shape"), ({"lora_rank": 40}, "lora_rank"),
                                          ({"lora_adaptations": "x"}, "lora_adaptations"), ({"lora_alpha": 1e300}, "lora_alpha")])
def test_adapters_inside_that_do_not_fit(tmp_path, change, word):
    whole = with_tasks(tmp_path)[0]
    (whole / "config.json").write_text(json.dumps(json.loads((whole / "config.json").read_text()) | change))
    s = Service(whole, ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert word in s.log and s.p.returncode != 0


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


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_adapter_that_was_replaced_gives_no_other_vectors(tmp_path, ranks):
    """Other files are in its folder when the shards come back: who asked for it, or does, gets an error, and all others their vectors."""
    name = "embed/bert_mean"
    (one, _), (two, _), (other, _) = (made(tmp_path, name, seed) for seed in (1, 2, 3))
    with Service(data(name), num_shard=ranks, args=["--lora-adapters", f"one={one},two={two}"]) as s:
        want = [vectors(s), vectors(s, model="two")]
        asked = [{"model": "one"}, {}, {"model": "two"}]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            with s.held():
                answers = []
                for n, how in enumerate(asked):  # the first is in the call that the loss ends, the others wait
                    answers.append(pool.submit(s.post, "/v1/embeddings", {"input": TEXTS, **how}))
                    wait_for(lambda n=n: s.audit()["scheduler"]["requests"] == n + 1)
                shutil.rmtree(one)
                shutil.copytree(other, one)
                os.kill(s.shards()[0], signal.SIGKILL)
            first, *others = (a.result() for a in answers)
        assert first.status_code == 404 and "one" in first.text, first.text
        for r, w in zip(others, want):
            assert r.status_code == 200 and np.array_equal([d["embedding"] for d in r.json()["data"]], w), r.text
        assert "an adapter's files were replaced" in s.log
        r = s.post("/v1/embeddings", {"input": TEXTS, "model": "one"})
        assert r.status_code == 404 and r.json()["error"]["code"] == "model_not_found"
        assert np.array_equal(vectors(s), want[0]) and np.array_equal(vectors(s, model="two"), want[1])


def test_a_replica_that_lost_an_adapter_is_sent_no_texts_for_it(tmp_path):
    name = "embed/bert_mean"
    (one, _), (other, _) = (made(tmp_path, name, seed) for seed in (1, 3))
    with Service(data(name), args=["--replicas", 2, "--replica-policy", "round-robin", "--lora-adapters", f"one={one}"]) as s:
        wait_for(lambda: ready(s) == 2, 30)
        want = vectors(s, model="one")
        shutil.rmtree(one)
        shutil.copytree(other, one)
        os.kill(s.shards()[0], signal.SIGKILL)
        wait_for(lambda: s.log.count("files were replaced") == 1 and ready(s) == 2, 30)
        for _ in range(4):
            assert np.array_equal(vectors(s, model="one"), want)
        os.kill(s.shards()[0], signal.SIGKILL)  # now no replica has it
        wait_for(lambda: s.log.count("files were replaced") == 2 and ready(s) == 2, 30)
        assert s.post("/v1/embeddings", {"input": TEXTS, "model": "one"}).status_code == 404


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
