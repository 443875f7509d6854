"""Quantised checkpoints of other tools, compared with the same numbers in fp32."""

import functools
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import requests
from serving import BIN, DEMO, Service

pytest.importorskip("gguf", reason="its reader of tensors is shared: pip install gguf")
from stored_made import KINDS, mlx_folder, write  # noqa: E402

pytestmark = pytest.mark.usefixtures("small_caches")
ASK = {"inputs": "The capital of France is", "parameters": {"max_new_tokens": 16, "details": True, "decoder_input_details": True, "ignore_eos": True}}
# what the packed matrices become with 8-bit activations; in exact arithmetic where that differs
KEPT = {"nf4": "nf4", "nf4-nested": "nf4", "fp4": "fp4", "llm-int8": "bitsandbytes", "nvfp4": "nvfp4", "nvfp4-packed": "nvfp4"}
MIXED = {"mlx": "mlx 43", "auto-round": "auto-round 24, widened to float32 18", "ct-mixed": "compressed-tensors 24, nvfp4 12, mxfp4 6",
         "torchao": "torchao 42", "hqq": "hqq 42"}
ROUNDED = ("nf4", "nf4-nested", "fp4")


def answers(path, num_shard, *args):
    """Log-probabilities of the prompt, and what /info says of matrices."""
    with Service(path, num_shard, args=["--kv-cache-dtype", "float32", *args]) as s:
        d = s.post("/generate", ASK).json()["details"]
        info = requests.get(s.url + "/info", timeout=10).json()
        return [t["logprob"] for t in d["prefill"][1:] + d["tokens"]], [t["id"] for t in d["tokens"]], info.get("matrices")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The two folders of a kind, made once."""
    return functools.cache(lambda kind: write(DEMO, tmp_path_factory.mktemp(kind), kind))


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


@pytest.mark.parametrize("kind,num_shard", [(k, n) for k in KINDS for n in (1, 2) if n == 2 or k not in MIXED])
def test_the_numbers_are_those_of_the_file(written, kind, num_shard):
    stored, plain = written(kind)
    want, ids, none = answers(plain, num_shard, "--dtype", "float32", "--activations", "exact")
    got, same, matrices = answers(stored, num_shard, "--dtype", "float32", "--activations", "exact")
    assert none is None and matrices.startswith("widened to float32 ") and "," not in matrices
    assert apart(got, want) < 1e-4 and same == ids
    if kind in MIXED:
        packed, _, matrices = answers(stored, num_shard)
        assert matrices == MIXED[kind] and 1e-6 < apart(packed[:4], want[:4]) < 0.5
        return
    exact, same, matrices = answers(stored, num_shard, "--activations", "exact")
    assert matrices.startswith("widened to float32 " if kind in ROUNDED else KEPT[kind] + " ") and "," not in matrices
    assert apart(exact, want) < 1e-4 and same == ids
    packed, _, matrices = answers(stored, num_shard)
    assert matrices.startswith(KEPT[kind] + " ") and "," not in matrices
    assert 1e-6 < apart(packed[:4], want[:4]) < 0.5


@pytest.mark.parametrize("family", ["mixtral", "qwen3_next"])
def test_numbers_that_mlx_changes(tmp_path, family):
    folder = pathlib.Path(os.environ.get("TEST_DATA", "no data")) / "arch" / family
    if not folder.exists():
        pytest.skip(f"no {family} under TEST_DATA")
    got, want = [], []
    for path, to in zip(mlx_folder(folder, tmp_path), (got, want)):
        run = subprocess.run([BIN / "model-server", "logits", path, "--ids", "5,9,33,12", "--dtype", "float32"], capture_output=True, check=True)
        to += json.loads(run.stdout)["last_logits"]
    assert apart(got, want) < 1e-4


def refused(path, config):
    text = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(text | {"quantization_config": config}))
    s = Service(path, ready=False)
    assert s.p.wait(60) != 0
    return s.log


@pytest.mark.parametrize("method", ["exl2", "exl3", "aqlm", "eetq", "quanto", "higgs", "vptq", "spqr", "fp_quant"])
def test_what_is_not_read_is_refused_by_its_name(tmp_path, method):
    stored = shutil.copytree(DEMO, tmp_path / "stored", ignore=shutil.ignore_patterns("train"))
    assert f"weights quantised by `{method}` are not supported (known: gptq, awq" in refused(stored, {"quant_method": method})


def test_a_tied_matrix_may_have_the_name_of_the_head(tmp_path):
    """safetensors' save_model() keeps one of two tied tensors, the first in the alphabet."""
    for f in DEMO.iterdir():
        if f.is_file() and f.name != "model.safetensors":
            (tmp_path / f.name).symlink_to(f)
    raw = (DEMO / "model.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + n].replace(b'"model.embed_tokens.weight"', b'"lm_head.weight"')
    assert header != raw[8 : 8 + n]
    header += b" " * (n - len(header))
    (tmp_path / "model.safetensors").write_bytes(raw[:8] + header + raw[8 + n :])
    assert answers(tmp_path, 1) == answers(DEMO, 1)


@pytest.mark.parametrize("name,num_shard", [("gptq_g32", 1), ("gptq_g32", 2), ("awq_gemm_g32", 1)])
def test_a_head_in_16_bits_has_8_beside_packed_layers(name, num_shard):
    """Only where products of the layers round activations to 8 bits."""
    folder = pathlib.Path(os.environ.get("TEST_DATA", "no data")) / "quant" / name
    if not folder.exists():
        pytest.skip(f"no {name} under TEST_DATA")
    exact, _, matrices = answers(folder, num_shard, "--activations", "exact")
    assert "q8_0" not in matrices
    packed, _, matrices = answers(folder, num_shard)
    assert matrices.startswith("q8_0 1, ")
    assert 1e-6 < apart(packed[:4], exact[:4]) < 0.5


@pytest.mark.parametrize("num_shard", [1, 2])
def test_a_head_in_16_bits_has_6_beside_int4(num_shard):
    assert answers(DEMO, num_shard, "--quantize", "int4")[2] == "int6 1"
    assert not answers(DEMO, num_shard, "--quantize", "w8a8")[2]
