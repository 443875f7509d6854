#!/usr/bin/env python3
"""One figure of CTranslate2: load, warm up, time one prompt or the steps after it. Runs in the peers' venv."""

import argparse
import json
import pathlib
import resource
import time

import ctranslate2


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--prompt", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    o = p.parse_args()
    vocabulary = json.loads(pathlib.Path(o.model, "vocabulary.json").read_text())
    start = time.perf_counter()
    model = ctranslate2.Generator(o.model, device="cpu", intra_threads=o.threads, inter_threads=1)
    load_s = time.perf_counter() - start
    end = "<|reserved_128255|>"  # a token that random weights do not choose

    def generate(prompt, new):
        ids = [[(p * 2654435761 + s * 40503) % 2**32 % 128000 for p in range(prompt)] for s in range(o.batch)]
        words = [[vocabulary[i] for i in row] for row in ids]
        begin, first = time.perf_counter(), []

        def seen(step):
            if len(first) < o.batch:
                first.append(time.perf_counter())
            return False

        model.generate_batch(
            words,
            max_length=new,
            min_length=new,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=end,
            callback=seen,
            max_batch_size=0,
        )
        return time.perf_counter() - begin, time.perf_counter() - first[-1]

    if o.steps == 0:
        generate(min(o.prompt, 512), 1)
        rate = o.prompt / generate(o.prompt, 1)[0]
    else:
        generate(4, 4)
        rate = o.batch * o.steps / generate(o.prompt, 1 + o.steps)[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"tokens_per_s": rate, "peak_rss_bytes": peak, "load_s": load_s}))


if __name__ == "__main__":
    main()
