"""Agents and assistants for terminals, before a model that says what it is told: whole turns, with the tools of each in a folder of its own.

Their Python packages are gptme, mini-swe-agent, llm and shell-gpt. Those that are not installed are not tried."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from test_coding_agents import ECHO, call, served

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import SLOW  # noqa: E402


@pytest.fixture(scope="module")
def s():
    with served() as service:
        yield service


def program(name):
    """Beside Python, where packages put theirs, else in PATH."""
    path = pathlib.Path(sys.executable).parent / name
    found = str(path) if path.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed: it is not tried")
    return found


def run(s, tmp_path, name, *args, **env):
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    base = s.url + "/v1"
    given = {"HOME": str(home), "OPENAI_API_KEY": "-", "OPENAI_BASE_URL": base, "OPENAI_API_BASE": base, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    p = subprocess.run([program(name), *args], cwd=work, env={**os.environ, **given, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200 * SLOW)
    return p.returncode, p.stdout, p.stdout + p.stderr


def made(tmp_path):
    return (tmp_path / "work/made.txt").read_text() == "hello\n"


@pytest.mark.parametrize("how", ["markdown", "tool"])
def test_gptme(s, tmp_path, how):
    say = call("shell", command=ECHO) if how == "tool" else f"I will.\n```shell\n{ECHO}\n```"
    code, out, all_of_it = run(s, tmp_path, "gptme", "-n", "-m", "local/demo", "--tool-format", how, "-t", "shell", f"Do it. [[{say}]]")
    assert code == 0 and made(tmp_path) and "All done." in out, all_of_it


def test_mini_swe_agent(s, tmp_path):
    """What its tool prints ends the turn."""
    say = call("bash", command="echo hello > made.txt; echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done")
    args = ["-y", "--exit-immediately", "-m", "openai/demo", "-l", "0", "-t", f"Do it. [[{say}]]"]
    code, out, all_of_it = run(s, tmp_path, "mini", *args, MSWEA_CONFIGURED="true", MSWEA_COST_TRACKING="ignore_errors")
    assert code == 0 and made(tmp_path) and "Exit:\ndone" in out, all_of_it


@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_llm(s, tmp_path, stream):
    user = tmp_path / "llm"
    user.mkdir()
    model = {"model_id": "local", "model_name": "demo", "api_base": s.url + "/v1", "supports_tools": "true", "supports_schema": "true"}
    (user / "extra-openai-models.yaml").write_text("- {" + ", ".join(f"{k}: {v}" for k, v in model.items()) + "}\n")
    code = "def look(at: str) -> str:\n    open('made.txt', 'w').write('hello' + chr(10))\n    return '[' + '[All done.]' + ']'\n"
    ask = ["-m", "local", *stream, "--functions", code, f"Do it. [[{call('look', at='a')}]]"]
    rc, out, all_of_it = run(s, tmp_path, "llm", *ask, LLM_USER_PATH=str(user))
    assert rc == 0 and made(tmp_path) and out.strip().endswith("All done."), all_of_it


def test_llm_with_a_schema(s, tmp_path):
    user = tmp_path / "llm"
    user.mkdir()
    (user / "extra-openai-models.yaml").write_text(f"- {{model_id: local, model_name: demo, api_base: '{s.url}/v1', supports_schema: true}}\n")
    rc, out, all_of_it = run(s, tmp_path, "llm", "-m", "local", "--schema", "name, age int", 'Ann. [[{"name": "Ann", "age": 3}]]', LLM_USER_PATH=str(user))
    assert rc == 0 and out.strip() == '{"name": "Ann", "age": 3}', all_of_it


def test_shell_gpt(s, tmp_path):
    rc, out, all_of_it = run(s, tmp_path, "sgpt", "--model", "demo", "--no-functions", "Say it. [[hello there]]", API_BASE_URL=s.url + "/v1", DEFAULT_MODEL="demo")
    assert rc == 0 and out.strip() == "hello there", all_of_it
