"""The cost of a prefix after a restart: read from --kv-offload-dir, compared with computing it. Prints rows of docs/results/kv-cache.md.

    python integration/bench/kv_tiers.py MODEL [--tokens 4000] [--rounds 3]"""

import argparse
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from serving import Service, wait_for  # noqa: E402


def first_token(s, ids):
    t0 = time.monotonic()
    r = s.post("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1})
    assert r.status_code == 200, r.text
    return time.monotonic() - t0, r.json()["choices"][0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=4000)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    rng = random.Random(1)
    prompts = [[rng.randrange(300, 2000) for _ in range(o.tokens)] for _ in range(o.rounds)]
    folder = tempfile.mkdtemp(prefix="kv-", dir="/tmp")
    args = ["--kv-offload-dir", folder, "--max-total-tokens", o.tokens + 64, "--max-input-tokens", o.tokens + 32]
    args += ["--max-batch-prefill-tokens", o.tokens + 64]
    try:
        with Service(o.model, args=args) as s:
            first_token(s, [5] * 64)
            computed = [first_token(s, x) for x in prompts]
            want = o.rounds * ((o.tokens - 1) // 16)
            wait_for(lambda: (s.metric("tgi_kv_offload_stored") or 0) >= want, 60)
        size = sum(f.stat().st_size for f in pathlib.Path(folder).rglob("*.kv"))
        with Service(o.model, args=args) as s:
            first_token(s, [5] * 64)
            read = [first_token(s, x) for x in prompts]
            hits = s.metric("prefix_hit_tokens")
            late = s.metric("tgi_kv_offload_late")
        assert [a for _, a in read] == [a for _, a in computed], "other bits"
        c, r = (statistics.median(t for t, _ in x) for x in (computed, read))
        print(f"| {pathlib.Path(o.model).name} | {o.tokens} | {size / o.rounds / 2**20:.0f} MiB | {c:.3f} s | {r:.3f} s | {r / c:.3f} |")
        print(f"  prompt tokens read {hits:.0f} of {o.rounds * o.tokens}, late {late:.0f}; computed {computed and [round(t, 3) for t, _ in computed]}, "
              f"read {[round(t, 3) for t, _ in read]}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
