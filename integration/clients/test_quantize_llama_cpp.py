"""What `model-server quantize` writes as GGUF beside llama.cpp itself (xllamacpp has it in a wheel): its server reads the file and chooses
the same tokens as ours; its own quantisers leave no smaller errors."""

import ctypes
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import BIN, Service, data

gguf = pytest.importorskip("gguf", reason="llama.cpp's Python module reads the files: pip install gguf")
xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp itself: pip install xllamacpp")
import numpy as np  # noqa: E402
from gguf_made import random_model  # noqa: E402
from test_llama_cpp import Peer  # noqa: E402


def quantize(model, out, kind, *args):
    subprocess.run([BIN / "model-server", "quantize", model, out, "--method", f"gguf:{kind}", "--no-report", *args], check=True, timeout=300)
    return out


def ggml():
    """ggml's quantisers are symbols of the wheel's extension."""
    lib = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    return lib


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K_M", "Q5_K_M", "Q4_0", "MXFP4", "F16"])
def test_its_server_chooses_the_same_tokens(tmp_path, kind):
    """Both round activations in ways of their own, so the test is of the first tokens of a trained model."""
    path = quantize(data("models/stories260K"), tmp_path / "m.gguf", kind)
    peer = Peer(path)
    theirs = [token for token, _ in peer.greedy("Once upon a time", 12)[0]]
    with Service(path) as s:
        body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "details": True}}
        ours = [t["id"] for t in s.post("/generate", body).json()["details"]["tokens"]]
    assert ours == theirs


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_S", "Q5_K_S", "Q6_K", "MXFP4"])
def test_errors_are_no_larger_than_its_own(tmp_path, kind):
    """Relative errors of all packed matrices, without an importance matrix, within 1 % of ggml's."""
    source = random_model(tmp_path / "f32.gguf", "F32")
    made = quantize(source, tmp_path / "m.gguf", kind, "--calibration", "none")
    lib, errors, plain = ggml(), [0.0, 0.0], {t.name: t for t in gguf.GGUFReader(str(source)).tensors}
    for t in gguf.GGUFReader(str(made)).tensors:
        if t.tensor_type.name in ("F32", "F16"):
            continue
        x = np.ascontiguousarray(plain[t.name].data, np.float32)
        b = np.zeros(t.n_bytes, np.uint8)
        lib.ggml_quantize_chunk(int(t.tensor_type), x.ctypes.data, b.ctypes.data, 0, x.size // int(t.shape[0]), int(t.shape[0]), None)
        for i, blocks in enumerate((t.data, b.reshape(t.data.shape))):
            errors[i] += float(np.sum((gguf.quants.dequantize(blocks, t.tensor_type) - x) ** 2))
    assert 0 < errors[0] <= 1.02 * errors[1], errors
