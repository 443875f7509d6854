#!/usr/bin/env python3
"""Tiny random checkpoints with draft heads, and drafts.json with what the heads say.

    python tests/golden/make_drafts.py [NAME...]       into build/golden/drafts

The model and the head's layer are transformers' own classes (eager attention, fp32, CPU); what stands around the layer is
written here from the papers: the norms, the matrix that joins them, the head. drafts.json has for each prompt the logits of
every row (`rows`; null: the head has no such token) and those of further drafts, each from the row before (`deeper`). EAGLE's
heads are in a folder of their own, `heads`. Needs torch and transformers 5. tests/golden/test_drafts runs what it finds there."""

import importlib, json, os, sys
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoConfig, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

COMMON = dict(
    vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
    max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
THETA = {"rope_type": "default", "rope_theta": 10000.0}
DELTA = dict(
    head_dim=16, num_hidden_layers=4, full_attention_interval=4, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, num_key_value_heads=2,
)
DSA = dict(
    q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, index_n_heads=20, index_head_dim=16,
    n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1,
    num_key_value_heads=8, num_nextn_predict_layers=1, routed_scaling_factor=1.8, rope_parameters=THETA,
)
CASES = {
    "deepseek_v3": dict(
        model_type="deepseek_v3", q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=1, n_group=1, topk_group=1,
        first_k_dense_replace=1, num_key_value_heads=8, num_nextn_predict_layers=1, routed_scaling_factor=1.8,
    ),
    "deepseek_v32": dict(model_type="deepseek_v32", index_topk=12, **DSA),
    "glm_moe_dsa": dict(model_type="glm_moe_dsa", index_topk=12, indexer_types=["full", "shared", "full"], **DSA),
    "glm4_moe": dict(
        model_type="glm4_moe", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, num_nextn_predict_layers=1, attention_bias=True,
    ),
    "qwen3_next": dict(
        model_type="qwen3_next", num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, decoder_sparse_step=1, mlp_only_layers=[], **DELTA,
    ),
    "qwen3_5_text": dict(model_type="qwen3_5_text", **DELTA),
    "llama": dict(model_type="llama", rope_parameters=THETA),
    "eagle": dict(model_type="llama", rope_parameters=THETA),
    "eagle3": dict(model_type="llama", rope_parameters=THETA),
    "eagle3_qwen3": dict(model_type="qwen3", head_dim=16, rope_parameters=dict(THETA, rope_theta=50000.0)),
}
# What the heads of EAGLE have that the model has not. Streams: which enter layers.
EAGLE = {
    "eagle": dict(third=False),
    "eagle3": dict(third=True, few=200, streams=(2, 1, 0), sizes=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=24, intermediate_size=96)),
    "eagle3_qwen3": dict(third=True, few=320, streams=(1, 2, 2), speculators=True, norm_first=True, sizes=dict(num_attention_heads=8, num_key_value_heads=4, intermediate_size=160)),
}
DEEPER = 2


def spread(module, scale=0.08):
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() == 1 and name.endswith("weight"):
                p.copy_(torch.rand_like(p) * 0.2 + (0.9 if p.abs().mean() > 0.5 else -0.1))
            elif "bias" in name or name.endswith(("dt_bias", "A_log")):
                p.copy_(torch.randn_like(p) * 0.1)
            else:
                p.copy_(torch.randn_like(p) * scale)


def by_expert(tensors):
    """As the hub's files have them: a matrix of each expert has a name of its own."""
    out = {}
    for k, v in tensors.items():
        if k.endswith("experts.gate_up_proj"):
            for i, m in enumerate(v):
                gate, up = m.chunk(2, 0)
                out[k.replace("gate_up_proj", f"{i}.gate_proj.weight")] = gate
                out[k.replace("gate_up_proj", f"{i}.up_proj.weight")] = up
        elif k.endswith("experts.down_proj"):
            out |= {k.replace("down_proj", f"{i}.down_proj.weight"): m for i, m in enumerate(v)}
        else:
            out[k] = v
    return out


