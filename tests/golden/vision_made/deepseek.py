"""DeepSeek-OCR 2."""

import torch
from .base import IMAGE, TEXT, between


def small(cls, config):
    """With as many queries as pictures of these sizes have patches: transformers chooses by the published numbers."""

    class Sized(cls):
        def __init__(self, config):
            super().__init__(config)
            tower, hidden = self.model.vision_tower, config.vision_config.encoder_config.hidden_size
            self.side = config.vision_config.sam_config.image_size
            tower.query_768_resolution, tower.query_1024_resolution = torch.nn.Embedding(9, hidden), torch.nn.Embedding(16, hidden)
            tower.register_forward_pre_hook(self.swap)
            tower.register_forward_hook(self.swap)

        def swap(self, tower, args, *_):
            m = tower._modules
            if args[0].shape[-1] == self.side:
                m["query_768_resolution"], m["query_1024_resolution"] = m["query_1024_resolution"], m["query_768_resolution"]

    return Sized


def deepseek_ocr2():
    from transformers import DeepseekOcr2Config, DeepseekOcr2ForConditionalGeneration
    from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import DeepseekOcr2ImageProcessorPil

    sam = dict(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, mlp_dim=24, image_size=128, patch_size=8, window_size=5,
        global_attn_indexes=[1], output_channels=12, downsample_channels=[10, 16],
    )
    reads = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24, vocab_size=1,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, routed_scaling_factor=1.5,
        mlp_layer_types=["dense", "sparse"], n_group=1, topk_group=1,
    )
    config = DeepseekOcr2Config(
        text_config=text, vision_config=dict(sam_config=sam, encoder_config=reads), image_token_id=IMAGE, tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(height=128, width=128), tile_size=96, min_patches=2, max_patches=4, crop_to_patches=True, resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3, background_color=[127, 127, 127],
    )
    processor = DeepseekOcr2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        tiles = [int(o["num_local_patches"][0]) for o in out]
        kwargs = dict(pixel_values=torch.cat([o["pixel_values"] for o in out]).float(), num_local_patches=tiles)
        if sum(tiles):
            kwargs["pixel_values_local"] = torch.cat([o["pixel_values_local"] for o in out if "pixel_values_local" in o]).float()
        return kwargs, [[IMAGE] * (9 * n + 16 + 1) for n in tiles]

    return config, small(DeepseekOcr2ForConditionalGeneration, config), pre, inputs


def planes_of_views(kwargs):
    """Tiles, then the whole picture: one row of all numbers."""
    tiles = [kwargs["pixel_values_local"].flatten()] if "pixel_values_local" in kwargs else []
    return torch.cat([*tiles, kwargs["pixel_values"].flatten()])[None].numpy()


CASES = {"deepseek_ocr2": (deepseek_ocr2, None, between)}
