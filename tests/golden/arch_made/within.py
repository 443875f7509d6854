"""Text models of vision checkpoints."""

import torch
from .base import THETA, DSA

PHI4 = dict(  # small towers, which are not stored
    original_max_position_embeddings=512, rope_parameters=dict(THETA, partial_rotary_factor=0.75), eos_token_id=[2], sliding_window=None,
    vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14),
    audio_config=dict(hidden_size=16, intermediate_size=16, num_blocks=1, num_attention_heads=2, ext_pw_out_channel=16,
                      depthwise_separable_out_channel=16, nemo_conv_channels=8),
)

LARGE4 = dict(
    num_key_value_heads=8, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, index_n_heads=20, index_head_dim=16,
    n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, routed_scaling_factor=1.4, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, attention_factor=1.0, beta_fast=32.0, beta_slow=1.0),
)

CHAMELEON_IDS = {"<image>": 8} | {f"IMGIMG{chr(65 + i // 10)}{chr(65 + i % 10)}Z": 330 + i for i in range(40)}  # none is in a prompt

CHAMELEON_VQ = dict(embed_dim=16, num_embeddings=40, base_channels=32, channel_multiplier=[1], num_res_blocks=1, latent_channels=16, resolution=16)

CASES = {
    "muse_spark": dict(
        model_type="muse_spark_text", num_hidden_layers=5, head_dim=16, sliding_window=20, moe_hidden_size=48, moe_intermediate_size=40,
        num_local_experts=8, num_experts_per_tok=3, routed_scaling_factor=1.6, mlp_layer_types=["dense", "sparse", "sparse", "dense", "sparse"],
        rope_parameters=dict(THETA, rope_theta=5e5), output_multiplier=0.5, qk_scale_factor=2.0,
    ),
    "muse_spark_listed": dict(
        model_type="muse_spark_text", head_dim=24, attention_bias=True, sliding_window=16, qk_scale_factor=1.3, output_multiplier=0.7,
        post_norm_eps=1e-2, final_logit_softcapping=2.0, layer_rope_theta=[0, 1, 1], rope_parameters=THETA, residual_gate_temperature=0.8,
        moe_hidden_size=64, moe_intermediate_size=64, num_local_experts=4, num_experts_per_tok=1,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "step3p7": dict(
        model_type="step3p5", num_hidden_layers=5, num_attention_heads=4, num_sliding_attention_heads=8, num_key_value_heads=2, head_dim=16,
        sliding_window=20, layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, share_expert_dim=48, moe_router_scaling_factor=1.8,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse", "sparse"], swiglu_limits=[0, 0, 0.25, 0, 0.5], swiglu_limits_shared=[1, 0, 0, 0.375, 0],
        rope_parameters={"full_attention": dict(THETA, rope_theta=5e6, partial_rotary_factor=0.5), "sliding_attention": THETA},
    ),
    "step3p7_fp8": dict(
        model_type="step3p5", num_hidden_layers=3, num_attention_heads=4, num_sliding_attention_heads=8, num_key_value_heads=2, head_dim=16,
        sliding_window=20, n_routed_experts=5, num_experts_per_tok=3, moe_intermediate_size=40, share_expert_dim=48,
        mlp_layer_types=["dense", "sparse", "sparse"],
    ),
    "step3p5": dict(
        model_type="step3p5", num_hidden_layers=4, num_key_value_heads=4, head_dim=32, sliding_window=12, query_pre_attn_scalar=24,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], num_sliding_attention_heads=4,
        n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, share_expert_dim=32,
        mlp_layer_types=["dense", "sparse", "dense", "sparse"], swiglu_limits=None, swiglu_limits_shared=[0, 0, 0.5, 0.125],
        rope_parameters={"full_attention": dict(rope_type="llama3", rope_theta=50000.0, factor=2.0, low_freq_factor=1.0, high_freq_factor=32.0,
                                                original_max_position_embeddings=64, partial_rotary_factor=0.5), "sliding_attention": THETA},
    ),
    "hunyuan_vl": dict(model_type="hunyuan_vl_text", head_dim=16, attention_bias=True, rope_parameters=dict(
        rope_type="xdrope", rope_theta=10000.0, factor=1.0, alpha=50.0, xdrope_section=[2, 2, 2, 2])),
    "hunyuan_ocr": dict(model_type="hunyuan_vl_text", head_dim=16, tie_word_embeddings=False, rope_parameters=dict(THETA, mrope_section=[4, 2, 2])),
    "hy_v4_vl": dict(
        model_type="hy_v4_vl_text", index_topk=20, swiglu_limit=0.5, **dict(DSA, n_group=1, topk_group=1, rope_parameters=dict(
            THETA, mrope_section=[2, 1, 1]), indexer_types=["full", "shared", "full"]),
    ),
    # four layers read the latents of earlier ones: with indexers of their own and without, of layers that rotate and that do not
    "mistral_large4": dict(
        model_type="mistral_large4_text", index_topk=20, **dict(
            LARGE4, num_hidden_layers=8, n_group=2, topk_group=1, kv_source_layers=[0, 1, 0, 1, 0, 5, 5, 7], no_rope_layers=[1, 0, 1, 0, 1, 1, 1, 0],
            indexer_types=["full", "full", "shared", "full", "full", "shared", "shared", "full"]),
    ),
    "mistral_large4_plain": dict(
        model_type="mistral_large4_text", index_topk=200, first_k_dense_replace=2, final_logit_softcapping=2.0, no_rope_layer_interval=2, **LARGE4),
    "granite4_vision": dict(model_type="granite4_vision_text", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
                            logits_scaling=3.0, rope_parameters=THETA),
    "granite_docling": dict(model_type="granite_docling_text", attention_multiplier=0.3, rope_parameters=THETA),
    "cosmos3_edge": dict(model_type="cosmos3_edge_text", head_dim=16, rope_parameters=dict(THETA, mrope_section=[4, 2, 2])),
    "molmo2": dict(model_type="molmo2_text", head_dim=16, additional_vocab_size=12, attention_bias=True, rope_scaling_layers=[0, 2],
                   rope_parameters=dict(THETA, rope_type="linear", factor=4.0)),
    "molmo2_olmo": dict(model_type="molmo2_text", head_dim=16, additional_vocab_size=5, norm_after=True, qk_norm_type="olmo", rope_parameters=THETA),
    "muse_glimmer": dict(model_type="muse_glimmer_text", num_hidden_layers=5, head_dim=16, sliding_window=20, rope_parameters=dict(THETA, rope_theta=5e5)),
    "muse_glimmer_listed": dict(
        model_type="muse_glimmer_text", head_dim=24, attention_bias=True, hidden_activation="gelu_pytorch_tanh", sliding_window=16, qk_scale_factor=1.3,
        output_multiplier=0.7, post_norm_eps=1e-2, final_logit_softcapping=2.0, layer_rope_theta=[0, 1, 1], rope_parameters=THETA,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "chameleon": dict(model_type="chameleon", vocab_size=384, vocabulary_map=CHAMELEON_IDS, vq_config=CHAMELEON_VQ, attention_bias=True, rope_parameters=THETA),
    "chameleon_swin": dict(model_type="chameleon", vocabulary_map={"<image>": 8}, vq_config=CHAMELEON_VQ, num_attention_heads=4, num_key_value_heads=4, swin_norm=True,
                           rms_norm_eps=1e-3, rope_parameters=THETA),
    "emu3": dict(model_type="emu3_text_model", rope_parameters=dict(THETA, rope_theta=1e6)),
    "cohere_compass": dict(
        model_type="cohere_compass_text", num_hidden_layers=4, sliding_window=20, logit_scale=0.7,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1]), "full_attention": None},
    ),
    "cohere_compass_rotated": dict(
        model_type="cohere_compass_text", rope_parameters={"full_attention": dict(rope_type="default", rope_theta=50000.0, mrope_section=[2, 1, 1])},
    ),
    "phi4_multimodal": dict(model_type="phi4_multimodal", **PHI4),
    "phi4mm": dict(model_type="phi4_multimodal", **PHI4),
    "apertus1p5_text": dict(model_type="apertus1p5_text", vocab_size=376, output_vocab_size=320, rope_parameters=THETA),
    "gemma4_unified": dict(
        model_type="gemma4_unified_text", head_dim=16, num_hidden_layers=6, sliding_window=20, global_head_dim=32, num_global_key_value_heads=2,
        attention_k_eq_v=True, final_logit_softcapping=5.0, rope_parameters=None,
    ),
    # ERNIE 4.5 VL: config.json within another one, and the flat one of Baidu's repository
    "ernie4_5_vl": dict(
        model_type="ernie4_5_vl_moe_text", head_dim=16, moe_num_experts=6, moe_k=3, moe_intermediate_size=[32, 24], moe_num_shared_experts=2,
        mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=dict(THETA, mrope_section=[3, 3, 2])),
    "ernie4_5_vl_hub": dict(
        model_type="ernie4_5_vl_moe_text", moe_num_experts=5, moe_k=2, moe_intermediate_size=[40, 16], moe_num_shared_experts=1,
        num_hidden_layers=4, rope_parameters=dict(THETA, mrope_section=[1, 1, 2])),
}


