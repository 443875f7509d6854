"""Vision models in GGUF: the text model and llama.cpp's projector (mmproj) answer like the folder that both were made from."""

import subprocess

import pytest
from serving import BIN, Service, free_port
from test_images import ARGS, data_url, folder

pytest.importorskip("gguf", reason="llama.cpp's Python module writes the files: pip install gguf")
from gguf_mmproj import KINDS, as_files_say, write_projector, write_text  # noqa: E402
from test_gguf import near  # noqa: E402

IMAGES = [["exact_56x56.png"], ["rgb_97x61.png"], ["portrait_300x500.jpg", "tiny_3x2.png"], []]


def asked(images):
    parts = [{"type": "image_url", "image_url": {"url": data_url(i)}} for i in images]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]
    return {"messages": messages, "max_tokens": 8, "ignore_eos": True, "temperature": 0, "logprobs": True, "top_logprobs": 2}


def answers(s, template):
    out = []
    for images in IMAGES:
        r = s.post("/v1/chat/completions", asked(images) | {"chat_template": template})
        assert r.status_code == 200, r.text
        a = r.json()
        out.append([a["usage"]["prompt_tokens"], a["choices"][0]["logprobs"]])
    return out


def settings(family):
    return [*ARGS, "--dtype", "float32", "--trust-request-chat-template"]


def files(family, tmp_path):
    source = as_files_say(folder(family), tmp_path / family)
    model = write_text(source, tmp_path / "model.gguf")
    template = (source / "chat_template.jinja").read_text()
    return source, model, template


@pytest.mark.parametrize("family, num_shard", [(f, 2 if f == "pixtral" else 1) for f in KINDS])
def test_a_projector_beside_answers_as_the_folder(tmp_path, family, num_shard):
    source, model, template = files(family, tmp_path)
    write_projector(source, tmp_path / "mmproj-f32.gguf")
    with Service(source, num_shard, args=settings(family)) as s:
        want = answers(s, template)
    with Service(model, num_shard, args=settings(family)) as s:
        assert near(answers(s, template), want, 1e-3 if family == "qwen3_5" else 0)  # rates of decay lose bits


def refusal(model, *options):
    r = subprocess.run([BIN / "launcher", "--model-id", model, "--port", str(free_port()), *map(str, options)], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0
    return r.stdout + r.stderr


def test_named_projectors_are_checked(tmp_path):
    source, model, template = files("idefics3", tmp_path)
    other = as_files_say(folder("gemma3"), tmp_path / "gemma3")
    foreign = write_projector(other, tmp_path / "foreign.gguf")
    assert "projector `gemma3` does not go with a text model of `llama`" in refusal(model, "--mmproj", foreign)
    assert "is no projector of images" in refusal(model, "--mmproj", model)
    assert "--mmproj" in refusal(source, "--mmproj", foreign)
    # Another model's projector beside it is not used, and a named one may lie anywhere, in packed matrices.
    foreign.rename(tmp_path / "mmproj-foreign.gguf")
    with Service(model, args=settings("idefics3")) as s:
        r = s.post("/v1/chat/completions", asked(IMAGES[0]) | {"chat_template": template})
        assert r.status_code == 400 and "image inputs are not supported" in r.text
    own = write_projector(source, tmp_path / "own.gguf", "Q8_0")
    with Service(model, args=[*settings("idefics3"), "--mmproj", own]) as s:
        assert [a[0] for a in answers(s, template)][3] < 20
