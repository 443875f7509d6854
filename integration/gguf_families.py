"""Folders of other families as GGUF files, with the names and keys that llama.cpp's convert_hf_to_gguf.py gives them."""

import json
import pathlib
import shutil

import gguf
import numpy as np
import pytest
from gguf_made import paired, tensors, write_tokenizer
from serving import BIN, data

ARCH = gguf.MODEL_ARCH


def common(w, c):
    c.setdefault("num_hidden_layers", c.get("num_layers"))
    heads = c["num_attention_heads"]
    dim = c.get("head_dim") or c["hidden_size"] // heads
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    if "n_routed_experts" not in c:
        w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_rope_dimension_count(int(dim * c.get("partial_rotary_factor", 1)))
    w.add_rope_freq_base(c["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    if "layer_types" not in c or "conv" not in c["layer_types"]:
        w.add_head_count_kv(c["num_key_value_heads"])
    if "layer_norm_eps" in c:
        w.add_layer_norm_eps(c["layer_norm_eps"])
    else:
        w.add_layer_norm_rms_eps(c.get("rms_norm_eps") or c.get("norm_eps") or c.get("layer_norm_epsilon", 1e-5))


def cohere2(w, c):
    w.add_logit_scale(c["logit_scale"])
    w.add_sliding_window(c["sliding_window"])
    w.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def olmo2(w, c):
    if c.get("sliding_window"):
        w.add_sliding_window(c["sliding_window"])
        w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    if c.get("rope_scaling"):
        yarn(w, c["rope_scaling"])


def qwen2moe(w, c):
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])


def deepseek_experts(w, c):
    """The router of DeepSeek-V3, which others took over."""
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])


