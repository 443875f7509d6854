"""Quantises the linear layers of a Hugging Face folder, and also writes their dequantised numbers in fp32.

    stored, plain = write(folder, tmp_path, "nf4")

Layouts as bitsandbytes and transformers, modelopt and compressed-tensors write them; the numbers are numpy's."""

import json
import pathlib
import shutil

import numpy as np
from gguf_made import tensors

NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)  # fmt: skip
FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
FP4 = np.concatenate([FP4, -FP4])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])
E4M3 = np.array([m / 8 * 2**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127], np.float32)
TYPES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.uint32): "U32", np.dtype(np.uint8): "U8", np.dtype(np.int8): "I8", np.dtype(np.int32): "I32"}


def nearest(v, table):
    return np.abs(v[..., None] - table).argmin(-1).astype(np.uint8)


def blob(o):
    return np.frombuffer(json.dumps(o).encode(), np.uint8)


def bnb4(name, v, kind, nested):
    """bitsandbytes.functional.quantize_4bit() with blocks of 64 and scales in blocks of 256."""
    table = {"nf4": NF4, "fp4": FP4}[kind]
    blocks = v.reshape(-1, 64)
    absmax = np.abs(blocks).max(1)
    codes = nearest(blocks / np.maximum(absmax, 1e-12)[:, None], table).reshape(-1)
    out = {f"{name}.weight": (codes[0::2] << 4 | codes[1::2]).reshape(-1, 1), f"{name}.weight.quant_map": table}
    state = {"quant_type": kind, "blocksize": 64, "dtype": "float32", "shape": list(v.shape)}
    if nested:
        offset = np.float32(absmax.mean())
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(offset)}
        lower = np.pad(absmax - offset, (0, -len(absmax) % 256)).reshape(-1, 256)
        scale = np.abs(lower).max(1)
        small = np.linspace(-1, 1, 256, dtype=np.float32)  # any 256 numbers will do
        q = nearest(lower / scale[:, None], small)
        out |= {f"{name}.weight.nested_absmax": scale, f"{name}.weight.nested_quant_map": small}
        out[f"{name}.weight.absmax"] = q.reshape(-1)[: len(absmax)]
        absmax = (small[q] * scale[:, None]).reshape(-1)[: len(absmax)] + offset
    else:
        out[f"{name}.weight.absmax"] = absmax
    out[f"{name}.weight.quant_state.bitsandbytes__{kind}"] = blob(state)
    return out, (table[codes].reshape(-1, 64) * absmax[:, None]).reshape(v.shape)


def llm_int8(name, v):
    scb = np.abs(v).max(1)
    q = np.rint(v * (127 / scb[:, None])).astype(np.int8)
    return {f"{name}.weight": q, f"{name}.SCB": scb, f"{name}.weight_format": np.zeros((), np.uint8)}, q * (scb * np.float32(1 / 127))[:, None]


def nvfp4(name, v, packed):
    """e2m1 by scales in e4m3 of 16 columns and one in fp32; compressed-tensors stores what divides."""
    groups = v.reshape(v.shape[0], -1, 16)
    all_of_it = np.float32(np.abs(v).max() / (6 * 448))
    divisor = np.float32(1) / all_of_it
    factor = np.float32(1) / divisor if packed else all_of_it
    scale = nearest(np.abs(groups).max(2) / 6 / factor, E4M3)
    by = E4M3[scale][..., None]
    codes = nearest(groups / np.maximum(by * factor, 1e-20), E2M1).reshape(v.shape)
    pairs = codes[:, 0::2] | codes[:, 1::2] << 4
    one = np.array([divisor if packed else factor], np.float32) if packed else np.array(factor, np.float32)
    out = {f"{name}.weight_packed" if packed else f"{name}.weight": pairs, f"{name}.weight_scale": (scale, "F8_E4M3"),
           f"{name}.weight_global_scale" if packed else f"{name}.weight_scale_2": one}  # fmt: skip
    return out, ((E2M1[codes].reshape(groups.shape) * by) * factor).reshape(v.shape)


def int_codes(v, bits, group):
    """Codes without sign, scales and zero points of groups of columns."""
    g = v.reshape(v.shape[0], -1, group)
    low, high = np.minimum(g.min(2), 0), np.maximum(g.max(2), 0)
    scale = f16(np.maximum((high - low) / (2**bits - 1), 1e-5))
    zero = np.rint(-low / scale).clip(1, 2**bits - 1)
    q = (np.rint(g / scale[..., None]) + zero[..., None]).clip(0, 2**bits - 1)
    return q.reshape(v.shape).astype(np.uint32), scale, zero.astype(np.uint32), ((q - zero[..., None]) * scale[..., None]).reshape(v.shape)


def f16(v):
    return v.astype(np.float16).astype(np.float32)


def words(q, bits, dense):
    """Along the last axis, low bits first; dense: codes may span two words."""
    if dense:
        b = (q[..., None] >> np.arange(bits, dtype=np.uint32) & 1).reshape(*q.shape[:-1], -1, 32)
        return (b << np.arange(32, dtype=np.uint32)).sum(-1).astype(np.uint32)
    per = 32 // bits
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, -q.shape[-1] % per)])
    return (q.reshape(*q.shape[:-1], -1, per) << (bits * np.arange(per, dtype=np.uint32))).sum(-1).astype(np.uint32)


