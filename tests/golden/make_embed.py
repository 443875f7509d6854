#!/usr/bin/env python3
"""Tiny random encoders, embedders and rerankers with golden.json, of the kinds that the reference data does not have.

    python tests/golden/make_embed.py [NAME...]       into build/golden/embed

Each folder: config.json, model.safetensors, what sentence-transformers adds, golden.json with the ids of texts and their
embedding, logit or logits: eager attention, fp32, CPU. Needs torch and transformers 5. tests/golden/test_embed runs what it finds there."""

import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForTextEncoding)

COMMON = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
              max_position_embeddings=160, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LENGTHS = [1, 2, 9, 33, 70, 128]
YES, NO = 40, 41
CASES = {
    # two layers of three have a window of 4 tokens to each side.
    "modernbert": dict(model_type="modernbert", local_attention=8, global_attn_every_n_layers=3, kind="mean"),
    # a window of 13, (24 // 2) + 1; two Dense modules behind the mean.
    "embeddinggemma": dict(model_type="gemma3_text", head_dim=16, num_key_value_heads=2, sliding_window=24,
                           layer_types=["sliding_attention"] * 3 + ["full_attention"],
                           use_bidirectional_attention=True, query_pre_attn_scalar=16, kind="mean", dense=[192, 64]),
    "bert_rerank": dict(model_type="bert", num_labels=1, type_vocab_size=2, kind="classify", old_norms=True),
    "roberta_classify": dict(model_type="roberta", num_labels=3, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
                             max_position_embeddings=162, kind="classify"),
    "modernbert_rerank": dict(model_type="modernbert", local_attention=16, num_labels=1, classifier_pooling="mean",
                              kind="classify"),
    "distilbert_classify": dict(model_type="distilbert", num_labels=2, kind="classify"),
    "electra_rerank": dict(model_type="electra", embedding_size=32, num_labels=1, kind="classify"),
    "albert": dict(model_type="albert", embedding_size=32, kind="mean"),
    "albert_classify": dict(model_type="albert", embedding_size=64, num_labels=3, kind="classify"),
    "mpnet": dict(model_type="mpnet", max_position_embeddings=162, pad_token_id=1, kind="mean"),
    "mpnet_classify": dict(model_type="mpnet", max_position_embeddings=162, pad_token_id=1, num_labels=3, kind="classify"),
    "deberta": dict(model_type="deberta-v2", relative_attention=True, position_buckets=32, share_att_key=True, pos_att_type=["p2c", "c2p"],
                    position_biased_input=False, norm_rel_ebd="layer_norm", type_vocab_size=0, kind="mean"),
    "deberta_classify": dict(model_type="deberta-v2", relative_attention=True, position_buckets=256, max_relative_positions=-1,
                             share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False, norm_rel_ebd="layer_norm",
                             type_vocab_size=0, max_position_embeddings=512, num_labels=3, kind="classify"),
    "eurobert": dict(model_type="eurobert", num_key_value_heads=2, kind="mean"),
    # the repositories' own: the same arithmetic under their names and keys
    "nomic_bert": dict(model_type="nomic_bert", max_position_embeddings=60, type_vocab_size=2, kind="mean",
                       rope_parameters=dict(rope_type="dynamic", rope_theta=1000.0, factor=2.0)),
    "nomic_bert_classify": dict(model_type="nomic_bert", type_vocab_size=2, num_labels=2, kind="classify"),
    "gte": dict(model_type="gte", type_vocab_size=0, kind="mean", much=0.15,
                rope_parameters=dict(rope_type="linear", rope_theta=500.0 * 8, factor=8.0 ** (2 / 16))),
    "gte_rerank": dict(model_type="gte", type_vocab_size=1, num_labels=1, kind="classify"),
    # a ReLU and a bias of layer 0; heads that are together wider than the stream; texts reach past the farthest bucket
    "t5": dict(model_type="t5", d_kv=24, feed_forward_proj="relu", relative_attention_max_distance=40, kind="encoder"),
    "flan_t5": dict(model_type="t5", d_kv=8, feed_forward_proj="gated-gelu", relative_attention_num_buckets=16, kind="encoder", much=0.15),
    "mt5": dict(model_type="mt5", d_kv=16, feed_forward_proj="gated-gelu", kind="encoder", dense=[192], much=0.15),
    "umt5": dict(model_type="umt5", d_kv=16, feed_forward_proj="gated-gelu", kind="encoder", much=0.15),
    "qwen3_rerank": dict(model_type="qwen3", head_dim=16, num_key_value_heads=2, kind="yes_no"),
}


def texts(g, vocab):
    for n in LENGTHS:
        yield torch.randint(4, vocab, (n,), generator=g).tolist()