def deepseek2(w, c, absorbed=False):
    """`absorbed`: as files have it since a key-value head was a thing of its own there: one, of the latent vector."""
    w.add_block_count(c["num_hidden_layers"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    if (c.get("n_group") or 1) > 1:
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])
    v3 = c["model_type"] == "deepseek_v3"
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if v3 else gguf.ExpertGatingFuncType.SOFTMAX)
    if c.get("q_lora_rank"):
        w.add_q_lora_rank(c["q_lora_rank"])
    rank, rot, nope, v = (c[k] for k in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    w.add_kv_lora_rank(rank)
    w.add_rope_dimension_count(rot)
    w.add_key_length(rank + rot if absorbed else nope + rot)
    w.add_value_length(rank if absorbed else v)
    if absorbed:
        w.add_head_count_kv(1)
        w.add_key_length_mla(nope + rot)
        w.add_value_length_mla(v)
    if c.get("rope_scaling"):
        yarn(w, c["rope_scaling"])
        w.add_rope_scaling_yarn_log_mul(0.1 * c["rope_scaling"]["mscale_all_dim"])


def ernie4_5_moe(w, c):
    w.add_expert_count(c["moe_num_experts"])
    w.add_expert_used_count(c["moe_k"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["moe_num_shared_experts"])
    w.add_interleave_moe_layer_step(c["moe_layer_interval"])
    w.add_leading_dense_block_count(c["moe_layer_start_index"])


def lfm2moe(w, c):
    lfm2(w, c)
    experts(w, c)
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_leading_dense_block_count(c["num_dense_layers"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def minimax_m2(w, c):
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["intermediate_size"])
    w.add_rope_dimension_count(c["rotary_dim"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def hunyuan(w, c):
    dim = c["head_dim"]
    w.add_rope_freq_base(c["rope_theta"] * c["rope_scaling"]["alpha"] ** (dim / (dim - 2)))


def granitemoe(w, c):
    w.add_embedding_scale(c["embedding_multiplier"])
    w.add_residual_scale(c["residual_multiplier"])
    w.add_attention_scale(c["attention_multiplier"])
    w.add_logit_scale(c["logits_scaling"])
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    if c.get("shared_intermediate_size"):
        w.add_expert_shared_feed_forward_length(c["shared_intermediate_size"])


def glm4moe(w, c):
    deepseek_experts(w, c)
    w.add_nextn_predict_layers(1)  # which the folders of the tests do not have
    w.add_block_count(c["num_hidden_layers"] + 1)


def lfm2(w, c):
    w.add_head_count_kv([c["num_key_value_heads"] if t == "full_attention" else 0 for t in c["layer_types"]])
    w.add_shortconv_l_cache(c["conv_L_cache"])


def yarn(w, r):
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(r["factor"])
    w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_beta_fast(r["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(r["beta_slow"])


def gpt_oss(w, c):
    yarn(w, c["rope_scaling"])
    w.add_sliding_window(c["sliding_window"])
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["intermediate_size"])


def exaone4(w, c):
    if c.get("sliding_window"):
        w.add_sliding_window(c["sliding_window"])
        w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])


def experts(w, c):
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])


def olmo(w, c):
    w.add_clamp_kqv(c["clip_qkv"])
    w.add_layer_norm_eps(1e-5)


def nemotron(w, c):
    w.add_layer_norm_eps(c["norm_eps"])


def dots1(w, c):
    w.add_block_count(c["num_hidden_layers"])
    deepseek_experts(w, c)
    w.add_expert_group_count(c["n_group"])
    w.add_expert_group_used_count(c["topk_group"])


def minicpm(w, c):
    w.add_embedding_scale(c["scale_emb"])
    w.add_residual_scale(c["scale_depth"] / c["num_hidden_layers"] ** 0.5)
    w.add_logit_scale(c["hidden_size"] / c["dim_model_base"])


# Of families that the reference data lacks: folders that tests/golden/make_arch.py makes.
MADE = {
    "exaone4": (ARCH.EXAONE4, exaone4),
    "exaone4_window": (ARCH.EXAONE4, exaone4),
    "exaone": (ARCH.EXAONE, None),
    "internlm2": (ARCH.INTERNLM2, None),
    "minicpm": (ARCH.MINICPM, minicpm),
    "arcee": (ARCH.ARCEE, None),
    "nemotron": (ARCH.NEMOTRON, nemotron),
    "jais2": (ARCH.JAIS2, None),
    "seed_oss": (ARCH.SEED_OSS, None),
    "olmo": (ARCH.OLMO, olmo),
    "olmoe": (ARCH.OLMOE, experts),
    "dots1": (ARCH.DOTS1, dots1),
    "gpt_oss": (ARCH.GPT_OSS, gpt_oss),
    "hunyuan_v1_dense": (ARCH.HUNYUAN_DENSE, hunyuan),
    "lfm2_moe": (ARCH.LFM2MOE, lfm2moe),
    "granitemoe": (ARCH.GRANITE_MOE, granitemoe),
    "granitemoeshared": (ARCH.GRANITE_MOE, granitemoe),
}
PAIRED = (ARCH.SMOLLM3, ARCH.MINICPM, ARCH.ARCEE, ARCH.OLMO, ARCH.GRANITE_MOE)
FAMILIES = {
    "cohere2": (ARCH.COHERE2, cohere2),
    "olmo2_mha": (ARCH.OLMO2, olmo2),
    "olmo3": (ARCH.OLMO2, olmo2),
    "glm4": (ARCH.GLM4, None),
    "glm4_moe": (ARCH.GLM4_MOE, glm4moe),
    "glm4_moe_qknorm": (ARCH.GLM4_MOE, glm4moe),
    "smollm3": (ARCH.SMOLLM3, None),
    "qwen2_moe": (ARCH.QWEN2MOE, qwen2moe),
    "ernie4_5": (ARCH.ERNIE4_5, None),
    "lfm2": (ARCH.LFM2, lfm2),
    "ernie4_5_moe": (ARCH.ERNIE4_5_MOE, ernie4_5_moe),
    "minimax_m2": (ARCH.MINIMAXM2, minimax_m2),
    "deepseek_v2": (ARCH.DEEPSEEK2, deepseek2),
    "deepseek_v2_lite": (ARCH.DEEPSEEK2, deepseek2),
    "deepseek_v3_noq": (ARCH.DEEPSEEK2, deepseek2),
    "deepseek_v3_yarn": (ARCH.DEEPSEEK2, deepseek2),
}


def vl(w, c):
    """The rotation is by three positions, which are one and the same in a text."""
    w.add_rope_dimension_sections([4, 2, 2, 0])
    if "num_experts" in c:
        experts(w, c)
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])


