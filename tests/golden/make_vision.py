#!/usr/bin/env python3
"""Tiny random checkpoints of vision models with golden.json, for the families that the reference data does not have.

    python tests/golden/make_vision.py IMAGES [NAME...]       into tests/data/vision/NAME

IMAGES is the folder of pictures of the reference data. Each folder gets config.json, preprocessor_config.json,
model.safetensors in bfloat16 and golden.json in the form of the reference data: ids, features, last_logits, greedy_ids
of transformers (eager attention, fp32 arithmetic, CPU). Needs torch and transformers 5; sizes are what keeps the files
small enough to be committed. tests/golden/vision/test_vision_models runs what it finds there."""

import hashlib, json, os, sys
import numpy as np, torch
from safetensors.torch import save_file
from vision_made import convolved, crossed, deepseek, docling, dots, ernie, florence, hunyuan, hunyuan_v4, kimi, lfm3, minicpm, minicpm_first, minimax, muse, native, nemotron, ovis, queries, relatives, saved, square, step, tiles, video
from vision_made.base import IMAGE, picture

CASES = convolved.CASES | crossed.CASES | deepseek.CASES | docling.CASES | dots.CASES | ernie.CASES | florence.CASES | hunyuan.CASES | hunyuan_v4.CASES | kimi.CASES | lfm3.CASES | lfm3.FILMS | minicpm.CASES | minicpm_first.CASES | minimax.CASES | muse.CASES | native.CASES | nemotron.CASES | queries.CASES | ovis.CASES | relatives.CASES | saved.CASES | square.CASES | step.CASES | tiles.CASES | video.CASES
SIZES = native.SIZES | ovis.SIZES | kimi.SIZES | muse.SIZES | nemotron.SIZES
SHAPES = ["rgb_120x90.jpg", "tall_14x210.png", "wide_300x20.png", "tiny_3x2.png", "portrait_300x500.jpg"]
SHAPES_OF = {"lighton_ocr": SHAPES[:3] + ["exact_56x56.png"] + SHAPES[4:]}  # without a picture of no feature
WHOLE_OF = {"llava_siglip": 32, "granite_vision": 32}  # what whole patches of a side of 36 cover
CHANNELS_LAST = ["cosmos3_edge"]  # in a patch; here channels come first
FRAMES_FIRST = {"muse_glimmer": 2, "muse_spark": 2}  # this many, before channels
PICTURES = [["rgb_120x90.jpg"], ["tall_14x210.png"], ["rgba_64x48.png", "exact_56x56.png"]]


