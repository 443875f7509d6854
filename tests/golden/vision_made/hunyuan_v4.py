"""Hunyuan V4: ends of rows are features, positions are a little denser, and coordinates always alternate."""

import re
import torch
from .base import IMAGE, TEXT, typed
from .hunyuan import SEEN


def hy_v4_vl(seen, **vision):
    """`seen`: keys that a token attends to, which an indexer chooses by the same coordinates."""
    from transformers import HYV4VLConfig, HYV4VLForConditionalGeneration
    from transformers.models.hy_v4_vl.image_processing_pil_hy_v4_vl import HYV4VLImageProcessorPil

    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, index_n_heads=20,
        index_head_dim=16, index_topk=seen, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16,
        mlp_layer_types=["dense", "sparse"], indexer_types=["full", "shared"], tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1]),
    )
    config = HYV4VLConfig(
        text_config=text, vision_config=SEEN | dict(out_hidden_size=32) | vision, image_token_id=IMAGE, video_token_id=323,
    )
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=1, size=dict(shortest_edge=1024, longest_edge=8192), resample=3,
        image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711],
    )
    processor = HYV4VLImageProcessorPil(**pixels)

    def inputs(pictures):
        out = processor(pictures, return_tensors="pt")
        spans = [[321] + [IMAGE] * (int(h) // 2 * (int(w) // 2 + 1)) + [322] for _, h, w in out["image_grid_thw"]]
        return dict(pixel_values=out["pixel_values"], image_grid_thw=out["image_grid_thw"]), spans

    return config, HYV4VLForConditionalGeneration, pixels, inputs


def hub(tensors, config, pre):
    """The names of its authors in the tower; experts in their files have a tensor each."""
    swaps = [
        (r"^model\.vision_tower\.", "vit."), (r"^(vit.*)mlp\.fc1", r"\1mlp.dense_h_to_4h"), (r"^(vit.*)mlp\.fc2", r"\1mlp.dense_4h_to_h"),
        (r"^(vit.*)layer_norm1", r"\1input_layernorm"), (r"^(vit.*)layer_norm2", r"\1post_attention_layernorm"),
        (r"patch_merger\.", "perceive."), (r"perceive\.before_rms", "perceive.norm"), (r"perceive\.proj_conv", "perceive.proj.0"),
        (r"perceive\.proj_out", "perceive.proj.2"),
    ]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            name = re.sub(a, b, name)
        renamed[name] = t
    return renamed, config, pre


CASES = {
    "hy_v4_vl": (lambda: hy_v4_vl(4096), hub, typed),
    "hy_v4_vl_cubic": (lambda: hy_v4_vl(24, interpolate_mode="bicubic"), None, typed),
}
