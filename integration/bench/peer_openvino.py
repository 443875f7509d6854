#!/usr/bin/env python3
"""One figure of OpenVINO GenAI: load, warm up, time one prompt or the steps after it. Runs in the peers' venv."""

import argparse
import json
import resource
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def tokens(batch, n, seed):
    """Prompts that share no first token with those of another seed: the pipeline keeps prefixes."""
    ids = [[(p * 2654435761 + s * 40503 + seed * 7919) % 2**32 % 128000 for p in range(n)] for s in range(batch)]
    ids = np.array(ids, dtype=np.int64)
    return genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--precision", default="")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--prompt", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    o = p.parse_args()
    options = {"INFERENCE_NUM_THREADS": o.threads, "CACHE_DIR": f"{o.model}/cache"}
    if o.precision:
        options["INFERENCE_PRECISION_HINT"] = o.precision
    start = time.perf_counter()
    pipe = genai.LLMPipeline(o.model, "CPU", **options)
    load_s = time.perf_counter() - start

    def generate(prompt, new, seed):
        c = genai.GenerationConfig()
        c.max_new_tokens, c.min_new_tokens, c.ignore_eos, c.do_sample = new, new, True, False
        begin = time.perf_counter()
        metrics = pipe.generate(tokens(o.batch, prompt, seed), c).perf_metrics
        return time.perf_counter() - begin, metrics

    if o.steps == 0:
        generate(min(o.prompt, 512), 1, 1)  # kernels are made for the shapes they meet
        wall, metrics = generate(o.prompt, 1, 2)
        rate = o.prompt / wall
    else:
        generate(4, 4, 1)
        wall, metrics = generate(o.prompt, 1 + o.steps, 2)
        rate = o.batch * o.steps / (wall - metrics.get_ttft().mean / 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"tokens_per_s": rate, "peak_rss_bytes": peak, "load_s": load_s}))


if __name__ == "__main__":
    main()
