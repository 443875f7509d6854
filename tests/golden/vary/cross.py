#!/usr/bin/env python3
"""Families x stored formats x precisions: random combinations, each compared with transformers on the dequantised numbers.

    python tests/golden/vary/cross.py [-n 200] [--seed 0] [--only WORD,...] [NUMBER...]       (make cross)

Each combination is drawn by its number: a family and a configuration of it (vary_arch.py), a layout of quantised matrices
(cross_formats.py), which matrices have it, the type of the others, the files (one, several with an index, pytorch_model.bin),
and types of weights, activations, keys and values at the server. Expected are transformers' logits in fp32 (or fp64, where
fp32 rounds) of the numbers that the layout means. A result is right, refused by one line, or WRONG: also a crash, a
refusal of several lines, and a time-out. The script ends with 1 if one is. Needs torch and transformers 5."""

import argparse, collections, contextlib, json, os, random, re, shutil, subprocess, sys, time, traceback

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers import CONFIG_MAPPING

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..")]
from cross_formats import GGUF, KINDS, draw, from_gguf, tokenizer
from vary_arch import ENCODERS, OPTIONS, SERVER, SPELLINGS, VOCAB, build, hub_keys, last_logits, served, spell

FOLDER = os.environ.get("CROSS", "build/golden/cross")
# neither matrices of a linear layer, nor stored in fewer bits by any tool
NOT_LINEAR = re.compile(r"embed|wte|wpe|word_emb|norm|\bln_|router|\.gate\.weight$|gate\.wg|conv|_gate\.weight$|A_log|\.D$|position|compress|relative")
HEAD = re.compile(r"(lm_head|embed_out)\.weight$")
TURNED = {"gpt2", "gpt-sw3", "openai-gpt"}  # Conv1D: [in, out]
OTHER = {"olmo_hybrid",  # transformers cannot read what it writes
         "phi4_multimodal",  # its towers are large
         "youtu",  # transformers reads another embedding than it wrote
         "xlm", "flaubert", "pegasus", "marian", "mbart", "bart", "mvp", "plbart", "blenderbot", "blenderbot-small", "big_bird", "bert-generation", "xlm-roberta-xl"}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EXACT = 1e-4  # of the root mean square of the logits
# Beyond EXACT a rounding is judged by what noise of that relative size in all matrices does to transformers' logits: small
# random models differ by orders of magnitude in how much they amplify. A way to run the model: the noise.
NOISE = {"kept": 2**-9, "auto": 2**-8, "bfloat16": 2**-8, "float16": 2**-8, "eetq": 2**-7, "w8a8": 2**-6, "fp8": 2**-5, "int4": 2**-3}
TIMES = 6
KV = ["float32", "float16", "bfloat16", "fp8", "int8", "int4"]
KV_NOISE = {"float16": 2**-9, "bfloat16": 2**-7, "fp8": 2**-4, "int8": 2**-6, "int4": 2**-2}

def families():
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) & set(CONFIG_MAPPING)
    return sorted(t for t in served() if t in known and t not in ENCODERS and t not in OTHER)


@contextlib.contextmanager
def widths(wide, plain):
    """`plain`: without what GGUF's architectures do not have."""
    kept = dict(OPTIONS)
    if plain:
        OPTIONS.update(hidden_act=["silu"], sliding_window=[None], use_sliding_window=[False], attention_bias=[False], mlp_bias=[False])
    if wide:
        OPTIONS.update(hidden_size=[256], intermediate_size=[256, 512, 384], n_embd=[256], d_model=[256], moe_intermediate_size=[128, 256], head_dim=[32, 64])
    yield
    OPTIONS.update(kept)


class Refused(Exception):
    """The line of a tool."""


