"""Formats in which a checkpoint is stored: the model has exactly the numbers that the file has."""

import torch
from safetensors.torch import save_file

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def to_mxfp4(p):
    """[experts, in, out] -> blocks [experts, out, groups, 16], scales [experts, out, groups], and what they mean."""
    e, cols, rows = p.shape
    x = p.transpose(1, 2).reshape(e, rows, cols // 32, 32)
    power = torch.floor(torch.log2(x.abs().amax(-1).clamp(min=2.0**-120))) - 2
    scaled = x / torch.exp2(power)[..., None]
    codes = (scaled[..., None] - E2M1).abs().argmin(-1)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    exact = (E2M1[codes] * torch.exp2(power)[..., None]).reshape(e, rows, cols).transpose(1, 2)
    return blocks, (power + 127).to(torch.uint8), exact.contiguous()


def as_stored_mxfp4(model):
    for name, p in model.named_parameters():
        p.data = to_mxfp4(p.data)[2] if name.endswith(("gate_up_proj", "down_proj")) else p.data.bfloat16().float()


def store_mxfp4(model, out):
    """As OpenAI's checkpoints are: experts in MXFP4, all else in bfloat16. The model has exactly these numbers."""
    tensors = {}
    for name, p in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            tensors[name + "_blocks"], tensors[name + "_scales"], _ = to_mxfp4(p)
        else:
            tensors[name] = p.to(torch.bfloat16)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/model.safetensors", {"format": "pt"})


def store_in_first(model, out):
    """As Qwen3-VL's checkpoints with experts are: all experts of a layer in one tensor, [experts, in, out]."""
    tensors = {}
    for name, p in model.state_dict().items():
        fused = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        tensors[name] = (p.transpose(1, 2) if fused else p).contiguous()
    assert any(t.dim() == 3 for t in tensors.values())
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})


def to_fp8(w, block=32):
    """[..., rows, cols] -> e4m3, a power of two for each block (which the scale of what they mean is again), and what they mean."""
    rows, cols = w.shape[-2:]
    x = torch.nn.functional.pad(w, (0, -cols % block, 0, -rows % block))
    x = x.unflatten(-1, (-1, block)).unflatten(-3, (-1, block))  # [..., row blocks, rows, column blocks, cols]
    scale = torch.exp2(torch.ceil(torch.log2(x.abs().amax((-3, -1)).clamp(min=2.0**-100) / 448)))
    codes = (x / scale[..., :, None, :, None]).to(torch.float8_e4m3fn)
    flat = lambda v: v.flatten(-2, -1).flatten(-3, -2)[..., :rows, :cols].contiguous()
    return flat(codes.view(torch.uint8)).view(torch.float8_e4m3fn), scale, flat(codes.float() * scale[..., :, None, :, None])


def as_stored_fp8(model):
    """Matrices but tables and routers; gate and up, which some files store apart, each alone."""
    for name, p in model.named_parameters():
        if p.dim() >= 2 and name.endswith(("_proj", "_proj.weight")):
            halves = p.data.chunk(2, -2) if name.endswith("gate_up_proj") else (p.data,)
            p.data = torch.cat([to_fp8(x)[2] for x in halves], -2)


def store_fp8(out):
    """As transformers and DeepSeek write FP8: a scale for each block beside the matrix, named X.weight_scale_inv or X_scale_inv."""
    from safetensors.torch import load_file
    tensors = {}
    for name, t in load_file(f"{out}/model.safetensors").items():
        tensors[name] = t
        if t.dim() < 2 or not name.endswith(("_proj", "_proj.weight")):
            continue
        codes, scale, exact = to_fp8(t)
        if "vision" not in name:
            assert torch.equal(exact, t), name
            tensors |= {name: codes, name + "_scale_inv": scale}
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    return {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}}
