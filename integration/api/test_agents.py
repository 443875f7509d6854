"""Complete request bodies of coding agents: unsupported vendor features must not end the conversation."""

import json
import re
import time

import anthropic
import openai
import pytest
import requests
from serving import DEMO, Scripted, Service, strict
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
    assert model.type == "model" and model.id == model.display_name and abs(model.created_at.timestamp() - time.time()) < 600
    assert page.has_more is False and page.first_id == page.last_id == model.id
    with pytest.raises(anthropic.NotFoundError, match="nobody") as e:
        c.models.retrieve("nobody")
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "not_found_error"
    plain = requests.get(demo.url + "/v1/models", timeout=10).json()
    assert plain["object"] == "list" and plain["data"][0]["id"] == model.id
    theirs = of_openai(demo).models.list().data[0]
    assert theirs.id == model.id and theirs.created == int(model.created_at.timestamp())


# ---------------------------------------------------------------- Codex

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "array", "items": {"type": "string"}}},
        "required": ["command"],
        "additionalProperties": False,
    },
}
PATCH_GRAMMAR = """start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF

filename: /([a-z.]{1,8})/
add_line: "+" /([a-z ]{0,8})/ LF -> line

%import common.LF
"""
PATCH_TEXT = r"\*\*\* Begin Patch\n(\*\*\* Add File: [a-z.]{1,8}\n(\+[a-z ]{0,8}\n)+|\*\*\* Delete File: [a-z.]{1,8}\n)+\*\*\* End Patch\n?"
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR},
}
SPACE = {
    "type": "namespace",
    "name": "mcp__x",
    "description": "d",
    "tools": [
        {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
        {"type": "function", "name": "wait", "parameters": {"type": "object", "properties": {}}},
    ],
}
LEFT_OUT = [
    {"type": "web_search", "external_web_access": False},
    {"type": "web_search_preview", "search_context_size": "low"},
    {"type": "local_shell"},
    {"type": "file_search", "vector_store_ids": ["v"]},
    {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation", "output_format": "png"},
    {"type": "tool_search", "execution": "client", "description": "d", "parameters": {}},
]


def user(words):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def codex_body(items, **kw):
    return {
        "model": "gpt-5-codex",
        "instructions": "You are Codex.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>all</permissions>"}]},
            user("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"),
            *items,
        ],
        "tools": [SHELL, PATCH, SPACE, *LEFT_OUT],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199-a",
        "text": {"verbosity": "low"},
        "client_metadata": {"x": "y"},
        "service_tier": "auto",
        **kw,
    }


def codex(s, body):
    """A request as Codex sends it: the items that were done, the last event's response, the warning."""
    headers = {"originator": "codex_cli_rs", "session_id": "0199-a", "accept": "text/event-stream", "authorization": "Bearer -"}
    r = s.post("/v1/responses", body, headers=headers, stream=True)
    assert r.status_code == 200, r.text
    done, deltas, last = [], {}, None
    for line in r.iter_lines():
        if line.startswith(b"data:"):
            last = json.loads(line[5:])
            if last["type"] == "response.output_item.done":
                done.append(last["item"])
            elif last["type"].endswith(".delta"):
                deltas[last["item_id"]] = deltas.get(last["item_id"], "") + last["delta"]
            elif last["type"] == "response.custom_tool_call_input.done":
                assert last["input"] == deltas[last["item_id"]]
    assert last["type"] in ("response.completed", "response.incomplete") and last["response"]["output"] == done
    return done, last["response"], r.headers.get("warning", "")


def test_a_first_question_of_codex(demo):
    items, response, warning = codex(demo, codex_body([user("Hello!")], max_output_tokens=40, temperature=0))
    assert items and response["store"] is False
    assert [t["type"] for t in response["tools"]] == ["function", "custom", "namespace"] and response["tools"][1]["format"] == PATCH["format"]
    assert all(f"tools: {t['type']} is" in warning for t in LEFT_OUT) and "apply_patch" in warning


