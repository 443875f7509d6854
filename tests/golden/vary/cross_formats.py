"""Layouts of quantised matrices as the libraries write them, and the numbers that they mean; for cross.py.

A maker gets the name of a matrix, its numbers [out, in] in fp32 and a random.Random, and returns ({tensor: value}, numbers):
what a checkpoint stores in place of `NAME.weight`, and what it means, by the layout's own formula. None: the layout has no
such shape, so that the matrix stays as it is. Written from the papers and from the formats' descriptions, not from the
server."""

import json
import torch

NF4 = torch.tensor([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])
FP4 = torch.tensor([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4])
FP4 = torch.cat([FP4, -FP4])
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = torch.cat([E2M1, -E2M1])
E4M3 = torch.float8_e4m3fn
SCALES = [torch.float32, torch.float16, torch.bfloat16]


def nearest(v, table):
    return (v[..., None] - table).abs().argmin(-1)


def ceil(a, b):
    return -(-a // b)


def groups(v, size):
    """[out, groups, size] with zeros behind the last column."""
    return torch.nn.functional.pad(v, (0, -v.shape[1] % size)).view(v.shape[0], -1, size)


def int_codes(v, bits, size, symmetric, scales, least=0):
    """Codes [out, in], scales and zero points [out, groups], numbers."""
    g, top = groups(v, size), 2**bits - 1
    if symmetric:
        scale = g.abs().amax(2) / (2 ** (bits - 1))
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = g.amin(2).clamp(max=0), g.amax(2).clamp(min=0)
        scale = (high - low) / top
        zero = (-low / scale.clamp(min=1e-9)).round().clamp(least, top)
    scale = scale.clamp(min=1e-4).to(scales)
    f = scale.float()[..., None]
    q = ((g / f).round() + zero[..., None]).clamp(0, top)
    cut = lambda t: t.reshape(v.shape[0], -1)[:, :v.shape[1]]
    return cut(q).long(), scale, zero.long(), cut((q - zero[..., None]) * f)


def words(q, bits, dense):
    """Along the last axis, low bits first; dense: a code may lie in two words."""
    per = 32 if dense else 32 // bits
    q = torch.nn.functional.pad(q, (0, -q.shape[-1] % per))
    if dense:
        b = (q[..., None] >> torch.arange(bits) & 1).reshape(*q.shape[:-1], -1, 32)
        w = (b << torch.arange(32)).sum(-1)
    else:
        w = (q.reshape(*q.shape[:-1], -1, per) << bits * torch.arange(per)).sum(-1)
    return ((w + 2**31) % 2**32 - 2**31).to(torch.int32)


def gptq(o):
    """AutoGPTQ's and GPTQModel's: [in, out], packed along in; zero points along out, less 1 in the first version."""
    def make(name, v, r):
        out, n = v.shape
        bits, v1 = o["bits"], int(o.get("checkpoint_format", "gptq") == "gptq")
        size = n if o["group_size"] == -1 else o["group_size"]
        if n % 32 or out % 32:
            return None
        order = torch.arange(n)
        if o["desc_act"]:
            order = torch.tensor(r.sample(range(n), n))
        q, scale, zero, full = int_codes(v[:, order], bits, size, o["sym"], torch.float16, 1 if v1 else 0)
        back = order.argsort()
        t = {f"{name}.qweight": words(q[:, back], bits, True).T, f"{name}.scales": scale.T,
             f"{name}.qzeros": words(zero.T - v1, bits, True), f"{name}.g_idx": (back // size).to(torch.int32)}
        return t, full[:, back]
    return make, o | {"quant_method": "gptq"}


def awq(o):
    def make(name, v, r):
        out, n = v.shape
        size = n if o["group_size"] == -1 else o["group_size"]
        if out % 8 or n % size:
            return None
        q, scale, zero, full = int_codes(v, 4, size, False, torch.float16)
        swap = lambda t: words(t.reshape(t.shape[0], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(t.shape), 4, False)
        return {f"{name}.qweight": swap(q.T), f"{name}.qzeros": swap(zero.T), f"{name}.scales": scale.T}, full
    return make, o | {"quant_method": "awq", "version": "gemm", "zero_point": True, "bits": 4}


def by_blocks(v, a, b):
    """[rows, a, columns, b], with zeros behind the edges."""
    p = torch.nn.functional.pad(v, (0, -v.shape[1] % b, 0, -v.shape[0] % a))
    return p.view(p.shape[0] // a, a, p.shape[1] // b, b)


def fp8(o):
    """e4m3 with a scale for the tensor, each row or each block."""
    def make(name, v, r):
        a, b = {"tensor": v.shape, "channel": (1, v.shape[1])}.get(o["of"]) or o["of"]
        g = by_blocks(v, a, b)
        scale = g.abs().amax((1, 3)).clamp(min=1e-6) / 448
        if o.get("power"):
            scale = scale.log2().ceil().exp2()
        scale = scale.to(o.get("scales", torch.float32))
        f = scale.float()[:, None, :, None]
        q = (g / f).clamp(-448, 448).to(E4M3)
        cut = lambda t: t.reshape(g.shape[0] * a, -1)[:v.shape[0], :v.shape[1]]
        if o["of"] == "tensor":
            scale = scale.reshape(o.get("shape", ()))
        if o.get("power") == "bytes":
            scale = (scale.float().log2() + 127).to(torch.uint8)
        t = {f"{name}.weight": cut(q), f"{name}.{o['name']}": scale}
        if o.get("input"):
            t[f"{name}.input_scale"] = torch.tensor(0.05)
        return t, cut(q.float() * f)
    return make, o["config"]


def compressed(format, **weights):
    return {"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}


def packed(o):
    def make(name, v, r):
        out, n = v.shape
        size = n if o["group"] in (-1, None) else o["group"]
        if n % size:
            return None
        order = torch.tensor(r.sample(range(n), n)) if o["actorder"] else torch.arange(n)
        q, scale, zero, full = int_codes(v[:, order], o["bits"], size, o["symmetric"], o["scales"])
        back = order.argsort()
        t = {f"{name}.weight_packed": words(q[:, back], o["bits"], False), f"{name}.weight_scale": scale,
             f"{name}.weight_shape": torch.tensor(v.shape)}
        if not o["symmetric"]:
            t[f"{name}.weight_zero_point"] = words(zero.T, o["bits"], False).T
        if o["actorder"]:
            t[f"{name}.weight_g_idx"] = (back // size).to(torch.int32)
        return t, full[:, back]
    return make, compressed("pack-quantized", num_bits=o["bits"], type="int", symmetric=o["symmetric"], group_size=o["group"],
                            strategy="channel" if o["group"] in (-1, None) else "group", actorder="group" if o["actorder"] else None)


def int8(o):
    def make(name, v, r):
        a, b = {"tensor": v.shape, "channel": (1, v.shape[1]), "group": (1, 32)}[o["of"]]
        if v.shape[1] % b:
            return None
        g = by_blocks(v, a, b)
        scale = (g.abs().amax((1, 3)).clamp(min=1e-6) / 127).to(o["scales"])
        q = (g / scale.float()[:, None, :, None]).round().clamp(-128, 127)
        full = (q * scale.float()[:, None, :, None]).reshape(v.shape)
        return {f"{name}.weight": q.reshape(v.shape).to(torch.int8), f"{name}.weight_scale": scale.reshape(1) if o["of"] == "tensor" else scale}, full
    return make, compressed("int-quantized", num_bits=8, type="int", symmetric=True, strategy=o["of"], group_size=32 if o["of"] == "group" else None)


def bnb4(o):
    table = {"nf4": NF4, "fp4": FP4}[o["kind"]]
    size = o["size"]

    def make(name, v, r):
        n = v.numel()
        blocks = torch.nn.functional.pad(v.reshape(-1), (0, -n % size)).view(-1, size)
        absmax = blocks.abs().amax(1).clamp(min=1e-8)
        codes = nearest(blocks / absmax[:, None], table)
        flat = torch.nn.functional.pad(codes.reshape(-1)[:n], (0, n % 2))
        t = {f"{name}.weight": (flat[0::2] << 4 | flat[1::2]).to(torch.uint8)[:, None], f"{name}.weight.quant_map": table}
        state = {"quant_type": o["kind"], "blocksize": size, "dtype": "bfloat16", "shape": list(v.shape)}
        if o["nested"]:
            offset = absmax.mean()
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset.item()}
            lower = torch.nn.functional.pad(absmax - offset, (0, -len(absmax) % 256)).view(-1, 256)
            scale = lower.abs().amax(1).clamp(min=1e-8)
            small = torch.linspace(-1, 1, 256)
            q = nearest(lower / scale[:, None], small)
            t |= {f"{name}.weight.nested_absmax": scale, f"{name}.weight.nested_quant_map": small}
            t[f"{name}.weight.absmax"] = q.reshape(-1)[:len(absmax)].to(torch.uint8)
            absmax = (small[q] * scale[:, None]).reshape(-1)[:len(absmax)] + torch.tensor(state["nested_offset"])
        else:
            t[f"{name}.weight.absmax"] = absmax
        t[f"{name}.weight.quant_state.bitsandbytes__{o['kind']}"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        return t, (table[codes] * absmax[:, None]).reshape(-1)[:n].view(v.shape)
    return make, {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": o["kind"],
                  "bnb_4bit_use_double_quant": o["nested"], "bnb_4bit_quant_storage": "uint8"}


def bnb8(o):
    def make(name, v, r):
        scb = v.abs().amax(1).clamp(min=1e-8)
        q = (v * (127 / scb[:, None])).round().to(torch.int8)
        return {f"{name}.weight": q, f"{name}.SCB": scb, f"{name}.weight_format": torch.tensor(0, dtype=torch.uint8)}, q * (scb / 127)[:, None]
    return make, {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_threshold": 6.0}


def hqq(o):
    """Codes of the reshaped matrix: axis 1 has groups in rows, axis 0 in columns; halves, quarters of its rows in a byte."""
    bits, size, axis = o["nbits"], o["group_size"], o["axis"]
    per = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}[bits]

    def make(name, v, r):
        if v.numel() % size:
            return None
        w = v.reshape(-1, size) if axis else v.reshape(size, -1)
        low, high = w.amin(axis, keepdim=True), w.amax(axis, keepdim=True)
        scale = ((high - low) / (2**bits - 1)).clamp(min=1e-4).to(o["scales"])
        zero = (-low / scale.float()).to(o["scales"])
        q = (w / scale.float() + zero.float()).round().clamp(0, 2**bits - 1)
        full = ((q - zero.float()) * scale.float()).view(v.shape)
        p = torch.nn.functional.pad(q.long(), (0, 0, 0, -q.shape[0] % per)).view(per, -1, q.shape[1])
        if bits != 3 and q.shape[0] % per:
            return None  # HQQ's own packing needs whole bytes
        word = sum(p[i] << (per - 1 - i) * bits for i in range(per)).to(torch.int32 if bits == 3 else torch.uint8)
        one = {k: torch.tensor(n, dtype=torch.int32) for k, n in (("nbits", bits), ("group_size", size), ("axis", axis))}
        return {f"{name}.W_q": word, f"{name}.scale": scale, f"{name}.zero": zero, **{f"{name}.{k}": n for k, n in one.items()}}, full
    return make, {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": bits, "group_size": size, "axis": axis}}}


def torchao(o):
    kind = o["kind"]

    def make(name, v, r):
        base = f"{name}._weight"
        if kind == "Float8WeightOnlyConfig":
            scale = v.abs().amax(1, keepdim=True).clamp(min=1e-6) / 448
            q = (v / scale).clamp(-448, 448).to(E4M3)
            return {f"{base}_qdata": q, f"{base}_scale": scale}, q.float() * scale
        if kind == "Int8WeightOnlyConfig":
            scale = (v.abs().amax(1, keepdim=True).clamp(min=1e-6) / 127).to(o["scales"])
            q = (v / scale.float()).round().clamp(-128, 127)
            return {f"{base}_qdata": q.to(torch.int8), f"{base}_scale": scale}, q * scale.float()
        size = o["group"]
        if v.shape[1] % size:
            return None
        g = groups(v, size)
        if kind == "IntxWeightOnlyConfig":
            scale = (g.abs().amax(2).clamp(min=1e-6) / 7).to(o["scales"])
            q = (g / scale.float()[..., None]).round().clamp(-8, 7)
            return {f"{base}_qdata": q.view(v.shape).to(torch.int8), f"{base}_scale": scale,
                    f"{base}_zero_point": torch.zeros(scale.shape, dtype=torch.int8)}, (q * scale.float()[..., None]).view(v.shape)
        scale = ((g.amax(2) - g.amin(2)) / 15).clamp(min=1e-5).to(torch.bfloat16)
        plus = (g.amin(2) + 8 * scale.float()).to(torch.bfloat16)
        q = ((g - plus.float()[..., None]) / scale.float()[..., None]).round().clamp(-8, 7)
        flat = q.view(v.shape).to(torch.int8).view(torch.uint8) & 15
        return {f"{base}_qdata": (flat[:, 0::2] | flat[:, 1::2] << 4).view(torch.int8), f"{base}_scale": scale.T,
                f"{base}_zero_point": plus.T}, (q * scale.float()[..., None] + plus.float()[..., None]).view(v.shape)
    return make, {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": {}}}}


def power_of(g, most):
    return (g.abs().amax(2).clamp(min=1e-9).log2().floor() - most).clamp(-20, 20)


def mxfp4(o):
    def make(name, v, r):
        if v.shape[1] % 32:
            return None
        g = groups(v, 32)
        power = power_of(g, 2)
        q = nearest(g / power.exp2()[..., None], E2M1)
        pairs = q.view(v.shape).to(torch.uint8)
        return {f"{name}.{o['codes']}": pairs[:, 0::2] | pairs[:, 1::2] << 4, f"{name}.weight_scale": (power + 127).to(torch.uint8)}, (
            E2M1[q] * power.exp2()[..., None]).view(v.shape)
    return make, o["config"]


def mxfp8(o):
    def make(name, v, r):
        if v.shape[1] % 32:
            return None
        g = groups(v, 32)
        power = power_of(g, 8)
        q = (g / power.exp2()[..., None]).clamp(-448, 448).to(E4M3)
        return {f"{name}.weight": q.view(v.shape), f"{name}.weight_scale": (power + 127).to(torch.uint8)}, (q.float() * power.exp2()[..., None]).view(v.shape)
    return make, o["config"]


def nvfp4(o):
    def make(name, v, r):
        if v.shape[1] % 16:
            return None
        g = groups(v, 16)
        whole = v.abs().max().clamp(min=1e-6) / (6 * 448)
        divisor = 1 / whole
        factor = 1 / divisor if o["packed"] else whole
        scale = (g.abs().amax(2) / 6 / factor).clamp(max=448).to(E4M3)
        by = scale.float()[..., None]
        q = nearest(g / (by * factor).clamp(min=1e-20), E2M1)
        pairs = q.view(v.shape).to(torch.uint8)
        both = pairs[:, 0::2] | pairs[:, 1::2] << 4
        full = (E2M1[q] * by * factor).view(v.shape)
        if o["packed"]:
            return {f"{name}.weight_packed": both, f"{name}.weight_scale": scale, f"{name}.weight_global_scale": divisor.reshape(1)}, full
        return {f"{name}.weight": both, f"{name}.weight_scale": scale, f"{name}.weight_scale_2": factor, f"{name}.input_scale": torch.tensor(0.01)}, full
    return make, o["config"]


def mlx(o):
    bits, size = o["bits"], o["group_size"]

    def make(name, v, r):
        if v.shape[1] % size or v.shape[1] * bits % 32:
            return None
        g = groups(v, size)
        bias, scale = g.amin(2).to(o["scales"]), ((g.amax(2) - g.amin(2)) / (2**bits - 1)).clamp(min=1e-5).to(o["scales"])
        q = ((g - bias.float()[..., None]) / scale.float()[..., None]).round().clamp(0, 2**bits - 1)
        w = words(q.view(v.shape).long(), bits, True)
        return {f"{name}.weight": w.view(torch.uint32), f"{name}.scales": scale, f"{name}.biases": bias}, (
            q * scale.float()[..., None] + bias.float()[..., None]).view(v.shape)
    return make, None


def draw(kind, r):
    """(maker, quantization_config, words that describe it)"""
    scales = r.choice(SCALES)
    if kind == "gptq":
        o = dict(bits=r.choice([2, 3, 4, 4, 8]), group_size=r.choice([32, 32, 64, 128, -1]), desc_act=r.random() < 0.5, sym=r.random() < 0.5,
                 checkpoint_format=r.choice(["gptq", "gptq_v2"]))
        return *gptq(o), o
    if kind == "awq":
        o = dict(group_size=r.choice([32, 64, 128, -1]))
        return *awq(o), o
    if kind == "fp8":
        of = r.choice([(128, 128), (32, 32), (64, 32), (16, 48)])
        o = dict(of=of, name="weight_scale_inv", scales=scales, power=r.choice([None, "numbers"]),
                 config={"quant_method": "fp8", "weight_block_size": list(of), "activation_scheme": "dynamic", "fmt": "e4m3"})
        return *fp8(o), {k: str(v) for k, v in o.items() if k != "config"}
    if kind == "fp8-ct":
        of = r.choice(["tensor", "channel", (128, 128), (32, 64)])
        w = dict(num_bits=8, type="float", symmetric=True, strategy=of if isinstance(of, str) else "block")
        if not isinstance(of, str):
            w["block_structure"] = list(of)
        o = dict(of=of, name="weight_scale", scales=scales, shape=r.choice([(), (1,)]), config=compressed("float-quantized", **w))
        return *fp8(o), {k: str(v) for k, v in o.items() if k != "config"}
    if kind == "fp8-modelopt":
        o = dict(of="tensor", name="weight_scale", input=True, config={"quant_method": "modelopt", "quant_algo": "FP8"})
        return *fp8(o), {}
    if kind == "pack":
        o = dict(bits=r.choice([2, 3, 4, 4, 5, 6, 7, 8]), group=r.choice([32, 64, 128, None]), symmetric=r.random() < 0.5, actorder=False, scales=scales)
        o["actorder"] = bool(o["group"]) and r.random() < 0.4
        return *packed(o), {k: str(v) for k, v in o.items()}
    if kind == "int8":
        o = dict(of=r.choice(["tensor", "channel", "group"]), scales=scales)
        return *int8(o), {k: str(v) for k, v in o.items()}
    if kind == "bnb4":
        o = dict(kind=r.choice(["nf4", "fp4"]), nested=r.random() < 0.5, size=r.choice([64, 64, 128, 256]))
        return *bnb4(o), o
    if kind == "bnb8":
        return *bnb8({}), {}
    if kind == "hqq":
        o = dict(nbits=r.choice([2, 3, 4, 8]), group_size=r.choice([32, 64, 16, 128]), axis=r.choice([0, 1]), scales=scales)
        return *hqq(o), {k: str(v) for k, v in o.items()}
    if kind == "torchao":
        o = dict(kind=r.choice(["Float8WeightOnlyConfig", "Int8WeightOnlyConfig", "IntxWeightOnlyConfig", "Int4WeightOnlyConfig"]),
                 group=r.choice([32, 64]), scales=scales)
        return *torchao(o), {k: str(v) for k, v in o.items()}
    if kind == "mxfp4":
        o = r.choice([dict(codes="weight_packed", config=compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32)),
                      dict(codes="weight", config={"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32, "scale_format": "e8m0"}},
                                                   "export": {"weight_format": "real_quantized"}})])
        return *mxfp4(o), {"codes": o["codes"]}
    if kind == "mxfp8":
        o = r.choice([dict(config=compressed("mxfp8-quantized", num_bits=8, type="float", strategy="group", group_size=32)),
                      dict(config={"quant_method": "modelopt", "quant_algo": "MXFP8"})])
        return *mxfp8(o), {"by": o["config"]["quant_method"]}
    if kind == "nvfp4":
        o = r.choice([dict(packed=True, config=compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16)),
                      dict(packed=False, config={"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16})])
        return *nvfp4(o), {"packed": o["packed"]}
    if kind == "mlx":
        o = dict(bits=r.choice([2, 3, 4, 5, 6, 8]), group_size=r.choice([32, 64]), scales=scales)
        return mlx(o)[0], {"bits": o["bits"], "group_size": o["group_size"], "mode": "affine"}, {k: str(v) for k, v in o.items()}
    if kind == "gguf":
        return None, None, {"type": r.choice(["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "MXFP4"])}
    return None, None, {}


# What `model-server quantize` writes as GGUF from safetensors, with llama.cpp's names of them; whose halves of q and k are paired.
GGUF = {"llama": "LLAMA", "mistral": "LLAMA", "mixtral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "smollm3": "SMOLLM3"}
EXPERT = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


def from_gguf(path, like, family, config):
    """The numbers of a GGUF file under the names of the folder that it was made from."""
    import gguf
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, GGUF[family]), config.num_hidden_layers)
    read = {t.name: torch.tensor(gguf.quants.dequantize(t.data, t.tensor_type).astype("float32")) for t in gguf.GGUFReader(path).tensors}
    out = {}
    for name, v in like.items():
        base, _, suffix = name.rpartition(".")
        front, mark, back = base.partition(".experts.")
        if mark:
            n, kind = back.split(".")
            w = read[f"blk.{front.split('.')[2]}.ffn_{EXPERT[kind]}_exps.weight"][int(n)]
        else:
            key = f"{names.get_name(base) or names.get_name(name)}.{suffix}"
            w = read[key if key in read else key.replace("output.", "token_embd.")]
        if GGUF[family] in ("LLAMA", "SMOLLM3") and base.endswith(("q_proj", "k_proj")):
            heads = config.num_attention_heads if base.endswith("q_proj") else config.num_key_value_heads
            w = w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)
        out[name] = w.reshape(v.shape).contiguous()
    return out


FIRST = 3  # token of byte 0


def tokenizer(folder, n):
    """A token for each byte, and no merges."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    words = {t: i for i, t in enumerate(("<unk>", "<s>", "</s>"))}
    words |= {chr(b if b in kept else 256 + others.index(b)): FIRST + b for b in range(256)}
    words |= {f"never{i}": i for i in range(FIRST + 256, n)}
    json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
               "post_processor": None, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": words, "merges": []}}, open(f"{folder}/tokenizer.json", "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, open(f"{folder}/tokenizer_config.json", "w"))


def text_of(ids):
    return "".join(chr(i - FIRST) for i in ids)


KINDS = ("plain", "gptq", "awq", "fp8", "fp8-ct", "fp8-modelopt", "pack", "int8", "bnb4", "bnb8", "hqq", "torchao", "mxfp4", "mxfp8", "nvfp4", "mlx", "gguf")
