#!/usr/bin/env python3
"""Tiny random checkpoints with golden.json for the families and options that the reference data does not have.

    python tests/golden/make_arch.py [NAME...]       into build/golden/arch

Each folder: config.json (keys of the hub), config.v5.json (keys of transformers 5, as saved), model.safetensors,
golden.json with last_logits, prompt_logprobs and greedy_ids of three prompts: eager attention, fp32, CPU.
Needs torch and transformers 5. tests/golden/test_arch runs what it finds there."""

import copy, json, os, sys
import torch
from safetensors.torch import save_file
import transformers
from transformers import AutoModelForCausalLM, AutoConfig, Emu3ForCausalLM, Mistral4ForCausalLM
import rwkv7  # noqa: F401, registers its model_type

COMMON = dict(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=512,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
THETA = {"rope_type": "default", "rope_theta": 10000.0}
GPT_OSS = dict(  # half of an expert's 96 columns ends within a group of 32
    num_hidden_layers=4, head_dim=16, sliding_window=20, num_local_experts=6, num_experts_per_tok=3,
    intermediate_size=96,
    rope_parameters=dict(
        rope_type="yarn", rope_theta=150000.0, factor=8.0, original_max_position_embeddings=64, beta_fast=32.0,
        beta_slow=1.0, truncate=False,
    ),
)
DSA = dict(  # sparse attention: each index head adds 0 for many keys, so few of them would have ties
    num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16,
    index_n_heads=20, index_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=1,
    moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.8, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.8,
        beta_fast=32.0, beta_slow=1.0,
    ),
)
PHI4 = dict(  # small towers, which are not stored
    original_max_position_embeddings=512, rope_parameters=dict(THETA, partial_rotary_factor=0.75), eos_token_id=[2], sliding_window=None,
    vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14),
    audio_config=dict(hidden_size=16, intermediate_size=16, num_blocks=1, num_attention_heads=2, ext_pw_out_channel=16,
                      depthwise_separable_out_channel=16, nemo_conv_channels=8),
)
# Where the usual spread would leave a part of the arithmetic without effect: sinks, the clamps of the activation.
SPREAD = {"sqk": 0.004, "s_gate": 0.004, "lambda_1": 0.006, "lambda_2": 0.006, "lm_head.logit_scale": 0.005, "sinks": 1.5, "qk_norm.temp": 1.0, "lambda_q1": 0.4, "lambda_k1": 0.4, "gate_up_proj": 0.4, "hc.scale": 0.5, "hc_scale": 0.5, "hc.base": 0.7, "hc_base": 0.7, "kpool_compress_ape": 0.7, "position_bias": 0.7}
CHAMELEON_IDS = {"<image>": 8} | {f"IMGIMG{chr(65 + i // 10)}{chr(65 + i % 10)}Z": 330 + i for i in range(40)}  # none is in a prompt
CHAMELEON_VQ = dict(embed_dim=16, num_embeddings=40, base_channels=32, channel_multiplier=[1], num_res_blocks=1, latent_channels=16, resolution=16)
CASES = {
    "rwkv7": dict(model_type="rwkv7", hidden_size=96, head_dim=8, hidden_ratio=3, intermediate_size=None, decay_low_rank_dim=12,
                  gate_low_rank_dim=20, a_low_rank_dim=9, v_low_rank_dim=7),
    "rwkv7_tied": dict(model_type="rwkv7", hidden_size=240, head_dim=40, intermediate_size=136, num_hidden_layers=2, norm_bias=False, norm_eps=1e-4,
                       a_low_rank_dim=16, tie_word_embeddings=True),
    "rwkv7_joined": dict(model_type="rwkv7", hidden_size=64, head_dim=16, intermediate_size=96, num_hidden_layers=2),
    "gemma2": dict(
        model_type="gemma2", head_dim=16, sliding_window=24, query_pre_attn_scalar=24,
        attn_logit_softcapping=5.0, final_logit_softcapping=3.0, num_hidden_layers=4,
    ),
    "zamba": dict(model_type="zamba", num_hidden_layers=6, attn_layer_period=3, attn_layer_offset=1, hidden_size=128, n_mamba_heads=2,
                  mamba_d_state=8, mamba_dt_rank=6, num_key_value_heads=8),
    "zamba_listed": dict(model_type="zamba", num_hidden_layers=4, n_mamba_heads=4, mamba_d_state=8,
                         mamba_conv_bias=False, attention_head_dim=16, hidden_act="silu",
                         layers_block_type=["hybrid", "linear_attention", "linear_attention", "hybrid"]),
    "zamba_untied": dict(model_type="zamba", num_hidden_layers=5, n_mamba_heads=2, mamba_d_state=8, tie_word_embeddings=False,
                         layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]),
    "step3p7": dict(
        model_type="step3p5", num_hidden_layers=5, num_attention_heads=4, num_sliding_attention_heads=8, num_key_value_heads=2, head_dim=16,
        sliding_window=20, layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, share_expert_dim=48, moe_router_scaling_factor=1.8,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse", "sparse"], swiglu_limits=[0, 0, 0.25, 0, 0.5], swiglu_limits_shared=[1, 0, 0, 0.375, 0],
        rope_parameters={"full_attention": dict(THETA, rope_theta=5e6, partial_rotary_factor=0.5), "sliding_attention": THETA},
    ),
    "step3p7_fp8": dict(
        model_type="step3p5", num_hidden_layers=3, num_attention_heads=4, num_sliding_attention_heads=8, num_key_value_heads=2, head_dim=16,
        sliding_window=20, n_routed_experts=5, num_experts_per_tok=3, moe_intermediate_size=40, share_expert_dim=48,
        mlp_layer_types=["dense", "sparse", "sparse"],
    ),
    "qwen3_moe_in_first_fp8": dict(
        model_type="qwen3_moe", num_hidden_layers=3, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
    ),
    "step3p5": dict(
        model_type="step3p5", num_hidden_layers=4, num_key_value_heads=4, head_dim=32, sliding_window=12, query_pre_attn_scalar=24,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], num_sliding_attention_heads=4,
        n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, share_expert_dim=32,
        mlp_layer_types=["dense", "sparse", "dense", "sparse"], swiglu_limits=None, swiglu_limits_shared=[0, 0, 0.5, 0.125],
        rope_parameters={"full_attention": dict(rope_type="llama3", rope_theta=50000.0, factor=2.0, low_freq_factor=1.0, high_freq_factor=32.0,
                                                original_max_position_embeddings=64, partial_rotary_factor=0.5), "sliding_attention": THETA},
    ),
    "hunyuan_vl": dict(model_type="hunyuan_vl_text", head_dim=16, attention_bias=True, rope_parameters=dict(
        rope_type="xdrope", rope_theta=10000.0, factor=1.0, alpha=50.0, xdrope_section=[2, 2, 2, 2])),
    "hunyuan_ocr": dict(model_type="hunyuan_vl_text", head_dim=16, tie_word_embeddings=False, rope_parameters=dict(THETA, mrope_section=[4, 2, 2])),
    "hy_v4_vl": dict(
        model_type="hy_v4_vl_text", index_topk=20, swiglu_limit=0.5, **dict(DSA, n_group=1, topk_group=1, rope_parameters=dict(
            THETA, mrope_section=[2, 1, 1]), indexer_types=["full", "shared", "full"]),
    ),
    "granite4_vision": dict(model_type="granite4_vision_text", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
                            logits_scaling=3.0, rope_parameters=THETA),
    "granite_docling": dict(model_type="granite_docling_text", attention_multiplier=0.3, rope_parameters=THETA),
    "cosmos3_edge": dict(model_type="cosmos3_edge_text", head_dim=16, rope_parameters=dict(THETA, mrope_section=[4, 2, 2])),
    "molmo2": dict(model_type="molmo2_text", head_dim=16, additional_vocab_size=12, attention_bias=True, rope_scaling_layers=[0, 2],
                   rope_parameters=dict(THETA, rope_type="linear", factor=4.0)),
    "molmo2_olmo": dict(model_type="molmo2_text", head_dim=16, additional_vocab_size=5, norm_after=True, qk_norm_type="olmo", rope_parameters=THETA),
    "muse_glimmer": dict(model_type="muse_glimmer_text", num_hidden_layers=5, head_dim=16, sliding_window=20, rope_parameters=dict(THETA, rope_theta=5e5)),
    "muse_glimmer_listed": dict(
        model_type="muse_glimmer_text", head_dim=24, attention_bias=True, hidden_activation="gelu_pytorch_tanh", sliding_window=16, qk_scale_factor=1.3,
        output_multiplier=0.7, post_norm_eps=1e-2, final_logit_softcapping=2.0, layer_rope_theta=[0, 1, 1], rope_parameters=THETA,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "chameleon": dict(model_type="chameleon", vocab_size=384, vocabulary_map=CHAMELEON_IDS, vq_config=CHAMELEON_VQ, attention_bias=True, rope_parameters=THETA),
    "chameleon_swin": dict(model_type="chameleon", vocabulary_map={"<image>": 8}, vq_config=CHAMELEON_VQ, num_attention_heads=4, num_key_value_heads=4, swin_norm=True,
                           rms_norm_eps=1e-3, rope_parameters=THETA),
    "dory": dict(model_type="dory", num_hidden_layers=8, head_dim=16, sliding_window=20, n_input_layers=2, n_output_layers=3, n_recurrent_loops=3,
                 attention_bias=True, mlp_bias=True),
    "dory_once": dict(model_type="dory", num_hidden_layers=4, head_dim=24, n_input_layers=1, n_output_layers=0, n_recurrent_loops=1, tie_word_embeddings=True,
                      layer_types=["full_attention", "sliding_attention"] * 2, sliding_window=16, initializer_range=0.05, ngpt_alpha_init=0.2),
    "persimmon": dict(model_type="persimmon", rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "persimmon_plain": dict(model_type="persimmon", qk_layernorm=False, hidden_act="gelu", rope_parameters=dict(THETA, partial_rotary_factor=1.0)),
    "gpt_neox_japanese": dict(model_type="gpt_neox_japanese", intermediate_multiple_size=2, tie_word_embeddings=False,
                              rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "qwen3": dict(model_type="qwen3", head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen3_window": dict(
        model_type="qwen3", head_dim=32, use_sliding_window=True, sliding_window=20, max_window_layers=1,
        attention_bias=True, rope_parameters=THETA,
    ),
    "qwen2_window": dict(
        model_type="qwen2", use_sliding_window=True, sliding_window=20, max_window_layers=2, rope_parameters=THETA,
    ),
    "granite": dict(
        model_type="granite", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, attention_bias=True, mlp_bias=True, rope_parameters=THETA,
    ),
    "phi3_partial": dict(
        model_type="phi3", rope_parameters=dict(THETA, partial_rotary_factor=0.5), sliding_window=None,
        original_max_position_embeddings=512,
    ),
    "gpt2_by_layer": dict(
        model_type="gpt2", n_embd=64, n_layer=3, n_head=4, n_positions=256, scale_attn_by_inverse_layer_idx=True,
        activation_function="gelu",
    ),
    "llama_yarn_mscale": dict(
        model_type="llama",
        rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64, mscale=0.7,
            mscale_all_dim=0.3, beta_fast=16.0, beta_slow=2.0, truncate=False,
        ),
    ),
    "mixtral_window": dict(
        model_type="mixtral", num_local_experts=6, num_experts_per_tok=3, sliding_window=20, rope_parameters=THETA,
    ),
    "starcoder2": dict(model_type="starcoder2", sliding_window=20, rope_parameters=THETA),
    "gpt_oss": dict(model_type="gpt_oss", **GPT_OSS),
    "gpt_oss_mxfp4": dict(model_type="gpt_oss", **GPT_OSS),
    "exaone4": dict(model_type="exaone4", num_hidden_layers=4, sliding_window=None, layer_types=["full_attention"] * 4,
        rope_parameters=THETA,
   ),
    "exaone4_window": dict(
        model_type="exaone4", num_hidden_layers=4, sliding_window=20, sliding_window_pattern=4, rope_parameters=THETA,
    ),
    "gemma3n": dict(
        model_type="gemma3n_text", head_dim=16, num_hidden_layers=6, num_kv_shared_layers=2, sliding_window=20,
        layer_types=["sliding_attention", "full_attention"] * 3, intermediate_size=[128, 96, 128, 160, 128, 128],
        activation_sparsity_pattern=[0.95, 0.5, 0.3, 0.0, 0.0, 0.8], altup_num_inputs=4, laurel_rank=12, hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=300, final_logit_softcapping=5.0, rope_parameters=None,
    ),
    "seed_oss": dict(model_type="seed_oss", head_dim=16, rope_parameters=THETA),
    "arcee": dict(model_type="arcee", rope_parameters=THETA),
    "nemotron": dict(model_type="nemotron", head_dim=16, rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "olmoe": dict(model_type="olmoe", num_experts=8, num_experts_per_tok=3, intermediate_size=32, rope_parameters=THETA),
    "glm": dict(
        model_type="glm", head_dim=16, attention_bias=True, rope_parameters=dict(THETA, partial_rotary_factor=0.5),
    ),
    "dots1": dict(
        model_type="dots1", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        n_shared_experts=2, moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.5, rope_parameters=THETA,
    ),
    "qwen3_moe_in_first": dict(
        model_type="qwen3_moe", head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
        norm_topk_prob=True, rope_parameters=dict(THETA),
    ),
    "mamba2": dict(
        model_type="mamba2", num_heads=8, head_dim=16, state_size=16, n_groups=2, expand=2, conv_kernel=4, chunk_size=16,
        num_attention_heads=8,
    ),
    "bamba": dict(
        model_type="bamba", num_hidden_layers=4, attn_layer_indices=[2], mamba_n_heads=8, mamba_d_head=16,
        mamba_d_state=16, mamba_chunk_size=16, rope_parameters=dict(THETA),
    ),
    "falcon_h1": dict(
        model_type="falcon_h1", mamba_n_heads=8, mamba_d_head=16, mamba_d_ssm=128, mamba_d_state=16, mamba_n_groups=2,
        mamba_chunk_size=16, attention_in_multiplier=1.2, attention_out_multiplier=0.9, key_multiplier=0.7,
        ssm_in_multiplier=1.3, ssm_out_multiplier=0.6, ssm_multipliers=[0.4, 0.8, 0.7, 1.2, 0.6], mlp_multipliers=[0.8, 0.5],
        embedding_multiplier=3.0, lm_head_multiplier=0.6, rope_parameters=dict(THETA),
    ),
    "falcon_h1_norm": dict(
        model_type="falcon_h1", mamba_n_heads=8, mamba_d_head="auto", mamba_d_ssm=None, mamba_d_state=16, mamba_n_groups=1,
        mamba_chunk_size=16, mamba_rms_norm=True, mamba_norm_before_gate=True, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(THETA),
    ),
    "granitemoe": dict(
        model_type="granitemoe", num_local_experts=6, num_experts_per_tok=3, attention_multiplier=0.2,
        embedding_multiplier=6.0, residual_multiplier=0.4, logits_scaling=3.0, rope_parameters=THETA,
    ),
    "granitemoeshared": dict(
        model_type="granitemoeshared", num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=96,
        attention_multiplier=0.2, residual_multiplier=0.4, rope_parameters=THETA,
    ),
    "ministral": dict(
        model_type="ministral", head_dim=8, sliding_window=20, rope_parameters=THETA,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "ministral3": dict(
        model_type="ministral3", head_dim=16, sliding_window=None, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32, llama_4_scaling_beta=0.3,
            beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        ),
    ),
    "cwm": dict(
        model_type="cwm", head_dim=16, num_hidden_layers=5, sliding_window=20, rope_parameters=dict(
            rope_type="llama3", rope_theta=1e6, factor=16.0, original_max_position_embeddings=64, low_freq_factor=1.0,
            high_freq_factor=4.0,
        ),
    ),
    "helium": dict(model_type="helium", head_dim=8, rope_parameters=dict(THETA, rope_theta=1e5)),
    "hyperclovax": dict(
        model_type="hyperclovax", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=0.4, rope_parameters=THETA,
    ),
    "jais2": dict(model_type="jais2", rope_parameters=THETA),
    "gpt_neo": dict(
        model_type="gpt_neo", hidden_size=64, num_layers=4, num_heads=8, max_position_embeddings=512, window_size=20, intermediate_size=128,
        attention_types=[[["global", "local"], 2]],
    ),
    "olmo": dict(model_type="olmo", clip_qkv=0.4, rope_parameters=THETA),
    "codegen": dict(model_type="codegen", n_embd=64, n_layer=3, n_head=8, n_positions=512, n_ctx=512, rotary_dim=4,
                    tie_word_embeddings=False),
    "hunyuan_v1_dense": dict(
        model_type="hunyuan_v1_dense", head_dim=16, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0),
    ),
    "hunyuan_v1_moe": dict(
        model_type="hunyuan_v1_moe", head_dim=16, num_experts=6, moe_topk=3, intermediate_size=48, rope_parameters=THETA,
    ),
    # Families whose code is in their repositories: the same arithmetic, of another model, under their names and keys.
    "internlm2": dict(model_type="llama", rope_parameters=THETA),
    "internlm3": dict(model_type="llama", attention_bias=True, mlp_bias=True, head_dim=16, rope_parameters=THETA),
    "minicpm": dict(
        model_type="granite", attention_multiplier=8**-0.5, embedding_multiplier=6.0, residual_multiplier=1.4 / 3**0.5,
        logits_scaling=2.0, tie_word_embeddings=True, rope_parameters=THETA,
    ),
    "chatglm": dict(
        model_type="glm", head_dim=16, attention_bias=True,
        rope_parameters=dict(THETA, rope_theta=50000.0, partial_rotary_factor=0.5),
    ),
    "exaone": dict(model_type="llama", rope_parameters=THETA),
    "baichuan": dict(model_type="llama", num_key_value_heads=8, rope_parameters=THETA),
    # The head of Baichuan 2 is known by the size of its vocabulary.
    "baichuan2": dict(
        model_type="llama", hidden_size=32, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2, vocab_size=125696,
        intermediate_size=64, rope_parameters=THETA,
    ),
    "baichuan_13b": dict(model_type="llama", hidden_size=96, num_attention_heads=6, num_key_value_heads=6, rope_parameters=THETA),
    "qwen": dict(model_type="qwen2", num_key_value_heads=8, rope_parameters=THETA),
    "lfm2_moe": dict(
        model_type="lfm2_moe", num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], conv_bias=True,
        num_dense_layers=1, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, rope_parameters=THETA,
    ),
    "deepseek_v3_groups": dict(
        model_type="deepseek_v3", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=24, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=10, head_dim=8, n_routed_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1,
        n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.8, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0,
            mscale_all_dim=0.8, beta_fast=32.0, beta_slow=1.0,
        ),
    ),
    "glm4_moe_lite": dict(
        model_type="glm4_moe_lite", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=1, topk_group=1,
        n_shared_experts=1, moe_intermediate_size=32, mlp_layer_types=["sparse", "dense", "sparse"],
        routed_scaling_factor=1.8, rope_parameters=THETA,
    ),
    "deepseek_v32": dict(model_type="deepseek_v32", index_topk=12, **DSA),
    "deepseek_v32_whole": dict(model_type="deepseek_v32", index_topk=200, **DSA),
    "glm_moe_dsa": dict(
        model_type="glm_moe_dsa", index_topk=20, **dict(DSA, num_hidden_layers=4, n_group=1, topk_group=1, rope_parameters=THETA,
                                                        indexer_types=["full", "shared", "full", "shared"]),
    ),
    "hy_v4": dict(
        model_type="hy_v4", index_topk=20, **dict(DSA, num_hidden_layers=4, n_group=1, topk_group=1, rope_parameters=THETA,
                                                  indexer_types=["full", "shared", "full", "shared"]),
    ),
    "hy_v4_three": dict(model_type="hy_v4", index_topk=200, swiglu_limit=0.375, hc_mult=3, hc_magnitude=1.4, hc_eps=1e-3, **dict(DSA, num_hidden_layers=6)),
    "glm5_next": dict(
        model_type="glm5_next_text", num_hidden_layers=5, num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12,
        v_head_dim=16, linear_head_dim=16, linear_num_heads=4, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_group=2,
        topk_group=1, index_n_heads=20, index_head_dim=16, index_topk=20, index_kpool=5, mlp_layer_types=["dense"] + ["sparse"] * 4,
        layer_types=["linear_attention", "indexed_attention", "linear_attention", "linear_attention", "indexed_attention"],
    ),
    "glm5_next_pairs": dict(
        model_type="glm5_next_text", num_hidden_layers=4, num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=24, qk_nope_head_dim=16,
        v_head_dim=12, linear_head_dim=12, linear_num_heads=8, linear_conv_kernel_dim=3, linear_lower_bound=None, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=32, index_n_heads=16, index_head_dim=24, index_topk=32, index_kpool=16, swiglu_limit=0.75,
        hc_mult=2, hc_eps=1e-3, hc_sinkhorn_iters=3, mlp_layer_types=["sparse"] * 4, indexer_types=["full", "full", "shared", "full"],
        layer_types=["linear_attention", "indexed_attention", "indexed_attention", "linear_attention"],
    ),
    "deepseek_v4": dict(  # a block has no whole number of entries of 10 tokens
        model_type="deepseek_v4", num_hidden_layers=5, num_key_value_heads=1, head_dim=32, q_lora_rank=24, moe_intermediate_size=32,
        n_routed_experts=8, num_experts_per_tok=3, sliding_window=20, o_groups=4, o_lora_rank=12, index_n_heads=20, index_head_dim=16,
        index_topk=6, compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=10), partial_rotary_factor=0.25,
        layer_types=["sliding_attention"] + ["compressed_sparse_attention", "heavily_compressed_attention"] * 2,
        mlp_layer_types=["hash_moe"] * 2 + ["moe"] * 3, routed_scaling_factor=1.8, rope_parameters=dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0),
    ),
    "deepseek_v4_hub": dict(  # the two rates that a repository's list of numbers can say
        model_type="deepseek_v4", num_hidden_layers=4, num_key_value_heads=1, head_dim=32, q_lora_rank=24, moe_intermediate_size=32,
        n_routed_experts=8, num_experts_per_tok=3, sliding_window=16, o_groups=2, o_lora_rank=12, index_n_heads=20, index_head_dim=16,
        index_topk=6, compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=128), partial_rotary_factor=0.25,
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
        mlp_layer_types=["hash_moe"] + ["moe"] * 3, routed_scaling_factor=1.5, rope_parameters=dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0),
    ),
    "deepseek_v4_two": dict(
        model_type="deepseek_v4", swiglu_limit=0.5, num_hidden_layers=4, num_key_value_heads=1, head_dim=48, q_lora_rank=16, moe_intermediate_size=32,
        n_routed_experts=6, num_experts_per_tok=2, sliding_window=24, o_groups=2, o_lora_rank=20, index_n_heads=16, index_head_dim=24,
        index_topk=9, compress_rates=dict(compressed_sparse_attention=6, heavily_compressed_attention=32), partial_rotary_factor=0.5,
        hc_mult=2, hc_eps=1e-3, hc_sinkhorn_iters=3, num_hash_layers=1, scoring_func="sigmoid", rope_theta=1000.0, compress_rope_theta=5000.0,
    ),
    "axk2": dict(
        model_type="axk2", index_topk=20, gated_norm_rank=12, mlp_layer_types=["dense", "sparse", "sparse"],
        **{k: v for k, v in DSA.items() if k != "first_k_dense_replace"},
    ),
    "axk2_light": dict(
        model_type="axk2", index_topk=200, num_hidden_layers=2, gated_norm_rank=16, **dict(
            {k: v for k, v in DSA.items() if k != "first_k_dense_replace"}, n_group=None, topk_group=None, qk_nope_head_dim=12,
            norm_topk_prob=False, rope_parameters=THETA),
    ),
    "longcat_flash": dict(
        model_type="longcat_flash", num_layers=2, num_hidden_layers=4, num_key_value_heads=8, ffn_hidden_size=96, q_lora_rank=24,
        kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=8, v_head_dim=16, moe_topk=3, n_routed_experts=8,
        zero_expert_num=4, expert_ffn_hidden_size=32, routed_scaling_factor=1.8, rope_parameters=THETA,
    ),
    "phimoe": dict(
        model_type="phimoe", num_local_experts=8, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
        sliding_window=None, router_jitter_noise=0.01, rope_parameters=THETA,
    ),
    "dbrx": dict(
        model_type="dbrx", d_model=64, n_heads=8, n_layers=3, max_seq_len=512, tie_word_embeddings=False,
        attn_config=dict(clip_qkv=0.4, kv_n_heads=4, rope_theta=10000.0),
        ffn_config=dict(ffn_hidden_size=32, moe_num_experts=6, moe_top_k=3, moe_normalize_expert_weights=1.0,
                        ffn_act_fn={"name": "silu"}),
    ),
    "mpt_clip": dict(
        model_type="mpt", d_model=64, n_heads=8, n_layers=3, max_seq_len=512, expansion_ratio=2, no_bias=True,
        attn_config=dict(clip_qkv=0.4, alibi=True, attn_impl="eager"),
    ),
    "afmoe": dict(
        model_type="afmoe", head_dim=16, num_hidden_layers=4, sliding_window=20, num_dense_layers=1, num_experts=8, num_experts_per_tok=3,
        num_shared_experts=1, moe_intermediate_size=32, route_scale=1.7, mup_enabled=True, rope_parameters=THETA,
    ),
    "vaultgemma": dict(
        model_type="vaultgemma", head_dim=16, sliding_window=24, query_pre_attn_scalar=24, attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0, num_hidden_layers=4, rope_parameters=THETA,
    ),
    "flex_olmo": dict(
        model_type="flex_olmo", num_experts=6, num_experts_per_tok=3, intermediate_size=48, rope_parameters=THETA,
    ),
    "exaone_moe": dict(
        model_type="exaone_moe", num_hidden_layers=4, sliding_window=20, sliding_window_pattern=4, num_experts=8,
        num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1, n_group=2, topk_group=1,
        rope_parameters=THETA,
    ),
    "solar_open": dict(
        model_type="solar_open", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32,
        routed_scaling_factor=1.5, rope_parameters=THETA,
    ),
    "youtu": dict(
        model_type="youtu", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
        v_head_dim=16, rope_parameters=THETA,
    ),
    "mistral4": dict(
        model_type="mistral4", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
        v_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32, n_group=2, topk_group=1,
        first_k_dense_replace=1, routed_scaling_factor=1.5, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8, max_position_embeddings=512,
            beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1),
    ),
    "minicpm3": dict(
        model_type="minicpm3", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
        v_head_dim=16, scale_emb=6, scale_depth=1.4, dim_model_base=32, tie_word_embeddings=False, rope_parameters=THETA,
    ),
    "hy_v3": dict(
        model_type="hy_v3", head_dim=16, num_experts=8, num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=32,
        router_scaling_factor=1.8, rope_parameters=THETA,
    ),
    "sarvam_moe": dict(
        model_type="sarvam_moe", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, n_group=4, topk_group=2, rope_parameters=THETA,
    ),
    "lfm3": dict(
        model_type="lfm3", head_dim=16, num_hidden_layers=6, sliding_window=20, conv_bias=True, attention_bias=True,
        layer_types=["conv", "conv", "full_attention", "conv", "sliding_attention", "sliding_attention"],
    ),
    "lfm3_plain": dict(
        model_type="lfm3", head_dim=8, num_hidden_layers=5, sliding_window=30, conv_L_cache=3, use_sandwich_norm=False,
        use_attention_gate=False, tie_word_embeddings=False,
    ),
    "axk1": dict(
        model_type="axk1", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=1, moe_intermediate_size=32,
        mlp_layer_types=["dense", "sparse", "sparse"], norm_topk_prob=True, routed_scaling_factor=1.8, rope_parameters=THETA,
    ),
    "modernbert_decoder": dict(
        model_type="modernbert-decoder", num_hidden_layers=4, local_attention=40, layer_types=None, cls_token_id=1, sep_token_id=2,
    ),
    "modernbert_decoder_bias": dict(
        model_type="modernbert-decoder", local_attention=24, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True,
        decoder_bias=False, tie_word_embeddings=False, cls_token_id=1, sep_token_id=2,
    ),
    "kolibri1": dict(
        model_type="kolibri1", head_dim=16, num_hidden_layers=5, sliding_window=20, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=48, norm_topk_prob=True, rope_parameters=THETA,
    ),
    "laguna": dict(
        model_type="laguna", head_dim=16, num_hidden_layers=4, sliding_window=20, num_attention_heads_per_layer=[8, 12, 4, 8],
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=48, moe_routed_scaling_factor=1.7, attention_bias=True,
        rope_parameters={
            "full_attention": dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=64, beta_fast=32.0,
                                   beta_slow=1.0, partial_rotary_factor=0.5),
            "sliding_attention": THETA,
        },
    ),
    "nemotron_h_latent": dict(
        model_type="nemotron_h", layers_block_type=["mamba", "moe", "attention", "moe"], num_hidden_layers=4, head_dim=16, mamba_num_heads=8,
        mamba_head_dim=16, n_groups=2, ssm_state_size=16, conv_kernel=4, chunk_size=16, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, moe_latent_size=24, moe_shared_expert_intermediate_size=48, n_group=1, topk_group=1, routed_scaling_factor=2.5,
    ),
    # the equations of repositories that have code of their own, see with_blocks() and with_layers()
    "nemotron_nas": dict(model_type="llama", num_hidden_layers=5, rope_parameters=THETA),
    "openelm": dict(model_type="qwen3", head_dim=16, tie_word_embeddings=True, rope_parameters=THETA),
    "flint": dict(
        model_type="flint", num_hidden_layers=5, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        shared_expert_intermediate_size=48, mlp_only_layers=[0], rope_parameters=THETA,
    ),
    "ctrl": dict(model_type="ctrl", n_embd=64, n_layer=3, n_head=4, dff=96, n_positions=256),
    "emu3": dict(model_type="emu3_text_model", rope_parameters=dict(THETA, rope_theta=1e6)),
    "cohere_compass": dict(
        model_type="cohere_compass_text", num_hidden_layers=4, sliding_window=20, logit_scale=0.7,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1]), "full_attention": None},
    ),
    "cohere_compass_rotated": dict(
        model_type="cohere_compass_text", rope_parameters={"full_attention": dict(rope_type="default", rope_theta=50000.0, mrope_section=[2, 1, 1])},
    ),
    "lara_mini": dict(
        model_type="lara_mini", num_hidden_layers=5, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=48, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=16,
        linear_value_head_dim=12, rope_parameters=THETA,
    ),
    "beam": dict(
        model_type="beam", num_hidden_layers=4, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        n_group=4, topk_group=2, routed_scaling_factor=1.8, final_logit_softcapping=4.0, rms_norm_eps=1e-3,
        layer_types=["sliding_attention", "full_attention"] * 2, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "recurrent_gemma": dict(
        model_type="recurrent_gemma", num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, lru_width=96,
        attention_window_size=20, logits_soft_cap=5.0,
    ),
    "phi4_multimodal": dict(model_type="phi4_multimodal", **PHI4),
    "phi4mm": dict(model_type="phi4_multimodal", **PHI4),
    "zamba2": dict(
        model_type="zamba2", num_hidden_layers=5, num_key_value_heads=8, layers_block_type=["mamba", "hybrid", "mamba", "hybrid", "hybrid"],
        n_mamba_heads=8, mamba_d_state=16, mamba_ngroups=2, chunk_size=16, use_shared_attention_adapter=True, adapter_rank=6, use_mem_rope=True,
        rope_parameters=THETA,
    ),
    "zamba2_blocks": dict(
        model_type="zamba2", num_hidden_layers=6, num_key_value_heads=8,
        layers_block_type=["mamba", "hybrid", "hybrid", "mamba", "hybrid", "hybrid"], n_mamba_heads=4, mamba_d_state=16, chunk_size=16,
        num_mem_blocks=2, adapter_rank=5, use_mem_rope=False, tie_word_embeddings=True,
    ),
    "minimax_m3": dict(
        model_type="minimax_m3_vl_text", num_hidden_layers=4, head_dim=16, num_local_experts=6, num_experts_per_tok=2, intermediate_size=32,
        dense_intermediate_size=96, shared_intermediate_size=48, rotary_dim=8, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
        layer_types=["full_attention", "minimax_m3_sparse", "full_attention", "minimax_m3_sparse"], index_n_heads=4, index_head_dim=12,
        index_block_size=5, index_topk_blocks=4, index_local_blocks=2,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
    ),
    "minimax_m3_hub": dict(
        model_type="minimax_m3_vl_text", swiglu_limit=0.75, num_hidden_layers=4, num_key_value_heads=2, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
        intermediate_size=32, dense_intermediate_size=96, shared_intermediate_size=48, rotary_dim=8,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], index_n_heads=2, index_head_dim=16, index_block_size=16, index_topk_blocks=2,
        layer_types=["minimax_m3_sparse", "full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
    ),
    "mimo_v2_flash": dict(
        model_type="mimo_v2_flash", num_hidden_layers=4, num_key_value_heads=2, head_dim=24, v_head_dim=16, sliding_window=20,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], n_routed_experts=8,
        num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=32, routed_scaling_factor=1.5,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "mimo_v2_flash_hub": dict(
        model_type="mimo_v2_flash", num_hidden_layers=7, num_key_value_heads=4, head_dim=16, v_head_dim=8, sliding_window=30,
        attention_bias=True, attention_value_scale=None, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
        rope_parameters={"full_attention": dict(THETA, rope_theta=5e5, partial_rotary_factor=0.5),
                         "sliding_attention": dict(THETA, partial_rotary_factor=0.5)},
    ),
    "bitnet": dict(model_type="bitnet", rope_parameters=THETA),
    "bitnet_online": dict(model_type="bitnet", rope_parameters=THETA),
    "bitnet_packed": dict(model_type="bitnet", rope_parameters=THETA),
    "bitlinear": dict(model_type="llama", rope_parameters=THETA),
    "nanochat": dict(model_type="nanochat", rope_parameters=THETA),
    "biogpt": dict(model_type="biogpt"),
    "apertus": dict(model_type="apertus", rope_parameters=THETA),
    "apertus1p5_text": dict(model_type="apertus1p5_text", vocab_size=376, output_vocab_size=320, rope_parameters=THETA),
    "openai_gpt": dict(model_type="openai-gpt", n_embd=64, n_layer=3, n_head=8, n_positions=256),
    "xglm": dict(model_type="xglm", d_model=64, num_layers=3, attention_heads=8, ffn_dim=128, max_position_embeddings=256, pad_token_id=0),
    "granite_swa": dict(
        model_type="granite_swa", num_hidden_layers=4, attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, sliding_window=20, layer_rope_theta=[0, 10000.0, 10000.0, 10000.0], rope_parameters=THETA,
    ),
    "granitemoe_swa": dict(
        model_type="granitemoe_swa", num_hidden_layers=4, attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, sliding_window=20, num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=48,
        layer_rope_theta=[0, 10000.0, 10000.0, 10000.0], rope_parameters=THETA,
    ),
    "cohere2_moe": dict(
        model_type="cohere2_moe", head_dim=16, num_hidden_layers=5, sliding_window=20, first_k_dense_replace=1, num_experts=6,
        num_experts_per_tok=3, num_shared_experts=1, intermediate_size=48, prefix_dense_intermediate_size=96,
        expert_selection_fn="sigmoid", logit_scale=1.0, rope_parameters=THETA,
    ),
    "mellum": dict(
        model_type="mellum", head_dim=16, num_hidden_layers=4, sliding_window=20, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=64,
                                   beta_fast=32.0, beta_slow=1.0),
            "sliding_attention": THETA,
        },
    ),
    "sarvam_mla": dict(
        model_type="sarvam_mla", num_key_value_heads=8, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
        head_dim=8, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1,
        routed_scaling_factor=1.8, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0,
            beta_fast=32.0, beta_slow=1.0,
        ),
    ),
    "internlm": dict(model_type="llama", attention_bias=True, num_key_value_heads=8, rope_parameters=THETA),
    "mamba": dict(model_type="mamba", state_size=8, expand=2, conv_kernel=4),
    "falcon_mamba": dict(model_type="falcon_mamba", state_size=16, expand=2, conv_kernel=4, time_step_rank=5, use_bias=True),
    "jamba": dict(
        model_type="jamba", num_hidden_layers=4, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
        num_experts=4, num_experts_per_tok=2, mamba_d_state=8, mamba_dt_rank=6,
    ),
    "kimi_linear": dict(
        model_type="kimi_linear", num_hidden_layers=4, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=3, n_shared_experts=1,
        moe_intermediate_size=32, n_group=2, topk_group=1, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
        linear_head_dim=16, linear_num_heads=4, layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "kimi_linear_hub": dict(
        model_type="kimi_linear", num_hidden_layers=5, num_key_value_heads=8, num_local_experts=6, num_experts_per_tok=2, n_shared_experts=2,
        moe_intermediate_size=32, kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16,
        linear_head_dim=12, linear_num_heads=8, linear_conv_kernel_dim=3, norm_topk_prob=False,
        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"],
    ),
    "bailing_hybrid": dict(
        model_type="bailing_hybrid", num_hidden_layers=4, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, n_group=4, topk_group=2, first_k_dense_replace=1, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8,
        v_head_dim=10, head_dim=16, layer_group_size=3,
    ),
    "bailing_hybrid_hub": dict(
        model_type="bailing_hybrid", num_hidden_layers=4, num_key_value_heads=8, num_local_experts=6, num_experts_per_tok=2, n_group=1,
        topk_group=1, moe_intermediate_size=32, first_k_dense_replace=0, n_shared_experts=2, q_lora_rank=24, kv_lora_rank=16,
        qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, head_dim=12, short_conv_kernel_size=3, layer_group_size=2, kda_safe_gate=False,
    ),
    "olmo_hybrid": dict(
        model_type="olmo_hybrid", num_hidden_layers=4, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=12,
        linear_value_head_dim=24, layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    ),
    "minimax": dict(
        model_type="minimax", num_hidden_layers=4, head_dim=16, num_local_experts=6, num_experts_per_tok=2, block_size=16,
        full_attn_alpha_factor=1.3, full_attn_beta_factor=0.8, linear_attn_alpha_factor=0.7, linear_attn_beta_factor=1.2,
        mlp_alpha_factor=1.4, mlp_beta_factor=0.9, rope_parameters=THETA,
    ),
    "minimax_text_01": dict(
        model_type="minimax", num_hidden_layers=4, head_dim=16, num_local_experts=6, num_experts_per_tok=2, block_size=16,
        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"], full_attn_alpha_factor=1.3,
        linear_attn_alpha_factor=1.3, mlp_alpha_factor=1.3, rope_parameters=THETA,
    ),
    "opt_bare_norms": dict(model_type="opt", ffn_dim=128, word_embed_proj_dim=64, layer_norm_elementwise_affine=False, enable_bias=False),
    "phi_qk_norm": dict(model_type="phi", num_key_value_heads=4, qk_layernorm=True, rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "bloom_norm_stream": dict(model_type="bloom", n_layer=3, n_head=8, apply_residual_connection_post_layernorm=True),
    "opt_350m": dict(model_type="opt", ffn_dim=128, word_embed_proj_dim=32, do_layer_norm_before=False),
    "stablelm_qk_norm": dict(
        model_type="stablelm", qk_layernorm=True, rope_parameters=dict(THETA, partial_rotary_factor=0.25),
    ),
    "mimo": dict(model_type="qwen2", head_dim=16, use_sliding_window=False, rope_parameters=dict(THETA, rope_theta=640000.0)),
    "pangu_embedded": dict(model_type="llama", attention_bias=True, rope_parameters=dict(THETA, rope_theta=16e6)),
    "orion": dict(model_type="stablelm", rope_parameters=dict(THETA, partial_rotary_factor=1.0)),
    "teleflm": dict(model_type="granite", attention_multiplier=8**-0.5, residual_multiplier=1.0, embedding_multiplier=3.0, logits_scaling=0.5,
                    rope_parameters=THETA),
    "maincoder": dict(model_type="hunyuan_v1_dense", head_dim=16, rope_parameters=dict(THETA, rope_theta=1e6)),
    "jais": dict(model_type="stablelm", hidden_size=96, num_attention_heads=6, num_key_value_heads=6, use_qkv_bias=True, rope_parameters=dict(
        THETA, partial_rotary_factor=1.0)),
    "codeshell": dict(model_type="starcoder2", sliding_window=None, tie_word_embeddings=False, rope_parameters=THETA),
    "telechat": dict(model_type="llama", num_key_value_heads=8, rope_parameters=THETA),
    "telechat_kv": dict(model_type="llama", rope_parameters=THETA),
    "deci": dict(model_type="llama", rope_parameters=THETA),
    "kormo": dict(model_type="llama", rope_parameters=THETA),
    "mobilellm": dict(model_type="llama", tie_word_embeddings=True, rope_parameters=THETA),
    "ouro": dict(model_type="hyperclovax", num_hidden_layers=6, attention_multiplier=8**-0.5, rope_parameters=dict(THETA, rope_theta=1e6)),
    "nanbeige": dict(model_type="llama", num_hidden_layers=4, head_dim=16, rope_parameters=dict(THETA, rope_theta=7e7)),
    "nanbeige_unnormed": dict(model_type="llama", num_hidden_layers=6, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rope_parameters=THETA),
    "spark2_5": dict(model_type="smollm3", num_hidden_layers=4, head_dim=16, tie_word_embeddings=True, sliding_window=20, hidden_act="gelu",
                     layer_types=["sliding_attention"] * 3 + ["full_attention"], no_rope_layers=[1, 1, 1, 1], rope_parameters=THETA),
    "hrm_text": dict(model_type="hrm_text", num_hidden_layers=2, head_dim=16, H_cycles=2, L_cycles=2, embedding_scale=3.0, prefix_lm=False, rope_parameters=THETA),
    "hrm_text_apart": dict(model_type="hrm_text", num_hidden_layers=1, head_dim=16, H_cycles=3, L_cycles=1, rope_parameters=THETA, tie_word_embeddings=True),
    "smallthinker": dict(model_type="smollm3", num_hidden_layers=4, tie_word_embeddings=False, sliding_window=20, layer_types=["full_attention"] + ["sliding_attention"] * 3,
                         no_rope_layers=[0, 1, 1, 1], rope_parameters=THETA),
    "smallthinker_softmax": dict(model_type="smollm3", tie_word_embeddings=True, no_rope_layers=[1, 1, 1], rope_parameters=THETA),
    "plamo3": dict(model_type="gemma3_text", num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=16, sliding_window=20, hidden_activation="silu",
                   layer_types=["sliding_attention"] * 3 + ["full_attention"], tie_word_embeddings=True, rope_parameters=dict(
                       full_attention=dict(THETA, rope_theta=150000.0), sliding_attention=THETA)),
    "plamo3_yarn": dict(model_type="gemma3_text", num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=16, sliding_window=20, hidden_activation="silu",
                        layer_types=["sliding_attention", "full_attention"] * 2, tie_word_embeddings=False, rope_parameters=dict(
                            full_attention=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
                                                beta_slow=1.0, truncate=False), sliding_attention=THETA)),
    "exaone_v5": dict(model_type="exaone", rope_parameters=THETA),
    # Ling 2: Sarvam's arithmetic with half of a head rotated, whose tensors have the same names
    "bailing_moe": dict(
        model_type="sarvam_moe", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, n_group=4, topk_group=2, rope_parameters=dict(THETA, partial_rotary_factor=0.5),
    ),
    # DeepSeekMoE 16B: Llama with the experts of DeepSeek-V2, see with_deepseek()
    "deepseek_moe": dict(model_type="llama", rope_parameters=THETA),
    # Ling 1: Granite's experts without its factors
    "ling_1": dict(
        model_type="granitemoeshared", num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=96, intermediate_size=48,
        attention_multiplier=8**-0.5, rope_parameters=THETA,
    ),
    "aria_text": dict(
        model_type="aria_text", moe_num_experts=8, moe_topk=3, moe_num_shared_experts=2, intermediate_size=48, rope_parameters=THETA,
    ),
    "gemma4_unified": dict(
        model_type="gemma4_unified_text", head_dim=16, num_hidden_layers=6, sliding_window=20, global_head_dim=32, num_global_key_value_heads=2,
        attention_k_eq_v=True, final_logit_softcapping=5.0, rope_parameters=None,
    ),
    # twelve layers: transformers 5 names them by two digits in `per_layer_config`, which has all that config.json says of their sizes
    "gemma4_twelve": dict(
        model_type="gemma4_text", head_dim=16, num_hidden_layers=12, sliding_window=20, global_head_dim=32, num_global_key_value_heads=2,
        attention_k_eq_v=True, hidden_size_per_layer_input=0, num_kv_shared_layers=0, final_logit_softcapping=5.0, rope_parameters=None,
    ),
    # ERNIE 4.5 VL: config.json within another one, and the flat one of Baidu's repository
    "ernie4_5_vl": dict(
        model_type="ernie4_5_vl_moe_text", head_dim=16, moe_num_experts=6, moe_k=3, moe_intermediate_size=[32, 24], moe_num_shared_experts=2,
        mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=dict(THETA, mrope_section=[3, 3, 2])),
    "ernie4_5_vl_hub": dict(
        model_type="ernie4_5_vl_moe_text", moe_num_experts=5, moe_k=2, moe_intermediate_size=[40, 16], moe_num_shared_experts=1,
        num_hidden_layers=4, rope_parameters=dict(THETA, mrope_section=[1, 1, 2])),
    "diffllama": dict(model_type="diffllama", num_key_value_heads=8, num_hidden_layers=4, rope_parameters=THETA),
    "diffllama_bias": dict(model_type="diffllama", num_attention_heads=24, num_key_value_heads=8, head_dim=12, attention_bias=True, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="llama3", rope_theta=5e5, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                original_max_position_embeddings=64)),
    "zaya": dict(
        model_type="zaya", num_hidden_layers=4, head_dim=16, num_experts=6, num_experts_per_tok=1, moe_intermediate_size=48, router_hidden_size=24,
        sliding_window=20, layer_types=["hybrid", "hybrid_sliding", "hybrid_sliding", "hybrid"], tie_word_embeddings=True,
        rope_parameters={"hybrid": dict(THETA, rope_theta=5e6, partial_rotary_factor=0.5),
                         "hybrid_sliding": dict(THETA, partial_rotary_factor=0.25)}),
    "zaya_wide": dict(
        model_type="zaya", num_hidden_layers=3, head_dim=12, num_attention_heads=12, num_key_value_heads=4, num_experts=5, num_experts_per_tok=1,
        moe_intermediate_size=40, router_hidden_size=64, cca_time0=3, cca_time1=4, attention_bias=True, lm_head_bias=True, tie_word_embeddings=False,
        rope_parameters={"hybrid": dict(THETA, partial_rotary_factor=1.0), "hybrid_sliding": dict(THETA, partial_rotary_factor=0.5)}),
    "stablelm_parallel": dict(
        model_type="stablelm", use_parallel_residual=True, rope_parameters=dict(THETA, partial_rotary_factor=0.25),
    ),
}