class Head:
    """One layer over [norm of the embedding | norm of the hidden state]."""

    def __init__(self, model, qwen):
        config = model.config
        module = importlib.import_module(type(model).__module__)
        kind = type(model.model.layers[-1])
        norm = type(model.model.norm)
        self.model, self.qwen, n = model, qwen, config.hidden_size
        self.layer = kind(config, config.num_hidden_layers - 1).eval()  # the index only chooses its kind
        self.embed_norm, self.hidden_norm, self.norm = (norm(n, eps=config.rms_norm_eps) for _ in range(3))
        self.join = torch.nn.Linear(2 * n, n, bias=False)
        for m in (self.layer, self.embed_norm, self.hidden_norm, self.norm, self.join):
            spread(m)
        del module

    def tensors(self):
        n = self.model.config.num_hidden_layers
        out = {}
        layer = f"mtp.layers.0." if self.qwen else f"model.layers.{n}."
        for k, v in self.layer.state_dict().items():
            out[layer + k] = v
        if self.qwen:
            names = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", "mtp.fc")
        else:
            names = tuple(f"{layer}{k}" for k in ("enorm", "hnorm", "shared_head.norm", "eh_proj"))
        for name, m in zip(names, (self.embed_norm, self.hidden_norm, self.norm, self.join)):
            out[name + ".weight"] = m.weight
        if not self.qwen:  # as the hub's files have them: the model's own once more
            out[layer + "shared_head.head.weight"] = self.model.lm_head.weight
            out[layer + "embed_tokens.weight"] = self.model.model.embed_tokens.weight
        return out

    def rows(self, hidden, behind):
        """hidden [L, n] and the tokens behind them: the layer's results and the normalised ones."""
        length = len(behind)
        embedded = self.model.model.embed_tokens(torch.tensor(behind))
        x = self.join(torch.cat([self.embed_norm(embedded), self.hidden_norm(hidden)], -1))[None]
        pos = torch.arange(length)[None]
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        rope = self.model.model.rotary_emb(x, pos)
        y = self.layer(x, attention_mask=mask, position_ids=pos, position_embeddings=rope)
        y = (y[0] if isinstance(y, tuple) else y).reshape(length, -1)
        return y, self.norm(y)


    def first(self, states):
        return states[-1]

    def logits(self, normed):
        return self.model.lm_head(normed)

    def next(self, y, normed):
        return normed if self.qwen else y

    def save(self, folder, tensors):
        tensors.update(self.tensors())


