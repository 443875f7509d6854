#!/usr/bin/env python3
"""Random configurations of every family that the registry serves and transformers has, each compared with it.

    python tests/golden/vary/vary_arch.py [-n 8] [--seed 0] [--keep] [--raw] [--bare] [--files] [MODEL_TYPE[:CASE]...]   (make vary-arch)

For each model_type, -n configurations are drawn by fixed seeds over the options of transformers' class that checkpoints
use. Each becomes a tiny random checkpoint in build/golden/vary, whose config.json has one of four spellings: that of
transformers 5, that of transformers 4, the latter with nulls and unknown keys, or a text_config within another file. The
logits after prompts of several lengths are compared with `model-server logits` in fp32. A configuration is right (within
1e-4 of transformers' fp32 or fp64), refused by one line (which names the key), or WRONG: then the script ends with 1.
With --bare most options keep the class's default, and config.json lacks every key without which transformers reads the
same model. With --files tensors are in two to four files with an index, each in bfloat16, half or single precision.
Needs torch and transformers 5."""

import argparse, copy, glob, json, os, random, re, shutil, subprocess, sys, zlib
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..")]
from arch_made.base import COMMON, SPREAD
from arch_made.keys import hub_keys
from arch_made.recurrent import as_olmo_hybrid
from arch_made.within import WITHIN
import vary_latent

FOLDER = "build/golden/vary"
SERVER = os.environ.get("MODEL_SERVER", "build/bin/model-server")
TOLERANCE = 1e-4
LENGTHS = 1, 7, 33, 90
VOCAB = 320


def rope_of(r, max_positions, dim, kinds):
    """A rotation as rope_parameters has it."""
    theta = r.choice([1e4, 1e4, 5e5, 1e6])
    kind = r.choice(kinds)
    p = {"rope_type": kind, "rope_theta": theta}
    original = r.choice([32, 64])
    if kind in ("linear", "dynamic"):
        p["factor"] = r.choice([2.0, 4.0])
    elif kind == "llama3":
        p |= dict(factor=r.choice([4.0, 8.0]), low_freq_factor=1.0, high_freq_factor=r.choice([2.0, 4.0]),
                  original_max_position_embeddings=original)
    elif kind == "yarn":
        p |= dict(factor=max_positions / original, original_max_position_embeddings=original)
        if r.random() < 0.5:
            p |= dict(beta_fast=r.choice([16.0, 32.0]), beta_slow=r.choice([1.0, 2.0]))
        if r.random() < 0.3:
            p |= dict(mscale=r.choice([1.0, 0.7]), mscale_all_dim=r.choice([1.0, 0.4]))
        elif r.random() < 0.3:
            p["attention_factor"] = 1.2
        if r.random() < 0.3:
            p["truncate"] = False
    return p


PARTIAL = {"glm", "glm4", "glm4_moe", "nemotron", "phi", "stablelm", "bamba", "gpt_neox", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text",
           "minimax_m2", "apertus_", "persimmon", "phi3_"}
PLAIN_ROPE = {"hunyuan_v1_dense", "hunyuan_v1_moe", "phi3", "phimoe", "gemma4_text", "gemma3_text", "olmo3", "ministral3",
              "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text"}
