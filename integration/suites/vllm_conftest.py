"""What vLLM's tests import of vLLM and torch, where neither is installed: names without meaning. A test that needs more fails, and is listed.

Answers that they validate by vLLM's types come back as they are; the tokenizer is the demo model's."""

import importlib.abc
import importlib.machinery
import os
import sys
import types

import transformers

DEMO = os.environ["INTEGRATION"] + "/../models/demo"
ABSENT = ("vllm", "torch", "soundfile", "librosa", "cv2", "PIL")


class Answer(types.SimpleNamespace):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


def answer(v):
    if isinstance(v, dict):
        return Answer(**{k: answer(x) for k, x in v.items()})
    return [answer(x) for x in v] if isinstance(v, list) else v


class Anything:
    def __init__(self, *_, **kw):
        self.__dict__.update(kw)

    model_validate = classmethod(lambda cls, d: answer(d))

    def __class_getitem__(cls, _):
        return cls

    def __call__(self, *_, **__):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "get_tokenizer":
            return lambda *_, **__: transformers.AutoTokenizer.from_pretrained(DEMO)
        return Anything() if name == "current_platform" else type(name, (Anything,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        module.__version__ = "0"


from_pretrained = transformers.AutoTokenizer.from_pretrained
from_pretrained(DEMO)  # transformers looks for torch now, before there seems to be one
transformers.AutoTokenizer.from_pretrained = lambda *_, **__: from_pretrained(DEMO)
sys.meta_path.append(Finder())


def pytest_configure(config):
    for mark in ("skip_global_cleanup", "slow_test", "core_model", "cpu_model", "optional"):
        config.addinivalue_line("markers", mark)
