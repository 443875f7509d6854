"""LFM3-VL: a tower of gated convolutions over the grid of patches, with some layers of attention."""

import torch
from .base import TEXT, between
from .native import PIXELS_3, QWEN, qwen
from .saved import as_saved
from .video import with_videos


def parts():
    from transformers import Lfm3VlConfig, Lfm3VlForConditionalGeneration

    text = {k: v for k, v in TEXT.items() if k not in ("rms_norm_eps", "rope_parameters")} | dict(
        model_type="lfm3", num_hidden_layers=4, layer_types=["conv", "full_attention", "sliding_attention", "conv"], sliding_window=20,
        conv_L_cache=4,
    )
    seen = dict(
        hidden_size=24, num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=2, intermediate_size=28, patch_size=8,
        layer_types=["conv", "full_attention", "conv", "conv", "full_attention"], rope_parameters={"rope_type": "axial", "rope_theta": 500.0},
    )
    config = Lfm3VlConfig(text_config=text, vision_config=seen, projector_hidden_size=20, tie_word_embeddings=True, **QWEN)
    return config, Lfm3VlForConditionalGeneration, PIXELS_3


def lfm3_vl():
    return qwen(*parts())


def lfm3_vl_video():
    return with_videos(*parts(), True, 3)


def raster(patches, grids):
    """Patches whose cells are adjacent, in raster order."""
    out, at = [], 0
    for t, h, w in grids.tolist():
        x = patches[at : at + t * h * w].reshape(t, h // 2, w // 2, 2, 2, -1)
        out.append(x.permute(0, 1, 3, 2, 4, 5).reshape(t * h * w, -1))
        at += t * h * w
    return torch.cat(out)


CASES = {"lfm3_vl": (lfm3_vl, as_saved(lfm3_vl), between)}
FILMS = {"lfm3_vl_video": (lfm3_vl_video, as_saved(lfm3_vl_video), between)}
