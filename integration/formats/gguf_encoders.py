"""Converts folders of encoders, embedding models and rerankers to GGUF files, as llama.cpp's convert_hf_to_gguf.py does."""

import base64
import json
import pathlib
import shutil

import gguf
import numpy as np
from gguf_made import paired, tensors, write_tokenizer
from serving import data

ARCH = gguf.MODEL_ARCH
TYPE = gguf.TokenType
SPACE = "▁"


def encoder(w, c):
    """What all encoders have."""
    w.add_context_length(c.get("max_position_embeddings") or c["n_positions"])
    w.add_embedding_length(c.get("hidden_size") or c.get("dim") or c["n_embd"])
    w.add_block_count(layers(c))
    w.add_feed_forward_length(c.get("intermediate_size") or c.get("hidden_dim") or c["n_inner"])
    w.add_head_count(c.get("num_attention_heads") or c.get("n_heads") or c["n_head"])
    w.add_layer_norm_eps(c.get("layer_norm_eps") or c.get("norm_eps") or c.get("layer_norm_epsilon") or 1e-12)
    w.add_causal_attention(False)
    w.add_token_type_count(c.get("type_vocab_size", 1))


def layers(c):
    return c.get("num_hidden_layers") or c.get("n_layers") or c.get("n_layer") or max(c["num_layers"], c["num_decoder_layers"])


def roberta(w, c):
    """The positions before the first that is used are cut off."""
    encoder(w, dict(c, max_position_embeddings=c["max_position_embeddings"] - c["pad_token_id"] - 1))


def nomic(w, c):
    encoder(w, dict(c, n_positions=c["max_trained_positions"]))
    w.add_rope_freq_base(c["rotary_emb_base"])


def nomic_experts(w, c):
    nomic(w, c)
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["moe_top_k"])
    w.add_moe_every_n_layers(c["moe_every_n_layers"])


def modern(w, c):
    encoder(w, c)
    w.add_sliding_window(c["local_attention"])
    w.add_sliding_window_pattern(c["layer_types"].index("full_attention", 1))
    w.add_rope_freq_base(c["rope_parameters"]["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(c["rope_parameters"]["sliding_attention"]["rope_theta"])
    w.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    w.add_string("modern-bert.hidden_activation", c["hidden_activation"])
    w.add_uint32("modern-bert.classifier.pooling_type", {"mean": 1, "cls": 2}[c["classifier_pooling"]])


def decoder(w, c):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim") or c["hidden_size"] // heads
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    rope = c.get("rope_parameters") or c
    w.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])


def eurobert(w, c):
    decoder(w, c)
    w.add_causal_attention(False)


def gemma(w, c):
    decoder(w, c)
    w.add_rope_freq_base_swa(c["rope_parameters"]["sliding_attention"]["rope_theta"])
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])


