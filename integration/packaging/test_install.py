"""What `make install` puts under PREFIX: a front command, the drop-in names, man pages and completion, all of them usable."""

import os
import re
import shutil
import subprocess

import pytest
from serving import BIN, DEMO, ROOT, Service, free_port

MAKEFILE = (ROOT / "Makefile").read_text()
NAME = re.search(r"^PRODUCT +:= (\S+)$", MAKEFILE, re.M).group(1)
VERSION = (ROOT / "VERSION").read_text().strip()
DROP_IN = {"text-generation-launcher": "launcher", "text-generation-router": "router", "text-generation-server": "model-server"}


def run(*argv, **more):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300, **more)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installation that was moved as a whole after `make install-files`."""
    root = tmp_path_factory.mktemp("installed")
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = run("make", "-C", ROOT, "install-files", f"DESTDIR={root}/staged", "PREFIX=/usr", f"BIN_DIR={BIN.resolve()}", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.move(f"{root}/staged/usr", f"{root}/elsewhere")
    return root / "elsewhere"


def test_only_names_of_the_product_are_in_bin(prefix):
    assert {p.name for p in (prefix / "bin").iterdir()} == {NAME, *DROP_IN}
    assert {p.name for p in (prefix / "libexec" / NAME).iterdir()} - {"backend-cuda.so"} == set(DROP_IN.values())


@pytest.mark.parametrize(
    "command, program",
    [
        (["serve", "--help"], ["launcher", "--help"]),
        (["router", "--help"], ["router", "--help"]),
        (["model-server", "--help"], ["model-server", "--help"]),
        (["model-server", "bench", "--help"], ["model-server", "bench", "--help"]),
        (["lmtp", "--help"], ["launcher", "lmtp", "--help"]),
        (["router", "routes"], ["router", "routes"]),
    ],
    ids=" ".join,
)
def test_the_front_command_runs_each_program(prefix, command, program):
    ours = run(prefix / "bin" / NAME, *command)
    direct = run(BIN / program[0], *program[1:])
    assert ours.returncode == direct.returncode == 0
    assert ours.stdout == direct.stdout and len(ours.stdout) > 200


def test_the_front_command_itself(prefix):
    front = prefix / "bin" / NAME
    usage = run(front, "--help")
    assert usage.returncode == 0 and usage.stdout.startswith(f"Usage: {NAME} COMMAND")
    assert run(front, "--version").stdout == f"{NAME} {VERSION}\n"
    for wrong in ([], ["sevre"]):
        refused = run(front, *wrong)
        assert refused.returncode == 2 and f"Usage: {NAME}" in refused.stderr and not refused.stdout
    assert "unknown command `sevre`" in run(front, "sevre").stderr
    away = run(front, "health", env={**os.environ, "PORT": "1", "SHARD_UDS_PATH": str(prefix / "away")})
    assert away.returncode == 1 and "away-0" in away.stderr


@pytest.mark.parametrize("link, program", DROP_IN.items())
def test_drop_in_names(prefix, link, program):
    ours = run(prefix / "bin" / link, "--help")
    assert ours.returncode == 0 and ours.stdout == run(BIN / program, "--help").stdout


def test_a_drop_in_launcher_finds_its_programs(prefix, tmp_path):
    class Installed(Service):
        def __init__(self, argv):
            self.port = free_port()
            self.url = f"http://127.0.0.1:{self.port}"
            more = ["--model-id", DEMO, "--port", self.port, "--hostname", "127.0.0.1", "--device", "cpu"]
            super(Service, self).__init__([*argv, *more, "--shard-uds-path", f"{tmp_path}/shard"])
            self.wait_ready()

    for argv in ([prefix / "bin/text-generation-launcher"], [prefix / "bin" / NAME, "serve"]):
        s = Installed(argv)
        try:
            answer = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}})
            assert answer.json()["generated_text"]
        finally:
            assert s.stop() == 0


def test_man_pages(prefix):
    pages = sorted((prefix / "share/man/man1").glob("*.1"))
    names = {p.name[:-2] for p in pages}
    assert {NAME, f"{NAME}-serve", f"{NAME}-router", f"{NAME}-model-server-serve", *DROP_IN} <= names
    for page in pages:
        text, own = page.read_text(), page.resolve().name[:-2]
        assert text.startswith(f'.TH "{own}" 1 "" "{VERSION}"'), page.name
        assert re.search(rf"^\.SH NAME\n{own} \\- \S.*[^.]$", text, re.M), page.name
        assert "@" not in text.split(".SH OPTIONS")[0], page.name
        if shutil.which("lexgrog"):
            assert run("lexgrog", page).returncode == 0, page.name
    named = {f"{NAME}-{m}" for m in re.findall(rf"{NAME}-([a-z-]+)\(1\)", (prefix / f"share/man/man1/{NAME}.1").read_text())}
    assert named <= names, "pages that do not exist"


def test_every_tool_has_a_page_a_completion_and_a_mention(prefix):
    """The tools are those that model-server itself lists."""
    tools = re.findall(r"^  ([a-z-]+)  +[A-Z]", run(BIN / "model-server", "--help").stdout, re.M)
    assert {"serve", "quantize"} <= set(tools)
    page = (prefix / f"share/man/man1/{NAME}.1").read_text()
    script = (prefix / "share/bash-completion/completions" / NAME).read_text()
    for tool in tools:
        assert (prefix / f"share/man/man1/{NAME}-model-server-{tool}.1").exists(), tool
        assert f"                {tool}) words=" in script, tool
        assert tool in page, tool


@pytest.mark.parametrize(
    "words, found, absent",
    [
        ([NAME, "ser"], "serve", "router"),
        ([NAME, "serve", "--model-i"], "--model-id", "--port"),
        ([NAME, "router", "--tokenizer-n"], "--tokenizer-name", "--model-id"),
        ([NAME, "model-server", "be"], "bench", "serve"),
        ([NAME, "model-server", "bench", "--dep"], "--depth", "--port"),
        (["text-generation-launcher", "--num-s"], "--num-shard", "serve"),
        (["text-generation-server", "serve", "--uds"], "--uds-path", "--port"),
    ],
    ids=lambda w: " ".join(w) if isinstance(w, list) else None,
)
def test_completion(prefix, words, found, absent):
    file = prefix / "share/bash-completion/completions" / words[0]
    script = f'. "{file}"; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _{NAME}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = run("bash", "-euc", script, cwd="/")
    assert done.returncode == 0, done.stderr
    assert found in done.stdout.split() and absent not in done.stdout.split()
