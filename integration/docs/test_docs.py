"""Files, links, flags, routes and commands in README and docs/ exist, and generated pages are up to date."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap

import docs_pages
import pytest
from serving import BIN, ROOT

DOCS = ROOT / "docs"
TOP = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
PAGES = TOP + sorted(DOCS.rglob("*.md"))
# Figures of earlier days: their commands, flags and paths are those of their day.
CURRENT = [p for p in PAGES if p.parent.name != "results"]
PRINTED = {"launcher.md", "router.md", "model-server.md", "model-server-tools.md", "http-api.md", "models.md", "metrics.md"}
WRITTEN = [p for p in CURRENT if p.name not in PRINTED]

FOREIGN = (ROOT / "launcher/options/foreign.c").read_text()

# Flags and routes of other programs, which pages name to compare with them or to call them.
FLAGS_OF_OTHERS = {
    "vllm, sglang, llama-server": {  # those that the launcher answers with an option of its own, and a few more
        *re.findall(r'\("(--[a-z-]+)"', FOREIGN),
        *"--jinja --mmproj --port".split(),
    },
    "guidellm": {"--backend", "--tokenizer", "--data", "--profile", "--override", "--constraint"},
    "pip, mkdocs, pytest, systemd": {"--strict"},
    "buildah, podman, helm": {"--build-context", "--rm", "--read-only", "--tmpfs", "--cap-drop", "--set", "--gpus", "--shm-size", "--user"},
}
ROUTES_NOT_HERE = set()


def name(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """(language, text) of the fenced and indented blocks."""
    text = page.read_text()
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M):
        yield language, body
    for body in re.findall(r"(?:^\n|\A)((?:    [^\n]*\n)+)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M):
        yield "", body


def spans(page):
    """What stands between backticks in running text."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M))


def anchors(page):
    found = set()
    for title in re.findall(r"^#+ +(.+?)\s*$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M), re.M):
        words = re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", words))
    return found


def test_the_site_builds_without_a_warning(tmp_path):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: make docs-site does that")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {p.relative_to(tmp_path / "site").with_suffix(".md") for p in (tmp_path / "site").rglob("*.html")}
    assert pages >= {p.relative_to(DOCS) for p in DOCS.rglob("*.md")}
    outside = re.findall(r'(?:src|rel="stylesheet" href)="(https?://[^"]+)"', (tmp_path / "site/index.html").read_text())
    assert not outside, "a page that needs another server"


def test_every_page_has_a_place_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    named = re.findall(r": (\S+\.md)$", nav, re.M)
    assert len(named) == len(set(named))
    assert set(named) == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}, "mkdocs.yml: nav"


@pytest.mark.parametrize("folder", ["decisions", "results"])
def test_an_index_has_every_page_of_its_folder(folder):
    linked = set(re.findall(r"\(([\w-]+\.md)", (DOCS / folder / "index.md").read_text()))
    assert linked == {p.name for p in (DOCS / folder).glob("*.md")} - {"index.md"}


