"""Families that cut a picture into tiles."""

import re
import numpy as np, torch
from PIL import Image
from .base import IMAGE, SIGLIP, TEXT, between, planes


def padded(processor, pictures):
    """The inputs of each picture, with as many tiles as the one of most."""
    out = [processor(p, return_tensors="pt") for p in pictures]
    most = max(o["pixel_values"].shape[1] for o in out)
    pad = lambda x: torch.nn.functional.pad(x, (0, 0) * 3 + (0, most - x.shape[1]))
    return dict(pixel_values=torch.cat([pad(o["pixel_values"]) for o in out]), image_sizes=torch.cat([o["image_sizes"] for o in out]))



def internvl(pixels=None, act="gelu", **vision):
    """`pixels`: keys of the processor. `act`: of the projector."""
    from transformers import InternVLConfig, InternVLForConditionalGeneration, Qwen2Config
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    keys = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=[32, 32],
        patch_size=[8, 8], attention_bias=True,
    )
    config = InternVLConfig(
        text_config=Qwen2Config(**TEXT).to_dict(), vision_config=keys | vision, image_token_id=IMAGE, image_seq_length=4,
        projector_hidden_act=act,
    )
    pre = dict(
        size={"height": 32, "width": 32}, min_patches=1, max_patches=6, crop_to_patches=True, resample=3,
        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225],
    ) | (pixels or {})
    processor = GotOcr2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="np")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.tensor(np.concatenate(out))), [
            [321] + [IMAGE] * (4 * len(o)) + [322] for o in out
        ]

    return config, InternVLForConditionalGeneration, pre, inputs


def qianfan_ocr():
    from transformers import QianfanOCRConfig, QianfanOCRForConditionalGeneration, Qwen3Config

    config, _, pre, inputs = internvl()
    seen = {k: v for k, v in config.vision_config.to_dict().items() if k != "model_type"}
    config = QianfanOCRConfig(
        text_config=Qwen3Config(**TEXT).to_dict(), vision_config=seen, image_token_id=IMAGE, image_seq_length=4,
        tie_word_embeddings=True,
    )
    return config, QianfanOCRForConditionalGeneration, pre, inputs


def qianfan_names(tensors, config, pre):
    """The names of its authors, with the keys of transformers."""
    tensors = {k.replace("model.vision_tower.layers.", "model.vision_tower.encoder.layer."): t for k, t in tensors.items()}
    return chat_names(tensors, config, pre)[0], config, pre


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
        return padded(processor, pictures), [[IMAGE] * count._get_number_of_features(p.height, p.width, 32, 32) for p in pictures]

    return config, LlavaOnevisionForConditionalGeneration, pre, inputs


