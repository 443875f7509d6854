#!/usr/bin/env python3
"""Tiny random checkpoints with golden.json for the families and options that the reference data does not have.

    python tests/golden/make_arch.py [NAME...]       into build/golden/arch

Each folder: config.json (keys of the hub), config.v5.json (keys of transformers 5, as saved), model.safetensors,
golden.json with last_logits, prompt_logprobs and greedy_ids of three prompts: eager attention, fp32, CPU.
Needs torch and transformers 5. tests/golden/test_arch runs what it finds there.

The cases are in arch_made/, a file for each group of families. Such a file has
  CASES     name -> model_type and the keys of the configuration of transformers' class
  WITH      name -> what is done to the model before it runs, where transformers lacks a part
  AS        name -> (tensors, keys) as other files have them; no tensors: those that were saved
  UNCACHED  names whose greedy tokens are computed without a cache"""

import json, os, sys
import torch
from safetensors.torch import save_file
import transformers
from transformers import AutoModelForCausalLM, AutoConfig, Emu3ForCausalLM, Mistral4ForCausalLM
import plamo2, rwkv7  # noqa: F401, they register their model_type
from arch_made import dense, experts, kimi_k3, latent, recurrent, renamed, repositories, stored, streams, unequal, within
from arch_made.base import COMMON, SPREAD
from arch_made.keys import hub_keys

GROUPS = dense, experts, kimi_k3, latent, recurrent, renamed, repositories, streams, unequal, within
CASES, AS, WITH = ({k: v for group in GROUPS for k, v in getattr(group, table, {}).items()} for table in ("CASES", "AS", "WITH"))
# Mamba's cache has another name; with Bamba's, transformers 5.23 generates other tokens than without, and 5.24 with that of
# MiniMax whose first layer is linear.
UNCACHED = {name for group in GROUPS for name in getattr(group, "UNCACHED", ())}

# The same models under the names and in the shapes that transformers 5 has in memory, as save_original_format=False saves them.
IN_MEMORY = (
    "dory_once",
    "mistral_large4",
    "hy_v3",
    "mixtral_window", "granitemoe", "phimoe", "lfm2_moe", "longcat_flash", "afmoe", "sarvam_moe", "nemotron_h_latent", "jamba", "kimi_linear",
    "bailing_hybrid", "minimax", "ernie4_5_vl",
)
CASES |= {f"{name}_in_memory": CASES[name] for name in IN_MEMORY}


def prompts(seed):
    g = torch.Generator().manual_seed(seed)
    for name, n in ("short", 5), ("forty", 40), ("long", 96):
        yield name, [1] + torch.randint(3, 320, (n - 1,), generator=g).tolist()


@torch.no_grad()
def golden(model, ids, n_greedy=32, cached=True):
    logits = model(torch.tensor([ids])).logits[0].float()
    lp = torch.log_softmax(logits.double(), -1)
    out = {
        "ids": ids,
        "last_logits": [round(x, 6) for x in logits[-1].tolist()],
        "prompt_logprobs": [None] + [lp[i, t].item() for i, t in enumerate(ids[1:])],
    }
    past = model(torch.tensor([ids]), use_cache=True)
    greedy, margin = [], 9e9
    for _ in range(n_greedy):
        top = past.logits[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
        name = "cache" if "cache" in past else "past_key_values"  # since transformers 5.24, before
        cache = past.get(name) if cached else None  # without one: all of it again
        new = [[greedy[-1]]] if cache else [ids + greedy]
        past = model(torch.tensor(new), **{name: cache}, use_cache=True) if cache else model(torch.tensor(new))
    return out | {"greedy_ids": greedy, "greedy_min_margin": margin}


def make(name, overrides, out):
    few = overrides["model_type"] in ("gpt2", "gpt_neo", "dbrx", "mpt", "codegen", "openai-gpt", "xglm", "ctrl")  # keys of their own
    keys = dict(vocab_size=320, bos_token_id=1, eos_token_id=2) if few else dict(COMMON)
    keys.update(overrides)
    kind = keys.pop("model_type")
    config = AutoConfig.for_model(kind, **keys)
    # as text models these are not among those that are found by their type
    apart = {"mistral4": Mistral4ForCausalLM, "emu3_text_model": Emu3ForCausalLM, "chameleon": transformers.ChameleonForConditionalGeneration}
    from_config = apart[kind]._from_config if kind in apart else AutoModelForCausalLM.from_config
    if name in within.WITHIN or kind in within.WITHIN:
        whole, more = within.WITHIN.get(name) or within.WITHIN[kind]
        config = getattr(transformers, whole + "Config")(text_config=config.to_dict(), **more)
        from_config = getattr(transformers, whole + "ForConditionalGeneration")._from_config
    for seed in range(100):  # a seed whose greedy choices are no coin tosses
        torch.manual_seed(seed)
        model = from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        for n, p in model.named_parameters():
            spread = next((v for k, v in SPREAD.items() if n.endswith(k)), 0.1 if p.dim() == 1 else 0.15)
            p.data = p.data + torch.randn_like(p) * spread
        for n, b in model.named_buffers():
            if n.endswith("tid2eid"):
                b.copy_(torch.rand(len(b), model.config.n_routed_experts).argsort(-1)[:, : b.shape[1]])
            if n.endswith(("e_score_correction_bias", "expert_bias")):
                b += torch.randn_like(b) * 0.1
            if n.endswith("balancing_biases"):  # without the -1 that keeps the expert without weights from being chosen
                b.copy_(torch.randn_like(b) * 0.1)
        if name.endswith("mxfp4"):
            stored.as_stored_mxfp4(model)
        if name.endswith("fp8"):
            stored.as_stored_fp8(model)
        if name in WITH:
            WITH[name](model)
        cached = name.removesuffix("_in_memory") not in UNCACHED
        result = {n: golden(model, ids, cached=cached) for n, ids in prompts(seed)}
        if min(p["greedy_min_margin"] for p in result.values()) > 0.002:
            break
    model.save_pretrained(out, save_original_format=not name.endswith("_in_memory"))
    v5 = json.load(open(f"{out}/config.json"))
    if "in_first" in name:
        stored.store_in_first(model, out)
    if name.endswith("fp8"):
        v5 |= stored.store_fp8(out)
    if name.endswith("mxfp4"):
        stored.store_mxfp4(model, out)
        v5 |= {"dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    hub = hub_keys(v5)
    if name in AS:
        t, hub = AS[name]({k: v.contiguous() for k, v in model.state_dict().items()
                           if not (v5.get("tie_word_embeddings") and k == "lm_head.weight")}, hub)
        if t:
            save_file({k: v.contiguous() for k, v in t.items()}, f"{out}/model.safetensors", {"format": "pt"})
        v5 = hub
    json.dump(v5, open(f"{out}/config.v5.json", "w"), indent=1)
    json.dump(hub, open(f"{out}/config.json", "w"), indent=1)
    json.dump({"name": name, "seed": seed, "prompts": result}, open(f"{out}/golden.json", "w"))
    print(f"{name}: seed {seed}")


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        folder = f"build/golden/arch/{name}"
        os.makedirs(folder, exist_ok=True)
        make(name, CASES[name], folder)
