"""MiniCPM-V 2.6 and 4.5, which transformers does not have: a text model behind a tower and queries that are described here."""

import math
import torch
from PIL import Image
from torch import nn
from transformers import Idefics2VisionConfig, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer
from .base import IMAGE, SIGLIP, TEXT, between, planes
from .dots import Seen

SEEN = {k: v for k, v in SIGLIP.items() if k not in ("model_type", "vision_use_head")} | dict(image_size=44)


class Config2(Qwen2Config):
    model_type = "minicpmv"


class Config3(Qwen3Config):
    model_type = "minicpmv"


def places(rows, cols, width):
    """For each patch sines and cosines of its column, then those of its row."""
    n = width // 4
    turn = lambda at: torch.outer(torch.arange(at).float(), 1 / 10000 ** (torch.arange(n).float() / n))
    each = lambda at: torch.cat([turn(at).sin(), turn(at).cos()], 1)
    return torch.cat([each(cols).repeat(rows, 1), each(rows).repeat_interleave(cols, 0)], 1)


class Resampler(nn.Module):
    def __init__(self, queries, width, seen):
        super().__init__()
        self.query, self.proj = nn.Parameter(torch.zeros(queries, width)), nn.Parameter(torch.zeros(width, width))
        self.kv_proj = nn.Linear(seen, width, bias=False)
        self.attn = nn.MultiheadAttention(width, width // 128)
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(width, 1e-6) for _ in range(3))

    def forward(self, x, rows, cols):
        x = self.ln_kv(self.kv_proj(x))
        keys = x + places(rows, cols, x.shape[1])
        out, _ = self.attn(self.ln_q(self.query), keys, x, need_weights=False)
        return self.ln_post(out) @ self.proj


class Tower(Idefics2VisionTransformer):
    def forward(self, pixels, rows, cols):
        """A patch has the position of the element of the trained grid in which it begins."""
        side = self.config.image_size // self.config.patch_size
        bounds = torch.arange(1 / side, 1.0, 1 / side)
        at = lambda n: torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / n), bounds, right=True)
        ids = (at(rows)[:, None] * side + at(cols)).flatten()
        x = self.embeddings.patch_embedding(pixels[None]).flatten(2).transpose(1, 2) + self.embeddings.position_embedding(ids)
        return self.post_layernorm(self.encoder(inputs_embeds=x).last_hidden_state)[0]


def model_of(base):
    class Model(base):
        def __init__(self, config):
            super().__init__(config)
            seen = Idefics2VisionConfig(**config.vision_config)
            seen._attn_implementation = "eager"
            self.vpm = Tower(seen)
            self.resampler = Resampler(config.query_num, config.hidden_size, seen.hidden_size)
            self.model.get_image_features = lambda pixel_values, target_sizes, **_: Seen(self.seen(pixel_values, target_sizes))

        def seen(self, pixels, sizes):
            x, at, out, side = pixels[0], 0, [], pixels.shape[2]
            for h, w in sizes.tolist():
                crop = x[..., at : at + h * w * side].reshape(3, side, h, w, side).permute(0, 2, 1, 3, 4)
                out.append(self.resampler(self.vpm(crop.reshape(3, h * side, w * side), h, w), h, w))
                at += h * w * side
            return torch.cat(out)

        def forward(self, input_ids, pixel_values=None, target_sizes=None):
            x = self.get_input_embeddings()(input_ids)
            if pixel_values is not None:
                x = x.masked_scatter((input_ids == IMAGE)[..., None], self.seen(pixel_values, target_sizes))
            return super().forward(inputs_embeds=x)

    return Model


def whole(x, unit):
    return max(round(x / unit) * unit, unit)


def fit(w, h, side, patch, enlarge):
    if enlarge or w * h > side * side:
        ratio = w / h
        h = int(side / math.sqrt(ratio))
        w = int(h * ratio)
    return whole(w, patch), whole(h, patch)


def grid_of(w, h, side, most):
    """Columns and rows of slices; None: the picture is not cut."""
    n = min(math.ceil(w * h / side**2), most)
    if n < 2:
        return None
    grids = [(m, k // m) for k in (n - 1, n, n + 1) if 1 < k <= most for m in range(1, k + 1) if k % m == 0]
    return min(grids, key=lambda g: abs(math.log(w / h) - math.log(g[0] / g[1])))


def slices(p, side, patch, most):
    grid = grid_of(*p.size, side, most)
    out = [p.resize(fit(*p.size, side, patch, not grid), Image.BICUBIC)]
    if grid:
        cols, rows = grid
        w, h = fit(whole(p.width, cols) / cols, whole(p.height, rows) / rows, side, patch, True)
        all = p.resize((w * cols, h * rows), Image.BICUBIC)
        out += [all.crop((c * w, r * h, c * w + w, r * h + h)) for r in range(rows) for c in range(cols)]
    return out


def minicpmv(kind, base, version, width, **more):
    queries, patch = 5, 8
    text = TEXT | dict(hidden_size=width, num_hidden_layers=1)
    config = kind(
        **text, vision_config=SEEN, version=version, query_num=queries, image_size=64, patch_size=patch, use_image_id=False, slice_mode=True,
        drop_vision_last_layer=False, image_token_id=IMAGE, **more,
    )
    pre = dict(
        image_processor_type="MiniCPMVImageProcessor", max_slice_nums=4, scale_resolution=64, patch_size=patch, use_image_id=False,
        image_feature_size=queries, slice_mode=True, norm_mean=[0.5] * 3, norm_std=[0.5] * 3, version=version,
    )

    def inputs(pictures):
        flat, sizes, spans = [], [], []
        for p in pictures:
            cut = slices(p, 64, patch, 4)
            for s in cut:
                h, w = s.height // patch, s.width // patch
                x = torch.tensor(planes(s, 0.5, 0.5)).reshape(3, h, patch, w, patch)
                flat.append(x.permute(0, 2, 1, 3, 4).reshape(3, patch, -1))
                sizes.append([h, w])
            spans.append([317] + [IMAGE] * queries + [318] + ([321] + [IMAGE] * queries + [322]) * (len(cut) - 1))
        return dict(pixel_values=torch.cat(flat, -1)[None], target_sizes=torch.tensor(sizes)), spans

    return config, model_of(base), pre, inputs


def hub_names(tensors, config, pre):
    return {("llm." + k if k.startswith("model.") else k): t for k, t in tensors.items()}, config, pre


CASES = {
    "minicpmv2_6": (lambda: minicpmv(Config2, Qwen2ForCausalLM, 2.6, 256), hub_names, between),
    "minicpmv4_5": (lambda: minicpmv(Config3, Qwen3ForCausalLM, 4.5, 128), hub_names, between),
}
