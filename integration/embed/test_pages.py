"""Images of pages and queries for them, as ColPali and its descendants retrieve them by late interaction (tests/golden/make_pages.py): the prompts,
vectors and scores of transformers and of colpali-engine."""

import base64
import json
import shutil
import struct

import pytest
from serving import ROOT, Service, data

PAGES = ROOT / "tests/data/pages"
NAMES = sorted(p.name for p in PAGES.iterdir())
ARGS = ["--payload-limit", 20000000]


def want(name):
    return json.loads((PAGES / name / "golden.json").read_text())


def url(name):
    return "data:image/png;base64," + base64.b64encode((data("vision/images") / name).read_bytes()).decode()


def near(got, expected, most=1e-5):
    assert len(got) == len(expected)
    worst = max(abs(a - b) for x, y in zip(got, expected) for a, b in zip(x, y))
    assert worst < most, worst


def rows(s, path="/v1/multi-vector", **body):
    r = s.post(path, body)
    assert r.status_code == 200, r.text
    return [d["data" if path == "/pooling" else "embeddings"] for d in r.json()["data"]]


@pytest.mark.parametrize("name, shards", [(n, 1) for n in NAMES] + [("colqwen2", 2), ("colmodernvbert", 2)])
def test_vectors_and_scores(name, shards):
    g = want(name)
    pages = [{"image": url(n)} for n in g["pictures"]]
    with Service(PAGES / name, shards, ARGS) as s:
        r = s.post("/v1/multi-vector", {"input": g["query"], "input_type": "query"}).json()
        query = r["data"][0]["embeddings"]
        near(query, g["query_vectors"])
        assert r["usage"]["prompt_tokens"] == g["query_tokens"]
        seen = rows(s, input=pages)
        for got, expected in zip(seen, g["page_vectors"]):
            near(got, expected)
        near(rows(s, input=g["text"])[0], g["text_vectors"])
        # a page is the same beside others and alone, under every name of an image, and as a query
        content = {"content": [{"type": "image_url", "image_url": {"url": pages[1]["image"]}}]}
        bare = {"image": pages[1]["image"].split(",")[1]}
        mixed = rows(s, input=[g["text"], content, bare, {"text": g["text"]}], input_type="document")
        assert mixed[1] == mixed[2] == seen[1] and mixed[0] == mixed[3] and rows(s, input=pages[1], input_type="query")[0] == seen[1]
        assert rows(s, "/pooling", input=pages) == seen and rows(s, "/pooling", input=g["query"], input_type="query")[0] == query
        short = rows(s, input=[pages[2]], dimensions=4, embedding_type="base64")[0]
        near([struct.unpack("<4f", base64.b64decode(v)) for v in short], [[x / sum(y * y for y in v[:4]) ** 0.5 for x in v[:4]] for v in seen[2]])
        scores = [d["score"] for d in s.post("/score", {"text_1": g["query"], "text_2": pages}).json()["data"]]
        near([scores], [g["scores"]], 1e-4)
        parts = [{"type": "image_url", "image_url": {"url": p["image"]}} for p in pages]
        by_parts = s.post("/score", {"data_1": g["query"], "data_2": {"content": parts}}).json()
        assert [d["score"] for d in by_parts["data"]] == scores, "vLLM's form, with a part for each document"
        for path in ("/v1/rerank", "/rerank"):
            r = s.post(path, {"query": g["query"], "documents": [*pages, g["text"]], "return_documents": True}).json()["results"]
            assert [x["relevance_score"] for x in r] == sorted((x["relevance_score"] for x in r), reverse=True)
            at = {x["index"]: x for x in r}
            assert [at[i]["relevance_score"] for i in range(3)] == scores
            assert at[0]["document"] == pages[0] and at[3]["document"] == {"text": g["text"]}
        s.kill_shard()
        assert rows(s, input=pages) == seen, "by new shards"


