"""Metadata of models whose keys and values come from a latent vector, as llama.cpp's converter writes them."""

import gguf


def yarn(w, r):
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(r["factor"])
    w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_beta_fast(r["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(r["beta_slow"])


def yarn_of_latent(w, r):
    yarn(w, r)
    w.add_rope_scaling_yarn_log_mul(0.1 * r["mscale_all_dim"])


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
        yarn_of_latent(w, c["rope_scaling"])


def glm_dsa(w, c):
    deepseek_experts(w, c)
    w.add_block_count(c["num_hidden_layers"])
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_head_count_kv(1)
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_value_length(c["kv_lora_rank"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_indexer_head_count(c["index_n_heads"])
    w.add_indexer_key_length(c["index_head_dim"])
    w.add_indexer_top_k(c["index_topk"])


def deepseek32(w, c):
    glm_dsa(w, c)
    w.add_expert_group_count(c["n_group"])
    w.add_expert_group_used_count(c["topk_group"])
    yarn_of_latent(w, c["rope_scaling"])


def minicpm3(w, c):
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_key_length(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])


def mistral4(w, c):
    deepseek2(w, c, absorbed=True)
    w.add_float32("mistral4.attention.temperature_scale", c["rope_scaling"]["llama_4_scaling_beta"])
