#!/usr/bin/env python3
"""Tiny random models of late interaction with golden.json: vectors of a query's and of documents' tokens, and their scores.

    python tests/golden/make_late.py [NAME...]       into tests/data/late

`pylate` and `modern` have PyLate's files, `stanford` those of ColBERT's authors, `native` those of sentence-transformers 6, which is what computes
the expected values (fp32, eager attention). Needs torch, transformers 5, sentence-transformers 6, tokenizers and safetensors.
integration/embed/test_late_interaction.py reads them."""

import json, pathlib, sys
import torch
from safetensors.torch import save_file
from sentence_transformers import MultiVectorEncoder
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel

OUT = pathlib.Path(__file__).resolve().parent.parent / "data/late"
SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = SPECIAL + [".", ",", "!", "-"] + [f"w{i}" for i in range(30)]
SIZES = dict(vocab_size=len(WORDS) + 2, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64,
             pad_token_id=0, initializer_range=0.2)
QUERY = "w3 w4, w9!"
DOCUMENTS = ["w3 w8 w9.", "w1, w2 - w4 w5 w6 w7 w8 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19 w20 w21 w22", "w29"]
DENSE = dict(in_features=32, out_features=12, bias=False, activation_function="torch.nn.modules.linear.Identity")
BERT, MODERN = dict(model_type="bert"), dict(model_type="modernbert", local_attention=24, global_attn_every_n_layers=3, cls_token_id=4, sep_token_id=5,
                                             bos_token_id=4, eos_token_id=5)
PYLATE = dict(model_type="ColBERT", query_prefix="[Q] ", document_prefix="[D] ", query_length=14, document_length=20)
CASES = {
    "pylate": dict(model=BERT, st=PYLATE),
    # windows of 12 tokens to each side; all attend to what fills a query; a list of its own
    "modern": dict(model=MODERN, st=PYLATE | dict(attend_to_expansion_tokens=True, skiplist_words=["-", "w8"])),
    "stanford": dict(model=BERT, metadata=dict(query_maxlen=13, doc_maxlen=20, attend_to_mask_tokens=False, mask_punctuation=True,
                                               query_token_id="[unused0]", doc_token_id="[unused1]")),
    "native": dict(model=MODERN, st=dict(model_type="MultiVectorEncoder", prompts=dict(query="w1 ", document="w2 ")), mask=["."],
                   transformer=dict(query_length=20, document_length=16, query_expansion=dict(strategy="min", attend=False, token="w28", length=12))),
}


def tokenizer(folder, marks):
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    t.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    if marks:
        t.add_tokens([AddedToken("[Q] ", normalized=False), AddedToken("[D] ", normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 4), ("[SEP]", 5)])
    t.save(str(folder / "tokenizer.json"))
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", model_max_length=64)
    write(folder, "tokenizer_config.json", names | dict(tokenizer_class="PreTrainedTokenizerFast"))


def write(folder, name, what):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(what, indent=1) + "\n")


def weights(case):
    kind = dict(case["model"])
    model = AutoModel.from_config(AutoConfig.for_model(kind.pop("model_type"), **SIZES, **kind)).eval()
    state = {n: (p + 0.1 * torch.randn(p.shape)).bfloat16() for n, p in model.state_dict().items()}
    return model.config.to_dict(), state, torch.randn(12, 32).bfloat16()


def files(folder, case):
    config, state, dense = weights(case)
    kinds = ["base.modules.transformer.Transformer", "base.modules.dense.Dense", "multi_vector_encoder.modules.MultiVectorMask",
             "base.modules.normalize.Normalize"]
    if "metadata" in case:
        write(folder, "config.json", config | dict(architectures=["HF_ColBERT"]))
        write(folder, "artifact.metadata", case["metadata"])
        save_file({f"bert.{n}": v for n, v in state.items()} | {"linear.weight": dense}, folder / "model.safetensors")
        return
    write(folder, "config.json", config)
    save_file(state, folder / "model.safetensors")
    write(folder, "config_sentence_transformers.json", case["st"])
    own = "mask" in case
    write(folder, "1_Dense/config.json", DENSE | (dict(module_input_name="token_embeddings", module_output_name="token_embeddings") if own else {}))
    save_file({"linear.weight": dense}, folder / "1_Dense/model.safetensors")
    if own:
        write(folder, "sentence_bert_config.json", case["transformer"])
        write(folder, "2_MultiVectorMask/config.json", dict(skiplist_words=case["mask"], skiplist_tasks=["document"], keep_only_token_ids=None))
        write(folder, "3_Normalize/config.json", dict(module_input_name="token_embeddings"))
        paths = ["", "1_Dense", "2_MultiVectorMask", "3_Normalize"]
        modules = [dict(idx=i, name=str(i), path=p, type="sentence_transformers." + k) for i, (p, k) in enumerate(zip(paths, kinds))]
    else:
        modules = [dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer"),
                   dict(idx=1, name="1", path="1_Dense", type="pylate.models.Dense.Dense")]
    write(folder, "modules.json", modules)


def make(name):
    torch.manual_seed(9)
    folder, case = OUT / name, CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(folder, "query_prefix" in case.get("st", {}))
    files(folder, case)
    model = MultiVectorEncoder(str(folder), device="cpu", model_kwargs=dict(attn_implementation="eager", dtype=torch.float32))
    query, documents = model.encode_query(QUERY), model.encode_document(DOCUMENTS)
    rows = lambda m: [[round(float(x), 6) for x in r] for r in m]
    scores = [round(float((torch.as_tensor(query) @ torch.as_tensor(d).T).max(1).values.sum()), 5) for d in documents]
    write(folder, "golden.json", dict(query=QUERY, documents=DOCUMENTS, query_vectors=rows(query), document_vectors=[rows(d) for d in documents],
                                      scores=scores))
    print(name, [len(query)] + [len(d) for d in documents], scores)


if __name__ == "__main__":
    for one in sys.argv[1:] or CASES:
        make(one)
