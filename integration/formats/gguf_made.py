"""Converts a Hugging Face folder to a GGUF file with llama.cpp's own Python module: its writer, its quantisers.

    write(folder, "model.gguf", "Q8_0")

For models of Llama's family whose tokenizer is byte-level or has SentencePiece's pieces."""

import json
import pathlib

import gguf
import numpy as np

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TYPE = gguf.TokenType


def name_of(name):
    stem, suffix = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{suffix}"


def tensors(folder, kept=np.float32, file="model.safetensors"):
    """Name and array of each tensor of the file, as numbers of the type `kept`."""
    raw = (folder / file).read_bytes()
    n = int.from_bytes(raw[:8], "little")
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + o for o in t["data_offsets"])
        if t["dtype"] == "BF16":
            v = (np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            v = np.frombuffer(raw[begin:end], {"F32": np.float32, "F16": np.float16, "I64": np.int64}[t["dtype"]]).astype(np.float32)
        yield name, v.astype(kept, copy=False).reshape(t["shape"])


def paired(v, heads):
    """convert_hf_to_gguf.py's permute(): the halves of each head in turn."""
    return v.reshape(heads, 2, v.shape[0] // heads // 2, *v.shape[1:]).swapaxes(1, 2).reshape(v.shape)


def write_tokenizer(w, folder, around=None):
    """`around`: writes what stands around a text, instead of a bos token."""
    j = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    model = j["model"]
    scored = model.get("byte_fallback", False)
    text = {i: t for t, i in model["vocab"].items()}
    kind = {i: TYPE.BYTE if scored and len(t) == 6 and t.startswith("<0x") else TYPE.NORMAL for i, t in text.items()}
    for t in j["added_tokens"]:
        text[t["id"]] = t["content"]
        kind[t["id"]] = TYPE.CONTROL if t["special"] else TYPE.USER_DEFINED
        if t["content"] == model.get("unk_token"):
            kind[t["id"]] = TYPE.UNKNOWN
    n = max(text) + 1
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    w.add_tokenizer_model("llama" if scored else "gpt2")
    w.add_token_list([text.get(i, f"[PAD{i}]") for i in range(n)])
    w.add_token_types([kind.get(i, TYPE.UNUSED) for i in range(n)])
    if scored:
        rank = {}
        for k, m in enumerate(merges):
            rank.setdefault(m.replace(" ", "", 1), -float(k + 1))
        w.add_token_scores([rank.get(text.get(i), -1e6) for i in range(n)])
    else:
        w.add_tokenizer_pre("gpt-2")
        w.add_token_merges(merges)
    ids = {t: i for i, t in text.items()}
    if around:
        return around(j, w)
    for key, add in (("bos_token", w.add_bos_token_id), ("eos_token", w.add_eos_token_id)):
        token = config.get(key)
        token = token["content"] if isinstance(token, dict) else token
        if token in ids:
            add(ids[token])
    post = json.dumps(j.get("post_processor") or {})
    w.add_add_bos_token("SpecialToken" in post)
    if "chat_template" in config:
        w.add_chat_template(config["chat_template"])


def write(folder, path, quant="F32"):
    """`quant`: a name of gguf.GGMLQuantizationType; what its blocks do not divide is F16."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_name("made for a test")
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])
    write_tokenizer(w, folder)
    kind = gguf.GGMLQuantizationType[quant]
    for name, v in tensors(folder):
        if ".q_proj." in name or ".k_proj." in name:
            v = paired(v, heads if ".q_proj." in name else kv)
        if v.ndim == 1 or quant == "F32":
            w.add_tensor(name_of(name), np.ascontiguousarray(v, np.float32))
            continue
        to = kind if v.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else gguf.GGMLQuantizationType.F16
        w.add_tensor(name_of(name), gguf.quants.quantize(v, to), raw_dtype=to)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


# Scales in the blocks of a packing, and offsets behind them, as halves: where they stand, what makes numbers of about 0.06 whose mean is near 0.
HALVES = {
    "Q4_0": [(0, 0.008)],
    "Q4_1": [(0, 0.008), (2, -0.06)],
    "Q5_0": [(0, 0.008)],
    "Q5_1": [(0, 0.008), (2, -0.124)],
    "Q8_0": [(0, 0.0008)],
    "Q2_K": [(80, 0.006), (82, 0.009)],
    "Q3_K": [(108, 0.0012)],
    "Q4_K": [(0, 0.0004), (2, 0.003)],
    "Q5_K": [(0, 0.0002), (2, 0.0031)],
    "Q6_K": [(208, 0.00005)],
    "Q1_0": [(0, 0.03)],
    "IQ1_S": [(0, 0.008)],
    "IQ1_M": [],
    "IQ2_XXS": [(0, 0.0015)],
    "IQ2_XS": [(0, 0.0015)],
    "IQ2_S": [(0, 0.0015)],
    "IQ3_XXS": [(0, 0.0005)],
    "IQ3_S": [(0, 0.0005)],
    "NVFP4": [],
}


def random_blocks(quant, rows, cols, rng):
    if quant == "F32":
        return (0.06 * rng.standard_normal((rows, cols))).astype(np.float32)
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant]]
    blocks = rng.integers(0, 256, (rows * cols // elements, size), dtype=np.uint8)
    for at, value in HALVES[quant]:
        blocks[:, at : at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    if quant == "IQ1_M":  # a nibble of its scale, 0x2018 or 0.008, at the top of each of four words
        for i, nibble in enumerate((8, 1, 0, 2)):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | nibble << 4
    if quant == "NVFP4":  # scales of 0.016 to 0.03
        blocks[:, :4] = blocks[:, :4] % 8 + 8
    return blocks.reshape(rows, cols // elements * size)


def random_model(path, quant, v_quant=None, doubled=None):
    """One layer of 256 columns, which K-quants need, of random blocks; v_proj of others, as in Q4_K_M. NVFP4 may be doubled
    by the scales of its blocks, or by one of each tensor."""
    rng = np.random.default_rng(7)
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_context_length(256), w.add_embedding_length(256), w.add_block_count(1), w.add_feed_forward_length(512)
    w.add_head_count(4), w.add_head_count_kv(2), w.add_rope_dimension_count(64), w.add_layer_norm_rms_eps(1e-5)
    texts = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["▁"] + [chr(97 + i) for i in range(26)]
    texts += [f"t{i}" for i in range(512 - len(texts))]
    w.add_tokenizer_model("llama"), w.add_token_list(texts), w.add_token_scores([-float(i) for i in range(512)])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (512 - 259))
    w.add_bos_token_id(1), w.add_eos_token_id(2)

    def add(name, rows, cols):
        q = v_quant if v_quant and "attn_v" in name else quant
        blocks = random_blocks(q, rows, cols, rng)
        if doubled == "blocks" and name.startswith("blk."):
            blocks.reshape(-1, 36)[:, :4] += 8  # one more in the exponent
        if doubled == "tensors" and name.startswith("blk."):
            w.add_tensor(name.replace(".weight", ".scale"), np.array([2], np.float32))
            w.add_tensor(name.replace(".weight", ".input_scale"), np.array([3], np.float32))
        w.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[q])

    add("token_embd.weight", 512, 256)
    add("output.weight", 512, 256)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(name + ".weight", np.ones(256, np.float32))
    for name, rows, cols in (("attn_q", 256, 256), ("attn_k", 128, 256), ("attn_v", 128, 256), ("attn_output", 256, 256), ("ffn_gate", 512, 256), ("ffn_up", 512, 256), ("ffn_down", 256, 512)):
        add(f"blk.0.{name}.weight", rows, cols)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()
    return path
