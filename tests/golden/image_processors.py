#!/usr/bin/env python3
"""How far the pixels of transformers' two image processors are apart: torchvision's, which transformers 5 loads by default, and
Pillow's, whose pixels a tower here gets.

    python tests/golden/image_processors.py IMAGES     the folder of pictures of the reference data

Needs torch, torchvision and transformers 5. Units are those of a byte. The second table has no resizing: pictures of every mode, given
to a processor as Pillow opens them, or as transformers' load_image() does."""

import importlib, os, sys, warnings
import numpy as np
from PIL import Image
from transformers.image_utils import load_image
from vision_made.base import picture

FAMILIES = {
    "qwen2_vl": "Qwen2VL", "glm4v": "Glm4v", "gemma3": "Gemma3", "gemma4": "Gemma4", "llava": "Llava", "llava_next": "LlavaNext",
    "llava_onevision": "LlavaOnevision", "idefics3": "Idefics3", "got_ocr2": "GotOcr2", "siglip": "Siglip", "clip": "CLIP",
}
SIZES = [(1, 1), (1, 1000), (33, 17), (97, 61), (500, 300)]


def processors(family, **more):
    stem = f"transformers.models.{family}.image_processing_"
    name = FAMILIES[family] + "ImageProcessor"
    return getattr(importlib.import_module(stem + family), name)(**more), getattr(importlib.import_module(f"{stem}pil_{family}"), name + "Pil")(**more)


def flat(x):
    return np.concatenate([flat(y) for y in x]) if isinstance(x, (list, tuple)) else np.asarray(x, np.float64).reshape(-1)


def numbers(processor, picture):
    try:
        return flat(processor([picture])["pixel_values"])
    except ValueError as e:
        return str(e)


def resized(images):
    rng = np.random.default_rng(0)
    pictures = {f"{w} x {h}, noise": Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in SIZES}
    pictures |= {n: picture(images, n) for n in ("portrait_300x500.jpg", "square_448x448.png")}
    for family in FAMILIES:
        fast, slow = processors(family)
        std = 1 if family == "gemma4" or fast.image_std is None else np.mean(fast.image_std)
        for name, p in pictures.items():
            a, b = numbers(fast, p), numbers(slow, p)
            if isinstance(a, str) or isinstance(b, str) or a.shape != b.shape:
                print(f"{family}: {name}: {a if isinstance(a, str) else a.shape} and {b if isinstance(b, str) else b.shape}", flush=True)
                continue
            d = np.abs(a - b) * 255 * std
            print(f"{family}: {name}: {np.mean(d > 0.5):.2%} differ, by {d.max():.1f} at most", flush=True)


def modes(images):
    fast, slow = processors("clip", do_resize=False, do_center_crop=False)
    for name in sorted(os.listdir(images)):
        try:
            want = np.asarray(picture(images, name), np.float64)
        except Exception:
            continue
        found = []
        for p in (Image.open(os.path.join(images, name)), load_image(os.path.join(images, name))):
            for processor in (fast, slow):
                a = np.asarray(processor([p])["pixel_values"][0]).transpose(1, 2, 0)
                a = (a * np.array(fast.image_std) + np.array(fast.image_mean)) * 255
                found.append("other size" if a.shape != want.shape else f"{np.abs(a - want).max():.0f}")
        print(f"{name}: opened {found[:2]}, loaded {found[2:]}", flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    resized(sys.argv[1])
    modes(sys.argv[1])
