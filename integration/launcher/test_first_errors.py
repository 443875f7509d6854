"""What somebody meets who starts a server for the first time: the last line names the cause and what to do, without a wait."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import pytest
from serving import BIN, DEMO, SLOW, free_port

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
MOST_S = 3  # a start of the demo model takes less than half a second


def launch(folder, *args, model=DEMO, as_nobody=False, most_s=MOST_S):
    """Exit code and last line of a launch that fails."""

    def nobody():
        if as_nobody:
            os.setgid(65534)
            os.setuid(65534)

    argv = [BIN.resolve() / "launcher", "--model-id", model, "--shard-uds-path", folder / "s", *([] if "--port" in args else ["--port", free_port()]), *args]
    env = {**os.environ, "HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1"}
    begun = time.monotonic()
    p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, cwd=folder, env=env, preexec_fn=nobody, timeout=60 * SLOW)
    took = time.monotonic() - begun
    assert took < most_s * SLOW, f"{took:.1f} s\n{p.stdout}"
    return p.returncode, (p.stdout + p.stderr).strip().splitlines()[-1]


def demo(folder, **files):
    """A copy of the demo model; files that are given replace its own, None removes one."""
    to = folder / "model"
    shutil.copytree(DEMO, to)
    for name, content in files.items():
        path = to / name.replace("__", ".")
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    return to


def config(**keys):
    c = json.loads((DEMO / "config.json").read_text()) | keys
    return json.dumps({k: v for k, v in c.items() if v is not None}).encode()


WEIGHTS = (DEMO / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "args,code,words",
    [
        (["--num-shards", 2], 2, "did you mean '--num-shard'?"),
        (["--num-shard", "two"], 2, "--num-shard: `two` is not a number"),
        (["--num-shard", 0], 2, "--num-shard: 0 is outside 1..64"),
        (["--max-total-tokens"], 2, "--max-total-tokens needs a value"),
        (["--dtype", "float17"], 2, "--dtype: `float17` is not one of auto, float16"),
        (["--port", 70000], 2, "--port: 70000 is outside 1..65535"),
        (["--kv-cache-memory", "5 bananas"], 2, "is not a number of bytes, as 67108864, 64MiB or 64M"),
        (["--max-input-tokens", 4000, "--max-total-tokens", 100], 78, "`max_input_tokens`(4000) must be < `max_total_tokens`(100)"),
        (["--hostname", "203.0.113.7"], 1, "cannot listen on 203.0.113.7"),
        (["--num-shard", 3], 78, "`num_shard` 3 does not divide the 8 attention heads of this model; 2 does"),
        (["--max-total-tokens", 100000000], 78, "tokens fit"),
        (["--kv-cache-memory", "1KiB"], 78, "Not enough memory for a KV cache"),
        (["--quantize", "gptq"], 78, "this checkpoint is not stored quantised"),
        (["--api-key-file", "/no/such"], 66, "/no/such: No such file or directory"),
        (["--tls-cert", "/no/c", "--tls-key", "/no/k"], 66, "--tls-cert: open /no/c: No such file"),
        (["--response-store", "/no/such/x.db"], 66, "--response-store /no/such/x.db: No such file or directory"),
        (["--shard-uds-path", "/no/such/s"], 66, "need a writable folder (--shard-uds-path): /no/such/s-0.launch.lock: No such file or directory"),
        (["--chat-template", "/no/such.jinja"], 66, "--tokenizer-config-path: open /no/such.jinja: No such file"),
        (["--generation-config", "/no/such"], 66, "--generation-config: open /no/such/generation_config.json: No such file"),
        (["--draft-heads", "/no/such"], 78, "--draft-heads: /no/such: no model.safetensors"),
        (["--lora-adapters", "x=/no/such"], 1, "Download error of --lora-adapters"),
        (["--draft-model-id", "/no/such"], 1, "Download error of --draft-model-id"),
        (["--lora-adapters", f"x={DEMO}"], 66, "adapter `x`: open"),
    ],
)
def test_of_a_flag(tmp_path, args, code, words):
    got, line = launch(tmp_path, *args)
    assert got == code and words in line, line


@pytest.mark.parametrize(
    "model,code,words",
    [
        ("/no/such/model", 1, "/no/such/model: no such folder or GGUF file, and no name of a repository"),
        ("./modles/demo", 1, "./modles/demo: no such folder or GGUF file, and no name of a repository"),
        ("", 1, "the name of the model is empty"),
        ("nobody/none", 1, "HF_HUB_OFFLINE forbids to fetch it"),
        (DEMO / "model.safetensors", 1, "not a GGUF file; of other files give the folder, with its config.json"),
    ],
)
def test_of_a_path(tmp_path, model, code, words):
    got, line = launch(tmp_path, model=model)
    assert got == code and words in line, line


@pytest.mark.parametrize(
    "files,code,words",
    [
        ({"model__safetensors": None}, 78, "no model.safetensors, no model.safetensors.index.json and no pytorch_model.bin"),
        ({"model__safetensors": b""}, 78, "model.safetensors: empty, or not a regular file"),
        ({"model__safetensors": LFS}, 78, "model.safetensors: a pointer of Git LFS in place of the file; `git lfs pull`"),
        ({"tokenizer__json": LFS}, 78, "tokenizer.json: a pointer of Git LFS in place of the file; `git lfs pull`"),
        ({"model__safetensors": b"<!DOCTYPE html><title>404</title>" * 9}, 78, "not whole, or no safetensors file"),
        ({"model__safetensors": WEIGHTS[:500]}, 78, "not whole, or no safetensors file"),
        ({"model__safetensors": WEIGHTS[: len(WEIGHTS) // 2]}, 78, "the file is not whole"),
        ({"tokenizer__json": None}, 66, "tokenizer.json: No such file or directory"),
        ({"tokenizer__json": (DEMO / "tokenizer.json").read_bytes()[:5000]}, 78, "expected a closing bracket (the text ends here) at byte"),
        ({"config__json": b"{'a': 1}"}, 78, "config.json: expected value at line 1 column 2"),
        ({"config__json": config(model_type="foo", architectures=["FooForCausalLM"])}, 78, "model_type `foo` is not supported (known: "),
        ({"config__json": config(hidden_size=100)}, 78, "has shape [2048, 128]; config.json means [2048, 100]"),
        ({"config__json": config(num_hidden_layers=99)}, 78, "tensor `model.layers.6.input_layernorm.weight` is missing"),
        ({"config__json": config(quantization_config={"quant_method": "quip"})}, 78, "weights quantised by `quip` are not supported (known: gptq"),
    ],
)
def test_of_a_file(tmp_path, files, code, words):
    got, line = launch(tmp_path, model=demo(tmp_path, **files))
    assert got == code and words in line, line


def test_of_an_empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    code, line = launch(tmp_path, model=tmp_path / "empty")
    assert code == 66 and "is no model: it has neither config.json nor a GGUF file" in line


def test_of_a_file_with_the_name_of_a_gguf_file(tmp_path):
    (tmp_path / "x.gguf").write_text("hello")
    code, line = launch(tmp_path, model=tmp_path / "x.gguf")
    assert code == 78 and "x.gguf: not a GGUF file, in spite of its name" in line


def test_of_a_port_in_use(tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        code, line = launch(tmp_path, "--port", port, most_s=3 + MOST_S)  # another launch may be about to end
        assert code == 1 and f"cannot listen on 0.0.0.0 port {port}: Address already in use" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("name,mode,words", [("model.safetensors", 0o600, "model.safetensors"), ("config.json", 0o600, "config.json"), (".", 0o700, "/model")])
def test_of_permissions(name, mode, words):
    folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        model = demo(folder)
        folder.chmod(0o777)
        (model / name).chmod(mode)
        code, line = launch(folder, model=model, as_nobody=True)
        assert code == 77 and line.endswith(f"{words}: Permission denied"), line
    finally:
        shutil.rmtree(folder)