def granite_vision():
    """LLaVA-NeXT with SigLIP, of which several layers stand side by side, and tiles that are not whole
    patches. transformers leaves the text model's logits_scaling out, which is 1 here."""
    from transformers import GraniteConfig, LlavaNextConfig, LlavaNextForConditionalGeneration
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
    from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

    shapes = [[36 * r, 36 * c] for r, c in [(1, 2), (2, 1), (2, 2), (1, 4), (4, 1)]]
    seen = SIGLIP | dict(image_size=36, num_hidden_layers=4)
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3, logits_scaling=1.0,
    )
    config = LlavaNextConfig(
        text_config=GraniteConfig(**text).to_dict(), vision_config=seen, image_token_index=IMAGE, image_grid_pinpoints=shapes,
        vision_feature_layer=[-4, -2, -1], vision_feature_select_strategy="full", tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(shortest_edge=36), crop_size=dict(height=36, width=36), image_grid_pinpoints=shapes, resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    processor = LlavaNextImageProcessorPil(**pre)
    count = object.__new__(LlavaNextProcessor)
    count.image_processor, count.patch_size, count.vision_feature_select_strategy = processor, 8, "full"
    count.num_additional_image_tokens = 0

    def inputs(pictures):
        return padded(processor, pictures), [[IMAGE] * count._get_number_of_features(p.height, p.width, 36, 36) for p in pictures]

    return config, LlavaNextForConditionalGeneration, pre, inputs


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


def lfm2_vl(**more):
    from transformers import Lfm2Config, Lfm2VlConfig, Lfm2VlForConditionalGeneration
    from transformers.image_processing_backends import TorchvisionBackend
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
    from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

    class Exact(TorchvisionBackend):
        """Pillow resizes, and numbers are rescaled in double, as in the other families' processors."""

        def resize(self, image, size, **_):
            one = lambda x: np.asarray(
                Image.fromarray(x.permute(1, 2, 0).numpy()).resize((size.width, size.height), Image.BILINEAR)
            )
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in image])

        def rescale_and_normalize(self, images, *_):
            return torch.tensor(np.stack([planes(x.permute(1, 2, 0).numpy(), 0.5, 0.5) for x in images.flatten(0, -4)])).reshape(images.shape)

    class Pillow(Lfm2VlImageProcessor, Exact):
        pass

    text = {k: v for k, v in TEXT.items() if k not in ("rms_norm_eps", "head_dim")} | dict(
        num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], norm_eps=1e-5, block_auto_adjust_ff_dim=False,
    )
    seen = dict(
        model_type="siglip2_vision_model", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        patch_size=8, num_patches=36, vision_use_head=False,
    )
    config = Lfm2VlConfig(
        text_config=Lfm2Config(**text).to_dict(), vision_config=seen, image_token_id=IMAGE, projector_hidden_size=24, **more
    )
    pre = dict(
        tile_size=48, min_tiles=2, max_tiles=6, min_image_tokens=6, max_image_tokens=20, encoder_patch_size=8,
        downsample_factor=2, max_pixels_tolerance=1.5, use_thumbnail=True, do_image_splitting=True, resample=2,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )
    processor = Pillow(**pre)
    count = object.__new__(Lfm2VlProcessor)
    count.image_processor, count.image_token = processor, "I"
    count.image_start_token, count.image_end_token, count.image_thumbnail_token = "(", ")", "T"

    def inputs(pictures):
        out = [processor([p], return_tensors="pt", return_row_col_info=True) for p in pictures]
        spans = []
        for o in out:
            text = count.replace_image_token(o, 0, use_image_special_tokens=True)
            for tile in re.findall("<.*?>", text):
                text = text.replace(tile, "R", 1)
            spans.append([{"(": 321, ")": 322, "R": 317, "T": 316, "I": IMAGE}[x] for x in text])
        keys = "pixel_values", "pixel_attention_mask", "spatial_shapes"
        return {k: torch.cat([o[k] for o in out]) for k in keys}, spans

    return config, Lfm2VlForConditionalGeneration, pre, inputs


def patches_of_crops(kwargs):
    """Patches [n][P][P][3] as [n][3][P][P], without those that pad a crop."""
    sizes = kwargs["spatial_shapes"].prod(-1).tolist()
    rows = torch.cat([x[:n] for x, n in zip(kwargs["pixel_values"], sizes)])
    side = int((rows.shape[1] / 3) ** 0.5)
    return rows.reshape(-1, side, side, 3).permute(0, 3, 1, 2).flatten(1)


