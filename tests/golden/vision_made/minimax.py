"""MiniMax M3, whose files have the names and the keys of its authors."""

import torch
from .base import IMAGE, TEXT, between
from .native import PIXELS_2, qwen


def rotation(seen):
    """The angles that MiniMax's own code has: a third of the pairs for each of frame, row and column."""
    from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as m

    pairs = seen["hidden_size"] // seen["num_attention_heads"] // 6

    class Rotation(torch.nn.Module):
        def __init__(self, config, device=None):
            super().__init__()

        def forward(self, x, position_ids):
            by = 10000.0 ** (-torch.arange(pairs) / pairs)
            at = position_ids if position_ids.shape[-1] == 3 else position_ids.T
            angles = (at[:, :, None].float() * by).flatten(1)
            angles = torch.cat([angles, angles], dim=-1)
            return angles.cos(), angles.sin()

    m.MiniMaxM3VLVisionRotaryEmbedding = Rotation


def minimax_m3():
    from transformers import MiniMaxM3SparseForConditionalGeneration, MiniMaxM3VLConfig

    text = TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, dense_intermediate_size=24, shared_intermediate_size=16,
        rotary_dim=4, mlp_layer_types=["dense", "sparse"], layer_types=["full_attention", "minimax_m3_sparse"], index_n_heads=2,
        index_head_dim=8, index_block_size=16, index_topk_blocks=2,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
    )
    seen = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=8, image_size=64,
    )
    rotation(seen)
    config = MiniMaxM3VLConfig(
        text_config=text, vision_config=seen, image_token_index=IMAGE, video_token_index=323, projector_hidden_size=24,
        tie_word_embeddings=True,
    )
    return qwen(config, MiniMaxM3SparseForConditionalGeneration, PIXELS_2)


def repository(tensors, config, pre):
    """The names and keys of MiniMax's repository."""
    renamed = {}
    swaps = [
        ("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head"),
        ("model.vision_tower.embeddings.proj", "vision_tower.vision_model.embeddings.patch_embedding"),
        ("model.vision_tower.layers.", "vision_tower.vision_model.encoder.layers."),
        ("model.vision_tower.", "vision_tower.vision_model."), ("model.multi_modal_projector.merge_", "patch_merge_mlp."),
        ("model.multi_modal_projector.", "multi_modal_projector."),
    ]
    for name, t in tensors.items():
        name = next((b + name[len(a) :] for a, b in swaps if name.startswith(a)), name)
        renamed[name] = t
    seen = config["vision_config"]
    sizes = {k: seen.pop(k) for k in ("spatial_merge_size", "temporal_patch_size")}
    seen |= dict(
        model_type="clip_vision_model", position_embedding_type="rope", rope_mode="3d", rope_theta=10000.0,
        img_token_compression_config=dict(image_token_compression_method="patch_merge", **sizes),
    )
    seen.pop("rope_parameters")
    return renamed, config | dict(img_token_compression_config=seen["img_token_compression_config"]), pre


CASES = {"minimax_m3": (minimax_m3, repository, between)}
