"""Fields, blocks and items that the SDKs of 2026 know and agents send: what changes an answer has an effect or is refused by name."""

import json

import pytest
from serving import Scripted
from tool_talk import TEMPLATE

PLAIN = TEMPLATE.replace("<think></think>", "")
END = "{%- if add_generation_prompt %}"
assert END in PLAIN


def seen(expression):
    """A model that says what the template sees."""
    return Scripted(PLAIN.replace(END, "[[ {{ " + expression + " }} ]]" + END))


@pytest.fixture(scope="module")
def s():
    with Scripted(PLAIN) as service:
        yield service


@pytest.fixture(scope="module")
def tools():
    with seen("(tools | default([], true)) | tojson") as service:
        yield service


def messages(s, content="Hello!", beta=None, **kw):
    body = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": content}], **kw}
    return s.post("/v1/messages", body, headers={"anthropic-version": "2023-06-01"})


def said(r):
    assert r.status_code == 200, r.text
    return "".join(b.get("text", "") for b in r.json()["content"]).strip()


def tool(name, **kw):
    return {"name": name, "description": "Does it.", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}, **kw}


def shown(r):
    return [t["function"] for t in json.loads(said(r))]


# ---------------------------------------------------------------- Anthropic's


def test_effort_is_seen_by_the_template():
    with seen("reasoning_effort | default('none said')") as s:
        for config, effort in (({"effort": "low"}, "low"), ({"effort": "xhigh"}, "xhigh"), ({}, "none said"), ({"effort": None}, "none said")):
            assert said(messages(s, output_config=config)) == effort
        r = messages(s, output_config={"effort": 5})
        assert r.status_code == 400 and "effort" in r.text
        r = messages(s, output_config={"effort": "high", "task_budget": {"type": "tokens", "total": 5000}})
        assert said(r) == "high" and "task_budget" in r.headers["warning"]


def test_members_of_tools(tools):
    strict, examples, plain = shown(messages(tools, tools=[tool("a", strict=True), tool("b", input_examples=[{"a": "x"}, {"a": "y"}]), tool("c", eager_input_streaming=True, allowed_callers=["direct"])]))
    assert strict["strict"] is True and "strict" not in plain and plain["description"] == "Does it."
    assert examples["description"] == 'Does it.\nExamples of inputs:\n{"a":"x"}\n{"a":"y"}'


def test_strict_tools_are_checked(tools):
    unknown = {"name": "a", "input_schema": {"type": "object", "properties": {"a": {"type": "nothing"}}}}
    assert messages(tools, tools=[unknown]).status_code == 200
    r = messages(tools, tools=[{**unknown, "strict": True}])
    assert r.status_code == 400 and "an unknown type" in r.text


def change(kind, name=None, definition=None):
    of = {"type": "tool_definition", "definition": definition} if definition else {"type": "tool_reference", "name": name}
    return {"type": kind, "tool": of}


def test_tools_that_change_in_the_conversation(tools):
    def names(*blocks, **kw):
        return [f["name"] for f in shown(messages(tools, [*blocks, {"type": "text", "text": "x"}], **kw))]

    both = {"tools": [tool("a"), tool("b")]}
    assert names(**both) == ["a", "b"]
    assert names(change("tool_removal", "a"), **both) == ["b"]
    assert names(change("tool_removal", "a"), change("tool_addition", "a"), **both) == ["b", "a"]
    assert names(change("tool_addition", definition=tool("c")), **both) == ["a", "b", "c"]
    assert names(change("tool_addition", definition=tool("c"))) == ["c"], "without others"
    assert names(change("tool_addition", definition=tool("a", description="New.")), tools=[tool("a")]) == ["a"]
    assert names(change("tool_removal", "a"), tools=[tool("a")], tool_choice={"type": "auto"}) == []
    r = messages(tools, [change("tool_addition", "z"), {"type": "text", "text": "x"}], **both)
    assert r.status_code == 400 and "`z`" in r.text
    mcp = {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "mcp_server_name": "x"}}
    r = messages(tools, [mcp, {"type": "text", "text": "x"}], **both)
    assert len(shown(r)) == 2 and "mcp_toolset_reference" in r.headers["warning"]


