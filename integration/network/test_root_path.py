"""Behind a proxy, below a prefix: one that keeps the prefix in the path (--root-path), and one that removes it."""

import openai
import pytest
import requests
from serving import BIN, DEMO, Process, Service


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--root-path", "/llm/", "--api-key", "secret"]) as service:
        yield service


def test_paths_are_served_with_and_without(s):
    for prefix in ("", "/llm"):
        client = openai.OpenAI(base_url=s.url + prefix + "/v1", api_key="secret")
        r = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Hello!"}], max_tokens=4, temperature=0)
        assert r.usage.completion_tokens == 4
        with pytest.raises(openai.AuthenticationError):
            wrong = openai.OpenAI(base_url=s.url + prefix + "/v1", api_key="wrong", max_retries=0)
            wrong.completions.create(model="demo", prompt="Once", max_tokens=1)
        assert requests.get(s.url + prefix + "/health").status_code == 200
        assert requests.options(s.url + prefix + "/v1/models").headers["allow"] == "GET, HEAD, OPTIONS"
        assert "text/html" in requests.get(s.url + prefix + "/docs").headers["content-type"]
    page = requests.get(s.url + "/llm", headers={"accept": "text/html"})
    assert page.status_code == 200 and page.text == requests.get(s.url + "/", headers={"accept": "text/html"}).text
    for path in ("/llmx/health", "/llm/llm/health", "/ll/health", "/llm/nothing"):
        assert requests.get(s.url + path).status_code == 404, path
    # what the path is, errors know: OpenAI's below /v1
    assert "error" in requests.get(s.url + "/llm/v1/nothing", headers={"authorization": "Bearer secret"}).json()


def test_the_document_names_the_prefix(s):
    url = s.url + "/api-doc/openapi.json"
    assert requests.get(url).json()["servers"] == [{"url": "/llm"}]
    assert requests.get(url, headers={"x-forwarded-prefix": "/team/a"}).json()["servers"] == [{"url": "/team/a"}]
    for wrong in ("team", '/"x', "/a b", "/" + "a" * 300):
        assert requests.get(url, headers={"x-forwarded-prefix": wrong}).json()["servers"] == [{"url": "/llm"}], wrong


def test_none_is_named_without_one_and_a_wrong_one_is_refused():
    with Service(DEMO) as service:
        assert "servers" not in requests.get(service.url + "/api-doc/openapi.json").json()
        assert requests.get(service.url + "/llm/health").status_code == 404
    p = Process([BIN / "router", "--tokenizer-name", DEMO, "--port", "0", "--root-path", "llm"])
    assert p.p.wait(30) == 78 and "`root_path` must be a path" in p.log