def rename(path, names):
    """The same file of tensors, with other names; what they begin with, in order."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = {}
    for name, what in json.loads(data[8 : 8 + n]).items():
        first = next((old for old in names if name.startswith(old)), "")
        header[names.get(first, "") + name[len(first) :]] = what
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n :])


@pytest.mark.parametrize(
    "name, names",
    [
        # of the class in colpali-engine, whose prompts are equal
        ("colmodernvbert", {"vlm.": "model.", "embedding_proj_layer": "custom_text_proj"}),
        # as older versions wrote them
        ("colqwen2", {"vlm.language_model.": "vlm.model."}),
        ("colqwen2", {"vlm.language_model.": "vlm.model.language_model.", "vlm.visual.": "vlm.model.visual."}),
        ("colpali", {"vlm.vision_tower.": "vlm.vision_tower.vision_model."}),
        ("engine_colqwen2_5", {"language_model.": "model."}),
        ("engine_colpali", {"model.model.language_model.": "model.language_model.model.", "model.model.vision_tower.": "model.vision_tower.vision_model.",
                            "model.model.": "model."}),
    ],
)
def test_names_of_other_versions(tmp_path, name, names):
    g, folder = want(name), tmp_path / name
    shutil.copytree(PAGES / name, folder)
    rename(folder / "model.safetensors", names)
    if name == "colmodernvbert":
        config = json.loads((folder / "config.json").read_text())["vlm_config"]
        (folder / "config.json").write_text(json.dumps(config | {"architectures": ["ColModernVBert"]}))
    with Service(folder, args=ARGS) as s:
        near(rows(s, input=g["query"], input_type="query")[0], g["query_vectors"])
        near(rows(s, input=[{"image": url(g["pictures"][0])}])[0], g["page_vectors"][0])


@pytest.mark.parametrize("shards", [1, 2])
def test_an_adapter_also_changes_the_last_matrix(shards):
    """colpali-engine's adapters: a request names it, and others beside it use the base."""
    folder, g = PAGES / "engine_colqwen2_5", want("engine_colqwen2_5")
    page = {"image": url(g["pictures"][0])}
    with Service(folder, shards, [*ARGS, "--lora-adapters", f"tuned={folder / 'adapter'}"]) as s:
        query = rows(s, input=g["query"], input_type="query", model="tuned")[0]
        near(query, g["adapted_query"])
        near(rows(s, input=[page], model="tuned")[0], g["adapted_page"])
        near(rows(s, input=[page])[0], g["page_vectors"][0])
        near(rows(s, input=g["query"], input_type="query")[0], g["query_vectors"])
        best = sum(max(sum(a * b for a, b in zip(x, y)) for y in g["adapted_page"]) for x in g["adapted_query"])
        r = s.post("/v1/rerank", {"query": g["query"], "documents": [page], "model": "tuned"}).json()["results"]
        near([[r[0]["relevance_score"]]], [[best]], 1e-4)
        s.kill_shard()
        assert rows(s, input=g["query"], input_type="query", model="tuned")[0] == query


def test_half_an_adapter(tmp_path):
    shutil.copytree(PAGES / "engine_colqwen2_5/adapter", tmp_path / "a")
    weights = (tmp_path / "a/adapter_model.safetensors").read_bytes()
    (tmp_path / "a/adapter_model.safetensors").write_bytes(weights.replace(b"custom_text_proj.lora_B", b"custom_text_prxj.lora_B"))
    with pytest.raises(Exception) as e:
        with Service(PAGES / "engine_colqwen2_5", args=["--lora-adapters", f"tuned={tmp_path / 'a'}"]):
            pass
    assert "`custom_text_proj` has an A or a B alone" in str(e.value)


@pytest.fixture(scope="module")
def colqwen2():
    with Service(PAGES / "colqwen2", args=[*ARGS, "--max-images", 3]) as s:
        yield s


SMALL = "tiny_3x2.png"