def test_tools_that_are_left_out_cost_nothing(s):
    def n(tools, **kw):
        r = s.post("/v1/responses/input_tokens", {"input": "x", "tools": tools, **kw})
        assert r.status_code == 200, r.text
        return r.json()["input_tokens"]

    assert n([]) == n(LEFT_OUT) == n(LEFT_OUT, tool_choice="required") == n(LEFT_OUT, tool_choice={"type": "web_search"})
    assert n([SHELL]) == n([*LEFT_OUT, SHELL]) == n([SHELL, *LEFT_OUT], tool_choice={"type": "web_search"})
    assert f"tools: {LEFT_OUT[0]['type']}" in s.log
    nameless = s.post("/v1/responses", {"input": "x", "tools": [{"type": "custom"}]})
    assert nameless.status_code == 400 and "name" in nameless.json()["error"]["message"]


def call_of(name, arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_a_talk_of_codex(s):
    patch = '*** Begin Patch\n*** Add File: a"b.c\n+int x;\n*** End Patch\n'
    talk = [user(f"[[I look.\n{call_of('shell', {'command': ['ls']})}]]")]
    items, _, _ = codex(s, codex_body(talk))
    assert [i["type"] for i in items] == ["message", "function_call"] and json.loads(items[1]["arguments"]) == {"command": ["ls"]}
    talk = [user("What is here?"), {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAA"}, *items]
    talk.append({"type": "function_call_output", "call_id": items[1]["call_id"], "output": '{"output":"a.c"}'})
    items, response, _ = codex(s, codex_body([*talk, user(f"[[{call_of('apply_patch', {'input': patch})}]]")]))
    (call,) = items
    assert call["type"] == "custom_tool_call" and call["name"] == "apply_patch" and call["input"] == patch and call["status"] == "completed"
    talk += [user("Edit it."), call, {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}]
    items, _, _ = codex(s, codex_body([*talk, user("[[That is all.]]")]))
    assert items[0]["content"][0]["text"] == "That is all."
    whole = of_openai(s).responses.create(model="m", input=f"[[{call_of('apply_patch', {'input': patch})}]]", tools=[PATCH])
    assert whole.output[0].type == "custom_tool_call" and whole.output[0].input == patch and whole.output[0].id.startswith("ctc_")


def test_the_sdk_reads_custom_calls(s):
    with of_openai(s).responses.stream(model="m", input=f"[[{call_of('note', {'input': 'a b c'})}]]", tools=[{"type": "custom", "name": "note"}]) as stream:
        events = list(stream)
        final = strict(stream.get_final_response())
    assert final.output[0].type == "custom_tool_call" and final.output[0].input == "a b c" and final.tools[0].type == "custom"
    kinds = [e.type.removeprefix("response.") for e in events]
    deltas = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == "a b c" and len(deltas) > 1, "the input arrives in parts"
    assert kinds[2:-1] == ["output_item.added", *["custom_tool_call_input.delta"] * len(deltas), "custom_tool_call_input.done", "output_item.done"]


HISTORY = {  # what an item is in the prompt; None: nothing
    "web_search_call": ({"id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}, '[web_search {"type":"search","query":"cats"}]'),
    "file_search_call": ({"id": "fs_1", "queries": ["a"], "results": None}, '[file_search ["a"'),
    "image_generation_call": ({"id": "ig_1", "status": "completed", "result": "A" * 5000}, "[image_generation ]"),
    "mcp_call": ({"id": "m_1", "name": "look", "server_label": "x", "arguments": "{}", "output": "a page"}, "[look "),
    "local_shell_call": ({"call_id": "c1", "status": "completed", "action": {"type": "exec", "command": ["ls"]}}, '{"type": "exec", "command": ["ls"]}'),
    "custom_tool_call": ({"call_id": "c1", "name": "apply_patch", "input": "*** x"}, '"apply_patch"'),
    "shell_call": ({"call_id": "c1", "action": {"commands": ["ls"]}}, '"shell"'),
    "local_shell_call_output": ({"id": "c1", "output": "a.c b.c"}, "tool: a.c b.c"),
    "custom_tool_call_output": ({"call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]}, "tool: ok"),
    "function_call_output": ({"call_id": "c1", "output": [{"type": "input_text", "text": "ok"}, {"type": "input_image", "image_url": "data:x"}]}, "ok[input_image left out"),
    "shell_call_output": ({"call_id": "c1", "output": [{"stdout": "a.c", "outcome": {"type": "exit"}}]}, '"stdout":"a.c"'),
    "tool_search_call": ({"call_id": "c1", "execution": "client", "arguments": {"query": "q"}}, '"tool_search"'),
    "tool_search_output": ({"call_id": "c1", "execution": "client", "tools": [{"type": "function", "name": "f"}]}, '"name":"f"'),
    "item_reference": ({"id": "msg_1"}, None),
    "compaction": ({"encrypted_content": "x"}, None),
    "mcp_list_tools": ({"id": "l", "server_label": "x", "tools": []}, None),
    "reasoning": ({"summary": [], "encrypted_content": "x"}, None),
}


@pytest.mark.parametrize("kind", HISTORY)
def test_items_of_other_tools_are_read(s, kind):
    item, shown = HISTORY[kind]
    talk = [user("Why?"), {"type": kind, **item}]
    items, _, warning = codex(s, codex_body([*talk, user("[[So it is.]]")]))
    assert items[0]["content"][0]["text"] == "So it is."
    if shown is None:
        plain, _, _ = codex(s, codex_body([user("Why?"), user("[[So it is.]]")]))
        n = [s.post("/v1/responses/input_tokens", codex_body(t)).json()["input_tokens"] for t in (talk, talk[:1])]
        assert n[0] == n[1] and (kind == "reasoning" or kind in warning)
        return
    last = {"type": kind, **item}
    r = s.post("/v1/responses", {"input": [user("[["), last, user("]]")]})  # the model says all that stands between
    assert r.status_code == 200 and shown in "".join(p["text"] for o in r.json()["output"] for p in o["content"]), r.text


def test_tools_of_a_namespace(demo, s):
    def ask(items, **kw):
        return s.post("/v1/responses", {"input": items, "tools": [SHELL, SPACE], **kw})

    talk = [user(f"[[{call_of('mcp__x__look', {'at': 'door'})}]]")]
    (call,) = ask(talk).json()["output"]
    assert (call["type"], call["namespace"], call["name"], json.loads(call["arguments"])) == ("function_call", "mcp__x", "look", {"at": "door"})
    (plain,) = ask([user(f"[[{call_of('shell', {'command': ['ls']})}]]")]).json()["output"]
    assert plain["name"] == "shell" and "namespace" not in plain
    shown = s.post("/v1/responses", {"input": [user("[["), call, user("]]")]}).json()  # the model says all that stands between
    assert "mcp__x__look" in "".join(p["text"] for o in shown["output"] for p in o.get("content", [])) or shown["output"][0].get("name") == "mcp__x__look", shown
    for choice in (
        {"type": "function", "namespace": "mcp__x", "name": "wait"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "namespace": "mcp__x", "name": "wait"}]},
    ):
        forced = demo.post("/v1/responses", {"input": "Hello!", "tools": [SHELL, SPACE], "tool_choice": choice, "seed": 1}).json()
        assert [(o["namespace"], o["name"]) for o in forced["output"]] == [("mcp__x", "wait")], forced
    whole = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "namespace", "name": "mcp__x"}]}
    one = demo.post("/v1/responses", {"input": "Hello!", "tools": [SHELL, SPACE], "tool_choice": whole, "seed": 1}).json()["output"][0]
    assert one["namespace"] == "mcp__x" and one["name"] in ("look", "wait")
    for wrong in ({"type": "namespace", "tools": []}, {"type": "namespace", "name": "x", "tools": [{"type": "function"}]}):
        assert s.post("/v1/responses", {"input": "x", "tools": [wrong]}).status_code == 400


def test_allowed_tools(demo, s):
    now = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}

    def choice(mode, *tools):
        return {"type": "allowed_tools", "mode": mode, "tools": [{"type": t["type"], "name": t["name"]} for t in tools]}

    for seed in range(3):
        body = {"input": "Hello!", "tools": [SHELL, now, PATCH], "temperature": 1.5, "seed": seed}
        r = demo.post("/v1/responses", {**body, "tool_choice": choice("required", now)})
        assert [o["name"] for o in r.json()["output"]] == ["now"], r.text
    custom = demo.post("/v1/responses", {**body, "tools": [SHELL, {**PATCH, "format": None}], "tool_choice": choice("required", PATCH)}).json()
    assert [o["type"] for o in custom["output"]] == ["custom_tool_call"] and custom["tool_choice"]["type"] == "allowed_tools"
    n = [s.post("/v1/responses/input_tokens", {"input": "x", **kw}).json()["input_tokens"] for kw in ({"tools": [SHELL, now], "tool_choice": choice("auto", now)}, {"tools": [now]})]
    assert n[0] == n[1]
    none = s.post("/v1/responses", {"input": "[[fine]]", "tools": [SHELL], "tool_choice": choice("auto")})
    assert none.status_code == 200 and none.json()["output"][0]["content"][0]["text"] == "fine"
    for wrong in ({"type": "allowed_tools", "mode": "never", "tools": []}, {"type": "allowed_tools", "tools": []}):
        assert s.post("/v1/responses", {"input": "x", "tools": [SHELL], "tool_choice": wrong}).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("syntax", ["lark", "regex", None])
def test_a_custom_tool_that_must_be_called(demo, syntax, stream):
    grammar = {"type": "grammar", "syntax": syntax, "definition": PATCH_GRAMMAR if syntax == "lark" else "[a-f]{3,9}-[0-9]{2}"}
    tool = {**PATCH, "format": grammar if syntax else {"type": "text"}}
    want = {"lark": PATCH_TEXT, "regex": "[a-f]{3,9}-[0-9]{2}", None: "(?s).*"}[syntax]
    done = 0
    for seed in range(4):
        body = {"input": "Edit it.", "tools": [SHELL, tool], "temperature": 1.2, "seed": seed, "max_output_tokens": 400}
        body |= {"tool_choice": {"type": "custom", "name": "apply_patch"}, "stream": stream}
        if stream:
            items, response, _ = codex(demo, body)
        else:
            response = demo.post("/v1/responses", body).json()
            items = response["output"]
        (call,) = items
        assert call["type"] == "custom_tool_call" and call["name"] == "apply_patch" and call["call_id"]
        if response["status"] == "completed":
            done += 1
            assert call["status"] == "completed" and re.fullmatch(want, call["input"]), call["input"]
    assert done
    assert response["tool_choice"] == {"type": "custom", "name": "apply_patch"}


def test_a_grammar_that_is_none_is_refused(demo):
    for grammar, word in (({"syntax": "ebnf", "definition": "x"}, "syntax"), ({"syntax": "lark", "definition": "start: nowhere"}, "nowhere"), ({"syntax": "regex"}, "definition")):
        body = {"input": "x", "tools": [{**PATCH, "format": {"type": "grammar", **grammar}}], "tool_choice": "required"}
        r = demo.post("/v1/responses", body)
        assert r.status_code == 400 and word in r.json()["error"]["message"], r.text


@pytest.mark.parametrize("named, kw", [("previous_response_id", {"previous_response_id": "resp_1"}), ("background", {"background": True})])
def test_what_needs_a_memory_is_refused_by_name(s, named, kw):
    r = s.post("/v1/responses", codex_body([user("x")], **kw))
    assert r.status_code == 400 and r.json()["error"]["param"] == named
    kept = s.post("/v1/responses", {"input": "[[x]]", "store": True})
    assert kept.status_code == 200 and kept.json()["store"] is False


@pytest.mark.parametrize("strict_one", [True, False])
def test_strict_tools_in_free_answers(strict_one, tmp_path):
    """What is said without a call is as without `strict`; a schema that cannot be kept is refused by name, where it must be kept."""
    (tmp_path / "t.json").write_text(json.dumps({"chat_template": TEMPLATE}))

    def tool(parameters, **more):
        return {"type": "function", "function": {"name": "f", "parameters": parameters, **more}}

    with Service(DEMO, args=["--tokenizer-config-path", tmp_path / "t.json"]) as s:
        body = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 30, "temperature": 0}
        fine = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        plain = s.post("/v1/chat/completions", {**body, "tools": [tool(fine, strict=False)]}).json()
        kept = s.post("/v1/chat/completions", {**body, "tools": [tool(fine, strict=strict_one)]}).json()
        shown = "true" if strict_one else "false"  # the template shows the tool as it was sent
        assert len(plain["choices"][0]["message"]["content"]) > 20 and kept["choices"][0]["message"]["content"], shown
        odd = {"type": "object", "properties": {"s": {"type": "string", "pattern": "(?<=a)b"}}}
        r = s.post("/v1/chat/completions", {**body, "tools": [tool(odd, strict=strict_one)]})
        assert r.status_code == (400 if strict_one else 200), r.text
        if strict_one:
            assert "grammar is not valid" in r.json()["error"]["message"]
        r = s.post("/v1/responses", {"input": "Once", "max_output_tokens": 20, "tools": [{"type": "function", "name": "f", "parameters": odd, "strict": strict_one}]})
        assert r.status_code == (400 if strict_one else 200), r.text
