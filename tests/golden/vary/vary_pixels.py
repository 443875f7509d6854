#!/usr/bin/env python3
"""Settings of image processors at random, for families whose processor transformers has, compared bit by bit.

    python tests/golden/vary/vary_pixels.py DATA [--seed 0] [-n 20] [NAME...]        (make vary-pixels)

DATA is the reference data's folder `vision`. One to three keys of a checkpoint's preprocessor_config.json are changed, and pictures of noise go
through transformers' processor (Pillow's) and through `build/tests/bench/pixels show`. Numbers have to be equal, or one of the two refuses the
file; a refusal of ours has to name a key. Other results are WRONG, and the script ends with 1. Pillow must be 12.3 or older."""

import argparse, copy, json, os, random, subprocess, sys, tempfile
import numpy as np
from PIL import Image
from transformers import AutoImageProcessor

NAMES = {  # the class; tests/data/vision/NAME, or DATA/NAME
    "qwen2_vl": "Qwen2VLImageProcessor", "qwen3_vl": "Qwen2VLImageProcessor", "qwen2_5_vl": "Qwen2VLImageProcessor",
    "glm4v": "Glm4vImageProcessor", "gemma3": "Gemma3ImageProcessor", "llava": "CLIPImageProcessor", "llava_padded": "LlavaImageProcessor",
    "llava_next": "LlavaNextImageProcessor", "llava_onevision": "LlavaOnevisionImageProcessor",
    "idefics3": "Idefics3ImageProcessor", "smolvlm": "SmolVLMImageProcessor",
    "pixtral": "PixtralImageProcessor", "internvl": "GotOcr2ImageProcessor",
    "paligemma": "SiglipImageProcessor", "paddleocr_vl": "PaddleOCRVLImageProcessor", "hunyuan_vl_3": "HunYuanVLImageProcessor",
    "janus": "JanusImageProcessor", "ovis2": "Ovis2ImageProcessor", "video_llama_3": "VideoLlama3ImageProcessor",
    "got_ocr2": "GotOcr2ImageProcessor", "granite_docling": "GraniteDoclingImageProcessor", "hy_v4_vl": "HYV4VLImageProcessor",
}
OVERRIDDEN = {"pixtral": {"patch_size"}}  # the processor of prompts sets these for its processor of images, whatever the file has
PICTURES = [(97, 61), (64, 64), (33, 170), (1, 90), (300, 45), (5, 3), (224, 224)]
SIZES = [
    40, {"height": 40, "width": 40}, {"height": 40, "width": 56}, {"shortest_edge": 40}, {"longest_edge": 72},
    {"shortest_edge": 40, "longest_edge": 80}, {"shortest_edge": 3136, "longest_edge": 12544}, {"max_height": 40, "max_width": 40},
]
VALUES = {
    "do_resize": [False, None], "do_rescale": [False], "do_normalize": [False, None], "do_convert_rgb": [False, None], "do_pad": [True, False],
    "do_center_crop": [True, False], "rescale_factor": [1 / 127.5, 0.5], "resample": [0, 1, 2, 3, 4, 5], "image_mean": [[0.1, 0.2, 0.3], 0.25],
    "image_std": [[0.5, 0.25, 0.125], 0.75], "size": SIZES, "crop_size": [32, {"height": 32, "width": 32}, {"height": 32, "width": 48}],
    "min_pixels": [784, 6272], "max_pixels": [3136, 50176], "patch_size": [4, 8, 14], "merge_size": [1, 2], "temporal_patch_size": [1, 2],
    "min_patches": [1, 2], "max_patches": [1, 3, 12], "crop_to_patches": [True, False], "use_thumbnail": [True, False],
    "do_image_splitting": [True, False], "max_image_size": [{"longest_edge": 32}, {"longest_edge": 64}], "do_pan_and_scan": [True],
    "pan_and_scan_min_crop_size": [8], "pan_and_scan_max_num_crops": [2, 4], "pan_and_scan_min_ratio_to_activate": [1.1, 2.0],
    "image_grid_pinpoints": [[[32, 64], [64, 32]], [[64, 64]]], "default_to_square": [True, False], "pad_size": [{"height": 64, "width": 64}],
    "min_size": [8, 14], "use_covering_area_grid": [True, False], "data_format": ["channels_last"], "size_divisor": [8],
    "input_data_format": ["channels_first"], "return_row_col_info": [False], "do_flip": [True], "background_color": [[12, 34, 56]],
    "vision_feature_select_strategy": ["full"], "aspect_ratio_setting": ["pad"],
}


def base(data, name):
    for folder in (f"tests/data/vision/{name}", f"{data}/{name}"):
        if os.path.exists(f"{folder}/config.json"):
            read = lambda file: json.load(open(f"{folder}/{file}"))
            return read("config.json"), read("preprocessor_config.json")
    sys.exit(f"no {name}")


def theirs(kind, pre, picture):
    """Numbers of transformers, without what only fills up a batch; or why it refuses."""
    import transformers

    try:  # a copy: some classes write their older keys into the size that they get
        out = getattr(transformers, kind + "Pil")(**{k: v for k, v in copy.deepcopy(pre).items() if k != "image_processor_type"})(picture, return_tensors="np")
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    x = np.asarray(out["pixel_values"], dtype="<f4")
    return x.ravel()


def ours(folder, picture):
    x = np.asarray(picture)
    x.tofile(f"{folder}/in")
    call = ["build/tests/bench/pixels", "show", folder, str(picture.width), str(picture.height), f"{folder}/in", f"{folder}/out"]
    r = subprocess.run(call, capture_output=True, text=True)
    if r.returncode == 3:
        return r.stderr.strip()
    if r.returncode:
        sys.exit(f"{call}: {r.stderr}")
    return np.fromfile(f"{folder}/out", dtype="<f4")


def judge(a, b, changed):
    if isinstance(a, str) and isinstance(b, str):
        return "both refuse"
    if isinstance(a, str):
        return "only ours takes it"
    if isinstance(b, str):
        return "refused" if any(k in b for k in changed) or "pixels" in b else "refused without a name"
    if a.shape == b.shape and (a == b).all():
        return "equal"
    return "WRONG"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("-n", type=int, default=20)
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    wrong, noise = 0, np.random.default_rng(a.seed)
    pictures = [Image.fromarray(noise.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in PICTURES]
    for name in a.names or NAMES:
        config, pre = base(a.data, name)
        draw, counts, seen = random.Random(f"{a.seed} {name}"), {}, set()
        for i in range(a.n + 1):
            keys = draw.sample(sorted(set(VALUES) - OVERRIDDEN.get(name, set())), draw.choice([1, 1, 2, 3])) if i else []
            change = {k: draw.choice(VALUES[k]) for k in keys}
            changed = {"image_processor_type": NAMES[name]} | pre | change
            with tempfile.TemporaryDirectory() as folder:
                json.dump(config, open(f"{folder}/config.json", "w"))
                json.dump(changed, open(f"{folder}/preprocessor_config.json", "w"))
                for picture in pictures:
                    one, two = theirs(NAMES[name], changed, picture), ours(folder, picture)
                    what = judge(one, two, change)
                    counts[what] = counts.get(what, 0) + 1
                    if what not in ("equal", "both refuse") and (what, str(change)) not in seen:
                        seen.add((what, str(change)))
                        why = two if isinstance(two, str) else one if isinstance(one, str) else f"{one.shape} and {two.shape}"
                        print(f"  {name} {picture.size} {change}: {what}: {str(why)[-160:]}", flush=True)
        wrong += counts.get("WRONG", 0)
        print(f"{name}: {counts}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
