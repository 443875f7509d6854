"""Writes the two GGUF files of a vision model, with the names and keys of llama.cpp's convert_hf_to_gguf.py: its text model, and its
projector (mmproj)."""

import json
import pathlib
import shutil

import gguf
import numpy as np
from gguf_families import ARCH, write_family
from gguf_keys import qwen35, windows
from gguf_made import paired, tensors

NAMES = gguf.get_tensor_name_map(ARCH.MMPROJ, 64)


def sections(w, c):
    rope = c.get("rope_scaling") or c["rope_parameters"]
    w.add_rope_dimension_sections([*rope["mrope_section"], 0])


def deepstack(w, c):
    sections(w, c)
    w.add_num_deepstack_layers(2)


def gemma3(w, c):
    windows(w, c)
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    w.add_rope_scaling_factor(c["rope_scaling"]["factor"])


# The projector's type, the text model as write_family() has it, and which of its tensors are changed.
KINDS = {
    "gemma3": ("gemma3", (ARCH.GEMMA3, gemma3)),
    "idefics3": ("idefics3", (ARCH.LLAMA, None)),
    "smolvlm": ("idefics3", (ARCH.LLAMA, None)),
    "pixtral": ("pixtral", (ARCH.LLAMA, None)),
    "mistral3": ("pixtral", (ARCH.LLAMA, None)),
    "qwen2_5_vl": ("qwen2.5vl_merger", (ARCH.QWEN2VL, sections)),
    "qwen3_vl": ("qwen3vl_merger", (ARCH.QWEN3VL, deepstack)),
    "qwen3_5": ("qwen3vl_merger", (ARCH.QWEN35, qwen35)),
}
# What files have no key for: llama.cpp's values.
WINDOW, QWEN_PIXELS = 112, {"qwen2_5_vl": (3136, 12845056), "qwen3_vl": (65536, 16777216), "qwen3_5": (65536, 16777216)}


def safetensors(path, named):
    """Numbers in bfloat16 keep their bits in fp32."""
    head, at = {}, 0
    for name, v in named.items():
        head[name] = {"dtype": "F32", "shape": v.shape, "data_offsets": [at, at + v.nbytes]}
        at += v.nbytes
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(v).tobytes() for v in named.values()))


def as_files_say(folder, copy):
    """A copy whose settings are those that the two files can say."""
    shutil.copytree(folder, copy)
    for f in copy.iterdir():
        f.chmod(0o644)
    c, p = (json.loads((copy / f"{name}.json").read_text()) for name in ("config", "preprocessor_config"))
    if "fullatt_block_indexes" in c["vision_config"]:
        c["vision_config"]["window_size"] = WINDOW
    if folder.name in QWEN_PIXELS:
        p.pop("size", None)
        p["min_pixels"], p["max_pixels"] = QWEN_PIXELS[folder.name]
    for name, j in (("config", c), ("preprocessor_config", p)):
        (copy / f"{name}.json").write_text(json.dumps(j))
    return copy


