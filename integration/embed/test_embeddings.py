"""Embedding models and rerankers with common clients, compared with transformers."""

import base64
import concurrent.futures
import json
import os
import shutil
import signal
import struct

import huggingface_hub
import openai
import pytest
import requests
from serving import DEMO, Service, data, strict, wait_for

CLOSE = 1e-4


def golden(name):
    return json.loads((data(f"embed/{name}") / "golden.json").read_text())


@pytest.fixture(scope="module")
def bert():
    with Service(data("embed/bert_mean")) as s:
        yield s


@pytest.fixture(scope="module")
def reranker():
    with Service(data("embed/xlm_roberta_rerank")) as s:
        yield s


@pytest.fixture(scope="module")
def qwen():
    with Service(data("embed/qwen3_embedding"), num_shard=2) as s:
        yield s


@pytest.fixture(scope="module")
def generator():
    with Service(DEMO) as s:
        yield s


def near(got, want, tolerance=CLOSE):
    assert len(got) == len(want)
    worst = max(abs(a - b) for a, b in zip(got, want))
    assert worst < tolerance, worst


def length(v):
    return sum(x * x for x in v) ** 0.5


def texts(name, short=True):
    """Texts that are not empty and, where asked for, fit without being cut."""
    g = golden(name)
    return [t for t in g["texts"] if t["text"] and (not short or len(t["ids"]) < g["max_length"])]


# ---------------------------------------------------------------- OpenAI


@pytest.mark.parametrize("kind", ["float", "base64", None])
def test_openai_sdk(bert, kind):
    client = openai.OpenAI(base_url=f"{bert.url}/v1", api_key="x")
    wanted = texts("bert_mean")
    more = {"encoding_format": kind} if kind else {}  # the SDK asks for base64 itself, and turns it into floats
    got = client.embeddings.create(model="m", input=[t["text"] for t in wanted], **more)
    assert [d.index for d in got.data] == list(range(len(wanted)))
    assert got.usage.prompt_tokens == got.usage.total_tokens == sum(len(t["ids"]) for t in wanted)
    for d, t in zip(got.data, wanted):
        v = d.embedding
        if kind == "base64":
            raw = base64.b64decode(v, validate=True)
            v = struct.unpack(f"<{len(raw) // 4}f", raw)
        else:
            strict(d)
        near(v, t["embedding"])


def test_ids_and_dimensions(bert):
    t = texts("bert_mean")[0]
    one = bert.post("/v1/embeddings", {"input": t["text"]}).json()["data"][0]["embedding"]
    for ids in (t["ids"], [t["ids"]]):
        r = bert.post("/v1/embeddings", {"input": ids}).json()
        assert r["data"][0]["embedding"] == one and r["usage"]["prompt_tokens"] == len(t["ids"])
    cut = bert.post("/v1/embeddings", {"input": t["text"], "dimensions": 16}).json()["data"][0]["embedding"]
    assert len(cut) == 16 and abs(length(cut) - 1) < 1e-5
    near(cut, [x / length(one[:16]) for x in one[:16]])


def test_a_decoder_that_embeds_on_two_ranks(qwen):
    """Its tokenizer appends <|endoftext|>, also to a text that is cut."""
    wanted = texts("qwen3_embedding", short=False)
    r = qwen.post("/embed", {"inputs": [t["text"] for t in wanted], "truncate": True})
    assert r.status_code == 200, r.text
    for got, t in zip(r.json(), wanted):
        near(got, t["embedding"])


def test_a_prompt_by_name_stands_in_front(qwen):
    prompts = json.loads((data("embed/qwen3_embedding") / "config_sentence_transformers.json").read_text())["prompts"]
    by_name = qwen.post("/embed", {"inputs": "weather", "prompt_name": "query"}).json()
    assert by_name == qwen.post("/embed", {"inputs": prompts["query"] + "weather"}).json()
    assert by_name != qwen.post("/embed", {"inputs": "weather"}).json()
    assert qwen.post("/embed", {"inputs": "weather", "prompt_name": "none"}).status_code == 413


