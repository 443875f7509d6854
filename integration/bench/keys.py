"""One API key floods the server, another one sends single requests: the second one's time to the first token, and how often it is refused.

    python integration/bench/keys.py [--model DIR] [--clients 256] [--seconds 15] [--replicas 1]"""

import argparse
import asyncio
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import requests  # noqa: E402
from serving import DEMO, Service, wait_for  # noqa: E402

PROMPT = " ".join(f"word{i}" for i in range(200))


def ready(s):
    """Groups of shards that serve; a service of one lists none."""
    listed = requests.get(s.url + "/info", headers={"Authorization": "Bearer a"}, timeout=10).json().get("replicas")
    return sum(r["state"] == "ready" for r in listed) if listed else 1


async def ask(port, key, n, text=PROMPT):
    """(status, seconds to the first token, longest pause between events)"""
    body = json.dumps({"prompt": text, "max_tokens": n, "ignore_eos": True, "stream": True}).encode()
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (key.encode(), len(body), body)
        )
        status = int((await reader.readline()).split()[1])
        first, last, pause = None, start, 0
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                now = time.monotonic()
                if first is None:
                    first = now - start
                else:
                    pause = max(pause, now - last)
                last = now
        return status, first, pause
    finally:
        writer.close()


async def one_at_a_time(port, key, seconds, pauses=None):
    got, end, k = [], time.monotonic() + seconds, 0
    while time.monotonic() < end:
        k += 1
        status, first, pause = await ask(port, key, 8, f"{k} {PROMPT}")  # not from the cache
        got.append((status, first, pause))
        await asyncio.sleep(0.05)
    return got


async def flood(port, key, clients, stop, counts):
    async def client(i):
        k = 0
        while not stop.is_set():
            k += 1
            try:
                status, _, pause = await ask(port, key, 40, f"{i} {k} {PROMPT}")
            except OSError:
                status, pause = 0, 0
            counts[status] = counts.get(status, 0) + 1
            counts["pause"] = max(counts.get("pause", 0), pause)
            if status != 200:
                await asyncio.sleep(0.1)

    await asyncio.gather(*(client(i) for i in range(clients)))


def show(what, got):
    ok = sorted(first for status, first, _ in got if status == 200)
    refused = sum(status != 200 for status, *_ in got)
    p90 = ok[int(len(ok) * 0.9)] if ok else float("nan")
    print(f"{what:28} {len(got):5} requests, {refused} refused; first token: median {statistics.median(ok or [0]) * 1e3:.0f} ms, p90 {p90 * 1e3:.0f} ms")
    return statistics.median(ok or [0])


async def measure(port, args):
    alone = show("B alone", await one_at_a_time(port, "b", args.seconds / 3))
    stop, counts = asyncio.Event(), {}
    a = asyncio.create_task(flood(port, "a", args.clients, stop, counts))
    while counts.get(429, 0) < args.clients // 4:
        await asyncio.sleep(0.1)
    beside = show("B while A floods", await one_at_a_time(port, "b", args.seconds))
    stop.set()
    await a
    step = counts.pop("pause")
    print(f"{'A, answers by status':28} {counts}; longest step {step * 1e3:.0f} ms; B: {beside / alone:.2f} times alone")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", default=DEMO)
    p.add_argument("--clients", type=int, default=256)
    p.add_argument("--seconds", type=float, default=15)
    p.add_argument("--replicas", type=int, default=1)
    args = p.parse_args()
    with Service(args.model, args=["--replicas", args.replicas], env={"API_KEY": "a,b"}) as s:
        wait_for(lambda: ready(s) == args.replicas, 60)
        asyncio.run(measure(s.port, args))


if __name__ == "__main__":
    main()
