#!/usr/bin/env python3
"""llama-server's command line, served by the launcher: what llama.cpp's own tests start in the place of their program.

Names of their hub mean models of the reference data. Options without a counterpart are left out, as are the defaults of sampling
(--temp, --seed, --n-predict): ours are of each request."""

import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN_DIR", ROOT / "build/bin"))
DATA = pathlib.Path(os.environ.get("TEST_DATA", ROOT / "../shared/data"))
MODELS = {
    "ggml-org/test-model-stories260K": DATA / "models/stories260K",
    "bert-bge-small/ggml-model-f16.gguf": DATA / "embed/bert_mean",
    "jina-reranker-v1-tiny-en/ggml-model-f16.gguf": DATA / "embed/xlm_roberta_rerank",
}
SWITCHES = """offline cont-batching embedding reranking metrics kv-unified swa-full slots no-slots verbose context-shift no-ui no-models-autoload
jinja no-jinja no-mmproj no-cache-idle-slots ui-mcp-proxy backend_sampling""".split()
OURS = {
    "alias": "--served-model-name",
    "api-key": "--api-key",
    "parallel": "--max-batch-size",
    "cors-origins": "--cors-allow-origin",
    "lora": "--lora-adapters",
    "batch-size": "--max-batch-prefill-tokens",
}
# A file without a template has ChatML's in llama-server; of its templates that have a name the tests use these.
CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
NAMED = {"llama3": "meta-llama-Llama-3.1-8B-Instruct.jinja"}


def options(argv):
    out, at = {}, 0
    while at < len(argv):
        name = argv[at].lstrip("-")
        switch = name in SWITCHES
        out[name] = True if switch else argv[at + 1]
        at += 1 if switch else 2
    return out


def template(o):
    name = o.get("chat-template", "chatml")
    path = o.get("chat-template-file") or (f"../../../models/templates/{NAMED[name]}" if name in NAMED else None)
    return pathlib.Path(path).read_text() if path else CHATML if name == "chatml" else name


def main():
    o = options(sys.argv[1:])
    model = MODELS.get(o.get("hf-file")) or MODELS.get(o.get("hf-repo"))
    if not model:
        sys.exit(f"there is no such model here: {o.get('hf-repo')} {o.get('hf-file')}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="suite-"))
    config = json.loads((model / "tokenizer_config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "chat_template": template(o)}))
    argv = [BIN / "launcher", "--model-id", model, "--port", o["port"], "--hostname", o["host"], "--shard-uds-path", folder / "s"]
    argv += ["--tokenizer-config-path", folder / "config.json"]
    if "ctx-size" in o:
        room = int(o["ctx-size"]) // (1 if "kv-unified" in o else int(o.get("parallel", 1)))
        argv += ["--max-total-tokens", room, "--max-input-tokens", room - 1]
    for theirs, ours in OURS.items():
        if theirs in o:
            argv += [ours, o[theirs]]
    os.environ.pop("PORT", None)
    os.execv(argv[0], [str(a) for a in argv])


main()
