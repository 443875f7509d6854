"""Families with several residual streams or two stacks, and MiniMax M3: metadata and tensors as llama.cpp's converter writes them."""

import numpy as np
from gguf_keys import kimi_linear
from gguf_keys_latent import deepseek_experts, yarn
from gguf_tensors import absorbed, kimi_tensors, respelt


def indexer(w, c):
    w.add_indexer_head_count(c["index_n_heads"])
    w.add_indexer_key_length(c["index_head_dim"])
    w.add_indexer_top_k(c["index_topk"])


def streams(w, c, arch):
    w.add_uint32(f"{arch}.hyper_connection.count", c["hc_mult"])
    w.add_float32(f"{arch}.hyper_connection.epsilon", c["hc_eps"])
    if "hc_sinkhorn_iters" in c:
        w.add_uint32(f"{arch}.hyper_connection.sinkhorn_iterations", c["hc_sinkhorn_iters"])
    if "hc_magnitude" in c:
        w.add_float32(f"{arch}.hyper_connection.magnitude", c["hc_magnitude"])
    w.add_array(f"{arch}.swiglu_clamp_exp", [float(c["swiglu_limit"])] * c["num_hidden_layers"])


def latent(w, c):
    rank, rot = c["kv_lora_rank"], c["qk_rope_head_dim"]
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(rank)
    w.add_rope_dimension_count(rot)
    w.add_key_length(rank + rot)
    w.add_value_length(rank)
    w.add_key_length_mla(c["qk_nope_head_dim"] + rot)
    w.add_value_length_mla(c["v_head_dim"])


def hy_v4(w, c):
    c.setdefault("first_k_dense_replace", c["mlp_layer_types"].count("dense"))
    deepseek_experts(w, c)
    w.add_block_count(c["num_hidden_layers"])
    w.add_head_count_kv(1)
    latent(w, c)
    indexer(w, c)
    streams(w, c, "hy_v4")


def glm5_next(w, c):
    c["first_k_dense_replace"] = c["mlp_layer_types"].count("dense")
    deepseek_experts(w, c)
    w.add_block_count(c["num_hidden_layers"])
    w.add_head_count_kv([int(t != "linear_attention") for t in c["layer_types"]])
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_kda_head_dim(c["linear_head_dim"])
    if c["linear_lower_bound"] is not None:
        w.add_float32("glm5-next.kda.gate_lower_bound", c["linear_lower_bound"])
    latent(w, c)
    indexer(w, c)
    w.add_uint32("glm5-next.attention.indexer.kpool", c["index_kpool"])
    if c["n_group"] > 1:
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])
    streams(w, c, "glm5-next")


