"""dots.ocr, which transformers does not have: Qwen 2 behind a tower that is described here."""

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM
from .base import IMAGE, TEXT, between
from .native import PIXELS_2, qwen


class DotsConfig(Qwen2Config):
    model_type = "dots_ocr"


def turned(x, angles):
    """Element i of a head and that half a head further turn by angle i."""
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.heads = v["num_attention_heads"]
        self.qkv = nn.Linear(v["embed_dim"], 3 * v["embed_dim"], bias=v["use_bias"])
        self.proj = nn.Linear(v["embed_dim"], v["embed_dim"], bias=v["use_bias"])

    def forward(self, x, angles):
        q, k, t = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        seen = nn.functional.scaled_dot_product_attention(*(y.transpose(0, 1) for y in (turned(q, angles), turned(k, angles), t)))
        return self.proj(seen.transpose(0, 1).flatten(1))


class Gated(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.fc1 = nn.Linear(v["embed_dim"], v["intermediate_size"], bias=v["use_bias"])
        self.fc2 = nn.Linear(v["intermediate_size"], v["embed_dim"], bias=v["use_bias"])
        self.fc3 = nn.Linear(v["embed_dim"], v["intermediate_size"], bias=v["use_bias"])

    def forward(self, x):
        return self.fc2(nn.functional.silu(self.fc1(x)) * self.fc3(x))


class Block(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(v["embed_dim"], v["rms_norm_eps"]) for _ in range(2))
        self.attn, self.mlp = Attention(v), Gated(v)

    def forward(self, x, angles):
        x = x + self.attn(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.side = v["patch_size"]
        self.proj = nn.Conv2d(3, v["embed_dim"], self.side, self.side)
        self.norm = nn.RMSNorm(v["embed_dim"], v["rms_norm_eps"])

    def forward(self, rows):
        return self.norm(self.proj(rows.view(len(rows), 3, self.side, self.side)).flatten(1))


class Merger(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.joined = v["embed_dim"] * v["spatial_merge_size"] ** 2
        self.ln_q = nn.LayerNorm(v["embed_dim"], 1e-6)
        self.mlp = nn.Sequential(nn.Linear(self.joined, self.joined), nn.GELU(), nn.Linear(self.joined, v["hidden_size"]))

    def forward(self, x):
        return self.mlp(self.ln_q(x).view(-1, self.joined))


class Tower(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.merge, self.each = v["spatial_merge_size"], v["embed_dim"] // v["num_attention_heads"]
        self.patch_embed = nn.Module()
        self.patch_embed.patchifier = Patches(v)
        self.blocks = nn.ModuleList(Block(v) for _ in range(v["num_hidden_layers"]))
        self.post_trunk_norm = nn.RMSNorm(v["embed_dim"], v["rms_norm_eps"]) if v["post_norm"] else nn.Identity()
        self.merger = Merger(v)

    def angles(self, rows, cols):
        """The first half of the angles are a patch's row times frequencies, the second its column; patches of a cell are adjacent."""
        m, n = self.merge, self.each // 4
        at = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).view(rows // m, m, cols // m, m, 2).transpose(1, 2).reshape(-1, 2)
        by = 10000.0 ** -(torch.arange(n) / n)
        return (at[:, :, None] * by).flatten(1)

    def forward(self, pixels, grids):
        out = []
        for rows, grid in zip(pixels.split(grids.prod(-1).tolist()), grids.tolist()):
            x, angles = self.patch_embed.patchifier(rows), self.angles(*grid[1:])
            for block in self.blocks:
                x = block(x, angles)
            out.append(self.merger(self.post_trunk_norm(x)))
        return torch.cat(out)


class Seen:
    def __init__(self, rows):
        self.pooler_output = rows


class Dots(Qwen2ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.vision_tower = Tower(config.vision_config)
        self.model.get_image_features = lambda pixel_values, image_grid_thw, **_: Seen(self.vision_tower(pixel_values, image_grid_thw))

    def forward(self, input_ids, pixel_values=None, image_grid_thw=None):
        x = self.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            x = x.masked_scatter((input_ids == IMAGE)[..., None], self.vision_tower(pixel_values, image_grid_thw))
        return super().forward(inputs_embeds=x)


def dots_ocr(**more):
    seen = dict(
        embed_dim=16, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_channels=3, patch_size=8,
        post_norm=True, rms_norm_eps=1e-5, spatial_merge_size=2, temporal_patch_size=1, use_bias=False, is_causal=False,
    )
    text = {k: x for k, x in TEXT.items() if k != "head_dim"}
    config = DotsConfig(**text, vision_config=seen | more, image_token_id=IMAGE, video_token_id=323)
    pixels = {k: v for k, v in PIXELS_2.items() if k != "size"} | dict(temporal_patch_size=1, min_pixels=1024, max_pixels=8192)
    return qwen(config, Dots, pixels)


CASES = {"dots_ocr": (dots_ocr, None, between)}
