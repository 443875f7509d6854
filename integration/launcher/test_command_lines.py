"""Command lines: help, versions, misspelt options and exit codes are consistent in all programs and subcommands."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from serving import BIN, DEMO, ROOT, SLOW

PROGRAMS = [
    ("launcher",), ("launcher", "health"), ("launcher", "lmtp"),
    ("router",), ("router", "tokenize"), ("router", "detokenize"), ("router", "render"), ("router", "routes"), ("router", "print-schema"),
    ("model-server",), ("model-server", "serve"), ("model-server", "download-weights"), ("model-server", "bench"),
    ("model-server", "logits"), ("model-server", "quality"),
]


def run(*argv, **kw):
    return subprocess.run([BIN / argv[0], *map(str, argv[1:])], capture_output=True, text=True, timeout=60 * SLOW, **kw)


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_pages_and_versions(program):
    version = (ROOT / "VERSION").read_text().strip()
    for flag in ("-V", "--version"):
        said = run(*program, flag)
        assert (said.returncode, said.stdout) == (0, f"{' '.join(program)} {version}\n")
    for flag in ("-h", "--help"):
        said = run(*program, flag)
        assert said.returncode == 0 and said.stdout.startswith(f"Usage: {' '.join(program)} ") and not said.stderr
    for sub in (p for p in PROGRAMS if len(p) == 2 and p[:1] == program):
        assert f"\n  {sub[1]} " in said.stdout
        assert f" {sub[1]} " in run(*program, "--completion-bash").stdout.replace('"', " ")


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_a_slip_is_one_line_with_what_was_meant(program):
    name = " ".join(program)
    said = run(*program, "--hepl")
    line = f"{name}: unexpected argument '--hepl' found; did you mean '--help'? See {name} --help"
    assert (said.returncode, said.stdout, said.stderr.strip()) == (2, "", line)


@pytest.mark.parametrize("argv, words", [
    (["launcher", "--modle-id", "x"], "launcher: unexpected argument '--modle-id' found; did you mean '--model-id'?"),
    (["launcher", "helth", "x"], "launcher: unexpected argument 'helth' found; did you mean 'health'?"),
    (["router", "tokenise"], "router: unexpected argument 'tokenise' found; did you mean 'tokenize'?"),
    (["router", "--prot", "1"], "router: unexpected argument '--prot' found; did you mean '--port'?"),
    (["model-server", "srve"], "model-server: unexpected argument 'srve' found; did you mean 'serve'?"),
    (["model-server", "zebra"], "model-server: unexpected argument 'zebra' found; see model-server --help"),
    (["model-server", "serve", "m", "--quantise", "q8"], "model-server serve: unexpected argument '--quantise' found; did you mean '--quantize'?"),
    (["model-server", "serve"], "model-server serve: "),
    (["model-server", "bench", "--batch"], "model-server bench: "),
    (["launcher", "-ngl", "8"], "launcher: unexpected argument '-ngl' found; use --device: a model lies on one kind of device"),
    (["launcher", "health", "x", "soon"], "launcher health: soon: `soon` is not a number"),
    (["launcher", "lmtp", "--scroe"], "launcher lmtp: unexpected argument '--scroe' found; did you mean '--score'?"),
    (["router", "render"], "router render: --template is required"),
])
def test_what_cannot_be_read_exits_with_2(argv, words):
    said = run(*argv)
    assert said.returncode == 2 and said.stderr.startswith(words) and not said.stdout, said.stderr


def test_what_cannot_be_done_exits_with_1(tmp_path):
    for argv in (
        ["launcher", "health", f"unix:{tmp_path}/none", "1"],
        ["router", "tokenize", "--tokenizer-name", tmp_path / "none"],
        ["model-server", "logits", tmp_path / "none", "--ids", "1"],
    ):
        said = run(*argv, input="")
        name = " ".join(argv[:2])
        assert said.returncode == 1 and said.stderr.splitlines()[-1].startswith(name + ": "), said.stderr


def test_no_word_at_all_is_the_help():
    said = run("model-server")
    assert said.returncode == 2 and said.stderr == run("model-server", "--help").stdout and not said.stdout


def test_env_names_the_distribution():
    said = run("launcher", "--env").stdout
    line = next(x for x in said.splitlines() if x.startswith("Distribution"))
    release = pathlib.Path("/etc/os-release")
    if release.exists():
        names = [x.split("=", 1)[1].strip("\"'") for x in release.read_text().splitlines() if x.startswith("PRETTY_NAME=")]
        assert line.split(None, 1)[1] == (names[-1] if names else "unknown")


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_man_pages_have_names(program, tmp_path):
    if not shutil.which("lexgrog"):
        pytest.skip("lexgrog is not installed (man-db)")
    page = tmp_path / "page.1"
    page.write_text(run(*program, "--help-man").stdout)
    said = subprocess.run(["lexgrog", page], capture_output=True, text=True, timeout=60 * SLOW)
    assert said.returncode == 0 and f'"{"-".join(program)} - ' in said.stdout, said.stdout + said.stderr


def test_a_completion_is_a_line_that_bash_reads():
    for program in PROGRAMS:
        script = run(*program, "--completion-bash").stdout
        said = subprocess.run(["bash", "-c", script + f"complete -p {program[0]}"], capture_output=True, text=True, timeout=60 * SLOW)
        assert said.returncode == 0 and "--help" in said.stdout, said.stderr


def test_options_of_several_programs_are_the_same_row():
    """Those of common/flag/options.h: one default, one range, one text, wherever they stand."""
    shared = re.findall(r'\.name = "([a-z-]+)"', (ROOT / "common/flag/options.h").read_text())
    tables = {}
    for program in (("launcher",), ("router",), ("model-server", "serve")):
        rows = re.findall(r"^\| `--([a-z-]+)` \|(.*)$", run(*program, "--help-markdown").stdout, re.M)
        tables[program] = {name: rest.split(" | ", 1)[1] for name, rest in rows}  # but for the name in the environment
    assert len(shared) > 40
    for name in shared:
        texts = {t[name] for t in tables.values() if name in t}
        assert len(texts) == 1 and sum(name in t for t in tables.values()) >= 2, (name, texts)


def test_the_command_line_of_another_server_runs_and_is_translated_in_the_log():
    theirs = "serve", DEMO, "--tensor-parallel-size", "2", "--max-model-len=1024", "--dtype", "half", "--jinja", "-np", "4", "--host", "127.0.0.1"
    env = {**os.environ, "LLAMA_ARG_CTX_SIZE": "9", "LLAMA_ARG_PORT": "1", "LLAMA_ARG_NEW": "1", "VLLM_API_KEY": "secret"}
    done = subprocess.run([BIN / "launcher", *theirs, "--dry-run"], capture_output=True, text=True, env=env, timeout=60 * SLOW)
    assert done.returncode == 0 and "rank 1" in done.stdout and "float16" in done.stdout, done.stderr
    for line in (
        "--max-model-len is --max-total-tokens here",
        "-np is --max-batch-size here",
        "--host is --hostname here",
        "--jinja has no effect here: chat templates are always rendered",
        "The variable LLAMA_ARG_CTX_SIZE is not read: use --max-total-tokens",
        "The variable LLAMA_ARG_PORT is not read: use PORT",
        "The variable LLAMA_ARG_NEW is not read\n",
        "The variable VLLM_API_KEY is not read: use API_KEY",
    ):
        assert line in done.stderr, (line, done.stderr)
    assert "secret" not in done.stderr and "--tensor-parallel-size is" not in done.stderr


def test_help_finds_the_options_that_mention_a_word():
    all_of_them, found = run("launcher", "--help").stdout, run("launcher", "--help", "lora").stdout
    assert "\nMemory and caches:\n" in all_of_them and "--port" in all_of_them
    assert "--lora-adapters" in found and "--max-runtime-adapters" in found and "--port" not in found and "Usage" not in found
    assert "No option of launcher has `zebra`" in run("launcher", "--help", "zebra").stdout
