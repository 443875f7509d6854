"""The pages for people in a real browser: Playwright drives Debian's Chromium (`make clients`). Without either it skips, aloud.

SCREENSHOTS=DIR keeps a picture of every look."""

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, SLOW, Process, Scripted, Service, data, wait_for  # noqa: E402

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the pages are not tried in a browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium (apt-get install chromium): the pages are not tried in a browser")
WAIT = 15000 * SLOW


@pytest.fixture(scope="module")
def s():
    with Service(DEMO) as service:
        yield service


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield b
        b.close()


class Visit:
    """One person at one page. Asks nobody but the server; the console stays silent unless `quiet` says otherwise."""

    def __init__(self, browser, url, path="/", quiet=True, **look):
        self.url, self.quiet, self.noise, self.outside, self.bodies = url, quiet, [], [], []
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **look})
        self.page = p = self.context.new_page()
        p.set_default_timeout(WAIT)
        p.on("console", lambda m: self.noise.append(m.text) if m.type in ("error", "warning") else None)
        p.on("pageerror", lambda e: self.noise.append(str(e)))
        p.on("request", self.asked)
        p.goto(url + path)
        if path == "/":
            self.until("document.getElementById('state').textContent === 'ready' && document.getElementById('facts').textContent !== ''")

    def asked(self, r):
        if not r.url.startswith(self.url + "/") and not r.url.startswith("data:"):
            self.outside.append(r.url)
        if r.method == "POST":
            self.bodies.append((r.url[len(self.url) :], r.post_data_json))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            assert self.outside == [] and not (self.quiet and self.noise), (self.outside, self.noise)

    def set(self, **fields):
        for name, value in fields.items():
            self.page.select_option("#" + name, value) if name == "mode" else self.page.fill("#" + name, str(value))

    def say(self, text, wait=True):
        self.page.fill("#say", text)
        self.page.press("#say", "Enter")
        if wait:
            self.ended()
        return self.answer()

    def until(self, js):
        """Until the expression is true. (wait_for_function would evaluate it inside the page, whose policy forbids that.)"""
        wait_for(lambda: self.page.evaluate(js), WAIT / 1000 / SLOW)

    def ended(self):
        self.until("document.getElementById('go').textContent === 'Send'")

    def endless(self):
        """From now on no answer ends by itself: what is to be seen while one streams is there as long as it takes."""
        self.page.route("**/completions", lambda r: r.continue_(post_data=json.dumps({**r.request.post_data_json, "ignore_eos": True})))

    def turn(self):
        return self.page.locator(".turn.assistant").last

    def answer(self):
        return self.turn().locator("> .text").inner_text()

    def again(self):
        self.turn().get_by_role("button", name="Answer again").click()
        self.ended()

    def script(self, *deltas, **last):
        """From now on an answer in chat mode is made of these deltas."""
        chunks = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas] + ([last] if last else [])
        body = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
        self.page.route("**/v1/chat/completions", lambda r: r.fulfill(body=body, content_type="text/event-stream"))

    def menu(self, title, action):
        self.page.get_by_label("Actions for " + title).click()
        self.page.locator("details.menu[open]").get_by_role("button", name=action).click()

    def foot(self):
        return self.turn().locator(".foot").inner_text()

    def shot(self, name):
        if os.environ.get("SCREENSHOTS"):
            self.page.screenshot(path=f"{os.environ['SCREENSHOTS']}/{name}.png")


def idle(s):
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_batch_current_size") == 0)


def said(s, text, **fields):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 60, **fields}
    return s.post("/v1/chat/completions", body).json()["choices"][0]


# ---------------------------------------------------------------- a conversation


def test_the_next_message_knows_the_last_one(s, browser):
    with Visit(browser, s.url) as v:
        v.shot("empty")
        v.set(temperature=0, max_tokens=300)
        got = v.say("Tell me a story about a rabbit.")
        assert got == said(s, "Tell me a story about a rabbit.", max_tokens=300)["message"]["content"]
        assert re.search(r"\d+ tokens in [\d.]+ s · [\d.]+ tokens/s · first after \d+ ms", v.foot()), v.foot()
        v.say("My name is Ann.")
        v.say("What is my name?")
        assert [m["role"] for m in v.bodies[-1][1]["messages"]] == ["user", "assistant"] * 2 + ["user"]
        assert "prompt tokens from the cache" in v.foot()
        v.shot("talk")
        v.page.click("#new")
        assert v.page.locator(".turn").count() == 0 and v.page.locator("#hello").is_visible()
        v.say("Hello!")
        assert len(v.bodies[-1][1]["messages"]) == 1


def test_it_is_told_how_far_the_prompt_is(browser):
    """Of a model that computes 32 tokens of it a step."""
    slow = {"said_in_prompt": 0, "words": [" tick"], "step_ms": 300, "takes_input_ids": True}
    with Scripted("{{ messages[-1].content }}", slow, args=["--max-batch-prefill-tokens", "32"]) as s, Visit(browser, s.url) as v:
        v.set(max_tokens=2)
        v.page.fill("#say", "The cat sat. " * 60)
        v.page.keyboard.press("Enter")
        v.turn().locator(".foot", has_text=re.compile(r"^reading the prompt: \d+ %$")).wait_for(timeout=WAIT)
        v.shot("reading")
        v.ended()
        assert "reading" not in v.foot() and "first after" in v.foot()


