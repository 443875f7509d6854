"""The page and its server: limits, charts, errors, a lost server, keys, other models, programs that ask the same."""

import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from pages import Visit, api, browser, needs_chromium, refuse_top_p, said  # noqa: F401
from serving import DEMO, SLOW, Process, Service, data

pytestmark = needs_chromium


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


def test_errors_are_said(s, browser):
    with Visit(browser, s.url, quiet=False) as v:
        refuse_top_p(v)
        v.say("Hello!")
        assert "`top_p`" in v.turn().locator("[role=alert]").inner_text()
        v.page.unroute("**/completions")
        v.again()
        assert v.page.locator(".turn [role=alert]").count() == 0 and v.answer() and v.page.locator(".versions").count() == 0


def test_refusals_say_what_to_do(s, browser):
    """A full queue says when to try again; a page of a proxy in front is told by its status; any other text is shown."""
    full = {"error": {"message": "Model is overloaded", "code": "unavailable"}}
    answers = [
        ({"status": 429, "json": full, "headers": {"retry-after": "7"}}, "Model is overloaded. Try again in 7 s."),
        ({"status": 502, "body": "<html><h1>502 Bad Gateway</h1></html>"}, "The server, or one in front of it, answered with status 502."),
        ({"status": 503, "body": ""}, "The server, or one in front of it, answered with status 503."),
        ({"status": 403, "body": "Not from here"}, "Not from here"),
    ]
    with Visit(browser, s.url, quiet=False) as v:
        for answer, text in answers:
            v.page.route("**/v1/chat/completions", lambda r, _, answer=answer: r.fulfill(**answer))
            v.say("Hello!")
            assert v.turn().locator("[role=alert]").inner_text().strip() == text
            v.page.unroute("**/v1/chat/completions")


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
        assert "key is missing or wrong" in v.turn().locator("[role=alert]").inner_text()
        v.turn().get_by_role("button", name="Enter the key").click()
        v.page.keyboard.type("secret")
        v.again()
        assert v.answer() and v.page.locator(".turn [role=alert]").count() == 0
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
