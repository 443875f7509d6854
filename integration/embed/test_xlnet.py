"""XLNet served with its tokenizer's format, compared with its equations in numpy: the last token has a type of its own, also in a single text."""

import json

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from serving import Service
from tokenizers import models, normalizers, pre_tokenizers, processors

HIDDEN, HEADS, DIM, FFN, LAYERS = 32, 2, 16, 48, 2
WORDS = ["▁the", "▁sun", "▁is", "▁shining", "▁once", "▁upon", "▁a", "▁time", "s", "▁"]
SPECIAL = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"]
CONFIG = dict(model_type="xlnet", d_model=HIDDEN, n_head=HEADS, d_head=DIM, d_inner=FFN, n_layer=LAYERS, vocab_size=len(SPECIAL) + len(WORDS),
              ff_activation="relu", layer_norm_eps=1e-12, attn_type="bi", summary_type="last", summary_activation="tanh")  # fmt: skip
TEXTS = ["the sun is shining", "once upon a time", "a", "the suns " * 12]


def tokenizer():
    t = tokenizers.Tokenizer(models.Unigram([(p, 0.0 if p in SPECIAL else -2.0) for p in SPECIAL + WORDS], unk_id=0))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.add_special_tokens(SPECIAL)
    t.post_processor = processors.TemplateProcessing(
        single="$A:0 <sep>:0 <cls>:2", pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2", special_tokens=[("<sep>", 4), ("<cls>", 3)]
    )
    return t


def weights():
    rng = np.random.default_rng(7)
    shapes = {"word_embedding.weight": (CONFIG["vocab_size"], HIDDEN)}
    for i in range(LAYERS):
        at, ff = f"layer.{i}.rel_attn.", f"layer.{i}.ff."
        shapes |= {at + m: (HIDDEN, HEADS, DIM) for m in "qkvor"} | {f"{at}r_{m}_bias": (HEADS, DIM) for m in "rsw"}
        shapes |= {f"{at}seg_embed": (2, HEADS, DIM), f"{ff}layer_1.weight": (FFN, HIDDEN), f"{ff}layer_1.bias": (FFN,)}
        shapes |= {f"{ff}layer_2.weight": (HIDDEN, FFN), f"{ff}layer_2.bias": (HIDDEN,)}
        shapes |= {f"{p}layer_norm.{m}": (HIDDEN,) for p in (at, ff) for m in ("weight", "bias")}
    w = {f"transformer.{n}": rng.standard_normal(s, np.float32) * np.float32(0.3) for n, s in shapes.items()}
    head = {"sequence_summary.summary": (HIDDEN, HIDDEN), "logits_proj": (1, HIDDEN)}
    w |= {f"{n}.weight": rng.standard_normal(s, np.float32) * np.float32(0.3) for n, s in head.items()}
    return w | {f"{n}.bias": rng.standard_normal(s[0]).astype(np.float32) for n, s in head.items()}


def rows(w, ids, types):
    """The last hidden states (arXiv 1906.08237); in doubles."""

    def of(name):
        return w[f"transformer.{name}"].astype(np.float64)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * of(name + ".weight") + of(name + ".bias")

    n, x = len(ids), of("word_embedding.weight")[ids]
    far = np.arange(n)[:, None] - np.arange(n)[None, :]
    angle = far[..., None] / 10000 ** (np.arange(0, HIDDEN, 2) / HIDDEN)
    distance = np.concatenate([np.sin(angle), np.cos(angle)], -1)
    other = (np.array(types)[:, None] != np.array(types)[None, :]).astype(int)
    for i in range(LAYERS):
        at, ff = f"layer.{i}.rel_attn.", f"layer.{i}.ff."
        q, k, v = (np.einsum("ih,hnd->ind", x, of(at + m)) for m in "qkv")
        s = np.einsum("ind,jnd->nij", q + of(at + "r_w_bias"), k)
        s += np.einsum("ind,ijh,hnd->nij", q + of(at + "r_r_bias"), distance, of(at + "r"))
        s += np.einsum("ind,ijnd->nij", q + of(at + "r_s_bias"), of(at + "seg_embed")[other])
        p = np.exp((s - s.max(-1, keepdims=True)) / np.sqrt(DIM))
        a = np.einsum("nij,jnd->ind", p / p.sum(-1, keepdims=True), v)
        x = norm(x + np.einsum("ind,hnd->ih", a, of(at + "o")), at + "layer_norm")
        h = np.maximum(x @ of(ff + "layer_1.weight").T + of(ff + "layer_1.bias"), 0)
        x = norm(x + h @ of(ff + "layer_2.weight").T + of(ff + "layer_2.bias"), ff + "layer_norm")
    return x


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    def make(name, architecture):
        out = tmp_path_factory.mktemp(name)
        tokenizer().save(str(out / "tokenizer.json"))
        (out / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="XLNetTokenizer", model_max_length=512)))
        (out / "config.json").write_text(json.dumps(CONFIG | dict(architectures=[architecture], id2label={"0": "LABEL_0"})))
        save_file(weights(), out / "model.safetensors")
        return out

    return make


def test_a_vector_knows_the_type_of_the_last_token(folder):
    w, t = weights(), tokenizer()
    with Service(folder("xlnet", "XLNetModel")) as s:
        got = s.post("/embed", {"inputs": TEXTS, "normalize": False}).json()
        for text, one in zip(TEXTS, got):
            e = t.encode(text)
            assert e.type_ids[-1] == 2 and set(e.type_ids[:-1]) == {0}
            want = rows(w, e.ids, e.type_ids).mean(0)
            assert np.abs(np.array(one) - want).max() < 1e-5
            assert np.abs(want - rows(w, e.ids, [0] * len(e.ids)).mean(0)).max() > 1e-4


@pytest.mark.parametrize("ranks", [1, 2])
def test_pairs_have_three_types(folder, ranks):
    w, t = weights(), tokenizer()
    with Service(folder("xlnet_rerank", "XLNetForSequenceClassification"), num_shard=ranks) as s:
        got = s.post("/rerank", {"query": TEXTS[0], "texts": TEXTS, "raw_scores": True}).json()
        for r in got:
            e = t.encode(TEXTS[0], TEXTS[r["index"]])
            assert set(e.type_ids) == {0, 1, 2}
            h = np.tanh(w["sequence_summary.summary.weight"] @ rows(w, e.ids, e.type_ids)[-1] + w["sequence_summary.summary.bias"])
            assert abs(r["score"] - (w["logits_proj.weight"] @ h + w["logits_proj.bias"])[0]) < 1e-5
