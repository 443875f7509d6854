#!/usr/bin/env python3
"""Tiny random checkpoints with golden.json for the families and options that the reference data does not have.

    python tests/golden/make_arch.py [NAME...]       into build/golden/arch

Each folder: config.json (keys of the hub), config.v5.json (keys of transformers 5, as saved), model.safetensors,
golden.json with last_logits, prompt_logprobs and greedy_ids of three prompts: eager attention, fp32, CPU.
Needs torch and transformers 5. tests/golden/test_arch runs what it finds there."""

import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoConfig

COMMON = dict(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=512,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
THETA = {"rope_type": "default", "rope_theta": 10000.0}
GPT_OSS = dict(  # half of an expert's 96 columns ends within a group of 32
    num_hidden_layers=4, head_dim=16, sliding_window=20, num_local_experts=6, num_experts_per_tok=3,
    intermediate_size=96,
    rope_parameters=dict(
        rope_type="yarn", rope_theta=150000.0, factor=8.0, original_max_position_embeddings=64, beta_fast=32.0,
        beta_slow=1.0, truncate=False,
    ),
)
# Where the usual spread would leave a part of the arithmetic without effect: sinks, the clamps of the activation.
SPREAD = {"sinks": 1.5, "gate_up_proj": 0.4}
CASES = {
    "gemma2": dict(
        model_type="gemma2", head_dim=16, sliding_window=24, query_pre_attn_scalar=24,
        attn_logit_softcapping=5.0, final_logit_softcapping=3.0, num_hidden_layers=4,
    ),
    "qwen3": dict(model_type="qwen3", head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen3_window": dict(
        model_type="qwen3", head_dim=32, use_sliding_window=True, sliding_window=20, max_window_layers=1,
        attention_bias=True, rope_parameters=THETA,
    ),
    "qwen2_window": dict(
        model_type="qwen2", use_sliding_window=True, sliding_window=20, max_window_layers=2, rope_parameters=THETA,
    ),
    "granite": dict(
        model_type="granite", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, attention_bias=True, mlp_bias=True, rope_parameters=THETA,
    ),
    "phi3_partial": dict(
        model_type="phi3", rope_parameters=dict(THETA, partial_rotary_factor=0.5), sliding_window=None,
        original_max_position_embeddings=512,
    ),
    "gpt2_by_layer": dict(
        model_type="gpt2", n_embd=64, n_layer=3, n_head=4, n_positions=256, scale_attn_by_inverse_layer_idx=True,
        activation_function="gelu",
    ),
    "llama_yarn_mscale": dict(
        model_type="llama",
        rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64, mscale=0.7,
            mscale_all_dim=0.3, beta_fast=16.0, beta_slow=2.0, truncate=False,
        ),
    ),
    "mixtral_window": dict(
        model_type="mixtral", num_local_experts=6, num_experts_per_tok=3, sliding_window=20, rope_parameters=THETA,
    ),
    "starcoder2": dict(model_type="starcoder2", sliding_window=20, rope_parameters=THETA),
    "gpt_oss": dict(model_type="gpt_oss", **GPT_OSS),
    "gpt_oss_mxfp4": dict(model_type="gpt_oss", **GPT_OSS),
    "exaone4": dict(model_type="exaone4", num_hidden_layers=4, sliding_window=None, layer_types=["full_attention"] * 4,
        rope_parameters=THETA,
   ),
    "exaone4_window": dict(
        model_type="exaone4", num_hidden_layers=4, sliding_window=20, sliding_window_pattern=4, rope_parameters=THETA,
    ),
    "seed_oss": dict(model_type="seed_oss", head_dim=16, rope_parameters=THETA),
    "arcee": dict(model_type="arcee", rope_parameters=THETA),
    "nemotron": dict(model_type="nemotron", head_dim=16, rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "olmoe": dict(model_type="olmoe", num_experts=8, num_experts_per_tok=3, intermediate_size=32, rope_parameters=THETA),
    "glm": dict(
        model_type="glm", head_dim=16, attention_bias=True, rope_parameters=dict(THETA, partial_rotary_factor=0.5),
    ),
    "dots1": dict(
        model_type="dots1", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        n_shared_experts=2, moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.5, rope_parameters=THETA,
    ),
    "qwen3_moe_in_first": dict(
        model_type="qwen3_moe", head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
        norm_topk_prob=True, rope_parameters=dict(THETA),
    ),
    "mamba2": dict(
        model_type="mamba2", num_heads=8, head_dim=16, state_size=16, n_groups=2, expand=2, conv_kernel=4, chunk_size=16,
        num_attention_heads=8,
    ),
    "bamba": dict(
        model_type="bamba", num_hidden_layers=4, attn_layer_indices=[2], mamba_n_heads=8, mamba_d_head=16,
        mamba_d_state=16, mamba_chunk_size=16, rope_parameters=dict(THETA),
    ),
    "lfm2_moe": dict(
        model_type="lfm2_moe", num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], conv_bias=True,
        num_dense_layers=1, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, rope_parameters=THETA,
    ),
    "deepseek_v3_groups": dict(
        model_type="deepseek_v3", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=24, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=10, head_dim=8, n_routed_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1,
        n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.8, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0,
            mscale_all_dim=0.8, beta_fast=32.0, beta_slow=1.0,
        ),
    ),
    "glm4_moe_lite": dict(
        model_type="glm4_moe_lite", num_key_value_heads=8, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=1, topk_group=1,
        n_shared_experts=1, moe_intermediate_size=32, mlp_layer_types=["sparse", "dense", "sparse"],
        routed_scaling_factor=1.8, rope_parameters=THETA,
    ),
    "phimoe": dict(
        model_type="phimoe", num_local_experts=8, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
        sliding_window=None, router_jitter_noise=0.01, rope_parameters=THETA,
    ),
    "dbrx": dict(
        model_type="dbrx", d_model=64, n_heads=8, n_layers=3, max_seq_len=512, tie_word_embeddings=False,
        attn_config=dict(clip_qkv=0.4, kv_n_heads=4, rope_theta=10000.0),
        ffn_config=dict(ffn_hidden_size=32, moe_num_experts=6, moe_top_k=3, moe_normalize_expert_weights=1.0,
                        ffn_act_fn={"name": "silu"}),
    ),
    "mpt_clip": dict(
        model_type="mpt", d_model=64, n_heads=8, n_layers=3, max_seq_len=512, expansion_ratio=2, no_bias=True,
        attn_config=dict(clip_qkv=0.4, alibi=True, attn_impl="eager"),
    ),
    "stablelm_parallel": dict(
        model_type="stablelm", use_parallel_residual=True, rope_parameters=dict(THETA, partial_rotary_factor=0.25),
    ),
}


