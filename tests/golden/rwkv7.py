"""RWKV-7 as its paper has it (arXiv 2503.14456, section 3 and appendix), token by token, under the names of flash-linear-attention's
files: transformers lacks the family, and that library needs a GPU."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class Rwkv7Config(PreTrainedConfig):
    model_type = "rwkv7"

    def __init__(self, hidden_size=64, num_hidden_layers=3, head_dim=64, hidden_ratio=4, intermediate_size=None, decay_low_rank_dim=64,
                 gate_low_rank_dim=128, a_low_rank_dim=64, v_low_rank_dim=16, norm_bias=True, norm_eps=1e-5, vocab_size=320, **more):
        self.hidden_size, self.num_hidden_layers, self.head_dim = hidden_size, num_hidden_layers, head_dim
        self.hidden_ratio, self.intermediate_size = hidden_ratio, intermediate_size
        self.decay_low_rank_dim, self.gate_low_rank_dim = decay_low_rank_dim, gate_low_rank_dim
        self.a_low_rank_dim, self.v_low_rank_dim = a_low_rank_dim, v_low_rank_dim
        self.norm_bias, self.norm_eps, self.vocab_size = norm_bias, norm_eps, vocab_size
        super().__init__(**more)


class LowRank(nn.Module):
    def __init__(self, width, rank, middle, bias=True):
        super().__init__()
        self.lora = nn.Sequential(nn.Linear(width, rank, bias=False), middle, nn.Linear(rank, width, bias=bias))

    def forward(self, x):
        return self.lora(x)


def before(x):
    """Each token's predecessor; zeros precede the first one."""
    return F.pad(x, (0, 0, 1, 0))[:, :-1]


class TimeMixing(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        n = c.hidden_size
        self.dim, self.layer = c.head_dim, layer
        for what in "rwkvag":
            setattr(self, f"x_{what}", nn.Parameter(torch.rand(1, 1, n)))
        self.k_k, self.k_a = nn.Parameter(torch.full((n,), 0.7)), nn.Parameter(torch.ones(n))
        self.r_k = nn.Parameter(torch.zeros(n // self.dim, self.dim))
        for what in "rkvo":
            setattr(self, f"{what}_proj", nn.Linear(n, n, bias=False))
        self.w_lora, self.a_lora = LowRank(n, c.decay_low_rank_dim, nn.Tanh()), LowRank(n, c.a_low_rank_dim, nn.Identity())
        if layer:
            self.v_lora = LowRank(n, c.v_low_rank_dim, nn.Identity())
        self.g_lora = LowRank(n, c.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        self.g_norm = nn.GroupNorm(n // self.dim, n, eps=self.dim * c.norm_eps)

    def forward(self, x, first):
        shape = *x.shape[:2], -1, self.dim
        mix = {what: x + (before(x) - x) * getattr(self, f"x_{what}") for what in "rwkvag"}
        r, k, v = (getattr(self, f"{what}_proj")(mix[what]) for what in "rkv")
        decay = torch.exp(-(torch.tensor(-0.5).exp()) * self.w_lora(mix["w"]).sigmoid())
        first = v if first is None else first
        if self.layer:
            v = v + (first - v) * self.v_lora(mix["v"]).sigmoid()
        rate, gate = self.a_lora(mix["a"]).sigmoid(), self.g_lora(mix["g"])
        removal = F.normalize((k * self.k_k).view(shape), dim=-1)
        k = k * (1 + (rate - 1) * self.k_a)
        r, k, v, decay, rate = (y.view(shape) for y in (r, k, v, decay, rate))
        state, out = torch.zeros(*r[:, 0].shape, self.dim), []
        for t in range(x.shape[1]):  # values by keys
            u = removal[:, t]
            erased = (state @ u.unsqueeze(-1)) @ (rate[:, t] * u).unsqueeze(-2)
            state = state * decay[:, t].unsqueeze(-2) - erased + v[:, t].unsqueeze(-1) @ k[:, t].unsqueeze(-2)
            out.append((state @ r[:, t].unsqueeze(-1)).squeeze(-1))
        y = torch.stack(out, 1)
        y = self.g_norm(y.reshape(-1, x.shape[-1])).view_as(y) + (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.o_proj(y.reshape(x.shape) * gate), first


class ChannelMixing(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c.intermediate_size or (int(c.hidden_size * c.hidden_ratio) + 31) // 32 * 32
        self.x_k = nn.Parameter(torch.rand(c.hidden_size))
        self.key, self.value = nn.Linear(c.hidden_size, width, bias=False), nn.Linear(width, c.hidden_size, bias=False)

    def forward(self, x):
        return self.value(self.key(x + (before(x) - x) * self.x_k).relu().square())


class Block(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        names = ["attn_norm", "ffn_norm"] + ["pre_norm"] * (layer == 0)
        for name in names:
            setattr(self, name, nn.LayerNorm(c.hidden_size, eps=c.norm_eps, bias=c.norm_bias))
        self.attn, self.ffn = TimeMixing(c, layer), ChannelMixing(c)

    def forward(self, x, first):
        x = self.pre_norm(x) if hasattr(self, "pre_norm") else x
        y, first = self.attn(self.attn_norm(x), first)
        x = x + y
        return x + self.ffn(self.ffn_norm(x)), first


class Rwkv7Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c, i) for i in range(c.num_hidden_layers))
        self.norm = nn.LayerNorm(c.hidden_size, eps=c.norm_eps, bias=c.norm_bias)

    def forward(self, ids):
        x, first = self.embeddings(ids), None
        for layer in self.layers:
            x, first = layer(x, first)
        return self.norm(x)


class RWKV7ForCausalLM(PreTrainedModel):
    config_class, base_model_prefix = Rwkv7Config, "model"
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model, self.lm_head = Rwkv7Model(config), nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        pass

    def get_input_embeddings(self):
        return self.model.embeddings

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, **unused):
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids)))


AutoConfig.register("rwkv7", Rwkv7Config)
AutoModelForCausalLM.register(Rwkv7Config, RWKV7ForCausalLM)
