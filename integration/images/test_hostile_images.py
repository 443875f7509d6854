"""Changed files of every format through a served model: refused or decoded, never an internal error, and without growing memory."""

import base64
import io
import os
import pathlib
import random

import pytest
from serving import DATA, Service
from test_images import ARGS, answer, cases, folder, greedy

SOUND = ("rgb_97x61.png", "palette_50x30.png", "grey16_30x20.png", "interlaced_37x29.png", "rgb_120x90.jpg", "rgb_120x90_444_prog.jpg",
         "cmyk_48x32.jpg", "webp_lossless_70x50.webp", "webp_lossy_alpha_70x50.webp", "gif_two_frames_45x45.gif")  # fmt: skip
OTHERS = {
    "AVIF": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf",
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
    "TIFF": b"II*\0\10\0\0\0\0\0",
    "BMP": b"BM\x1e\0\0\0\0\0\0\0\x1a\0\0\0",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "JPEG XL": b"\xff\x0a\xfa\x1f\x41\x91",
}


@pytest.fixture(scope="module")
def s():
    with Service(folder("qwen3_vl"), args=ARGS) as s:
        yield s


def send(s, data, tgi):
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    if tgi:
        return s.post("/generate", {"inputs": f"![]({url})?", "parameters": {"max_new_tokens": 1}})
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]
    return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}], "max_tokens": 1})


def changed(rng, data):
    at, few = rng.randrange(len(data)), bytes(rng.randrange(256) for _ in range(rng.randrange(1, 30)))
    return rng.choice([data[:at], data[:at] + few + data[at:], data[:at] + data[at + len(few) :], data[:at] + few + data[at + len(few) :]])


def memory(s):
    """Kilobytes of all processes but the shard, which keeps features."""
    status = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in s.children()]
    return sum(int(t.split("VmRSS:")[1].split()[0]) for t in status if "model-server" not in t.split("\n", 1)[0])


def test_changed_files_are_refused_or_decoded(s):
    grown = 100_000 if "SAN" in os.environ else 4096  # sanitizers keep what is freed
    rng, case = random.Random(7), cases("qwen3_vl")[1]
    files = [(DATA / "vision/images" / name).read_bytes() for name in SOUND]
    seen, before = {}, None
    for i in range(300):
        r = send(s, changed(rng, files[i % len(files)]), i % 2)
        seen[r.status_code] = seen.get(r.status_code, 0) + 1
        assert r.status_code in ((200, 422) if i % 2 else (200, 400)), (i, r.text)
        before = memory(s) if i == 99 else before
    assert min(seen.values()) > 20 and len(seen) == 3, seen
    assert memory(s) - before < grown, "kilobytes more after 200 files"
    assert greedy(answer(s, case)) == case["greedy_ids"]


def test_changed_animations_are_refused_or_decoded(s):
    Image = pytest.importorskip("PIL.Image")
    rng, files, seen = random.Random(11), [], {}
    for kind in "GIF", "WEBP":
        frames = [Image.frombytes("RGB", (40, 30), rng.randbytes(3600)).quantize(16).convert("RGB") for _ in range(4)]
        out = io.BytesIO()
        frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=[300, 10, 700, 400])
        files.append(out.getvalue())
    for i in range(300):
        url = "data:image/gif;base64," + base64.b64encode(changed(rng, files[i % 2])).decode()
        parts = [{"type": "video_url", "video_url": {"url": url}, "fps": rng.choice([1, 2, 10, 1000])}, {"type": "text", "text": "?"}]
        r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}], "max_tokens": 1})
        seen[r.status_code] = seen.get(r.status_code, 0) + 1
        assert r.status_code in (200, 400, 422), (i, r.text)
    assert seen.get(200, 0) > 10 and sum(seen.values()) - seen[200] > 50, seen
    case = cases("qwen3_vl")[1]
    assert greedy(answer(s, case)) == case["greedy_ids"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_are_refused_by_name(s, name):
    r = send(s, OTHERS[name], True)
    assert r.status_code == 422 and f"the image is in {name} format" in r.json()["error"], r.text
    r = send(s, OTHERS[name], False)
    assert r.status_code == 400 and r.json()["error"]["code"] == "invalid_image_format", r.text
