"""The text model of Kimi K3: transformers' Kimi Linear, to which the parts that it lacks are added, under the names and keys of the
repository. Attention residuals, the activation, the gates and the experts' width are those of modeling_kimi_linear.py on the hub."""

import types
import torch
from torch.nn import functional as F

LATENT = dict(kv_lora_rank=24, q_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=12)
CASES = {
    # blocks of two layers; rates of decays that are filled up to a head's size
    "kimi_k3": dict(
        LATENT, model_type="kimi_linear", num_hidden_layers=5, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=3, n_shared_experts=2,
        moe_intermediate_size=32, n_group=1, topk_group=1, linear_head_dim=16, linear_num_heads=4, routed_scaling_factor=1.0, rms_norm_eps=1e-5,
        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse", "sparse", "sparse", "sparse"],
    ),
    # a block for each layer; neither a norm of the experts' sum nor a floor of decays, gates of low rank, SiLU
    "kimi_k3_few": dict(
        dict(LATENT, q_lora_rank=None), model_type="kimi_linear", num_hidden_layers=3, num_key_value_heads=8, num_local_experts=6, num_experts_per_tok=2,
        n_shared_experts=1, moe_intermediate_size=24, n_group=2, topk_group=1, linear_head_dim=8, linear_num_heads=8, routed_scaling_factor=1.7,
        rms_norm_eps=1e-3, layer_types=["full_attention", "linear_attention", "full_attention"], mlp_layer_types=["sparse"] * 3,
    ),
}
# what the repository's keys say beyond that
K3 = {
    "kimi_k3": dict(per=2, width=40, norm=True, floor=-5.0, whole=True, soft=True),
    "kimi_k3_few": dict(per=1, width=48, norm=False, floor=None, whole=False, soft=False),
}


def situ(gate, up, soft):
    return 4 * torch.tanh(gate / 4) * torch.sigmoid(gate) * 25 * torch.tanh(up / 25) if soft else F.silu(gate) * up


def vector(n, mean=0.0, spread=0.5):
    return torch.nn.Parameter(mean + torch.randn(n) * spread)


def linear(rows, cols):
    m = torch.nn.Linear(cols, rows, bias=False)
    m.weight.data = torch.randn(rows, cols) * 0.15
    return m


class Blend(torch.nn.Module):
    """A softmax over the rows of earlier blocks and the open one; each has the product of its norm and a vector as score."""

    def __init__(self, hidden, eps):
        super().__init__()
        self.norm, self.proj, self.eps = vector(hidden, 1), vector(hidden), eps

    def forward(self, rows):
        v = torch.stack(rows, -2)
        k = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + self.eps)
        return ((k * (self.norm * self.proj)).sum(-1, keepdim=True).softmax(-2) * v).sum(-2)


class Last(torch.nn.Module):
    def __init__(self, norm, blend, blocks):
        super().__init__()
        self.norm, self.blend, self.blocks = norm, blend, blocks

    def forward(self, x):
        return self.norm(self.blend(self.blocks + [x]))


def layer_forward(layer, i, per, blocks):
    def forward(hidden_states, attention_mask=None, position_ids=None, cache=None, use_cache=False, **more):
        x = hidden_states
        if i == 0:
            blocks.clear()
        n = layer.input_layernorm(layer.attn_blend(blocks + [x]) if blocks else x)
        opens = i % per == 0
        if opens:
            blocks.append(x)
        a = layer.self_attn(hidden_states=n, attention_mask=attention_mask, cache=cache, **more)
        a = a[0] if isinstance(a, tuple) else a
        x = a if opens else x + a
        return x + layer.mlp(layer.post_attention_layernorm(layer.mlp_blend(blocks + [x])))
    return forward


def experts_forward(self, x):
    _, weights, at = self.gate(x)
    low = self.down(x.reshape(-1, x.shape[-1]))
    y = torch.zeros_like(low)
    for token in range(len(low)):
        for expert, weight in zip(at[token], weights[token]):
            gate, up = (self.experts.gate_up_proj[expert] @ low[token]).chunk(2)
            y[token] += weight * (self.experts.down_proj[expert] @ situ(gate, up, self.soft))
    if self.norm is not None:
        y = F.rms_norm(y, y.shape[-1:], self.norm, self.eps)
    return self.up(y).view(x.shape) + self.shared_experts(x)


def narrow(moe, c, k):
    n, ffn, width = c.num_local_experts, c.moe_intermediate_size, k["width"]
    moe.experts.gate_up_proj = torch.nn.Parameter(torch.randn(n, 2 * ffn, width) * 0.4)
    moe.experts.down_proj = torch.nn.Parameter(torch.randn(n, width, ffn) * 0.15)
    moe.down, moe.up = linear(width, c.hidden_size), linear(c.hidden_size, width)
    moe.norm, moe.eps, moe.soft = vector(width, 1, 0.1) if k["norm"] else None, c.rms_norm_eps, k["soft"]
    moe.forward = types.MethodType(experts_forward, moe)


def delta(attn, c, k):
    gate = attn.forget_gate
    if k["whole"]:
        attn.g_a_proj, attn.g_b_proj = torch.nn.Identity(), linear(attn.qkv_dim, c.hidden_size)
    if k["floor"] is not None:
        gate.forward = lambda x: k["floor"] * torch.sigmoid(gate.A_log.exp() * (
            gate.f_b_proj(gate.f_a_proj(x)) + gate.dt_bias).view(*x.shape[:2], -1, gate.head_dim))