def test_openai_route_takes_the_prompt_for_a_kind_of_text(qwen):
    """`input_type` as NVIDIA's and Voyage's clients send it, `task` as Jina's do."""
    def vector(**how):
        r = qwen.post("/v1/embeddings", {"input": "weather", **how})
        return r.json()["data"][0]["embedding"] if r.status_code == 200 else (r.status_code, r.json()["error"]["message"])

    query, plain = vector(prompt_name="query"), vector()
    assert query != plain and [query] == qwen.post("/embed", {"inputs": "weather", "prompt_name": "query"}).json()
    for how in ({"input_type": "query"}, {"input_type": "search_query"}, {"task": "retrieval.query"}):
        assert vector(**how) == query, how
    for how in ({"input_type": "passage"}, {"input_type": "document"}, {"task": "retrieval.passage"}, {"input_type": None}):
        assert vector(**how) == plain, how
    for key in ("input_type", "task"):
        code, why = vector(**{key: "text-matching"})
        assert code == 400 and f"`{key}`: this model has no prompt `text-matching`" in why


def test_openai_route_takes_other_clients_fields(bert):
    """Jina's, Voyage's, Mistral's and NVIDIA's; what would give other numbers is refused by name."""
    t = texts("bert_mean")[0]["text"]
    long = " ".join([t] * 200)

    def ask(text, **how):
        r = bert.post("/v1/embeddings", {"input": text, **how})
        return r.json()["data"][0]["embedding"] if r.status_code == 200 else (r.status_code, r.json()["error"]["message"])

    plain = ask(t)
    for how in ({"embedding_type": "float"}, {"output_dtype": "float"}, {"late_chunking": False}, {"truncate": "NONE"}, {"truncate": None}):
        assert ask(t, **how) == plain, how
    assert ask(t, embedding_type="base64") == ask(t, encoding_format="base64") != plain
    assert ask(t, output_dimension=8) == ask(t, dimensions=8)
    end, start = ask(long, truncate="END"), ask(long, truncate="START")
    assert end == ask(long, truncate=True) == ask(long, truncate_prompt_tokens=-1) != start and len(start) == len(plain)
    assert ask(long, truncate=False)[0] == ask(long, truncate="NONE")[0] == 400
    for key, value in (("embedding_type", "int8"), ("output_dtype", "int8"), ("late_chunking", True), ("truncate", "MIDDLE"), ("truncate", 3)):
        code, why = ask(t, **{key: value})
        assert code == 400 and f"`{key}`" in why, (key, why)


def test_answers_do_not_depend_on_what_runs_beside_them(bert):
    wanted = [t["text"] for t in texts("bert_mean")]
    alone = {t: bert.post("/v1/embeddings", {"input": t}).json()["data"][0]["embedding"] for t in wanted}

    def many(k):
        some = [wanted[(k + i) % len(wanted)] for i in range(40)]
        r = bert.post("/v1/embeddings", {"input": some})
        assert r.status_code == 200, r.text
        return list(zip(some, (d["embedding"] for d in r.json()["data"])))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for rows in pool.map(many, range(16)):
            assert all(v == alone[t] for t, v in rows)


@pytest.mark.parametrize(
    "body, status, words",
    [
        ({"input": []}, 400, "cannot be empty"),
        ({"input": ""}, 400, "cannot be empty"),
        ({"input": [["x"]]}, 400, "input"),
        ({"input": "x", "dimensions": 65}, 400, "dimensions"),
        ({"input": "x", "encoding_format": "int8"}, 400, "encoding_format"),
        ({"input": ["x"] * 2049}, 400, "2048"),
        ({"input": "the sun " * 200}, 400, "maximum context length is 64 tokens"),
        ({"input": [5, 100000]}, 400, "vocabulary"),
        ({}, 400, "input"),
    ],
)
def test_openai_refusals(bert, body, status, words):
    r = bert.post("/v1/embeddings", body)
    assert r.status_code == status and words in r.json()["error"]["message"], r.text
    assert r.json()["error"]["type"] == "invalid_request_error"


# ---------------------------------------------------------------- TEI


def test_tei_embed_with_huggingface_hub(bert):
    t = texts("bert_mean")[0]
    client = huggingface_hub.InferenceClient(model=bert.url)
    near(list(client.feature_extraction(t["text"])[0]), t["embedding"])


def test_tei_embed_all_and_raw_vectors():
    g = golden("bert_cls")
    with Service(data("embed/bert_cls")) as s:
        t = g["texts"][0]
        near(s.post("/embed", {"inputs": t["text"], "normalize": False}).json()[0], t["embedding"])
        rows = s.post("/embed_all", {"inputs": [t["text"]]}).json()[0]
        assert len(rows) == len(t["ids"])
        near(rows[0], t["first_hidden"])
        near(rows[-1], t["last_hidden"])
        info = requests.get(s.url + "/info").json()
        assert info["model_type"] == {"embedding": {"dimensions": 64}} and info["max_input_length"] == 128


