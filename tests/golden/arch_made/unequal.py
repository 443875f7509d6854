"""Layers that differ in size, run several times, or have weights of their own kind: equations of repositories."""

import copy
import torch
import transformers
from transformers import AutoConfig
from .base import COMMON, THETA, renamed, random_layer

CASES = {
    "dory": dict(model_type="dory", num_hidden_layers=8, head_dim=16, sliding_window=20, n_input_layers=2, n_output_layers=3, n_recurrent_loops=3,
                 attention_bias=True, mlp_bias=True),
    "dory_once": dict(model_type="dory", num_hidden_layers=4, head_dim=24, n_input_layers=1, n_output_layers=0, n_recurrent_loops=1, tie_word_embeddings=True,
                      layer_types=["full_attention", "sliding_attention"] * 2, sliding_window=16, initializer_range=0.05, ngpt_alpha_init=0.2),
    # the equations of repositories that have code of their own, see with_blocks() and with_layers()
    "nemotron_nas": dict(model_type="llama", num_hidden_layers=5, rope_parameters=THETA),
    "openelm": dict(model_type="qwen3", head_dim=16, tie_word_embeddings=True, rope_parameters=THETA),
    "bitnet": dict(model_type="bitnet", rope_parameters=THETA),
    "bitnet_online": dict(model_type="bitnet", rope_parameters=THETA),
    "bitnet_packed": dict(model_type="bitnet", rope_parameters=THETA),
    "bitlinear": dict(model_type="llama", rope_parameters=THETA),
    "deci": dict(model_type="llama", rope_parameters=THETA),
    "ouro": dict(model_type="hyperclovax", num_hidden_layers=6, attention_multiplier=8**-0.5, rope_parameters=dict(THETA, rope_theta=1e6)),
    "nanbeige": dict(model_type="llama", num_hidden_layers=4, head_dim=16, rope_parameters=dict(THETA, rope_theta=7e7)),
    "nanbeige_unnormed": dict(model_type="llama", num_hidden_layers=6, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rope_parameters=THETA),
    "spark2_5": dict(model_type="smollm3", num_hidden_layers=4, head_dim=16, tie_word_embeddings=True, sliding_window=20, hidden_act="gelu",
                     layer_types=["sliding_attention"] * 3 + ["full_attention"], no_rope_layers=[1, 1, 1, 1], rope_parameters=THETA),
    "hrm_text": dict(model_type="hrm_text", num_hidden_layers=2, head_dim=16, H_cycles=2, L_cycles=2, embedding_scale=3.0, prefix_lm=False, rope_parameters=THETA),
    "hrm_text_apart": dict(model_type="hrm_text", num_hidden_layers=1, head_dim=16, H_cycles=3, L_cycles=1, rope_parameters=THETA, tie_word_embeddings=True),
    "plamo3": dict(model_type="gemma3_text", num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=16, sliding_window=20, hidden_activation="silu",
                   layer_types=["sliding_attention"] * 3 + ["full_attention"], tie_word_embeddings=True, rope_parameters=dict(
                       full_attention=dict(THETA, rope_theta=150000.0), sliding_attention=THETA)),
    "plamo3_yarn": dict(model_type="gemma3_text", num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=16, sliding_window=20, hidden_activation="silu",
                        layer_types=["sliding_attention", "full_attention"] * 2, tie_word_embeddings=False, rope_parameters=dict(
                            full_attention=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
                                                beta_slow=1.0, truncate=False), sliding_attention=THETA)),
    "diffllama": dict(model_type="diffllama", num_key_value_heads=8, num_hidden_layers=4, rope_parameters=THETA),
    "diffllama_bias": dict(model_type="diffllama", num_attention_heads=24, num_key_value_heads=8, head_dim=12, attention_bias=True, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="llama3", rope_theta=5e5, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                original_max_position_embeddings=64)),
    "zaya": dict(
        model_type="zaya", num_hidden_layers=4, head_dim=16, num_experts=6, num_experts_per_tok=1, moe_intermediate_size=48, router_hidden_size=24,
        sliding_window=20, layer_types=["hybrid", "hybrid_sliding", "hybrid_sliding", "hybrid"], tie_word_embeddings=True,
        rope_parameters={"hybrid": dict(THETA, rope_theta=5e6, partial_rotary_factor=0.5),
                         "hybrid_sliding": dict(THETA, partial_rotary_factor=0.25)}),
    "zaya_wide": dict(
        model_type="zaya", num_hidden_layers=3, head_dim=12, num_attention_heads=12, num_key_value_heads=4, num_experts=5, num_experts_per_tok=1,
        moe_intermediate_size=40, router_hidden_size=64, cca_time0=3, cca_time1=4, attention_bias=True, lm_head_bias=True, tie_word_embeddings=False,
        rope_parameters={"hybrid": dict(THETA, partial_rotary_factor=1.0), "hybrid_sliding": dict(THETA, partial_rotary_factor=0.5)}),
}


