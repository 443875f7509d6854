#!/usr/bin/env python3
"""Generated pages of docs/: `make docs-pages` writes them, test_docs.py fails if they are outdated.

    python3 integration/docs/docs_pages.py BIN_DIR [OUT_DIR]"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCH = ROOT / "model-server/model/arch"
NOTE = "Printed by `make docs-pages` from {}; do not edit.\n"


def joined(text):
    """The string literals of `text` as C joins them."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"')


def families():
    """(name of the file, model_type words, what the first comment says, has experts, gives no text) of each family."""
    for file in sorted(ARCH.glob("*.c")):
        text = file.read_text()
        words = re.search(r"\.types =\s*\(const char \*const\[\]\)\{(.*?)NULL\}", text, re.S)
        about = re.match(r"/\*(.*?)\*/", text, re.S)
        if not words or not about:
            raise SystemExit(f"{file}: no .types, or no comment at the top")
        about = " ".join(line.strip(" *") for line in about.group(1).splitlines()).strip()
        experts = re.search(r"W_ROUTER|NAMES_\w*EXPERTS", text) is not None
        encodes = re.search(r"config_(encoder|sums)\(", text) is not None or re.search(r"no_head\b[^;]*= true;", text) is not None
        yield file.stem, re.findall(r'"([^"]+)"', words.group(1)), about, experts, encodes


def table(rows):
    out = "| `model_type` | family |\n|---|---|\n"
    for _, words, about, _, _ in rows:
        out += f"| {', '.join(f'`{w}`' for w in words)} | {about.replace('|', chr(92) + '|')} |\n"
    return out


def towers():
    """(model_type words, tower it must have) of each family of vision towers, by name."""
    folder = ROOT / "model-server/encoder/family"
    found = {}
    for file in sorted(folder.glob("*.c")):
        for name, body in re.findall(r"encoder_family family_(\w+) = \{(.*?)\n?\};", file.read_text(), re.S):
            words = re.findall(r'"([^"]+)"', re.search(r"\.types =\s*\(const char \*const\[\]\)\{(.*?)NULL\}", body, re.S).group(1))
            tower = re.search(r'\.tower = "([^"]+)"', body)
            found[name] = words, tower and tower.group(1)
    return [found[name] for name in sorted(found)]


def tower_table():
    out = "| `model_type` | its `vision_config` |\n|---|---|\n"
    for words, tower in towers():
        out += f"| {', '.join(f'`{w}`' for w in words)} | {f'`{tower}`' if tower else 'any'} |\n"
    return out


def vision_words(rows):
    return [w for _, words, _, _, _ in rows for w in words if "_vl" in w or "qwen3_5" in w]


def source(row):
    return (ARCH / f"{row[0]}.c").read_text()


def decodes(row):
    """A decoder that attends to the rows of an encoder; with choose() the family has encoders alone as well."""
    return ".encoder = &" in source(row)


def models():
    rows = list(families())
    list_c = re.search(r"text_prefixes\[\] = \{(.*?)\};", (ARCH.parent / "arch.c").read_text(), re.S).group(1)
    prefixes = ", ".join(f"`{p}`" for p in re.findall(r'"([^"]+)"', list_c))
    checked = re.findall(r'"vision/([^"]+)"', (ROOT / "tests/golden/arch_dirs.h").read_text())
    gguf = (ROOT / "common/gguf/families.c").read_text()
    gguf = re.findall(r'^    \{"([^"]+)", (?:"([^"]+)"|NULL), (?:"([^"]+)"|NULL),', gguf[gguf.index("gguf_family families[]") :], re.M)
    words = sum(len(r[1]) for r in rows)
    out = f"# Model families\n\n{NOTE.format('the registry (`model-server/model/arch/`, `model-server/encoder/family/`, `common/gguf/families.c`)')}\n"
    out += f"The `model_type` of a checkpoint's `config.json` chooses the family. {len(rows)} families serve {words} model types. Any other one\n"
    out += "is refused, and the error lists similar ones. What was compared with transformers, and how closely, is in\n"
    out += "[agreement with transformers](results/architectures.md).\n"
    out += "\n## Dense decoders\n\n" + table([r for r in rows if not r[3] and not r[4]])
    out += "\n## Mixtures of experts\n\nMost layers have experts. A family may also have dense layers.\n\n" + table([r for r in rows if r[3]])
    out += "\n## Text encoders\n\nThey compute embeddings, or scores with a classifier: [embeddings and rerankers](how-to/embeddings.md). So do the decoders above, with\n"
    out += "`--task embed` or if `modules.json` says so; EmbeddingGemma is a `gemma3_text` with bidirectional attention.\n\n"
    out += table([r for r in rows if r[4] and (not decodes(r) or ".choose = " in source(r))])
    out += "\n## Encoder-decoders\n\nThey generate: the encoder reads the prompt, and the decoder attends to its output\n"
    out += "([decision](decisions/encoder-decoder.md)). Checkpoints whose class ends in `EncoderModel` are text encoders, listed above.\n\n"
    out += table([r for r in rows if decodes(r)])
    out += "\n## Vision towers\n\n"
    out += "Models that take [images](how-to/images.md): the `model_type` of the checkpoint, and that of its `vision_config`. What was\n"
    out += "compared with transformers is in [results of images](results/images.md).\n\n" + tower_table()
    out += "\n## The text side of vision checkpoints\n\n"
    out += "A checkpoint that keeps its decoder in `text_config` is served as that decoder. Images in requests are refused if the\n"
    out += "table above does not list its vision tower.\n"
    out += f"Names of tensors may have one of these prefixes: {prefixes}.\n\n"
    out += "| | |\n|---|---|\n"
    out += f"| `model_type` words of vision checkpoints | {', '.join(f'`{w}`' for w in vision_words(rows))} |\n"
    out += f"| checkpoints that `tests/golden/test_arch.c` checks | {', '.join(f'`{c}`' for c in checked)} |\n"
    out += "\n## GGUF files\n\n`general.architecture` chooses the family; [GGUF files](decisions/gguf.md) says what is read of a file.\n\n"
    out += "| `general.architecture` | read as |\n|---|---|\n"
    for name, plain, experts in gguf:
        with_experts = f", or `{experts}` with experts" if plain else f"`{experts}`"
        out += f"| `{name}` | {f'`{plain}`' if plain else ''}{with_experts if experts and experts != plain else ''} |\n"
    return out