def test_tei_similarity(bert):
    inputs = {"source_sentence": "Hello world", "sentences": ["Hello world", "a"]}
    got = bert.post("/similarity", {"inputs": inputs}).json()
    a, b = (t["embedding"] for t in golden("bert_mean")["texts"] if t["text"] in ("Hello world", "a"))
    near(got, [1, sum(x * y for x, y in zip(a, b))])


@pytest.mark.parametrize(
    "path, body, status, word",
    [
        ("/embed", {"inputs": ""}, 400, "empty"),
        ("/embed", {"inputs": []}, 400, "empty"),
        ("/embed", {"inputs": ["x"] * 33}, 413, "validation"),
        ("/embed", {"inputs": "the sun " * 200}, 413, "validation"),
        ("/rerank", {"query": "x", "texts": ["y"]}, 400, "unsupported"),
        ("/predict", {"inputs": "x"}, 400, "unsupported"),
        ("/generate", {"inputs": "x"}, 400, "unsupported"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, 400, "unsupported"),
        ("/v1/completions", {"prompt": "x"}, 400, "unsupported"),
    ],
)
def test_tei_refusals_and_generating_routes(bert, path, body, status, word):
    r = bert.post(path, body)
    assert r.status_code == status and r.json()["error_type"] == word, r.text


def test_a_generator_asked_to_embed(generator):
    for path, body in [
        ("/v1/embeddings", {"input": "x"}), ("/embed", {"inputs": "x"}), ("/rerank", {"query": "x", "texts": ["y"]}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}), ("/predict", {"inputs": "x"}), ("/score", {"text_1": "x", "text_2": "y"}),
        ("/similarity", {"inputs": {"source_sentence": "x", "sentences": ["y"]}}), ("/embed_all", {"inputs": "x"}),
    ]:
        r = generator.post(path, body)
        assert r.status_code == 400 and "does not support" in r.text, (path, r.text)


def test_a_generator_served_as_an_embedder():
    with Service(DEMO, args=["--task", "embed"]) as s:
        v = s.post("/v1/embeddings", {"input": ["Once upon a time", "a ball"]}).json()["data"]
        assert all(abs(length(d["embedding"]) - 1) < 1e-5 for d in v) and v[0]["embedding"] != v[1]["embedding"]
        assert s.post("/generate", {"inputs": "x"}).status_code == 400


def test_an_encoder_is_not_asked_to_generate():
    s = Service(data("embed/bert_mean"), args=["--task", "generate"], ready=False)
    wait_for(lambda: not s.alive(), 30)
    assert s.p.returncode != 0 and "gives vectors or scores, no text" in s.log


# ---------------------------------------------------------------- rerank


def by_query():
    out = {}
    for p in golden("xlm_roberta_rerank")["pairs"]:
        out.setdefault(p["query"], []).append(p)
    return out


def test_tei_rerank(reranker):
    for query, pairs in by_query().items():
        body = {"query": query, "texts": [p["document"] for p in pairs], "truncate": True, "return_text": True}
        got = reranker.post("/rerank", body).json()
        raw = reranker.post("/rerank", {**body, "raw_scores": True}).json()
        assert [g["index"] for g in got] == sorted(range(len(pairs)), key=lambda i: -pairs[i]["logit"])
        for g, r in zip(got, raw):
            p = pairs[g["index"]]
            assert abs(g["score"] - p["score"]) < CLOSE and abs(r["score"] - p["logit"]) < CLOSE and g["text"] == p["document"]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_cohere_rerank(reranker, path):
    pairs = golden("xlm_roberta_rerank")["pairs"]
    query = pairs[0]["query"]
    documents = [pairs[0]["document"], {"text": pairs[1]["document"]}, "x"]
    r = reranker.post(path, {"query": query, "documents": documents, "top_n": 2, "return_documents": True}).json()
    assert len(r["results"]) == 2 and r["usage"]["total_tokens"] > 0
    scores = [x["relevance_score"] for x in r["results"]]
    assert scores == sorted(scores, reverse=True)
    for x in r["results"]:
        text = documents[x["index"]]
        assert x["document"]["text"] == (text if isinstance(text, str) else text["text"])
    every = reranker.post(path, {"query": query, "documents": documents}).json()["results"]
    of = {x["index"]: x["relevance_score"] for x in every}
    assert abs(of[0] - pairs[0]["score"]) < CLOSE


