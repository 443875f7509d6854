"""Requests of all protocols at once, of which a part is given up, while shards, drafts and models on demand are killed or frozen.

    BIN_DIR=build/bin python integration/faults/storm.py [--seed 1] [--rounds 20] [--seconds 8] [--clients 24] [-- LAUNCHER OPTIONS]

Two ranks, drafts, adapters, a model on demand, and a KV cache for a fraction of the requests, with a swap region in every other round.
Each answer must be that of a quiet service, to the last token and log-probability, or an error if two losses fell into its time: a request
that runs at two losses may be their cause, and ends. At the end nothing may be held."""

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time

os.environ.setdefault("THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from serving import DEMO, Service, wait_for  # noqa: E402
from test_adapters import make_adapter  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

PATIENCE_S = 120
WORDS = "once upon a time there was a cat who lived in a small red house by the sea and said hello to the moon".split()
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer"}}, "required": ["name", "n"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
# what no two answers have in common, or what a cache that died does not have
VOLATILE = {"id", "created", "created_at", "completed_at", "cached_tokens", "prompt_tokens_details", "input_tokens_details", "timings", "cache_read_input_tokens"}
VOLATILE |= {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "tokens_cached", "item_id", "call_id", "input_tokens", "response_id"}
VOLATILE |= {"x_groq", "tokens_evaluated", "generation_settings", "prompt_eval_count", "cache_creation_input_tokens"}


def work(rng):
    """The bodies; each answer is a function of its body."""
    text = lambda: " ".join(rng.choices(WORDS, k=rng.choice((2, 5, 20, 60))))
    for i in range(60):
        n, seed, hot = rng.choice((3, 20, 60, 110)), rng.randrange(1 << 31), rng.choice((0.7, 1, 1.4))
        model = rng.choice(("tgi", "tgi", "red", "blue", "one"))
        chat = {"model": model, "messages": [{"role": "user", "content": text()}], "max_tokens": n, "seed": seed, "temperature": hot}
        stream = rng.random() < 0.6
        more = rng.choice(({}, {"repetition_penalty": 1.2, "frequency_penalty": 0.2}, {"top_k": 9}, {"typical_p": 0.8}, {"stop": [" the"]}))
        tgi = {"max_new_tokens": n, "do_sample": True, "seed": seed, "temperature": hot, "details": True, "top_n_tokens": i % 3, **more}
        tgi |= {"adapter_id": model} if model in ("red", "blue") else {}
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
        complete = {"model": model, "prompt": text(), "max_tokens": n, "seed": seed, "temperature": hot, "logprobs": i % 3, "stream": stream}
        yield [
            ("/generate_stream", {"inputs": text(), "parameters": tgi}),
            ("/generate", {"inputs": text(), "parameters": tgi | {"decoder_input_details": True}}),
            ("/v1/chat/completions", chat | {"stream": stream, "logprobs": True, "top_logprobs": 2}),
            ("/v1/chat/completions", chat | {"stream": stream, "response_format": schema}),
            ("/v1/chat/completions", chat | {"stream": stream, "tools": [TOOL], "tool_choice": "required"}),
            ("/v1/completions", complete | {"n": rng.choice((1, 3)), "presence_penalty": 0.3}),
            ("/v1/completions", complete | {"stream": False, "best_of": 3, "echo": True}),
            ("/v1/responses", {"model": model, "input": text(), "max_output_tokens": n + 15, "temperature": 0, "stream": stream}),
            ("/v1/messages", {"model": model, "messages": chat["messages"], "max_tokens": n, "temperature": 0, "stream": stream}),
            ("/api/generate", {"model": model, "prompt": text(), "stream": stream, "options": {"num_predict": n, "seed": seed, "temperature": hot}}),
            ("/api/chat", {"model": model, "messages": chat["messages"], "stream": stream, "options": {"num_predict": n, "seed": seed}}),
            ("/completion", {"prompt": text(), "n_predict": n, "stream": stream, "seed": seed, "temperature": hot, "n_probs": i % 3}),
            ("lmtp", {"text": text(), "max_tokens": n, "seed": seed, "temperature": hot, "top_logprobs": 2, "stream_id": i, "model": model}),
        ][i % 13]


def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in VOLATILE}
    return [plain(v) for v in value] if isinstance(value, list) else value


def joined(events):
    """Of a stream: all texts by their place, and the last value of everything else; how it was cut into events does not count."""
    out = collections.defaultdict(list)

    def put(place, value):
        if isinstance(value, dict):
            for k, v in value.items():
                put(f"{place}.{k}", v)
        elif isinstance(value, list):
            out[place].extend(value)
        elif isinstance(value, str) and place.endswith((".content", ".text", ".delta", ".partial_json", ".arguments", ".response")):
            out[place].append(value)
        elif value is not None:
            out[place] = [value]

    for e in events:
        choices = e.pop("choices", []) if isinstance(e, dict) else []
        for c in choices:
            put(f"choice {c.get('index')}", c)
            put(f"choice {c.get('index')}", {"usage": e.pop("usage", None)})  # choices end in any order
        put(str(e.get("type", "")) + str(e.get("index", "")) if isinstance(e, dict) else "", e)
    return {k: "".join(v) if v and all(isinstance(x, str) for x in v) else v for k, v in out.items()}


class GaveUp(Exception):
    pass


