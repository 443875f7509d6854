"""DeepSeek-OCR and DeepSeek-OCR 2."""

import re
import numpy as np, torch
from PIL import Image, ImageOps
from .base import IMAGE, TEXT, between, planes


def small(cls, config):
    """With as many queries as pictures of these sizes have patches: transformers chooses by the published numbers."""

    class Sized(cls):
        def __init__(self, config):
            super().__init__(config)
            tower, hidden = self.model.vision_tower, config.vision_config.encoder_config.hidden_size
            self.side = config.vision_config.sam_config.image_size
            tower.query_768_resolution, tower.query_1024_resolution = torch.nn.Embedding(9, hidden), torch.nn.Embedding(16, hidden)
            tower.register_forward_pre_hook(self.swap)
            tower.register_forward_hook(self.swap)

        def swap(self, tower, args, *_):
            m = tower._modules
            if args[0].shape[-1] == self.side:
                m["query_768_resolution"], m["query_1024_resolution"] = m["query_1024_resolution"], m["query_768_resolution"]

    return Sized


def deepseek_ocr2():
    from transformers import DeepseekOcr2Config, DeepseekOcr2ForConditionalGeneration
    from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import DeepseekOcr2ImageProcessorPil

    sam = dict(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, mlp_dim=24, image_size=128, patch_size=8, window_size=5,
        global_attn_indexes=[1], output_channels=12, downsample_channels=[10, 16],
    )
    reads = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24, vocab_size=1,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, routed_scaling_factor=1.5,
        mlp_layer_types=["dense", "sparse"], n_group=1, topk_group=1,
    )
    config = DeepseekOcr2Config(
        text_config=text, vision_config=dict(sam_config=sam, encoder_config=reads), image_token_id=IMAGE, tie_word_embeddings=True,
    )
    pre = dict(
        size=dict(height=128, width=128), tile_size=96, min_patches=2, max_patches=4, crop_to_patches=True, resample=3,
        image_mean=[0.5] * 3, image_std=[0.5] * 3, background_color=[127, 127, 127],
    )
    processor = DeepseekOcr2ImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        tiles = [int(o["num_local_patches"][0]) for o in out]
        kwargs = dict(pixel_values=torch.cat([o["pixel_values"] for o in out]).float(), num_local_patches=tiles)
        if sum(tiles):
            kwargs["pixel_values_local"] = torch.cat([o["pixel_values_local"] for o in out if "pixel_values_local" in o]).float()
        return kwargs, [[IMAGE] * (9 * n + 16 + 1) for n in tiles]

    return config, small(DeepseekOcr2ForConditionalGeneration, config), pre, inputs


def planes_of_views(kwargs):
    """Tiles, then the whole picture: one row of all numbers."""
    tiles = [kwargs["pixel_values_local"].flatten()] if "pixel_values_local" in kwargs else []
    return torch.cat([*tiles, kwargs["pixel_values"].flatten()])[None].numpy()


def grid_of(p, tile, least, most):
    """Columns and rows of tiles: the nearest aspect ratio, and of equally near ones the last that the picture half fills."""
    ratios = sorted(
        {(c, r) for n in range(least, most + 1) for c in range(1, n + 1) for r in range(1, n + 1) if least <= c * r <= most},
        key=lambda x: x[0] * x[1],
    )
    nearest, best = float("inf"), (1, 1)
    for c, r in ratios:
        off = abs(p.width / p.height - c / r)
        if off < nearest or (off == nearest and p.width * p.height > 0.5 * tile * tile * c * r):
            nearest, best = off, (c, r)
    return best