def as_phi4(t, c):
    """Without towers."""
    return {k: v for k, v in t.items() if "embed_tokens_extend" not in k}, {k: v for k, v in c.items() if k != "audio_config"}


def as_phi4mm(t, c):
    """The names of Microsoft's repository: adapters of pictures and of sound are beside matrices, and off for texts."""
    t, c = as_phi4(t, c)
    for name in [n for n in t if n.endswith("_proj.weight")]:
        w = t.pop(name)
        t[name.replace("_proj.", "_proj.base_layer.")] = w
        for kind in ("vision", "speech"):
            t[name.replace("weight", f"lora_A.{kind}.weight")] = torch.randn(4, w.shape[1])
            t[name.replace("weight", f"lora_B.{kind}.weight")] = torch.randn(w.shape[0], 4)
    return t, {k: v for k, v in c.items() if k != "vision_config"} | dict(model_type="phi4mm", partial_rotary_factor=0.75)


def as_step3p5(t, c):
    """The keys of StepFun's repository, and its names without a tower; the lists have an entry of a draft layer."""
    c, kinds, types = dict(c["text_config"]), c["text_config"]["layer_types"], c["text_config"]["mlp_layer_types"]
    rope = c.pop("rope_parameters")
    each = [rope[k] for k in kinds]
    c |= dict(
        rope_theta=[r["rope_theta"] for r in each] + [1e4], partial_rotary_factors=[r.get("partial_rotary_factor", 1.0) for r in each] + [1.0],
        rope_scaling={k: v for k, v in rope["full_attention"].items() if k not in ("rope_theta", "partial_rotary_factor")},
        attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=c.pop("num_sliding_attention_heads"),
                                     num_attention_groups=c["num_key_value_heads"], head_dim=c["head_dim"]),
        num_attention_groups=c.pop("num_key_value_heads"), moe_num_experts=c.pop("n_routed_experts"), moe_top_k=c.pop("num_experts_per_tok"),
        moe_layers_enum=",".join(str(i) for i, k in enumerate(types) if k == "sparse"), swiglu_limits_shared=c["swiglu_limits_shared"] + [0.0],
        layer_types=kinds + ["sliding_attention"], num_nextn_predict_layers=1, use_moe_router_bias=True, need_fp32_gate=True, sink=False,
        use_head_wise_attn_gate=True, yarn_only_types=["full_attention"], torch_dtype="float32",
    )
    for key in "per_layer_config", "mlp_layer_types", "num_local_experts", "dtype":
        c.pop(key, None)
    return {}, c


