"""Converts folders of other families to GGUF files, with the names and keys of llama.cpp's convert_hf_to_gguf.py."""

import json
import pathlib
import shutil

import gguf
import numpy as np
import pytest
from gguf_made import paired, tensors, write_tokenizer
from gguf_tensors import (
    EXPERT_PARTS, absorbed, apart, delta, gemma4_tensors, granite_experts, kimi_tensors, kv_heads, mamba_layers, rates, stacked, turned, ungrouped, with_experts,
)  # fmt: skip
from serving import BIN, data

ARCH = gguf.MODEL_ARCH


WORDS = {
    "hidden_size": ("d_model", "n_embd", "n_embed"),
    "num_hidden_layers": ("num_layers", "n_layers", "n_layer"),
    "num_attention_heads": ("n_heads", "n_head"),
    "intermediate_size": ("ffn_hidden_size", "n_inner"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
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
    return c["model_type"] in ("lfm2", "lfm2_moe", "granitemoehybrid", "nemotron_h", "gemma4_text", "jamba")


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


def mamba(w, heads, dim, groups, state, conv):
    w.add_ssm_time_step_rank(heads)
    w.add_ssm_inner_size(heads * dim)
    w.add_ssm_group_count(groups)
    w.add_ssm_state_size(state)
    w.add_ssm_conv_kernel(conv)


def qwen35(w, c):
    mamba(w, c["linear_num_value_heads"], c["linear_value_head_dim"], c["linear_num_key_heads"], c["linear_key_head_dim"], c["linear_conv_kernel_dim"])
    w.add_full_attention_interval(4)
    w.add_rope_dimension_sections([2, 1, 1, 0])
    if "num_experts" in c:
        qwen2moe(w, c)


def attention_only(w, c, kinds, word):
    w.add_head_count_kv([c["num_key_value_heads"] if k == word else 0 for k in kinds])


def granite_hybrid(w, c):
    granitemoe(w, c)
    attention_only(w, c, c["layer_types"], "attention")
    mamba(w, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"])
    w.add_rope_scaling_finetuned(c["position_embedding_type"] == "rope")


def nemotron_h(w, c):
    kinds = c["hybrid_override_pattern"]
    attention_only(w, c, kinds, "*")
    w.add_feed_forward_length([c["moe_intermediate_size"] if k == "E" else 0 for k in kinds])
    mamba(w, c["mamba_num_heads"], c["mamba_head_dim"], c["n_groups"], c["ssm_state_size"], c["conv_kernel"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_feed_forward_length(c["moe_shared_expert_intermediate_size"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_group_count(c["n_group"])


def gemma4(w, c):
    slides = [t == "sliding_attention" for t in c["layer_types"]]
    full, heads = c["global_head_dim"], c["num_key_value_heads"]
    w.add_key_length(full)
    w.add_value_length(full)
    w.add_key_length_swa(c["head_dim"])
    w.add_value_length_swa(c["head_dim"])
    w.add_rope_dimension_count(full)
    w.add_rope_dimension_count_swa(c["head_dim"])
    w.add_rope_freq_base(c["rope_parameters"]["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(c["rope_parameters"]["sliding_attention"]["rope_theta"])
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern(slides)
    w.add_head_count_kv([heads if s else c.get("num_global_key_value_heads") or heads for s in slides])
    w.add_shared_kv_layers(c["num_kv_shared_layers"])
    w.add_embedding_length_per_layer_input(c.get("hidden_size_per_layer_input") or 0)
    if c.get("use_double_wide_mlp"):
        first = len(slides) - c["num_kv_shared_layers"]
        w.add_feed_forward_length([c["intermediate_size"] * (1 + (i >= first)) for i in range(len(slides))])
    if c.get("final_logit_softcapping"):
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
    if c.get("enable_moe_block"):
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["top_k_experts"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    turn = int(full * c["rope_parameters"]["full_attention"]["partial_rotary_factor"] / 2)
    w.add_tensor("rope_freqs.weight", np.array([1.0] * turn + [1e30] * (full // 2 - turn), np.float32))


def mistral3(w, c):
    rope = c["rope_scaling"]
    yarn(w, rope)
    w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    w.add_float32("mistral3.attention.temperature_scale", rope["llama_4_scaling_beta"])


def minicpm3(w, c):
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_key_length(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])


def hunyuan_moe(w, c):
    if c.get("rope_scaling"):
        hunyuan(w, c)
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(whole(c["moe_topk"]))
    w.add_expert_feed_forward_length(whole(c.get("moe_intermediate_size") or c["intermediate_size"]))
    w.add_expert_shared_count(whole(c.get("num_shared_expert", 1)))
    w.add_expert_shared_feed_forward_length(c["intermediate_size"])


def whole(v):
    """A number that a config may have for each layer."""
    return v[0] if isinstance(v, list) else v


def shared_experts(w, c):
    """Those of DeepSeek's router under other names."""
    w.add_expert_count(c.get("num_experts") or c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c.get("num_shared_experts") or c.get("n_shared_experts", 0))
    w.add_leading_dense_block_count(c.get("first_k_dense_replace", c.get("num_dense_layers", 0)))
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c.get("routed_scaling_factor") or c.get("route_scale", 1.0))
    w.add_expert_weights_norm(c.get("norm_topk_prob", True))
    if (c.get("n_group") or 1) > 1:
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])


def bailing2(w, c):
    shared_experts(w, c)
    w.add_expert_shared_feed_forward_length(c.get("moe_shared_expert_intermediate_size", c["moe_intermediate_size"] * c["num_shared_experts"]))


def exaone_moe(w, c):
    w.add_block_count(c["num_hidden_layers"])
    shared_experts(w, c)
    exaone4(w, c)


def afmoe(w, c):
    shared_experts(w, c)
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])


def hy_v3(w, c):
    w.add_block_count(c["num_hidden_layers"])
    shared_experts(w, c)
    w.add_expert_weights_scale(c["router_scaling_factor"])


def apertus(w, c):
    """What is a tensor in a folder: write_family() adds it."""
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])


def kimi_linear(w, c):
    """With one key-value head, of the latent vector."""
    own = c.get("linear_attn_config") or {}
    full = [i + 1 in own["full_attn_layers"] if own else t == "full_attention" for i, t in enumerate(c.get("layer_types") or [None] * c["num_hidden_layers"])]
    nope, rot, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    w.add_head_count_kv([int(f) for f in full])
    w.add_ssm_conv_kernel(own.get("short_conv_kernel_size") or c["linear_conv_kernel_dim"])
    w.add_kda_head_dim(own.get("head_dim") or c["linear_head_dim"])
    if c.get("q_lora_rank"):
        w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(rot)
    w.add_key_length(c["kv_lora_rank"] + rot)
    w.add_key_length_mla(nope + rot)
    w.add_value_length_mla(v)
    w.add_expert_count(c.get("num_experts") or c["num_local_experts"])
    w.add_expert_used_count(c.get("num_experts_per_token") or c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c.get("num_shared_experts") or c["n_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c.get("moe_renormalize", c.get("norm_topk_prob", True)))
    if (groups := c.get("num_expert_group") or c.get("n_group") or 1) > 1:
        w.add_expert_group_count(groups)
        w.add_expert_group_used_count(c["topk_group"])


def mamba1(w, c):
    w.add_head_count(0)
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    w.add_ssm_time_step_rank(c["time_step_rank"])
    w.add_ssm_inner_size(c["intermediate_size"])
    w.add_ssm_state_size(c["state_size"])
    w.add_ssm_conv_kernel(c["conv_kernel"])
    w.add_ssm_dt_b_c_rms(c["model_type"] == "falcon_mamba")


def jamba(w, c):
    attends = [i % c["attn_layer_period"] == c["attn_layer_offset"] for i in range(c["num_hidden_layers"])]
    w.add_head_count_kv([c["num_key_value_heads"] if a else 0 for a in attends])
    w.add_ssm_time_step_rank(c["mamba_dt_rank"])
    w.add_ssm_inner_size(c["mamba_expand"] * c["hidden_size"])
    w.add_ssm_state_size(c["mamba_d_state"])
    w.add_ssm_conv_kernel(c["mamba_d_conv"])
    experts(w, c)


def gptneox(w, c):
    w.add_rope_dimension_count(int(c["hidden_size"] // c["num_attention_heads"] * c["rotary_pct"]))
    w.add_parallel_residual(c["use_parallel_residual"])


def mpt(w, c):
    w.add_max_alibi_bias(c["attn_config"]["alibi_bias_max"])
    if c["attn_config"].get("clip_qkv"):
        w.add_clamp_kqv(c["attn_config"]["clip_qkv"])


def falcon(w, c):
    w.add_head_count_kv(kv_heads(c))


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
    "ministral3": (ARCH.MISTRAL3, mistral3),
    "minicpm3": (ARCH.MINICPM3, minicpm3),
    "hunyuan_v1_moe": (ARCH.HUNYUAN_MOE, hunyuan_moe),
    "bailing_moe": (ARCH.BAILINGMOE2, bailing2),
    "exaone_moe": (ARCH.EXAONE_MOE, exaone_moe),
    "afmoe": (ARCH.AFMOE, afmoe),
    "hy_v3": (ARCH.GLM4_MOE, hy_v3, "hy_v3"),  # as the module of PyPI does not know it yet
    "apertus": (ARCH.APERTUS, apertus),
    "kimi_linear": (ARCH.KIMI_LINEAR, kimi_linear),
    "kimi_linear_hub": (ARCH.KIMI_LINEAR, kimi_linear),
    "mamba": (ARCH.MAMBA, mamba1),
    "falcon_mamba": (ARCH.MAMBA, mamba1),
    "jamba": (ARCH.JAMBA, jamba),
}
PAIRED = (ARCH.GRANITE_HYBRID, ARCH.SMOLLM3, ARCH.MINICPM, ARCH.ARCEE, ARCH.OLMO, ARCH.GRANITE_MOE, ARCH.MISTRAL3, ARCH.AFMOE)
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


IN_FP32 = ("shortconv.conv", "gate_inp", "ssm_conv1d", "ssm_a", "ssm_d", "ssm_norm")
CHANGED = {
    ARCH.QWEN35: delta,
    ARCH.QWEN35MOE: delta,
    ARCH.QWEN3NEXT: delta,
    ARCH.GEMMA4: lambda named, c: gemma4_tensors(named),
    ARCH.GRANITE_HYBRID: lambda named, c: granite_experts(dict(mamba_layers(named, c)), c),
    ARCH.NEMOTRON_H_MOE: mamba_layers,
    ARCH.KIMI_LINEAR: lambda named, c: kimi_tensors(dict(absorbed(named, c))),
    ARCH.MAMBA: lambda named, c: rates(named),
    ARCH.JAMBA: lambda named, c: rates(named),
    ARCH.GPT2: lambda named, c: turned(named),
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
    arch, more, *own = model if isinstance(model, tuple) else (FAMILIES | MADE | TEXT_SIDES)[model or folder.name]
    w = gguf.GGUFWriter(str(path), own[0] if own else gguf.MODEL_ARCH_NAMES[arch])
    common(w, c)
    if more:
        more(w, c, newer) if newer else more(w, c)
    write_tokenizer(w, folder)
    names, dense = (gguf.get_tensor_name_map(a, c["num_hidden_layers"]) for a in (arch, ARCH.LLAMA))
    kind = gguf.GGMLQuantizationType[packed] if packed else KINDS[c.get("torch_dtype") or c["dtype"]]
    named = with_experts(tensors(folder, np.float16 if packed else np.float32))
    changed = {ARCH.INTERNLM2: lambda: ungrouped(named, c), ARCH.GPT_OSS: lambda: apart(named), ARCH.GRANITE_MOE: lambda: granite_experts(named, c)}
    changed |= {arch: lambda: CHANGED[arch](named, c)} if arch in CHANGED else {}
    numbers = {}
    if newer:
        changed[arch] = lambda: absorbed(named, c)
    for name, v in changed.get(arch, named.items)():
        if ".act_fn." in name:
            numbers.setdefault(name.rpartition(".")[2], []).append(float(v.reshape(-1)[0]))
            continue
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
        if v.ndim == 1 or name.endswith(".bias") or any(part in to for part in IN_FP32) or v.ndim == 4:
            w.add_tensor(to, np.ascontiguousarray(v, np.float32))
        else:
            w.add_tensor(to, gguf.quants.quantize(v, kind), raw_dtype=kind)
    for key, list_ in numbers.items():
        w.add_array(f"{w.arch}.xielu.{key}", list_)
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
FIXED = {"minicpm3": {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}}


def with_tokenizer(folder, copy):
    """Folders that tests/golden/make_arch.py makes have no tokenizer: that of another family of as many tokens."""
    if not (folder / "golden.json").exists():
        pytest.skip(f"{folder}: tests/golden/make_arch.py did not run")
    other = data("arch/olmo3")
    shutil.copytree(folder, copy)
    for name in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(other / name, copy / name)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | FIXED.get(folder.name, {})))
    return copy


def family_folder(model, tmp_path):
    """A copy of the family's folder, with a tokenizer, in tmp_path."""
    made = pathlib.Path(BIN).parent / "golden" / "arch" / model
    return with_tokenizer(made, tmp_path / model) if model in MADE else as_files_say(data(f"arch/{model}"), tmp_path / model)
