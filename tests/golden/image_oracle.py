#!/usr/bin/env python3
"""Compare common/image with Pillow on generated pictures, pixel by pixel.

    make build/tests/tools/decode_image
    python tests/golden/image_oracle.py [--seed N] [--rounds N] [--mutants N] [--verbose]

Run by hand, with Pillow installed. Cases: every colour type, depth and interlacing of PNG with and without transparency,
JPEG of every sampling and colour space, lossy, lossless and animated WebP, GIF with odd palettes and frames, all
orientations of EXIF, animations of GIF and WebP as frames at a constant rate, and files that were cut or changed. Whole files must agree exactly. Of broken ones both sides may
refuse what the other accepts: those are counted, and printed with --verbose.
"""
import argparse
import hashlib
import io
import math
import os
import random
import struct
import subprocess
import tempfile
import zlib

from PIL import Image, ImageOps

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


# ------------------------------------------------------------------ what Pillow makes of a file
def meaning(data):
    im = Image.open(io.BytesIO(data))
    im.load()
    im = ImageOps.exif_transpose(im)
    if im.mode == "I;16":
        im = Image.frombytes("L", im.size, im.tobytes()[1::2])
    if im.has_transparency_data:
        white = Image.new("RGBA", im.size, (255, 255, 255, 255))
        im = Image.alpha_composite(white, im.convert("RGBA"))
    im = im.convert("RGB")
    return f"{im.width} {im.height} {hashlib.sha256(im.tobytes()).hexdigest()}"


# ------------------------------------------------------------------ PNG, written here for every type
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_row(samples, depth):
    if depth == 16:
        return struct.pack(f">{len(samples)}H", *samples)
    if depth == 8:
        return bytes(samples)
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    return bytes(int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8))


def png(rng, colour, depth, interlaced, transparent, exif=None, entries=None):
    w, h = rng.randint(1, 40), rng.randint(1, 40)
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    top = (1 << depth) - 1
    few = [rng.randint(0, top) for _ in range(4)]  # so that a transparent colour is met
    rows = [[rng.choice(few) if rng.random() < 0.5 else rng.randint(0, top) for _ in range(w * channels)] for _ in range(h)]
    raw = b""
    for x0, y0, dx, dy in PASSES if interlaced else [(0, 0, 1, 1)]:
        for y in range(y0, h, dy):
            line = [s for x in range(x0, w, dx) for s in rows[y][x * channels : (x + 1) * channels]]
            raw += b"\0" + pack_row(line, depth) if line else b""
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, interlaced))
    out += chunk(b"gAMA", struct.pack(">I", 45455)) if rng.random() < 0.3 else b""
    if colour == 3:
        n = entries or top + 1
        out += chunk(b"PLTE", rng.randbytes(3 * n))
        out += chunk(b"tRNS", rng.randbytes(rng.randint(1, n))) if transparent else b""
    elif transparent:
        out += chunk(b"tRNS", struct.pack(f">{channels}H", *rows[0][:channels]))
    out += chunk(b"eXIf", exif[6:]) if exif and rng.random() < 0.5 else b""
    body, cut = zlib.compress(raw), rng.randint(0, 20)
    out += chunk(b"IDAT", body[:cut]) + chunk(b"IDAT", body[cut:])
    out += chunk(b"eXIf", exif[6:]) if exif and b"eXIf" not in out else b""
    return out + chunk(b"IEND", b"")


def pngs(rng):
    for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            for interlaced in (0, 1):
                # Pillow compares a transparent grey of 2, 4 or 16 bits with samples of 8: no agreement there.
                for transparent in (False, True)[: 1 if colour in (4, 6) or depth == 16 or (colour == 0 and depth in (2, 4)) else 2]:
                    yield f"png {colour} {depth} {interlaced} {transparent}", png(rng, colour, depth, interlaced, transparent)
    for entries in (1, 3, 17, 255):
        yield f"png palette of {entries}", png(rng, 3, 8, 0, True, entries=entries)
    for order in "<>":
        for orientation in range(10):
            yield f"png exif {orientation}", png(rng, 2, 8, 0, False, exif(orientation, order))


