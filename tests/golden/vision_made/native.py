"""Families that keep a picture's aspect: as many patches as it asks for."""

import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, between, masked, planes, typed



def gemma4(text, vision):
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    base = {k: v for k, v in TEXT.items() if k != "rope_parameters"}
    base |= dict(global_head_dim=16, sliding_window=24, final_logit_softcapping=30.0, vocab_size_per_layer_input=324)
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=24,
        patch_size=4, pooling_kernel_size=3, position_embedding_size=256,
    )
    config = Gemma4Config(
        text_config=base | text, vision_config=seen | vision, image_token_id=IMAGE, boi_token_id=321, eoi_token_id=322,
        audio_config=None, video_token_id=323, audio_token_id=323,
    )
    pre = dict(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70, resample=3)
    processor = Gemma4ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        join = lambda key: torch.cat([o[key] for o in out])
        kwargs = dict(pixel_values=join("pixel_values"), image_position_ids=join("image_position_ids"))
        return kwargs, [[321] + [IMAGE] * int(o["num_soft_tokens_per_image"][0]) + [322] for o in out]

    return config, Gemma4ForConditionalGeneration, pre, inputs


def gemma4_unified():
    """Without a transformer: patches are as large as a feature."""
    from transformers import Gemma4UnifiedConfig, Gemma4UnifiedForConditionalGeneration
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size as fit
    from transformers.models.gemma4_unified.image_processing_gemma4_unified import Gemma4UnifiedImageProcessor

    class Pillow(Gemma4UnifiedImageProcessor):
        """Pillow resizes, and numbers are rescaled in double, as in the other families' processors."""

        def aspect_ratio_preserving_resize(self, image, patch_size, max_patches, pooling_kernel_size, **_):
            height, width = fit(*image.shape[-2:], patch_size, max_patches, pooling_kernel_size)
            x = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((width, height), Image.BICUBIC)
            return torch.tensor(np.asarray(x)).permute(2, 0, 1)

        def rescale_and_normalize(self, image, *_):
            return torch.tensor(planes(image.permute(1, 2, 0).numpy(), 0, 1))

    class AsGenerated(Gemma4UnifiedForConditionalGeneration):
        """With the masks of generate(): those of forward() let tokens of a picture see each other in full layers, too."""

        def forward(self, input_ids, mm_token_type_ids, **more):
            at = torch.arange(input_ids.shape[1])[None]
            masks = self.create_masks_for_generate(
                self.config, self.get_input_embeddings()(input_ids), None, None, at, mm_token_type_ids=mm_token_type_ids,
            )
            return super().forward(input_ids=input_ids, attention_mask=masks, position_ids=at, **more)

    text = {k: v for k, v in TEXT.items() if k != "rope_parameters"} | dict(
        global_head_dim=16, sliding_window=24, final_logit_softcapping=30.0, num_hidden_layers=3, attention_k_eq_v=True,
        num_global_key_value_heads=1,
    )
    seen = dict(patch_size=4, pooling_kernel_size=3, mm_embed_dim=24, output_proj_dims=24, mm_posemb_size=80)
    config = Gemma4UnifiedConfig(
        text_config=text, vision_config=seen, image_token_id=IMAGE, boi_token_id=321, eoi_token_id=322, audio_config=None,
        video_token_id=323, audio_token_id=323,
    )
    pre = dict(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70, resample=3)
    processor = Pillow(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        kwargs = {k: torch.cat([o[k] for o in out]) for k in ("pixel_values", "image_position_ids")}
        return kwargs, [[321] + [IMAGE] * int(o["num_soft_tokens_per_image"][0]) + [322] for o in out]

    return config, AsGenerated, pre, inputs


def planes_of_patches(kwargs):
    """Gemma 4's patches [n][P][P][3] as [1][3][H][W], with what the tower does to them first."""
    at = kwargs["image_position_ids"][0]
    n, cols, rows = int((at[:, 0] >= 0).sum()), int(at[:, 0].max()) + 1, int(at[:, 1].max()) + 1
    x = kwargs["pixel_values"][0][:n].float()
    side = int((x.shape[1] / 3) ** 0.5)
    x = x.reshape(rows, cols, side, side, 3).permute(4, 0, 2, 1, 3).reshape(1, 3, rows * side, cols * side)
    return x if side > 4 else 2 * (x - 0.5)  # that of the unified model does nothing


def fill_buffers(model):
    """Numbers that are no parameters: bounds of products, which are the same for those of one input, what is done to means
    of patches, biases of routers, and statistics of batch norms."""
    for name, b in model.named_buffers():
        end = name.rsplit(".", 1)[-1]
        if end in ("std_bias", "std_scale"):
            b.data = (torch.randn_like(b) * 0.3 + (end == "std_scale")).bfloat16().float()
        elif end in ("running_mean", "running_var"):
            b.data = (torch.rand_like(b) * 0.5 + 0.75 * (end == "running_var")).bfloat16().float()
        elif end == "e_score_correction_bias":
            b.data = (torch.randn_like(b) * 0.1).bfloat16().float()
        elif end in ("input_min", "output_min"):
            b.data = torch.tensor(-0.75 if end == "input_min" else -0.5 - 0.25 * ("v_proj" in name))
        elif end in ("input_max", "output_max"):
            b.data = torch.tensor(1.25 if end == "input_max" else 0.5 + 0.5 * ("up_proj" in name))


def sizes(fit, cell):
    """Grids of features at the hub's settings: [width, height, rows, cols], or without a grid where there is none.
    fit(height, width) gives the sides of what is resized."""
    rng, out = np.random.default_rng(7), []
    sides = [48, 47, 49, 768, 1, 1024, 3000, 50]
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        try:
            rows, cols = fit(h, w)
            out.append([w, h, rows // cell, cols // cell])
        except ValueError:
            out.append([w, h])
    return out


def gemma4_sizes():
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size as fit

    return sizes(lambda h, w: fit(h, w, 16, 280 * 9, 3), 48)


def glm4v_sizes():
    from transformers.models.glm4v.image_processing_pil_glm4v import smart_resize as fit

    return sizes(lambda h, w: fit(2, h, w, 2, 28, 112 * 112, 28 * 28 * 15000), 28)


def qwen(config, cls, pixels, kind=None):
    """Families whose processor is Qwen2-VL's, or like it."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = (kind or Qwen2VLImageProcessorPil)(**pixels)
    cells = pixels["merge_size"] ** 2

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        join = lambda key: torch.cat([o[key] for o in out])
        kwargs = {key: join(key) for key in ("pixel_values", "image_grid_thw", "image_merge_sizes") if key in out[0]}
        return kwargs, [[321] + [IMAGE] * (len(o["pixel_values"]) // cells) + [322] for o in out]

    return config, cls, pixels, inputs


QWEN = dict(image_token_id=IMAGE, vision_start_token_id=321, vision_end_token_id=322, video_token_id=323)
ROPE_2 = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
TEXT_2 = TEXT | dict(rope_parameters=ROPE_2)
PIXELS_2 = dict(
    patch_size=8, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=1024, longest_edge=8192),
    image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711], resample=3,
)
TEXT_3_MOE = TEXT | dict(
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, rope_parameters=ROPE_2 | {"mrope_interleaved": True},
)
SEEN_3 = dict(
    hidden_size=16, out_hidden_size=32, depth=3, num_heads=2, intermediate_size=24, patch_size=8,
    num_position_embeddings=64, deepstack_visual_indexes=[0, 1],
)
PIXELS_3 = PIXELS_2 | dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def qwen2_vl():
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    seen = dict(embed_dim=16, hidden_size=32, depth=2, num_heads=2, mlp_ratio=2, patch_size=8)
    config = Qwen2VLConfig(text_config=TEXT_2, vision_config=seen, tie_word_embeddings=True, **QWEN)
    return qwen(config, Qwen2VLForConditionalGeneration, PIXELS_2)


def qwen3_vl_moe():
    from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

    config = Qwen3VLMoeConfig(text_config=TEXT_3_MOE, vision_config=SEEN_3, tie_word_embeddings=True, **QWEN)
    return qwen(config, Qwen3VLMoeForConditionalGeneration, PIXELS_3)


def qwen4_exp():
    """Two layers have tables of n-grams, which read the picture's id; of 14 blocks and more a token selects 4."""
    from transformers import Qwen4ExpConfig, Qwen4ExpForConditionalGeneration

    text = TEXT | dict(
        num_hidden_layers=3, layer_types=["linear_attention", "indexed_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, hc_count=2, hc_lowrank=6, ple_layer_ids=[1, 3], heads_per_ngram=2, ngram_vocab_size_base=20,
        make_ngram_vocab_size_divisible_by=4, split_ngram_parts=1, indexer_n_heads=12, indexer_kv_heads=1, indexer_head_dim=8, indexer_budget=16,
        indexer_compress_ratio=4, eos_token_id=2, rope_parameters=ROPE_2 | {"mrope_interleaved": True, "partial_rotary_factor": 1.0},
    )
    seen = {k: v for k, v in SEEN_3.items() if k != "deepstack_visual_indexes"} | dict(depth=2)
    config = Qwen4ExpConfig(text_config=text, vision_config=seen, tie_word_embeddings=True, **QWEN)
    return qwen(config, Qwen4ExpForConditionalGeneration, PIXELS_3)


def cohere_compass():
    from transformers import CohereCompassConfig, CohereCompassForConditionalGeneration
    from transformers.models.cohere_compass.image_processing_pil_cohere_compass import CohereCompassImageProcessorPil

    rotates = dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1])
    text = {k: v for k, v in TEXT.items() if k not in ("rms_norm_eps", "rope_parameters")} | dict(
        num_hidden_layers=3, sliding_window=20, logit_scale=0.7, layer_norm_eps=1e-5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"sliding_attention": rotates, "full_attention": None},
    )
    config = CohereCompassConfig(text_config=text, vision_config=SEEN_3, tie_word_embeddings=True, **QWEN)
    return qwen(config, CohereCompassForConditionalGeneration, PIXELS_2, CohereCompassImageProcessorPil)


SEEN_2_5 = dict(
    hidden_size=16, out_hidden_size=32, depth=2, num_heads=2, intermediate_size=24, patch_size=8, window_size=32,
    fullatt_block_indexes=[1],
)


def exaone4_5():
    from transformers import Exaone4_5_Config, Exaone4_5_ForConditionalGeneration

    text = TEXT | dict(model_type="exaone4", sliding_window=24, layer_types=["sliding_attention", "full_attention"])
    seen = SEEN_2_5 | dict(hidden_size=32, num_heads=4, num_key_value_heads=2)
    config = Exaone4_5_Config(text_config=text, vision_config=seen, image_token_id=IMAGE, video_token_id=323, tie_word_embeddings=True)
    return qwen(config, Exaone4_5_ForConditionalGeneration, PIXELS_2)


def hyperclovax_vision():
    from transformers import HyperCLOVAXVisionV2Config, HyperCLOVAXVisionV2ForConditionalGeneration

    text = TEXT | dict(
        model_type="hyperclovax", embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3, logits_scaling=0.5,
    )
    seen = SEEN_2_5 | dict(model_type="qwen2_5_vl_vision", out_hidden_size=24)
    config = HyperCLOVAXVisionV2Config(
        text_config=text, vision_config=seen, image_token_id=IMAGE, video_token_id=323, tie_word_embeddings=True,
    )
    return qwen(config, HyperCLOVAXVisionV2ForConditionalGeneration, PIXELS_2)


def hyperclovax_hub(tensors, config, pre):
    """The names and the model_type of the files on the hub."""
    swaps = [("model.language_model.", "model.language_model.model."), ("model.projector.", "model.vision_projector.")]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            if name.startswith(a):
                name = b + name[len(a) :]
        renamed[name] = t
    seen = config["vision_config"] | dict(model_type="qwen2_5_vl")
    return renamed, config | dict(model_type="vlm", vision_config=seen), pre


AUDIO = dict(d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, num_mel_bins=8, max_source_positions=8)


def qwen2_5_omni():
    from transformers import Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration

    config = Qwen2_5OmniThinkerConfig(
        text_config=TEXT_2, vision_config=SEEN_2_5, audio_config=AUDIO | dict(output_dim=32), image_token_index=IMAGE,
        video_token_index=323, audio_token_index=319, vision_start_token_id=321, vision_end_token_id=322,
        audio_start_token_id=318, tie_word_embeddings=True,
    )
    return qwen(config, Qwen2_5OmniThinkerForConditionalGeneration, PIXELS_2)


def qwen3_omni():
    from transformers import Qwen3OmniMoeThinkerConfig, Qwen3OmniMoeThinkerForConditionalGeneration

    audio = AUDIO | dict(output_dim=32, downsample_hidden_size=8, n_window=2)
    config = Qwen3OmniMoeThinkerConfig(
        text_config=TEXT_3_MOE, vision_config=SEEN_3, audio_config=audio, audio_token_id=319, audio_start_token_id=318,
        tie_word_embeddings=True, **QWEN,
    )
    return qwen(config, Qwen3OmniMoeThinkerForConditionalGeneration, PIXELS_3)


def thinker(tensors, config, pre):
    """As on the hub: the thinker is a part of the model, and its experts are tensors of their own."""
    tensors, _, _ = expert_names(tensors, config, pre)
    renamed = {}
    for name, t in tensors.items():
        if name.startswith("model.language_model."):
            name = "model." + name[len("model.language_model.") :]
        elif name.startswith("model."):
            name = name[len("model.") :]
        if not name.startswith("audio_tower."):
            renamed["thinker." + name] = t
    return renamed, dict(model_type=config["model_type"].removesuffix("_thinker"), thinker_config=config), pre


def glm(config, cls):
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=2048, longest_edge=16384), resample=3,
        image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    return qwen(config, cls, pixels, Glm4vImageProcessorPil)