def test_options_of_other_servers_are_answered_as_the_page_says():
    """A row of the page, and what the launcher makes of each option that it does not have, name the same option."""
    rows = [line.split("|")[1:5] for line in (DOCS / "how-to/migrate.md").read_text().splitlines() if line.startswith("| ")]
    ours = set(re.findall(r"^\| `(--[a-z0-9-]+)`", (DOCS / "launcher.md").read_text(), re.M))
    theirs = [(flag, row[3]) for row in rows for cell in row[:3] for flag in re.findall(r"`(--?[a-z-]+)", cell)]
    taken = dict(re.findall(r'\b(?:SAME|SAME_BUT|SETS|MAPS)\("(--?[a-z-]+)", "([a-z-]+)"', FOREIGN))
    ignored = set(re.findall(r'\bNONE(?:_OF_IT)?\("(--?[a-z-]+)"', FOREIGN))
    assert len(theirs) > 60 and len(taken) > 60 and len(ignored) > 15
    for flag, here in theirs:
        if flag in ours:
            continue
        if flag in taken:
            assert f"--{taken[flag]}" in here, f"{flag}: --{taken[flag]}"
        elif flag not in ignored:
            said = subprocess.run([BIN / "launcher", flag, "x"], capture_output=True, text=True).stderr
            named = set(re.findall(r"--[a-z-]+", said.split("found;")[1])) - {"--help"}
            assert "leave it out" in said or (named and named <= set(re.findall(r"--[a-z-]+", here))), f"{flag}: {said}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page):
    for target in re.findall(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        to = (page.parent / file).resolve() if file else page
        assert to.exists(), f"{name(page)}: {target}"
        assert page not in DOCS.rglob("*.md") or to.is_relative_to(DOCS), f"{name(page)}: {target} is not part of the site"
        assert not anchor or anchor in anchors(to), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_files_exist(page):
    tops = "common|router|launcher|model-server|proto|models|tests|integration|docker|docs"
    for span in spans(page):
        if re.fullmatch(rf"(?:{tops})/[\w./*-]+", span):
            assert list(ROOT.glob(span.rstrip("/"))), f"{name(page)}: {span}"
        elif re.fullmatch(r"(?:decisions|results|how-to)/[\w-]+\.md", span):
            assert (DOCS / span).is_file(), f"{name(page)}: {span}"


@pytest.fixture(scope="module")
def flags():
    """Of the printed pages, of `--help` itself, and of the scripts that pages show."""
    found = {"--help", "--version", "--help-markdown", "--help-man", "--completion-bash"}
    for page in PRINTED:
        found |= set(re.findall(r"`(--[a-z0-9-]+)`", (DOCS / page).read_text()))
    for script in [*ROOT.glob("integration/bench/*.py"), *ROOT.glob("models/demo/train/*.py")]:
        found |= set(re.findall(r'add_argument\(\s*"(--[a-z0-9-]+)"', script.read_text()))
    for source in [*ROOT.glob("launcher/*.c"), *ROOT.glob("router/*.c"), *ROOT.glob("tests/bench/*.c")]:  # of commands without a page
        found |= set(re.findall(r'"(--[a-z0-9-]+)"', source.read_text()))
        found |= {"--" + word for word in re.findall(r'FLAG_\w+\("([a-z0-9-]+)"', source.read_text())}
    lmtp = subprocess.run([BIN / "launcher", "lmtp", "--help-markdown"], capture_output=True, text=True).stdout
    return found | set(re.findall(r"`(--[a-z0-9-]+)`", lmtp))


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_flags_exist(page, flags):
    known = flags.union(*FLAGS_OF_OTHERS.values())
    for text in [*spans(page), *(body for _, body in blocks(page))]:
        for flag in re.findall(r"(?<![\w/-])--[a-z][a-z0-9-]*", text):
            assert flag in known, f"{name(page)}: {flag}"


@pytest.mark.parametrize("page", [p for p in WRITTEN if p.name != "dependencies.md"], ids=name)
def test_routes_exist(page):
    table = re.search(r"\| method \|.*?\n\n", (DOCS / "http-api.md").read_text(), re.S).group()
    rows = {r for row in table.strip().splitlines()[2:] for r in re.findall(r"`(/[^`]*)`", row.split("|")[2])}
    heads = {r.split("/")[1] for r in rows if r != "/"} | {"v1", "v2", "v3"}

    def served(route):
        return route in rows or any(r.endswith("/*") and route.startswith(r[:-1]) for r in rows)

    for text in [*spans(page), *(body for _, body in blocks(page))]:
        named = re.findall(r"(?:GET|POST|localhost:\d+) ?(/[\w/.-]*)", text)
        named += [text] if re.fullmatch(r"/[\w/-]+", text) and text.split("/")[1] in heads else []
        for route in named:
            if route not in ROUTES_NOT_HERE and route not in ("/v1", "/v1/", "/v2/"):
                assert served(route.rstrip(".")), f"{name(page)}: {route}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", DOCS / "quick-start.md", *sorted((DOCS / "how-to").glob("*.md"))], ids=name)
def test_commands_exist(page):
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "model-server/backend/cuda/rules.mk").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefiles, re.M))
    pages = {"launcher": "launcher.md", "router": "router.md", "model-server serve": "model-server.md"}
    product = re.search(r"^PRODUCT +:= (\S+)$", makefiles, re.M).group(1)
    seen = 0
    for language, body in blocks(page):
        if language not in ("", "sh", "bash"):
            continue
        for line in body.replace("\\\n", " ").splitlines():
            line = line.split(" #")[0].strip()
            for target in re.findall(r"(?:^| {2,})make +(?:[A-Z]\w*=\S+ +)*([a-z0-9-]+)(?=[\s,]|$)", line):
                assert target in targets, f"{name(page)}: {line}"
                seen += 1
            called = re.match(rf"(?:build/bin/|{product} )?(launcher|router|model-server|serve)(?= )(.*)", line)
            if not called:
                continue
            program, rest = called.groups()
            program = "launcher" if program == "serve" else program
            words = rest.split()
            if program == "model-server":
                program += " " + words.pop(0)
                assert f"model-server {program.split()[1]}" in (DOCS / "model-server.md").read_text() + (DOCS / "model-server-tools.md").read_text()
            printed = (DOCS / pages.get(program, "model-server-tools.md")).read_text()
            command = words[0] if words and not re.search("^-|/", words[0]) else ""  # org/name: a model
            if program in ("launcher", "router") and command:
                done = subprocess.run([BIN / program, command, "--help"], capture_output=True, text=True)
                assert command in done.stdout + done.stderr and "unknown" not in done.stderr, f"{name(page)}: {line}"
                printed += done.stdout
            for flag in [w.split("=")[0] for w in words if w.startswith("--") and w != "--help"]:
                taken = program == "launcher" and f'("{flag}", "' in FOREIGN
                assert taken or f"`{flag}`" in printed or re.search(rf"^ +{flag}\b", printed, re.M), f"{name(page)}: {line}"
            seen += 1
    assert seen or page.parent.name == "how-to", "no command was found to check"


