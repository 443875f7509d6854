"""Conversations with images become the ids of transformers' processors (tests/golden/make_vision_chats.py)."""

import json

import pytest
from serving import ROOT, Service
from test_images import ARGS, data_url, folder

MADE = json.loads((ROOT / "tests/data/vision_chats.json").read_text())
# The processor of transformers adds a token that the template does not write; servers do not, unless they are asked to.
SPECIAL = ("llava_next",)


def sent(chat):
    part = lambda p: {"type": "image_url", "image_url": {"url": data_url(p["path"])}} if "path" in p else p
    return [{**m, "content": [part(p) for p in m["content"]]} for m in chat]


@pytest.mark.parametrize("family", MADE["ids"])
def test_ids_are_those_of_the_processor(family):
    with Service(folder(family), args=ARGS) as s:
        for name, ids in MADE["ids"][family].items():
            r = s.post("/v1/chat/completions/render", {"messages": sent(MADE["chats"][name]), "add_special_tokens": family in SPECIAL})
            assert r.status_code == 200, r.text
            assert r.json()["token_ids"] == ids, name
