#!/usr/bin/env python3
"""A tiny random CLIP with golden.json: vectors of pictures and of a text.

    python tests/golden/make_clip.py IMAGES       into tests/data/clip

IMAGES is the folder of pictures of the reference data. Weights are stored in bfloat16 and computed in fp32 with eager attention; pictures by
CLIP's processor over Pillow 12.3. Needs torch, transformers 5, tokenizers and safetensors. integration/test_image_embeddings.py reads it."""

import json, pathlib, sys
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from vision_made.base import picture

OUT = pathlib.Path(__file__).resolve().parent.parent / "data/clip"
PICTURES = ["rgb_120x90.jpg", "tall_14x210.png", "rgba_64x48.png", "tiny_3x2.png"]
BOS, EOS = 38, 39
SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
TEXT = dict(SIZES, vocab_size=40, max_position_embeddings=20, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=EOS)
VISION = dict(model_type="clip_vision_model", hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6, image_size=32, patch_size=8)
PIXELS = dict(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, do_center_crop=True, resample=3,
              image_mean=[0.48, 0.46, 0.41], image_std=[0.27, 0.26, 0.28])


def tokenizer():
    words = {f"w{i}": i for i in range(BOS)} | {"<|startoftext|>": BOS, "<|endoftext|>": EOS}
    t = Tokenizer(models.WordLevel(words, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>", special_tokens=[("<|startoftext|>", BOS), ("<|endoftext|>", EOS)])
    return t


@torch.no_grad()
def main(images):
    torch.manual_seed(5)
    model = CLIPModel(CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=24)).eval()
    for name, p in model.named_parameters():
        spread = 0.2 * torch.randn(p.shape)
        p.copy_((1 + spread if p.dim() == 1 and name.endswith("weight") else spread).bfloat16().float())
    t, pixels = tokenizer(), CLIPImageProcessorPil(**PIXELS)
    vector = lambda x: [round(float(v), 6) for v in torch.nn.functional.normalize(x.pooler_output[0], dim=0)]
    text = "w3 w7 w1 w20"
    ids = torch.tensor([t.encode(text).ids])
    pictures = {n: vector(model.get_image_features(**pixels([picture(images, n)], return_tensors="pt"))) for n in PICTURES}
    golden = dict(text=text, text_vector=vector(model.get_text_features(input_ids=ids)), pictures=pictures)
    OUT.mkdir(parents=True, exist_ok=True)
    save_file({n: p.bfloat16().contiguous() for n, p in model.state_dict().items() if not n.endswith("position_ids")}, OUT / "model.safetensors")
    (OUT / "config.json").write_text(json.dumps(model.config.to_dict() | {"architectures": ["CLIPModel"]}, indent=1, default=str) + "\n")
    (OUT / "preprocessor_config.json").write_text(json.dumps(PIXELS | {"image_processor_type": "CLIPImageProcessor"}, indent=1) + "\n")
    t.save(str(OUT / "tokenizer.json"))
    (OUT / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
