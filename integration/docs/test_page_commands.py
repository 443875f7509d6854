"""Commands of README, the quick start and the how-to pages are run as they stand there, in the pages' order: a launcher's command line
serves the requests after it. ELSEWHERE names the tests of the others; a command that neither has fails.

Models of the examples are files of the repository and of the reference data."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
import yaml
from gguf_made import write
from serving import BIN, DEMO, ROOT, SLOW, Service, data, free_port
from test_adapters import make_adapter
from test_encdec import classifier
from test_hf_tasks import fillable
from test_sparse_embeddings import folder as sparse
from test_token_rows import BIAS, LABELS
from test_token_rows import folder as labelled

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in ("quick-start", "benchmarks", "lmtp", "tls")), *sorted((DOCS / "how-to").glob("*.md"))]
APART = {"agents.md": "test_agents_page", "lmtp.md": "test_lmtp"}  # pages whose programs in Python run elsewhere
DATA = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}
ADDRESS = re.compile(r"\blocalhost:(3000|80\d\d)\b")
SERVES = re.compile(r"(?:build/bin/)?launcher (?:serve |--)|headrace serve ")
RUNS = re.compile(r"(?:build/bin/)?(?:router|model-server) (?!serve)|launcher (?:health|--help|--env)|echo .*\| launcher|printf .*\| launcher|openssl rand")
ELSEWHERE = {
    r"make |apt-get ": "test_docs.test_commands_exist; docker/Dockerfile and make deps install the packages",
    r"systemctl |journalctl ": "test_package",
    r"podman |docker run .*headrace": "test_image",
    r"helm ": "test_chart",
    r"pip install 'ray|PYTHONPATH=docker/ray": "test_manifests",
    r"export |gemini |claude$|aider |OPENAI_API_BASE_URL=": "test_agents_page",
    r"model-server serve M --uds-path tcp:": "test_nodes",
    r"model-server quantize ": "test_quantize_command",
    r"model-server bench ": "test_tools",
    r"python3 -m venv gl|HF_HUB_OFFLINE=1 gl/": "clients/test_guidellm",
    r"launcher .*--draft-heads ": "test_draft_heads",
    r".*--mmproj ": "test_mmproj",
    r".*--device cuda": "test_gpu_stand_in",
    r"docker run .*text-generation-inference|vllm serve": "programs of others",
    r"client |[│└]|launcher: ": "a drawing",
    r"GENERATE ": "test_lmtp",
}


def blocks(page):
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.S | re.M)


def commands(page):
    """Of blocks without a language: lines with what continues them, and documents behind <<END. Programs in Python are one command each."""
    for language, body in blocks(page):
        if language == "python" and page.name not in APART:
            yield body
        for service in (yaml.safe_load(body) if language == "yaml" else {}).get("services", {}).values():
            yield "launcher serve " + service["command"]  # the image's entry point
        for line in [] if language not in ("", "sh", "bash") else re.findall(r"[^\n]*<<END\n.*?^END$|(?:[^\n]*\\\n)*[^\n]+", body, re.S | re.M):
            yield re.sub(r"^\$ ", "", line.strip())


def elsewhere(command):
    return [pattern for pattern in ELSEWHERE if re.match(pattern, command)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to run in: what an installation has in its PATH, the files that examples name, and what stands for their models."""
    at = tmp_path_factory.mktemp("page")
    for name in ("bin", "libexec/headrace", "made"):
        (at / name).mkdir(parents=True)
    for program in ("launcher", "router", "model-server"):
        (at / "libexec/headrace" / program).symlink_to(BIN.resolve() / program)
        (at / "bin" / program).symlink_to(BIN.resolve() / program)
    shutil.copy(ROOT / "launcher/front/front.sh", at / "bin/headrace")
    (at / "models").symlink_to(ROOT / "models")
    (at / "build").symlink_to(at)  # build/bin
    for name in ("cat.jpg", "page.png"):
        shutil.copy(data("vision/images") / "exif3_60x44.png", at / name)
    key = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*key, "-keyout", "key.pem", "-out", "chain.pem"], cwd=at, check=True, capture_output=True)
    return at


