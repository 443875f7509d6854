"""Layers with a recurrent state, alone or beside attention."""

import torch
from .base import THETA, experts_apart

CASES = {
    "inkling": dict(
        model_type="inkling_text", num_hidden_layers=4, head_dim=16, swa_num_attention_heads=4, swa_num_key_value_heads=4, swa_head_dim=24,
        sliding_window_size=20, d_rel=6, rel_extent=33, log_scaling_n_floor=24, log_scaling_alpha=0.6, conv_kernel_size=3,
        layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"], mlp_layer_types=["dense", "sparse", "sparse", "dense"],
        moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, route_scale=2.5, logits_mup_width_multiplier=0.3,
    ),
    # layers without a window first, between others and last; blocks of two layers, and of one
    "inkling2": dict(
        model_type="inkling2_text", unpadded_vocab_size=320, num_hidden_layers=5, n_layers_per_attn_res_block=2, head_dim=16,
        swa_num_attention_heads=4, swa_num_key_value_heads=4, swa_head_dim=24, sliding_window_size=20, d_rel=6, rel_extent=33, log_scaling_n_floor=24,
        log_scaling_alpha=0.6, conv_kernel_size=3, layer_types=["hybrid", "hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
        moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2, route_scale=2.5, qk_l2_clip_threshold=4.5, rel_l2_clip_threshold=2.0,
        final_logit_softcapping=6.0,
    ),
    "inkling2_mm": dict(
        model_type="inkling2_text", vocab_size=336, unpadded_vocab_size=320, num_hidden_layers=3, n_layers_per_attn_res_block=1, head_dim=24,
        swa_num_attention_heads=8, swa_num_key_value_heads=4, swa_head_dim=16, sliding_window_size=40, d_rel=4, rel_extent=200,
        layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding"], moe_intermediate_size=40, n_routed_experts=5, num_experts_per_tok=3,
        qk_l2_clip_threshold=6.0, rel_l2_clip_threshold=1.5, log_scaling_n_floor=50,
    ),
    # the names and keys of the repository, a vocabulary that is filled up
    "inkling_mm": dict(
        model_type="inkling_text", vocab_size=336, unpadded_vocab_size=320, head_dim=24, swa_num_attention_heads=8, swa_num_key_value_heads=4,
        swa_head_dim=16, sliding_window_size=40, d_rel=4, rel_extent=200, local_layer_ids=[0, 2], moe_intermediate_size=40, n_routed_experts=5,
        num_experts_per_tok=3, n_shared_experts=1, route_scale=1.5, logits_mup_width_multiplier=0.2, num_hidden_layers=3,
        mlp_layer_types=["dense", "sparse", "sparse"],
    ),
    "plamo2": dict(model_type="plamo2", num_hidden_layers=4, full_attention_idx=[3], tie_word_embeddings=True),
    "plamo2_few": dict(model_type="plamo2", num_hidden_layers=5, mamba_step=12, mamba_num_heads=4, mamba_d_state=16, mamba_d_conv=3, hidden_size_per_head=24,
                       num_key_value_heads=1, tie_word_embeddings=False, rms_norm_eps=1e-3),
    "rwkv7": dict(model_type="rwkv7", hidden_size=96, head_dim=8, hidden_ratio=3, intermediate_size=None, decay_low_rank_dim=12,
                  gate_low_rank_dim=20, a_low_rank_dim=9, v_low_rank_dim=7),
    "rwkv7_tied": dict(model_type="rwkv7", hidden_size=240, head_dim=40, intermediate_size=136, num_hidden_layers=2, norm_bias=False, norm_eps=1e-4,
                       a_low_rank_dim=16, tie_word_embeddings=True),
    "rwkv7_joined": dict(model_type="rwkv7", hidden_size=64, head_dim=16, intermediate_size=96, num_hidden_layers=2),
    "zamba": dict(model_type="zamba", num_hidden_layers=6, attn_layer_period=3, attn_layer_offset=1, hidden_size=128, n_mamba_heads=2,
                  mamba_d_state=8, mamba_dt_rank=6, num_key_value_heads=8),
    "zamba_listed": dict(model_type="zamba", num_hidden_layers=4, n_mamba_heads=4, mamba_d_state=8,
                         mamba_conv_bias=False, attention_head_dim=16, hidden_act="silu",
                         layers_block_type=["hybrid", "linear_attention", "linear_attention", "hybrid"]),
    "zamba_untied": dict(model_type="zamba", num_hidden_layers=5, n_mamba_heads=2, mamba_d_state=8, tie_word_embeddings=False,
                         layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]),
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
    "lfm2_moe": dict(
        model_type="lfm2_moe", num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], conv_bias=True,
        num_dense_layers=1, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, rope_parameters=THETA,
    ),
    "lfm3": dict(
        model_type="lfm3", head_dim=16, num_hidden_layers=6, sliding_window=20, conv_bias=True, attention_bias=True,
        layer_types=["conv", "conv", "full_attention", "conv", "sliding_attention", "sliding_attention"],
    ),
    "lfm3_plain": dict(
        model_type="lfm3", head_dim=8, num_hidden_layers=5, sliding_window=30, conv_L_cache=3, use_sandwich_norm=False,
        use_attention_gate=False, tie_word_embeddings=False,
    ),
    "nemotron_h_latent": dict(
        model_type="nemotron_h", layers_block_type=["mamba", "moe", "attention", "moe"], num_hidden_layers=4, head_dim=16, mamba_num_heads=8,
        mamba_head_dim=16, n_groups=2, ssm_state_size=16, conv_kernel=4, chunk_size=16, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, moe_latent_size=24, moe_shared_expert_intermediate_size=48, n_group=1, topk_group=1, routed_scaling_factor=2.5,
    ),
    "lara_mini": dict(
        model_type="lara_mini", num_hidden_layers=5, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=48, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=16,
        linear_value_head_dim=12, rope_parameters=THETA,
    ),
    "recurrent_gemma": dict(
        model_type="recurrent_gemma", num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, lru_width=96,
        attention_window_size=20, logits_soft_cap=5.0,
    ),
    "zamba2": dict(
        model_type="zamba2", num_hidden_layers=5, num_key_value_heads=8, layers_block_type=["mamba", "hybrid", "mamba", "hybrid", "hybrid"],
        n_mamba_heads=8, mamba_d_state=16, mamba_ngroups=2, chunk_size=16, use_shared_attention_adapter=True, adapter_rank=6, use_mem_rope=True,
        rope_parameters=THETA,
    ),
    "zamba2_untied": dict(
        model_type="zamba2", num_hidden_layers=5, num_key_value_heads=8, layers_block_type=["mamba", "hybrid", "hybrid", "mamba", "hybrid"],
        n_mamba_heads=4, mamba_d_state=8, chunk_size=16, num_mem_blocks=2, use_shared_attention_adapter=True, adapter_rank=4, use_mem_rope=True,
        tie_word_embeddings=False, rope_parameters=THETA,
    ),
    "zamba2_blocks": dict(
        model_type="zamba2", num_hidden_layers=6, num_key_value_heads=8,
        layers_block_type=["mamba", "hybrid", "hybrid", "mamba", "hybrid", "hybrid"], n_mamba_heads=4, mamba_d_state=16, chunk_size=16,
        num_mem_blocks=2, adapter_rank=5, use_mem_rope=False, tie_word_embeddings=True,
    ),
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
}


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