GLM = dict(
    image_token_id=IMAGE, image_start_token_id=321, image_end_token_id=322, video_token_id=323, video_start_token_id=318,
    video_end_token_id=319, tie_word_embeddings=True,
)
GLM_SEEN = dict(
    hidden_size=16, depth=2, num_heads=2, intermediate_size=24, out_hidden_size=32, patch_size=8, image_size=40,
)


def glm4v():
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}
    text = TEXT | dict(head_dim=None, rope_parameters=rope)
    config = Glm4vConfig(text_config=text, vision_config=GLM_SEEN, **GLM)
    return glm(config, Glm4vForConditionalGeneration)


def glm4v_moe():
    from transformers import Glm4vMoeConfig, Glm4vMoeForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}
    text = TEXT | dict(
        head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=16,
        routed_scaling_factor=1.5, rope_parameters=rope,
    )
    seen = GLM_SEEN | dict(attention_bias=True)
    config = Glm4vMoeConfig(text_config=text, vision_config=seen, **GLM)
    return glm(config, Glm4vMoeForConditionalGeneration)


def glmga():
    """GLM-4.6V under another name."""
    from transformers import Glm46VForConditionalGeneration, GlmgaConfig

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}
    text = TEXT | dict(model_type="glm4v_text", head_dim=None, rope_parameters=rope)
    config = GlmgaConfig(text_config=text, vision_config=GLM_SEEN | dict(model_type="glm4v_vision"), **GLM)
    return glm(config, Glm46VForConditionalGeneration)


