#!/usr/bin/env python3
"""Compares embeddings with ONNX Runtime and OpenVINO: texts of 128 tokens, the same random weights, alternating.

    python integration/bench/embeddings.py [--shape bge-small] [--rounds 3] [--threads 2] [--texts 64] [--bits 16]

All compute in fp32. With --bits 16 ours and OpenVINO may round to 16 bits: `--dtype bfloat16 --activations 16`, and the precision that OpenVINO
chooses without a hint, which is printed. ONNX Runtime stays in fp32, and is what both are compared with.
Ours is timed through HTTP (/v1/embeddings, ids in, base64 out), the others by one call on a batch that needs no padding. Needs torch,
transformers, onnx, onnxscript, onnxruntime and openvino (PyPI); the programs from BIN_DIR (build/bin)."""

import argparse
import base64
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import openvino
import torch
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Service  # noqa: E402

SHAPES = {
    "bge-small": (BertModel, BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536)),
    "bge-m3": (XLMRobertaModel, XLMRobertaConfig(
        vocab_size=250002, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        max_position_embeddings=8194, type_vocab_size=1, layer_norm_eps=1e-5)),
}
TOKENS = 128


class First(torch.nn.Module):
    """The first token's hidden state, which is all that is asked for."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]


def make(shape, folder):
    kind, config = SHAPES[shape]
    torch.manual_seed(1)
    model = kind(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((DEMO / name).read_bytes())  # ids are sent, not texts
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    (folder / "modules.json").write_text(json.dumps(
        [dict(type="sentence_transformers.models.Transformer", path=""), dict(type="sentence_transformers.models.Pooling", path="1_Pooling")]))
    ids = torch.ones(2, 16, dtype=torch.long)
    torch.onnx.export(First(model), (ids, torch.ones_like(ids)), str(folder / "model.onnx"), input_names=["ids", "mask"], output_names=["out"],
                      dynamic_shapes={"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}, dynamo=True)


def onnx_runtime(path, threads, _):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(["out"], {"ids": ids, "mask": mask})[0]


def open_vino(path, threads, bits):
    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"} | ({"INFERENCE_PRECISION_HINT": "f32"} if bits == 32 else {})
    model = openvino.Core().compile_model(str(path), "CPU", hints)
    print(f"OpenVINO computes in {model.get_property('INFERENCE_PRECISION_HINT').get_type_name()}")
    return lambda ids, mask: model({"ids": ids, "mask": mask})["out"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shape", default="bge-small", choices=SHAPES)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--texts", type=int, default=64)
    p.add_argument("--bits", type=int, default=32, choices=(16, 32))
    o = p.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embed-", dir="/tmp"))
    make(o.shape, folder)
    peers = {"ONNX Runtime": onnx_runtime, "OpenVINO": open_vino}
    peers = {name: make_peer(folder / "model.onnx", o.threads, o.bits) for name, make_peer in peers.items()}
    ids = np.random.default_rng(3).integers(5, 300, (o.texts, TOKENS))
    mask = np.ones_like(ids)
    print(f"{o.shape}: {o.texts} texts of {TOKENS} tokens, {o.bits} bits, {o.threads} threads, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
    args = ["--max-batch-prefill-tokens", str(o.texts * TOKENS), "--threads", str(o.threads)]
    args += ["--dtype", "float32"] if o.bits == 32 else ["--dtype", "bfloat16", "--activations", "16"]
    with Service(folder, args=args) as s:

        def ours(*_):
            r = s.post("/v1/embeddings", {"input": ids.tolist(), "encoding_format": "base64"})
            assert r.status_code == 200, r.text
            return np.stack([np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in r.json()["data"]])

        def timed(f):
            t = time.monotonic()
            f(ids, mask)
            return o.texts * TOKENS / (time.monotonic() - t)

        found = {"ours": ours()}
        for name, run in peers.items():
            x = run(ids, mask)
            found[name] = x / np.linalg.norm(x, axis=1, keepdims=True)
        for name in ("ours", "OpenVINO"):
            apart = np.abs(found[name] - found["ONNX Runtime"]).max()
            cosine = (found[name].astype("f8") * found["ONNX Runtime"].astype("f8")).sum(axis=1)
            cosine /= np.linalg.norm(found[name].astype("f8"), axis=1) * np.linalg.norm(found["ONNX Runtime"].astype("f8"), axis=1)
            print(f"largest difference of {name} from ONNX Runtime: {apart:.1e}, largest 1 - cosine: {(1 - cosine).max():.1e}")
        rounds = [(timed(ours), *map(timed, peers.values())) for _ in range(o.rounds)]
    for row in rounds:
        print("tokens/s: " + ", ".join(f"{name} {rate:.0f}" for name, rate in zip(("ours", *peers), row)))
    for i, name in enumerate(peers, 1):
        print(f"median ratio to {name}: {statistics.median(r[0] / r[i] for r in rounds):.2f}")


if __name__ == "__main__":
    main()
