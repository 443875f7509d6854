"""Compares this server with lmql's own (`lmql serve-model`, transformers on the CPU): 32 mixed streams on one connection, the same for both.

    python integration/bench/lmtp_peer.py MODEL_DIR [--peer PYTHON]

PYTHON has lmql 0.7.3 with transformers and torch (transformers 4.57 is the newest that lmql's server works with). The greedy streams' tokens and
log-probabilities are compared as well."""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lmtp import Socket  # noqa: E402
from serving import Service, free_port  # noqa: E402


def work(model, vocab, eos):
    """Half greedy, a quarter at 0.8, a quarter at 1.2 with top_p; prompts of 4 to 120 tokens, answers of 16 to 128."""
    rng = random.Random(7)
    for i in range(32):
        ask = {
            "model": model,
            "stream_id": i,
            "prompt": [1] + [rng.randrange(3, vocab) for _ in range(rng.randrange(3, 120))],
            "max_tokens": rng.randrange(16, 129),
            "logit_bias": {str(eos): -100},
        }
        if i % 4 == 1:
            ask |= {"temperature": 0.8}
        if i % 4 == 3:
            ask |= {"temperature": 1.2, "top_p": 0.9}
        yield ask


def one_run(w, asks):
    begin = time.perf_counter()
    sent, first, items, open_ = {}, {}, {a["stream_id"]: [] for a in asks}, {a["stream_id"] for a in asks}
    for a in asks:
        w.say("GENERATE " + json.dumps(a))
        sent[a["stream_id"]] = time.perf_counter()
    while open_:
        frame = w.receive()
        now = time.perf_counter()
        for i in json.loads(frame.split(b" ", 1)[1]):
            assert "error" not in i, i
            s = i["stream_id"]
            if s in open_:
                first.setdefault(s, now - sent[s])
                items[s].append(i)
                if i["finish_reason"]:
                    open_.discard(s)
    spent = time.perf_counter() - begin
    # the peer sends its last token twice, and more than was asked for: what was asked for counts
    n = sum(min(len(items[a["stream_id"]]), a["max_tokens"]) for a in asks)
    ttft = sorted(first.values())
    return {
        "tokens": n,
        "seconds": spent,
        "rate": n / spent,
        "ttft_p50": statistics.median(ttft),
        "ttft_p95": ttft[int(0.95 * (len(ttft) - 1) + 0.5)],
        "items": items,
    }


def compare(asks, ours, theirs):
    worst, n = 0.0, 0
    for a in asks:
        if "temperature" in a:
            continue
        s, k = a["stream_id"], a["max_tokens"]
        x, y = ours[s][:k], theirs[s][:k]
        assert [i["token"] for i in x] == [i["token"] for i in y], f"stream {s} differs"
        worst = max([worst] + [abs(p["logprob"] - q["logprob"]) for p, q in zip(x, y)])
        n += len(x)
    print(f"greedy streams: {n} tokens equal, log-probabilities differ by at most {worst:.1e}")


def wait_port(p, port):
    end = time.monotonic() + 120
    while True:
        assert p.poll() is None and time.monotonic() < end, "lmql's server did not start"
        try:
            return Socket(port)
        except OSError:
            time.sleep(0.2)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model")
    a.add_argument("--peer", default=sys.executable)
    a.add_argument("--runs", type=int, default=1)
    o = a.parse_args()
    config = json.loads((pathlib.Path(o.model) / "config.json").read_text())
    asks = list(work(o.model, config["vocab_size"], config["eos_token_id"]))
    rows = {}
    with Service(o.model, args=["--dtype", "float32"]) as s:
        w = Socket(s.port)
        one_run(w, asks[:2])
        rows["this server"] = min((one_run(w, asks) for _ in range(o.runs)), key=lambda r: r["seconds"])
    port = free_port()
    env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    argv = [o.peer, "-m", "lmql.cli", "serve-model", o.model, "--port", str(port), "--host", "127.0.0.1"]
    p = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        w = wait_port(p, port)
        one_run(w, asks[:2])
        rows["lmql serve-model"] = min((one_run(w, asks) for _ in range(o.runs)), key=lambda r: r["seconds"])
    finally:
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
    for name, r in rows.items():
        print(
            f"{name:17}: {r['tokens']} tokens in {r['seconds']:.3f} s, {r['rate']:8.0f} tokens/s,"
            f" first token p50 {1e3 * r['ttft_p50']:.1f} ms, p95 {1e3 * r['ttft_p95']:.1f} ms"
        )
    x, y = rows.values()
    print(f"ratio: tokens/s {x['rate'] / y['rate']:.1f}, p95 of the first token {x['ttft_p95'] / y['ttft_p95']:.3f}")
    compare(asks, x["items"], y["items"])


if __name__ == "__main__":
    main()