def metrics():
    text = (ROOT / "router/metrics.h").read_text()
    text = text[text.index("#define ROUTER_METRICS(X)") :].split("\n\n")[0].replace("\\\n", "\n")
    rows = re.findall(r'X\(M_\w+,\s*([A-Z_]+),\s*"(\w+)",\s*(?:NULL|"(\w+)"),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)', text)
    if len(rows) != len(re.findall(r"\bX\(M_", text)):
        raise SystemExit("router/metrics.h: a row that this program does not read")
    out = f"# Metrics\n\n{NOTE.format('`router/metrics.h`')}\n"
    out += "`GET /metrics` serves these in Prometheus' text format. Names that begin with `tgi_` are text-generation-inference's or\n"
    out += "follow them. `docker/chart/dashboard.json` shows them. Durations are in seconds.\n\n"
    out += "| name | type | label | meaning |\n|---|---|---|---|\n"
    for kind, name, label, help_ in sorted(rows, key=lambda r: r[1]):
        kind = kind.lower() if kind in ("COUNTER", "GAUGE") else "histogram"
        out += f"| `{name}` | {kind} | {f'`{label}`' if label else ''} | {joined(help_)} |\n"
    names = dict(re.findall(r'X\((M_\w+),\s*\w+,\s*"(\w+)"', text))
    out += "\n## vLLM's names\n\nThe same values under vLLM's names, for routers and autoscalers that know only these, with the labels `model_name` and\n"
    out += "`engine`. `vllm:cache_config_info` has the labels `block_size` and `num_gpu_blocks`, and the value 1.\n\n"
    out += "| name | is |\n|---|---|\n"
    for name, row, part in re.findall(r'X\("(vllm:\w+)",\s*(M_\w+),\s*(\w+)\)', (ROOT / "router/metrics.h").read_text()):
        out += f"| `{name}` | {'the sum of ' if part == 'SUM' else ''}`{names[row]}` |\n"
    out += "\nThe Grafana dashboards of the vLLM project find their series here, except those of its connectors. `vllm:engine_sleep_state`\n"
    out += "always says `awake`.\n"
    out += "\n`vllm:lora_requests_info` exists if adapters are served: its value is the time, its labels `max_lora`,\n"
    out += "`running_lora_adapters` and `waiting_lora_adapters` (names separated by commas).\n"
    out += "\n## llama-server's names\n\nThe same values, without labels of their own.\n\n| name | is |\n|---|---|\n"
    for name, row, part in re.findall(r'X\("(llamacpp:\w+)",\s*(M_\w+),\s*(\w+)\)', (ROOT / "router/metrics.h").read_text()):
        out += f"| `{name}` | {'the sum of ' if part == 'SUM' else ''}`{names[row]}` |\n"
    out += "\n## HTTP and the process\n\nThe names are those of prometheus-fastapi-instrumentator and of Prometheus' client libraries. Probes are not counted.\n\n"
    out += "| name | type | labels | meaning |\n|---|---|---|---|\n"
    labels = {"http_requests_total": "`handler`, `method`, `status`", "http_request_duration_seconds": "`handler`, `method`"}
    for name, kind, help_ in re.findall(r'"(http_\w+)", "(\w+)",\s*"([^"]+)"', (ROOT / "router/http/traffic.c").read_text()):
        out += f"| `{name}` | {kind} | {labels[name]} | {help_} |\n"
    for name, kind, help_ in re.findall(r'"(process_\w+)", "(\w+)",\s*"([^"]+)"', (ROOT / "router/api/service/process_metrics.c").read_text()):
        out += f"| `{name}` | {kind} | | {help_} |\n"
    out += "\n## Replicas\n\nWith several replicas the series above are sums over all of them. The following have a label `replica`:\n\n"
    out += "| name | type | meaning |\n|---|---|---|\n"
    for name, kind, help_ in re.findall(r'\{"(replica_\w+)", "(\w+)",\s*"([^"]+)"', (ROOT / "router/api/service/fleet_metrics.c").read_text()):
        out += f"| `{name}` | {kind} | {help_} |\n"
    return out


def printed(bin_dir):
    """The pages that the programs print of themselves."""

    def run(*argv):
        return subprocess.run([bin_dir / argv[0], *argv[1:]], capture_output=True, text=True, check=True).stdout

    tools = "# model-server: tools\n\nPrinted by the program; do not edit. `model-server serve` has [a page of its own](model-server.md).\n"
    for tool in ("bench", "logits", "quality", "quantize", "download-weights"):
        tools += "\n#" + run("model-server", tool, "--help-markdown")
    return {
        "launcher.md": run("launcher", "--help-markdown"),
        "router.md": run("router", "--help-markdown"),
        "model-server.md": run("model-server", "serve", "--help-markdown"),
        "model-server-tools.md": tools,
        "http-api.md": run("router", "routes"),
    }


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs"
    for name, text in {"models.md": models(), "metrics.md": metrics(), **printed(pathlib.Path(sys.argv[1]))}.items():
        if not (to / name).is_file() or (to / name).read_text() != text:
            (to / name).write_text(text)
            print(to / name)
