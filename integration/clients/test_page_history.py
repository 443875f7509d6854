"""What the browser keeps: conversations, files, export and import, and the versions of a message."""

import json

from pages import Visit, api, browser, idle, needs_chromium  # noqa: F401

pytestmark = needs_chromium


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


def test_a_reload_keeps_what_is_being_written(s, browser):
    with Visit(browser, s.url) as v:
        v.page.locator("#say").press_sequentially("A long question,")
        v.page.reload()
        v.until("document.getElementById('state').textContent === 'ready'")
        assert v.page.input_value("#say") == "A long question,"
        v.say("Hello!")
        v.page.reload()
        v.until("document.getElementById('state').textContent === 'ready'")
        assert v.page.input_value("#say") == ""


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
        v.page.fill("#say", "many words " * 80)  # the line at the bottom grows, and nothing covers what is written
        toast, say = v.page.locator("#toast").bounding_box(), v.page.locator("#say").bounding_box()
        assert toast["y"] + toast["height"] <= say["y"], (toast, say)
        v.page.fill("#say", "")
        assert v.page.locator("#files .chip").count() == 1
        v.shot("attached")
        v.say("How old is Ann?")
        assert v.bodies[-1][1]["messages"][0]["content"] == "notes.txt:\n````\nAnn is 41.\n```\n````\n\nHow old is Ann?"
        assert v.page.locator("#files .chip").count() == 0
        assert v.page.locator(".user .file summary").inner_text() == "notes.txt" and v.page.locator(".user .text").inner_text() == "How old is Ann?"