class Combination:
    """What a number draws; .folder has the stored checkpoint, .model what it means."""

    def __init__(self, number, seed, only=()):
        r = self.r = random.Random(f"cross/{seed}/{number}")
        self.number, self.seed = number, seed
        all_of_them = families()
        self.family = r.choice([t for t in all_of_them if t in only] or all_of_them)
        self.kind = r.choice([k for k in KINDS if k in only] or KINDS)
        self.wide = r.random() < 0.3 or self.kind == "gguf"  # room for groups of 128 and blocks of 256 numbers
        if self.kind == "gguf":
            self.family = r.choice([t for t in GGUF if t in only] or sorted(GGUF))
        self.make, self.config, self.words = draw(self.kind, r)
        self.rest = r.choice(DTYPES)  # of what is not quantised
        self.files = r.choice(["one", "one", "several", "bin"])
        self.few = r.random() < 0.3   # some matrices stay as they are
        self.head = r.random() < 0.2 and self.kind not in ("awq", "fp8", "bnb4", "bnb8")
        self.spelling = r.choice(SPELLINGS)
        with widths(self.wide, self.kind == "gguf"):
            self.model, self.over = build(self.family, number, seed)
        self.folder, self.plain = f"{FOLDER}/{number}/stored", f"{FOLDER}/{number}/plain"
        self.quantised, self.moved = 0, {}

    def describe(self):
        return (f"{self.number} {self.family} {self.kind} {json.dumps(self.words)} rest={str(self.rest)[6:]} files={self.files} "
                f"few={self.few} wide={self.wide} head={self.head} {self.spelling} matrices={self.quantised}")

    def one(self, name, v, stored, plain):
        """One tensor of the checkpoint."""
        linear = name.endswith(".weight") and v.dim() == 2 and v.numel() and (not NOT_LINEAR.search(name) or self.head and HEAD.search(name))
        made = None
        if self.make and linear and not (HEAD.search(name) and not self.head) and not (self.few and self.r.random() < 0.3):
            turned = self.family in TURNED and not HEAD.search(name)
            if not turned or self.kind in ("gptq", "bnb4", "bnb8"):
                made = self.make(name.removesuffix(".weight"), (v.T if turned else v).float().contiguous(), self.r)
        if made:
            tensors, full = made
            stored |= {k: t.contiguous().clone() for k, t in tensors.items()}
            plain[name] = (full.T if turned else full).contiguous()
            self.quantised += 1
        else:
            computed = name.endswith(("slope_rate", "_decay"))  # MiniMax's, which transformers stores
            t = v.to(self.rest) if v.is_floating_point() and not computed else v
            stored[name] = t.contiguous()
            plain[name] = t.float().contiguous() if v.is_floating_point() else v

    def write(self):
        for f in (self.folder, self.plain):
            shutil.rmtree(f, ignore_errors=True)
            os.makedirs(f)
        self.model.save_pretrained(self.plain, save_original_format=True)
        if self.kind == "gguf":
            self.write_gguf()
            return
        stored, plain = {}, {}
        for name, v in load_file(f"{self.plain}/model.safetensors").items():
            self.one(name, v, stored, plain)
        save_file(plain, f"{self.plain}/model.safetensors", {"format": "pt"})
        config = spell(json.load(open(f"{self.plain}/config.json")), self.spelling)
        config["torch_dtype"] = str(self.rest)[6:]
        key = "quantization" if self.kind == "mlx" else "quantization_config"
        if self.config and self.quantised:
            config[key] = self.config
        json.dump(config, open(f"{self.folder}/config.json", "w"), indent=1)
        self.save(stored)
        self.model = AutoModelForCausalLM.from_pretrained(self.plain, dtype=torch.float32, attn_implementation=self.model.config._attn_implementation).eval()

    def write_gguf(self):
        """With the server's own writer; its numbers are read by llama.cpp's module."""
        tokenizer(self.plain, VOCAB)
        self.folder = f"{FOLDER}/{self.number}/model.gguf"
        p = subprocess.run([SERVER, "quantize", self.plain, self.folder, "--method", f"gguf:{self.words['type']}", "--calibration", "none", "--no-report"],
                           capture_output=True, text=True, timeout=300)
        if p.returncode:
            raise Refused(p.stderr.strip().splitlines()[-1])
        full = from_gguf(self.folder, load_file(f"{self.plain}/model.safetensors"), self.family, self.model.config)
        self.quantised = len(full)
        save_file(full, f"{self.plain}/model.safetensors", {"format": "pt"})
        self.model = AutoModelForCausalLM.from_pretrained(self.plain, dtype=torch.float32, attn_implementation="eager").eval()

    def save(self, tensors):
        if self.files == "bin" and not self.quantised:
            torch.save(tensors, f"{self.folder}/pytorch_model.bin")
        elif self.files == "several":
            parts, where = [{}, {}, {}], {}
            for k, v in tensors.items():
                n = self.r.randrange(3)
                parts[n][k] = v
                where[k] = f"model-{n + 1:05}-of-00003.safetensors"
            for n, p in enumerate(parts):
                save_file(p, f"{self.folder}/model-{n + 1:05}-of-00003.safetensors", {"format": "pt"})
            json.dump({"metadata": {}, "weight_map": where}, open(f"{self.folder}/model.safetensors.index.json", "w"))
        else:
            save_file(tensors, f"{self.folder}/model.safetensors", {"format": "pt"})

    def prompts(self):
        g = torch.Generator().manual_seed(self.number)
        for n in (5, 90):
            yield [1] + torch.randint(3, VOCAB, (n - 1,), generator=g).tolist()

    def amplified(self, ids, noise, k):
        """How far noise in the matrices moves the logits."""
        if (len(ids), noise, k) not in self.moved:
            torch.manual_seed(k)
            kept = {n: p.data for n, p in self.model.named_parameters()}
            base = last_logits(self.model, ids)
            for p in self.model.parameters():
                if p.dim() >= 2:
                    p.data = p.data * (1 + torch.randn_like(p) * noise)
            self.moved[len(ids), noise, k] = apart(last_logits(self.model, ids), base)
            for n, p in self.model.named_parameters():
                p.data = kept[n]
        return self.moved[len(ids), noise, k]

    def double(self, ids):
        torch.set_default_dtype(torch.float64)
        try:
            double = self.model.__class__(self.model.config).double().eval()
            double.load_state_dict(self.model.state_dict())
            return last_logits(double, ids)
        except RuntimeError:
            return None
        finally:
            torch.set_default_dtype(torch.float32)


