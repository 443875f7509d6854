"""A conversation on the page: streams, stop, settings, reasoning, calls, Markdown."""

import json
import re

import pytest
import requests
from pages import MARKDOWN, Visit, WAIT, browser, idle, needs_chromium, said  # noqa: F401
from serving import Scripted, data, wait_for

pytestmark = needs_chromium


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


def test_who_reads_further_up_is_left_there(s, browser):
    """The page follows an answer for who is at its end; for others it stays where it is, and a button leads down."""
    with Visit(browser, s.url, viewport={"width": 700, "height": 420}) as v:
        for part in range(4):
            v.say(f"Tell me a story about a rabbit, part {part}.")
        far = "(t => t.scrollHeight - t.scrollTop - t.clientHeight)(document.getElementById('talk'))"
        latest = v.page.get_by_role("button", name="To the latest message")
        assert v.page.evaluate(far) < 2 and not latest.is_visible()
        v.say("Tell me a story about a fox.", wait=False)
        v.until("document.getElementById('go').textContent === 'Stop'")
        v.page.evaluate("document.getElementById('talk').scrollTop = 0")
        v.ended()
        assert v.page.evaluate("document.getElementById('talk').scrollTop") == 0 and latest.is_visible()
        v.shot("further-up")
        latest.click()
        assert v.page.evaluate(far) < 2 and not latest.is_visible()


def test_what_waits_for_the_end_of_an_answer_says_so(s, browser):
    with Visit(browser, s.url) as v:
        v.say("Hello!")
        v.endless()
        v.say("Tell me a story.", wait=False)
        v.until("document.getElementById('go').textContent === 'Stop'")
        first, toast = v.page.locator(".turn.user").first, v.page.locator("#toast")
        for name in ("Edit", "Answer again"):
            v.page.evaluate("document.getElementById('toast').hidden = true")
            v.page.locator(".turn").nth(int(name != "Edit")).get_by_role("button", name=name).first.click()
            assert "is being written" in toast.inner_text() and v.page.locator("form.edit").count() == 0
        assert first.get_by_role("button", name="Edit").evaluate("e => getComputedStyle(e).opacity") == "0.4"
        v.page.click("#go")
        v.ended()
        first.get_by_role("button", name="Edit").click()
        assert v.page.locator("form.edit").count() == 1


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
        assert text.locator(".math:not(.alone) semantics > mrow").all_text_contents() == ["E=mc2∈ℝ", "x1"]
        assert text.locator("math[display=block] mtr").count() == 2 and text.locator("mfrac").count() == 1
        assert text.locator("msqrt").text_content() == "<b>y</b>" and "$5 and $10." in text.inner_text()
        assert text.locator("li.task").all_text_contents() == ["☐ open $\\unknown{x}$", "☑ done"]
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