@pytest.mark.parametrize(
    "path, body, why",
    [
        ("/v1/multi-vector", {"input": [{"image": "data:image/png;base64,AAAA"}]}, "unsupported image"),
        ("/v1/multi-vector", {"input": [{"image": "ftp://x/y"}]}, "Invalid image URL"),
        ("/v1/multi-vector", {"input": [{"image": SMALL, "text": "x"}]}, "a text or one image"),
        ("/v1/multi-vector", {"input": [{"content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": SMALL}]}]}, "a text or one image"),
        ("/v1/multi-vector", {"input": [{"image": 5}]}, "must have `text`, `image` or `content`"),
        ("/v1/multi-vector", {"input": [{"image": SMALL}] * 4}, "at most 3 images. Given: 4"),
        ("/v1/multi-vector", {"input": []}, "cannot be empty"),
        ("/v1/multi-vector", {"input": [[1, 2]]}, "texts are expected"),
        ("/pooling", {"input": [{"image": SMALL}], "truncate_prompt_tokens": 3}, "is not truncated"),
        ("/v1/rerank", {"query": "x", "documents": [{"image": "data:image/png;base64,AAAA"}]}, "unsupported image"),
        ("/v1/rerank", {"query": "x", "documents": {"content": []}}, "cannot be empty"),
        ("/v1/rerank", {"query": "x", "documents": {"content": [{"type": "video_url"}]}}, "`text` or an `image_url`"),
        ("/v1/rerank", {"query": "x", "documents": [{"image": SMALL}, 5]}, "documents"),
        ("/score", {"text_1": "x", "text_2": [{"image": SMALL}] * 4}, "at most 3 images"),
        ("/score", {"text_1": "x", "text_2": [[1, 2]]}, "texts are expected"),
        ("/v1/embeddings", {"input": "x"}, "token_embed"),
    ],
)
def test_what_is_refused(colqwen2, path, body, why):
    r = colqwen2.post(path, json.loads(json.dumps(body).replace(SMALL, url(SMALL))))
    assert r.status_code == 400 and why in r.json()["error"]["message"], r.text


def test_tei_has_an_error_of_its_own(colqwen2):
    r = colqwen2.post("/rerank", {"query": "x", "documents": [{"image": "data:image/png;base64,AAAA"}]})
    assert r.status_code in (400, 413, 422) and "unsupported image" in r.json()["error"], r.text


def test_a_cut_query_keeps_its_beginning(colqwen2):
    g = want("colqwen2")
    whole = rows(colqwen2, "/pooling", input=g["query"], input_type="query")[0]
    cut = rows(colqwen2, "/pooling", input=g["query"], input_type="query", truncate_prompt_tokens=9)[0]
    assert len(cut) == 9 and cut == whole[:9]


def changed(tmp_path, name, file, change):
    folder = tmp_path / name
    shutil.copytree(PAGES / name, folder)
    path = folder / file
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return folder


def test_prompts_of_the_class(tmp_path):
    """Without its words in the files a class of transformers has its own, and one of colpali-engine reads none."""
    g = want("colqwen2")
    with Service(changed(tmp_path, "colqwen2", "processor_config.json", lambda j: {"query_prefix": None})) as s:
        assert len(rows(s, input=g["query"], input_type="query")[0]) == g["query_tokens"] + len("Query: ") - len("Find: ")


@pytest.mark.parametrize(
    "name, change, why",
    [
        ("colpali", lambda j: j["vlm_config"]["text_config"].update(model_type="gemma2", sliding_window=8), "windows"),
        ("engine_colqwen2_5", lambda j: j.update(architectures=["ColQwen2ForRetrieval"]), "embedding_proj_layer.weight` is missing"),
        ("colqwen2", lambda j: j["vlm_config"]["text_config"].update(model_type="abacus"), "model_type `abacus` is not supported"),
    ],
)
def test_files_that_are_refused(tmp_path, name, change, why):
    with pytest.raises(Exception) as e:
        with Service(changed(tmp_path, name, "config.json", lambda j: change(j) or j)):
            pass
    assert why in str(e.value)


def test_other_models_compare_images():
    """CLIP's cosines rank images by a text; a reranker of pairs refuses them."""
    golden = json.loads((ROOT / "tests/data/clip/golden.json").read_text())
    pictures = [{"image": url(n)} for n in golden["pictures"]]
    with Service(ROOT / "tests/data/clip") as s:
        r = s.post("/v1/rerank", {"query": golden["text"], "documents": pictures}).json()["results"]
        cosines = [sum(a * b for a, b in zip(golden["text_vector"], v)) for v in golden["pictures"].values()]
        near([[x["relevance_score"] for x in sorted(r, key=lambda x: x["index"])]], [cosines])
    with Service(data("embed/xlm_roberta_rerank")) as s:
        for path, body in (("/v1/rerank", {"query": "x", "documents": pictures}), ("/score", {"text_1": "x", "text_2": pictures})):
            r = s.post(path, body)
            assert r.status_code == 400 and "image inputs are not supported" in r.json()["error"]["message"], r.text
