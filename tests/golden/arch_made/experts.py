"""Experts behind plain attention."""

import torch
from .base import COMMON, THETA, renamed, experts_apart
from .stored import to_fp8

GPT_OSS = dict(  # half of an expert's 96 columns ends within a group of 32
    num_hidden_layers=4, head_dim=16, sliding_window=20, num_local_experts=6, num_experts_per_tok=3,
    intermediate_size=96,
    rope_parameters=dict(
        rope_type="yarn", rope_theta=150000.0, factor=8.0, original_max_position_embeddings=64, beta_fast=32.0,
        beta_slow=1.0, truncate=False,
    ),
)

CASES = {
    "qwen3_moe_in_first_fp8": dict(
        model_type="qwen3_moe", num_hidden_layers=3, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
    ),
    "mixtral_window": dict(
        model_type="mixtral", num_local_experts=6, num_experts_per_tok=3, sliding_window=20, rope_parameters=THETA,
    ),
    "llama4_yarn": dict(  # norms of q and k behind a rotation that has a factor
        model_type="llama4_text", num_hidden_layers=4, head_dim=16, num_local_experts=4, num_experts_per_tok=1, intermediate_size_mlp=96,
        attention_chunk_size=24, no_rope_layers=[1, 0, 1, 1], interleave_moe_layer_step=2, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64),
    ),
    "gpt_oss": dict(model_type="gpt_oss", **GPT_OSS),
    "gpt_oss_mxfp4": dict(model_type="gpt_oss", **GPT_OSS),
    "olmoe": dict(model_type="olmoe", num_experts=8, num_experts_per_tok=3, intermediate_size=32, rope_parameters=THETA),
    "dots1": dict(
        model_type="dots1", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        n_shared_experts=2, moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.5, rope_parameters=THETA,
    ),
    "qwen3_moe_in_first": dict(
        model_type="qwen3_moe", head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
        norm_topk_prob=True, rope_parameters=dict(THETA),
    ),
    "granitemoe": dict(
        model_type="granitemoe", num_local_experts=6, num_experts_per_tok=3, attention_multiplier=0.2,
        embedding_multiplier=6.0, residual_multiplier=0.4, logits_scaling=3.0, rope_parameters=THETA,
    ),
    "granitemoeshared": dict(
        model_type="granitemoeshared", num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=96,
        attention_multiplier=0.2, residual_multiplier=0.4, rope_parameters=THETA,
    ),
    "hunyuan_v1_moe": dict(
        model_type="hunyuan_v1_moe", head_dim=16, num_experts=6, moe_topk=3, intermediate_size=48, rope_parameters=THETA,
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
    "afmoe": dict(
        model_type="afmoe", head_dim=16, num_hidden_layers=4, sliding_window=20, num_dense_layers=1, num_experts=8, num_experts_per_tok=3,
        num_shared_experts=1, moe_intermediate_size=32, route_scale=1.7, mup_enabled=True, rope_parameters=THETA,
    ),
    "flex_olmo": dict(
        model_type="flex_olmo", num_experts=6, num_experts_per_tok=3, intermediate_size=48, rope_parameters=THETA,
    ),
    "exaone_moe": dict(
        model_type="exaone_moe", num_hidden_layers=4, sliding_window=20, sliding_window_pattern=4, num_experts=8,
        num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1, n_group=2, topk_group=1,
        rope_parameters=THETA,
    ),
    "solar_open": dict(
        model_type="solar_open", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32,
        routed_scaling_factor=1.5, rope_parameters=THETA,
    ),
    "hy_v3": dict(
        model_type="hy_v3", head_dim=16, num_experts=8, num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=32,
        router_scaling_factor=1.8, rope_parameters=THETA,
    ),
    "sarvam_moe": dict(
        model_type="sarvam_moe", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, n_group=4, topk_group=2, rope_parameters=THETA,
    ),
    "kolibri1": dict(
        model_type="kolibri1", head_dim=16, num_hidden_layers=5, sliding_window=20, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=48, norm_topk_prob=True, rope_parameters=THETA,
    ),
    "laguna": dict(
        model_type="laguna", head_dim=16, num_hidden_layers=4, sliding_window=20, num_attention_heads_per_layer=[8, 12, 4, 8],
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=48, moe_routed_scaling_factor=1.7, attention_bias=True,
        rope_parameters={
            "full_attention": dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=64, beta_fast=32.0,
                                   beta_slow=1.0, partial_rotary_factor=0.5),
            "sliding_attention": THETA,
        },
    ),
    "flint": dict(
        model_type="flint", num_hidden_layers=5, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        shared_expert_intermediate_size=48, mlp_only_layers=[0], rope_parameters=THETA,
    ),
    "beam": dict(
        model_type="beam", num_hidden_layers=4, head_dim=16, sliding_window=20, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        n_group=4, topk_group=2, routed_scaling_factor=1.8, final_logit_softcapping=4.0, rms_norm_eps=1e-3,
        layer_types=["sliding_attention", "full_attention"] * 2, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "mimo_v2_flash": dict(
        model_type="mimo_v2_flash", num_hidden_layers=4, num_key_value_heads=2, head_dim=24, v_head_dim=16, sliding_window=20,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], n_routed_experts=8,
        num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=32, routed_scaling_factor=1.5,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "mimo_v2_flash_hub": dict(
        model_type="mimo_v2_flash", num_hidden_layers=7, num_key_value_heads=4, head_dim=16, v_head_dim=8, sliding_window=30,
        attention_bias=True, attention_value_scale=None, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
        rope_parameters={"full_attention": dict(THETA, rope_theta=5e5, partial_rotary_factor=0.5),
                         "sliding_attention": dict(THETA, partial_rotary_factor=0.5)},
    ),
    "mimo_v2": dict(  # of blocks of 32 rows no turn of any layer has a whole number
        model_type="mimo_v2_flash", num_hidden_layers=4, num_key_value_heads=2, head_dim=24, v_head_dim=16, sliding_window=20,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], n_routed_experts=8,
        num_experts_per_tok=3, moe_intermediate_size=32, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "granitemoe_swa": dict(
        model_type="granitemoe_swa", num_hidden_layers=4, attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, sliding_window=20, num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=48,
        layer_rope_theta=[0, 10000.0, 10000.0, 10000.0], rope_parameters=THETA,
    ),
    "cohere2_moe": dict(
        model_type="cohere2_moe", head_dim=16, num_hidden_layers=5, sliding_window=20, first_k_dense_replace=1, num_experts=6,
        num_experts_per_tok=3, num_shared_experts=1, intermediate_size=48, prefix_dense_intermediate_size=96,
        expert_selection_fn="sigmoid", logit_scale=1.0, rope_parameters=THETA,
    ),
    "mellum": dict(
        model_type="mellum", head_dim=16, num_hidden_layers=4, sliding_window=20, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=64,
                                   beta_fast=32.0, beta_slow=1.0),
            "sliding_attention": THETA,
        },
    ),
    "smallthinker": dict(model_type="smollm3", num_hidden_layers=4, tie_word_embeddings=False, sliding_window=20, layer_types=["full_attention"] + ["sliding_attention"] * 3,
                         no_rope_layers=[0, 1, 1, 1], rope_parameters=THETA),
    "smallthinker_softmax": dict(model_type="smollm3", tie_word_embeddings=True, no_rope_layers=[1, 1, 1], rope_parameters=THETA),
    # Ling 2: Sarvam's arithmetic with half of a head rotated, whose tensors have the same names
    "bailing_moe": dict(
        model_type="sarvam_moe", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, n_group=4, topk_group=2, rope_parameters=dict(THETA, partial_rotary_factor=0.5),
    ),
    # Param 2: the same, and the width of both shared experts
    "param2moe": dict(
        model_type="sarvam_moe", head_dim=16, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=24,
        first_k_dense_replace=1, n_group=2, topk_group=1, routed_scaling_factor=1.5, rope_parameters=THETA,
    ),
    # DeepSeekMoE 16B: Llama with the experts of DeepSeek-V2, see with_deepseek()
    "deepseek_moe": dict(model_type="llama", rope_parameters=THETA),
    # Ling 1: Granite's experts without its factors
    "ling_1": dict(
        model_type="granitemoeshared", num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=96, intermediate_size=48,
        attention_multiplier=8**-0.5, rope_parameters=THETA,
    ),
    "aria_text": dict(
        model_type="aria_text", moe_num_experts=8, moe_topk=3, moe_num_shared_experts=2, intermediate_size=48, rope_parameters=THETA,
    ),
}