def as_hunyuan_ocr(t, c):
    """The older files: the keys of the text model beside those of the tower."""
    return {}, {k: v for k, v in c["text_config"].items() if k != "head_dim"} | dict(
        model_type="hunyuan_vl", tie_word_embeddings=True, attention_head_dim=c["text_config"]["head_dim"], vision_config=c["vision_config"])


def as_ernie_vl(t, c):
    """The keys of Baidu's repository, whose lists have a number of texts and one of pictures."""
    c = dict(c["text_config"])
    c |= dict(model_type="ernie4_5_moe_vl", torch_dtype="float32", moe_num_experts=[c["moe_num_experts"]] * 2, moe_layer_start_index=[1, 1],
              moe_layer_end_index=[29, 28], moe_layer_interval=1, moe_gate="topk", moe_use_aux_free=True, rope_theta=c["rope_parameters"]["rope_theta"],
              rope_scaling={"rope_type": "ernie_3d", "freq_allocation": 2}, rope_3d=True, freq_allocation=2, tie_word_embeddings=True)
    for key in "rope_parameters", "dtype", "mlp_layer_types", "head_dim", "moe_norm_min":
        c.pop(key, None)
    return {}, c

SMALL = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)

# Text models that only files of models with vision have: the names of their classes, and small towers.
WITHIN = {  # of a model_type, or of one case
    "inkling2_mm": ("Inkling2", dict(image_token_id=330, vision_config=dict(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=4, posemb_grid_size=4, projection_hidden_dim=16, text_hidden_size=64))),
    "inkling_mm": ("Inkling", dict(image_token_id=330, audio_token_id=331, image_bos_token_id=332, audio_bos_token_id=333, audio_config=dict(
        n_mel_bins=4, mel_vocab_size=8), vision_config=dict(hidden_size=16, patch_size=4, num_hidden_layers=2))),
    "ernie4_5_vl_moe_text": ("Ernie4_5_VLMoe", dict(image_token_id=300, image_start_token_id=301, image_end_token_id=302, video_token_id=303,
        video_start_token_id=304, video_end_token_id=305, vision_config=dict(SMALL, depth=2, num_heads=2))),
    "glm5_next_text": ("Glm5Next", dict(image_token_id=300, video_token_id=301, vision_config=dict(
        depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=64, projection_intermediate_size=16, patch_size=4,
        image_size=16))),
    "mistral_large4_text": ("MistralLarge4", dict(image_token_id=300, vision_config=dict(SMALL, model_type="pixtral", image_size=28, patch_size=14))),
    "step3p5": ("Step3p7", dict(image_token_id=300, vision_config=dict(SMALL, image_size=28, patch_size=14))),
    "hunyuan_vl_text": ("HunYuanVL", dict(image_token_id=300, im_start_id=301, im_end_id=302, im_newline_id=303, vision_config=dict(
        SMALL, out_hidden_size=64, text_hidden_size=64, max_image_size=64, img_max_token_num=16))),
    "hy_v4_vl_text": ("HYV4VL", dict(image_token_id=300, video_token_id=301, vision_config=dict(SMALL, out_hidden_size=64, max_image_size=64))),
    "granite4_vision_text": ("Granite4Vision", dict(image_token_id=300, deepstack_layer_map=[[0, 0]], downsample_rate="1/2", vision_config=dict(
        SMALL, hidden_size=64, model_type="clip_vision_model", image_size=28, patch_size=14))),
    "muse_spark_text": ("MuseSpark", dict(image_token_id=400, video_token_id=401, audio_token_id=402, projector_hidden_size=16, vision_config=dict(
        SMALL, pos_emb_height=4, pos_emb_width=4, max_position_embeddings=16), audio_config=dict(
        patch_sizes=[2, 2], hidden_sizes=[8, 16], depths=[1, 1], num_hidden_layers=2, out_hidden_size=64))),
    "muse_glimmer_text": ("MuseGlimmer", dict(image_token_id=400, video_token_id=401, out_hidden_size=16, projector_hidden_size=16, vision_config=dict(
        SMALL, pos_emb_height=4, pos_emb_width=4, max_position_embeddings=16))),
    "granite_docling_text": ("GraniteDocling", dict(image_token_id=300, vision_config=dict(SMALL, out_hidden_size=64, image_size=32, patch_size=16))),
    "cosmos3_edge_text": ("Cosmos3Edge", dict(image_token_id=300, video_token_id=301, vision_config=dict(SMALL))),
    "molmo2_text": ("Molmo2", dict(image_token_id=300, vision_config=dict(SMALL, head_dim=8, num_key_value_heads=2, image_size=[28, 28]), adapter_config=dict(
        hidden_size=16, num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=16, text_hidden_size=64, vit_layers=[0, 1]))),
}

AS = {
    "step3p5": as_step3p5, "hunyuan_ocr": as_hunyuan_ocr, "phi4_multimodal": as_phi4, "phi4mm": as_phi4mm,
    "ernie4_5_vl_hub": as_ernie_vl,
}
