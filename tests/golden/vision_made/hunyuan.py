"""HunyuanOCR: row ends, a beginning and an end are features, and images have coordinates of their own."""

import re
import torch
from .base import IMAGE, TEXT, typed

SEEN = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=8, max_image_size=40,
    spatial_merge_size=2,
)


def by_pairs(self, freq):
    """Both elements of a pair rotate by one coordinate, as in its authors' code and in vLLM. transformers 5.24 doubles the lengths of
    the sections instead of the list of them, so that a pair gets two coordinates."""
    runs = [m[i % len(self.mrope_section)] for i, m in enumerate(freq.split(self.mrope_section, dim=-1))]
    return torch.cat(runs + runs, dim=-1)


def hunyuan_vl(sections, **vision):
    """`sections`: of the angles of half a head, by (place in the prompt,) column, row and number of the image."""
    from transformers import HunYuanVLConfig, HunYuanVLForConditionalGeneration
    from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import HunYuanVLImageProcessorPil

    from transformers.models.hunyuan_vl.modeling_hunyuan_vl import HunYuanVLRotaryEmbedding

    HunYuanVLRotaryEmbedding.recomposition_frequencies = by_pairs
    rope = dict(rope_type="dynamic", alpha=1000.0, factor=1.0, rope_theta=10000.0, mrope_section=sections)
    text = TEXT | dict(head_dim=16, rope_parameters=rope)
    config = HunYuanVLConfig(
        text_config=text, vision_config=SEEN | dict(text_hidden_size=32, out_hidden_size=32) | vision, image_token_id=IMAGE,
        im_start_id=321, im_end_id=322, im_newline_id=323, tie_word_embeddings=True,
    )
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=1, size=dict(shortest_edge=1024, longest_edge=8192), resample=1,
        image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    processor = HunYuanVLImageProcessorPil(**pixels)

    def inputs(pictures):
        out = processor(pictures, return_tensors="pt")
        spans = [[321] + [IMAGE] * (int(h) // 2 * (int(w) // 2 + 1) + 2) + [322] for _, h, w in out["image_grid_thw"]]
        return dict(pixel_values=out["pixel_values"], image_grid_thw=out["image_grid_thw"]), spans

    return config, HunYuanVLForConditionalGeneration, pixels, inputs


def hub(tensors, config, pre):
    """The names and keys of its authors: those of the text model stand beside vision_config."""
    swaps = [
        (r"^model\.language_model\.", "model."), (r"^model\.vision_tower\.", "vit."), (r"^(vit.*)mlp\.fc1", r"\1mlp.dense_h_to_4h"),
        (r"^(vit.*)mlp\.fc2", r"\1mlp.dense_4h_to_h"), (r"^(vit.*)layer_norm1", r"\1input_layernorm"),
        (r"^(vit.*)layer_norm2", r"\1post_attention_layernorm"), (r"patch_merger\.", "perceive."),
        (r"perceive\.proj_conv", "perceive.proj.0"), (r"perceive\.proj_out", "perceive.proj.2"),
    ]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            name = re.sub(a, b, name)
        renamed[name] = t
    text = {k: v for k, v in config["text_config"].items() if k not in ("model_type", "rope_parameters", "head_dim")}
    rope = config["text_config"]["rope_parameters"]
    text |= dict(
        rope_scaling=dict(type="xdrope", alpha=rope["alpha"], factor=1.0, xdrope_section=rope["mrope_section"], beta_fast=32, beta_slow=1),
        rope_theta=rope["rope_theta"], attention_head_dim=config["text_config"]["head_dim"],
    )
    seen = {k: v for k, v in config["vision_config"].items() if k != "model_type"} | dict(cat_extra_token=1)
    pixels = {k: v for k, v in pre.items() if k != "size"} | dict(min_pixels=1024, max_pixels=8192)
    ids = {k: v for k, v in config.items() if k.endswith(("_id", "_ids"))}
    return renamed, text | ids | dict(model_type="hunyuan_vl", vision_config=seen, tie_word_embeddings=True), pixels


CASES = {
    "hunyuan_vl": (lambda: hunyuan_vl([2, 2, 2, 2]), hub, typed),
    "hunyuan_vl_3": (lambda: hunyuan_vl([3, 3, 2], interpolate_mode="bicubic"), None, typed),
}