def test_ideas_copy_and_again(s, browser):
    with Visit(browser, s.url, permissions=["clipboard-read", "clipboard-write"]) as v:
        v.page.click("#ideas button:nth-child(2)")
        v.ended()
        first = v.answer()
        assert "Paris" in first
        v.turn().get_by_role("button", name="Copy").click()
        assert v.page.evaluate("navigator.clipboard.readText()") == first
        v.set(system="You are brief.")
        v.again()
        assert v.page.locator(".turn").count() == 2 and [m["role"] for m in v.bodies[-1][1]["messages"]] == ["system", "user"]
        v.page.press("#say", "ArrowUp")
        assert v.page.input_value("#say") == "What is the capital of France?"


def test_tokens_stream_and_stop_frees_the_blocks(s, browser):
    with Visit(browser, s.url) as v:
        v.endless()
        v.set(mode="text", max_tokens=1900)
        for stop in (lambda: v.page.click("#go"), lambda: v.page.keyboard.press("Escape")):
            v.say("Once upon a time", wait=False)
            tokens = "document.querySelectorAll('.turn.assistant:last-child .tok').length"
            v.until(tokens + " > 5")
            v.until(f"{tokens} > {v.page.evaluate(tokens)}")
            assert s.metric("kv_blocks", state="used") > 0 and v.page.inner_text("#go") == "Stop"
            stop()
            v.ended()
            assert "stopped" in v.foot() and len(v.answer()) > 5
            idle(s)


def test_stop_in_mid_answer(browser):
    """A model of ten words a second that never ends by itself: what was said when it is stopped stays, and nothing follows."""
    pytest.importorskip("grpc", reason="grpcio is not installed")
    with Scripted("{{ messages[-1].content }}", {"said_in_prompt": 0, "words": [" tick", " tock"], "step_ms": 100}) as s, Visit(browser, s.url) as v:
        v.set(max_tokens=1000)
        v.say("Go on.", wait=False)
        v.until("document.querySelector('.assistant .text').textContent.includes('tock tick')")
        assert v.turn().get_attribute("aria-busy") == "true" and v.page.inner_text("#go") == "Stop"
        v.page.keyboard.press("Escape")
        v.ended()
        said = v.answer()
        assert re.fullmatch(r"(tick tock )+(tick)?|tick( tock tick)*( tock)?", said.strip()) and "stopped" in v.foot()
        v.page.reload()
        v.until("document.getElementById('state').textContent === 'ready'")
        assert v.answer() == said and "stopped" in v.foot(), "and no word came after it"
        v.set(max_tokens=2)
        assert v.say("And again.") == "tick tock"
        assert [m["role"] for m in v.bodies[-1][1]["messages"]] == ["user", "assistant", "user"]


def test_what_is_set_is_what_is_sent(s, browser):
    with Visit(browser, s.url) as v:
        v.set(temperature=1.5, top_p=0.9, top_k=30, min_p=0.01, max_tokens=12, seed=7, system="Be kind.")
        one = v.say("Tell me a story!")
        path, body = v.bodies[-1]
        want = {"temperature": 1.5, "top_p": 0.9, "top_k": 30, "min_p": 0.01, "max_tokens": 12, "seed": 7}
        assert path == "/v1/chat/completions" and {k: body[k] for k in want} == want
        assert body["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me a story!"}]
        assert "12 tokens" in v.foot() and "cut at max tokens" in v.foot()
        assert one == s.post(path, {k: body[k] for k in [*want, "messages"]}).json()["choices"][0]["message"]["content"]
        v.page.reload()
        assert v.page.input_value("#seed") == "7", "settings outlive a reload"
        v.page.click("#defaults")
        v.page.reload()
        assert (v.page.input_value("#seed"), v.page.input_value("#temperature"), v.page.input_value("#system")) == ("", "0.7", "")
        v.set(mode="text", max_tokens=8, temperature=0)
        text = v.say("Once upon a time")
        assert v.bodies[-1][0] == "/v1/completions"
        assert text == s.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}).json()["choices"][0]["text"]


def test_hover_tells_the_server_s_log_probabilities(s, browser):
    with Visit(browser, s.url) as v:
        v.set(temperature=1, seed=3, max_tokens=30)
        v.say("Tell me a story!")
        v.turn().get_by_role("button", name="Show the tokens").click()
        want = said(s, "Tell me a story!", temperature=1, seed=3, max_tokens=30, logprobs=True, top_logprobs=4)["logprobs"]["content"]
        i = max(range(len(want)), key=lambda i: -want[i]["logprob"] if want[i]["token"].strip() else -1)
        v.page.locator(".tok").nth(i).hover()
        tip = v.page.inner_text("#tip")
        assert f"chosen {json.dumps(want[i]['token'])}, log-probability {want[i]['logprob']:.3f}" in tip
        for t in want[i]["top_logprobs"]:
            assert json.dumps(t["token"]) in tip
        v.shot("tip")
        v.page.mouse.move(5, 5)
        assert not v.page.locator("#tip").is_visible()
        v.page.check("#tint")
        tints = v.page.eval_on_selector_all(".tok", "es => es.map(e => getComputedStyle(e).backgroundColor)")
        assert len(set(tints)) > 1
        v.shot("tint")


