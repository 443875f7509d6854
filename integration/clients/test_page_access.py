"""Keyboard, contrast, screen readers and phones."""

import re

import pytest
from pages import CONTRAST, MARKDOWN, NAMES, Visit, browser, needs_chromium, refuse_top_p  # noqa: F401
from serving import data

pytestmark = needs_chromium


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
