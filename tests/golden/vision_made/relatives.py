"""Relatives of other families, which transformers does not have: a tower of one, a text model of another, and the names and keys
that their authors' files have, as vLLM reads them."""

import torch
from torch import nn
from .base import IMAGE, TEXT, between, typed
from .native import PIXELS_2, ROPE_2, SEEN_2_5, paddleocr_vl, paddleocr_vl_hub, qwen
from .saved import as_saved
from .step import step3p7
from .tiles import chat_names, internvl, llava_onevision


def interns1():
    """InternVL with Qwen 3."""
    from transformers import Qwen3Config

    config, cls, pre, inputs = internvl(norm_type="rms_norm", use_qk_norm=True, attention_bias=False)
    config.text_config = Qwen3Config(**TEXT)
    return config, cls, pre, inputs


def interns1_names(tensors, config, pre):
    return tensors, config | dict(model_type="interns1", vision_config=config["vision_config"] | dict(model_type="interns1_vision")), pre


def skywork_names(tensors, config, pre):
    tensors, config, pre = chat_names(tensors, config, pre)
    return tensors, config | dict(model_type="skywork_chat"), pre


def step3_vl():
    """Step 3.7's tower before Qwen 3."""
    from transformers import Qwen3Config, Step3p7ForConditionalGeneration
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

    config, _, pre, inputs = step3p7()

    class Step3VL(Step3p7ForConditionalGeneration):
        def __init__(self, config):
            super().__init__(config)
            self.model.language_model = Qwen3Model._from_config(Qwen3Config(**TEXT | dict(tie_word_embeddings=False)), attn_implementation="eager")

    return config, Step3VL, pre, inputs


def step3_vl_names(tensors, config, pre):
    """The tower's names of the published files, and the text model's beside it."""
    from transformers import Qwen3Config

    text = {k: t for k, t in tensors.items() if "language_model" in k or k.startswith("lm_head")}
    seen, config, pre = as_saved(step3p7)({k: t for k, t in tensors.items() if k not in text}, config, pre)
    keys = dict(
        model_type="perception_encoder", width=16, layers=2, heads=2, mlp_ratio=1.5, image_size=48, patch_size=4, hidden_act="quick_gelu",
        use_cls_token=False, use_ln_pre=True, use_ln_post=False, use_abs_posemb=True, use_rope2d=True, ls_init_value=0.1, output_dim=None,
    )
    text_keys = Qwen3Config(**TEXT | dict(tie_word_embeddings=False)).to_dict()
    text = {k.replace("model.language_model.", "model."): t for k, t in text.items()}
    return seen | text, dict(
        model_type="step_robotics", text_config=text_keys, vision_config=keys, image_token_id=IMAGE, projector_bias=False,
        understand_projector_stride=2, tie_word_embeddings=False,
    ), pre


def opencua():
    """Qwen2.5-VL's tower before Qwen 2, whose positions have one coordinate."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config = Qwen2_5_VLConfig(
        text_config=TEXT | dict(rope_parameters=ROPE_2), vision_config=SEEN_2_5, tie_word_embeddings=True, image_token_id=IMAGE,
        video_token_id=323, vision_start_token_id=321, vision_end_token_id=322,
    )

    class OneCoordinate(Qwen2_5_VLForConditionalGeneration):
        def forward(self, input_ids, **more):
            at = torch.arange(input_ids.shape[1]).expand(3, 1, -1)
            return super().forward(input_ids=input_ids, position_ids=at, **more)

    return qwen(config, OneCoordinate, PIXELS_2)


def opencua_names(tensors, config, pre):
    swaps = [("model.language_model.", "language_model.model."), ("model.visual.", "vision_tower."), ("lm_head", "language_model.lm_head")]
    renamed = {}
    for name, t in tensors.items():
        for a, b in swaps:
            if name.startswith(a):
                name = b + name[len(a) :]
                break
        renamed[name] = t
    drop = ("rope_scaling", "rope_parameters")
    text = {k: v for k, v in config["text_config"].items() if k not in drop} | dict(model_type="qwen2", rope_theta=10000.0)
    return renamed, dict(
        model_type="opencua", text_config=text, vision_config=config["vision_config"], media_placeholder_token_id=IMAGE,
        tie_word_embeddings=True,
    ), pre


class Normed(nn.Module):
    """A norm before the matrices of LLaVA-OneVision's projector."""

    def __init__(self, width, out, times):
        super().__init__()
        self.pre_norm = nn.LayerNorm(width, 1e-6)
        self.linear_1, self.linear_2 = nn.Linear(width, times * out), nn.Linear(times * out, out)

    def forward(self, x):
        return self.linear_2(nn.functional.gelu(self.linear_1(self.pre_norm(x))))


