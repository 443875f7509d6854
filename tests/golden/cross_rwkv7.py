#!/usr/bin/env python3
"""tests/golden/rwkv7.py, by which served RWKV-7 is judged, against the code of RWKV's author.

    pip install rwkv && python tests/golden/cross_rwkv7.py       (rwkv 0.8.32, torch)

The weights of a small random model are given to both, the author's under the names and in the layout of his files. Prints the
greatest difference of logits: of all tokens of a text at once, and of the last one when it read one token at a time."""

import os, sys, tempfile

os.environ |= {"RWKV_V7_ON": "1", "RWKV_JIT_ON": "0", "RWKV_CUDA_ON": "0"}
import torch
from rwkv.model import RWKV
from rwkv7 import RWKV7ForCausalLM, Rwkv7Config

TOLERANCE = 1e-4
VECTORS = "k_k", "k_a", "r_k", "x_r", "x_w", "x_k", "x_v", "x_a", "x_g"
MATRICES = {"receptance": "r_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}


def layer_of(s, i):
    """A layer's tensors under the author's names. His loader wants those of a blend in the first layer, too, and does not use them."""
    att, ffn, t = f"model.layers.{i}.attn.", f"model.layers.{i}.ffn.", {}
    for end in "weight", "bias":
        t |= {"ln1." + end: s[f"model.layers.{i}.attn_norm.{end}"], "ln2." + end: s[f"model.layers.{i}.ffn_norm.{end}"],
              "att.ln_x." + end: s[att + "g_norm." + end]}
    t |= {"att." + name: s[att + name] for name in VECTORS}
    t |= {f"att.{name}.weight": s[f"{att}{own}.weight"] for name, own in MATRICES.items()}
    for name in "wavg":
        low = f"{att}{'a' if name == 'v' and i == 0 else name}_lora.lora."
        t |= {f"att.{name}1": s[low + "0.weight"].T.contiguous(), f"att.{name}2": s[low + "2.weight"].T.contiguous()}
        t |= {f"att.{name}0": s[low + "2.bias"]} if name != "g" else {}
    t |= {"ffn.x_k": s[ffn + "x_k"].view(1, 1, -1), "ffn.key.weight": s[ffn + "key.weight"], "ffn.value.weight": s[ffn + "value.weight"]}
    return {f"blocks.{i}.{name}": x for name, x in t.items()}


@torch.no_grad()
def main():
    torch.manual_seed(3)
    layers = 3
    ours = RWKV7ForCausalLM(Rwkv7Config(hidden_size=128, num_hidden_layers=layers, decay_low_rank_dim=12, gate_low_rank_dim=20,
                                        a_low_rank_dim=9, v_low_rank_dim=7)).eval()
    for p in ours.parameters():
        p += torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.15)
    s = ours.state_dict()
    t = {"emb.weight": s["model.embeddings.weight"], "head.weight": s["lm_head.weight"]}
    for end in "weight", "bias":
        t |= {"ln_out." + end: s["model.norm." + end], "blocks.0.ln0." + end: s["model.layers.0.pre_norm." + end]}
    for i in range(layers):
        t |= layer_of(s, i)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(t, folder + "/model.pth")
        theirs = RWKV(model=folder + "/model", strategy="cpu fp32")
    ids, state = torch.randint(3, 320, (96,)).tolist(), None
    want = theirs.forward(ids, None, full_output=True)[0]
    for token in ids:
        last, state = theirs.forward([token], state)
    got = ours(torch.tensor([ids])).logits[0]
    found = (got - want).abs().max().item(), (got[-1] - last).abs().max().item()
    print(f"greatest difference: {found[0]:.1e} of all tokens, {found[1]:.1e} of the last one; logits are up to {want.abs().max().item():.1f}")
    return max(found) > TOLERANCE


if __name__ == "__main__":
    sys.exit(main())
