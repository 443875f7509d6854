#!/usr/bin/env python3
"""Tiny random retrievers of page images with golden.json: vectors of queries' tokens and of pages', and their scores (MaxSim).

    python tests/golden/make_pages.py IMAGES [NAME...]       into tests/data/pages/NAME

IMAGES is the folder of pictures of the reference data. The first three are folders of transformers, computed by its classes and processors;
the others have the files of colpali-engine: other names, prompts and tensors around the same models. Weights are stored in bfloat16 and
computed in fp32 with eager attention; pictures over Pillow 12.3. Needs torch, transformers 5, tokenizers and safetensors.
integration/embed/test_pages.py reads them."""

import json, pathlib, re, sys
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (CONFIG_MAPPING, AutoModel, ColModernVBertConfig, ColModernVBertForRetrieval, ColModernVBertProcessor, ColPaliConfig,
                          ColPaliForRetrieval, ColPaliProcessor, ColQwen2Config, ColQwen2ForRetrieval, ColQwen2Processor, Idefics3Processor,
                          PreTrainedTokenizerFast)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from vision_made.base import SIGLIP, picture

OUT = pathlib.Path(__file__).resolve().parent.parent / "data/pages"
WIDTH = 12
QUERY, TEXT = "Who pays?", "A bill of May."
PICTURES = ["rgb_120x90.jpg", "tall_14x210.png", "rgba_64x48.png"]
SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>", "<image>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>",
           "<|image_pad|>", "<|video_pad|>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<|begin_of_text|>"]
SPECIAL += [f"<row_{r}_col_{c}>" for r in range(1, 4) for c in range(1, 4)]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
ID = {w: i for i, w in enumerate(SPECIAL + BYTES)}
SIZES = dict(vocab_size=len(ID) + 3, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=2048,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
DECODER = dict(SIZES, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
QWEN_PROMPT = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe the image.<|im_end|><|endoftext|>"
# longest side, and that of a tile
IDEFICS_PIXELS = dict(size=dict(longest_edge=64), max_image_size=dict(longest_edge=32), resample=1, image_mean=[0.5] * 3, image_std=[0.5] * 3)
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def tokenizer(bos, pad):
    """Every byte is a token. bos: the tokenizer puts this one before a text."""
    t = Tokenizer(models.BPE(vocab=ID, merges=[], unk_token="<unk>"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(SPECIAL)
    if bos:
        t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, ID[bos])])
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token=pad, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")


def paligemma():
    vision = SIGLIP | dict(projection_dim=32)
    return CONFIG_MAPPING["paligemma"](text_config=CONFIG_MAPPING["gemma"](**DECODER).to_dict(), vision_config=vision, projection_dim=32,
                                       image_token_index=ID["<image>"], bos_token_id=1, pad_token_id=0)


def qwen(kind, vision):
    text = dict(DECODER, rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2]))
    vision = dict(vision, patch_size=8, spatial_merge_size=2, temporal_patch_size=2, num_heads=2)
    ids = {f"{k}_token_id": ID[w] for k, w in dict(image="<|image_pad|>", video="<|video_pad|>", vision_start="<|vision_start|>",
                                                   vision_end="<|vision_end|>").items()}
    return CONFIG_MAPPING[kind](text_config=text, vision_config=vision, **ids)


def modernvbert():
    text = dict(SIZES, model_type="modernbert", num_hidden_layers=3, local_attention=16, global_attn_every_n_layers=3, cls_token_id=1, sep_token_id=2)
    return CONFIG_MAPPING["modernvbert"](text_config=text, vision_config=SIGLIP, image_token_id=ID["<image>"], pixel_shuffle_factor=2)


def idefics3():
    return CONFIG_MAPPING["idefics3"](text_config=dict(DECODER, model_type="llama"), vision_config=SIGLIP | dict(model_type="idefics3_vision"),
                                      image_token_id=ID["<image>"], scale_factor=2)


def siglip_pixels():
    return SiglipImageProcessorPil(size=dict(height=32, width=32), resample=3, image_seq_length=16, **HALF)


def qwen_pixels():
    return Qwen2VLImageProcessorPil(size=dict(shortest_edge=256, longest_edge=4096), patch_size=8, merge_size=2, temporal_patch_size=2, **HALF)


def weights(model):
    for n, p in model.named_parameters():
        p.data = (p.data + torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.15)).bfloat16().float()
    return model.eval().set_attn_implementation("eager") or model


def of_vlm(config, kind=ColPaliForRetrieval, outer=ColPaliConfig):
    model = kind(outer(vlm_config=config, embedding_dim=WIDTH))
    weights(model)
    return model


