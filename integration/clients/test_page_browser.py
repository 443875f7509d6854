"""The pages for people in a real browser: Playwright drives Debian's Chromium (`make clients`). Without either it skips, aloud.

SCREENSHOTS=DIR keeps a picture of every look."""

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
from serving import DEMO, SLOW, Process, Service, wait_for  # noqa: E402

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
        self.page.route("**/v1/*completions", lambda r: r.continue_(post_data=json.dumps({**r.request.post_data_json, "ignore_eos": True})))

    def turn(self):
        return self.page.locator(".turn.assistant").last

    def answer(self):
        return self.turn().locator("> div:not(.foot):not(.error)").inner_text()

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


def test_ideas_copy_and_again(s, browser):
    with Visit(browser, s.url, permissions=["clipboard-read", "clipboard-write"]) as v:
        v.page.click("#ideas button:nth-child(2)")
        v.ended()
        first = v.answer()
        assert "Paris" in first
        v.page.click("text=Copy")
        assert v.page.evaluate("navigator.clipboard.readText()") == first
        v.set(system="You are brief.")
        v.page.click("text=Again")
        v.ended()
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
        chunk = {"choices": [{"index": 0, "delta": {"content": evil}, "finish_reason": "stop"}]}
        v.page.route("**/v1/chat/completions", lambda r: r.fulfill(body=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream"))
        assert v.say(evil) == evil and v.page.locator(".user div").inner_text() == evil
        assert v.page.title() != "evil" and v.page.locator("#talk img").count() == 0


def test_reasoning_is_shown_apart_and_folded(s, browser):
    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "They greet"}, {"reasoning_content": " me."}, {"content": "Hi"}, {"content": "!"}]
    body = "".join(f"data: {json.dumps({'choices': [{'index': 0, 'delta': d, 'finish_reason': None}]})}\n\n" for d in deltas)
    with Visit(browser, s.url) as v:
        v.page.route("**/v1/chat/completions", lambda r: r.fulfill(body=body + "data: [DONE]\n\n", content_type="text/event-stream"))
        assert v.say("Hello!") == "Hi!"
        think = v.turn().locator("details.think")
        assert think.text_content() == "ReasoningThey greet me." and think.get_attribute("open") is None


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
        v.set(top_p=7)
        v.say("Hello!")
        assert "`top_p`" in v.turn().locator("[role=alert]").inner_text()
        v.set(top_p=1)
        v.page.click("text=Again")
        v.ended()
        assert v.page.locator("[role=alert]").count() == 0 and v.answer()


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
                v.page.click("text=Again")
                v.ended()
                assert v.answer() and v.page.locator("[role=alert]").count() == 1
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
        v.page.keyboard.press("Shift+Tab")
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
        v.say("Hello!")
        v.set(top_p=7)
        v.say("Hello!")
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
