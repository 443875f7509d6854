"""Families whose published files have other names than transformers has in memory; it writes the published ones."""

from .base import IMAGE, TEXT, between
from .native import mistral3_latent, pixtral_inputs


def as_saved(build):
    """The names that transformers writes, which are those of the published files."""
    from transformers.core_model_loading import revert_weight_conversion

    def rename(tensors, config, pre):
        made, cls, _, _ = build()
        return {k: v.contiguous() for k, v in revert_weight_conversion(cls(made), tensors).items()}, config, pre

    return rename


def mistral_large4():
    """Layers that read the latents of earlier ones, with learned frequencies and without a rotation, behind the tower of Mistral 3."""
    from transformers import MistralLarge4Config, MistralLarge4ForConditionalGeneration

    rope = dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, attention_factor=1.0, beta_fast=32.0,
        beta_slow=1.0,
    )
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | dict(
        num_hidden_layers=4, num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, index_topk=24,
        index_n_heads=20, index_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, kv_source_layers=[0, 1, 1, 3],
        no_rope_layers=[0, 1, 1, 0], indexer_types=["full", "full", "shared", "full"], rope_parameters=rope, tie_word_embeddings=False,
    )
    _, _, pre, _ = mistral3_latent()
    seen = dict(
        model_type="pixtral", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, patch_size=4, image_size=96,
        hidden_act="silu",
    )
    config = MistralLarge4Config(
        text_config=text, vision_config=seen, image_token_index=IMAGE, spatial_merge_size=2, tie_word_embeddings=False,
    )
    return config, MistralLarge4ForConditionalGeneration, pre, pixtral_inputs(pre, 8)


CASES = {"mistral_large4": (mistral_large4, as_saved(mistral_large4), between)}
