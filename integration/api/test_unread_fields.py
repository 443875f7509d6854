"""What a body has and no reader looks up is named in the header `warning`; what would make another answer is refused."""

import pytest
from serving import DEMO, Service, data

HI = [{"role": "user", "content": "Hi"}]
GEMINI = "/v1beta/models/demo:generateContent"
# The route, a body that is right, and where its unknown members are.
ROUTES = [
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 2}, None),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 2}, None),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 2}, None),
    ("/v1/messages", {"messages": HI, "max_tokens": 2}, None),
    ("/v1/messages/count_tokens", {"messages": HI}, None),
    ("/v2/chat", {"model": "demo", "messages": HI, "max_tokens": 2}, None),
    ("/completion", {"prompt": "Hi", "n_predict": 2}, None),
    ("/api/chat", {"messages": HI, "stream": False, "options": {"num_predict": 2}}, None),
    ("/api/chat", {"messages": HI, "stream": False}, "options"),
    ("/api/generate", {"prompt": "Hi", "stream": False, "raw": True, "options": {"num_predict": 2}}, None),
    ("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 2}}, None),
    ("/generate", {"inputs": "Hi"}, "parameters"),
    (GEMINI, {"contents": [{"parts": [{"text": "Hi"}]}]}, None),
    (GEMINI, {"contents": [{"parts": [{"text": "Hi"}]}]}, "generationConfig"),
]


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--override-generation-config", '{"max_new_tokens": 4}']) as service:
        yield service


def warned(s, path, body):
    r = s.post(path, body)
    assert r.status_code == 200, r.text
    return r.headers.get("warning", "")


@pytest.mark.parametrize("path,body,inside", ROUTES, ids=[f"{path} {inside or ''}" for path, _, inside in ROUTES])
def test_unknown_members_are_named(s, path, body, inside):
    given = {"temperture": 0.5, "none": None, "off": False, "nothing": [], "zero": 0, "empty": ""}
    more = {inside: given} if inside else given
    assert warned(s, path, {**body, **more}) == f'299 - "{inside + "." if inside else ""}temperture has no effect"'
    assert not warned(s, path, body)


@pytest.mark.parametrize("path,body", [(path, body) for path, body, inside in ROUTES[:6] if not inside])
def test_what_is_about_the_request_needs_no_word(s, path, body):
    about = {"user": "u", "store": False, "service_tier": "auto", "safety_identifier": "x", "prompt_cache_key": "k", "session_id": "s"}
    assert not warned(s, path, {**body, **about})


def test_of_two_lengths_the_newer_is_used(s):
    r = s.post("/v1/chat/completions", {"messages": HI, "max_completion_tokens": 2, "max_tokens": 3, "n_predict": 4, "ignore_eos": True})
    assert r.json()["usage"]["completion_tokens"] == 2
    assert r.headers["warning"] == '299 - "max_tokens has no effect; n_predict has no effect"'


def test_a_length_of_chats_is_one_of_responses(s):
    for given, most in (({"max_tokens": 3}, 3), ({"max_output_tokens": 2}, 2), ({"max_output_tokens": 2, "max_tokens": 3}, 2)):
        r = s.post("/v1/responses", {"input": "Hi", "ignore_eos": True, **given})
        assert r.json()["usage"]["output_tokens"] == most and "warning" not in r.headers


def test_names_of_other_servers(s):
    """llama-server's `n_predict`, and `random_seed` of Mistral's SDK."""
    body = {"messages": HI, "n_predict": 3, "ignore_eos": True, "temperature": 3}
    asked = [s.post("/v1/chat/completions", {**body, name: seed}) for name, seed in (("random_seed", 5), ("seed", 5), ("random_seed", 6))]
    assert all(r.json()["usage"]["completion_tokens"] == 3 and "warning" not in r.headers for r in asked)
    texts = [r.json()["choices"][0]["message"]["content"] for r in asked]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("name", ["watermarking", "return_prompt_text", "return_token_offsets", "return_meta_info", "return_routed_experts", "return_cached_tokens_details", "images_config", "custom_params", "ec_transfer_params", "previous_input_messages", "adaptive_target"])
def test_fields_that_would_make_another_answer(s, name):
    for path, body, _ in ROUTES[:3]:
        for value in (True, {"a": 1}, 0.5):
            r = s.post(path, {**body, name: value})
            assert r.status_code == 400 and r.json()["error"]["param"] == name, r.text
    assert not warned(s, *ROUTES[0][:2]) and not warned(s, "/v1/chat/completions", {**ROUTES[0][1], name: None})


def test_a_stream_has_the_header_too(s):
    import requests

    for path, body, inside in ROUTES[:4]:
        with requests.post(s.url + path, json={**body, "stream": True, "temperture": 1}, stream=True, timeout=20) as r:
            assert r.status_code == 200 and "temperture has no effect" in r.headers["warning"]


def test_what_was_not_read_to_its_end_says_nothing(s):
    r = s.post("/v1/chat/completions", {"messages": 7, "temperture": 1})
    assert r.status_code == 400 and "warning" not in r.headers


def test_of_vectors_and_their_kin():
    with Service(data("embed/bert_mean")) as s:
        gemini = {"content": {"parts": [{"text": "Hi"}]}}
        for path, body in (("/v1/embeddings", {"input": "Hi", "user": "u"}), ("/embed", {"inputs": "Hi"}), ("/v2/embed", {"model": "m", "texts": ["Hi"], "input_type": "search_query"}), ("/api/embed", {"input": "Hi", "keep_alive": "5m"}), ("/pooling", {"input": "Hi"}), ("/score", {"text_1": "a", "text_2": "b"}), ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 1}), ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}), ("/v1beta/models/m:embedContent", gemini)):
            assert warned(s, path, {**body, "dimensoins": 8}) == '299 - "dimensoins has no effect"', path
            assert not warned(s, path, body)
