"""The served OpenAPI document, tested on the server: no body causes a server error, and answers match the document.

SCHEMATHESIS_EXAMPLES sets how many bodies each operation gets."""

import os

import jsonschema
import pytest
import requests
from serving import DEMO, SLOW, Service, seed_for

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: integration/requirements.txt")
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from schemathesis import checks  # noqa: E402

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", 12)) // (3 if SLOW > 1 else 1)


@pytest.fixture(scope="module")
def s():
    """Answers are short, so that many fit in little time."""
    with Service(DEMO, args=["--max-total-tokens", "96", "--max-input-tokens", "80"]) as service:
        yield service


def test_the_document_is_whole(s):
    doc = requests.get(s.url + "/api-doc/openapi.json").json()
    assert {"/generate", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/vertex"} <= doc["paths"].keys()
    for path, item in doc["paths"].items():
        for method, op in item.items():
            if method == "post":
                name = op["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                assert name in doc["components"]["schemas"], path


def test_each_body_has_an_example_that_is_served(s):
    doc = requests.get(s.url + "/api-doc/openapi.json").json()
    posts = {path: item["post"]["requestBody"]["content"]["application/json"] for path, item in doc["paths"].items() if "post" in item}
    assert len(posts) >= 15
    other = {path for path, item in doc["paths"].items() if item.get("post", {}).get("x-task")}  # test_embeddings serves these
    for path, body in posts.items():
        validator = jsonschema.Draft7Validator({**body["schema"], "components": doc["components"]})
        validator.validate(body["example"])
        r = s.post(path, body["example"])
        assert r.status_code == (400 if path in other else 200), (path, r.text)


def test_bodies_of_the_document(s):
    schema = schemathesis.openapi.from_url(s.url + "/api-doc/openapi.json")
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    wanted = [checks.not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    seen = {}
    for result in schema.get_all_operations():
        op = result.ok()
        if op.method.upper() != "POST":
            continue

        @seed(seed_for(7))
        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        @given(case=op.as_strategy())
        def one(case):
            response = case.call(base_url=s.url, timeout=60)
            seen.setdefault(op.path, set()).add(response.status_code)
            case.validate_response(response, checks=wanted)

        one()
    print({path: sorted(statuses) for path, statuses in seen.items()})
    assert 200 in seen["/chat_tokenize"] and 200 in seen["/v1/chat/completions"], seen
    assert s.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 2}}).status_code == 200
