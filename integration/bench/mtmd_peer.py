"""A tower of SigLIP so400m/14 at 896 x 896 with random weights in llama.cpp's mtmd, beside tests/bench/tower.c.

    python integration/bench/mtmd_peer.py LLAMA_MTMD_CLI TEXT_MODEL_FOLDER [threads] [f16] [bf16] [q8_0]      (pip install gguf numpy pillow)

The folder is a Gemma 3 with a small text model (data/vision/gemma3). One picture of 4096 patches; the best of two, for each format of
the weights that is named."""

import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from gguf_mmproj import write_text  # noqa: E402

HIDDEN, FFN, LAYERS, HEADS, SIZE, PATCH = 1152, 4304, 27, 16, 896, 14
FORMATS = {"f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
rng = np.random.default_rng(0)


def random(*shape):
    return (rng.standard_normal(shape, np.float32) * 0.02).astype(np.float32)


def write_tower(path, text_width, to):
    w = gguf.GGUFWriter(str(path), "clip")
    w.add_type("mmproj")
    w.add_clip_has_vision_encoder(True)
    w.add_clip_projector_type("gemma3")
    w.add_vision_projection_dim(text_width)
    w.add_vision_embedding_length(HIDDEN)
    w.add_vision_feed_forward_length(FFN)
    w.add_vision_block_count(LAYERS)
    w.add_vision_head_count(HEADS)
    w.add_vision_patch_size(PATCH)
    w.add_vision_image_size(SIZE)
    w.add_vision_image_mean([0.5, 0.5, 0.5])
    w.add_vision_image_std([0.5, 0.5, 0.5])
    w.add_vision_attention_layernorm_eps(1e-6)
    w.add_vision_use_gelu(True)
    w.add_vision_projector_scale_factor(4)

    def matrix(name, rows, cols):
        fits = FORMATS["f16"] if to == FORMATS["q8_0"] and cols % 32 else to
        w.add_tensor(name + ".weight", gguf.quants.quantize(random(rows, cols), fits), raw_dtype=fits)
        w.add_tensor(name + ".bias", random(rows))

    def norm(name):
        w.add_tensor(name + ".weight", 1 + random(HIDDEN))
        w.add_tensor(name + ".bias", random(HIDDEN))

    w.add_tensor("v.patch_embd.weight", random(HIDDEN, 3, PATCH, PATCH))
    w.add_tensor("v.patch_embd.bias", random(HIDDEN))
    w.add_tensor("v.position_embd.weight", random((SIZE // PATCH) ** 2, HIDDEN))
    for i in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            matrix(f"v.blk.{i}.{name}", HIDDEN, HIDDEN)
        matrix(f"v.blk.{i}.ffn_up", FFN, HIDDEN)
        matrix(f"v.blk.{i}.ffn_down", HIDDEN, FFN)
        norm(f"v.blk.{i}.ln1")
        norm(f"v.blk.{i}.ln2")
    norm("v.post_ln")
    w.add_tensor("mm.input_projection.weight", random(HIDDEN, text_width))
    w.add_tensor("mm.soft_emb_norm.weight", 1 + random(HIDDEN))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    cli, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    threads, formats = sys.argv[3] if len(sys.argv) > 3 else "2", sys.argv[4:] or list(FORMATS)
    with tempfile.TemporaryDirectory() as at:
        at = pathlib.Path(at)
        write_text(folder, at / "model.gguf")
        width = next(int(f.parts[f.data[0]][0]) for f in gguf.GGUFReader(at / "model.gguf").fields.values() if f.name.endswith("embedding_length"))
        Image.fromarray(rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)).save(at / "picture.png")
        for name in formats:
            write_tower(at / "mmproj.gguf", width, FORMATS[name])
            took = []
            for _ in range(2):
                said = subprocess.run([cli, "-m", at / "model.gguf", "--mmproj", at / "mmproj.gguf", "--image", at / "picture.png", "-p", "what",
                                       "-t", threads, "-n", "1", "--no-warmup", "--no-mmproj-offload"], capture_output=True, text=True)  # fmt: skip
                took += [int(ms) for ms in re.findall(r"image slice encoded in (\d+) ms", said.stdout + said.stderr)]
                if said.returncode or not took:
                    sys.exit(said.stdout[-2000:] + said.stderr[-3000:])
            print(f"llama.cpp, {name}: {min(took)} ms, {(SIZE // PATCH) ** 2 / min(took):.2f} patches/ms", flush=True)


main()
