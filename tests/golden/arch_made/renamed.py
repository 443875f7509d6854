"""Dense families whose code is in their repositories: the arithmetic of another model, under their names and keys."""

import math
import torch
from .base import THETA, renamed

CASES = {
    # Families whose code is in their repositories: the same arithmetic, of another model, under their names and keys.
    "internlm2": dict(model_type="llama", rope_parameters=THETA),
    "internlm3": dict(model_type="llama", attention_bias=True, mlp_bias=True, head_dim=16, rope_parameters=THETA),
    "minicpm": dict(
        model_type="granite", attention_multiplier=8**-0.5, embedding_multiplier=6.0, residual_multiplier=1.4 / 3**0.5,
        logits_scaling=2.0, tie_word_embeddings=True, rope_parameters=THETA,
    ),
    "chatglm": dict(
        model_type="glm", head_dim=16, attention_bias=True,
        rope_parameters=dict(THETA, rope_theta=50000.0, partial_rotary_factor=0.5),
    ),
    "exaone": dict(model_type="llama", rope_parameters=THETA),
    "baichuan": dict(model_type="llama", num_key_value_heads=8, rope_parameters=THETA),
    # The head of Baichuan 2 is known by the size of its vocabulary.
    "baichuan2": dict(
        model_type="llama", hidden_size=32, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2, vocab_size=125696,
        intermediate_size=64, rope_parameters=THETA,
    ),
    "baichuan_13b": dict(model_type="llama", hidden_size=96, num_attention_heads=6, num_key_value_heads=6, rope_parameters=THETA),
    "qwen": dict(model_type="qwen2", num_key_value_heads=8, rope_parameters=THETA),
    "internlm": dict(model_type="llama", attention_bias=True, num_key_value_heads=8, rope_parameters=THETA),
    "mimo": dict(model_type="qwen2", head_dim=16, use_sliding_window=False, rope_parameters=dict(THETA, rope_theta=640000.0)),
    "pangu_embedded": dict(model_type="llama", attention_bias=True, rope_parameters=dict(THETA, rope_theta=16e6)),
    "orion": dict(model_type="stablelm", rope_parameters=dict(THETA, partial_rotary_factor=1.0)),
    "teleflm": dict(model_type="granite", attention_multiplier=8**-0.5, residual_multiplier=1.0, embedding_multiplier=3.0, logits_scaling=0.5,
                    rope_parameters=THETA),
    "maincoder": dict(model_type="hunyuan_v1_dense", head_dim=16, rope_parameters=dict(THETA, rope_theta=1e6)),
    "jais": dict(model_type="stablelm", hidden_size=96, num_attention_heads=6, num_key_value_heads=6, use_qkv_bias=True, rope_parameters=dict(
        THETA, partial_rotary_factor=1.0)),
    "codeshell": dict(model_type="starcoder2", sliding_window=None, tie_word_embeddings=False, rope_parameters=THETA),
    "telechat": dict(model_type="llama", num_key_value_heads=8, rope_parameters=THETA),
    "telechat_kv": dict(model_type="llama", rope_parameters=THETA),
    "kormo": dict(model_type="llama", rope_parameters=THETA),
    "telechat3": dict(model_type="llama", head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0,
        attention_factor=0.07 * math.log(4.0) + 1)),
    "mobilellm": dict(model_type="llama", tie_word_embeddings=True, rope_parameters=THETA),
    "exaone_v5": dict(model_type="exaone", rope_parameters=THETA),
}


def grouped_qkv(t, layer, heads, kv_heads):
    """Of each key-value head its queries, its key, its value."""
    q, k, v = (t.pop(f"model.layers.{layer}.self_attn.{p}_proj.weight") for p in "qkv")
    q, k, v = q.view(kv_heads, heads // kv_heads, -1, q.shape[1]), k.view(kv_heads, 1, -1, k.shape[1]), v.view(
        kv_heads, 1, -1, v.shape[1])
    t[f"model.layers.{layer}.attention.wqkv.weight"] = torch.cat([q, k, v], 1).reshape(-1, q.shape[-1])


def as_internlm2(t, c):
    for i in range(c["num_hidden_layers"]):
        grouped_qkv(t, i, c["num_attention_heads"], c["num_key_value_heads"])
    return renamed(t, [
        ("self_attn.o_proj", "attention.wo"), ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"), ("mlp.down_proj", "feed_forward.w2"),
        ("embed_tokens", "tok_embeddings"), ("lm_head", "output"),
    ]), dict(c, model_type="internlm2", bias=False)


def as_internlm3(t, c):
    return t, dict(c, model_type="internlm3", qkv_bias=True, bias=True)


