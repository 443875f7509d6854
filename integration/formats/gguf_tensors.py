"""What llama.cpp's convert_hf_to_gguf.py changes in the tensors of a folder: generators of names and arrays, or a dict."""

import numpy as np
from gguf_made import paired

def kv_heads(c):
    return c["num_kv_heads"] if c.get("new_decoder_architecture") else 1


EXPERT_PARTS = {"w1": "gate", "w3": "up", "w2": "down"}


def with_experts(named):
    """Those of one layer in one tensor, one behind the other."""
    whole, apart = {}, {}
    for name, v in named:
        head, found, tail = name.partition(".experts.")
        if not found or not tail[0].isdigit():
            whole[name] = v
            continue
        number, part = tail.split(".", 1)
        apart.setdefault(f"{head}.experts.{part}", {})[int(number)] = v
    return whole | {name: np.stack([v[i] for i in range(len(v))]) for name, v in apart.items()}


def granite_experts(named, c):
    """Gate over up, apart."""
    for name, v in named.items():
        if not name.endswith("input_linear.weight"):
            yield name, v
            continue
        gate, up = np.split(v, 2, axis=-2)
        to = "ffn_{}_exps" if "shared_mlp" not in name else "ffn_{}_shexp" if c.get("num_local_experts") else "ffn_{}"
        for word, part in ("gate", gate), ("up", up):
            yield f"blk.{name.split('.')[2]}.{to.format(word)}.weight", part


