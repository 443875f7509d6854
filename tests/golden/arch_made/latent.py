"""Latent attention, and attention to tokens or entries that an indexer chooses."""

from .base import THETA, DSA, experts_apart

DOTS3 = dict(
    num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, head_dim=16, index_n_heads=20,
    index_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, shared_experts_intermediate_size=24, n_group=2, topk_group=1,
    routed_scaling_factor=1.8, swa_num_attention_heads=4, swa_num_key_value_heads=4, swa_q_lora_rank=20, swa_kv_lora_rank=32, swa_head_dim=36,
    swa_qk_nope_head_dim=24, swa_v_head_dim=20,
)

CASES = {
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
    "dots3_note": dict(
        model_type="dots3_note_text", num_hidden_layers=5, index_topk=20, sliding_window=20, **DOTS3,
        layer_types=["indexed_attention", "sliding_attention", "indexed_attention", "sliding_attention", "full_attention"]),
    "dots3_note_hub": dict(model_type="dots3_note_text", num_hidden_layers=4, index_topk=200, sliding_window=16, norm_topk_prob=False, **DOTS3),
    "longcat_flash": dict(
        model_type="longcat_flash", num_layers=2, num_hidden_layers=4, num_key_value_heads=8, ffn_hidden_size=96, q_lora_rank=24,
        kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=8, v_head_dim=16, moe_topk=3, n_routed_experts=8,
        zero_expert_num=4, expert_ffn_hidden_size=32, routed_scaling_factor=1.8, rope_parameters=THETA,
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
    "axk1": dict(
        model_type="axk1", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=1, moe_intermediate_size=32,
        mlp_layer_types=["dense", "sparse", "sparse"], norm_topk_prob=True, routed_scaling_factor=1.8, rope_parameters=THETA,
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
    "sarvam_mla": dict(
        model_type="sarvam_mla", num_key_value_heads=8, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
        head_dim=8, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1,
        routed_scaling_factor=1.8, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0,
            beta_fast=32.0, beta_slow=1.0,
        ),
    ),
}


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


def as_dots3(t, c):
    """The keys of the repository, whose text model is that of the file; layers with an indexer are called full."""
    own = {f"swa_{k}": v for k, v in next(iter(c.pop("per_layer_config").values())).items()}
    for key in "rope_parameters", "mlp_layer_types", "dtype":
        c.pop(key, None)
    c["layer_types"] = ["full_attention" if k == "indexed_attention" else k for k in c["layer_types"]]
    c["moe_shared_expert_intermediate_size"] = c.pop("shared_experts_intermediate_size")
    return t, c | own | dict(model_type="dots3_note", use_dsa=True, first_k_dense_replace=1, moe_layer_freq=1, rope_theta=8e7, swa_rope_theta=5e4,
                             sliding_window_size=c.pop("sliding_window"), torch_dtype="float32")


AS = {
    "dots3_note_hub": as_dots3,
    "hy_v4_three": lambda t, c: (t, c), "deepseek_v4_two": lambda t, c: (t, c), "axk2_light": lambda t, c: (t, c),
    "minimax_m3_hub": as_minimax_m3,
}