def test_markup_of_a_person_or_a_model_is_text(s, browser):
    with Visit(browser, s.url) as v:
        evil = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"
        v.script({"content": evil})
        assert v.say(evil) == evil and v.page.locator(".user .text").inner_text() == evil
        assert v.page.title() != "evil" and v.page.locator("#talk img").count() == 0


def test_reasoning_is_shown_apart_and_folded(s, browser):
    with Visit(browser, s.url) as v:
        v.script({"role": "assistant", "content": ""}, {"reasoning_content": "They greet"}, {"reasoning_content": " me."}, {"content": "Hi"}, {"content": "!"})
        assert v.say("Hello!") == "Hi!"
        think = v.turn().locator("details.think")
        assert think.text_content() == "ReasoningThey greet me." and think.get_attribute("open") is None


def test_tool_calls_are_folded(s, browser):
    call = lambda **f: {"tool_calls": [{"index": 0, "function": f}]}
    with Visit(browser, s.url) as v:
        v.script(call(name="weather", arguments=""), call(arguments='{"city":'), call(arguments=' "Oslo"}'))
        v.say("How is the weather?")
        tool = v.turn().locator("details.tool")
        assert tool.text_content() == 'Tool call: weather{"city": "Oslo"}' and tool.get_attribute("open") is None
        tool.locator("summary").press("Enter")
        assert tool.locator(".inside").is_visible()


# ---------------------------------------------------------------- Markdown

MARKDOWN = """## Sorting

Use `sorted` with a **key**.

```python
def oldest(people):
    return sorted(people)
```

| Name | Age |
|------|----:|
| Ann  | 41  |

[good](https://example.org/a) [bad](javascript:document.title='evil') ![pixel](https://example.org/x.png) <b onclick="document.title='evil'">html</b>
<img src=x onerror="document.title='evil'"><iframe src="/docs"></iframe><style>body{display:none}</style>
"""


@pytest.fixture
def formats(s, browser):
    with Visit(browser, s.url) as v:
        if not v.page.evaluate("rich !== null"):
            pytest.skip("the router was built without markdown-it and DOMPurify: answers are plain text")


def test_answers_are_markdown(s, browser, formats):
    with Visit(browser, s.url, permissions=["clipboard-read", "clipboard-write"]) as v:
        v.script({"content": MARKDOWN})
        v.say("How do I sort?")
        text = v.turn().locator(".text")
        assert text.locator("h2").inner_text() == "Sorting" and text.locator("strong").inner_text() == "key"
        assert text.locator("pre code").text_content() == "def oldest(people):\n    return sorted(people)\n"
        assert text.locator(".bar span").inner_text() == "python" and text.locator("td.right").inner_text() == "41"
        if v.page.evaluate("typeof hljs !== 'undefined'"):
            assert text.locator(".hljs-keyword").first.inner_text() == "def"
        text.get_by_role("button", name="Copy the code").click()
        assert v.page.evaluate("navigator.clipboard.readText()") == "def oldest(people):\n    return sorted(people)\n"
        v.shot("markdown")


def test_markdown_runs_nothing_and_loads_nothing(s, browser, formats):
    with Visit(browser, s.url) as v:
        v.script({"content": MARKDOWN})
        v.say("How do I sort?")
        text = v.turn().locator(".text")
        assert text.locator("img, iframe, style, script, [onclick], [onerror], [style]").count() == 0
        links = text.locator("a")
        assert [links.nth(i).get_attribute("href") for i in range(links.count())] == ["https://example.org/a", "https://example.org/x.png"]
        assert links.first.get_attribute("rel") == "noopener noreferrer"
        assert v.page.title() != "evil"
    with Visit(browser, s.url, quiet=False) as v: # the policy's own word against handlers, before the sanitiser drops them
        evil = """<a href="javascript:document.title='evil'">x</a><img src=x onerror="document.title='evil'"><svg onload="document.title='evil'"></svg><math><mi//xlink:href="data:x,<script>1</script>">"""
        clean = "html => { const d = document.createElement('div'); d.append(sanitize(html)); return d.innerHTML }"
        assert v.page.evaluate(clean, evil) == "<a target=\"_blank\" rel=\"noopener noreferrer\">x</a>", "the sanitiser by itself"
        assert v.page.title() != "evil"


def test_the_policy_refuses_what_is_not_the_page_s_own(s, browser):
    with Visit(browser, s.url, quiet=False) as v:
        run = "() => { const e = document.createElement('script'); try { e.textContent = \"document.title = 'evil'\" } catch { } document.body.append(e); return document.title }"
        assert v.page.evaluate(run) != "evil"
        assert v.page.evaluate("() => { try { document.body.insertAdjacentHTML('beforeend', '<p>'); return 'went' } catch (e) { return e.name } }") == "TypeError", "no HTML but through DOMPurify"
        assert v.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'went', () => 'refused')") == "refused"
        v.outside.clear()
        policy = requests.get(s.url + "/", headers={"accept": "text/html"}).headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy


# ---------------------------------------------------------------- what the browser keeps


def test_a_reload_keeps_the_talk(s, browser):
    with Visit(browser, s.url) as v:
        v.set(temperature=0, max_tokens=40)
        v.say("My name is Ann.")
        v.say("What is my name?")
        was = v.page.locator("#talk").inner_text()
        v.page.reload()
        v.until("document.getElementById('state').textContent === 'ready'")
        assert v.page.locator(".turn").count() == 4
        assert [t for t in was.split("\n") if t and t != "Tokens"] == [t for t in v.page.locator("#talk").inner_text().split("\n") if t]
        v.say("Thank you.")
        assert [m["content"] for m in v.bodies[-1][1]["messages"]][::2] == ["My name is Ann.", "What is my name?", "Thank you."]


