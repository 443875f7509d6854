"""Videos: frames of one size, in the sizes and patches of transformers' video processors."""

import hashlib
import numpy as np, torch
from PIL import Image
from .base import IMAGE, TEXT, between, picture, planes
from .native import GLM, GLM_SEEN, PIXELS_2, PIXELS_3, QWEN, ROPE_2, SEEN_2_5, SEEN_3, TEXT_2, TEXT_3_MOE, gemma4, glm, planes_of_patches, qwen, qwen4_exp
from .tiles import internvl

VIDEO = QWEN["video_token_id"]
# As a file has them: frames, at so many a second. Three frames are two rows of patches.
FIRST = dict(frames=["webp_lossless_70x50.webp", "webp_lossy_alpha_70x50.webp", "webp_lossy_alpha_70x50.webp", "webp_lossless_70x50.webp"], fps=2)
ODD = dict(frames=["grey_33x57.jpg", "grey_33x57.png", "grey_33x57.jpg"], fps=3)
PICTURES = [[FIRST], ["rgb_120x90.jpg", ODD], [ODD, FIRST]]


PAIR, ONE = FIRST | dict(frames=FIRST["frames"][:2]), ODD | dict(frames=ODD["frames"][:1])
PICTURES_OF = {
    "glm4v_video": [[FIRST], [ODD], [ODD, FIRST]], "glm46v_video": [[FIRST], [ODD], [ODD, FIRST]],  # transformers takes no images beside them
    "gemma4_video": [[PAIR], ["rgb_120x90.jpg", ONE], [ONE, PAIR]],  # each frame has 70 features
}


def processor_of(pixels, of_all_frames):
    if of_all_frames == "glm":
        from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor as kind
    elif of_all_frames:
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
    if cap == "glm":
        from transformers.models.glm4v.video_processing_glm4v import smart_resize
        more = dict(num_frames=len(frames), temporal_factor=2)
    elif cap:
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
    of_videos = ("pixel_values_videos", "video_grid_thw", "video_position_ids", "num_frames_per_video")
    pick = lambda keys: {k: kwargs[k] for k in keys if k in kwargs}
    seen = [model.model.get_video_features(**pick(of_videos), return_dict=True)]
    if "pixel_values" in kwargs:
        seen.insert(0, model.model.get_image_features(**pick(k for k in kwargs if k not in of_videos), return_dict=True))
    join = lambda x: torch.cat(list(x)) if isinstance(x, (list, tuple)) else x
    levels = [getattr(s, "deepstack_features", None) for s in seen]
    return torch.cat([join(s.pooler_output) for s in seen]), [torch.cat([join(x) for x in l]) for l in zip(*levels)] if levels[0] else []


def preprocessed(images, inputs, order=None):
    """Numbers of whole videos. `order`: of their patches."""
    out = []
    for v in FIRST, ODD:
        kwargs = inputs([dict(v, frames=[picture(images, f) for f in v["frames"]])])[0]
        x = np.concatenate(frame_planes(kwargs)) if "video_position_ids" in kwargs else kwargs["pixel_values_videos" if "pixel_values_videos" in kwargs else "pixel_values"].float().numpy()
        x = order(torch.tensor(x), kwargs["video_grid_thw"]).numpy() if order else x
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


def qwen4_video():
    """N-grams read the ids of a video's tokens and of its times."""
    config, cls, pixels, _ = qwen4_exp()
    return with_videos(config, cls, pixels, True, 3)


def glm_frames(spans, text):
    """Tokens of frames are those of images; which they are is between which tokens they stand, as in Glm4vProcessor."""
    ids, _ = typed(spans, text)
    kinds, film = [], False
    for i in ids:
        film = film and i != GLM["video_end_token_id"] or i == GLM["video_start_token_id"]
        kinds.append((1 + film) * (i == IMAGE))
    return ids, dict(mm_token_type_ids=lambda n: kinds + [0] * (n - len(ids)))


def glm_video(config, cls):
    pixels = glm(config, cls)[2]

    def inputs(media):
        spans, values, grids = [], [], []
        for m in media:
            if not isinstance(m, dict):  # the preprocessing of images
                return glm(config, cls)[3](media)
            value, grid = patches(m["frames"], pixels, "glm")
            t, h, w = grid[0].tolist()
            values.append(value)
            grids.append(grid)
            frame = lambda i: [321] + [IMAGE] * (h * w // 4) + [322, 7 + i]
            spans.append([GLM["video_start_token_id"]] + sum(map(frame, range(t)), []) + [GLM["video_end_token_id"]])
        return dict(pixel_values_videos=torch.cat(values), video_grid_thw=torch.cat(grids)) if values else {}, spans

    return config, cls, pixels, inputs


def glm4v_video():
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}
    config = Glm4vConfig(text_config=TEXT | dict(head_dim=None, rope_parameters=rope), vision_config=GLM_SEEN, **GLM)
    return glm_video(config, Glm4vForConditionalGeneration)