def spread(model, g, much):
    """Norms and biases that are not 1 and 0; weights that leave no part of the arithmetic without effect."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            norm = "norm" in name.lower() and p.dim() == 1 and name.endswith("weight")
            p.copy_((1 + 0.2 * r if norm and "gemma" not in type(model).__name__.lower() else much * r).bfloat16().float())


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


def in_rows(state, parts, whole):
    """Matrices of each layer in one."""
    for name in [n for n in state if parts[0] in n]:
        state[name.replace(parts[0], whole)] = torch.cat([state.pop(name.replace(parts[0], p)) for p in parts])


def renamed(state, pairs):
    out = {}
    for name, v in state.items():
        for a, b in pairs:
            name = name.replace(a, b)
        out[name] = v
    return out


QKV = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]


def as_nomic(state, c):
    in_rows(state, QKV, "attn.Wqkv")
    state = renamed(state, [("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."), ("self_attn.o_proj", "attn.out_proj"),
                            ("up_proj", "fc11"), ("gate_proj", "fc12"), ("down_proj", "fc2"),
                            ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2")])
    rope = c["rope_parameters"]
    dynamic = rope["rope_type"] == "dynamic"
    keys = dict(model_type="nomic_bert", n_embd=64, n_layer=4, n_head=4, n_inner=96, vocab_size=320, type_vocab_size=2,
                n_positions=160, max_trained_positions=c["max_position_embeddings"], rotary_emb_base=rope["rope_theta"],
                rotary_scaling_factor=2 if dynamic else None, rotary_emb_fraction=1.0, activation_function="swiglu",
                layer_norm_epsilon=1e-12, prenorm=False, qkv_proj_bias=False, mlp_fc1_bias=False, id2label=c["id2label"])
    return state, keys


def as_new(state, c):
    in_rows(state, QKV, "attention.qkv_proj")
    in_rows(state, ["mlp.up_proj", "mlp.gate_proj"], "mlp.up_gate_proj")
    state = renamed(state, [("gte.", "new."), ("layers.", "encoder.layer."), ("self_attn.o_proj", "attention.o_proj"),
                            ("post_attention_layernorm", "attn_ln"), ("post_mlp_layernorm", "mlp_ln")])
    keys = dict(c, model_type="new", position_embedding_type="rope", layer_norm_type="layer_norm", pack_qkv=True,
                rope_theta=c["rope_parameters"]["rope_theta"], rope_scaling=None, logn_attention_scale=False)
    if keys.pop("rope_parameters")["rope_type"] == "linear":
        keys.update(rope_theta=500.0, rope_scaling=dict(type="ntk", factor=8.0))
    return state, keys


AS = {"nomic_bert": as_nomic, "nomic_bert_classify": as_nomic, "gte": as_new, "gte_rerank": as_new}


def make(name, case):
    case = dict(case)
    kind, dense, old = case.pop("kind"), case.pop("dense", []), case.pop("old_norms", False)
    much = case.pop("much", 0.2)  # of gated MLPs without a norm before: rounding errors of fp32 would grow to the bound
    out = f"build/golden/embed/{name}"
    os.makedirs(out, exist_ok=True)
    labels = case.pop("num_labels", None)
    if case["model_type"] == "distilbert":
        case = dict(case, dim=64, hidden_dim=96, n_layers=4, n_heads=4)
    if kind == "encoder":
        case = dict(case, d_model=64, d_ff=96, num_layers=4, num_heads=4)
    config = AutoConfig.for_model(**{
    **COMMON, **case, **({ "num_labels" : labels } if labels else {})})
    config._attn_implementation = "eager"
    auto = {"mean": AutoModel, "encoder": AutoModelForTextEncoding, "classify": AutoModelForSequenceClassification, "yes_no": AutoModelForCausalLM}[kind]
    torch.manual_seed(1)
    model = auto.from_config(config).eval().float()
    g = torch.Generator().manual_seed(2)
    spread(model, g, much)
    model.config._attn_implementation = "eager"
    results, layers = [], modules(out, "mean", dense) if kind in ("mean", "encoder") else []
    for n, ids in enumerate(texts(g, config.vocab_size)):
        types = [int(i > len(ids) // 2) for i in range(len(ids))] if config.model_type in ("bert", "electra", "albert") else None
        feed = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        if types:
            feed["token_type_ids"] = torch.tensor([types])
        with torch.no_grad():
            got = model(**feed)
        text = dict(ids=ids, token_type_ids=types)
        if kind in ("mean", "encoder"):
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
    said = json.loads(config.to_json_string(use_diff=False))
    if name in AS:
        state, said = AS[name](state, said)
    save_file(state, f"{out}/model.safetensors")
    said["architectures"] = [type(model).__name__]
    json.dump(said, open(f"{out}/config.json", "w"), indent=1)
    json.dump(dict(name=name, texts=results), open(f"{out}/golden.json", "w"))
    print(name, sum(p.numel() for p in model.parameters()))


for name in sys.argv[1:] or CASES:
    make(name, CASES[name])
