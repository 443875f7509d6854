#!/usr/bin/env python3
"""One key of config.json at a time, for every encoder of make_embed.py that transformers has under its own names.

    python tests/golden/vary/vary_encoders.py [NAME[:KEY]...]       (make vary-encoders)

As vary_keys.py does for models that generate: each key that transformers' class has, or that its modeling file reads, gets other
values of its kind. A value is fine if transformers' vectors do not change, if those of tests/golden/test_embed change to the
same (within 1e-5), or if the file is refused. Else it is WRONG, and the script ends with 1."""

import inspect, json, os, re, resource, shutil, subprocess, sys
import torch
from safetensors.torch import save_file
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoModelForTextEncoding, AutoModelForTokenClassification
sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..")]
from make_embed import AS, CASES, COMMON, TYPED, WITH, modules, spread, texts
from vary_keys import SKIPPED, values

FOLDER, TEST = "build/golden/vary_encoders", "build/tests/golden/test_embed"
LENGTHS = [1, 9, 70]
CLASSES = {"mean": AutoModel, "encoder": AutoModelForTextEncoding, "classify": AutoModelForSequenceClassification,
           "tokens": AutoModelForTokenClassification}
# of training, of decoding, or of the size of what is returned alone
ALSO_SKIPPED = {"chunk_size_feed_forward", "output_attentions", "output_hidden_states", "use_cache", "pad_token_id", "num_labels", "is_encoder_decoder",
                "max_position_embeddings", "cross_attention_hidden_size", "add_cross_attention"}


def configured(case, **more):
    case = {k: v for k, v in case.items() if k not in ("kind", "dense", "old_norms", "much")}
    if case["model_type"] == "distilbert":
        case |= dict(dim=64, hidden_dim=96, n_layers=4, n_heads=4)
    if case["model_type"] in ("t5", "mt5", "umt5"):
        case |= dict(d_model=64, d_ff=96, num_layers=4, num_heads=4)
    keys = {**COMMON, **case, **more}
    if case["model_type"] == "xlnet":  # its class refuses the key
        keys.pop("max_position_embeddings")
    for usual, own in CONFIG_MAPPING[case["model_type"]].attribute_map.items():  # the usual name would win
        if own in keys:
            keys.pop(usual, None)
    config = AutoConfig.for_model(**keys)
    config._attn_implementation = "eager"
    return config


def results(model, kind):
    g, out = torch.Generator().manual_seed(2), []
    for ids in texts(g, model.config.vocab_size, LENGTHS):
        types = [int(i > len(ids) // 2) for i in range(len(ids))] if model.config.model_type in TYPED else None
        feed = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        if types:
            feed["token_type_ids"] = torch.tensor([types])
        with torch.no_grad():
            got = model(**feed)
        text = dict(ids=ids, token_type_ids=types)
        if kind == "classify":
            text["logits"] = got.logits[0].tolist()
        else:
            text["embedding"] = (got.logits[0].flatten() if kind == "tokens" else got.last_hidden_state[0].mean(0)).tolist()
        out.append(text)
    return out


def numbers(found):
    return torch.tensor([x for t in found for x in t.get("logits") or t["embedding"]])


def save(folder, model, config, found, kind):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, f"{folder}/model.safetensors")
    said = json.loads(config.to_json_string(use_diff=False)) | dict(architectures=[type(model).__name__])
    json.dump(said, open(f"{folder}/config.json", "w"))
    json.dump(dict(texts=found), open(f"{folder}/golden.json", "w"))
    if kind == "mean":  # else a decoder would generate
        modules(folder, "mean", [], 0)


def served(folder):
    """None: as transformers; else a line."""
    run = subprocess.run([TEST, "a_given_folder*"], env={**os.environ, "GOLDEN_FOLDER": folder}, capture_output=True, text=True)
    if run.returncode == 0:
        return None
    lines = [line for line in (run.stdout + run.stderr).splitlines() if "refused:" in line or "off by" in line or "ERROR" in line or "rror:" in line]
    return lines[0] if lines else f"exit {run.returncode}: {run.stderr[-200:]}"


def read_by_code(model):
    return set(re.findall(r'(?:self\.)?config\.([a-z_0-9A-Z]+)', inspect.getsource(sys.modules[type(model).__module__]))) | set(
        re.findall(r'getattr\((?:self\.)?config, "([a-z_0-9A-Z]+)"', inspect.getsource(sys.modules[type(model).__module__])))


def made(case, kind, state=None, **more):
    config = configured(case, **more)
    torch.manual_seed(1)
    model = CLASSES[kind].from_config(config).eval().float()
    shapes = {k: v.shape for k, v in model.state_dict().items()}
    if state and shapes == {k: v.shape for k, v in state.items()}:
        model.load_state_dict(state)
    else:
        spread(model, torch.Generator().manual_seed(2), case.get("much", 0.2))
    return model, config


def family(name, only):
    case, kind = dict(CASES[name]), CASES[name]["kind"]
    model, config = made(case, kind)
    base = results(model, kind)
    folder = f"{FOLDER}/{name}"
    save(folder, model, config, base, kind)
    line = served(folder)
    if line:
        print(f"base {name}: {line[-200:]}", flush=True)
        return 0
    said = json.loads(config.to_json_string(use_diff=False))
    skipped = SKIPPED | ALSO_SKIPPED
    keys = [k for k in list(said) + sorted(read_by_code(model) - set(said)) if k not in skipped and not k.startswith("_")]
    count, refused, wrong = 0, [], 0
    for key in keys:
        for value in values(key, said.get(key)) if not only or key in only else []:
            try:
                other, changed = made(case, kind, model.state_dict(), **{key: value})
                found = results(other, kind)
            except Exception:
                continue
            want = numbers(found)
            if not want.isfinite().all() or (want.shape == numbers(base).shape and torch.equal(want, numbers(base))):
                continue
            save(folder, other, changed, found, kind)
            line = served(folder)
            count += 1
            if line and "off by" in line:
                wrong += 1
                print(f"WRONG {name}:{key} {said.get(key)!r} -> {value!r} {line[line.index('off by'):]}", flush=True)
            elif line:
                refused.append(f"{key}={value}: {line[-150:]}")
    print(f"| `{name}` | {count} | {len(refused)} | {wrong} |", flush=True)
    for line in refused:
        print(f"    {line}", flush=True)
    shutil.rmtree(folder)
    return wrong


def main():
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))  # a value may make a model large: it is left out
    only = {a.split(":")[0]: set(a.split(":")[1:]) for a in sys.argv[1:]}
    named = [n for n, c in CASES.items() if c["kind"] in CLASSES and n not in AS and n not in WITH and not {"dense", "old_norms"} & set(c)]
    return 1 if sum([family(n, only.get(n)) for n in only or named]) else 0


if __name__ == "__main__":
    sys.exit(main())