def write_text(folder, path):
    """The text model alone: its part of config.json, and its tensors under the names of such a model."""
    alone = path.parent / f"{path.stem}-text"
    shutil.copytree(folder, alone)
    c = json.loads((folder / "config.json").read_text())
    c |= c.pop("text_config", {})
    c["model_type"] = "text"
    (alone / "config.json").write_text(json.dumps(c))
    named, arch = {}, KINDS[folder.name][1]
    for name, v in tensors(folder):
        if "vision" in name or "visual" in name or "projector" in name or "connector" in name:
            continue
        name = name.replace("language_model.", "").replace("text_model.", "").replace("model.model.", "model.")
        if arch[0] == ARCH.LLAMA and (".q_proj." in name or ".k_proj." in name):
            v = paired(v, c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"])
        named[name] = v + 1 if folder.name == "gemma3" and name.endswith("norm.weight") else v
    safetensors(alone / "model.safetensors", named)
    return write_family(alone, path, model=arch)


def parameters(w, folder, c, p, kind):
    v = c["vision_config"]
    text = c.get("text_config", c)
    w.add_type("mmproj")
    w.add_name(folder.name)
    w.add_clip_has_vision_encoder(True)
    w.add_clip_projector_type(kind)
    w.add_vision_projection_dim(text["hidden_size"])
    w.add_vision_embedding_length(v["hidden_size"])
    w.add_vision_feed_forward_length(v["intermediate_size"])
    w.add_vision_block_count(v.get("num_hidden_layers") or v["depth"])
    w.add_vision_head_count(v.get("num_attention_heads") or v["num_heads"])
    w.add_vision_patch_size(v["patch_size"])
    w.add_vision_image_size(v.get("image_size", 560))
    w.add_vision_image_mean(p["image_mean"])
    w.add_vision_image_std(p["image_std"])
    w.add_vision_attention_layernorm_eps(v.get("layer_norm_eps", 1e-6))
    {"silu": w.add_vision_use_silu}.get(v["hidden_act"], w.add_vision_use_gelu)(True)
    if kind == "gemma3":
        w.add_vision_projector_scale_factor(v["image_size"] // v["patch_size"] // int(c["mm_tokens_per_image"] ** 0.5))
    if kind == "idefics3":
        w.add_vision_projector_scale_factor(c["scale_factor"])
        w.add_vision_preproc_image_size(p["size"]["longest_edge"])
    if "spatial_merge_size" in c:
        w.add_vision_spatial_merge_size(c["spatial_merge_size"])
    if "fullatt_block_indexes" in v:
        w.add_vision_n_wa_pattern(v["fullatt_block_indexes"][0] + 1)
    if kind == "qwen3vl_merger":
        w.add_vision_spatial_merge_size(v["spatial_merge_size"])
    if "deepstack_visual_indexes" in v:
        w.add_vision_is_deepstack_layers([i in v["deepstack_visual_indexes"] for i in range(v["depth"])])


def parts(name, v, c, kind):
    """A tensor under llama.cpp's names, changed as its converter does."""
    vision = c["vision_config"]
    name = name.removeprefix("model.").replace("mm_input_projection_weight", "mm_input_projection.weight")
    stem, suffix = name.rsplit(".", 1)
    if kind == "pixtral" and ("q_proj" in name or "k_proj" in name):
        v = paired(v, vision["num_attention_heads"])
    if "soft_emb_norm" in name:
        v = v + 1
    if "patch_embed.proj.weight" in name:
        yield "v.patch_embd.weight", v[:, :, 0]
        yield "v.patch_embd.weight.1", v[:, :, 1]
    elif ".qkv." in name and kind == "qwen2.5vl_merger":
        for letter, part in zip("qkv", np.split(v, 3)):
            yield NAMES.get_name(name.replace("qkv", letter), try_suffixes=(".weight", ".bias")), part
    elif "deepstack_merger_list." in name:
        _, _, nth, part = stem.split(".")
        yield f"v.deepstack.{vision['deepstack_visual_indexes'][int(nth)]}.{part.replace('linear_', '')}.{suffix}", v
    elif ".merger." in name and kind == "qwen3vl_merger":
        yield {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}[stem.rsplit(".", 1)[1]] + f".{suffix}", v
    elif "modality_projection" in name:
        yield f"mm.model.fc.{suffix}", v
    else:
        known = (NAMES.get_name(n, try_suffixes=(".weight", ".bias")) for n in (name, f"model.{name}"))
        yield next(filter(None, known)), v


def write_projector(folder, path, matrices="F32"):
    """`matrices`: the format of those whose rows it divides."""
    folder, path = pathlib.Path(folder), pathlib.Path(path)
    c, p = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "preprocessor_config"))
    kind = KINDS[folder.name][0]
    w = gguf.GGUFWriter(str(path), "clip")
    parameters(w, folder, c, p, kind)
    to = gguf.GGMLQuantizationType[matrices]
    for name, v in tensors(folder):
        if not any(word in name for word in ("vision", "visual", "projector", "connector")):
            continue
        for name_, part in parts(name, v, c, kind):
            part = np.ascontiguousarray(part, np.float32)
            if part.ndim == 2 and "position" not in name_ and "merger" not in name_ and "input_proj" not in name_:
                w.add_tensor(name_, gguf.quants.quantize(part, to), raw_dtype=to)
            else:
                w.add_tensor(name_, part)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
