#!/usr/bin/env python3
"""Decode and prefill tokens/s of `model-server bench` beside llama.cpp (llama-cpp-python) on the same weights, in one run.

    python3 integration/bench/random_checkpoint.py llama-3.2-1b /tmp/m --gguf bf16
    python3 integration/bench/vs_llama_cpp.py /tmp/m /tmp/m/llama-3.2-1b-bf16.gguf --threads 2

The two take turns, round by round, so that whatever else the machine does hits both; medians are printed as a markdown table.
Needs: pip install llama-cpp-python (built natively) gguf numpy."""
import argparse
import json
import statistics
import subprocess
import sys
import time


def ours(args):
    cmd = [args.bin, "bench", args.checkpoint, "--json", "--repeat", "1", "--threads", str(args.threads)]
    cmd += ["--prefill", str(args.prefill), "--decode", str(args.decode), "--depth", str(args.depth)]
    j = json.loads(subprocess.run(cmd, check=True, capture_output=True, text=True).stdout)
    return j["prefill_tokens_per_s"], j["decode_tokens_per_s"], j["limit_read_gb_per_s"], j["weight_bytes"]


def peer_once(args):
    """Runs in a child process: prefill and decode through llama.cpp's C API, nothing else timed."""
    import ctypes
    import llama_cpp as L

    L.llama_backend_init()
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    mp = L.llama_model_default_params()
    mp.use_mmap = False  # its faster form
    model = L.llama_model_load_from_file(args.gguf.encode(), mp)
    cp = L.llama_context_default_params()
    cp.n_ctx = max(args.prefill, args.depth + args.decode) + 64
    cp.n_batch = cp.n_ubatch = 512
    cp.n_threads = cp.n_threads_batch = args.threads
    ctx = L.llama_init_from_model(model, cp)
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))

    def run(start, n, step):
        for at in range(start, start + n, step):
            m = min(step, start + n - at)
            toks = (L.llama_token * m)(*[(p * 2654435761 % 2**32) % vocab for p in range(at, at + m)])
            assert L.llama_decode(ctx, L.llama_batch_get_one(toks, m)) == 0
        L.llama_synchronize(ctx)

    def clear():
        L.llama_memory_clear(L.llama_get_memory(ctx), True)

    run(0, 16, 16)
    clear()
    t = time.perf_counter()
    run(0, args.prefill, 512)
    prefill = args.prefill / (time.perf_counter() - t)
    clear()
    run(0, args.depth + 1, 512)
    t = time.perf_counter()
    run(args.depth + 1, args.decode, 1)
    print(json.dumps([prefill, args.decode / (time.perf_counter() - t)]))


def peer(args):
    out = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--peer"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("checkpoint")
    p.add_argument("gguf")
    p.add_argument("--bin", default="build/bin/model-server")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--decode", type=int, default=32)
    p.add_argument("--depth", type=int, default=0)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peer", action="store_true")
    args = p.parse_args()
    if args.peer:
        return peer_once(args)
    rows = []
    for i in range(args.rounds):
        a, b = ours(args), peer(args)
        rows.append((*a, *b))
        print(f"round {i + 1}: ours {a[0]:.1f} {a[1]:.2f}  llama.cpp {b[0]:.1f} {b[1]:.2f}", file=sys.stderr)
    pre, dec, limit, size, lpre, ldec = (statistics.median(c) for c in zip(*rows))
    print(f"| case ({args.threads} threads, median of {args.rounds}) | ours tokens/s | llama.cpp tokens/s | ratio | of the read limit |")
    print("|---|---|---|---|---|")
    print(f"| prefill {args.prefill} | {pre:.1f} | {lpre:.1f} | {pre / lpre:.2f} | |")
    share = dec * size / 1e9 / limit
    print(f"| decode, batch 1, depth {args.depth} | {dec:.2f} | {ldec:.2f} | {dec / ldec:.2f} | {share:.2f} of {limit:.1f} GB/s |")


if __name__ == "__main__":
    main()