def with_kv_heads(model):
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    for i, n in enumerate((8, 1, 4)):
        c = copy.deepcopy(model.config)
        c.num_key_value_heads = n
        model.model.layers[i] = LlamaDecoderLayer(c, i).eval()
        random_layer(model.model.layers[i])


def as_deci(t, c):
    return t, dict({k: v for k, v in c.items() if k != "num_key_value_heads"}, model_type="deci", num_key_value_heads_per_layer=[8, 1, 4])


def with_turns(model):
    """Three turns of two layers, with the last norm after each."""
    for i, layer in enumerate(model.model.layers):
        layer.load_state_dict(model.model.layers[i % 2].state_dict())
        if i in (1, 3):
            layer.register_forward_hook(lambda layer, args, out: model.model.norm(out))


def as_ouro(t, c):
    t = renamed({k: v for k, v in t.items() if int((k.split("layers.") + ["0"])[1].split(".")[0]) < 2}, [
        ("post_norm1", "input_layernorm_2"), ("post_norm2", "post_attention_layernorm_2")])
    t |= {"model.early_exit_gate.weight": torch.randn(1, c["hidden_size"]), "model.early_exit_gate.bias": torch.zeros(1)}
    return t, dict({k: c[k] for k in COMMON}, model_type="ouro", torch_dtype="float32", num_hidden_layers=2, total_ut_steps=3, early_exit_threshold=1.0,
                   rope_theta=1e6, rope_scaling=None, rms_norm_eps=c["rms_norm_eps"], hidden_act="silu", head_dim=8, sliding_window=None,
                   use_sliding_window=False, max_window_layers=2, layer_types=["full_attention"] * 2, tie_word_embeddings=False)


def as_hrm_text(t, c):
    """The keys of its training, and matrices apart: transformers saves those of the repository."""
    return t, dict({k: v for k, v in c.items() if k != "num_layers_per_stack"}, num_hidden_layers=c["num_layers_per_stack"])


def with_loops(norms):
    """Several turns of two layers, with the last norm between them or without."""
    def do(model):
        n = len(model.model.layers)
        for i, layer in enumerate(model.model.layers):
            layer.load_state_dict(model.model.layers[i % 2].state_dict())
            if norms and i % 2 and i < n - 1:
                layer.register_forward_hook(lambda layer, args, out: model.model.norm(out))
    return do


def as_nanbeige(norms):
    def do(t, c):
        t = {k: v for k, v in t.items() if int((k.split("layers.") + ["0"])[1].split(".")[0]) < 2}
        return t, dict(c, model_type="nanbeige", num_loops=c["num_hidden_layers"] // 2, num_hidden_layers=2, skip_loop_final_norm=not norms,
                       loop_loss_weights=[], qk_layernorm=False, emb_neighbor_num=None, insert_ngram_layer_idx=[], enable_mhc=False)
    return do

