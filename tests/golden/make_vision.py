#!/usr/bin/env python3
"""Tiny random checkpoints of vision models with golden.json, for the families that the reference data does not have.

    python tests/golden/make_vision.py IMAGES [NAME...]       into tests/data/vision/NAME

IMAGES is the folder of pictures of the reference data. Each folder gets config.json, preprocessor_config.json,
model.safetensors in bfloat16 and golden.json in the form of the reference data: ids, features, last_logits, greedy_ids
of transformers (eager attention, fp32 arithmetic, CPU). Needs torch and transformers 5; sizes are what keeps the files
small enough to be committed. tests/golden/test_vision_models runs what it finds there."""

import hashlib, json, os, sys
import numpy as np, torch
from PIL import Image, ImageOps
from safetensors.torch import save_file

TEXT = dict(
    vocab_size=324, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
IMAGE = 320
SHAPES = ["rgb_120x90.jpg", "tall_14x210.png", "wide_300x20.png", "tiny_3x2.png", "portrait_300x500.jpg"]
PICTURES = [["rgb_120x90.jpg"], ["tall_14x210.png"], ["rgba_64x48.png", "exact_56x56.png"]]


def picture(folder, name):
    """As a server reads it: turned as EXIF says, over white."""
    p = ImageOps.exif_transpose(Image.open(os.path.join(folder, name)))
    if p.mode in ("RGBA", "LA", "PA") or "transparency" in p.info:
        p = Image.alpha_composite(Image.new("RGBA", p.size, "white"), p.convert("RGBA"))
    return p.convert("RGB")


def planes(p, mean, std):
    """[3, H, W] of float32, rescaled in double as image processors of Hugging Face do."""
    x = (np.asarray(p).astype(np.float64) * (1 / 255)).astype(np.float32)
    return ((x - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)


# ---------------------------------------------------------------- families
def internvl(**vision):
    from transformers import InternVLConfig, InternVLForConditionalGeneration, Qwen2Config
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    keys = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=[32, 32],
        patch_size=[8, 8], attention_bias=True,
    )
    config = InternVLConfig(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=keys | vision, image_token_id=IMAGE, image_seq_length=4,
    )
    pre = dict(
        size={"height": 32, "width": 32}, min_patches=1, max_patches=6, crop_to_patches=True, resample=3,
        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225],
    )
    processor = GotOcr2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(out))), [
            [321] + [IMAGE] * (4 * len(o)) + [322] for o in out
        ]

    return config, InternVLForConditionalGeneration, pre, inputs


def paligemma(text, **more):
    from transformers import CONFIG_MAPPING, PaliGemmaConfig, PaliGemmaForConditionalGeneration
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    vision = dict(
        model_type="siglip_vision_model", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        image_size=32, patch_size=8, vision_use_head=False, projection_dim=TEXT["hidden_size"],
    )
    config = PaliGemmaConfig(
        text_config=CONFIG_MAPPING[text](**TEXT, **more).to_dict(), vision_config=vision, image_token_index=IMAGE,
        projection_dim=TEXT["hidden_size"], bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )
    pre = dict(
        size={"height": 32, "width": 32}, resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3, image_seq_length=16,
    )
    processor = SiglipImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = processor(pictures, return_tensors="np")["pixel_values"]
        return dict(pixel_values=torch.tensor(pixels)), [[IMAGE] * 16 for _ in pictures]

    return config, PaliGemmaForConditionalGeneration, pre, inputs


