"""llama.cpp's own server (pip install xllamacpp requests) with a GGUF file: its figures for one answer at a time.

    peer_llama_cpp.py FILE [--threads 2] [--prompt 128] [--new 24] [--rounds 3] [--cache q8_0]

--cache is the type of keys and values: f16, q8_0 or q4_0."""

import argparse
import os

import requests
import xllamacpp

ap = argparse.ArgumentParser()
ap.add_argument("file")
for name, value in (("threads", 2), ("prompt", 128), ("new", 24), ("rounds", 3)):
    ap.add_argument("--" + name, type=int, default=value)
ap.add_argument("--cache", default="f16")
a = ap.parse_args()
p = xllamacpp.CommonParams()
p.model.path = a.file
p.n_ctx, p.n_parallel, p.warmup = a.prompt + a.new + 64, 1, True
p.cache_type_k = p.cache_type_v = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + a.cache.upper())
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = a.threads
p.hostnames, p.port = ["127.0.0.1"], 0
server = xllamacpp.Server(p)
ids = [i * 7919 % 512 for i in range(a.prompt)]
for _ in range(a.rounds):
    body = {"prompt": ids, "n_predict": a.new, "ignore_eos": True, "cache_prompt": False, "temperature": 0}
    t = requests.post(server.listening_address + "/completion", json=body, timeout=600).json()["timings"]
    print(f"prompt {t['prompt_per_second']:.1f} tokens/s, decode {t['predicted_per_second']:.2f} tokens/s", flush=True)
os._exit(0)  # its threads do not end by themselves
