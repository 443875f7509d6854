#!/usr/bin/env python3
"""A tiny random listwise reranker with golden.json: the scores of documents, in one prompt and in several.

    python tests/golden/make_list.py       into tests/data/listwise

Equations and prompt of jina-reranker-v3 (https://arxiv.org/abs/2509.25085): marks behind each document and the query, two matrices with a ReLU
between them, cosines; of several prompts the mean of the query's vectors, weighted by (1 + best cosine) / 2. fp32, eager attention. Needs torch,
transformers 5, tokenizers and safetensors. integration/embed/test_listwise.py reads it."""

import json, pathlib
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import Qwen3Config, Qwen3Model

OUT = pathlib.Path(__file__).resolve().parent.parent / "data/listwise"
MARKS = ["<|embed_token|>", "<|rerank_token|>", "<|im_start|>", "<|im_end|>"]
QUERY, DOCUMENTS = "w3 w4 w9", ["w3 w8 w9", "w1 w2 w4", "w29 w3<|embed_token|> w4", "w11 w12 w13 w14"]
SYSTEM = ("You are a search relevance expert who can determine a ranking of the passages based on how relevant they are to the query. If the query is a "
          "question, how relevant a passage is depends on how well it answers the question. If not, try to analyze the intent of the query and assess how "
          "well each passage satisfies the intent. If an instruction is provided, you should follow the instruction when determining the ranking.")


def prompt(query, documents, instruction=None):
    clean = lambda s: s.replace(MARKS[0], "").replace(MARKS[1], "")
    passages = "\n".join(f'<passage id="{i}">\n{clean(d)}{MARKS[0]}\n</passage>' for i, d in enumerate(documents))
    told = f"<instruct>\n{instruction}\n</instruct>\n" if instruction else ""
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nI will provide you with {len(documents)} passages, each indicated by a numerical "
            f"identifier. Rank the passages based on their relevance to query: {clean(query)}\n{told}{passages}\n<query>\n{clean(query)}{MARKS[1]}\n</query>"
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")


def tokenizer():
    words = ["[UNK]", "\n"] + [f"w{i}" for i in range(30)] + sorted(set(SYSTEM.split()))
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKS])
    return t


@torch.no_grad()
def main():
    torch.manual_seed(4)
    t = tokenizer()
    config = Qwen3Config(vocab_size=t.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=8, max_position_embeddings=8192, tie_word_embeddings=True, attn_implementation="eager",
                         bos_token_id=0, eos_token_id=0)
    model = Qwen3Model(config).eval()
    for name, p in model.named_parameters():
        spread = 0.3 * torch.randn(p.shape)
        p.copy_((1 + spread if p.dim() == 1 else spread).bfloat16().float())
    first, last = ((0.3 * torch.randn(s)).bfloat16().float() for s in ((16, 32), (24, 16)))

    def vectors(documents, instruction=None):
        ids = torch.tensor([t.encode(prompt(QUERY, documents, instruction)).ids])
        rows = torch.relu(model(ids).last_hidden_state[0] @ first.T) @ last.T
        return rows[ids[0] == t.token_to_id(MARKS[0])], rows[ids[0] == t.token_to_id(MARKS[1])][0]

    cos = lambda q, d: torch.nn.functional.cosine_similarity(d, q[None], dim=-1)
    numbers = lambda x: [round(float(v), 6) for v in x]
    d, q = vectors(DOCUMENTS)
    # 130 documents are two prompts
    many = [DOCUMENTS[i % 3] + f" w{i % 29}" for i in range(130)]
    parts = [vectors(many[:125]), vectors(many[125:])]
    weights = [((1 + cos(q, d)) / 2).max() for d, q in parts]
    mean = sum(w * q for w, (_, q) in zip(weights, parts)) / sum(weights)
    d_told, q_told = vectors(DOCUMENTS, "Prefer w8.")
    golden = dict(query=QUERY, documents=DOCUMENTS, scores=numbers(cos(q, d)), instruction="Prefer w8.", told=numbers(cos(q_told, d_told)),
                  alone=numbers(torch.stack([cos(*reversed(vectors([x])))[0] for x in DOCUMENTS])),
                  many=many, many_scores=numbers(torch.cat([cos(mean, d) for d, _ in parts])))
    OUT.mkdir(parents=True, exist_ok=True)
    state = {f"model.{n}": p.bfloat16().contiguous() for n, p in model.state_dict().items()}
    save_file(state | {"projector.0.weight": first.bfloat16(), "projector.2.weight": last.bfloat16()}, OUT / "model.safetensors")
    (OUT / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": ["JinaForRanking"]}, indent=1, default=str) + "\n")
    t.save(str(OUT / "tokenizer.json"))
    (OUT / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    print(golden["scores"], golden["told"], golden["alone"], [float(w) for w in weights])


if __name__ == "__main__":
    main()
