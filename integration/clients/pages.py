"""Shared by the tests of the pages in a real browser: Playwright drives Debian's Chromium (`make clients`). Without either they skip, aloud.

SCREENSHOTS=DIR keeps a picture of every look."""

import json
import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import SLOW, wait_for  # noqa: E402

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the pages are not tried in a browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no chromium (apt-get install chromium): the pages are not tried in a browser")
WAIT = 15000 * SLOW


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield b
        b.close()


class Visit:
    """One browser at one page. It requests from the server alone; the console stays silent unless `quiet` says otherwise."""

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


# an answer with what a page must format, and must not run
MARKDOWN = """## Sorting

Use `sorted` with a **key**.

```python
def oldest(people):
    return sorted(people)
```

| Name | Age |
|------|----:|
| Ann  | 41  |

Inline $E = mc^2 \\in \\mathbb{R}$, \\(x_1\\), $5 and $10.

$$
\\begin{aligned}
f(x) &= \\frac{1}{2} \\\\
- g &= \\sqrt{\\text{<b>y</b>}}
\\end{aligned}
$$

- [ ] open $\\unknown{x}$
- [x] done

[good](https://example.org/a) [bad](javascript:document.title='evil') ![pixel](https://example.org/x.png) <b onclick="document.title='evil'">html</b>
<img src=x onerror="document.title='evil'"><iframe src="/docs"></iframe><style>body{display:none}</style>
"""

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


def idle(s):
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_batch_current_size") == 0)


def said(s, text, **fields):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 60, **fields}
    return s.post("/v1/chat/completions", body).json()["choices"][0]


def refuse_top_p(v):
    """The form would not send this; what the server says to it is to be seen."""
    v.page.route("**/completions", lambda r: r.continue_(post_data=json.dumps({**r.request.post_data_json, "top_p": 7})))
