"""Families whose towers are convolutions, of timm."""

import numpy as np, torch
from .base import IMAGE, TEXT, between


def gemma3n():
    """The tower is MobileNet-V5 300M with an eightieth of its channels, and a quarter of its features a side; sound is not made."""
    from transformers import Gemma3nConfig, Gemma3nForConditionalGeneration
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    text = {k: v for k, v in TEXT.items() if k not in ("tie_word_embeddings", "rope_parameters")} | dict(
        vocab_size=334, vocab_size_per_layer_input=318, hidden_size_per_layer_input=8, num_hidden_layers=4,
        num_kv_shared_layers=2, sliding_window=24, intermediate_size=[32, 48, 32, 48], laurel_rank=4,
        layer_types=["sliding_attention", "full_attention"] * 2, activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
        final_logit_softcapping=30.0,
    )
    seen = dict(
        architecture="mobilenetv5_300m_enc", model_args=dict(channel_multiplier=0.0125, msfa_output_resolution=4), hidden_size=2048, vocab_size=8,
        vocab_offset=318,
    )
    heard = dict(
        hidden_size=16, vocab_size=8, vocab_offset=326, conf_num_attention_heads=2, conf_num_hidden_layers=1, input_feat_size=8,
        sscp_conv_channel_size=[4, 4],
    )
    config = Gemma3nConfig(
        text_config=text, vision_config=seen, audio_config=heard, image_token_id=IMAGE, boi_token_id=317, eoi_token_id=319,
        audio_token_id=327, boa_token_id=316, eoa_token_id=326, vision_soft_tokens_per_image=16,
    )
    pre = dict(size=dict(height=192, width=192), resample=2, do_normalize=False)
    processor = SiglipImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = processor(pictures, return_tensors="np")["pixel_values"]
        return dict(pixel_values=torch.tensor(pixels)), [[317] + [IMAGE] * 16 + [319] for _ in pictures]

    return config, Gemma3nForConditionalGeneration, pre, inputs


def fast_vlm():
    from transformers import CONFIG_MAPPING, FastVlmConfig, FastVlmForConditionalGeneration, Qwen2Config
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    seen = CONFIG_MAPPING["timm_wrapper"](
        architecture="fastvit_mci3", hidden_size=64, do_pooling=True, initializer_range=0.02,
        model_args=dict(inference_mode=True, embed_dims=[8, 16, 16, 32, 32], layers=[1, 2, 1, 1, 1]),
    )
    config = FastVlmConfig(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=seen.to_dict(), image_token_index=IMAGE, image_seq_length=16,
        tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(shortest_edge=256), crop_size=dict(height=256, width=256), resample=3, do_center_crop=True,
        image_mean=[0.0] * 3, image_std=[1.0] * 3,
    )
    processor = CLIPImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[IMAGE] * 16 for _ in pictures]

    return config, FastVlmForConditionalGeneration, pre, inputs


def got_ocr2(config_class, processor_class):
    from transformers import GotOcr2ForConditionalGeneration, Qwen2Config

    seen = dict(
        hidden_size=16, output_channels=8, num_hidden_layers=3, num_attention_heads=2, image_size=128, patch_size=8,
        window_size=5, global_attn_indexes=[1], mlp_dim=24,
    )
    config = config_class(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=seen, image_token_index=IMAGE, image_seq_length=16,
        tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(height=128, width=128), resample=3, image_mean=[0.48145466, 0.4578275, 0.40821073],
        image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    processor = processor_class(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[321] + [IMAGE] * 16 + [322] for _ in pictures]

    return config, GotOcr2ForConditionalGeneration, pre, inputs


def got():
    from transformers import GotOcr2Config
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    return got_ocr2(GotOcr2Config, GotOcr2ImageProcessorPil)


def pp_chart2table():
    from transformers import PPChart2TableConfig
    from transformers.models.pp_chart2table.image_processing_pil_pp_chart2table import PPChart2TableImageProcessorPil

    return got_ocr2(PPChart2TableConfig, PPChart2TableImageProcessorPil)


def deaf(tensors, config, pre):
    """Without the tower that hears."""
    return {k: t for k, t in tensors.items() if not k.startswith("model.audio_tower.")}, config, pre


CASES = {
    "fast_vlm": (fast_vlm, None, between),
    "got_ocr2": (got, None, between),
    "pp_chart2table": (pp_chart2table, None, between),
    "gemma3n": (gemma3n, deaf, between),
}
