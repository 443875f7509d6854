"""Shards of a small model, alone and in two ranks, and what the model answers: for tests of the shards' protocol."""

import json

import pytest
from serving import data
from shard import Shards


@pytest.fixture(scope="module")
def model():
    return data("models/stories260K")


@pytest.fixture(scope="module")
def golden(model):
    return json.loads((model / "golden.json").read_text())["prompts"]


@pytest.fixture(scope="module", params=[1, 2], ids=["solo", "two-ranks"])
def shards(request, model):
    with Shards(model, request.param) as s:
        s.warmup()
        yield s
