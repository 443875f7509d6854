#!/usr/bin/env python3
"""Random classifiers of tokens and texts and models that answer questions, each compared with transformers' pipelines.

    TEST_DATA=... python tests/golden/vary/vary_tasks.py [-n 40] [--seed 0] [--keep]       (make vary-tasks)

A draw is a model of two layers with one of the tokenizers of TEST_DATA/embed. The programs serve it, and get
the bodies of huggingface_hub's InferenceClient. Answers are right (scores within 2e-5, all else equal), or WRONG: then the script
ends with 1. Needs torch and transformers 4.57, as version 5 answers no questions any more, and requests."""

import argparse, os, pathlib, random, shutil, sys
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch
from transformers import (AutoConfig, AutoModelForMaskedLM, AutoModelForQuestionAnswering, AutoModelForSequenceClassification,
                          AutoModelForTokenClassification, AutoTokenizer, pipeline)

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "integration"))
from serving import DATA, Service, clean_up  # noqa: E402

FOLDER = ROOT / "build/golden/vary_tasks"
TOLERANCE = 2e-5
WORDPIECE, UNIGRAM, BYTES = "bert_cls", "xlm_roberta_cls", "qwen3_embedding"
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=325, max_position_embeddings=130)
BERT, ROBERTA = dict(pad_token_id=0, type_vocab_size=2), dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)
FAMILIES = [("bert", WORDPIECE, BERT), ("distilbert", WORDPIECE, dict(dim=64, hidden_dim=96, n_layers=2, n_heads=4, pad_token_id=0)),
            ("electra", WORDPIECE, dict(BERT, embedding_size=32)), ("roberta", UNIGRAM, ROBERTA), ("xlm-roberta", UNIGRAM, ROBERTA),
            ("modernbert", UNIGRAM, dict(pad_token_id=1, local_attention=16, global_attn_every_n_layers=2))]
DECODERS = [("qwen2", BYTES, dict(num_key_value_heads=2, pad_token_id=0))]
WORDS = ("the sun is shining on a very long street while Zürich and München sleep; \"Ada Lovelace\" (born 1815) lived in London, "
         "wrote 1,234 lines & drank tee... 東京 it's naïve: semi-automatic unbelievable wonderful houses").split()


def text(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n)) + r.choice(["", ".", " ", "  end"])


def made(r, out, auto, families, **more):
    kind, source, keys = r.choice(families)
    config = AutoConfig.for_model(kind, **{**SMALL, **keys, **more})
    config._attn_implementation = "eager"
    model = auto.from_config(config).eval().float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(1 + 0.2 * torch.randn(p.shape) if p.dim() == 1 and name.endswith("weight") else 0.25 * torch.randn(p.shape))
    model.save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(DATA / "embed" / source)
    tokenizer.padding_side = "right"
    tokenizer.model_max_length = 128 if keys is ROBERTA else SMALL["max_position_embeddings"]  # whose positions begin at 2
    if "type_vocab_size" not in keys:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(out)
    return kind, model, tokenizer


def differs(got, want):
    """The greatest difference of scores; infinite if anything else differs."""
    if got.status_code != 200:
        return float("inf"), got.text, want
    got, want = (x if isinstance(x, list) else [x] for x in (got.json(), want))
    got = got[0] if got and isinstance(got[0], list) else got  # classifiers answer with a list for each text
    if len(got) != len(want):
        return float("inf"), got, want
    worst = 0.0
    for a, b in zip(got, want):
        if {k: v for k, v in a.items() if k != "score"} != {k: v for k, v in b.items() if k != "score"}:
            return float("inf"), a, b
        worst = max(worst, abs(a["score"] - float(b["score"])))
    return worst, got, want


