"""A tower of SigLIP so400m/14 at 896 x 896 with random weights in llama.cpp's mtmd, beside tests/bench/tower.c.

    python integration/bench/mtmd_peer.py TEXT_MODEL_FOLDER [threads] [f16] [bf16] [q8_0]      (pip install llama-cpp-python gguf numpy)

The folder is a Gemma 3 with a small text model (data/vision/gemma3). One picture of 4096 patches; the best of two, for each format of
the weights that is named."""

import ctypes
import pathlib
import sys
import tempfile
import time

import gguf
import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / d) for d in ("", "formats")]
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


def encode(folder, threads):
    """Seconds of the two encodings."""
    import llama_cpp
    from llama_cpp import mtmd_cpp as mtmd

    params = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(str(folder / "model.gguf").encode(), params)
    options = mtmd.mtmd_context_params_default()
    options.use_gpu, options.n_threads, options.print_timings, options.warmup = False, threads, False, False
    context = mtmd.mtmd_init_from_file(str(folder / "mmproj.gguf").encode(), model, options)
    pixels = rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)
    picture = mtmd.mtmd_bitmap_init(SIZE, SIZE, pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
    marker = mtmd.mtmd_default_marker()
    text = mtmd.mtmd_input_text(text=marker, text_len=len(marker), add_special=True, parse_special=True)
    chunks = mtmd.mtmd_input_chunks_init()
    assert mtmd.mtmd_tokenize(context, chunks, ctypes.byref(text), (mtmd.mtmd_bitmap_p_ctypes * 1)(picture), 1) == 0
    images = [mtmd.mtmd_input_chunks_get(chunks, i) for i in range(mtmd.mtmd_input_chunks_size(chunks))]
    image = next(c for c in images if mtmd.mtmd_input_chunk_get_type(c) == 1)
    took = []
    for _ in range(2):
        begun = time.monotonic()
        assert mtmd.mtmd_encode_chunk(context, image) == 0
        took.append(time.monotonic() - begun)
    mtmd.mtmd_free(context)
    llama_cpp.llama_model_free(model)
    return took


def main():
    folder = pathlib.Path(sys.argv[1])
    threads, formats = int(sys.argv[2]) if len(sys.argv) > 2 else 2, sys.argv[3:] or list(FORMATS)
    with tempfile.TemporaryDirectory() as at:
        at = pathlib.Path(at)
        write_text(folder, at / "model.gguf")
        fields = gguf.GGUFReader(at / "model.gguf").fields.values()
        width = next(int(f.parts[f.data[0]][0]) for f in fields if f.name.endswith("embedding_length"))
        for name in formats:
            write_tower(at / "mmproj.gguf", width, FORMATS[name])
            best = min(encode(at, threads))
            print(f"llama.cpp, {name}: {best * 1e3:.0f} ms, {(SIZE // PATCH) ** 2 / best / 1e3:.2f} patches/ms", flush=True)


main()