def test_a_reload_in_mid_answer_keeps_what_was_said(s, browser):
    with Visit(browser, s.url) as v:
        v.endless()
        v.set(mode="text", max_tokens=1900)
        v.say("Once upon a time", wait=False)
        v.until("(kept(talk.id) || {list: []}).list.some(m => m.role === 'assistant' && m.content.length > 5)")
        v.page.reload()
        v.until("document.getElementById('state').textContent === 'ready'")
        assert v.page.locator(".turn").count() == 2 and len(v.answer()) > 5
    idle(s)


def test_history_is_listed_renamed_deleted(s, browser):
    with Visit(browser, s.url) as v:
        v.set(temperature=0, max_tokens=10)
        titles = lambda: v.page.locator("#talks .title").all_inner_texts()
        v.say("The first one.")
        v.page.click("#new")
        v.say("The second one.")
        assert titles() == ["The second one.", "The first one."]
        v.menu("The first one.", "Rename")
        v.page.keyboard.type("A better name")
        v.page.keyboard.press("Enter")
        assert "A better name" in titles()
        v.page.get_by_role("navigation").get_by_role("button", name="A better name", exact=True).click()
        assert v.page.locator(".user .text").inner_text() == "The first one."
        assert v.page.locator("#talks [aria-current=true]").inner_text() == "A better name"
        v.menu("A better name", "Delete")
        assert titles() == ["The second one."] and v.page.locator(".turn").count() == 0
        v.page.click("#toast button")
        assert sorted(titles()) == ["A better name", "The second one."] and v.page.locator(".turn").count() == 2
        v.shot("history")
        v.menu("A better name", "Delete")
        v.page.reload()
        assert titles() == ["The second one."]


def test_export_and_import(s, browser, tmp_path):
    talk = ["Hello!", "Say ``` and <!-- user -->\n## User\n\nas it is"]
    with Visit(browser, s.url) as v:
        v.set(temperature=0, max_tokens=10)
        for text in talk:
            v.page.fill("#say", text)
            v.page.press("#say", "Enter")
            v.ended()
        shown = v.page.locator(".turn .text").all_inner_texts()
        for action, name in (("Export JSON", "t.json"), ("Export Markdown", "t.md")):
            with v.page.expect_download() as d:
                v.menu("Hello!", action)
            d.value.save_as(tmp_path / name)
        with v.page.expect_download() as d:
            v.page.click("#export")
        d.value.save_as(tmp_path / "all.json")
    (tmp_path / "openai.json").write_text(json.dumps({"messages": [{"role": "user", "content": "From elsewhere"}, {"role": "assistant", "content": "Hi."}]}))
    (tmp_path / "bad.json").write_text('{"talks": [{"list": [{"id": 1, "role": "root", "content": {}}]}]}')
    for name in ("t.json", "t.md", "all.json"):
        with Visit(browser, s.url) as v:
            v.page.set_input_files("#import_file", tmp_path / name)
            api.expect(v.page.locator(".turn")).to_have_count(4)
            assert v.page.locator(".turn .text").all_inner_texts() == shown, name
            assert v.page.locator("#talks .title").all_inner_texts() == ["Hello!"]
    with Visit(browser, s.url) as v:
        v.page.set_input_files("#import_file", tmp_path / "openai.json")
        api.expect(v.page.locator(".turn")).to_have_count(2)
        v.page.set_input_files("#import_file", tmp_path / "bad.json")
        api.expect(v.page.locator("#toast")).to_contain_text("bad.json was not imported")
        assert v.page.locator("#talks .title").count() == 1


# ---------------------------------------------------------------- versions of a message


def test_editing_makes_a_branch(s, browser):
    with Visit(browser, s.url) as v:
        v.set(temperature=0, max_tokens=12)
        v.say("What is the capital of France?")
        v.say("Thank you.")
        v.page.locator(".turn.user").first.get_by_role("button", name="Edit").click()
        v.page.get_by_label("Edit the message").fill("What is the capital of Italy?")
        v.page.keyboard.press("Enter")
        v.ended()
        assert v.page.locator(".turn").count() == 2 and "Rome" in v.answer()
        assert [m["content"] for m in v.bodies[-1][1]["messages"]] == ["What is the capital of Italy?"]
        first = v.page.locator(".turn.user").first
        assert first.locator(".versions").inner_text().replace("\n", "") == "‹2/2›"
        first.get_by_role("button", name="Previous version").click()
        assert v.page.locator(".turn").count() == 4 and "Paris" in v.page.locator(".assistant .text").first.inner_text()
        assert v.page.evaluate("document.activeElement.title") == "Next version", "the keyboard goes on from there"
        v.page.reload()
        assert v.page.locator(".turn").count() == 4, "and the choice is kept"
        v.again()
        assert v.turn().get_by_label("Version 2 of 2").count() == 1
        v.turn().get_by_role("button", name="Edit").click()
        v.page.get_by_label("Edit the message").fill("You are welcome, Ann.")
        v.page.get_by_role("button", name="Save").click()
        assert v.answer() == "You are welcome, Ann." and v.turn().get_by_label("Version 3 of 3").count() == 1
        v.say("What?")
        assert v.bodies[-1][1]["messages"][3]["content"] == "You are welcome, Ann."
        v.shot("versions")


