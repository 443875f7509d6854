"""Untrained draft heads for tests: their drafts are sometimes right."""

import json
import pathlib
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file


def with_mtp(folder, model, form="deepseek"):
    """`model` with one multi-token-prediction layer: its last layer once more over both norms."""
    folder = pathlib.Path(folder)
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    t = _tensors(model)
    n, h = config["num_hidden_layers"], config["hidden_size"]
    attends = max(i for i in range(n) if any(k.startswith(f"model.layers.{i}.self_attn.") for k in t))
    last = f"model.layers.{attends}."
    layer = f"model.layers.{n}." if form == "deepseek" else "mtp.layers.0."
    t |= {layer + k.removeprefix(last): v for k, v in t.items() if k.startswith(last)}
    names = {
        "deepseek": [layer + k for k in ("enorm", "hnorm", "shared_head.norm", "eh_proj")],
        "qwen": ["mtp." + k for k in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc")],
    }[form]
    like = t["model.norm.weight"]
    ones = np.ones(h, like.dtype) if form == "deepseek" else np.zeros(h, like.dtype)
    both = np.concatenate([np.eye(h), 0.3 * np.eye(h)], 1)
    for name, v in zip(names, [ones, ones, like, both.astype(like.dtype)]):
        t[name + ".weight"] = v
    _save(folder, t)
    return folder


def medusa(folder, model, heads=3):
    """Medusa heads whose blocks do nothing: each says what the model's own head says."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    t = _tensors(model)
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    h, head = config["hidden_size"], t.get("lm_head.weight", t["model.embed_tokens.weight"])
    out = {}
    for i in range(heads):
        out[f"{i}.0.linear.weight"] = np.zeros((h, h), head.dtype)
        out[f"{i}.0.linear.bias"] = np.zeros(h, head.dtype)
        out[f"{i}.1.weight"] = head
    save_file(out, folder / "medusa_lm_head.safetensors")
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": heads, "medusa_num_layers": 1}))
    return folder


def eagle3(folder, model, every=2):
    """An EAGLE-3 head: the model's last layer once more over what leaves it, and every other token of its head."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    t = _tensors(model)
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    n, h, vocab = config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]
    last = f"model.layers.{n - 1}."
    out = {"midlayer." + k.removeprefix(last): v for k, v in t.items() if k.startswith(last)}
    for k in ("q_proj", "k_proj", "v_proj"):  # of the embedding and of the hidden state
        k = f"midlayer.self_attn.{k}.weight"
        out[k] = np.concatenate([0.1 * out[k], out[k]], 1)
    like = out["midlayer.input_layernorm.weight"]
    out["midlayer.hidden_norm.weight"] = like
    out["fc.weight"] = np.concatenate([np.zeros((h, 2 * h)), np.eye(h)], 1).astype(like.dtype)
    out["norm.weight"] = t["model.norm.weight"]
    ids = np.arange(0, vocab, every)
    out["lm_head.weight"] = t.get("lm_head.weight", t["model.embed_tokens.weight"])[ids]
    out["d2t"] = (ids - np.arange(len(ids))).astype(np.int64)
    out["t2d"] = np.isin(np.arange(vocab), ids)
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, folder / "model.safetensors")
    streams = {"eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, n // 2, n - 1]}}
    own = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": len(ids)}
    (folder / "config.json").write_text(json.dumps(config | own | streams))
    return folder


def _tensors(model):
    """In fp32: numpy has no bfloat16."""
    try:
        return load_file(pathlib.Path(model) / "model.safetensors")
    except (TypeError, KeyError):
        return _widened(pathlib.Path(model) / "model.safetensors")


def _widened(path):
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    head, out = json.loads(raw[8 : 8 + n]), {}
    for name, x in head.items():
        if name == "__metadata__":
            continue
        data = raw[8 + n + x["data_offsets"][0] : 8 + n + x["data_offsets"][1]]
        if x["dtype"] == "BF16":
            v = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        else:
            v = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[x["dtype"]])
        out[name] = v.reshape(x["shape"])
    return out


def _save(folder, tensors):
    (folder / "model.safetensors").unlink()
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / "model.safetensors")
