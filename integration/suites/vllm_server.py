"""Stands in for vLLM's tests/utils.py: RemoteOpenAIServer starts the launcher with the demo model, or one of the reference data."""

import json
import os
import pathlib
import sys
import tempfile

import anthropic
import openai

sys.path.insert(0, os.environ["INTEGRATION"])
from serving import DATA, DEMO, Service  # noqa: E402

ENCODERS = {
    "intfloat/multilingual-e5-small": DATA / "embed/bert_mean",
    "BAAI/bge-base-en-v1.5": DATA / "embed/bert_cls",
    "BAAI/bge-reranker-base": DATA / "embed/xlm_roberta_rerank",
    "BAAI/bge-reranker-v2-m3": DATA / "embed/xlm_roberta_rerank",
    "jason9693/Qwen2.5-1.5B-apeach": DATA / "embed/xlm_roberta_rerank",
}
VLLM_PATH = pathlib.Path(__file__).parent
ROCM_EXTRA_ARGS, ROCM_ENV_OVERRIDES = [], {}


def options(argv):
    """{"--name": [values]}; a switch has none."""
    out, name = {}, None
    for word in map(str, argv):
        if word.startswith("--"):
            name = word
            out[name] = []
        else:
            out[name].append(word)
    return out


def translated(model, argv):
    o, args = options(argv), []
    args += ["--served-model-name", o.get("--served-model-name", [model])[0]]
    if model not in ENCODERS:
        room = min(int(o.get("--max-model-len", ["2048"])[0]), 2048)
        args += ["--max-total-tokens", room, "--max-input-tokens", room - 1]
    for same in ("--api-key", "--root-path", "--generation-config", "--override-generation-config"):
        args += [same, o[same][0]] if same in o else []
    if "--enable-lora" in o or "--lora-modules" in o:
        args += ["--max-runtime-adapters", 8]
    if "--trust-request-chat-template" in o:
        args += ["--trust-request-chat-template"]
    if "--chat-template" in o:
        text = o["--chat-template"][0]
        text = pathlib.Path(text).read_text() if os.path.exists(text) else text
        path = pathlib.Path(tempfile.mkdtemp(prefix="suite-")) / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads((DEMO / "tokenizer_config.json").read_text()), "chat_template": text}))
        args += ["--tokenizer-config-path", path]
    return args


class RemoteOpenAIServer:
    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model, args, *, env_dict=None, **_):
        os.environ.pop("PORT", None)
        key = (env_dict or {}).get("VLLM_API_KEY")
        self.service = Service(ENCODERS.get(model, DEMO), args=translated(model, args), env={**(env_dict or {}), **({"API_KEY": key} if key else {})})
        self.host, self.port, self.url_root = "127.0.0.1", self.service.port, self.service.url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.service.stop()

    def url_for(self, *parts):
        return "/".join([self.url_root, *parts])

    def client(self, kind, base, **kw):
        return kind(**{"base_url": base, "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": 600, **kw})

    def get_client(self, **kw):
        return self.client(openai.OpenAI, self.url_for("v1"), **kw)

    def get_async_client(self, **kw):
        return self.client(openai.AsyncOpenAI, self.url_for("v1"), **kw)

    def get_client_anthropic(self, **kw):
        return self.client(anthropic.Anthropic, self.url_root, **kw)

    def get_async_client_anthropic(self, **kw):
        return self.client(anthropic.AsyncAnthropic, self.url_root, **kw)


RemoteOpenAIServerCustom = RemoteLaunchRenderServer = RemoteOpenAIServer


def unchanged(*_, **__):
    return lambda f: f


create_new_process_for_each_test = multi_gpu_test = large_gpu_mark = unchanged
