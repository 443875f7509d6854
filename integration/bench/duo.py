"""Speculation in llama_duo's configurations: plain decoding, this server, llama_duo's loop, and a loop that waits for N drafts.

    python integration/bench/duo.py [--step-ms 40] [--tokens 120] [--rounds 3] [--setup NAME ...]

Both models are stand-ins that sleep (integration/shards/paced_shard.py): a set-up is a ratio of speeds and an acceptance. The set-ups of
llama_duo's three measurements have the ratios of its machines and the acceptance at which its loop yields what it measured. `plain` and
`here` go through this server's router. llama_duo's loop and the synchronous one are played here with the same sleeps and without any
overhead, which favours them; `with calls` is llama_duo's loop where each of its calls takes as much longer than its sleep as a draft
call does here (it polls by HTTP for each draft token)."""

import argparse
import pathlib
import statistics
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / d) for d in ("", "shards")]
from paced import Pair
from paced_shard import drafted, token

SETUPS = {  # draft tokens in a step's time, acceptance, what llama_duo measured
    "M2 fp16, M1 mini Q3": (4, 0.91, 2.75),
    "M1 mini Q8, M2 Q4": (3, 0.84, 1.97),
    "M2 Ultra 70B, CPU 8B": (2, 0.55, 1.23),
    "8 times as fast": (8, 0.7, None),
    "16 times as fast": (16, 0.7, None),
}
ROW = 0.02  # of a step's time, for each draft that it verifies
SYNC = 4  # duo.cpp's --draft
AHEAD = 16  # llama_duo's --n_ahead


def accepted(at, drafts):
    n = 0
    while n < len(drafts) and drafts[n] == token(at + n):
        n += 1
    return n


def synchronous(step, ratio, right, tokens, first):
    """Each round waits for SYNC drafts."""
    said, start = 0, time.monotonic()
    while said < tokens:
        drafts = []
        for i in range(SYNC):
            time.sleep(step / ratio)
            drafts.append(drafted(first + said + i, right))
        time.sleep(step * (1 + ROW * SYNC))
        said += accepted(first + said, drafts) + 1
    return said / (time.monotonic() - start)


def duo(step, ratio, right, tokens, first, call=0):
    """llama_duo's lead and back: the lead verifies what is there, the back sleeps half a second when it is far ahead."""
    lock, over = threading.Lock(), threading.Event()
    said, s = 0, []  # s: the sequence as both know it, with drafts behind said

    def back():
        while not over.is_set():
            with lock:
                at, idle = len(s), said > 0 and len(s) > said + AHEAD
                state = list(s)
            if idle:
                over.wait(0.5)
                continue
            time.sleep(step / ratio + call)
            with lock:
                if len(s) == at and s == state:  # else it was rejected meanwhile
                    s.append(drafted(first + at, right))

    helper = threading.Thread(target=back)
    helper.start()
    start = time.monotonic()
    while said < tokens:
        with lock:
            drafts = s[said:]
        time.sleep(step * (1 + ROW * len(drafts)))
        n = accepted(first + said, drafts) + 1
        with lock:
            known = [token(first + i) for i in range(said + n)]
            said += n
            if s[:said] != known:
                s[:] = known
    rate = said / (time.monotonic() - start)
    over.set()
    helper.join()
    return rate


def measure(name, a, plain, here, want):
    ratio, right, theirs = SETUPS[name]
    first = next(at for at in range(64) if token(at) == want[0])  # the same positions for all
    got = {k: [] for k in ("plain", "here", "llama_duo", "with calls", "synchronous")}
    here.answer(40)
    call = here.between_calls()
    for _ in range(a.rounds):
        ids, rate = plain.answer(a.tokens)
        assert ids == want
        got["plain"].append(rate)
        ids, rate = here.answer(a.tokens)
        assert ids == want
        got["here"].append(rate)
        got["llama_duo"].append(duo(a.step_ms / 1000, ratio, right, a.tokens, first))
        got["with calls"].append(duo(a.step_ms / 1000, ratio, right, a.tokens, first, call))
        got["synchronous"].append(synchronous(a.step_ms / 1000, ratio, right, a.tokens, first))
    base = statistics.median(got["plain"])
    cells = [f"{statistics.median(v) / base:.2f} ({min(v) / base:.2f}–{max(v) / base:.2f})" for k, v in got.items() if k != "plain"]
    print(f"| {name} | {ratio} | {right} | {theirs or ''} | {base:.1f} | {' | '.join(cells)} | {call * 1000:.1f} | {here.waits('met'):.0f}, {here.waits('missed'):.0f} |", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--step-ms", type=float, default=40)
    p.add_argument("--tokens", type=int, default=120)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--setup", nargs="*", default=list(SETUPS))
    a = p.parse_args()
    print("| set-up | ratio | acceptance | llama_duo measured | plain, tokens/s | here | llama_duo's loop | the same with calls | synchronous | a call, ms | waits met, missed |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    with Pair(a.step_ms, a.step_ms * ROW) as plain:
        want, _ = plain.answer(a.tokens)
        for name in a.setup:
            with Pair(a.step_ms, a.step_ms * ROW, SETUPS[name][:2]) as here:
                measure(name, a, plain, here, want)


if __name__ == "__main__":
    main()