def hub_keys(v5):
    """The same configuration as transformers 4 wrote it."""
    c = dict(v5)
    c["torch_dtype"] = c.pop("dtype", "float32")
    rope = c.pop("rope_parameters", None)
    if rope:
        rope = dict(rope)
        c["rope_theta"] = rope.pop("rope_theta")
        partial = rope.pop("partial_rotary_factor", None)
        if partial is not None:
            c["partial_rotary_factor"] = partial
        c["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    return c


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def to_mxfp4(p):
    """[experts, in, out] -> blocks [experts, out, groups, 16], scales [experts, out, groups], and what they mean."""
    e, cols, rows = p.shape
    x = p.transpose(1, 2).reshape(e, rows, cols // 32, 32)
    power = torch.floor(torch.log2(x.abs().amax(-1).clamp(min=2.0**-120))) - 2
    scaled = x / torch.exp2(power)[..., None]
    codes = (scaled[..., None] - E2M1).abs().argmin(-1)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    exact = (E2M1[codes] * torch.exp2(power)[..., None]).reshape(e, rows, cols).transpose(1, 2)
    return blocks, (power + 127).to(torch.uint8), exact.contiguous()


def store_mxfp4(model, out):
    """As OpenAI's checkpoints are: experts in MXFP4, all else in bfloat16. The model has exactly these numbers."""
    tensors = {}
    for name, p in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            tensors[name + "_blocks"], tensors[name + "_scales"], _ = to_mxfp4(p)
        else:
            tensors[name] = p.to(torch.bfloat16)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/model.safetensors", {"format": "pt"})


def store_in_first(model, out):
    """As Qwen3-VL's checkpoints with experts are: all experts of a layer in one tensor, [experts, in, out]."""
    tensors = {}
    for name, p in model.state_dict().items():
        fused = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        tensors[name] = (p.transpose(1, 2) if fused else p).contiguous()
    assert any(t.dim() == 3 for t in tensors.values())
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})


def as_stored_mxfp4(model):
    for name, p in model.named_parameters():
        p.data = to_mxfp4(p.data)[2] if name.endswith(("gate_up_proj", "down_proj")) else p.data.bfloat16().float()


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
        cache = getattr(past, "past_key_values", None) if cached else None  # without one: all of it again
        new = [[greedy[-1]]] if cache else [ids + greedy]
        past = model(torch.tensor(new), past_key_values=cache, use_cache=True) if cache else model(torch.tensor(new))
    return out | {"greedy_ids": greedy, "greedy_min_margin": margin}


def make(name, overrides, out):
    few = overrides["model_type"] in ("gpt2", "dbrx", "mpt")  # keys of their own
    keys = dict(vocab_size=320, bos_token_id=1, eos_token_id=2) if few else dict(COMMON)
    keys.update(overrides)
    config = AutoConfig.for_model(keys.pop("model_type"), **keys)
    for seed in range(100):  # a seed whose greedy choices are no coin tosses
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        for n, p in model.named_parameters():
            spread = next((v for k, v in SPREAD.items() if n.endswith(k)), 0.1 if p.dim() == 1 else 0.15)
            p.data = p.data + torch.randn_like(p) * spread
        for n, b in model.named_buffers():
            if n.endswith("e_score_correction_bias"):
                b += torch.randn_like(b) * 0.1
        if name.endswith("mxfp4"):
            as_stored_mxfp4(model)
        # Mamba's cache has another name; with Bamba's, transformers 5.23 generates other tokens than without
        cached = name not in ("mamba2", "bamba")
        result = {n: golden(model, ids, cached=cached) for n, ids in prompts(seed)}
        if min(p["greedy_min_margin"] for p in result.values()) > 0.002:
            break
    model.save_pretrained(out)
    v5 = json.load(open(f"{out}/config.json"))
    if name.endswith("in_first"):
        store_in_first(model, out)
    if name.endswith("mxfp4"):
        store_mxfp4(model, out)
        v5 |= {"dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    json.dump(v5, open(f"{out}/config.v5.json", "w"), indent=1)
    json.dump(hub_keys(v5), open(f"{out}/config.json", "w"), indent=1)
    json.dump({"name": name, "seed": seed, "prompts": result}, open(f"{out}/golden.json", "w"))
    print(f"{name}: seed {seed}")


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        folder = f"build/golden/arch/{name}"
        os.makedirs(folder, exist_ok=True)
        make(name, CASES[name], folder)
