#!/usr/bin/env python3
"""A tiny random layerwise reranker with golden.json: logits of documents behind each of its last layers.

    python tests/golden/make_layerwise.py       into tests/data/layerwise

Equations and prompt of FlagEmbedding 1.4 (LayerWiseMiniCPMForCausalLM, bge-reranker-v2-minicpm-layerwise): MiniCPM is Llama with factors on the
embedding and on what layers add; a head of one logit reads the last token of the normed rows behind `n` layers. fp32, eager attention. Needs
torch, transformers 5, tokenizers and safetensors. integration/embed/test_layerwise.py reads it."""

import json, pathlib
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaModel

OUT = pathlib.Path(__file__).resolve().parent.parent / "data/layerwise"
LAYERS, FIRST, SCALE, DEPTH = 5, 2, 3.0, 1.4
QUERY, DOCUMENTS = "Who pays?", ["A bill of May.", "No.", "All of them pay in the end, and so does she."]
PROMPT = "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction of either 'Yes' or 'No'."
OTHER = "Is B about A?"
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def tokenizer():
    """Every byte is a token, and <s> precedes a text."""
    words = ["<unk>", "<s>", "</s>", *BYTES]
    t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[], unk_token="<unk>"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(words[:3])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


@torch.no_grad()
def main():
    torch.manual_seed(6)
    t = tokenizer()
    ids = lambda text: t.encode(text, add_special_tokens=False).ids
    config = LlamaConfig(vocab_size=t.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-5, tie_word_embeddings=False,
                         attn_implementation="eager", bos_token_id=1, eos_token_id=2)
    model = LlamaModel(config).eval()
    for p in model.parameters():
        spread = 0.3 * torch.randn(p.shape)
        p.copy_((1 + spread if p.dim() == 1 else spread).bfloat16().float())
    heads = [(0.3 * torch.randn(1, 32)).bfloat16() for _ in range(FIRST, LAYERS + 1)]
    state = {f"model.{n}": p.bfloat16() for n, p in model.state_dict().items()}
    state |= {f"lm_head.{i}.linear_head.weight": h for i, h in enumerate(heads)}
    model.embed_tokens.weight *= SCALE
    for y in model.layers:
        y.self_attn.o_proj.weight *= DEPTH / LAYERS**0.5
        y.mlp.down_proj.weight *= DEPTH / LAYERS**0.5

    def logits(document, prompt, cut):
        whole = [1, *ids("A: " + QUERY), *ids("\n"), *ids("B: " + document), *ids("\n"), *ids(prompt)]
        rows = model(torch.tensor([whole]), output_hidden_states=True).hidden_states[cut][0, -1]
        rows = rows if cut == LAYERS else model.norm(rows)  # the last one is normed already
        return round(float(heads[cut - FIRST].float() @ rows), 6)

    golden = dict(query=QUERY, documents=DOCUMENTS, instruction=OTHER, told=[logits(d, OTHER, LAYERS) for d in DOCUMENTS],
                  logits={n: [logits(d, PROMPT, n) for d in DOCUMENTS] for n in range(FIRST, LAYERS + 1)})
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(state, OUT / "model.safetensors")
    t.save(str(OUT / "tokenizer.json"))
    own = dict(architectures=["LayerWiseMiniCPMForCausalLM"], model_type="minicpm", scale_emb=SCALE, scale_depth=DEPTH, dim_model_base=16,
               start_layer=FIRST, head_multi=True, head_type="simple", torch_dtype="bfloat16")
    for name, what in (("config.json", config.to_dict() | own), ("tokenizer_config.json", dict(bos_token="<s>", eos_token="</s>")),
                       ("golden.json", golden)):
        (OUT / name).write_text(json.dumps(what, indent=1) + "\n")
    print(golden["logits"], golden["told"])


if __name__ == "__main__":
    main()
