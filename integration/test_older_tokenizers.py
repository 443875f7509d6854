"""A folder with vocab.json and merges.txt instead of tokenizer.json is served like the one that it was made from."""

import json
import shutil

from serving import DEMO, Service

CHAT = {"model": "m", "max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": "What is the capital of France?"}]}


def answers(service):
    chat = service.post("/v1/chat/completions", CHAT).json()
    return chat["choices"][0]["message"]["content"], chat["usage"], service.post("/tokenize", {"inputs": "Hello, wörld! 12 <|x|>  \n"}).json()


def test_words_of_bytes(tmp_path):
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