def test_text_files_go_with_a_message(s, browser):
    with Visit(browser, s.url) as v:
        v.set(temperature=0, max_tokens=5)
        files = [("notes.txt", "Ann is 41.\n```\n"), ("a.bin", b"\x00\xff\xfe")]
        v.page.set_input_files("#attach_file", [{"name": n, "mimeType": "", "buffer": t if isinstance(t, bytes) else t.encode()} for n, t in files])
        api.expect(v.page.locator("#toast")).to_contain_text("a.bin was not attached: it is not text")
        assert v.page.locator("#files .chip").count() == 1
        v.shot("attached")
        v.say("How old is Ann?")
        assert v.bodies[-1][1]["messages"][0]["content"] == "notes.txt:\n````\nAnn is 41.\n```\n````\n\nHow old is Ann?"
        assert v.page.locator("#files .chip").count() == 0
        assert v.page.locator(".user .file summary").inner_text() == "notes.txt" and v.page.locator(".user .text").inner_text() == "How old is Ann?"


# ---------------------------------------------------------------- limits


def test_numbers_are_checked_in_the_form(s, browser):
    with Visit(browser, s.url) as v:
        for field, value, text in (("top_p", 7, "Top p: a number from 0.01 to 1"), ("seed", 1.5, "Seed: a whole number, 0 or more"), ("max_tokens", 99999, "Max tokens: a whole number from 1 to 2048")):
            before = v.page.input_value("#" + field)
            v.set(**{field: value})
            assert v.page.inner_text("#wrong") == text and v.page.get_attribute("#" + field, "aria-invalid") == "true"
            v.page.fill("#say", "Hello!")
            v.page.press("#say", "Enter")
            assert v.page.evaluate("document.activeElement.id") == field and v.page.locator(".turn").count() == 0 and v.bodies == []
            v.set(**{field: before})
            assert v.page.inner_text("#wrong") == ""
        assert v.say("Hello!")


def test_a_full_context_says_so_and_is_trimmed(s, browser):
    with Visit(browser, s.url, quiet=False) as v:
        v.set(temperature=0, max_tokens=30)
        for i in range(3):
            v.page.fill("#say", f"Part {i}: " + "the rabbit went to the river and " * 75)
            v.page.press("#say", "Enter")
            v.ended()
            if v.page.locator("#room").is_visible():
                break
        v.say("What is the capital of France? " + "Please tell me about the river. " * 60)
        v.until("!document.getElementById('room').hidden")
        assert "context is" in v.page.inner_text("#room") and v.page.get_attribute("#room", "role") == "status"
        asked = len(v.page.locator(".turn.user").all())
        v.shot("full")
        v.page.click("#trim")
        v.until("document.querySelector('.cut') && document.getElementById('go').textContent === 'Send'")
        assert v.answer() and v.page.locator(".turn.assistant").last.locator("[role=alert]").count() == 0
        v.say("Thank you.")
        sent = [m for m in v.bodies[-1][1]["messages"] if m["role"] == "user"]
        assert 1 <= len(sent) < asked + 1 and v.page.locator(".turn.assistant [role=alert]").count() == 0
        v.page.get_by_role("button", name="Send them again").click()
        assert v.page.locator(".cut").count() == 0
        v.shot("trimmed")


def test_a_model_without_a_template_continues_texts(browser, tmp_path):
    for f in pathlib.Path(DEMO).iterdir():
        if f.name != "tokenizer_config.json" and f.is_file():
            (tmp_path / f.name).symlink_to(f)
    config = json.loads((DEMO / "tokenizer_config.json").read_text())
    config.pop("chat_template")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with Service(tmp_path) as s, Visit(browser, s.url) as v:
        assert v.page.input_value("#mode") == "text" and v.page.locator("#no_template").is_visible()
        v.set(max_tokens=8, temperature=0)
        assert v.say("Once upon a time") and v.bodies[-1][0] == "/v1/completions"


# ---------------------------------------------------------------- the server beside it


def test_charts_move(s, browser):
    with Visit(browser, s.url) as v:
        v.endless()
        v.set(mode="text", max_tokens=1900)
        before = v.page.eval_on_selector_all("svg path", "ps => ps.map(p => p.getAttribute('d'))")
        v.say("Once upon a time", wait=False)
        v.until("document.getElementById('v1').textContent === '1' && Number(document.getElementById('v3').textContent) > 5")
        assert re.fullmatch(r"[\d.]+ %", v.page.inner_text("#v2")) and v.page.inner_text("#v0") == "0"
        after = v.page.eval_on_selector_all("svg path", "ps => ps.map(p => p.getAttribute('d'))")
        assert len(after) == 4 and all(a and a != b for a, b in zip(after, before))
        v.page.keyboard.press("Escape")
        v.until("document.getElementById('v1').textContent === '0'")


def refuse_top_p(v):
    """The form would not send this; what the server says to it is to be seen."""
    v.page.route("**/completions", lambda r: r.continue_(post_data=json.dumps({**r.request.post_data_json, "top_p": 7})))


