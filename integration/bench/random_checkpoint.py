#!/usr/bin/env python3
"""Deterministic random-weight checkpoints of real shapes, in HF layout (config.json, model.safetensors in bf16,
tokenizer.json, tokenizer_config.json) and, with --gguf, the same tensors as GGUF (bf16 / f16 / f32-norms), or random blocks
where Q4_K_M has its Q4_K and Q6_K (q4_k_m), or Q8_0 or Q4_0 (q8_0, q4_0). --gptq 4: as GPTQ of 4 bits, groups of 128, instead.
Streams tensor by tensor in chunks (peak memory < 1 GB).   random_checkpoint.py SHAPE OUTDIR [--seed N] [--gguf bf16,f16]
Needs numpy; --gguf needs gguf-py on PYTHONPATH (or pip install gguf)."""

import argparse, json, os, pathlib, struct, sys, zlib
import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / d) for d in ("", "formats")]


def llama3(factor, **sizes):
    """A shape of Llama 3.1 or 3.2; factor: of its positions."""
    rope = dict(
        rope_type="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    return dict(
        arch="llama",
        heads=32,
        kv=8,
        vocab=128256,
        theta=500000.0,
        eps=1e-5,
        ctx=131072,
        bias=False,
        bos=128000,
        eos=128009,
        rope=rope,
        **sizes,
    )


SHAPES = {
    "llama-3.2-1b": llama3(32.0, hidden=2048, layers=16, ffn=8192, tied=True),
    "llama-3.1-8b": llama3(8.0, hidden=4096, layers=32, ffn=14336, tied=False),
    "qwen2.5-0.5b": dict(
        arch="qwen2",
        hidden=896,
        layers=24,
        heads=14,
        kv=2,
        ffn=4864,
        vocab=151936,
        tied=True,
        theta=1000000.0,
        eps=1e-6,
        ctx=32768,
        bias=True,
        bos=None,
        eos=151645,
        rope=None,
    ),
    "tiny-60m": dict(
        arch="llama",
        hidden=512,
        layers=8,
        heads=8,
        kv=4,
        ffn=1408,
        vocab=32000,
        tied=False,
        theta=10000.0,
        eps=1e-5,
        ctx=8192,
        bias=False,
        bos=1,
        eos=2,
        rope=None,
    ),
}
CHUNK = 1 << 22


