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


def gemma4(text, vision):
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    base = {k: v for k, v in TEXT.items() if k != "rope_parameters"}
    base |= dict(global_head_dim=16, sliding_window=24, final_logit_softcapping=30.0, vocab_size_per_layer_input=324)
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=24,
        patch_size=4, pooling_kernel_size=3, position_embedding_size=256,
    )
    config = Gemma4Config(
        text_config=base | text, vision_config=seen | vision, image_token_id=IMAGE, boi_token_id=321, eoi_token_id=322,
        audio_config=None, video_token_id=323, audio_token_id=323,
    )
    pre = dict(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70, resample=3)
    processor = Gemma4ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        join = lambda key: torch.cat([o[key] for o in out])
        kwargs = dict(pixel_values=join("pixel_values"), image_position_ids=join("image_position_ids"))
        return kwargs, [[321] + [IMAGE] * int(o["num_soft_tokens_per_image"][0]) + [322] for o in out]

    return config, Gemma4ForConditionalGeneration, pre, inputs


def qwen(config, cls, seen, pixels):
    """Families whose processor is Qwen2-VL's."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(**pixels)
    cells = pixels["merge_size"] ** 2

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        join = lambda key: torch.cat([o[key] for o in out])
        kwargs = dict(pixel_values=join("pixel_values"), image_grid_thw=join("image_grid_thw"))
        return kwargs, [[321] + [IMAGE] * (len(o["pixel_values"]) // cells) + [322] for o in out]

    return config, cls, pixels, inputs


QWEN = dict(image_token_id=IMAGE, vision_start_token_id=321, vision_end_token_id=322, video_token_id=323)


def qwen2_vl():
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    text = TEXT | dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]})
    seen = dict(embed_dim=16, hidden_size=32, depth=2, num_heads=2, mlp_ratio=2, patch_size=8)
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=1024, longest_edge=8192),
        image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711], resample=3,
    )
    config = Qwen2VLConfig(text_config=text, vision_config=seen, tie_word_embeddings=True, **QWEN)
    return qwen(config, Qwen2VLForConditionalGeneration, seen, pixels)


def qwen3_vl_moe():
    from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    text = TEXT | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, rope_parameters=rope)
    seen = dict(
        hidden_size=16, out_hidden_size=32, depth=3, num_heads=2, intermediate_size=24, patch_size=8,
        num_position_embeddings=64, deepstack_visual_indexes=[0, 1],
    )
    pixels = dict(
        patch_size=8, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=1024, longest_edge=8192),
        image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3,
    )
    config = Qwen3VLMoeConfig(text_config=text, vision_config=seen, tie_word_embeddings=True, **QWEN)
    return qwen(config, Qwen3VLMoeForConditionalGeneration, seen, pixels)


SIGLIP = dict(
    model_type="siglip_vision_model", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    image_size=32, patch_size=8, vision_use_head=False,
)


def llava():
    from transformers import LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    clip = dict(
        model_type="clip_vision_model", hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
        image_size=32, patch_size=8, projection_dim=16,
    )
    config = LlavaConfig(
        text_config=LlamaConfig(**TEXT).to_dict(), vision_config=clip, image_token_index=IMAGE, image_seq_length=16,
    )
    pre = dict(size=dict(shortest_edge=32), crop_size=dict(height=32, width=32), resample=3, do_center_crop=True)
    processor = CLIPImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(pixels))), [[IMAGE] * 16 for _ in pictures]

    return config, LlavaForConditionalGeneration, pre, inputs


def llava_onevision():
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration, Qwen2Config
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
    from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

    shapes = [[32 * r, 32 * c] for r in range(1, 4) for c in range(1, 4)] + [[32, 192], [192, 32]]
    config = LlavaOnevisionConfig(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=SIGLIP, image_token_index=IMAGE, video_token_index=323,
        image_grid_pinpoints=shapes, vision_aspect_ratio="anyres_max_2", tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(height=32, width=32), image_grid_pinpoints=shapes, resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    processor = LlavaOnevisionImageProcessorPil(**pre)
    count = object.__new__(LlavaOnevisionProcessor)
    count.image_processor, count.num_image_tokens, count.vision_aspect_ratio = processor, 16, "anyres_max_2"

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        most = max(o["pixel_values"].shape[1] for o in out)
        pad = lambda x: torch.nn.functional.pad(x, (0, 0) * 3 + (0, most - x.shape[1]))
        kwargs = dict(
            pixel_values=torch.cat([pad(o["pixel_values"]) for o in out]), image_sizes=torch.cat([o["image_sizes"] for o in out])
        )
        return kwargs, [[IMAGE] * count._get_number_of_features(p.height, p.width, 32, 32) for p in pictures]

    return config, LlavaOnevisionForConditionalGeneration, pre, inputs


def aya_vision():
    """transformers leaves the text model's logit_scale out, which is 1 here."""
    from transformers import AyaVisionConfig, AyaVisionForConditionalGeneration, Cohere2Config
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    text = Cohere2Config(**{k: v for k, v in TEXT.items() if k != "rms_norm_eps"}, sliding_window=24, logit_scale=1.0)
    config = AyaVisionConfig(text_config=text.to_dict(), vision_config=SIGLIP, image_token_index=IMAGE)
    config.alignment_intermediate_size = 24
    pre = dict(
        size=dict(height=32, width=32), min_patches=1, max_patches=6, crop_to_patches=True, resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    processor = GotOcr2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        spans = [[321] + sum([[317] + [IMAGE] * 4 for _ in o], []) + [322] for o in out]
        return dict(pixel_values=torch.tensor(np.concatenate(out))), spans

    return config, AyaVisionForConditionalGeneration, pre, inputs


def cohere2_vision():
    """transformers leaves the text model's logit_scale out, which is 1 here."""
    from transformers import Cohere2Config, Cohere2VisionConfig, Cohere2VisionForConditionalGeneration
    from transformers.models.cohere2_vision.image_processing_cohere2_vision import Cohere2VisionImageProcessor

    class Pillow(Cohere2VisionImageProcessor):
        def resize(self, image, size, resample=None, **_):
            one = lambda x: np.asarray(
                Image.fromarray(x.permute(1, 2, 0).numpy()).resize((size.width, size.height), Image.BICUBIC)
            )
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in image])

    text = Cohere2Config(**{k: v for k, v in TEXT.items() if k != "rms_norm_eps"}, sliding_window=24, logit_scale=1.0)
    config = Cohere2VisionConfig(
        text_config=text.to_dict(), vision_config=SIGLIP, image_token_id=IMAGE, alignment_intermediate_size=24,
    )
    pre = dict(
        size=dict(height=32, width=32), max_patches=6, crop_to_patches=True, resample=3, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    processor = Pillow(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt")["pixel_values"] for p in pictures]
        exact = lambda x: torch.tensor(
            np.stack([planes(np.asarray(((t * 0.5 + 0.5) * 255).round().permute(1, 2, 0)).astype(np.uint8), [0.5] * 3, [0.5] * 3) for t in x])
        )
        out = [exact(o) for o in out]  # rescaled in double, as elsewhere, not in one factor
        spans = [[321] + sum([[IMAGE] * 4 + [317] for _ in o], []) + [322] for o in out]
        return dict(pixel_values=torch.cat(out)), spans

    return config, Cohere2VisionForConditionalGeneration, pre, inputs


class Tiles(list):
    """A picture's token, and how many tiles it stands for."""

    def __init__(self, tiles):
        super().__init__([IMAGE])
        self.tiles = tiles


def mllama():
    """Tokens in front of the first picture pass layers that attend to pictures by, as where the model was trained. In
    transformers they attend to all pictures of the prompt, and only the feed-forward behind is masked."""
    from transformers import MllamaConfig, MllamaForConditionalGeneration
    from transformers.models.mllama import modeling_mllama as m
    from transformers.models.mllama.image_processing_pil_mllama import MllamaImageProcessorPil

    class Passed(m.MllamaCrossAttentionDecoderLayer):
        def forward(self, hidden_states, *args, full_text_row_masked_out_mask=None, **more):
            mask = full_text_row_masked_out_mask
            out = super().forward(hidden_states, *args, full_text_row_masked_out_mask=mask, **more)
            return out if mask is None else torch.where(mask[:, 0].bool(), out, hidden_states)

    m.MllamaCrossAttentionDecoderLayer = Passed
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        vocab_size=IMAGE, num_hidden_layers=4, cross_attention_layers=[1, 3], tie_word_embeddings=False,
        rope_parameters=dict(
            rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    )
    shapes = [[r, c] for r in range(1, 5) for c in range(1, 5) if r * c <= 4]
    seen = dict(
        hidden_size=16, num_hidden_layers=3, num_global_layers=2, attention_heads=2, intermediate_size=24, image_size=32,
        patch_size=8, vision_output_dim=48, max_num_tiles=4, intermediate_layers_indices=[0, 2], supported_aspect_ratios=shapes,
    )
    config = MllamaConfig(text_config=text, vision_config=seen, image_token_index=IMAGE)
    pre = dict(
        size={"height": 32, "width": 32}, resample=2, image_mean=[0.48145466, 0.4578275, 0.40821073],
        image_std=[0.26862954, 0.26130258, 0.27577711], max_image_tiles=4,
    )
    processor = MllamaImageProcessorPil(**pre)

    def inputs(pictures):
        out = dict(processor([pictures], return_tensors="pt"))
        return out, [Tiles(n) for n in out.pop("num_tiles")[0]]

    return config, MllamaForConditionalGeneration, pre, inputs


def mllama_hub(tensors, config, pre):
    """The names of the files on the hub."""
    renamed = {}
    for name, t in tensors.items():
        for a, b in ("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head"):
            name = b + name[len(a) :] if name.startswith(a) else name
        renamed[name.removeprefix("model.")] = t
    return renamed, config, pre


def mllama_features(model, kwargs):
    """Those of the tiles that pictures have."""
    seen = model.model.multi_modal_projector(model.model.vision_model(**kwargs).last_hidden_state)[0]
    return [x[: mask.sum()].flatten(0, 1) for x, mask in zip(seen, kwargs["aspect_ratio_mask"][0])]


def planes_of_patches(kwargs):
    """Gemma 4's patches [n][P][P][3] as [1][3][H][W], with what the tower does to them first."""
    at = kwargs["image_position_ids"][0]
    n, cols, rows = int((at[:, 0] >= 0).sum()), int(at[:, 0].max()) + 1, int(at[:, 1].max()) + 1
    x = kwargs["pixel_values"][0][:n].reshape(rows, cols, 4, 4, 3).permute(4, 0, 2, 1, 3).reshape(1, 3, rows * 4, cols * 4)
    return 2 * (x.float() - 0.5)


def fill_buffers(model):
    """Numbers that are no parameters: bounds of products, which are the same for those of one input, and what is done to
    means of patches."""
    for name, b in model.named_buffers():
        end = name.rsplit(".", 1)[-1]
        if end in ("std_bias", "std_scale"):
            b.data = (torch.randn_like(b) * 0.3 + (end == "std_scale")).bfloat16().float()
        elif end in ("input_min", "output_min"):
            b.data = torch.tensor(-0.75 if end == "input_min" else -0.5 - 0.25 * ("v_proj" in name))
        elif end in ("input_max", "output_max"):
            b.data = torch.tensor(1.25 if end == "input_max" else 0.5 + 0.5 * ("up_proj" in name))


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


def typed(spans, text):
    """The model is told which tokens are of pictures."""
    ids, _ = between(spans, text)
    return ids, dict(mm_token_type_ids=lambda n: [int(i == IMAGE) for i in ids] + [0] * (n - len(ids)))


def crossing(spans, text, apart=False):
    """Pictures side by side, or text between them."""
    from transformers.models.mllama import processing_mllama as m

    ids = [1] + text(2) + sum([s + text(3 * apart) for s in spans], []) + text(6)

    def mask(n):
        where = m.get_cross_attention_token_mask(ids, IMAGE)
        dense = m.convert_sparse_cross_attention_mask_to_dense([where], [[s.tiles for s in spans]], 4, len(ids))[0].tolist()
        return dense + [dense[-1]] * (n - len(ids))

    return ids, dict(cross_attention_mask=mask) if spans else {}


CASES = {
    "mllama": (mllama, mllama_hub, crossing),
    "gemma4": (
        lambda: gemma4(
            dict(
                num_hidden_layers=3, hidden_size_per_layer_input=0, use_bidirectional_attention="vision", attention_k_eq_v=True,
                num_global_key_value_heads=1,
            ),
            dict(standardize=True),
        ),
        None, typed,
    ),
    "gemma4_e": (
        lambda: gemma4(
            dict(
                num_hidden_layers=4, hidden_size_per_layer_input=8, num_kv_shared_layers=2, use_double_wide_mlp=True,
                layer_types=["sliding_attention", "full_attention"] * 2,
            ),
            dict(use_clipped_linears=True, num_key_value_heads=1),
        ),
        None, typed,
    ),
    "aya_vision": (aya_vision, None, between),
    "cohere2_vision": (cohere2_vision, None, between),
    "llava": (llava, None, between),
    "llava_onevision": (llava_onevision, None, between),
    "qwen2_vl": (qwen2_vl, None, typed),
    "qwen3_vl_moe": (qwen3_vl_moe, None, typed),
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
        if model.config.model_type == "mllama":
            seen, f = None, mllama_features(model, kwargs)
        else:
            seen = getattr(model, "model", model).get_image_features(**kwargs, return_dict=True)
            f = seen.pooler_output
        if getattr(seen, "deepstack_features", None):
            out["deepstack"] = [features_of(torch.cat(list(x)) if isinstance(x, (list, tuple)) else x) for x in seen.deepstack_features]
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
        kwargs = inputs([picture(images, name)])[0]
        x = (planes_of_patches(kwargs) if "image_position_ids" in kwargs else kwargs["pixel_values"].float()).numpy()
        x = x[0, 0, : kwargs["aspect_ratio_mask"].sum()] if "aspect_ratio_mask" in kwargs else x
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


def mllama_canvases():
    """The same at the settings of Llama 3.2 Vision."""
    from transformers.models.mllama import image_processing_pil_mllama as m

    rng, rows = np.random.default_rng(7), []
    sides = [560, 561, 1120, 2240, 1, 5376, 559, 1344]
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        canvas = m.get_optimal_tiled_canvas(h, w, 4, 560)
        fit = m.get_image_size_fit_to_canvas(h, w, *canvas, 560)
        rows.append([w, h] + [int(x) // 560 for x in canvas] + [int(fit[1]), int(fit[0])])
    return [dict(sizes=rows)]


def gemma4_sizes():
    """Grids of features at the hub's settings: [width, height, rows, cols], or without a grid where there is none."""
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size as fit

    rng, out = np.random.default_rng(7), []
    sides = [48, 47, 49, 768, 1, 1024, 3000, 50]
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        try:
            rows, cols = fit(h, w, 16, 280 * 9, 3)
            out.append([w, h, rows // 48, cols // 48])
        except ValueError:
            out.append([w, h])
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
            gate = 0.8 if p.shape == (1,) else 0  # of mllama's layers: open
            p.data = (p.data + gate + torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.15)).bfloat16().float()
        fill_buffers(model)
        cases = [run(model, names, images, inputs, seed + i, layout, 8 if first else 12) for i, names in enumerate(pictures)]
        if name == "mllama":
            cases.append(run(model, PICTURES[2], images, inputs, seed, lambda s, t: crossing(s, t, True), 12))
            cases.append(run(model, ["tiny_3x2.png", "rgb_120x90.jpg"], images, inputs, seed, layout, 12))
        if min(c["greedy_min_margin"] for c in cases) > 0.009:
            break
    out = f"tests/data/vision/{name}"
    os.makedirs(out, exist_ok=True)
    tensors = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items() if "lm_head" not in k or name == "mllama"}
    keys = json.loads(config.to_json_string(use_diff=False))
    if rename:
        tensors, keys, pre = rename(tensors, keys, pre)
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    for file, value in ("config.json", keys), ("preprocessor_config.json", pre):
        json.dump(value, open(f"{out}/{file}", "w"), indent=1)
    golden = dict(model_type=keys["model_type"], seed=seed, cases=cases)
    if not first:
        golden["preprocess"] = preprocessed(images, pre, inputs)
    if name == "gemma4":
        golden["sizes"] = gemma4_sizes()
    if name == "mllama":
        golden["canvases"] = mllama_canvases()
    if name == "llama4":
        golden["canvases"] = llama4_canvases(pre)
    json.dump(golden, open(f"{out}/golden.json", "w"))
    print(f"{name}: seed {seed}, {sum(os.path.getsize(f'{out}/{f}') for f in os.listdir(out))} bytes")


if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        make(name, sys.argv[1])
