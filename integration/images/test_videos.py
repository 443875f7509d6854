"""Videos through the real programs: tokens equal to transformers' (tests/data/videos.json), cached, and refused where they must be."""

import base64
import io
import json
import pathlib

import pytest
from serving import DATA, Service

CASES = json.loads((pathlib.Path(__file__).parents[2] / "tests/data/videos.json").read_text())
FAMILIES = sorted({c["family"] for c in CASES})
# as in test_images.py
ARGS = ["--payload-limit", 20000000, "--max-batch-prefill-tokens", 1024, "--kv-cache-dtype", "float32"]


def b64(name):
    return base64.b64encode((DATA / "vision/images" / name).read_bytes()).decode()


def folder(family):
    path = DATA / "vision" / family
    if not path.exists():
        pytest.skip(f"reference data not found: vision/{family}")
    return path


def video(case, **more):
    return {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(map(b64, case["frames"]))}, "fps": case["fps"], **more}


def ask(s, *parts, n=12, **more):
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]
    return s.post("/v1/chat/completions", {"messages": messages, "max_tokens": n, "ignore_eos": True, "temperature": 0, "return_token_ids": True, **more})


def greedy(r):
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["token_ids"]


@pytest.fixture(scope="module", params=[(f, 1) for f in FAMILIES] + [("qwen3_vl", 2)], ids=lambda p: f"{p[0]}-{p[1]}")
def seeing(request):
    family, ranks = request.param
    with Service(folder(family), args=ARGS + ["--num-shard", ranks]) as s:
        yield s, [c for c in CASES if c["family"] == family]


def test_greedy_tokens_are_transformers(seeing):
    s, cases = seeing
    assert len(cases) == 2
    for case in cases:
        r = ask(s, video(case))
        assert greedy(r) == case["greedy_ids"], case["frames"]
        assert r.json()["usage"]["prompt_tokens"] == len(case["ids"])


def test_the_prompt_is_transformers(seeing):
    s, cases = seeing
    for case in cases:
        messages = [{"role": "user", "content": [video(case), {"type": "text", "text": "What is this?"}]}]
        r = s.post("/v1/chat/completions/render", {"messages": messages})
        assert r.status_code == 200, r.text
        assert r.json()["token_ids"] == case["ids"]


def test_a_video_is_a_prefix_hit_and_another_rate_is_none(seeing):
    s, cases = seeing
    hits = lambda r: r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    first, again = ask(s, video(cases[0]), cache_salt="v"), ask(s, video(cases[0]), cache_salt="v")
    other = ask(s, video(cases[0]) | {"fps": 7}, cache_salt="v")
    assert greedy(first) == greedy(again) == cases[0]["greedy_ids"]
    assert hits(first) == 0 and hits(other) < 16
    assert hits(again) >= 16 or cases[0]["family"] == "qwen3_5"  # whose states are kept at few places


def test_videos_beside_images_and_twice(seeing):
    s, cases = seeing
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64('rgb_97x61.png')}"}}
    alone = greedy(ask(s, image, video(cases[1]), video(cases[0]), cache_salt="a"))
    assert alone == greedy(ask(s, image, video(cases[1]), video(cases[0]), cache_salt="b"))
    assert alone != greedy(ask(s, video(cases[0]), image, video(cases[1])))


def animation(kind, frames, ms):
    """Frames as an animation, and as a reader has them."""
    from PIL import Image

    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=ms, **({"lossless": True} if kind == "WEBP" else {}))
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_an_animation_is_the_video_of_its_frames(seeing, kind):
    """Half a second each at two a second, and the second frame twice as long."""
    Image = pytest.importorskip("PIL.Image")
    s, _ = seeing
    colours = [Image.frombytes("RGB", (60, 44), bytes(x * (7 + i) % 251 // 64 * 80 for x in range(60 * 44 * 3))) for i in range(3)]
    shown = [colours[i] for i in (0, 1, 1, 2)]
    png = [io.BytesIO() for _ in shown]
    for f, out in zip(shown, png):
        f.save(out, "PNG")
    frames = "data:video/jpeg;base64," + ",".join(base64.b64encode(out.getvalue()).decode() for out in png)
    url = f"data:image/{kind.lower()};base64," + animation(kind, colours, [500, 1000, 500])
    part = lambda url, **more: {"type": "video_url", "video_url": {"url": url}, **more}
    want, got = ask(s, part(frames), cache_salt="frames"), ask(s, part(url), cache_salt=kind)
    assert greedy(want) == greedy(got)
    assert want.json()["usage"]["prompt_tokens"] == got.json()["usage"]["prompt_tokens"]
    r = ask(s, part(url, fps=100))
    assert r.status_code == 400 and "at most 128 frames. Given: 200, of 2.0 seconds at `fps` 100" in r.json()["error"]["message"], r.text


def test_what_is_refused(seeing):
    s, cases = seeing
    bad = lambda url: ask(s, {"type": "video_url", "video_url": {"url": url}})
    for url in "data:video/mp4;base64,AAAA", "data:image/png;base64,AAAA":
        r = bad(url)
        assert r.status_code == 400 and "video files such as MP4 or WebM are not decoded" in r.json()["error"]["message"], r.text
    r = bad("https://example.org/a.mp4")
    assert r.status_code == 400 and "this server fetches no images" in r.json()["error"]["message"], r.text
    r = bad("data:video/jpeg;base64," + ",".join(map(b64, ["rgb_97x61.png", "exact_56x56.png"])))
    assert r.status_code == 400 and "the frames of a video have one size" in r.json()["error"]["message"], r.text
    r = bad("data:video/jpeg;base64," + ",".join(["AAAA"] * 3))
    assert r.status_code == 400 and "Invalid video" in r.json()["error"]["message"], r.text
    r = bad("data:video/jpeg;base64," + ",".join(["?"] * 129))  # before a frame is decoded
    assert r.status_code == 400 and "a video may have at most 128 frames. Given: 129" in r.json()["error"]["message"], r.text
    assert ask(s, video(cases[0]) | {"fps": -1}).status_code in (400, 422)
    assert greedy(ask(s, video(cases[0]))) == cases[0]["greedy_ids"]


def test_a_model_that_sees_images_alone():
    with Service(folder("gemma3"), args=ARGS) as s:
        r = ask(s, video(CASES[0]))
        assert r.status_code in (400, 422) and "video inputs are not supported by this model" in r.text, r.text
