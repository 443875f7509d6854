"""Step 3.7: tiles of several sizes, each resized by itself, and two convolutions behind the Perception Encoder."""

import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, between, planes
from .muse import PIXELS
from .saved import as_saved

WORDS = dict(start=321, end=322, newline=319, whole=318, whole_end=317)


def processor(pixels):
    """Pillow resizes, and numbers are rescaled in double, as in the other families' processors."""
    from transformers.models.step3p7.image_processing_step3p7 import Step3p7ImageProcessor

    class Pillow(Step3p7ImageProcessor):
        def resize(self, images, size, **_):
            to = (size.width, size.height)
            one = lambda x: np.asarray(Image.fromarray(x.permute(1, 2, 0).numpy().astype(np.uint8)).resize(to, Image.BILINEAR))
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in images])

        def rescale_and_normalize(self, images, *_):
            one = lambda x: planes(x.permute(1, 2, 0).numpy(), PIXELS["image_mean"], PIXELS["image_std"])
            return torch.tensor(np.stack([one(x) for x in images]))

    return Pillow(**pixels)


def step3p7():
    from transformers import Step3p7Config, Step3p7ForConditionalGeneration

    rope = {k: {"rope_type": "default", "rope_theta": 10000.0} for k in ("full_attention", "sliding_attention")}
    text = {k: v for k, v in TEXT.items() if k != "rope_parameters"} | dict(
        num_hidden_layers=3, num_sliding_attention_heads=4, sliding_window=20, layer_types=["full_attention", "sliding_attention", "full_attention"],
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, share_expert_dim=16, mlp_layer_types=["dense", "sparse", "sparse"],
        rope_parameters=rope, tie_word_embeddings=False,
    )
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=1.5, image_size=48, patch_size=4,
        rope_parameters={"rope_type": "axial", "rope_theta": 10000.0},
    )
    config = Step3p7Config(text_config=text, vision_config=seen, image_token_id=IMAGE, tie_word_embeddings=False)
    pre = dict(size=dict(height=48, width=48), patch_size=32, max_image_size=128, image_mean=PIXELS["image_mean"], image_std=PIXELS["image_std"])
    one = processor(pre)

    def inputs(pictures):
        out, spans = [one(p, return_tensors="pt") for p in pictures], []
        for o in out:
            n, span = int(o["num_local_patches"][0]), []
            for i in range(n):
                span += [WORDS["start"]] + [IMAGE] * 4 + [WORDS["end"]] + [WORDS["newline"]] * bool(o["patch_newline_masks"][0][i])
            spans.append(span + [WORDS["whole"]] + [IMAGE] * 9 + [WORDS["whole_end"]])
        local = [o["pixel_values_local"] for o in out if "pixel_values_local" in o]
        kwargs = dict(pixel_values=torch.cat([o["pixel_values"] for o in out]), num_local_patches=[int(o["num_local_patches"][0]) for o in out])
        return kwargs | (dict(pixel_values_local=torch.cat(local)) if local else {}), spans

    return config, Step3p7ForConditionalGeneration, pre, inputs


def sizes():
    """Tiles and what they are cut from at the hub's settings: [width, height, rows, cols, width, height]; without tiles the last four are 0."""
    from transformers.models.step3p7.image_processing_step3p7 import Step3p7ImageProcessor

    p, rng, rows = Step3p7ImageProcessor(), np.random.default_rng(7), []
    sides = [728, 727, 729, 504, 1, 605, 3000, 50]
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        _, cut, _, cols, high, _ = p._plan_patches(w, h, 728, 504)
        rows.append([w, h, high, cols, *(cut if cols else (0, 0))])
    return [dict(sizes=rows)]


def crops(kwargs):
    """Those of tiles, then that of the whole picture, one after the other."""
    each = list(kwargs.get("pixel_values_local", [])) + list(kwargs["pixel_values"])
    return torch.cat([x.flatten() for x in each])[None].numpy()


CASES = {"step3p7": (step3p7, as_saved(step3p7), between)}