def neo(w, c):
    encoder(w, dict(c, max_position_embeddings=c["max_length"]))
    w.add_feed_forward_length(2 * c["intermediate_size"] // 3)
    w.add_layer_norm_rms_eps(c["norm_eps"])
    w.add_rope_freq_base(10000.0)


def jina_3(w, c):
    encoder(w, c)
    w.add_rope_freq_base(c["rotary_emb_base"])


def qwen3_reranker(w, c):
    decoder(w, c)
    w.add_pooling_type(gguf.PoolingType.RANK)


MODELS = {
    "bert": (ARCH.BERT, encoder),
    "distilbert": (ARCH.BERT, encoder),
    "roberta": (ARCH.BERT, roberta),
    "xlm-roberta": (ARCH.BERT, roberta),
    "nomic_bert": (ARCH.NOMIC_BERT, nomic),
    "modernbert": (ARCH.MODERN_BERT, modern),
    "eurobert": (ARCH.EUROBERT, eurobert),
    "neobert": (ARCH.NEO_BERT, neo),
    "gemma3_text": (ARCH.GEMMA_EMBEDDING, gemma),
    "qwen3": (ARCH.QWEN3, decoder),
}
LLAMA_EMBED = (ARCH.LLAMA_EMBED, eurobert)  # the same model, whose rows rotate in pairs


def t5(w, c):
    w.add_context_length(c.get("n_positions", 512))
    w.add_embedding_length(c["d_model"])
    w.add_feed_forward_length(c["d_ff"])
    w.add_block_count(c["num_layers"])
    w.add_head_count(c["num_heads"])
    w.add_key_length(c["d_kv"])
    w.add_value_length(c["d_kv"])
    w.add_layer_norm_eps(c["layer_norm_epsilon"])
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    w.add_relative_attn_buckets_count(c["relative_attention_num_buckets"])
    if not c["architectures"][0].endswith("EncoderModel"):
        w.add_decoder_block_count(c["num_decoder_layers"])
        w.add_decoder_start_token_id(c["decoder_start_token_id"])


MODELS |= {kind: (ARCH.T5, t5) for kind in ("t5", "mt5", "umt5")}
POOLING = {"mean_tokens": gguf.PoolingType.MEAN, "cls_token": gguf.PoolingType.CLS, "lasttoken": gguf.PoolingType.LAST}


def pooling(w, folder):
    modes = json.loads((folder / "1_Pooling/config.json").read_text())
    w.add_pooling_type(next(kind for mode, kind in POOLING.items() if modes.get(f"pooling_mode_{mode}")))


# ---------------------------------------------------------------- tokenizers


def words_of(j, w):
    """BERT's: a space before a word, nothing before its further parts."""
    special = {t["id"] for t in j["added_tokens"] if t["special"]}
    text = {i: t for t, i in j["model"]["vocab"].items()}
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("jina-v2-en")
    w.add_token_list([t if i in special else t[2:] if t.startswith("##") else SPACE + t for i, t in sorted(text.items())])
    w.add_token_types([TYPE.CONTROL if i in special else TYPE.NORMAL for i in sorted(text)])
    ids = {t: i for i, t in text.items()}
    for word, add in (("[CLS]", w.add_bos_token_id), ("[SEP]", w.add_sep_token_id), ("[UNK]", w.add_unk_token_id), ("[PAD]", w.add_pad_token_id)):
        add(ids[word])


def unigrams_of(j, w):
    pieces, special = j["model"]["vocab"], {t["id"] for t in j["added_tokens"] if t["special"]}
    unk = j["model"]["unk_id"]
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list([t for t, _ in pieces])
    w.add_token_scores([s for _, s in pieces])
    w.add_token_types([TYPE.UNKNOWN if i == unk else TYPE.CONTROL if i in special else TYPE.NORMAL for i in range(len(pieces))])
    w.add_add_space_prefix(True)
    w.add_remove_extra_whitespaces(False)
    if j["normalizer"]:
        w.add_precompiled_charsmap(base64.b64decode(j["normalizer"]["precompiled_charsmap"]))
    w.add_unk_token_id(unk)
    if pieces[0][0] == "<s>":  # else T5's, for which the defaults are
        w.add_bos_token_id(0), w.add_eos_token_id(2), w.add_sep_token_id(2), w.add_pad_token_id(1)
        w.add_add_bos_token(True), w.add_add_eos_token(True)


def around(j, w):
    """The special tokens around a text and between two."""
    post = j.get("post_processor") or {}
    id_of = {name: s["ids"][0] for name, s in post.get("special_tokens", {}).items()}
    single = [p["SpecialToken"]["id"] if "SpecialToken" in p else None for p in post.get("single", [])]
    pair = [p["SpecialToken"]["id"] if "SpecialToken" in p else None for p in post.get("pair", [])]
    first, last = single[:1] != [None] and single[0], single[-1]
    w.add_add_bos_token(bool(first))
    w.add_add_eos_token(bool(last))
    w.add_add_sep_token(len(pair) > 5)
    if first:
        w.add_bos_token_id(id_of[first])
    w.add_eos_token_id(id_of[last])
    w.add_sep_token_id(id_of[last])


def tokenizer(w, folder):
    j = json.loads((folder / "tokenizer.json").read_text())
    if j["model"]["type"] == "WordPiece":
        words_of(j, w)
    elif j["model"]["type"] == "Unigram":
        unigrams_of(j, w)
    else:
        write_tokenizer(w, folder, around)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
CUT = ["the", "sun", "is", "shining", "hello", "who", "are", "you", "##ing", "##ello", "##nd", "ü", "##ü", "東", "京"]


def special(text, i):
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def template(bos, eos, middle, second):
    """The post-processor; `bos` and `eos`: ids and texts, `middle`: how many of the latter between texts, `second`: the type of the second."""
    def of(token, kind=0):
        return {"SpecialToken": {"id": token[1], "type_id": kind}}

    def text(name, kind=0):
        return {"Sequence": {"id": name, "type_id": kind}}

    return {
        "type": "TemplateProcessing",
        "single": [of(bos), text("A"), of(eos)],
        "pair": [of(bos), text("A"), *[of(eos)] * middle, text("B", second), of(eos, second)],
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in (bos, eos)},
    }