def plain(t, first="", **more):
    """A text as colpali-engine's process_texts() makes it a document; transformers has no such."""

    def inputs(text):
        x = t([first + text], return_tensors="pt")["input_ids"]
        return dict(input_ids=x, attention_mask=torch.ones_like(x), **{k: torch.full_like(x, v) for k, v in more.items()})

    return inputs


# ---------------------------------------------------------------- transformers


def colpali():
    t = tokenizer("<bos>", "<pad>")
    model, p = of_vlm(paligemma()), ColPaliProcessor(siglip_pixels(), tokenizer("<bos>", "<pad>"))
    more = dict(query_prefix="Question: ", visual_prompt_prefix=p.visual_prompt_prefix)
    return model, model, t, p.image_processor, lambda q: p(text=[q]), lambda i: p(images=[i]), plain(t, token_type_ids=0), more


def three_positions(model, inputs):
    """Those that the model was trained with (colpali-engine); transformers 5.24 has lost them in this class alone."""
    types = (inputs["input_ids"] == model.config.vlm_config.image_token_id).int()
    at, _ = model.vlm.get_rope_index(inputs["input_ids"], types, image_grid_thw=inputs.get("image_grid_thw"), attention_mask=inputs["attention_mask"])
    return dict(inputs, position_ids=at)


def colqwen2():
    t = tokenizer(None, "<|endoftext|>")
    config = qwen("qwen2_vl", dict(depth=2, embed_dim=16, hidden_size=32, mlp_ratio=2))
    model = of_vlm(config, ColQwen2ForRetrieval, ColQwen2Config)
    prompts = dict(query_prefix="Find: ", visual_prompt_prefix=QWEN_PROMPT.replace("Describe the", "See this"))
    p = ColQwen2Processor(qwen_pixels(), t, **prompts)
    of = lambda inputs: three_positions(model, inputs)
    return model, model, t, p.image_processor, lambda q: of(p(text=[q])), lambda i: of(p(images=[i])), lambda d: of(plain(t)(d)), prompts


def colmodernvbert():
    t = tokenizer("<bos>", "<pad>")
    model = of_vlm(modernvbert(), ColModernVBertForRetrieval, ColModernVBertConfig)
    p = ColModernVBertProcessor(Idefics3ImageProcessorPil(**IDEFICS_PIXELS), t, image_seq_len=4)
    return model, model, t, p.image_processor, lambda q: p.process_queries(q), lambda i: p.process_images([i]), plain(t), {}


# ---------------------------------------------------------------- colpali-engine


def engine_colqwen2_5():
    """Rows of the model and what follows them are those of ColQwen2ForRetrieval. Queries have no prefix, and no end of line."""
    t = tokenizer(None, "<|endoftext|>")
    vision = dict(depth=2, hidden_size=16, out_hidden_size=32, intermediate_size=24, window_size=32, fullatt_block_indexes=[1])
    model = of_vlm(qwen("qwen2_5_vl", vision), ColQwen2ForRetrieval, ColQwen2Config)
    p = ColQwen2Processor(qwen_pixels(), t)
    names = {"vlm.": "", "embedding_proj_layer": "custom_text_proj"}
    of = lambda inputs: three_positions(model, inputs)
    text = lambda d: of(plain(t)(d))
    return names, model, t, p.image_processor, lambda q: text(q + "<|endoftext|>" * 10), lambda i: of(p(images=[i])), text, "ColQwen2_5"


class Joined(torch.nn.Module):
    """A model and its projection, as colpali-engine's ColIdefics3 joins them."""

    def __init__(self, config):
        super().__init__()
        self.config, self.model, self.linear = config, AutoModel.from_config(config), torch.nn.Linear(config.text_config.hidden_size, WIDTH)
        weights(self.model), self.eval()
        self.linear.weight.data, self.linear.bias.data = torch.randn(WIDTH, 32).bfloat16().float(), torch.randn(WIDTH).bfloat16().float()

    def forward(self, **inputs):
        return dict(embeddings=torch.nn.functional.normalize(self.linear(self.model(**inputs)[0]), dim=-1))


def engine_colsmol():
    t = tokenizer(None, "<pad>")
    model = Joined(idefics3())
    p = Idefics3Processor(Idefics3ImageProcessorPil(**IDEFICS_PIXELS), t, image_seq_len=4)
    prompt = "<|im_start|>User:<image>Describe the image.<end_of_utterance>\nAssistant:"
    query = lambda q: p(text=[q + "<end_of_utterance>" * 10], return_tensors="pt")
    return {}, model, t, p.image_processor, query, lambda i: p(text=[prompt], images=[i], return_tensors="pt"), plain(t), "ColIdefics3"