def test_score_and_predict(reranker):
    p = golden("xlm_roberta_rerank")["pairs"][0]
    r = reranker.post("/v1/score", {"text_1": p["query"], "text_2": [p["document"], "x"]}).json()
    assert abs(r["data"][0]["score"] - p["score"]) < CLOSE and len(r["data"]) == 2
    assert reranker.post("/predict", {"inputs": [p["query"], p["document"]]}).json() == [{"score": pytest.approx(p["score"], abs=CLOSE), "label": "LABEL_0"}]
    batch = reranker.post("/predict", {"inputs": [[p["query"], p["document"]], ["x"]], "raw_scores": True}).json()
    assert abs(batch[0][0]["score"] - p["logit"]) < CLOSE and len(batch) == 2
    info = requests.get(reranker.url + "/info").json()
    assert info["model_type"] == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    assert reranker.post("/v1/embeddings", {"input": "x"}).status_code == 400


def test_vllm_names_of_a_pair(reranker):
    p = golden("xlm_roberta_rerank")["pairs"][0]
    one = reranker.post("/score", {"text_1": p["query"], "text_2": [p["document"], "x"]}).json()["data"]
    for first, second in (("queries", "documents"), ("queries", "items"), ("data_1", "data_2")):
        assert reranker.post("/score", {first: p["query"], second: [p["document"], "x"]}).json()["data"] == one
    for path, body, where, key in (
        ("/score", {"text_1": p["query"], "text_2": p["document"]}, "data", "score"),
        ("/v1/rerank", {"query": p["query"], "documents": [p["document"]]}, "results", "relevance_score"),
    ):
        got = [reranker.post(path, {**body, "use_activation": on}).json()[where][0][key] for on in (None, True, False)]
        assert got[0] == got[1] != got[2] and abs(got[2] - p["logit"]) < CLOSE
    r = reranker.post("/score", {"queries": p["query"]})
    assert r.status_code == 400 and "text_2" in r.json()["error"]["message"]


def test_classify_and_pooling(reranker, bert):
    labels = reranker.post("/classify", {"input": ["Once upon a time", "x"]}).json()
    raw = reranker.post("/classify", {"input": "x", "use_activation": False}).json()["data"][0]
    (tei,) = reranker.post("/predict", {"inputs": "x"}).json()
    assert [d["index"] for d in labels["data"]] == [0, 1] and labels["usage"]["prompt_tokens"] > 2
    last = labels["data"][1]
    assert (last["label"], last["probs"], last["num_classes"]) == (tei["label"], [tei["score"]], 1)
    assert raw["probs"][0] == reranker.post("/predict", {"inputs": "x", "raw_scores": True}).json()[0]["score"]
    assert bert.post("/classify", {"input": "x"}).status_code == 400
    vectors = bert.post("/pooling", {"input": ["a", "b"]}).json()["data"]
    assert [v["data"] for v in vectors] == [v["embedding"] for v in bert.post("/v1/embeddings", {"input": ["a", "b"]}).json()["data"]]
    long = bert.post("/pooling", {"input": "a", "use_activation": False, "truncate_prompt_tokens": 3}).json()["data"][0]["data"]
    assert abs(length(long) - 1) > 1e-3 and reranker.post("/pooling", {"input": "x"}).status_code == 400
    refused = bert.post("/pooling", {"input": "a", "task": "token_classify"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "task"


def test_the_names_of_jinas_reranker(tmp_path):
    """jina-reranker-v2: XLM-RoBERTa with q, k and v in one matrix."""
    model = tmp_path / "model"
    shutil.copytree(data("embed/xlm_roberta_rerank"), model)
    raw = (model / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    was = {n: (v["dtype"], v["shape"], raw[8 + size :][slice(*v["data_offsets"])]) for n, v in header.items() if n != "__metadata__"}
    names = [
        ("encoder.layer.", "encoder.layers."), ("embeddings.LayerNorm", "emb_ln"), ("attention.output.LayerNorm", "norm1"),
        ("attention.output.dense", "mixer.out_proj"), ("intermediate.dense", "mlp.fc1"), ("output.LayerNorm", "norm2"), ("output.dense", "mlp.fc2"),
    ]
    now = {}
    for name, (kind, shape, b) in was.items():
        if ".self." in name:
            parts = [was[name.replace(".key.", f".{x}.")] for x in ("query", "key", "value")]
            if ".key." not in name:
                continue
            name, shape, b = name.replace("attention.self.key", "mixer.Wqkv"), [3 * shape[0], *shape[1:]], b"".join(p[2] for p in parts)
        for old, new in names:
            name = name.replace(old, new)
        now[name] = (kind, shape, b)
    table, at = {}, 0
    for name, (kind, shape, b) in now.items():
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(b)]}
        at += len(b)
    head = json.dumps(table).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(b for _, _, b in now.values()))
    config = json.loads((model / "config.json").read_text())
    auto = {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig"}
    (model / "config.json").write_text(json.dumps(config | {"auto_map": auto, "use_flash_attn": True}))
    with Service(model) as s:
        for p in golden("xlm_roberta_rerank")["pairs"]:
            r = s.post("/rerank", {"query": p["query"], "texts": [p["document"]], "raw_scores": True, "truncate": True})
            assert abs(r.json()[0]["score"] - p["logit"]) < CLOSE


def demo_copy(folder, **config):
    shutil.copytree(DEMO, folder)
    was = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(was | config))
    return folder