def as_rwkv7_joined(t, c):
    """Earlier files of flash-linear-attention: the six mixes of a layer in one tensor."""
    mixes = {k: torch.cat([t.pop(f"{k}.x_{what}") for what in "rwkvag"]).reshape(6, -1)
             for k in sorted({k.rsplit(".", 1)[0] for k in t if k.endswith(".attn.x_r")})}
    return t | {f"{k}.x_x": x for k, x in mixes.items()}, c


AS = {
    "rwkv7_joined": as_rwkv7_joined, "kimi_linear_hub": as_kimi, "bailing_hybrid": as_ling_caps, "bailing_hybrid_hub": as_ling_3,
    "olmo_hybrid": as_olmo_hybrid, "minimax_text_01": as_minimax_text_01,
}
WITH = {
    "bailing_hybrid": with_ling_caps, "bailing_hybrid_hub": with_ling_caps,
}
# whose greedy tokens are computed without a cache, see make()
UNCACHED = {
    "zamba2_untied", "plamo2", "plamo2_few", "rwkv7", "rwkv7_tied", "rwkv7_joined", "zamba", "zamba_listed", "zamba_untied", "mamba2", "bamba", "falcon_h1", "falcon_h1_norm", "recurrent_gemma", "zamba2", "zamba2_blocks", "mamba", "falcon_mamba", "jamba", "minimax_text_01",
}