class EarlyExperts(torch.nn.Module):
    """SmallThinker's: `early` is the router's input."""

    def __init__(self, hidden, ffn, softmax):
        super().__init__()
        self.primary_router = torch.nn.Linear(hidden, 6, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.ModuleDict({k: torch.nn.Linear(*((ffn, hidden) if k == "down" else (hidden, ffn)), bias=False)
                                                                for k in ("gate", "up", "down")}) for _ in range(6))
        self.softmax = softmax

    def forward(self, x):
        best = self.primary_router(self.early).topk(3, -1)
        w = best.values.softmax(-1) if self.softmax else best.values.sigmoid() / best.values.sigmoid().sum(-1, keepdim=True)
        w = torch.zeros(*x.shape[:-1], 6).scatter(-1, best.indices, w)
        return sum(w[..., i, None] * e["down"](e["gate"](x).relu() * e["up"](x)) for i, e in enumerate(self.experts))


def with_early(softmax):
    def do(model):
        for layer in model.model.layers:
            layer.mlp = EarlyExperts(model.config.hidden_size, 48, softmax)
            for p in layer.mlp.parameters():
                p.data = torch.randn_like(p) * 0.25
            layer.register_forward_pre_hook(lambda layer, args: setattr(layer.mlp, "early", args[0]))
    return do