def llama4():
    from transformers import Llama4Config, Llama4ForConditionalGeneration
    from transformers.models.llama4.image_processing_llama4 import Llama4ImageProcessor

    class Pillow(Llama4ImageProcessor):
        """Pillow resizes, as the other families' processors do; torchvision's results are a unit off here and there."""

        def resize(self, images, size, resample=None, **_):
            one = lambda x: np.asarray(
                Image.fromarray(x.permute(1, 2, 0).numpy()).resize((size.width, size.height), Image.BILINEAR)
            )
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in images])

    vision = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        vision_output_dim=24, projector_input_dim=24, projector_output_dim=24, pixel_shuffle_ratio=0.5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    text = TEXT | dict(
        intermediate_size_mlp=32, num_local_experts=2, interleave_moe_layer_step=2, no_rope_layer_interval=2,
        attention_chunk_size=64, rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    config = Llama4Config(
        text_config=text, vision_config=vision, image_token_index=IMAGE, boi_token_index=321, eoi_token_index=322,
        tie_word_embeddings=True,
    )
    pre = dict(
        size={"height": 32, "width": 32}, resample=2, image_mean=[0.5] * 3, image_std=[0.5] * 3, max_patches=6,
        resize_to_max_canvas=False,
    )
    processor = Pillow(**pre)

    def inputs(pictures):
        pixels, ids = [], []
        for p in pictures:
            out = processor(p, return_tensors="pt")
            rows, cols = out["aspect_ratios"][0].tolist()
            pixels.append(out["pixel_values"].flatten(0, -4))
            tiles = [([IMAGE] * 4 + [319]) * (cols - 1) + [IMAGE] * 4 + [318]] * rows if rows * cols > 1 else []
            ids.append([321] + sum(tiles, []) + [323] + [IMAGE] * 4 + [322])
        return dict(pixel_values=torch.cat(pixels).float()), ids

    return config, Llama4ForConditionalGeneration, pre, inputs


def chat_names(tensors, config, pre):
    """The same as its authors keep it: internvl_chat."""
    renamed, layers = {}, config["vision_config"]["num_hidden_layers"]
    swaps = [
        ("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head"),
        ("model.multi_modal_projector.layer_norm", "mlp1.0"), ("model.multi_modal_projector.linear_1", "mlp1.1"),
        ("model.multi_modal_projector.linear_2", "mlp1.3"), ("model.vision_tower.", "vision_model."),
        ("embeddings.cls_token", "embeddings.class_embedding"), ("embeddings.position_embeddings", "embeddings.position_embedding"),
        ("embeddings.patch_embeddings.projection", "embeddings.patch_embedding"), ("encoder.layer.", "encoder.layers."),
        ("layernorm_before", "norm1"), ("layernorm_after", "norm2"), ("lambda_1", "ls1"), ("lambda_2", "ls2"),
        ("attention.projection_layer", "attn.proj"), ("attention.q_norm", "attn.q_norm"), ("attention.k_norm", "attn.k_norm"),
    ]
    for name, t in tensors.items():
        for a, b in swaps:
            if a in name and not (a == "lm_head" and "language_model" in name):
                name = name.replace(a, b)
        renamed[name] = t
    for i in range(layers):
        at = f"vision_model.encoder.layers.{i}."
        for end in "weight", "bias":
            parts = [renamed.pop(f"{at}attention.{x}_proj.{end}", None) for x in "qkv"]
            if parts[0] is not None:
                renamed[f"{at}attn.qkv.{end}"] = torch.cat(parts)
    v = config["vision_config"]
    chat = dict(
        model_type="internvl_chat", llm_config=config["text_config"], downsample_ratio=0.5, select_layer=-1, ps_version="v2",
        force_image_size=32, dynamic_image_size=True, use_thumbnail=True, min_dynamic_patch=1, max_dynamic_patch=6,
        image_token_id=IMAGE, torch_dtype="bfloat16",
        vision_config=dict(
            model_type="intern_vit_6b", hidden_size=v["hidden_size"], num_hidden_layers=layers, image_size=32, patch_size=8,
            num_attention_heads=v["num_attention_heads"], intermediate_size=v["intermediate_size"], hidden_act="gelu",
            norm_type=v["norm_type"], qkv_bias=v["attention_bias"], qk_normalization=v["use_qk_norm"], layer_norm_eps=1e-6,
        ),
    )
    return renamed, chat, dict(crop_size=32, size=32, image_mean=pre["image_mean"], image_std=pre["image_std"])


def between(spans, text):
    """Pictures in a prompt that begins with bos."""
    ids = [1] + text(3)
    for s in spans:
        ids += s + text(2)
    return ids + text(4), {}


def prefix(spans, text):
    """PaliGemma's: the processor's token_type_ids make all of the prompt one block, if it has a picture."""
    ids = sum(spans, []) + [1] + text(9)
    return ids, dict(token_type_ids=lambda n: [0] * len(ids) + [1] * (n - len(ids))) if spans else {}


CASES = {
    "internvl": (lambda: internvl(), None, between),
    "internvl_chat": (lambda: internvl(norm_type="rms_norm", use_qk_norm=True, attention_bias=False), chat_names, between),
    "llama4": (llama4, None, between),
    "paligemma": (lambda: paligemma("gemma"), None, prefix),
    "paligemma2": (
        lambda: paligemma(
            "gemma2", sliding_window=12, query_pre_attn_scalar=8, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        ),
        None, prefix,
    ),
}


# ---------------------------------------------------------------- golden values
def features_of(rows):
    rows = rows.double()
    pick = lambda r: [round(x, 7) for x in r.tolist()]
    return dict(
        shape=list(rows.shape), norms=[round(x, 6) for x in rows.norm(dim=1).tolist()], first=pick(rows[0]),
        middle=pick(rows[len(rows) // 2]), last=pick(rows[-1]),
    )


@torch.no_grad()
def run(model, names, folder, inputs, seed, layout, new):
    g = torch.Generator().manual_seed(seed)
    text = lambda n: torch.randint(3, 320, (n,), generator=g).tolist()
    kwargs, spans = inputs([picture(folder, n) for n in names]) if names else ({}, [])
    ids, by_length = layout(spans, text)
    out = dict(images=names, ids=ids)
    if names:
        f = getattr(model, "model", model).get_image_features(**kwargs, return_dict=True).pooler_output
        if model.config.model_type == "llama4":
            f = model.multi_modal_projector(model.get_image_features(**kwargs, return_dict=True).last_hidden_state)
        f = torch.cat(list(f)) if isinstance(f, (list, tuple)) else f
        out["features"] = features_of(f.reshape(-1, f.shape[-1]))
    greedy, margin = [], 9e9
    for i in range(new):
        more = {k: torch.tensor([f(len(ids) + i)]) for k, f in by_length.items()}
        logits = model(input_ids=torch.tensor([ids + greedy]), **kwargs, **more).logits[0, -1].float()
        if i == 0:
            out["last_logits"] = [round(x, 6) for x in logits.tolist()]
        top = logits.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
    return out | dict(greedy_ids=greedy, greedy_min_margin=round(margin, 6))


def preprocessed(images, pre, inputs):
    """Numbers of whole pictures, of several shapes."""
    out = []
    for name in SHAPES:
        x = inputs([picture(images, name)])[0]["pixel_values"].float().numpy()
        digest = hashlib.sha256(np.ascontiguousarray(x, dtype="<f4").tobytes()).hexdigest()
        out.append(dict(image=name, pixel_values=dict(shape=list(x.shape), sha256=digest)))
    return dict(config=pre, images=out)


def llama4_canvases(pre):
    """Sizes of pictures at the hub's settings, both ways to choose a canvas: [width, height, rows, cols, resized to]."""
    from transformers.image_utils import SizeDict
    from transformers.models.llama4 import image_processing_llama4 as m

    rng, out = np.random.default_rng(7), []
    sides = [336, 337, 672, 1008, 1, 5376, 335, 1344]
    sizes = [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]
    canvases = torch.tensor(m.find_supported_resolutions(16, SizeDict(height=336, width=336)))
    for enlarge in False, True:
        rows = []
        for w, h in sizes:
            canvas = to = m.get_best_fit((h, w), canvases, resize_to_max_canvas=enlarge)
            if not enlarge:
                to = (min(max(h, 336), canvas[0]), min(max(w, 336), canvas[1]))
            fit = m.get_max_res_without_distortion((h, w), to)
            rows.append([w, h] + (canvas // 336).tolist() + [max(int(fit[1]), 1), max(int(fit[0]), 1)])
        out.append(dict(resize_to_max_canvas=enlarge, sizes=rows))
    return out


def make(name, images):
    build, rename, layout = CASES[name]
    config, cls, pre, inputs = build()
    first = name in ("internvl", "internvl_chat")
    pictures = [[]] + PICTURES + ([] if first else [PICTURES[0]])
    config._attn_implementation = "eager"
    for seed in range(100):  # a seed whose greedy choices are no coin tosses
        torch.manual_seed(seed)
        model = cls(config).eval().float()
        for n, p in model.named_parameters():
            p.data = (p.data + torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.15)).bfloat16().float()
        cases = [run(model, names, images, inputs, seed + i, layout, 8 if first else 12) for i, names in enumerate(pictures)]
        if min(c["greedy_min_margin"] for c in cases) > 0.009:
            break
    out = f"tests/data/vision/{name}"
    os.makedirs(out, exist_ok=True)
    tensors = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items() if "lm_head" not in k}
    keys = json.loads(config.to_json_string(use_diff=False))
    if rename:
        tensors, keys, pre = rename(tensors, keys, pre)
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    for file, value in ("config.json", keys), ("preprocessor_config.json", pre):
        json.dump(value, open(f"{out}/{file}", "w"), indent=1)
    golden = dict(model_type=keys["model_type"], seed=seed, cases=cases)
    if not first:
        golden["preprocess"] = preprocessed(images, pre, inputs)
    if name == "llama4":
        golden["canvases"] = llama4_canvases(pre)
    json.dump(golden, open(f"{out}/golden.json", "w"))
    print(f"{name}: seed {seed}, {sum(os.path.getsize(f'{out}/{f}') for f in os.listdir(out))} bytes")


if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        make(name, sys.argv[1])
