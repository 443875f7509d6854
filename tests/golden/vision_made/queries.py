"""Families whose patches are read by learned queries."""

import numpy as np, torch
from .base import IMAGE, TEXT, between


def blip2():
    from transformers import Blip2Config, Blip2ForConditionalGeneration, OPTConfig
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    class AlsoText(Blip2ForConditionalGeneration):
        def forward(self, input_ids, pixel_values=None):
            if pixel_values is None:
                return self.language_model(input_ids=input_ids)
            return super().forward(input_ids=input_ids, pixel_values=pixel_values)

    text = OPTConfig(
        vocab_size=324, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=2048,
        word_embed_proj_dim=32, bos_token_id=2, eos_token_id=2, pad_token_id=1,
    )
    seen = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=8)
    asks = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40, vocab_size=1)
    config = Blip2Config(
        text_config=text.to_dict(), vision_config=seen, qformer_config=asks, num_query_tokens=5, image_token_index=IMAGE,
    )
    pre = dict(size=dict(height=32, width=32), resample=3)
    processor = BlipImageProcessorPil(**pre)

    def inputs(pictures):
        pixels = processor(pictures, return_tensors="np")["pixel_values"]
        return dict(pixel_values=torch.tensor(pixels)), [[IMAGE] * 5 for _ in pictures]

    return config, AlsoText, pre, inputs


def blip2_t5():
    """An encoder reads features and text."""
    from transformers import Blip2Config, Blip2ForConditionalGeneration, T5Config

    _, _, pre, inputs = blip2()
    text = T5Config(
        vocab_size=324, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, decoder_start_token_id=0,
    )
    old = blip2()[0]
    config = Blip2Config(
        text_config=text.to_dict(), vision_config=old.vision_config.to_dict(), qformer_config=old.qformer_config.to_dict(),
        num_query_tokens=5, image_token_index=IMAGE,
    )
    return config, Blip2ForConditionalGeneration, pre, inputs


def before_eos(spans, text):
    return sum(spans, []) + text(9) + [1], {}


def before_bos(spans, text):
    """Pictures precede the token that begins the text."""
    return sum(spans, []) + [2] + text(9), {}


def aria():
    from transformers import AriaConfig, AriaForConditionalGeneration, AriaTextConfig
    from transformers.models.aria.image_processing_pil_aria import AriaImageProcessorPil

    text = AriaTextConfig(**TEXT | dict(tie_word_embeddings=False), moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1)
    seen = dict(
        model_type="idefics3_vision", hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
        image_size=980, patch_size=49,
    )
    config = AriaConfig(
        text_config=text.to_dict(), vision_config=seen, projector_patch_to_query_dict={100: 5, 400: 6, 900: 9}, image_token_index=IMAGE,
    )
    pre = dict(max_image_size=980, min_image_size=336, split_image=False, resample=3)
    processor = AriaImageProcessorPil(**pre)

    def inputs(pictures):
        out = [processor(p, return_tensors="np") for p in pictures]
        join = lambda key: torch.tensor(np.concatenate([o[key] for o in out]))
        return dict(pixel_values=join("pixel_values"), pixel_mask=join("pixel_mask")), [[IMAGE] * 6 for _ in pictures]

    return config, AriaForConditionalGeneration, pre, inputs


def seen_patches(kwargs, patch=49):
    """Aria's square without patches that have nothing of the picture."""
    mask = kwargs["pixel_mask"][0]
    up = lambda n: -(-int(n) // patch) * patch
    return kwargs["pixel_values"].float()[:, :, : up(mask.any(1).sum()), : up(mask.any(0).sum())].numpy()


CASES = {
    "blip2": (blip2, None, before_bos), "blip2_t5": (blip2_t5, None, before_eos), "aria": (aria, None, between),
}