def idefics2(split):
    from transformers import Idefics2Config, Idefics2ForConditionalGeneration, MistralConfig
    from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil

    seen = {k: v for k, v in SIGLIP.items() if k not in ("model_type", "vision_use_head")} | dict(image_size=48)
    sampler = dict(
        hidden_size=32, rms_norm_eps=1e-5, resampler_n_latents=5, resampler_depth=2, resampler_n_heads=4, resampler_head_dim=12,
        num_key_value_heads=2,
    )
    config = Idefics2Config(
        text_config=MistralConfig(**TEXT).to_dict(), vision_config=seen, perceiver_config=sampler, image_token_id=IMAGE,
        tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(shortest_edge=20, longest_edge=46), do_image_splitting=split, resample=2, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    processor = Idefics2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = processor([pictures], return_tensors="pt", input_data_format="channels_last")
        parts = 5 if split else 1
        return dict(out), [[317] + ([IMAGE] * 5 + [317]) * parts for _ in pictures]

    return config, Idefics2ForConditionalGeneration, pre, inputs


def whole_patches(kwargs):
    """Crops one after the other, without what does not fill a patch of 8."""
    out = []
    for x, mask in zip(kwargs["pixel_values"][0], kwargs["pixel_attention_mask"][0]):
        h, w = int(mask[:, 0].sum()) // 8 * 8, int(mask[0].sum()) // 8 * 8
        out.append(x[:, :h, :w].flatten())
    return torch.cat(out)[None].float().numpy()


def llava_next_video():
    """Pictures of a model for videos: those of LLaVA-NeXT."""
    from transformers import LlamaConfig, LlavaNextVideoConfig, LlavaNextVideoForConditionalGeneration
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
    from transformers.models.llava_next_video.processing_llava_next_video import LlavaNextVideoProcessor

    shapes = [[32 * r, 32 * c] for r, c in [(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]]
    seen = dict(
        model_type="clip_vision_model", hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
        image_size=32, patch_size=8, projection_dim=16,
    )
    config = LlavaNextVideoConfig(
        text_config=LlamaConfig(**TEXT).to_dict(), vision_config=seen, image_token_index=IMAGE, video_token_index=321,
        image_grid_pinpoints=shapes, tie_word_embeddings=True,
    )
    pre = dict(size=dict(shortest_edge=32), crop_size=dict(height=32, width=32), image_grid_pinpoints=shapes, resample=3)
    processor = LlavaNextImageProcessorPil(**pre)
    count = object.__new__(LlavaNextVideoProcessor)
    count.image_processor, count.patch_size, count.vision_feature_select_strategy = processor, 8, "default"
    count.num_additional_image_tokens = 0

    def inputs(pictures):
        return padded(processor, pictures), [[IMAGE] * count._get_number_of_features(p.height, p.width, 32, 32) for p in pictures]

    return config, LlavaNextVideoForConditionalGeneration, pre, inputs


def perception_lm(architecture, cell, **args):
    from transformers import LlamaConfig, PerceptionLMConfig, PerceptionLMForConditionalGeneration
    from transformers.models.perception_lm.image_processing_perception_lm import PerceptionLMImageProcessor

    class Pillow(PerceptionLMImageProcessor):
        """Pillow resizes, and numbers are rescaled in double, as in the other families' processors."""

        def resize(self, image, tile_size, max_num_tiles, **_):
            fit, (height, width) = (1, 1), image.shape[-2:]
            if max_num_tiles > 1:
                fit = self._fit_image_to_canvas(width, height, tile_size) or self._find_closest_aspect_ratio(width, height, tile_size)
            one = lambda x: np.asarray(
                Image.fromarray(x.permute(1, 2, 0).numpy()).resize((fit[0] * tile_size, fit[1] * tile_size), Image.BICUBIC)
            )
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in image]), fit

        def rescale_and_normalize(self, images, *_):
            return torch.tensor(np.stack([planes(x.permute(1, 2, 0).numpy(), 0.5, 0.5) for x in images.flatten(0, -4)])).reshape(images.shape)

    args = dict(embed_dim=16, depth=2, num_heads=2, patch_size=8, img_size=[32, 32], ref_feat_shape=[4, 4], global_pool="") | args
    config = PerceptionLMConfig(
        text_config=LlamaConfig(**TEXT).to_dict(), vision_config=dict(model_type="timm_wrapper", architecture=architecture, model_args=args),
        image_token_id=IMAGE, video_token_id=321, projector_pooling_ratio=cell, vision_use_cls_token=args.get("class_token", "large" in architecture),
        tie_word_embeddings=True,
    )
    pre = dict(tile_size=32, max_num_tiles=6, vision_input_type="thumb+tile", image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3)
    processor = Pillow(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt")["pixel_values"] for p in pictures]
        return dict(pixel_values=torch.cat(out, 1)), [[IMAGE] * (16 // cell**2 * o.shape[1]) for o in out]

    return config, PerceptionLMForConditionalGeneration, pre, inputs


def perception_lm_sizes():
    """Grids of tiles at the hub's settings: [width, height, rows, cols]."""
    from transformers.models.perception_lm.image_processing_perception_lm import PerceptionLMImageProcessor

    p, rng, runs = PerceptionLMImageProcessor(), np.random.default_rng(7), []
    sides = [448, 447, 449, 672, 1, 1024, 1344, 9000]
    sizes = [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 14, 2)) for _ in range(160)]
    for p.max_num_tiles in 36, 16:
        grids = [p._fit_image_to_canvas(w, h, 448) or p._find_closest_aspect_ratio(w, h, 448) for w, h in sizes]
        runs.append(dict(max_num_tiles=p.max_num_tiles, sizes=[[w, h, g[1], g[0]] for (w, h), g in zip(sizes, grids)]))
    return runs


def ovis2():
    from transformers import Ovis2Config, Ovis2ForConditionalGeneration, Qwen2Config
    from transformers.models.ovis2.image_processing_pil_ovis2 import Ovis2ImageProcessorPil

    text = Qwen2Config(**TEXT | dict(vocab_size=328)).to_dict()
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=8,
        vocab_size=45, hidden_stride=2, tokenize_function="softmax", qkv_bias=False,
    )
    config = Ovis2Config(
        text_config=text, vision_config=seen, image_token_id=IMAGE, visual_indicator_token_ids=[321, 322, 323, 324, 325],
        vocab_size=328, hidden_size=32,
    )
    pre = dict(size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=6, resample=3)
    processor = Ovis2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        spans, part = [], [IMAGE] * 4
        for o in out:
            rows, cols = o["grids"][0].tolist()
            lines = [sum(([*part, 323] for _ in range(cols)), [])[:-1] for _ in range(rows)] if rows * cols > 1 else []
            spans.append([321, *part, 322] + sum(([*line, 324] for line in lines), [])[:-1] + [325])
        return dict(pixel_values=torch.cat([o["pixel_values"] for o in out])), spans

    return config, Ovis2ForConditionalGeneration, pre, inputs


