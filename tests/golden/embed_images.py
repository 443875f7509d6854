#!/usr/bin/env python3
"""Vectors of prompts with images: those of the programs and of transformers, for folders of TEST_DATA/vision.

    BIN_DIR=build/bin TEST_DATA=... python tests/golden/embed_images.py [FAMILY...]

For each prompt with images of a folder's golden.json, the hidden state of its last token behind the last norm: fp32, eager attention, images
as Pillow resizes them. Needs torch, transformers 5, requests and Pillow 12.3, whose pixels the programs have; ends with 1 if a cosine is off by 1e-5."""

import base64, json, os, pathlib, sys
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import torch
from PIL import Image, ImageOps
from transformers import AutoImageProcessor, AutoModel, AutoProcessor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "integration"))
from serving import DATA, Service, clean_up  # noqa: E402

IMAGES = DATA / "vision/images"
FAMILIES = ["qwen3_vl", "qwen2_5_vl", "gemma3", "llava_next", "idefics3", "pixtral"]


def opened(name):
    """As the programs read a file: turned by its EXIF, and on white."""
    image = ImageOps.exif_transpose(Image.open(IMAGES / name))
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image)
        image = white
    return image.convert("RGB")


def url(name):
    return "data:image/png;base64," + base64.b64encode((IMAGES / name).read_bytes()).decode()


def wanted(model, processor, case):
    ids = dict(text=[case["prompt"]], return_tensors="pt", add_special_tokens=case["add_special_tokens"])
    with torch.no_grad():
        return model(**processor(images=[opened(i) for i in case["images"]], **ids)).last_hidden_state[0, -1].numpy()


def served(s, case):
    parts = [{"type": "image_url", "image_url": {"url": url(i)}} for i in case["images"]]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]
    more = dict(add_generation_prompt=True, add_special_tokens=case["add_special_tokens"], normalize=False)
    r = s.post("/v1/embeddings", dict(messages=messages, **more))
    assert r.status_code == 200, r.text
    return np.array(r.json()["data"][0]["embedding"])


def compare(family):
    """The number of prompts, and their largest differences: of a number, and 1 - cosine."""
    folder = DATA / "vision" / family
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    processor = AutoProcessor.from_pretrained(folder)
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    cases = [c for c in json.loads((folder / "golden.json").read_text())["cases"] if c["images"] and "ids" in c]
    off, turned = [], []
    with Service(folder, args=["--task", "embed", "--max-batch-prefill-tokens", "2048"]) as s:
        for case in cases:
            want, got = wanted(model, processor, case), served(s, case)
            off.append(np.abs(want - got).max())
            turned.append(1 - want @ got / np.linalg.norm(want) / np.linalg.norm(got))
    return len(cases), max(off), max(turned)


def main():
    worst = 0
    for family in sys.argv[1:] or FAMILIES:
        n, off, turned = compare(family)
        print(f"| `{family}` | {n} | {off:.1e} | {turned:.1e} |", flush=True)
        worst = max(worst, turned)
    clean_up(False)
    return worst > 1e-5


if __name__ == "__main__":
    sys.exit(main())
