"""The test suites of llama.cpp's server, of vLLM and of TGI against ours: from source distributions on PyPI, and from TGI's repository.

    python integration/suites/run.py llama.cpp [pytest's arguments]     unit/test_completion.py -k seed
    python integration/suites/run.py vllm [pytest's arguments]          tests/entrypoints/openai/completion/test_completion.py
    python integration/suites/run.py tgi [pytest's arguments]           models/test_flash_llama.py; TGI_REPOSITORY is another clone of it

Many of their cases ask for words of one model, or for what is not served here: docs/results/clients.md says which. Their files lie in
build/suites; of those that would start their own server two are replaced. Needs integration/requirements-clients.txt."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
KEPT = HERE.parents[1] / "build/suites"
INDEX = "https://pypi.org/simple/"
VERSIONS = {"llama.cpp": ("llama-cpp-python", "llama_cpp_python-0.3.36"), "vllm": ("vllm", "vllm-0.33.0")}
TGI = ("https://github.com/huggingface/text-generation-inference", "v3.3.7")
LLAMA_CONFTEST = '''import pytest
from utils import *


@pytest.fixture(autouse=True)
def stop_server_after_each_test():
    yield
    for server in set(server_instances):
        server.stop()
'''
# Without vLLM and torch, and of what is served here.
OF_VLLM = """openai/test_chunked_prompt.py openai/test_return_token_ids.py openai/test_return_tokens_as_ids.py openai/chat_completion/test_chat.py
openai/chat_completion/test_chat_completion.py openai/chat_completion/test_chat_echo.py openai/chat_completion/test_chat_logit_bias_validation.py
openai/chat_completion/test_completion_with_function_calling.py openai/chat_completion/test_include_reasoning.py
openai/chat_completion/test_logprob_token_ids.py openai/chat_completion/test_root_path.py openai/completion/test_completion.py
openai/completion/test_prompt_validation.py openai/models/test_models.py openai/responses/test_simple.py serve/tokenize/test_tokenization.py
serve/instrumentator/test_basic.py serve/instrumentator/test_orca_metrics.py serve/lora/test_lora_adapters.py anthropic/test_messages.py
pooling/classify/test_online.py pooling/scoring/test_cross_encoder_online.py""".split()
# TGI's tests of text: without those of images, and of models that read and write by two halves.
NOT_OF_TGI = """flash_gemma3 flash_pali_gemma flash_pali_gemma2 flash_qwen2_5_vl flash_qwen2_vl idefics idefics2 idefics3 llava_next mllama
mt0_base smolvlm t5_sharded transformers_llama4""".split()
OF_LLAMA = """basic chat_completion compat_anthropic compat_oai_responses completion ctx_shift embedding ignore_eos infill metrics rerank security template
tokenize tool_call""".split()


def source(package, name):
    """The unpacked source distribution."""
    folder = KEPT / name
    if folder.exists():
        return folder
    page = INDEX + package + "/"
    link = re.search(rf'href="([^"#]*/{re.escape(name)}\.tar\.gz)', urllib.request.urlopen(page).read().decode()).group(1)
    KEPT.mkdir(parents=True, exist_ok=True)
    path, _ = urllib.request.urlretrieve(urllib.parse.urljoin(page, link), KEPT / f"{name}.tar.gz")
    with tarfile.open(path) as t:
        t.extractall(KEPT, filter="data")
    os.unlink(path)
    return folder


def llama(folder):
    tests = folder / "vendor/llama.cpp/tools/server/tests"
    (tests / "conftest.py").write_text(LLAMA_CONFTEST)  # theirs downloads the models first
    utils = (tests / "utils.py").read_text()
    # names of headers in small letters are as good as others
    (tests / "utils.py").write_text(utils.replace("dict(response.headers)", "response.headers"))
    return tests, {"LLAMA_SERVER_BIN_PATH": str(HERE / "llama_server.py")}, [f"unit/test_{n}.py" for n in OF_LLAMA]


def vllm(folder):
    root = KEPT / "vllm"
    tests = root / "tests"
    if not tests.exists():
        shutil.copytree(folder / "tests/entrypoints", tests / "entrypoints")
    (tests / "__init__.py").touch()
    shutil.copy(HERE / "vllm_server.py", tests / "utils.py")
    shutil.copy(HERE / "vllm_conftest.py", root / "conftest.py")
    return root, {"PYTHONPATH": str(root), "INTEGRATION": str(HERE.parent)}, [f"tests/entrypoints/{f}" for f in OF_VLLM]


def tgi():
    folder, root = KEPT / "text-generation-inference", KEPT / "tgi"
    if not folder.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        where = os.environ.get("TGI_REPOSITORY", TGI[0])
        subprocess.run(["git", "clone", "-q", "--depth", "1", "--branch", TGI[1], where, folder], check=True)
    if not root.exists():
        shutil.copytree(folder / "integration-tests/models", root / "models")
        shutil.copytree(folder / "clients/python/tests", root / "client", ignore=lambda *_: ["conftest.py"])
    shutil.copy(HERE / "tgi_conftest.py", root / "conftest.py")
    left_out = {f"test_{n}.py" for n in NOT_OF_TGI}
    files = [f"models/{p.name}" for p in sorted((root / "models").glob("test_*.py")) if p.name not in left_out]
    return root, {"INTEGRATION": str(HERE.parent)}, ["client", *files]


def main():
    which, *args = sys.argv[1:]
    cwd, env, files = tgi() if which == "tgi" else {"llama.cpp": llama, "vllm": vllm}[which](source(*VERSIONS[which]))
    options = ["-q", "--tb=short", "-rfE", "--timeout=120", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--continue-on-collection-errors"]
    chosen = args if any(a.partition("::")[0].endswith(".py") for a in args) else files + args
    return subprocess.run([sys.executable, "-m", "pytest", *options, *chosen], cwd=cwd, env={**os.environ, **env}).returncode


if __name__ == "__main__":
    sys.exit(main())
