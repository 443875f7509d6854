"""What llama.cpp's convert_hf_to_gguf.py writes for a family beside what all have: a function of the writer and the config for each."""

import gguf
import numpy as np
from gguf_keys_latent import deepseek_experts, yarn
from gguf_tensors import kv_heads


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


def granite(w, c):
    w.add_embedding_scale(c["embedding_multiplier"])
    w.add_residual_scale(c["residual_multiplier"])
    w.add_attention_scale(c["attention_multiplier"])
    w.add_logit_scale(c["logits_scaling"])


def granitemoe(w, c):
    granite(w, c)
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


def gpt_oss(w, c):
    yarn(w, c["rope_scaling"])
    w.add_sliding_window(c["sliding_window"])
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["intermediate_size"])


def orion(w, c):
    w.add_layer_norm_eps(c["rms_norm_eps"])


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


def attention_only(w, c, kinds, *words):
    w.add_head_count_kv([c["num_key_value_heads"] if k in words else 0 for k in kinds])


def granite_hybrid(w, c):
    granitemoe(w, c)
    attention_only(w, c, c["layer_types"], "attention", "full_attention")  # transformers 4 and 5
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
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_leading_dense_block_count(c.get("first_k_dense_replace", (c.get("mlp_layer_types") or []).count("dense")))
    if (groups := c.get("num_expert_group") or c.get("n_group") or 1) > 1:
        w.add_expert_group_count(groups)
        w.add_expert_group_used_count(c["topk_group"])


def bailing3(w, c):
    """Kimi Linear's words; caps of each layer, and decays with a floor."""
    kimi_linear(w, c)
    w.add_bool("bailingmoe3.kda.safe_gate", True)
    w.add_float32("bailingmoe3.kda.gate_lower_bound", c.get("kda_lower_bound", -5.0))
    for key, to in ("expert_swiglu_limit_list", "exp"), ("share_expert_swiglu_limit_list", "shexp"):
        if c.get(key):
            w.add_array(f"bailingmoe3.swiglu_clamp_{to}", [float(v or 0) for v in c[key]])


def rwkv7(w, c):
    w.add_head_count(0)
    w.add_layer_norm_eps(c["norm_eps"])
    w.add_wkv_head_size(c["head_dim"])
    w.add_decay_lora_rank(c["decay_low_rank_dim"])
    w.add_iclr_lora_rank(c["a_low_rank_dim"])
    w.add_value_residual_mix_lora_rank(c["v_low_rank_dim"])
    w.add_gate_lora_rank(c["gate_low_rank_dim"])


def mamba1(w, c):
    w.add_head_count(0)
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    w.add_ssm_time_step_rank(c["time_step_rank"])
    w.add_ssm_inner_size(c["intermediate_size"])
    w.add_ssm_state_size(c["state_size"])
    w.add_ssm_conv_kernel(c["conv_kernel"])
    w.add_ssm_dt_b_c_rms(c["model_type"] == "falcon_mamba")


def maple(w, c):
    experts(w, c)
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_rope_dimension_count(int(c["head_dim"] * c["partial_rotary_factor"]))
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    w.add_array("maple.swiglu_clamp_exp", [c["swiglu_limit"]] * c["num_hidden_layers"])