def tokens(r, out):
    labels = r.choice([["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], ["NOUN", "VERB", "O"], ["LABEL_0", "LABEL_1"]])
    kind, model, tokenizer = made(r, out, AutoModelForTokenClassification, FAMILIES + DECODERS, num_labels=len(labels),
                                  id2label=dict(enumerate(labels)), label2id={n: i for i, n in enumerate(labels)})
    asked = []
    for strategy in ("none", "simple", "first", "average", "max"):
        asked.append((text(r, r.choice([1, 3, 9])), dict(aggregation_strategy=strategy)))
    asked.append((text(r, 9), dict(aggregation_strategy="simple", ignore_labels=r.choice([[], labels[:2]]))))
    asked.append((text(r, 90), dict(aggregation_strategy=r.choice(["first", "simple", "max"]), stride=r.choice([0, 5, 40]))))

    def compare(ask):
        for said, how in asked:
            if how.get("stride", 1) == 0:  # the pipeline takes 0 for none
                how = dict(how, stride=1)
            want = pipeline("token-classification", model=model, tokenizer=tokenizer, device="cpu", **how)(said)
            yield differs(ask(said, **how), want)

    return f"{kind}: {len(labels)} labels", compare


def texts(r, out):
    labels = r.choice([["contradiction", "neutral", "entailment"], ["entailment", "not_entailment"], ["NEGATIVE", "POSITIVE"]])
    kind, model, tokenizer = made(r, out, AutoModelForSequenceClassification, FAMILIES, num_labels=len(labels),
                                  id2label=dict(enumerate(labels)), label2id={n: i for i, n in enumerate(labels)})
    names = ["sport", "politics", "art", "science"][: r.choice([1, 2, 4])]

    def compare(ask):
        for function in ("none", "sigmoid", "softmax"):
            said = text(r, 5)
            want = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")(said, top_k=None, function_to_apply=function)
            yield differs(ask(said, top_k=len(labels), function_to_apply=function), want)
        for many in (False, True):
            said = text(r, 8)
            want = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer, device="cpu")(
                said, names, multi_label=many, hypothesis_template="it is {}, isn't it")
            want = [dict(label=a, score=b) for a, b in zip(want["labels"], want["scores"])]
            yield differs(ask(said, candidate_labels=names, multi_label=many, hypothesis_template="it is {}, isn't it"), want)

    return f"{kind}: {labels}", compare


def answers(r, out):
    kind, model, tokenizer = made(r, out, AutoModelForQuestionAnswering, FAMILIES)
    asked = [(text(r, 4), text(r, n), how) for n, how in (
        (12, {}), (12, dict(top_k=4)), (12, dict(handle_impossible_answer=True, top_k=2)), (20, dict(align_to_words=False, top_k=3, max_answer_len=4)),
        (150, dict(max_seq_len=r.choice([50, 96]), doc_stride=r.choice([5, 16]), top_k=3)), (80, dict(handle_impossible_answer=True)))]

    def compare(ask):
        for question, context, how in asked:
            want = pipeline("question-answering", model=model, tokenizer=tokenizer, device="cpu")(question=question, context=context, **how)
            yield differs(ask(dict(question=question, context=context), **how), want)

    return kind, compare


def masks(r, out):
    kind, model, tokenizer = made(r, out, AutoModelForMaskedLM, [f for f in FAMILIES if f[0] != "electra"])
    mask = tokenizer.mask_token
    asked = [(f"{text(r, 3)} {mask} {text(r, 2)}", {}), (f"{mask} {text(r, 5)}", dict(top_k=12)), (f"{mask} {text(r, 2)} {mask}", dict(top_k=2)),
             (f"the {mask}", dict(targets=["sun", "the", "unbelievable"]))]

    def compare(ask):
        for said, how in asked:
            want = pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu", **how)(said)
            got = ask(said, **how)
            for i in range(2) if said.count(mask) == 2 else [None]:
                yield differs(got, want) if i is None else differs(Part(got, i), want[i])

    return kind, compare


class Part:
    """Of an answer with a list for each mask."""

    def __init__(self, got, i):
        self.status_code, self.text = got.status_code, got.text
        self.json = lambda: got.json()[i]


def one(i, seed, keep):
    r = random.Random(seed * 1000 + i)
    torch.manual_seed(seed * 1000 + i)
    out = FOLDER / f"{seed}-{i}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    task = r.choice([tokens, texts, answers, masks])
    said, compare = task(r, out)
    with Service(out, args=["--task", "fill-mask"] if task is masks else []) as s:
        found = list(compare(lambda inputs, **how: s.post("/", dict(inputs=inputs, parameters=how))))
    worst = max(found, key=lambda x: x[0])
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    right = worst[0] < TOLERANCE
    print(f"{i:3} {task.__name__} of {said}: " + (f"{worst[0]:.1e}" if right else f"WRONG: {worst}"[:1000]), flush=True)
    return right


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=40)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", type=int)
    p.add_argument("--keep", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(1)
    found = [one(i, o.seed, o.keep) for i in (range(o.n) if o.only is None else [o.only])]
    print(f"{sum(found)} right, {len(found) - sum(found)} wrong")
    clean_up(keep_logs=False)
    sys.exit(0 if all(found) else 1)


main()
