"""MiniCPM-V 4.6 and MiniCPM-OCR, whose pictures are cut into slices."""

import numpy as np, torch
from PIL import Image
from .base import IMAGE, SIGLIP, TEXT, between, planes

NEWLINE = 319


def text_model():
    """The text model of the files on the hub: layers of the gated delta rule and, every other one here, of attention."""
    sizes = dict(
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        linear_conv_kernel_dim=4, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
    )
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}
    return TEXT | sizes | dict(model_type="qwen3_5_text", rope_parameters=rope)


def minicpm(config_class, model_class, processor_class, joined, **more):
    """joined: patches of a feature."""
    seen = {k: v for k, v in SIGLIP.items() if k not in ("model_type", "vision_use_head")} | dict(num_hidden_layers=3, image_size=44)
    config = config_class(
        text_config=text_model(), vision_config=seen, image_token_id=IMAGE, insert_layer_id=0, tie_word_embeddings=True, **more,
    )
    pre = dict(
        patch_size=8, scale_resolution=64, max_slice_nums=4, resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    processor = processor_class(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        spans = []
        for o in out:
            whole, *slices = (o["target_sizes"].prod(-1) // joined).tolist()
            spans.append([317] + [IMAGE] * whole + [318] + sum(([321] + [IMAGE] * n + [322] for n in slices), []))
        join = lambda key, dim: torch.cat([o[key] for o in out], dim)
        return dict(pixel_values=join("pixel_values", -1), target_sizes=join("target_sizes", 0)), spans

    return config, model_class, pre, inputs


def minicpmv4_6():
    from transformers import MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    return minicpm(MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration, MiniCPMV4_6ImageProcessorPil, 16)


def minicpmv4_7():
    """Tokens of a picture and of its slices have places on one canvas, so rows of slices end with a newline."""
    from transformers import MiniCPMV4_7Config, MiniCPMV4_7ForConditionalGeneration
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    around = dict(image_start_id=317, image_end_id=318, slice_start_id=321, slice_end_id=322, newline_id=NEWLINE)
    config, cls, pre, _ = minicpm(MiniCPMV4_7Config, MiniCPMV4_7ForConditionalGeneration, MiniCPMV4_6ImageProcessorPil, 16, **around)
    config.text_config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    pre |= dict(max_slice_nums=6, use_image_id=False)
    processor = MiniCPMV4_6ImageProcessorPil(**{k: v for k, v in pre.items() if k != "use_image_id"})

    def inputs(pictures):
        out, spans = [processor(p, return_tensors="pt") for p in pictures], []
        for p, o in zip(pictures, out):
            whole, *slices = (o["target_sizes"].prod(-1) // 16).tolist()
            grid = processor.get_sliced_grid((p.height, p.width), max_slice_nums=6, scale_resolution=64)
            row = lambda n: [321] + [IMAGE] * n + [322]
            ends = lambda i: [NEWLINE] * (i + 1 < len(slices) and (i + 1) % grid[1] == 0)
            spans.append([317] + [IMAGE] * whole + [318] + sum((row(n) + ends(i) for i, n in enumerate(slices)), []))
        join = lambda key, dim: torch.cat([o[key] for o in out], dim)
        return dict(pixel_values=join("pixel_values", -1), target_sizes=join("target_sizes", 0)), spans

    return config, cls, pre, inputs


def closed(spans, text):
    """A newline behind each picture, which belongs to it, and nothing else between two."""
    ids = [1] + text(3) + sum((s + [NEWLINE] for s in spans), []) + text(5)
    return ids, dict(mm_token_type_ids=lambda n: [int(i == IMAGE) for i in ids] + [0] * (n - len(ids)))


def places(model):
    """Positions of prompts with pictures of any size: ids; of each picture its first token, how many there are, the features
    of the whole one, rows and columns of slices, and the features of a slice; positions, and that of the next token."""
    rng, out = np.random.default_rng(3), []
    for _ in range(12):
        ids, seen, sizes = rng.integers(3, 317, rng.integers(0, 6)).tolist(), [], []
        for _ in range(rng.integers(1, 4)):
            h, w, sh, sw = (int(x) for x in rng.integers(1, 8, 4))
            rows, cols = (int(x) for x in rng.integers(1, 4, 2)) if rng.random() < 0.7 else (0, 0)
            ids.append(317)
            first = len(ids)
            ids += [IMAGE] * (h * w) + [318]
            slice = [321] + [IMAGE] * (sh * sw) + [322]
            for r in range(rows):
                ids += [NEWLINE] * (r > 0) + slice * cols
            seen.append([first, len(ids) - 1 - first, h, w, rows, cols, sh, sw])
            sizes += [[4 * h, 4 * w]] + [[4 * sh, 4 * sw]] * (rows * cols)
            ids += [NEWLINE] * int(rng.integers(0, 3)) + rng.integers(3, 317, rng.integers(0, 3)).tolist()
        ids += [5] + [NEWLINE] * int(rng.integers(0, 2))
        kinds = torch.tensor([[int(i == IMAGE) for i in ids]])
        at, delta = model.model.get_rope_index(torch.tensor([ids]), kinds, target_sizes=torch.tensor(sizes))
        out.append(dict(ids=ids, images=seen, positions=at[:, 0].tolist(), next=int(delta) + len(ids)))
    return out


def minicpm_ocr():
    """With half of the merges."""
    from transformers import MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration
    from transformers.models.minicpm_ocr.image_processing_minicpm_ocr import MiniCPMOcrImageProcessor

    class Pillow(MiniCPMOcrImageProcessor):
        """Pillow resizes, and numbers are rescaled in double, as in the other families' processors."""

        def resize(self, image, size, **_):
            x = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((size.width, size.height), Image.BICUBIC)
            return torch.tensor(np.asarray(x)).permute(2, 0, 1)

        def rescale_and_normalize(self, images, *_):
            return torch.tensor(np.stack([planes(x.permute(1, 2, 0).numpy(), 0.5, 0.5) for x in images]))

    return minicpm(MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration, Pillow, 4)


def planes_of_slices(kwargs):
    """Patches side by side, [3][P][n * P], as crops [3][height][width] one after the other."""
    x, at, out = kwargs["pixel_values"][0].float(), 0, []
    side = x.shape[1]
    for h, w in kwargs["target_sizes"].tolist():
        crop = x[..., at : at + h * w * side].reshape(3, side, h, w, side)
        out.append(crop.permute(0, 2, 1, 3, 4).flatten())
        at += h * w * side
    return torch.cat(out)[None].numpy()


def sizes_of(mode):
    """The whole picture, grids of slices and a slice at the hub's settings: [width, height, width, height, rows, cols,
    width, height]; without slices the last four are 0."""
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    p, rng, rows = MiniCPMV4_6ImageProcessorPil(), np.random.default_rng(7), []
    sides = [448, 447, 449, 672, 1, 1024, 1344, 3000]
    how = dict(scale_resolution=448, patch_size=14, downsample_mode=mode)
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        grid = p.get_sliced_grid((h, w), max_slice_nums=9, scale_resolution=448)
        high, wide = p.find_best_resize((h, w), allow_upscale=grid is None, **how)
        tile = [0] * 4
        if grid:
            all_h, all_w = p.get_refine_size((h, w), grid, allow_upscale=True, **how)
            tile = [*grid, all_w // grid[1], all_h // grid[0]]
        rows.append([w, h, wide, high, *tile])
    return [dict(sizes=rows)]


MODES = {"minicpmv4_6": "16x", "minicpm_ocr": "4x"}
CASES = {
    "minicpmv4_6": (minicpmv4_6, None, between), "minicpmv4_7": (minicpmv4_7, None, closed), "minicpm_ocr": (minicpm_ocr, None, between),
}
