"""What the checkpoints of make_arch.py share."""

import torch

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

DSA = dict(  # sparse attention: each index head adds 0 for many keys, so few of them would have ties
    num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16,
    index_n_heads=20, index_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=1,
    moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.8, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.8,
        beta_fast=32.0, beta_slow=1.0,
    ),
)

# Where the usual spread would leave a part of the arithmetic without effect: sinks, the clamps of the activation.
SPREAD = {"residual_gate.gate": 0.4, "attention_input.query": 4.0, "mlp_input.query": 4.0, "final_input.query": 4.0, "rel_logits_proj.proj": 0.5, "relative_position_bias.proj": 0.5, "sqk": 0.004, "s_gate": 0.004, "lambda_1": 0.006, "lambda_2": 0.006, "lm_head.logit_scale": 0.005, "sinks": 1.5, "qk_norm.temp": 1.0, "lambda_q1": 0.4, "lambda_k1": 0.4, "gate_up_proj": 0.4, "hc.scale": 0.5, "hc_scale": 0.5, "hc.base": 0.7, "hc_base": 0.7, "kpool_compress_ape": 0.7, "position_bias": 0.7}


def renamed(tensors, pairs):
    """Tensors under other names, most specific first; q, k and v that share a target are stacked."""
    out = {}
    for name, v in tensors.items():
        for a, b in pairs:
            name = name.replace(a, b)
        out[name] = v
    return out


def experts_apart(t, layer, to, names):
    """The experts of a layer, which transformers 5 keeps in two tensors, under names of gate, up and down each."""
    up, down = (t.pop(f"model.layers.{layer}.mlp.experts.{k}") for k in ("gate_up_proj", "down_proj"))
    for e in range(len(up)):
        for name, v in zip(names, (*up[e].chunk(2), down[e])):
            t[f"model.layers.{layer}.{to}.experts.{e}.{name}.weight"] = v


def random_layer(layer):
    for p in layer.parameters():
        p.data = torch.randn_like(p) * 0.1 + 1 if p.dim() == 1 else torch.randn_like(p) * 0.15