# The same models under the names and in the shapes that transformers 5 has in memory, as save_original_format=False saves them.
IN_MEMORY = (
    "dory_once",
    "hy_v3",
    "mixtral_window", "granitemoe", "phimoe", "lfm2_moe", "longcat_flash", "afmoe", "sarvam_moe", "nemotron_h_latent", "jamba", "kimi_linear",
    "bailing_hybrid", "minimax", "ernie4_5_vl",
)
CASES |= {f"{name}_in_memory": CASES[name] for name in IN_MEMORY}


def deepseek_v4_keys(v5):
    """The keys of DeepSeek's repository."""
    c = dict(v5, torch_dtype=v5["dtype"], num_hash_layers=v5["mlp_layer_types"].count("hash_moe"))
    if c["compress_rates"]["heavily_compressed_attention"] == 128:
        rates = c["compress_rates"] | dict(sliding_attention=0)
        c["compress_ratios"] = [rates[kind] for kind in c.pop("layer_types")] + [0]
    if c["compress_rates"]["heavily_compressed_attention"] != 32:
        c["rope_scaling"] = {k: v for k, v in c["rope_parameters"]["compress"].items() if k not in ("rope_theta", "partial_rotary_factor", "attention_factor")}
    else:
        del c["layer_types"]
    c["compress_rate_csa"], c["compress_rate_hca"] = c["compress_rates"].values()
    c["qk_rope_head_dim"] = int(c["head_dim"] * c["partial_rotary_factor"])
    for key in "rope_parameters", "dtype", "mlp_layer_types", "compress_rates", "partial_rotary_factor":
        del c[key]
    return c


