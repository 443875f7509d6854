"""Tasks of Hugging Face's inference API on `/`, by huggingface_hub's client: labels of tokens, answers, zero-shot labels; against numpy over
what other routes give."""

import json

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from safetensors.numpy import load_file, save_file
from serving import Service, data, wait_for
from test_token_rows import folder, softmax

VOCAB = 325
NAMES = ["O", "B-X", "I-X", "I-Y", "Z"]
TEXT = "the sün is shining on a very long street, hello world"
LONG = " ".join(f"the sun is {w} on a very long street" for w in "shining hello world shining a very long long".split() * 4)
RNG = np.random.default_rng(6)


def client(s):
    return InferenceClient(s.url)


def refused(s, status, words, **body):
    r = s.post("/", body)
    assert r.status_code == status and words in r.text, r.text


@pytest.fixture(scope="module")
def states():
    """The hidden states of any text, or of ids."""
    with Service(data("embed/bert_mean")) as s:
        yield lambda text: np.array(s.post("/embed_all", {"inputs": [text]}).json()[0])


def head(states, name, n):
    """Logits that differ from token to token: those of the mean are 0, as the states of random weights are much alike."""
    h = states(LONG[:60])
    w = RNG.standard_normal((n, 64), np.float32) / h.std(0).mean() / 4
    return {f"{name}.weight": w.astype(np.float32), f"{name}.bias": (-w @ h.mean(0)).astype(np.float32)}


def named(path, names):
    config = json.loads((path / "config.json").read_text()) | {"id2label": {str(i): n for i, n in enumerate(names)}}
    (path / "config.json").write_text(json.dumps(config))
    return path


# ---------------------------------------------------------------- tokens


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, states):
    more = head(states, "classifier", 5)
    with Service(named(folder(tmp_path_factory.mktemp("tags") / "m", "BertForTokenClassification", more), NAMES)) as s:
        yield s


def places(s, text):
    """Of each token, in characters."""
    of = text.encode()
    found = s.post("/tokenize", {"inputs": text}).json()[1:-1]
    return [(len(of[: t["start"]].decode()), len(of[: t["stop"]].decode())) for t in found]


def test_labels_of_tokens(tagger):
    rows = softmax(np.array(tagger.post("/pooling", {"input": TEXT, "use_activation": False}).json()["data"][0]["data"]))[1:-1]
    got = client(tagger).token_classification(TEXT, aggregation_strategy="none", ignore_labels=[])
    assert [(x.start, x.end) for x in got] == places(tagger, TEXT)
    assert [x.entity for x in got] == [NAMES[i] for i in rows.argmax(-1)] and [x["index"] for x in got] == list(range(1, len(rows) + 1))
    assert np.allclose([x.score for x in got], rows.max(-1), atol=1e-4) and len({x.entity for x in got}) > 2
    assert client(tagger).token_classification(TEXT, aggregation_strategy="none") == [x for x in got if x.entity != "O"]


def test_groups_of_tokens(tagger):
    """A label that begins an entity, or another kind of it, begins a group."""
    each = client(tagger).token_classification(LONG[:60], aggregation_strategy="none", ignore_labels=[])
    want = []
    for x in each:
        kind = x.entity.removeprefix("B-").removeprefix("I-")
        if want and want[-1][0] == kind and not x.entity.startswith("B-"):
            want[-1][1].append(x)
        else:
            want.append((kind, [x]))
    got = client(tagger).token_classification(LONG[:60], ignore_labels=[])
    assert [(g.entity_group, g.start, g.end) for g in got] == [(kind, x[0].start, x[-1].end) for kind, x in want]
    assert np.allclose([g.score for g in got], [np.mean([y.score for y in x]) for _, x in want], atol=1e-5) and len(got) < len(each)


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
def test_words_have_one_label(tagger, strategy):
    for g in client(tagger).token_classification(LONG[:60], aggregation_strategy=strategy, ignore_labels=[]):
        assert g.start == 0 or not (LONG[g.start - 1].isalnum() and LONG[g.start].isalnum()), (g.start, g.word)


