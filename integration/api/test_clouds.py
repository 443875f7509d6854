"""The routes of model hosts: SageMaker's /invocations, Vertex AI's /vertex, KServe's /v2."""

import pytest
import requests

ONCE = "Once upon a time"
CHAT = [{"role": "user", "content": "Hello!"}]


def generated(s, text=ONCE, **parameters):
    return s.post("/generate", {"inputs": text, "parameters": parameters}).json()["generated_text"]


def test_invocations_is_whatever_the_body_is(s):
    p = {"max_new_tokens": 8}
    assert s.post("/invocations", {"inputs": ONCE, "parameters": p}).json() == s.post("/", {"inputs": ONCE, "parameters": p}).json()
    chat = {"messages": CHAT, "max_tokens": 8, "temperature": 0}
    a, b = (s.post(path, chat).json()["choices"] for path in ("/invocations", "/v1/chat/completions"))
    assert a == b
    text = {"prompt": ONCE, "max_tokens": 8, "temperature": 0}
    a, b = (s.post(path, text).json()["choices"] for path in ("/invocations", "/v1/completions"))
    assert a == b
    assert "[DONE]" in list(s.events("/invocations", {**chat, "stream": True}))
    assert s.post("/invocations", {"inputs": ONCE, "parameters": {"top_p": 3}}).status_code == 422
    assert s.post("/invocations", {}).status_code == 422 and s.post("/invocations", []).status_code == 422


def test_vertex_predicts_a_text_for_each_instance(s):
    chat = s.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 8, "temperature": 0}).json()["choices"][0]["message"]["content"]
    instances = [
        {"inputs": ONCE, "parameters": {"max_new_tokens": 8}},
        {"messages": CHAT, "max_tokens": 8, "temperature": 0},
        {"inputs": "The cat", "parameters": {"max_new_tokens": 5, "stop": [" "]}},
    ]
    r = s.post("/vertex", {"instances": instances})
    assert r.json() == {"predictions": [generated(s, max_new_tokens=8), chat, generated(s, "The cat", max_new_tokens=5, stop=[" "])]}
    assert int(r.headers["x-generated-tokens"]) > 8
    for bad in ({"instances": []}, {"instances": instances * 5}, {"instances": [{}]}, {"instances": 7}, {}, {"instances": [7]}):
        refused = s.post("/vertex", bad)
        assert refused.status_code == 422, refused.text


@pytest.mark.parametrize("path", ["/v2/models/m/infer", "/v2/models/org/m/versions/1/infer"])
def test_kserve_infers_strings_and_bytes(s, path):
    want = [generated(s, max_new_tokens=6), generated(s, "Größe", max_new_tokens=6)]
    texts = [ONCE, "Größe"]
    for bytes_ in (False, True):
        data = [list(t.encode()) if bytes_ else [t] for t in texts]
        inputs = [{"name": "in", "shape": [1, len(d)], "datatype": "BYTES", "data": d} for d in data]
        body = {"id": "7", "inputs": inputs, "outputs": [{"name": "a"}, {"name": "b"}], "parameters": {"max_new_tokens": 6}}
        r = s.post(path, body).json()
        assert r["id"] == "7" and [o["name"] for o in r["outputs"]] == ["a", "b"]
        got = [bytes(o["data"]).decode() if bytes_ else o["data"][0] for o in r["outputs"]]
        assert got == want and all(o["shape"] == [1, len(o["data"])] for o in r["outputs"])
    for change in ({"outputs": []}, {"inputs": []}, {"inputs": [{"data": [255]}]}, {"inputs": [{"data": ["a", "b"]}]}, {"inputs": [{"datatype": "FP32", "data": [1]}]}):
        assert s.post(path, {**body, **change}).status_code == 422
    assert s.post("/v2/models/m/nothing", body).status_code == 404


def test_kserve_tells_of_itself(s):
    def get(path):
        return requests.get(s.url + path).json()

    assert get("/v2")["extensions"] == ["health", "models", "metrics"]
    assert get("/v2/health/live") == {"live": True} and get("/v2/models/m/versions/1/ready") == {"ready": True}
    assert get("/v2/models/m")["inputs"][0]["datatype"] == "BYTES"


def test_a_list_that_goes_wrong_half_way_is_refused(s):
    for ids in ([5, 72057594037927935], [5, "x"], [5, -1], [5, None]):
        assert s.post("/detokenize", {"ids": ids}).status_code == 422
        assert s.post("/v1/completions", {"prompt": ids}).status_code == 400