def plm(w, c):
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_key_length(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length(c["v_head_dim"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])


def plamo2(w, c):
    n, step = c["num_hidden_layers"], c["mamba_step"]
    attends = [i == n - 1 if n <= step // 2 else i % step == step // 2 for i in range(n)]
    for add, key in (w.add_head_count, "num_attention_heads"), (w.add_head_count_kv, "num_key_value_heads"):
        add([c[key] if a else 0 for a in attends])
    for add in w.add_key_length, w.add_value_length, w.add_rope_dimension_count:
        add(c["hidden_size_per_head"])
    w.add_ssm_state_size(c["mamba_d_state"])
    w.add_ssm_conv_kernel(c["mamba_d_conv"])
    w.add_ssm_time_step_rank(c["mamba_num_heads"])
    w.add_ssm_inner_size(c["mamba_num_heads"] * c["hidden_size_per_head"])
    w.add_ssm_group_count(0)


def plamo3(w, c):
    w.add_sliding_window(c["window_size"])
    w.add_sliding_window_pattern(c["sliding_window_pattern"])
    w.add_rope_freq_base_swa(c["rope_local_theta"])
    if c["rope_scaling_factor"] != 1:
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(c["rope_scaling_factor"])
        w.add_rope_scaling_orig_ctx_len(c["initial_context_length"])


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


def vl(w, c):
    """The rotation is by three positions, which are one and the same in a text."""
    w.add_rope_dimension_sections([4, 2, 2, 0])
    if "num_experts" in c:
        experts(w, c)
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])


def windows(w, c):
    """Layers with a window, and the base of their rotation."""
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    theta = c.get("swa_rope_theta") or c.get("rope_local_base_freq")
    if theta:
        w.add_rope_freq_base_swa(theta)


def mellum(w, c):
    w.add_expert_count(c.get("num_experts") or c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    windows(w, c)
    yarn(w, c["rope_scaling"])


def smallthinker(w, c):
    w.add_expert_count(c["moe_num_primary_experts"])
    w.add_expert_used_count(c["moe_num_active_primary_experts"])
    w.add_expert_feed_forward_length(c["moe_ffn_hidden_size"])
    softmax = c["moe_primary_router_apply_softmax"]
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if softmax else gguf.ExpertGatingFuncType.SIGMOID)
    if any(c["sliding_window_layout"]):
        w.add_sliding_window(c["sliding_window_size"])


