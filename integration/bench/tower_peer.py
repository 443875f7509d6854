"""A tower of SigLIP so400m/14 at 896 x 896 with random weights in OpenVINO, beside tests/bench/tower.c.

    python integration/bench/tower_peer.py [threads] [f32] [bf16]      (pip install openvino numpy)

One picture of 4096 patches; the best of two, for each precision of arithmetic that is named."""

import sys
import time

import numpy as np
import openvino as ov
import openvino.opset13 as op

HIDDEN, FFN, LAYERS, HEADS, PATCHES, INPUT = 1152, 4304, 27, 16, 4096, 3 * 14 * 14
rng = np.random.default_rng(0)


def weights(*shape):
    return op.constant((rng.standard_normal(shape) * 0.02).astype(np.float32))


def linear(x, cols, rows):
    return op.add(op.matmul(x, weights(rows, cols), False, True), weights(1, 1, rows))


def norm(x):
    y = op.mvn(x, np.array([2], dtype=np.int64), True, 1e-6, "INSIDE_SQRT")
    return op.add(op.multiply(y, weights(1, 1, HIDDEN)), weights(1, 1, HIDDEN))


def turned(x):
    return op.transpose(x, np.array([0, 2, 1, 3], dtype=np.int64))


def heads(x):
    return turned(op.reshape(x, np.array([1, PATCHES, HEADS, HIDDEN // HEADS], dtype=np.int64), False))


def layer(x):
    y = norm(x)
    q, k, v = (heads(linear(y, HIDDEN, HIDDEN)) for _ in range(3))
    a = turned(op.scaled_dot_product_attention(q, k, v))
    a = op.reshape(a, np.array([1, PATCHES, HIDDEN], dtype=np.int64), False)
    x = op.add(x, linear(a, HIDDEN, HIDDEN))
    return op.add(x, linear(op.gelu(linear(norm(x), HIDDEN, FFN), "tanh"), FFN, HIDDEN))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    patches = op.parameter([1, PATCHES, INPUT], np.float32)
    x = op.add(linear(patches, INPUT, HIDDEN), weights(1, PATCHES, HIDDEN))
    for _ in range(LAYERS):
        x = layer(x)
    model = ov.Model([op.result(norm(x))], [patches])
    picture = rng.standard_normal((1, PATCHES, INPUT)).astype(np.float32)
    for precision in sys.argv[2:] or ["f32", "bf16"]:
        hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        request = ov.Core().compile_model(model, "CPU", hints).create_infer_request()
        best = 1e9
        for _ in range(2):
            start = time.time()
            request.infer([picture])
            best = min(best, time.time() - start)
        print(f"OpenVINO {ov.__version__}, {precision}: {best * 1e3:.0f} ms, {PATCHES / best / 1e3:.2f} patches/ms", flush=True)


main()
