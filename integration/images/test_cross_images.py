"""A model with layers that attend to pictures (mllama) through the real programs: an answer has the same bits alone, beside others, while its
pictures wait for room, from the cache, preempted, and after a shard was killed. Which tokens are right: tests/golden/test_vision_*.c."""

import base64
import json
import pathlib
import shutil

import pytest
from serving import DATA, ROOT, Service, check_preempted_and_killed, together, wait_for

PICTURES = [["rgb_120x90.jpg"], ["tall_14x210.png"], ["tiny_3x2.png"], ["exact_56x56.png", "rgba_64x48.png"], ["wide_300x20.png"], []]
ARGS = ["--payload-limit", 20000000, "--max-batch-prefill-tokens", 1024, "--kv-cache-dtype", "float32"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The checkpoint of the unit tests with a tokenizer whose first token behind the vocabulary is that of images, too."""
    words = DATA / "vision/llava_next"
    if not words.exists():
        pytest.skip("reference data not found: vision/llava_next")
    path = tmp_path_factory.mktemp("mllama")
    for file in ("config.json", "preprocessor_config.json", "model.safetensors"):
        shutil.copy(pathlib.Path(ROOT) / "tests/data/vision/mllama" / file, path)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        if (words / file).exists():
            shutil.copy(words / file, path)
    return path


def body(pictures, question="What is this?", new=40, **more):
    read = lambda name: base64.b64encode((DATA / "vision/images" / name).read_bytes()).decode()
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + read(i)}} for i in pictures]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}]
    asked = {"max_tokens": new, "ignore_eos": True, "temperature": 0, "logprobs": True, "return_token_ids": True}
    return {"messages": messages, **asked, **more}


def says(s, one):
    r = s.post("/v1/chat/completions", one)
    assert r.status_code == 200, r.text
    said = r.json()["choices"][0]
    return said["token_ids"], [t["logprob"] for t in said["logprobs"]["content"]]


@pytest.fixture(scope="module")
def alone(model):
    """The answer to each alone, in a service of its own."""
    with Service(model, args=ARGS) as s:
        return [says(s, body(p)) for p in PICTURES]


def test_a_picture_is_one_token_and_says_something(model, alone):
    assert len({json.dumps(ids) for ids, _ in alone}) == len(PICTURES), "pictures do not matter"
    with Service(model, args=ARGS) as s:
        r = s.post("/v1/chat/completions/render", body(["rgb_120x90.jpg"]))
        assert r.json()["token_ids"].count(320) == 1
        # from the cache, as far as it goes: the same picture, and another behind the same token
        question = "What is this? " * 8
        first = s.post("/v1/chat/completions", body(PICTURES[0], question)).json()
        again = s.post("/v1/chat/completions", body(PICTURES[0], question)).json()
        other = s.post("/v1/chat/completions", body(PICTURES[1], question)).json()
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in (first, again, other)]
        assert cached[0] == 0 and cached[1] > 16 and cached[2] < 16
        assert again["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
        assert other["choices"][0]["token_ids"] != first["choices"][0]["token_ids"]


def test_together_as_alone(model, alone):
    """A pool for a few pictures: who comes later waits for room. Texts go on beside them."""
    args = [*ARGS, "--kv-cache-memory", 400000, "--max-total-tokens", 128]
    with Service(model, args=args) as s:
        bodies = [body(p, cache_salt=str(i)) for i in range(3) for p in PICTURES]
        for _ in range(2):
            assert together(s, says, bodies) == alone * 3
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_what_can_never_fit_is_refused(model):
    """Only the shards know the pool of pictures. That a request needs more of it than there is, is the request's fault, also in a stream."""
    args = [*ARGS, "--kv-cache-memory", 100000, "--max-total-tokens", 128]
    with Service(model, args=args) as s:
        many = body(["rgb_120x90.jpg", "tall_14x210.png", "exact_56x56.png", "wide_300x20.png"] * 10, new=4)
        r = s.post("/v1/chat/completions", many)
        assert r.status_code == 400 and "memory for" in r.json()["error"]["message"], r.text
        assert r.json()["error"]["type"] == "invalid_request_error"
        urls = [p["image_url"]["url"] for p in many["messages"][0]["content"] if "image_url" in p]
        r = s.post("/generate", {"inputs": "".join(f"![]({url})" for url in urls) + "What?"})
        assert r.status_code == 422 and r.json()["error_type"] == "validation" and "memory for" in r.json()["error"], r.text
        r = s.post("/v1/chat/completions", many | {"stream": True})
        assert r.status_code == 400 or "memory for" in r.text, r.text
        assert len(says(s, body(PICTURES[0]))[0]) == 40


def test_preempted_and_killed(model, alone):
    """A cache for a few of the streams, and a shard that goes down beside that."""
    tight = ["--max-batch-total-tokens", 448, "--max-total-tokens", 300, "--max-shard-restarts", 3]
    bodies = [body(p, new=90, cache_salt=str(i)) for i in range(3) for p in PICTURES]
    with Service(model, args=[*ARGS, *tight]) as s:
        want = [says(s, b) for b in bodies[: len(PICTURES)]] * 3
        assert [ids[:40] for ids, _ in want] == [ids for ids, _ in alone * 3]
        check_preempted_and_killed(s, says, bodies, want)


def test_two_ranks(model, alone):
    with Service(model, args=[*ARGS, "--num-shard", 2]) as s:
        assert [ids for ids, _ in together(s, says, [body(p) for p in PICTURES])] == [ids for ids, _ in alone]


def test_two_stages(model, alone):
    """The layers that attend to pictures are in both; sums are those of one."""
    with Service(model, args=[*ARGS, "--num-shard", 2, "--pipeline-parallel-size", 2]) as s:
        assert together(s, says, [body(p) for p in PICTURES]) == alone
