#!/usr/bin/env python3
"""Combinations of cross.py through the real programs: ranks, adapters, drafts, chunks, tight memory, restarts.

    python tests/golden/vary/cross_serve.py [-n 60] [--seed 0] [--only WORD,...] [NUMBER...]       (make cross-serve)

Each combination is served twice. The first service has the drawn ranks, types and adapter alone: log-probabilities of prompts and
answers are compared with transformers (and PEFT) on the dequantised numbers. The second one also drafts, takes prompts in
chunks, preempts, and loses a shard: every token and every bit of a log-probability must be that of the first. Needs torch,
transformers 5, peft and requests."""

import argparse, collections, concurrent.futures, json, os, re, shutil, sys, time, traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../../integration")]
import torch
from cross import Combination, EXACT, FOLDER, KV, KV_NOISE, NOISE, Refused, TIMES
from cross_formats import FIRST, text_of, tokenizer
from serving import Service, wait_for
from vary_arch import VOCAB

ANSWER = 40
LEAVES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "c_attn", "c_proj", "c_fc", "qkv_proj", "gate_up_proj",
          "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "fc1", "fc2", "out_proj", "in_proj", "in_proj_qkvz", "in_proj_ba", "q_a_proj", "q_b_proj",
          "kv_a_proj_with_mqa", "kv_b_proj", "out_lin", "fc_in", "fc_out", "wq", "wk", "wv", "w1", "w2")