SPARK = {"full_attention": dict(rope_theta=5e6, partial_rotary_factor=0.25), "sliding_attention": dict(rope_theta=1e4, partial_rotary_factor=1.0)}


def with_head_gates(model):
    """A gate for each head, and a rotation for each kind of layer, in part of a head: the other frequencies are 0."""
    c = model.config
    for layer, kind in zip(model.model.layers, c.layer_types):
        a, rope = layer.self_attn, SPARK[kind]
        a.g_proj = torch.nn.Linear(c.hidden_size, c.num_attention_heads, bias=False)
        a.g_proj.weight.data = torch.randn_like(a.g_proj.weight) * 0.25
        dim = int(16 * rope["partial_rotary_factor"])
        turns = torch.cat([rope["rope_theta"] ** -(torch.arange(0, dim, 2) / dim), torch.zeros(8 - dim // 2)])

        def before(a, args, kwargs, turns=turns):
            x = kwargs["hidden_states"]
            angles = (kwargs["position_ids"][..., None] * turns).repeat(1, 1, 2)
            a.gate = torch.sigmoid(a.g_proj(x)).repeat_interleave(16, -1)
            return args, dict(kwargs, position_embeddings=(angles.cos(), angles.sin()))

        a.register_forward_pre_hook(before, with_kwargs=True)
        a.o_proj.register_forward_pre_hook(lambda o, args, a=a: (args[0] * a.gate,))


def as_spark(t, c):
    """A rotated part stands at the beginning of a head."""
    for i, kind in enumerate(c["layer_types"]):
        half = int(16 * SPARK[kind]["partial_rotary_factor"]) // 2
        rows = [*range(half), *range(8, 8 + half), *range(half, 8), *range(8 + half, 16)]
        q, k, v = (t.pop(f"model.layers.{i}.self_attn.{p}_proj.weight") for p in "qkv")
        q, k = (w.unflatten(0, (-1, 16))[:, rows].flatten(0, 1) for w in (q, k))
        t[f"model.layers.{i}.self_attn.q_k_v_proj.weight"] = torch.cat([q, k, v])
    keys = {k: c[k] for k in (*COMMON, "layer_types", "sliding_window", "hidden_act", "tie_word_embeddings", "rms_norm_eps", "torch_dtype")}
    return renamed(t, [("o_proj", "out_proj"), ("embed_tokens", "embedding")]), dict(
        keys, model_type="spark2_5", head_dim=16, rope_parameters=SPARK, attention_bias=False, mlp_bias=False, headwise_attn_output_gate=True,
        gate_attn_act_mode="sigmoid")


def with_untruncated(model):
    """transformers does not find `truncate` where each kind of layer has a rotation."""
    at, full = model.model.rotary_emb, model.config.rope_parameters["full_attention"]
    like = AutoConfig.for_model("llama", hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=512, rope_parameters=full)
    at.full_attention_inv_freq = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](like)[0]


def as_plamo3(t, c, factor=1):
    for i in range(c["num_hidden_layers"]):
        at, to = f"model.layers.{i}.", f"model.layers.layers.{i}."
        t[to + "mixer.qkv_proj.weight"] = torch.cat([t.pop(f"{at}self_attn.{p}_proj.weight") for p in "qkv"])
        t[to + "mlp.gate_up_proj.weight"] = torch.cat([t.pop(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")])
        for name, plus in ("post_attention_layernorm", 1 / 5), ("post_feedforward_layernorm", 5**-1.5):
            t[f"{at}{name}.weight"] += 1 - plus  # Gemma's is around 1
    t = renamed({k.replace("model.layers.", "model.layers.layers.") if ".layers.layers." not in k else k: v for k, v in t.items()}, [
        ("self_attn.", "mixer."), ("input_layernorm", "pre_mixer_norm"), ("post_attention_layernorm", "post_mixer_norm"),
        ("pre_feedforward_layernorm", "pre_mlp_norm"), ("post_feedforward_layernorm", "post_mlp_norm")])
    return t, dict({k: c[k] for k in COMMON}, model_type="plamo3", torch_dtype="float32", head_dim=16, rms_norm_eps=c["rms_norm_eps"], scale_embedding=True,
                   window_size=20, sliding_window_pattern=c["layer_types"].index("full_attention") + 1, rope_theta=150000, rope_local_theta=10000,
                   rope_scaling_factor=factor, initial_context_length=None if factor == 1 else 32,
                   tie_word_embeddings=c.get("tie_word_embeddings", True))


class Nothing(torch.nn.Module):
    """A sublayer that adds nothing; attention returns weights as well."""

    def __init__(self, attends):
        super().__init__()
        self.attends = attends

    def forward(self, x=None, hidden_states=None, **how):
        zeros = torch.zeros_like(hidden_states if x is None else x)
        return (zeros, None) if self.attends else zeros

# heads that share a key-value head, or no attention; the factor of the MLP's width, or no MLP
BLOCKS = [(2, 1.3), (None, 7.0), (4, None), (8, 2.0), (1, 6.5)]


def with_blocks(model):
    """Layers of different sizes, or without a part (Puzzle, arXiv 2411.19146)."""
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    for i, (each, mult) in enumerate(BLOCKS):
        c = copy.deepcopy(model.config)
        c.num_key_value_heads = c.num_attention_heads // (each or 1)
        c.intermediate_size = -(-int(2 * (mult or 1) * c.hidden_size / 3) // 256) * 256
        layer = model.model.layers[i] = LlamaDecoderLayer(c, i).eval()
        random_layer(layer)
        if each is None:
            layer.self_attn, layer.input_layernorm = Nothing(True), torch.nn.Identity()
        if mult is None:
            layer.mlp, layer.post_attention_layernorm = Nothing(False), torch.nn.Identity()


def as_nemotron_nas(t, c):
    blocks = [dict(attention=dict(n_heads_in_group=each, no_op=each is None, replace_with_linear=False),
                   ffn=dict(ffn_mult=mult, no_op=mult is None, replace_with_linear=False)) for each, mult in BLOCKS]
    return t, dict(c, model_type="nemotron-nas", block_configs=blocks, num_key_value_heads=None, intermediate_size=None)

# heads, key-value heads, width of the MLP as a factor
ELM_LAYERS = [(4, 2, 0.5), (12, 4, 1.7), (8, 2, 3.1)]


def with_layers(model):
    """OpenELM's layers (arXiv 2404.14619), whose heads and widths differ."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer
    for i, (heads, kv_heads, factor) in enumerate(ELM_LAYERS):
        c = copy.deepcopy(model.config)
        c.num_attention_heads, c.num_key_value_heads = heads, kv_heads
        c.intermediate_size = max(16, int(factor * c.hidden_size + 8) // 16 * 16)
        model.model.layers[i] = Qwen3DecoderLayer(c, i).eval()
        random_layer(model.model.layers[i])


def as_openelm(t, c):
    for i in range(3):
        at = f"model.layers.{i}."
        t[at + "attn.qkv_proj.weight"] = torch.cat([t.pop(f"{at}self_attn.{p}_proj.weight") for p in "qkv"])
        t[at + "ffn.proj_1.weight"] = torch.cat([t.pop(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")])
    t = renamed(t, [("self_attn.o_proj", "attn.out_proj"), ("self_attn.", "attn."), ("mlp.down_proj", "ffn.proj_2"),
                    ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
                    ("embed_tokens", "token_embeddings"), ("model.", "transformer.")])
    heads, kv_heads, factors = (list(x) for x in zip(*ELM_LAYERS))
    return t, dict(model_type="openelm", model_dim=c["hidden_size"], num_transformer_layers=3, head_dim=16, vocab_size=c["vocab_size"],
                   max_context_length=512, rope_freq_constant=10000, num_query_heads=heads, num_kv_heads=kv_heads, ffn_multipliers=factors,
                   ffn_dim_divisor=16, ffn_with_glu=True, activation_fn_name="swish", normalization_layer_name="rms_norm",
                   normalize_qk_projections=True, share_input_output_layers=True, torch_dtype="float32")


def with_bitnet(linear, mode):
    """transformers' own linear layers of BitNet. Activations stay exact: rounded ones that differ in the last bit of fp32 would
    round to other numbers of 8 bits."""
    def replace(model):
        import transformers.integrations.bitnet as bitnet
        from transformers import BitNetQuantConfig
        torch._dynamo.config.disable = True
        bitnet.ActQuant.apply = staticmethod(lambda x: x)
        bitnet.BitLinear.activation_quant = lambda self, x: (x, 1.0)
        old = {n: m.weight.data for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"}
        bitnet.replace_with_bitnet_linear(model, ["lm_head"], BitNetQuantConfig(linear_class=linear, quantization_mode=mode))
        for name, w in old.items():
            module, mean = model.get_submodule(name), w.abs().mean()
            if mode == "online":
                module.weight = torch.nn.Parameter(w)
                continue
            codes = (w / mean).round().clamp(-1, 1)
            scale = (mean if linear == "autobitlinear" else 1 / mean).bfloat16().float().reshape(1)
            module.weight_scale = torch.nn.Buffer(scale)
            if linear == "autobitlinear":
                module.weight = torch.nn.Parameter(codes)
            else:
                module.weight, module.dtype = torch.nn.Buffer(bitnet.pack_weights(codes)), torch.float32

    return replace


def as_bitnet(linear, mode):
    def stored(t, c):
        from transformers.integrations.bitnet import pack_weights
        for name in [n for n in t if n.replace("weight", "weight_scale") in t and t[n].dtype != torch.uint8]:
            t[name] = pack_weights(t[name].clone())
        return t, c | {"quantization_config": dict(quant_method="bitnet", linear_class=linear, quantization_mode=mode)}

    return stored


def as_dory(t, c):
    """The files of NVIDIA's repository: attention and MLP are layers of their own."""
    def name(k):
        if not k.startswith("model.layers."):
            return k.replace("model.embed_tokens.", "backbone.embeddings.")
        i, part = k.split(".", 3)[2:]
        part = {"lambda_1": "attn_alpha", "lambda_2": "mlp_alpha"}.get(part, part)
        own = part.replace("self_attn.gate_proj", "mixer.g_proj").replace("self_attn.", "mixer.").replace("mlp.", "mixer.")
        return f"backbone.layers.{2 * int(i) + part.startswith('mlp')}.{own}"
    return {name(k): v for k, v in t.items()}, c


AS = {
    "dory": as_dory, "nemotron_nas": as_nemotron_nas, "openelm": as_openelm,
    "bitnet_online": as_bitnet("autobitlinear", "online"), "bitnet_packed": as_bitnet("autobitlinear", "offline"),
    "bitlinear": as_bitnet("bitlinear", "offline"), "deci": as_deci, "ouro": as_ouro, "nanbeige": as_nanbeige(True),
    "nanbeige_unnormed": as_nanbeige(False), "spark2_5": as_spark, "hrm_text_apart": as_hrm_text, "plamo3": as_plamo3,
    "plamo3_yarn": lambda t, c: as_plamo3(t, c, 4.0),
}
WITH = {
    "nemotron_nas": with_blocks, "openelm": with_layers, "bitnet_online": with_bitnet("autobitlinear", "online"),
    "bitnet_packed": with_bitnet("autobitlinear", "offline"), "bitlinear": with_bitnet("bitlinear", "offline"),
    "deci": with_kv_heads, "ouro": with_turns, "nanbeige": with_loops(True), "nanbeige_unnormed": with_loops(False),
    "spark2_5": with_head_gates, "plamo3_yarn": with_untruncated,
}
# whose greedy tokens are computed without a cache, see make()
UNCACHED = {
    "nemotron_nas",
}