def logits(folder, ids, args):
    """(log-probabilities of the prompt, last logits), line of a refusal, line of what became of the matrices"""
    p = subprocess.run([SERVER, "logits", folder, "--log-level", "info", "--ids", ",".join(map(str, ids)), *args], capture_output=True, text=True, timeout=120)
    loaded = next((l for l in p.stderr.splitlines() if "weights loaded" in l), "")
    rest = [l for l in p.stderr.splitlines() if " INFO " not in l and " WARN " not in l and l.strip()]
    if p.returncode < 0 or p.returncode > 128 or "Sanitizer" in p.stderr:
        return None, f"CRASH {p.returncode}: " + p.stderr[-600:], loaded
    if p.returncode:
        return None, rest[0] if len(rest) == 1 else "LINES " + " / ".join(rest)[:900], loaded
    o = json.loads(p.stdout, parse_constant=float)
    return torch.tensor([float("nan") if x is None else x for x in o["last_logits"]], dtype=torch.float64), None, loaded


def apart(a, b):
    scale = max(1.0, b.pow(2).mean().sqrt().item())
    e = (a - b).abs().max().item() / scale
    return e if e == e else 9e9


def settings(c):
    """Ways to run the model: (name, arguments, noise)."""
    r = c.r
    yield "float32", ["--dtype", "float32", "--activations", "exact"], 0
    yield "kept", ["--activations", "exact"], NOISE["kept"] if c.quantised else 0
    kv = r.choice(KV)
    yield f"kv-{kv}", ["--dtype", "float32", "--activations", "exact", "--kv-cache-dtype", kv], KV_NOISE.get(kv, 0)
    yield "auto", [], NOISE["auto"] if c.quantised else 0
    dtype = r.choice(["bfloat16", "float16"])
    yield dtype, ["--dtype", dtype, "--activations", r.choice(["exact", "16", "8"])], NOISE[dtype]
    if not c.quantised:
        q = r.choice(["eetq", "w8a8", "int4", "fp8"])
        yield f"load-{q}", ["--quantize", q], NOISE[q]


