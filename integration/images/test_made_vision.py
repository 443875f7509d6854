"""Families of vision models whose checkpoints are made (tests/golden/make_vision.py) through the real programs: an image in a chat, and the
tokens that transformers choose.

These checkpoints have no tokenizer. The one here has a word for each id, so that a prompt is the golden case's ids."""

import base64
import json
import shutil

import pytest
from serving import DATA, ROOT, Service

MADE = ROOT / "tests/data/vision"
# words of ids that a family's placeholders need, and what a template writes for an image
FAMILIES = {
    "deepseek_ocr": ({320: "<image>"}, "<image>"),
    "deepseek_ocr2": ({320: "<image>"}, "<image>"),
    "minimax_m3": ({320: "]<]image[>[", 321: "]<]start of image[>[", 322: "]<]end of image[>["}, "]<]image[>["),
    "hy_v4_vl": ({320: "<|image_pad|>", 321: "<|before|>", 322: "<|behind|>"}, "<|before|><|image_pad|><|behind|>"),
    "mistral_large4": ({318: "[IMG_BREAK]", 319: "[IMG_END]", 320: "[IMG]"}, "[IMG]"),
    "lfm3_vl": (
        {320: "<|image_pad|>", 321: "<|vision_start|>", 322: "<|vision_end|>"}, "<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "step3p7": (
        {317: "<im_end>", 318: "<im_start>", 319: "<patch_newline>", 320: "<im_patch>", 321: "<patch_start>", 322: "<patch_end>"}, "<im_patch>",
    ),
    **dict.fromkeys(("muse_glimmer", "muse_spark"), ({320: "<|patch|>", 321: "<|image_start|>", 322: "<|image_end|>"}, "<|patch|>")),
    "nemotron_h_omni": ({320: "<image>", 321: "<img>", 322: "</img>"}, "<image>"),
    "nemotron_nano_vl": ({320: "<image>", 321: "<img>", 322: "</img>"}, "<image>"),
    "granite_docling": (
        {316: "<global-img>", 317: "<fake_token_around_image>", 318: "\n", 320: "<image>"}
        | {270 + 6 * row + col: f"<row_{row + 1}_col_{col + 1}>" for row in range(6) for col in range(6)},
        "<image>",
    ),
    "glmga": (
        {320: "<|image|>", 321: "<|begin_of_image|>", 322: "<|end_of_image|>"}, "<|begin_of_image|><|image|><|end_of_image|>",
    ),
    "glm5_next": (
        {320: "<|image|>", 321: "<|begin_of_image|>", 322: "<|end_of_image|>"}, "<|begin_of_image|><|image|><|end_of_image|>",
    ),
    "cosmos3_edge": (
        {320: "<|image_pad|>", 321: "<|vision_start|>", 322: "<|vision_end|>"}, "<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "qwen4_exp": (
        {320: "<|image_pad|>", 321: "<|vision_start|>", 322: "<|vision_end|>"}, "<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "cohere_compass": (
        {320: "<|IMAGE_PAD|>", 321: "<|VISION_START|>", 322: "<|VISION_END|>"}, "<|VISION_START|><|IMAGE_PAD|><|VISION_END|>",
    ),
    "ernie4_5_vl": (
        {320: "<|IMAGE_PLACEHOLDER|>", 321: "<|IMAGE_START|>", 322: "<|IMAGE_END|>"},
        "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
    ),
    "ovis2_5": ({320: "<|image_pad|>"}, "<image>"),
    "opencua": (
        {320: "<|media_placeholder|>", 321: "<|media_begin|>", 322: "<|media_end|>"}, "<|media_begin|><|media_placeholder|><|media_end|>",
    ),
    "keye1_5": (
        {320: "<|image_pad|>", 321: "<|vision_start|>", 322: "<|vision_end|>"}, "<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "perception_lm": ({320: "<|image|>"}, "<|image|>"),
    "got_ocr2": ({320: "<imgpad>", 321: "<img>", 322: "</img>"}, "<img><imgpad></img>"),
    "gemma4_unified": ({320: "<|image|>", 321: "<|image>", 322: "<image|>"}, "<|image|>"),
    "video_llama_3": (
        {320: "<|image_pad|>", 321: "<|vision_start|>", 322: "<|vision_end|>"}, "<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "ovis2": (
        {320: "<IMG_ATOM>", 321: "<IMG_START>", 322: "<IMG_GRID>", 323: "<IMG_COL>", 324: "<IMG_ROW>", 325: "<IMG_END>"}, "<image>",
    ),
    "minicpmv2_6": (
        {317: "<image>", 318: "</image>", 320: "<unk>", 321: "<slice>", 322: "</slice>"}, "(<image>./</image>)",
    ),
    "minicpmv4_7": (
        {317: "<image>", 318: "</image>", 319: "\n", 320: "<|image_pad|>", 321: "<slice>", 322: "</slice>"}, "<|image_pad|>",
    ),
    "dots_ocr": ({320: "<|imgpad|>", 321: "<|img|>", 322: "<|endofimg|>"}, "<|img|><|imgpad|><|endofimg|>"),
    "hunyuan_vl": (
        {320: "<｜hy_place▁holder▁no▁102｜>", 321: "<｜hy_place▁holder▁no▁100｜>", 322: "<｜hy_place▁holder▁no▁101｜>"},
        "<｜hy_place▁holder▁no▁100｜><｜hy_place▁holder▁no▁102｜><｜hy_place▁holder▁no▁101｜>",
    ),
    "idefics2": ({317: "<fake_token_around_image>", 320: "<image>"}, "<image>"),
    "vipllava": ({320: "<image>"}, "<image>"),
    "blip2": ({2: "</s>", 320: "<image>"}, "<image>"),
    "blip2_t5": ({1: "</s>", 320: "<image>"}, "<image>"),
    "aria": ({320: "<|img|>"}, "<|img|>"),
    "florence2": ({0: "<s>", 2: "</s>", 320: "<image>"}, "<image>"),
}
FRAMED = {"blip2": (1, 0), "blip2_t5": (0, 1), "florence2": (1, 1)}  # the image comes first; so many tokens are around the text
ARGS = ["--payload-limit", 20000000, "--max-batch-prefill-tokens", 1024, "--kv-cache-dtype", "float32"]
TEMPLATE = """{%% for m in messages %%}{%% for p in m.content %%}{%% if p.type in ('image', 'image_url') %%}%s{%% else %%}{{ p.text }}{%% endif %%}
{%%- endfor %%}{%% endfor %%}"""


def write_tokenizer(path, size, names):
    words = {i: names.get(i, f"[w{i}]") for i in range(size)}
    token = lambda i: dict(id=i, content=words[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=i in names)
    bytes_alone = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    model = dict(
        type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
        byte_fallback=False, vocab={w: i for i, w in words.items()}, merges=[],
    )
    tokenizer = dict(
        version="1.0", truncation=None, padding=None, added_tokens=[token(i) for i in words], normalizer=None,
        pre_tokenizer=bytes_alone, post_processor=None, decoder=bytes_alone, model=model,
    )
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast")))
    return words


def body(case, words, folder, family):
    """One message: the ids before the image, the image, and those behind it, as make_vision.py places them."""
    text = lambda ids: {"type": "text", "text": "".join(words[i] for i in ids)}
    shown = base64.b64encode((folder / case["images"][0]).read_bytes()).decode() if case["images"] else None
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + (shown or "")}}
    ids = case["ids"]
    parts = [text(ids[:4]), image, text(ids[-6:])] if shown else [text(ids)]
    if shown and family in FRAMED:
        begin, end = FRAMED[family]
        parts = [image, text(ids[ids.count(320) + begin : len(ids) - end])]
    return {
        "messages": [{"role": "user", "content": parts}], "max_tokens": len(case["greedy_ids"]), "ignore_eos": True, "temperature": 0,
        "add_special_tokens": False, "return_token_ids": True,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_transformers(family, tmp_path):
    pictures = DATA / "vision/images"
    if not (MADE / family).exists() or not pictures.exists():
        pytest.skip(f"not found: tests/data/vision/{family} or vision/images of the reference data")
    names, marker = FAMILIES[family]
    for file in ("config.json", "preprocessor_config.json", "model.safetensors"):
        shutil.copy(MADE / family / file, tmp_path)
    words = write_tokenizer(tmp_path, 326, names)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE % marker)
    cases = [c for c in json.loads((MADE / family / "golden.json").read_text())["cases"] if len(c["images"]) < 2]
    assert len(cases) > 2
    with Service(tmp_path, args=ARGS) as s:
        for case in cases:
            asked = body(case, words, pictures, family)
            r = s.post("/v1/chat/completions/render", asked)
            if family in FRAMED and case["images"]:  # wherever the image is
                other = {**asked, "messages": [{"role": "user", "content": asked["messages"][0]["content"][::-1]}]}
                assert s.post("/v1/chat/completions/render", other).json()["token_ids"] == r.json()["token_ids"]
            assert r.status_code == 200, r.text
            assert r.json()["token_ids"] == case["ids"], case["images"]
            r = s.post("/v1/chat/completions", asked)
            assert r.status_code == 200, r.text
            assert r.json()["choices"][0]["token_ids"] == case["greedy_ids"], case["images"]


