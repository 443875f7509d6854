"""The served OpenAPI document, tested on the server: no body causes a server error, and answers match the document.

SCHEMATHESIS_EXAMPLES sets how many bodies each operation gets."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jsonschema
import pytest
import requests
from serving import DEMO, SLOW, Service, data, seed_for

if not importlib.util.find_spec("schemathesis"):  # its command is run: importing it takes seconds of every worker
    pytest.skip("schemathesis is not installed: integration/requirements.txt", allow_module_level=True)

HERE = pathlib.Path(__file__).resolve().parent
ST = pathlib.Path(sys.executable).with_name("st")
# Which characters there are takes 4 s to find. Examples that failed are not kept beside it: a run is like the run before.
TABLES = pathlib.Path(sys.prefix, "hypothesis")
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", 12)) // (3 if SLOW > 1 else 1)


@pytest.fixture(scope="module")
def s():
    """Answers are short, so that many fit in little time."""
    short = ["--max-total-tokens", "48", "--max-input-tokens", "40", "--override-generation-config", '{"max_new_tokens": 4}']
    with Service(DEMO, args=short) as service:
        yield service


def test_the_document_is_whole(s):
    doc = requests.get(s.url + "/api-doc/openapi.json").json()
    assert {"/generate", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/vertex"} <= doc["paths"].keys()
    assert list(doc["paths"]["/v1/responses"]) == ["post"], "a handshake is no operation"
    for path, item in doc["paths"].items():
        for method, op in item.items():
            if method == "post":
                name = op["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                assert name in doc["components"]["schemas"], path


def test_each_body_has_an_example_that_is_served():
    with Service(DEMO) as s:  # a summary needs room
        serve_examples(s)


def serve_examples(s):
    doc = requests.get(s.url + "/api-doc/openapi.json").json()
    posts = {path: item["post"]["requestBody"]["content"]["application/json"] for path, item in doc["paths"].items() if "post" in item}
    assert len(posts) >= 15
    other = {path for path, item in doc["paths"].items() if item.get("post", {}).get("x-task")}  # test_embeddings serves these
    for path, body in posts.items():
        validator = jsonschema.Draft7Validator({**body["schema"], "components": doc["components"]})
        validator.validate(body["example"])
        r = s.post(path, body["example"])
        assert r.status_code == (400 if path in other else 200), (path, r.text)


def conforms(s, *options, phases="examples,coverage,fuzzing"):
    """schemathesis finds no body, status, header or content type for which server and document disagree."""
    # one worker: CPython 3.11 counts the depth of its parser over all threads
    argv = [ST, "run", s.url + "/api-doc/openapi.json", "--phases", phases, "-n", str(EXAMPLES)]
    argv += ["--seed", str(seed_for(7)), "--no-color", "--output-sanitize", "false", *options]
    argv += ["--request-timeout", str(60 * SLOW)]  # by default 10 s, for which a busy machine may stop a process
    argv += ["--exclude-checks", "positive_data_acceptance,negative_data_rejection", "--suppress-health-check", "all"]
    argv += ["--generation-database", "none"] if "SEED" in os.environ else ["--generation-deterministic"]
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_checks", "PYTHONPATH": str(HERE), "HYPOTHESIS_STORAGE_DIRECTORY": str(TABLES)}
    with tempfile.TemporaryDirectory() as folder:  # it keeps what it found beside itself
        r = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout[-12000:] + r.stderr[-2000:]
    print(re.search(r"\d+ generated.*", r.stdout)[0])


def with_bodies_of_others(s):
    """Paths whose body has the schema of an earlier path: one parser reads both."""
    seen, later = set(), []
    for path, item in requests.get(s.url + "/api-doc/openapi.json").json()["paths"].items():
        if "requestBody" in item.get("post", {}):
            schema = item["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            later += [path] if schema in seen else []
            seen.add(schema)
    return later


def test_server_and_document_agree(s):
    """Each schema's boundaries are tried on one path, or on all when many examples are asked for."""
    others = with_bodies_of_others(s) if EXAMPLES < 100 else []
    conforms(s, *(word for path in others for word in ("--exclude-path", path)))
    if others:
        conforms(s, *(word for path in others for word in ("--include-path", path)), phases="examples,fuzzing")
    assert s.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 2}}).status_code == 200


@pytest.mark.parametrize(("model", "task"), [("embed/bert_mean", "embed"), ("embed/xlm_roberta_rerank", "rerank")])
def test_of_other_tasks_too(model, task):
    with Service(data(model)) as service:
        doc = requests.get(service.url + "/api-doc/openapi.json").json()
        own = [path for path, item in doc["paths"].items() if item.get("post", {}).get("x-task") == task]
        assert len(own) >= 4
        conforms(service, *(word for path in own for word in ("--include-path", path)))