def word_pieces(cased):
    """320 tokens; the special ones not where BERT has them."""
    head = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rest = [*LETTERS, *(f"##{c}" for c in LETTERS), *"0123456789.,!?-", *CUT] + (["The", "H"] if cased else [])
    rest += [f"{a}{b}" for a in "aeiou" for b in LETTERS] + [f"##{a}{b}" for a in LETTERS for b in "aeiou"]
    vocab = head + [t for i, t in enumerate(rest) if t not in rest[:i]]
    assert len(vocab) >= 320
    return {
        "added_tokens": [special(t, i) for i, t in enumerate(head) if t != "[unused0]"],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": not cased},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template((3, "[CLS]"), (4, "[SEP]"), 1, 1),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(vocab[:320])}},
    }


def unigrams():
    """The first pieces of T5 behind XLM-RoBERTa's special tokens."""
    t5 = json.loads((data("tokenizers/t5") / "tokenizer.json").read_text())
    head = ["<s>", "<pad>", "</s>", "<unk>"]
    space = {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}
    return {
        "added_tokens": [special(t, i) for i, t in enumerate(head)],
        "normalizer": t5["normalizer"],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": template((0, "<s>"), (2, "</s>"), 2, 0),
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [[t, 0.0] for t in head] + t5["model"]["vocab"][3:319]},
    }


def bytes_around():
    """Byte-level tokens with <s> and </s> around a text."""
    j = json.loads((data("tokenizers/tiny320") / "tokenizer.json").read_text())
    return j | {"post_processor": template((1, "<s>"), (2, "</s>"), 1, 0)}


TOKENIZERS = {"words": lambda: word_pieces(False), "cased words": lambda: word_pieces(True), "unigrams": unigrams, "bytes": bytes_around}


def with_tokenizer(folder, copy, kind):
    """A copy of a folder that has none, or another one."""
    shutil.copytree(folder, copy)
    (copy / "tokenizer.json").write_text(json.dumps(TOKENIZERS[kind]() | {"version": "1.0"}))
    (copy / "tokenizer_config.json").write_text("{}")
    return copy


# ---------------------------------------------------------------- tensors

KIND = gguf.GGMLQuantizationType.BF16  # that of the folders
IN_FP32 = ("position_embd", "token_types", "cls.", "dense_")
PREFIXES = ("bert.", "distilbert.", "roberta.", "nomic_bert.")
LEFT_OUT = ("pooler.",)
STACKED = {"mlp.experts.mlp.w1": "ffn_up_exps", "mlp.experts.mlp.w2": "ffn_down_exps"}


