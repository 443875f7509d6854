#!/usr/bin/env python3
"""Tiny random models of an encoder and a decoder with golden.json.

    python tests/golden/make_encdec.py [NAME...]       into tests/data/encdec

Each folder: config.json, model.safetensors in bfloat16, golden.json with the ids of texts, the greedy answer to each and the
logits of some steps of it: these weights, eager attention, fp64, CPU. flan_t5 also has a tokenizer. Needs torch and
transformers 5. tests/golden/test_encdec runs what it finds there, integration/models/test_encdec.py serves it."""

import json, os, sys, types
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

COMMON = dict(vocab_size=320, d_model=48, d_ff=64, num_heads=4, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
CASES = {
    # the first T5: a ReLU, the head is the embedding, scaled; heads that are together wider than the stream
    "t5": dict(model_type="t5", num_layers=3, d_kv=16, feed_forward_proj="relu", relative_attention_max_distance=40),
    # T5 1.1 and Flan-T5: a gate, a head of its own; a decoder of another depth
    "flan_t5": dict(model_type="t5", num_layers=2, num_decoder_layers=3, d_kv=8, feed_forward_proj="gated-gelu",
                    relative_attention_num_buckets=16, head=True),
    "mt5": dict(model_type="mt5", num_layers=2, d_kv=16, feed_forward_proj="gated-gelu", head=True),
    # a bias of each layer
    "umt5": dict(model_type="umt5", num_layers=3, d_kv=16, feed_forward_proj="gated-gelu", head=True,
                 relative_attention_max_distance=48),
    # windows to both sides in the encoder
    "longt5": dict(model_type="longt5", num_layers=3, num_decoder_layers=2, d_kv=16, feed_forward_proj="gated-gelu", local_radius=11,
                   relative_attention_max_distance=40, encoder_attention_type="local", head=True),
}
KIN = dict(vocab_size=320, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=6, encoder_ffn_dim=64,
           decoder_ffn_dim=80, max_position_embeddings=128, pad_token_id=1, eos_token_id=2, bos_token_id=0, forced_eos_token_id=None)
KIN_CASES = {
    # norms of sums, learned positions, a norm after the embedding
    "bart": dict(model_type="bart", decoder_start_token_id=2, activation_function="gelu"),
    # norms before the branches and at the end
    "mbart": dict(model_type="mbart", decoder_start_token_id=7, scale_embedding=True, activation_function="relu"),
    # sines
    "pegasus": dict(model_type="pegasus", decoder_start_token_id=0, scale_embedding=True, activation_function="relu"),
    # sines behind the padding's
    "m2m_100": dict(model_type="m2m_100", decoder_start_token_id=2, scale_embedding=True, activation_function="relu"),
    # experts in every second layer of both stacks
    "nllb_moe": dict(model_type="nllb-moe", decoder_start_token_id=2, encoder_layers=3, decoder_layers=4, encoder_sparse_step=2, decoder_sparse_step=2,
                     num_experts=5, moe_token_dropout=0.2),
    "marian": dict(model_type="marian", decoder_vocab_size=320, decoder_start_token_id=1, scale_embedding=True, activation_function="swish"),
    # the first decoder token is 1; no norm after the embedding
    "blenderbot": dict(model_type="blenderbot", decoder_start_token_id=1, scale_embedding=True, activation_function="gelu"),
    # the decoder adds positions after the embedding's norm
    "blenderbot_small": dict(model_type="blenderbot-small", decoder_start_token_id=1, scale_embedding=True, activation_function="gelu"),
    "mvp": dict(model_type="mvp", decoder_start_token_id=2, activation_function="gelu"),
    "plbart": dict(model_type="plbart", decoder_start_token_id=7, scale_embedding=True, activation_function="gelu"),
    # windows to both sides in the encoder, of another width in each layer; tables of positions of two sizes
    "led": dict(model_type="led", decoder_start_token_id=2, activation_function="gelu", attention_window=[8, 24],
                max_encoder_position_embeddings=120, max_decoder_position_embeddings=72),
}
CASES.update({name: {**KIN, **case} for name, case in KIN_CASES.items()})
GEMMA = dict(vocab_size=320, hidden_size=48, num_attention_heads=4, head_dim=16, max_position_embeddings=256, bos_token_id=2, eos_token_id=1)
GEMMA_CASES = {
    # windows to both sides in the encoder, one of another width in the decoder; stacks of different depths; shared key-value heads
    "t5gemma": dict(encoder=dict(GEMMA, num_hidden_layers=2, intermediate_size=64, num_key_value_heads=2, sliding_window=12,
                                 query_pre_attn_scalar=24, attn_logit_softcapping=4.0),
                    decoder=dict(GEMMA, num_hidden_layers=3, intermediate_size=80, num_key_value_heads=4, sliding_window=10,
                                 query_pre_attn_scalar=24, attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
    # without soft caps and windows, a head of its own, biases
    "t5gemma_plain": dict(tie_word_embeddings=False, **{stack: dict(
        GEMMA, num_hidden_layers=2, intermediate_size=64, num_key_value_heads=2, query_pre_attn_scalar=16, attention_bias=True,
        layer_types=["full_attention"] * 2, attn_logit_softcapping=None, final_logit_softcapping=None) for stack in ("encoder", "decoder")}),
}
CASES.update({name: dict(model_type="t5gemma", vocab_size=320, **case) for name, case in GEMMA_CASES.items()})
SIGHT = dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
FULL = dict(rope_type="default", rope_theta=5e5)
GEMMA2_CASES = {
    # windows of an even width, which reach one token farther ahead than back; a token with an embedding of its own; a tower that no text needs
    "t5gemma2": dict(encoder=dict(vision_config=SIGHT, mm_tokens_per_image=4, eoi_token_index=300, boi_token_index=301, text_config=dict(
                         GEMMA, num_hidden_layers=3, intermediate_size=64, num_key_value_heads=2, sliding_window=12, query_pre_attn_scalar=24,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
                     decoder=dict(GEMMA, num_hidden_layers=4, intermediate_size=80, num_key_value_heads=2, sliding_window=10, query_pre_attn_scalar=20,
                                  sliding_window_pattern=2)),
    # windows of an odd width, soft caps of logits, a scaled rotation, biases, a head of its own
    "t5gemma2_odd": dict(tie_word_embeddings=False,
                     encoder=dict(vision_config=SIGHT, mm_tokens_per_image=4, eoi_token_index=300, boi_token_index=301, text_config=dict(
                         GEMMA, num_hidden_layers=2, intermediate_size=64, num_key_value_heads=4, sliding_window=9, query_pre_attn_scalar=16,
                         layer_types=["sliding_attention", "full_attention"], attention_bias=True)),
                     decoder=dict(GEMMA, num_hidden_layers=2, intermediate_size=64, num_key_value_heads=4, sliding_window=7, query_pre_attn_scalar=16,
                                  layer_types=["full_attention", "sliding_attention"], attention_bias=True, final_logit_softcapping=20.0,
                                  rope_parameters=dict(full_attention=dict(FULL, rope_type="linear", factor=4.0),
                                                       sliding_attention=dict(FULL, rope_theta=1e4)))),
}
CASES.update({name: dict(model_type="t5gemma2", vocab_size=320, image_token_index=302, **case) for name, case in GEMMA2_CASES.items()})
STACK = dict(vocab_size=320, hidden_size=48, num_attention_heads=4, intermediate_size=64, num_hidden_layers=2, max_position_embeddings=128,
             pad_token_id=0, bos_token_id=2, eos_token_id=1, hidden_act="gelu")
PAIR_CASES = {
    # token types, a table of positions of another size, a decoder of other heads and depth
    "bert2bert": dict(decoder_start_token_id=7, encoder=dict(STACK, model_type="bert"), decoder=dict(
        STACK, model_type="bert", num_hidden_layers=3, num_attention_heads=6, intermediate_size=80, max_position_embeddings=96, hidden_act="relu")),
    # positions after the padding's, a head of its own
    "roberta2roberta": dict(decoder_start_token_id=2, encoder=dict(STACK, model_type="roberta", pad_token_id=1, max_position_embeddings=120), decoder=dict(
        STACK, model_type="roberta", pad_token_id=1, layer_norm_eps=1e-5, tie_word_embeddings=False)),
    # no token types, a head without a layer; the start is the decoder's bos_token_id
    "bert_generation": dict(encoder=dict(STACK, model_type="bert-generation"), decoder=dict(STACK, model_type="bert-generation")),
}
for case in PAIR_CASES.values():
    case["decoder"] |= dict(is_decoder=True, add_cross_attention=True)
CASES.update({name: dict(model_type="encoder-decoder", **case) for name, case in PAIR_CASES.items()})
LENGTHS = {"one": 1, "short": 9, "forty": 40, "long": 100}
STEPS = 64  # past the farthest bucket of some cases
KEPT = [0, 1, 2, 15, 30, 45, 63]  # steps whose logits are stored


@torch.no_grad()
def golden(model, ids, start):
    encoded = model.get_encoder()(torch.tensor([ids]))
    answer, rows, margin = [start], [], 9e9
    for _ in range(STEPS):
        logits = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([answer]), use_cache=False).logits[0, -1]
        top = logits.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        rows.append([round(x, 6) for x in logits.tolist()])
        answer.append(top.indices[0].item())
    return {"ids": ids, "greedy_ids": answer[1:], "steps": KEPT, "logits": [rows[i] for i in KEPT], "greedy_min_margin": margin}


def words(out):
    """A tokenizer of T5's kind: unigrams whose words begin with a mark, and an end behind every text."""
    pieces = ["<pad>", "</s>", "<unk>", "\u2581"] + [chr(c) for c in range(33, 127)]
    pieces += ["\u2581" + chr(c) for c in range(97, 123)] + ["\u2581" + w for w in "the of and to in is it you that he was for on are".split()]
    pieces += [a + b for a in "bcdfghlmnprst" for b in "aeiouy"] + ["\u2581" + a + b for a in "bcdfghlmnprst" for b in "aeiou"]
    pieces = list(dict.fromkeys(pieces))
    scores = [[p, 0.0 if i < 3 else -8.0 + len(p)] for i, p in enumerate((pieces + [f"<extra_id_{i}>" for i in range(320)])[:320])]
    special = [dict(id=i, content=p, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
               for i, (p, _) in enumerate(scores) if p.startswith("<") and len(p) > 1]
    mark = dict(type="Metaspace", replacement="\u2581", prepend_scheme="always", split=True)
    whole = [dict(Sequence=dict(id="A", type_id=0)), dict(SpecialToken=dict(id="</s>", type_id=0))]
    json.dump(dict(version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None,
                   pre_tokenizer=dict(type="Sequence", pretokenizers=[dict(type="WhitespaceSplit"), mark]),
                   post_processor=dict(type="TemplateProcessing", single=whole, pair=whole + [dict(Sequence=dict(id="B", type_id=0)), whole[1]],
                                       special_tokens={"</s>": dict(id="</s>", ids=[1], tokens=["</s>"])}),
                   decoder=mark, model=dict(type="Unigram", unk_id=2, vocab=scores, byte_fallback=False)),
              open(f"{out}/tokenizer.json", "w"), ensure_ascii=False)
    json.dump(dict(tokenizer_class="T5Tokenizer", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=512),
              open(f"{out}/tokenizer_config.json", "w"))


def sines(model, name):
    """Files need not have them."""
    return model.config.model_type in ("pegasus", "marian", "m2m_100", "nllb-moe") and "embed_positions" in name


def kin_weights(name, p):
    """Such that answers vary: positions as large as branches, and no token preferred."""
    if "embed_positions" in name and not p.requires_grad:
        return p.data  # sines
    one = p.dim() == 1 and name.endswith("norm.weight") or name.endswith("layernorm_embedding.weight")
    small = p.dim() == 1 or "v_proj" in name or "out_proj" in name  # means of many rows are alike
    spread = 1.0 if "embed_positions" in name else 0.08 if small else 0.06 if "shared" in name else 0.25
    return (one + torch.randn_like(p) * spread).bfloat16().float()


def experts_forward(self, x, first, weights):
    """Of NLLB-MoE, as before transformers 5, which multiplies with the first two experts alone: `weights` are 0 but of the two that were chosen."""
    y = torch.zeros_like(x)
    for i in range(self.num_experts):
        y += self[f"expert_{i}"](x) * weights[:, i, None] * (1 - self.moe_token_dropout)
    return y


def pair_weights(name, p):
    """The same, beside post-norm stacks whose results have length 1."""
    one = p.dim() == 1 and name.endswith("LayerNorm.weight") or name.endswith("layer_norm.weight")
    small = "value.weight" in name or "attention.output.dense.weight" in name  # means of many rows are alike
    spread = 1.5 if "position_embeddings" in name else 0.3 if "word_embeddings" in name else 0.02 if p.dim() == 1 else 0.12 if small else 0.4
    return (one + torch.randn_like(p) * spread).bfloat16().float()


def tied_head(name):
    return name.startswith(("lm_head", "decoder.cls.predictions.decoder.", "decoder.lm_head.decoder."))


def make(name, case, out):
    gemma, pair = name in GEMMA_CASES or name in GEMMA2_CASES, name in PAIR_CASES
    keys = dict(case) if name in KIN_CASES or gemma or pair else dict(COMMON, **case)
    own_head = case["decoder"] if pair else case
    head = keys.pop("head", not own_head.get("tie_word_embeddings", True))
    config = AutoConfig.for_model(keys.pop("model_type"), **keys, **(dict(tie_word_embeddings=False) if head and not gemma and not pair else {}))
    for seed in range(200):  # a seed whose greedy choices are no coin tosses
        torch.manual_seed(seed)
        model = AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        if head and not gemma and not pair:  # transformers 5 ties it whatever the configuration says, until another is loaded
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        for n, p in model.named_parameters():
            norm = p.dim() == 1 and not gemma
            if name in KIN_CASES or pair:
                p.data = pair_weights(n, p) if pair else kin_weights(n, p)
                continue
            spread = 1.0 if "relative_attention_bias" in n or (head and n.startswith("shared")) else 0.15
            spread = spread if not gemma else 0.06 if "embed_tokens" in n else 0.4 if p.dim() == 1 else 0.3
            p.data = ((1 if norm else 0) + torch.randn_like(p) * spread).bfloat16().float()
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias = (0.1 * torch.randn_like(model.final_logits_bias)).bfloat16().float()
        for module in model.modules():
            if type(module).__name__ == "NllbMoeExperts":
                module.forward = types.MethodType(experts_forward, module)
        model = model.double()  # its rounding errors would be as large as those of what it is compared with
        g = torch.Generator().manual_seed(seed)
        end = 2 if name in ("m2m_100", "nllb_moe", "roberta2roberta") else 1  # there 1 is the padding, which has no position
        texts = {n: torch.randint(3 if end == 2 else 2, 320, (k - 1,), generator=g).tolist() + [end] for n, k in LENGTHS.items()}
        start = config.decoder.bos_token_id if gemma or "decoder_start_token_id" not in case and pair else config.decoder_start_token_id
        result = {n: golden(model, ids, start) for n, ids in texts.items()}
        padding = 1 if name in ("m2m_100", "nllb_moe", "roberta2roberta") else 0 if gemma else None  # T5Gemma's code hides it
        padded = any(padding in p["greedy_ids"] for p in result.values())
        varied = not (gemma or pair) or min(len(set(p["greedy_ids"])) for p in result.values()) > 5
        if not padded and varied and min(p["greedy_min_margin"] for p in result.values()) > 0.001:
            break
    state = {n: p.bfloat16().contiguous() for n, p in model.state_dict().items()
             if (gemma or not n.endswith("coder.embed_tokens.weight")) and (head or not tied_head(n)) and not sines(model, n)}
    save_file(state, f"{out}/model.safetensors", {"format": "pt"})
    said = json.loads(config.to_json_string(use_diff=False))
    said.update(architectures=[type(model).__name__], torch_dtype="bfloat16", **({} if pair else dict(tie_word_embeddings=not head)))
    said.pop("scale_decoder_outputs", None)
    json.dump(said, open(f"{out}/config.json", "w"), indent=1)
    json.dump({"name": name, "seed": seed, "start": start, "prompts": result}, open(f"{out}/golden.json", "w"))
    if name == "flan_t5":
        words(out)
    print(f"{name}: seed {seed}", {n: len(set(p["greedy_ids"])) for n, p in result.items()})


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        folder = f"tests/data/encdec/{name}"
        os.makedirs(folder, exist_ok=True)
        make(name, CASES[name], folder)
