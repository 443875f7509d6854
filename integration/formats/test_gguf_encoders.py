"""Encoders, embedding models and rerankers in GGUF files: vectors and scores of the folders that they were made from."""

import json
import pathlib
import shutil

import pytest
import requests
from serving import BIN, ROOT, Service, data

gguf = pytest.importorskip("gguf", reason="llama.cpp's Python module writes the files: pip install gguf")
from gguf_encoders import with_tokenizer, write_encoder  # noqa: E402

CLOSE = 1e-4
PACKED = gguf.GGMLQuantizationType.Q8_0
TEXTS = ["The sun is shining", "hello", "Who are you, Ünal?  It's 12.5 °C in 東京", "a\tlonger text \n about nothing. " * 3]
PAIRS = [("who are you", "hello, I am the Sun"), ("the sun", "is not shining"), ("a", "b")]


def golden(name):
    return json.loads((data(f"embed/{name}") / "golden.json").read_text())


def made(name):
    folder = pathlib.Path(BIN).parent / "golden" / "embed" / name
    if not (folder / "golden.json").exists():
        pytest.skip(f"{folder}: tests/golden/make_embed.py did not run")
    return folder


def both(folder, path, ask, args=(), kind=None):
    """What a folder and the file made from it answer."""
    with Service(folder, args=args) as s:
        want = ask(s)
    with Service(write_encoder(folder, path, kind)) as s:
        return want, ask(s)


def change(folder, **keys):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))


def without(path, end):
    """Zeros for the tensors whose names end so."""
    raw = bytearray(path.read_bytes())
    n = int.from_bytes(raw[:8], "little")
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name.endswith(end):
            begin, stop = (8 + n + o for o in t["data_offsets"])
            raw[begin:stop] = bytes(stop - begin)
    path.write_bytes(raw)


def vectors(s):
    info = requests.get(s.url + "/info").json()
    assert "embedding" in info["model_type"], info
    r = s.post("/v1/embeddings", {"input": TEXTS})
    assert r.status_code == 200, r.text
    return [d["embedding"] for d in r.json()["data"]], r.json()["usage"], [s.post("/embed", {"inputs": t}).json() for t in TEXTS]


def scores(s):
    by_query = [s.post("/rerank", {"query": q, "texts": [d, "x"], "raw_scores": True}).json() for q, d in PAIRS]
    return by_query, s.post("/v1/rerank", {"query": PAIRS[0][0], "documents": [d for _, d in PAIRS]}).json()["results"]


def predictions(s):
    return s.post("/predict", {"inputs": [[t] for t in TEXTS], "raw_scores": True}).json()


def near(got, want, most):
    assert len(got) == len(want)
    assert max(abs(a - b) for a, b in zip(got, want)) < most


@pytest.mark.parametrize("name", ["bert_mean", "xlm_roberta_cls", "qwen3_embedding"])
def test_vectors_are_those_of_transformers(tmp_path, name):
    g = golden(name)
    with Service(write_encoder(data(f"embed/{name}"), tmp_path / "m.gguf")) as s:
        for t in g["texts"]:
            if t["text"] and len(t["ids"]) < g["max_length"]:
                near(s.post("/embed", {"inputs": t["text"]}).json()[0], t["embedding"], CLOSE)
                near(s.post("/v1/embeddings", {"input": t["ids"]}).json()["data"][0]["embedding"], t["embedding"], CLOSE)


def test_scores_are_those_of_transformers(tmp_path):
    with Service(write_encoder(data("embed/xlm_roberta_rerank"), tmp_path / "m.gguf")) as s:
        for p in golden("xlm_roberta_rerank")["pairs"]:
            r = s.post("/rerank", {"query": p["query"], "texts": [p["document"]], "raw_scores": True, "truncate": True}).json()
            assert abs(r[0]["score"] - p["logit"]) < CLOSE


