"""Wrong requests through OpenAI's and Anthropic's SDKs: the class of the exception, the field that it names, and why."""

import json

import anthropic
import httpx
import openai
import pytest
import requests
from serving import DEMO, Service, wait_for

KEY = "secret"
HI = [{"role": "user", "content": "Hi"}]
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--api-key", KEY]) as service:
        yield service


@pytest.fixture(scope="module")
def oai(s):
    return openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def claude(s):
    return anthropic.Anthropic(base_url=s.url, api_key=KEY, max_retries=0)


def messages(*given):
    return {"messages": list(given)}


def said(content):
    return messages({"role": "user", "content": content})


GONE = object()  # the member is left out
# The route: changes of a body that is right, the field that is named, what is said of it.
CHAT = [
    ({"messages": GONE}, "messages", "missing field"),
    ({"messages": "Hi"}, "messages", "expected a list, got string"),
    ({"messages": []}, "messages", "at least one message"),
    (messages(*HI, "Hi"), "messages", "messages[1]: a message must be an object"),
    (messages(*HI, {"content": "Hi"}), "messages", "messages[1]: missing field `role`"),
    (messages({"role": 7, "content": "Hi"}), "messages", "messages[0]: `role` must be a string"),
    (said(7), "messages", "messages[0]: `content` must be a string or a list"),
    (said([{"type": "text"}]), "messages", "messages[0]: missing field `text`"),
    (said([{"type": "bogus"}]), "messages", "messages[0]: a content part"),
    (said("word " * 9000), "messages", "maximum context length is 2048 tokens"),
    ({"model": 7}, "model", "expected a string, got 7"),
    ({"max_tokens": "2"}, "max_tokens", 'got string "2"'),
    ({"max_tokens": 1.5}, "max_tokens", "got 1.5"),
    ({"temperature": "hot"}, "temperature", "expected a number"),
    ({"top_p": 2}, "top_p", "must be"),
    ({"n": 0}, "n", "must be > 0"),
    ({"stream": "yes"}, "stream", "expected a boolean"),
    ({"stop": [1]}, "stop", "expected a string"),
    ({"seed": "x"}, "seed", "expected a whole number"),
    ({"logit_bias": {"a": 1}}, "logit_bias", "expected a token id"),
    ({"logprobs": True, "top_logprobs": 99}, "top_logprobs", "<= 20"),
    ({"top_logprobs": 2}, "top_logprobs", "needs `logprobs`"),
    ({"response_format": "json"}, "response_format", "expected an object"),
    ({"response_format": {"type": "bogus"}}, "response_format", "must be `text`"),
    ({"tools": {}}, "tools", "expected a list"),
    ({"tools": [FUNCTION, {"type": "function"}]}, "tools", "tools[1]: missing field `function`"),
    ({"tool_choice": "required"}, "tool_choice", "needs `tools`"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "needs `tools`"),
    ({"tool_choice": "required", "tools": []}, "tool_choice", "needs `tools`"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [FUNCTION]}, "tool_choice", "g not found"),
    ({"stream": True, "stream_options": 7}, "stream_options", "expected an object"),
]
COMPLETIONS = [
    ({"prompt": GONE}, "prompt", "missing field"),
    ({"prompt": 7}, "prompt", "expected a string or a list"),
    ({"prompt": []}, "prompt", "empty"),
    ({"prompt": [[1, "a"]]}, "prompt", "expected a whole number"),
    ({"prompt": [999999]}, "prompt", "token id 999999 is outside the vocabulary"),
    ({"logprobs": 99}, "logprobs", "<= 20"),
    ({"best_of": 1, "n": 2}, "best_of", "must be >= `n`"),
]
RESPONSES = [
    ({"input": GONE}, "input", "missing field"),
    ({"input": 7}, "input", "a string or a list of items"),
    ({"input": [*HI, 7]}, "input", "input[1]: expected an object, got 7"),
    ({"input": [*HI, {"type": "bogus"}]}, "input", "input[1]: items of type `bogus`"),
    ({"input": [*HI, {"role": "user"}]}, "input", "input[1]: missing field `content`"),
    ({"instructions": 7}, "instructions", "expected a string"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "not supported"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "nothing is stored"),
    ({"truncation": "bogus"}, "truncation", "must be `auto` or `disabled`"),
    ({"tools": [{"type": "function", "name": "f"}, {"type": "function"}]}, "tools", "tools[1]: missing field `name`"),
    ({"tool_choice": "bogus"}, "tool_choice", "one of `auto`"),
    ({"tool_choice": "required"}, "tool_choice", "needs `tools`"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "needs `tools`"),
    ({"text": {"format": {"type": "bogus"}}}, "text", "`format` must be"),
]
MESSAGES = [
    ({"messages": GONE}, "messages", "missing field"),
    ({"max_tokens": GONE}, "max_tokens", "missing field"),
    ({"messages": "Hi"}, "messages", "expected a list, got string"),
    ({"messages": []}, "messages", "at least one message"),
    (messages(*HI, 7), "messages", "messages[1]: missing field `role`"),
    (messages(*HI, {"role": "wizard", "content": "Hi"}), "messages", "messages[1]: unknown role `wizard`"),
    (messages(*HI, {"role": "user"}), "messages", "messages[1]: missing field `content`"),
    (said(7), "messages", "messages[0]: expected a string or a list of blocks, got 7"),
    (said([{"type": "bogus"}]), "messages", "messages[0]: content blocks of type `bogus`"),
    (said([{"type": "text"}]), "messages", "messages[0]: a block of type `text` has no `text`"),
    (messages(*HI, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": 7}]}), "messages", "messages[1]: the `input`"),
    (said("word " * 9000), "prompt", "prompt is too long: 9006 tokens > 2047 maximum"),
    ({"system": 7}, "system", "expected a string or a list of text blocks"),
    ({"stop_sequences": "x"}, "stop_sequences", "expected a list"),
    ({"tools": [{"name": "f", "input_schema": {}}, {"name": "g"}]}, "tools", "tools[1]: a tool has `name` and `input_schema`"),
    ({"tool_choice": {"type": "bogus"}}, "tool_choice", "one of `auto`"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "needs `tools`"),
    ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice", "needs `tools`"),
    ({"thinking": {"type": "bogus"}}, "thinking", "one of `enabled`"),
]
RIGHT = {
    "/chat/completions": {"model": "demo", "messages": HI, "max_tokens": 2},
    "/completions": {"model": "demo", "prompt": "Hi", "max_tokens": 2},
    "/responses": {"model": "demo", "input": "Hi", "max_output_tokens": 2},
    "/messages": {"model": "demo", "messages": HI, "max_tokens": 2},
}


def wrong(path, change):
    return {k: v for k, v in {**RIGHT[path], **change}.items() if v is not GONE}


def cases(of):
    return [pytest.param(path, *case, id=f"{path[1:]} {json.dumps(case[0], default=lambda _: 'gone')[:60]}") for path, list_of in of.items() for case in list_of]


@pytest.mark.parametrize("path, change, field, why", cases({"/chat/completions": CHAT, "/completions": COMPLETIONS, "/responses": RESPONSES}))
def test_openai_names_the_field(oai, path, change, field, why):
    with pytest.raises(openai.BadRequestError) as e:
        oai.post(path, body=wrong(path, change), cast_to=httpx.Response)
    e = e.value
    assert e.param == field and why in e.message, e.message
    assert e.type == "invalid_request_error" and e.code == ("context_length_exceeded" if "context length" in why else None)


@pytest.mark.parametrize("path, change, field, why", cases({"/messages": MESSAGES}))
def test_anthropic_names_the_field(claude, path, change, field, why):
    with pytest.raises(anthropic.BadRequestError) as e:
        claude.post("/v1" + path, body=wrong(path, change), cast_to=httpx.Response)
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"
    text = e.value.body["error"]["message"]
    assert why in text and field in text, text


def test_a_choice_of_tools_that_are_left_out_is_no_error(claude, oai):
    """Agents send it with tools of the vendor's servers, which are left out with a warning."""
    web = {"type": "web_search_20250305", "name": "web_search"}
    assert claude.messages.create(**RIGHT["/messages"], tools=[web], tool_choice={"type": "any"}).content
    assert oai.responses.create(**RIGHT["/responses"], tools=[{"type": "web_search"}], tool_choice="required").output
    for free in ("auto", "none"):
        assert oai.chat.completions.create(**RIGHT["/chat/completions"], tool_choice=free).choices
        assert oai.responses.create(**RIGHT["/responses"], tool_choice=free).output
        assert claude.messages.create(**RIGHT["/messages"], tool_choice={"type": free}).content


def test_classes_of_exceptions(s, oai, claude):
    """What the SDKs make of refusals before any route: keys, paths, methods, media types, bodies."""
    url, head = s.url + "/v1/", {"Authorization": f"Bearer {KEY}"}
    with pytest.raises(openai.AuthenticationError) as e:
        oai.with_options(api_key="wrong").chat.completions.create(**RIGHT["/chat/completions"])
    assert e.value.code == "invalid_api_key"
    with pytest.raises(anthropic.AuthenticationError) as e:
        claude.with_options(api_key="wrong").messages.create(**RIGHT["/messages"])
    assert e.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(openai.NotFoundError) as e:
        oai.get("/nothing", cast_to=httpx.Response)
    assert e.value.code == "not_found"
    with pytest.raises(openai.NotFoundError):
        oai.models.retrieve("nothing")
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("nothing")
    with pytest.raises(openai.APIStatusError) as e:
        oai.delete("/completions", cast_to=httpx.Response)
    assert e.value.status_code == 405 and e.value.code == "method_not_allowed" and e.value.response.headers["allow"] == "POST, OPTIONS"
    for path in RIGHT:
        for body, kind, status in ((b"{}", "text/plain", 415), (b'{"model": "\xff"}', "application/json", 400), (b'{"a": 1', "application/json", 400), (b'{"a": 1, "a": 2}', "application/json", 400)):
            r = requests.post(url + path[1:], body, headers={**head, "Content-Type": kind}, timeout=60)
            assert r.status_code == status and r.json()["error"]["type"] == "invalid_request_error" and len(r.json()["error"]["message"]) > 20, r.text


def test_retries_do_no_work_twice(s, oai):
    """An SDK that waits no longer closes its connection and asks again: the earlier generation ends at once."""

    def dropped():
        return s.metric("tgi_request_failure", err="dropped")

    before = dropped()
    hasty = oai.with_options(timeout=httpx.Timeout(20, read=0.1), max_retries=2)
    with pytest.raises(openai.APITimeoutError):
        hasty.completions.create(model="m", prompt="Once", max_tokens=2000, extra_body={"ignore_eos": True})
    wait_for(lambda: dropped() == before + 3)
    held = requests.get(s.url + "/debug/audit", headers={"authorization": f"Bearer {KEY}"}, timeout=20).json()
    assert held["scheduler"]["balanced"] and not held["scheduler"]["sequences"], held
