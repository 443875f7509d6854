"""JavaScript clients: openai, Anthropic's, Ollama's, Vercel's AI SDK, Hugging Face's, OpenAI's agents (javascript/*.test.ts).

`make clients`. Deno, from PyPI, runs them and takes the packages from npm's registry. Where that cannot be reached, JS_IMPORTS names an
import map with copies of their sources."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import Scripted  # noqa: E402
from test_frameworks import TEMPLATE  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "javascript"
FILES = sorted(HERE.glob("*.test.ts"))
REGISTRY = "https://registry.npmjs.org/openai"


@pytest.fixture(scope="module")
def deno():
    module = pytest.importorskip("deno", reason="deno is not installed")
    imports = os.environ.get("JS_IMPORTS")
    if not imports:
        requests = pytest.importorskip("requests")
        try:
            requests.head(REGISTRY, timeout=10).raise_for_status()
        except requests.RequestException:
            pytest.skip("npm's registry cannot be reached, and JS_IMPORTS is not set")
    # Sources in a copy of a repository import files without their extension.
    chosen = ["--import-map", imports, "--unstable-sloppy-imports", "--no-remote"] if imports else []
    return [module.find_deno_bin(), "test", "--no-check", "--no-lock", "--allow-all", *chosen]


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE + "{# <think></think> #}") as service:
        yield service


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name.removesuffix(".test.ts"))
def test_javascript(deno, s, file):
    env = {**os.environ, "SERVER": s.url, "NO_COLOR": "1"}
    run = subprocess.run([*deno, file], env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