@pytest.mark.parametrize(
    "name, tokens, kind",
    [
        ("bert_cls", None, None),
        ("xlm_roberta_cls", "unigrams", None),
        ("modernbert", "bytes", None),
        ("embeddinggemma", "bytes", None),
        ("jina_v2", "words", None),
        ("jina_v2", "bytes", "halves"),
        ("nomic_bert", "words", None),
        ("nomic_moe", "unigrams", None),
        ("neobert", "words", None),
        ("jina_flash_mean", "unigrams", None),
        ("eurobert", "cased words", None),
        ("eurobert", "bytes", "llama"),
    ],
)
def test_vectors_are_those_of_the_folder(tmp_path, name, tokens, kind):
    folder = data(f"embed/{name}") if name.startswith(("bert", "xlm")) else made(name)
    copy = with_tokenizer(folder, tmp_path / "folder", tokens) if tokens else shutil.copytree(folder, tmp_path / "folder")
    if name == "bert_cls":  # a file has no word for gelu_new
        change(copy, hidden_act="gelu")
    if name == "nomic_bert":  # a file ends where the training did
        change(copy, max_trained_positions=160)
    if name == "nomic_moe":  # a file lacks the bias of the experts' sum
        without(copy / "model.safetensors", "experts.bias")
    want, got = both(copy, tmp_path / "m.gguf", vectors, kind=kind)
    if name == "embeddinggemma":  # adding 1 to norms loses bits
        for a, b in zip(got[0], want[0]):
            near(a, b, 1e-5)
        assert got[1] == want[1]
    else:
        assert got == want


@pytest.mark.parametrize("name, tokens", [("modernbert_rerank", "bytes"), ("xlm_roberta_rerank", "unigrams")])
def test_scores_are_those_of_the_folder(tmp_path, name, tokens):
    folder = data(f"embed/{name}") if name.startswith("xlm") else made(name)
    want, got = both(with_tokenizer(folder, tmp_path / "folder", tokens), tmp_path / "m.gguf", scores)
    assert got == want


def test_packed_weights_are_close(tmp_path):
    """Those of the classifier, too."""
    folder = data("embed/xlm_roberta_rerank")
    with Service(write_encoder(folder, tmp_path / "m.gguf", packing=PACKED), 2) as s:
        assert "weights stay packed" in s.log
        for p in golden("xlm_roberta_rerank")["pairs"]:
            r = s.post("/rerank", {"query": p["query"], "texts": [p["document"]], "raw_scores": True, "truncate": True}).json()
            assert abs(r[0]["score"] - p["logit"]) < 0.05


@pytest.mark.parametrize("name, tokens", [("roberta_classify", "unigrams"), ("distilbert_classify", "words")])
def test_labels_are_those_of_the_folder(tmp_path, name, tokens):
    want, got = both(with_tokenizer(made(name), tmp_path / "folder", tokens), tmp_path / "m.gguf", predictions)
    assert got == want


def test_a_decoder_that_answers_yes_or_no(tmp_path):
    """Its file has the rows of both answers, and is a reranker without being asked to be one."""
    copy = with_tokenizer(made("qwen3_rerank"), tmp_path / "folder", "bytes")
    j = json.loads((copy / "tokenizer.json").read_text())
    model, was = j["model"], {}
    for i, word in (40, "yes"), (41, "no"):
        was |= {t: word for t, k in model["vocab"].items() if k == i}
    model["vocab"] = {was.get(t, t): i for t, i in model["vocab"].items()}
    model["merges"] = [m for m in model["merges"] if not {*m, "".join(m)} & {*was}]
    (copy / "tokenizer.json").write_text(json.dumps(j))
    change(copy, max_position_embeddings=2048)  # the question is long
    want, got = both(copy, tmp_path / "m.gguf", scores, ("--task", "rerank"), "yes")
    assert got == want


ENCDEC = ROOT / "tests/data/encdec"


def t5_folder(folder, copy):
    """With a tokenizer, and with the farthest distance that llama.cpp has for all."""
    shutil.copytree(folder, copy)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ENCDEC / "flan_t5" / name, copy / name)
    change(copy, relative_attention_max_distance=128)
    return copy


def said(s):
    p = {"max_new_tokens": 40, "details": True, "ignore_eos": True, "top_n_tokens": 3}
    asked = [s.post("/generate", {"inputs": t, "parameters": p}) for t in ("that", "the name of it", "he was in the house and you are on the way to it " * 6)]
    assert all(r.status_code == 200 for r in asked), asked[0].text
    return [r.json() for r in asked]


@pytest.mark.parametrize("name", ["t5", "flan_t5", "mt5", "umt5"])
def test_an_encoder_and_a_decoder(tmp_path, name):
    """A head of its own or the embedding; a ReLU or a gate; a decoder of another depth; numbers of distances in every layer."""
    want, got = both(t5_folder(ENCDEC / name, tmp_path / "folder"), tmp_path / "m.gguf", said)
    assert got == want


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_the_encoder_alone(tmp_path, name):
    want, got = both(t5_folder(made(name), tmp_path / "folder"), tmp_path / "m.gguf", vectors)
    assert got == want
