"""Families of repositories with code of their own, from the nearest one of transformers: what differs is done to the model."""

import torch
from torch import nn
from .base import THETA, experts_apart

CASES = {
    "plm": dict(model_type="youtu", num_key_value_heads=8, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
                tie_word_embeddings=True, rope_parameters=THETA),
    "maple": dict(
        model_type="mellum", num_hidden_layers=4, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        mlp_layer_types=["sparse"] * 4, layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": THETA, "sliding_attention": THETA}),
}


class Squared(nn.Module):
    """PLM's MLP."""

    def __init__(self, hidden, ffn):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(hidden, ffn, bias=False), nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(self.up_proj(x).relu().square())


def with_squares(model):
    for layer in model.model.layers:
        layer.mlp = Squared(model.config.hidden_size, model.config.intermediate_size)
        for p in layer.mlp.parameters():
            p.data = torch.randn_like(p) * 0.15


def as_plm(t, c):
    keys = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size", "torch_dtype",
            "max_position_embeddings", "rope_theta", "rms_norm_eps", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return t, {k: c[k] for k in keys} | dict(model_type="plm", hidden_act="relu2", attention_bias=False, tie_word_embeddings=True, rope_scaling=None,
                                             bos_token_id=1, eos_token_id=2)


LIMIT = 0.375


def partly(q, k, cos, sin, unsqueeze_dim=1):
    """The rotation of the first elements of each head."""
    cos, sin, n = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim), cos.shape[-1]

    def turned(x):
        a, b = x[..., :n].chunk(2, -1)
        return torch.cat([x[..., :n] * cos + torch.cat([-b, a], -1) * sin, x[..., n:]], -1)

    return turned(q), turned(k)


def clamped(mlp, x, at, weights):
    y = torch.zeros_like(x)
    for token in range(len(x)):
        for expert, weight in zip(at[token], weights[token]):
            gate, up = (mlp.gate_up_proj[expert] @ x[token]).chunk(2)
            y[token] += weight * (mlp.down_proj[expert] @ (nn.functional.silu(gate.clamp(max=LIMIT)) * up.clamp(-LIMIT, LIMIT)))
    return y


def with_maple(model):
    """Half of a head rotates where there is a window, and nothing elsewhere; gates and ups are clamped."""
    import transformers.models.mellum.modeling_mellum as module
    module.apply_rotary_pos_emb = partly
    for layer, kind in zip(model.model.layers, model.config.layer_types):
        turns = 10000.0 ** -(torch.arange(4) / 4) * (kind == "sliding_attention")

        def before(a, args, kwargs, turns=turns):
            angles = (kwargs["position_ids"][..., None] * turns).repeat(1, 1, 2)
            return args, dict(kwargs, position_embeddings=(angles.cos(), angles.sin()))

        layer.self_attn.register_forward_pre_hook(before, with_kwargs=True)
        experts = layer.mlp.experts
        experts.forward = lambda x, at, weights, experts=experts: clamped(experts, x, at, weights)


def as_maple(t, c):
    for i in range(c["num_hidden_layers"]):
        experts_apart(t, i, "mlp", ("gate_proj", "up_proj", "down_proj"))
    t["model.word_embeddings.weight"] = t.pop("model.embed_tokens.weight")
    keys = ("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size", "torch_dtype", "head_dim", "sliding_window",
            "layer_types", "max_position_embeddings", "rms_norm_eps", "num_experts_per_tok", "moe_intermediate_size", "bos_token_id", "eos_token_id")
    return t, {k: c[k] for k in keys} | dict(
        model_type="maple", num_experts=8, intermediate_size=128, hidden_act="silu", use_bias=False, use_qk_norm=True, norm_topk_prob=True, num_shared_experts=0,
        moe_router_enable_expert_bias=False, nope_on_global_attention=True, partial_rotary_factor=0.5, rope_theta=10000.0, rope_scaling=None,
        swiglu_limit=LIMIT, tie_word_embeddings=False)


AS = {"plm": as_plm, "maple": as_maple}
WITH = {"plm": with_squares, "maple": with_maple}