def features_of(rows):
    rows = rows.double()
    pick = lambda r: [round(x, 7) for x in r.tolist()]
    return dict(
        shape=list(rows.shape), norms=[round(x, 6) for x in rows.norm(dim=1).tolist()], first=pick(rows[0]),
        middle=pick(rows[len(rows) // 2]), last=pick(rows[-1]),
    )


@torch.no_grad()
def run(model, names, folder, inputs, seed, layout, new):
    g = torch.Generator().manual_seed(seed)
    text = lambda n: torch.randint(3, 320, (n,), generator=g).tolist()
    read = lambda n: dict(n, frames=[picture(folder, f) for f in n["frames"]]) if isinstance(n, dict) else picture(folder, n)
    kwargs, spans = inputs([read(n) for n in names]) if names else ({}, [])
    ids, by_length = layout(spans, text)
    out = dict(images=names, ids=ids)
    if model.config.get_text_config(decoder=True).is_encoder_decoder:
        return out | florence.run(model, ids, kwargs, new, features_of)
    if "pixel_values_videos" in kwargs:
        f, levels = video.features(model, kwargs)
        out |= dict(features=features_of(f), **(dict(deepstack=[features_of(x) for x in levels]) if levels else {}))
    elif names:
        if model.config.model_type == "mllama":
            seen, f = None, crossed.mllama_features(model, kwargs)
        else:
            seen = getattr(model, "model", model).get_image_features(**kwargs, return_dict=True)
            f = seen.pooler_output
        if getattr(seen, "deepstack_features", None):
            out["deepstack"] = [features_of(torch.cat(list(x)) if isinstance(x, (list, tuple)) else x) for x in seen.deepstack_features]
        if model.config.model_type == "llama4":
            f = model.multi_modal_projector(model.get_image_features(**kwargs, return_dict=True).last_hidden_state)
        f = torch.cat(list(f)) if isinstance(f, (list, tuple)) else f
        f = f * getattr(model.config.get_text_config(), "embedding_multiplier", 1)  # as rows of the text model are
        out["features"] = features_of(f.reshape(-1, f.shape[-1]))
    greedy, margin = [], 9e9
    for i in range(new):
        more = {k: torch.tensor([f(len(ids) + i)]) for k, f in by_length.items()}
        logits = model(input_ids=torch.tensor([ids + greedy]), **kwargs, **more).logits[0, -1].float()
        if i == 0:
            out["last_logits"] = [round(x, 6) for x in logits.tolist()]
        top = logits.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
        if greedy[-1] == IMAGE or (greedy[-1] == video.VIDEO and "pixel_values_videos" in kwargs):  # it would ask for another picture
            margin = 0.0
            break
    return out | dict(greedy_ids=greedy, greedy_min_margin=round(margin, 6))


def preprocessed(images, pre, inputs, shapes, whole, last, frames, raster, model_type):
    """Numbers of whole pictures, of several shapes."""
    out = []
    for name in shapes:
        kwargs = inputs([picture(images, name)])[0]
        x = (native.planes_of_patches(kwargs) if "image_position_ids" in kwargs else kwargs["pixel_values"][0] if isinstance(kwargs["pixel_values"], list) else kwargs["pixel_values"].float()).numpy()
        x = ovis.patches(torch.tensor(x)).numpy() if isinstance(kwargs["pixel_values"], list) else x
        x = queries.seen_patches(kwargs) if "pixel_mask" in kwargs else x
        x = tiles.whole_patches(kwargs) if set(kwargs) == {"pixel_values", "pixel_attention_mask"} and kwargs["pixel_attention_mask"].dim() == 4 else x
        x = tiles.patches_of_crops(kwargs).numpy() if "spatial_shapes" in kwargs else x
        x = minicpm.planes_of_slices(kwargs) if "target_sizes" in kwargs else x
        x = step.crops(kwargs) if model_type == "step3p7" else deepseek.planes_of_views(kwargs) if "num_local_patches" in kwargs else x
        x = lfm3.raster(torch.tensor(x), kwargs["image_grid_thw"]).numpy() if raster else x
        x = x.reshape(len(x), -1) if "image_grid_thw" in kwargs else x
        x = x.reshape(len(x), -1, 3).transpose(0, 2, 1).reshape(x.shape) if last else x
        x = x.reshape(len(x), frames, 3, -1).transpose(0, 2, 1, 3).reshape(x.shape) if frames else x
        x = x[0, 0, : kwargs["aspect_ratio_mask"].sum()] if "aspect_ratio_mask" in kwargs else x
        x = x[..., :whole, :whole] if whole else x
        digest = hashlib.sha256(np.ascontiguousarray(x, dtype="<f4").tobytes()).hexdigest()
        out.append(dict(image=name, pixel_values=dict(shape=list(x.shape), sha256=digest)))
    return dict(config=pre, images=out)


def make(name, images):
    build, rename, layout = CASES[name]
    config, cls, pre, inputs = build()
    first = name in ("internvl", "internvl_chat")
    pictures = [[]] + (video.PICTURES_OF.get(name, video.PICTURES) if name in video.CASES | lfm3.FILMS else PICTURES) + ([] if first else [PICTURES[0]])
    if name in ("florence2", "blip2_t5"):
        pictures[3] = pictures[3][1:]  # one picture
    config._attn_implementation = "eager"
    for seed in range(100):  # a seed whose greedy choices are no coin tosses
        torch.manual_seed(seed)
        model = cls(config).eval().float()
        for n, p in model.named_parameters():
            gate = 0.8 if p.shape == (1,) else 0  # of mllama's layers: open
            p.data = (p.data + gate + torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.15)).bfloat16().float()
        native.fill_buffers(model)
        cases = []
        for i, names in enumerate(pictures):
            cases.append(run(model, names, images, inputs, seed + i, layout, 8 if first else 12))
            if cases[-1]["greedy_min_margin"] <= 0.009:
                break
        if name == "mllama":
            cases.append(run(model, PICTURES[2], images, inputs, seed, lambda s, t: crossed.crossing(s, t, True), 12))
            cases.append(run(model, ["tiny_3x2.png", "rgb_120x90.jpg"], images, inputs, seed, layout, 12))
        if min(c["greedy_min_margin"] for c in cases) > 0.009:
            break
    out = f"tests/data/vision/{name}"
    os.makedirs(out, exist_ok=True)
    tied = name not in ("step3_vl", "mllama", "mistral3_latent", "mistral_large4", "aria", "cosmos3_edge", "glm5_next", "blip2_t5", "deepseek_ocr", "muse_glimmer", "muse_spark", "hy_v4_vl", "hy_v4_vl_cubic", "nemotron_h_omni", "nemotron_nano_vl", "step3p7")
    tensors = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items() if "lm_head" not in k or not tied}
    keys = json.loads(config.to_json_string(use_diff=False))
    if rename:
        tensors, keys, pre = rename(tensors, keys, pre)
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    for file, value in ("config.json", keys), ("preprocessor_config.json", pre):
        json.dump(value, open(f"{out}/{file}", "w"), indent=1)
    golden = dict(model_type=keys["model_type"], seed=seed, cases=cases)
    if not first:
        golden["preprocess"] = preprocessed(images, pre, inputs, SHAPES_OF.get(name, SHAPES), WHOLE_OF.get(name), name in CHANNELS_LAST, FRAMES_FIRST.get(name), name in lfm3.CASES | lfm3.FILMS | ernie.CASES, keys["model_type"])
    if name in video.CASES | lfm3.FILMS:
        golden["preprocess"]["videos"] = video.preprocessed(images, inputs, lfm3.raster if name in lfm3.FILMS else None)
    if name in SIZES:
        golden["sizes"] = SIZES[name]()
    if name == "mllama":
        golden["canvases"] = crossed.mllama_canvases()
    if name == "lfm2_vl":
        golden["canvases"] = tiles.lfm2_sizes()
    if name in minicpm.MODES:
        golden["canvases"] = minicpm.sizes_of(minicpm.MODES[name])
    if name == "minicpmv4_7":
        golden["places"] = minicpm.places(model)
    if name == "step3p7":
        golden["canvases"] = step.sizes()
    if name == "perception_lm":
        golden["canvases"] = tiles.perception_lm_sizes()
    if name == "granite_docling":
        golden["canvases"] = docling.docling_sizes()
    if name == "ovis2":
        golden["canvases"] = tiles.ovis2_sizes()
    if name == "llama4":
        golden["canvases"] = tiles.llama4_canvases(pre)
    json.dump(golden, open(f"{out}/golden.json", "w"))
    print(f"{name}: seed {seed}, {sum(os.path.getsize(f'{out}/{f}') for f in os.listdir(out))} bytes")


if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        make(name, sys.argv[1])
