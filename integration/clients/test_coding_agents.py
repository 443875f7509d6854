"""The programs of Claude Code and Codex, before a model that says what it is told: whole sessions, with tools, in a folder of their own.

Their Python packages bring them (claude-agent-sdk, openai-codex). Nothing is asked of their makers' servers."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import SLOW, Scripted  # noqa: E402

# What the model says is what stands between the last "[[" and "]]" of the prompt: tools come first, since their texts have brackets.
TEMPLATE = (
    "{%- if tools %}{{ tools | tojson }}{% endif %}{%- for m in messages %}{{ '\n' ~ m.role ~ ': ' ~ m.content ~ ' ' ~ m.tool_call_id }}"
    "{{ (m.tool_calls | tojson) if m.tool_calls }}{% endfor %}{%- if add_generation_prompt %}{{ '\nassistant:' }}{% endif %}{# <tool_call></tool_call> THINK #}"
)
THINKING = TEMPLATE.replace("THINK", "<think></think>")
ECHO = "echo hello > made.txt; echo '<<All done.>>' | tr '<>' '[]'"  # what the command prints is what the model says next
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def program(module, *where):
    """A package that is not there has no program either."""
    try:
        return pathlib.Path(__import__(module).__file__).parent.joinpath(*where)
    except ImportError:
        return None


CLAUDE, CODEX = program("claude_agent_sdk", "_bundled", "claude"), program("codex_cli_bin", "bin", "codex")


def served(template=TEMPLATE, room=200000):
    limits = ["--max-total-tokens", room, "--max-input-tokens", room - 1000, "--max-batch-prefill-tokens", room]
    return Scripted(template, {"blocks": 16384}, args=[str(a) for a in limits])


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


@pytest.fixture(scope="module", params=["Claude Code", "Codex", "Codex by WebSocket"])
def agent(request):
    binary = CLAUDE if request.param == "Claude Code" else CODEX
    if not binary or not binary.exists():
        pytest.skip(f"{request.param} is not installed: it is not tried")
    return {"Claude Code": Claude, "Codex": Codex, "Codex by WebSocket": CodexSocket}[request.param]


class Claude:
    shell, key = "Bash", "command"

    def __init__(self, s, tmp_path):
        self.s, self.work, self.home = s, tmp_path / "work", tmp_path / "home"
        self.work.mkdir()
        self.home.mkdir()

    def env(self):
        return {"ANTHROPIC_BASE_URL": self.s.url, "ANTHROPIC_AUTH_TOKEN": "-", "ANTHROPIC_MODEL": "demo", "ANTHROPIC_SMALL_FAST_MODEL": "demo",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1", "MAX_THINKING_TOKENS": "8000"}  # fmt: skip

    def argv(self, prompt, more=False, schema=None):
        kept = ["--json-schema", json.dumps(schema)] if schema else []
        return [CLAUDE, "-p", prompt, *(["-c"] if more else []), *kept, "--output-format", "json", "--dangerously-skip-permissions"]

    def ask(self, prompt, **kw):
        """Exit code, and what it says last."""
        env = {**os.environ, "HOME": str(self.home), **self.env()}
        p = subprocess.run(self.argv(prompt, **kw), cwd=self.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120 * SLOW)
        return p.returncode, self.last(p.stdout), p.stdout + p.stderr

    def last(self, out):
        return json.loads(out)["result"]

    def structured(self, value):
        return call("StructuredOutput", **value)


class Codex(Claude):
    shell, key = "exec_command", "cmd"
    by = {}

    def env(self):
        provider = {"name": "served", "base_url": f"{self.s.url}/v1", "env_key": "SERVED_KEY", "wire_api": "responses", **self.by}
        lines = [f"{k} = {json.dumps(v)}" for k, v in provider.items()]
        text = 'model = "demo"\nmodel_provider = "served"\n[model_providers.served]\n'
        (self.home / "config.toml").write_text(text + "\n".join(lines) + "\n")
        return {"CODEX_HOME": str(self.home), "SERVED_KEY": "-"}

    def argv(self, prompt, more=False, schema=None):
        kept = []
        if schema:
            (self.work / "schema.json").write_text(json.dumps(schema))
            kept = ["--output-schema", "schema.json"]
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", *kept]
        return [CODEX, "exec", *(["resume", "--last"] if more else []), *flags, prompt]

    def last(self, out):
        said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        texts = [e["item"]["text"] for e in said if e["type"] == "item.completed" and e["item"]["type"] == "agent_message"]
        return (texts or [e["message"] for e in said if e["type"] == "error"])[-1]

    def structured(self, value):
        return json.dumps(value)


class CodexSocket(Codex):
    by = {"supports_websockets": True}

    def ask(self, prompt, **kw):
        answer = super().ask(prompt, **kw)
        assert "method=GET path=/v1/responses status=101" in self.s.log and "method=POST path=/v1/responses " not in self.s.log
        return answer


@pytest.mark.parametrize("template", [TEMPLATE, THINKING], ids=["plain", "thinking"])
def test_it_uses_a_tool_and_reads_the_result(agent, tmp_path, template):
    with served(template) as s:
        a = agent(s, tmp_path)
        thought = "<think>Hm.</think>" if template is THINKING else ""
        code, text, all_of_it = a.ask(f"Do it. [[{thought}I will.\n{call(a.shell, **{a.key: ECHO, 'description': 'make a file'})}]]")
        assert (code, text) == (0, "All done."), all_of_it
        assert (a.work / "made.txt").read_text() == "hello\n"
        counts = [int(n) for n in re.findall(r"path=/v1/\w+ status=200 .*cached_tokens=(\d+)", s.log)]
        assert len(counts) >= 2 and counts[-1] > 5000, "the second turn computes only what is new"


def test_a_talk_goes_on(agent, tmp_path):
    with served() as s:
        a = agent(s, tmp_path)
        assert a.ask("Hello. [[One.]]")[:2] == (0, "One.")
        code, text, all_of_it = a.ask("And now? [[Two.]]", more=True)
        assert (code, text) == (0, "Two."), all_of_it


def test_an_answer_of_a_schema_beside_tools(agent, tmp_path):
    with served() as s:
        a = agent(s, tmp_path)
        code, text, all_of_it = a.ask(f"Count. [[{a.structured({'n': 5})}]]", schema=SCHEMA)
        assert code == 0 and json.loads(text) == {"n": 5}, all_of_it


def test_a_full_context_is_told_in_words_that_it_knows(agent, tmp_path):
    with served(room=9000) as s:
        a = agent(s, tmp_path)
        code, text, all_of_it = a.ask("Hello. [[One.]]")
        assert code != 0 and re.search("(?i)prompt is too long|context_length_exceeded", text), all_of_it