def ovis2_sizes():
    """Grids of tiles at the hub's settings, and of the nearest aspect ratio: [width, height, rows, cols]."""
    from transformers.models.ovis2 import image_processing_pil_ovis2 as ovis

    rng, runs = np.random.default_rng(7), []
    sides = [448, 447, 449, 672, 1, 1024, 1344, 3000]
    sizes = [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]
    for covering in True, False:
        rows = []
        for w, h in sizes:
            cols, lines = (
                ovis.get_min_tile_covering_grid((h, w), target_patch_size=448, max_image_tiles=9, covering_threshold=0.9)
                if covering
                else ovis.get_optimal_tiled_canvas((h, w), (448, 448), 1, 9)
            )
            rows.append([w, h, lines, cols])
        runs.append(dict(use_covering_area_grid=covering, sizes=rows))
    return runs


def lfm2_sizes():
    """Grids of tiles at the hub's settings, 1 x 1 without tiles, and what the whole picture becomes:
    [width, height, rows, cols, width, height]."""
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

    p, rng, rows = Lfm2VlImageProcessor(), np.random.default_rng(7), []
    sides = [512, 511, 513, 768, 1, 1024, 1280, 3000]
    own = dict(max_image_tokens=256, encoder_patch_size=16, downsample_factor=2)
    for w, h in [(a, b) for a in sides for b in sides] + [tuple(int(2 ** e) for e in rng.uniform(0, 13, 2)) for _ in range(160)]:
        cols, lines = 1, 1
        if p._is_image_too_large(h, w, max_pixels_tolerance=2.0, **own):
            cols, lines, *_ = p._get_grid_layout(h, w, 2, 10, 512)
        rows.append([w, h, lines, cols, *p.smart_resize(h, w, min_image_tokens=64, **own)])
    return [dict(sizes=rows)]


CASES = {
    "granite_vision": (granite_vision, None, between),
    "idefics2": (lambda: idefics2(True), None, between),
    "idefics2_whole": (lambda: idefics2(False), None, between),
    "lfm2_vl": (lambda: lfm2_vl(projector_use_layernorm=True), None, between),
    "llava_next_video": (llava_next_video, None, between),
    "ovis2": (ovis2, None, between),
    "perception_lm": (
        lambda: perception_lm("vit_pe_core_large_patch14_336", 2, init_values=0.1, use_post_transformer_norm=False, mlp_ratio=1.5),
        None, between,
    ),
    "perception_lm_bare": (lambda: perception_lm("vit_pe_core_large_patch14_336", 1, class_token=False), None, between),
    "perception_lm_g": (lambda: perception_lm("vit_pe_lang_gigantic_patch14_448", 1), None, between),
    "aya_vision": (aya_vision, None, between),
    "cohere2_vision": (cohere2_vision, None, between),
    "llava_onevision": (llava_onevision, None, between),
    "internvl": (lambda: internvl(), None, between),
    "internvl_normed": (lambda: internvl(pixels=dict(resample=4), act="relu", use_mean_pooling=False), None, between),
    "internvl_chat": (lambda: internvl(norm_type="rms_norm", use_qk_norm=True, attention_bias=False), chat_names, between),
    "qianfan_ocr": (qianfan_ocr, qianfan_names, between),
    "llama4": (llama4, None, between),
}
