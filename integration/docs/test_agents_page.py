"""The settings of docs/how-to/agents.md, as they stand there: programs run, files parse, and their addresses answer."""

import json
import re
import tomllib

import pytest
import requests
import yaml
from serving import ROOT

PAGE = (ROOT / "docs/how-to/agents.md").read_text()
BLOCKS = [(part.partition("\n")[0], *b) for part in PAGE.split("\n## ") for b in re.findall(r"```(\w*)\n(.*?)```", part, re.S)]
PARSERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
HERE = "http://localhost:3000"
OTHERS = {"google-genai"}  # a package of make clients: integration/clients/test_google.py


def strings(v):
    if isinstance(v, str):
        yield v
    for x in v.values() if isinstance(v, dict) else v if isinstance(v, list) else ():
        yield from strings(x)


def answers(s, address):
    """As OpenAI's clients do below /v1, and as Ollama's and llama-server's elsewhere."""
    url = address.replace(HERE, s.url)
    chat = {"model": "demo", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
    if url.endswith("/v1"):
        assert requests.get(url + "/models", timeout=30).json()["data"], address
        assert requests.post(url + "/chat/completions", json=chat, timeout=30).json()["choices"][0]["message"]["content"], address
        return
    assert requests.get(url + "/api/version", timeout=30).json()["version"], address
    assert requests.post(url + "/api/show", json={"model": "demo"}, timeout=30).json()["capabilities"], address
    assert requests.post(url + "/v1/messages", json=chat, timeout=30).json()["content"], address


def test_the_page_has_them():
    kinds = [kind for _, kind, _ in BLOCKS]
    assert kinds.count("python") == 2 + len(OTHERS) and kinds.count("json") >= 3 and {"toml", "yaml", ""} <= set(kinds), kinds


@pytest.mark.parametrize(("title", "code"), [(t, c) for t, kind, c in BLOCKS if kind == "python" and t not in OTHERS])
def test_programs_run(s, title, code):
    exec(compile(code.replace(HERE, s.url), title, "exec"), {})


@pytest.mark.parametrize(("title", "kind", "text"), [b for b in BLOCKS if b[1] in PARSERS])
def test_files_parse_and_their_addresses_answer(s, title, kind, text):
    found = [v for v in strings(PARSERS[kind](text)) if v.startswith("http") and "opencode.ai" not in v]
    assert found and all(v.startswith(HERE) for v in found), found
    for address in found:
        answers(s, address)


@pytest.mark.parametrize(("title", "text"), [(t, c) for t, kind, c in BLOCKS if not kind])
def test_variables_name_addresses_that_answer(s, title, text):
    found = re.findall(r"\w+_(?:BASE_URL|BASE|API_BASE)=(\S+)", text)
    assert found, text
    for address in found:
        answers(s, address)


@pytest.mark.parametrize("address", sorted(set(re.findall(r"http://localhost:3000[\w/]*", PAGE))))
def test_every_address_answers(s, address):
    answers(s, address)