EXTEND = DOCS / "how-to/extend.md"


@pytest.mark.parametrize("nth", [0, 1], ids=["family", "route"])
def test_code_of_the_page_on_extending_compiles(nth, tmp_path):
    found = [textwrap.dedent(b) for b in re.findall(r"(?:^ {8}.*\n|^\n)+", EXTEND.read_text(), re.M) if "#include" in b]
    assert len(found) == 2
    (tmp_path / "added.c").write_text(found[nth])
    argv = ["cc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT}", f"-I{ROOT / 'build/gen'}", tmp_path / "added.c"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_rows_and_functions_of_the_page_on_extending_exist():
    """The row of a parameter has as many columns as those of the table, and each function that is named is defined somewhere."""
    text = EXTEND.read_text()

    def columns(row):
        return len(re.sub(r'"[^"]*"', "text", row).split(","))

    (row,) = re.findall(r"PARAM\((.*)\)$", text, re.M)
    rows = re.findall(r"^PARAM\((.*?)\)$", (ROOT / "common/params.def").read_text(), re.M)
    assert rows and {columns(r) for r in rows} == {columns(row)}
    sources = "\n".join(f.read_text() for top in ("common", "router", "model-server") for f in (ROOT / top).rglob("*.[ch]"))
    named = set(re.findall(r"`(\w+)\(\)`", text))
    assert len(named) > 5
    for function in named:
        assert re.search(rf"\b{function}\(", sources), function


def test_help_lists_every_target_once():
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "model-server/backend/cuda/rules.mk").read_text()
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    listed = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, env=env).stdout
    named = re.findall(r"^  make ([a-z0-9-]+) ", listed, re.M)
    assert sorted(named) == sorted(set(re.findall(r"^([a-z0-9-]+):.*## ", makefiles, re.M)))


LONG = " ".join(["word"] * 25) + " more"
SENTENCES = {  # text of a file: the lines that `make sentences` names
    ("short.md", "One two three. " * 20): [],
    ("long.md", f"# Title\n\nShort.\nIt is {LONG}.\n"): [3],
    ("cut.md", f"{LONG[:90]}: {LONG[:90]}; {LONG[:90]}.\n"): [],
    ("wrapped.md", LONG.replace(" ", "\n") + "\n"): [1],
    ("items.md", f"- {LONG[:90]}\n- {LONG[:90]}\n\n1. {LONG}\n"): [4],
    ("table.md", f"| a | b |\n|---|---|\n| {LONG[:90]} | {LONG[:90]} |\n| {LONG} | b |\n"): [4],
    ("code.md", f"```\n{LONG}\n```\n\n    {LONG}\n\n`{LONG}` is code.\n"): [],
    ("brackets.md", f"A text ({LONG}) goes on [here](http://a/{LONG}).\n"): [],
    ("list.md", "Tested: " + ", ".join(["one two three"] * 20) + ".\n"): [],
    ("printed.md", f"# Title\n\nPrinted by `router routes`; do not edit.\n\n{LONG}.\n"): [],
    ("header.h", f"/* header.h - short.\n *\n * {LONG}. */\nint f(void); /* {LONG} */\nint {LONG.replace(' ', '_')};\n"): [3, 4],
    ("rows.h", f"/* Rows:\n *   one    {LONG[:90]}\n *   three  {LONG[:90]}\n */\n"): [],
}


@pytest.mark.parametrize("name, text", SENTENCES)
def test_long_sentences_are_found(name, text, tmp_path):
    page = tmp_path / name
    page.write_text(text)
    done = subprocess.run([ROOT / "tests/sentences", page], capture_output=True, text=True)
    assert [int(line.split(":")[1]) for line in done.stdout.splitlines()] == SENTENCES[name, text], done.stdout
    assert done.returncode == bool(SENTENCES[name, text]) and not done.stderr.startswith("Traceback")


@pytest.mark.parametrize("page", ["models.md", "metrics.md"])
def test_pages_of_registries_are_new(page):
    assert (DOCS / page).read_text() == getattr(docs_pages, page[:-3])(), "make docs-pages"


def test_printed_pages_are_new():
    for page, text in docs_pages.printed(BIN).items():
        assert (DOCS / page).read_text() == text, f"docs/{page}: make docs-pages"


def test_every_family_is_on_the_page():
    """The registry's files and the page agree, counted without the program that prints it."""
    page = (DOCS / "models.md").read_text()
    for file in (ROOT / "model-server/model/arch").glob("*.c"):
        for line in re.findall(r"\.types =\s*.*?NULL", file.read_text(), re.S):
            for word in re.findall(r'"(\w+)"', line):
                assert f"`{word}`" in page, f"{file.name}: {word}"
