#!/usr/bin/env python3
"""Logits of a vision model's answers to pairs with images, for WANT of integration/embed/test_pair_images.py.

    TEST_DATA=... python tests/golden/pair_images.py

fp32, eager attention, images as Pillow 12.3 resizes them. Needs torch, transformers 5 and requests."""

import os, pathlib, sys, tempfile
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "integration"), str(ROOT / "integration/embed")]
from embed_images import opened  # noqa: E402
from pair_made import TASK, USUAL, items, prompt, reranker  # noqa: E402


@torch.no_grad()
def main():
    for kind in ("template", "form"):
        with tempfile.TemporaryDirectory() as at:
            folder, (yes, no) = reranker(pathlib.Path(at) / "m", kind)
            model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            processor = AutoProcessor.from_pretrained(folder)
            processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
            out = {}
            for task in (USUAL, TASK):
                out[task] = []
                for document in items()[1]:
                    images = dict(images=[opened(document[0])]) if document[0] else {}
                    logits = model(**processor(text=[prompt(kind, task, document)], **images, return_tensors="pt")).logits[0, -1]
                    out[task].append(round(float(logits[yes] - logits[no]), 6))
            print(f'    "{kind}": {out},')


if __name__ == "__main__":
    main()
