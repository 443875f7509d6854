#!/usr/bin/env python3
"""Gaps between the tokens of running streams while images are encoded, compared with those of the same streams alone.

    image_pace.py [--data ../shared/data/vision/gemma3] [--streams 4] [--seconds 20] [--layers 12] [--tower 27] [--again] [-- FLAGS...]

Random weights in the shapes of Gemma 3's tower (SigLIP so400m/14 at 896 x 896: 4096 patches a picture) before a text model
of half a billion parameters, with the tokenizer and template of DATA. Streams run all the time; then one client after the
other sends a new picture and waits for its answer. With --again only times to the first token are printed, without streams: of a
picture, of the same request, and of requests where the same picture follows another text. Needs numpy and Pillow."""

import argparse, base64, io, json, os, pathlib, shutil, struct, sys, tempfile, threading, time

import numpy as np, requests
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import Service  # noqa: E402

HIDDEN, HEADS, KV, DIM, FFN = 896, 14, 2, 64, 4864
TOWER, TOWER_FFN, SIDE = 1152, 4304, 896


def shapes(layers, tower, vocab):
    out = {"language_model.model.embed_tokens.weight": [vocab, HIDDEN], "language_model.model.norm.weight": [HIDDEN],
           "multi_modal_projector.mm_input_projection_weight": [TOWER, HIDDEN], "multi_modal_projector.mm_soft_emb_norm.weight": [TOWER]}
    for i in range(layers):
        at = f"language_model.model.layers.{i}."
        for n in "input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm", "pre_feedforward_layernorm":
            out[at + n + ".weight"] = [HIDDEN]
        for n, s in (("mlp.gate_proj", [FFN, HIDDEN]), ("mlp.up_proj", [FFN, HIDDEN]), ("mlp.down_proj", [HIDDEN, FFN]),
                     ("self_attn.q_proj", [HEADS * DIM, HIDDEN]), ("self_attn.k_proj", [KV * DIM, HIDDEN]),
                     ("self_attn.v_proj", [KV * DIM, HIDDEN]), ("self_attn.o_proj", [HIDDEN, HEADS * DIM]),
                     ("self_attn.q_norm", [DIM]), ("self_attn.k_norm", [DIM])):
            out[at + n + ".weight"] = s
    see = "vision_tower.vision_model."
    out |= {see + "embeddings.patch_embedding.weight": [TOWER, 3, 14, 14], see + "embeddings.patch_embedding.bias": [TOWER],
            see + "embeddings.position_embedding.weight": [(SIDE // 14) ** 2, TOWER]}
    norms = [see + "post_layernorm"]
    for i in range(tower):
        at = f"{see}encoder.layers.{i}."
        norms += [at + "layer_norm1", at + "layer_norm2"]
        for n, r, c in ([(f"self_attn.{x}_proj", TOWER, TOWER) for x in ("q", "k", "v", "out")]
                        + [("mlp.fc1", TOWER_FFN, TOWER), ("mlp.fc2", TOWER, TOWER_FFN)]):
            out |= {f"{at}{n}.weight": [r, c], f"{at}{n}.bias": [r]}
    for n in norms:
        out |= {n + ".weight": [TOWER], n + ".bias": [TOWER]}
    return out


def make(source, out, layers, tower):
    for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "processor_config.json"):
        shutil.copy(source / f, out / f)
    c = json.loads((source / "config.json").read_text())
    t, v = c["text_config"], c["vision_config"]
    t |= dict(hidden_size=HIDDEN, intermediate_size=FFN, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=DIM,
              num_hidden_layers=layers, layer_types=["full_attention"] * layers, query_pre_attn_scalar=DIM)
    v |= dict(hidden_size=TOWER, intermediate_size=TOWER_FFN, num_attention_heads=16, num_hidden_layers=tower, image_size=SIDE)
    c["mm_tokens_per_image"] = 256
    (out / "config.json").write_text(json.dumps(c))
    p = json.loads((source / "preprocessor_config.json").read_text()) | dict(size=dict(height=SIDE, width=SIDE), image_seq_length=256)
    (out / "preprocessor_config.json").write_text(json.dumps(p))
    all_, at, head = shapes(layers, tower, t["vocab_size"]), 0, {}
    for n, s in all_.items():
        size = 2 * int(np.prod(s))
        head[n] = dict(dtype="BF16", shape=s, data_offsets=[at, at + size])
        at += size
    text, rng = json.dumps(head).encode(), np.random.default_rng(1)
    with open(out / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for s in all_.values():
            x = rng.standard_normal(int(np.prod(s)), dtype=np.float32) * 0.02
            f.write((x.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def share(v, q):
    return sorted(v)[min(len(v) - 1, int(q * len(v)))]


def stream(s, tokens, gaps, stop):
    while not stop.is_set():
        body = dict(model="m", messages=[dict(role="user", content="Go on.")], max_tokens=tokens, ignore_eos=True, stream=True)
        last = None
        with requests.post(s.url + "/v1/chat/completions", json=body, stream=True, timeout=600) as r:
            for line in r.iter_lines(chunk_size=1):
                if line.startswith(b"data: {"):
                    now = time.monotonic()
                    if last:
                        gaps.append((now, now - last))
                    last = now
                if stop.is_set():
                    return


def picture(seed):
    b = io.BytesIO()
    x = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(x).resize((1024, 1024)).save(b, "JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(b.getvalue()).decode()


def look(s, seed, before=None):
    """Seconds until the first token; `before`: the text that precedes the picture."""
    part = dict(type="image_url", image_url=dict(url=picture(seed)))
    parts = [dict(type="text", text=before)] * bool(before) + [part, dict(type="text", text="What is this?")]
    body = dict(model="m", max_tokens=1, messages=[dict(role="user", content=parts)])
    t = time.monotonic()
    r = requests.post(s.url + "/v1/chat/completions", json=body, timeout=600)
    assert r.status_code == 200, r.text
    return time.monotonic() - t


def main():
    argv, flags = sys.argv[1:], []
    if "--" in argv:
        argv, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data/vision/gemma3"))
    p.add_argument("--streams", type=int, default=4)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--tower", type=int, default=27)
    p.add_argument("--again", action="store_true")
    a = p.parse_args(argv)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        out = pathlib.Path(folder)
        make(a.data, out, a.layers, a.tower)
        with Service(out, args=["--device", "cpu", "--payload-limit", 20000000, *flags]) as s:
            alone = look(s, 0)
            if a.again:
                same = [look(s, 0) for _ in range(5)]
                other = [look(s, 0, f"Picture {i} of the list.") for i in range(5)]
                for name, v in ("a picture", [alone]), ("the same request", same), ("behind another text", other):
                    print(f"{name}: {share(v, 0.5) * 1000:.0f} ms ({min(v) * 1000:.0f} to {max(v) * 1000:.0f})")
                return
            gaps, stop = [], threading.Event()
            threads = [threading.Thread(target=stream, args=(s, 3000, gaps, stop)) for _ in range(a.streams)]
            for t in threads:
                t.start()
            time.sleep(a.seconds / 2)
            begin = time.monotonic()
            time.sleep(a.seconds / 2)
            middle = time.monotonic()
            took = [look(s, 1)]
            while time.monotonic() < middle + a.seconds:
                took.append(look(s, len(took) + 1))
            end = time.monotonic()
            stop.set()
            for t in threads:
                t.join()
        without = [g for at, g in gaps if begin <= at < middle]
        beside = [g for at, g in gaps if middle <= at - g and at < end]
        for name, v in ("streams alone", without), ("while pictures are encoded", beside):
            print(f"{name}: {len(v)} gaps, p50 {1e3 * share(v, .5):.1f} ms, p95 {1e3 * share(v, .95):.1f} ms, most {1e3 * max(v):.1f} ms")
        late = sorted(((g, at - middle) for at, g in gaps if middle <= at - g and at < end), reverse=True)[:4]
        print("longest gaps: " + ", ".join(f"{1e3 * g:.0f} ms at {at:.1f} s" for g, at in late))
        print(f"p95 {share(beside, .95) / share(without, .95):.2f} times; a picture: {alone:.1f} s alone, {min(took):.1f} to {max(took):.1f} s beside {a.streams} streams")


main()