def test_errors_are_said(s, browser):
    with Visit(browser, s.url, quiet=False) as v:
        refuse_top_p(v)
        v.say("Hello!")
        assert "`top_p`" in v.turn().locator("[role=alert]").inner_text()
        v.page.unroute("**/completions")
        v.again()
        assert v.page.locator(".turn [role=alert]").count() == 0 and v.answer() and v.page.locator(".versions").count() == 0


def test_the_server_goes_away_and_comes_back(browser):
    s = Service(DEMO)
    try:
        with Visit(browser, s.url, quiet=False) as v:
            v.endless()
            v.set(mode="text", max_tokens=1900)
            v.say("Once upon a time", wait=False)
            v.until("document.querySelectorAll('.tok').length > 5")
            s.p.send_signal(signal.SIGKILL)
            s.p.wait()
            v.ended()
            assert "does not answer" in v.turn().locator("[role=alert]").inner_text() and len(v.answer()) > 5
            v.until("document.getElementById('state').textContent === 'does not answer'")
            v.say("Once")
            assert "does not answer" in v.turn().locator("[role=alert]").inner_text()
            v.shot("gone")
            again = Process(s.argv)
            try:
                v.until("document.getElementById('state').textContent === 'ready'")
                v.set(max_tokens=5)
                v.again()
                assert v.answer() and v.page.locator(".turn [role=alert]").count() == 1
            finally:
                assert again.stop() == 0
    finally:
        s.stop(signal.SIGKILL)


def test_a_key_is_asked_for_and_kept_out_of_the_disk(browser):
    with Service(DEMO, env={"API_KEY": "secret"}) as s, Visit(browser, s.url, quiet=False) as v:
        v.say("Hello!")
        assert v.turn().locator("[role=alert]").inner_text()
        v.set(key="secret")
        assert v.say("Hello!")
        assert "secret" not in v.page.evaluate("JSON.stringify(localStorage)")
        v.page.click("#code")
        assert "secret" not in v.page.inner_text("#curl") + v.page.inner_text("#python") and "$API_KEY" in v.page.inner_text("#curl")


def test_a_model_can_be_chosen(browser, tmp_path):
    (tmp_path / "other").symlink_to(DEMO)
    with Service(DEMO, args=["--models-folder", tmp_path]) as s, Visit(browser, s.url) as v:
        assert v.page.locator("#models option").all_inner_texts()[1:] == ["other"]
        v.page.select_option("#models", "other")
        v.set(temperature=0)
        assert v.say("Hello!") == said(s, "Hello!")["message"]["content"] and v.bodies[-1][1]["model"] == "other"


# ---------------------------------------------------------------- the same from a program


@pytest.mark.parametrize("mode", ["chat", "text"])
def test_the_code_that_it_shows_runs(s, browser, mode):
    pytest.importorskip("openai", reason="openai is not installed")
    with Visit(browser, s.url) as v:
        v.set(mode=mode, temperature=0, max_tokens=20, top_k=3, system="Ann's \"friend\"\n$HOME `x`")
        want = v.say("It's Ann's \"turn\": say é $HOME `date` \\n")
        v.page.click("#code")
        v.shot("code-" + mode)
        python = subprocess.run([sys.executable, "-c", v.page.text_content("#python")], capture_output=True, text=True, timeout=60 * SLOW)
        assert python.stdout == want + "\n", python.stderr
        curl = subprocess.run(["bash", "-c", v.page.text_content("#curl")], capture_output=True, text=True, timeout=60 * SLOW)
        chunks = [json.loads(line[6:]) for line in curl.stdout.splitlines() if line.startswith("data: {")]
        choices = [c["choices"][0] for c in chunks if c["choices"]]
        assert "".join(c["delta"].get("content") or "" if mode == "chat" else c["text"] for c in choices) == want
        v.page.keyboard.press("Escape")
        assert not v.page.locator("#use").is_visible()


def test_a_page_from_elsewhere_may_ask(browser):
    """What OpenAI's and Anthropic's SDKs send from a browser: headers of their own, a key, a preflight."""
    with Service(DEMO, env={"API_KEY": "secret"}) as s, Service(DEMO) as elsewhere:
        with Visit(browser, elsewhere.url, "/info", quiet=False) as v:
            ask = """async ([url, body, headers]) => { const r = await fetch(url, {method: 'POST', body: JSON.stringify(body), headers}); return [r.status, await r.text(), r.headers.get('x-request-id')] }"""
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
            own = {"content-type": "application/json", "x-stainless-os": "Linux", "x-stainless-retry-count": "0", "openai-organization": "o", "x-whatever": "1"}
            status, text, request = v.page.evaluate(ask, [s.url + "/v1/chat/completions", body, {**own, "authorization": "Bearer secret"}])
            assert status == 200 and json.loads(text)["choices"][0]["message"]["content"] and request
            other = {**own, "x-api-key": "secret", "anthropic-version": "2023-06-01", "anthropic-dangerous-direct-browser-access": "true"}
            assert v.page.evaluate(ask, [s.url + "/v1/messages", body, other])[0] == 200
            assert v.page.evaluate(ask, [s.url + "/v1/chat/completions", body, own])[0] == 401, "and the page can read why"
            v.outside.clear()


# ---------------------------------------------------------------- hands and eyes