class Eagle:
    """EAGLE (arXiv 2401.15077) and EAGLE-3 (2503.01840): a Llama layer over the embedding and features of the model."""

    def __init__(self, model, third, few=0, streams=(), sizes={}, speculators=False, norm_first=False):
        of = model.config
        n = of.hidden_size
        self.config = LlamaConfig(**{**dict(
            vocab_size=of.vocab_size, hidden_size=n, intermediate_size=of.intermediate_size, num_hidden_layers=1,
            num_attention_heads=of.num_attention_heads, num_key_value_heads=of.num_key_value_heads, head_dim=n // of.num_attention_heads,
            rms_norm_eps=1e-5, max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 20000.0},
        ), **sizes})  # fmt: skip
        self.config._attn_implementation = "eager"
        c = self.config
        self.model, self.third, self.streams, self.speculators, self.norm_first = model, third, streams, speculators, norm_first
        self.layer = LlamaDecoderLayer(c, 0).eval()
        self.join = torch.nn.Linear((3 if third else 2) * n, n, bias=not third)
        self.rotary = LlamaRotaryEmbedding(c)
        parts = [self.layer, self.join]
        if third:
            for name, heads in (("q_proj", c.num_attention_heads), ("k_proj", c.num_key_value_heads), ("v_proj", c.num_key_value_heads)):
                setattr(self.layer.self_attn, name, torch.nn.Linear(2 * n, heads * c.head_dim, bias=False))
            self.hidden_norm, self.norm = (LlamaRMSNorm(n, eps=c.rms_norm_eps) for _ in range(2))
            self.head = torch.nn.Linear(n, few, bias=False)
            self.ids = torch.randperm(of.vocab_size)[:few].sort().values
            parts += [self.hidden_norm, self.norm, self.head]
        for m in parts:
            spread(m)

    def first(self, states):
        """Of all that enters a layer, and the last hidden state: what a row is made of."""
        return self.join(torch.cat([states[i] for i in self.streams], -1)) if self.third else states[-1]

    def rows(self, rows, behind):
        length = len(behind)
        e = self.model.model.embed_tokens(torch.tensor(behind))
        pos = torch.arange(length)[None]
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        rope = self.rotary(rows[None], pos)
        if self.third:
            h = self.hidden_norm(rows)
            x = h if self.norm_first else rows
            into = torch.cat([self.layer.input_layernorm(e), h], -1)
        else:
            x = into = self.join(torch.cat([e, rows], -1))
        x = x + self.layer.self_attn(into[None], attention_mask=mask, position_embeddings=rope)[0][0]
        y = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
        return y, self.norm(y) if self.third else y

    def logits(self, normed):
        if not self.third:
            return self.model.lm_head(normed)
        all_tokens = torch.full((len(normed), self.model.config.vocab_size), float("-inf"))
        all_tokens[:, self.ids] = self.head(normed)
        return all_tokens

    def next(self, y, normed):
        return y

    def save(self, folder, tensors):
        del tensors
        layer = "layers.0." if self.speculators or not self.third else "midlayer."
        out = {layer + k: v for k, v in self.layer.state_dict().items() if self.third or not k.startswith("input_layernorm")}
        out |= {"fc." + k: v for k, v in self.join.state_dict().items()}
        config, top = self.config.to_dict(), {}
        if self.third:
            out |= {layer + "hidden_norm.weight": self.hidden_norm.weight, "norm.weight": self.norm.weight, "lm_head.weight": self.head.weight}
            if len(self.ids) < self.model.config.vocab_size:
                out["d2t"] = self.ids - torch.arange(len(self.ids))
                out["t2d"] = torch.zeros(self.model.config.vocab_size, dtype=torch.bool).index_fill(0, self.ids, True)
            top["draft_vocab_size"] = len(self.ids)
        if self.speculators:
            config = {"transformer_layer_config": config, "eagle_aux_hidden_state_layer_ids": list(self.streams)}
        top["norm_before_residual"] = self.norm_first
        os.makedirs(f"{folder}/heads", exist_ok=True)
        out = {k: v.detach().clone().contiguous() for k, v in out.items()}
        if self.third and not self.speculators:  # as SafeAILab's files are
            torch.save(out, f"{folder}/heads/pytorch_model.bin")
        else:
            save_file(out, f"{folder}/heads/model.safetensors")
        with open(f"{folder}/heads/config.json", "w") as f:
            json.dump(config | top, f, indent=1, default=str)


def listed(row):
    return [None if x == float("-inf") else x for x in row]


def expect(model, head, ids):
    states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    rows, behind = head.first([h[0] for h in states])[:-1], ids[1:]
    y, normed = head.rows(rows, behind)
    logits = head.logits(normed)
    out = {"ids": ids, "rows": [listed(r) for r in logits.tolist()], "deeper": [], "drafts": []}
    for _ in range(DEEPER):
        draft = int(logits[-1].argmax())
        out["drafts"].append(draft)
        rows = torch.cat([rows, head.next(y, normed)[-1:]])
        behind = behind + [draft]
        y, normed = head.rows(rows, behind)
        logits = head.logits(normed)
        out["deeper"].append(listed(logits[-1].tolist()))
    return out


def make(name, folder):
    keys = dict(COMMON, **CASES[name])
    torch.manual_seed(7)
    kind = keys.pop("model_type")
    config = AutoConfig.for_model(kind, **keys)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    spread(model)
    head = Eagle(model, **EAGLE[name]) if name in EAGLE else Head(model, kind.startswith("qwen3"))
    os.makedirs(folder, exist_ok=True)
    tensors = {k: v for k, v in model.state_dict().items()}
    head.save(folder, tensors)
    tensors = by_expert(tensors)
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, f"{folder}/model.safetensors")
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config.to_dict(), f, indent=1, default=str)
    rng = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, 320, (n,), generator=rng).tolist() for n in (5, 37, 21)]
    with torch.no_grad():
        out = {"prompts": [expect(model, head, ids) for ids in prompts]}
    with open(f"{folder}/drafts.json", "w") as f:
        json.dump(out, f)
    print(name)


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make(name, f"build/golden/drafts/{name}")