def step35(w, c):
    """As the repository writes its config.json: lists of heads, and of widths' bounds; a rotation of each kind of layer."""
    n, other = c["num_hidden_layers"], c["attention_other_setting"]
    kinds = [t == "sliding_attention" for t in c["layer_types"]][:n]
    w.add_head_count([other["num_attention_heads"] if k else c["num_attention_heads"] for k in kinds])
    w.add_head_count_kv([c["num_attention_groups"]] * n)
    w.add_rope_freq_base(c["rope_theta"][0])
    w.add_rope_freq_base_swa(c["rope_theta"][1])
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern(kinds)
    w.add_expert_count(c["moe_num_experts"])
    w.add_expert_used_count(c["moe_top_k"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_feed_forward_length(c["share_expert_dim"])
    w.add_expert_weights_scale(c["moe_router_scaling_factor"])
    w.add_array("step35.swiglu_clamp_shexp", [float(v) for v in c["swiglu_limits_shared"][:n]])


def muse_glimmer(w, c):
    windows(w, c)
    w.add_final_logit_softcapping(c["final_logit_softcapping"])
    w.add_logit_scale(c["output_multiplier"])


def nanbeige(w, c):
    w.add_uint32("nanbeige.num_loops", c["num_loops"])
    w.add_bool("nanbeige.skip_loop_final_norm", c["skip_loop_final_norm"])


def spark(w, c):
    rope = c["rope_parameters"]
    windows(w, c)
    w.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    w.add_rope_dimension_count(int(c["head_dim"] * rope["full_attention"]["partial_rotary_factor"]))
    w.add_rope_dimension_count_swa(int(c["head_dim"] * rope["sliding_attention"]["partial_rotary_factor"]))


def jais(w, c):
    w.add_max_alibi_bias(8.0)


def laguna(w, c):
    mellum(w, c)
    dim = c["head_dim"]
    w.add_head_count(c["num_attention_heads_per_layer"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    w.add_expert_weights_norm(True)
    w.add_expert_weights_scale(c["moe_routed_scaling_factor"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_leading_dense_block_count(c["mlp_layer_types"].index("sparse"))
    w.add_rope_dimension_count(int(dim * c["partial_rotary_factor"]))
    w.add_rope_dimension_count_swa(dim)


def mimo2(w, c):
    """What the repository's config has for each kind of layer, as one list for all."""
    w.add_block_count(c["num_hidden_layers"])
    slides = c.get("hybrid_layer_pattern") or [t == "sliding_attention" for t in c["layer_types"]]
    kv = c["num_key_value_heads"]
    w.add_head_count_kv([c.get("swa_num_key_value_heads", 2 * kv) if s else kv for s in slides])
    w.add_sliding_window(c.get("sliding_window_size", c["sliding_window"] - 1))
    w.add_sliding_window_pattern([bool(s) for s in slides])
    w.add_rope_freq_base_swa(c["swa_rope_theta"])
    w.add_value_length(c["v_head_dim"])
    w.add_layer_norm_rms_eps(c.get("layernorm_epsilon") or c["rms_norm_eps"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_group_count(c["n_group"])
    w.add_expert_group_used_count(c["topk_group"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c["routed_scaling_factor"] or 1.0)
    if c.get("attention_value_scale") is not None:
        w.add_float32("mimo2.attention.value_scale", c["attention_value_scale"])


def minimax_01(w, c):
    w.add_residual_scale(c["layernorm_mlp_alpha"])
    w.add_rope_dimension_count(c["rotary_dim"])
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])


def cohere2_moe(w, c):
    cohere2(w, c)
    windows(w, c)
    experts(w, c)
    w.add_layer_norm_eps(c["layer_norm_eps"])
    w.add_feed_forward_length(c["prefix_dense_intermediate_size"])
    w.add_expert_feed_forward_length(c["intermediate_size"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"] if "first_k_dense_replace" in c else c["mlp_layer_types"].count("dense"))
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_expert_shared_feed_forward_length(c["intermediate_size"] * c["num_shared_experts"])


def granite_swa(w, c):
    if "num_local_experts" in c:
        granitemoe(w, c)
    else:
        for add, key in (w.add_embedding_scale, "embedding"), (w.add_residual_scale, "residual"), (w.add_attention_scale, "attention"):
            add(c[f"{key}_multiplier"])
        w.add_logit_scale(c["logits_scaling"])
    windows(w, c)
    w.add_array("granite_swa.attention.rope_pattern", [theta != 0 for theta in c["layer_rope_theta"]])


def bailing(w, c):
    shared_experts(w, c)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)


def deepseek(w, c):
    w.add_block_count(c["num_hidden_layers"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_weights_scale(1.0)


def qwen(w, c):
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])


def dbrx(w, c):
    a, f = c["attn_config"], c["ffn_config"]
    w.add_feed_forward_length(f["ffn_hidden_size"])
    w.add_head_count_kv(a["kv_n_heads"])
    w.add_rope_freq_base(a["rope_theta"])
    w.add_clamp_kqv(a["clip_qkv"])
    w.add_expert_count(f["moe_num_experts"])
    w.add_expert_used_count(f["moe_top_k"])
    w.add_layer_norm_eps(1e-5)


def deci(w, c):
    """Lists of heads, 0 without attention, and of widths, 0 without MLP."""
    kv, widths = [], []
    for b in c["block_configs"]:
        kv.append(0 if b["attention"]["no_op"] else c["num_attention_heads"] // b["attention"]["n_heads_in_group"])
        wide = 0 if b["ffn"]["no_op"] else int(2 * b["ffn"]["ffn_mult"] * c["hidden_size"] / 3)
        widths.append(-(-wide // 256) * 256)
    w.add_head_count([c["num_attention_heads"] if n else 0 for n in kv])
    w.add_head_count_kv(kv)
    w.add_feed_forward_length(widths)


def openelm(w, c):
    unit = c["ffn_dim_divisor"]
    w.add_head_count_kv(c["num_kv_heads"])
    w.add_feed_forward_length([int(m * c["model_dim"] + unit / 2) // unit * unit for m in c["ffn_multipliers"]])
    w.add_layer_norm_rms_eps(1e-6)
