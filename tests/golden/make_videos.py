#!/usr/bin/env python3
"""Chats with a video, of reference checkpoints: prompts, ids and greedy tokens of transformers (fp32 arithmetic, CPU).

    python tests/golden/make_videos.py DATA > tests/data/videos.json

DATA is the folder of the reference data. Frames are resized and rounded as images are; see vision_made/video.py.
integration/images/test_videos.py sends the same frames to the server. Needs torch, transformers 5 and Pillow 12.3."""

import json, os, sys
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer
from vision_made import video
from vision_made.base import picture

FAMILIES = {"qwen2_5_vl": False, "qwen3_vl": True, "qwen3_5": True}
VIDEOS = [video.FIRST, video.ODD]
MARKER, PAD = "<|vision_start|><|image_pad|><|vision_end|>", "<|video_pad|>"


def seconds(film):
    """Of each two frames: as Qwen3VLProcessor computes them."""
    at = [i / film["fps"] for i in range(len(film["frames"]))]
    at += at[-1:] * (len(at) % 2)
    return [(a + b) / 2 for a, b in zip(at[::2], at[1::2])]


def positions(kinds, grid, interval):
    """Of Qwen2.5-VL as by its authors: text goes on behind the last position of a video. transformers 5.24 goes on behind its longer side."""
    t, h, w = grid[0].tolist()
    h, w, first = h // 2, w // 2, kinds.index(2)
    times = [int(torch.tensor(i * interval, dtype=torch.float32)) for i in range(t)]
    cells = [(first + a, first + b, first + c) for a in times for b in range(h) for c in range(w)]
    end, n = max(max(c) for c in cells) + 1, len(kinds) - first - len(cells)
    rows = [(i,) * 3 for i in range(first)] + cells + [(end + i,) * 3 for i in range(n)]
    return torch.tensor(rows).T[:, None]


@torch.no_grad()
def chat(data, family, apart, film):
    folder = os.path.join(data, "vision", family)
    golden = json.load(open(f"{folder}/golden.json"))
    pixels = json.load(open(f"{folder}/preprocessor_config.json"))
    prompt = next(c["prompt"] for c in golden["cases"] if len(c["images"]) == 1)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    values, grid = video.patches([picture(f"{data}/vision/images", f) for f in film["frames"]], pixels, apart)
    t, h, w = grid[0].tolist()
    pads = PAD * (h * w // 4)
    text = "".join(f"<{s:.1f} seconds><|vision_start|>{pads}<|vision_end|>" for s in seconds(film)) if apart else f"<|vision_start|>{pads * t}<|vision_end|>"
    ids = tokenizer(prompt.replace(MARKER, text), add_special_tokens=False)["input_ids"]
    token, greedy, margin = tokenizer.convert_tokens_to_ids(PAD), [], 9e9
    interval = 0 if apart else model.config.vision_config.tokens_per_second * 2 / film["fps"]
    for _ in range(12):
        kinds = [2 * (i == token) for i in ids] + [0] * len(greedy)
        more = {} if apart else dict(position_ids=positions(kinds, grid, interval))
        logits = model(
            input_ids=torch.tensor([ids + greedy]), mm_token_type_ids=torch.tensor([kinds]), pixel_values_videos=values, video_grid_thw=grid, **more
        ).logits[0, -1]
        top = logits.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
    return dict(family=family, **film, prompt=prompt.replace(MARKER, text), ids=ids, greedy_ids=greedy, greedy_min_margin=round(margin, 6))


if __name__ == "__main__":
    out = [chat(sys.argv[1], family, apart, film) for family, apart in FAMILIES.items() for film in VIDEOS]
    print(json.dumps(out))