def names_of(c, arch):
    known = gguf.get_tensor_name_map(arch, layers(c))
    direct = c["architectures"][0].endswith("SequenceClassification")

    def name(n):
        if arch in (ARCH.MODERN_BERT, ARCH.NEO_BERT):
            n = n.removeprefix("model.")
        n = next((n.removeprefix(p) for p in PREFIXES if n.startswith(p)), n)
        n = n.replace(".gamma", ".weight").replace(".beta", ".bias")
        if n.startswith(LEFT_OUT) or n.endswith("experts.bias"):
            return None
        if part := next((STACKED[end] for end in STACKED if n.endswith(end)), None):
            return f"blk.{n.split('.')[2]}.{part}.weight"
        n = n.replace("encoder.embed_tokens", "shared")
        if direct and n.startswith("classifier.") and n.count(".") == 1:
            n = n.replace("classifier.", "classifier.out_proj.")
        if n == "head.norm.weight":
            return "cls.norm.weight"
        if arch in (ARCH.QWEN3, ARCH.GEMMA_EMBEDDING, ARCH.LLAMA_EMBED) and not n.startswith(("model.", "lm_head")):
            n = "model." + n
        to = known.get_name(n, try_suffixes=(".weight", ".bias"))
        assert to, n
        return to

    return name


def changed(folder, c, arch, kind):
    """Name and array of each tensor, as the converter changes them."""
    name = names_of(c, arch)
    for n, v in tensors(folder):
        to = name(n)
        if to == "position_embd.weight" and c["model_type"] in ("roberta", "xlm-roberta"):
            v = v[c["pad_token_id"] + 1 :]
        if arch == ARCH.GEMMA_EMBEDDING and to.endswith("norm.weight"):
            v = v + 1
        if arch == ARCH.LLAMA_EMBED and (".attn_q." in to or ".attn_k." in to):
            v = paired(v, c["num_attention_heads" if ".attn_q." in to else "num_key_value_heads"])
        if kind == "halves" and "gated_layers" in n:  # as files of before 2025 have it
            yield to.replace("ffn_up", "ffn_gate"), v[: len(v) // 2]
            v = v[len(v) // 2 :]
        if to and "_exps" in to:
            v = v.reshape(c["num_experts"], c["n_inner"], c["n_embd"])
            v = v.swapaxes(1, 2) if "down" in to else v
        if kind == "yes" and to == "output.weight":
            to, v = "cls.output.weight", v[[40, 41]]  # what stands there for "yes" and "no"
        if to:
            yield to, v.squeeze() if to == "cls.output.weight" else v
    for i in (2, 3):
        dense = folder / f"{i}_Dense"
        if dense.exists():
            yield f"dense_{i}.weight", dict(tensors(dense))["linear.weight"]


def write_encoder(folder, path, kind=None, packing=KIND):
    """`kind`: "yes": a decoder that answers yes or no; "llama": EuroBERT as Llama; "halves": Jina's gates apart."""
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    arch, more = LLAMA_EMBED if kind == "llama" else MODELS[c["model_type"]]
    if c.get("position_embedding_type") == "alibi":
        arch, more = ARCH.JINA_BERT_V2, encoder
    if c.get("position_embedding_type") == "rotary":
        arch, more = ARCH.JINA_BERT_V3, jina_3
    if "moe_every_n_layers" in c:
        arch, more = ARCH.NOMIC_BERT_MOE, nomic_experts
    if arch == ARCH.T5 and c["architectures"][0].endswith("EncoderModel"):
        arch = ARCH.T5ENCODER
    w = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[arch])
    (qwen3_reranker if kind == "yes" else more)(w, c)
    if (folder / "modules.json").exists():
        pooling(w, folder)
    labels = ["yes", "no"] if kind == "yes" else [v for _, v in sorted(c.get("id2label", {}).items())]
    if kind == "yes" or c["architectures"][0].endswith("SequenceClassification"):
        w.add_classifier_output_labels(labels)
    tokenizer(w, folder)
    for name, v in dict(changed(folder, c, arch, kind)).items():  # T5's embedding may be there twice
        if v.ndim == 1 or name.startswith(IN_FP32) and packing == KIND:
            w.add_tensor(name, np.ascontiguousarray(v, np.float32))
        else:
            w.add_tensor(name, gguf.quants.quantize(v, packing), raw_dtype=packing)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
