"""Qwen4-Exp through the real programs: the last ids for tables of n-grams, the inputs of their convolution and the block that is open are in cells, so that
cached prompts, preemption, lower tiers and restarts bring them with the rest; tables in parts. Which tokens are right: tests/golden/test_arch.c."""

import json
import shutil
import subprocess

import numpy as np
from serving import BIN, data
from stored_made import save
from test_sparse import CellsAndBlocks

HIDDEN, HEADS, KV, DIM, STREAMS, RANK, EXPERTS, FFN, KEYS, VALUES, SIZE = 64, 4, 2, 16, 3, 12, 4, 32, 2, 4, 16
INDEX_HEADS, INDEX_DIM, BLOCK, WIDE = 8, 16, 5, 24
KINDS = ["linear_attention", "indexed_attention", "linear_attention"]
ROWS = {0: 184, 2: 264}  # of four primes from 41 on, and of the next four, in eights


def streams(at, writes=True):
    wide = STREAMS * HIDDEN
    yield from {at + "hc_norm.weight": (wide,), at + "input_mix_weight_down.weight": (RANK, wide), at + "input_mix_weight_up.weight": (wide, RANK)}.items()
    if writes:
        yield at + "block_inject_weight.weight", (STREAMS, wide)


def shapes(i):
    """Of the layer of KINDS[i]."""
    wide = STREAMS * HIDDEN
    yield from streams("attn_hyper_connection.")
    yield from streams("mlp_hyper_connection.")
    yield from {"mlp.gate.weight": (EXPERTS, HIDDEN), "mlp.shared_expert_gate.weight": (1, HIDDEN)}.items()
    for mlp in ["mlp.shared_expert.", *(f"mlp.experts.{e}." for e in range(EXPERTS))]:
        yield from {mlp + "gate_proj.weight": (FFN, HIDDEN), mlp + "up_proj.weight": (FFN, HIDDEN), mlp + "down_proj.weight": (HIDDEN, FFN)}.items()
    if KINDS[i] == "indexed_attention":
        at = "self_attn."
        yield from {at + "q_proj.weight": (2 * HEADS * DIM, HIDDEN), at + "k_proj.weight": (KV * DIM, HIDDEN), at + "v_proj.weight": (KV * DIM, HIDDEN),
                    at + "o_proj.weight": (HIDDEN, HEADS * DIM), at + "q_norm.weight": (DIM,), at + "k_norm.weight": (DIM,),
                    at + "indexer.index_qk_proj.weight": ((INDEX_HEADS + 1) * INDEX_DIM, HIDDEN), at + "indexer.q_layernorm.weight": (INDEX_DIM,),
                    at + "indexer.k_layernorm.weight": (INDEX_DIM,)}.items()
        return
    at, channels = "linear_attn.", (2 * KEYS + VALUES) * SIZE
    yield from {at + "in_proj_qkv.weight": (channels, HIDDEN), at + "in_proj_z.weight": (VALUES * SIZE, HIDDEN), at + "in_proj_a.weight": (VALUES, HIDDEN),
                at + "in_proj_b.weight": (VALUES, HIDDEN), at + "conv1d.weight": (channels, 1, 4), at + "A_log": (VALUES,), at + "dt_bias": (VALUES,),
                at + "norm.weight": (SIZE,), at + "out_proj.weight": (HIDDEN, VALUES * SIZE)}.items()
    at = "ple."
    yield from {at + "key_proj.weight": (wide, WIDE), at + "value_proj.weight": (HIDDEN, WIDE), at + "norm_key.weight": (wide,), at + "norm_query.weight": (wide,),
                at + "norm_conv.weight": (wide,), at + "conv1d.weight": (wide, 1, 4), at + "ple_embedding.ngram_embedding.weight": (ROWS[i], WIDE // 4)}.items()


def in_parts(tensors, sizes):
    """The tables as the hub's files have them; an odd byte before them, so that none is at a multiple of its type's size."""
    out = {"odd": np.zeros(1, np.uint8)}
    for name, v in tensors.items():
        if "ngram_embedding" in name:
            at = np.cumsum([0, *sizes])
            out |= {name.replace("weight", f"shard_{k}.weight"): v[at[k] : at[k + 1]] for k in range(len(sizes))}
            out[name.replace("weight", f"shard_{len(sizes)}.weight")] = v[at[-1] :]
        else:
            out[name] = v
    return out


def ngrams(folder, budget=20, parts=None, name="m"):
    model = folder / f"{name}-{budget}"
    shutil.copytree(data("arch/deepseek_v3_yarn"), model)
    c = json.loads((model / "config.json").read_text())
    c = {k: c[k] for k in ("vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id") if k in c} | dict(
        model_type="qwen4_exp_text", architectures=["Qwen4ExpForCausalLM"], torch_dtype="float32", hidden_size=HIDDEN, num_hidden_layers=3, num_attention_heads=HEADS,
        num_key_value_heads=KV, head_dim=DIM, layer_types=KINDS, hc_count=STREAMS, hc_lowrank=RANK, num_experts=EXPERTS, num_experts_per_tok=2,
        moe_intermediate_size=FFN, shared_expert_intermediate_size=FFN, linear_num_key_heads=KEYS, linear_num_value_heads=VALUES, linear_key_head_dim=SIZE,
        linear_value_head_dim=SIZE, ple_layer_ids=[1, 3], ple_embed_dim=WIDE, heads_per_ngram=2, ngram_vocab_size_base=40, eos_token_id=2,
        make_ngram_vocab_size_divisible_by=8, indexer_n_heads=INDEX_HEADS, indexer_kv_heads=1, indexer_head_dim=INDEX_DIM, indexer_budget=budget,
        indexer_compress_ratio=BLOCK, rope_theta=10000.0, partial_rotary_factor=0.5, tie_word_embeddings=False)
    (model / "config.json").write_text(json.dumps(c))
    rng = np.random.default_rng(4)
    t = {"model.embed_tokens.weight": (320, HIDDEN), "lm_head.weight": (320, HIDDEN)} | dict(streams("model.hyper_connection_mixer.", False))
    t |= {f"model.layers.{i}.{name}": shape for i in range(3) for name, shape in shapes(i)}
    made = {n: (rng.normal(size=s) * 0.2 + n.endswith("linear_attn.norm.weight")).astype(np.float32) for n, s in t.items()}
    for file in model.glob("*.safetensors*"):
        file.unlink()
    save(model / "model.safetensors", in_parts(made, parts) if parts else made)
    return model


def logits(model):
    ids = ",".join(str(3 + i * 7 % 300) for i in range(60))
    return subprocess.run([BIN / "model-server", "logits", model, "--ids", ids, "--dtype", "float32"], capture_output=True, text=True, timeout=60)


def test_tables_may_be_in_parts(tmp_path):
    whole = logits(ngrams(tmp_path))
    assert whole.returncode == 0 and whole.stdout.strip(), whole.stderr
    for k, parts in enumerate(([100], [1, 60, 80], [23] * 7)):
        assert logits(ngrams(tmp_path, parts=parts, name=f"parts{k}")).stdout == whole.stdout


def test_tables_of_other_sizes_are_refused(tmp_path):
    for parts in None, [100]:
        model = ngrams(tmp_path, parts=parts, name=f"cut{parts}")
        c = json.loads((model / "config.json").read_text())
        for base, rows in (37, 168), (200, 896):
            (model / "config.json").write_text(json.dumps(c | {"ngram_vocab_size_base": base}))
            wrong = logits(model)
            assert wrong.returncode != 0 and f"have 184 rows, not {rows}" in wrong.stderr, wrong.stderr


class TestNgrams(CellsAndBlocks):
    made = staticmethod(ngrams)