def test_the_keyboard_is_enough(s, browser):
    with Visit(browser, s.url) as v:
        at = lambda: v.page.evaluate("document.activeElement.id")
        assert at() == "say", "the first key is heard"
        v.page.keyboard.type("Hello!")
        v.page.keyboard.press("Shift+Enter")
        v.page.keyboard.type("Who are you?")
        assert v.page.input_value("#say") == "Hello!\nWho are you?"
        v.page.keyboard.press("Enter")
        v.ended()
        assert v.answer() and at() == "say"
        order = []
        for _ in range(40):
            v.page.keyboard.press("Tab")
            order.append(at() or v.page.evaluate("document.activeElement.textContent"))
            if order[-1] == "say":
                break
        want = ["go", "defaults", "mode", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "system", "key", "tint", "HTTP interface", "code", "new", "theme", "talk", "Again"]
        assert [x for x in order if x in want] == want, order
        v.turn().get_by_role("button", name="Show the tokens").press("Enter")
        v.page.focus("#talk")
        v.page.keyboard.press("ArrowRight")
        v.page.keyboard.press("ArrowRight")
        assert v.page.locator(".tok.at").count() == 1 and "log-probability" in v.page.inner_text("#tip")
        v.page.keyboard.press("Escape")
        assert not v.page.locator("#tip").is_visible()
        v.page.keyboard.press("/")
        assert at() == "say" and v.page.input_value("#say") == ""
        v.page.keyboard.press("Alt+n")
        assert v.page.locator(".turn").count() == 0


NAMES = """() => [...document.querySelectorAll('button, input, select, textarea, main, aside, summary, dialog')].filter(e =>
    !(e.getAttribute('aria-label') || (e.labels && e.labels.length) || e.textContent.trim())).map(e => e.outerHTML)"""
