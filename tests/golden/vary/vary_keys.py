#!/usr/bin/env python3
"""One key of config.json at a time, for every family that the registry serves and transformers has.

    python tests/golden/vary/vary_keys.py [--seed 0] [MODEL_TYPE[:KEY]...]       (make vary-keys)

vary_arch.py draws values for keys that checkpoints are known to use. This script takes a family's first configuration and
changes each key that transformers' class has, or that its modeling file reads, to a value of the same kind. A key is fine
if transformers' logits do not change, if those of `model-server logits` change to the same (within 1e-4), or if it refuses
the file. Else the key is read by transformers and ignored here: WRONG, and the script ends with 1."""

import argparse, inspect, json, os, re, resource, shutil, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM, CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..")]
from vary_arch import ENCODERS, MUST, OPTIONS, TOLERANCE, VOCAB, ask, build, last_logits, randomise, served

FOLDER = "build/golden/vary_keys"
IDS = [1] + torch.randint(3, VOCAB, (40,), generator=torch.Generator().manual_seed(1)).tolist()
# neither of the model's function, nor of its shape alone
SKIPPED = {"model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "vocab_size", "id2label", "label2id", "problem_type",
           "return_dict", "tie_word_embeddings", "per_layer_config", "auto_map", "name_or_path", "text_config", "vision_config", "audio_config"}


def values(key, old):
    """Other values of a key."""
    drawn = [v for v in OPTIONS.get(key, []) if v != old and not callable(v) and v != "heads"]
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, int):
        return drawn[:2] or [v for v in (old + 1, max(1, old // 2)) if v != old][:2]
    if isinstance(old, float):
        return drawn[:2] or [old * 1.5 + 0.1, 0.5]
    if isinstance(old, str):
        return drawn[:2] or [w for w in ("gelu", "relu") if w != old and "act" in key][:1]
    if old is None:
        return drawn[:2] or [True, 3, 0.7]
    return []


def read_by_code(model):
    """Keys that the modeling file asks for with a default, which config.json need not have."""
    return set(re.findall(r'getattr\((?:self\.)?config, "([a-z_0-9A-Z]+)"', inspect.getsource(sys.modules[type(model).__module__])))


def changed(model, base, key, value):
    """transformers' model with that value, or None if it refuses the value. A model of other shapes is a new one."""
    config = CONFIG_MAPPING[base["model_type"]].from_dict({**base, key: value})
    other = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=model.config._attn_implementation).eval()
    state = model.state_dict()
    own = other.state_dict()
    if {k: v.shape for k, v in own.items()} == {k: v.shape for k, v in state.items()}:
        other.load_state_dict(state)
        return other, False
    randomise(other, 5)
    return other, True


def family(t, seed, only):
    model, why = build(t, 0, seed)
    if not model:
        print(f"none {t} {why}", flush=True)
        return 0
    folder = f"{FOLDER}/{t}"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    base = json.load(open(f"{folder}/config.json"))
    ours, line = ask(folder, IDS)
    theirs = last_logits(model, IDS)
    if line or (ours - theirs).abs().max() > TOLERANCE * max(1.0, theirs.pow(2).mean().sqrt().item()):
        print(f"base {t} {line or 'differs'}", flush=True)
        return 0
    count, refused, wrong = 0, [], 0
    keys = [k for k in list(base) + sorted(read_by_code(model) - set(base)) if k not in SKIPPED and not k.startswith("_")]
    for key in keys:
        if only and key not in only:
            continue
        for value in values(key, base.get(key)):
            try:
                other, anew = changed(model, base, key, value)
                want = last_logits(other, IDS)
            except Exception:
                continue
            if not anew and torch.equal(want, theirs) or not want.isfinite().all():
                continue
            place = folder
            if anew:
                place = f"{folder}-anew"
                other.save_pretrained(place)
            json.dump({**base, key: value}, open(f"{place}/config.json", "w"), indent=1)
            got, line = ask(place, IDS)
            count += 1
            if line:
                refused.append(f"{key}={value}: {line[-150:]}")
            else:
                scale = max(1.0, want.pow(2).mean().sqrt().item())
                e = (got - want).abs().max().item() / scale
                if not e <= TOLERANCE:
                    wrong += 1
                    moved = (got - ours).abs().max().item()
                    print(f"WRONG {t}:{key} {base.get(key)!r} -> {value!r} differs by {e:.1e}, {'ignored' if moved == 0 else 'read'}"
                          f"{', new shapes' if anew else ''}", flush=True)
    print(f"| `{t}` | {count} | {len(refused)} | {wrong} |", flush=True)
    for line in refused:
        print(f"    {line}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(f"{folder}-anew", ignore_errors=True)
    return wrong


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("types", nargs="*")
    a = a.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # a value may make a model large: it is left out
    os.makedirs(FOLDER, exist_ok=True)
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) & set(CONFIG_MAPPING)
    todo = list(dict.fromkeys(t.split(":")[0] for t in a.types)) or sorted(t for t in served() if t in known and t not in ENCODERS)
    only = {}
    for t in a.types:
        if ":" in t:
            only.setdefault(t.split(":")[0], set()).add(t.split(":")[1])
    wrong = 0
    for t in todo:
        try:
            wrong += family(t, a.seed, only.get(t))
        except Exception as e:
            print(f"none {t} {type(e).__name__}: {str(e)[:200]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
