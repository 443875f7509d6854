#!/usr/bin/env python3
"""Ids of conversations with images as processors of transformers make them, for the families of the reference data: several images, images
between texts, after them and alone, in several turns, and in results of tools.

    python tests/golden/make_vision_chats.py VISION     the folder `vision` of the reference data; into tests/data/vision_chats.json

Needs torch, torchvision and transformers 5. integration/images/test_vision_chats.py compares them. Calls of tools are left out: these templates do
not write them."""

import json, os, sys
from transformers import AutoProcessor

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3", "llava_next", "idefics3", "mistral3", "pixtral")
image = lambda name: {"type": "image", "path": name}
text = lambda s: {"type": "text", "text": s}
user = lambda *parts: {"role": "user", "content": list(parts)}
said = lambda s: {"role": "assistant", "content": [text(s)]}
tool = lambda *parts: {"role": "tool", "tool_call_id": "abcdefghi", "name": "look", "content": list(parts)}
ONE, OTHER = image("rgb_97x61.png"), image("exact_56x56.png")
CHATS = {
    "two images": [user(ONE, OTHER, text("What is this?"))],
    "between texts": [user(text("First "), ONE, text(" then "), OTHER, text(" what?"))],
    "after a text": [user(text("What is this?"), ONE)],
    "alone": [user(ONE)],
    "turns": [{"role": "system", "content": [text("Be brief.")]}, user(ONE, text("What?")), said("A cat."), user(text("And "), OTHER, text("?"))],
    "result": [user(text("Look.")), said("ok"), tool(text("here: "), ONE)],
    "result with two": [user(text("Look.")), said("ok"), tool(ONE, OTHER, text("both")), user(text("Which is it?"))],
}


def placed(chat, folder):
    part = lambda p: {**p, "path": os.path.join(folder, "images", p["path"])} if "path" in p else p
    return [{**m, "content": [part(p) for p in m["content"]]} for m in chat]


if __name__ == "__main__":
    ids = {}
    for family in FAMILIES:
        processor = AutoProcessor.from_pretrained(os.path.join(sys.argv[1], family))
        ids[family] = {}
        for name, chat in CHATS.items():
            made = processor.apply_chat_template(
                placed(chat, sys.argv[1]), tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt",
            )
            ids[family][name] = made["input_ids"][0].tolist()
    with open("tests/data/vision_chats.json", "w") as f:
        json.dump({"chats": CHATS, "ids": ids}, f)
        f.write("\n")