def among(name, *kinds):
    """One of the kinds, by the place of the matrix."""
    return kinds[int(name.split(".")[2]) % len(kinds)] if "down" not in name else kinds[-1]


def mlx(name, v, bits=None, group=32):
    """mlx.core.quantize(): code * scale + bias."""
    if not bits:
        bits, group = (8, 64) if "embed" in name else among(name, (4, 64), (3, 32), (6, 32))
    g = v.reshape(v.shape[0], -1, group)
    bias, scale = f16(g.min(2)), f16((g.max(2) - g.min(2)) / (2**bits - 1))
    q = np.rint((g - bias[..., None]) / scale[..., None]).clip(0, 2**bits - 1)
    out = {f"{name}.weight": words(q.reshape(v.shape).astype(np.uint32), bits, True), f"{name}.scales": scale.astype(np.float16),
           f"{name}.biases": bias.astype(np.float16)}  # fmt: skip
    return out, (q * scale[..., None] + bias[..., None]).reshape(v.shape)


def mlx_folder(folder, to):
    """As mlx-lm writes a model, quantised: experts in one tensor, turned convolutions, norms of Qwen3-Next with 1 added."""
    folder, stored, plain = pathlib.Path(folder), pathlib.Path(to) / "stored", pathlib.Path(to) / "plain"
    few, full, experts = {}, {}, {}
    for name, v in tensors(folder):
        base, full[name] = name.removesuffix(".weight"), v
        if "conv1d" in name:
            few[name] = np.moveaxis(v, 2, 1)
        elif "norm.weight" in name and "linear_attn" not in name and "qwen3_next" in folder.name:
            few[name] = v + 1
        elif v.ndim == 2 and v.shape[1] % 32 == 0 and name.endswith(".weight"):
            arrays, w = mlx(base, v, 6 if "experts" in name else 8)
            full[name] = w.astype(np.float32)
            front, mark, back = base.partition(".experts.")
            n, _, kind = back.partition(".")
            kind = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.get(kind, kind)
            for key, a in arrays.items():
                if mark:
                    experts.setdefault(f"{front}.switch_mlp.{kind}.{key.rpartition('.')[2]}", {})[int(n)] = a
                else:
                    few[key] = a
        else:
            few[name] = v
    few |= {key: np.stack([a[i] for i in range(len(a))]) for key, a in experts.items()}
    for path, arrays in ((stored, few), (plain, full)):
        shutil.copytree(folder, path, ignore=shutil.ignore_patterns("*.safetensors*"))
        save(path / "model.safetensors", arrays)
    text = json.loads((folder / "config.json").read_text())
    (stored / "config.json").write_text(json.dumps(text | {"quantization": {"group_size": 32, "bits": 8}}))
    return stored, plain


def gptq(name, v):
    bits, group = among(name, (4, 64), (2, 32), (8, 64))
    q, scale, zero, full = int_codes(v, bits, group)
    out = {f"{name}.qweight": words(q, bits, True).T.view(np.int32),
           f"{name}.scales": scale.T.astype(np.float16), f"{name}.qzeros": words(zero.T - 1, bits, True).view(np.int32)}  # fmt: skip
    return out, full


def pack(name, v, bits):
    q, scale, zero, full = int_codes(v, bits, 32)
    return {f"{name}.weight_packed": words(q, bits, False).view(np.int32), f"{name}.weight_scale": scale.astype(np.float16),
            f"{name}.weight_zero_point": words(zero.T, bits, False).T.view(np.int32)}, full  # fmt: skip


def fp8(name, v):
    scale = np.abs(v).max(1, keepdims=True) / np.float32(448)
    q = nearest(np.abs(v) / scale, E4M3)
    return {f"{name}.weight": (q | (v < 0).astype(np.uint8) << 7, "F8_E4M3"), f"{name}.weight_scale": scale}, np.sign(v) * E4M3[q] * scale


def mxfp4(name, v, codes):
    g = v.reshape(v.shape[0], -1, 32)
    power = np.floor(np.log2(np.maximum(np.abs(g).max(2), 1e-9))).astype(np.int32) - 2
    q = nearest(g / np.exp2(power)[..., None], E2M1)
    pairs = q.reshape(v.shape)
    return {f"{name}.{codes}": pairs[:, 0::2] | pairs[:, 1::2] << 4, f"{name}.weight_scale": (power + 127).astype(np.uint8)}, (
        E2M1[q] * np.exp2(power)[..., None]).reshape(v.shape)  # fmt: skip


def ct_mixed(name, v):
    return among(name, lambda: pack(name, v, 4), lambda: nvfp4(name, v, True), lambda: mxfp4(name, v, "weight_packed"),
                 lambda: pack(name, v, 3))()  # fmt: skip


