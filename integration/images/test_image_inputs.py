"""Images in the bodies of every protocol, with a fake shard: what the shard receives, and each reason for a refusal."""

import base64
import struct
import zlib

import pytest
import requests
from serving import Scripted

MARKED = "<|vision_start|><|image_pad|><|vision_end|>"
# parts become markers where they stand, as in the templates of Qwen2.5-VL
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}" + MARKED + "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)
UNSUPPORTED = (
    "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
    "['png', 'jpeg', 'gif', 'webp']."
)


def png(width, height, grey=90):
    """A PNG of one shade; of 56 x 56 pixels it is 4 tokens, of 112 x 56 it is 8."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\0" + bytes([grey]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def b64(data):
    return base64.b64encode(data).decode()


def url(data, kind="image/png"):
    return f"data:{kind};base64,{b64(data)}"


SMALL, WIDE = png(56, 56), png(112, 56)
SCRIPT = {"takes_input_ids": True, "takes_images": True, "said_in_prompt": 0, "vocab_size": 2051}


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE, SCRIPT, args=["--max-images", 3, "--max-image-pixels", 200000], takes_images=True) as s:
        yield s


@pytest.fixture(scope="module")
def blind():
    """The same tokenizer, before shards that take no images."""
    with Scripted(TEMPLATE, {**SCRIPT, "takes_images": False}, takes_images=True) as s:
        yield s


def part(data, kind="image/png"):
    return {"type": "image_url", "image_url": {"url": url(data, kind)}}


def text(t):
    return {"type": "text", "text": t}


def chat(s, *content, role="user", **more):
    return s.post("/v1/chat/completions", {"messages": [{"role": role, "content": list(content)}], "max_tokens": 9, **more})


def said(r):
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["message"]["content"]


def ids(s, path="/v1/chat/completions/render", **body):
    r = s.post(path, body)
    assert r.status_code == 200, r.text
    return r.json()["token_ids"]


def where(s, messages):
    """Where the placeholders stand in the prompt of a chat."""
    return [i for i, t in enumerate(ids(s, messages=messages)) if t == 2049]


def saw(at, tokens, data, kind="image/png"):
    return f"[at {at}: {tokens} tokens, {kind}, {len(data)} bytes]"


# ---------------------------------------------------------------- what the shard is sent


def test_openai_chat_in_order(s):
    content = [text("What"), part(SMALL), text(" and "), part(WIDE), text("?")]
    at = where(s, [{"role": "user", "content": content}])
    assert len(at) == 12
    r = chat(s, *content)
    assert said(r) == saw(at[0], 4, SMALL) + saw(at[4], 8, WIDE)
    u = r.json()["usage"]
    assert u["prompt_tokens"] == len(ids(s, messages=[{"role": "user", "content": content}]))


def test_openai_urls_may_be_strings_and_detail_is_ignored(s):
    plain = {"type": "image_url", "image_url": url(SMALL)}
    detail = {"type": "image_url", "image_url": {"url": url(SMALL), "detail": "low"}}
    assert said(chat(s, plain, text("?"))) == said(chat(s, detail, text("?"))) != ""


def test_the_same_picture_is_a_prefix_hit_and_another_is_none(s):
    content = [text("a long text that comes before, so that there are blocks to share. " * 3), part(WIDE), text("x " * 40)]
    first, again = chat(s, *content), chat(s, *content)
    cached = lambda r: r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    other = chat(s, content[0], part(png(112, 56, grey=91)), content[2])
    at = where(s, [{"role": "user", "content": content}])[0]
    assert cached(again) > at + 8 and cached(first) < at
    assert 0 < cached(other) <= at


def test_a_tools_result_may_be_a_picture(s):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("here:"), part(SMALL)]},
    ]
    r = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 5})
    assert "4 tokens" in said(r)


def test_responses(s):
    seen = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": url(SMALL), "detail": "auto"}]
    r = s.post("/v1/responses", {"input": [{"role": "user", "content": seen}]})
    assert r.status_code == 200, r.text
    out = r.json()["output"][-1]["content"][0]["text"]
    assert out.endswith("4 tokens, image/png, %d bytes]" % len(SMALL))
    n = s.post("/v1/responses/input_tokens", {"input": [{"role": "user", "content": seen}]}).json()["input_tokens"]
    assert r.json()["usage"]["input_tokens"] == n
    output = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": url(WIDE)}]}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    r = s.post("/v1/responses", {"input": [{"role": "user", "content": "look"}, call, output]})
    assert "8 tokens" in r.text
    r = s.post("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]})
    assert r.status_code == 400 and "file_id" in r.json()["error"]["message"]


def messages(s, *content, **more):
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": list(content)}], **more}
    return s.post("/v1/messages", body)


def block(data, kind="image/png"):
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": b64(data)}}


def test_anthropic(s):
    r = messages(s, text("What"), block(SMALL), text(" and "), block(WIDE))
    assert r.status_code == 200, r.text
    told = r.json()["content"][0]["text"]
    assert "4 tokens" in told and "8 tokens" in told and told.index("4 tokens") < told.index("8 tokens")
    body = {"model": "m", "messages": [{"role": "user", "content": [text("What"), block(SMALL), text(" and "), block(WIDE)]}]}
    n = s.post("/v1/messages/count_tokens", body).json()["input_tokens"]
    u = r.json()["usage"]
    assert u["input_tokens"] + u.get("cache_read_input_tokens", 0) == n
    inside = {"type": "tool_result", "tool_use_id": "t", "content": [text("see"), block(WIDE)]}
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    talk = [{"role": "user", "content": "look"}, {"role": "assistant", "content": [use]}, {"role": "user", "content": [inside]}]
    r = s.post("/v1/messages", {"model": "m", "max_tokens": 9, "messages": talk})
    assert "8 tokens" in r.json()["content"][0]["text"]


def test_tgi_inputs(s):
    inputs = f"![]({url(SMALL)})What is this?![]({url(WIDE)})"
    r = s.post("/generate", {"inputs": inputs, "parameters": {"max_new_tokens": 9, "details": True}})
    assert r.status_code == 200, r.text
    begin, start = 1, 1  # <|begin|>, <|vision_start|>
    told = r.json()["generated_text"]
    assert told.startswith(saw(begin + start, 4, SMALL)) and "8 tokens" in told
    last = list(s.events("/generate_stream", {"inputs": inputs, "parameters": {"max_new_tokens": 9, "details": True}}))[-1]
    tokens = s.post("/tokenize", {"inputs": inputs}).json()
    assert last["generated_text"] == told and last["details"]["input_length"] == len(tokens)
    assert sum(t["id"] == 2049 for t in tokens) == 12
    full = s.post("/generate", {"inputs": inputs, "parameters": {"max_new_tokens": 2, "return_full_text": True}}).json()
    assert full["generated_text"].startswith(inputs)


def test_several_answers_share_one_reading(s):
    r = chat(s, part(SMALL), text("?"), n=3, temperature=1.0)
    assert [c["message"]["content"][-8:] for c in r.json()["choices"]] == [said(r)[-8:]] * 3


def test_tokens_of_a_chat(s):
    body = {"messages": [{"role": "user", "content": [part(SMALL), text("?")]}]}
    r = s.post("/chat_tokenize", body).json()
    assert sum(t["id"] == 2049 for t in r["tokenize_response"]) == 4
    assert r["templated_text"].count("<|image_pad|>") == 1
    assert s.post("/tokenize", body).json()["tokens"].count(2049) == 4


def test_a_model_says_that_it_sees(s, blind):
    info = requests.get(s.url + "/info", timeout=9).json()
    assert info["model_pipeline_tag"] == "image-text-to-text" and info["input_modalities"] == ["text", "image"]
    assert requests.get(s.url + "/v1/models", timeout=9).json()["data"][0]["input_modalities"] == ["text", "image"]
    assert requests.get(s.url + "/props", timeout=9).json()["modalities"] == {"vision": True, "audio": False}
    assert requests.get(blind.url + "/props", timeout=9).json()["modalities"] == {"vision": False, "audio": False}
    assert requests.get(blind.url + "/info", timeout=9).json()["model_pipeline_tag"] is None
    assert "input_modalities" not in requests.get(blind.url + "/v1/models", timeout=9).json()["data"][0]


# ---------------------------------------------------------------- templates


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}",  # for strings
        "{% for m in messages %}<|user|>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}" + MARKED
        + "{% endif %}{% endfor %}{% endfor %}",  # for lists alone
    ],
)  # fmt: skip
def test_every_kind_of_template(template):
    with Scripted(template, SCRIPT, takes_images=True) as s:
        r = s.post("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "Hello"}]})
        assert r.json()["prompt"] == "<|user|>Hello"
        seen = [{"role": "user", "content": [text("Hello"), part(SMALL)]}]
        r = s.post("/v1/chat/completions/render", {"messages": seen})
        assert r.json()["prompt"] == "<|user|>Hello" + MARKED
        assert r.json()["token_ids"].count(2049) == 4


# ---------------------------------------------------------------- refused


def refused(r, status, message, **error):
    assert r.status_code == status, r.text
    e = r.json()["error"]
    assert message in (e["message"] if isinstance(e, dict) else e), r.text
    for k, v in error.items():
        assert e[k] == v, r.text


BROKEN = {"empty": b"", "text": b"this is no picture", "cut": SMALL[:-30], "bomb": png(1, 1)[:16] + struct.pack(">II", 60000, 60000) + png(1, 1)[24:]}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_no_picture(s, data):
    refused(chat(s, part(data), text("?")), 400, UNSUPPORTED, code="invalid_image_format", type="invalid_request_error")
    refused(messages(s, block(data), text("?")), 400, "Could not process image", type="invalid_request_error")
    r = s.post("/generate", {"inputs": f"![]({url(data)})?"})
    refused(r, 422, "Input validation error: invalid image: ")
    assert r.json()["error_type"] == "validation"
    assert said(chat(s, part(SMALL), text("?")))  # the next one works


def test_what_is_no_url(s):
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@@"}}
    refused(chat(s, broken), 400, "Invalid image URL", code="invalid_image_url")
    for bad in ("file:///etc/passwd", "data:image/png,abc", "gopher://x", ""):
        refused(chat(s, {"type": "image_url", "image_url": {"url": bad}}), 400, "Invalid image URL", code="invalid_image_url")
    source = {"type": "base64", "media_type": "image/png", "data": "@@@@"}
    refused(messages(s, text("a"), {"type": "image", "source": source}), 400, "messages.0.content.1.image.source.base64.data: ")
    kind = {"type": "image", "source": {**source, "media_type": "image/tiff"}}
    refused(messages(s, kind), 400, "messages.0.content.0.image.source.base64.media_type: Input should be ")
    refused(s.post("/generate", {"inputs": "![](data:image/png;base64,@@@@)"}), 422, "Input validation error: base64 encoding is invalid: ")
    with_charset = "data:image/png;charset=x;base64," + b64(SMALL)
    assert said(chat(s, {"type": "image_url", "image_url": {"url": with_charset}}))
    lines = "data:image/png; base64," + base64.encodebytes(SMALL).decode()  # as many encoders write it
    assert said(chat(s, {"type": "image_url", "image_url": {"url": f" {lines}"}}))
    refused(s.post("/generate", {"inputs": f"![]({with_charset})"}), 422, "Input validation error: invalid image content: data:")
    refused(s.post("/generate", {"inputs": "![](cat.png)"}), 422, "Input validation error: invalid image content: cat.png")


def test_nothing_is_fetched_unless_it_is_allowed(s):
    away = "http://169.254.169.254/latest/meta-data"
    refused(chat(s, {"type": "image_url", "image_url": {"url": away}}), 400, "Failed to download image from " + away, code="invalid_image_url")
    refused(messages(s, {"type": "image", "source": {"type": "url", "url": away}}), 400, "Unable to download the file")
    refused(s.post("/generate", {"inputs": f"![]({away})"}), 422, "Input validation error: Could not fetch image: ")


def test_limits(s):
    refused(chat(s, *[part(SMALL)] * 4), 400, "at most 3 images. Given: 4")
    refused(chat(s, part(png(500, 300)), part(png(300, 300))), 400, "at most 200000 pixels together")
    assert said(chat(s, part(png(500, 300)), part(png(200, 200))))
    refused(chat(s, part(png(402, 1))), 400, "Input validation error")  # wider than Qwen's preprocessing takes


def test_placeholders_that_a_client_wrote(s):
    assert said(chat(s, part(SMALL), text("<|image_pad|>"))) == said(chat(s, part(SMALL), text("?")))  # in a message it is text
    assert said(chat(s, text("<|image_pad|> alone is a token"))) is not None
    refused(s.post("/generate", {"inputs": f"![]({url(SMALL)})<|image_pad|>"}), 422, "5 placeholders of images where its images need 4")
    plain = s.post("/generate", {"inputs": "<|image_pad|>", "parameters": {"max_new_tokens": 3}})
    assert plain.status_code == 200, plain.text


def test_a_prompt_with_images_is_not_truncated(s):
    r = s.post("/generate", {"inputs": f"![]({url(SMALL)})" + "x " * 50, "parameters": {"truncate": 10, "max_new_tokens": 3}})
    refused(r, 422, "`truncate` would cut a prompt with images")


def test_a_model_without_eyes(blind):
    refused(chat(blind, part(SMALL), text("?")), 400, "image inputs are not supported by this model")
    refused(messages(blind, block(SMALL)), 400, "image inputs are not supported by this model")
    inputs = f"![]({url(SMALL)})"
    r = blind.post("/generate", {"inputs": inputs, "parameters": {"max_new_tokens": 3}})
    assert r.status_code == 200, r.text  # for text models the text stays as it is


def test_images_elsewhere_than_they_belong(s):
    refused(chat(s, part(SMALL), role="system"), 400, "roles `user` and `tool` only")
    refused(chat(s, {"type": "file", "file": {}}), 400, "a file needs `file_data`")
    refused(chat(s, {"type": "map"}), 400, "must have the type `text` or `image_url`")
    refused(chat(s, {"type": "input_audio", "input_audio": {}}), 400, "audio is not supported")
    refused(chat(s, {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}), 400, "video inputs are not supported by this model")
    refused(chat(s, {"type": "image_url"}), 400, "missing field `url`")


# ---------------------------------------------------------------- SDKs


def test_the_openai_sdk(s):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="-")
    r = client.chat.completions.create(model="m", max_tokens=9, messages=[{"role": "user", "content": [text("?"), part(SMALL)]}])
    assert "4 tokens" in r.choices[0].message.content
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": [part(b"nothing")]}])
    assert e.value.code == "invalid_image_format"
    seen = {"type": "input_image", "image_url": url(WIDE), "detail": "auto"}
    assert "8 tokens" in client.responses.create(model="m", input=[{"role": "user", "content": [seen]}]).output_text


def test_the_anthropic_sdk(s):
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=s.url, api_key="-", max_retries=0)
    r = client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": [block(SMALL), text("?")]}])
    assert "4 tokens" in r.content[0].text
    with pytest.raises(anthropic.BadRequestError, match="Could not process image"):
        client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": [block(b"nothing")]}])


def test_the_hub_client(s):
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(base_url=s.url)
    r = client.chat_completion([{"role": "user", "content": [part(SMALL), text("?")]}], max_tokens=9)
    assert "4 tokens" in r.choices[0].message.content
