"""Folders as sentence-transformers writes them: modules of all kinds, against numpy on the hidden states of the plain model."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file
from serving import Service, data, wait_for

TEXTS = ["Hello world", "a", "the sun is shining on a very long street"]
PROMPT = "find the "
CLOSE = 1e-5
PACKAGE = "sentence_transformers.sentence_transformer.modules"
RNG = np.random.default_rng(7)


def rows_of(service, texts):
    return [np.array(r) for r in service.post("/embed_all", {"inputs": texts}).json()]


@pytest.fixture(scope="module")
def rows():
    """Hidden states of TEXTS, alone and behind PROMPT."""
    with Service(data("embed/bert_cls")) as s:
        yield rows_of(s, TEXTS), rows_of(s, [PROMPT + t for t in TEXTS])


def folder(to, modules, own="", prompts=None, more=None):
    """modules: (class, config, tensors) behind the transformer."""
    shutil.copytree(data("embed/bert_cls"), to / own, ignore=shutil.ignore_patterns("modules.json", "1_Pooling", "golden.json"))
    listed = [{"idx": 0, "name": "0", "path": own, "type": "sentence_transformers.base.modules.transformer.Transformer"}]
    for i, (kind, config, tensors) in enumerate(modules, 1):
        path = f"{i}_{kind}"
        (to / path).mkdir(parents=True)
        (to / path / "config.json").write_text(json.dumps(config))
        if tensors:
            save_file(tensors, to / path / "model.safetensors")
        listed.append({"idx": i, "name": str(i), "path": path, "type": f"{PACKAGE}.{kind.lower()}.{kind}"})
    (to / "modules.json").write_text(json.dumps(listed))
    (to / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts or {}, **(more or {})}))
    return to


def pooling(mode, **more):
    return "Pooling", {"embedding_dimension": 64, "pooling_mode": mode, **more}, None


def numbers(*shape):
    return RNG.standard_normal(shape, np.float32)


def dense(n, m, act, bias=True, **more):
    tensors = {"linear.weight": numbers(n, m) / 4, **({"linear.bias": numbers(n)} if bias else {})}
    if more.get("use_residual") and n != m:
        tensors["residual.weight"] = numbers(n, m) / 4
    return "Dense", {"in_features": m, "out_features": n, "bias": bias, "activation_function": f"torch.nn.modules.activation.{act}", **more}, tensors


def run_dense(module, x):
    _, config, w = module
    y = x @ w["linear.weight"].T + w.get("linear.bias", 0)
    y = {"Tanh": np.tanh, "SiLU": lambda v: v / (1 + np.exp(-v)), "ELU": lambda v: np.where(v > 0, v, np.expm1(np.minimum(v, 0)))}[
        config["activation_function"].rsplit(".", 1)[1]
    ](y)
    if config.get("use_residual"):
        y = y + (x @ w["residual.weight"].T if "residual.weight" in w else x)
    return y


def norm(n):
    return "LayerNorm", {"dimension": n}, {"norm.weight": 1 + numbers(n) / 4, "norm.bias": numbers(n)}


def run_norm(module, x):
    w = module[2]
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w["norm.weight"] + w["norm.bias"]


def near(got, want):
    got = np.array(got)
    assert got.shape == want.shape and np.abs(got - want).max() < CLOSE, np.abs(got - want).max()


def test_modules_behind_the_pooling(tmp_path, rows):
    """A norm, matrices with functions, residual ones of the same width and of another, in any order."""
    chain = [norm(64), dense(64, 64, "SiLU", use_residual=True), dense(24, 64, "ELU", use_residual=True), norm(24), dense(12, 24, "Tanh", bias=False)]
    x = np.array([r.mean(0) for r in rows[0]])
    for m in chain:
        x = (run_norm if m[0] == "LayerNorm" else run_dense)(m, x)
    with Service(folder(tmp_path / "m", [pooling("mean"), *chain])) as s:
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False}).json(), x)


def test_modes_in_the_order_of_the_file(tmp_path, rows):
    want = np.array([np.concatenate([r.mean(0), r[0], r.max(0)]) for r in rows[0]])
    with Service(folder(tmp_path / "m", [pooling(["mean", "cls", "max"])])) as s:
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False}).json(), want)


@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_a_prompt_that_is_not_pooled(tmp_path, rows, mode):
    """Its tokens are all but the last special one of the prompt alone; the first row behind them is that of cls."""
    with Service(folder(tmp_path / "m", [pooling(mode, include_prompt=False)], prompts={"query": PROMPT})) as s:
        skip = s.post("/v1/embeddings", {"input": PROMPT}).json()["usage"]["prompt_tokens"] - 1
        want = np.array([r[skip] if mode == "cls" else r[skip:].mean(0) for r in rows[1]])
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False, "prompt_name": "query"}).json(), want)


def test_a_width_of_the_file(tmp_path, rows):
    """`truncate_dim` is the width unless a request asks for another one."""
    x = np.array([r.mean(0) for r in rows[0]])
    with Service(folder(tmp_path / "m", [pooling("mean")], more={"truncate_dim": 16})) as s:
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False}).json(), x[:, :16])
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False, "dimensions": 40}).json(), x[:, :40])
        for key in ("dimensions", "output_dimension"):
            got = s.post("/v1/embeddings", {"input": TEXTS, key: 8}).json()["data"]
            near([d["embedding"] for d in got], x[:, :8] / np.linalg.norm(x[:, :8], axis=1, keepdims=True))


def test_a_transformer_in_a_folder_of_its_own(tmp_path, rows):
    with Service(folder(tmp_path / "m", [pooling("mean")], own="0_Transformer"), num_shard=2) as s:
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False}).json(), np.array([r.mean(0) for r in rows[0]]))
        long = s.post("/embed", {"inputs": "the sun " * 400})  # its sentence_bert_config.json lies there, too
        assert long.status_code == 413


@pytest.mark.parametrize("own", ["", "0_StaticEmbedding"])
def test_a_table_without_config(tmp_path, own):
    """sentence-transformers' own StaticEmbedding (static-retrieval-mrl): no config.json anywhere."""
    tokenizers = pytest.importorskip("tokenizers")
    at = tmp_path / "m" / own
    at.mkdir(parents=True)
    shutil.copy(data("embed/bert_mean") / "tokenizer.json", at)
    t = tokenizers.Tokenizer.from_file(str(at / "tokenizer.json"))
    table = numbers(t.get_vocab_size(), 20)
    save_file({"embedding.weight": table}, at / "model.safetensors")
    (tmp_path / "m/modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": own, "type": "sentence_transformers.models.StaticEmbedding"}]))
    want = np.array([table[t.encode(x, add_special_tokens=False).ids].mean(0) for x in TEXTS])
    with Service(tmp_path / "m") as s:
        near(s.post("/embed", {"inputs": TEXTS, "normalize": False}).json(), want)


@pytest.mark.parametrize("module, words", [
    (("CNN", {}, None), "CNN"),
    (("WordWeights", {}, None), "WordWeights"),
    (("LayerNorm", {"dimension": 64}, {"norm.weight": numbers(64)}), "norm"),
    (dense(24, 64, "Mish"), "Mish"),
])
def test_what_is_refused(tmp_path, module, words):
    s = Service(folder(tmp_path / "m", [pooling("mean"), module]), ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert s.p.returncode != 0 and words in s.log
