"""Files as torch.save() writes them for a state dict, without torch: a zip archive of a pickle and one member a storage."""

import struct
import zipfile

STORAGES = {"F32": ("FloatStorage", 4), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2)}


def _text(s):
    b = s.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def _integer(n):
    return b"J" + struct.pack("<i", n)


def _tuple(items):
    return b"(" + b"".join(items) + b"t"


def _strides(shape):
    out, n = [], 1
    for d in reversed(shape):
        out.insert(0, n)
        n *= d
    return out


def state_dict(tensors):
    """The pickle of {name: (dtype, shape, bytes)}; storages are numbered in that order."""
    p = b"\x80\x02}("
    for k, (name, (dtype, shape, raw)) in enumerate(tensors.items()):
        kind, size = STORAGES[dtype]
        storage = _tuple([_text("storage"), f"ctorch\n{kind}\n".encode(), _text(str(k)), _text("cpu"), _integer(len(raw) // size)]) + b"Q"
        shapes = [_tuple([_integer(d) for d in dims]) for dims in (shape, _strides(shape))]
        p += _text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n"
        p += _tuple([storage, _integer(0), *shapes, b"\x89", b"ccollections\nOrderedDict\n)R"]) + b"R"
    return p + b"u."


def save(path, tensors, pickle=None):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", pickle or state_dict(tensors))
        z.writestr("archive/byteorder", "little")
        for k, (_, _, raw) in enumerate(tensors.values()):
            z.writestr(f"archive/data/{k}", raw)
