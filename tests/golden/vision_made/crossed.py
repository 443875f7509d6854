"""Llama 3.2 Vision, whose text attends to pictures in layers of their own."""

import numpy as np, torch
from .base import IMAGE, TEXT



class Tiles(list):
    """A picture's token, and how many tiles it stands for."""

    def __init__(self, tiles):
        super().__init__([IMAGE])
        self.tiles = tiles


def mllama():
    """Tokens in front of the first picture pass layers that attend to pictures by, as where the model was trained. In
    transformers they attend to all pictures of the prompt, and only the feed-forward behind is masked."""
    from transformers import MllamaConfig, MllamaForConditionalGeneration
    from transformers.models.mllama import modeling_mllama as m
    from transformers.models.mllama.image_processing_pil_mllama import MllamaImageProcessorPil

    class Passed(m.MllamaCrossAttentionDecoderLayer):
        def forward(self, hidden_states, *args, full_text_row_masked_out_mask=None, **more):
            mask = full_text_row_masked_out_mask
            out = super().forward(hidden_states, *args, full_text_row_masked_out_mask=mask, **more)
            return out if mask is None else torch.where(mask[:, 0].bool(), out, hidden_states)

    m.MllamaCrossAttentionDecoderLayer = Passed
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        vocab_size=IMAGE, num_hidden_layers=4, cross_attention_layers=[1, 3], tie_word_embeddings=False,
        rope_parameters=dict(
            rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    )
    shapes = [[r, c] for r in range(1, 5) for c in range(1, 5) if r * c <= 4]
    seen = dict(
        hidden_size=16, num_hidden_layers=3, num_global_layers=2, attention_heads=2, intermediate_size=24, image_size=32,
        patch_size=8, vision_output_dim=48, max_num_tiles=4, intermediate_layers_indices=[0, 2], supported_aspect_ratios=shapes,
    )
    config = MllamaConfig(text_config=text, vision_config=seen, image_token_index=IMAGE)
    pre = dict(
        size={"height": 32, "width": 32}, resample=2, image_mean=[0.48145466, 0.4578275, 0.40821073],
        image_std=[0.26862954, 0.26130258, 0.27577711], max_image_tiles=4,
    )
    processor = MllamaImageProcessorPil(**pre)

    def inputs(pictures):
        out = dict(processor([pictures], return_tensors="pt"))
        return out, [Tiles(n) for n in out.pop("num_tiles")[0]]

    return config, MllamaForConditionalGeneration, pre, inputs


def mllama_hub(tensors, config, pre):
    """The names of the files on the hub."""
    renamed = {}
    for name, t in tensors.items():
        for a, b in ("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head"):
            name = b + name[len(a) :] if name.startswith(a) else name
        renamed[name.removeprefix("model.")] = t
    return renamed, config, pre


def mllama_features(model, kwargs):
    """Those of the tiles that pictures have."""
    seen = model.model.multi_modal_projector(model.model.vision_model(**kwargs).last_hidden_state)[0]
    return [x[: mask.sum()].flatten(0, 1) for x, mask in zip(seen, kwargs["aspect_ratio_mask"][0])]


def crossing(spans, text, apart=False):
    """Pictures side by side, or text between them."""
    from transformers.models.mllama import processing_mllama as m

    ids = [1] + text(2) + sum([s + text(3 * apart) for s in spans], []) + text(6)

    def mask(n):
        where = m.get_cross_attention_token_mask(ids, IMAGE)
        dense = m.convert_sparse_cross_attention_mask_to_dense([where], [[s.tiles for s in spans]], 4, len(ids))[0].tolist()
        return dense + [dense[-1]] * (n - len(ids))

    return ids, dict(cross_attention_mask=mask) if spans else {}


def mllama_canvases():
    """The same at the settings of Llama 3.2 Vision."""
    from transformers.models.mllama import image_processing_pil_mllama as m

    rng, rows = np.random.default_rng(7), []
    sides = [560, 561, 1120, 2240, 1, 5376, 559, 1344]
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        canvas = m.get_optimal_tiled_canvas(h, w, 4, 560)
        fit = m.get_image_size_fit_to_canvas(h, w, *canvas, 560)
        rows.append([w, h] + [int(x) // 560 for x in canvas] + [int(fit[1]), int(fit[0])])
    return [dict(sizes=rows)]


CASES = {"mllama": (mllama, mllama_hub, crossing)}
