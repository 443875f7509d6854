"""Converts folders of other families to GGUF files, with the names and keys of llama.cpp's convert_hf_to_gguf.py."""

import json
import pathlib
import shutil

import gguf
import numpy as np
import pytest
from gguf_keys import (
    afmoe, apertus, bailing, bailing2, cohere2, cohere2_moe, dbrx, deci, deepseek, dots1, ernie4_5_moe, exaone4, exaone_moe, experts, falcon,
    gemma4, glm4moe, gpt_oss, gptneox, granite_hybrid, granite_swa, granitemoe, hunyuan, hunyuan_moe, hy_v3, jamba, kimi_linear, bailing3, laguna, lfm2,
    lfm2moe, mamba1, mellum, mimo2, minicpm, minimax_01, minimax_m2, mistral3, mpt, nemotron, nemotron_h, olmo, olmo2, openelm, orion, maple, plamo2, plamo3, plm, qwen, rwkv7,
    qwen2moe, qwen35, smallthinker, step35, muse_glimmer, jais, nanbeige, spark, vl,
)  # fmt: skip
from gguf_keys_latent import deepseek2, deepseek32, glm_dsa, minicpm3, mistral4
from gguf_keys_streams import (
    kimi_k3, kimi_k3_tensors, deepseek4, deepseek4_tensors, glm5_next, glm5_next_tensors, hrm_text, hrm_text_tensors, hy_v4, hy_v4_tensors, minimax_m3, minimax_m3_tensors,
)  # fmt: skip
from gguf_made import paired, tensors, write_tokenizer
from gguf_tensors import (
    BITNET, EXPERT_PARTS, GRANITE_SWA, LAGUNA, MIMO, MINIMAX_01, MISTRAL4, absorbed, apart, dbrx_tensors, delta, gemma4_tensors, granite_experts,
    halves, jais_tensors, kimi_tensors, ling_tensors, muse_glimmer_tensors, step35_tensors, kv_heads, mamba_layers, pairs_of_layers, parted, plamo_tensors, rates, respelt, rwkv7_tensors, spark_tensors, stacked, text_side, turned, ungrouped, with_experts,
)  # fmt: skip
from serving import BIN, data

ARCH = gguf.MODEL_ARCH


WORDS = {
    "hidden_size": ("d_model", "n_embd", "n_embed", "model_dim"),
    "num_hidden_layers": ("num_layers", "n_layers", "n_layer", "num_transformer_layers"),
    "num_attention_heads": ("n_heads", "n_head", "num_query_heads"),
    "num_key_value_heads": ("num_query_groups",),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "intermediate_size_mlp", "moe_ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "max_context_length"),
    "layer_norm_eps": ("layer_norm_epsilon",),
}


def in_usual_words(c):
    """The keys of a config.json under the names that most have, and what others leave out."""
    for word, others in WORDS.items():
        for other in others:
            if c.get(other) is not None:
                c.setdefault(word, c[other])
    rope = c.get("rope_parameters") or {}
    for key in ("rope_theta", "partial_rotary_factor"):
        c.setdefault(key, rope.get("full_attention", rope).get(key, 10000.0 if key == "rope_theta" else 1))
    if "H_cycles" in c:  # a layer counts once for each of its turns
        c.setdefault("num_layers_per_stack", c["num_hidden_layers"])
        c["num_hidden_layers"] = c["num_layers_per_stack"] * c["H_cycles"] * (c["L_cycles"] + 1)
    c["intermediate_size"] = c.get("intermediate_size") or 4 * c["hidden_size"]
    c.setdefault("max_position_embeddings", 2048)
    c.setdefault("num_key_value_heads", 1 if c.get("multi_query") else c["num_attention_heads"])


