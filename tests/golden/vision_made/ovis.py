"""Ovis 2.5, which transformers does not have: Qwen 3 behind a tower that is described here, as its authors' code has it."""

import math
import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from .base import IMAGE, TEXT, between
from .dots import Seen, turned

SEEN = dict(
    model_type="siglip2_navit", hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_channels=3, num_patches=-1,
    image_size=40, patch_size=8, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, hidden_stride=2, window_size=112, fullatt_block_indexes=None,
    temporal_patch_size=1, preserve_original_pe=True, use_rope=True,
)
WORDS, AROUND = 48, 4
LEAST, MOST = 448 * 448, 1344 * 1792
LESS = dict(min_pixels=2048, max_pixels=16384)
PIXELS = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3)


class OvisConfig(Qwen3Config):
    model_type = "ovis2_5"


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, angles):
        q, k, v = (p(x).view(len(x), self.heads, -1) for p in (self.q_proj, self.k_proj, self.v_proj))
        seen = nn.functional.scaled_dot_product_attention(*(y.transpose(0, 1) for y in (turned(q, angles), turned(k, angles), v)))
        return self.out_proj(seen.transpose(0, 1).flatten(1))


class Block(nn.Module):
    def __init__(self, v):
        super().__init__()
        n = v["hidden_size"]
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(n, v["layer_norm_eps"]) for _ in range(2))
        self.self_attn = Attention(n, v["num_attention_heads"])
        self.mlp = nn.ModuleDict(dict(fc1=nn.Linear(n, v["intermediate_size"]), fc2=nn.Linear(v["intermediate_size"], n)))

    def forward(self, x, angles):
        x = x + self.self_attn(self.layer_norm1(x), angles)
        return x + self.mlp.fc2(nn.functional.gelu(self.mlp.fc1(self.layer_norm2(x)), approximate="tanh"))


class Navit(nn.Module):
    def __init__(self, v):
        super().__init__()
        n, p = v["hidden_size"], v["patch_size"]
        self.side, self.each = v["image_size"] // p, n // v["num_attention_heads"]
        self.embeddings = nn.ModuleDict(dict(patch_embedding=nn.Conv2d(3, n, p, p), position_embedding=nn.Embedding(self.side**2, n)))
        self.encoder = nn.ModuleDict(dict(layers=nn.ModuleList(Block(v) for _ in range(v["num_hidden_layers"]))))
        self.post_layernorm = nn.LayerNorm(n)  # in its files; features do not pass it

    def forward(self, planes):
        """Rows of one picture in raster order."""
        x = self.embeddings.patch_embedding(planes[None])
        rows, cols = x.shape[2:]
        table = self.embeddings.position_embedding.weight.view(1, self.side, self.side, -1).permute(0, 3, 1, 2)
        x = (x + nn.functional.interpolate(table, (rows, cols), mode="bicubic", align_corners=False)).flatten(2)[0].T
        at = torch.cartesian_prod(torch.arange(rows), torch.arange(cols))
        angles = (at[:, :, None] * 10000.0 ** -(torch.arange(self.each // 4) / (self.each // 4))).flatten(1)
        for block in self.encoder.layers:
            x = block(x, angles)
        return x.view(rows, cols, -1)


class Ovis(Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        v = config.vit_config
        joined = v["hidden_size"] * v["hidden_stride"] ** 2
        head = nn.Sequential(nn.Linear(joined, WORDS - AROUND, bias=False), nn.LayerNorm(WORDS - AROUND))
        self.visual_tokenizer = nn.ModuleDict(dict(vit=nn.ModuleDict(dict(vision_model=Navit(v))), head=head))
        self.vte = nn.Embedding(WORDS, config.hidden_size)
        self.model.get_image_features = lambda pixel_values, **_: Seen(torch.cat([self.features(p) for p in pixel_values]))

    def features(self, planes):
        x, n = self.visual_tokenizer.vit.vision_model(planes), self.config.vit_config["hidden_stride"]
        rows, cols = x.shape[0] // n, x.shape[1] // n
        cells = x.view(rows, n, cols, n, -1).transpose(1, 2).reshape(rows * cols, -1)
        words = self.visual_tokenizer.head(cells).softmax(-1)
        table = self.vte.weight
        return torch.cat([table[-AROUND : -AROUND + 1], words @ table[:-AROUND], table[-AROUND + 1 : -AROUND + 2]])

    def forward(self, input_ids, pixel_values=None):
        x = self.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            x = x.masked_scatter((input_ids == IMAGE)[..., None], torch.cat([self.features(p) for p in pixel_values]))
        return super().forward(inputs_embeds=x)


def fit(h, w, unit, least=LEAST, most=MOST):
    """The size to which a picture is resized."""
    if h < unit or w < unit:
        h, w = (unit, round(unit / h * w)) if h < w else (round(unit / w * h), unit)
    elif max(h, w) / min(h, w) > 200:
        h, w = (200 * w, w) if h > w else (h, 200 * h)
    high, wide = round(h / unit) * unit, round(w / unit) * unit
    if high * wide > most:
        by = math.sqrt(h * w / most)
        high, wide = math.floor(h / by / unit) * unit, math.floor(w / by / unit) * unit
    elif high * wide < least:
        by = math.sqrt(least / (h * w))
        high, wide = math.ceil(h * by / unit) * unit, math.ceil(w * by / unit) * unit
    if not high * wide:
        raise ValueError("no feature")
    return high, wide


def ovis2_5():
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    config = OvisConfig(**TEXT, vit_config=SEEN, image_token_id=IMAGE, visual_vocab_size=WORDS)
    processor, unit = SiglipImageProcessorPil(**PIXELS), SEEN["patch_size"] * SEEN["hidden_stride"]

    def inputs(pictures):
        planes = []
        for p in pictures:
            high, wide = fit(p.height, p.width, unit, *LESS.values())
            planes.append(processor(p, size=dict(height=high, width=wide), return_tensors="pt")["pixel_values"][0])
        return dict(pixel_values=planes), [[IMAGE] * (x.shape[1] * x.shape[2] // unit**2 + 2) for x in planes]

    return config, Ovis, PIXELS | LESS, inputs


def patches(planes):
    """A picture's patches, those of a feature one after the other."""
    p, n = SEEN["patch_size"], SEEN["hidden_stride"]
    c, h, w = planes.shape
    x = planes.reshape(c, h // (p * n), n, p, w // (p * n), n, p)
    return x.permute(1, 4, 2, 5, 0, 3, 6).reshape(1, -1)


def names(tensors, config, pre):
    text = {k: v for k, v in config.items() if k not in ("vit_config", "image_token_id", "visual_vocab_size")} | dict(model_type="qwen3")
    head = ("visual_tokenizer.", "vte.")
    tensors = {k if k.startswith(head) else "llm." + k: t for k, t in tensors.items()}
    return tensors, dict(
        model_type="ovis2_5", hidden_size=32, llm_config=text, vit_config=SEEN, visual_vocab_size=WORDS, image_token_id=IMAGE,
        tie_word_embeddings=True,
    ), pre


def sizes():
    """Grids of features at the hub's settings: see native.sizes()."""
    from .native import sizes as of

    return of(lambda h, w: fit(h, w, 32), 32)


SIZES = {"ovis2_5": sizes}
CASES = {"ovis2_5": (ovis2_5, names, between)}
