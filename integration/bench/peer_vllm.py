#!/usr/bin/env python3
"""One figure of vLLM on the CPU: load, warm up, time one prompt or the steps after it. Runs in the peers' venv of vLLM."""

import argparse
import json
import os
import resource
import time


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--prompt", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--dtype", default="bfloat16")
    o = p.parse_args()
    os.environ |= {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{o.threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process, so that its memory is counted
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import LLM, SamplingParams

    start = time.perf_counter()
    length = o.prompt + o.steps + 16
    model = LLM(
        o.model,
        dtype=o.dtype,
        max_model_len=max(length, 1024),
        max_num_seqs=o.batch,
        max_num_batched_tokens=max(o.prompt, 2048),
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    load_s = time.perf_counter() - start

    def generate(prompt, new):
        """Seconds of one call, which reads the prompts and makes `new` tokens of each."""
        ids = [[(p * 2654435761 + s * 40503) % 2**32 % 128000 for p in range(prompt)] for s in range(o.batch)]
        params = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        model.generate([{"prompt_token_ids": x} for x in ids], params, use_tqdm=False)
        return time.perf_counter() - begin

    generate(min(o.prompt, 512), 4)
    if o.steps == 0:
        rate = o.prompt / generate(o.prompt, 1)
    else:
        rate = o.batch * o.steps / (generate(o.prompt, 1 + o.steps) - generate(o.prompt, 1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"tokens_per_s": rate, "peak_rss_bytes": peak, "load_s": load_s}))


if __name__ == "__main__":
    main()
