"""ERNIE 4.5 VL: experts for tokens of pictures, and for those around them."""

from .base import IMAGE, TEXT, between
from .native import PIXELS_2, qwen
from .saved import as_saved


def ernie():
    from transformers import Ernie4_5_VLMoeConfig, Ernie4_5_VLMoeForConditionalGeneration
    from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import Ernie4_5_VLMoeImageProcessorPil

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    text = TEXT | dict(
        num_hidden_layers=3, rope_parameters=rope, moe_num_experts=4, moe_k=2, moe_intermediate_size=[16, 12], moe_num_shared_experts=1,
        mlp_layer_types=["dense", "sparse", "sparse"],
    )
    seen = dict(hidden_size=16, depth=2, num_heads=2, intermediate_size=64, patch_size=8, spatial_merge_size=2)
    config = Ernie4_5_VLMoeConfig(
        text_config=text, vision_config=seen, image_token_id=IMAGE, image_start_token_id=321, image_end_token_id=322, video_token_id=323,
        video_start_token_id=318, video_end_token_id=319, tie_word_embeddings=True,
    )
    pixels = {k: v for k, v in PIXELS_2.items() if k != "temporal_patch_size"}
    return qwen(config, Ernie4_5_VLMoeForConditionalGeneration, pixels, Ernie4_5_VLMoeImageProcessorPil)


def typed(spans, text):
    """The model is told which tokens are of pictures, and which have their experts."""
    ids, _ = between(spans, text)
    told = lambda which: lambda n: [int(i in which) for i in ids] + [0] * (n - len(ids))
    return ids, dict(mm_token_type_ids=told([IMAGE]), moe_mm_token_type_ids=told([IMAGE, 321, 322]))


def hub_names(tensors, config, pre):
    """The keys of Baidu's repository, whose lists have a number of texts and one of pictures."""
    tensors, config, pre = as_saved(ernie)(tensors, config, pre)
    text = dict(config["text_config"])
    for key in "rope_parameters", "dtype", "mlp_layer_types", "head_dim", "moe_norm_min":
        text.pop(key, None)
    text |= dict(
        model_type="ernie4_5_moe_vl", torch_dtype="float32", moe_num_experts=[4, 4], moe_layer_start_index=[1, 1], moe_layer_end_index=[29, 28],
        moe_layer_interval=1, rope_theta=10000.0, rope_scaling={"rope_type": "ernie_3d", "freq_allocation": 2}, freq_allocation=2,
        tie_word_embeddings=True, im_patch_id=IMAGE, image_start_token_id=321, image_end_token_id=322,
    )
    seen = {k: v for k, v in config["vision_config"].items() if k != "intermediate_size"} | dict(mlp_ratio=4, model_type="DFNRope_vision_transformer")
    size = pre["size"]
    pre = {k: v for k, v in pre.items() if k != "size"} | dict(min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"])
    return tensors, text | dict(vision_config=seen), pre


CASES = {"ernie4_5_vl": (ernie, as_saved(ernie), typed), "ernie4_5_vl_hub": (ernie, hub_names, typed)}
