"""Videos: frames of one size, in the sizes and patches of transformers' video processors."""

import hashlib
import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, picture, planes
from .native import PIXELS_2, PIXELS_3, QWEN, ROPE_2, SEEN_2_5, SEEN_3, TEXT_2, TEXT_3_MOE, qwen

VIDEO = QWEN["video_token_id"]
# As a file has them: frames, at so many a second. Three frames are two rows of patches.
FIRST = dict(frames=["webp_lossless_70x50.webp", "webp_lossy_alpha_70x50.webp", "webp_lossy_alpha_70x50.webp", "webp_lossless_70x50.webp"], fps=2)
ODD = dict(frames=["grey_33x57.jpg", "grey_33x57.png", "grey_33x57.jpg"], fps=3)
PICTURES = [[FIRST], ["rgb_120x90.jpg", ODD], [ODD, FIRST]]


def processor_of(pixels, of_all_frames):
    if of_all_frames:
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor as kind
    else:
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor as kind
    keys = ("size", "min_pixels", "max_pixels", "patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")
    own = {k: pixels[k] for k in keys if k in pixels}
    if "min_pixels" in own:
        own.pop("size", None)
    return kind(**own, do_sample_frames=False, do_resize=False, do_rescale=False, do_normalize=False)


def patches(frames, pixels, of_all_frames):
    processor = processor_of(pixels, of_all_frames)
    out = processor([resized(frames, processor, of_all_frames)], return_tensors="pt")
    return out["pixel_values_videos"], out["video_grid_thw"]


def resized(frames, processor, cap):
    """Frames as numbers, in sizes of the video processor; resized and rounded as by image processors with Pillow."""
    if cap:
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize
        more = dict(num_frames=len(frames), temporal_factor=2)
    else:
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import smart_resize
        more = {}
    w, h = frames[0].size
    size = processor.size
    h, w = smart_resize(height=h, width=w, factor=processor.patch_size * processor.merge_size, min_pixels=size.shortest_edge, max_pixels=size.longest_edge, **more)
    shown = [planes(f.resize((w, h), Image.BICUBIC), processor.image_mean, processor.image_std) for f in frames]
    return torch.tensor(np.stack(shown))


def with_videos(config, cls, pixels, of_all_frames, texts):
    """`texts`: tokens before each row of a video, whose frames are apart; 0: they are not."""
    of_images = qwen(config, cls, pixels)[3]

    def inputs(media):
        kwargs, image_spans = of_images([m for m in media if not isinstance(m, dict)]) if any(not isinstance(m, dict) for m in media) else ({}, [])
        spans, values, grids, seconds = [], [], [], []
        for m in media:
            if not isinstance(m, dict):
                spans.append(image_spans.pop(0))
                continue
            value, grid = patches(m["frames"], pixels, of_all_frames)
            values.append(value)
            grids.append(grid)
            seconds.append(2 / m["fps"])
            t, h, w = grid[0].tolist()
            if texts:
                spans.append(sum(([7 + i] * texts + [321] + [VIDEO] * (h * w // 4) + [322] for i in range(t)), []))
            else:
                spans.append([321] + [VIDEO] * (t * h * w // 4) + [322])
        if values:
            kwargs |= dict(pixel_values_videos=torch.cat(values), video_grid_thw=torch.cat(grids))
            if config.model_type == "qwen2_5_vl":
                kwargs["second_per_grid_ts"] = torch.tensor(seconds)
        return kwargs, spans

    return config, cls, pixels, inputs


def features(model, kwargs):
    """Of images, then of videos: embeddings, and those of the first layers."""
    seen = [model.model.get_video_features(kwargs["pixel_values_videos"], kwargs["video_grid_thw"], return_dict=True)]
    if "pixel_values" in kwargs:
        seen.insert(0, model.model.get_image_features(kwargs["pixel_values"], kwargs["image_grid_thw"], return_dict=True))
    join = lambda x: torch.cat(list(x)) if isinstance(x, (list, tuple)) else x
    levels = [getattr(s, "deepstack_features", None) for s in seen]
    return torch.cat([join(s.pooler_output) for s in seen]), [torch.cat([join(x) for x in l]) for l in zip(*levels)] if levels[0] else []


def preprocessed(images, inputs):
    """Numbers of whole videos."""
    out = []
    for v in FIRST, ODD:
        kwargs = inputs([dict(v, frames=[picture(images, f) for f in v["frames"]])])[0]
        x = kwargs["pixel_values_videos"].float().numpy()
        digest = hashlib.sha256(np.ascontiguousarray(x, dtype="<f4").tobytes()).hexdigest()
        out.append(dict(video=v, pixel_values=dict(shape=list(x.shape), sha256=digest)))
    return out


def typed(spans, text):
    ids = [1] + text(3)
    for s in spans:
        ids += s + text(2)
    ids += text(4)
    kinds = {IMAGE: 1, VIDEO: 2}
    return ids, dict(mm_token_type_ids=lambda n: [kinds.get(i, 0) for i in ids] + [0] * (n - len(ids)))


def qwen2_vl():
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    seen = dict(embed_dim=16, hidden_size=32, depth=2, num_heads=2, mlp_ratio=2, patch_size=8)
    config = Qwen2VLConfig(text_config=TEXT_2, vision_config=seen, tie_word_embeddings=True, **QWEN)
    return with_videos(config, Qwen2VLForConditionalGeneration, PIXELS_2, False, 0)


def qwen2_5_vl():
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config = Qwen2_5_VLConfig(text_config=TEXT_2, vision_config=SEEN_2_5 | dict(tokens_per_second=2), tie_word_embeddings=True, **QWEN)
    return with_videos(config, Qwen2_5_VLForConditionalGeneration, PIXELS_2, False, 0)


def qwen3_vl():
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text = TEXT | dict(rope_parameters=ROPE_2 | {"mrope_interleaved": True})
    config = Qwen3VLConfig(text_config=text, vision_config=SEEN_3, tie_word_embeddings=True, **QWEN)
    return with_videos(config, Qwen3VLForConditionalGeneration, PIXELS_3, True, 3)


CASES = {
    "qwen2_vl_video": (qwen2_vl, None, typed),
    "qwen2_5_vl_video": (qwen2_5_vl, None, typed),
    "qwen3_vl_video": (qwen3_vl, None, typed),
}