def logit_of_parts(s, *parts):
    """Of the ids of the parts one behind another; a number is an id."""
    ids = []
    for p in parts:
        ids += [p] if isinstance(p, int) else s.post("/tokenize", {"prompt": p, "add_special_tokens": False}).json()["tokens"]
    return s.post("/classify", {"input": [ids], "use_activation": False}).json()["data"][0]["probs"][0]


def test_a_decoder_that_is_asked_for_a_token(tmp_path):
    """bge-reranker-v2-gemma: the logit of "Yes" behind parts that are tokenized each alone."""
    model = demo_copy(tmp_path / "model", model_type="gemma", architectures=["GemmaForCausalLM"])
    task = "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction of either 'Yes' or 'No'."
    with Service(model, args=["--task", "rerank"]) as s:
        for more, words in (({}, task), ({"instruction": "Does it fit?"}, "Does it fit?")):
            body = {"query": "Who ran?", "documents": ["The dog ran.", "A cat sat"], "use_activation": False}
            got = {r["index"]: r["relevance_score"] for r in s.post("/v1/rerank", {**body, **more}).json()["results"]}
            for i, d in enumerate(body["documents"]):
                assert got[i] == logit_of_parts(s, 0, "A: Who ran?", "\n", "B: " + d, "\n", words)
            assert got[0] != got[1]