# a video's marker in a template, and the words of ids behind those of the family
IMAGES = {320: "<|image|>", 321: "<|begin_of_image|>", 322: "<|end_of_image|>", 318: "<|begin_of_video|>", 319: "<|end_of_video|>", 323: "<|video|>"}
SECONDS = {i: str(i) for i in range(10)}
FILMS = {
    "glm4v_video": (IMAGES | SECONDS, "<|begin_of_video|><|video|><|end_of_video|>"),
    "glm46v_video": (IMAGES | SECONDS | {10: ".", 11: " seconds"}, "<|begin_of_video|><|video|><|end_of_video|>"),
    "gemma4_video": ({320: "<|image|>", 321: "<|image>", 322: "<image|>", 323: "<|video|>", 10: ":", 11: " "} | SECONDS, "<|video|>"),
    "smolvlm_video": (
        {320: "<image>", 10: ":", 11: "You are provided the following series of four frames from a ", 12: " [H:MM:SS] video.\n", 13: "\nFrame from "}
        | {14: "\n\n", 15: "<fake_token_around_image>", 16: "<global-img>"} | SECONDS, "<video>",
    ),
    "internvl_video": ({320: "<IMG_CONTEXT>", 321: "<img>", 322: "</img>", 323: "<video>", 10: "Frame", 11: ": ", 12: "\n"} | SECONDS, "<video>"),
}


