#!/usr/bin/env python3
"""Random blocks of every packing that is read, and the numbers that llama.cpp's own Python module makes of them;
for Q1_0 and Q2_0, which it does not read, those of llama.cpp itself.

    pip install gguf==0.19.0 xllamacpp;  python tests/data/gguf_blocks.py        writes gguf_blocks.bin beside it

Per packing: its number, how many blocks, the blocks, their numbers in fp32. Little-endian."""

import ctypes, glob, os, struct
from importlib.util import find_spec
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import dequantize

# where the half-precision numbers of a block stand
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [], T.TQ1_0: [52], T.TQ2_0: [64],
    T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0],
    T.NVFP4: [],
}
NATIVE = {"q1_0": (41, 128, 18), "q2_0": (42, 64, 18)}  # number, elements, bytes of a block


def every_point(kind, blocks):
    """Indices of points ascend, so that each is there once; what stands beside them stays random."""
    bits, per = {T.IQ1_S: (11, 32), T.IQ1_M: (11, 32), T.IQ2_XXS: (8, 32), T.IQ2_XS: (9, 32), T.IQ2_S: (10, 32),
                 T.IQ3_XXS: (8, 64), T.IQ3_S: (9, 64)}[kind]
    for b in range((1 << bits) // per):
        for i in range(per):
            p, row = b * per + i, blocks[b]
            low, high = p & 255, p >> 8
            if kind == T.IQ2_XXS:
                row[2 + i // 4 * 8 + i % 4] = low
            elif kind == T.IQ2_XS:
                row[2 + 2 * i] = low
                row[3 + 2 * i] = row[3 + 2 * i] & 0xFE | high
            else:
                row[(0 if kind == T.IQ1_M else 2) + i] = low
            if kind == T.IQ2_S:
                row[66 + i // 4] = int(row[66 + i // 4]) & ~(3 << i % 4 * 2) & 255 | high << i % 4 * 2
            elif kind == T.IQ3_S:
                row[66 + i // 8] = int(row[66 + i // 8]) & ~(1 << i % 8) & 255 | high << i % 8
            elif kind == T.IQ1_M:
                row[32 + i // 2] = int(row[32 + i // 2]) & ~(7 << i % 2 * 4) & 255 | high << i % 2 * 4
            elif kind == T.IQ1_S:
                word = row[34 + i // 4 * 2 : 36 + i // 4 * 2].view(np.uint16)
                word[0] = int(word[0]) & ~(7 << i % 4 * 3) & 0xFFFF | high << i % 4 * 3


def native(name, blocks, elements):
    """By the function of llama.cpp, in the wheel's extension."""
    library = ctypes.CDLL(glob.glob(os.path.join(find_spec("xllamacpp").submodule_search_locations[0], "*.so"))[0])
    numbers = np.zeros(len(blocks) * elements, np.float32)
    getattr(library, "dequantize_row_" + name)(ctypes.c_void_p(blocks.ctypes.data), ctypes.c_void_p(numbers.ctypes.data),
                                               ctypes.c_int64(numbers.size))
    return numbers


def random_halves(n):
    """Finite, of either sign; a subnormal one."""
    half = (rng.standard_normal(n) * 0.01).astype(np.float16)
    half[-1] = np.float16(3e-7)
    return half.view(np.uint8).reshape(n, 2)


rng = np.random.default_rng(20240611)
with open(os.path.join(os.path.dirname(__file__), "gguf_blocks.bin"), "wb") as f:
    for kind, halves in HALVES.items():
        elements, size = GGML_QUANT_SIZES[kind]
        points = kind.name[:3] in ("IQ1", "IQ2", "IQ3")
        n = {T.IQ1_S: 66, T.IQ1_M: 66, T.IQ2_S: 33, T.IQ2_XS: 18}.get(kind, 9 if points else 3 if elements == 256 else 16)
        blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for at in halves:
            blocks[:, at : at + 2] = random_halves(n)
        if kind == T.MXFP4:  # exponents that half precision holds
            blocks[:, 0] = rng.integers(106, 134, n)
        if points:
            every_point(kind, blocks)
        if kind == T.IQ1_M:  # its scale lies in the upper nibbles of four words; of any size that is finite
            blocks[:, 55] &= 0x2F
        if kind == T.NVFP4:  # all of them: what is no number, subnormal, with a sign that is not looked at
            blocks[:, :4] = np.arange(16 * 4).reshape(16, 4) * 4 + 3
        if kind == T.TQ1_0:  # as its digits are written: no byte is the fraction of none
            blocks[:, :48] = (rng.integers(0, 243, (n, 48)) * 256 + 242) // 243
            blocks[:, 48:52] = (rng.integers(0, 81, (n, 4)) * 3 * 256 + 242) // 243
        numbers = dequantize(blocks.reshape(-1), kind).astype(np.float32)
        assert numbers.size == n * elements and np.isfinite(numbers).all()
        f.write(struct.pack("<II", kind.value, n) + blocks.tobytes() + numbers.tobytes())
    for name, (number, elements, size) in NATIVE.items():
        blocks = rng.integers(0, 256, (16, size), dtype=np.uint8)
        blocks[:, :2] = random_halves(16)
        f.write(struct.pack("<II", number, 16) + blocks.tobytes() + native(name, blocks, elements).tobytes())