def over_http(port, path, body, leave):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(c):
        c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        if leave is not None and not (body.get("stream") or "stream" in path):
            time.sleep(leave * 0.3)
            raise GaveUp
        r = c.getresponse()
        if leave is not None:
            r.read(int(leave * 4000))
            c.sock.shutdown(socket.SHUT_RDWR)
            raise GaveUp
        raw = r.read()
    if r.headers.get_content_type() == "text/event-stream":
        lines = [x[5:].strip() for x in raw.splitlines() if x.startswith(b"data:")]
    else:
        lines = raw.splitlines() if r.headers.get_content_type() == "application/x-ndjson" else [raw]
    said = [plain(json.loads(x)) for x in lines if x and x != b"[DONE]"]
    if r.status != 200 or len(said) == 1:
        return [r.status, said]
    if path == "/generate_stream":  # an event for each token, always
        return [200, said]
    return [200, joined(said)]


def over_lmtp(port, body, leave):
    out = []
    with connect(f"ws://127.0.0.1:{port}/", max_size=None, open_timeout=PATIENCE_S) as ws:
        ws.send("GENERATE " + json.dumps(body))
        while not (out and (out[-1].get("finish_reason") or "error" in out[-1])):
            kind, _, text = ws.recv(PATIENCE_S).partition(" ")
            if kind == "TOKEN":
                out += json.loads(text)
            if leave is not None and len(out) > leave * 30:
                if leave > 0.5:
                    ws.send("CANCEL " + json.dumps({"stream_id": "c", "data": {"stream_id": body["stream_id"]}}))
                raise GaveUp
    return out


def ask(port, path, body, leave=None):
    return over_lmtp(port, body, leave) if path == "lmtp" else over_http(port, path, body, leave)


def victim(s, r):
    """A process that is to be lost; each of the launcher's children but the router."""
    found = s.shards()
    return r.choice(found) if found else None


def strike(s, r, end, struck):
    while time.monotonic() < end:
        time.sleep(r.uniform(0.3, 3))
        pid, sig = victim(s, r), r.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM))
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
                struck.append((time.monotonic(), sig.name))


def difference(want, got):
    """Where two answers begin to differ, for who reads it."""
    a, b = json.dumps(want), json.dumps(got)
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"want ...{a[max(at - 60, 0) : at + 300]}\n    got  ...{b[max(at - 60, 0) : at + 300]}"


def client(s, r, todo, end, struck, counts, wrong):
    while time.monotonic() < end:
        (path, body), want = r.choice(todo)
        leave, begun = r.random() if r.random() < 0.3 else None, time.monotonic()
        try:
            got = ask(s.port, path, body, leave)
            lost = sum(at >= begun for at, _ in list(struck))
            what = "same" if got == want else "ended" if lost > 1 and "Request failed during generation" in json.dumps(got) else "other"
            counts[what] += 1
            if what == "other":
                wrong.append((path, body, difference(want, got)))
        except GaveUp:
            counts["given up"] += 1
        except Exception as e:
            counts[type(e).__name__] += 1
            wrong.append((path, body, repr(e)))


def held(s):
    a = s.audit()
    of = [a["scheduler"], *(m["scheduler"] for m in a["models"].values() if m["scheduler"])]
    return sum(q["blocks"]["used"] + q["known"] for q in of) + a["requests"]["permits_held"]


def one_round(s, r, todo, a):
    counts, struck, wrong = collections.Counter(), [], []
    end = time.monotonic() + a.seconds
    threads = [threading.Thread(target=client, args=(s, random.Random(r.random()), todo, end, struck, counts, wrong)) for _ in range(a.clients)]
    threads.append(threading.Thread(target=strike, args=(s, random.Random(r.random()), end, struck)))
    for t in threads:
        t.start()
    for t in threads:
        t.join(a.seconds + 2 * PATIENCE_S)
    if any(t.is_alive() for t in threads):
        wrong.append(("a client", {}, "has no end"))
    wait_for(lambda: held(s) == 0, 60)
    return counts, struck, wrong


def main():
    p = argparse.ArgumentParser()
    for name, default in (("seed", 1), ("rounds", 20), ("seconds", 8), ("clients", 24)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("options", nargs="*")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        folder = pathlib.Path(folder)
        (folder / "models").mkdir()
        (folder / "models" / "one").symlink_to(DEMO)
        adapters = ",".join(f"{n}={make_adapter(folder / n, k)}" for k, n in enumerate(("red", "blue")))
        options = ["--models-folder", folder / "models", "--lora-adapters", adapters, "--max-shard-restarts", 1000, "--heartbeat-timeout", 2]
        options += ["--speculate", 3, "--kv-cache-memory", "5e7", "--max-total-tokens", 300, "--constraint-memory", 0.002, *a.options]
        with Service(DEMO, 2, args=options) as s:
            todo = list(work(random.Random(a.seed)))
            todo = [(w, ask(s.port, *w)) for w in todo]
            again = [w for w, want in todo if ask(s.port, *w) != want]
            assert not again, f"not a function of the body: {again[0]}"
            refused = [(w, x) for w, x in todo if x[0] in range(400, 600)]
            assert not refused, refused[0]
        bad, options = 0, [*options, "--max-batch-total-tokens", 400, "--draft-model-id", DEMO, "--draft-kv-cache-memory", "5e7"]
        for k in range(a.rounds):
            r = random.Random(a.seed * 1000 + k)
            with Service(DEMO, 2, args=[*options, "--swap-space", 0.25 if k % 2 else 0]) as s:
                counts, struck, wrong = one_round(s, r, todo, a)
                preempted = sum(s.metric("tgi_preemption_count", method=m) or 0 for m in ("swap", "recompute"))
            print(f"{k}: {dict(counts)}, struck {dict(collections.Counter(n for _, n in struck))}, {preempted:.0f} preempted", flush=True)
            bad += bool(wrong)
            for path, body, what in wrong[:3]:
                print(f"  {path} {json.dumps(body)}\n    {what}", flush=True)
    print(f"{a.rounds} rounds, {bad} not as they should be")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