def as_internlm(t, c):
    return t, dict(c, model_type="internlm", bias=True)


def as_mimo_7b(t, c):
    """With the layer that drafts, which generation does not use."""
    return t | {"model.mtp_layers.0.input_proj.weight": torch.ones(64, 128)}, dict(c, model_type="mimo", num_nextn_predict_layers=1)


def as_pangu(t, c):
    del c["attention_bias"]
    return t, dict(c, model_type="PanguEmbedded")


def as_telechat3(t, c):
    scaling = {k: v for k, v in c["rope_scaling"].items() if k != "attention_factor"}
    return t, dict(c, model_type="telechat3", rope_scaling=dict(scaling, rope_type="telechat3-yarn", type="telechat3-yarn"))


def as_orion(t, c):
    keys = {k: c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size",
                              "hidden_act", "torch_dtype", "max_position_embeddings", "rope_theta", "tie_word_embeddings")}
    return t, keys | dict(model_type="orion", rms_norm_eps=c["layer_norm_eps"], attention_bias=False, rope_scaling=None)


def as_teleflm(t, c):
    c = dict(c, model_type="TeleFLM", use_mup=True, input_mult=c.pop("embedding_multiplier"), output_mult=4.0,
             mup_scale_factor=4.0 * c.pop("logits_scaling"))
    return t, {k: v for k, v in c.items() if not k.endswith("_multiplier")}


