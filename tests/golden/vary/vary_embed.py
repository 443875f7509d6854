#!/usr/bin/env python3
"""Random models of sentence-transformers, each compared with what that package computes.

    TEST_DATA=... python tests/golden/vary/vary_embed.py [-n 40] [--seed 0] [--keep]       (make vary-embed)

A draw is an encoder or a decoder of a few layers with one of the tokenizers of TEST_DATA/embed, modules behind it (Pooling of
each mode and of several, Dense with each function, LayerNorm, Normalize), prompts, a length and a width. The package writes
the folder and encodes texts in fp32; the programs serve that folder. A cross-encoder comes now and then. A draw is right
(within 2e-5), refused by one line, FAILED (a program did not start, stop or answer) or WRONG: then the script ends with 1. Needs torch, transformers 5, sentence-transformers
and requests."""

import argparse, os, pathlib, random, shutil, sys
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "integration"))
from serving import DATA, Service, clean_up  # noqa: E402

FOLDER = ROOT / "build/golden/vary_embed"
TOLERANCE = 2e-5
TEXTS = ["Hello world", "a", "the sun is shining on a very long street", "x " * 30 + "and so on", "Ünïcode, übrigens; 1234!"]
WORDPIECE, UNIGRAM, BYTES = "bert_cls", "xlm_roberta_cls", "qwen3_embedding"
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=325, max_position_embeddings=130)
BERT, ROBERTA = dict(pad_token_id=0, type_vocab_size=2), dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)
DECODER = dict(num_key_value_heads=2, pad_token_id=0)
FAMILIES = [
    ("bert", WORDPIECE, BERT), ("electra", WORDPIECE, dict(BERT, embedding_size=32)), ("albert", WORDPIECE, dict(BERT, embedding_size=32)),
    ("distilbert", WORDPIECE, dict(dim=64, hidden_dim=96, n_layers=2, n_heads=4, pad_token_id=0)),
    ("mpnet", UNIGRAM, dict(ROBERTA)), ("roberta", UNIGRAM, ROBERTA), ("xlm-roberta", UNIGRAM, ROBERTA), ("camembert", UNIGRAM, ROBERTA),
    ("modernbert", UNIGRAM, dict(pad_token_id=1, local_attention=16, global_attn_every_n_layers=2)),
    ("deberta-v2", UNIGRAM, dict(relative_attention=True, position_buckets=32, share_att_key=True, pos_att_type=["p2c", "c2p"],
                                 position_biased_input=False, norm_rel_ebd="layer_norm", type_vocab_size=0, pad_token_id=1)),
    ("qwen3", BYTES, dict(DECODER, head_dim=16)), ("qwen2", BYTES, DECODER),
    ("llama", BYTES, DECODER), ("mistral", BYTES, dict(DECODER, head_dim=16)),
]
ACTS = [torch.nn.Tanh, torch.nn.Identity, torch.nn.GELU, torch.nn.ReLU, torch.nn.Sigmoid, torch.nn.SiLU, torch.nn.ELU]
MODES = ["mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"]


def spread(module, much=0.2):
    with torch.no_grad():
        for name, p in module.named_parameters():
            norm = p.dim() == 1 and name.endswith("weight")
            p.copy_(1 + 0.2 * torch.randn(p.shape) if norm else much * torch.randn(p.shape))


def base(r, out, auto, **more):
    """A random model and its tokenizer in a folder; its family."""
    kind, source, keys = r.choice(FAMILIES)
    config = AutoConfig.for_model(kind, **{**SMALL, **keys, **more})
    config._attn_implementation = "eager"
    model = auto.from_config(config).eval().float()
    spread(model)
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(DATA / "embed" / source).save_pretrained(out)
    return kind


def drawn_modules(r, width):
    """Modules behind the transformer, and a line about them."""
    modes = r.sample(MODES, 2) if r.random() < 0.2 else [r.choice(MODES + ["mean", "cls", "lasttoken"])]
    out = [Pooling(width, pooling_mode=modes if len(modes) > 1 else modes[0], include_prompt=r.random() < 0.7)]
    width *= len(modes)
    said = ["+".join(modes) + ("" if out[0].include_prompt else " without the prompt")]
    for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
        kind = r.choice(["Dense", "Dense", "LayerNorm", "Normalize"])
        if kind == "Dense":
            act, n, residual = r.choice(ACTS), r.choice([24, 64, 100]), r.random() < 0.2
            out.append(Dense(width, n, bias=r.random() < 0.5, activation_function=act(), use_residual=residual))
            width = n
            said.append(f"Dense {act.__name__}{' residual' if residual else ''}")
        else:
            out.append(LayerNorm(width) if kind == "LayerNorm" else Normalize())
            said.append(kind)
    if r.random() < 0.4:
        out.append(Normalize())
        said.append("Normalize")
    for m in out:
        spread(m)
    return out, said


