"""Images between router and shard: Request.media, and input_chunks as TGI sends them.

Expected: the greedy tokens that transformers choose (TEST_DATA/vision)."""

import json
import os
import pathlib

import pytest
from serving import ROOT
from shard import Router, Shards

DATA = pathlib.Path(os.environ.get("TEST_DATA") or ROOT / "../shared/data") / "vision"
# what stands around a picture in a prompt, and the id whose rows are replaced
AROUND = {
    "qwen3_vl": ("<|vision_start|><|image_pad|><|vision_end|>", "image_token_id"),
    "gemma3": ("<start_of_image>", "image_token_index"),
    "llava_next": ("<image>", "image_token_index"),
    "pixtral": ("[IMG]", "image_token_index"),
}
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no {DATA}")


def cases(name):
    golden = json.loads((DATA / name / "golden.json").read_text())
    return [c for c in golden["cases"] if c["ids"]]


@pytest.fixture(scope="module", params=[("qwen3_vl", 1), ("qwen3_vl", 2), ("gemma3", 1), ("llava_next", 2), ("pixtral", 1)])
def seeing(request):
    name, world = request.param
    with Shards(DATA / name, world, ["--kv-cache-dtype", "float32"]) as s:
        s.warmup(max_prefill=1024)
        yield name, Router(s)


def file(name):
    return (DATA / "images" / name).read_bytes()


def places(name, case):
    """Tokens [position, position + n) of each picture: features are as many as are not shared."""
    token = json.loads((DATA / name / "config.json").read_text())[AROUND[name][1]]
    at = [i for i, t in enumerate(case["ids"]) if t == token]
    if not case["images"]:
        return []
    assert len(case["images"]) == 1
    return [(at[0], at[-1] + 1 - at[0])]


def placed(router, name, case, **kw):
    """A request with ids and pictures, as the router sends it."""
    r = router.request(case["ids"], 12, ignore_eos=True, **kw)
    for image, (position, n) in zip(case["images"], places(name, case)):
        m = r.media.add(position=position, tokens=n)
        m.image.data, m.image.mimetype = file(image), "image/png"
    return r


def between(router, name, case):
    """The same as texts and pictures, as TGI's router sends them."""
    r = router.request(case["ids"], 12, ignore_eos=True)
    del r.input_ids[:]
    r.add_special_tokens, r.truncate = case["add_special_tokens"], 1000
    texts = case["prompt"].split(AROUND[name][0])
    assert len(texts) == 1 + len(case["images"])
    for text, image in zip(texts, [*case["images"], None]):
        r.input_chunks.chunks.add(text=text)
        if image:
            c = r.input_chunks.chunks.add()
            c.image.data, c.image.mimetype = file(image), "image/png"
    return r


def of_one(name):
    return [c for c in cases(name) if len(c["images"]) < 2]


def test_it_says_so(seeing):
    _, router = seeing
    assert router.s.call("Info", router.pb.InfoRequest()).takes_images


def test_placed_pictures(seeing):
    name, router = seeing
    for case in of_one(name):
        r = placed(router, name, case)
        router.finish(router.prefill(r))
        assert router.got[r.id] == case["greedy_ids"], case["images"]


def test_pictures_between_texts(seeing):
    name, router = seeing
    for case in cases(name):
        r = between(router, name, case)
        router.finish(router.prefill(r))
        assert router.got[r.id] == case["greedy_ids"], case["images"]


def test_together_and_in_chunks(seeing):
    name, router = seeing
    asked = [(c, placed(router, name, c, chunk=None if name == "gemma3" else 7)) for c in of_one(name)]
    router.finish(router.prefill(*[r for _, r in asked]))
    for case, r in asked:
        assert router.got[r.id] == case["greedy_ids"], case["images"]


def error_of(router, r):
    pb = router.pb
    answer = router.s.call("Prefill", pb.PrefillRequest(batch=router.batch(r)))
    (g,) = answer.generations
    assert g.error and "\n" not in g.error
    return g.error


def test_bad_pictures_are_that_request_s_error(seeing):
    name, router = seeing
    case = of_one(name)[1]
    for bad in sorted((DATA / "images").glob("bad_*")):
        r = placed(router, name, case)
        r.media[0].image.data = bad.read_bytes()
        assert error_of(router, r)
        r = between(router, name, case)
        r.input_chunks.chunks[1].image.data = bad.read_bytes()
        assert error_of(router, r)
    r = placed(router, name, case)
    r.media[0].tokens = 1
    assert "tokens in the prompt" in error_of(router, r)
    r = placed(router, name, case)
    r.media[0].position = 2**32 - 1
    assert "cannot stand" in error_of(router, r)
    r = placed(router, name, case)
    router.finish(router.prefill(r))
    assert router.got[r.id] == case["greedy_ids"]


def test_a_text_model_says_no():
    with Shards(ROOT / "models/demo") as s:
        s.warmup()
        router = Router(s)
        assert not s.call("Info", s.pb.InfoRequest()).takes_images
        r = router.request([5, 6, 7], 4)
        r.media.add(position=0, tokens=1).image.data = file("tiny_1x1.png")
        assert "text only" in error_of(router, r)
