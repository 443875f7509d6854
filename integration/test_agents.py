"""Bodies as coding agents send them, whole: what a server of another house cannot do must not end the conversation."""

import json
import re

import anthropic
import openai
import pytest
import requests
from serving import DEMO, Scripted, Service
from tool_talk import TEMPLATE

EPHEMERAL = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO, args=["--max-total-tokens", "1024", "--max-input-tokens", "960"]) as service:
        yield service


@pytest.fixture(scope="module")
def s():
    """A model without reasoning that says what it is told."""
    with Scripted(TEMPLATE.replace("<think></think>", "")) as service:
        yield service


def of_anthropic(s):
    return anthropic.Anthropic(base_url=s.url, api_key="-", max_retries=0)


def of_openai(s):
    return openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)


# ---------------------------------------------------------------- Claude Code

CLAUDE = {  # its headers, but for those of its SDK
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.0 (external, cli)",
    "authorization": "Bearer -",
}
BASH = {
    "name": "Bash",
    "description": "Executes a bash command.",
    "input_schema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
        "required": ["command"],
        "additionalProperties": False,
    },
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["example.org"]}
CALL = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>'


def claude_body(messages, **kw):
    return {
        "model": "claude-sonnet-4-5-20250929",
        "max_tokens": 32000,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "system": [
            {"type": "text", "text": "You are Claude Code.", "cache_control": EPHEMERAL},
            {"type": "text", "text": "\nBe brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": messages,
        "tools": [{**BASH, "cache_control": EPHEMERAL, "defer_loading": False}],
        "metadata": {"user_id": "user_0_account__session_0"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        **kw,
    }


def text(s, **kw):
    return {"type": "text", "text": s, **kw}


def ask(s, body):
    """A request as Claude Code sends it; the answer as its SDK puts it together."""
    r = s.post("/v1/messages?beta=true", body, headers=CLAUDE, stream=True)
    assert r.status_code == 200, r.text
    blocks, stop = [], None
    for line in r.iter_lines():
        if not line.startswith(b"data:"):
            continue
        e = json.loads(line[5:])
        if e["type"] == "content_block_start":
            blocks.append({**e["content_block"], "said": ""})
        elif e["type"] == "content_block_delta":
            blocks[e["index"]]["said"] += next(v for k, v in e["delta"].items() if k != "type")
        elif e["type"] == "message_delta":
            stop = e["delta"]["stop_reason"]
    return blocks, stop, r.headers.get("warning", "")


@pytest.mark.parametrize("thinking", [{"type": "enabled", "budget_tokens": 31999}, {"type": "adaptive"}, {"type": "disabled"}])
def test_a_first_question_of_claude_code(demo, thinking):
    reminder = text("<system-reminder>\nThe date is known.\n</system-reminder>")
    body = claude_body([{"role": "user", "content": [reminder, text("Hello!", cache_control=EPHEMERAL)]}], thinking=thinking)
    blocks, stop, warning = ask(demo, body)
    assert stop in ("end_turn", "tool_use", "max_tokens") and blocks
    assert ("thinking" in warning) == (thinking["type"] == "enabled")
    counted = {k: v for k, v in body.items() if k not in ("max_tokens", "stream", "metadata")}
    r = demo.post("/v1/messages/count_tokens?beta=true", counted, headers=CLAUDE)
    assert r.status_code == 200 and r.json()["input_tokens"] > 10
    assert ("thinking" in r.headers.get("warning", "")) == (thinking["type"] == "enabled")


def test_a_turn_of_claude_code_with_a_tool(s):
    talk = [{"role": "user", "content": [text(f"[[Let me look.\n{CALL}]]")]}]
    blocks, stop, _ = ask(s, claude_body(talk))
    assert [b["type"] for b in blocks] == ["text", "tool_use"] and stop == "tool_use"
    assert json.loads(blocks[1]["said"]) == {"command": "ls"}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    talk[0]["content"] = [text("What is here?")]
    talk += [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                text("Let me look."),
                {"type": "tool_use", "id": blocks[1]["id"], "name": "Bash", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": blocks[1]["id"],
                    "is_error": False,
                    "cache_control": EPHEMERAL,
                    "content": [text("a.c b.png"), image, {"type": "tool_reference", "tool_name": "Read"}],
                },
                text("[[Two files.]]"),
            ],
        },
    ]
    blocks, stop, warning = ask(s, claude_body(talk))
    assert [b["said"] for b in blocks] == ["Two files."] and stop == "end_turn"
    assert "image" in warning and "tool_result" in warning
    shown = {"role": "tool", "content": 'a.c b.png[image left out: this model reads text only]\n[tool "Read"]\n', "tool_call_id": "i"}
    assert counted(s, [tool_use("i"), result("i", talk[2]["content"][0]["content"])]) == chat_tokens(s, [chat_call("i"), shown])


def tool_use(i):
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "Bash", "input": {"command": "ls"}}]}


def result(i, content):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": content}]}