def as_smallthinker(softmax):
    def do(t, c):
        n = c["num_hidden_layers"]
        kinds = c.get("layer_types") or ["full_attention"] * n
        return renamed(t, [("mlp.", "block_sparse_moe.")]), dict(
            {k: c[k] for k in COMMON if k != "intermediate_size"}, model_type="smallthinker", torch_dtype="float32", head_dim=8, rms_norm_eps=c["rms_norm_eps"],
            rope_theta=1e4, rope_layout=c["no_rope_layers"], sliding_window_layout=[int(k == "sliding_attention") for k in kinds], sliding_window_size=20,
            moe_num_primary_experts=6, moe_ffn_hidden_size=48, moe_primary_router_apply_softmax=softmax, moe_num_active_primary_experts=3,
            tie_word_embeddings=softmax)
    return do


def as_bailing(t, c):
    """The tensors that were saved, the keys of Ling's repositories."""
    c = dict(c, model_type="bailing_moe", num_experts=c["n_routed_experts"], num_shared_experts=c["n_shared_experts"], use_bias=False,
             use_qkv_bias=c["attention_bias"], score_function="sigmoid", moe_router_enable_expert_bias=True, norm_head=False)
    for key in "n_routed_experts", "n_shared_experts", "attention_bias":
        del c[key]
    return None, c


def as_param2moe(t, c):
    _, own = as_bailing(t, c)
    del own["score_function"]
    return None, dict(own, model_type="param2moe", moe_shared_expert_intermediate_size=c["n_shared_experts"] * c["moe_intermediate_size"])