def f32_to_bf16(x):  # round to nearest even, finite input
    u = x.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def tensors(s):
    """name, shape, kind (w: normal, n: norm weight, b: bias)"""
    H, F, V = s["hidden"], s["ffn"], s["vocab"]
    D = H // s["heads"]
    Q = s["heads"] * D
    K = s["kv"] * D
    yield "model.embed_tokens.weight", (V, H), "w"
    for i in range(s["layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (H,), "n"
        for n, o in (("q", Q), ("k", K), ("v", K)):
            yield p + f"self_attn.{n}_proj.weight", (o, H), "w"
            if s["bias"]:
                yield p + f"self_attn.{n}_proj.bias", (o,), "b"
        yield p + "self_attn.o_proj.weight", (H, Q), "w"
        yield p + "post_attention_layernorm.weight", (H,), "n"
        yield p + "mlp.gate_proj.weight", (F, H), "w"
        yield p + "mlp.up_proj.weight", (F, H), "w"
        yield p + "mlp.down_proj.weight", (H, F), "w"
    yield "model.norm.weight", (H,), "n"
    if not s["tied"]:
        yield "lm_head.weight", (V, H), "w"


def chunks(name, shape, kind, seed):
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    n = int(np.prod(shape))
    std = 0.02 if ("embed" in name) else 1.0 / np.sqrt(shape[-1])
    for o in range(0, n, CHUNK):
        m = min(CHUNK, n - o)
        x = rng.standard_normal(m, dtype=np.float32)
        if kind == "w":
            x *= np.float32(std)
        elif kind == "n":
            x = np.float32(1) + x * np.float32(0.1)
        else:
            x *= np.float32(0.1)
        yield f32_to_bf16(x)


def header(rows):
    """Of a safetensors file with these tensors: name, dtype, shape."""
    hdr, off = {"__metadata__": {"format": "pt"}}, 0
    for n, t, sh in rows:
        b = int(np.prod(sh)) * {"I32": 4, "F16": 2, "BF16": 2}[t]
        hdr[n] = dict(dtype=t, shape=list(sh), data_offsets=[off, off + b])
        off += b
    j = json.dumps(hdr, separators=(",", ":")).encode()
    j += b" " * (-len(j) % 8)
    return struct.pack("<Q", len(j)) + j


def write_safetensors(path, s, seed):
    with open(path, "wb") as f:
        f.write(header((n, "BF16", sh) for n, sh, _ in tensors(s)))
        for n, sh, k in tensors(s):
            for c in chunks(n, sh, k, seed):
                f.write(c.tobytes())


def gptq_tensors(s, bits, group):
    """Name, dtype, shape, and how it is made: linear layers as GPTQ's three tensors, the others in bfloat16."""
    for n, sh, k in tensors(s):
        if k != "w" or "embed" in n or "lm_head" in n:
            yield n, "BF16", sh, (n, sh, k)
            continue
        base, (rows, cols) = n.removesuffix(".weight"), sh
        yield base + ".qweight", "I32", (cols * bits // 32, rows), None
        yield base + ".scales", "F16", (cols // group, rows), 1 / np.sqrt(cols) / (2**bits / 3.5)
        yield base + ".qzeros", "I32", (cols // group, rows * bits // 32), None


def write_gptq(out, s, seed, bits, group=128):
    """Random codes around a zero point of half their range."""
    all = list(gptq_tensors(s, bits, group))
    middle = sum((2 ** (bits - 1) - 1) << bits * i for i in range(32 // bits))
    with open(f"{out}/model.safetensors", "wb") as f:
        f.write(header(row[:3] for row in all))
        for n, t, sh, how in all:
            rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(n.encode())]))
            if t == "BF16":
                for c in chunks(*how, seed):
                    f.write(c.tobytes())
            elif t == "F16":
                f.write((how * (1 + 0.1 * rng.standard_normal(sh, dtype=np.float32))).astype(np.float16).tobytes())
            elif n.endswith("qzeros"):
                f.write(np.full(sh, middle, np.uint32).tobytes())
            else:
                f.write(rng.integers(0, 2**32, sh, dtype=np.uint32).tobytes())
    c = json.load(open(f"{out}/config.json"))
    c["torch_dtype"] = "float16"
    c["quantization_config"] = dict(quant_method="gptq", bits=bits, group_size=group, sym=True, desc_act=False)
    json.dump(c, open(f"{out}/config.json", "w"), indent=1)


def byte_alphabet():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs = bs[:]
    n = 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return [chr(c) for _, c in sorted(zip(bs, cs))]


def bpe(V, n_special):
    """byte-level BPE of exactly V - n_special ordinary tokens: every 2- and 3-letter lower-case word, ' xyz', then 4-letter ones.
    A word of three lower-case letters after a space is one token whenever V allows (32000: see below)."""
    L = "abcdefghijklmnopqrstuvwxyz"
    toks = byte_alphabet()
    seen = set(toks)
    merges = []
    room = V - n_special

    def add(t, *ms):
        if t not in seen:
            if len(toks) >= room:
                return False
            toks.append(t)
            seen.add(t)
        merges.extend(ms)
        return True

    for a in L:
        for b in L:
            add(a + b, (a, b))
    three = L if V > 40000 else L[:22]
    for a in three:
        for b in three:
            for c in three:
                add(a + b + c, (a + b, c), (a, b + c))
    for a in three:
        for b in three:
            for c in three:
                add("\u0120" + a + b + c, ("\u0120", a + b + c))
    for a in L:
        add("\u0120" + a, ("\u0120", a))
    for a in L:
        for b in L:
            for c in L:
                for d in L:
                    if not add(a + b + c + d, (a + b, c + d)):
                        return toks, merges
    return toks, merges


def tokenizer(name, s):
    V = s["vocab"]
    if name.startswith("llama"):
        named = {
            128000: "<|begin_of_text|>",
            128001: "<|end_of_text|>",
            128006: "<|start_header_id|>",
            128007: "<|end_header_id|>",
            128008: "<|eom_id|>",
            128009: "<|eot_id|>",
        }
        special = {i: named.get(i, f"<|reserved_{i}|>") for i in range(128000, V)}
    elif name.startswith("qwen"):
        named = {151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>"}
        special = {i: named.get(i, f"<|reserved_{i}|>") for i in range(151643, V)}
    else:
        special = {0: "<unk>", 1: "<s>", 2: "</s>"}
    toks, merges = bpe(V, len(special))
    out, it = [], iter(toks)
    for i in range(V):
        out.append(special[i] if i in special else next(it))
    assert len(set(out)) == V
    return out, merges, special


LLAMA_TMPL = "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
QWEN_TMPL = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TINY_TMPL = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
LLAMA_RE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_RE = LLAMA_RE.replace(r"\p{N}{1,3}", r"\p{N}")


def template(name):
    return QWEN_TMPL if name.startswith("qwen") else LLAMA_TMPL if name.startswith("llama") else TINY_TMPL


def write_config(s, out):
    q = s["arch"] == "qwen2"
    cfg = dict(
        architectures=["Qwen2ForCausalLM" if q else "LlamaForCausalLM"],
        model_type=s["arch"],
        hidden_size=s["hidden"],
        intermediate_size=s["ffn"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv"],
        head_dim=s["hidden"] // s["heads"],
        vocab_size=s["vocab"],
        hidden_act="silu",
        max_position_embeddings=s["ctx"],
        rms_norm_eps=s["eps"],
        rope_theta=s["theta"],
        rope_scaling=s["rope"],
        tie_word_embeddings=s["tied"],
        torch_dtype="bfloat16",
        bos_token_id=s["bos"],
        eos_token_id=s["eos"],
        initializer_range=0.02,
        use_cache=True,
    )
    if q:
        cfg.update(use_sliding_window=False, sliding_window=None)
        cfg.pop("head_dim")
    else:
        cfg.update(attention_bias=False, mlp_bias=False)
    json.dump(cfg, open(f"{out}/config.json", "w"), indent=1)


def splitter(qwen):
    """The pre-tokenizer: words by a regular expression, then bytes."""
    words = dict(type="Split", pattern=dict(Regex=QWEN_RE if qwen else LLAMA_RE), behavior="Isolated", invert=False)
    return dict(
        type="Sequence",
        pretokenizers=[words, dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)],
    )


def beginning(bos, id):
    """The post-processor, which puts `bos` before a text; None: nothing."""
    bytes_ = dict(type="ByteLevel", add_prefix_space=True, trim_offsets=False, use_regex=True)
    if bos is None:
        return bytes_
    begin = dict(SpecialToken=dict(id=bos, type_id=0))
    text = lambda name, type: dict(Sequence=dict(id=name, type_id=type))
    put = dict(
        type="TemplateProcessing",
        single=[begin, text("A", 0)],
        pair=[begin, text("A", 0), text("B", 1)],
        special_tokens={bos: dict(id=bos, ids=[id], tokens=[bos])},
    )
    return dict(type="Sequence", processors=[bytes_, put])


def write_tokenizer(name, s, out):
    """tokenizer.json and its kin, of s["vocab"] tokens."""
    toks, merges, special = tokenizer(name, s)
    json.dump(dict(bos_token_id=s["bos"], eos_token_id=s["eos"]), open(f"{out}/generation_config.json", "w"))
    bos = toks[s["bos"]] if s["bos"] is not None else None
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)
    whole = dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=[dict(id=i, content=t, **plain, special=True) for i, t in special.items()],
        normalizer=None,
        pre_tokenizer=splitter(s["arch"] == "qwen2"),
        post_processor=beginning(bos, s["bos"]),
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            ignore_merges=False,
            vocab={t: i for i, t in enumerate(toks) if i not in special},
            merges=[f"{a} {b}" for a, b in merges],
        ),
    )
    json.dump(whole, open(f"{out}/tokenizer.json", "w"), ensure_ascii=False)
    about = dict(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=bos,
        eos_token=toks[s["eos"]],
        model_max_length=s["ctx"],
        chat_template=template(name),
        clean_up_tokenization_spaces=False,
    )
    json.dump(about, open(f"{out}/tokenizer_config.json", "w"), indent=1)


def write_hf(name, s, out, seed):
    os.makedirs(out, exist_ok=True)
    write_config(s, out)
    write_tokenizer(name, s, out)
    write_safetensors(f"{out}/model.safetensors", s, seed)


PACKED = ("q4_k_m", "q8_0", "q4_0")


def packing(n, layers, dt):
    """What llama-quantize makes of a tensor for Q4_K_M, Q8_0 and Q4_0."""
    fine = "embed" in n or "lm_head" in n
    if dt == "q8_0":
        return "Q8_0"
    if dt == "q4_0":
        return "Q6_K" if fine else "Q4_0"
    if "v_proj" in n or "down_proj" in n:
        i = int(n.split(".")[2])
        fine = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
    return "Q6_K" if fine else "Q4_K"


def blocks(kind, n, std, rng):
    """n blocks of numbers around 0: random codes, scales that make the numbers as large as they should be."""
    b = rng.integers(0, 256, (n, {"Q4_K": 144, "Q6_K": 210, "Q8_0": 34, "Q4_0": 18}[kind]), dtype=np.uint8)
    half = lambda f: np.frombuffer(np.float16(f).tobytes(), np.uint8)
    if kind == "Q4_K":  # the offset of each group is the middle of its numbers
        b[:, 4:8] &= 63
        b[:, 8:12] = b[:, 4:8]
        b[:, 12:16] = (b[:, 12:16] & 15) * 17
        b[:, 0:2], b[:, 2:4] = half(std / 150), half(std / 20)
    elif kind in ("Q8_0", "Q4_0"):
        b[:, 0:2] = half(std / (74 if kind == "Q8_0" else 4.6))
    else:
        b[:, 208:210] = half(std / 1400)
    return b


def add_keys(w, name, s, dt):
    """The metadata: sizes, and the tokenizer."""
    import gguf

    w.add_name(name + "-random")
    w.add_context_length(s["ctx"])
    w.add_embedding_length(s["hidden"])
    w.add_block_count(s["layers"])
    w.add_feed_forward_length(s["ffn"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv"])
    w.add_layer_norm_rms_eps(s["eps"])
    w.add_rope_freq_base(s["theta"])
    w.add_vocab_size(s["vocab"])
    if s["arch"] == "llama":
        w.add_rope_dimension_count(s["hidden"] // s["heads"])
    w.add_file_type(gguf.LlamaFileType["MOSTLY_" + dt.upper()])
    toks, merges, special = tokenizer(name, s)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2" if s["arch"] == "qwen2" else "llama-bpe")
    w.add_token_list([t.encode() for t in toks])
    w.add_token_types([3 if i in special else 1 for i in range(s["vocab"])])
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    if s["bos"] is not None:
        w.add_bos_token_id(s["bos"])
        w.add_add_bos_token(True)
    else:
        w.add_add_bos_token(False)
    w.add_eos_token_id(s["eos"])
    w.add_chat_template(template(name))


def rope_factors(s):
    """Llama 3's scaling as divisors of the frequencies, as llama.cpp stores them."""
    r, d = s["rope"], s["hidden"] // s["heads"]
    least, most = r["low_freq_factor"], r["high_freq_factor"]
    for f in 1.0 / (s["theta"] ** (np.arange(0, d, 2, dtype=np.float32) / d)):
        turns = r["original_max_position_embeddings"] / (2 * np.pi / f)
        if turns > most:
            yield 1.0
        elif turns < least:
            yield r["factor"]
        else:
            smooth = (turns - least) / (most - least)
            yield 1 / ((1 - smooth) / r["factor"] + smooth)


def announce(w, n, sh, kind, s, dt):
    """The row of a tensor in the file's table."""
    import gguf
    from gguf_made import name_of

    types = gguf.GGMLQuantizationType
    if kind != "w":
        w.add_tensor_info(name_of(n), sh, np.dtype(np.float32), 4 * int(np.prod(sh)))
    elif dt in PACKED:
        q = types[packing(n, s["layers"], dt)]
        elements, size = gguf.GGML_QUANT_SIZES[q]
        row = sh[-1] // elements * size
        w.add_tensor_info(name_of(n), (*sh[:-1], row), np.dtype(np.uint8), int(np.prod(sh[:-1])) * row, raw_dtype=q)
    else:
        q = types.BF16 if dt == "bf16" else types.F16
        w.add_tensor_info(name_of(n), sh, np.dtype(np.float16), 2 * int(np.prod(sh)), raw_dtype=q)


def contents(n, sh, kind, s, seed, dt):
    """The numbers of a tensor, as the file has them."""
    import gguf
    from gguf_made import paired

    if kind == "w" and dt in PACKED:
        q = packing(n, s["layers"], dt)
        rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(n.encode())]))
        count = int(np.prod(sh)) // gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[q]][0]
        return blocks(q, count, 0.02 if "embed" in n else 1 / np.sqrt(sh[-1]), rng)
    a = np.concatenate(list(chunks(n, sh, kind, seed))).reshape(sh)
    if s["arch"] == "llama" and ("q_proj.weight" in n or "k_proj.weight" in n):
        a = paired(a, s["heads"] if "q_proj" in n else s["kv"])
    a = np.ascontiguousarray(a)
    wide = lambda x: (x.astype(np.uint32) << 16).view(np.float32)
    if kind != "w":
        return wide(a)
    if dt != "f16":
        return a
    half = np.empty(a.size, np.float16)
    for o in range(0, a.size, CHUNK):
        half[o : o + CHUNK] = wide(a.reshape(-1)[o : o + CHUNK])
    return half.reshape(a.shape)


def write_gguf(name, s, path, seed, dt):
    import gguf

    w = gguf.GGUFWriter(path, s["arch"], use_temp_file=False)
    add_keys(w, name, s, dt)
    all = list(tensors(s))
    extra = [("rope_freqs.weight", np.array(list(rope_factors(s)), dtype=np.float32))] if s["rope"] else []
    for n, sh, kind in all:
        announce(w, n, sh, kind, s, dt)
    for n, a in extra:
        w.add_tensor_info(n, a.shape, a.dtype, a.nbytes)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for n, sh, kind in all:
        w.write_tensor_data(contents(n, sh, kind, s, seed, dt))
    for _, a in extra:
        w.write_tensor_data(a)
    w.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("shape", choices=SHAPES)
    ap.add_argument("out")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--gguf", default="")
    ap.add_argument("--gptq", type=int, choices=(2, 4, 8))
    a = ap.parse_args()
    s = SHAPES[a.shape]
    write_hf(a.shape, s, a.out, a.seed)
    if a.gptq:
        write_gptq(a.out, s, a.seed, a.gptq)
    for d in filter(None, a.gguf.split(",")):
        write_gguf(a.shape, s, f"{a.out}/{a.shape}-{d}.gguf", a.seed, d)
