"""What the clients of Cohere, Voyage, Jina, Infinity and vLLM send for vectors and scores."""

import base64
import json
import math
import shutil
import struct

import cohere
import numpy as np
import pytest
from serving import Service, data

TEXTS = ["Hello world", "a", "the sun is shining"]


@pytest.fixture(scope="module")
def bert():
    with Service(data("embed/bert_mean")) as s:
        yield s


@pytest.fixture(scope="module")
def vectors(bert):
    return np.array([d["embedding"] for d in bert.post("/v1/embeddings", {"input": TEXTS}).json()["data"]], np.float32)


def bits(x):
    """As sentence-transformers' quantize_embeddings()."""
    return np.packbits(x > 0, axis=-1)


def test_cohere_sdk(bert, vectors):
    """Both versions of its API; all types of one answer are of the same vectors."""
    new = cohere.ClientV2(api_key="-", base_url=bert.url).embed(
        model="m", texts=TEXTS, input_type="search_document", embedding_types=["float", "binary", "ubinary", "base64"])
    assert np.abs(np.array(new.embeddings.float_) - vectors).max() < 1e-6 and new.texts == TEXTS
    assert new.embeddings.ubinary == bits(vectors).tolist()
    assert new.embeddings.binary == (bits(vectors).astype(int) - 128).tolist()
    assert np.frombuffer(base64.b64decode(new.embeddings.base64[1]), "<f4").tolist() == vectors[1].tolist()
    assert new.meta.billed_units.input_tokens == bert.post("/v1/embeddings", {"input": TEXTS}).json()["usage"]["prompt_tokens"]
    old = cohere.Client(api_key="-", base_url=bert.url).embed(model="m", texts=TEXTS, input_type="classification")
    assert old.response_type == "embeddings_floats" and np.abs(np.array(old.embeddings) - vectors).max() < 1e-6


def test_cohere_options(bert, vectors):
    def ask(path="/v2/embed", **how):
        return bert.post(path, {"texts": ["Hello world"], **how})

    parts = bert.post("/v2/embed", {"inputs": [{"content": [{"type": "text", "text": "Hello world"}]}]}).json()
    assert parts["embeddings"] == ask().json()["embeddings"] and parts["texts"] == ["Hello world"]
    assert len(ask(output_dimension=8).json()["embeddings"]["float"][0]) == 8
    assert list(ask("/v1/embed", embedding_types=["ubinary"]).json()["embeddings"]) == ["ubinary"]
    long = {"texts": ["the sun " * 200]}
    end, start = (bert.post("/v2/embed", {**long, **how}).json()["embeddings"] for how in ({}, {"truncate": "START"}))
    assert end == bert.post("/v2/embed", {**long, "truncate": "END"}).json()["embeddings"] and len(start) == 1
    for body, words in (
        ({**long, "truncate": "NONE"}, "context length"), ({"texts": ["x"], "embedding_types": ["int8"]}, "embedding_types"), ({"texts": []}, "empty"),
        ({"images": ["data:"]}, "images"), ({"inputs": [{"content": []}]}, "content"), ({"texts": [[1, 2]]}, "ids"), ({"texts": ["x"], "truncate": "X"}, "truncate"),
    ):
        r = bert.post("/v2/embed", body)
        assert r.status_code == 400 and words in r.json()["message"], (body, r.text)


def test_signs_of_numbers(bert, vectors):
    """Jina's `embedding_type`, Voyage's and Mistral's `output_dtype`; a width that is no multiple of eight is filled up."""
    def ask(**how):
        return [d["embedding"] for d in bert.post("/v1/embeddings", {"input": TEXTS, **how}).json()["data"]]

    want = bits(vectors)
    assert ask(embedding_type="ubinary") == ask(output_dtype="ubinary") == want.tolist()
    assert ask(embedding_type="binary") == ask(output_dtype="binary") == (want.astype(int) - 128).tolist()
    assert ask(output_dtype="ubinary", dimensions=13) == bits(vectors[:, :13]).tolist()
    raw = [np.frombuffer(base64.b64decode(x), np.int8) for x in ask(output_dtype="binary", encoding_format="base64")]
    assert np.array(raw).tolist() == (want.astype(int) - 128).tolist()
    assert bert.post("/v1/embeddings", {"input": "x", "output_dtype": "int8"}).status_code == 400


def test_lengths_and_ends(bert):
    long = "Hello " + "the sun " * 200
    def ask(**how):
        return bert.post("/v1/embeddings", {"input": long, **how})

    end = ask(truncation=True).json()["data"]
    assert end == ask(truncate_prompt_tokens=-1).json()["data"] == ask(truncate_prompt_tokens=-1, truncation_side="right").json()["data"]
    assert end != ask(truncate_prompt_tokens=-1, truncation_side="left").json()["data"]
    assert ask(truncation=False).status_code == ask(truncate_prompt_tokens=-1, truncation_side="up").status_code == 400
    plain = bert.post("/embed", {"inputs": "a", "normalize": False}).json()[0]
    for key in ("normalize", "normalized", "use_activation"):
        assert bert.post("/v1/embeddings", {"input": "a", key: False}).json()["data"][0]["embedding"] == plain, key


@pytest.fixture(scope="module")
def reranker():
    with Service(data("embed/xlm_roberta_rerank")) as s:
        yield s


DOCUMENTS = ["a ball", "the sun is shining", "Hello"]