def test_long_texts_in_windows(tagger):
    refused(tagger, 422, "must have less than", inputs=LONG)
    got = client(tagger).token_classification(LONG, aggregation_strategy="first", ignore_labels=[], stride=20)
    assert got[0].start == 0 and got[-1].end == len(LONG)
    assert all(a.end <= b.start for a, b in zip(got, got[1:])), "windows share tokens, groups do not"
    refused(tagger, 422, "no room", inputs=LONG, parameters={"stride": 5000})


def test_bodies_of_tokens(tagger):
    one = tagger.post("/", {"inputs": TEXT}).json()
    assert tagger.post("/", {"inputs": [TEXT, "a"]}).json()[0] == one
    assert tagger.post("/invocations", {"inputs": TEXT}).json() == one, "SageMaker's path"
    refused(tagger, 422, "aggregation_strategy", inputs=TEXT, parameters={"aggregation_strategy": "last"})
    refused(tagger, 400, "empty", inputs="")
    refused(tagger, 422, "ids", inputs=[[1, 2]])


# ---------------------------------------------------------------- answers

QUESTION, CONTEXT = "a very long world", "hello world the sün is shining on a very long street"


@pytest.fixture(scope="module")
def ends(states):
    return head(states, "qa_outputs", 2)


def answers_of(to, ends, kinds):
    """With `kinds` tokens of the context have a type of their own; else hidden states of its ids alone are those of the pair."""
    path = folder(to, "BertForQuestionAnswering", ends)
    w = load_file(path / "model.safetensors")
    types = w["bert.embeddings.token_type_embeddings.weight"]
    types[1] = types[0] + (5 * RNG.standard_normal(types[0].shape) if kinds else 0)
    save_file(w, path / "model.safetensors")
    return path


@pytest.fixture(scope="module")
def answers(tmp_path_factory, ends):
    with Service(answers_of(tmp_path_factory.mktemp("answers") / "m", ends, False)) as s:
        yield s


@pytest.fixture(scope="module")
def rows(answers, states, ends):
    """Logits [tokens, 2] of question and context, and the first row of the context."""
    q, context = ([t["id"] for t in answers.post("/tokenize", {"inputs": text}).json()] for text in (QUESTION, CONTEXT))
    return states(q + context[1:]) @ ends["qa_outputs.weight"].T + ends["qa_outputs.bias"], len(q)


def best_of(rows, longest):
    """Spans of the context by their probability, and that of no answer."""
    logits, first = rows
    kept = [0, *range(first, len(logits) - 1)]
    start, end = (softmax(logits[kept, i]) for i in (0, 1))
    spans = [(start[i] * end[k], i - 1, k - 1) for i in range(1, len(kept)) for k in range(i, min(i + longest, len(kept)))]
    return sorted(spans, reverse=True), start[0] * end[0]


def test_answers_are_the_best_spans(answers, rows):
    at = places(answers, CONTEXT)
    for longest in 15, 2:
        spans, _ = best_of(rows, longest)
        got = answers.post("/", {"inputs": {"question": QUESTION, "context": CONTEXT},
                                 "parameters": {"top_k": 3, "align_to_words": False, "max_answer_len": longest}}).json()  # fmt: skip
        assert [(a["start"], a["end"]) for a in got] == [(at[i][0], at[k][1]) for _, i, k in spans[:3]]
        assert np.allclose([a["score"] for a in got], [x for x, _, _ in spans[:3]], atol=1e-5)
        assert all(a["answer"] == CONTEXT[a["start"] : a["end"]] for a in got)


def test_one_answer_is_of_whole_words(answers, rows):
    got = client(answers).question_answering(QUESTION, CONTEXT)
    inside = [i for i in range(1, len(CONTEXT)) if CONTEXT[i - 1 : i + 1].isalpha()]
    assert got.start not in inside and got.end not in inside and got.answer == CONTEXT[got.start : got.end]
    none = answers.post("/", {"inputs": {"question": QUESTION, "context": CONTEXT},
                              "parameters": {"top_k": 100, "handle_impossible_answer": True}}).json()  # fmt: skip
    empty = next(a for a in none if a["answer"] == "")
    assert np.isclose(empty["score"], best_of(rows, 15)[1], atol=1e-6)


