"""Florence-2: an encoder reads the picture and the text."""

import torch
from .base import IMAGE

BOS, EOS = 0, 2


def florence2():
    from transformers import BartConfig, Florence2Config, Florence2ForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    text = BartConfig(
        vocab_size=324, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=256, scale_embedding=False, decoder_start_token_id=EOS,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=1, forced_eos_token_id=None,
    )
    seen = dict(
        depths=[1, 1, 2, 1], embed_dim=[8, 16, 16, 24], num_heads=[2, 2, 4, 3], num_groups=[2, 4, 2, 3], window_size=5, mlp_ratio=2.0,
        projection_dim=32, max_position_embeddings=12, max_temporal_embeddings=6,
    )
    config = Florence2Config(text_config=text.to_dict(), vision_config=seen, image_token_id=IMAGE, tie_word_embeddings=True)
    pre = dict(
        size=dict(height=96, width=96), resample=3, do_center_crop=False, image_seq_length=10, image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    processor = CLIPImageProcessorPil(**{k: v for k, v in pre.items() if k != "image_seq_length"})

    def inputs(pictures):
        pixels = processor(pictures, return_tensors="np")["pixel_values"]
        return dict(pixel_values=torch.tensor(pixels)), [[IMAGE] * 10 for _ in pictures]

    return config, Florence2ForConditionalGeneration, pre, inputs


def framed(spans, text):
    return sum(spans, []) + [BOS] + text(9) + [EOS], {}


def run(model, ids, kwargs, new, features_of):
    """The encoder's rows, and greedy tokens behind the decoder's first one."""
    read, out = torch.tensor([ids]), {}
    florence = model.config.model_type == "florence2"
    text = model.model.language_model if florence else model.language_model
    start = model.config.get_text_config(decoder=True).decoder_start_token_id
    rows = text.get_input_embeddings()(read)
    if kwargs:
        seen = model.get_image_features(**kwargs).pooler_output
        rows = rows.masked_scatter((read == IMAGE)[..., None], seen)
    encoded = text.encoder(inputs_embeds=rows)
    head = model if florence else text
    out["features"] = features_of(encoded.last_hidden_state[0])
    greedy, margin = [], 9e9
    for i in range(new):
        logits = head(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[start] + greedy])).logits[0, -1].float()
        if i == 0:
            out["last_logits"] = [round(x, 6) for x in logits.tolist()]
        top = logits.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
    return out | dict(greedy_ids=greedy, greedy_min_margin=round(margin, 6))


CASES = {"florence2": (florence2, None, framed)}
