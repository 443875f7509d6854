#!/usr/bin/env python3
"""Compares image decoding with Pillow: alternating rounds on the same machine.

    make build/tests/bench/image
    python integration/bench/images.py FILE... [--rounds 5] [--build build]

Each round runs tests/bench/image and then Pillow on the same files, 40 times each; printed are the medians of the rounds'
medians in milliseconds. Pillow: open, load, EXIF, and bytes as RGB.
"""
import argparse
import io
import pathlib
import statistics
import subprocess
import time

from PIL import Image, ImageOps, __version__, features

RUNS = 40


def pillow(data):
    took = []
    for _ in range(RUNS):
        t = time.perf_counter()
        ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB").tobytes()
        took.append(1000 * (time.perf_counter() - t))
    return statistics.median(took)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("files", nargs="+", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--build", default="build")
    a = p.parse_args()
    rounds = {f.name: [] for f in a.files}
    for _ in range(a.rounds):
        lines = subprocess.run([f"{a.build}/tests/bench/image", *a.files], capture_output=True, text=True, check=True).stdout.splitlines()
        for f, line in zip(a.files, lines):
            words = line.split()
            rounds[f.name].append((float(words[3]), float(words[5]), pillow(f.read_bytes())))
    print(f"Pillow {__version__}, libjpeg-turbo {features.version_feature('libjpeg_turbo')}, {a.rounds} rounds of {RUNS}")
    print("| file | in one process | in the decoding process | Pillow |\n|---|---|---|---|")
    for name, values in rounds.items():
        print(f"| {name} | " + " | ".join(f"{statistics.median(v):.2f} ({min(v):.2f} to {max(v):.2f})" for v in zip(*values)) + " |")


if __name__ == "__main__":
    main()