def spelled(words, family, frames, fps, features):
    """What transformers' processors write for a video."""
    ids = {w: i for i, w in words.items()}
    frame = lambda pad: [321] + [pad] * features + [322]
    digits = lambda text: [ids[c] for c in text]
    if family == "glm4v_video":
        return [318] + sum((frame(320) + digits(str(int(2 * i / fps))) for i in range((frames + 1) // 2)), []) + [319]
    if family == "glm46v_video":
        return [318] + sum((frame(320) + digits(f"{2 * i / fps:.1f}") + [ids[" seconds"]] for i in range((frames + 1) // 2)), []) + [319]
    if family == "gemma4_video":
        at = lambda i: digits(f"{int(i / fps) // 60:02d}:{int(i / fps) % 60:02d}")
        return sum(([ids[" "]] * (i > 0) + at(i) + [ids[" "]] + frame(323) for i in range(frames)), [])
    if family == "smolvlm_video":
        at = lambda i: digits(f"{int(i / fps) // 60:02d}:{int(i / fps) % 60:02d}:")
        each = sum(([13] + at(i) + [15, 16] + [320] * features + [15] for i in range(frames)), [])
        return [11] + digits(f"0:00:{int(frames / fps):02d}") + [12] + each + [14]
    return sum(([ids["\n"]] * (i > 0) + [ids["Frame"]] + digits(str(i + 1)) + [ids[": "]] + frame(320) for i in range(frames)), [])


@pytest.mark.parametrize("family", FILMS)
def test_videos_are_written_as_by_transformers(family, tmp_path):
    pictures = DATA / "vision/images"
    if not (MADE / family).exists() or not pictures.exists():
        pytest.skip(f"not found: tests/data/vision/{family} or vision/images of the reference data")
    names, marker = FILMS[family]
    for file in ("config.json", "preprocessor_config.json", "model.safetensors"):
        shutil.copy(MADE / family / file, tmp_path)
    words = write_tokenizer(tmp_path, 326, names)
    template = TEMPLATE.replace("{%% else %%}", "{%% elif p.type == 'video' %%}%s{%% else %%}") % ("<image>", marker)
    (tmp_path / "chat_template.jinja").write_text(template)
    golden = json.loads((MADE / family / "golden.json").read_text())
    case = next(c for c in golden["cases"] if len(c["images"]) == 1)
    film = case["images"][0]
    n, rows = len(film["frames"]), case["features"]["shape"][0]
    features = rows // ((n + 1) // 2 if family.startswith("glm") else n)
    shown = [base64.b64encode((pictures / f).read_bytes()).decode() for f in film["frames"]]
    part = {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(shown)}, "fps": film["fps"]}
    asked = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": words[40]}, part, {"type": "text", "text": words[41]}]}], "max_tokens": 8,
        "ignore_eos": True, "temperature": 0, "add_special_tokens": False, "return_token_ids": True,
    }
    with Service(tmp_path, args=ARGS) as s:
        r = s.post("/v1/chat/completions/render", asked)
        assert r.status_code == 200, r.text
        assert r.json()["token_ids"] == [40] + spelled(words, family, n, film["fps"], features) + [41]
        first, again = (s.post("/v1/chat/completions", asked) for _ in range(2))
        assert first.status_code == again.status_code == 200, first.text
        assert first.json()["choices"][0]["token_ids"] == again.json()["choices"][0]["token_ids"]
        part["fps"] = film["fps"] / 40  # other times, other text
        other = s.post("/v1/chat/completions", asked)
        assert (other.json()["usage"]["prompt_tokens"] == first.json()["usage"]["prompt_tokens"]) == (family in ("internvl_video", "gemma4_video", "smolvlm_video"))
