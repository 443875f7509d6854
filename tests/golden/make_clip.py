#!/usr/bin/env python3
"""A tiny random CLIP and SigLIP with golden.json: vectors of pictures and of a text.

    python tests/golden/make_clip.py IMAGES [NAME...]       into tests/data/NAME: clip, siglip

IMAGES is the folder of pictures of the reference data. Weights are stored in bfloat16 and computed in fp32 with eager attention; pictures by
the model's processor over Pillow 12.3. Needs torch, transformers 5, tokenizers and safetensors. integration/embed/test_image_embeddings.py reads it."""

import json, pathlib, sys
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from vision_made.base import picture

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
PICTURES = ["rgb_120x90.jpg", "tall_14x210.png", "rgba_64x48.png", "tiny_3x2.png"]
BOS, EOS, PAD = 38, 39, 37
SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
TEXT = dict(SIZES, vocab_size=40, max_position_embeddings=20, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=EOS)
VISION = dict(model_type="clip_vision_model", hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6, image_size=32, patch_size=8)
PIXELS = dict(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, do_center_crop=True, resample=3,
              image_mean=[0.48, 0.46, 0.41], image_std=[0.27, 0.26, 0.28])


# what of the pixels' right and lower edge makes no whole patch is not seen; vectors are wider than the text model
SIGLIP_TEXT = dict(SIZES, vocab_size=40, max_position_embeddings=20, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, projection_size=48)
SIGLIP_VISION = dict(model_type="siglip_vision_model", hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6, image_size=36,
                     patch_size=8)
SIGLIP_PIXELS = dict(size={"height": 36, "width": 36}, resample=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def tokenizer(single):
    words = {f"w{i}": i for i in range(BOS)} | {"<|startoftext|>": BOS, "<|endoftext|>": EOS}
    t = Tokenizer(models.WordLevel(words, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<|startoftext|>", BOS), ("<|endoftext|>", EOS)])
    return t


def clip():
    model = CLIPModel(CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=24))
    return model, CLIPImageProcessorPil, PIXELS, tokenizer("<|startoftext|> $A <|endoftext|>"), lambda ids: ids


def siglip():
    """The processor pads texts to all positions, and gives no mask."""
    model = SiglipModel(SiglipConfig(text_config=SIGLIP_TEXT, vision_config=SIGLIP_VISION))
    padded = lambda ids: ids + [PAD] * (SIGLIP_TEXT["max_position_embeddings"] - len(ids))
    return model, SiglipImageProcessorPil, SIGLIP_PIXELS, tokenizer("$A <|endoftext|>"), padded


MODELS = dict(clip=clip, siglip=siglip)


@torch.no_grad()
def make(name, images):
    torch.manual_seed(5)
    model, processor, settings, t, padded = MODELS[name]()
    model.eval().set_attn_implementation("eager")
    for key, p in model.named_parameters():
        spread = 0.2 * torch.randn(p.shape)
        p.copy_((1 + spread if p.dim() == 1 and key.endswith("weight") else spread).bfloat16().float())
    pixels = processor(**settings)
    vector = lambda x: [round(float(v), 6) for v in torch.nn.functional.normalize(x.pooler_output[0], dim=0)]
    text = "w3 w7 w1 w20"
    ids = torch.tensor([padded(t.encode(text).ids)])
    pictures = {n: vector(model.get_image_features(**pixels([picture(images, n)], return_tensors="pt"))) for n in PICTURES}
    labels = ["w3 w9", "w12", "w20 w7 w1"]
    forms = [padded(t.encode(f"w5 {x} w6").ids) for x in labels]
    longest = max(map(len, forms))
    # CLIP's padding comes after its last token, which nothing before it attends to
    masks = torch.tensor([[1] * len(f) + [0] * (longest - len(f)) for f in forms])
    words = dict(input_ids=torch.tensor([f + [EOS] * (longest - len(f)) for f in forms]), attention_mask=masks)
    logits = model(**words, **pixels([picture(images, PICTURES[0])], return_tensors="pt")).logits_per_image[0]
    each = logits.sigmoid() if name == "siglip" else logits.softmax(0)
    golden = dict(labels=labels, label_scores=[round(float(x), 6) for x in each], text=text, text_vector=vector(model.get_text_features(input_ids=ids)), pictures=pictures)
    out = DATA / name
    out.mkdir(parents=True, exist_ok=True)
    save_file({n: p.bfloat16().contiguous() for n, p in model.state_dict().items() if not n.endswith("position_ids")}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(model.config.to_dict() | {"architectures": [type(model).__name__]}, indent=1, default=str) + "\n")
    kind = type(pixels).__name__.removesuffix("Pil")
    (out / "preprocessor_config.json").write_text(json.dumps(settings | {"image_processor_type": kind}, indent=1) + "\n")
    if padded([]):
        (out / "tokenizer_config.json").write_text(json.dumps({"pad_token": f"w{PAD}"}, indent=1) + "\n")
    t.save(str(out / "tokenizer.json"))
    (out / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    for one in sys.argv[2:] or MODELS:
        make(one, sys.argv[1])
