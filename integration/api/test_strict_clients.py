"""Answers have the members and types that clients with typed languages need.

Rust's async-openai and rig, Go's, Java's and C#'s SDKs, Spring AI and Kotlin's data classes refuse an answer in which a member is absent, null or
of another type, where Python's and JavaScript's do not notice. Each shape lists what any of them needs: a member with `?` may be null or absent."""

import json

import pytest


U32 = ("u32",)
USAGE = {"prompt_tokens": U32, "completion_tokens": U32, "total_tokens": U32, "prompt_tokens_details?": {"cached_tokens?": U32}}
ENDS = {"stop", "length", "tool_calls", "content_filter", "function_call"}
CALL = {"id": str, "type": {"function"}, "function": {"name": str, "arguments": str}}
TOP = {"id": str, "created": U32, "model": str, "system_fingerprint?": str, "service_tier?": {"auto", "default", "flex", "scale", "priority"}}
LOGPROB = {"token": str, "logprob": float, "bytes?": [U32]}
LOGPROBS = {"content?": [{**LOGPROB, "top_logprobs": [LOGPROB]}], "refusal?": [LOGPROB]}
MESSAGE = {"role": {"assistant"}, "content?": str, "refusal?": str, "tool_calls?": [CALL]}
CHAT = {**TOP, "object": {"chat.completion"}, "usage": USAGE, "choices": [{"index": U32, "message": MESSAGE, "finish_reason": ENDS, "logprobs?": LOGPROBS}]}
PART = {"index": U32, "id?": str, "type?": {"function"}, "function?": {"name?": str, "arguments?": str}}
DELTA = {"role?": {"assistant"}, "content?": str, "refusal?": str, "tool_calls?": [PART]}
CHUNK = {**TOP, "object": {"chat.completion.chunk"}, "usage?": USAGE, "choices": [{"index": U32, "delta": DELTA, "finish_reason?": ENDS, "logprobs?": LOGPROBS}]}
TEXT = {**TOP, "object": {"text_completion"}, "usage": USAGE, "choices": [{"index": U32, "text": str, "finish_reason": {"stop", "length"}, "logprobs?": {"tokens": [str], "token_logprobs": [float]}}]}
MODEL = {"id": str, "object": {"model"}, "created": U32, "owned_by": str}
MODELS = {"object": {"list"}, "data": [MODEL]}
ERROR = {"error": {"message": str, "type?": str, "param?": str, "code?": str}}
ITEM = {"id": str, "type": {"message", "function_call", "reasoning"}, "status": {"completed", "incomplete"}}
RESPONSE = {
    "id": str, "object": {"response"}, "created_at": U32, "status": {"completed", "incomplete"}, "model": str, "output": [ITEM], "tools": list, "metadata?": dict,
    "parallel_tool_calls": bool, "instructions?": str, "temperature?": float, "top_p?": float, "error?": dict, "incomplete_details?": {"reason": str},
    "usage": {"input_tokens": U32, "output_tokens": U32, "total_tokens": U32, "input_tokens_details": {"cached_tokens": U32}, "output_tokens_details": {"reasoning_tokens": U32}},
}  # fmt: skip
CLAUDE = {
    "id": str, "type": {"message"}, "role": {"assistant"}, "model": str, "content": [{"type": {"text"}, "text": str}],
    "stop_reason": {"end_turn", "max_tokens", "stop_sequence", "tool_use"}, "stop_sequence?": str, "usage": {"input_tokens": U32, "output_tokens": U32},
}  # fmt: skip