ACTS = ["silu", "silu", "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "gelu_fast"]
EPS = [1e-5, 1e-6, 1e-3, 0.05]

# What is drawn where a class has the field; a callable gets the generator and what is drawn so far.
OPTIONS = {
    "num_hidden_layers": [1, 2, 3, 4, 5],
    "hidden_size": [64, 64, 96],
    "intermediate_size": [128, 96, 200],
    "num_attention_heads": [4, 8],
    "num_key_value_heads": [1, 2, 4, "heads"],
    "head_dim": [8, 16, 24, 32, None],
    "attention_bias": [False, True], "mlp_bias": [False, True], "use_bias": [False, True], "qkv_bias": [True, False],
    "use_qkv_bias": [False, True], "attention_out_bias": [False, True], "bias": [False, True], "lm_head_bias": [False, True],
    "tie_word_embeddings": [False, True],
    "hidden_act": ACTS, "hidden_activation": ["gelu_pytorch_tanh", "gelu_pytorch_tanh", "gelu", "silu"],
    "activation_function": ["gelu_new", "gelu", "relu", "gelu_pytorch_tanh", "silu"], "activation": ["gelu", "gelu", "relu"],
    "rms_norm_eps": EPS, "layer_norm_eps": EPS, "norm_epsilon": EPS, "layer_norm_epsilon": EPS, "norm_eps": EPS,
    "sliding_window": [None, 5, 20, 64],
    "use_sliding_window": [False, True], "max_window_layers": [0, 1, 2, 28],
    "use_qk_norm": [False, True], "qk_layernorm": [False, True], "clip_qkv": [None, 0.5, 1.5],
    "logit_scale": [0.0625, 1.0, 0.3],
    "attn_logit_softcapping": [None, 5.0, 50.0], "final_logit_softcapping": [None, 3.0, 30.0], "query_pre_attn_scalar": [16, 24, 256],
    "embedding_multiplier": [1.0, 6.0], "logits_scaling": [1.0, 3.0], "residual_multiplier": [1.0, 0.4], "attention_multiplier": [1.0, 0.2],
    "norm_topk_prob": [False, True], "routed_scaling_factor": [1.0, 1.8], "use_expert_bias": [True, False],
    "num_local_experts": [4, 6], "num_experts": [4, 8], "n_routed_experts": [8], "num_experts_per_tok": [1, 2, 3],
    "moe_intermediate_size": [32, 48], "shared_expert_intermediate_size": [32, 56], "n_shared_experts": [None, 1, 2],
    "first_k_dense_replace": [0, 1, 2], "decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [0]],
    "n_group": [1, 2, 4], "topk_group": [1, 2], "moe_num_experts": [6, 8], "moe_k": [1, 3], "moe_num_shared_experts": [0, 1, 2],
    "moe_layer_start_index": [0, 1], "moe_layer_end_index": [1, 2, -1], "moe_layer_interval": [1, 2], "moe_topk": [1, 2, 3],
    "moe_shared_expert_intermediate_size": [48], "moe_latent_size": [None, 24], "mlp_hidden_act": ["relu2"],
    "q_lora_rank": [None, 24], "kv_lora_rank": [16, 24], "qk_nope_head_dim": [8, 12], "qk_rope_head_dim": [4, 8],
    "v_head_dim": [8, 10, 16], "rope_interleave": [True, False], "topk_method": ["greedy", "group_limited_greedy"],
    "linear_num_key_heads": [1, 2], "linear_num_value_heads": [2, 4], "linear_key_head_dim": [8, 16], "linear_value_head_dim": [8, 24],
    "linear_conv_kernel_dim": [2, 4],
    "mamba_n_heads": [4, 8], "mamba_n_groups": [1, 2], "mamba_d_state": [8, 16], "mamba_d_conv": [2, 4], "mamba_conv_bias": [True, False],
    "mamba_proj_bias": [False, True], "mamba_expand": [2, 1], "mamba_d_head": ["auto"], "mamba_d_ssm": [None],
    "mamba_rms_norm": [False, True], "mamba_norm_before_gate": [False, True], "projectors_bias": [False],
    "time_step_limit": [(0.0, float("inf")), (0.0, 0.1), (0.01, 0.5)],
    "mamba_num_heads": [4, 8], "mamba_head_dim": [16], "ssm_state_size": [8, 16], "conv_kernel": [2, 4], "use_conv_bias": [True, False],
    "position_embedding_type": [None, "rope", "nope"], "shared_intermediate_size": [0, 48],
    "key_multiplier": [1.0, 0.7], "attention_in_multiplier": [1.0, 1.2], "attention_out_multiplier": [1.0, 0.9],
    "ssm_in_multiplier": [1.0, 1.3], "ssm_out_multiplier": [1.0, 0.6], "lm_head_multiplier": [1.0, 0.6],
    "ssm_multipliers": [[1.0] * 5, [0.4, 0.8, 0.7, 1.2, 0.6]], "mlp_multipliers": [[1.0, 1.0], [0.8, 0.5]],
    "conv_bias": [False, True], "conv_L_cache": [2, 3, 4], "block_multiple_of": [16], "block_ffn_dim_multiplier": [1.0, 1.5],
    "block_auto_adjust_ff_dim": [False, True], "num_dense_layers": [0, 1],
    "use_parallel_residual": [False, True], "use_post_norm": [True, False],
    "alibi": [False, True], "new_decoder_architecture": [False, True], "multi_query": [True, False], "parallel_attn": [True, False],
    "num_ln_in_parallel_attn": [None, 1, 2], "num_kv_heads": [2, 4], "ffn_hidden_size": [128, 200],
    "do_layer_norm_before": [True, True, False], "enable_bias": [True, False], "layer_norm_elementwise_affine": [True, False],
    "word_embed_proj_dim": [None, None, 32], "ffn_dim": [128],
    "scale_attn_weights": [True, False], "scale_attn_by_inverse_layer_idx": [False, True], "n_inner": [None, 96], "rotary_dim": [4, 8],
    "apply_residual_connection_post_layernorm": [False, True],
    "attn_temperature_tuning": [False, True], "attention_chunk_size": [16, 512], "floor_scale": [8, 8192], "no_rope_layer_interval": [2, 4],
    "interleave_moe_layer_step": [1, 2], "intermediate_size_mlp": [96],
    "hidden_size_per_layer_input": [0, 16], "attention_k_eq_v": [False, True], "num_kv_shared_layers": [0, 0, 2],
    "enable_moe_block": [False, True], "use_double_wide_mlp": [False, True], "top_k_experts": [2], "vocab_size_per_layer_input": [VOCAB],
    "router_jitter_noise": [0.01], "window_size": [5, 20],
    "n_embd": [64, 96], "n_layer": [1, 3], "n_head": [4, 8], "n_positions": [512], "n_ctx": [512],
    "d_model": [64], "n_heads": [4, 8], "n_layers": [1, 3], "max_seq_len": [512], "expansion_ratio": [2, 4],
    "num_layers": [2, 4], "num_heads": [4, 8], "attention_heads": [4, 8],
    "num_nextn_predict_layers": [0], "chunk_size": [16], "mamba_chunk_size": [16],
    # of newer families
    "post_norm": [False, True], "global_attn_every_n_layers": [2, 3], "route_scale": [1.0, 1.7], "route_norm": [True, False],
    "mup_enabled": [False, True], "num_shared_experts": [0, 1, 2], "score_function": ["sigmoid", "softmax"],
    "state_size": [8, 16], "expand": [2], "time_step_rank": [4, 12], "scale_embedding": [True, False],
    "attn_layer_period": [2, 3], "attn_layer_offset": [0, 1], "expert_layer_period": [1, 2], "expert_layer_offset": [0, 1],
    "mamba_dt_rank": ["auto", 5],
    "altup_num_inputs": [2, 3, 4], "altup_active_idx": [0, 0, 1], "altup_correct_scale": [True, True, False], "laurel_rank": [4, 12],
    "num_mtp_layers": [0], "shared_expert_combination_strategy": ["average", "sum"], "expert_selection_fn": ["softmax", "sigmoid"],
    "index_topk": [5, 12, 40, 200], "index_n_heads": [20], "index_head_dim": [12, 16, 24], "zero_expert_num": [0, 4],
    "expert_ffn_hidden_size": [32],
    "prefix_dense_sliding_window_pattern": [1, 2], "prefix_dense_intermediate_size": [96],
}


def layer_types(r, t, n, words):
    return [r.choice(words) for _ in range(n)]


def draw(t, r, bare=False):
    """The overrides of one configuration; `bare`: of few options that may be absent."""
    fields = set(vars(CONFIG_MAPPING[t]()))
    c = {k: v for k, v in COMMON.items() if k in fields or k in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}
    for key, values in OPTIONS.items():
        if key in fields and (r.random() < (0.15 if bare else 0.7) or key in MUST):
            c[key] = r.choice(values)
    heads = c.get("num_attention_heads", c.get("n_head", c.get("n_heads", 8)))
    if "num_key_value_heads" in c:
        c["num_key_value_heads"] = heads if c["num_key_value_heads"] == "heads" else min(c["num_key_value_heads"], heads)
    if c.get("head_dim", 0) is None or ("head_dim" in fields and "head_dim" not in c):
        c["head_dim"] = c.get("hidden_size", 64) // heads
    n = c.get("num_hidden_layers", 3)
    if "rope_parameters" in fields and not (bare and t not in PARTIAL and r.random() < 0.7):
        kinds = ["default"] if t in PLAIN_ROPE else ["default", "default", "linear", "llama3", "yarn"] if t in RECURRENT else ["default", "default", "linear", "llama3", "yarn", "dynamic"]
        c["rope_parameters"] = rope_of(r, c.get("max_position_embeddings", 512), 0, kinds)
        if t in PARTIAL:
            c["rope_parameters"]["partial_rotary_factor"] = r.choice([0.5, 0.5, 1.0])
    own(t, r, c, n, heads)
    return c


MUST = {  # without them the model would be large
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_local_experts", "num_experts",
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size", "moe_num_experts", "moe_k",
    "moe_topk", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "linear_num_key_heads",
    "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "mamba_n_heads", "mamba_d_state", "mamba_d_head",
    "mamba_d_ssm", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_embd", "n_layer", "n_head", "n_positions", "d_model", "n_heads",
    "n_layers", "num_layers", "num_heads", "attention_heads", "num_kv_heads", "ffn_hidden_size", "ffn_dim", "rotary_dim", "intermediate_size_mlp",
    "moe_shared_expert_intermediate_size", "state_size", "hidden_size_per_layer_input", "vocab_size_per_layer_input", "top_k_experts", "n_group", "topk_group",
    "num_nextn_predict_layers", "word_embed_proj_dim", "block_multiple_of", "first_k_dense_replace", "moe_layer_end_index", "projectors_bias",
    "index_topk", "index_n_heads", "index_head_dim", "expert_ffn_hidden_size", "mamba_dt_rank", "laurel_rank", "num_mtp_layers", "prefix_dense_intermediate_size", "chunk_size", "mamba_chunk_size", "router_jitter_noise",
}
RECURRENT = {"bamba", "granitemoehybrid", "falcon_h1", "mamba2", "mamba", "falcon_mamba", "jamba", "qwen3_next", "qwen3_5_text",
             "qwen3_5_moe_text", "qwen4_exp_text", "kimi_linear", "olmo_hybrid", "minimax", "bailing_hybrid"}
SLIDE, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"


def own(t, r, c, n, heads):
    """What depends on each other, by family."""
    if t in ("gemma2", "gemma3_text", "cohere2", "exaone4", "gpt_oss", "olmo3", "cwm", "ministral", "gemma4_text", "gemma4_unified_text", "llama", "qwen3", "qwen2",
             "beam", "vaultgemma", "afmoe", "gemma3n_text", "exaone_moe", "smollm3_"):
        c["sliding_window"] = c.get("sliding_window") or 20
        if t not in ("llama", "qwen3", "qwen2"):
            c["layer_types"] = layer_types(r, t, n, [SLIDE, FULL])
        elif r.random() < 0.3 and t != "llama":
            c |= dict(layer_types=layer_types(r, t, n, [SLIDE, FULL]), use_sliding_window=True)
    if t in ("gemma4_text", "gemma4_unified_text"):
        c["layer_types"][-1] = FULL
        c["rope_parameters"] = {FULL: dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6),
                                SLIDE: dict(rope_type="default", rope_theta=1e4)}
        c |= dict(global_head_dim=32, head_dim=16, num_global_key_value_heads=2, num_experts=4, num_kv_shared_layers=0)
    if t == "gemma4_unified_text":  # without experts
        c |= dict(attention_k_eq_v=r.random() < 0.7)
        del c["num_experts"], c["num_kv_shared_layers"]
    if t == "beam":
        groups = r.choice([1, 2, 4])
        c |= dict(rope_parameters={FULL: r.choice([None, dict(rope_type="default", rope_theta=1e6)]), SLIDE: dict(rope_type="default", rope_theta=1e4)},
                  mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)], num_experts=8, n_group=groups, topk_group=max(1, groups // 2),
                  num_experts_per_tok=r.choice([1, 2]), norm_topk_prob=r.random() < 0.7, routed_scaling_factor=r.choice([1.0, 2.5]),
                  final_logit_softcapping=r.choice([4.0, 30.0]))
    if t == "gemma3_text":
        c["rope_parameters"] = {FULL: r.choice([dict(rope_type="default", rope_theta=1e6), dict(rope_type="linear", factor=8.0, rope_theta=1e6)]),
                                SLIDE: dict(rope_type="default", rope_theta=1e4)}
    if t in ("laguna", "cohere_compass_text", "modernbert-decoder"):  # a rotation for each kind of layer
        c["rope_parameters"] = {FULL: dict(rope_type="default", rope_theta=r.choice([1e4, 1e6])),
                                SLIDE: dict(rope_type="default", rope_theta=r.choice([1e4, 5e4]))}
        c["layer_types"] = layer_types(r, t, n, [SLIDE, FULL])
        c["sliding_window"] = c.get("sliding_window") or 20
    if t == "dory":
        n = c["num_hidden_layers"] = max(n, 3)
        first = r.choice([1, 1, 2]) if n > 3 else 1
        last = r.choice([0, 1]) if n - first > 1 else 0
        c |= dict(rope_parameters={FULL: dict(rope_type="default", rope_theta=r.choice([1e4, 1e7])), SLIDE: dict(rope_type="default", rope_theta=1e4)},
                  layer_types=layer_types(r, t, n, [SLIDE, FULL]), sliding_window=c.get("sliding_window") or 20, head_dim=c.get("head_dim") or 16,
                  n_input_layers=first, n_output_layers=last, n_recurrent_layers=r.choice([None, n - first - last]),
                  n_recurrent_loops=r.choice([1, 2, 3]), initializer_range=r.choice([0.0177, 0.05]), ngpt_alpha_init=r.choice([0.05, 0.2]))
    if t == "zaya":
        at = lambda theta: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=r.choice([0.5, 1.0]))
        kv = r.choice([2, 4]) if heads == 8 else 2
        c |= dict(num_experts_per_tok=1, num_key_value_heads=kv, head_dim=c.get("head_dim") or 16, router_hidden_size=r.choice([8, 24, 60]),
                  rope_parameters={"hybrid": at(5e6), "hybrid_sliding": at(1e4)}, layer_types=layer_types(r, t, n, ["hybrid", "hybrid_sliding"]),
                  sliding_window=c.get("sliding_window") or 20, cca_time0=r.choice([1, 2, 3]), cca_time1=r.choice([1, 2, 4]))
    if t in ("inkling_text", "inkling2_text"):
        c |= dict(swa_num_attention_heads=r.choice([4, 8]), swa_num_key_value_heads=r.choice([1, 2, 4]), swa_head_dim=r.choice([8, 16, 24]),
                  head_dim=c.get("head_dim") or 16, sliding_window_size=r.choice([5, 20, 64]), d_rel=r.choice([3, 6, 16]), rel_extent=r.choice([7, 40, 300]),
                  conv_kernel_size=r.choice([2, 3, 4, 8]), log_scaling_n_floor=r.choice([10, 50]), log_scaling_alpha=r.choice([0.1, 0.7]),
                  layer_types=layer_types(r, t, n, ["hybrid", "hybrid_sliding"]), n_routed_experts=r.choice([4, 6]), route_scale=r.choice([1.0, 2.5]),
                  vocab_size=VOCAB + 16, unpadded_vocab_size=VOCAB, hidden_act="silu")
    if t == "inkling_text":
        c |= dict(mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)], n_shared_experts=r.choice([1, 2, 3]),
                  logits_mup_width_multiplier=r.choice([0.3, 1.0]), log_scaling_n_floor=r.choice([None, 10, 50]), unpadded_vocab_size=r.choice([None, VOCAB]))
    if t == "inkling2_text":
        c |= dict(n_layers_per_attn_res_block=r.choice([1, 2, 3, 6]), qk_l2_clip_threshold=r.choice([3.0, 22.6]), rel_l2_clip_threshold=r.choice([1.0, 8.0]))
    if t == "muse_spark_text":
        c |= dict(moe_hidden_size=r.choice([48, 64]), mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)], output_multiplier=r.choice([0.5, 0.9]),
                  qk_scale_factor=r.choice([1.0, 2.5]), post_norm_eps=r.choice([1e-8, 1e-2]), residual_gate_temperature=r.choice([0.3, 1.0]),
                  layer_types=layer_types(r, t, n, [SLIDE, FULL]), sliding_window=c.get("sliding_window") or 20, head_dim=c.get("head_dim") or 16)
        if r.random() < 0.5:
            c["layer_rope_theta"] = [r.choice([0, 1]) for _ in range(n)]
    if t == "gemma3n_text":
        c["hidden_size_per_layer_input"] = 16
        c["vocab_size_per_layer_input"] = r.choice([VOCAB, VOCAB - 20, VOCAB + 8])
        c["activation_sparsity_pattern"] = [r.choice([0.0, 0.0, 0.5, 0.95, 0.2]) for _ in range(n)]
        if r.random() < 0.5:
            c["intermediate_size"] = [r.choice([64, 96, 128]) for _ in range(n)]
        c["num_kv_shared_layers"] = min(c.get("num_kv_shared_layers", 0), n - 1)
        c["rope_parameters"] = {FULL: r.choice([dict(rope_type="default", rope_theta=1e6), dict(rope_type="linear", factor=8.0, rope_theta=1e6)]),
                                SLIDE: dict(rope_type="default", rope_theta=r.choice([1e4, 5e4]))}
    if t in ("cohere2_moe", "granitemoe_swa", "mellum"):
        c["sliding_window"] = c.get("sliding_window") or 20
        if r.random() < 0.7:
            c["layer_types"] = layer_types(r, t, n, [SLIDE, FULL])
    if t == "mimo_v2_flash":
        at = lambda theta: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=r.choice([0.5, 1.0]))
        c["rope_parameters"] = {FULL: at(5e5), SLIDE: at(1e4)}
        c |= dict(head_dim=c.get("head_dim") or 16, v_head_dim=r.choice([8, 12, 24]), sliding_window=c.get("sliding_window") or 20,
                  attention_value_scale=r.choice([None, 0.707, 0.5]), layer_types=layer_types(r, t, n, [SLIDE, FULL]),
                  num_key_value_heads=min(c.get("num_key_value_heads") or 2, heads // 2),
                  mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)])
    if t in ("cohere2_moe", "mellum") and r.random() < 0.7:
        c["mlp_layer_types"] = [r.choice(["dense", "sparse"]) for _ in range(n)]
    if t == "cohere2_moe":
        c |= dict(rope_parameters=dict(rope_type="default", rope_theta=r.choice([1e4, 5e4])), num_shared_experts=r.choice([0, 1, 2]),
                  rms_norm_eps=r.choice([None, 1e-6]))
    if t == "mellum":  # transformers does not find `truncate` here either
        c["rope_parameters"] = {FULL: rope_of(r, 512, 0, ["yarn", "default"]), SLIDE: dict(rope_type="default", rope_theta=1e4)}
        c["rope_parameters"][FULL].pop("truncate", None)
    if t == "qwen4_exp_text":
        words = layer_types(r, t, n, [LINEAR, LINEAR, r.choice([FULL, "indexed_attention"])])
        linear, ngram, each, block = [i + 1 for i, w in enumerate(words) if w == LINEAR], r.choice([2, 3, 3, 4]), r.choice([1, 2, 4]), r.choice([1, 3, 5, 16])
        c |= dict(hc_count=r.choice([2, 3, 4, 8]), hc_lowrank=r.choice([5, 16, 40]), seed=r.choice([0, 1234, 99]), ngram_size=ngram, heads_per_ngram=each,
                  ple_layer_ids=r.sample(linear, r.randrange(len(linear) + 1)), ple_embed_dim=(ngram - 1) * each * r.choice([4, 10]),
                  ple_conv_kernel_size=r.choice([2, 3, 4, 8]), ngram_vocab_size_base=r.choice([2, 20, 100]), split_ngram_parts=r.choice([1, 2, 7]),
                  make_ngram_vocab_size_divisible_by=r.choice([1, 14, 128]) * 7, indexer_n_heads=16, indexer_kv_heads=1, indexer_head_dim=r.choice([16, 24, 40]),
                  indexer_budget=block * r.choice([1, 2, 4]), indexer_compress_ratio=block, norm_topk_prob=r.random() < 0.6,
                  output_gate_type=r.choice([None, "silu", "sigmoid"]), eos_token_id=r.choice([2, 5, [11, 2]]))
        c["layer_types"] = words
        c["linear_num_value_heads"] = c["linear_num_key_heads"] * r.choice([1, 2])
        c["head_dim"] = 16
    if t in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"):
        c["layer_types"] = layer_types(r, t, n, [LINEAR, LINEAR, FULL])
        c["linear_num_value_heads"] = c["linear_num_key_heads"] * r.choice([1, 2])
        c["head_dim"] = 16
    if t == "olmo_hybrid":
        c["layer_types"][-1] = FULL
        c["layer_types"] = [LINEAR] + c["layer_types"] if LINEAR not in c["layer_types"] else c["layer_types"]
        c["num_hidden_layers"] = len(c["layer_types"])
    if t in ("kimi_linear", "minimax"):
        c["layer_types"] = layer_types(r, t, n, [LINEAR, LINEAR, FULL])
    if t == "kimi_linear":
        c.pop("attention_bias", None)
        c |= dict(num_key_value_heads=heads, num_local_experts=8, n_group=r.choice([1, 2]), topk_group=1, n_shared_experts=r.choice([1, 2]),
                  linear_head_dim=r.choice([8, 20]), linear_num_heads=r.choice([2, 4]), linear_conv_kernel_dim=r.choice([3, 4]),
                  mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)], routed_scaling_factor=r.choice([1.0, 2.4]))
        c["num_experts_per_tok"] = min(c.get("num_experts_per_tok", 2), 4)
    if t == "bailing_hybrid":
        c.pop("attention_bias", None)
        c |= dict(num_key_value_heads=heads, num_local_experts=8, n_group=r.choice([1, 2]), topk_group=1, n_shared_experts=r.choice([1, 2]),
                  head_dim=r.choice([8, 20]), short_conv_kernel_size=r.choice([3, 4]), layer_group_size=r.choice([1, 2, 3]), num_mtp_layers=0,
                  kda_safe_gate=r.random() < 0.7, kda_lower_bound=r.choice([-5.0, -1.5]), first_k_dense_replace=r.choice([0, 1]))
        c["num_experts_per_tok"] = min(c.get("num_experts_per_tok", 2), 4)
    if t == "minimax_m3_vl_text":
        kv = c.get("num_key_value_heads") or 4
        c |= dict(num_key_value_heads=kv, head_dim=16, index_n_heads=kv, index_head_dim=r.choice([8, 12, 32]), index_block_size=r.choice([1, 3, 16]),
                  index_topk_blocks=r.choice([2, 5]), index_local_blocks=r.choice([1, 2]), num_local_experts=6, num_experts_per_tok=2,
                  dense_intermediate_size=48, shared_intermediate_size=32, layer_types=layer_types(r, t, n, ["minimax_m3_sparse", FULL]),
                  mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)],
                  rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=r.choice([0.25, 0.5])))
        c.pop("rotary_dim", None)
        for key in [k for k in c if k.startswith("swiglu_")]:
            del c[key]
    if t == "apertus1p5_text":
        c |= dict(vocab_size=VOCAB + 40, output_vocab_size=r.choice([None, VOCAB]), tie_word_embeddings=False)
    if t == "minimax":
        c |= dict(block_size=16, sliding_window=r.choice([None, 20]), mlp_alpha_factor=r.choice([1, 1.5]), mlp_beta_factor=r.choice([1, 0.7]),
                  linear_attn_alpha_factor=r.choice([1, 0.8]), full_attn_beta_factor=r.choice([1, 1.2]))
    if t == "granitemoehybrid":
        c["layer_types"] = layer_types(r, t, n, ["linear_attention", FULL])
        c["num_local_experts"] = r.choice([0, 4])
        c["shared_intermediate_size"] = 48
    if t in ("lfm2", "lfm2_moe"):
        c["layer_types"] = layer_types(r, t, n, ["conv", FULL])
    if t in ("bamba", "granitemoehybrid"):
        inner = c.get("mamba_expand", 2) * c.get("hidden_size", 64)
        c["mamba_d_head"] = inner // c["mamba_n_heads"]
    if t == "bamba":
        c["attn_layer_indices"] = [i for i in range(n) if r.random() < 0.5]
        c["rope_parameters"]["partial_rotary_factor"] = 0.5
        c.pop("head_dim", None)
    if t == "falcon_h1":
        c["mamba_d_head"] = c.get("mamba_expand", 2) * c.get("hidden_size", 64) // c["mamba_n_heads"]
        if c.get("attention_bias"):
            c["attention_in_multiplier"] = 1.0
    if t == "mamba2":
        c.pop("num_attention_heads", None)
        c |= dict(num_heads=8, expand=2, head_dim=2 * c.get("hidden_size", 64) // 8, n_groups=r.choice([1, 2]))
    if t == "zamba2":
        for key in "layer_types", "attention_hidden_size", "attention_head_dim", "head_dim", "mamba_headdim":
            c.pop(key, None)
        c |= dict(layers_block_type=[r.choice(["mamba", "hybrid"]) for _ in range(n - 1)] + ["hybrid"], num_attention_heads=8, num_key_value_heads=8,
                  n_mamba_heads=r.choice([4, 8]), mamba_d_state=r.choice([8, 16]), mamba_ngroups=r.choice([1, 2]), chunk_size=16,
                  num_mem_blocks=r.choice([1, 2]), use_shared_attention_adapter=r.random() < 0.5, adapter_rank=r.choice([4, 6]),
                  use_mem_rope=r.random() < 0.5, hidden_act=r.choice(["gelu", "gelu", "silu"]))
    if t in ("mamba", "falcon_mamba"):
        c.pop("num_attention_heads", None)
    if t in RECURRENT and r.random() < 0.9:  # another activation of the convolution is refused
        c["hidden_act"] = "silu"
    if t == "nemotron_h":
        c["layers_block_type"] = [r.choice(["linear_attention", FULL, "mlp", "moe"]) for _ in range(n)]
        c.pop("num_hidden_layers", None)
        c["n_groups"] = r.choice([1, 2])
        c["n_shared_experts"] = 1
    if t in ("deepseek_v32", "glm_moe_dsa", "longcat_flash"):
        c |= dict(q_lora_rank=24, n_shared_experts=r.choice([1, 2]), mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)])
        c.pop("first_k_dense_replace", None)
    if t == "glm_moe_dsa":
        c["indexer_types"] = ["full"] + [r.choice(["full", "shared"]) for _ in range(n - 1)]
    if t in vary_latent.DRAWS:
        vary_latent.DRAWS[t](r, c, n, heads)
    if t == "longcat_flash":
        for key in "n_shared_experts", "mlp_layer_types":
            del c[key]
        c["num_hidden_layers"] = 2 * c["num_layers"]
    if t in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "dots1", "glm4_moe", "nemotron_h", "youtu", "solar_open", "exaone_moe", "sarvam_mla",
             "deepseek_v32", "glm_moe_dsa", "axk1", "axk2"):
        c["num_experts" if t == "exaone_moe" else "n_routed_experts"] = 8
        c["n_group"] = c.get("n_group", 1)
        c["topk_group"] = min(c.get("topk_group", 1), c["n_group"])
        c["num_experts_per_tok"] = min(c.get("num_experts_per_tok", 2), 8 // c["n_group"] * c["topk_group"])
        if t == "deepseek_v2":
            c["n_shared_experts"] = c.get("n_shared_experts") or 1
            c["norm_topk_prob"] = False  # DeepSeek's own code renormalises, transformers ignores it
    if t in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu", "sarvam_mla", "deepseek_v32", "glm_moe_dsa", "longcat_flash", "axk1", "axk2"):
        c["num_key_value_heads"] = heads
        c["head_dim"] = c["qk_rope_head_dim"]
        c.pop("attention_bias", None)
    if t == "hy_v3":
        c["num_shared_experts"] = r.choice([1, 2])
    if t == "glm4_moe_lite":
        c["mlp_layer_types"] = [r.choice(["dense", "sparse"]) for _ in range(n)]
        c.pop("first_k_dense_replace", None)
    if t == "ernie4_5_moe":
        c.pop("use_bias", None) if r.random() < 0.5 else None
        if c.get("moe_layer_end_index", -1) >= n:
            c["moe_layer_end_index"] = n - 1
    if t == "minimax_m2":
        c["head_dim"] = 16
    if t == "llama4_text":
        c |= dict(num_experts_per_tok=1, head_dim=c.get("head_dim") or 16)
        c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(n)]
    if t == "smollm3" and r.random() < 0.5:
        c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(n)]
    if t == "gpt_oss":
        c.pop("hidden_act", None)
    if t == "phimoe":
        c["num_experts_per_tok"] = 2
    if t == "gpt_neo":
        c["attention_types"] = [[["global", "local"], c["num_layers"] // 2]]
    if t == "mpt":
        c["attn_config"] = dict(alibi=True, attn_impl="eager", clip_qkv=r.choice([None, 0.5]), softmax_scale=r.choice([None, 0.3]))
        c["n_heads"] = r.choice([4, 6, 8])
        c["d_model"] = 96 if c["n_heads"] == 6 else 64
        c.pop("logit_scale", None)
    if t == "dbrx":
        c["attn_config"] = dict(clip_qkv=r.choice([None, 0.4]), kv_n_heads=r.choice([1, 2, 4]), rope_theta=1e4)
        c["ffn_config"] = dict(ffn_hidden_size=32, moe_num_experts=6, moe_top_k=r.choice([1, 3]), moe_normalize_expert_weights=r.choice([1.0, None]),
                               ffn_act_fn={"name": "silu"})
        c.pop("rope_parameters", None)
    if t == "bloom":
        c["n_head"] = r.choice([4, 6, 8])
        c["hidden_size"] = 96 if c["n_head"] == 6 else 64
    if t == "falcon":
        c.pop("head_dim", None)
        if c.get("alibi") is None or c.get("num_kv_heads", 8) > heads:
            c["num_kv_heads"] = heads
    if t == "opt" and c.get("word_embed_proj_dim") is None:
        c["word_embed_proj_dim"] = c.get("hidden_size", 64)
    if t == "phi3":
        c |= dict(original_max_position_embeddings=512)
        if r.random() < 0.4:
            half = c.get("hidden_size", 64) // heads // 2
            c |= dict(original_max_position_embeddings=32, rope_parameters=dict(
                rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=32, short_factor=[1.0 + i / 8 for i in range(half)],
                long_factor=[2.0 + i for i in range(half)]))
    if t in ("hunyuan_v1_dense", "hunyuan_v1_moe") and r.random() < 0.5:
        c["rope_parameters"] = dict(rope_type="dynamic", rope_theta=1e4, alpha=1000.0, factor=1.0)
    if t == "ministral3":
        c["rope_parameters"] = dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32,
                                    llama_4_scaling_beta=r.choice([0.0, 0.3]), beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
    if t == "olmo3":  # transformers looks for `truncate` in the outer dict, where it is not
        c["rope_parameters"] = {FULL: rope_of(r, 512, 0, ["yarn", "default"]), SLIDE: dict(rope_type="default", rope_theta=5e5)}
        c["rope_parameters"][FULL].pop("truncate", None)
    if t in ("qwen3_5_text", "qwen3_5_moe_text"):
        c["rope_parameters"]["mrope_section"] = {0.5: [2, 1, 1], 1.0: [4, 2, 2]}[c["rope_parameters"]["partial_rotary_factor"]]
    if t == "qwen2_moe" and not c.get("sliding_window"):
        c["sliding_window"] = 20
    if t in ("gptj", "codegen"):
        c["rotary_dim"] = min(c["rotary_dim"], c["n_embd"] // c["n_head"])
    if t in ("granite_swa", "granitemoe_swa") and r.random() < 0.5:
        c["layer_rope_theta"] = [r.choice([0, c["rope_parameters"]["rope_theta"]]) for _ in range(n)]
    if t == "apertus":
        c["hidden_act"] = r.choice(["xielu", "xielu", "relu2"])
    if t == "jamba":
        c["num_hidden_layers"] = max(n, 2)
        c["use_mamba_kernels"] = False
    if t == "afmoe":
        c["num_experts_per_tok"] = 2


SPELLINGS = "v5", "hub", "noisy", "nested"
NOISE = {"_name_or_path": "somebody/something", "auto_map": {"AutoConfig": "configuration_x.X"}, "pretraining_tp": 1, "use_flash_attn": False,
         "some_new_key": {"a": [1, 2]}, "transformers_version": "4.31.0.dev0", "attn_implementation": None}


def spell(v5, how):
    """config.json in one of the spellings that checkpoints have."""
    if how == "v5":
        return v5
    if "text_config" in v5:
        return dict(v5, text_config=v5["text_config"] if how == "nested" else spell(v5["text_config"], how))
    rope = v5.get("rope_parameters") or {}
    c = hub_keys(v5) if "rope_theta" in rope else dict(v5)
    if how == "hub":
        return c
    if how == "noisy":
        c |= NOISE
        for key, old in ("rope_scaling", None), ("quantization_config", None), ("sliding_window", None), ("mlp_bias", None):
            if c.get(key) is None or c.get(key) is False:
                c.setdefault(key, old) if key != "mlp_bias" else None
        scaling = c.get("rope_scaling")
        if scaling and "rope_type" in scaling:
            c["rope_scaling"] = {("type" if k == "rope_type" else k): v for k, v in scaling.items()}
        return c
    tied = c.pop("tie_word_embeddings", getattr(CONFIG_MAPPING[c["model_type"]](), "tie_word_embeddings", False))
    return {"architectures": ["X"], "model_type": "somebodys_vlm", "text_config": c, "vision_config": None, "tie_word_embeddings": tied}


def without_defaults(t, c):
    """The same configuration without the keys that transformers does not need to read it."""
    if "text_config" in c:
        return dict(c, text_config=without_defaults(t, c["text_config"]))
    read = lambda keys: CONFIG_MAPPING[t].from_dict(copy.deepcopy(keys)).to_dict()
    try:
        whole = read(c)
    except Exception:
        return c  # Infinity, which JSON lacks
    for key in list(c):
        less = {k: v for k, v in c.items() if k != key}
        try:
            if key != "model_type" and read(less) == whole:
                c = less
        except Exception:
            pass  # the class needs it
    return c


def in_files(folder, r):
    """The checkpoint in several files, each tensor in a type of its own."""
    types = [torch.bfloat16, torch.float16, torch.float32]
    tensors = {k: v.to(r.choice(types)) for k, v in load_file(f"{folder}/model.safetensors").items()}
    n = r.choice([2, 3, 4])
    place = {k: f"model-{r.randrange(n) + 1:05}-of-{n:05}.safetensors" for k in tensors}
    for file in set(place.values()):
        save_file({k: v for k, v in tensors.items() if place[k] == file}, f"{folder}/{file}", {"format": "pt"})
    os.remove(f"{folder}/model.safetensors")
    json.dump({"metadata": {"total_size": sum(v.nbytes for v in tensors.values())}, "weight_map": place},
              open(f"{folder}/model.safetensors.index.json", "w"))


def randomise(model, seed):
    torch.manual_seed(seed)
    for n, p in model.named_parameters():
        spread = next((v for k, v in SPREAD.items() if n.endswith(k)), 0.1 if p.dim() == 1 else 0.15)
        p.data = p.data + torch.randn_like(p) * spread
    for n, b in model.named_buffers():
        if n.endswith(("e_score_correction_bias", "expert_bias", "balancing_biases")):
            b += (torch.randn(b.shape) * 0.1).to(b.dtype)


@torch.no_grad()
def last_logits(model, ids):
    out = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
    return out.double()


def ask(folder, ids):
    """The server's logits, or its line."""
    p = subprocess.run([SERVER, "logits", folder, "--dtype", "float32", "--ids", ",".join(map(str, ids))],
                       capture_output=True, text=True, timeout=120)
    if p.returncode:
        return None, (p.stderr.strip().splitlines() or [f"ended with {p.returncode}"])[-1]
    return torch.tensor(json.loads(p.stdout)["last_logits"], dtype=torch.float64), None


def compare(model, folder, seed):
    """(worst error, line of the refusal)"""
    g = torch.Generator().manual_seed(seed)
    worst, double = 0.0, None
    for n in LENGTHS:
        ids = [1] + torch.randint(3, VOCAB, (n - 1,), generator=g).tolist()
        ours, line = ask(folder, ids)
        if line:
            return 0.0, line
        theirs = last_logits(model, ids)
        scale = max(1.0, theirs.pow(2).mean().sqrt().item())
        e = (ours - theirs).abs().max().item() / scale
        if not e <= TOLERANCE:  # whose rounding is it? and nan
            torch.set_default_dtype(torch.float64)
            double = double or model.__class__(model.config).double().eval()
            double.load_state_dict(model.state_dict())
            try:
                e = min(e, (ours - last_logits(double, ids)).abs().max().item() / scale)
            except RuntimeError:
                pass
            torch.set_default_dtype(torch.float32)
        worst = max(worst, e if e == e else 9e9)
    return worst, None


def outer(t, text):
    """The configuration of a model: that of the text model, or of a file with vision that it is part of."""
    whole, more = WITHIN.get(t, (None, {}))
    return getattr(transformers, whole + "Config")(text_config=text.to_dict(), **more) if whole else text


def from_config(t):
    return getattr(transformers, WITHIN[t][0] + "ForConditionalGeneration")._from_config if t in WITHIN else AutoModelForCausalLM.from_config


def build(t, case, seed, bare):
    """A model of a configuration that transformers accepts, and that configuration. Draws that it refuses are drawn anew."""
    for attempt in range(30):
        r = random.Random(f"{t}/{case}/{seed}/{attempt}")
        over = draw(t, r, bare)
        try:  # eager Falcon adds ALiBi twice
            torch.manual_seed(seed + case)
            config = outer(t, AutoConfig.for_model(t, **over))
            model = from_config(t)(config, dtype=torch.float32, attn_implementation="sdpa" if over.get("alibi") else "eager").eval()
            randomise(model, seed + case)
            last_logits(model, [1, 5, 9])
            return model, over
        except Exception as e:
            reason = f"{type(e).__name__}: {str(e)[:200]}"
    return None, reason


def one(t, case, seed, a):
    folder, raw = f"{FOLDER}/{t}-{case}", a.raw
    model, over = build(t, case, seed, a.bare)
    if not model:
        return "none", over, None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model.save_pretrained(folder, save_original_format=not raw)
    if t == "olmo_hybrid":  # transformers would save convolutions of equal sizes
        tensors, _ = as_olmo_hybrid(model.state_dict(), over)
        save_file({k: v.contiguous() for k, v in tensors.items() if not (over.get("tie_word_embeddings") and k == "lm_head.weight")},
                  f"{folder}/model.safetensors", {"format": "pt"})
    if a.files:
        in_files(folder, random.Random(f"{t}/{case}/{seed}"))
        model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation=model.config._attn_implementation).eval()
    how = SPELLINGS[case % len(SPELLINGS)]
    config = json.load(open(f"{folder}/config.json"))
    config = spell(without_defaults(t, config) if a.bare else config, how)
    json.dump(config, open(f"{folder}/config.json", "w"), indent=1)
    worst, line = compare(model, folder, seed + case)
    if line:
        return "refused", f"{how}: {line}", over
    return ("right" if worst <= TOLERANCE else "WRONG"), f"{how}: {worst:.1e}", over


def served():
    """The words of the registry."""
    words = []
    for path in sorted(glob.glob("model-server/model/arch/*.c")):
        for row in re.findall(r"\.types =\s*\(const char \*const\[\]\)\s*\{(.*?)NULL", open(path).read(), re.S):
            words += re.findall(r'"([^"]+)"', row)
    return words


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-n", type=int, default=8, help="configurations of each model_type")
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--keep", action="store_true", help="checkpoints that are right stay too")
    a.add_argument("--raw", action="store_true", help="weights under transformers' own names: experts in one tensor")
    a.add_argument("--bare", action="store_true", help="config.json lacks what transformers does not need")
    a.add_argument("--files", action="store_true", help="several files, tensors of several types")
    a.add_argument("types", nargs="*")
    a = a.parse_args()
    torch.set_num_threads(1)
    known = (set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) | {"mistral_large4_text", "muse_spark_text"}) & set(CONFIG_MAPPING)
    todo = [t.split(":")[0] for t in a.types] or sorted(t for t in served() if t in known and t not in ENCODERS)
    cases = {t.split(":")[0]: [int(t.split(":")[1])] for t in a.types if ":" in t}
    total, lines = {}, []
    for t in todo:
        count, refusals = {}, {}
        for case in cases.get(t, range(a.n)):
            try:
                what, why, over = one(t, case, a.seed, a)
            except Exception as e:
                what, why, over = "none", f"{type(e).__name__}: {str(e)[:200]}", None
            count[what] = count.get(what, 0) + 1
            total[what] = total.get(what, 0) + 1
            if what == "WRONG" or cases:
                print(f"{what} {t}:{case} {why} {json.dumps(over, default=str)}", flush=True)
            elif what != "right":
                refusals[why] = refusals.get(why, []) + [case]
            if what == "right" and not a.keep and not cases:
                shutil.rmtree(f"{FOLDER}/{t}-{case}", ignore_errors=True)
        print(f"| `{t}` | {count.get('right', 0)} | {count.get('refused', 0)} | {count.get('WRONG', 0)} |", flush=True)
        for why, which in refusals.items():
            print(f"    {which} {why}", flush=True)
    print(total)
    return 1 if total.get("WRONG") else 0


ENCODERS = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "modernbert", "mpnet", "albert", "distilbert", "deberta-v2", "deberta", "eurobert", "data2vec-text",
            "ernie", "rembert", "roformer", "megatron-bert", "xlm-roberta-xl", "roberta-prelayernorm", "jina_embeddings_v3"}

if __name__ == "__main__":
    sys.exit(main())