def ungrouped(named, c):
    """InternLM 2's q, k and v of a key-value head, apart; q and k as rows that rotate in pairs."""
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    for name, v in named.items():
        head, found, tail = name.partition("wqkv.")
        if not found:
            yield name, v
            continue
        v = v.reshape(kv, heads // kv + 2, -1, v.shape[1])
        for part, rows, n in ("wq.", v[:, :-2], heads), ("wk.", v[:, -2], kv), ("wv.", v[:, -1], 0):
            rows = rows.reshape(-1, v.shape[-1])
            yield head + part + tail, paired(rows, n) if n else rows


def apart(named):
    """gpt-oss's experts: gate and up row by row in turn, inputs first, and their biases."""
    for name, v in named.items():
        head, _, tail = name.partition(".mlp.experts.")
        if tail.startswith("gate_up_proj"):
            v = v if v.ndim == 2 else v.swapaxes(1, 2)
            suffix = "bias" if tail.endswith("bias") else "weight"
            yield f"{head}.mlp.experts.gate_proj.{suffix}", v[:, ::2]
            yield f"{head}.mlp.experts.up_proj.{suffix}", v[:, 1::2]
        elif tail == "down_proj_bias":
            yield f"{head}.mlp.experts.down_proj.bias", v
        elif tail == "down_proj":
            yield f"{head}.mlp.experts.down_proj.weight", v.swapaxes(1, 2)
        else:
            yield name if not name.endswith("sinks") else name + ".weight", v


def tiled(v, c, rows):
    """Value heads of `rows`: the first of each key head, the second of each, and so on."""
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    return v.reshape(keys, values // keys, rows, *v.shape[1:]).swapaxes(0, 1).reshape(v.shape)


def delta(named, c):
    """Layers of the gated delta rule: what is grouped is taken apart, or value heads are tiled."""
    grouped = c["model_type"] == "qwen3_next"
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    widths = {"in_proj_z": dv, "in_proj_b": 1, "in_proj_a": 1, "A_log": 1, "dt_bias": 1}
    for name, v in named.items():
        head, part = name.rpartition("linear_attn.")[0], name.rpartition("linear_attn.")[2].removesuffix(".weight")
        if part == "in_proj_qkvz":
            blk = f"blk.{name.split('.')[2]}."
            v = v.reshape(keys, -1, v.shape[1])
            cut = np.cumsum([dk, dk, values // keys * dv])
            q, k, x, z = (p.reshape(-1, v.shape[2]) for p in np.split(v, cut, axis=1))
            yield blk + "attn_qkv.weight", np.concatenate([q, k, x])
            yield blk + "attn_gate.weight", z
            continue
        if "conv1d" in part or part == "in_proj_qkv":
            v = v.squeeze(1) if v.ndim == 3 else v
            if not grouped:
                v = np.concatenate([v[: 2 * keys * dk], tiled(v[2 * keys * dk :], c, dv)])
        elif part in widths and not grouped:
            v = tiled(v, c, widths[part])
        elif part == "out_proj" and not grouped and head:
            v = tiled(v.T, c, dv).T
        if part == "A_log":
            v = -np.exp(v)
        elif name.endswith("norm.weight") and "linear_attn.norm" not in name:
            v = v + 1
        yield name.replace("dt_bias", "dt_proj.bias"), v


def mamba_layers(named, c):
    groups = c.get("mamba_n_groups", c.get("n_groups"))
    for name, v in named.items():
        head, found, part = name.partition(".mixer.experts.")
        if found:
            name = f"blk.{head.split('.')[2]}.ffn_{part.removesuffix('_proj.weight')}_exps.weight"
        if name.endswith("A_log"):
            v = -np.exp(v)[:, None]
        elif name.endswith((".mamba.D", ".mixer.D")):
            v = v[:, None]
        elif name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
            v = v.reshape(groups, -1)
        yield name.replace("dt_bias", "dt_proj.bias"), v


def plamo_tensors(named, c):
    """Norms have their constants, and the names of vectors are those of modules."""
    plus = {"pre_mixer_norm": 1, "post_mixer_norm": 1 / 5, "pre_mlp_norm": 1, "post_mlp_norm": 5**-1.5, "norm": 1}
    for name, v in named.items():
        part = name.removesuffix(".weight").rpartition(".")[2]
        if part == "A_log":
            v = -np.exp(v)
        elif part in plus or part in ("q_norm", "k_norm"):
            v = v + plus.get(part, 1)
        elif part.endswith("_weight"):
            name = name.removesuffix("_weight") + ".weight"
        yield name.replace("dt_bias", "dt_proj.bias"), v


def gemma4_tensors(named):
    for name, v in named.items():
        blk = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
        if name.endswith("router.scale"):
            name = blk + "ffn_gate_inp.scale"
        elif name.endswith("per_expert_scale"):
            name = blk + "ffn_down_exps.scale"
        elif ".experts." in name or name.endswith("layer_scalar"):
            name += ".weight"
        yield name, v


def stacked(named, c, kv=None):
    """One matrix of q, k and v: all heads of q, then those of k, then those of v."""
    heads = c["num_attention_heads"]
    kv = kv or heads
    for name, v in named.items():
        name = name.removeprefix("transformer.") if c["model_type"] == "bloom" else name
        if ".query_key_value." in name:
            v = v.reshape(kv, heads // kv + 2, -1, *v.shape[1:])
            v = np.concatenate([p.reshape(-1, *v.shape[3:]) for p in (v[:, :-2], v[:, -2], v[:, -1])])
        yield name, v


def turned(named):
    """GPT-2's matrices have their inputs first."""
    for name, v in named.items():
        yield name, v.T if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else v


def absorbed(named, c):
    """The matrix from the latent vector to keys and values in two: of the keys, turned, and of the values."""
    heads, nope, rank = c["num_attention_heads"], c["qk_nope_head_dim"], c["kv_lora_rank"]
    for name, v in named.items():
        if ".kv_b_proj." not in name:
            yield name, v
            continue
        v = v.reshape(heads, -1, rank)
        yield name.replace("kv_b_proj", "k_b_proj"), v[:, :nope].swapaxes(1, 2)
        yield name.replace("kv_b_proj", "v_b_proj"), v[:, nope:]


def rates(named):
    """The first Mamba's, and Jamba's."""
    for name, v in named.items():
        yield name.replace(".feed_forward.experts.", ".mlp.experts."), -np.exp(v) if name.endswith("A_log") else v


def kimi_tensors(named):
    for name, v in named.items():
        if "conv1d" in name:
            v = v.reshape(1, v.shape[0], 1, -1)
        elif name.endswith("A_log"):
            v = -np.exp(v).reshape(1, 1, -1, 1)
        name = name.replace("dt_bias", "dt_proj.bias")
        for part in ("gate_proj", "up_proj", "down_proj"):  # dense layers, as transformers saves them
            name = name.replace(f"block_sparse_moe.{part}", f"mlp.{part}")
        yield name, v


def ling_tensors(named, c):
    for name, v in kimi_tensors(named):
        layer = (name.split(".") + ["", ""])[2]
        name = name.replace(".attention.", ".self_attn.").replace("self_attn.dense", "self_attn.o_proj").replace("word_embeddings", "embed_tokens")
        v = -v if name.endswith("A_log") else v
        if ".f_proj." in name:
            name = f"blk.{layer}.ssm_f_a.weight"
        if ".g_proj." in name:
            name = f"blk.{layer}." + ("attn_gate" if c["layer_types"][int(layer)] == "full_attention" else "ssm_g_a") + ".weight"
        if "expert_bias" in name:
            name = f"blk.{layer}.exp_probs_b.bias"
        yield name, v


def parted(named, c):
    """One matrix of q, k and v (Baichuan, Ling 1) in three, q and k as rows that rotate in pairs."""
    heads = c["num_attention_heads"]
    kv = c.get("num_key_value_heads", heads)
    for name, v in named.items():
        if not name.endswith(("W_pack.weight", "query_key_value.weight")):
            yield name, v
            continue
        dim = v.shape[0] // (heads + 2 * kv)
        q, k, v = np.split(v, [heads * dim, (heads + kv) * dim])
        for word, part in ("q", paired(q, heads)), ("k", paired(k, kv)), ("v", v):
            yield f"blk.{name.split('.')[2]}.attn_{word}.weight", part


def dbrx_tensors(named, c):
    """A matrix for each expert, with its inputs as columns."""
    n = c["ffn_config"]["moe_num_experts"]
    for name, v in named.items():
        head, found, part = name.partition(".ffn.experts.mlp.")
        if found:
            v = v.reshape(n, -1, v.shape[-1])
            v = v.swapaxes(1, 2) if part == "w2" else v
            name = f"blk.{head.split('.')[2]}.ffn_{dict(w1='gate', v1='up', w2='down')[part]}_exps.weight"
        yield name, v


def respelt(named, words):
    """Tensors of architectures that the module of PyPI does not know: parts of names, and llama.cpp's words for them."""
    for name, v in named.items():
        to = next((to for part, to in words.items() if part in name), None)
        yield f"blk.{name.split('.')[2]}.{to}" if to else name, v


GRANITE_SWA = {"gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight", "input_linear": "ffn_up_shexp.weight",
               "output_linear": "ffn_down_shexp.weight", "router": "ffn_gate_inp.weight", "sinks": "attn_sinks.weight"}
BITNET = {"attn_sub_norm": "attn_sub_norm.weight", "ffn_sub_norm": "ffn_sub_norm.weight"}
LAGUNA = {"g_proj": "attn_gate.weight", "e_score_correction_bias": "exp_probs_b.bias"}
MIMO = {"sink": "attn_sinks.weight", "e_score_correction_bias": "exp_probs_b.bias"}
MINIMAX_01 = {"qkv_proj": "attn_qkv.weight", "output_gate": "attn_gate.weight", "self_attn.norm": "attn_norm_2.weight", "out_proj": "attn_output.weight"}
MISTRAL4 = {".mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight", ".mlp.experts.down_proj": "ffn_down_exps.weight"}


def pairs_of_layers(named, c):
    """Llama's rows that rotate in pairs, of layers whose numbers of heads differ."""
    for name, v in named.items():
        yield name, paired(v, v.shape[0] // c["head_dim"]) if ".q_proj." in name or ".k_proj." in name else v


def halves(named, c):
    """OpenELM's gate over up, apart."""
    for name, v in named.items():
        if name.endswith("ffn.proj_1.weight"):
            for word, part in zip(("gate", "up"), np.split(v, 2)):
                yield f"blk.{name.split('.')[2]}.ffn_{word}.weight", part
        else:
            yield name, v


def text_side(named):
    """Of a model with vision what its text model has, under its names."""
    for name, v in named:
        if "vision_" not in name and not name.startswith("vit"):
            yield name.replace("model.language_model.", "model."), v


def llama3_factors(rope, theta, dim, n):
    """What Llama 3's scaling divides the frequencies of `dim` rotated numbers by, and 1 up to `n`."""
    wave = 2 * np.pi * theta ** (np.arange(0, dim, 2) / dim)
    low, high = (rope["original_max_position_embeddings"] / rope[k] for k in ("low_freq_factor", "high_freq_factor"))
    part = (rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    out = np.where(wave < high, 1, np.where(wave > low, rope["factor"], 1 / ((1 - part) / rope["factor"] + part)))
    return np.concatenate([out, np.ones(n - len(out))]).astype(np.float32)


def step35_tensors(named, c):
    """Norms around 1; experts that are in one tensor already, and llama.cpp's words for the rest."""
    words = {"moe.gate_proj": "ffn_gate_exps.weight", "moe.up_proj": "ffn_up_exps.weight", "moe.down_proj": "ffn_down_exps.weight",
             "moe.gate.weight": "ffn_gate_inp.weight", "moe.router_bias": "exp_probs_b.bias", "g_proj": "attn_gate.weight",
             "share_expert.gate_proj": "ffn_gate_shexp.weight", "share_expert.up_proj": "ffn_up_shexp.weight",
             "share_expert.down_proj": "ffn_down_shexp.weight"}
    yield "rope_freqs.weight", llama3_factors(c["rope_scaling"], c["rope_theta"][0], c["head_dim"] // 2, c["head_dim"] // 2)
    yield from respelt({k: v + 1 if k.endswith("norm.weight") else v for k, v in named.items()}, words)


def jais_tensors(named, c):
    """The factors are in the tables; matrices have their outputs first."""
    for name, v in named.items():
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight", "c_fc2.weight")):
            v = v.T
        elif name.startswith("transformer.wte"):
            v = v * c["mup_embeddings_scale"]
        elif name.startswith("lm_head"):
            v = v * c["mup_output_alpha"] * c["mup_width_scale"]
        yield name, v


def muse_glimmer_tensors(named, c):
    """Rows that rotate in pairs, norms around 1 but for the last one, and the factor of q.k as a norm of q."""
    dim = c["head_dim"]
    for name, v in named.items():
        blk = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
        if ".q_proj." in name or ".k_proj." in name:
            v = paired(v, v.shape[0] // dim)
        if name.endswith(".self_attn.q_proj.weight"):
            yield blk + "attn_q_norm.weight", np.full(dim, c["qk_scale_factor"], np.float32)
            yield blk + "attn_k_norm.weight", np.ones(dim, np.float32)
        yield name, v + 1 if name.endswith("layernorm.weight") else v


def spark_tensors(named):
    words = {"q_k_v_proj": "attn_qkv.weight", "g_proj": "attn_gate.weight", "out_proj": "attn_output.weight"}
    return respelt({k.replace("model.embedding", "model.embed_tokens"): v for k, v in named.items()}, words)


def rwkv7_tensors(named, c):
    """The six mixes in one tensor, biases of the pairs of low rank as w0, a0 and v0, and in the first layer a pair that nothing reads."""
    words = {
        "embeddings": "token_embd", "norm": "output_norm", "attn_norm": "attn_norm", "ffn_norm": "attn_norm_2", "attn.g_norm": "time_mix_ln",
        "attn.r_proj": "time_mix_receptance", "attn.k_proj": "time_mix_key", "attn.v_proj": "time_mix_value", "attn.o_proj": "time_mix_output",
        "ffn.x_k": "channel_mix_lerp_k", "ffn.key": "channel_mix_key", "ffn.value": "channel_mix_value",
    }
    for i in range(c["num_hidden_layers"]):
        mixes = [named[f"model.layers.{i}.attn.x_{part}"].reshape(1, 1, -1) for part in "rwkvag"]
        yield f"blk.{i}.time_mix_lerp_fused.weight", np.stack(mixes)
    for name, v in named.items():
        name = name.removeprefix("model.")
        _, layer, part = name.split(".", 2) if name.startswith("layers.") else ("", "", name)
        blk = f"blk.{layer}." if layer else ""
        head, _, suffix = part.rpartition(".")
        if part.startswith("attn.x_"):
            continue
        if "_lora.lora." in part:
            letter, number = part[5], part.split(".")[3]
            to = f"time_mix_{letter}{0 if suffix == 'bias' else 1 if number == '0' else 2}.weight"
            if layer == "0" and letter == "a":
                yield blk + to.replace("_a", "_v"), v
        elif part in ("attn.k_k", "attn.k_a", "attn.r_k"):
            to, v = f"time_mix_{part[5:]}.weight", v.reshape(-1)
        elif part in words:
            to, v = f"{words[part]}.weight", v.reshape(-1)
        else:
            blk = "" if head == "pre_norm" else blk
            to = f"{'token_embd_norm' if head == 'pre_norm' else words.get(head, 'output')}.{suffix}"
        yield blk + to, v