class Served(Combination):
    def __init__(self, number, seed, only=()):
        super().__init__(number, seed, only)
        r = self.r
        self.ranks = r.choice([1, 1, 2, 2, 3, 4])
        self.stages = r.choice([1, 1, 1, 2]) if self.ranks in (2, 4) else 1
        self.experts = r.random() < 0.3 and self.ranks > self.stages
        self.with_lora = r.random() < 0.6
        self.kv = r.choice(["float32", "float32"] + KV[1:])
        self.types, self.type_noise = r.choice([(["--dtype", "float32", "--activations", "exact"], 0), (["--activations", "exact"], NOISE["kept"]),
                                                ([], NOISE["auto"]), (["--dtype", "bfloat16"], NOISE["bfloat16"])])
        self.draft = r.choice(["none", "ngram", "ngram", "model"])
        self.prefill = r.choice([16, 40, 4096])
        self.tight = r.random() < 0.4
        self.kill = r.choice([0, 0, 0, 0.02, 0.1, 0.3])  # seconds until a shard is lost
        self.stores = r.sample([["--packed-cache", "PACKED"], ["--swap-space", "1"], ["--kv-offload-memory", "0.01"]], r.randint(0, 2))
        self.at_load = None
        self.targets = None

    def describe(self):
        return super().describe() + (f" ranks={self.ranks} stages={self.stages} experts={self.experts} lora={self.targets} kv={self.kv} types={self.types}"
                                     f" draft={self.draft} prefill={self.prefill} tight={self.tight} kill={self.kill} stores={self.stores} at_load={self.at_load}")

    def adapter(self):
        """An adapter of some linear layers, trained by nobody; .tuned computes with it."""
        import peft
        leaves = {n.rpartition(".")[2] for n, m in self.model.named_modules() if isinstance(m, torch.nn.Linear) or type(m).__name__ == "Conv1D"}
        routed = any(word in n for n, _ in self.model.named_modules() for word in (".experts", ".gate.", ".router")) or "n_routed_experts" in self.model.config.to_dict()  # PEFT would also update the experts, which is refused
        found = sorted(leaves & set(LEAVES) - ({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"} if routed else set()))
        if not self.with_lora or not found:
            return
        self.targets = sorted(self.r.sample(found, self.r.randint(1, len(found))))
        # experts and the towers of no text have the same leaves: what is routed is refused
        names = [n for n, m in self.model.named_modules() if n.rpartition(".")[2] in self.targets and ".experts." not in n]
        torch.manual_seed(self.number)
        if self.model.config.model_type in ("nemotron_h", "mamba", "mamba2", "falcon_mamba", "falcon_h1"):
            names = [n for n in names if not n.endswith("out_proj")]  # refused by PEFT
        if not names:
            self.targets = None
            return
        config = peft.LoraConfig(r=self.r.choice([1, 4, 7]), lora_alpha=self.r.choice([4, 8]), target_modules=names, init_lora_weights=False,
                                 use_rslora=self.r.random() < 0.5, fan_in_fan_out=any(type(m).__name__ == "Conv1D" for m in self.model.modules()))
        try:
            self.tuned = peft.get_peft_model(self.model, config).eval()
        except ValueError:  # a class whose experts PEFT would update, too
            self.targets = None
            return
        for n, p in self.tuned.named_parameters():
            if "lora_" in n:
                p.data = torch.randn_like(p) * 0.1
        self.tuned.save_pretrained(f"{FOLDER}/{self.number}/adapter")

    def args(self):
        a = ["--kv-cache-dtype", self.kv, *self.types, "--kv-cache-memory", "64Mi", "--enable-prefill-logprobs", "true", "--max-batch-prefill-tokens", "4096"]
        for store in self.stores:
            a += [f"{FOLDER}/{self.number}/packed" if x == "PACKED" else x for x in store]
        if self.at_load:
            a += ["--quantize", self.at_load]
        if self.stages > 1:
            a += ["--pipeline-parallel-size", self.stages]
        if self.experts:
            a += ["--enable-expert-parallel"]
        if self.targets:
            a += ["--lora-adapters", f"ad={FOLDER}/{self.number}/adapter"]
        return a

    def more_args(self):
        a = [x if x != "4096" else str(self.prefill) for x in self.args()]
        if self.draft != "none":
            a += ["--speculate", "4"]
        if self.draft == "model":
            a += ["--draft-model-id", self.plain]
        if self.tight:
            a += ["--max-batch-total-tokens", "448", "--max-total-tokens", "300"]
        return a

    def bodies(self):
        g = torch.Generator().manual_seed(self.number)
        for i, n in enumerate((3, 20, 70, 33)):
            ids = torch.randint(FIRST + 33, FIRST + 127, (n,), generator=g).tolist()
            if i == 3:
                ids = ids[:8] * 5
            for adapter in [None, "ad"] if self.targets else [None]:
                p = {"max_new_tokens": ANSWER, "details": True, "decoder_input_details": True, "ignore_eos": True}
                if i == 2:
                    p |= {"do_sample": True, "temperature": 1.3, "top_p": 0.95, "seed": self.number}
                if adapter:
                    p["adapter_id"] = adapter
                yield ids, adapter, {"inputs": text_of(ids), "parameters": p}

    @torch.no_grad()
    def logprobs(self, ids, adapter, noise=0, k=0):
        model = self.tuned if self.targets else self.model
        with model.disable_adapter() if self.targets and not adapter else torch.no_grad():
            kept = {n: p.data for n, p in model.named_parameters()} if noise else {}
            torch.manual_seed(k)
            for n in kept:
                p = dict_of(model)[n]
                if p.dim() >= 2 and "lora_" not in n:
                    p.data = p.data * (1 + torch.randn_like(p) * noise)
            out = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
            for n, v in kept.items():
                dict_of(model)[n].data = v
        return out.log_softmax(-1)


def dict_of(model):
    return dict(model.named_parameters())


def answer(s, body):
    r = s.post("/generate", body)
    assert r.status_code == 200, r.text
    d = r.json()["details"]
    return [t["id"] for t in d["tokens"]], [t["logprob"] for t in d["prefill"]], [t["logprob"] for t in d["tokens"]], d["prefill"]


def compare(c, ids, adapter, sampled, got):
    """A line of what differs from transformers."""
    said, before, after, prefill = got
    if [t["id"] for t in prefill] != ids:
        return f"the prompt is {[t['id'] for t in prefill][:8]}, not {ids[:8]}"
    all_of_it = ids + said
    want = c.logprobs(all_of_it[:-1], adapter)
    ours = torch.tensor(before[1:] + after, dtype=torch.float64)
    theirs = want[torch.arange(len(all_of_it) - 1), torch.tensor(all_of_it[1:])]
    short = want[len(ids) - 1:].max(-1).values - theirs[len(ids) - 1:]  # of the best token
    # Log-probabilities of sampled tokens are those behind temperature and top_p. Longrope answers that grow past the original
    # length differ as docs/results/architectures.md says.
    if sampled or "longrope" in str(c.over):
        e = (ours - theirs)[:len(ids) - 1].abs().max().item()
    else:
        e = max((ours - theirs).abs().max().item(), short.max().item())
    bound = 10 * EXACT
    if e > bound:
        noise = max(c.type_noise, KV_NOISE.get(c.kv, 0))
        if noise:
            moved = max((c.logprobs(all_of_it[:-1], adapter, noise, k) - want).abs().max().item() for k in range(2))
            bound = max(bound, TIMES * moved)
    c.worst["serve"] = max(c.worst.get("serve", 0), e)
    return f"{e:.2e} > {bound:.1e} (prompt of {len(ids)}, adapter {adapter})" if not e <= bound else None


def run(c, count):
    c.write()
    for folder in [c.plain] + [c.folder] * (c.kind != "gguf"):
        tokenizer(folder, VOCAB)
    c.adapter()
    if not c.quantised and c.r.random() < 0.4:
        c.at_load = c.r.choice(["eetq", "w8a8", "int4", "fp8"])
        c.type_noise = NOISE[c.at_load]
        c.types = [] if "exact" in c.types else c.types
    work, wrong = list(c.bodies()), []
    try:
        s = Service(c.folder, c.ranks, args=c.args(), env={"THREADS": "1"})
    except AssertionError as e:
        lines = [l for l in str(e).splitlines() if "ERROR" in l or "error:" in l]
        count["refused"] += 1
        count["  refused: " + (lines[0][-230:] if lines else str(e)[-500:])] += 1
        return [] if lines and not re.search(r"signal[= ](4|6|7|8|11)\b", str(e)) else [str(e)[-1500:]]
    with s:
        first = [answer(s, body) for _, _, body in work]
    for (ids, adapter, body), got in zip(work, first):
        line = compare(c, ids, adapter, "do_sample" in body["parameters"], got)
        wrong += [line] if line else []
    if c.draft == "model" and any(w in str(c.model.config.to_dict().keys()) for w in ("mamba", "linear_", "conv_", "ssm", "layer_group", "state_size")):
        c.draft = "ngram"  # draft models are not for recurrent ones
    try:
        with Service(c.folder, c.ranks, args=c.more_args(), env={"THREADS": "1", "SPECULATE_ROW_COST": "0.03"}) as s, concurrent.futures.ThreadPoolExecutor(12) as pool:
            if c.draft == "model":
                wait_for(lambda: s.metric("draft_ready") in (1, None), 20)
            jobs = [pool.submit(answer, s, without(body) if i % 2 else body) for i, (_, _, body) in enumerate(work + work)]
            if c.kill:
                time.sleep(c.kill)
                s.kill_shard()
            for i, j in enumerate(jobs):
                got, want = j.result(), first[i % len(work)]
                if got[0] != want[0] or got[2] != want[2] or not i % 2 and got[1] != want[1]:
                    at = next((k for k, (a, b) in enumerate(zip(got[0], want[0])) if a != b), None)
                    d = max(abs(a - b) for a, b in zip(got[2], want[2]))
                    wrong.append(f"second service, prompt {len(work[i % len(work)][0])} adapter {work[i % len(work)][1]}: tokens differ at {at}, log-probabilities by {d:.1e}")
            count["tokens skipped"] += int(s.metric("tgi_request_skipped_tokens_sum") or 0)
    except AssertionError as e:
        if "draft models are not supported" in str(e):
            count["refused: a draft model"] += 1
        else:
            wrong.append("second service: " + str(e)[-1500:])
    return wrong


def without(body):
    """The same request without its prompt's log-probabilities, which may take cached blocks."""
    return body | {"parameters": body["parameters"] | {"decoder_input_details": False}}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-n", type=int, default=60)
    a.add_argument("--first", type=int, default=0)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--only", default="")
    a.add_argument("--keep", action="store_true")
    a.add_argument("--minutes", type=float, default=1e9, help="no combination begins after this time")
    a.add_argument("-v", action="store_true")
    a.add_argument("numbers", type=int, nargs="*")
    a = a.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * a.minutes
    count, failed = collections.Counter(), 0
    for number in a.numbers or range(a.first, a.first + a.n):
        if time.monotonic() > end:
            break
        try:
            c = Served(number, a.seed, a.only.split(",") if a.only else ())
            c.worst, c.loaded = {}, {}
            if not c.model:
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
        for what in (f"ranks {c.ranks}", f"draft {c.draft}", f"kv {c.kv}", "adapter" if c.targets else "no adapter", "killed" if c.kill else "not killed", f"at load {c.at_load}", *(s[0] for s in c.stores), "chunks" if c.prefill < 4096 else "whole",
                     "tight" if c.tight else "roomy", "wide" if c.wide else "narrow", f"stages {c.stages}", f"expert parallel {c.experts}", f"format {c.kind}"):
            count[what] += 1
        if wrong or a.v:
            print(("WRONG " if wrong else "") + c.describe() + " " + json.dumps({k: float(f"{v:.1e}") for k, v in c.worst.items()}), *wrong[:6], sep="\n    ", flush=True)
        failed += bool(wrong)
        if not wrong and not a.keep:
            shutil.rmtree(f"{FOLDER}/{number}", ignore_errors=True)
    for k, n in sorted(count.items()):
        print(f"{n:5} {k}")
    print("wrong:", failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
