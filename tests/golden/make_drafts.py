#!/usr/bin/env python3
"""Tiny random checkpoints with draft heads, and drafts.json with what the heads say.

    python tests/golden/make_drafts.py [NAME...]       into build/golden/drafts

The model and the head's layer are transformers' own classes (eager attention, fp32, CPU); what stands around the layer is
written here from the papers: the norms, the matrix that joins them, the head. drafts.json has for each prompt the logits of
every row (`rows`) and those of further drafts, each from the row before (`deeper`). Needs torch and transformers 5.
tests/golden/test_drafts runs what it finds there."""

import importlib, json, os, sys
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoConfig

COMMON = dict(
    vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
    max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
THETA = {"rope_type": "default", "rope_theta": 10000.0}
DELTA = dict(
    head_dim=16, num_hidden_layers=4, full_attention_interval=4, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, num_key_value_heads=2,
)
CASES = {
    "deepseek_v3": dict(
        model_type="deepseek_v3", q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=1, n_group=1, topk_group=1,
        first_k_dense_replace=1, num_key_value_heads=8, num_nextn_predict_layers=1, routed_scaling_factor=1.8,
    ),
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


def expect(model, head, ids):
    hidden = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    known, rows, behind = hidden[:-1], hidden[:-1], ids[1:]
    y, normed = head.rows(rows, behind)
    logits = model.lm_head(normed)
    out = {"ids": ids, "rows": logits.tolist(), "deeper": [], "drafts": []}
    for _ in range(DEEPER):
        draft = int(logits[-1].argmax())
        out["drafts"].append(draft)
        rows = torch.cat([rows, (normed if head.qwen else y)[-1:]])
        behind = behind + [draft]
        y, normed = head.rows(rows, behind)
        logits = model.lm_head(normed)
        out["deeper"].append(logits[-1].tolist())
    del known
    return out


def make(name, folder):
    keys = dict(COMMON, **CASES[name])
    torch.manual_seed(7)
    kind = keys.pop("model_type")
    config = AutoConfig.for_model(kind, **keys)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    spread(model)
    head = Head(model, kind.startswith("qwen3"))
    os.makedirs(folder, exist_ok=True)
    tensors = {k: v for k, v in model.state_dict().items()}
    tensors.update(head.tensors())
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
