"""DeepSeek V4 through the real programs: entries lie in the blocks of the keys, and the open ones in cells, so that cached prompts, preemption, lower
tiers and restarts bring them with the rest. Which tokens are right: tests/golden/test_arch.c."""

import json
import shutil

import numpy as np
from serving import data
from stored_made import save
from test_sparse import CellsAndBlocks

HIDDEN, HEADS, DIM, RANK, GROUPS, O_RANK, EXPERTS, K, FFN, STREAMS = 64, 4, 32, 24, 2, 12, 6, 2, 32, 2
INDEX_HEADS, INDEX_DIM, CHOSEN, ALL = 8, 16, 4, 10
KINDS = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]


def shapes(i):
    """Of the layer of KINDS[i]."""
    at, mix = "self_attn.", (2 + STREAMS) * STREAMS
    yield from {"input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,), at + "q_a_proj.weight": (RANK, HIDDEN),
                at + "q_a_norm.weight": (RANK,), at + "q_b_proj.weight": (HEADS * DIM, RANK), at + "kv_proj.weight": (DIM, HIDDEN),
                at + "kv_norm.weight": (DIM,), at + "sinks": (HEADS,), at + "o_b_proj.weight": (HIDDEN, GROUPS * O_RANK),
                at + "o_a_proj.weight": (GROUPS * O_RANK, HEADS * DIM // GROUPS)}.items()
    for hc in "attn_hc", "ffn_hc":
        yield from {f"{hc}.fn": (mix, STREAMS * HIDDEN), f"{hc}.base": (mix,), f"{hc}.scale": (3,)}.items()
    yield "mlp.gate.weight", (EXPERTS, HIDDEN)
    if i:
        yield "mlp.gate.e_score_correction_bias", (EXPERTS,)
    for mlp in ["mlp.shared_experts.", *(f"mlp.experts.{e}." for e in range(EXPERTS))]:
        yield from {mlp + "gate_proj.weight": (FFN, HIDDEN), mlp + "up_proj.weight": (FFN, HIDDEN), mlp + "down_proj.weight": (HIDDEN, FFN)}.items()
    if i:
        yield from pooled(at + "compressor.", [ALL, CHOSEN][i == 1], (2 if i == 1 else 1) * DIM, DIM)
    if i == 1:
        index = at + "compressor.indexer."
        yield from pooled(index, CHOSEN, 2 * INDEX_DIM, INDEX_DIM)
        yield index + "q_b_proj.weight", (INDEX_HEADS * INDEX_DIM, RANK)
        yield index + "scorer.weights_proj.weight", (INDEX_HEADS, HIDDEN)


def pooled(at, every, wide, n):
    return {at + "kv_proj.weight": (wide, HIDDEN), at + "gate_proj.weight": (wide, HIDDEN), at + "position_bias": (every, wide),
            at + "kv_norm.weight": (n,)}.items()


def entries(folder, top=8):
    """A layer with a window alone and experts by ids, one whose indexer selects `top` entries, one with all entries."""
    model = folder / f"entries-{top}"
    shutil.copytree(data("arch/deepseek_v3_yarn"), model)
    c = json.loads((model / "config.json").read_text())
    c |= dict(model_type="deepseek_v4", num_hidden_layers=3, num_attention_heads=HEADS, num_key_value_heads=1, head_dim=DIM, qk_rope_head_dim=8,
              q_lora_rank=RANK, o_groups=GROUPS, o_lora_rank=O_RANK, n_routed_experts=EXPERTS, num_experts_per_tok=K, moe_intermediate_size=FFN,
              sliding_window=20, layer_types=KINDS, compress_rate_csa=CHOSEN, compress_rate_hca=ALL, index_n_heads=INDEX_HEADS, index_topk=top,
              index_head_dim=INDEX_DIM, num_hash_layers=1, hc_mult=STREAMS, rope_scaling=None)
    (model / "config.json").write_text(json.dumps(c))
    rng = np.random.default_rng(4)
    t = {"model.embed_tokens.weight": (320, HIDDEN), "lm_head.weight": (320, HIDDEN), "model.norm.weight": (HIDDEN,), "model.hc_head.hc_base": (STREAMS,),
         "model.hc_head.hc_fn": (STREAMS, STREAMS * HIDDEN), "model.hc_head.hc_scale": (1,)}
    t |= {f"model.layers.{i}.{name}": shape for i in range(3) for name, shape in shapes(i)}
    made = {n: (rng.normal(size=s) * 0.2 + ("norm.weight" in n or n.endswith("scale"))).astype(np.float32) for n, s in t.items()}
    made["model.layers.0.mlp.gate.tid2eid"] = rng.random((320, EXPERTS)).argsort(-1)[:, :K].astype(np.int32)
    save(model / "model.safetensors", made)
    return model


class TestEntries(CellsAndBlocks):
    made = staticmethod(entries)