def hub_keys(v5):
    """The same configuration as transformers 4 wrote it."""
    if v5["model_type"] == "deepseek_v4":
        return deepseek_v4_keys(v5)
    c = dict(v5)
    c["torch_dtype"] = c.pop("dtype", "float32")
    rope = c.pop("rope_parameters", None)
    if rope and None in rope.values() or c["model_type"].startswith("cohere_compass"):  # without an older form
        return dict(c, rope_parameters=rope)
    if rope and "hybrid" in rope:  # ZAYA's files have a word for both as well
        return dict(c, rope_parameters=rope | {"rope_type": "default"})
    if rope and "full_attention" in rope:  # Gemma 3 and 3n
        c["swa_rope_theta" if "mimo" in c["model_type"] else "rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        rope = dict(rope)
        c["rope_theta"] = rope.pop("rope_theta")
        partial = rope.pop("partial_rotary_factor", None)
        if partial is not None:
            c["partial_rotary_factor"] = partial
        c["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    return c


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def to_mxfp4(p):
    """[experts, in, out] -> blocks [experts, out, groups, 16], scales [experts, out, groups], and what they mean."""
    e, cols, rows = p.shape
    x = p.transpose(1, 2).reshape(e, rows, cols // 32, 32)
    power = torch.floor(torch.log2(x.abs().amax(-1).clamp(min=2.0**-120))) - 2
    scaled = x / torch.exp2(power)[..., None]
    codes = (scaled[..., None] - E2M1).abs().argmin(-1)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    exact = (E2M1[codes] * torch.exp2(power)[..., None]).reshape(e, rows, cols).transpose(1, 2)
    return blocks, (power + 127).to(torch.uint8), exact.contiguous()


def store_mxfp4(model, out):
    """As OpenAI's checkpoints are: experts in MXFP4, all else in bfloat16. The model has exactly these numbers."""
    tensors = {}
    for name, p in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            tensors[name + "_blocks"], tensors[name + "_scales"], _ = to_mxfp4(p)
        else:
            tensors[name] = p.to(torch.bfloat16)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/model.safetensors", {"format": "pt"})


def store_in_first(model, out):
    """As Qwen3-VL's checkpoints with experts are: all experts of a layer in one tensor, [experts, in, out]."""
    tensors = {}
    for name, p in model.state_dict().items():
        fused = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        tensors[name] = (p.transpose(1, 2) if fused else p).contiguous()
    assert any(t.dim() == 3 for t in tensors.values())
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})


def to_fp8(w, block=32):
    """[..., rows, cols] -> e4m3, a power of two for each block (which the scale of what they mean is again), and what they mean."""
    rows, cols = w.shape[-2:]
    x = torch.nn.functional.pad(w, (0, -cols % block, 0, -rows % block))
    x = x.unflatten(-1, (-1, block)).unflatten(-3, (-1, block))  # [..., row blocks, rows, column blocks, cols]
    scale = torch.exp2(torch.ceil(torch.log2(x.abs().amax((-3, -1)).clamp(min=2.0**-100) / 448)))
    codes = (x / scale[..., :, None, :, None]).to(torch.float8_e4m3fn)
    flat = lambda v: v.flatten(-2, -1).flatten(-3, -2)[..., :rows, :cols].contiguous()
    return flat(codes.view(torch.uint8)).view(torch.float8_e4m3fn), scale, flat(codes.float() * scale[..., :, None, :, None])


def as_stored_fp8(model):
    """Matrices but tables and routers; gate and up, which some files store apart, each alone."""
    for name, p in model.named_parameters():
        if p.dim() >= 2 and name.endswith(("_proj", "_proj.weight")):
            halves = p.data.chunk(2, -2) if name.endswith("gate_up_proj") else (p.data,)
            p.data = torch.cat([to_fp8(x)[2] for x in halves], -2)


def store_fp8(out):
    """As transformers and DeepSeek write FP8: a scale for each block beside the matrix, named X.weight_scale_inv or X_scale_inv."""
    from safetensors.torch import load_file
    tensors = {}
    for name, t in load_file(f"{out}/model.safetensors").items():
        tensors[name] = t
        if t.dim() < 2 or not name.endswith(("_proj", "_proj.weight")):
            continue
        codes, scale, exact = to_fp8(t)
        if "vision" not in name:
            assert torch.equal(exact, t), name
            tensors |= {name: codes, name + "_scale_inv": scale}
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    return {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}}