def test_long_contexts_in_windows(answers):
    context = LONG + " hello street"
    whole = client(answers).question_answering(QUESTION, context, max_seq_len=64, doc_stride=20)
    assert whole.answer == context[whole.start : whole.end]
    refused(answers, 422, "no room", inputs={"question": QUESTION, "context": context}, parameters={"max_seq_len": 8})
    refused(answers, 422, "top_k", inputs={"question": QUESTION, "context": context}, parameters={"top_k": 0})
    refused(answers, 422, "an object", inputs="hello")
    refused(answers, 422, "question", inputs={"context": "hello"})


def test_a_context_has_types_of_its_own(answers, ends, tmp_path):
    with Service(answers_of(tmp_path / "m", ends, True)) as s:
        ask = {"inputs": {"question": QUESTION, "context": CONTEXT}}
        assert abs(s.post("/", ask).json()["score"] - answers.post("/", ask).json()["score"]) > 1e-4
        for path, body in [("/pooling", {"input": "x"}), ("/embed", {"inputs": "x"}), ("/predict", {"inputs": "x"}), ("/generate", {"inputs": "x"})]:
            assert s.post(path, body).status_code == 400, path


# ---------------------------------------------------------------- texts


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, states):
    pooler = {k.replace("x", "bert.pooler.dense"): v for k, v in head(states, "x", 64).items()}
    more = pooler | {"classifier.weight": RNG.standard_normal((3, 64), np.float32) / 4, "classifier.bias": np.zeros(3, np.float32)}
    path = folder(tmp_path_factory.mktemp("labels") / "m", "BertForSequenceClassification", more)
    with Service(named(path, ["contradiction", "neutral", "Entailment"])) as s:
        yield s


def logits_of(s, inputs):
    found = s.post("/predict", {"inputs": inputs, "raw_scores": True}).json()
    return np.array([[next(x["score"] for x in one if x["label"] == n) for n in ("contradiction", "neutral", "Entailment")] for one in found])


def test_zero_shot(classifier):
    names = ["street", "world", "long sun"]
    x = logits_of(classifier, [[TEXT, f"it is {n}."] for n in names])
    for many, want in (False, softmax(x[:, 2])), (True, 1 / (1 + np.exp(x[:, 0] - x[:, 2]))):
        got = client(classifier).zero_shot_classification(TEXT, names, multi_label=many, hypothesis_template="it is {}.")
        assert [g.label for g in got] == [names[i] for i in np.argsort(-want)]
        assert np.allclose([g.score for g in got], sorted(want, reverse=True), atol=1e-5)
    text = classifier.post("/", {"inputs": TEXT, "parameters": {"candidate_labels": "street, world ,long sun"}}).json()
    assert sorted(g["label"] for g in text) == sorted(names)
    refused(classifier, 422, "hypothesis_template", inputs=TEXT, parameters={"candidate_labels": names, "hypothesis_template": "it is"})
    refused(classifier, 422, "candidate_labels", inputs=TEXT, parameters={"candidate_labels": []})
    many = [f"l{i}" for i in range(1025)]
    refused(classifier, 422, "1 to 1024 labels", inputs=TEXT, parameters={"candidate_labels": many})
    refused(classifier, 422, "1 to 1024 labels", inputs=TEXT, parameters={"candidate_labels": ",".join(many)})
    assert len(classifier.post("/", {"inputs": TEXT, "parameters": {"candidate_labels": ",".join(many[1:])}}).json()) == 1024


def test_labels_of_texts(classifier):
    x = logits_of(classifier, [[TEXT]])[0]
    for function, want in ("softmax", softmax(x)), ("sigmoid", 1 / (1 + np.exp(-x))), ("none", x):
        got = classifier.post("/", {"inputs": TEXT, "parameters": {"function_to_apply": function, "top_k": 2}}).json()
        assert np.allclose([g["score"] for g in got[0]], sorted(want, reverse=True)[:2], atol=1e-4) and len(got) == 1
    assert client(classifier).text_classification(TEXT, top_k=1)[0].label == ["contradiction", "neutral", "Entailment"][x.argmax()]
    assert classifier.post("/", {"inputs": TEXT}).json() == classifier.post("/predict", {"inputs": TEXT}).json(), "TEI's form"
    refused(classifier, 422, "function_to_apply", inputs=TEXT, parameters={"function_to_apply": "tanh"})


