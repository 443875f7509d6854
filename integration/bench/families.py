#!/usr/bin/env python3
"""Random weights in the shapes of other families than Llama's, as a GGUF file of Q8_0 that llama.cpp reads too.

    families.py SHAPE OUT.gguf     writes the file; needs torch, transformers, gguf, and TEST_DATA
    families.py                    lists the shapes

Then both on the same file, one after the other:

    model-server bench OUT.gguf --prefill 512 --decode 16 --batch 1 --threads 2
    peer_llama_cpp.py OUT.gguf --prompt 512 --new 16"""

import argparse
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "formats"), str(HERE)]

# Family of gguf_families.py, and config.json. Released sizes but for what the name says is cut.
SHAPES = {
    "qwen3.5-0.8b": (
        "qwen3_5_text",
        dict(
            model_type="qwen3_5_text",
            hidden_size=1024,
            intermediate_size=3584,
            num_hidden_layers=24,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=256,
            linear_num_key_heads=16,
            linear_num_value_heads=16,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            vocab_size=248320,
            rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10]),
            tie_word_embeddings=True,
        ),
    ),
    "qwen3-30b-a3b-4-layers": (
        "qwen3_moe",  # not among the families of tests, whose folder has a dense layer, as no file has
        dict(
            model_type="qwen3_moe",
            hidden_size=2048,
            intermediate_size=6144,
            moe_intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=32,
            num_key_value_heads=4,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            norm_topk_prob=True,
            vocab_size=151936,
            rope_theta=1e6,
            tie_word_embeddings=False,
        ),
    ),
    "deepseek-v3-2-layers-32-experts": (
        "deepseek_v3_noq",
        dict(
            model_type="deepseek_v3",
            hidden_size=7168,
            intermediate_size=18432,
            moe_intermediate_size=2048,
            num_hidden_layers=2,
            first_k_dense_replace=1,
            num_attention_heads=128,
            num_key_value_heads=128,
            n_routed_experts=32,
            num_experts_per_tok=8,
            n_shared_experts=1,
            n_group=8,
            topk_group=4,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            qk_nope_head_dim=128,
            v_head_dim=128,
            routed_scaling_factor=2.5,
            norm_topk_prob=True,
            vocab_size=32768,
            tie_word_embeddings=False,
        ),
    ),
    "granite-4-h-tiny-10-layers": (
        "granitemoehybrid",
        dict(
            model_type="granitemoehybrid",
            hidden_size=1536,
            intermediate_size=512,
            shared_intermediate_size=1024,
            num_hidden_layers=10,
            layer_types=["mamba"] * 5 + ["attention"] + ["mamba"] * 4,
            num_attention_heads=12,
            num_key_value_heads=4,
            num_local_experts=64,
            num_experts_per_tok=6,
            mamba_n_heads=48,
            mamba_d_head=64,
            mamba_d_state=128,
            mamba_n_groups=1,
            mamba_d_conv=4,
            mamba_expand=2,
            position_embedding_type="nope",
            embedding_multiplier=12.0,
            logits_scaling=6.0,
            residual_multiplier=0.22,
            attention_multiplier=0.0078125,
            vocab_size=100352,
            tie_word_embeddings=True,
        ),
    ),
}


def write_folder(config, folder):
    """A checkpoint that transformers has initialised, and a tokenizer of as many tokens."""
    import torch
    from random_checkpoint import write_tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = dict(config, max_position_embeddings=4096, bos_token_id=1, eos_token_id=2)
    made = AutoConfig.for_model(config.pop("model_type"), **config)
    AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).save_pretrained(folder, max_shard_size="100GB")
    write_tokenizer("tiny", dict(arch="llama", vocab=config["vocab_size"], bos=1, eos=2, ctx=4096), folder)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("shape", nargs="?", choices=SHAPES)
    ap.add_argument("out", nargs="?")
    a = ap.parse_args()
    if not a.out:
        print("\n".join(SHAPES))
        return
    from gguf_families import ARCH, write_family
    from gguf_keys import experts

    def qwen3moe(w, c):
        experts(w, c)
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])

    family, config = SHAPES[a.shape]
    with tempfile.TemporaryDirectory(dir=pathlib.Path(a.out).resolve().parent) as folder:
        write_folder(config, folder)
        c = json.loads((pathlib.Path(folder) / "config.json").read_text())
        (pathlib.Path(folder) / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", **c, **config}))  # transformers 5 renames some keys
        write_family(folder, a.out, newer=family.startswith("deepseek"), model=(ARCH.QWEN3MOE, qwen3moe) if family == "qwen3_moe" else family, packed="Q8_0")


main()
