"""Sampling parameters of the server, for requests that set none: the model's generation_config.json, and the operator's own."""

import json

import pytest
import requests
from serving import BIN, DEMO, Process, Service

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The demo model, with a publisher who recommends few tokens and a narrow choice."""
    folder = tmp_path_factory.mktemp("recommended")
    for f in DEMO.iterdir():
        if f.is_file() and f.name != "generation_config.json":
            (folder / f.name).symlink_to(f)
    config = json.loads((DEMO / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**config, "temperature": 0.75, "top_k": 1, "max_new_tokens": 9}))
    return folder


def completion(s, **body):
    r = s.post("/v1/completions", {"prompt": PROMPT, **body})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0], r.json()["usage"]["completion_tokens"]


def test_the_models_file_is_obeyed(model):
    with Service(model) as s:
        s.wait_log("Sampling parameters of requests that set none")
        greedy = completion(s, temperature=0, max_tokens=9)[0]["text"]
        # top_k 1 leaves the most likely token, whatever the seed; the length is limited
        for seed in (1, 2, 3):
            choice, n = completion(s, seed=seed)
            assert (choice["text"], choice["finish_reason"], n) == (greedy, "length", 9)
        assert completion(s, max_tokens=100, seed=1)[1] == 9
        assert completion(s, max_tokens=4, seed=1)[1] == 4
        # what the request says goes first: top_k off, a hot temperature
        texts = {completion(s, seed=seed, top_k=-1, temperature=2)[0]["text"] for seed in range(6)}
        assert len(texts) > 1
        texts = {completion(s, seed=seed, top_k=0, top_p=1, temperature=2)[0]["text"] for seed in range(6)}
        assert len(texts) > 1
        chat = {"messages": [{"role": "user", "content": "Hello!"}]}
        answers = {s.post("/v1/chat/completions", {**chat, "seed": n}).json()["choices"][0]["message"]["content"] for n in range(3)}
        assert len(answers) == 1
        r = s.post("/v1/messages", {**chat, "max_tokens": 50}).json()
        assert r["usage"]["output_tokens"] == 9 and r["content"][0]["text"] in answers
        r = s.post("/api/chat", {**chat, "stream": False}).json()
        assert r["eval_count"] == 9 and r["message"]["content"] in answers
        r = s.post("/v1/responses", {"input": "Hello!"}).json()
        assert (r["temperature"], r["usage"]["output_tokens"]) == (0.75, 9)
        r = s.post("/completion", {"prompt": PROMPT, "seed": 5}).json()
        assert (r["content"], r["generation_settings"]["top_k"]) == (greedy, 1)
        assert round(r["generation_settings"]["top_p"], 2) == 0.95  # llama-server's own default
        params = requests.get(s.url + "/props").json()["default_generation_settings"]["params"]
        assert (params["temperature"], params["top_k"]) == (0.75, 1)
        # TGI's routes have TGI's values: 20 tokens are 20, and sampling is asked for
        details = s.post("/generate", {"inputs": PROMPT, "parameters": {"max_new_tokens": 20, "details": True}}).json()["details"]
        assert details["generated_tokens"] == 20
        texts = {
            s.post("/generate", {"inputs": PROMPT, "parameters": {"max_new_tokens": 9, "do_sample": True, "seed": n}}).text
            for n in range(6)
        }
        assert len(texts) > 1


def test_tokens_that_the_model_excludes(tmp_path):
    """suppress_tokens, bad_words_ids and min_new_tokens are obeyed; what has no effect is said at the start."""
    for f in DEMO.iterdir():
        if f.is_file() and f.name != "generation_config.json":
            (tmp_path / f.name).symlink_to(f)
    config = json.loads((DEMO / "generation_config.json").read_text())
    with Service(DEMO) as s:
        choice = completion(s, temperature=0, max_tokens=12, return_token_ids=True)[0]
        ids, eos = choice["token_ids"], config["eos_token_id"]
        chat = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0}
        length = s.post("/v1/chat/completions", chat).json()["usage"]["completion_tokens"]
    never = {"suppress_tokens": [ids[0], 10**6], "bad_words_ids": [ids[1:3], [eos]], "min_new_tokens": length + 4, "no_repeat_ngram_size": 3}
    (tmp_path / "generation_config.json").write_text(json.dumps({**config, **never}))
    with Service(tmp_path) as s:
        s.wait_log("no_repeat_ngram_size")
        for seed in range(5):
            got = completion(s, seed=seed, max_tokens=40, return_token_ids=True)[0]["token_ids"]
            assert ids[0] not in got and not any(got[i : i + 2] == ids[1:3] for i in range(len(got)))
        # with words of the request's own, too
        more = completion(s, temperature=0, max_tokens=12, bad_words=["a"], return_token_ids=True)[0]["token_ids"]
        assert ids[0] not in more
        assert s.post("/v1/chat/completions", chat).json()["usage"]["completion_tokens"] > length
        assert completion(s, temperature=0, max_tokens=3)[1] == 3
        # a stop sequence does not wait for the model's least number of tokens
        free = s.post("/v1/chat/completions", chat).json()["choices"][0]["message"]["content"]
        stopped = s.post("/v1/chat/completions", {**chat, "stop": [free[4:7]]}).json()
        assert stopped["usage"]["completion_tokens"] < length
        assert eos not in completion(s, temperature=0, max_tokens=length, return_token_ids=True)[0]["token_ids"]
        tgi = {"inputs": PROMPT, "parameters": {"max_new_tokens": 1, "details": True}}
        assert s.post("/generate", tgi).json()["details"]["tokens"][0]["id"] == ids[0]  # TGI's routes do not read the file


def test_the_operator_goes_first(model):
    args = ["--generation-config", "vllm", "--override-generation-config", '{"temperature": 0, "max_new_tokens": 12}']
    with Service(model, args=args) as s:
        assert completion(s, seed=1) == completion(s, seed=2) == completion(s, temperature=0)
        assert completion(s)[1] == 12
        assert len({completion(s, seed=n, temperature=2)[0]["text"] for n in range(6)}) > 1
        r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "n": 2})
        assert r.status_code == 200 and len(r.json()["choices"]) == 2, r.text


@pytest.mark.parametrize(
    ("args", "said", "code"),
    [
        (["--override-generation-config", '{"temperature": -1}'], "`temperature` must be strictly positive", 78),
        (["--override-generation-config", '{"warmth": 1}'], "`warmth` is no sampling parameter", 78),
        (["--override-generation-config", "{"], "--override-generation-config", 78),
        (["--generation-config", "/nowhere"], "/nowhere/generation_config.json", 66),
    ],
)
def test_wrong_ones_end_the_start(args, said, code):
    p = Process([BIN / "router", "--tokenizer-name", DEMO, "--port", "0", *args])
    assert p.p.wait(30) == code
    assert said in p.log
