#!/usr/bin/env python3
"""Random blocks of every packing that is read, and the numbers that llama.cpp's own Python module makes of them.

    pip install gguf==0.19.0;  python tests/data/gguf_blocks.py        writes gguf_blocks.bin beside it

Per packing: its number, how many blocks, the blocks, their numbers in fp32. Little-endian."""

import os, struct
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import dequantize

# where the half-precision numbers of a block stand
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [], T.TQ1_0: [52], T.TQ2_0: [64],
}

rng = np.random.default_rng(20240611)
with open(os.path.join(os.path.dirname(__file__), "gguf_blocks.bin"), "wb") as f:
    for kind, halves in HALVES.items():
        elements, size = GGML_QUANT_SIZES[kind]
        n = 16 if elements == 32 else 3
        blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for at in halves:  # finite, of either sign; subnormal in one block
            half = (rng.standard_normal(n) * 0.01).astype(np.float16)
            half[-1] = np.float16(3e-7)
            blocks[:, at : at + 2] = half.view(np.uint8).reshape(n, 2)
        if kind == T.MXFP4:  # exponents that half precision holds
            blocks[:, 0] = rng.integers(106, 134, n)
        if kind == T.TQ1_0:  # as its digits are written: no byte is the fraction of none
            blocks[:, :48] = (rng.integers(0, 243, (n, 48)) * 256 + 242) // 243
            blocks[:, 48:52] = (rng.integers(0, 81, (n, 4)) * 3 * 256 + 242) // 243
        numbers = dequantize(blocks.reshape(-1), kind).astype(np.float32)
        assert numbers.size == n * elements and np.isfinite(numbers).all()
        f.write(struct.pack("<II", kind.value, n) + blocks.tobytes() + numbers.tobytes())