# Models with vision, in the words of which a text model is written: its folder stands behind the colon.
TEXT_SIDES = {
    "qwen2vl:arch/qwen2": (ARCH.QWEN2VL, vl),
    "qwen3vlmoe:arch/qwen3_moe": (ARCH.QWEN3VLMOE, vl),
}


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
        to = "ffn_{}_shexp" if "shared_mlp" in name else "ffn_{}_exps"
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


def write_family(folder, path, newer=False, model=None):
    """The tensors keep their numbers, in 16 bits where they are matrices. `newer`: DeepSeek's as later converters write them."""
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    arch, more = (FAMILIES | MADE | TEXT_SIDES)[model or folder.name]
    w = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[arch])
    common(w, c)
    if more:
        more(w, c, newer) if newer else more(w, c)
    write_tokenizer(w, folder)
    names, dense = (gguf.get_tensor_name_map(a, c["num_hidden_layers"]) for a in (arch, ARCH.LLAMA))
    kind = gguf.GGMLQuantizationType.F32 if c.get("torch_dtype", c.get("dtype")) == "float32" else gguf.GGMLQuantizationType.BF16
    named = with_experts(tensors(folder))
    changed = {ARCH.INTERNLM2: lambda: ungrouped(named, c), ARCH.GPT_OSS: lambda: apart(named), ARCH.GRANITE_MOE: lambda: granite_experts(named, c)}
    if newer:
        changed[arch] = lambda: absorbed(named, c)
    for name, v in changed.get(arch, named.items)():
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace(".expert_bias", ".expert_bias.bias")
        to, like = (m.get_name(name, try_suffixes=(".weight", ".bias")) for m in (names, dense))
        if (part := name.rpartition(".experts.")[2].removesuffix(".weight")) in EXPERT_PARTS:
            to = f"blk.{name.split('.')[2]}.ffn_{EXPERT_PARTS[part]}_exps.weight"
        to = name if name.startswith("blk.") else to or like  # dense layers of a family that is known with experts
        assert to, name
        v = v.squeeze(1) if v.ndim == 3 and v.shape[1] == 1 else v  # a convolution's channels
        if arch in PAIRED and (".q_proj." in name or ".k_proj." in name):
            v = paired(v, c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"])
        if arch == ARCH.NEMOTRON and name.endswith("norm.weight"):
            v = v + 1
        if v.ndim == 1 or name.endswith(".bias") or "shortconv.conv" in to or "gate_inp" in to:
            w.add_tensor(to, np.ascontiguousarray(v, np.float32))
        else:
            w.add_tensor(to, gguf.quants.quantize(v, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def as_files_say(folder, copy):
    """A file tells only how far the factor of attention is from the usual one, which a config may round."""
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    scaling = config.get("rope_scaling") or {}
    scaling.pop("attention_factor", None)
    if "mscale_all_dim" in scaling:  # and DeepSeek's two are one there, as they are in what is released
        scaling["mscale"] = scaling["mscale_all_dim"]
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def with_tokenizer(folder, copy):
    """Folders that tests/golden/make_arch.py makes have no tokenizer: that of another family of as many tokens."""
    if not (folder / "golden.json").exists():
        pytest.skip(f"{folder}: tests/golden/make_arch.py did not run")
    other = data("arch/olmo3")
    shutil.copytree(folder, copy)
    for name in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(other / name, copy / name)
    return copy


def family_folder(model, tmp_path):
    """A copy of the family's folder, with a tokenizer, in tmp_path."""
    made = pathlib.Path(BIN).parent / "golden" / "arch" / model
    return with_tokenizer(made, tmp_path / model) if model in MADE else as_files_say(data(f"arch/{model}"), tmp_path / model)
