"""Both GGUF files of vision models whose checkpoints are made (tests/golden/make_vision.py): as llama.cpp's converters name and change them.

These checkpoints have no tokenizer: test_made_vision.py writes one."""

import json
import pathlib
import re
import shutil

import gguf
import numpy as np
from gguf_families import ARCH, write_family
from gguf_keys import gemma4, granite, lfm2
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
    `change`: a tensor as the converter changes it. `known`: makes the folder's settings those that files can say. `words`: the tokens' texts."""

    def __init__(self, text, rules, says, marker, words=None, change=None, known=None):
        self.text, self.rules, self.says, self.marker = text, rules, says, marker
        self.words, self.change, self.known = words or {320: marker}, change or (lambda name, v, c: v), known or (lambda c, p: None)


KINDS = {
    "llava_padded": Kind((ARCH.LLAMA, None), LLAVA, llava, "<image>"),
    "llava_siglip": Kind((ARCH.QWEN2, None), LLAVA, llava, "<image>", known=padded),
    "granite_vision": Kind((ARCH.GRANITE, granite), LLAVA, llava, "<image>"),
}


def put_tokenizer(path, size, words):
    """With a merge, as files must have merges."""
    write_tokenizer(path, size, words | {3: "a", 4: "b", 5: "ab"})
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = ["a b"]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))


def made_folder(name, path):
    """A copy with a tokenizer, a template, and the settings that files can say."""
    shutil.copytree(MADE / name, path)
    kind = KINDS[name]
    c, p = (json.loads((path / f"{file}.json").read_text()) for file in ("config", "preprocessor_config"))
    kind.known(c, p)
    for file, value in ("config", c), ("preprocessor_config", p):
        (path / f"{file}.json").write_text(json.dumps(value))
    put_tokenizer(path, 324, kind.words)
    (path / "chat_template.jinja").write_text(TEMPLATE % kind.marker)
    return path


def is_seen(name):
    return any(part in name for part in ("vision", "visual", "projector", "newline", "aligner", "mlp_AR"))


def write_made_text(name, folder, path, unlisted=False):
    """The text model alone. `unlisted`: its vocabulary ends before the words of images, as that of the first LLaVA."""
    alone = path.parent / f"{path.stem}-text"
    shutil.copytree(folder, alone)
    c = json.loads((folder / "config.json").read_text())
    c |= c.pop("text_config", {})
    c |= {"model_type": "text", "dtype": "float32", "torch_dtype": "float32"}
    c["head_dim"] = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    named = {}
    arch = KINDS[name].text[0]
    for tensor, v in tensors(folder):
        if is_seen(tensor):
            continue
        tensor = tensor.replace("language_model.", "").replace("model.model.", "model.")
        if arch in (ARCH.LLAMA, ARCH.GRANITE, ARCH.LLAMA4) and (".q_proj." in tensor or ".k_proj." in tensor):
            v = paired(v, c["num_attention_heads" if ".q_proj." in tensor else "num_key_value_heads"])
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
    w.add_vision_embedding_length(v["hidden_size"])
    w.add_vision_feed_forward_length(v["intermediate_size"])
    w.add_vision_head_count(v.get("num_attention_heads") or v["num_heads"])
    one = lambda n: n[0] if isinstance(n, list) else n
    w.add_vision_patch_size(one(v["patch_size"]))
    w.add_vision_image_size(one(v.get("image_size", 560)))
    w.add_vision_image_mean(p.get("image_mean", [0.48145466, 0.4578275, 0.40821073]))
    w.add_vision_image_std(p.get("image_std", [0.26862954, 0.26130258, 0.27577711]))
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
