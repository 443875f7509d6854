"""The bundled demo model with additional layers that change nothing: the same answers, more slowly. A served model for tests with a draft model."""

import json
import shutil
import struct

from serving import DEMO


def deep(folder, layers):
    """Writes it; returns the folder."""
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("train"))
    config = json.loads((folder / "config.json").read_text())
    have, config["num_hidden_layers"] = config["num_hidden_layers"], layers
    (folder / "config.json").write_text(json.dumps(config))
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    head, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    tensors = {k: (v, data[slice(*v["data_offsets"])]) for k, v in head.items() if k != "__metadata__"}
    for n in range(have, layers):
        for name, (row, blob) in list(tensors.items()):
            if name.startswith("model.layers.0."):
                adds = name.endswith(("o_proj.weight", "down_proj.weight"))  # to the residual stream: nothing
                tensors[name.replace(".0.", f".{n}.", 1)] = (row, bytes(len(blob)) if adds else blob)
    at, out = 0, {}
    for name, (row, blob) in tensors.items():
        out[name] = row | {"data_offsets": [at, at + len(blob)]}
        at += len(blob)
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, blob in tensors.values():
            f.write(blob)
    return folder


def other_weights(model, folder):
    """A copy whose last tensor is zero; returns the folder."""
    shutil.copytree(model, folder)
    with open(folder / "model.safetensors", "r+b") as f:
        f.seek(-128, 2)
        f.write(bytes(128))
    return folder