# ------------------------------------------------------------------ the others, by Pillow's encoders
def exif(orientation, order="<"):
    head = b"II*\0" if order == "<" else b"MM\0*"
    entries = [(0x010F, 2, 4, b"abc\0"), (0x0112, 3, 1, struct.pack(order + "HH", orientation, 0))]
    out = head + struct.pack(order + "IH", 8, len(entries))
    for tag, kind, count, value in entries:
        out += struct.pack(order + "HHI", tag, kind, count) + value
    return b"Exif\0\0" + out + struct.pack(order + "I", 0)


def picture(rng, mode, most=90):
    """Smooth colours with some noise."""
    small = Image.frombytes(mode, (5, 4), rng.randbytes(20 * len(mode)))
    im = small.resize((rng.randint(1, most), rng.randint(1, most)), Image.BICUBIC)
    return im.point(lambda v: v) if rng.random() < 0.5 else Image.blend(im, Image.frombytes(mode, im.size, rng.randbytes(len(im.tobytes()))), 0.1)


def saved(im, kind, **options):
    out = io.BytesIO()
    im.save(out, kind, **options)
    return out.getvalue()


def jpegs(rng):
    for mode in ("L", "RGB", "CMYK"):
        for progressive in (False, True):
            for sampling in (0, 1, 2):
                for quality in (5, 60, 95):
                    options = dict(quality=quality, progressive=progressive, subsampling=sampling)
                    if rng.random() < 0.3:
                        options["restart_marker_blocks"] = rng.randint(1, 5)
                    yield f"jpeg {mode} {options}", saved(picture(rng, mode), "JPEG", **options)
    for orientation in range(10):
        yield f"jpeg exif {orientation}", saved(picture(rng, "RGB"), "JPEG", exif=exif(orientation, rng.choice("<>")))
    yield "jpeg rgb", saved(picture(rng, "RGB"), "JPEG", keep_rgb=True)
    whole = saved(picture(rng, "RGB"), "JPEG")
    yield "jpeg and more", whole + rng.randbytes(50)


def webps(rng):
    for mode in ("RGB", "RGBA"):
        for lossless in (False, True):
            for quality in (10, 80):
                yield f"webp {mode} {lossless}", saved(picture(rng, mode), "WEBP", lossless=lossless, quality=quality, exact=True)
        frames = [picture(rng, mode).resize((50, 40)) for _ in range(2)]
        yield f"webp frames {mode}", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    for orientation in range(10):
        yield f"webp exif {orientation}", saved(picture(rng, "RGB"), "WEBP", exif=exif(orientation)[rng.choice([0, 6]) :])
    for alpha in (False, True):
        yield f"webp small frame {alpha}", webp_frame(rng, alpha)


def webp_frame(rng, alpha):
    """An animation whose first frame covers a part of the canvas."""
    def riff(kind, data):
        return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def size(v):
        return struct.pack("<I", v)[:3]

    one = picture(rng, "RGBA" if alpha else "RGB", 30)
    image = saved(one, "WEBP", lossless=True)[12:]
    x, y = rng.randint(0, 5), rng.randint(0, 5)
    w, h = one.width + 2 * x + rng.randint(0, 9), one.height + 2 * y + rng.randint(0, 9)
    frame = size(x) + size(y) + size(one.width - 1) + size(one.height - 1) + size(100) + bytes([rng.randint(0, 3)]) + image
    flags = 0x02 | (0x10 if alpha else 0)
    body = riff(b"VP8X", bytes([flags, 0, 0, 0]) + size(w - 1) + size(h - 1))
    body += riff(b"ANIM", rng.randbytes(4) + b"\0\0") + riff(b"ANMF", frame)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def lzw(data, bits):
    """Codes of one width: a clear code before the table grows."""
    clear, width, codes = 1 << bits, bits + 1, []
    for i, v in enumerate(data):
        if i % ((1 << bits) - 2) == 0:
            codes.append(clear)
        codes.append(v)
    value = at = 0
    out = bytearray()
    for code in codes + [clear + 1]:
        value |= code << at
        at += width
        while at >= 8:
            out.append(value & 255)
            value >>= 8
            at -= 8
    out.append(value & 255)
    return bytes(out)