def renamed(tensors, pairs):
    """Tensors under other names, most specific first; q, k and v that share a target are stacked."""
    out = {}
    for name, v in tensors.items():
        for a, b in pairs:
            name = name.replace(a, b)
        out[name] = v
    return out


def grouped_qkv(t, layer, heads, kv_heads):
    """Of each key-value head its queries, its key, its value."""
    q, k, v = (t.pop(f"model.layers.{layer}.self_attn.{p}_proj.weight") for p in "qkv")
    q, k, v = q.view(kv_heads, heads // kv_heads, -1, q.shape[1]), k.view(kv_heads, 1, -1, k.shape[1]), v.view(
        kv_heads, 1, -1, v.shape[1])
    t[f"model.layers.{layer}.attention.wqkv.weight"] = torch.cat([q, k, v], 1).reshape(-1, q.shape[-1])


def as_internlm2(t, c):
    for i in range(c["num_hidden_layers"]):
        grouped_qkv(t, i, c["num_attention_heads"], c["num_key_value_heads"])
    return renamed(t, [
        ("self_attn.o_proj", "attention.wo"), ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"), ("mlp.down_proj", "feed_forward.w2"),
        ("embed_tokens", "tok_embeddings"), ("lm_head", "output"),
    ]), dict(c, model_type="internlm2", bias=False)


