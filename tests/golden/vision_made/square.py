"""Families that make one square of a picture."""

import numpy as np, torch
from .base import IMAGE, SIGLIP, TEXT, between, prefix



def paligemma(text, **more):
    from transformers import CONFIG_MAPPING, PaliGemmaConfig, PaliGemmaForConditionalGeneration
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    vision = dict(
        model_type="siglip_vision_model", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        image_size=32, patch_size=8, vision_use_head=False, projection_dim=TEXT["hidden_size"],
    )
    config = PaliGemmaConfig(
        text_config=CONFIG_MAPPING[text](**TEXT, **more).to_dict(), vision_config=vision, image_token_index=IMAGE,
        projection_dim=TEXT["hidden_size"], bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )
    pre = dict(
        size={"height": 32, "width": 32}, resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3, image_seq_length=16,
    )
    processor = SiglipImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = processor(pictures, return_tensors="np")["pixel_values"]
        return dict(pixel_values=torch.tensor(pixels)), [[IMAGE] * 16 for _ in pictures]

    return config, PaliGemmaForConditionalGeneration, pre, inputs


def shieldgemma2():
    """Gemma 3 under another name, which answers whether a picture violates a policy. Images see both ways in themselves."""
    from transformers import Gemma3ForConditionalGeneration, ShieldGemma2Config
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    text = TEXT | dict(model_type="gemma3_text", query_pre_attn_scalar=8, sliding_window=24, layer_types=["sliding_attention", "full_attention"])
    text.pop("rope_parameters")
    config = ShieldGemma2Config(
        text_config=text, vision_config=SIGLIP, mm_tokens_per_image=4, image_token_index=IMAGE, boi_token_index=321, eoi_token_index=322,
    )
    pre = dict(size={"height": 32, "width": 32}, resample=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor = Gemma3ImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[321] + [IMAGE] * 4 + [322] for _ in pictures]

    return config, Gemma3ForConditionalGeneration, pre, inputs


def two_way(spans, text):
    ids = between(spans, text)[0]
    return ids, dict(token_type_ids=lambda n: [int(i == IMAGE) for i in ids] + [0] * (n - len(ids)))


CLIP = dict(
    model_type="clip_vision_model", hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    image_size=32, patch_size=8, projection_dim=16,
)


def llava(kind, padded=False, pixels=None, count=16, **more):
    """`padded`: as its authors showed images to LLaVA 1.5. `pixels`: keys of the processor. `count`: features of an image."""
    import transformers
    from transformers import LlamaConfig
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    config = getattr(transformers, kind + "Config")(
        text_config=LlamaConfig(**TEXT).to_dict(), image_token_index=IMAGE, image_seq_length=count,
        **dict(vision_config=CLIP) | more,
    )
    pre = dict(size=dict(shortest_edge=32), crop_size=dict(height=32, width=32), resample=3, do_center_crop=True) | (pixels or {})
    if padded:
        pre |= dict(image_processor_type="LlavaImageProcessor", do_pad=True)
    processor = (LlavaImageProcessorPil if padded else CLIPImageProcessorPil)(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[IMAGE] * count for _ in pictures]

    return config, getattr(transformers, kind + "ForConditionalGeneration"), pre, inputs


def one_tower(tensors, config, pre):
    """Video-LLaVA without the tower of videos."""
    return {k: t for k, t in tensors.items() if not k.startswith("model.video_tower.")}, config, pre


def llava_siglip():
    from transformers import LlavaConfig, LlavaForConditionalGeneration, Qwen2Config
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    seen = SIGLIP | dict(image_size=36, num_hidden_layers=3)
    config = LlavaConfig(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=seen, image_token_index=IMAGE, image_seq_length=16,
        vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=True,
    )
    pre = dict(size=dict(height=36, width=36), resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor = SiglipImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = processor(pictures, return_tensors="np")["pixel_values"]
        return dict(pixel_values=torch.tensor(pixels)), [[IMAGE] * 16 for _ in pictures]

    return config, LlavaForConditionalGeneration, pre, inputs


PADDED = dict(
    size=dict(height=32, width=32), min_size=6, resample=3, image_mean=[0.48145466, 0.4578275, 0.40821073],
    image_std=[0.26862954, 0.26130258, 0.27577711],
)


def deepseek_vl():
    from transformers import DeepseekVLConfig, DeepseekVLForConditionalGeneration, LlamaConfig
    from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil

    config = DeepseekVLConfig(text_config=LlamaConfig(**TEXT).to_dict(), vision_config=SIGLIP, image_token_id=IMAGE)
    processor = DeepseekVLImageProcessorPil(**PADDED)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[IMAGE] * 16 for _ in pictures]

    return config, DeepseekVLForConditionalGeneration, PADDED, inputs


def janus():
    from transformers import JanusConfig, JanusForConditionalGeneration, LlamaConfig
    from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil

    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8, mlp_ratio=1.5,
        projection_dim=TEXT["hidden_size"], num_image_tokens=16,
    )
    drawn = dict(
        embed_dim=4, num_embeddings=8, latent_channels=4, base_channels=32, channel_multiplier=[1], num_res_blocks=1,
        projection_dim=8, image_token_embed_dim=8,
    )
    config = JanusConfig(
        text_config=LlamaConfig(**TEXT).to_dict(), vision_config=seen, vq_config=drawn, image_token_id=IMAGE,
    )
    pre = PADDED | dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor = JanusImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[321] + [IMAGE] * 16 + [322] for _ in pictures]

    return config, JanusForConditionalGeneration, pre, inputs


def understands(tensors, config, pre):
    """Janus without what draws pictures."""
    drawn = "model.vqmodel.", "model.generation_"
    return {k: t for k, t in tensors.items() if not k.startswith(drawn)}, config, pre


CASES = {
    "deepseek_vl": (deepseek_vl, None, between),
    "llava_siglip": (llava_siglip, None, between),
    "janus": (janus, understands, between),
    "llava": (lambda: llava("Llava"), None, between),
    "llava_full": (
        lambda: llava(
            "Llava", pixels=dict(resample=0), count=17, vision_feature_select_strategy="full", vision_feature_layer=[1, -1],
            projector_hidden_act="silu", multimodal_projector_bias=False,
        ),
        None, between,
    ),
    "llava_padded": (lambda: llava("Llava", padded=True), None, between),
    "vipllava": (
        lambda: llava(
            "VipLlava", vision_config=CLIP | dict(num_hidden_layers=4), vision_feature_layer=[-1, 2, -4], tie_word_embeddings=True,
        ),
        None, between,
    ),
    "video_llava": (lambda: llava("VideoLlava", video_token_index=321, tie_word_embeddings=True), one_tower, between),
    "shieldgemma2": (shieldgemma2, None, two_way),
    "paligemma": (lambda: paligemma("gemma"), None, prefix),
    "paligemma2": (
        lambda: paligemma(
            "gemma2", sliding_window=12, query_pre_attn_scalar=8, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        ),
        None, prefix,
    ),
}