def gif(rng):
    w, h = rng.randint(1, 40), rng.randint(1, 40)
    x, y = (0, 0) if rng.random() < 0.5 else (rng.randint(0, 9), rng.randint(0, 9))
    fw, fh = (w, h) if rng.random() < 0.5 else (rng.randint(1, 40), rng.randint(1, 40))
    bits = rng.randint(2, 8)
    out = rng.choice([b"GIF87a", b"GIF89a"]) + struct.pack("<HH", w, h)
    table = rng.randint(0, 7)
    whole = rng.random() < 0.7
    out += bytes([(0x80 if whole else 0) | table, rng.randint(0, 255), 0]) + (rng.randbytes(6 << table) if whole else b"")
    out += b"!\xfe" + b"\3abc\0" if rng.random() < 0.3 else b""
    out += b"!\xf9\4" + bytes([rng.randint(0, 1), 5, 0, rng.randint(0, 255)]) + b"\0" if rng.random() < 0.5 else b""
    own, interlaced = rng.random() < 0.4, rng.random() < 0.5
    table = rng.randint(0, 7)
    out += b"," + struct.pack("<HHHH", x, y, fw, fh) + bytes([(0x80 if own else 0) | (0x40 if interlaced else 0) | table])
    out += rng.randbytes(6 << table) if own else b""
    data = lzw([rng.randint(0, (1 << bits) - 1) for _ in range(fw * fh)], bits)
    out += bytes([bits]) + b"".join(bytes([len(data[i : i + 200])]) + data[i : i + 200] for i in range(0, len(data), 200))
    return out + b"\0;"


def gifs(rng):
    for i in range(40):
        yield f"gif {i}", gif(rng)
    frames = [picture(rng, "RGB").resize((40, 30)).quantize(rng.randint(2, 256)) for _ in range(3)]
    yield "gif frames", saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    yield "gif transparent", saved(picture(rng, "RGBA"), "GIF")
    yield "gif grey", saved(picture(rng, "L"), "GIF")


# ------------------------------------------------------------------ both sides
def mutants(rng, files, n):
    for _ in range(n):
        name, data = rng.choice(files)
        data = bytearray(data)
        if rng.random() < 0.4:
            del data[rng.randint(0, len(data)) :]
        else:
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.randint(0, 255)
        yield "broken " + name, bytes(data)


def films(rng):
    """Animations: frames that change a part, are transparent in places, and leave several things behind; some with a canvas of their own."""
    for kind in "GIF", "GIF", "WEBP":
        w, h, n = rng.randint(1, 40), rng.randint(1, 40), rng.randint(2, 7)
        mode, frames = rng.choice(["RGB", "RGBA", "P"]), []
        base = Image.frombytes("RGB", (w, h), rng.randbytes(3 * w * h)).quantize(8).convert("RGB")
        for _ in range(n):
            f = base.copy()
            x, y = rng.randrange(w), rng.randrange(h)
            f.paste(tuple(rng.randbytes(3)), (x, y, rng.randint(x + 1, w), rng.randint(y + 1, h)))
            if mode == "RGBA":
                f.putalpha(Image.frombytes("L", (w, h), bytes(rng.choice([0, 255] if kind == "GIF" else [0, 90, 255]) for _ in range(w * h))))
            frames.append(f.quantize(16) if mode == "P" else f)
        times = [rng.choice([0, 10, 20, 70, 100, 330, 1000]) for _ in frames]
        more = dict(disposal=[rng.randint(1, 3) for _ in frames]) if kind == "GIF" else dict(lossless=rng.random() < 0.5)
        if kind == "GIF" and rng.random() < 0.4:
            more |= dict(transparency=rng.randrange(4))
        out = io.BytesIO()
        if len({f.tobytes() for f in frames}) == 1:
            continue  # a still image for Pillow
        frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=times, background=0 if kind == "GIF" else (0, 0, 0, 0), **more)
        yield f"film {kind} {w} x {h}, {n} frames, {mode}, {more}", out.getvalue()