def as_ling_1(t, c):
    """The names and keys of Ling's repositories."""
    out = {}
    for name, v in t.items():
        layer, _, part = name.partition(".block_sparse_moe.experts.")
        layer = layer if part else ".".join(name.split(".")[:3])
        if part:
            for e, x in enumerate(v):
                parts = zip(("gate_proj", "up_proj"), x.chunk(2)) if part == "gate_up_proj" else [("down_proj", x)]
                out |= {f"{layer}.mlp.experts.{e}.{word}.weight": y for word, y in parts}
        elif "shared_mlp.input_linear" in name:
            out[f"{layer}.mlp.shared_experts.gate_proj.weight"], out[f"{layer}.mlp.shared_experts.up_proj.weight"] = v.chunk(2)
        elif ".q_proj" in name:
            out[f"{layer}.attention.query_key_value.weight"] = torch.cat([t[name.replace("q_proj", f"{k}_proj")] for k in "qkv"])
        elif ".k_proj" not in name and ".v_proj" not in name:
            out[name] = v
    keys = ("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size", "hidden_act",
            "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "tie_word_embeddings", "max_position_embeddings", "rope_theta")
    c = {k: c[k] for k in keys} | dict(
        model_type="bailing_moe", intermediate_size=128, moe_intermediate_size=c["intermediate_size"], num_experts=c["num_local_experts"],
        num_shared_experts=2, num_experts_per_tok=c["num_experts_per_tok"], norm_topk_prob=True, first_k_dense_replace=0, use_bias=False,
        use_qkv_bias=False, norm_head=False)
    return renamed(out, [
        ("self_attn.o_proj", "attention.dense"), ("embed_tokens", "word_embeddings"), ("block_sparse_moe.router", "mlp.gate"),
        ("shared_mlp.output_linear", "mlp.shared_experts.down_proj"),
    ]), c

DEEPSEEK = dict(moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, routed_scaling_factor=1.0)


def with_deepseek(model):
    """All layers but the first have DeepSeek-V2's experts: softmax scores, not normalised, and shared experts."""
    from transformers import DeepseekV2Config
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
    for layer in model.model.layers[1:]:
        layer.mlp = DeepseekV2Moe(DeepseekV2Config(hidden_size=model.config.hidden_size, hidden_act="silu", topk_method="greedy", **DEEPSEEK))
        for p in layer.mlp.parameters():
            p.data = torch.randn_like(p) * 0.15


def as_deepseek(t, c):
    """The names and keys of DeepSeek's first repository."""
    for i in range(1, c["num_hidden_layers"]):
        experts_apart(t, i, "mlp", ("gate_proj", "up_proj", "down_proj"))
    return t, dict(c, model_type="deepseek", **DEEPSEEK, first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False, scoring_func="softmax")


def as_mimo(t, c):
    """The names and keys of Xiaomi's repository, where a window does not count the token itself."""
    for i, kind in enumerate(c["mlp_layer_types"]):
        if kind == "sparse":
            experts_apart(t, i, "mlp", ("gate_proj", "up_proj", "down_proj"))
    c = dict(c, hybrid_layer_pattern=[int(k == "sliding_attention") for k in c.pop("layer_types")],
             moe_layer_freq=[int(k == "sparse") for k in c.pop("mlp_layer_types")], layernorm_epsilon=c.pop("rms_norm_eps"),
             sliding_window_size=c["sliding_window"] - 1, swa_num_key_value_heads=2 * c["num_key_value_heads"],
             swa_num_attention_heads=c["num_attention_heads"], swa_head_dim=c["head_dim"], swa_v_head_dim=c["v_head_dim"],
             n_shared_experts=None, routed_scaling_factor=None, scoring_func="sigmoid", topk_method="noaux_tc",
             add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False)
    c["sliding_window"] -= 1
    return renamed(t, [("self_attn.sinks", "self_attn.attention_sink_bias")]), c


MIMO_BLOCK = 32


def with_mimo_v2(model):
    """Each turn's numbers are those that its blocks mean."""
    turns = model.config.num_key_value_heads
    for layer in model.model.layers:
        matrices = [getattr(layer.self_attn, p) for p in ("q_proj", "k_proj", "v_proj")]
        parts = [m.weight.data.chunk(turns) for m in matrices]
        exact = [to_fp8(torch.cat(turn), MIMO_BLOCK)[2].split([len(p) for p in turn]) for turn in zip(*parts)]
        for m, rows in zip(matrices, zip(*exact)):
            m.weight.data = torch.cat(rows)


def as_mimo_v2(t, c):
    """As the repository of MiMo V2.5 has them: turns of q, k and v in one matrix, whose blocks begin anew with each."""
    t, c = as_mimo(t, c)
    turns = c["num_key_value_heads"]
    for i in range(c["num_hidden_layers"]):
        name = f"model.layers.{i}.self_attn."
        parts = [t.pop(f"{name}{p}_proj.weight").chunk(turns) for p in "qkv"]
        made = [to_fp8(torch.cat([p[k] for p in parts]), MIMO_BLOCK) for k in range(turns)]
        t[name + "qkv_proj.weight"] = torch.cat([codes.view(torch.uint8) for codes, _, _ in made]).view(torch.float8_e4m3fn)
        t[name + "qkv_proj.weight_scale_inv"] = torch.cat([scale for _, scale, _ in made])
        for p, rows in zip(parts, zip(*(exact.split([len(p[0]) for p in parts]) for _, _, exact in made))):
            assert torch.equal(torch.cat(p), torch.cat(rows))
    return t, dict(c, model_type="mimo_v2", attention_projection_layout="fused_qkv", quantization_config=dict(
        quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[MIMO_BLOCK, MIMO_BLOCK],
        ignored_layers=[f"model.layers.{i}.self_attn.o_proj" for i in range(c["num_hidden_layers"])]))


AS = {
    "mimo_v2": as_mimo_v2,
    "mimo_v2_flash_hub": as_mimo, "smallthinker": as_smallthinker(False), "smallthinker_softmax": as_smallthinker(True),
    "bailing_moe": as_bailing, "param2moe": as_param2moe, "deepseek_moe": as_deepseek, "ling_1": as_ling_1,
}
WITH = {
    "mimo_v2": with_mimo_v2,
    "smallthinker": with_early(False), "smallthinker_softmax": with_early(True), "deepseek_moe": with_deepseek,
}
