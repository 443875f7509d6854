"""Stands in for the conftest.py of TGI's integration-tests, and of its client's tests: every model is the demo model.

The words of an answer are the model's, so what is recorded of TGI is compared by its members and their types, not by its words. A test that
compares words itself fails, and is listed."""

import asyncio
import contextlib
import enum
import json
import os
import pathlib
import sys

import pytest
from text_generation import AsyncClient

sys.path.insert(0, os.environ["INTEGRATION"])
from serving import DEMO, Service  # noqa: E402


class Handle:
    def __init__(self, service):
        self.service = service
        self.client = AsyncClient(service.url, timeout=60)

    async def health(self, *_):
        assert self.service.alive()


@pytest.fixture(scope="session")
def launcher():
    @contextlib.contextmanager
    def launch(model_id, num_shard=None, lora_adapters=None, max_input_length=None, max_input_tokens=None, max_total_tokens=None, **_):
        args = ["--max-concurrent-requests", 512]  # their load tests send a hundred at once
        if max_total_tokens and max_total_tokens <= 2048:
            args += ["--max-total-tokens", max_total_tokens, "--max-input-tokens", max_input_length or max_input_tokens or max_total_tokens - 1]
        with Service(DEMO, num_shard=min(num_shard or 1, 2), args=args) as service:
            yield Handle(service)

    return launch


def plain(v):
    """Pydantic's and dataclasses' objects as JSON."""
    if hasattr(v, "model_dump"):
        return plain(v.model_dump())
    if isinstance(v, enum.Enum):
        return v.value
    if hasattr(v, "__dict__") and not isinstance(v, dict):
        return {k: plain(x) for k, x in vars(v).items()}
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return [plain(x) for x in v] if isinstance(v, list) else v


def shape_faults(recorded, got, where="answer"):
    """Members of the recorded answer that are not in ours, or are of another type."""
    if isinstance(recorded, dict):
        if not isinstance(got, dict):
            return [f"{where}: {type(got).__name__} in place of an object"]
        lost = [f"{where}.{k} is missing" for k in recorded.keys() - got.keys() if recorded[k] is not None]
        return lost + [f for k in recorded.keys() & got.keys() for f in shape_faults(recorded[k], got[k], f"{where}.{k}")]
    if isinstance(recorded, list):
        if not isinstance(got, list):
            return [f"{where}: {type(got).__name__} in place of a list"]
        if recorded and not got:
            return [f"{where} is empty"]
        return shape_faults(recorded[0], got[0], where + "[0]") if recorded else []
    if recorded is None or got is None or isinstance(recorded, (int, float)) == isinstance(got, (int, float)):
        return []
    return [] if type(recorded) is type(got) else [f"{where}: {type(got).__name__} in place of {type(recorded).__name__}"]


class Recorded:
    """What TGI answered, as a file beside the test."""

    def __init__(self, node):
        folder = pathlib.Path(node.path).parent / "__snapshots__" / pathlib.Path(node.path).stem
        self.files = [p for p in [folder / f"{node.name}.json", *sorted(folder.glob(f"{node.name}.*.json"))] if p.exists()]
        self.at = 0

    def __eq__(self, got):
        assert self.files, "TGI's recorded answer is not there"
        path = self.files[min(self.at, len(self.files) - 1)]
        self.at += 1
        faults = shape_faults(json.loads(path.read_text()), plain(got))
        assert not faults, faults
        return True


@pytest.fixture
def response_snapshot(request):
    return Recorded(request.node)


generous_response_snapshot = ignore_logprob_response_snapshot = response_snapshot


@pytest.fixture(scope="module")
def generate_load():
    async def load(client, prompt, max_new_tokens, n, seed=None, grammar=None, stop_sequences=None):
        options = {"max_new_tokens": max_new_tokens, "decoder_input_details": True, "seed": seed, "grammar": grammar}
        return await asyncio.gather(*(client.generate(prompt, stop_sequences=stop_sequences, **options) for _ in range(n)))

    return load


@pytest.fixture(scope="module")
def generate_multi():
    async def multi(client, prompts, max_new_tokens, seed=None):
        asked = [
            client.chat(messages=[{"role": "user", "content": p}], max_tokens=max_new_tokens, temperature=0, seed=seed) for p in prompts
        ]
        return await asyncio.gather(*asked)

    return multi


# ---------------------------------------------------------------- clients/python/tests


@pytest.fixture(scope="session")
def llama_7b_url(launcher):
    with launcher("meta-llama/Llama-2-7b-chat-hf") as handle:
        yield handle.service.url


@pytest.fixture
def fake_url(llama_7b_url):
    return llama_7b_url + "/fake"


@pytest.fixture
def hf_headers():
    return {"user-agent": "text-generation-tests"}


def pytest_configure(config):
    for mark in ("release", "private"):
        config.addinivalue_line("markers", mark)