def shown(data, fps):
    """What a video of the animation has: its frame at each 1 / fps seconds. Frames of 10 ms or less take 100 ms."""
    p, frames, end, digest = Image.open(io.BytesIO(data)), [], 0, hashlib.sha256()
    for i in range(getattr(p, "n_frames", 1)):
        p.seek(i)
        f = p.convert("RGBA")  # before its duration is known: WebP
        ms = p.info.get("duration", 0)
        end += 100 if ms <= 10 else ms
        frames.append((end, Image.alpha_composite(Image.new("RGBA", f.size, "white"), f).convert("RGB")))
    n = math.ceil(end * fps / 1000)
    for i in range(n):
        digest.update(next((f for e, f in frames if i * 1000 / fps < e), frames[-1][1]).tobytes())
    return f"{n} {p.width} {p.height} {digest.hexdigest()}"


class Ours:
    def __init__(self):
        self.program = subprocess.Popen([f"{ROOT}/build/tests/tools/decode_image"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.file = tempfile.NamedTemporaryFile()

    def meaning(self, data, fps=None):
        self.file.seek(0)
        self.file.truncate()
        self.file.write(data)
        self.file.flush()
        self.program.stdin.write(self.file.name + (f"\t{fps}" if fps else "") + "\n")
        self.program.stdin.flush()
        return self.program.stdout.readline().strip()


def compare(ours, name, data, sums, verbose, fps=None):
    try:
        theirs = shown(data, fps) if fps else meaning(data)
    except Exception as e:  # Pillow raises what its parsers raise
        theirs = f"error: {type(e).__name__} {e}"
    mine = ours.meaning(data, fps)
    bad = [v.startswith("error") for v in (theirs, mine)]
    verdict = "both refuse" if all(bad) else "only we refuse" if bad[1] else "only Pillow refuses" if bad[0] else "same" if theirs == mine else "other pixels"
    kind = "broken" if name.startswith("broken") else "whole"
    sums[kind, verdict] = sums.get((kind, verdict), 0) + 1
    if verdict != "same" and (kind == "whole" or (verbose and verdict != "both refuse")):
        print(f"{verdict}: {name}\n  Pillow {theirs[:100]}\n  ours   {mine[:100]}")
        if kind == "whole":
            path = f"/tmp/image-oracle-{hashlib.sha256(data).hexdigest()[:8]}"
            with open(path, "wb") as f:
                f.write(data)
            print("  " + path)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--mutants", type=int, default=500)
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    rng, sums, ours = random.Random(a.seed), {}, Ours()
    for _ in range(a.rounds):
        files = [f for made in (pngs, jpegs, webps, gifs) for f in made(rng)]
        for name, data in [*files, *mutants(rng, files, a.mutants)]:
            compare(ours, name, data, sums, a.verbose)
        animated = [f for _ in range(10) for f in films(rng)]
        for name, data in [*animated, *mutants(rng, animated, a.mutants // 5)]:
            compare(ours, name, data, sums, a.verbose, rng.choice([1, 2, 7.5, 30]))
    for (kind, verdict), n in sorted(sums.items()):
        print(f"{kind}: {verdict}: {n}")
    return any(kind == "whole" and verdict != "same" for kind, verdict in sums)


if __name__ == "__main__":
    raise SystemExit(main())
