"""Projectors (mmproj) of families whose checkpoints are made: the two files answer like the folder that both were made from."""

import pytest
from serving import DATA, Service
from test_images import data_url
from test_made_vision import ARGS

pytest.importorskip("gguf", reason="llama.cpp's Python module writes the files: pip install gguf")
from gguf_mmproj_made import KINDS, MADE, made_folder, write_made_projector, write_made_text  # noqa: E402
from test_gguf import near  # noqa: E402

IMAGES = [["rgb_120x90.jpg"], ["tall_14x210.png"], ["wide_300x20.png", "rgba_64x48.png"], []]
LOSSY = {"nemotron_nano_vl": 1e-5}  # what converting costs a log-probability


def asked(images):
    parts = [{"type": "image_url", "image_url": {"url": data_url(i)}} for i in images]
    messages = [{"role": "user", "content": [{"type": "text", "text": "[w7][w9]"}, *parts, {"type": "text", "text": "[w11][w12][w13]"}]}]
    return {"messages": messages, "max_tokens": 8, "ignore_eos": True, "temperature": 0, "logprobs": True, "top_logprobs": 2, "add_special_tokens": False}


def answers(s, template, images_of):
    out = []
    for images in images_of:
        body = asked(images) | {"chat_template": template}
        r = s.post("/v1/chat/completions/render", body)
        assert r.status_code == 200, r.text
        a = s.post("/v1/chat/completions", body)
        assert a.status_code == 200, a.text
        out.append([r.json()["token_ids"], a.json()["choices"][0]["logprobs"]])
    return out


def served(model, template, images=IMAGES):
    with Service(model, args=[*ARGS, "--dtype", "float32", "--trust-request-chat-template"]) as s:
        return answers(s, template, images)


def files(family, tmp_path, **more):
    if not (MADE / family).exists() or not (DATA / "vision/images").exists():
        pytest.skip(f"not found: tests/data/vision/{family} or vision/images of the reference data")
    source = made_folder(family, tmp_path / family)
    (tmp_path / "files").mkdir()
    model = write_made_text(family, source, tmp_path / "files/model.gguf", **more)
    write_made_projector(family, source, tmp_path / "files/mmproj-f32.gguf")
    return source, model, (source / "chat_template.jinja").read_text()


@pytest.mark.parametrize("family", KINDS)
def test_both_files_answer_as_the_folder(family, tmp_path):
    source, model, template = files(family, tmp_path)
    assert near(served(model, template), served(source, template), LOSSY.get(family, 0))


def test_a_vocabulary_without_a_placeholder_gets_one(tmp_path):
    """The text models of the first LLaVA end before it."""
    source, model, template = files("llava_padded", tmp_path, unlisted=True)
    for (ids, a), (expected, b) in zip(served(model, template), served(source, template)):
        assert ids == expected
        assert a["content"][0]["token"] == b["content"][0]["token"]  # the folder's vocabulary has four more


def test_the_text_model_of_glm_alone(tmp_path):
    """Its rows of q and k are in halves, unlike those of a GLM-4 without images."""
    source, model, _ = files("glm4v", tmp_path)
    template = "{{ messages[0].content }}"
    (tmp_path / "files/mmproj-f32.gguf").unlink()
    assert near(served(model, template, images=IMAGES[3:]), served(source, template, images=IMAGES[3:]), 0)
