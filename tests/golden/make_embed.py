#!/ usr / bin / env python3
"""Tiny random encoders, embedders and rerankers with golden.json, of the kinds that the reference data does not have.

    python tests/golden/make_embed.py [NAME...]       into build/golden/embed

Each folder: config.json, model.safetensors, what sentence-transformers adds, golden.json with the ids of texts and their
embedding, logit or logits: eager attention, fp32, CPU. Needs torch and transformers 5. tests/golden/test_embed runs what it finds there."""

import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification)

COMMON = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
              max_position_embeddings=160, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LENGTHS = [1, 2, 9, 33, 70, 128]
YES, NO = 40, 41
CASES = {
#Two layers of three have a window of 4 tokens to each side.
    "modernbert": dict(model_type="modernbert", local_attention=8, global_attn_every_n_layers=3, kind="mean"),
#A window of 13, (24 // 2) + 1; two Dense modules behind the mean.
    "embeddinggemma": dict(model_type="gemma3_text", head_dim=16, num_key_value_heads=2, sliding_window=24,
                           layer_types=["sliding_attention"] * 3 + ["full_attention"],
                           use_bidirectional_attention=True, query_pre_attn_scalar=16, kind="mean", dense=[192, 64]),
    "bert_rerank": dict(model_type="bert", num_labels=1, type_vocab_size=2, kind="classify", old_norms=True),
    "roberta_classify": dict(model_type="roberta", num_labels=3, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
                             max_position_embeddings=162, kind="classify"),
    "modernbert_rerank": dict(model_type="modernbert", local_attention=16, num_labels=1, classifier_pooling="mean",
                              kind="classify"),
    "qwen3_rerank": dict(model_type="qwen3", head_dim=16, num_key_value_heads=2, kind="yes_no"),
}


def texts(g, vocab):
    for n in LENGTHS:
        yield torch.randint(4, vocab, (n,), generator=g).tolist()


def spread(model, g):
    """Norms and biases that are not 1 and 0; weights that leave no part of the arithmetic without effect."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            norm = "norm" in name.lower() and p.dim() == 1 and name.endswith("weight")
            p.copy_((1 + 0.2 * r if norm and "gemma" not in type(model).__name__.lower() else 0.2 * r).bfloat16().float())


def modules(out, pool, dense):
    """The files of sentence-transformers; returns what the Dense modules compute."""
    kinds = ["Transformer", "Pooling"] + ["Dense"] * len(dense)
    listed = [dict(idx=i, name=str(i), path="" if i == 0 else f"{i}_{k}", type=f"sentence_transformers.models.{k}")
              for i, k in enumerate(kinds)]
    json.dump(listed, open(f"{out}/modules.json", "w"))
    for m in listed[1:]:
        os.makedirs(f"{out}/{m['path']}", exist_ok=True)
    json.dump(dict(word_embedding_dimension=64, pooling_mode_mean_tokens=pool == "mean"), open(f"{out}/1_Pooling/config.json", "w"))
    g, layers, width = torch.Generator().manual_seed(3), [], 64
    for i, n in enumerate(dense):
        w = torch.randn((n, width), generator=g) * 0.1
        folder = f"{out}/{2 + i}_Dense"
        json.dump(dict(in_features=width, out_features=n, bias=False, activation_function="torch.nn.modules.linear.Identity"),
                  open(f"{folder}/config.json", "w"))
        save_file({"linear.weight": w.contiguous()}, f"{folder}/model.safetensors")
        layers.append(w)
        width = n
    return layers


def make(name, case):
    case = dict(case)
    kind, dense, old = case.pop("kind"), case.pop("dense", []), case.pop("old_norms", False)
    out = f"build/golden/embed/{name}"
    os.makedirs(out, exist_ok=True)
    labels = case.pop("num_labels", None)
    config = AutoConfig.for_model(**{
    **COMMON, **case, **({ "num_labels" : labels } if labels else {})})
    config._attn_implementation = "eager"
    auto = {"mean": AutoModel, "classify": AutoModelForSequenceClassification, "yes_no": AutoModelForCausalLM}[kind]
    torch.manual_seed(1)
    model = auto.from_config(config).eval().float()
    g = torch.Generator().manual_seed(2)
    spread(model, g)
    model.config._attn_implementation = "eager"
    results, layers = [], modules(out, kind, dense) if kind == "mean" else []
    for n, ids in enumerate(texts(g, config.vocab_size)):
        types = [int(i > len(ids) // 2) for i in range(len(ids))] if config.model_type == "bert" else None
        feed = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        if types:
            feed["token_type_ids"] = torch.tensor([types])
        with torch.no_grad():
            got = model(**feed)
        text = dict(ids=ids, token_type_ids=types)
        if kind == "mean":
            h = got.last_hidden_state[0]
            x = h.mean(0)
            for w in layers:
                x = w @ x
            text.update(embedding=x.tolist(), first_hidden=h[0].tolist(), last_hidden=h[-1].tolist())
        elif kind == "yes_no":
            text["logit"] = (got.logits[0, -1, YES] - got.logits[0, -1, NO]).item()
        else:
            text["logits"] = got.logits[0].tolist()
        results.append(text)
    state = {
k: v.contiguous().bfloat16() for k, v in model.state_dict().items()}
    if kind == "yes_no":
        state.pop("lm_head.weight", None) if config.tie_word_embeddings else None
    if old:  # as the first files have them
        state = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in state.items()}
    save_file(state, f"{out}/model.safetensors")
    said = json.loads(config.to_json_string(use_diff=False))
    said["architectures"] = [type(model).__name__]
    json.dump(said, open(f"{out}/config.json", "w"), indent=1)
    json.dump(dict(name=name, texts=results), open(f"{out}/golden.json", "w"))
    print(name, sum(p.numel() for p in model.parameters()))


for name in sys.argv[1:] or CASES:
    make(name, CASES[name])