def chat_call(i):
    call = {"id": i, "type": "function", "function": {"name": "Bash", "arguments": {"command": "ls"}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def counted(s, messages, **kw):
    r = s.post("/v1/messages/count_tokens", {"messages": messages, **kw}, headers=CLAUDE)
    assert r.status_code == 200, r.text
    return r.json()["input_tokens"]


def chat_tokens(s, messages, **kw):
    return len(s.post("/chat_tokenize", {"messages": messages, **kw}).json()["tokenize_response"])


@pytest.mark.parametrize("tool", ["web_search_20250305", "web_fetch_20250910", "bash_20250124", "text_editor_20250728", "code_execution_20250825", "memory_20250818"])
def test_tools_of_anthropics_servers_are_left_out(s, tool):
    there = {"type": tool, "name": tool.rpartition("_")[0]}
    says = [{"role": "user", "content": "[[fine]]"}]
    alone = counted(s, says)
    assert counted(s, says, tools=[there]) == alone == counted(s, says, tools=[there], tool_choice={"type": "any"})
    assert counted(s, says, tools=[BASH, there]) == counted(s, says, tools=[BASH])
    for tools in ([there], [BASH, there]):
        for choice in ({"type": "auto"}, {"type": "tool", "name": there["name"]}):
            blocks, stop, warning = ask(s, claude_body(says, tools=tools, tool_choice=choice))
            assert [b["said"] for b in blocks] == ["fine"] and stop == "end_turn"
            assert re.fullmatch(r'299 - "[^"]*"', warning) and tool in warning
    assert f"tools: {tool}" in s.log


def test_what_other_servers_tools_said_is_text(s):
    said = [
        text("I search."),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "url": "http://x/", "title": "Cats", "encrypted_content": "c2VjcmV0" * 50}],
        },
        text("Cats it is."),
    ]
    talk = [{"role": "user", "content": "Cats?"}, {"role": "assistant", "content": said}]
    same = 'I search.\n[web_search {"query":"cats"}]\n[web_search_tool_result [{"type":"web_search_result","url":"http://x/","title":"Cats"}]]\nCats it is.'
    more = {"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A page."}}]}
    want = [*talk[:1], {"role": "assistant", "content": same}, {"role": "user", "content": "A page."}]
    assert counted(s, [*talk, more]) == chat_tokens(s, want)
    blocks, stop, _ = ask(s, claude_body([*talk, {"role": "user", "content": "[[yes]]"}], tools=[SEARCH]))
    assert [b["said"] for b in blocks] == ["yes"] and stop == "end_turn"


def test_what_means_nothing_here_is_no_error(s):
    says = [{"role": "user", "content": [text("[[one two three]]", cache_control=EPHEMERAL, citations=None)]}]
    servers = [{"type": "url", "url": "http://127.0.0.1:9/", "name": "x"}]
    body = claude_body(says, mcp_servers=servers, container={"id": "c", "skills": []}, service_tier="auto", temperature=1, top_k=None, stop_sequences=None)
    blocks, _, warning = ask(s, body)
    assert blocks[0]["said"] == "one two three" and "mcp_servers" in warning and "container" in warning
    blocks, stop, _ = ask(s, claude_body(says, stop_sequences=["three"], system="Be brief."))
    assert (blocks[0]["said"], stop) == ("one two ", "stop_sequence")
    blocks, _, warning = ask(s, claude_body(says, mcp_servers=[], container=None, thinking=None, tool_choice=None, metadata=None))
    assert blocks[0]["said"] == "one two three" and warning == ""


def test_a_warning_is_one_harmless_header(s):
    evil = {"type": 'x"\r\nset-cookie: a=b\\é' + "y" * 100, "name": "x"}
    many = [{"type": f"tool_{i:040}", "name": "x"} for i in range(100)]
    r = s.post("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "[[a]]"}], "tools": [evil, evil, *many]})
    assert r.status_code == 200 and "set-cookie" not in r.headers
    assert re.fullmatch(r'299 - "[ !#-\[\]-~]*"', r.headers["warning"]) and len(r.headers["warning"]) < 700
    assert r.headers["warning"].count("tools: x???set-cookie") == 1


def test_too_long_is_said_in_the_words_that_claude_code_looks_for(demo):
    with pytest.raises(anthropic.BadRequestError) as e:
        of_anthropic(demo).messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "the little cat " * 1000}])
    said = e.value.body["error"]
    assert said["type"] == "invalid_request_error" and re.fullmatch(r"prompt is too long: \d+ tokens > 960 maximum", said["message"])


def test_models_in_anthropics_shape(demo):
    c = of_anthropic(demo)
    page = c.models.list()
    (model,) = list(page)
    assert model.type == "model" and model.id == model.display_name and model.created_at.year == 1970
    assert page.has_more is False and page.first_id == page.last_id == model.id
    with pytest.raises(anthropic.NotFoundError, match="nobody") as e:
        c.models.retrieve("nobody")
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "not_found_error"
    plain = requests.get(demo.url + "/v1/models", timeout=10).json()
    assert plain["object"] == "list" and plain["data"][0]["id"] == model.id
    assert of_openai(demo).models.list().data[0].id == model.id
