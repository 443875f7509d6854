"""Granite Docling 500M and 2B: positions and norms between the projection's matrices, rows for later layers, named tiles."""

from .base import IMAGE, SIGLIP, TEXT, between

NAMES, SIDE = 270, 6  # the token of row 1, column 1, and most tiles of a row and of a page


def granite_docling(**pixels):
    from transformers import GraniteDoclingConfig, GraniteDoclingForConditionalGeneration
    from transformers.models.granite_docling.image_processing_pil_granite_docling import GraniteDoclingImageProcessorPil

    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        num_hidden_layers=3, embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3, logits_scaling=0.5,
    )
    seen = {k: v for k, v in SIGLIP.items() if k not in ("model_type", "vision_use_head")} | dict(
        num_hidden_layers=3, out_hidden_size=32, scale_factor=2, deepstack_visual_indexes=[0, 2],
    )
    config = GraniteDoclingConfig(text_config=text, vision_config=seen, image_token_id=IMAGE, density_router_hidden_size=8)
    pre = dict(
        size={"height": 32, "width": 32}, max_patches=6, crop_to_patches=True, resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    ) | pixels
    processor = GraniteDoclingImageProcessorPil(**pre)

    def inputs(pictures):
        out = processor([pictures], return_tensors="pt")
        spans, tokens = [], [IMAGE] * 4
        for rows, cols in zip(out.pop("rows")[0], out.pop("cols")[0]):
            tile = lambda row, col: [317, NAMES + SIDE * row + col] + tokens
            span = sum((sum((tile(row, col) for col in range(cols)), []) + [318] for row in range(rows)), [])
            spans.append(span + ([318, 317, 316] + tokens + [317] if rows * cols > 1 else []))
        return {k: out[k] for k in ("pixel_values", "pixel_attention_mask")}, spans

    return config, GraniteDoclingForConditionalGeneration, pre, inputs


def docling_sizes():
    """Grids of tiles at the hub's settings, without and with more tiles for wide pages: [width, height, rows, cols]."""
    import numpy as np
    from transformers.models.granite_docling.image_processing_pil_granite_docling import get_page_tile_grid

    rng, runs = np.random.default_rng(7), []
    sides = [512, 511, 513, 768, 1, 1024, 3000, 9000]
    sizes = [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 14, 2)) for _ in range(160)]
    for dense in {}, dict(dense_max_patches=48, dense_max_scale=0.9, dense_min_aspect=1.2, dense_max_aspect=4.0):
        rows = [[w, h, *get_page_tile_grid(h, w, dict(height=512, width=512), True, 1, 32, **dense)] for w, h in sizes]
        runs.append(dense | dict(sizes=rows))
    return runs


CASES = {"granite_docling": (granite_docling, None, between)}
