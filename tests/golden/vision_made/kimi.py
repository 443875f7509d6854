"""Kimi-VL and Kimi K2.5, whose towers are MoonViT."""

import math
import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, between, planes
from .native import expert_names, sizes


def kimi_vl():
    """MoonViT and its text model as transformers has them for Kimi K2.5, whose images are single frames of videos."""
    from transformers import Kimi_K25Config, Kimi_K25ForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0}
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        model_type="deepseek_v3", num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=1,
        topk_group=1, moe_intermediate_size=16, first_k_dense_replace=1, routed_scaling_factor=1.5, rope_parameters=rope,
    )
    seen = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=8, pos_emb_height=6,
        pos_emb_width=6, merge_kernel_size=[2, 2],
    )
    config = Kimi_K25Config(text_config=text, vision_config=seen, image_token_id=IMAGE, projection_hidden_size=16)
    pre = dict(
        patch_size=8, merge_kernel_size=[2, 2], in_token_limit=120, pad_input=True, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )

    def inputs(pictures):
        """As image_processing_kimi_vl.py on the hub, which transformers does not have."""
        rows, grids, spans = [], [], []
        for p in pictures:
            fit, (height, width) = kimi_vl_fit(p.height, p.width, 8, pre["in_token_limit"])
            padded = Image.new("RGB", (width, height))
            padded.paste(p.resize(fit[::-1], Image.BICUBIC))
            x = torch.tensor(planes(padded, 0.5, 0.5)).reshape(3, height // 8, 8, width // 8, 8)
            rows.append(x.permute(1, 3, 0, 2, 4).reshape(-1, 3, 8, 8))
            grids.append([1, height // 8, width // 8])
            spans.append([321] + [IMAGE] * (len(rows[-1]) // 4) + [322])
        return dict(pixel_values=torch.cat(rows), image_grid_thw=torch.tensor(grids)), spans

    return config, Kimi_K25ForConditionalGeneration, pre, inputs


def kimi_vl_fit(height, width, patch, most):
    """The sides of what is resized, and of what it is padded to."""
    n = (height // patch) * (width // patch)
    scale = math.sqrt(most / n) if n > most else 1
    fit = int(height * scale), int(width * scale)
    padded = tuple(-(-x // (2 * patch)) * 2 * patch for x in fit)
    if max(padded) // patch >= 512:
        raise ValueError("beyond the positions")
    return fit, padded


def kimi_vl_hub(tensors, config, pre):
    """The names and the layout of the files on the hub: q over k over v, whose pairs that turn stand side by side."""
    tensors, _, _ = expert_names(tensors, config, pre)
    seen, text, renamed = config["vision_config"], config["text_config"], {}
    heads = seen["num_attention_heads"]
    swaps = [
        ("model.language_model.", "language_model.model."), ("model.vision_tower.layers.", "vision_tower.encoder.blocks."),
        ("model.vision_tower.final_layernorm", "vision_tower.encoder.final_layernorm"), ("model.vision_tower.", "vision_tower."),
        ("norm1", "norm0"), ("norm2", "norm1"), ("fc1", "fc0"), ("fc2", "fc1"), ("attn.proj", "wo"),
        ("pos_emb.position_embeddings", "pos_emb.weight"), ("model.mm_projector.in_proj", "multi_modal_projector.linear_1"),
        ("model.mm_projector.out_proj", "multi_modal_projector.linear_2"), ("model.mm_projector.", "multi_modal_projector."),
    ]
    pairs = lambda t: t.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    for name, t in tensors.items():
        if "vision_tower.layers" in name and "_proj." in name:
            continue
        for a, b in swaps:
            name = name.replace(a, b)
        renamed[name] = t
    for i in range(seen["num_hidden_layers"]):
        for end in "weight", "bias":
            q, k, v = (tensors[f"model.vision_tower.layers.{i}.attn.{x}_proj.{end}"] for x in "qkv")
            renamed[f"vision_tower.encoder.blocks.{i}.wqkv.{end}"] = torch.cat([pairs(q), pairs(k), v])
    hub = dict(
        model_type="kimi_vl", media_placeholder_token_id=IMAGE, text_config=text, torch_dtype="bfloat16",
        vision_config=dict(
            model_type="moonvit", patch_size=8, init_pos_emb_height=6, init_pos_emb_width=6, merge_kernel_size=[2, 2],
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        ),
    )
    return renamed, hub, pre


def kimi_vl_sizes():
    return sizes(lambda h, w: kimi_vl_fit(h, w, 14, 4096)[1], 28)


def kimi_k25():
    """transformers' processor, in which Pillow resizes and numbers are rescaled in double, as in the other families."""
    from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor

    class Pillow(Kimi_K25ImageProcessor):
        def resize(self, images, size, **_):
            one = lambda x: np.asarray(Image.fromarray(x.permute(1, 2, 0).numpy()).resize((size.width, size.height), Image.BICUBIC))
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in images])

        def rescale_and_normalize(self, images, *_):
            return torch.tensor(np.stack([planes(x.permute(1, 2, 0).numpy(), 0.5, 0.5) for x in images]))

    config, cls, _, _ = kimi_vl()
    pre = dict(
        patch_size=8, merge_size=2, max_patches=120, size=dict(max_height=14, max_width=14), resample=3, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    processor = Pillow(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="pt") for p in pictures]
        kwargs = {k: torch.cat([o[k] for o in out]) for k in ("pixel_values", "image_grid_thw")}
        return kwargs, [[321] + [IMAGE] * (len(o["pixel_values"]) // 4) + [322] for o in out]

    return config, cls, pre, inputs


def kimi_k25_hub(tensors, config, pre):
    """As kimi_vl_hub, with the names and the keys of Kimi K2.5's files."""
    renamed, hub, _ = kimi_vl_hub(tensors, config, pre)
    swaps = [("multi_modal_projector.linear_1", "proj.0"), ("multi_modal_projector.linear_2", "proj.2"), ("multi_modal_projector.", "")]
    out = {}
    for name, t in renamed.items():
        for a, b in swaps:
            name = name.replace(a, "mm_projector." + b)
        out[name] = t
    seen = hub["vision_config"]
    for key in "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size":
        seen["vt_" + key] = seen.pop(key)
    seen |= dict(model_type="kimi_k25_vision", pos_emb_type="divided_fixed", mm_projector_type="patchmerger", init_pos_emb_time=4)
    own = dict(
        in_patch_limit=pre["max_patches"], patch_limit_on_one_side=14, merge_kernel_size=2, patch_size=8, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return out, hub | dict(model_type="kimi_k25"), dict(media_proc_cfg=own)


def kimi_k25_sizes():
    from transformers.models.kimi_k25.image_processing_kimi_k25 import navit_resize as fit

    return sizes(lambda h, w: fit(h, w, 14, 2, 16384, 512)[1], 28)


SIZES = {"kimi_vl": kimi_vl_sizes, "kimi_k25": kimi_k25_sizes}
CASES = {"kimi_vl": (kimi_vl, kimi_vl_hub, between), "kimi_k25": (kimi_k25, kimi_k25_hub, between)}