def vectors_of(s, body, route="/embed"):
    answer = s.post(route, body)
    if answer.status_code != 200:
        raise RuntimeError(answer.text[:200])
    got = answer.json()
    return np.array(got if route == "/embed" else [d["embedding"] for d in got["data"]])


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def compare_vectors(r, s, model, prompts):
    """The greatest difference over the ways to ask. TEI's `normalize` decides alone, whatever the last module is: vectors of a
    model that ends in Normalize have the same direction. One text at a time: the package pads at either side."""
    ends_in_unit = isinstance(model[-1], Normalize)
    plain = unit if ends_in_unit else lambda x: x
    shown, openai = {"inputs": TEXTS, "truncate": True}, {"input": TEXTS, "truncate_prompt_tokens": -1}
    worst = [0.0]

    def both(want, width=None, **how):
        wide = {"dimensions": width} if width else {}
        for got, w in ((plain(vectors_of(s, {**shown, **how, **wide, "normalize": False})), plain(want)),
                       (vectors_of(s, {**shown, **how, **wide, "normalize": True}), unit(want)),
                       (vectors_of(s, {**openai, **how, **wide}, "/v1/embeddings"), unit(want))):
            worst.append(float(np.abs(got - w).max()) if got.shape == w.shape else np.inf)

    both(model.encode(TEXTS, batch_size=1))
    n = r.choice([3, 8, 17])
    both(model.encode(TEXTS, batch_size=1, truncate_dim=n), n)
    for name in prompts:
        both(model.encode(TEXTS, batch_size=1, prompt_name=name), prompt_name=name)
    for name, encode in (("query", model.encode_query), ("document", model.encode_document)):
        if prompts:
            want = unit(encode(TEXTS, batch_size=1))
            worst.append(float(np.abs(vectors_of(s, {**openai, "input_type": name}, "/v1/embeddings") - want).max()))
    return max(worst)


def sentence(r, out):
    kind = base(r, out, AutoModel)
    transformer = Transformer(str(out), max_seq_length=r.choice([16, 64, 128]))
    behind, said = drawn_modules(r, 64)
    prompts = {"query": "query: ", r.choice(["document", "passage"]): "the text: "} if r.random() < 0.5 else {}
    default = r.choice([None, "query"]) if prompts else None
    model = SentenceTransformer(modules=[transformer, *behind], prompts=prompts, default_prompt_name=default,
                                truncate_dim=r.choice([None, None, None, 20]), device="cpu")
    model.save_pretrained(str(out), create_model_card=False)
    model = SentenceTransformer(str(out), device="cpu", model_kwargs={"attn_implementation": "eager"}).eval()
    said = f"{kind}: {', '.join(said)}; {transformer.max_seq_length} tokens; default prompt {default}; width {model.truncate_dim}"
    return said, lambda s: compare_vectors(r, s, model, prompts)


def cross(r, out):
    """One label or three; what makes scores of logits."""
    labels, act = r.choice([1, 1, 3]), r.choice([None, torch.nn.Identity, torch.nn.Sigmoid])
    kind = base(r, out, AutoModelForSequenceClassification, num_labels=labels)
    model = CrossEncoder(str(out), device="cpu", max_length=r.choice([32, 64]), activation_fn=act() if act else None)
    model.save_pretrained(str(out))
    model = CrossEncoder(str(out), device="cpu", max_length=model.max_length)
    said = f"{kind}: {labels} labels, {act.__name__ if act else 'usual'}; {model.max_length} tokens"

    def compare(s):
        pairs = [["What is it?", t] for t in TEXTS]
        want = model.predict(pairs)
        if labels == 1:
            got = s.post("/score", {"text_1": "What is it?", "text_2": TEXTS, "truncate_prompt_tokens": -1})
            numbers = [d["score"] for d in got.json()["data"]] if got.status_code == 200 else None
        else:
            got = s.post("/predict", {"inputs": pairs, "truncate": True})
            by_name = [{x["label"]: x["score"] for x in one} for one in got.json()] if got.status_code == 200 else None
            numbers = [[one[f"LABEL_{i}"] for i in range(labels)] for one in by_name] if by_name else None
            if act is not torch.nn.Sigmoid:  # predict() of several labels gives logits; TEI and vLLM give probabilities
                want = torch.tensor(want).softmax(-1).numpy()
        if numbers is None:
            raise RuntimeError(got.text[:200])
        return float(np.abs(np.array(numbers) - want).max())

    return said, compare


def one(i, seed, keep):
    r = random.Random(seed * 1000 + i)
    torch.manual_seed(seed * 1000 + i)
    out = FOLDER / f"{seed}-{i}"  # several seeds may run side by side
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    said, compare = (cross if r.random() < 0.2 else sentence)(r, out)
    try:
        with Service(out) as s:
            error = compare(s)
        verdict = f"{error:.1e}" if error < TOLERANCE else f"WRONG by {error:.2g}"
    except (AssertionError, RuntimeError, OSError) as e:  # the last: a connection ends without an answer
        lines = [line for line in str(e).splitlines() if '"error"' in line or "ERROR" in line]
        # without such a line nothing was refused: a program did not start in time, or did not stop
        crashed = "Assertion" in str(e) or "killed by signal" in str(e)
        verdict = f"refused: {lines[0][-300:]}" if lines and not crashed else f"FAILED: {str(e)[:200]} ... {str(e)[-1000:]}"
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    print(f"{i:3} {said}: {verdict}", flush=True)
    return verdict


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=40)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", type=int)
    p.add_argument("--keep", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(1)
    found = [one(i, o.seed, o.keep) for i in (range(o.n) if o.only is None else [o.only])]
    wrong, refused, failed = (sum(v.startswith(word) for v in found) for word in ("WRONG", "refused", "FAILED"))
    print(f"{len(found) - wrong - refused - failed} right, {refused} refused, {failed} failed, {wrong} wrong")
    clean_up(keep_logs=False)
    sys.exit(1 if wrong or failed else 0)


main()