def common(w, c):
    in_usual_words(c)
    heads = c["num_attention_heads"]
    dim = c.get("head_dim") or c["hidden_size"] // heads
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    if "n_routed_experts" not in c or c["model_type"] == "nemotron_h":
        w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_rope_dimension_count(int(dim * c.get("partial_rotary_factor", 1)))
    w.add_rope_freq_base(c["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    if not by_layer(c):
        w.add_head_count_kv(c["num_key_value_heads"])
    if "layer_norm_eps" in c:
        w.add_layer_norm_eps(c["layer_norm_eps"])
    else:
        w.add_layer_norm_rms_eps(c.get("rms_norm_eps") or c.get("norm_eps") or c.get("layer_norm_epsilon", 1e-5))


def by_layer(c):
    """Converters tell the kinds of layers by their numbers of key-value heads."""
    return c["model_type"] in ("lfm2", "lfm2_moe", "granitemoehybrid", "nemotron_h", "gemma4_text", "jamba", "mimo_v2_flash", "laguna", "nemotron-nas", "openelm", "step3p5", "glm5_next_text", "plamo2")


# Of families that the reference data lacks: folders that tests/golden/make_arch.py makes.
MADE = {
    "exaone4": (ARCH.EXAONE4, exaone4),
    "exaone4_window": (ARCH.EXAONE4, exaone4),
    "exaone": (ARCH.EXAONE, None),
    "orion": (ARCH.ORION, orion),
    "pangu_embedded": (ARCH.PANGU_EMBED, None),
    "maincoder": (ARCH.MAINCODER, None),
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
    "ministral3": (ARCH.MISTRAL3, mistral3),
    "minicpm3": (ARCH.MINICPM3, minicpm3),
    "hunyuan_v1_moe": (ARCH.HUNYUAN_MOE, hunyuan_moe),
    "bailing_moe": (ARCH.BAILINGMOE2, bailing2),
    "exaone_moe": (ARCH.EXAONE_MOE, exaone_moe),
    "afmoe": (ARCH.AFMOE, afmoe),
    "hy_v3": (ARCH.DOTS1, hy_v3, "hy_v3"),  # as the module of PyPI does not know it yet
    "glm_moe_dsa": (ARCH.GLM_DSA, glm_dsa),
    "apertus": (ARCH.APERTUS, apertus),
    "kimi_linear": (ARCH.KIMI_LINEAR, kimi_linear),
    "kimi_linear_hub": (ARCH.KIMI_LINEAR, kimi_linear),
    "kimi_k3": (ARCH.KIMI_LINEAR, kimi_k3, "kimi-k3"),
    "rwkv7_tied": (ARCH.RWKV7, rwkv7),
    "mamba": (ARCH.MAMBA, mamba1),
    "falcon_mamba": (ARCH.MAMBA, mamba1),
    "jamba": (ARCH.JAMBA, jamba),
    "plm": (ARCH.PLM, plm),
    "maple": (ARCH.QWEN3MOE, maple, "maple"),
    "plamo2": (ARCH.PLAMO2, plamo2),
    "plamo2_few": (ARCH.PLAMO2, plamo2),
    "plamo3": (ARCH.PLAMO3, plamo3),
    "plamo3_yarn": (ARCH.PLAMO3, plamo3),
    "mistral4": (ARCH.MISTRAL4, mistral4),
    "smallthinker": (ARCH.SMALLTHINKER, smallthinker),
    "smallthinker_softmax": (ARCH.SMALLTHINKER, smallthinker),
    "mimo_v2_flash": (ARCH.MIMO2, mimo2),
    "mimo_v2_flash_hub": (ARCH.MIMO2, mimo2),
    "qwen": (ARCH.QWEN, qwen),
    "baichuan": (ARCH.BAICHUAN, None),
    "baichuan2": (ARCH.BAICHUAN, None),
    "dbrx": (ARCH.DBRX, dbrx),
    "ling_1": (ARCH.BAILINGMOE, bailing),
    "nemotron_nas": (ARCH.DECI, deci),
    "openelm": (ARCH.OPENELM, openelm),
    "deepseek_moe": (ARCH.DEEPSEEK, deepseek),
    "step3p5": (ARCH.STEP35, step35),
    "jais": (ARCH.JAIS, jais),
    "codeshell": (ARCH.CODESHELL, None),
    "bitnet": (ARCH.BITNET, None),
    # as above, beside the words of a similar one
    "mellum": (ARCH.QWEN3MOE, mellum, "mellum"),
    "laguna": (ARCH.AFMOE, laguna, "laguna"),
    "minimax_text_01": (ARCH.MINIMAXM2, minimax_01, "minimax-01"),
    "cohere2_moe": (ARCH.DEEPSEEK2, cohere2_moe, "cohere2moe"),
    "granite_swa": (ARCH.GRANITE_MOE, granite_swa, "granite_swa"),
    "deepseek_v32": (ARCH.GLM_DSA, deepseek32, "deepseek32"),
    "bailing_hybrid": (ARCH.KIMI_LINEAR, bailing3, "bailingmoe3"),
    "nanbeige": (ARCH.ARCEE, nanbeige, "nanbeige"),
    "spark2_5": (ARCH.AFMOE, spark, "spark2_5"),
    "muse_glimmer": (ARCH.AFMOE, muse_glimmer, "muse-glimmer"),
    "granitemoe_swa": (ARCH.GRANITE_MOE, granite_swa, "granite_swa"),
    "hy_v4_vl": (ARCH.GLM_DSA, hy_v4, "hy_v4"),
    "glm5_next_pairs": (ARCH.KIMI_LINEAR, glm5_next, "glm5-next"),
    "deepseek_v4_hub": (ARCH.DEEPSEEK2, deepseek4, "deepseek4"),
    "hrm_text": (ARCH.LLAMA, hrm_text, "hrm_text"),
    "hrm_text_apart": (ARCH.LLAMA, hrm_text, "hrm_text"),
    "minimax_m3_hub": (ARCH.MINIMAXM2, minimax_m3, "minimax-m3"),
}
PAIRED = (ARCH.GRANITE_HYBRID, ARCH.SMOLLM3, ARCH.MINICPM, ARCH.ARCEE, ARCH.OLMO, ARCH.GRANITE_MOE, ARCH.MISTRAL3, ARCH.DEEPSEEK)
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
    "qwen3_5_text": (ARCH.QWEN35, qwen35),
    "qwen3_5_moe_text": (ARCH.QWEN35MOE, qwen35),
    "qwen3_next": (ARCH.QWEN3NEXT, qwen35),
    "gemma4_text": (ARCH.GEMMA4, gemma4),
    "gemma4_text_moe": (ARCH.GEMMA4, gemma4),
    "gemma4_text_ple": (ARCH.GEMMA4, gemma4),
    "granitemoehybrid": (ARCH.GRANITE_HYBRID, granite_hybrid),
    "granitemoehybrid_dense": (ARCH.GRANITE_HYBRID, granite_hybrid),
    "nemotron_h": (ARCH.NEMOTRON_H_MOE, nemotron_h),
    "gpt2": (ARCH.GPT2, None),
    "gpt_bigcode": (ARCH.STARCODER, None),
    "gpt_neox": (ARCH.GPTNEOX, gptneox),
    "falcon_7b": (ARCH.FALCON, falcon),
    "falcon_40b": (ARCH.FALCON, falcon),
    "falcon_11b": (ARCH.FALCON, falcon),
    "bloom": (ARCH.BLOOM, None),
    "mpt": (ARCH.MPT, mpt),
    "phi": (ARCH.PHI2, None),
    "deepseek_v2": (ARCH.DEEPSEEK2, deepseek2),
    "deepseek_v2_lite": (ARCH.DEEPSEEK2, deepseek2),
    "deepseek_v3_noq": (ARCH.DEEPSEEK2, deepseek2),
    "deepseek_v3_yarn": (ARCH.DEEPSEEK2, deepseek2),
}


# Models with vision, in the words of which a text model is written: its folder stands behind the colon.
TEXT_SIDES = {
    "qwen2vl:arch/qwen2": (ARCH.QWEN2VL, vl),
    "qwen3vlmoe:arch/qwen3_moe": (ARCH.QWEN3VLMOE, vl),
}


IN_FP32 = ("shortconv.conv", "gate_inp", "ssm_conv1d", "ssm_a", "ssm_d", "ssm_norm")
CHANGED = {
    ARCH.QWEN35: delta,
    ARCH.QWEN35MOE: delta,
    ARCH.QWEN3NEXT: delta,
    ARCH.GEMMA4: lambda named, c: gemma4_tensors(named),
    ARCH.GRANITE_HYBRID: lambda named, c: granite_experts(dict(mamba_layers(named, c)), c),
    ARCH.NEMOTRON_H: mamba_layers,
    ARCH.NEMOTRON_H_MOE: mamba_layers,
    ARCH.GLM_DSA: absorbed,
    ARCH.KIMI_LINEAR: lambda named, c: kimi_tensors(dict(absorbed(named, c))),
    ARCH.RWKV7: rwkv7_tensors,
    ARCH.MAMBA: lambda named, c: rates(named),
    ARCH.JAMBA: lambda named, c: rates(named),
    ARCH.PLAMO2: plamo_tensors,
    ARCH.PLAMO3: plamo_tensors,
    ARCH.GPT2: lambda named, c: turned(named),
    ARCH.MISTRAL4: lambda named, c: respelt(dict(absorbed(named, c)), MISTRAL4),
    ARCH.MIMO2: lambda named, c: respelt(named, MIMO),
    ARCH.BAICHUAN: parted,
    ARCH.BAILINGMOE: parted,
    ARCH.DBRX: dbrx_tensors,
    ARCH.DECI: pairs_of_layers,
    ARCH.OPENELM: halves,
    ARCH.STEP35: step35_tensors,
    ARCH.JAIS: jais_tensors,
    ARCH.BITNET: lambda named, c: respelt(named, BITNET),
    "deepseek32": absorbed,
    "bailingmoe3": lambda named, c: ling_tensors(dict(absorbed(named, c)), c),
    "spark2_5": lambda named, c: spark_tensors(named),
    "hy_v4": hy_v4_tensors,
    "glm5-next": glm5_next_tensors,
    "kimi-k3": kimi_k3_tensors,
    "deepseek4": deepseek4_tensors,
    "hrm_text": hrm_text_tensors,
    "minimax-m3": minimax_m3_tensors,
    "muse-glimmer": muse_glimmer_tensors,
    "laguna": lambda named, c: respelt(named, LAGUNA),
    "minimax-01": lambda named, c: respelt({k: v for k, v in named.items() if "_decay" not in k and "slope_rate" not in k}, MINIMAX_01),
    "granite_swa": lambda named, c: respelt(named, GRANITE_SWA),
    ARCH.GPTNEOX: stacked,
    ARCH.BLOOM: stacked,
    ARCH.FALCON: lambda named, c: stacked(named, c, kv_heads(c)),
}


KINDS = {"float32": gguf.GGMLQuantizationType.F32, "float16": gguf.GGMLQuantizationType.F16, "bfloat16": gguf.GGMLQuantizationType.BF16}


def write_family(folder, path, newer=False, model=None, packed=None):
    """The tensors keep their numbers, in 16 bits where they are matrices. `newer`: DeepSeek's as later converters write them.
    `model`: a name of the tables below, or a row as they have. `packed`: matrices in that kind of blocks, made of numbers in 16 bits."""
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    c |= c.get("text_config", {})
    arch, more, *own = model if isinstance(model, tuple) else (FAMILIES | MADE | TEXT_SIDES)[model or folder.name]
    w = gguf.GGUFWriter(str(path), own[0] if own else gguf.MODEL_ARCH_NAMES[arch])
    common(w, c)
    if more:
        more(w, c, newer) if newer else more(w, c)
    write_tokenizer(w, folder)
    names, dense = (gguf.get_tensor_name_map(a, c["num_hidden_layers"]) for a in (arch, ARCH.LLAMA))
    kind = gguf.GGMLQuantizationType[packed] if packed else KINDS[c.get("torch_dtype") or c["dtype"]]
    named = with_experts(text_side(tensors(folder, np.float16 if packed else np.float32)))
    changed = {ARCH.INTERNLM2: lambda: ungrouped(named, c), ARCH.GPT_OSS: lambda: apart(named), ARCH.GRANITE_MOE: lambda: granite_experts(named, c)}
    kind_of = own[0] if own else arch
    changed |= {kind_of: lambda: CHANGED[kind_of](named, c)} if kind_of in CHANGED else {}
    numbers = {}
    if newer:
        changed[arch] = lambda: absorbed(named, c)
    for name, v in changed.get(kind_of, named.items)():
        if ".act_fn." in name:
            numbers.setdefault(name.rpartition(".")[2], []).append(float(v.reshape(-1)[0]))
            continue
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace(".expert_bias", ".expert_bias.bias")
        to, like = (m.get_name(name, try_suffixes=(".weight", ".bias")) for m in (names, dense))
        if (part := name.rpartition(".experts.")[2].removesuffix(".weight")) in EXPERT_PARTS:
            to = f"blk.{name.split('.')[2]}.ffn_{EXPERT_PARTS[part]}_exps.weight"
        to = name if name.startswith(("blk.", "rope_freqs.", "hrm.", "output", "token_embd.")) else to or like  # dense layers of a family that is known with experts
        assert to, name
        to = to.removesuffix(".bias") if own and "exp_probs_b" in to else to  # hy_v3 has no suffix there
        v = v.squeeze(1) if v.ndim == 3 and v.shape[1] == 1 else v  # a convolution's channels
        if arch in PAIRED and (".q_proj." in name or ".k_proj." in name):
            v = paired(v, c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"])
        if arch == ARCH.NEMOTRON and name.endswith("norm.weight"):
            v = v + 1
        if "tid2eid" in to:
            w.add_tensor(to, v.astype(np.int32))
        elif v.ndim == 1 or name.endswith(".bias") or any(part in to for part in IN_FP32) or v.ndim == 4:
            w.add_tensor(to, np.ascontiguousarray(v, np.float32))
        else:
            w.add_tensor(to, gguf.quants.quantize(v, kind), raw_dtype=kind)
    for key, list_ in numbers.items():
        w.add_array(f"xielu.{key}", list_)
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


# What a file has no key for: llama.cpp's values.
FIXED = {"minicpm3": {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}, "bitnet": {"hidden_act": "silu"}, "step3p5": {"query_pre_attn_scalar": None}, "minimax_m3_hub": {"swiglu_limit": 7.0},
         "plamo2": {"full_attention_idx": [1, 3]}, "plamo2_few": {"full_attention_idx": [4]}, "plamo3": {"scale_embedding": False}, "plamo3_yarn": {"scale_embedding": False}}


def with_tokenizer(folder, copy):
    """Folders that tests/golden/make_arch.py makes have no tokenizer: that of another family of as many tokens."""
    if not (folder / "golden.json").exists():
        pytest.skip(f"{folder}: tests/golden/make_arch.py did not run")
    other = data("arch/olmo3")
    shutil.copytree(folder, copy)
    for name in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(other / name, copy / name)
    config = json.loads((copy / "config.json").read_text())
    if folder.name == "deepseek_v32":  # two factors that are one in a file
        config["rope_scaling"]["mscale"] = config["rope_scaling"]["mscale_all_dim"]
    config.get("text_config", config).update(FIXED.get(folder.name, {}))
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def family_folder(model, tmp_path):
    """A copy of the family's folder, with a tokenizer, in tmp_path."""
    made = pathlib.Path(BIN).parent / "golden" / "arch" / model
    return with_tokenizer(made, tmp_path / model) if model in MADE else as_files_say(data(f"arch/{model}"), tmp_path / model)