def as_maincoder(t, c):
    """Elements i and i + d / 2 of each head, which rotate together, stand side by side."""
    out, d = {}, c["head_dim"]
    for name, v in t.items():
        name = name.replace("query_layernorm", "q_norm").replace("key_layernorm", "k_norm").replace(".mlp.", ".feed_forward.")
        if any(p in name for p in ("q_proj", "k_proj", "q_norm", "k_norm")):
            v = v.unflatten(0, (-1, 2, d // 2)).transpose(1, 2).flatten(0, 2)
        out[name] = v
    keys = {k: c[k] for k in ("hidden_size", "head_dim", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size",
                              "torch_dtype", "max_position_embeddings", "rope_theta", "rms_norm_eps", "tie_word_embeddings")}
    return out, keys | dict(model_type="maincoder", intermediate_size_mlp=c["intermediate_size"], use_qk_norm=True)


def as_jais(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.self_attn.c_attn.{kind}"] = torch.cat(parts)
    t = renamed(t, [("model.layers", "transformer.h"), ("self_attn.o_proj", "attn.c_proj"), ("self_attn.c_attn", "attn.c_attn"), ("input_layernorm", "ln_1"),
                    ("post_attention_layernorm", "ln_2"), ("mlp.up_proj", "mlp.c_fc"), ("mlp.gate_proj", "mlp.c_fc2"), ("mlp.down_proj", "mlp.c_proj"),
                    ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f")])
    t = {k: v.T.contiguous() if v.dim() == 2 and ".h." in k else v for k, v in t.items()}
    return t, dict(model_type="jais", torch_dtype="float32", n_embd=c["hidden_size"], n_layer=c["num_hidden_layers"], n_head=c["num_attention_heads"],
                   n_inner=c["intermediate_size"], n_positions=512, layer_norm_epsilon=c["layer_norm_eps"], vocab_size=c["vocab_size"],
                   activation_function="swiglu", position_embedding_type="alibi", tie_word_embeddings=False, **JAIS_FACTORS)


def as_codeshell(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.attn.c_attn.{kind}"] = torch.cat(parts)
    t = renamed(t, [("model.layers", "transformer.h"), ("self_attn.o_proj", "attn.c_proj"), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
                    ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f")])
    return t, dict(model_type="codeshell", torch_dtype="float32", n_embd=c["hidden_size"], n_layer=c["num_hidden_layers"], n_head=c["num_attention_heads"],
                   num_query_groups=c["num_key_value_heads"], group_query_attention=True, n_inner=c["intermediate_size"], n_positions=512,
                   layer_norm_epsilon=c["norm_epsilon"], vocab_size=c["vocab_size"], activation_function=c["hidden_act"], rope_scaling=None,
                   position_embedding_type="rope", scale_attn_weights=True, tie_word_embeddings=False)


def with_telechat(model):
    for layer in model.model.layers:
        for m in layer.self_attn.o_proj, layer.mlp.down_proj:
            m.bias = torch.nn.Parameter(torch.randn(m.out_features) * 0.1)


def as_telechat(t, c):
    dim = c["hidden_size"] // c["num_attention_heads"]
    for i in range(c["num_hidden_layers"]):
        k, v = (t.pop(f"model.layers.{i}.self_attn.{p}_proj.weight").unflatten(0, (-1, dim)) for p in "kv")
        t[f"model.layers.{i}.self_attention.key_value.weight"] = torch.cat([k, v], 1).flatten(0, 1)
    t = renamed(t, [("model.layers", "transformer.h"), ("self_attn.q_proj", "self_attention.query"), ("self_attn.o_proj", "self_attention.dense"),
                    ("model.embed_tokens", "transformer.word_embeddings"), ("model.norm", "transformer.ln_f")])
    heads = c["num_attention_heads"]
    return t, dict(model_type="telechat", torch_dtype="float32", hidden_size=c["hidden_size"], n_layer=c["num_hidden_layers"], n_head=heads,
                   num_key_value_heads=None if c["num_key_value_heads"] == heads else c["num_key_value_heads"], ffn_hidden_size=c["intermediate_size"],
                   layer_norm_epsilon=c["rms_norm_eps"], vocab_size=c["vocab_size"], seq_length=512, base_seqlen=512, training_seqlen=512,
                   apply_residual_connection_post_layernorm=False, embed_layernorm=False, tie_word_embeddings=False)


def as_kormo(t, c):
    return renamed(t, [("input_layernorm", "pre_attention_layernorm"), ("post_attention_layernorm", "pre_mlp_layernorm")]), dict(c, model_type="kormo")


def as_mobilellm(t, c):
    return t, dict({k: v for k, v in c.items() if k != "tie_word_embeddings"}, model_type="mobilellm", share_embedding=True, layer_sharing=False)


def as_minicpm(t, c):
    return t, dict(c, model_type="minicpm", scale_emb=6.0, scale_depth=1.4, dim_model_base=c["hidden_size"] // 2)


def as_chatglm(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.self_attention.query_key_value.{kind}"] = torch.cat(parts)
    keys = dict(
        model_type="chatglm", torch_dtype="float32", hidden_size=c["hidden_size"], num_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["head_dim"], multi_query_attention=True,
        multi_query_group_num=c["num_key_value_heads"], ffn_hidden_size=c["intermediate_size"],
        padded_vocab_size=c["vocab_size"], seq_length=512, layernorm_epsilon=c["rms_norm_eps"], rmsnorm=True,
        add_bias_linear=False, add_qkv_bias=True, rope_ratio=5.0, tie_word_embeddings=False, eos_token_id=2, bos_token_id=1,
        pad_token_id=0, vocab_size=c["vocab_size"],
    )
    return renamed(t, [
        ("model.layers", "transformer.encoder.layers"), ("self_attn.o_proj", "self_attention.dense"),
        ("mlp.gate_up_proj", "mlp.dense_h_to_4h"), ("mlp.down_proj", "mlp.dense_4h_to_h"),
        ("model.embed_tokens", "transformer.embedding.word_embeddings"), ("model.norm", "transformer.encoder.final_layernorm"),
        ("lm_head", "transformer.output_layer"),
    ]), keys


def as_exaone(t, c):
    c = dict(c, model_type="exaone", num_layers=c["num_hidden_layers"], layer_norm_epsilon=c["rms_norm_eps"],
             activation_function="silu")
    for key in "num_hidden_layers", "rms_norm_eps", "hidden_act":
        del c[key]
    return renamed(t, [
        ("self_attn.o_proj", "attn.attention.out_proj"), ("self_attn.", "attn.attention."), ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"), ("mlp.gate_proj", "mlp.c_fc_0"), ("mlp.up_proj", "mlp.c_fc_1"),
        ("mlp.down_proj", "mlp.c_proj"), ("model.layers", "transformer.h"), ("model.embed_tokens", "transformer.wte"),
        ("model.norm", "transformer.ln_f"),
    ]), c


def slopes(heads):
    """ALiBi's slopes (arXiv 2108.12409 and its appendix): a power of two of them, then every other one of twice as many."""
    below = 2 ** (heads.bit_length() - 1)
    of = lambda n: [2 ** (-8 * (i + 1) / n) for i in range(n)]
    return of(below) + of(2 * below)[::2][: heads - below]


def with_alibi(model):
    """Llama without rotation, whose scores fall with the distance: the published equations of Baichuan 13B."""
    heads, old = model.config.num_attention_heads, model.forward
    dim = model.config.hidden_size // heads
    model.model.rotary_emb.forward = lambda x, position_ids: (
        torch.ones(*position_ids.shape, dim), torch.zeros(*position_ids.shape, dim))

    def forward(ids, **how):
        at = torch.arange(ids.shape[1])
        far = (at[None, :] - at[:, None]).float()
        mask = torch.tensor(slopes(heads))[:, None, None] * far
        return old(ids, attention_mask=mask.masked_fill(far > 0, float("-inf"))[None], use_cache=False)

    model.forward = forward

JAIS_FACTORS = dict(mup_embeddings_scale=5.0, mup_output_alpha=0.5, mup_width_scale=0.25, mup_scale_qk_dot_by_d=True)


def with_jais(model):
    """Biases of all matrices, ALiBi, and factors of embeddings, scores and logits: the published equations of Jais."""
    for layer in model.model.layers:
        for m in layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj:
            m.bias = torch.nn.Parameter(torch.randn(m.out_features) * 0.1)
        layer.self_attn.scaling = 1 / layer.self_attn.head_dim
    with_alibi(model)
    embed, head = model.model.embed_tokens.forward, model.lm_head.forward
    model.model.embed_tokens.forward = lambda ids: embed(ids) * JAIS_FACTORS["mup_embeddings_scale"]
    model.lm_head.forward = lambda x: head(x) * JAIS_FACTORS["mup_output_alpha"] * JAIS_FACTORS["mup_width_scale"]


def with_unit_head(model):
    """NormHead (arXiv 2309.10305): logits are products with rows of length 1."""
    model.lm_head.weight.data = torch.nn.functional.normalize(model.lm_head.weight.data)


def as_baichuan(t, c):
    for i in range(c["num_hidden_layers"]):
        parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.weight") for p in "qkv"]
        t[f"model.layers.{i}.self_attn.W_pack.weight"] = torch.cat(parts)
    keys = {k: c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size",
                              "hidden_act", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "tie_word_embeddings")}
    return t, keys | dict(model_type="baichuan", max_position_embeddings=512)


def as_baichuan2(t, c):
    """The rows of a head as it is trained have any length."""
    t, keys = as_baichuan(t, c)
    head = t["lm_head.weight"]
    t["lm_head.weight"] = head * (0.5 + torch.rand(head.shape[0], 1, generator=torch.Generator().manual_seed(1)))
    return t, keys


def as_baichuan_13b(t, c):
    t, keys = as_baichuan(t, c)
    keys["model_max_length"] = keys.pop("max_position_embeddings")
    return t, keys


def as_qwen(t, c):
    for i in range(c["num_hidden_layers"]):
        for kind in "weight", "bias":
            parts = [t.pop(f"model.layers.{i}.self_attn.{p}_proj.{kind}") for p in "qkv"]
            t[f"model.layers.{i}.attn.c_attn.{kind}"] = torch.cat(parts)
    keys = dict(
        model_type="qwen", torch_dtype="float32", hidden_size=c["hidden_size"], num_hidden_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["hidden_size"] // c["num_attention_heads"],
        intermediate_size=2 * c["intermediate_size"], layer_norm_epsilon=c["rms_norm_eps"], vocab_size=c["vocab_size"], seq_length=512,
        max_position_embeddings=2048, rotary_emb_base=10000, rotary_pct=1.0, no_bias=True, use_dynamic_ntk=True, use_logn_attn=True,
        scale_attn_weights=True, tie_word_embeddings=False,
    )
    return renamed(t, [
        ("model.layers", "transformer.h"), ("self_attn.o_proj", "attn.c_proj"), ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"), ("mlp.up_proj", "mlp.w1"), ("mlp.gate_proj", "mlp.w2"), ("mlp.down_proj", "mlp.c_proj"),
        ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"),
    ]), keys


AS = {
    "internlm2": as_internlm2, "internlm3": as_internlm3, "minicpm": as_minicpm, "chatglm": as_chatglm, "exaone": as_exaone,
    "baichuan": as_baichuan, "baichuan2": as_baichuan2, "baichuan_13b": as_baichuan_13b, "qwen": as_qwen, "internlm": as_internlm,
    "mimo": as_mimo_7b, "pangu_embedded": as_pangu, "telechat3": as_telechat3, "orion": as_orion, "teleflm": as_teleflm, "maincoder": as_maincoder,
    "jais": as_jais, "codeshell": as_codeshell, "telechat": as_telechat, "telechat_kv": as_telechat, "kormo": as_kormo,
    "mobilellm": as_mobilellm,
}
WITH = {
    "baichuan2": with_unit_head, "baichuan_13b": with_alibi, "jais": with_jais, "telechat": with_telechat,
    "telechat_kv": with_telechat,
}
# whose greedy tokens are computed without a cache, see make()
UNCACHED = {
    "baichuan_13b", "jais",
}