def as_internlm3(t, c):
    return t, dict(c, model_type="internlm3", qkv_bias=True, bias=True)


def as_internlm(t, c):
    return t, dict(c, model_type="internlm", bias=True)


def as_mimo_7b(t, c):
    """With the layer that drafts, which generation does not use."""
    return t | {"model.mtp_layers.0.input_proj.weight": torch.ones(64, 128)}, dict(c, model_type="mimo", num_nextn_predict_layers=1)


def as_pangu(t, c):
    del c["attention_bias"]
    return t, dict(c, model_type="PanguEmbedded")


def as_orion(t, c):
    keys = {k: c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size",
                              "hidden_act", "torch_dtype", "max_position_embeddings", "rope_theta", "tie_word_embeddings")}
    return t, keys | dict(model_type="orion", rms_norm_eps=c["layer_norm_eps"], attention_bias=False, rope_scaling=None)


def as_teleflm(t, c):
    c = dict(c, model_type="TeleFLM", use_mup=True, input_mult=c.pop("embedding_multiplier"), output_mult=4.0,
             mup_scale_factor=4.0 * c.pop("logits_scaling"))
    return t, {k: v for k, v in c.items() if not k.endswith("_multiplier")}


def as_maincoder(t, c):
    """Elements i and i + d / 2 of each head, which rotate together, stand side by side."""
    out, d = {}, c["head_dim"]
    for name, v in t.items():
        name = name.replace("query_layernorm", "q_norm").replace("key_layernorm", "k_norm").replace(".mlp.", ".feed_forward.")
        if any(p in name for p in ("q_proj", "k_proj", "q_norm", "k_norm")):
            v = v.unflatten(0, (-1, 2, d // 2)).transpose(1, 2).flatten(0, 2)
        out[name] = v
    keys = {k: c[k] for k in ("hidden_size", "head_dim", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size",
                              "torch_dtype", "max_position_embeddings", "rope_theta", "rms_norm_eps", "tie_word_embeddings")}
    return out, keys | dict(model_type="maincoder", intermediate_size_mlp=c["intermediate_size"], use_qk_norm=True)


def as_jais(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.self_attn.c_attn.{kind}"] = torch.cat(parts)
    t = renamed(t, [("model.layers", "transformer.h"), ("self_attn.o_proj", "attn.c_proj"), ("self_attn.c_attn", "attn.c_attn"), ("input_layernorm", "ln_1"),
                    ("post_attention_layernorm", "ln_2"), ("mlp.up_proj", "mlp.c_fc"), ("mlp.gate_proj", "mlp.c_fc2"), ("mlp.down_proj", "mlp.c_proj"),
                    ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f")])
    t = {k: v.T.contiguous() if v.dim() == 2 and ".h." in k else v for k, v in t.items()}
    return t, dict(model_type="jais", torch_dtype="float32", n_embd=c["hidden_size"], n_layer=c["num_hidden_layers"], n_head=c["num_attention_heads"],
                   n_inner=c["intermediate_size"], n_positions=512, layer_norm_epsilon=c["layer_norm_eps"], vocab_size=c["vocab_size"],
                   activation_function="swiglu", position_embedding_type="alibi", tie_word_embeddings=False, **JAIS_FACTORS)


def as_codeshell(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.attn.c_attn.{kind}"] = torch.cat(parts)
    t = renamed(t, [("model.layers", "transformer.h"), ("self_attn.o_proj", "attn.c_proj"), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
                    ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f")])
    return t, dict(model_type="codeshell", torch_dtype="float32", n_embd=c["hidden_size"], n_layer=c["num_hidden_layers"], n_head=c["num_attention_heads"],
                   num_query_groups=c["num_key_value_heads"], group_query_attention=True, n_inner=c["intermediate_size"], n_positions=512,
                   layer_norm_epsilon=c["norm_epsilon"], vocab_size=c["vocab_size"], activation_function=c["hidden_act"], rope_scaling=None,
                   position_embedding_type="rope", scale_attn_weights=True, tie_word_embeddings=False)


def with_telechat(model):
    for layer in model.model.layers:
        for m in layer.self_attn.o_proj, layer.mlp.down_proj:
            m.bias = torch.nn.Parameter(torch.randn(m.out_features) * 0.1)


def as_telechat(t, c):
    dim = c["hidden_size"] // c["num_attention_heads"]
    for i in range(c["num_hidden_layers"]):
        k, v = (t.pop(f"model.layers.{i}.self_attn.{p}_proj.weight").unflatten(0, (-1, dim)) for p in "kv")
        t[f"model.layers.{i}.self_attention.key_value.weight"] = torch.cat([k, v], 1).flatten(0, 1)
    t = renamed(t, [("model.layers", "transformer.h"), ("self_attn.q_proj", "self_attention.query"), ("self_attn.o_proj", "self_attention.dense"),
                    ("model.embed_tokens", "transformer.word_embeddings"), ("model.norm", "transformer.ln_f")])
    heads = c["num_attention_heads"]
    return t, dict(model_type="telechat", torch_dtype="float32", hidden_size=c["hidden_size"], n_layer=c["num_hidden_layers"], n_head=heads,
                   num_key_value_heads=None if c["num_key_value_heads"] == heads else c["num_key_value_heads"], ffn_hidden_size=c["intermediate_size"],
                   layer_norm_epsilon=c["rms_norm_eps"], vocab_size=c["vocab_size"], seq_length=512, base_seqlen=512, training_seqlen=512,
                   apply_residual_connection_post_layernorm=False, embed_layernorm=False, tie_word_embeddings=False)


def with_kv_heads(model):
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    for i, n in enumerate((8, 1, 4)):
        c = copy.deepcopy(model.config)
        c.num_key_value_heads = n
        model.model.layers[i] = LlamaDecoderLayer(c, i).eval()
        random_layer(model.model.layers[i])


def as_deci(t, c):
    return t, dict({k: v for k, v in c.items() if k != "num_key_value_heads"}, model_type="deci", num_key_value_heads_per_layer=[8, 1, 4])


def as_kormo(t, c):
    return renamed(t, [("input_layernorm", "pre_attention_layernorm"), ("post_attention_layernorm", "pre_mlp_layernorm")]), dict(c, model_type="kormo")


def as_mobilellm(t, c):
    return t, dict({k: v for k, v in c.items() if k != "tie_word_embeddings"}, model_type="mobilellm", share_embedding=True, layer_sharing=False)


def with_turns(model):
    """Three turns of two layers, with the last norm after each."""
    for i, layer in enumerate(model.model.layers):
        layer.load_state_dict(model.model.layers[i % 2].state_dict())
        if i in (1, 3):
            layer.register_forward_hook(lambda layer, args, out: model.model.norm(out))


def as_ouro(t, c):
    t = renamed({k: v for k, v in t.items() if int((k.split("layers.") + ["0"])[1].split(".")[0]) < 2}, [
        ("post_norm1", "input_layernorm_2"), ("post_norm2", "post_attention_layernorm_2")])
    t |= {"model.early_exit_gate.weight": torch.randn(1, c["hidden_size"]), "model.early_exit_gate.bias": torch.zeros(1)}
    return t, dict({k: c[k] for k in COMMON}, model_type="ouro", torch_dtype="float32", num_hidden_layers=2, total_ut_steps=3, early_exit_threshold=1.0,
                   rope_theta=1e6, rope_scaling=None, rms_norm_eps=c["rms_norm_eps"], hidden_act="silu", head_dim=8, sliding_window=None,
                   use_sliding_window=False, max_window_layers=2, layer_types=["full_attention"] * 2, tie_word_embeddings=False)


def as_hrm_text(t, c):
    """The keys of its training, and matrices apart: transformers saves those of the repository."""
    return t, dict({k: v for k, v in c.items() if k != "num_layers_per_stack"}, num_hidden_layers=c["num_layers_per_stack"])


def with_loops(norms):
    """Several turns of two layers, with the last norm between them or without."""
    def do(model):
        n = len(model.model.layers)
        for i, layer in enumerate(model.model.layers):
            layer.load_state_dict(model.model.layers[i % 2].state_dict())
            if norms and i % 2 and i < n - 1:
                layer.register_forward_hook(lambda layer, args, out: model.model.norm(out))
    return do


def as_nanbeige(norms):
    def do(t, c):
        t = {k: v for k, v in t.items() if int((k.split("layers.") + ["0"])[1].split(".")[0]) < 2}
        return t, dict(c, model_type="nanbeige", num_loops=c["num_hidden_layers"] // 2, num_hidden_layers=2, skip_loop_final_norm=not norms,
                       loop_loss_weights=[], qk_layernorm=False, emb_neighbor_num=None, insert_ngram_layer_idx=[], enable_mhc=False)
    return do


SPARK = {"full_attention": dict(rope_theta=5e6, partial_rotary_factor=0.25), "sliding_attention": dict(rope_theta=1e4, partial_rotary_factor=1.0)}


def with_head_gates(model):
    """A gate for each head, and a rotation for each kind of layer, in part of a head: the other frequencies are 0."""
    c = model.config
    for layer, kind in zip(model.model.layers, c.layer_types):
        a, rope = layer.self_attn, SPARK[kind]
        a.g_proj = torch.nn.Linear(c.hidden_size, c.num_attention_heads, bias=False)
        a.g_proj.weight.data = torch.randn_like(a.g_proj.weight) * 0.25
        dim = int(16 * rope["partial_rotary_factor"])
        turns = torch.cat([rope["rope_theta"] ** -(torch.arange(0, dim, 2) / dim), torch.zeros(8 - dim // 2)])

        def before(a, args, kwargs, turns=turns):
            x = kwargs["hidden_states"]
            angles = (kwargs["position_ids"][..., None] * turns).repeat(1, 1, 2)
            a.gate = torch.sigmoid(a.g_proj(x)).repeat_interleave(16, -1)
            return args, dict(kwargs, position_embeddings=(angles.cos(), angles.sin()))

        a.register_forward_pre_hook(before, with_kwargs=True)
        a.o_proj.register_forward_pre_hook(lambda o, args, a=a: (args[0] * a.gate,))


def as_spark(t, c):
    """A rotated part stands at the beginning of a head."""
    for i, kind in enumerate(c["layer_types"]):
        half = int(16 * SPARK[kind]["partial_rotary_factor"]) // 2
        rows = [*range(half), *range(8, 8 + half), *range(half, 8), *range(8 + half, 16)]
        q, k, v = (t.pop(f"model.layers.{i}.self_attn.{p}_proj.weight") for p in "qkv")
        q, k = (w.unflatten(0, (-1, 16))[:, rows].flatten(0, 1) for w in (q, k))
        t[f"model.layers.{i}.self_attn.q_k_v_proj.weight"] = torch.cat([q, k, v])
    keys = {k: c[k] for k in (*COMMON, "layer_types", "sliding_window", "hidden_act", "tie_word_embeddings", "rms_norm_eps", "torch_dtype")}
    return renamed(t, [("o_proj", "out_proj"), ("embed_tokens", "embedding")]), dict(
        keys, model_type="spark2_5", head_dim=16, rope_parameters=SPARK, attention_bias=False, mlp_bias=False, headwise_attn_output_gate=True,
        gate_attn_act_mode="sigmoid")


class EarlyExperts(torch.nn.Module):
    """SmallThinker's: `early` is the router's input."""

    def __init__(self, hidden, ffn, softmax):
        super().__init__()
        self.primary_router = torch.nn.Linear(hidden, 6, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.ModuleDict({k: torch.nn.Linear(*((ffn, hidden) if k == "down" else (hidden, ffn)), bias=False)
                                                                for k in ("gate", "up", "down")}) for _ in range(6))
        self.softmax = softmax

    def forward(self, x):
        best = self.primary_router(self.early).topk(3, -1)
        w = best.values.softmax(-1) if self.softmax else best.values.sigmoid() / best.values.sigmoid().sum(-1, keepdim=True)
        w = torch.zeros(*x.shape[:-1], 6).scatter(-1, best.indices, w)
        return sum(w[..., i, None] * e["down"](e["gate"](x).relu() * e["up"](x)) for i, e in enumerate(self.experts))


def with_early(softmax):
    def do(model):
        for layer in model.model.layers:
            layer.mlp = EarlyExperts(model.config.hidden_size, 48, softmax)
            for p in layer.mlp.parameters():
                p.data = torch.randn_like(p) * 0.25
            layer.register_forward_pre_hook(lambda layer, args: setattr(layer.mlp, "early", args[0]))
    return do


def as_smallthinker(softmax):
    def do(t, c):
        n = c["num_hidden_layers"]
        kinds = c.get("layer_types") or ["full_attention"] * n
        return renamed(t, [("mlp.", "block_sparse_moe.")]), dict(
            {k: c[k] for k in COMMON if k != "intermediate_size"}, model_type="smallthinker", torch_dtype="float32", head_dim=8, rms_norm_eps=c["rms_norm_eps"],
            rope_theta=1e4, rope_layout=c["no_rope_layers"], sliding_window_layout=[int(k == "sliding_attention") for k in kinds], sliding_window_size=20,
            moe_num_primary_experts=6, moe_ffn_hidden_size=48, moe_primary_router_apply_softmax=softmax, moe_num_active_primary_experts=3,
            tie_word_embeddings=softmax)
    return do


def with_untruncated(model):
    """transformers does not find `truncate` where each kind of layer has a rotation."""
    at, full = model.model.rotary_emb, model.config.rope_parameters["full_attention"]
    like = AutoConfig.for_model("llama", hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=512, rope_parameters=full)
    at.full_attention_inv_freq = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](like)[0]


def as_plamo3(t, c, factor=1):
    for i in range(c["num_hidden_layers"]):
        at, to = f"model.layers.{i}.", f"model.layers.layers.{i}."
        t[to + "mixer.qkv_proj.weight"] = torch.cat([t.pop(f"{at}self_attn.{p}_proj.weight") for p in "qkv"])
        t[to + "mlp.gate_up_proj.weight"] = torch.cat([t.pop(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")])
        for name, plus in ("post_attention_layernorm", 1 / 5), ("post_feedforward_layernorm", 5**-1.5):
            t[f"{at}{name}.weight"] += 1 - plus  # Gemma's is around 1
    t = renamed({k.replace("model.layers.", "model.layers.layers.") if ".layers.layers." not in k else k: v for k, v in t.items()}, [
        ("self_attn.", "mixer."), ("input_layernorm", "pre_mixer_norm"), ("post_attention_layernorm", "post_mixer_norm"),
        ("pre_feedforward_layernorm", "pre_mlp_norm"), ("post_feedforward_layernorm", "post_mlp_norm")])
    return t, dict({k: c[k] for k in COMMON}, model_type="plamo3", torch_dtype="float32", head_dim=16, rms_norm_eps=c["rms_norm_eps"], scale_embedding=True,
                   window_size=20, sliding_window_pattern=c["layer_types"].index("full_attention") + 1, rope_theta=150000, rope_local_theta=10000,
                   rope_scaling_factor=factor, initial_context_length=None if factor == 1 else 32,
                   tie_word_embeddings=c.get("tie_word_embeddings", True))


def as_minicpm(t, c):
    return t, dict(c, model_type="minicpm", scale_emb=6.0, scale_depth=1.4, dim_model_base=c["hidden_size"] // 2)


def as_chatglm(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.self_attention.query_key_value.{kind}"] = torch.cat(parts)
    keys = dict(
        model_type="chatglm", torch_dtype="float32", hidden_size=c["hidden_size"], num_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["head_dim"], multi_query_attention=True,
        multi_query_group_num=c["num_key_value_heads"], ffn_hidden_size=c["intermediate_size"],
        padded_vocab_size=c["vocab_size"], seq_length=512, layernorm_epsilon=c["rms_norm_eps"], rmsnorm=True,
        add_bias_linear=False, add_qkv_bias=True, rope_ratio=5.0, tie_word_embeddings=False, eos_token_id=2, bos_token_id=1,
        pad_token_id=0, vocab_size=c["vocab_size"],
    )
    return renamed(t, [
        ("model.layers", "transformer.encoder.layers"), ("self_attn.o_proj", "self_attention.dense"),
        ("mlp.gate_up_proj", "mlp.dense_h_to_4h"), ("mlp.down_proj", "mlp.dense_4h_to_h"),
        ("model.embed_tokens", "transformer.embedding.word_embeddings"), ("model.norm", "transformer.encoder.final_layernorm"),
        ("lm_head", "transformer.output_layer"),
    ]), keys


def as_exaone(t, c):
    c = dict(c, model_type="exaone", num_layers=c["num_hidden_layers"], layer_norm_epsilon=c["rms_norm_eps"],
             activation_function="silu")
    for key in "num_hidden_layers", "rms_norm_eps", "hidden_act":
        del c[key]
    return renamed(t, [
        ("self_attn.o_proj", "attn.attention.out_proj"), ("self_attn.", "attn.attention."), ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"), ("mlp.gate_proj", "mlp.c_fc_0"), ("mlp.up_proj", "mlp.c_fc_1"),
        ("mlp.down_proj", "mlp.c_proj"), ("model.layers", "transformer.h"), ("model.embed_tokens", "transformer.wte"),
        ("model.norm", "transformer.ln_f"),
    ]), c


def slopes(heads):
    """ALiBi's slopes (arXiv 2108.12409 and its appendix): a power of two of them, then every other one of twice as many."""
    below = 2 ** (heads.bit_length() - 1)
    of = lambda n: [2 ** (-8 * (i + 1) / n) for i in range(n)]
    return of(below) + of(2 * below)[::2][: heads - below]


def with_alibi(model):
    """Llama without rotation, whose scores fall with the distance: the published equations of Baichuan 13B."""
    heads, old = model.config.num_attention_heads, model.forward
    dim = model.config.hidden_size // heads
    model.model.rotary_emb.forward = lambda x, position_ids: (
        torch.ones(*position_ids.shape, dim), torch.zeros(*position_ids.shape, dim))

    def forward(ids, **how):
        at = torch.arange(ids.shape[1])
        far = (at[None, :] - at[:, None]).float()
        mask = torch.tensor(slopes(heads))[:, None, None] * far
        return old(ids, attention_mask=mask.masked_fill(far > 0, float("-inf"))[None], use_cache=False)

    model.forward = forward


JAIS_FACTORS = dict(mup_embeddings_scale=5.0, mup_output_alpha=0.5, mup_width_scale=0.25, mup_scale_qk_dot_by_d=True)


def with_jais(model):
    """Biases of all matrices, ALiBi, and factors of embeddings, scores and logits: the published equations of Jais."""
    for layer in model.model.layers:
        for m in layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj:
            m.bias = torch.nn.Parameter(torch.randn(m.out_features) * 0.1)
        layer.self_attn.scaling = 1 / layer.self_attn.head_dim
    with_alibi(model)
    embed, head = model.model.embed_tokens.forward, model.lm_head.forward
    model.model.embed_tokens.forward = lambda ids: embed(ids) * JAIS_FACTORS["mup_embeddings_scale"]
    model.lm_head.forward = lambda x: head(x) * JAIS_FACTORS["mup_output_alpha"] * JAIS_FACTORS["mup_width_scale"]


def with_unit_head(model):
    """NormHead (arXiv 2309.10305): logits are products with rows of length 1."""
    model.lm_head.weight.data = torch.nn.functional.normalize(model.lm_head.weight.data)


def as_baichuan(t, c):
    for i in range(c["num_hidden_layers"]):
        parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.weight") for p in "qkv"]
        t[f"model.layers.{i}.self_attn.W_pack.weight"] = torch.cat(parts)
    keys = {k: c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size",
                              "hidden_act", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "tie_word_embeddings")}
    return t, keys | dict(model_type="baichuan", max_position_embeddings=512)


def as_baichuan2(t, c):
    """The rows of a head as it is trained have any length."""
    t, keys = as_baichuan(t, c)
    head = t["lm_head.weight"]
    t["lm_head.weight"] = head * (0.5 + torch.rand(head.shape[0], 1, generator=torch.Generator().manual_seed(1)))
    return t, keys


def as_baichuan_13b(t, c):
    t, keys = as_baichuan(t, c)
    keys["model_max_length"] = keys.pop("max_position_embeddings")
    return t, keys


def as_qwen(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.attn.c_attn.{kind}"] = torch.cat(parts)
    keys = dict(
        model_type="qwen", torch_dtype="float32", hidden_size=c["hidden_size"], num_hidden_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["hidden_size"] // c["num_attention_heads"],
        intermediate_size=2 * c["intermediate_size"], layer_norm_epsilon=c["rms_norm_eps"], vocab_size=c["vocab_size"], seq_length=512,
        max_position_embeddings=2048, rotary_emb_base=10000, rotary_pct=1.0, no_bias=True, use_dynamic_ntk=True, use_logn_attn=True,
        scale_attn_weights=True, tie_word_embeddings=False,
    )
    return renamed(t, [
        ("model.layers", "transformer.h"), ("self_attn.o_proj", "attn.c_proj"), ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"), ("mlp.up_proj", "mlp.w1"), ("mlp.gate_proj", "mlp.w2"), ("mlp.down_proj", "mlp.c_proj"),
        ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"),
    ]), keys


def as_bailing(t, c):
    """The tensors that were saved, the keys of Ling's repositories."""
    c = dict(c, model_type="bailing_moe", num_experts=c["n_routed_experts"], num_shared_experts=c["n_shared_experts"], use_bias=False,
             use_qkv_bias=c["attention_bias"], score_function="sigmoid", moe_router_enable_expert_bias=True, norm_head=False)
    for key in "n_routed_experts", "n_shared_experts", "attention_bias":
        del c[key]
    return None, c


def as_kimi(t, c):
    """The tensors that were saved, the keys of Moonshot's repository, which counts layers from 1."""
    of = lambda kind: [i + 1 for i, k in enumerate(c["layer_types"]) if k == kind]
    c = dict(c, mla_use_nope=True, moe_router_activation_func="sigmoid", moe_layer_freq=1, use_grouped_topk=True, linear_attn_config=dict(
        head_dim=c["linear_head_dim"], num_heads=c["linear_num_heads"], short_conv_kernel_size=c["linear_conv_kernel_dim"],
        kda_layers=of("linear_attention"), full_attn_layers=of("full_attention")), first_k_dense_replace=c["mlp_layer_types"].index("sparse"))
    for old, new in (("n_group", "num_expert_group"), ("num_local_experts", "num_experts"), ("num_experts_per_tok", "num_experts_per_token"),
                     ("norm_topk_prob", "moe_renormalize"), ("n_shared_experts", "num_shared_experts"),
                     ("max_position_embeddings", "model_max_length")):
        if old in c:
            c[new] = c.pop(old)
    for key in "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "layer_types", "mlp_layer_types":
        del c[key]
    return None, c


LING_CAPS = {"experts": [0, 0.25, None, 0.5], "shared_experts": [0, None, 0.25, 0.125]}


class Capped(torch.nn.Module):
    def __init__(self, cap):
        super().__init__()
        self.cap = cap

    def forward(self, x):
        return torch.nn.functional.silu(x).clamp(max=self.cap)


def with_ling_caps(model):
    """Caps of what gates and ups are, which Ling 3.0 was trained with and transformers leaves out."""
    for i, layer in enumerate(model.model.layers):
        for name, caps in LING_CAPS.items():
            if not (cap := caps[i]):
                continue
            mlp = getattr(layer.mlp, name)
            mlp.act_fn = Capped(cap)
            if name == "shared_experts":
                up = mlp.up_proj.forward
                mlp.up_proj.forward = lambda x, up=up, cap=cap: up(x).clamp(-cap, cap)
            else:
                mlp.forward = lambda x, at, weights, mlp=mlp, cap=cap: capped_experts(mlp, x, at, weights, cap)


def capped_experts(mlp, x, at, weights, cap):
    y = torch.zeros_like(x)
    for token in range(len(x)):
        for expert, weight in zip(at[token], weights[token]):
            gate, up = (mlp.gate_up_proj[expert] @ x[token]).chunk(2)
            y[token] += weight * (mlp.down_proj[expert] @ (mlp.act_fn(gate) * up.clamp(-cap, cap)))
    return y


def as_ling_caps(t, c):
    return {}, dict(c, expert_swiglu_limit_list=LING_CAPS["experts"], share_expert_swiglu_limit_list=LING_CAPS["shared_experts"])


def as_ling_3(t, c):
    """The tensors that were saved, without the keys that transformers derives, and with those of the released files."""
    c = dict(c, head_dim=c["linear_head_dim"], kda_safe_gate=False, group_norm_size=1, partial_rotary_factor=0.5)
    _, c = as_ling_caps(t, c)
    for key in "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "layer_types", "mlp_layer_types":
        del c[key]
    return None, c


def as_minimax_m3(t, c):
    """The names and keys of MiniMax's repository, whose text model is beside one of vision."""
    out = {}
    for i, kind in enumerate(c["mlp_layer_types"]):
        if kind == "sparse":
            experts_apart(t, i, "block_sparse_moe", ("w1", "w3", "w2"))
    for name, v in t.items():
        name = name.replace("mlp.gate.e_score", "block_sparse_moe.e_score").replace("self_attn.indexer.", "self_attn.index_")
        name = name.replace("mlp.gate.", "block_sparse_moe.gate.").replace("mlp.shared_experts", "block_sparse_moe.shared_experts")
        name = "language_model." + name
        if name.endswith("gate_up_proj.weight"):
            for part, x in zip(("gate_proj", "up_proj"), v.chunk(2)):
                out[name.replace("gate_up_proj", part)] = x
        else:
            out[name] = v
    own = dict(use_sparse_attention=True, sparse_index_dim=c["index_head_dim"], sparse_num_index_heads=c["index_n_heads"],
               sparse_topk_blocks=c["index_topk_blocks"], sparse_block_size=c["index_block_size"], sparse_local_block=c["index_local_blocks"],
               sparse_attention_freq=[int(k != "full_attention") for k in c["layer_types"]])
    c = {k: v for k, v in c.items() if not k.startswith("index_") and k not in ("layer_types", "mlp_layer_types", "partial_rotary_factor")} | dict(
        sparse_attention_config=own, moe_layer_freq=[0, 1, 1, 1], hidden_act="swigluoai")
    return out, dict(model_type="minimax_m3_vl", text_config=c, torch_dtype="float32", image_token_index=300)


def experts_apart(t, layer, to, names):
    """The experts of a layer, which transformers 5 keeps in two tensors, under names of gate, up and down each."""
    up, down = (t.pop(f"model.layers.{layer}.mlp.experts.{k}") for k in ("gate_up_proj", "down_proj"))
    for e in range(len(up)):
        for name, v in zip(names, (*up[e].chunk(2), down[e])):
            t[f"model.layers.{layer}.{to}.experts.{e}.{name}.weight"] = v


def as_minimax_text_01(t, c):
    """The names and keys of MiniMax's repository."""
    for i in range(c["num_hidden_layers"]):
        experts_apart(t, i, "block_sparse_moe", ("w1", "w3", "w2"))
        t[f"model.layers.{i}.block_sparse_moe.gate.weight"] = t.pop(f"model.layers.{i}.mlp.gate.weight")
    c = dict(c, model_type="minimax_text_01", attn_type_list=[int(k == "full_attention") for k in c.pop("layer_types")], postnorm=True,
             rotary_dim=c["head_dim"], shared_intermediate_size=0, shared_moe_mode="sigmoid")
    for new, old in (("full_attention", "full_attn"), ("linear_attention", "linear_attn"), ("mlp", "mlp")):
        for part in "alpha", "beta":
            c[f"layernorm_{new}_{part}"] = c.pop(f"{old}_{part}_factor")
    return t, c


def as_ling_1(t, c):
    """The names and keys of Ling's repositories."""
    out = {}
    for name, v in t.items():
        layer, _, part = name.partition(".block_sparse_moe.experts.")
        layer = layer if part else ".".join(name.split(".")[:3])
        if part:
            for e, x in enumerate(v):
                parts = zip(("gate_proj", "up_proj"), x.chunk(2)) if part == "gate_up_proj" else [("down_proj", x)]
                out |= {f"{layer}.mlp.experts.{e}.{word}.weight": y for word, y in parts}
        elif "shared_mlp.input_linear" in name:
            out[f"{layer}.mlp.shared_experts.gate_proj.weight"], out[f"{layer}.mlp.shared_experts.up_proj.weight"] = v.chunk(2)
        elif ".q_proj" in name:
            out[f"{layer}.attention.query_key_value.weight"] = torch.cat([t[name.replace("q_proj", f"{k}_proj")] for k in "qkv"])
        elif ".k_proj" not in name and ".v_proj" not in name:
            out[name] = v
    keys = ("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size", "hidden_act",
            "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "tie_word_embeddings", "max_position_embeddings", "rope_theta")
    c = {k: c[k] for k in keys} | dict(
        model_type="bailing_moe", intermediate_size=128, moe_intermediate_size=c["intermediate_size"], num_experts=c["num_local_experts"],
        num_shared_experts=2, num_experts_per_tok=c["num_experts_per_tok"], norm_topk_prob=True, first_k_dense_replace=0, use_bias=False,
        use_qkv_bias=False, norm_head=False)
    return renamed(out, [
        ("self_attn.o_proj", "attention.dense"), ("embed_tokens", "word_embeddings"), ("block_sparse_moe.router", "mlp.gate"),
        ("shared_mlp.output_linear", "mlp.shared_experts.down_proj"),
    ]), c


DEEPSEEK = dict(moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, routed_scaling_factor=1.0)


class Nothing(torch.nn.Module):
    """A sublayer that adds nothing; attention returns weights as well."""

    def __init__(self, attends):
        super().__init__()
        self.attends = attends

    def forward(self, x=None, hidden_states=None, **how):
        zeros = torch.zeros_like(hidden_states if x is None else x)
        return (zeros, None) if self.attends else zeros


def random_layer(layer):
    for p in layer.parameters():
        p.data = torch.randn_like(p) * 0.1 + 1 if p.dim() == 1 else torch.randn_like(p) * 0.15


# heads that share a key-value head, or no attention; the factor of the MLP's width, or no MLP
BLOCKS = [(2, 1.3), (None, 7.0), (4, None), (8, 2.0), (1, 6.5)]


def with_blocks(model):
    """Layers of different sizes, or without a part (Puzzle, arXiv 2411.19146)."""
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    for i, (each, mult) in enumerate(BLOCKS):
        c = copy.deepcopy(model.config)
        c.num_key_value_heads = c.num_attention_heads // (each or 1)
        c.intermediate_size = -(-int(2 * (mult or 1) * c.hidden_size / 3) // 256) * 256
        layer = model.model.layers[i] = LlamaDecoderLayer(c, i).eval()
        random_layer(layer)
        if each is None:
            layer.self_attn, layer.input_layernorm = Nothing(True), torch.nn.Identity()
        if mult is None:
            layer.mlp, layer.post_attention_layernorm = Nothing(False), torch.nn.Identity()


def as_nemotron_nas(t, c):
    blocks = [dict(attention=dict(n_heads_in_group=each, no_op=each is None, replace_with_linear=False),
                   ffn=dict(ffn_mult=mult, no_op=mult is None, replace_with_linear=False)) for each, mult in BLOCKS]
    return t, dict(c, model_type="nemotron-nas", block_configs=blocks, num_key_value_heads=None, intermediate_size=None)


# heads, key-value heads, width of the MLP as a factor
ELM_LAYERS = [(4, 2, 0.5), (12, 4, 1.7), (8, 2, 3.1)]


def with_layers(model):
    """OpenELM's layers (arXiv 2404.14619), whose heads and widths differ."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer
    for i, (heads, kv_heads, factor) in enumerate(ELM_LAYERS):
        c = copy.deepcopy(model.config)
        c.num_attention_heads, c.num_key_value_heads = heads, kv_heads
        c.intermediate_size = max(16, int(factor * c.hidden_size + 8) // 16 * 16)
        model.model.layers[i] = Qwen3DecoderLayer(c, i).eval()
        random_layer(model.model.layers[i])


def as_openelm(t, c):
    for i in range(3):
        at = f"model.layers.{i}."
        t[at + "attn.qkv_proj.weight"] = torch.cat([t.pop(f"{at}self_attn.{p}_proj.weight") for p in "qkv"])
        t[at + "ffn.proj_1.weight"] = torch.cat([t.pop(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")])
    t = renamed(t, [("self_attn.o_proj", "attn.out_proj"), ("self_attn.", "attn."), ("mlp.down_proj", "ffn.proj_2"),
                    ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
                    ("embed_tokens", "token_embeddings"), ("model.", "transformer.")])
    heads, kv_heads, factors = (list(x) for x in zip(*ELM_LAYERS))
    return t, dict(model_type="openelm", model_dim=c["hidden_size"], num_transformer_layers=3, head_dim=16, vocab_size=c["vocab_size"],
                   max_context_length=512, rope_freq_constant=10000, num_query_heads=heads, num_kv_heads=kv_heads, ffn_multipliers=factors,
                   ffn_dim_divisor=16, ffn_with_glu=True, activation_fn_name="swish", normalization_layer_name="rms_norm",
                   normalize_qk_projections=True, share_input_output_layers=True, torch_dtype="float32")


def with_deepseek(model):
    """All layers but the first have DeepSeek-V2's experts: softmax scores, not normalised, and shared experts."""
    from transformers import DeepseekV2Config
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
    for layer in model.model.layers[1:]:
        layer.mlp = DeepseekV2Moe(DeepseekV2Config(hidden_size=model.config.hidden_size, hidden_act="silu", topk_method="greedy", **DEEPSEEK))
        for p in layer.mlp.parameters():
            p.data = torch.randn_like(p) * 0.15


def as_deepseek(t, c):
    """The names and keys of DeepSeek's first repository."""
    for i in range(1, c["num_hidden_layers"]):
        experts_apart(t, i, "mlp", ("gate_proj", "up_proj", "down_proj"))
    return t, dict(c, model_type="deepseek", **DEEPSEEK, first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False, scoring_func="softmax")


def as_mimo(t, c):
    """The names and keys of Xiaomi's repository, where a window does not count the token itself."""
    for i, kind in enumerate(c["mlp_layer_types"]):
        if kind == "sparse":
            experts_apart(t, i, "mlp", ("gate_proj", "up_proj", "down_proj"))
    c = dict(c, hybrid_layer_pattern=[int(k == "sliding_attention") for k in c.pop("layer_types")],
             moe_layer_freq=[int(k == "sparse") for k in c.pop("mlp_layer_types")], layernorm_epsilon=c.pop("rms_norm_eps"),
             sliding_window_size=c["sliding_window"] - 1, swa_num_key_value_heads=2 * c["num_key_value_heads"],
             swa_num_attention_heads=c["num_attention_heads"], swa_head_dim=c["head_dim"], swa_v_head_dim=c["v_head_dim"],
             n_shared_experts=None, routed_scaling_factor=None, scoring_func="sigmoid", topk_method="noaux_tc",
             add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False)
    c["sliding_window"] -= 1
    return renamed(t, [("self_attn.sinks", "self_attn.attention_sink_bias")]), c


def as_olmo_hybrid(t, c):
    """The names of the hub, and convolutions as they are: transformers saves three of equal size."""
    k = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    out = {}
    for name, v in t.items():
        if name.endswith("conv1d.weight"):
            for kind, part in zip("qkv", v.split([k, k, len(v) - 2 * k])):
                out[name.replace("conv1d", f"{kind}_conv1d")] = part
        else:
            linear = ".layers." in name and c["layer_types"][int(name.split(".")[2])] == "linear_attention"
            name = name.replace("input_layernorm", "attention_layer_norm")
            out[name.replace("post_attention_layernorm", "feedforward_layer_norm") if linear else name] = v
    return out, c


def with_bitnet(linear, mode):
    """transformers' own linear layers of BitNet. Activations stay exact: rounded ones that differ in the last bit of fp32 would
    round to other numbers of 8 bits."""
    def replace(model):
        import transformers.integrations.bitnet as bitnet
        from transformers import BitNetQuantConfig
        torch._dynamo.config.disable = True
        bitnet.ActQuant.apply = staticmethod(lambda x: x)
        bitnet.BitLinear.activation_quant = lambda self, x: (x, 1.0)
        old = {n: m.weight.data for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"}
        bitnet.replace_with_bitnet_linear(model, ["lm_head"], BitNetQuantConfig(linear_class=linear, quantization_mode=mode))
        for name, w in old.items():
            module, mean = model.get_submodule(name), w.abs().mean()
            if mode == "online":
                module.weight = torch.nn.Parameter(w)
                continue
            codes = (w / mean).round().clamp(-1, 1)
            scale = (mean if linear == "autobitlinear" else 1 / mean).bfloat16().float().reshape(1)
            module.weight_scale = torch.nn.Buffer(scale)
            if linear == "autobitlinear":
                module.weight = torch.nn.Parameter(codes)
            else:
                module.weight, module.dtype = torch.nn.Buffer(bitnet.pack_weights(codes)), torch.float32

    return replace


def as_bitnet(linear, mode):
    def stored(t, c):
        from transformers.integrations.bitnet import pack_weights
        for name in [n for n in t if n.replace("weight", "weight_scale") in t and t[n].dtype != torch.uint8]:
            t[name] = pack_weights(t[name].clone())
        return t, c | {"quantization_config": dict(quant_method="bitnet", linear_class=linear, quantization_mode=mode)}

    return stored


def as_phi4(t, c):
    """Without towers."""
    return {k: v for k, v in t.items() if "embed_tokens_extend" not in k}, {k: v for k, v in c.items() if k != "audio_config"}


def as_phi4mm(t, c):
    """The names of Microsoft's repository: adapters of pictures and of sound are beside matrices, and off for texts."""
    t, c = as_phi4(t, c)
    for name in [n for n in t if n.endswith("_proj.weight")]:
        w = t.pop(name)
        t[name.replace("_proj.", "_proj.base_layer.")] = w
        for kind in ("vision", "speech"):
            t[name.replace("weight", f"lora_A.{kind}.weight")] = torch.randn(4, w.shape[1])
            t[name.replace("weight", f"lora_B.{kind}.weight")] = torch.randn(w.shape[0], 4)
    return t, {k: v for k, v in c.items() if k != "vision_config"} | dict(model_type="phi4mm", partial_rotary_factor=0.75)


def as_step3p5(t, c):
    """The keys of StepFun's repository, and its names without a tower; the lists have an entry of a draft layer."""
    c, kinds, types = dict(c["text_config"]), c["text_config"]["layer_types"], c["text_config"]["mlp_layer_types"]
    rope = c.pop("rope_parameters")
    each = [rope[k] for k in kinds]
    c |= dict(
        rope_theta=[r["rope_theta"] for r in each] + [1e4], partial_rotary_factors=[r.get("partial_rotary_factor", 1.0) for r in each] + [1.0],
        rope_scaling={k: v for k, v in rope["full_attention"].items() if k not in ("rope_theta", "partial_rotary_factor")},
        attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=c.pop("num_sliding_attention_heads"),
                                     num_attention_groups=c["num_key_value_heads"], head_dim=c["head_dim"]),
        num_attention_groups=c.pop("num_key_value_heads"), moe_num_experts=c.pop("n_routed_experts"), moe_top_k=c.pop("num_experts_per_tok"),
        moe_layers_enum=",".join(str(i) for i, k in enumerate(types) if k == "sparse"), swiglu_limits_shared=c["swiglu_limits_shared"] + [0.0],
        layer_types=kinds + ["sliding_attention"], num_nextn_predict_layers=1, use_moe_router_bias=True, need_fp32_gate=True, sink=False,
        use_head_wise_attn_gate=True, yarn_only_types=["full_attention"], torch_dtype="float32",
    )
    for key in "per_layer_config", "mlp_layer_types", "num_local_experts", "dtype":
        c.pop(key, None)
    return {}, c


def as_dory(t, c):
    """The files of NVIDIA's repository: attention and MLP are layers of their own."""
    def name(k):
        if not k.startswith("model.layers."):
            return k.replace("model.embed_tokens.", "backbone.embeddings.")
        i, part = k.split(".", 3)[2:]
        part = {"lambda_1": "attn_alpha", "lambda_2": "mlp_alpha"}.get(part, part)
        own = part.replace("self_attn.gate_proj", "mixer.g_proj").replace("self_attn.", "mixer.").replace("mlp.", "mixer.")
        return f"backbone.layers.{2 * int(i) + part.startswith('mlp')}.{own}"
    return {name(k): v for k, v in t.items()}, c


def as_rwkv7_joined(t, c):
    """Earlier files of flash-linear-attention: the six mixes of a layer in one tensor."""
    mixes = {k: torch.cat([t.pop(f"{k}.x_{what}") for what in "rwkvag"]).reshape(6, -1)
             for k in sorted({k.rsplit(".", 1)[0] for k in t if k.endswith(".attn.x_r")})}
    return t | {f"{k}.x_x": x for k, x in mixes.items()}, c


def as_hunyuan_ocr(t, c):
    """The older files: the keys of the text model beside those of the tower."""
    return {}, {k: v for k, v in c["text_config"].items() if k != "head_dim"} | dict(
        model_type="hunyuan_vl", tie_word_embeddings=True, attention_head_dim=c["text_config"]["head_dim"], vision_config=c["vision_config"])


def as_ernie_vl(t, c):
    """The keys of Baidu's repository, whose lists have a number of texts and one of pictures."""
    c = dict(c["text_config"])
    c |= dict(model_type="ernie4_5_moe_vl", torch_dtype="float32", moe_num_experts=[c["moe_num_experts"]] * 2, moe_layer_start_index=[1, 1],
              moe_layer_end_index=[29, 28], moe_layer_interval=1, moe_gate="topk", moe_use_aux_free=True, rope_theta=c["rope_parameters"]["rope_theta"],
              rope_scaling={"rope_type": "ernie_3d", "freq_allocation": 2}, rope_3d=True, freq_allocation=2, tie_word_embeddings=True)
    for key in "rope_parameters", "dtype", "mlp_layer_types", "head_dim", "moe_norm_min":
        c.pop(key, None)
    return {}, c


AS = {"ernie4_5_vl_hub": as_ernie_vl, "step3p5": as_step3p5, "hunyuan_ocr": as_hunyuan_ocr, "rwkv7_joined": as_rwkv7_joined, "dory": as_dory, "nemotron_nas": as_nemotron_nas, "openelm": as_openelm, "phi4_multimodal": as_phi4, "phi4mm": as_phi4mm, "bitnet_online": as_bitnet("autobitlinear", "online"), "bitnet_packed": as_bitnet("autobitlinear", "offline"),
      "bitlinear": as_bitnet("bitlinear", "offline"), "olmo_hybrid": as_olmo_hybrid, "mimo_v2_flash_hub": as_mimo, "ling_1": as_ling_1, "deepseek_moe": as_deepseek, "minimax_text_01": as_minimax_text_01, "kimi_linear_hub": as_kimi, "minimax_m3_hub": as_minimax_m3, "hy_v4_three": lambda t, c: (t, c), "deepseek_v4_two": lambda t, c: (t, c), "axk2_light": lambda t, c: (t, c), "bailing_hybrid": as_ling_caps, "bailing_hybrid_hub": as_ling_3, "bailing_moe": as_bailing, "internlm": as_internlm, "internlm2": as_internlm2, "internlm3": as_internlm3, "minicpm": as_minicpm, "chatglm": as_chatglm, "exaone": as_exaone,
      "baichuan": as_baichuan, "baichuan2": as_baichuan2, "baichuan_13b": as_baichuan_13b, "qwen": as_qwen, "mimo": as_mimo_7b, "pangu_embedded": as_pangu, "orion": as_orion,
      "teleflm": as_teleflm, "maincoder": as_maincoder, "jais": as_jais, "codeshell": as_codeshell, "telechat": as_telechat, "telechat_kv": as_telechat,
      "deci": as_deci, "kormo": as_kormo, "mobilellm": as_mobilellm, "ouro": as_ouro, "hrm_text_apart": as_hrm_text, "nanbeige": as_nanbeige(True), "nanbeige_unnormed": as_nanbeige(False), "spark2_5": as_spark, "smallthinker": as_smallthinker(False), "smallthinker_softmax": as_smallthinker(True), "plamo3": as_plamo3, "plamo3_yarn": lambda t, c: as_plamo3(t, c, 4.0)}
WITH = {"bailing_hybrid": with_ling_caps, "bailing_hybrid_hub": with_ling_caps, "nemotron_nas": with_blocks, "openelm": with_layers, "bitnet_online": with_bitnet("autobitlinear", "online"), "bitnet_packed": with_bitnet("autobitlinear", "offline"),
        "bitlinear": with_bitnet("bitlinear", "offline"), "baichuan2": with_unit_head, "baichuan_13b": with_alibi,
        "deepseek_moe": with_deepseek, "jais": with_jais, "telechat": with_telechat, "telechat_kv": with_telechat,
        "deci": with_kv_heads, "ouro": with_turns, "nanbeige": with_loops(True), "nanbeige_unnormed": with_loops(False), "spark2_5": with_head_gates, "smallthinker": with_early(False), "smallthinker_softmax": with_early(True), "plamo3_yarn": with_untruncated}


SMALL = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)
# Text models that only files of models with vision have: the names of their classes, and small towers.
WITHIN = {
    "ernie4_5_vl_moe_text": ("Ernie4_5_VLMoe", dict(image_token_id=300, image_start_token_id=301, image_end_token_id=302, video_token_id=303,
        video_start_token_id=304, video_end_token_id=305, vision_config=dict(SMALL, depth=2, num_heads=2))),
    "glm5_next_text": ("Glm5Next", dict(image_token_id=300, video_token_id=301, vision_config=dict(
        depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=64, projection_intermediate_size=16, patch_size=4,
        image_size=16))),
    "step3p5": ("Step3p7", dict(image_token_id=300, vision_config=dict(SMALL, image_size=28, patch_size=14))),
    "hunyuan_vl_text": ("HunYuanVL", dict(image_token_id=300, im_start_id=301, im_end_id=302, im_newline_id=303, vision_config=dict(
        SMALL, out_hidden_size=64, text_hidden_size=64, max_image_size=64, img_max_token_num=16))),
    "hy_v4_vl_text": ("HYV4VL", dict(image_token_id=300, video_token_id=301, vision_config=dict(SMALL, out_hidden_size=64, max_image_size=64))),
    "granite4_vision_text": ("Granite4Vision", dict(image_token_id=300, deepstack_layer_map=[[0, 0]], downsample_rate="1/2", vision_config=dict(
        SMALL, hidden_size=64, model_type="clip_vision_model", image_size=28, patch_size=14))),
    "muse_glimmer_text": ("MuseGlimmer", dict(image_token_id=400, video_token_id=401, out_hidden_size=16, projector_hidden_size=16, vision_config=dict(
        SMALL, pos_emb_height=4, pos_emb_width=4, max_position_embeddings=16))),
    "granite_docling_text": ("GraniteDocling", dict(image_token_id=300, vision_config=dict(SMALL, out_hidden_size=64, image_size=32, patch_size=16))),
    "cosmos3_edge_text": ("Cosmos3Edge", dict(image_token_id=300, video_token_id=301, vision_config=dict(SMALL))),
    "molmo2_text": ("Molmo2", dict(image_token_id=300, vision_config=dict(SMALL, head_dim=8, num_key_value_heads=2, image_size=[28, 28]), adapter_config=dict(
        hidden_size=16, num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=16, text_hidden_size=64, vit_layers=[0, 1]))),
}


def as_stored_mxfp4(model):
    for name, p in model.named_parameters():
        p.data = to_mxfp4(p.data)[2] if name.endswith(("gate_up_proj", "down_proj")) else p.data.bfloat16().float()


def prompts(seed):
    g = torch.Generator().manual_seed(seed)
    for name, n in ("short", 5), ("forty", 40), ("long", 96):
        yield name, [1] + torch.randint(3, 320, (n - 1,), generator=g).tolist()


@torch.no_grad()
def golden(model, ids, n_greedy=32, cached=True):
    logits = model(torch.tensor([ids])).logits[0].float()
    lp = torch.log_softmax(logits.double(), -1)
    out = {
        "ids": ids,
        "last_logits": [round(x, 6) for x in logits[-1].tolist()],
        "prompt_logprobs": [None] + [lp[i, t].item() for i, t in enumerate(ids[1:])],
    }
    past = model(torch.tensor([ids]), use_cache=True)
    greedy, margin = [], 9e9
    for _ in range(n_greedy):
        top = past.logits[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
        name = "cache" if "cache" in past else "past_key_values"  # since transformers 5.24, before
        cache = past.get(name) if cached else None  # without one: all of it again
        new = [[greedy[-1]]] if cache else [ids + greedy]
        past = model(torch.tensor(new), **{name: cache}, use_cache=True) if cache else model(torch.tensor(new))
    return out | {"greedy_ids": greedy, "greedy_min_margin": margin}


def make(name, overrides, out):
    few = overrides["model_type"] in ("gpt2", "gpt_neo", "dbrx", "mpt", "codegen", "openai-gpt", "xglm", "ctrl")  # keys of their own
    keys = dict(vocab_size=320, bos_token_id=1, eos_token_id=2) if few else dict(COMMON)
    keys.update(overrides)
    kind = keys.pop("model_type")
    config = AutoConfig.for_model(kind, **keys)
    # as text models these are not among those that are found by their type
    apart = {"mistral4": Mistral4ForCausalLM, "emu3_text_model": Emu3ForCausalLM, "chameleon": transformers.ChameleonForConditionalGeneration}
    from_config = apart[kind]._from_config if kind in apart else AutoModelForCausalLM.from_config
    if kind in WITHIN:
        whole, more = WITHIN[kind]
        config = getattr(transformers, whole + "Config")(text_config=config.to_dict(), **more)
        from_config = getattr(transformers, whole + "ForConditionalGeneration")._from_config
    for seed in range(100):  # a seed whose greedy choices are no coin tosses
        torch.manual_seed(seed)
        model = from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        for n, p in model.named_parameters():
            spread = next((v for k, v in SPREAD.items() if n.endswith(k)), 0.1 if p.dim() == 1 else 0.15)
            p.data = p.data + torch.randn_like(p) * spread
        for n, b in model.named_buffers():
            if n.endswith("tid2eid"):
                b.copy_(torch.rand(len(b), model.config.n_routed_experts).argsort(-1)[:, : b.shape[1]])
            if n.endswith(("e_score_correction_bias", "expert_bias")):
                b += torch.randn_like(b) * 0.1
            if n.endswith("balancing_biases"):  # without the -1 that keeps the expert without weights from being chosen
                b.copy_(torch.randn_like(b) * 0.1)
        if name.endswith("mxfp4"):
            as_stored_mxfp4(model)
        if name.endswith("fp8"):
            as_stored_fp8(model)
        if name in WITH:
            WITH[name](model)
        # Mamba's cache has another name; with Bamba's, transformers 5.23 generates other tokens than without, and 5.24 with that of
        # MiniMax whose first layer is linear
        cached = name.removesuffix("_in_memory") not in ("rwkv7", "rwkv7_tied", "rwkv7_joined", "minimax_text_01", "mamba2", "bamba", "mamba", "falcon_mamba", "jamba", "jais", "zamba", "zamba_listed", "baichuan_13b", "zamba2", "zamba2_blocks", "zamba_untied", "recurrent_gemma", "nemotron_nas") and not name.startswith("falcon_h1")
        result = {n: golden(model, ids, cached=cached) for n, ids in prompts(seed)}
        if min(p["greedy_min_margin"] for p in result.values()) > 0.002:
            break
    model.save_pretrained(out, save_original_format=not name.endswith("_in_memory"))
    v5 = json.load(open(f"{out}/config.json"))
    if "in_first" in name:
        store_in_first(model, out)
    if name.endswith("fp8"):
        v5 |= store_fp8(out)
    if name.endswith("mxfp4"):
        store_mxfp4(model, out)
        v5 |= {"dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    hub = hub_keys(v5)
    if name in AS:
        t, hub = AS[name]({k: v.contiguous() for k, v in model.state_dict().items()
                           if not (v5.get("tie_word_embeddings") and k == "lm_head.weight")}, hub)
        if t:
            save_file({k: v.contiguous() for k, v in t.items()}, f"{out}/model.safetensors", {"format": "pt"})
        v5 = hub
    json.dump(v5, open(f"{out}/config.v5.json", "w"), indent=1)
    json.dump(hub, open(f"{out}/config.json", "w"), indent=1)
    json.dump({"name": name, "seed": seed, "prompts": result}, open(f"{out}/golden.json", "w"))
    print(f"{name}: seed {seed}")


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        folder = f"build/golden/arch/{name}"
        os.makedirs(folder, exist_ok=True)
        make(name, CASES[name], folder)