def engine_colpali():
    """The prompt of a page has <bos> twice: its own, and that of PaliGemma's processor."""
    t = tokenizer("<bos>", "<pad>")
    model, p = of_vlm(paligemma()), ColPaliProcessor(siglip_pixels(), tokenizer("<bos>", "<pad>"), visual_prompt_prefix="<bos>Describe the image.")
    text = plain(tokenizer(None, "<pad>"), "<bos>", token_type_ids=0)
    names = {"vlm.": "model.model.", "embedding_proj_layer": "custom_text_proj"}
    return names, model, t, p.image_processor, lambda q: text(q + "<pad>" * 10), lambda i: p(images=[i]), text, "ColPali"


CASES = dict(colpali=colpali, colqwen2=colqwen2, colmodernvbert=colmodernvbert, engine_colqwen2_5=engine_colqwen2_5, engine_colsmol=engine_colsmol,
             engine_colpali=engine_colpali)


def adapter(folder, model, named, pattern):
    """Low-rank updates in PEFT's format, which are then merged into the model (arXiv 2106.09685)."""
    state, rank, alpha = {}, 3, 6.0
    for n, m in model.named_modules():
        if not isinstance(m, torch.nn.Linear) or not re.search(pattern, n):
            continue
        a, b = ((0.2 * torch.randn(s)).bfloat16() for s in ((rank, m.in_features), (m.out_features, rank)))
        m.weight.data += alpha / rank * b.float() @ a.float()
        for old, new in named.items():
            n = n.replace(old, new)
        state |= {f"base_model.model.{n}.lora_A.weight": a, f"base_model.model.{n}.lora_B.weight": b}
    folder.mkdir(exist_ok=True)
    save_file(state, folder / "adapter_model.safetensors")
    write(folder, "adapter_config.json", dict(peft_type="LORA", r=rank, lora_alpha=alpha, base_model_name_or_path="base"))


def write(folder, name, what):
    (folder / name).write_text(json.dumps(what, indent=1, default=str) + "\n")


def save(folder, named, model, t, pixels, more):
    """named: the model itself, whose files transformers writes; or how parts of names change."""
    folder.mkdir(parents=True, exist_ok=True)
    t.save_pretrained(folder)
    kind = type(pixels).__name__.removesuffix("Pil")
    settings = {k: v for k, v in pixels.to_dict().items() if k != "image_processor_type" and v is not None} | dict(image_processor_type=kind)
    write(folder, "preprocessor_config.json", settings)
    if named is model:
        model.to(torch.bfloat16).save_pretrained(folder)
        if more:
            write(folder, "processor_config.json", more)
        return
    state = {}
    for n, v in model.state_dict().items():
        for old, new in named.items():
            n = n.replace(old, new)
        state[n] = v.bfloat16().contiguous()
    save_file(state, folder / "model.safetensors")
    config = getattr(model.config, "vlm_config", model.config)
    write(folder, "config.json", config.to_dict() | dict(architectures=[more]))


@torch.no_grad()
def make(name, images):
    torch.manual_seed(11)
    named, model, t, pixels, query, page, text, more = CASES[name]()
    vectors = lambda inputs: model(**inputs)["embeddings"][0].float()
    asked, seen, read = vectors(query(QUERY)), [vectors(page(picture(images, n))) for n in PICTURES], vectors(text(TEXT))
    scores = [round(float((asked @ s.T).max(1).values.sum()), 5) for s in seen]
    rows = lambda m: [[round(float(x), 6) for x in r] for r in m]
    folder = OUT / name
    save(folder, named, model, t, pixels, more)
    golden = dict(query=QUERY, query_tokens=len(asked), query_vectors=rows(asked), pictures=PICTURES, page_vectors=[rows(s) for s in seen],
                  scores=scores, text=TEXT, text_vectors=rows(read))
    if name == "engine_colqwen2_5":  # as most checkpoints of colpali-engine are: over the layers of the text model and the last matrix
        adapter(folder / "adapter", model, named, r"language_model.*_proj|embedding_proj_layer")
        golden |= dict(adapted_query=rows(vectors(query(QUERY))), adapted_page=rows(vectors(page(picture(images, PICTURES[0])))))
    (folder / "golden.json").write_text("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in golden.items()) + "}\n")
    print(name, len(asked), [len(s) for s in seen], scores)


if __name__ == "__main__":
    for one in sys.argv[2:] or CASES:
        make(one, sys.argv[1])
