"""Families of repositories with code of their own, from the nearest one of transformers: what differs is done to the model."""

import torch
from torch import nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.mixtral.modeling_mixtral import MixtralRMSNorm
from .base import THETA, experts_apart, renamed

CASES = {
    "solar": dict(model_type="llama", num_hidden_layers=7, attention_bias=True, rope_parameters=THETA),
    "grok": dict(model_type="mixtral", hidden_act="gelu", num_local_experts=6, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=True,
                 rope_parameters=THETA),
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


# Solar Pro: layers before which the stream is kept in two places, and those before which it is blended with them.
KEPT, JOINED, SHARE = ([1, 3, 5], [2]), ([3, 4, 6], [5]), 0.8


def with_solar(model):
    kept = [None, None]

    def before(i):
        def blend(layer, args):
            x = args[0]
            for k in range(2):
                if i in KEPT[k]:
                    kept[k] = x
            for k in range(2):
                if i in JOINED[k]:
                    x = kept[k] * SHARE + x * (1 - SHARE)
            return (x, *args[1:])

        return blend

    for i, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(before(i))


def as_solar(t, c):
    return t, dict(c, model_type="solar", bskcn_1=KEPT[0], bskcn_2=KEPT[1], bskcn_3=JOINED[0], bskcn_4=JOINED[1], bskcn_tv=[0.9, SHARE],
                   sliding_window=2047)


GROK = dict(attn_output_multiplier=0.3, max_attn_value=2.0, embedding_multiplier_scale=3.0, output_multiplier_scale=0.7)


def capped(module, q, k, v, mask, scaling, **more):
    """Attention whose scores have a factor of their own and a soft cap."""
    k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
    cap = GROK["max_attn_value"]
    scores = torch.tanh(q @ k.transpose(2, 3) * GROK["attn_output_multiplier"] / cap) * cap
    return ((scores + mask).softmax(-1) @ v).transpose(1, 2).contiguous(), None


def with_grok(model):
    ALL_ATTENTION_FUNCTIONS.register("capped", capped)
    ALL_MASK_ATTENTION_FUNCTIONS.register("capped", eager_mask)
    model.config._attn_implementation = "capped"

    def shares(gate, args, out):  # not scaled to a sum of 1
        return out[0], out[0].softmax(-1).gather(-1, out[2]), out[2]

    for layer in model.model.layers:
        for name, part in ("post_attn_norm", layer.self_attn), ("post_moe_norm", layer.mlp):
            norm = MixtralRMSNorm(model.config.hidden_size, model.config.rms_norm_eps)
            norm.weight.data += torch.randn_like(norm.weight) * 0.1
            setattr(layer, name, norm)
            part.register_forward_hook(lambda m, args, out, norm=norm: (norm(out[0]), *out[1:]) if isinstance(out, tuple) else norm(out))
        layer.mlp.gate.register_forward_hook(shares)
    model.model.embed_tokens.register_forward_hook(lambda m, args, out: out * GROK["embedding_multiplier_scale"])
    model.lm_head.register_forward_hook(lambda m, args, out: out * GROK["output_multiplier_scale"])


def as_grok(t, c):
    for i in range(c["num_hidden_layers"]):
        experts_apart(t, i, "moe_block", ("linear", "linear_v", "linear_1"))
    t = renamed(t, [("self_attn.", "attn."), ("mlp.gate", "moe_block.gate"), ("input_layernorm", "pre_attn_norm"),
                    ("post_attention_layernorm", "pre_moe_norm"), ("norm.weight", "norm.scale")])
    keys = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size", "torch_dtype",
            "max_position_embeddings", "rms_norm_eps", "num_experts_per_tok", "tie_word_embeddings", "bos_token_id", "eos_token_id")
    return t, {k: c[k] for k in keys} | GROK | dict(model_type="grok-1", num_experts=6)


AS = {"plm": as_plm, "maple": as_maple, "solar": as_solar, "grok": as_grok}
WITH = {"plm": with_squares, "maple": with_maple, "solar": with_solar, "grok": with_grok}
