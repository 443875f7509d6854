"""PLaMo 2 as its report has it (arXiv 2509.04897), token by token, under the names of its repositories' files, which transformers
lacks. Norms have their stored weights plus a constant; a head of q and k has weights of its own."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class Plamo2Config(PreTrainedConfig):
    model_type = "plamo2"

    def __init__(self, hidden_size=64, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, hidden_size_per_head=16,
                 intermediate_size=128, mamba_num_heads=8, mamba_d_state=8, mamba_d_conv=4, mamba_step=2, mamba_enabled=True,
                 attention_window_size=20, full_attention_idx=None, rms_norm_eps=1e-6, rope_theta=10000.0, vocab_size=320, **more):
        for name, value in list(locals().items()):
            if name not in ("self", "more", "__class__"):
                setattr(self, name, value)
        super().__init__(**more)


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class Norm(nn.Module):
    def __init__(self, n, eps, plus=1.0):
        super().__init__()
        self.weight, self.eps, self.plus = nn.Parameter(torch.zeros(n)), eps, plus

    def forward(self, x):
        return rms(x, self.eps) * (self.weight + self.plus)


class Mamba(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.dim, self.keys, self.eps = c.mamba_num_heads, c.hidden_size_per_head, c.mamba_d_state, c.rms_norm_eps
        inner, rank = self.heads * self.dim, max(64, c.hidden_size // 16)
        self.in_proj = nn.Linear(c.hidden_size, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, c.mamba_d_conv, groups=inner, bias=False, padding=c.mamba_d_conv - 1)
        self.bcdt_proj = nn.Linear(inner, rank + 2 * self.keys, bias=False)
        self.dt_proj = nn.Linear(rank, self.heads, bias=False)
        self.dt_bias, self.D = nn.Parameter(torch.zeros(self.heads)), nn.Parameter(torch.ones(self.heads))
        self.A_log = nn.Parameter(torch.arange(1, self.heads + 1).log())
        self.dt_norm_weight, self.B_norm_weight, self.C_norm_weight = (nn.Parameter(torch.ones(n)) for n in (rank, self.keys, self.keys))
        self.out_proj = nn.Linear(inner, c.hidden_size, bias=False)

    def forward(self, x):
        shape = *x.shape[:2], self.heads, self.dim
        gate, x = self.in_proj(x).view(*shape[:3], 2, self.dim).unbind(3)
        x = F.silu(self.conv1d(x.flatten(2).transpose(1, 2))[..., : shape[1]]).transpose(1, 2)
        b, c, dt = self.bcdt_proj(x).split([self.keys, self.keys, self.dt_proj.in_features], -1)
        b, c = rms(b, self.eps) * self.B_norm_weight, rms(c, self.eps) * self.C_norm_weight
        step = F.softplus(self.dt_proj(rms(dt, self.eps) * self.dt_norm_weight) + self.dt_bias)
        x, state, out = x.view(shape), torch.zeros(shape[0], self.heads, self.dim, self.keys), []
        for t in range(shape[1]):
            now = step[:, t, :, None, None]
            state = state * torch.exp(-self.A_log.exp()[:, None, None] * now) + now * x[:, t, ..., None] * b[:, t, None, None]
            out.append((state * c[:, t, None, None]).sum(-1) + self.D[:, None] * x[:, t])
        return self.out_proj((torch.stack(out, 1) * F.silu(gate)).flatten(2))


def rotated(x, theta):
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1])[:, None] * theta ** -(torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x.split(half, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.dim, self.theta, self.heads, self.kv = c.hidden_size_per_head, c.rope_theta, c.num_attention_heads, c.num_key_value_heads
        self.window = None if layer in (c.full_attention_idx or []) else c.attention_window_size
        self.qkv_proj = nn.Linear(c.hidden_size, (self.heads + 2 * self.kv) * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, c.hidden_size, bias=False)
        self.q_weight, self.k_weight = (nn.Parameter(torch.ones(n, self.dim)) for n in (self.heads, self.kv))

    def forward(self, x):
        q, k, v = self.qkv_proj(x).view(*x.shape[:2], -1, self.dim).split([self.heads, self.kv, self.kv], 2)
        q, k = rotated(rms(q, 1e-6) * self.q_weight, self.theta), rotated(rms(k, 1e-6) * self.k_weight, self.theta)
        k, v = (y.repeat_interleave(self.heads // self.kv, 2) for y in (k, v))
        at = torch.arange(x.shape[1])
        back = at[:, None] - at[None, :]
        hidden = (back < 0) if self.window is None else (back < 0) | (back > self.window)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.dim**-0.5
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.o_proj(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up_proj = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(F.silu(gate) * up)


def is_mamba(c, layer):
    if not c.mamba_enabled:
        return False
    if c.num_hidden_layers <= c.mamba_step // 2:
        return layer != c.num_hidden_layers - 1
    return layer % c.mamba_step != c.mamba_step // 2


class Block(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.mixer, self.mlp = Mamba(c) if is_mamba(c, layer) else Attention(c, layer), MLP(c)
        for name, plus in ("pre_mixer", 1.0), ("post_mixer", 1 / 5), ("pre_mlp", 1.0), ("post_mlp", 5**-1.5):
            setattr(self, f"{name}_norm", Norm(c.hidden_size, c.rms_norm_eps, plus))

    def forward(self, x):
        x = x + self.post_mixer_norm(self.mixer(self.pre_mixer_norm(x)))
        return x + self.post_mlp_norm(self.mlp(self.pre_mlp_norm(x)))


class Layers(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layers = nn.ModuleList(Block(c, i) for i in range(c.num_hidden_layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Plamo2Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens, self.layers = nn.Embedding(c.vocab_size, c.hidden_size), Layers(c)
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)

    def forward(self, ids):
        return self.norm(self.layers(self.embed_tokens(ids)))


class Plamo2ForCausalLM(PreTrainedModel):
    config_class, base_model_prefix = Plamo2Config, "model"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model, self.lm_head = Plamo2Model(config), nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        pass

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, **unused):
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids)))


AutoConfig.register("plamo2", Plamo2Config)
AutoModelForCausalLM.register(Plamo2Config, Plamo2ForCausalLM)
