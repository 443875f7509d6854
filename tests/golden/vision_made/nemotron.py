"""Nemotron Nano VL and Nemotron 3 Nano Omni, whose tower is C-RADIO: rows before the patches, positions cut out of a square."""

import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, between, planes
from .native import sizes

MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def processor(**pixels):
    """Pillow resizes, as in vLLM, and numbers are rescaled in double, as in the other families' processors."""
    from transformers.models.nemotron_h_omni.image_processing_nemotron_h_omni import NemotronH_Omni_Reasoning_V3ImageProcessor

    class Pillow(NemotronH_Omni_Reasoning_V3ImageProcessor):
        def resize(self, images, size, **_):
            one = lambda x: np.asarray(
                Image.fromarray(x.byte().permute(1, 2, 0).numpy()).resize((size.width, size.height), Image.BICUBIC)
            )
            return torch.stack([torch.tensor(one(x)).permute(2, 0, 1) for x in images])

        def rescale_and_normalize(self, images, *_):
            return torch.tensor(np.stack([planes(x.permute(1, 2, 0).byte().numpy(), MEAN, STD) for x in images]))

    return Pillow(**pixels)


def model_config(draft_layers, **seen):
    from transformers import NemotronH_Omni_Reasoning_V3_Config

    text = {k: v for k, v in TEXT.items() if k not in ("num_hidden_layers", "rms_norm_eps", "rope_parameters")} | dict(
        model_type="nemotron_h", layers_block_type=["linear_attention", "mlp", "full_attention", "moe"], mamba_num_heads=4, mamba_head_dim=16,
        n_groups=2, ssm_state_size=16, chunk_size=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=24, routed_scaling_factor=1.5, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
        num_nextn_predict_layers=draft_layers,
    )
    seen = dict(
        model_type="radio", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=1.5, patch_size=8, max_img_size=72,
        video_temporal_patch_size=2,
    ) | seen
    return NemotronH_Omni_Reasoning_V3_Config(
        text_config=text, vision_config=seen, audio_config=None, image_token_id=IMAGE, video_token_id=323, projector_hidden_size=24,
        vision_hidden_size=16, force_image_size=32,
    )


def nemotron_h_omni():
    """As transformers has it: with vectors that scale layers, and with the norm that a text model with draft layers brings."""
    from transformers import NemotronH_Omni_Reasoning_V3

    pre = dict(
        patch_size=8, downsample_ratio=0.5, min_num_patches=24, max_num_patches=80, resample=3, image_mean=MEAN, image_std=STD,
    )
    one = processor(**pre)

    def inputs(pictures):
        out = [one(p, return_tensors="pt") for p in pictures]
        kwargs = {k: torch.cat([o[k] for o in out]) for k in ("pixel_values", "image_grid_hw")}
        return kwargs, [[321] + [IMAGE] * (len(o["pixel_values"]) // 4) + [322] for o in out]

    return model_config(1), NemotronH_Omni_Reasoning_V3, pre, inputs


def without_scales(config):
    """The repositories' files have no vectors that scale layers."""
    from transformers import NemotronH_Omni_Reasoning_V3

    model = NemotronH_Omni_Reasoning_V3(config)
    for layer in model.vision_model.encoder.layer:
        layer.layer_scale1 = layer.layer_scale2 = torch.nn.Identity()
    return model


def nemotron_nano_vl():
    """Tiles as of InternVL, each of which the tower reads alone."""
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    pre = dict(image_size=32, max_num_tiles=6, use_thumbnail=True)
    tiles = GotOcr2ImageProcessorPil(
        size={"height": 32, "width": 32}, min_patches=1, max_patches=6, crop_to_patches=True, resample=3, image_mean=MEAN, image_std=STD,
    )

    def inputs(pictures):
        out = [torch.tensor(tiles(p, return_tensors="np")["pixel_values"]) for p in pictures]
        patches = torch.cat(out).unflatten(2, (4, 8)).unflatten(4, (4, 8)).permute(0, 2, 4, 1, 3, 5).reshape(-1, 3 * 8 * 8)
        grids = torch.tensor([[4, 4]] * sum(map(len, out)))
        return dict(pixel_values=patches, image_grid_hw=grids), [[321] + [IMAGE] * (4 * len(o)) + [322] for o in out]

    return model_config(0, num_cls_tokens=2, num_registers=3), without_scales, pre, inputs


def repository(tensors, config, pre):
    """The names and keys of NVIDIA's repository. Two of three teachers have one name, so there are two class tokens."""
    swaps = [
        ("language_model.model.", "language_model.backbone."), ("multi_modal_projector.layer_norm", "mlp1.0"),
        ("multi_modal_projector.linear_1", "mlp1.1"), ("multi_modal_projector.linear_2", "mlp1.3"),
        ("vision_model.embeddings.video_patch_projection", "vision_model.radio_model.model.patch_generator.video_embedder"),
        ("vision_model.embeddings.patch_projection", "vision_model.radio_model.model.patch_generator.embedder"),
        ("vision_model.embeddings.position_embedding", "vision_model.radio_model.model.patch_generator.pos_embed"),
        ("vision_model.embeddings.cls_register_token", "vision_model.radio_model.model.patch_generator.cls_token.token"),
        ("vision_model.encoder.layer.", "vision_model.radio_model.model.blocks."),
        ("vision_model.summary_idxs", "vision_model.radio_model.summary_idxs"),
    ]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            name = b + name[len(a) :] if name.startswith(a) else name
        renamed[name.replace("attention.o_proj", "attn.proj")] = t
    for i in range(config["vision_config"]["num_hidden_layers"]):
        for end in "weight", "bias":
            at = f"vision_model.radio_model.model.blocks.{i}."
            renamed[f"{at}attn.qkv.{end}"] = torch.cat([renamed.pop(f"{at}attention.{x}_proj.{end}") for x in "qkv"])
    seen = {k: config["vision_config"][k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio", "patch_size")}
    teachers = [dict(name="clip", use_summary=True), dict(name="siglip", use_summary=True), dict(name="clip", use_summary=False)]
    args = dict(model="vit_huge_patch16_224", cpe_max_size=72, register_multiple=5, cls_token_per_teacher=True, teachers=teachers)
    hub = dict(
        model_type="NemotronH_Nano_VL_V2", llm_config=config["text_config"], vision_config=seen | dict(args=args, feature_normalizer_config=None),
        img_context_token_id=IMAGE, force_image_size=32, patch_size=8, downsample_ratio=0.5, ps_version="v2", use_thumbnail=True,
        vit_hidden_size=16, projector_hidden_size=24, norm_mean=MEAN, norm_std=STD, torch_dtype="bfloat16",
    )
    return renamed, hub, pre


def nemotron_sizes():
    from transformers.models.nemotron_h_omni.image_processing_nemotron_h_omni import get_patch_grid_size as fit

    return sizes(lambda h, w: fit(h, w, 16, 2, 1024, 13312), 2)


SIZES = {"nemotron_h_omni": nemotron_sizes}
CASES = {"nemotron_h_omni": (nemotron_h_omni, None, between), "nemotron_nano_vl": (nemotron_nano_vl, repository, between)}
