"""Muse Glimmer and Muse Spark: windows, positions in the order of the transposed grid, frames before channels in a patch."""

import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, between, planes
from .native import sizes

PIXELS = dict(
    patch_size=8, merge_size=2, temporal_patch_size=2, max_image_tokens=40, resample=1, image_mean=[0.5] * 3, image_std=[0.5] * 3,
)


def processor(pixels):
    """Pillow resizes, and numbers are rescaled in double, as in the other families' processors."""
    from transformers.models.muse_glimmer.image_processing_muse_glimmer import MuseGlimmerImageProcessor, smart_resize

    class Pillow(MuseGlimmerImageProcessor):
        def resize(self, images, patch_size, merge_size, max_tokens, **_):
            height, width = smart_resize(*images.shape[-2:], patch_size * merge_size, max_tokens)
            one = lambda x: np.asarray(Image.fromarray(x.permute(1, 2, 0).numpy()).resize((width, height), pixels["resample"]))
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in images])

        def rescale_and_normalize(self, images, *_):
            return torch.tensor(np.stack([planes(x.permute(1, 2, 0).numpy(), 0.5, 0.5) for x in images]))

    return Pillow(**pixels)


def muse(name, text, **more):
    import transformers

    own = TEXT | dict(sliding_window=24, tie_word_embeddings=False, num_hidden_layers=3, output_multiplier=0.9) | text
    seen = dict(
        hidden_size=16, num_hidden_layers=5, num_attention_heads=2, intermediate_size=24, patch_size=8, pos_emb_height=4,
        pos_emb_width=4, rope_parameters={"rope_type": "axial", "rope_theta": 10000.0},
    )
    config = getattr(transformers, name + "Config")(
        # the embedding of a generated placeholder of videos would be that of token 0: it is outside the vocabulary
        text_config=own, vision_config=seen, image_token_id=IMAGE, video_token_id=324, out_hidden_size=64,
        projector_hidden_size=24, **more,
    )
    one = processor(PIXELS)

    def inputs(pictures):
        out = [one(p, return_tensors="pt") for p in pictures]
        kwargs = {k: torch.cat([o[k] for o in out]) for k in ("pixel_values", "image_grid_thw")}
        return kwargs, [[321] + [IMAGE] * (len(o["pixel_values"]) // 4) + [322] for o in out]

    return config, getattr(transformers, name + "ForConditionalGeneration"), PIXELS, inputs


def muse_sizes():
    from transformers.models.muse_glimmer.image_processing_muse_glimmer import smart_resize as fit

    return sizes(lambda h, w: fit(h, w, 28, 4096), 28)


SIZES = {"muse_glimmer": muse_sizes}
SPARK = dict(moe_hidden_size=24, moe_intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, mlp_layer_types=["dense", "sparse", "sparse"])
AUDIO = dict(patch_sizes=[2, 2], hidden_sizes=[4, 8], depths=[1, 1], num_hidden_layers=2, out_hidden_size=TEXT["hidden_size"])  # not served
CASES = {
    "muse_glimmer": (lambda: muse("MuseGlimmer", {}), None, between),
    "muse_spark": (lambda: muse("MuseSpark", SPARK, audio_config=AUDIO, audio_token_id=325), None, between),
}