def deepseek4(w, c):
    w.add_block_count(c["num_hidden_layers"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(True)
    w.add_uint32("deepseek4.expert_gating_func", 4)  # the root of softplus
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_sliding_window(c["sliding_window"])
    indexer(w, c)
    yarn(w, c["rope_scaling"])
    for key, of in (("attention.output_group_count", "o_groups"), ("attention.output_lora_rank", "o_lora_rank"), ("hash_layer_count", "num_hash_layers")):
        w.add_uint32("deepseek4." + key, c[of])
    w.add_float32("deepseek4.attention.compress_rope_freq_base", c["compress_rope_theta"])
    w.add_array("deepseek4.attention.compress_ratios", c["compress_ratios"])
    streams(w, c, "deepseek4")


def kimi_k3(w, c):
    """Kimi Linear's words; what its layers have beyond that."""
    kimi_linear(w, c)
    own = c["linear_attn_config"]
    w.add_uint32("kimi-k3.expert_latent_length", c["routed_expert_hidden_size"])
    w.add_uint32("kimi-k3.attn_res.block_size", c["attn_res_block_size"])
    w.add_float32("kimi-k3.activation.situ_beta", c["activation_situ_beta"])
    w.add_float32("kimi-k3.activation.situ_linear_beta", c["activation_situ_linear_beta"])
    w.add_float32("kimi-k3.kda.gate_lower_bound", own["gate_lower_bound"])


def hrm_text(w, c):
    w.add_float32("hrm_text.embedding_scale", c["embedding_scale"])
    for key, of in (("layers_per_stack", "num_layers_per_stack"), ("h_cycles", "H_cycles"), ("l_cycles", "L_cycles")):
        w.add_uint32("hrm_text.hrm." + key, c[of])


def minimax_m3(w, c):
    own = c["sparse_attention_config"]
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["intermediate_size"])
    w.add_expert_shared_count(1)
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(True)
    w.add_rope_dimension_count(c["rotary_dim"])
    indexer(w, {"index_n_heads": own["sparse_num_index_heads"], "index_head_dim": own["sparse_index_dim"], "index_topk": own["sparse_topk_blocks"]})
    w.add_uint32("minimax-m3.attention.indexer.block_size", own["sparse_block_size"])
    w.add_uint32("minimax-m3.attention.indexer.local_blocks", own["sparse_local_block"])


# ------------------------------------------------------------------ tensors


def blk(name, to):
    return f"blk.{name.split('.')[2]}.{to}"


def hy_v4_tensors(named, c):
    """Gate and up of the experts apart, and names of the streams' parts."""
    for name, v in absorbed(named, c):
        name = name.replace(".mlp.linear_gate", ".mlp.gate_proj").replace("shared_experts.linear_gate", "shared_experts.gate_proj")
        part = name.rpartition(".hc_")[2]
        if ".hc_head." in name:
            yield f"output_hc_{part.removeprefix('head_')}.weight", v
        elif ".hc_attn_layer." in name or ".hc_mlp_layer." in name:
            yield blk(name, f"hc_{'attn' if '_attn_' in name else 'ffn'}_{part}.weight"), v
        elif name.endswith("experts.gate_up_proj"):
            for word, half in zip(("gate", "up"), np.split(v, 2, axis=1)):
                yield blk(name, f"ffn_{word}_exps.weight"), half
        else:
            words = {"experts.down_proj": "ffn_down_exps.weight", "linear_gate": "attn_gate.weight", "sink_param": "attn_sinks.weight", "correction_bias": "exp_probs_b.bias"}
            yield from respelt({name: v}, {k: to for k, to in words.items() if "shared" not in name})


GLM5_NEXT = {
    "q_a_proj": "attn_q_a.weight", "q_a_layernorm": "attn_q_a_norm.weight", "q_b_proj": "attn_q_b.weight",
    "indexer.wq_b": "indexer.attn_q_b.weight", "indexer.wk": "indexer.attn_k.weight", "indexer.weights_proj": "indexer.proj.weight",
    "indexer.k_norm.weight": "indexer.k_norm.weight", "indexer.k_norm.bias": "indexer.k_norm.bias",
}  # fmt: skip


def glm5_next_tensors(named, c):
    for name, v in kimi_tensors(dict(absorbed(named, c))):
        part = name.rpartition(".")[2]
        if part.startswith("hc_"):
            yield blk(name, part + ".weight"), v
        elif "index_kpool_compress_" in name:
            yield blk(name, f"indexer_compressor_{part.rpartition('_')[2]}.weight"), v
        elif "e_score_correction" in name:
            yield blk(name, "exp_probs_b.bias"), v
        elif ".visual." not in name:
            yield from respelt({name: v.reshape(-1) if name.endswith("A_log") else v}, GLM5_NEXT)


KIMI_K3 = {"routed_expert_down_proj": "ffn_routed_down.weight", "routed_expert_up_proj": "ffn_routed_up.weight",
           "routed_expert_norm": "ffn_routed_norm.weight", "e_score_correction": "exp_probs_b.bias"}  # fmt: skip


def kimi_k3_tensors(named, c):
    """The two vectors of a score in one; gates of the two kinds of layers apart; rates of the heads alone."""
    named = {k.removeprefix("language_model."): v for k, v in named.items()}
    heads, full = c["linear_attn_config"]["num_heads"], c["linear_attn_config"]["full_attn_layers"]
    scores = {"self_attention_res": "attn_res_score.weight", "mlp_res": "ffn_res_score.weight"}
    for name, v in kimi_tensors(dict(absorbed(named, c))):
        part = name.split(".")[-2].removesuffix("_proj")
        if name.endswith("_res_norm.weight"):
            continue
        if name.endswith("_res_proj.weight"):
            v = v.reshape(-1) * named[name.replace("_proj", "_norm")]
            yield ("output_res_score.weight" if part == "output_attn_res" else blk(name, scores[part])), v
        elif ".g_proj." in name:
            yield blk(name, ("attn_gate" if int(name.split(".")[2]) + 1 in full else "ssm_g") + ".weight"), v
        elif name.endswith("A_log"):
            yield blk(name, "ssm_a"), v.reshape(-1)[:heads]
        else:
            yield from respelt({name: v}, KIMI_K3)


DEEPSEEK_V4 = {
    "hc_attn_fn": "hc_attn_fn", "hc_attn_base": "hc_attn_base", "hc_attn_scale": "hc_attn_scale",
    "hc_ffn_fn": "hc_ffn_fn", "hc_ffn_base": "hc_ffn_base", "hc_ffn_scale": "hc_ffn_scale",
    "indexer.compressor.ape": "indexer_compressor_ape", "indexer.compressor.wkv": "indexer_compressor_kv",
    "indexer.compressor.wgate": "indexer_compressor_gate", "indexer.compressor.norm": "indexer_compressor_norm",
    "indexer.wq_b": "indexer.attn_q_b", "indexer.weights_proj": "indexer.proj",
    "compressor.ape": "attn_compressor_ape", "compressor.wkv": "attn_compressor_kv",
    "compressor.wgate": "attn_compressor_gate", "compressor.norm": "attn_compressor_norm",
    "attn_sink": "attn_sinks", "attn.wq_a": "attn_q_a", "attn.wq_b": "attn_q_b", "attn.q_norm": "attn_q_a_norm", "attn.wkv": "attn_kv",
    "attn.norm": "attn_kv_a_norm", "attn.wo_a": "attn_output_a", "attn.wo_b": "attn_output_b",
    "attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "tid2eid": "ffn_gate_tid2eid", "ffn.gate.weight": "ffn_gate_inp",
    "shared_experts.w1": "ffn_gate_shexp", "shared_experts.w2": "ffn_down_shexp", "shared_experts.w3": "ffn_up_shexp",
    "ffn.experts.w1": "ffn_gate_exps", "ffn.experts.w2": "ffn_down_exps", "ffn.experts.w3": "ffn_up_exps",
}  # fmt: skip


def deepseek4_tensors(named, c):
    """The repository's names. A layer that chooses experts by the token's id keeps no bias."""
    ends = {"head.weight": "output.weight", "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for name, v in named.items():
        if name in ends or ".hc_head." in name:
            yield ends.get(name) or f"output_{name.rpartition('.')[2]}.weight", v
        elif name.endswith("ffn.gate.bias"):
            yield blk(name, "exp_probs_b.bias"), v
        else:
            yield from respelt({name: v}, {part: to + ".weight" for part, to in DEEPSEEK_V4.items()})


def hrm_text_tensors(named, c):
    """Both stacks in one list of layers; packed matrices apart."""
    n = c["num_layers_per_stack"]
    for name, v in named.items():
        if name.endswith("z_L_init"):
            yield "hrm.z_l_init", v
            continue
        if "_module." not in name:
            yield name, v
            continue
        stack, layer, part = name.split("_module.layers.")[0][-1], *name.split("_module.layers.")[1].split(".", 1)
        of = f"blk.{int(layer) + n * (stack == 'H')}."
        for fused, words in (("gqkv_proj", ("attn_gate", "attn_q", "attn_k", "attn_v")), ("gate_up_proj", ("ffn_gate", "ffn_up"))):
            if fused in part:
                yield from ((f"{of}{word}.weight", x) for word, x in zip(words, np.split(v, len(words))))
        apart = {"gate_proj": "attn_gate", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
        apart = apart if "attn" in part else {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
        word = apart.get(part.split(".")[-2])
        if word:
            yield f"{of}{word}.weight", v


def minimax_m3_tensors(named, c):
    """Norms around 1, and the indexer's names."""
    words = {"index_q_proj": "indexer.q_proj", "index_k_proj": "indexer.k_proj", "index_q_norm": "indexer.q_norm", "index_k_norm": "indexer.k_norm"}
    words = {k: to + ".weight" for k, to in words.items()} | {"e_score_correction_bias": "exp_probs_b.bias"}
    for part, to in ("gate_proj", "gate"), ("up_proj", "up"), ("down_proj", "down"):
        words[f"shared_experts.{part}"] = f"ffn_{to}_shexp.weight"
    named = {k.removeprefix("language_model."): v + 1 if k.endswith("norm.weight") else v for k, v in named.items()}
    yield from respelt(named, words)