@pytest.fixture(scope="module")
def stands_for(place):
    """Models of examples and what is served in their place."""
    sparse(place / "made/sparse")
    write(DEMO, place / "made/model.gguf", "Q8_0")
    labels = {"classifier.weight": LABELS, "classifier.bias": BIAS}
    ends = {"qa_outputs.weight": LABELS[:2], "qa_outputs.bias": BIAS[:2]}
    return {
        "BAAI/bge-small-en-v1.5": data("embed/bert_mean"),
        "BAAI/bge-reranker-base": data("embed/xlm_roberta_rerank"),
        "facebook/bart-large-mnli": classifier(place / "made/both"),
        "naver/splade-cocondenser-ensembledistil": place / "made/sparse",
        "dslim/bert-base-NER": labelled(place / "made/labels", "BertForTokenClassification", labels),
        "google-bert/bert-base-uncased": fillable(place / "made/masks"),
        "deepset/roberta-base-squad2": labelled(place / "made/answers", "BertForQuestionAnswering", ends),
        "Qwen/Qwen2.5-VL-7B-Instruct": data("vision/qwen2_5_vl"),
        **dict.fromkeys(("google/siglip2-base-patch16-224", "google/siglip-base-patch16-224"), ROOT / "tests/data/siglip"),
        "lightonai/GTE-ModernColBERT-v1": ROOT / "tests/data/late/modern",
        "BAAI/bge-reranker-v2-minicpm-layerwise": ROOT / "tests/data/layerwise",
        "vidore/colqwen2-v1.0-hf": ROOT / "tests/data/pages/colqwen2",
        "jinaai/jina-reranker-v3": ROOT / "tests/data/listwise",
        "/path/to/model-Q4_K_M.gguf": place / "made/model.gguf",
        "/path/to/a": make_adapter(place / "made/a", 1),
        "/path/to/b": make_adapter(place / "made/b", 2),
        **dict.fromkeys(("/path/to/checkpoint", "/path/to/base", "org/name", "M", "…"), DEMO),
    }


def run(place, command):
    env = {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=place, env=env, capture_output=True, text=True, timeout=120 * SLOW)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def replaced(command, stands_for):
    for name, path in sorted(stands_for.items(), key=lambda pair: -len(pair[0])):
        command = re.sub(rf"(?<![\w/.-]){re.escape(name)}(?![\w/.-])", str(path.resolve()), command)
    return command


class Reader:
    """Follows a page: the last command line of a launcher for a port is started when a request to that port comes."""

    def __init__(self, place):
        self.place, self.open, self.running = place, contextlib.ExitStack(), {}
        self.lines = {"3000": ["launcher", "--model-id", str(DEMO)]}

    def serve(self, command):
        command = re.sub(r"(--kv-transfer-address localhost):\d+", lambda m: f"{m[1]}:{free_port()}", command)
        assert "it fits" in run(self.place, re.split(r"\s#", command)[0] + " --dry-run")
        words = shlex.split(command, comments=True)
        port = words[words.index("--port") + 1] if "--port" in words else "3000"
        self.lines[port] = words
        if port == "3000" or port in self.running:
            self.open.close()
            self.running = {}

    def address(self, port):
        if port not in self.running:
            words = self.lines[port]
            at = words.index("--model-id" if "--model-id" in words else "serve") + 1
            args = [w for i, w in enumerate(words[at + 1 :], at + 1) if "--port" not in (w, words[i - 1])]
            cwd = os.getcwd()
            os.chdir(self.place)  # paths of a page are relative to where its reader is
            try:
                self.running[port] = self.open.enter_context(Service(words[at], args=args))
            finally:
                os.chdir(cwd)
        return f"127.0.0.1:{self.running[port].port}"

    def here(self, text):
        return ADDRESS.sub(lambda m: self.address(m[1]), text)

    def ask(self, command):
        said = run(self.place, self.here(command.replace("curl ", "curl -sS --fail-with-body ", 1)))
        assert said.strip() and '"error"' not in said, f"{command}\n{said}"

    def program(self, code):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(self.here(code), "page", "exec"), {})
        assert out.getvalue().strip(), code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_run(page, place, stands_for):
    reader = Reader(place)
    with reader.open:
        for command in commands(page):
            if elsewhere(command):
                continue
            now = replaced(command, stands_for)
            if re.match(r"(?:from|import) ", command):
                reader.program(command)
            elif SERVES.match(command):
                reader.serve(now)
            elif ADDRESS.search(command):
                reader.ask(now)
            else:
                assert RUNS.match(command), f"{page.name}: no test runs this: {command}"
                run(place, now)


@pytest.mark.parametrize("page", sorted({*PAGES, *DOCS.rglob("*.md")}), ids=lambda page: page.name)
def test_blocks_of_data_can_be_read(page):
    for language, body in blocks(page):
        assert language in ("", "sh", "bash", "python", *DATA), f"{page.name}: {language}"
        if language in DATA:
            DATA[language](body)


def test_each_exception_is_of_use():
    found = {pattern for page in PAGES for command in commands(page) for pattern in elsewhere(command)}
    assert found == set(ELSEWHERE)
    for where in ELSEWHERE.values():
        for test in re.findall(r"\btest_\w+", where):
            assert [*(ROOT / "integration").glob(f"**/{test}.py")] or test == "test_commands_exist", test
