"""Load for a streaming server: clients that all start at once, each with a prompt of its own, and the times of their
tokens. Standard library only; `overhead` is the processor time it took itself."""

import concurrent.futures
import http.client
import json
import random
import statistics
import string
import threading
import time


def prompt(tokens, seed):
    """Text that the benchmark's tokenizer (random_checkpoint.py) makes `tokens` tokens of, begin-of-text included."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices(string.ascii_lowercase, k=3)) for _ in range(tokens - 1))


def ours(text, new):
    return "/generate_stream", {"inputs": text, "parameters": {"max_new_tokens": new, "do_sample": False}}


def llama_server(text, new):
    body = {"prompt": text, "n_predict": new, "stream": True, "temperature": 0, "ignore_eos": True}
    return "/completion", body | {"cache_prompt": False, "return_tokens": True}


def openai(text, new):
    """With vLLM's fields: random weights may choose the end, and tokens whose text is empty count too."""
    body = {"model": "served", "prompt": text, "max_tokens": new, "stream": True, "temperature": 0}
    return "/v1/completions", body | {"ignore_eos": True, "return_token_ids": True}


def tokens_of(event):
    """How many tokens an event carries: ours sends one per event, llama-server and vLLM a list."""
    if "choices" in event:
        return sum(len(c.get("token_ids") or []) for c in event["choices"])
    if "token" in event:
        return 1
    if "tokens" in event:
        return len(event["tokens"]) if not event.get("stop") else 0
    raise RuntimeError(f"the server answered {json.dumps(event)[:200]}")


def stream(port, path, body, times):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        raise RuntimeError(f"status {r.status}: {r.read(200)}")
    while line := r.readline():
        if line.startswith(b"data:") and b"[DONE]" not in line:
            now = time.perf_counter()
            times += [now] * tokens_of(json.loads(line[5:]))
    c.close()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def clients_of(port, requests):
    """The times of the tokens of each request, all sent at once by threads of this process, and its processor time."""
    times, errors, cpu = [[] for _ in requests], [], time.process_time()

    def client(i):
        try:
            stream(port, *requests[i], times[i])
        except (OSError, RuntimeError, ValueError, http.client.HTTPException) as e:
            errors.append(f"{type(e).__name__}: {e}")

    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(requests))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise RuntimeError(errors[0])
    return times, time.process_time() - cpu


def spread(port, requests, processes):
    """clients_of() by that many processes: one interpreter reads some 20 000 tokens a second."""
    if processes == 1:
        return clients_of(port, requests)
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        parts = list(pool.map(clients_of, [port] * processes, [requests[i::processes] for i in range(processes)]))
    return [t for part, _ in parts for t in part], sum(cpu for _, cpu in parts)


def steady(times):
    """Tokens per second between the last request's first token and the first request's last: all are in the batch."""
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    if end <= begin:
        return None
    return sum(begin < at <= end for t in times for at in t) / (end - begin)


def run(port, dialect, clients, prompt_tokens, new, seed, processes=1):
    """Tokens per second of all clients together, and percentiles over their requests and gaps, in seconds."""
    requests = [dialect(prompt(prompt_tokens, seed * 1000 + i), new) for i in range(clients)]
    begin = time.perf_counter()
    times, cpu = spread(port, requests, min(processes, clients))
    end = max(t[-1] for t in times)
    first = [t[0] - begin for t in times]
    gaps = [b - a for t in times for a, b in zip(t, t[1:])]
    return {
        "tokens": sum(map(len, times)),
        "tokens_per_s": sum(map(len, times)) / (end - begin),
        "steady_tokens_per_s": steady(times),
        "first_p50_s": statistics.median(first),
        "first_p95_s": percentile(first, 0.95),
        "gap_p50_s": statistics.median(gaps),
        "gap_p95_s": percentile(gaps, 0.95),
        "overhead": cpu / (end - begin),
    }
