"""A model of an encoder and a decoder (Flan-T5) through the real programs: an answer has the same bits alone, beside others, in a stream, while
its text waits for room, preempted, on two ranks, and after a shard was killed. Which tokens are right: tests/golden/test_encdec.c."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import requests
from gguf_made import tensors
from safetensors.numpy import save_file
from serving import ROOT, Service, check_preempted_and_killed, together, wait_for

MODEL = pathlib.Path(ROOT) / "tests/data/encdec/flan_t5"
TEXTS = ["that", "the name of it", "is it for you or for the others who were in it", "he was in the house and you are on the way to it " * 4]
ARGS = ["--max-input-tokens", 256, "--max-total-tokens", 400, "--kv-cache-dtype", "float32"]


def body(text, new=40, **more):
    return {"inputs": text, "parameters": {"max_new_tokens": new, "details": True, "decoder_input_details": True, **more}}


def says(s, one):
    r = s.post("/generate", one)
    assert r.status_code == 200, r.text
    said = r.json()["details"]
    return [t["id"] for t in said["tokens"]], [t["logprob"] for t in said["tokens"]]


@pytest.fixture(scope="module")
def alone():
    """The answer to each alone, in a service of its own."""
    with Service(MODEL, args=ARGS) as s:
        return [says(s, body(t)) for t in TEXTS]


def test_an_answer_as_tgi_gives_it(alone):
    assert len({json.dumps(ids) for ids, _ in alone}) == len(TEXTS), "texts do not matter"
    with Service(MODEL, args=ARGS) as s:
        r = s.post("/generate", body(TEXTS[1])).json()
        assert r["details"]["prefill"] == [{"id": 0, "text": "<pad>", "logprob": None}]
        assert r["details"]["generated_tokens"] == 40 and r["details"]["finish_reason"] == "length"
        assert not r["generated_text"].startswith(" ")
        full = s.post("/generate", body(TEXTS[1], return_full_text=True)).json()["generated_text"]
        assert full == TEXTS[1] + r["generated_text"]
        # what is counted is the text that the encoder read, with its end
        n = len(s.post("/tokenize", {"inputs": TEXTS[1]}).json())
        said = s.post("/v1/completions", {"model": "x", "prompt": TEXTS[1], "max_tokens": 7, "temperature": 0, "ignore_eos": True}).json()
        assert said["usage"] == said["usage"] | {"prompt_tokens": n, "completion_tokens": 7}
        assert said["choices"][0]["text"].lstrip() == r["generated_text"][: len(said["choices"][0]["text"]) - 1]  # tokens keep their spaces
        two = s.post("/v1/completions", {"model": "x", "prompt": TEXTS[1], "max_tokens": 7, "temperature": 0, "ignore_eos": True, "n": 2}).json()
        assert [c["text"] for c in two["choices"]] == 2 * [said["choices"][0]["text"]]
        # a stream, a stop sequence, and what is drawn by a seed
        piece = r["details"]["tokens"][9]["text"]
        stopped = s.post("/generate", body(TEXTS[1], stop=[piece])).json()
        assert stopped["details"]["finish_reason"] == "stop_sequence" and stopped["generated_text"].endswith(piece)
        events = s.events("/generate_stream", body(TEXTS[1], decoder_input_details=False))
        assert [e["token"]["id"] for e in events] == alone[1][0]
        drawn = [s.post("/generate", body(TEXTS[1], do_sample=True, seed=n)).json()["generated_text"] for n in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]


def folder(tmp_path, name, **said):
    """A model of tests/data/encdec, whose tokens are those of Flan-T5's test model, with a generation_config.json."""
    to = tmp_path / name
    to.mkdir()
    for file in (MODEL.parent / name).iterdir():
        (to / file.name).symlink_to(file)
    for file in "tokenizer.json", "tokenizer_config.json":
        (to / file).symlink_to(MODEL / file)
    (to / "generation_config.json").write_text(json.dumps(said))
    return to, json.loads((to / "golden.json").read_text())["prompts"]