def glm46v_video():
    from transformers import Glm46VConfig, Glm46VForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}
    text = TEXT | dict(model_type="glm4v_text", head_dim=None, rope_parameters=rope)
    config = Glm46VConfig(text_config=text, vision_config=GLM_SEEN | dict(model_type="glm4v_vision"), **GLM)
    return glm_video(config, Glm46VForConditionalGeneration)


def frame_planes(kwargs):
    """[3][H][W] of each frame of Gemma 4."""
    each = zip(kwargs["pixel_values_videos"], kwargs["video_position_ids"])
    return [planes_of_patches(dict(pixel_values=x[None], image_position_ids=at[None])).numpy() for x, at in each]


def gemma4_video(text):
    """A frame is prepared as an image."""
    config, cls, pre, of_images = gemma4(text, {})
    config.audio_token_id = 319

    def inputs(media):
        images, kwargs, spans = [m for m in media if not isinstance(m, dict)], {}, []
        film = [of_images(m["frames"]) for m in media if isinstance(m, dict)]
        if images:
            kwargs, of = of_images(images)
        if film:
            join = lambda key: torch.cat([k[key] for k, _ in film])
            kwargs |= dict(
                pixel_values_videos=join("pixel_values"), video_position_ids=join("image_position_ids"),
                num_frames_per_video=torch.tensor([len(k["pixel_values"]) for k, _ in film]),
            )
        for m in media:
            if isinstance(m, dict):
                frames = film.pop(0)[1]
                spans.append(sum(([7, 8 + i] + [VIDEO if t == IMAGE else t for t in f] for i, f in enumerate(frames)), []))
            else:
                spans.append(of.pop(0))
        return kwargs, spans

    return config, cls, pre, inputs


def internvl_video():
    """A frame is a tile."""
    config, cls, pre, of_images = internvl()

    def inputs(media):
        values, spans = [], []
        for m in media:
            if isinstance(m, dict):
                frames = [planes(f.resize((32, 32), Image.BICUBIC), pre["image_mean"], pre["image_std"]) for f in m["frames"]]
                values.append(torch.tensor(np.stack(frames)))
                spans.append(sum(([7 + i, 321] + [IMAGE] * 4 + [322] for i in range(len(frames))), []))
            else:
                kwargs, of = of_images([m])
                values.append(kwargs["pixel_values"])
                spans += of
        return dict(pixel_values=torch.cat(values)), spans

    return config, cls, pre, inputs


def smolvlm_video():
    """A frame is an image that is not split."""
    from transformers import LlamaConfig, SmolVLMConfig, SmolVLMForConditionalGeneration
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    seen = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=8)
    config = SmolVLMConfig(
        text_config=LlamaConfig(**TEXT).to_dict(), vision_config=seen, image_token_id=IMAGE, scale_factor=2, tie_word_embeddings=True, pad_token_id=0,
    )
    pre = dict(
        size=dict(longest_edge=64), max_image_size=dict(longest_edge=32), resample=1, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        video_sampling=dict(fps=1, max_frames=64, video_size=dict(longest_edge=48)),
    )
    processor = SmolVLMImageProcessorPil(**{k: v for k, v in pre.items() if k != "video_sampling"})

    def frame(f):
        from transformers.models.smolvlm.video_processing_smolvlm import get_resize_output_image_size
        h, w = get_resize_output_image_size(torch.zeros(3, f.height, f.width), 48)
        return planes(f.resize((w, h), Image.LANCZOS).resize((32, 32), Image.LANCZOS), pre["image_mean"], pre["image_std"])

    def inputs(media):
        values, spans = [], []
        for m in media:
            if isinstance(m, dict):
                values.append(torch.tensor(np.stack([frame(f) for f in m["frames"]])))
                spans.append(sum(([7 + i, 321] + [IMAGE] * 4 + [322] for i in range(len(m["frames"]))), []))
            else:
                values.append(processor(m, return_tensors="pt")["pixel_values"][0])
                spans.append(sum(([8, 321] + [IMAGE] * 4 for _ in values[-1]), []) + [322])
        return dict(pixel_values=torch.cat(values)[None]), spans

    return config, SmolVLMForConditionalGeneration, pre, inputs


CASES = {
    "smolvlm_video": (smolvlm_video, None, between),
    "glm4v_video": (glm4v_video, None, glm_frames),
    "glm46v_video": (glm46v_video, None, glm_frames),
    "gemma4_video": (
        lambda: gemma4_video(
            dict(
                num_hidden_layers=3, hidden_size_per_layer_input=0, use_bidirectional_attention="vision", attention_k_eq_v=True,
                num_global_key_value_heads=1,
            )
        ),
        None, typed,
    ),
    "internvl_video": (internvl_video, None, between),
    "qwen2_vl_video": (qwen2_vl, None, typed),
    "qwen2_5_vl_video": (qwen2_5_vl, None, typed),
    "qwen3_vl_video": (qwen3_vl, None, typed),
    "qwen4_exp_video": (qwen4_video, None, typed),
}