def test_similarity():
    with Service(data("embed/bert_mean")) as s:
        got = client(s).sentence_similarity("hello world", other_sentences=["hello street", "a"])
        body = {"inputs": {"source_sentence": "hello world", "sentences": ["hello street", "a"]}}
        assert got == s.post("/similarity", body).json()


# ---------------------------------------------------------------- masks


def fillable(to):
    """With a head for masked tokens, whose words differ from mask to mask."""
    w = {"cls.predictions.transform.dense.weight": np.eye(64, dtype=np.float32), "cls.predictions.transform.dense.bias": np.zeros(64, np.float32),
         "cls.predictions.transform.LayerNorm.weight": np.ones(64, np.float32), "cls.predictions.transform.LayerNorm.bias": np.zeros(64, np.float32),
         "cls.predictions.bias": RNG.standard_normal(VOCAB, np.float32), "cls.predictions.decoder.weight": RNG.standard_normal((VOCAB, 64), np.float32) / 4}  # fmt: skip
    path = folder(to, "BertForMaskedLM", w)
    config = json.loads((path / "config.json").read_text()) | {"tie_word_embeddings": False}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    with Service(fillable(tmp_path_factory.mktemp("masks") / "m"), args=["--task", "fill-mask"], num_shard=2) as s:
        yield s


def test_words_in_place_of_a_mask(filler):
    got = client(filler).fill_mask("the [MASK] is shining", top_k=7)
    assert len(got) == 7 and [g.score for g in got] == sorted((g.score for g in got), reverse=True) and len({g.token for g in got}) == 7
    assert all(g.token_str in g.sequence and g.sequence.startswith("the") and "[" not in g.sequence for g in got if g.token > 7)
    every = {g.token: g.score for g in client(filler).fill_mask("the [MASK] is shining", top_k=VOCAB)}
    targets = client(filler).fill_mask("the [MASK] is shining", targets=["a", "b", "a"], top_k=7)
    assert sorted(g.token_str for g in targets) == ["a", "b"] and targets[0].score > targets[1].score
    assert len(every) == VOCAB and np.isclose(sum(every.values()), 1, atol=1e-4) and all(every[g.token] == g.score for g in targets)


def test_each_mask_has_a_list(filler):
    def ask(inputs):
        return filler.post("/", {"inputs": inputs, "parameters": {"top_k": 2}}).json()

    two = ask("[MASK] sun is [MASK]")
    assert len(two) == 2 and two[0] != two[1] and all("[MASK]" in g["sequence"] for one in two for g in one)
    assert ask(["the [MASK]", "[MASK] sun is [MASK]"]) == [ask("the [MASK]"), two]
    refused(filler, 422, "mask", inputs="the sun")
    refused(filler, 422, "targets", inputs="the [MASK]", parameters={"targets": []})
    for path, body in [("/embed", {"inputs": "x"}), ("/embed_sparse", {"inputs": "x"}), ("/pooling", {"input": "x"}), ("/generate", {"inputs": "x"})]:
        assert filler.post(path, body).status_code == 400, path


def test_sequences_have_no_padding(filler):
    """As in the pipeline, also where the token in place of a mask is that of padding."""
    pad = json.loads((data("embed/bert_mean") / "tokenizer_config.json").read_text())["pad_token"]
    body = {"inputs": "[MASK] sun is [MASK]", "parameters": {"targets": [pad]}}
    first, second = filler.post("/", body).json()
    assert first[0]["token_str"] == second[0]["token_str"] == pad
    assert pad not in first[0]["sequence"] and first[0]["sequence"].count("[MASK]") == second[0]["sequence"].count("[MASK]") == 1


def test_models_without_a_head_fill_no_masks():
    for name, words in ("embed/qwen3_embedding", "--task fill-mask of a qwen3 model is not supported"), ("embed/bert_mean", "cls.predictions"):
        s = Service(data(name), args=["--task", "fill-mask"], ready=False)
        wait_for(lambda: not s.alive(), 30)
        assert s.p.returncode != 0 and words in s.log
