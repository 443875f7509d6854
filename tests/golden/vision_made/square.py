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


def llava():
    from transformers import LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    clip = dict(
        model_type="clip_vision_model", hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
        image_size=32, patch_size=8, projection_dim=16,
    )
    config = LlavaConfig(
        text_config=LlamaConfig(**TEXT).to_dict(), vision_config=clip, image_token_index=IMAGE, image_seq_length=16,
    )
    pre = dict(size=dict(shortest_edge=32), crop_size=dict(height=32, width=32), resample=3, do_center_crop=True)
    processor = CLIPImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[IMAGE] * 16 for _ in pictures]

    return config, LlavaForConditionalGeneration, pre, inputs


CASES = {
    "llava": (llava, None, between),
    "paligemma": (lambda: paligemma("gemma"), None, prefix),
    "paligemma2": (
        lambda: paligemma(
            "gemma2", sliding_window=12, query_pre_attn_scalar=8, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        ),
        None, prefix,
    ),
}