def glm_ocr():
    from transformers import GlmOcrConfig, GlmOcrForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}
    seen = GLM_SEEN | dict(intermediate_size=20)
    config = GlmOcrConfig(text_config=TEXT | dict(rope_parameters=rope), vision_config=seen, **GLM)
    return glm(config, GlmOcrForConditionalGeneration)


def glm5_next():
    from transformers import Glm5NextConfig, Glm5NextForConditionalGeneration
    from transformers.models.glm5_next.image_processing_pil_glm5_next import Glm5NextImageProcessorPil

    text = {k: v for k, v in TEXT.items() if k not in ("head_dim", "rope_parameters")} | dict(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, v_head_dim=8, linear_head_dim=8, linear_num_heads=4,
        n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=16, index_n_heads=4, index_head_dim=8,
        index_topk=512, index_kpool=16, mlp_layer_types=["dense", "sparse"], layer_types=["linear_attention", "indexed_attention"],
        tie_word_embeddings=False,
    )
    seen = dict(
        hidden_size=16, depth=2, num_heads=2, intermediate_size=20, out_hidden_size=32, projection_intermediate_size=24, patch_size=8,
        image_size=40, swiglu_limit=0.375,
    )
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=2, min_image_tokens=6, max_image_tokens=40, resample=3,
        image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    ids = dict(video_start_token_id=323, video_end_token_id=323, tie_word_embeddings=False)
    config = Glm5NextConfig(text_config=text, vision_config=seen, **(GLM | ids))
    return qwen(config, Glm5NextForConditionalGeneration, pixels, Glm5NextImageProcessorPil)