def judge(c, name, args, noise, ids, got):
    """(error, bound)"""
    e, bound = apart(got, last_logits(c.model, ids)), EXACT
    if e > EXACT and noise:
        bound = max(EXACT, TIMES * max(c.amplified(ids, noise, k) for k in range(6)))
    elif e > EXACT:
        single, double = last_logits(c.model, ids), c.double(ids)
        if double is not None:  # fp32 may be no better
            e, bound = min(e, apart(got, double)), max(EXACT, 4 * apart(single, double))
    if e > bound and name.startswith("kv-") and c.quantised:  # the same numbers, not quantised
        same, line, _ = logits(c.plain, ids, args)
        e = min(e, apart(got, same)) if not line else e
    return e, bound


def run(c, count):
    """Lines of what is wrong."""
    wrong = []
    c.write()
    for name, args, noise in settings(c):
        for ids in c.prompts():
            got, line, loaded = logits(c.folder, ids, args)
            if line and not line.startswith(("CRASH", "LINES")):
                count["refused"] += 1
                count[f"  refused: {c.family}: {line[-200:]}"] += 1
                break
            if line:
                wrong.append(f"{name}: {line}")
                break
            e, bound = judge(c, name, args, noise, ids, got)
            c.worst[name] = max(c.worst.get(name, 0), e)
            c.loaded[name] = re.sub(r".*?(dtype=.*)", r"\1", loaded)
            if not e <= bound:
                wrong.append(f"{name} {args}: {e:.2e} > {bound:.0e} ({c.loaded[name]})")
                break
        if line and name == "float32":
            break
        count[f"{name} runs"] += not line
    return wrong


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-n", type=int, default=200)
    a.add_argument("--first", type=int, default=0)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--only", default="", help="families and formats to draw from")
    a.add_argument("--keep", action="store_true")
    a.add_argument("--minutes", type=float, default=1e9, help="no combination begins after this time")
    a.add_argument("-v", action="store_true")
    a.add_argument("numbers", type=int, nargs="*")
    a = a.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * a.minutes
    count, table, families_seen, failed = collections.Counter(), collections.Counter(), set(), 0
    for number in a.numbers or range(a.first, a.first + a.n):
        if time.monotonic() > end:
            break
        try:
            c = Combination(number, a.seed, a.only.split(",") if a.only else ())
            c.worst, c.loaded = {}, {}
            if not c.model:
                count["none"] += 1
                continue
            wrong = run(c, count)
        except Refused as e:
            count["refused"] += 1
            count[f"  refused: {c.family}: {str(e)[-200:]}"] += 1
            continue
        except Exception as e:
            traceback.print_exc()
            wrong = [f"{type(e).__name__}: {str(e)[:300]}"]
        count["combinations"] += 1
        table[c.kind] += 1
        families_seen.add(c.family)
        for what in (f"files {c.files}", f"others {str(c.rest)[6:]}", "wide" if c.wide else "narrow", "some matrices" if c.few else "all matrices"):
            count[what] += 1
        if wrong or a.v:
            print(("WRONG " if wrong else "") + c.describe() + " " + json.dumps({k: float(f"{v:.1e}") for k, v in c.worst.items()}), *wrong, sep="\n    ", flush=True)
            if a.v:
                print("   ", c.loaded)
        failed += bool(wrong)
        if not wrong and not a.keep:
            shutil.rmtree(f"{FOLDER}/{number}", ignore_errors=True)
    for k, n in sorted(count.items()):
        print(f"{n:5} {k}")
    print("formats:", dict(table), "families:", len(families_seen), "wrong:", failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
