"""aider, before a model that says what it is told: an edit of a file, streamed and not.

It pins versions that other clients exclude, so it has an environment of its own: AIDER=path/to/bin/aider, else the one in PATH."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import SLOW, Scripted  # noqa: E402

AIDER = os.environ.get("AIDER") or shutil.which("aider")
TEMPLATE = "{%- for m in messages %}{{ '\n' ~ m.role ~ ': ' ~ (m.content if m.role == 'user' else '') }}{% endfor %}{{ '\nassistant:' }}"
EDIT = "Do it. [[a.txt\n```\ntwo\n```\n]]"


@pytest.mark.skipif(not AIDER, reason="aider is not installed: AIDER names its program")
@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_a_file_is_edited(tmp_path, more):
    (tmp_path / "a.txt").write_text("one\n")
    quiet = ["--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes", "--no-analytics"]
    room = ["--max-total-tokens", "100000", "--max-input-tokens", "99000", "--max-batch-prefill-tokens", "100000"]
    with Scripted(TEMPLATE, {"blocks": 16384}, args=room) as s:
        # as docs/how-to/agents.md has it
        env = {**os.environ, "HOME": str(tmp_path), "OPENAI_API_BASE": s.url + "/v1", "OPENAI_API_KEY": "-"}
        argv = [AIDER, "--model", "openai/demo", "--edit-format", "whole", *quiet, *more, "--message", EDIT, "a.txt"]
        p = subprocess.run(argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120 * SLOW)
    assert p.returncode == 0 and "Applied edit to a.txt" in p.stdout, p.stdout + p.stderr
    assert (tmp_path / "a.txt").read_text() == "two\n"
