#!/usr/bin/env python3
"""Compares our image preprocessing with Pillow's resize and numpy, in the same run, on one thread.

    python integration/bench/pixels_peer.py --bench build/tests/bench/pixels

Needs Pillow 12 and numpy. The peer does what the image processors of transformers do, written as briefly as
numpy allows: resize, 8 bits to float32, rescale, normalise, the order of the tower's numbers. Best of several runs.
"""
import argparse
import subprocess
import time

import numpy as np
from PIL import Image, __version__

CLIP = np.array([0.48145466, 0.4578275, 0.40821073], np.float32), np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
HALF = np.full(3, 0.5, np.float32), np.full(3, 0.5, np.float32)
# family, picture, resized to, filter, mean and std, patch (0: planes)
CASES = [
    ("gemma3", (1024, 1024), (896, 896), Image.BILINEAR, HALF, 0),
    ("gemma3", (4032, 3024), (896, 896), Image.BILINEAR, HALF, 0),
    ("qwen3_vl", (1024, 1024), (1024, 1024), Image.BICUBIC, HALF, 16),
    ("qwen2_5_vl", (1024, 1024), (1036, 1036), Image.BICUBIC, CLIP, 14),
]


def planes(picture, size, how, mean, std):
    x = np.asarray(picture.resize(size, how)).astype(np.float32)
    x *= np.float32(1 / 255)
    x -= mean
    x /= std
    return np.ascontiguousarray(x.transpose(2, 0, 1))


def patches(x, patch):
    rows, cols = x.shape[1] // patch // 2, x.shape[2] // patch // 2
    x = x.reshape(3, rows, 2, patch, cols, 2, patch).transpose(1, 4, 2, 5, 0, 3, 6)
    x = np.repeat(x[:, :, :, :, :, None], 2, axis=5)
    return x.reshape(rows * cols * 4, -1)


def best(call, runs=15):
    fastest = 1e9
    for _ in range(runs):
        start = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest * 1e3


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--bench", default="build/tests/bench/pixels")
    bench = args.parse_args().bench
    print(f"Pillow {__version__}, numpy {np.__version__}")
    for family, size, to, how, (mean, std), patch in CASES:
        picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8))
        resize = best(lambda: picture.resize(to, how))
        whole = best(lambda: patches(planes(picture, to, how, mean, std), patch) if patch else planes(picture, to, how, mean, std))
        ours = float(subprocess.run([bench, family, *map(str, size)], check=True, capture_output=True, text=True).stdout.split()[5])
        print(f"{family} {size[0]} x {size[1]}: ours {ours:.1f} ms, Pillow and numpy {whole:.1f} ms (resize {resize:.1f}), ratio {ours / whole:.2f}")


if __name__ == "__main__":
    main()
