"""Pictures: attached, dropped, pasted, shown, sent and kept."""

import base64

import pytest
from pages import Visit, browser, needs_chromium  # noqa: F401
from serving import Service, data

pytestmark = needs_chromium

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
