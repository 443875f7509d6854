"""/docs: every example is served."""

import re

import requests
from pages import CONTRAST, NAMES, Visit, WAIT, api, browser, needs_chromium  # noqa: F401

pytestmark = needs_chromium


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