def test_a_template_of_a_query_and_a_document(tmp_path):
    """sentence-transformers since 5.4: LogitScore, a prompt as system message, a cut before the end of the template."""
    model = demo_copy(tmp_path / "model")
    kinds = ["base.modules.transformer.Transformer", "cross_encoder.modules.logit_score.LogitScore"]
    listed = [{"idx": i, "name": str(i), "path": i * f"{i}_LogitScore", "type": "sentence_transformers." + k} for i, k in enumerate(kinds)]
    (model / "1_LogitScore").mkdir()
    for name, j in (
        ("modules.json", listed),
        ("1_LogitScore/config.json", {"true_token_id": 300, "false_token_id": 301}),
        ("sentence_bert_config.json", {"processing_kwargs": {"chat_template": {"add_generation_prompt": True}}}),
        ("config_sentence_transformers.json", {"prompts": {"a": "Judge"}, "default_prompt_name": "a"}),
    ):
        (model / name).write_text(json.dumps(j))
    part = '(messages | selectattr("role", "eq", "{}") | first).content[0].text'
    (model / "chat_template.jinja").write_text(
        "".join(f"<|{r}|>{{{{ {part.format(r)} }}}}" for r in ("system", "query", "document")) + "<|end|>{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    with Service(model) as s:
        text = "<|system|>{}<|query|>Who ran?<|document|>{}<|end|><|assistant|>"
        body = {"query": "Who ran?", "documents": ["The dog ran far"], "use_activation": False}
        for more, task in (({}, "Judge"), ({"instruction": "Fits?"}, "Fits?")):
            (r,) = s.post("/v1/rerank", {**body, **more}).json()["results"]
            assert r["relevance_score"] == logit_of_parts(s, text.format(task, "The dog ran far"))
        score = s.post("/score", {"text_1": "Who ran?", "text_2": "The dog ran far", "use_activation": False}).json()["data"][0]["score"]
        assert score == logit_of_parts(s, text.format("Judge", "The dog ran far"))
        whole = s.post("/v1/rerank", body).json()["usage"]["total_tokens"]
        short = s.post("/v1/rerank", {**body, "max_tokens_per_doc": whole - 1}).json()
        assert short["usage"]["total_tokens"] == whole - 1
        assert short["results"][0]["relevance_score"] == logit_of_parts(s, text.format("Judge", "The dog ran"))


# ---------------------------------------------------------------- the service


@pytest.mark.parametrize("which", ["bert", "reranker"])
def test_examples_of_the_document_are_served(which, request):
    s = request.getfixturevalue(which)
    tasks = {"bert": {"embed"}, "reranker": {"rerank", "classify"}}[which]
    doc = requests.get(s.url + "/api-doc/openapi.json").json()
    tried = 0
    for path, item in doc["paths"].items():
        op = item.get("post", {})
        if op.get("x-task") in tasks:
            r = s.post(path, op["requestBody"]["content"]["application/json"]["example"])
            assert r.status_code == 200, (path, r.text)
            tried += 1
    assert tried >= 4


def test_metrics_and_health(bert):
    before = bert.metric("tgi_request_success") or 0
    assert bert.post("/v1/embeddings", {"input": ["a", "b"]}).status_code == 200
    assert bert.metric("tgi_request_success") == before + 1
    assert bert.metric("tgi_batch_inference_success", method="embed") >= 1
    for path in ("/health", "/health_generate", "/v1/models"):
        assert requests.get(bert.url + path).status_code == 200, path
    assert bert.audit()["scheduler"]["waiting"] == 0


def test_clients_that_leave_do_no_harm(bert):
    body = {"input": ["the sun is shining"] * 2000}
    for _ in range(3):
        with pytest.raises(requests.exceptions.RequestException):
            requests.post(bert.url + "/v1/embeddings", json=body, timeout=0.05)
    wait_for(lambda: bert.audit()["scheduler"]["requests"] == 0, 60)
    near(bert.post("/embed", {"inputs": "Hello world"}).json()[0], texts("bert_mean")[0]["embedding"])


def test_a_killed_shard_comes_back():
    with Service(data("embed/bert_mean")) as s:
        want = s.post("/embed", {"inputs": "Hello world"}).json()
        old = s.shards()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(s.post, "/v1/embeddings", {"input": ["the sun is shining"] * 500}) for _ in range(4)]
            os.kill(old[0], signal.SIGKILL)
            assert [j.result().status_code for j in jobs] == [200] * 4
        wait_for(lambda: s.shards() and s.shards() != old, 60)
        assert s.post("/embed", {"inputs": "Hello world"}).json() == want


@pytest.mark.parametrize("unit", (False, True))
def test_dense_modules_and_a_shorter_length(tmp_path, unit):
    """2_Dense halves the width, of vectors of length 1 where Normalize is before it; sentence_bert_config.json cuts the length."""
    make = pytest.importorskip("numpy")
    model = tmp_path / "model"
    shutil.copytree(data("embed/bert_cls"), model)
    listed = json.loads((model / "modules.json").read_text())
    if unit:
        listed.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    listed.append({"idx": 3, "name": "3", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (model / "modules.json").write_text(json.dumps(listed))
    (model / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    (model / "2_Dense").mkdir()
    (model / "2_Dense/config.json").write_text('{"activation_function": "torch.nn.modules.activation.Tanh"}')
    w = make.random.default_rng(5).normal(0, 1 if unit else 0.1, (32, 64)).astype("<f4")
    header = json.dumps({"linear.weight": {"dtype": "F32", "shape": [32, 64], "data_offsets": [0, w.nbytes]}}).encode()
    (model / "2_Dense/model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + w.tobytes())
    t = next(t for t in golden("bert_cls")["texts"] if t["text"] == "a")
    x = make.array(t["embedding"])
    x = x / make.linalg.norm(x) if unit else x
    with Service(model) as s:
        near(s.post("/embed", {"inputs": "a", "normalize": False}).json()[0], list(make.tanh(w @ x)))
        assert s.post("/embed", {"inputs": "the sun is shining and shining"}).status_code == 413
        assert requests.get(s.url + "/info").json()["max_input_length"] == 8