def test_blocks_of_histories(s):
    """A summary is text of the prompt; what is no part of a prompt is left out, aloud where it held content."""
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "[["}, {"type": "compaction", "content": "We build a boat.", "encrypted_content": "x", "signature": "y"}]},
        {"role": "assistant", "content": [{"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, {"type": "text", "text": "Fine."}]},
        {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}, {"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": []}, {"type": "text", "text": "]]"}]},
    ]
    r = messages(s, **{"messages": talk})
    assert "We build a boat." in said(r) and "Fine." in said(r) and "fallback" not in said(r)
    assert "container_upload" in r.headers["warning"] and "mcp_tool_listing" in r.headers["warning"] and "fallback" not in r.headers["warning"]
    failed = messages(s, [{"type": "compaction", "content": None}, {"type": "text", "text": "[[x]]"}])
    assert said(failed) == "x"


def test_what_has_no_effect_on_an_answer_is_taken(s):
    kw = {
        "cache_control": {"type": "ephemeral"}, "inference_geo": "us", "speed": "fast", "service_tier": "auto", "user_profile_id": "u", "workspace_id": "w",
        "fallbacks": [{"model": "other"}], "fallback_credit_token": "t", "diagnostics": {"previous_message_id": None}, "billing_policy": {},
        "betas": ["interleaved-thinking-2025-05-14"], "thinking": {"type": "between_tools"},
    }  # fmt: skip
    assert said(messages(s, "[[x]]", **kw)) == "x"
    assert said(messages(s, "[[x]]", thinking={"type": "adaptive", "display": "summarized"})) == "x"
    r = messages(s, "[[x]]", tools=[{"type": t, "name": t} for t in ("browser_toolset_20260801", "computer_toolset_20260801", "advisor_20260301", "memory_20250818", "tool_search_tool_bm25", "mcp_toolset")])
    assert said(r) == "x" and "browser_toolset_20260801" in r.headers["warning"]


@pytest.mark.parametrize("name, value", [("thread", {"type": "continue", "previous_message_id": "msg_1"}), ("compaction", {"type": "summarize"})])
def test_what_would_be_another_answer_is_refused(s, name, value):
    r = messages(s, "[[x]]", **{name: value})
    assert r.status_code == 400 and f"`{name}`" in r.json()["error"]["message"]


def test_an_sdk_goes_on_without_a_thread(s):
    """Its runner of tools starts a thread unasked. Without these details it would fail, or leave out what the thread should hold."""
    r = messages(s, "[[x]]", thread={"type": "create"})
    assert r.json()["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert "details" not in messages(s, "[[x]]", compaction={"type": "summarize"}).json()["error"]


# ---------------------------------------------------------------- OpenAI's


def test_additional_tools_of_responses(tools):
    f = {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}}
    more = {"type": "additional_tools", "role": "developer", "tools": [f, {"type": "custom", "name": "note"}]}
    for given in ({}, {"tools": [{**f, "name": "f"}]}):
        r = tools.post("/v1/responses", {"input": [{"role": "user", "content": "x"}, more], **given})
        assert r.status_code == 200, r.text
        text = "".join(p["text"] for o in r.json()["output"] for p in o["content"])
        assert [t["function"]["name"] for t in json.loads(text)] == ["f"] * len(given) + ["g", "note"]