def onevision_normed(times, layer):
    """`layer`: hidden state of the tower that becomes features."""
    config, cls, pre, inputs = llava_onevision()
    config.vision_feature_layer = layer

    class Onevision(cls):
        def __init__(self, config):
            super().__init__(config)
            self.model.multi_modal_projector = Normed(config.vision_config.hidden_size, config.text_config.hidden_size, times)

    return config, Onevision, pre, inputs


def under(name):
    return lambda tensors, config, pre: (tensors, config | dict(model_type=name), pre)


class Joined(nn.Module):
    """Keye-VL 1.5: the norm is one of a cell's patches together."""

    def __init__(self, of):
        super().__init__()
        n = of.linear_1.in_features
        self.pre_norm, self.linear_1, self.linear_2 = nn.LayerNorm(n, 1e-5), of.linear_1, of.linear_2

    def forward(self, x, grids):
        out = []
        for rows, (_, h, w) in zip(x.split(grids.prod(-1).tolist()), grids.tolist()):
            cells = rows.view(h // 2, 2, w // 2, 2, -1).transpose(1, 2).reshape(h * w // 4, -1)
            out.append(self.linear_2(nn.functional.gelu(self.linear_1(self.pre_norm(cells)))))
        return torch.cat(out)


def keye(joined):
    """PaddleOCR-VL's tower before Qwen 3, whose coordinates rotate runs of elements, as those of Qwen2-VL."""
    from transformers import Qwen3VLTextConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel, Qwen3VLTextRotaryEmbedding

    class Runs(Qwen3VLTextRotaryEmbedding):
        def recomposition_frequencies(self, freq):
            runs = torch.cat([m[i] for i, m in enumerate(freq.split(self.mrope_section, -1))], -1)
            return torch.cat([runs, runs], -1)

    config, cls, pre, inputs = paddleocr_vl()

    class Keye(cls):
        def __init__(self, config):
            super().__init__(config)
            text = Qwen3VLTextConfig(**TEXT | dict(rope_parameters=ROPE_2))
            text._attn_implementation = "eager"
            self.model.language_model = Qwen3VLTextModel(text)
            self.model.language_model.rotary_emb = Runs(text)
            self.lm_head.weight = self.model.language_model.embed_tokens.weight
            if joined:
                self.model.projector = Joined(self.model.projector)

    return config, Keye, pre, inputs


def keye_names(name):
    def rename(tensors, config, pre):
        tensors, config, pre = paddleocr_vl_hub(tensors, config, pre)
        rope = dict(type="default", rope_type="default", mrope_section=ROPE_2["mrope_section"])
        text = {k: v for k, v in TEXT.items() if k != "rope_parameters"} | dict(rope_theta=10000.0, rope_scaling=rope, hidden_act="silu")
        ids = {k: v for k, v in config.items() if k.endswith("_token_id")}
        return tensors, ids | text | dict(model_type=name, vision_config=config["vision_config"] | dict(model_type=name)), pre

    return rename


CASES = {
    "interns1": (interns1, interns1_names, between),
    "skywork_chat": (lambda: internvl(), skywork_names, between),
    "step3_vl": (step3_vl, step3_vl_names, between),
    "opencua": (opencua, opencua_names, between),
    "r_4b": (lambda: onevision_normed(1, -2), under("R"), between),
    "bee": (lambda: onevision_normed(4, -1), under("bee"), between),
    "keye": (lambda: keye(False), keye_names("Keye"), typed),
    "keye1_5": (lambda: keye(True), keye_names("KeyeVL1_5"), typed),
}