def completes(s, golden, new):
    r = s.post("/v1/completions", {"model": "x", "prompt": golden["ids"], "max_tokens": new, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["token_ids"]


@pytest.mark.parametrize("name", ["bart", "m2m_100"])
def test_the_first_token_may_be_forced(tmp_path, name):
    """Its own first token changes nothing but that it is no longer said; another one changes the answer. TGI's route forces it, too."""
    args = ["--max-input-tokens", 60, "--max-total-tokens", 120]
    free, golden = folder(tmp_path, name)
    one, two = golden["short"], golden["forty"]
    with Service(free, args=args) as s:
        assert completes(s, one, 30) == one["greedy_ids"][:30] and completes(s, two, 30) == two["greedy_ids"][:30]
        said = s.post("/generate", body("the name of it", 30)).json()["details"]
        assert len(said["prefill"]) == 1
    first = one["greedy_ids"][0]
    (free / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": first}))
    with Service(free, args=args) as s:
        assert completes(s, one, 30) == one["greedy_ids"][1:31]
        forced = s.post("/generate", body("the name of it", 30)).json()["details"]
        assert [t["id"] for t in forced["prefill"]][1:] == [first]
        assert together(s, lambda s, g: completes(s, g, 20), [one] * 4) == [one["greedy_ids"][1:21]] * 4
    with Service(free, args=[*args, "--override-generation-config", json.dumps({"forced_bos_token_id": 9})]) as s:
        assert completes(s, one, 30) != one["greedy_ids"][1:31]
        assert [t["id"] for t in s.post("/generate", body("the name of it", 3)).json()["details"]["prefill"]][1:] == [9]


@pytest.mark.parametrize("more", [[], ["--num-shard", 2]], ids=["alone", "two_ranks"])
def test_the_answer_and_the_text_in_one_softmax(tmp_path, more):
    """T5Gemma 2: each answer as transformers gives it, beside others and on two ranks."""
    model, golden = folder(tmp_path, "t5gemma2")
    texts = list(golden.values())
    with Service(model, args=["--max-input-tokens", 120, "--max-total-tokens", 200, *more]) as s:
        assert together(s, lambda s, g: completes(s, g, 40), texts * 2) == [g["greedy_ids"][:40] for g in texts * 2]


def translates(tmp_path):
    """M2M100's test model with tokens of languages, of which the tokenizer puts eng_Latn before a text, as NLLB's does."""
    model, _ = folder(tmp_path, "m2m_100", forced_bos_token_id=None)
    t = json.loads((MODEL / "tokenizer.json").read_text())
    for id_, word in (279, "eng_Latn"), (280, "fra_Latn"), (281, "zho_Hans"):
        t["model"]["vocab"][id_][0] = word
        next(a for a in t["added_tokens"] if a["id"] == id_)["content"] = word
    around = t["post_processor"]
    around["single"].insert(0, {"SpecialToken": {"id": "eng_Latn", "type_id": 0}})
    around["special_tokens"]["eng_Latn"] = {"id": "eng_Latn", "ids": [279], "tokens": ["eng_Latn"]}
    (model / "tokenizer.json").unlink()
    (model / "tokenizer.json").write_text(json.dumps(t))
    return model


def test_languages_of_a_request(tmp_path):
    """They change the ids that encoder and decoder begin with, and nothing else."""
    model, text = translates(tmp_path), "the name of it"
    args = ["--max-input-tokens", 60, "--max-total-tokens", 120]
    with Service(model, args=args) as s:
        ids = [t["id"] for t in s.post("/tokenize", {"inputs": text}).json()]
        assert ids[0] == 279 and ids[-1] == 1

        def completes(prompt, **more):
            r = s.post("/v1/completions", {"model": "x", "prompt": prompt, "max_tokens": 20, "temperature": 0, "ignore_eos": True,
                                           "return_token_ids": True, **more})  # fmt: skip
            assert r.status_code == 200, r.text
            return r.json()["choices"][0]["token_ids"]

        plain, french = completes(text), completes(text, tgt_lang="fra_Latn")
        assert plain == completes(ids) and french == completes(ids, forced_bos_token_id=280) != plain
        from_french = completes(text, src_lang="fra_Latn", tgt_lang="zho_Hans")
        assert from_french == completes([280, *ids[1:]], forced_bos_token_id=281) != completes(ids, forced_bos_token_id=281)
        said = s.post("/generate", body(text, 20, tgt_lang="fra_Latn", ignore_eos=True)).json()["details"]
        assert [t["id"] for t in said["tokens"]] == french and [t["id"] for t in said["prefill"]][1:] == [280]
        many = [{}, {"tgt_lang": "fra_Latn"}, {"src_lang": "fra_Latn", "tgt_lang": "zho_Hans"}] * 4
        assert together(s, lambda s, m: completes(text, **m), many) == [plain, french, from_french] * 4
        for more, words in ({"tgt_lang": "deu_Latn"}, "no token for the language `deu_Latn`"), ({"tgt_lang": "the"}, "no token for the language"), (
            {"forced_bos_token_id": 320}, "outside the vocabulary"), ({"tgt_lang": "fra_Latn", "forced_bos_token_id": 3}, "both choose"):  # fmt: skip
            r = s.post("/generate", body(text, 5, **more))
            assert r.status_code == 422 and words in r.text, r.text
            r = s.post("/v1/completions", {"model": "x", "prompt": text, **more})
            assert r.status_code == 400 and words in r.text, r.text
        r = s.post("/v1/completions", {"model": "x", "prompt": ids[1:-1], "src_lang": "fra_Latn"})
        assert r.status_code == 400 and "puts no language beside a text" in r.text, r.text


def test_limits_are_those_of_the_text():
    with Service(MODEL, args=ARGS) as s:
        r = s.post("/generate", body("the " * 300, new=10))
        assert r.status_code == 422 and "must have less than 256 tokens" in r.text, r.text
        r = s.post("/generate", body("the " * 300, new=10, truncate=20))
        assert r.status_code == 200, r.text


def test_together_as_alone(alone):
    """A pool for a few texts: who comes later waits for room."""
    with Service(MODEL, args=[*ARGS, "--kv-cache-memory", 1200000, "--max-batch-prefill-tokens", 256]) as s:
        for _ in range(2):
            assert together(s, says, [body(t) for t in TEXTS] * 4) == alone * 4
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_drafts_change_nothing(alone):
    with Service(MODEL, args=[*ARGS, "--speculate", 3]) as s:
        assert [ids for ids, _ in together(s, says, [body(t) for t in TEXTS])] == [ids for ids, _ in alone]
        assert s.metric("tgi_request_skipped_tokens_count") > 0


def test_adapters_are_refused_by_name(tmp_path):
    s = Service(MODEL, args=["--lora-adapters", f"x={tmp_path}"], ready=False)
    try:
        wait_for(lambda: not s.alive(), 30)
        assert "adapters of t5 models are not supported" in s.log, s.log[-2000:]
    finally:
        s.stop()


def test_two_ranks(alone):
    with Service(MODEL, args=[*ARGS, "--num-shard", 2]) as s:
        assert [ids for ids, _ in together(s, says, [body(t) for t in TEXTS] * 2)] == [ids for ids, _ in alone * 2]


def test_preempted_and_killed(alone):
    """A cache for a few of the streams, and a shard that goes down beside that."""
    tight = ["--max-batch-total-tokens", 400, "--max-shard-restarts", 3]
    bodies = [body(t, new=120) for t in TEXTS] * 3
    with Service(MODEL, args=[*ARGS, *tight]) as s:
        want = [says(s, b) for b in bodies[: len(TEXTS)]] * 3
        assert [ids[:40] for ids, _ in want] == [ids for ids, _ in alone * 3]
        check_preempted_and_killed(s, says, bodies, want)


def test_swapped(alone):
    """Blocks of the decoder go to host memory and come back; those of texts are computed again."""
    tight = ["--max-batch-total-tokens", 400, "--swap-space", 0.01]
    bodies = [body(t, new=120) for t in TEXTS] * 3
    with Service(MODEL, args=[*ARGS, *tight]) as s:
        want = [says(s, b) for b in bodies[: len(TEXTS)]] * 3
        assert together(s, says, bodies) == want


def test_tables_of_positions_end(tmp_path):
    """LED has more rows for texts than for answers: a text fits by the encoder's table, and an answer ends with the decoder's."""
    model, prompts = folder(tmp_path, "led")
    with Service(model) as s:
        info = requests.get(s.url + "/info").json()
        assert (info["max_input_tokens"], info["max_total_tokens"]) == (120, 192)
        assert completes(s, prompts["long"], 60) == prompts["long"]["greedy_ids"][:60]
        ended = s.post("/generate", body("the name of it", 150, ignore_eos=True)).json()["details"]
        assert (ended["finish_reason"], ended["generated_tokens"]) == ("length", 71)
        r = s.post("/generate", body("the " * 130, new=10))
        assert r.status_code == 422 and "must have less than 120 tokens" in r.text, r.text
    s = Service(model, args=["--max-input-tokens", 121], ready=False)
    try:
        wait_for(lambda: not s.alive(), 30)
        assert "--max-input-tokens 121: this model's encoder has 120 positions" in s.log, s.log[-2000:]
    finally:
        s.stop()


def classifier(to, labels=3):
    """Flan-T5's test model as a classifier of texts: random matrices behind the decoder's last token."""
    shutil.copytree(MODEL, to)
    rng = np.random.default_rng(5)
    head = {"dense.weight": (48, 48), "dense.bias": (48,), "out_proj.weight": (labels, 48), "out_proj.bias": (labels,)}
    stored = {f"transformer.{name}": v for name, v in tensors(MODEL) if not name.startswith("lm_head")}
    save_file(stored | {f"classification_head.{k}": rng.standard_normal(n, np.float32) * 0.3 for k, n in head.items()}, to / "model.safetensors")
    said = json.loads((to / "config.json").read_text())
    said |= {"architectures": ["T5ForSequenceClassification"], "id2label": {str(i): f"label {i}" for i in range(labels)}}
    (to / "config.json").write_text(json.dumps(said))
    return to


def test_a_classifier_of_both_stacks(tmp_path):
    """Labels of texts and of pairs: the same bits alone and in any batch, however it is divided, and close to those of two ranks."""
    model = classifier(tmp_path / "m")
    asked = [[t] for t in TEXTS] + [["a short premise", "what follows from it"], ["what follows from it", "a short premise"]]
    with Service(model) as s:
        assert "classifier" in requests.get(f"{s.url}/info").json()["model_type"]
        alone = [s.post("/predict", {"inputs": [one]}).json()[0] for one in asked]
        assert all(sum(x["score"] for x in one) == pytest.approx(1, abs=1e-5) for one in alone)
        assert {x["label"] for x in alone[0]} == {"label 0", "label 1", "label 2"}
        assert len({json.dumps(one) for one in alone}) == len(asked), "texts, or their order in a pair, do not matter"
        for many in asked, asked[::-1] * 5:
            assert s.post("/predict", {"inputs": many}).json() == [alone[asked.index(one)] for one in many]
        assert s.post("/generate", {"inputs": "x"}).status_code == 400
    with Service(model, num_shard=2, args=["--max-batch-prefill-tokens", 128]) as s:
        for one, want in zip(asked, alone):
            got = {x["label"]: x["score"] for x in s.post("/predict", {"inputs": [one]}).json()[0]}
            assert got == pytest.approx({x["label"]: x["score"] for x in want}, abs=1e-5)