def check(value, shape, at="$"):
    if isinstance(shape, dict):
        assert isinstance(value, dict), at
        for name, inner in shape.items():
            optional = name.endswith("?")
            member = value.get(name.rstrip("?"))
            assert optional or member is not None, f"{at}.{name} is absent or null"
            if member is not None:
                check(member, inner, f"{at}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), at
        for i, item in enumerate(value):
            check(item, shape[0], f"{at}[{i}]")
    elif isinstance(shape, set):
        assert value in shape, f"{at}: {value}"
    elif shape == U32:
        assert type(value) is int and 0 <= value < 1 << 32, f"{at}: {value}"
    elif shape is float:
        assert type(value) in (int, float), f"{at}: {value}"
    else:
        assert type(value) is shape, f"{at}: {value!r}"


def ask(s, path, body, shape, **kw):
    r = s.post(path, body, **kw)
    assert r.status_code == 200, r.text
    check(r.json(), shape)
    return r.json()


TOOL = {"type": "function", "function": {"name": "weather", "description": "", "strict": False, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}}
HI = [{"role": "user", "content": "hi"}]
# Bodies as the clients write them, beyond what is OpenAI's own example.
BODIES = {
    "LibreChat": {"model": "demo", "user": "65f", "stream": False, "messages": [{"role": "system", "content": "s", "name": "x"}, *HI], "temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "stop": None},
    "n8n": {"model": "demo", "messages": HI, "tools": [], "n": 1, "stream": False, "max_tokens": -1, "timeout": 60000, "response_format": {"type": "text"}, "top_p": 1},
    "Continue": {"model": "demo", "messages": HI, "max_tokens": 4, "stream": False, "prediction": None, "parallel_tool_calls": False},
    "Cline": {"model": "demo", "messages": [{"role": "system", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]}, *HI], "temperature": 0, "reasoning_effort": "low", "max_tokens": 4},
    "Zed": {"model": "demo", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_completion_tokens": 4, "stop": [], "temperature": 1.0, "tools": [], "prompt_cache_key": "t-1"},
    "Open WebUI": {"model": "demo", "messages": HI, "max_tokens": 4, "metadata": {"user_id": "u", "chat_id": "c"}, "stream": False},
    "Goose": {"model": "demo", "messages": HI, "tools": [TOOL], "max_tokens": 4, "temperature": 0.5},
    "Qwen Code": {"model": "demo", "messages": HI, "temperature": 0, "top_p": 1, "max_tokens": 4, "metadata": {"sessionId": "s", "promptId": "p"}, "tools": [TOOL]},
    "Spring AI": {"model": "demo", "messages": [{"role": "user", "content": "hi", "annotations": None}], "stream": False, "temperature": 0.7, "extra_body": {}, "store": False},
    "LangChain4j": {"model": "demo", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "temperature": 0.7, "stream": False, "tool_choice": "auto", "tools": [TOOL], "max_tokens": 4},
    "Semantic Kernel": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "model": "demo", "max_completion_tokens": 4, "tool_choice": "none", "tools": [TOOL], "store": False, "metadata": {}},
    "go-openai": {"model": "demo", "messages": HI, "max_tokens": 4, "chat_template_kwargs": {"enable_thinking": False}, "stream_options": None, "logit_bias": {}},
    "async-openai": {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 4, "service_tier": "auto", "modalities": ["text"], "web_search_options": None, "verbosity": None},
    "JetBrains AI": {"model": "demo", "messages": [{"role": "assistant", "content": "", "tool_calls": None}, *HI], "max_tokens": 4, "temperature": 0.0, "n": 1},
    "opencode": {"model": "demo", "max_tokens": 4, "messages": [{"role": "system", "content": "You are opencode."}, {"role": "system", "content": "<env></env>"}, *HI], "tools": [TOOL], "tool_choice": "auto"},
    "Crush": {"model": "demo", "max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "file", "file": {"file_data": "aGVsbG8="}}]}, {"role": "assistant", "reasoning_content": "so", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}]}, {"role": "tool", "tool_call_id": "c1", "content": "sun"}], "reasoning_effort": "xhigh", "user": "u"},
    "Roo Code": {"model": "demo", "max_tokens": 4, "messages": [{"role": "developer", "content": "Formatting re-enabled"}, *HI], "reasoning_effort": "low", "tools": [{"type": "function", "function": {**TOOL["function"], "strict": True}}], "tool_choice": "auto", "parallel_tool_calls": True},
    "Mistral": {"model": "demo", "max_tokens": 4, "messages": [*HI, {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": "x"}], "prefix": False}, *HI], "safe_prompt": False, "random_seed": 1, "prompt_mode": "reasoning"},
    "Copilot": {"model": "demo", "messages": HI, "temperature": 0.1, "top_p": 1, "max_tokens": 4, "n": 1, "intent": False, "tools": [TOOL], "tool_choice": "auto", "snippy": {"enabled": False}},
}  # fmt: skip


@pytest.mark.parametrize("client", BODIES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_bodies_of_clients(s, client, stream):
    body = {"seed": 1, **BODIES[client]}
    if not stream:
        ask(s, "/v1/chat/completions", body, CHAT)
        return
    body.update(stream=True, stream_options={"include_usage": True})
    chunks = list(s.events("/v1/chat/completions", body))
    assert chunks.pop() == "[DONE]"
    for c in chunks:
        check(c, CHUNK)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    ends = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    assert ends[-1] in ENDS and not any(ends[:-1])
    assert not chunks[-1]["choices"] and chunks[-1]["usage"]


def test_calls_and_log_probabilities(s):
    forced = {"messages": HI, "tools": [TOOL], "tool_choice": "required", "max_tokens": 60, "seed": 1}
    assert ask(s, "/v1/chat/completions", forced, CHAT)["choices"][0]["message"]["tool_calls"]
    named = {**forced, "tool_choice": {"type": "function", "function": {"name": "weather"}}, "stream": True}
    parts = [c for c in s.events("/v1/chat/completions", named) if c != "[DONE]"]
    for c in parts:
        check(c, CHUNK)
    first = next(p for c in parts for p in c["choices"][0]["delta"].get("tool_calls", []))
    assert first["id"] and first["type"] == "function" and first["function"]["name"] == "weather"
    ask(s, "/v1/chat/completions", {"messages": HI, "max_tokens": 3, "logprobs": True, "top_logprobs": 2}, CHAT)
    ask(s, "/v1/completions", {"prompt": "hi", "max_tokens": 3, "logprobs": 1}, TEXT)


def test_other_routes(s):
    ask(s, "/v1/completions", {"prompt": "Once", "max_tokens": 3}, TEXT)
    done = ask(s, "/v1/responses", {"input": "hi", "max_output_tokens": 4}, RESPONSE)
    for part in done["output"][0]["content"]:
        check(part, {"type": {"output_text"}, "text": str, "annotations": list})
    ask(s, "/v1/messages", {"model": "demo", "max_tokens": 4, "messages": HI}, CLAUDE)
    import requests

    check(requests.get(s.url + "/v1/models", timeout=20).json(), MODELS)


@pytest.mark.parametrize(
    "path,body",
    [
        ("/v1/chat/completions", {"messages": HI, "temperature": -1}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 9000}]}),
        ("/v1/completions", {}),
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/responses", {"input": 3}),
        ("/v1/nothing", {}),
    ],
)
def test_errors_are_objects(s, path, body):
    """go-openai and async-openai read `code` as a text; a number or a bare text for `error` hides the message."""
    r = s.post(path, body)
    assert r.status_code >= 400
    check(json.loads(r.text), ERROR)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v2/chat", "/generate_stream"])
def test_the_text_of_a_stream_is_utf_8(s, path):
    """requests, and what is built on it, reads lines of text by the charset of the header."""
    talk = [{"role": "user", "content": "Once"}]
    body = {"model": "é", "stream": True, "input": "Once", "inputs": "Once"}
    body |= {"max_output_tokens": 2} if path.endswith("responses") else {"max_tokens": 2, "messages": talk, "prompt": "Once"}
    with s.post(path, body, stream=True) as r:
        assert r.status_code == 200 and r.headers["content-type"] == "text/event-stream; charset=utf-8"
        text = "\n".join(r.iter_lines(decode_unicode=True))
        assert "data:" in text and "Ã" not in text
