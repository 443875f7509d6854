"""Train the demo model: a Llama of 1.7 million parameters, on one CPU core, from the text of corpus.py.

    python train.py --out runs/demo --minutes 45

The schedule follows the processor time used, or the time of day where that is further along, so that a shared machine still ends with a
finished model (fewer tokens, same shape).
Two-dimensional weights of the layers are trained with Muon (K. Jordan et al., 2024), the rest with AdamW."""
import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

import tokens
from corpus import documents

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 384,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 2048, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
    "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16", "use_cache": True,
}
D, HEADS, KV, HD = (CONFIG[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x):
        return F.rms_norm(x, (D,), self.weight, CONFIG["rms_norm_eps"])


def rope(T: int):
    f = CONFIG["rope_theta"] ** (-torch.arange(0, HD, 2).float() / HD)
    a = torch.outer(torch.arange(T).float(), f)
    return torch.cat([a, a], 1).cos(), torch.cat([a, a], 1).sin()


def rotate(x, cos, sin):
    return x * cos + torch.cat([-x[..., HD // 2:], x[..., :HD // 2]], -1) * sin


def causal(q, k, v, tile: int = 128):
    """Causal attention by tiles of queries: twice as fast here as the CPU's fused kernel with its backward."""
    out = []
    for i in range(0, q.shape[2], tile):
        n = min(i + tile, q.shape[2])
        mask = torch.full((n - i, n), float("-inf"), dtype=q.dtype).triu(i + 1)
        s = q[:, :, i:n] @ k[:, :, :n].transpose(-1, -2) * HD ** -0.5 + mask
        out.append(s.softmax(-1).to(v.dtype) @ v[:, :, :n])
    return torch.cat(out, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(D, n * HD, bias=False) for n in (HEADS, KV, KV))
        self.o_proj = nn.Linear(HEADS * HD, D, bias=False)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q, k, v = (p(x).view(B, T, -1, HD).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (k, v))
        return self.o_proj(causal(q, k, v).transpose(1, 2).reshape(B, T, HEADS * HD))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        wide = CONFIG["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(D, wide, bias=False), nn.Linear(D, wide, bias=False)
        self.down_proj = nn.Linear(wide, D, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn, self.post_attention_layernorm, self.mlp = Norm(), Attention(), Norm(), Mlp()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """Parameter names are those of transformers' LlamaModel, so that the state dict is the checkpoint."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], D)
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = Norm()
        depth = (2 * CONFIG["num_hidden_layers"]) ** -0.5
        for n, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 * (depth if n.endswith(("o_proj.weight", "down_proj.weight")) else 1))
        self.look_back(self.layers[2].self_attn)

    @torch.no_grad()
    def look_back(self, attn):
        """One layer starts with values and outputs that hand a token on as it is. Where to look is then all that is left to learn
        for "My name is Anna" ... "Nice to meet you, Anna"; from nothing, neither half has a gradient without the other."""
        eye = torch.eye(D)
        attn.v_proj.weight.copy_(torch.cat([eye[h::KV] for h in range(KV)]))
        attn.o_proj.weight.copy_(0.25 * torch.cat([eye[h * KV // HEADS::KV].T for h in range(HEADS)], 1))

    def forward(self, ids):
        cos, sin = rope(ids.shape[1])
        x = self.embed_tokens(ids)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)


class Muon(torch.optim.Optimizer):
    """Momentum, then the nearest orthogonal matrix by five Newton-Schulz steps."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        shapes = {}
        for g in self.param_groups:
            for p in g["params"]:
                shapes.setdefault(p.shape, []).append((p, g["lr"]))
        for shape, group in shapes.items():
            updates = []
            for p, _ in group:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 0.05)
                updates.append(p.grad.lerp(m, 0.95))
            x = torch.stack(updates).bfloat16()
            x = x.mT if shape[0] > shape[1] else x
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = (x.mT if shape[0] > shape[1] else x).float()
            for (p, lr), u in zip(group, x):
                p.mul_(1 - 0.02 * lr).add_(u, alpha=-lr * max(1, shape[0] / shape[1]) ** 0.5)


class Stream:
    """The endless text as ids, encoded as it is needed."""

    def __init__(self, tok, seed: int):
        self.tok, self.docs, self.ids, self.own = tok, documents(seed), [], []

    def take(self, B: int, T: int):
        n = B * T
        while len(self.ids) < n:
            ids, own = tokens.encode(self.tok, next(self.docs))
            self.ids += ids
            self.own += own
        out = [torch.tensor(x[:n]).view(B, T) for x in (self.ids, self.own)]
        self.ids, self.own = self.ids[n:], self.own[n:]
        return out


def loss_of(model, ids, own, user_weight):
    logits = model(ids[:, :-1]).float()
    nll = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1).long(), reduction="none")
    w = own[:, 1:].reshape(-1).float() * (1 - user_weight) + user_weight
    return (nll * w).sum() / w.sum()


def export(model, out: Path):
    out.mkdir(parents=True, exist_ok=True)
    save_file({f"model.{k}": v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()},
              out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}, indent=2) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--minutes", type=float, default=40, help="of processor time")
    ap.add_argument("--wall", type=float, default=90, help="minutes of waiting, at most")
    ap.add_argument("--init", type=Path, help="continue from this model, with its tokenizer")
    ap.add_argument("--steady", type=float, default=0.4, help="share of the time before the learning rate falls")
    ap.add_argument("--rate", type=float, default=1.0, help="times the learning rates")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)

    tok = Tokenizer.from_file(str(args.init / "tokenizer.json")) if args.init else tokens.train(CONFIG["vocab_size"], 30_000, seed=10_000 + args.seed)
    tokens.save(tok, args.out, CONFIG["max_position_embeddings"])
    text, val = Stream(tok, args.seed), Stream(tok, 777).take(80, 512)
    model = Model()
    if args.init:
        stored = load_file(args.init / "model.safetensors")
        model.load_state_dict({k.removeprefix("model."): v.float() for k, v in stored.items()})
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    matrices = [p for p in model.layers.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
    opts = [(Muon(matrices, 0.02), 0.02), (torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0), 3e-3)]

    start, busy, step, seen, saved, mean = time.time(), time.process_time(), 0, 0, 0.0, 0.0
    while (done := max((time.process_time() - busy) / args.minutes, (time.time() - start) / args.wall) / 60) < 1:
        # First short windows, which are cheap; then longer ones, for stories and long chats.
        B, T = (16, 128) if done < 0.5 else (8, 256) if done < 0.9 else (4, 512)
        x, w = text.take(B, T)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, x, w, 0.15)
        for opt, _ in opts:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        scale = min(1, (step + 1) / 50) * args.rate * min(1, max(0.01, (1 - done) / (1 - args.steady)))
        for opt, lr in opts:
            opt.param_groups[0]["lr"] = lr * scale
            opt.step()
        step, seen = step + 1, seen + B * T
        mean += 0.02 * (loss.item() - mean) if step > 1 else loss.item()
        if step % 100 == 0:
            print(f"step {step} seen {seen / 1e6:.2f}M loss {mean:.4f} {seen / (time.process_time() - busy):.0f} tokens per cpu second, done {done:.3f}", flush=True)
        if done - saved > 0.1:
            saved = done
            export(model, args.out)
    export(model, args.out)
    with torch.no_grad():
        print(f"validation loss {loss_of(model, *val, 0.0).item():.4f} after {seen / 1e6:.1f}M tokens", flush=True)


if __name__ == "__main__":
    main()
