"""Vectors of prompts with images, of models that generate otherwise: compared with transformers, and alone, together and after a loss."""

import base64
import json
import shutil

import pytest
import requests
from huggingface_hub import InferenceClient
from serving import DATA, ROOT, Service, data

ARGS = ["--task", "embed", "--max-batch-prefill-tokens", 1024, "--payload-limit", 20000000]
CLIP = ROOT / "tests/data/clip"
IMAGES = ["rgb_120x90.jpg", "exact_56x56.png"]
# The first numbers of the last token's hidden state behind the last norm, divided by its length: transformers 5.24 in fp32, images
# by Pillow, of the prompt that the chat template makes of IMAGES and a question.
WANT = {
    "qwen3_vl": [-0.02881, -0.05325, 0.071997, -0.092286, 0.191194, -0.003074, 0.072466, -0.218029],
    "gemma3": [0.20539, 0.133673, -0.193903, -0.070557, 0.062211, -0.134426, -0.138557, 0.032087],
}


def raw(name):
    return base64.b64encode((DATA / "vision/images" / name).read_bytes()).decode()


def url(name):
    return "data:image/png;base64," + raw(name)


def case(family):
    """The prompt as the chat template makes it, with one marker for each image."""
    cases = json.loads((data(f"vision/{family}") / "golden.json").read_text())["cases"]
    return next(c for c in cases if c["images"] == IMAGES)


def parts(*images, text="What is this?"):
    return [*({"type": "image_url", "image_url": {"url": url(i)}} for i in images), {"type": "text", "text": text}]


def vectors(s, path="/v1/embeddings", **body):
    r = s.post(path, body)
    assert r.status_code == 200, r.text
    a = r.json()
    return a["embeddings"]["float"] if path == "/v2/embed" else [d["embedding"] for d in a["data"]]


def near(got, want):
    worst = max(abs(a - b) for a, b in zip(got, want))
    assert worst < 1e-5, worst


@pytest.mark.parametrize("family, shards", [("qwen3_vl", 2), ("gemma3", 1)])
def test_vectors_are_transformers(family, shards):
    c = case(family)
    special = c["add_special_tokens"]
    with Service(data(f"vision/{family}"), shards, ARGS) as s:
        body = {"messages": [{"role": "user", "content": parts(*IMAGES)}], "add_generation_prompt": True, "add_special_tokens": special}
        r = s.post("/v1/embeddings", body).json()
        alone = r["data"][0]["embedding"]
        near(alone, WANT[family])
        assert r["usage"]["prompt_tokens"] == len(c["ids"])
        # vLLM's /pooling: the same vector, and one for each token, of which it is the last
        pooled = s.post("/pooling", body).json()["data"][0]["data"]
        each = s.post("/pooling", {**body, "task": "token_embed"}).json()["data"][0]["data"]
        assert pooled == alone and len(each) == len(c["ids"])
        near(each[-1], WANT[family])
        # the same prompt as a text with markers, and in base64 alone; others around it
        images = [{"type": "image_url", "image_url": raw(i)} for i in IMAGES]
        item = {"content": [*images, {"type": "text", "text": c["prompt"]}]}
        got = vectors(s, input=["a text", item, {"text": "another"}, {"image": url("tiny_1x1.png")}, item])
        if special:
            assert got[1] == got[4] == alone
        assert got[1] == got[4] and got[1] != got[3] != got[0]
        assert got[0] == vectors(s, input="a text")[0] and got[2] == vectors(s, input=["another"])[0]
        s.kill_shard()
        assert vectors(s, **body)[0] == alone, "by new shards"


@pytest.fixture(scope="module")
def qwen():
    with Service(data("vision/qwen3_vl"), args=[*ARGS, "--max-images", 3]) as s:
        yield s


def test_what_info_says(qwen):
    info = requests.get(qwen.url + "/info").json()
    assert info["input_modalities"] == ["text", "image"] and info["model_pipeline_tag"] is None, "it generates no text"


def test_cohere_has_images(qwen):
    item = {"content": parts("tiny_1x1.png", text="x")}
    by_items = vectors(qwen, "/v2/embed", inputs=[item, {"content": [{"type": "text", "text": "a text"}]}], input_type="search_document")
    by_images = vectors(qwen, "/v2/embed", images=[url("tiny_1x1.png")], input_type="image")
    assert by_items == vectors(qwen, input=[item, "a text"]) and by_images == vectors(qwen, input=[{"image": url("tiny_1x1.png")}])
    r = qwen.post("/v2/embed", {"inputs": [item, {"content": "a text"}]}).json()
    assert r["texts"] == ["a text"]
    r = qwen.post("/v2/embed", {"images": [url("tiny_1x1.png")], "texts": ["x"]})
    assert r.status_code == 400 and "exclude each other" in r.text


