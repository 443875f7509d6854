"""What the families of make_vision.py share: the text model's sizes, pictures as a server reads them, prompts."""

import os
import numpy as np, torch
from PIL import Image, ImageOps

TEXT = dict(
    vocab_size=324, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
IMAGE = 320
SIGLIP = dict(
    model_type="siglip_vision_model", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    image_size=32, patch_size=8, vision_use_head=False,
)


def picture(folder, name):
    """As a server reads it: turned as EXIF says, over white."""
    p = ImageOps.exif_transpose(Image.open(os.path.join(folder, name)))
    if p.mode in ("RGBA", "LA", "PA") or "transparency" in p.info:
        p = Image.alpha_composite(Image.new("RGBA", p.size, "white"), p.convert("RGBA"))
    return p.convert("RGB")


def planes(p, mean, std):
    """[3, H, W] of float32, rescaled in double as image processors of Hugging Face do."""
    x = (np.asarray(p).astype(np.float64) * (1 / 255)).astype(np.float32)
    return ((x - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)


def between(spans, text):
    """Pictures in a prompt that begins with bos."""
    ids = [1] + text(3)
    for s in spans:
        ids += s + text(2)
    return ids + text(4), {}


def prefix(spans, text):
    """PaliGemma's: the processor's token_type_ids make all of the prompt one block, if it has a picture."""
    ids = sum(spans, []) + [1] + text(9)
    return ids, dict(token_type_ids=lambda n: [0] * len(ids) + [1] * (n - len(ids))) if spans else {}


def typed(spans, text):
    """The model is told which tokens are of pictures."""
    ids, _ = between(spans, text)
    return ids, dict(mm_token_type_ids=lambda n: [int(i == IMAGE) for i in ids] + [0] * (n - len(ids)))


def masked(spans, text):
    """The model computes three positions only of a prompt with a mask."""
    return between(spans, text)[0], dict(attention_mask=lambda n: [1] * n)