def mistral3_inner():
    """A hidden state in front of the last layer, and another activation of the projector."""
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration, MistralConfig

    config, _, pre, _ = mistral3_latent()
    config = Mistral3Config(
        text_config=MistralConfig(**TEXT).to_dict(), vision_config=config.vision_config.to_dict(), image_token_index=IMAGE,
        spatial_merge_size=2, vision_feature_layer=-2, projector_hidden_act="silu", multimodal_projector_bias=True,
        tie_word_embeddings=True,
    )
    pre = pre | dict(resample=5)
    return config, Mistral3ForConditionalGeneration, pre, pixtral_inputs(pre, 8)


def pixtral_inputs(pre, side):
    """`side`: of a feature, in pixels."""
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    processor = PixtralImageProcessorPil(**(pre | dict(patch_size=side)))  # a patch there is what becomes a feature

    def inputs(pictures):
        out = processor(pictures, return_tensors="pt")
        rows = lambda h, w: ([IMAGE] * (w // side) + [318]) * (h // side)
        spans = [rows(int(h), int(w))[:-1] + [319] for h, w in out["image_sizes"]]
        return dict(pixel_values=out["pixel_values"], image_sizes=out["image_sizes"]), spans

    return inputs


def mistral3_latent():
    """Mistral 3 with the text model of Mistral 4."""
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    rope = dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, max_position_embeddings=2048,
        beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
    )
    text = {k: v for k, v in TEXT.items() if k not in ("head_dim", "rope_parameters")} | dict(
        model_type="mistral4", num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
        v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16,
        routed_scaling_factor=1.5, rope_parameters=rope, tie_word_embeddings=False,
    )
    seen = dict(
        model_type="pixtral", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=4,
        image_size=96, hidden_act="silu",
    )
    config = Mistral3Config(
        text_config=text, vision_config=seen, image_token_index=IMAGE, spatial_merge_size=2, tie_word_embeddings=False,
    )
    pre = dict(
        patch_size=4, size=dict(longest_edge=64), resample=3, image_mean=[0.48145466, 0.4578275, 0.40821073],
        image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    return config, Mistral3ForConditionalGeneration, pre, pixtral_inputs(pre, 8)


def lighton_ocr():
    from transformers import LightOnOcrConfig, LightOnOcrForConditionalGeneration, PixtralVisionConfig, Qwen3Config
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=4, image_size=96,
        hidden_act="silu",
    )
    config = LightOnOcrConfig(
        text_config=Qwen3Config(**TEXT).to_dict(), vision_config=PixtralVisionConfig(**seen).to_dict(), image_token_id=IMAGE,
        spatial_merge_size=2, tie_word_embeddings=True,
    )
    pre = dict(
        patch_size=4, size=dict(longest_edge=88), resample=3, image_mean=[0.48145466, 0.4578275, 0.40821073],
        image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    processor = PixtralImageProcessorPil(**pre)

    def inputs(pictures):
        """Cells of 2 x 2 patches; patches that fill none are seen by the others, but become no feature."""
        out = processor(pictures, return_tensors="pt")
        spans = [[IMAGE] * (int(h) // 8 * (int(w) // 8)) for h, w in out["image_sizes"]]
        return dict(pixel_values=out["pixel_values"], image_sizes=out["image_sizes"]), spans

    return config, LightOnOcrForConditionalGeneration, pre, inputs


def cosmos3_edge():
    from transformers import Cosmos3EdgeConfig, Cosmos3EdgeForConditionalGeneration
    from transformers.models.cosmos3_edge.image_processing_pil_cosmos3_edge import Cosmos3EdgeImageProcessorPil

    text = {k: v for k, v in TEXT.items() if k != "tie_word_embeddings"} | dict(rope_parameters=ROPE_2 | {"mrope_section": [2, 1, 1]})
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=8, num_patches=25,
        spatial_merge_size=2,
    )
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=1, size=dict(shortest_edge=1024, longest_edge=8192), resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    config = Cosmos3EdgeConfig(text_config=text, vision_config=seen, projector_hidden_size=20, tie_word_embeddings=False, **QWEN)
    return qwen(config, Cosmos3EdgeForConditionalGeneration, pixels, Cosmos3EdgeImageProcessorPil)


def video_llama_3():
    from transformers import Qwen2Config, VideoLlama3Config, VideoLlama3ForConditionalGeneration
    from transformers.models.video_llama_3.image_processing_pil_video_llama_3 import VideoLlama3ImageProcessorPil

    seen = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=8)
    pixels = dict(
        patch_size=8, merge_size=1, temporal_patch_size=1, size=dict(shortest_edge=512, longest_edge=2048), resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    config = VideoLlama3Config(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=seen, image_token_id=IMAGE, video_token_id=323,
        tie_word_embeddings=True,
    )
    return qwen(config, VideoLlama3ForConditionalGeneration, pixels, VideoLlama3ImageProcessorPil)


def paddleocr_vl():
    from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=40, patch_size=8,
        spatial_merge_size=2,
    )
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=1, size=dict(shortest_edge=1024, longest_edge=8192), resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    config = PaddleOCRVLConfig(text_config=TEXT | dict(rope_parameters=rope), vision_config=seen, tie_word_embeddings=True, **QWEN)
    return qwen(config, PaddleOCRVLForConditionalGeneration, pixels, PaddleOCRVLImageProcessorPil)


def paddleocr_vl_hub(tensors, config, pre):
    """The names of the files on the hub, and their keys: those of the text model stand beside vision_config."""
    swaps = [("model.language_model.", "model."), ("model.visual.", "visual."), ("model.projector.", "mlp_AR.")]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            if name.startswith(a):
                name = b + name[len(a) :]
                break
        renamed[name] = t
    text = {k: v for k, v in config["text_config"].items() if k != "model_type"}
    seen = config["vision_config"] | dict(model_type="paddleocr_vl", temporal_patch_size=2)
    pixels = {k: v for k, v in pre.items() if k != "size"} | dict(min_pixels=1024, max_pixels=8192)
    ids = {k: v for k, v in config.items() if k.endswith("_token_id")}
    return renamed, text | ids | dict(model_type="paddleocr_vl", vision_config=seen, tie_word_embeddings=True), pixels


def paddleocr_vl_sizes():
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import smart_resize as fit

    return sizes(lambda h, w: fit(h, w, 28, 384 * 384, 1536 * 1536), 28)


def cosmos3_sizes():
    from transformers.models.cosmos3_edge.image_processing_pil_cosmos3_edge import smart_resize as fit

    return sizes(lambda h, w: fit(1, h, w, 1, 32, 256 * 256, 4096 * 4096), 32)


def glm5_sizes():
    from transformers.models.glm5_next.image_processing_pil_glm5_next import smart_resize as fit

    return sizes(lambda h, w: fit(2, h, w, 2, 28, 16, 8000), 28)


def expert_names(tensors, config, pre):
    """A tensor for each expert, as on the hub."""
    out = {}
    for name, t in tensors.items():
        at, _, end = name.rpartition("experts.")
        if not at or end not in ("gate_up_proj", "down_proj"):
            out[name] = t
            continue
        for i, x in enumerate(t):
            parts = x.chunk(2) if end == "gate_up_proj" else [x]
            for part, w in zip(["gate_proj", "up_proj"] if end == "gate_up_proj" else ["down_proj"], parts):
                out[f"{at}experts.{i}.{part}.weight"] = w.clone()
    return out, config, pre


def glm5_names(tensors, config, pre):
    """A convolution for each of q, k and v, and a tensor for each expert."""
    out = {}
    for name, t in tensors.items():
        if name.endswith(".conv1d.weight"):
            out |= {name.replace("conv1d", f"{x}_conv1d"): w.clone() for x, w in zip("qkv", t.chunk(3))}
        else:
            out[name] = t
    return expert_names(out, config, pre)


SIZES = {
    "gemma4": gemma4_sizes, "glm4v": glm4v_sizes, "paddleocr_vl": paddleocr_vl_sizes, "cosmos3_edge": cosmos3_sizes,
    "glm5_next": glm5_sizes,
}
CASES = {
    "gemma4": (
        lambda: gemma4(
            dict(
                num_hidden_layers=3, hidden_size_per_layer_input=0, use_bidirectional_attention="vision", attention_k_eq_v=True,
                num_global_key_value_heads=1,
            ),
            dict(standardize=True),
        ),
        None, typed,
    ),
    "gemma4_e": (
        lambda: gemma4(
            dict(
                num_hidden_layers=4, hidden_size_per_layer_input=8, num_kv_shared_layers=2, use_double_wide_mlp=True,
                layer_types=["sliding_attention", "full_attention"] * 2,
            ),
            dict(use_clipped_linears=True, num_key_value_heads=1),
        ),
        None, typed,
    ),
    "gemma4_unified": (gemma4_unified, None, typed),
    "glm4v": (glm4v, None, typed),
    "glm4v_moe": (glm4v_moe, expert_names, typed),
    "glmga": (glmga, None, typed),
    "glm_ocr": (glm_ocr, None, typed),
    "glm5_next": (glm5_next, glm5_names, between),
    "mistral3_latent": (mistral3_latent, None, between),
    "mistral3_inner": (mistral3_inner, None, between),
    "lighton_ocr": (lighton_ocr, None, between),
    "video_llama_3": (video_llama_3, None, between),
    "paddleocr_vl": (paddleocr_vl, paddleocr_vl_hub, typed),
    "cosmos3_edge": (cosmos3_edge, None, typed),
    "exaone4_5": (exaone4_5, None, between),
    "hyperclovax_vision": (hyperclovax_vision, hyperclovax_hub, between),
    "qwen2_5_omni": (qwen2_5_omni, thinker, masked),
    "qwen3_omni": (qwen3_omni, thinker, masked),
    "qwen2_vl": (qwen2_vl, None, typed),
    "qwen3_vl_moe": (qwen3_vl_moe, None, typed),
    "cohere_compass": (cohere_compass, None, typed),
    "qwen4_exp": (qwen4_exp, None, typed),
}
