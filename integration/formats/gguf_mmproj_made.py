"""Both GGUF files of vision models whose checkpoints are made (tests/golden/make_vision.py): as llama.cpp's converters name and change them.

These checkpoints have no tokenizer: test_made_vision.py writes one."""

import json
import pathlib
import re
import shutil

import gguf
import numpy as np
from gguf_families import ARCH, write_family
from gguf_keys import attention_only, gemma4, glm4moe, granite, lfm2, mamba
from gguf_keys_latent import deepseek2
from gguf_made import paired, tensors
from gguf_mmproj import safetensors
from test_made_vision import MADE, TEMPLATE, write_tokenizer

# Regular expressions of names in a folder, and llama.cpp's names.
CLIP = [
    (r".*embeddings\.class_embedding", "v.class_embd"),
    (r".*embeddings\.patch_embedding\.(\w+)", r"v.patch_embd.\1"),
    (r".*embeddings\.position_embedding\.(\w+)", r"v.position_embd.\1"),
    (r".*\.pre_layrnorm\.(\w+)", r"v.pre_ln.\1"),
    (r".*\.post_layernorm\.(\w+)", r"v.post_ln.\1"),
    (r".*layers\.(\d+)\.layer_norm(\d)\.(\w+)", r"v.blk.\1.ln\2.\3"),
    (r".*layers\.(\d+)\.self_attn\.(?:out_proj|projection_layer)\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"v.blk.\1.attn_\2.\3"),
    (r".*layers\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
    (r".*layers\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
]
# The first converter took fc1 for the way down.
LLAVA = [
    (r".*layers\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_down.\2"),
    (r".*layers\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_up.\2"),
    (r".*linear_1\.(\w+)", r"mm.0.\1"),
    (r".*linear_2\.(\w+)", r"mm.2.\1"),
    (r".*image_newline", "model.image_newline"),
    *CLIP,
]


def llava(w, c, p):
    """What llava-surgery and convert_image_encoder_to_gguf.py write: no width of features, and layers up to the last that is seen."""
    v = c["vision_config"]
    last = v["num_hidden_layers"]
    layers = c["vision_feature_layer"]
    seen = [n if n >= 0 else last + 1 + n for n in (layers if isinstance(layers, list) else [layers])]
    w.add_bool("clip.has_llava_projector", True)
    w.add_vision_projection_dim(v.get("projection_dim", 0))
    w.add_vision_block_count(max(seen))
    w.add_bool("clip.use_gelu", v["hidden_act"] == "gelu")
    if c["model_type"] == "llava_next":
        w.add_string("clip.projector_type", "mlp")
        w.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
        w.add_array("clip.vision.image_grid_pinpoints", sum(p["image_grid_pinpoints"], []))
        w.add_array("clip.vision.feature_layer", seen)
    return max(seen)


def padded(c, p):
    side = p.pop("size")["height"]
    p |= {"size": {"shortest_edge": side}, "crop_size": side, "do_pad": True}


class Kind:
    """`text`: what write_family() makes the text model of. `rules`: names. `says`: writes metadata, and returns how many layers there are.
    `change`: a tensor as the converter changes it. `known`: makes the folder's settings those that files can say. `words`: the tokens' texts. `drop`: part of the names of tensors that the
    folder does without."""

    def __init__(self, text, rules, says, marker, words=None, change=None, known=None, drop=None):
        self.drop = drop
        self.text, self.rules, self.says, self.marker = text, rules, says, marker
        self.words, self.change, self.known = words or {320: marker}, change or (lambda name, v, c: v), known or (lambda c, p: None)


INTERNVL = [
    (r".*cls_token", "v.class_embd"),
    (r".*patch_embeddings\.projection\.(\w+)", r"v.patch_embd.\1"),
    (r".*position_embeddings", "v.position_embd"),
    (r".*layer\.(\d+)\.attention\.projection_layer\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*layer\.(\d+)\.attention\.([qkv])_proj\.(\w+)", r"v.blk.\1.attn_\2.\3"),
    (r".*layer\.(\d+)\.lambda_(\d)", r"v.blk.\1.ls\2.weight"),
    (r".*layer\.(\d+)\.layernorm_before\.(\w+)", r"v.blk.\1.ln1.\2"),
    (r".*layer\.(\d+)\.layernorm_after\.(\w+)", r"v.blk.\1.ln2.\2"),
    (r".*layer\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
    (r".*layer\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
    (r".*projector\.layer_norm\.(\w+)", r"mm.model.mlp.0.\1"),
    (r".*linear_1\.(\w+)", r"mm.model.mlp.1.\1"),
    (r".*linear_2\.(\w+)", r"mm.model.mlp.3.\1"),
]
PIXTRAL = [
    (r".*ln_pre\.(\w+)", r"v.pre_ln.\1"),
    (r".*patch_conv\.(\w+)", r"v.patch_embd.\1"),
    (r".*layers\.(\d+)\.attention\.([qkv])_proj\.(\w+)", r"v.blk.\1.attn_\2.\3"),
    (r".*layers\.(\d+)\.attention\.o_proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*layers\.(\d+)\.attention_norm\.(\w+)", r"v.blk.\1.ln1.\2"),
    (r".*layers\.(\d+)\.ffn_norm\.(\w+)", r"v.blk.\1.ln2.\2"),
    (r".*layers\.(\d+)\.feed_forward\.(gate|up|down)_proj\.(\w+)", r"v.blk.\1.ffn_\2.\3"),
    (r".*linear_(\d)\.(\w+)", r"mm.\1.\2"),
    (r".*vision_projection\.norm\.(\w+)", r"mm.input_norm.\1"),
    (r".*merging_layer\.(\w+)", r"mm.patch_merger.\1"),
]
GEMMA4 = [
    (r".*embedding_projection\.(\w+)", r"mm.input_projection.\1"),
    (r".*layers\.(\d+)\.self_attn\.([qkv])_norm\.(\w+)", r"v.blk.\1.attn_\2_norm.\3"),
    (r".*layers\.(\d+)\.self_attn\.([qkv])_proj\.linear\.(\w+)", r"v.blk.\1.attn_\2.\3"),
    (r".*layers\.(\d+)\.self_attn\.o_proj\.linear\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*layers\.(\d+)\.input_layernorm\.(\w+)", r"v.blk.\1.ln1.\2"),
    (r".*layers\.(\d+)\.pre_feedforward_layernorm\.(\w+)", r"v.blk.\1.ln2.\2"),
    (r".*layers\.(\d+)\.post_attention_layernorm\.(\w+)", r"v.blk.\1.attn_post_norm.\2"),
    (r".*layers\.(\d+)\.post_feedforward_layernorm\.(\w+)", r"v.blk.\1.ffn_post_norm.\2"),
    (r".*layers\.(\d+)\.mlp\.(gate|up|down)_proj\.linear\.(\w+)", r"v.blk.\1.ffn_\2.\3"),
    (r".*input_proj\.(\w+)", r"v.patch_embd.\1"),
    (r".*position_embedding_table", "v.position_embd.weight"),
    (r".*std_(bias|scale)", r"v.std_\1"),
]
LLAMA4 = [
    (r"vision_model\.class_embedding", "v.class_embd"),
    (r".*positional_embedding_vlm", "v.position_embd.weight"),
    (r".*patch_embedding\.linear\.(\w+)", r"v.patch_embd.\1"),
    (r".*layernorm_pre\.(\w+)", r"v.pre_ln.\1"),
    (r".*layernorm_post\.(\w+)", r"v.post_ln.\1"),
    (r".*layers\.(\d+)\.input_layernorm\.(\w+)", r"v.blk.\1.ln1.\2"),
    (r".*layers\.(\d+)\.post_attention_layernorm\.(\w+)", r"v.blk.\1.ln2.\2"),
    (r".*layers\.(\d+)\.self_attn\.o_proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r"vision_model\.vision_adapter\.mlp\.fc1\.(\w+)", r"mm.model.mlp.1.\1"),
    (r"vision_model\.vision_adapter\.mlp\.fc2\.(\w+)", r"mm.model.mlp.2.\1"),
    (r"multi_modal_projector\.linear_1\.(\w+)", r"mm.model.fc.\1"),
    *CLIP,
]
MOON = [
    (r".*blocks\.(\d+)\.norm0\.(\w+)", r"v.blk.\1.ln1.\2"),
    (r".*blocks\.(\d+)\.norm1\.(\w+)", r"v.blk.\1.ln2.\2"),
    (r".*blocks\.(\d+)\.wo\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*blocks\.(\d+)\.wqkv\.(\w+)", r"v.blk.\1.attn_qkv.\2"),
    (r".*blocks\.(\d+)\.mlp\.fc0\.(\w+)", r"v.blk.\1.ffn_up.\2"),
    (r".*blocks\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_down.\2"),
    (r".*final_layernorm\.(\w+)", r"v.post_ln.\1"),
    (r".*pos_emb\.weight", "v.position_embd.weight"),
    (r".*patch_embed\.proj\.(\w+)", r"v.patch_embd.\1"),
    (r".*pre_norm\.(\w+)", r"mm.input_norm.\1"),
    (r".*linear_(\d)\.(\w+)", r"mm.\1.\2"),
    (r".*mm_projector\.proj\.0\.(\w+)", r"mm.1.\1"),
    (r".*mm_projector\.proj\.2\.(\w+)", r"mm.2.\1"),
]
LFM2 = [
    (r".*projector\.layer_norm\.(\w+)", r"mm.input_norm.\1"),
    (r".*linear_(\d)\.(\w+)", r"mm.\1.\2"),
    *CLIP,
]


JANUS = [
    (r".*aligner\.fc1\.(\w+)", r"mm.0.\1"),
    (r".*aligner\.hidden_layers\.0\.(\w+)", r"mm.1.\1"),
    *CLIP,
]
PADDLE = [
    (r"mlp_AR\.pre_norm\.(\w+)", r"mm.input_norm.\1"),
    (r"mlp_AR\.linear_(\d)\.(\w+)", r"mm.\1.\2"),
    *CLIP,
]
UNIFIED = [
    (r".*patch_ln(\d)\.(\w+)", r"v.patch_norm.\1.\2"),
    (r".*pos_norm\.(\w+)", r"v.patch_norm.3.\1"),
    (r".*patch_dense\.(\w+)", r"v.patch_embd.\1"),
    (r".*pos_embedding", "v.position_embd.weight"),
    (r".*embedding_projection\.(\w+)", r"mm.input_projection.\1"),
]


GLM = [
    (r".*blocks\.(\d+)\.norm(\d)\.(\w+)", r"v.blk.\1.ln\2.\3"),
    (r".*blocks\.(\d+)\.attn\.qkv\.(\w+)", r"v.blk.\1.attn_qkv.\2"),
    (r".*blocks\.(\d+)\.attn\.proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*blocks\.(\d+)\.attn\.([qk])_norm\.(\w+)", r"v.blk.\1.attn_\2_norm.\3"),
    (r".*blocks\.(\d+)\.mlp\.(gate|up|down)_proj\.(\w+)", r"v.blk.\1.ffn_\2.\3"),
    (r".*downsample\.(\w+)", r"mm.patch_merger.\1"),
    (r".*embeddings\.position_embedding\.(\w+)", r"v.position_embd.\1"),
    (r".*merger\.(gate|up|down)_proj\.(\w+)", r"mm.\1.\2"),
    (r".*merger\.post_projection_norm\.(\w+)", r"mm.post_norm.\1"),
    (r".*merger\.proj\.(\w+)", r"mm.model.fc.\1"),
    (r".*patch_embed\.proj\.(\w+)", r"v.patch_embd.\1"),
    (r".*post_conv_layernorm\.(\w+)", r"v.norm_embd.\1"),
    (r".*post_layernorm\.(\w+)", r"v.post_ln.\1"),
]


NEMOTRON = [
    (r".*(video_embedder|summary_idxs).*", ""),
    (r".*cls_token\.token", "v.class_embd"),
    (r".*patch_generator\.embedder\.(\w+)", r"v.patch_embd.\1"),
    (r".*pos_embed", "v.position_embd.weight"),
    (r".*blocks\.(\d+)\.norm(\d)\.(\w+)", r"v.blk.\1.ln\2.\3"),
    (r".*blocks\.(\d+)\.attn\.qkv\.(\w+)", r"v.blk.\1.attn_qkv.\2"),
    (r".*blocks\.(\d+)\.attn\.proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
    (r".*blocks\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
    (r".*blocks\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
    (r"mlp1\.(\d)\.(\w+)", r"mm.model.mlp.\1.\2"),
]


def usual(word, act="gelu", scale=None, layers="num_hidden_layers"):
    """Of convert_hf_to_gguf.py: all layers, and the width of features."""

    def says(w, c, p):
        v = c["vision_config"]
        w.add_clip_projector_type(word)
        w.add_vision_block_count(v[layers])
        w.add_vision_projection_dim(c.get("text_config", c)["hidden_size"])
        w.add_bool(f"clip.use_{act}", True)
        if scale:
            w.add_vision_projector_scale_factor(scale)

    return says


def internvl(w, c, p):
    usual("internvl", scale=2)(w, c, p)
    w.add_vision_preproc_min_tiles(p["min_patches"])
    w.add_vision_preproc_max_tiles(p["max_patches"])


def nemotron(w, c, p):
    v = c["vision_config"]
    usual("nemotron_v2_vl", scale=2)(w, {**c, "text_config": c["llm_config"]}, p)
    w.add_vision_preproc_max_tiles(p["max_num_tiles"])


def nemotron_text(w, c):
    kinds = c["hybrid_override_pattern"]
    attention_only(w, c, kinds, "*")
    w.add_feed_forward_length([c["intermediate_size"] if k == "-" else 0 for k in kinds])
    mamba(w, c["mamba_num_heads"], c["mamba_head_dim"], c["n_groups"], c["ssm_state_size"], c["conv_kernel"])


def dense(c, p):
    """Without the last layer, of experts: the text model of Nano VL has none."""
    text = c["llm_config"]
    text |= dict(num_hidden_layers=3, hybrid_override_pattern="M-*", layers_block_type=text["layers_block_type"][:3])
    del text["n_routed_experts"]


def fitted(name, v, c):
    """The table of positions at the size of a tile, interpolated as the tower does it; patches as a convolution."""
    side = c["vision_config"]["patch_size"]
    if name == "v.patch_embd.weight":
        return v.reshape(len(v), 3, side, side)
    if name != "v.position_embd.weight":
        return v
    old, new = int(v.shape[1] ** 0.5), c["force_image_size"] // side
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    by = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(old)))
    return np.einsum("ai,bj,ijn->abn", by, by, v.reshape(old, old, -1)).reshape(new * new, -1)


def lighton(w, c, p):
    usual("lightonocr", "silu")(w, c, p)
    w.add_vision_spatial_merge_size(c["spatial_merge_size"])
    w.add_vision_preproc_image_size(p["size"]["longest_edge"])


def llama4_text(w, c):
    w.add_expert_count(c["num_local_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_interleave_moe_layer_step(c["interleave_moe_layer_step"])
    w.add_expert_feed_forward_length(c["intermediate_size"])
    w.add_key_length(c["head_dim"])


def global_heads(w, c):
    """Gemma 4's keys of layers without a window, which transformers 5 lists by layer."""
    of = c["per_layer_config"]["2"]
    gemma4(w, c | {"global_head_dim": of["head_dim"], "num_global_key_value_heads": of["num_key_value_heads"]})


def pixtral_order(name, v, c):
    return paired(v, c["vision_config"]["num_attention_heads"]) if re.search(r"attn_[qk]\.", name) else v


def planes(name, v, c):
    """A matrix of patches as a convolution: channels first, where a patch of the folder has them last."""
    side = c["vision_config"]["patch_size"]
    return v.reshape(len(v), side, side, 3).transpose(0, 3, 1, 2) if name == "v.patch_embd.weight" else v


def apart(name, v, c):
    """Kimi-VL's q, k and v, and its table of positions as a list."""
    if "attn_qkv" in name:
        return {name.replace("qkv", letter): part for letter, part in zip("qkv", np.split(v, 3))}
    return v.reshape(-1, v.shape[-1]) if "position" in name else v


def without(*keys):
    """Settings that files cannot say: those of published models, which are the defaults."""

    def known(c, p):
        for key in keys:
            p.pop(key, None)

    return known


def planes_of_channels(name, v, c):
    side = c["vision_config"]["patch_size"]
    return v.reshape(len(v), 3, side, side) if name == "v.patch_embd.weight" else v


def k25(w, c, p):
    v, pre = c["vision_config"], p["media_proc_cfg"]
    usual("kimik25", scale=v["merge_kernel_size"][0], layers="vt_num_hidden_layers")(w, c, p)
    w.add_vision_min_pixels(8 * v["patch_size"] ** 2)
    w.add_vision_max_pixels(pre["in_patch_limit"] * v["patch_size"] ** 2)


def axes_apart(name, v, c):
    """Kimi K2.5's pairs of q and k: those that rotate by column, then those that do by row."""
    if "attn_qkv" in name:
        heads = c["vision_config"]["vt_num_attention_heads"]
        q, k, last = np.split(v, 3)
        turn = lambda x: x.reshape(heads, -1, 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        return np.concatenate([turn(q), turn(k), last])
    return v.reshape(-1, v.shape[-1]) if "position" in name else v


def unified(w, c, p):
    usual("gemma4uv", layers="layers")(w, {**c, "vision_config": c["vision_config"] | {"layers": 0}}, p)


def unified_order(name, v, c):
    """Channels first in a patch, and positions of columns before those of rows."""
    if "position" in name:
        return v.swapaxes(0, 1)
    if name.startswith("v.patch_norm.1") or name == "v.patch_embd.weight":
        return v.reshape(*v.shape[:-1], -1, 3).swapaxes(-1, -2).reshape(v.shape)
    return v


def paddle(w, c, p):
    usual("paddleocr")(w, c, p)
    w.add_vision_min_pixels(p["min_pixels"])
    w.add_vision_max_pixels(p["max_pixels"])


def paddle_text(w, c):
    w.add_rope_dimension_sections([*c["rope_parameters"]["mrope_section"], 0])


def frames(name, v, c):
    if name == "v.patch_embd.weight":
        return {name: v[:, :, 0], f"{name}.1": v[:, :, 1]}
    return v


def glm_text(w, c):
    paddle_text(w, c)


def glm_moe_text(w, c):
    glm4moe(w, c)
    paddle_text(w, c)


def halves(v, heads, rotary):
    """Glm4Model.normal_to_neox(): what rotates in pairs, in halves."""
    v = v.reshape(heads, -1, *v.shape[1:])
    return np.concatenate([v[:, :rotary:2], v[:, 1:rotary:2], v[:, rotary:]], axis=1).reshape(-1, *v.shape[2:])


def ungrouped(c, p):
    """Experts without groups, as in GLM-4.5V."""
    p.pop("size")
    c["text_config"] |= {"n_group": 1, "topk_group": 1}


GLM_WORDS = {320: "<|image|>", 321: "<|begin_of_image|>", 322: "<|end_of_image|>"}
GLM_MARKER = "<|begin_of_image|><|image|><|end_of_image|>"


def scout(c, p):
    """As Llama 4's published models: every fourth layer has no rotation, and the others see chunks of 8192."""
    p.pop("max_patches")
    c["text_config"] |= {
        "attention_chunk_size": 8192, "no_rope_layer_interval": 4, "no_rope_layers": [1, 1], "layer_types": ["chunked_attention"] * 2,
    }


KIMI = {320: "<|media_pad|>", 319: "<|media_start|>", 318: "<|media_content|>", 317: "<|media_end|>"}
K25 = KIMI | {319: "<|media_begin|>"}
KINDS = {
    "glm4v": Kind(
        (ARCH.GLM4, glm_text), GLM, usual("glm4v", "silu", layers="depth"), GLM_MARKER, GLM_WORDS, change=frames, known=without("size"),
    ),
    "glm_ocr": Kind(
        (ARCH.GLM4, glm_text), GLM, usual("glm4v", "silu", layers="depth"), GLM_MARKER, GLM_WORDS, change=frames, known=without("size"),
    ),
    "glm4v_moe": Kind(
        (ARCH.GLM4_MOE, glm_moe_text), GLM, usual("glm4v", "silu", layers="depth"), GLM_MARKER, GLM_WORDS, change=frames, known=ungrouped,
    ),
    "janus": Kind(
        (ARCH.LLAMA, None), JANUS, usual("janus_pro"), "<image_placeholder>",
        {320: "<image_placeholder>", 321: "<begin_of_image>", 322: "<end_of_image>"}, known=without("min_size"),
    ),
    "paddleocr_vl": Kind(
        (ARCH.PADDLEOCR, paddle_text), PADDLE, paddle, "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        {320: "<|IMAGE_PLACEHOLDER|>", 321: "<|IMAGE_START|>", 322: "<|IMAGE_END|>"},
    ),
    "kimi_k25": Kind((ARCH.DEEPSEEK2, deepseek2), MOON, k25, "<|media_pad|>", K25, change=axes_apart, known=lambda c, p: p["media_proc_cfg"].pop("patch_limit_on_one_side")),
    "gemma4_unified": Kind(
        (ARCH.GEMMA4, global_heads), UNIFIED, unified, "<|image|>", {320: "<|image|>", 321: "<|image>", 322: "<image|>"},
        change=unified_order, known=without("max_soft_tokens"),
    ),
    "internvl": Kind(
        (ARCH.QWEN2, None), INTERNVL, internvl, "<IMG_CONTEXT>", {320: "<IMG_CONTEXT>", 321: "<img>", 322: "</img>"},
    ),
    "nemotron_nano_vl": Kind(
        (ARCH.NEMOTRON_H, nemotron_text), NEMOTRON, nemotron, "<image>", {320: "<image>", 321: "<img>", 322: "</img>"}, change=fitted,
        known=dense, drop="backbone.layers.3.",
    ),
    "lighton_ocr": Kind((ARCH.QWEN3, None), PIXTRAL, lighton, "<|image_pad|>", change=pixtral_order),
    "gemma4": Kind(
        (ARCH.GEMMA4, global_heads), GEMMA4, usual("gemma4v"), "<|image|>", {320: "<|image|>", 321: "<|image>", 322: "<image|>"},
        change=planes, known=without("max_soft_tokens"),
    ),
    "kimi_vl": Kind((ARCH.DEEPSEEK2, deepseek2), MOON, usual("kimivl", scale=2), "<|media_pad|>", KIMI, change=apart, known=without("in_token_limit")),
    "lfm2_vl": Kind(
        (ARCH.LFM2, lfm2), LFM2, usual("lfm2", scale=2), "<image>",
        {320: "<image>", 319: "<|image_start|>", 318: "<|image_end|>", 317: "<|img_row_1_col_1|>", 316: "<|img_thumbnail|>"}, change=planes,
        known=without("tile_size", "min_tiles", "max_tiles", "min_image_tokens", "max_image_tokens"),
    ),
    "llama4": Kind(
        (ARCH.LLAMA4, llama4_text), LLAMA4, usual("llama4", scale=2), "<|image|>",
        {320: "<|patch|>", 321: "<|image_start|>", 322: "<|image_end|>", 319: "<|image|>", 318: "<|tile_x_separator|>", 317: "<|tile_y_separator|>"},
        change=planes_of_channels, known=scout,
    ),
    "llava_padded": Kind((ARCH.LLAMA, None), LLAVA, llava, "<image>"),
    "llava_siglip": Kind((ARCH.QWEN2, None), LLAVA, llava, "<image>", known=padded),
    "granite_vision": Kind((ARCH.GRANITE, granite), LLAVA, llava, "<image>"),
}


def put_tokenizer(path, size, words):
    """With a merge, as files must have merges."""
    write_tokenizer(path, size, words | {3: "Q", 4: "J", 5: "QJ"})
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = ["Q J"]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))


def made_folder(name, path):
    """A copy with a tokenizer, a template, and the settings that files can say."""
    shutil.copytree(MADE / name, path)
    kind = KINDS[name]
    c, p = (json.loads((path / f"{file}.json").read_text()) for file in ("config", "preprocessor_config"))
    kind.known(c, p)
    for file, value in ("config", c), ("preprocessor_config", p):
        (path / f"{file}.json").write_text(json.dumps(value))
    if kind.drop:
        safetensors(path / "model.safetensors", {name: v for name, v in tensors(path) if kind.drop not in name})
    put_tokenizer(path, 324, kind.words)
    (path / "chat_template.jinja").write_text(TEMPLATE % kind.marker)
    return path


def is_seen(name):
    return any(part in name for part in ("vision", "visual", "projector", "newline", "aligner", "mlp_AR", "mm_projector", "mlp1."))


def write_made_text(name, folder, path, unlisted=False):
    """The text model alone. `unlisted`: its vocabulary ends before the words of images, as that of the first LLaVA."""
    alone = path.parent / f"{path.stem}-text"
    shutil.copytree(folder, alone)
    c = json.loads((folder / "config.json").read_text())
    c |= c.pop("text_config", c.pop("llm_config", {}))
    c |= {"dtype": "float32", "torch_dtype": "float32"}
    c["head_dim"] = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    named = {}
    arch = KINDS[name].text[0]
    for tensor, v in tensors(folder):
        if is_seen(tensor):
            continue
        tensor = tensor.replace("language_model.", "").replace("model.model.", "model.")
        if arch in (ARCH.LLAMA, ARCH.GRANITE) and (".q_proj." in tensor or ".k_proj." in tensor):
            v = paired(v, c["num_attention_heads" if ".q_proj." in tensor else "num_key_value_heads"])
        if arch == ARCH.GLM4 and (".q_proj." in tensor or ".k_proj." in tensor):
            v = halves(v, c["num_attention_heads" if ".q_proj." in tensor else "num_key_value_heads"], c["head_dim"])
        if tensor.endswith("experts.gate_up_proj"):  # Llama 4's, whose inputs are rows
            both = np.split(v.swapaxes(1, 2), 2, axis=1)
            named |= {tensor.replace("gate_up_proj", f"{part}_proj.weight"): half for part, half in zip(("gate", "up"), both)}
        elif tensor.endswith("experts.down_proj"):
            named[f"{tensor}.weight"] = v.swapaxes(1, 2)
        else:
            named[tensor] = v[:320] if unlisted and "embed_tokens" in tensor else v
    if unlisted:
        put_tokenizer(alone, 320, {})
        c["vocab_size"] = 320
    (alone / "config.json").write_text(json.dumps(c))
    safetensors(alone / "model.safetensors", named)
    return write_family(alone, path, model=KINDS[name].text)


def renamed(name, rules):
    for pattern, to in rules:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, to, name)
    raise KeyError(name)


def write_made_projector(name, folder, path):
    kind = KINDS[name]
    c, p = (json.loads((folder / f"{file}.json").read_text()) for file in ("config", "preprocessor_config"))
    v = c["vision_config"]
    w = gguf.GGUFWriter(str(path), "clip")
    w.add_type("mmproj")
    w.add_name(name)
    w.add_clip_has_vision_encoder(True)
    of = lambda *keys: next((v[k] for k in keys if k in v), 0)
    hidden = of("hidden_size", "vt_hidden_size", "mm_embed_dim")
    w.add_vision_embedding_length(hidden)
    w.add_vision_feed_forward_length(of("intermediate_size", "vt_intermediate_size") or int(hidden * of("mlp_ratio")))
    w.add_vision_head_count(of("num_attention_heads", "num_heads", "vt_num_attention_heads"))
    one = lambda n: n[0] if isinstance(n, list) else n
    w.add_vision_patch_size(one(v["patch_size"]))
    w.add_vision_image_size(one(v.get("image_size", c.get("force_image_size", 560))))
    p = p.get("media_proc_cfg", p) | p
    plain = c["model_type"].startswith("gemma4")
    w.add_vision_image_mean(p.get("image_mean", [0.0] * 3 if plain else [0.48145466, 0.4578275, 0.40821073]))
    w.add_vision_image_std(p.get("image_std", [1.0] * 3 if plain else [0.26862954, 0.26130258, 0.27577711]))
    w.add_vision_attention_layernorm_eps(v.get("layer_norm_eps") or v.get("norm_eps") or v.get("rms_norm_eps", 1e-5))
    layers = kind.says(w, c, p)
    for tensor, x in tensors(folder):
        to = renamed(tensor, kind.rules) if is_seen(tensor) else None
        found = re.match(r"v\.blk\.(\d+)", to or "")
        if not to or found and layers and int(found[1]) >= layers:
            continue
        for part, y in [(to, x)] if not isinstance(changed := kind.change(to, x, c), dict) else changed.items():
            w.add_tensor(part, np.ascontiguousarray(y if isinstance(changed, dict) else changed, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return pathlib.Path(path)