CONTRAST = """() => {
  const rgb = s => { const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true}); c.fillStyle = s; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data] };
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
  const back = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c } return rgb('white') };
  const out = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || /^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName);
    if (!text || !e.getClientRects().length || getComputedStyle(e).fontSize === '0px') continue;
    for (const pseudo of e.placeholder ? [null, '::placeholder'] : [null]) {
      const a = light(rgb(getComputedStyle(e, pseudo).color)), b = light(back(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      if (ratio < 4.5) out.push([ratio.toFixed(2), e.tagName, e.id, e.textContent.slice(0, 30), pseudo]);
    }
  }
  return out;
}"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_it_can_be_read(s, browser, scheme):
    with Visit(browser, s.url, color_scheme=scheme, quiet=False) as v:
        background = "getComputedStyle(document.body).backgroundColor"
        dark = sum(map(int, re.findall(r"\d+", v.page.evaluate(background))[:3])) < 200
        assert dark == (scheme == "dark")
        assert v.page.evaluate(CONTRAST) == [] and v.page.evaluate(NAMES) == []
        v.script({"reasoning_content": "Hm."}, {"content": MARKDOWN})
        v.say("Hello!")
        v.page.unroute("**/v1/chat/completions")
        refuse_top_p(v)
        v.say("Hello!")
        v.set(top_p=7)
        v.shot("read-" + scheme)
        assert v.page.evaluate(CONTRAST) == [] and v.page.evaluate(NAMES) == []
        was = v.page.evaluate(background)
        v.page.click("#theme")
        now = v.page.evaluate(background)
        v.page.reload()
        assert was != now == v.page.evaluate(background), "the choice outlives a reload"
        v.page.goto(s.url + "/docs")
        v.page.wait_for_selector("details")
        assert now == v.page.evaluate(background), "both pages look alike"


def test_who_does_not_see_hears_whole_answers(s, browser):
    with Visit(browser, s.url) as v:
        log = v.page.get_by_role("log")
        assert log.get_attribute("aria-live") == "polite"
        v.endless()
        v.set(mode="text", max_tokens=1900)
        v.say("Once upon a time", wait=False)
        v.until("document.querySelectorAll('.tok').length > 3")
        assert v.turn().get_attribute("aria-busy") == "true", "not token by token"
        v.page.keyboard.press("Escape")
        v.ended()
        assert v.turn().get_attribute("aria-busy") == "false"


WIDE = "document.scrollingElement.scrollWidth - innerWidth"


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone(s, browser, width):
    with Visit(browser, s.url, viewport={"width": width, "height": 700}, has_touch=True, is_mobile=True) as v:
        assert v.page.evaluate(WIDE) <= 0 and not v.page.locator("#panel").is_visible()
        v.shot(f"phone-{width}-empty")
        v.page.fill("#say", "Tell me a story!" + "x" * 60)
        v.page.tap("#go")
        v.ended()
        assert v.page.evaluate(WIDE) <= 0
        v.shot(f"phone-{width}")
        v.turn().get_by_role("button", name="Show the tokens").tap()
        v.page.locator(".tok").first.tap()
        assert v.page.locator("#tip").is_visible()
        box = v.page.locator("#tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        v.page.tap("#more")
        assert v.page.locator("#temperature").is_visible() and v.page.get_attribute("#more", "aria-expanded") == "true"
        v.page.keyboard.press("Escape") if v.page.locator("#tip").is_visible() else None
        v.shot(f"phone-{width}-settings")
        v.page.keyboard.press("Escape")
        assert not v.page.locator("#panel").is_visible()
        v.page.goto(s.url + "/docs")
        v.page.locator("summary").first.tap()
        assert v.page.evaluate(WIDE) <= 0
        v.shot(f"phone-{width}-docs")


# ---------------------------------------------------------------- /docs


def test_docs(s, browser):
    with Visit(browser, s.url, "/docs", quiet=False) as v:
        v.page.wait_for_selector("details")
        document = requests.get(s.url + "/api-doc/openapi.json").json()
        assert v.page.locator("details").count() == sum(len(item) for item in document["paths"].values())
        assert v.page.evaluate(CONTRAST) == [] and v.page.evaluate(NAMES) == []
        v.page.fill("#find", "max_new_tokens_")
        assert v.page.locator("#none").is_visible()
        v.page.fill("#find", "generate_stream")
        one = v.page.locator("details:visible", has=v.page.locator("summary > code", has_text=re.compile("^/generate_stream$")))
        one.locator("summary").click()
        assert "inputs" in one.locator("table").first.inner_text() and "parameters.top_p" in one.locator("table").first.inner_text() and "required" in one.locator("table").first.inner_text()
        v.shot("docs")
        one.locator("button").click()
        api.expect(one.locator("pre")).to_contain_text("generated_text\":\"", timeout=WAIT)
        assert one.locator("pre").inner_text().startswith("200 OK")
        v.page.fill("#find", "/generate")
        two = v.page.locator("details", has=v.page.locator("summary > code", has_text=re.compile("^/generate$")))
        two.locator("summary").click()
        two.locator("textarea").fill('{"inputs": "x", "parameters": {"top_p": 7}}')
        two.locator("button").click()
        api.expect(two.locator("pre.bad")).to_contain_text("top_p", timeout=WAIT)
        v.page.fill("#find", "")
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize", "/detokenize", "/apply-template", "/vertex", "/info"):
            d = v.page.locator("details", has=v.page.locator("summary > code", has_text=re.compile(f"^{path}$"))).first
            d.locator("summary").click()
            d.locator("button").click()
            api.expect(d.locator("pre")).to_contain_text("200 OK", timeout=WAIT)


# ---------------------------------------------------------------- pictures
# Files as a person drops or pastes them.
GIVE = """([how, name, type, bytes]) => {
  const data = new DataTransfer(), raw = Uint8Array.from(atob(bytes), c => c.charCodeAt(0));
  data.items.add(new File([raw], name, { type }));
  if (how === "drop") document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  else document.getElementById("say").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def sees():
    with Service(data("vision/qwen3_vl"), args=["--payload-limit", 20000000]) as service:
        yield service


@pytest.mark.parametrize("look", [{}, {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}], ids=["desktop", "phone"])
def test_pictures_are_attached_dropped_and_pasted_shown_sent_and_kept(sees, browser, look):
    name = "phone" if look else "desktop"
    images = data("vision/images")
    with Visit(browser, sees.url, **look) as v:
        p = v.page
        p.set_input_files("#attach_file", str(images / "rgb_120x90.jpg"))
        v.until("document.querySelectorAll('#files img').length === 1")
        for n, (how, file, kind) in enumerate([("drop", "square_448x448.png", "image/png"), ("paste", "webp_lossless_70x50.webp", "image/webp")], 2):
            p.evaluate(GIVE, [how, file, kind, base64.b64encode((images / file).read_bytes()).decode()])
            v.until(f"document.querySelectorAll('#files img').length === {n}")
        v.shot("pictures-attached-" + name)
        v.say("What is this?")
        sent = [b for path, b in v.bodies if path == "/v1/chat/completions"][-1]["messages"][-1]["content"]
        assert [c["type"] for c in sent] == ["image_url"] * 3 + ["text"] and sent[3]["text"] == "What is this?"
        for part, file in zip(sent, ("rgb_120x90.jpg", "square_448x448.png", "webp_lossless_70x50.webp")):
            assert base64.b64decode(part["image_url"]["url"].split(",")[1]) == (images / file).read_bytes()
        assert p.evaluate("document.querySelectorAll('#files img').length") == 0  # they went with the message
        shown = "[...document.querySelectorAll('#log img, main img')].filter(i => i.complete && i.naturalWidth).length"
        v.until(shown + " === 3")
        v.shot("pictures-answered-" + name)
        p.reload()
        v.until(shown + " === 3")  # kept with the conversation
        v.say("And now?")
        again = [b for path, b in v.bodies if path == "/v1/chat/completions"][-1]["messages"]
        assert [c["type"] for c in again[0]["content"]] == ["image_url"] * 3 + ["text"]


def test_what_is_no_picture_is_said_and_a_text_model_takes_none(sees, s, browser):
    images = data("vision/images")
    with Visit(browser, sees.url, quiet=False) as v:
        bad = base64.b64encode((images / "bad_truncated.jpg").read_bytes()).decode()
        v.page.evaluate(GIVE, ["drop", "bad.jpg", "image/jpeg", bad])
        v.until("document.querySelectorAll('#files img').length === 1")
        v.page.fill("#say", "What is this?")
        v.page.press("#say", "Enter")
        v.until("document.body.innerText.includes('unsupported image')")
    with Visit(browser, s.url, quiet=False) as v:
        v.page.evaluate(GIVE, ["drop", "x.png", "image/png", base64.b64encode((images / "exact_56x56.png").read_bytes()).decode()])
        v.until("document.body.innerText.includes('was not attached')")
        assert v.page.evaluate("document.querySelectorAll('#files img').length") == 0
