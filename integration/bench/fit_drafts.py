#!/usr/bin/env python3
"""Draft heads for a small model of the Llama kind, fitted to what the model itself writes.

    python integration/bench/fit_drafts.py MODEL OUT [--steps 400]

OUT-mtp is the model with one multi-token-prediction layer in DeepSeek-V3's form; OUT-medusa a folder of three Medusa heads;
OUT-eagle3 one of an EAGLE-3 head over the 320 tokens that the model writes most often. They learn the model's own distribution on text that it has sampled. Needs torch and transformers."""

import argparse, json, os, shutil
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HEADS = 3


def sampled(model, batch, length):
    ids = torch.full((batch, 1), 1)
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=length, min_new_tokens=length, pad_token_id=0, top_k=0,
        )
    return out


class Mtp(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        c = model.config
        norm = type(model.model.norm)
        self.layer = type(model.model.layers[0])(c, 0)
        self.layer.load_state_dict(model.model.layers[-1].state_dict())
        self.enorm, self.hnorm, self.norm = (norm(c.hidden_size, eps=c.rms_norm_eps) for _ in range(3))
        self.join = torch.nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        self.norm.load_state_dict(model.model.norm.state_dict())

    def forward(self, model, hidden, behind):
        length = behind.shape[1]
        x = self.join(torch.cat([self.enorm(model.model.embed_tokens(behind)), self.hnorm(hidden)], -1))
        pos = torch.arange(length)[None]
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        y = self.layer(x, attention_mask=mask, position_ids=pos, position_embeddings=model.model.rotary_emb(x, pos))
        y = y[0] if isinstance(y, tuple) else y
        return model.lm_head(self.norm(y)), y


class Medusa(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        n = model.config.hidden_size
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(n, n) for _ in range(HEADS))
        self.outs = torch.nn.ModuleList(torch.nn.Linear(n, model.config.vocab_size, bias=False) for _ in range(HEADS))
        for b, o in zip(self.blocks, self.outs):
            torch.nn.init.zeros_(b.weight), torch.nn.init.zeros_(b.bias)
            o.load_state_dict(model.lm_head.state_dict())

    def forward(self, hidden):
        return [o(hidden + F.silu(b(hidden))) for b, o in zip(self.blocks, self.outs)]


class Eagle3(torch.nn.Module):
    """A layer of the model's kind over [embedding | joined streams] (arXiv 2503.01840), trained on its own rows as well."""

    def __init__(self, model, ids):
        super().__init__()
        c = model.config
        n, heads, dim = c.hidden_size, c.num_attention_heads, c.hidden_size // c.num_attention_heads
        norm = type(model.model.norm)
        self.ids = ids
        self.streams = (1, (c.num_hidden_layers + 1) // 2, c.num_hidden_layers - 1)  # the usual ones are one and the same here
        self.layer = type(model.model.layers[0])(c, 0)
        self.layer.load_state_dict(model.model.layers[-1].state_dict())
        for name, h in (("q_proj", heads), ("k_proj", c.num_key_value_heads), ("v_proj", c.num_key_value_heads)):
            setattr(self.layer.self_attn, name, torch.nn.Linear(2 * n, h * dim, bias=False))
        self.hidden_norm, self.norm = (norm(n, eps=c.rms_norm_eps) for _ in range(2))
        self.fc = torch.nn.Linear(3 * n, n, bias=False)
        self.head = torch.nn.Linear(n, len(ids), bias=False)
        with torch.no_grad():
            self.head.weight.copy_(model.lm_head.weight[ids])
        self.norm.load_state_dict(model.model.norm.state_dict())

    def rows(self, states):
        return self.fc(torch.cat([states[i] for i in self.streams], -1))

    def forward(self, model, rows, behind):
        length = behind.shape[1]
        pos = torch.arange(length)[None]
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        into = torch.cat([self.layer.input_layernorm(model.model.embed_tokens(behind)), self.hidden_norm(rows)], -1)
        x = rows + self.layer.self_attn(into, attention_mask=mask, position_embeddings=model.model.rotary_emb(into, pos))[0]
        y = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
        return self.head(self.norm(y)), y


def frequent(model, most=320):
    ids = sampled(model, 64, 200).flatten().bincount(minlength=model.config.vocab_size)
    return ids.argsort(descending=True)[:most].sort().values


def fit(model, steps, batch, length):
    mtp, medusa, eagle = Mtp(model), Medusa(model), Eagle3(model, frequent(model))
    opt = torch.optim.AdamW([*mtp.parameters(), *medusa.parameters(), *eagle.parameters()], lr=3e-3, weight_decay=0)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    pool = None
    for step in range(steps):
        if step % 50 == 0:
            pool = sampled(model, 4 * batch, length)
        ids = pool[torch.randint(0, len(pool), (batch,))]
        with torch.no_grad():
            out = model.model(input_ids=ids, output_hidden_states=True)
            hidden, states = out.last_hidden_state, [h[:, :-1] for h in out.hidden_states]
            own = model.lm_head(hidden)  # own[:, p] is about token p + 1
        logits, y = mtp(model, hidden[:, :-1], ids[:, 1:])  # row p is about token p + 2
        loss = F.cross_entropy(logits.flatten(0, 1), own[:, 1:].softmax(-1).flatten(0, 1))
        # once more from its own rows, as further drafts are made
        again, _ = mtp(model, y[:, :-1], ids[:, 2:])
        loss = loss + 0.5 * F.cross_entropy(again.flatten(0, 1), own[:, 2:].softmax(-1).flatten(0, 1))
        heads = medusa(hidden)
        for i, h in enumerate(heads):
            loss = loss + 0.5 * F.cross_entropy(h[:, : -1 - i].flatten(0, 1), own[:, 1 + i :].softmax(-1).flatten(0, 1))
        few = own[:, :, eagle.ids].softmax(-1)
        said, y = eagle(model, eagle.rows(states), ids[:, 1:])
        loss = loss + F.cross_entropy(said.flatten(0, 1), few[:, 1:].flatten(0, 1))
        again, _ = eagle(model, y[:, :-1], ids[:, 2:])
        loss = loss + 0.5 * F.cross_entropy(again.flatten(0, 1), few[:, 2:].flatten(0, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0 or step == steps - 1:
            right = (logits.argmax(-1) == own[:, 1:].argmax(-1)).float().mean()
            firsts = [(h[:, : -1 - i].argmax(-1) == own[:, 1 + i :].argmax(-1)).float().mean().item() for i, h in enumerate(heads)]
            third = (eagle.ids[said.argmax(-1)] == own[:, 1:].argmax(-1)).float().mean()
            print(step, f"loss {loss.item():.3f}  mtp agrees {right:.3f}  eagle3 {third:.3f}  medusa", [f"{x:.3f}" for x in firsts], flush=True)
    return mtp, medusa, eagle


def write_eagle3(out, eagle, config, like):
    os.makedirs(out, exist_ok=True)
    t = {"midlayer." + k: v for k, v in eagle.layer.state_dict().items()}
    t |= {"midlayer.hidden_norm.weight": eagle.hidden_norm.weight, "norm.weight": eagle.norm.weight}
    t |= {"fc.weight": eagle.fc.weight, "lm_head.weight": eagle.head.weight}
    t = {k: v.detach().to(like).contiguous() for k, v in t.items()}
    t["d2t"] = eagle.ids - torch.arange(len(eagle.ids))
    save_file(t, f"{out}/model.safetensors")
    own = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": len(eagle.ids)}
    own["eagle_config"] = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [i - 1 for i in eagle.streams]}
    with open(f"{out}/config.json", "w") as f:
        json.dump(config | own, f)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model"), p.add_argument("out"), p.add_argument("--steps", type=int, default=400)
    o = p.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(o.model, attn_implementation="eager", dtype=torch.float32).eval()
    for q in model.parameters():
        q.requires_grad_(False)
    mtp, medusa, eagle = fit(model, o.steps, 16, 120)
    shutil.copytree(o.model, o.out + "-mtp", dirs_exist_ok=True)
    tensors = load_file(f"{o.model}/model.safetensors")
    n = model.config.num_hidden_layers
    own = {f"model.layers.{n}." + k: v for k, v in mtp.layer.state_dict().items()}
    for name, m in (("enorm", mtp.enorm), ("hnorm", mtp.hnorm), ("shared_head.norm", mtp.norm), ("eh_proj", mtp.join)):
        own[f"model.layers.{n}.{name}.weight"] = m.weight
    like = next(iter(tensors.values())).dtype
    tensors.update({k: v.detach().to(like).contiguous() for k, v in own.items()})
    os.remove(f"{o.out}-mtp/model.safetensors")
    save_file(tensors, f"{o.out}-mtp/model.safetensors")
    write_eagle3(o.out + "-eagle3", eagle, json.load(open(f"{o.model}/config.json")), like)
    os.makedirs(o.out + "-medusa", exist_ok=True)
    heads = {}
    for i, (b, out) in enumerate(zip(medusa.blocks, medusa.outs)):
        heads[f"{i}.0.linear.weight"], heads[f"{i}.0.linear.bias"] = b.weight, b.bias
        heads[f"{i}.1.weight"] = out.weight
    save_file({k: v.detach().to(like).contiguous() for k, v in heads.items()}, f"{o.out}-medusa/medusa_lm_head.safetensors")
    with open(f"{o.out}-medusa/config.json", "w") as f:
        json.dump({"medusa_num_heads": HEADS, "medusa_num_layers": 1, "base_model_name_or_path": os.path.basename(o.model)}, f)


if __name__ == "__main__":
    main()
