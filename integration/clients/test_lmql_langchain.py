"""lmql's LangChain class. It needs a LangChain from before 0.1, which the other clients do not live beside:

    python3 -m venv old && old/bin/pip install "langchain<0.1" lmql==0.7.3 transformers requests pytest
    PYTHONPATH=integration old/bin/python -m pytest integration/clients/test_lmql_langchain.py"""

import pytest

from serving import DEMO, Service

pytest.importorskip("langchain.llms.base", reason="needs langchain<0.1")


def test_it_generates_what_the_server_generates():
    from lmql.api.llm import LLM
    from lmql.models.lmtp.lmtp_langchain import LMTP

    with Service(DEMO) as s:
        tokenizer = LLM.from_descriptor(str(DEMO), tokenizer=str(DEMO)).get_tokenizer()
        llm = LMTP(model=str(DEMO), endpoint=f"127.0.0.1:{s.port}", max_length=16, temperature=0.0, tokenizer=tokenizer)
        ids = list(tokenizer("Once upon a time")["input_ids"])
        r = s.post("/v1/completions", {"prompt": ids, "max_tokens": 16, "temperature": 0})
        assert llm("Once upon a time") == r.json()["choices"][0]["text"]