def deepseek_ocr():
    """transformers 5.24 has it as Unlimited-OCR, with a text model whose windows are left out here. Pixels are those of its authors, from memory."""
    from transformers import UnlimitedOcrConfig, UnlimitedOcrForConditionalGeneration

    sam = dict(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, mlp_dim=24, image_size=128, patch_size=8, window_size=5,
        global_attn_indexes=[1], output_channels=12, downsample_channels=[10, 16],
    )
    clip = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=56, patch_size=14)
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, routed_scaling_factor=1.0,
        mlp_layer_types=["dense", "sparse"], n_group=1, topk_group=1, tie_word_embeddings=False, sliding_window=4096,
        num_key_value_heads=4,
        layer_types=["full_attention"] * 2,
    )
    config = UnlimitedOcrConfig(
        text_config=text, vision_config=dict(sam_config=sam, encoder_config=clip), image_token_id=IMAGE, tie_word_embeddings=False,
    )
    tile, side = 96, 128
    pre = dict(
        size=dict(height=side, width=side), tile_size=tile, min_patches=2, max_patches=4, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )

    def inputs(pictures):
        local, whole, grids = [], [], []
        for p in pictures:
            grids.append(grid_of(p, tile, 2, 4) if max(p.size) > tile else (0, 0))
            cols, rows = grids[-1]
            if cols:
                big = p.resize((cols * tile, rows * tile))
                at = [(c * tile, r * tile) for r in range(rows) for c in range(cols)]
                local += [planes(big.crop((x, y, x + tile, y + tile)), 0.5, 0.5) for x, y in at]
            whole.append(planes(ImageOps.pad(p, (side, side), color=(127,) * 3), 0.5, 0.5))
        kwargs = dict(pixel_values=torch.tensor(np.stack(whole)), num_local_patches=[c * r for c, r in grids], patches_grid=grids)
        if local:
            kwargs["pixel_values_local"] = torch.tensor(np.stack(local))
        return kwargs, [[IMAGE] * (3 * r * (3 * c + 1) * (c > 0) + 4 * 5 + 1) for c, r in grids]

    return config, UnlimitedOcrForConditionalGeneration, pre, inputs


def ocr_names(tensors, config, pre):
    """The names and keys of its authors. Numbers that their code has and their files have not follow under transformers' keys."""
    swaps = [
        (r"^model\.language_model\.", "model."), (r"vision_tower\.sam_encoder", "sam_model"),
        (r"vision_tower\.vision_encoder", "vision_model"), (r"view_separator", "view_seperator"),
        (r"multi_modal_projector", "projector.layers"), (r"(sam_model\.)layers", r"\1blocks"), (r"(blocks.*)layer_norm", r"\1norm"),
        (r"patch_embed\.projection", "patch_embed.proj"), (r"neck\.conv1", "neck.0"), (r"neck\.layer_norm1", "neck.1"),
        (r"neck\.conv2", "neck.2"), (r"neck\.layer_norm2", "neck.3"), (r"sam_model\.proj\.conv1", "sam_model.net_2"),
        (r"sam_model\.proj\.conv2", "sam_model.net_3"), (r"vision_model\.encoder", "vision_model.transformer"),
    ]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            name = re.sub(a, b, name)
        renamed[name] = t
    for name in [k for k in renamed if ".mlp.experts." in k]:
        at, part, experts = *name.rsplit(".", 1), renamed.pop(name)
        for i, t in enumerate(experts):
            one = dict(zip(("gate_proj", "up_proj"), t.chunk(2))) if part == "gate_up_proj" else {part: t}
            renamed |= {f"{at}.{i}.{k}.weight": x.contiguous() for k, x in one.items()}
    clip, sam = (config["vision_config"][k] for k in ("encoder_config", "sam_config"))
    for i in range(clip["num_hidden_layers"]):
        at = f"model.vision_model.transformer.layers.{i}.self_attn."
        for end in "weight", "bias":
            renamed[f"{at}qkv_proj.{end}"] = torch.cat([renamed.pop(f"{at}{x}_proj.{end}") for x in "qkv"])
    size = lambda c: dict(width=c["hidden_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"])
    extra = lambda c, *keys: {k: c[k] for k in keys}
    towers = {
        "clip-l-14-224": size(clip) | extra(clip, "image_size", "patch_size", "intermediate_size"),
        "sam_vit_b": size(sam)
        | extra(sam, "global_attn_indexes", "downsample_channels", "patch_size", "window_size", "mlp_dim", "output_channels"),
    }
    text = config["text_config"]
    keys = extra(
        text, "vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group",
        "max_position_embeddings", "bos_token_id", "eos_token_id",
    ) | dict(use_mla=False, first_k_dense_replace=1, topk_method="greedy", kv_lora_rank=None, q_lora_rank=None, v_head_dim=0)
    vision = dict(image_size=sam["image_size"], mlp_ratio=3.7362, model_name="deeplip_b_l", model_type="vision", width=towers)
    mine = dict(
        model_type="deepseek_vl_v2", architectures=["DeepseekOCRForCausalLM"], vision_config=vision, language_config=keys,
        projector_config=dict(input_dim=32, model_type="mlp_projector", n_embed=32, projector_type="linear"),
        tile_tag="2D", global_view_pos="head", torch_dtype="bfloat16", image_token_id=IMAGE,
    )
    return renamed, mine | keys, pre


CASES = {"deepseek_ocr": (deepseek_ocr, ocr_names, between), "deepseek_ocr2": (deepseek_ocr2, None, between)}