def test_a_custom_tool_that_was_added_is_called_as_one(s):
    call = '<tool_call>\n{"name": "note", "arguments": {"input": "a"}}\n</tool_call>'
    items = [{"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "note"}]}, {"role": "user", "content": f"[[{call}]]"}]
    r = s.post("/v1/responses", {"input": items})
    (out,) = r.json()["output"]
    assert out["type"] == "custom_tool_call" and out["input"] == "a"


def test_programs_of_histories(s):
    items = [{"role": "user", "content": "[["}, {"type": "program", "id": "p", "call_id": "c", "code": "f(1)", "fingerprint": "x"}, {"type": "program_output", "id": "o", "call_id": "c", "result": "It is 2.", "status": "completed"}, {"role": "user", "content": "]]"}]
    r = s.post("/v1/responses", {"input": items})
    text = "".join(p["text"] for o in r.json()["output"] for p in o["content"])
    assert "f(1)" in text and "It is 2." in text


def test_functions_keep_the_fields_beside_them():
    """The deprecated `functions` are converted, and what else the template reads stays."""
    with seen("enable_thinking | default('none said') ~ (reasoning_effort | default(''))") as s:
        functions = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
        for given, want in (({"enable_thinking": False}, "False"), ({"reasoning": {"effort": "high"}}, "none saidhigh"), ({}, "none said")):
            r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "functions": functions, **given})
            assert r.json()["choices"][0]["message"]["content"].strip().lower() == want.lower(), r.text


@pytest.mark.parametrize("path, message", [("/v1/chat/completions", "messages"), ("/v1/responses", "input")])
def test_what_has_no_effect_is_named(s, path, message):
    talk = {message: [{"role": "user", "content": "[[x]]"}]}
    for given, word in (({"verbosity": "low"}, "verbosity"), ({"text": {"verbosity": "high"}}, "verbosity"), ({"moderation": {"model": "x"}}, "moderation"), ({"web_search_options": {}}, "web_search_options")):
        r = s.post(path, {**talk, **given})
        assert r.status_code == 200 and word in r.headers["warning"], (given, r.text)
    for given in ({}, {"verbosity": "medium"}, {"verbosity": None, "moderation": None, "web_search_options": None}):
        assert "warning" not in s.post(path, {**talk, **given}).headers


def test_files_of_text_in_responses(s):
    def answer(*parts):
        return s.post("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "[["}, *parts, {"type": "input_text", "text": "]]"}]}]})

    for data in ("aGVsbG8=", "data:text/plain;base64,aGVsbG8="):
        r = answer({"type": "input_file", "filename": "a.txt", "file_data": data})
        assert r.status_code == 200 and "a.txt:\nhello" in r.json()["output"][0]["content"][0]["text"], r.text
    for part in ({"file_id": "file-1"}, {"file_url": "http://127.0.0.1/a.pdf"}, {"file_data": "data:application/pdf;base64,JVBERi0AAAA="}):
        r = answer({"type": "input_file", **part})
        assert r.status_code == 400 and "`file_data`" in r.json()["error"]["message"], r.text
    items = [{"role": "user", "content": "[["}, {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "filename": "a.txt", "file_data": "aGVsbG8="}]}, {"role": "user", "content": "]]"}]
    r = s.post("/v1/responses", {"input": items})
    assert "hello" in r.json()["output"][0]["content"][0]["text"] and "warning" not in r.headers


def test_an_effort_that_the_template_does_not_take():
    """Agents send one to every model; a template may raise an error for it."""
    check = "{% if reasoning_effort is defined and reasoning_effort not in ['none', 'high'] %}{{ raise_exception('one of none and high') }}{% endif %}"
    with Scripted(check + PLAIN.replace(END, "[[ {{ reasoning_effort | default('none said') }} ]]" + END)) as s:
        for given, used in (("high", "high"), ("xhigh", "high"), ("max", "high"), ("medium", "none said"), ("minimal", "none said")):
            r = messages(s, output_config={"effort": given})
            assert said(r) == used and (given == "high") == ("warning" not in r.headers), r.headers
            r = s.post("/v1/responses", {"input": "x", "reasoning": {"effort": given}})
            assert r.status_code == 200 and (given == "high" or given in r.headers["warning"])
        r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"reasoning_effort": "medium"}})
        assert r.status_code == 400 and "one of none and high" in r.text, "the template's own variables are the client's"
