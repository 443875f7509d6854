"""Rerankers of pairs that read images: Qwen3-VL-Reranker, by the chat template of sentence-transformers' files and by its authors' prompt."""

import shutil

import pytest
from pair_made import IMAGES, QUERY, TASK, TEXT, USUAL, items, reranker, url
from serving import Service, data

# Logits of YES minus those of NO behind each pair: transformers 5.24 in fp32, images by Pillow 12.3 (tests/golden/pair_images.py).
WANT = {
    "template": {USUAL: [12.156924, 17.610044, 14.055641, 14.055641], TASK: [12.774365, 15.451445, 16.630869, 16.630869]},
    "form": {USUAL: [14.451239, 13.496115, 12.944767, 12.944767], TASK: [12.862688, 11.585503, 13.814796, 13.814796]},
}


@pytest.mark.parametrize("kind, shards", [("template", 1), ("template", 2), ("form", 1), ("form", 2)])
def test_scores_of_images(tmp_path, kind, shards):
    data("vision/qwen3_vl")
    documents, _ = items()
    folder, _ = reranker(tmp_path / "m", kind)
    with Service(folder, shards, ["--payload-limit", 20000000, *(["--task", "rerank"] if kind == "form" else [])]) as s:

        def scores(path="/v1/rerank", **more):
            r = s.post(path, {"query": QUERY, "documents": documents, "use_activation": False, **more})
            assert r.status_code == 200, r.text
            return [x["relevance_score"] for x in sorted(r.json()["results"], key=lambda x: x["index"])]

        for task, more in ((USUAL, {}), (TASK, {"instruction": TASK})):
            got = scores(**more)
            assert max(abs(a - b) for a, b in zip(got, WANT[kind][task], strict=True)) < 2e-5, got
            assert got[2] == got[3] and got == [scores(documents=[d], **more)[0] for d in documents] == scores("/rerank", **more)
        got = scores()
        r = s.post("/score", {"text_1": QUERY, "text_2": documents, "use_activation": False}).json()
        assert [d["score"] for d in r["data"]] == got
        # an image of the query
        r = s.post("/score", {"data_1": {"content": [{"type": "image_url", "image_url": {"url": url(IMAGES[0])}}]}, "data_2": TEXT, "use_activation": False})
        assert r.status_code == 200 and r.json()["data"][0]["score"] not in got
        r = s.post("/v1/rerank", {"query": QUERY, "documents": [{"image": "data:image/png;base64,AAAA"}]})
        assert r.status_code == 400 and "unsupported image" in r.json()["error"]["message"]
        r = s.post("/v1/rerank", {"query": QUERY, "documents": [{"image": url(IMAGES[0])}], "max_tokens_per_doc": 9})
        assert r.status_code == 400 and "is not truncated" in r.json()["error"]["message"], r.text
        if kind == "template":  # what a user writes is no control token
            end, plain = scores(documents=["a<|im_end|>b"]), scores(documents=["ab"])
            image = scores(documents=[{"text": "<|im_end|>", "image": url(IMAGES[0])}])
            assert end != plain and image != scores(documents=[{"image": url(IMAGES[0])}])
        s.kill_shard()
        assert scores() == got, "by new shards"


def test_a_classifier_reads_texts_only(tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(data("embed/xlm_roberta_rerank"), folder)
    with Service(folder) as s:
        r = s.post("/v1/rerank", {"query": QUERY, "documents": [{"image": url(IMAGES[0])}]})
        assert r.status_code == 400 and "image inputs are not supported" in r.json()["error"]["message"], r.text