def test_voyage_rerank(reranker):
    """voyageai's client sends `top_k` and `truncation`, and reads `data`."""
    jina = reranker.post("/v1/rerank", {"query": "What?", "documents": DOCUMENTS, "top_n": 2, "return_documents": True}).json()
    r = reranker.post("/v1/rerank", {"query": "What?", "documents": DOCUMENTS, "top_k": 2, "truncation": True, "return_documents": True}).json()
    assert r["object"] == "list" and "results" not in r and r["usage"] == jina["usage"]
    assert r["data"] == [{**x, "document": x["document"]["text"]} for x in jina["results"]]
    assert len(reranker.post("/v1/rerank", {"query": "What?", "documents": DOCUMENTS, "top_k": None, "truncation": True}).json()["data"]) == 3
    assert len(reranker.post("/v1/rerank", {"query": "What?", "documents": DOCUMENTS, "top_n": 1, "truncation": True}).json()["data"]) == 1
    refused = reranker.post("/v1/rerank", {"query": "What?", "documents": ["the sun " * 400], "truncation": False})
    assert refused.status_code == 400


def test_infinity_raw_scores(reranker):
    body = {"query": "What?", "documents": DOCUMENTS}
    raw = reranker.post("/v1/rerank", {**body, "raw_scores": True}).json()["results"]
    assert raw == reranker.post("/v1/rerank", {**body, "use_activation": False}).json()["results"] != reranker.post("/v1/rerank", body).json()["results"]


def changed(to, name, **keys):
    shutil.copytree(data(name), to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, **keys}))
    return to


@pytest.mark.parametrize("keys", [
    {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.1.0"}},
    {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
])
def test_the_function_of_a_cross_encoder(tmp_path, reranker, keys):
    """ms-marco-MiniLM's scores are logits, as CrossEncoder.predict() and vLLM give them; TEI's route has sigmoids."""
    body = {"query": "What?", "documents": DOCUMENTS}
    with Service(changed(tmp_path / "m", "embed/xlm_roberta_rerank", **keys)) as s:
        raw = reranker.post("/v1/rerank", {**body, "use_activation": False}).json()["results"]
        assert s.post("/v1/rerank", body).json()["results"] == raw
        score = s.post("/score", {"text_1": "What?", "text_2": DOCUMENTS}).json()["data"]
        assert {x["index"]: x["score"] for x in score} == {x["index"]: x["relevance_score"] for x in raw}
        tei = {"query": "What?", "texts": DOCUMENTS}
        assert s.post("/rerank", tei).json() == reranker.post("/rerank", tei).json()


def test_the_prompt_of_a_cross_encoder(tmp_path, reranker):
    """It precedes the first text alone, as in sentence-transformers; a request cannot choose another one."""
    model = changed(tmp_path / "m", "embed/xlm_roberta_rerank")
    (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"q": "the sun "}, "default_prompt_name": "q"}))
    with Service(model) as s:
        for path, first, second in (("/score", "text_1", "text_2"), ("/v1/rerank", "query", "documents")):
            got = s.post(path, {first: "is shining", second: DOCUMENTS}).json()
            want = reranker.post(path, {first: "the sun is shining", second: DOCUMENTS}).json()
            key = "data" if path == "/score" else "results"
            assert got[key] == want[key] != reranker.post(path, {first: "is shining", second: DOCUMENTS}).json()[key]


def three_labels(to, **keys):
    """A classifier whose three labels have the reranker's logit."""
    changed(to, "embed/xlm_roberta_rerank", id2label={"0": "a", "1": "b", "2": "c"}, **keys)
    file = to / "model.safetensors"
    raw = file.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header, at, parts = json.loads(raw[8 : 8 + n]), 0, []
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            part = raw[8 + n + begin : 8 + n + end] * (3 if ".out_proj." in name and name.startswith("classifier") else 1)
            t["shape"] = [3, *t["shape"][1:]] if len(part) > end - begin else t["shape"]
            t["data_offsets"] = [at, at + len(part)]
            at += len(part)
            parts.append(part)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return to


def test_labels_of_a_cross_encoder(tmp_path):
    keys = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
    with Service(three_labels(tmp_path / "m", **keys)) as s:
        logit = s.post("/classify", {"input": "x", "use_activation": False}).json()["data"][0]["probs"][0]
        assert s.post("/classify", {"input": "x"}).json()["data"][0]["probs"] == pytest.approx([1 / (1 + math.exp(-logit))] * 3, abs=1e-6)


@pytest.mark.parametrize("kind", [None, "single_label_classification", "multi_label_classification", "regression"])
def test_the_problem_of_a_classifier(tmp_path, kind):
    """Labels that do not exclude each other, and plain numbers, as in transformers' pipelines."""
    with Service(three_labels(tmp_path / "m", problem_type=kind)) as s:
        logit = s.post("/classify", {"input": "x", "use_activation": False}).json()["data"][0]["probs"][0]
        want = {"multi_label_classification": 1 / (1 + math.exp(-logit)), "regression": logit}.get(kind, 1 / 3)
        assert s.post("/classify", {"input": "x"}).json()["data"][0]["probs"] == pytest.approx([want] * 3, abs=1e-6)
        assert [x["score"] for x in s.post("/predict", {"inputs": "x"}).json()] == pytest.approx([want] * 3, abs=1e-6)