def torchao(name, v):
    """Int8Tensor with a scale a row, and Int4Tensor: code * scale + number, both [groups, rows]."""
    base = f"{name}._weight"
    if among(name, 8, 4) == 8:
        scale = np.abs(v).max(1, keepdims=True) / np.float32(127)
        q = np.rint(v / scale).astype(np.int8)
        return {f"{base}_qdata": q, f"{base}_scale": scale, f"{base}_zero_point": np.zeros(scale.shape, np.int8)}, q * scale
    g = v.reshape(v.shape[0], -1, 32)
    scale = f16(np.maximum((g.max(2) - g.min(2)) / 15, 1e-5))
    plus = f16(g.min(2) + 8 * scale)
    q = np.rint((g - plus[..., None]) / scale[..., None]).clip(-8, 7).astype(np.int8)
    flat = q.reshape(v.shape).view(np.uint8) & 15
    return {f"{base}_qdata": (flat[:, 0::2] | flat[:, 1::2] << 4).view(np.int8), f"{base}_scale": scale.T.astype(np.float16),
            f"{base}_zero_point": plus.T.astype(np.float16)}, (q * scale[..., None] + plus[..., None]).reshape(v.shape)  # fmt: skip


def hqq(name, v):
    """4 bits in groups of 32: a matrix of groups, whose upper half has the high bits."""
    g = v.reshape(-1, 32)
    scale = f16(np.maximum((g.max(1, keepdims=True) - g.min(1, keepdims=True)) / 15, 1e-5))
    zero = f16(-g.min(1, keepdims=True) / scale)
    q = np.rint(g / scale + zero).clip(0, 15).astype(np.uint8)
    half = len(q) // 2
    one = {k: np.array(n, np.int32) for k, n in (("nbits", 4), ("group_size", 32), ("axis", 1))}
    return {f"{name}.W_q": q[:half] << 4 | q[half:], f"{name}.scale": scale.astype(np.float16), f"{name}.zero": zero.astype(np.float16),
            **{f"{name}.{k}": n for k, n in one.items()}}, ((q - zero) * scale).reshape(v.shape)  # fmt: skip


BNB = {"quant_method": "bitsandbytes", "load_in_8bit": False, "load_in_4bit": True, "bnb_4bit_quant_storage": "uint8"}
CT = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
KINDS = {
    "nf4": (lambda n, v: bnb4(n, v, "nf4", False), BNB | {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False}),
    "nf4-nested": (lambda n, v: bnb4(n, v, "nf4", True), BNB | {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}),
    "fp4": (lambda n, v: bnb4(n, v, "fp4", False), BNB | {"bnb_4bit_quant_type": "fp4"}),
    "llm-int8": (llm_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}),
    "nvfp4": (lambda n, v: nvfp4(n, v, False), {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}),
    "nvfp4-packed": (lambda n, v: nvfp4(n, v, True), {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
                                                      "quantization_status": "compressed", "config_groups": {"group_0": {"weights": CT}}}),
    "mlx": (mlx, {"group_size": 64, "bits": 4, "model.layers.1.self_attn.q_proj": {"group_size": 32, "bits": 3}}),
    "auto-round": (gptq, {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "group_size": 64, "sym": False,
                          "extra_config": {".*down_proj.*": {"bits": 8}}}),
    "ct-mixed": (ct_mixed, {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
        "a": {"format": "nvfp4-pack-quantized", "weights": CT}, "b": {"weights": {"num_bits": 3, "type": "int", "strategy": "group"}}}}),
    "torchao": (torchao, {"quant_method": "torchao", "quant_type": {"default": {"_type": "FqnToConfig", "_data": {
        "a": {"_type": "Int4WeightOnlyConfig"}, "b": {"_type": "Int8WeightOnlyConfig"}}}}}),
    "hqq": (hqq, {"quant_method": "hqq", "quant_config": {}}),
}  # fmt: skip


def save(path, arrays):
    header, data = {}, b""
    for name, v in arrays.items():
        v, kind = v if isinstance(v, tuple) else (v, TYPES[v.dtype])
        raw = np.ascontiguousarray(v).tobytes()
        header[name] = {"dtype": kind, "shape": list(v.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(folder, to, kind):
    """Two folders: stored so, and dequantised in fp32."""
    make, config = KINDS[kind]
    folder, stored, plain = pathlib.Path(folder), pathlib.Path(to) / "stored", pathlib.Path(to) / "plain"
    few, full = {}, {}
    for name, v in tensors(folder):
        full[name] = v
        tables = kind == "mlx" and "embed_tokens" in name
        if ("_proj.weight" not in name and not tables) or v.shape[1] % 32:
            few[name] = v
            continue
        arrays, full[name] = make(name.removesuffix(".weight"), v)
        few |= arrays
        full[name] = full[name].astype(np.float32)
    for path, arrays in ((stored, few), (plain, full)):
        shutil.copytree(folder, path, ignore=shutil.ignore_patterns("*.safetensors", "train"))
        save(path / "model.safetensors", arrays)
    text = json.loads((folder / "config.json").read_text())
    (stored / "config.json").write_text(json.dumps(text | {"quantization_config": config}))
    return stored, plain