def gated(attn, c):
    """An output gate of latent attention, of its input."""
    attn.g_proj = linear(c.num_attention_heads * c.v_head_dim, c.hidden_size)
    attn.register_forward_pre_hook(lambda m, a, kw: setattr(m, "seen", kw["hidden_states"]), with_kwargs=True)
    attn.o_proj.register_forward_pre_hook(lambda m, a: (a[0] * torch.sigmoid(attn.g_proj(attn.seen)),))


def with_parts(k):
    def change(model):
        c, blocks = model.config, []
        for i, layer in enumerate(model.model.layers):
            layer.attn_blend, layer.mlp_blend = Blend(c.hidden_size, c.rms_norm_eps), Blend(c.hidden_size, c.rms_norm_eps)
            linear_layer = c.layer_types[i] == "linear_attention"
            delta(layer.self_attn, c, k) if linear_layer else gated(layer.self_attn, c)
            if c.mlp_layer_types[i] == "sparse":
                narrow(layer.mlp, c, k)
            mlp = layer.mlp if c.mlp_layer_types[i] == "dense" else layer.mlp.shared_experts
            mlp.forward = lambda x, m=mlp: m.down_proj(situ(m.gate_proj(x), m.up_proj(x), k["soft"]))
            layer.forward = layer_forward(layer, i, k["per"], blocks)
        model.model.norm = Last(model.model.norm, Blend(c.hidden_size, c.rms_norm_eps), blocks)
    return change


NAMES = [("attn_blend.norm", "self_attention_res_norm.weight"), ("attn_blend.proj", "self_attention_res_proj.weight"),
         ("mlp_blend.norm", "mlp_res_norm.weight"), ("mlp_blend.proj", "mlp_res_proj.weight"), ("norm.blend.norm", "output_attn_res_norm.weight"),
         ("norm.blend.proj", "output_attn_res_proj.weight"), ("norm.norm.", "norm."), ("forget_gate.", ""),
         ("mlp.down.", "mlp.routed_expert_down_proj."), ("mlp.up.", "mlp.routed_expert_up_proj.")]


def tensors(t, c, k):
    out = {}
    for name, v in t.items():
        for a, b in NAMES:
            name = name.replace(a, b)
        if name.endswith("mlp.norm"):
            name = name.replace("mlp.norm", "mlp.routed_expert_norm.weight")
        if k["whole"]:
            name = name.replace("g_b_proj", "g_proj")
        if ".layers." in name and c["mlp_layer_types"][int(name.split(".")[2])] == "sparse":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("A_log"):
            v = v.flatten()
            v = torch.cat([v, torch.zeros(c["linear_head_dim"] - len(v))])
        if name.endswith("_res_proj.weight"):
            v = v[None]
        if name.endswith("conv1d.weight"):
            out |= {name.replace("conv1d", f"{kind}_conv1d"): part for kind, part in zip("qkv", v.chunk(3))}
        elif name.endswith("experts.gate_up_proj"):
            for e, w in enumerate(v):
                for part, x in zip(("w1", "w3"), w.chunk(2)):
                    out[name.replace("gate_up_proj", f"{e}.{part}.weight")] = x
        elif name.endswith("experts.down_proj"):
            out |= {name.replace("down_proj", f"{e}.w2.weight"): x for e, x in enumerate(v)}
        else:
            out[name] = v
    return {"language_model." + name: v for name, v in out.items()}


def as_k3(k):
    def change(t, c):
        t = tensors(t, c, k)
        of = lambda kind: [i + 1 for i, x in enumerate(c["layer_types"]) if x == kind]
        own = dict(head_dim=c["linear_head_dim"], num_heads=c["linear_num_heads"], short_conv_kernel_size=c["linear_conv_kernel_dim"],
                   kda_layers=of("linear_attention"), full_attn_layers=of("full_attention"), use_full_rank_gate=k["whole"])
        own |= {} if k["floor"] is None else dict(gate_lower_bound=k["floor"])
        c = dict(c, mla_use_nope=True, mla_use_output_gate=True, moe_router_activation_func="sigmoid", moe_layer_freq=1, use_grouped_topk=True,
                 linear_attn_config=own, first_k_dense_replace=c["mlp_layer_types"].index("sparse"), attn_res_block_size=k["per"],
                 routed_expert_hidden_size=k["width"], latent_moe_use_norm=k["norm"])
        c |= dict(hidden_act="situ", activation_situ_beta=4.0, activation_situ_linear_beta=25.0) if k["soft"] else {}
        for old, new in (("n_group", "num_expert_group"), ("num_local_experts", "num_experts"), ("num_experts_per_tok", "num_experts_per_token"),
                         ("norm_topk_prob", "moe_renormalize"), ("n_shared_experts", "num_shared_experts")):
            if old in c:
                c[new] = c.pop(old)
        for key in "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "layer_types", "mlp_layer_types":
            del c[key]
        return t, dict(model_type="kimi_k3", text_config=c, torch_dtype="float32")
    return change


WITH = {name: with_parts(k) for name, k in K3.items()}
AS = {name: as_k3(k) for name, k in K3.items()}