@pytest.mark.parametrize(
    "body, why",
    [
        ({"input": [{"image": "data:image/png;base64,AAAA"}]}, "unsupported image"),
        ({"input": [{"content": [{"type": "image_url", "image_url": {"url": "ftp://x/y"}}]}]}, "Invalid image URL"),
        ({"input": [{"image": 5}]}, "must have `text`, `image` or `content`"),
        ({"input": [{"content": [{"type": "video_url"}]}]}, "`text` or an `image_url`"),
        ({"input": [{"text": ""}]}, "cannot be empty"),
        ({"input": [{"image": "", "text": "<|image_pad|><|image_pad|>"}]}, "2 placeholders of images, and 1 images"),
        ({"input": [{"image": "SMALL"}] * 4}, "at most 3 images. Given: 4"),
        ({"input": [{"image": "SMALL", "text": "long " * 40}], "truncate_prompt_tokens": 12}, "is not truncated"),
        ({"messages": [{"role": "user", "content": "x"}], "input": "x"}, "exclude each other"),
        ({"messages": [{"role": "user", "content": "x"}], "prompt_name": "query"}, "`prompt_name`"),
        ({"messages": []}, "at least one message"),
    ],
)
def test_what_is_refused(qwen, body, why):
    if "messages" in body:
        r = qwen.post("/pooling", body)
        assert r.status_code == 400 and why in r.json()["error"]["message"], r.text
    for item in body.get("input", []):
        if isinstance(item, dict) and item.get("image") == "SMALL":
            item["image"] = url("tiny_1x1.png")
    r = qwen.post("/v1/embeddings", body)
    assert r.status_code == 400 and why in r.json()["error"]["message"], r.text


def test_a_model_of_texts_refuses_images():
    with Service(data("embed/bert_mean")) as s:
        for body in ({"input": [{"image": "x"}]}, {"messages": [{"role": "user", "content": parts("tiny_1x1.png")}]}):
            r = s.post("/v1/embeddings", body)
            assert r.status_code == 400 and "image inputs are not supported by this model" in r.text, r.text
        assert vectors(s, input=[{"text": "a text"}]) == vectors(s, input=["a text"])


@pytest.mark.parametrize("model, shards", [("clip", 1), ("clip", 2), ("siglip", 1), ("siglip", 2)])
def test_vectors_of_pictures_and_texts(model, shards):
    """As transformers (tests/golden/make_clip.py). An image is computed by the tower alone, in one request with texts."""
    folder = ROOT / "tests/data" / model
    want = json.loads((folder / "golden.json").read_text())
    data("vision/images")
    with Service(folder, shards) as s:
        names = [*want["pictures"]]
        items = [{"image": url(n)} for n in names]
        got = vectors(s, input=[want["text"], *items, want["text"]])
        for name, v in zip(names, got[1:]):
            near(v, want["pictures"][name])
        near(got[0], want["text_vector"])
        assert got[0] == got[-1] == vectors(s, input=want["text"])[0]
        assert got[1:-1] == [vectors(s, input=[i])[0] for i in items] == vectors(s, "/v2/embed", images=[url(n) for n in names], input_type="image")
        for item in ({"image": url(names[0]), "text": "w1"}, {"content": parts(*names[:2], text="")}):
            r = s.post("/v1/embeddings", {"input": [item]})
            assert r.status_code == 400 and "a text or one image" in r.text, r.text


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_labels_of_a_picture(model):
    """Hugging Face's zero-shot image classification on `/`: a softmax of CLIP's logits, a sigmoid of each of SigLIP's."""
    folder = ROOT / "tests/data" / model
    want = json.loads((folder / "golden.json").read_text())
    data("vision/images")
    name = next(iter(want["pictures"]))
    by_score = sorted(zip(want["label_scores"], want["labels"]), reverse=True)
    with Service(folder) as s:
        parameters = {"candidate_labels": want["labels"], "hypothesis_template": "w5 {} w6"}
        for picture in (raw(name), url(name)):
            r = s.post("/", {"inputs": picture, "parameters": parameters})
            assert r.status_code == 200, r.text
            assert [x["label"] for x in r.json()] == [label for _, label in by_score]
            near([x["score"] for x in r.json()], [score for score, _ in by_score])
        got = InferenceClient(s.url).zero_shot_image_classification(
            (DATA / "vision/images" / name).read_bytes(), candidate_labels=want["labels"], hypothesis_template="w5 {} w6"
        )
        assert [x.label for x in got] == [label for _, label in by_score]
        one = s.post("/", {"inputs": url(name), "parameters": {"candidate_labels": ["w1"]}}).json()
        assert (one[0]["score"] == 1) == (model == "clip")
        for change, why in (({"candidate_labels": []}, "1 to 1024 labels"), ({"hypothesis_template": "w5"}, "has no {}")):
            r = s.post("/", {"inputs": url(name), "parameters": parameters | change})
            assert r.status_code in (400, 422) and why in r.text, r.text
        r = s.post("/", {"inputs": "data:image/png;base64,AAAA", "parameters": parameters})
        assert r.status_code in (400, 422) and "image" in r.text, r.text
    with Service(data("embed/bert_mean")) as s:
        r = s.post("/", {"inputs": url(name), "parameters": parameters})
        assert r.status_code in (400, 422) and "does not compare images with labels" in r.text, r.text


def test_a_folder_of_sentence_transformers(tmp_path):
    """As clip-ViT-B-32: all files of the model, also those of its images, lie in the first module's folder."""
    shutil.copytree(CLIP, tmp_path / "0_CLIPModel")
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    name, want = next(iter(json.loads((CLIP / "golden.json").read_text())["pictures"].items()))
    data("vision/images")
    with Service(tmp_path) as s:
        near(vectors(s, input=[{"image": url(name)}])[0], want)
