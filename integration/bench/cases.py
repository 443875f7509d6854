"""The rows of the comparison: what is measured, and which weights and options each engine gets for it.

A figure is of one format of weights. `peers` names, for each engine, its nearest form of that format; an engine that is
not named has none, and the table says so.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatch

# What each engine calls a format: options of ours, GGUF file of llama.cpp, (export, precision hint) of OpenVINO,
# folders of CTranslate2 and vLLM.
OURS = {
    "bf16": [],
    "half": ["--dtype", "bfloat16"],  # asked for by name: exact only with auto
    "int8": ["--quantize", "w8a8"],
    "int4": ["--quantize", "int4"],
}
LLAMA_CPP = {"bf16": "bf16", "half": "bf16", "int8": "q8_0", "int4": "q4_0"}
OPENVINO = {
    "bf16": ("fp16", "f32"),
    "half": ("fp16", "bf16"),
    "int8": ("int8", ""),
    "int4": ("int4", ""),
}
CTRANSLATE2 = {"int8": "ct2-int8"}
VLLM = {"bf16": "llama-3.2-1b", "half": "llama-3.2-1b", "int8": "vllm-int8", "int4": "vllm-int4"}


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # prefill, decode, serve or ready
    format: str  # of the weights, a key of the tables above
    title: str
    prompt: int = 0  # prefill and serve: tokens of a prompt
    depth: int = 0  # decode: tokens in the cache before
    batch: int = 1  # decode: sequences; serve: clients
    limit: str = ""  # read, f32, half or int8: the rate that bounds it
    note: str = ""
    skip: dict = field(default_factory=dict)  # engine: why it has no figure


NOT_A_SERVER = {"openvino": "not a server", "ctranslate2": "not a server"}

CASES = [
    Case("decode-bf16", "decode", "bf16", "decode, batch 1, bf16", limit="read"),
    Case("decode-int8", "decode", "int8", "decode, batch 1, int8", limit="read"),
    Case("decode-int4", "decode", "int4", "decode, batch 1, int4", limit="read"),
    Case("decode-bf16-deep", "decode", "bf16", "decode at depth 2048, bf16", depth=2048, limit="read"),
    Case("decode-int8-deep", "decode", "int8", "decode at depth 2048, int8", depth=2048, limit="read"),
    Case("prefill-bf16", "prefill", "bf16", "prefill 512, bf16, sums in fp32", prompt=512, limit="f32"),
    Case("prefill-half", "prefill", "half", "prefill 512, 16-bit arithmetic", prompt=512, limit="half"),
    Case("prefill-int8", "prefill", "int8", "prefill 512, int8", prompt=512, limit="int8"),
    Case("prefill-int8-long", "prefill", "int8", "prefill 2048, int8", prompt=2048, limit="int8"),
    Case("decode-int8-x8", "decode", "int8", "decode, batch 8, int8", batch=8, limit="read"),
    Case("decode-int8-x16", "decode", "int8", "decode, batch 16, int8", batch=16, limit="read"),
    Case("serve-int8-x16", "serve", "int8", "16 streaming clients, int8", prompt=128, batch=16, skip=NOT_A_SERVER),
    Case("serve-bf16-x16", "serve", "bf16", "16 streaming clients, bf16", prompt=128, batch=16, skip=NOT_A_SERVER),
    Case("serve-half-x16", "serve", "half", "16 streaming clients, 16-bit", prompt=128, batch=16, skip=NOT_A_SERVER),
    Case("ready-bf16", "ready", "bf16", "exec to ready, bf16", skip=NOT_A_SERVER),
]


def select(patterns):
    """Cases whose name matches one of the comma-separated patterns; a pattern that matches none is an error."""
    wanted = patterns.split(",")
    for pattern in wanted:
        if not any(fnmatch(c.name, pattern) for c in CASES):
            raise SystemExit(f"--rows: no row {pattern!r}; there are {', '.join(c.name for c in CASES)}")
    return [c for c in CASES if any(fnmatch(c.name, p) for p in wanted)]
