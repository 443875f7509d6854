"""Tokenizers in older file formats, and one that has more tokens than its model."""

import json
import shutil

from serving import DEMO, Service

CHAT = {"model": "m", "max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": "What is the capital of France?"}]}


def answers(service):
    chat = service.post("/v1/chat/completions", CHAT).json()
    return chat["choices"][0]["message"]["content"], chat["usage"], service.post("/tokenize", {"inputs": "Hello, wörld! 12 <|x|>  \n"}).json()


def test_words_of_bytes(tmp_path):
    """A folder with vocab.json and merges.txt instead of tokenizer.json is served like the one that it was made from."""
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {t["id"]: t for t in tokenizer["added_tokens"]}
    config["tokenizer_class"] = "GPT2Tokenizer"
    config["add_bos_token"] = "SpecialToken" in json.dumps(tokenizer["post_processor"])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with Service(DEMO) as s:
        want = answers(s)
    with Service(folder) as s:
        assert answers(s) == want


def test_a_token_that_the_model_lacks_fails_its_own_request(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": vocab + 2, "content": "<|beyond|>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with Service(folder) as s:
        assert "more tokens than the model" in s.log
        for path, body in (
            ("/generate", {"inputs": "a <|beyond|> b"}),
            ("/v1/completions", {"prompt": "a <|beyond|> b", "max_tokens": 2}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a <|beyond|> b"}], "max_tokens": 2}),
        ):
            got = s.post(path, body)
            assert got.status_code in (400, 422) and "vocabulary" in got.text, (path, got.text)
            assert s.post("/v1/completions", {"prompt": "a b", "max_tokens": 2}).status_code == 200
