"""A shard without a model, for tests of the router: generate.v3 on Python's own gRPC server.

    python integration/shards/fake_shard.py --uds-path /tmp/x/s [--rank 0] [--world 1] [--script script.json]

It listens on unix:UDS_PATH-RANK and answers every request with the words of the script, one token a step. All
keys of the script are optional:

    {"words": [" one", " two"],      what is said, over and over; token ids count up from 100
     "eos_after": 7,                 ends with eos_token then, else with length at max_new_tokens
     "step_ms": 5,
     "block_size": 16, "blocks": 1024, "vocab_size": 32000,
     "chunking": true, "prefix_caching": true,
     "takes_input_ids": true,        false: as TGI's server, text and slots
     "fail": {"Prefill": ["broken", 2]},  the first two Prefills fail with this message; a third item is their status
     "task": "embed",                     serves Embed: the sum of a text's ids, twice
     "lost": {"Warmup": 1},               the first Warmup ends as if the process had died
     "fail_request": "its own fault",     every request ends alone with this error
     "said_in_prompt": 3}            says what stands between the prompt's last "[[" and "]]", so many characters a
                                     token, and ends; with takes_input_ids false, so that the prompt comes as text
     "special": true,                with it: "<|word|>" (or with one bar) is one token, a special one, which no text shows
     "takes_images": true,           says which pictures came: "[at 5: 12 tokens, image/png, 70 bytes]" each
     "takes_reasoning": true         false: as a shard of others, which has no reasoning before a constraint
"""

import argparse
import json
import pathlib
import re
import sys
import threading
import time
from concurrent import futures

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from shard import stubs  # noqa: E402

SERVICE = "generate.v3.TextGenerationService"
DEFAULTS = {
    "words": [" one", " two", " three", " four", " five"],
    "eos_after": 0,
    "step_ms": 0,
    "block_size": 16,
    "blocks": 1024,
    "vocab_size": 32000,
    "chunking": True,
    "prefix_caching": True,
    "takes_input_ids": True,
    "fail": {},
    "task": "",
    "lost": {},
    "fail_request": "",
    "said_in_prompt": 0,
    "special": False,
    "takes_reasoning": True,
    "takes_images": False,
    "takes_grammars": True,
    "sampling_fields": [100, 101, 102],
}
SPECIAL = re.compile(r"(<\|\w+\|?>|<\w+\|>)")


class Seq:
    def __init__(self, r, script):
        self.id, self.r, self.said = r.id, r, 0
        self.prompt = len(r.input_ids) or len(r.inputs.split()) or 1
        self.computed = r.cache_len
        left = self.prompt - r.cache_len
        self.next = min(r.chunk_len, left) if r.HasField("chunk_len") else left
        self.limit = r.stopping_parameters.max_new_tokens
        self.words = script["words"]
        if r.media:
            self.words = [f"[at {m.position}: {m.tokens} tokens, {m.image.mimetype}, {len(m.image.data)} bytes]" for m in r.media]
            script = {**script, "eos_after": len(self.words)}
        if n := script["said_in_prompt"]:
            text = r.inputs.rpartition("[[")[2].partition("]]")[0]
            pieces = SPECIAL.split(text) if script["special"] else [text]
            self.words = [
                w
                for p in pieces
                for w in ([p] if SPECIAL.fullmatch(p) else [p[i : i + n] for i in range(0, len(p), n)])
            ] or [""]
            script = {**script, "eos_after": len(self.words)}
        self.eos = script["eos_after"] and script["eos_after"] <= self.limit
        if self.eos:
            self.limit = script["eos_after"]

    def over(self):
        return self.said >= self.limit


class Shard:
    def __init__(self, pb, urls, script):
        self.pb, self.urls, self.script = pb, urls, script
        self.batches, self.max_prefill, self.lock = {}, 4096, threading.Lock()

    def cached(self, id):
        seqs = self.batches[id]
        return self.pb.CachedBatch(
            id=id, request_ids=[s.id for s in seqs], size=len(seqs), current_tokens=sum(s.next for s in seqs)
        )

    def take(self, id):
        if id not in self.batches:
            raise ValueError(f"Batch ID {id} not found in cache.")
        return self.batches.pop(id)

    def generation(self, s):
        pb, words = self.pb, s.words
        if self.script["fail_request"]:
            s.said = s.limit
            return pb.Generation(request_id=s.id, error=self.script["fail_request"])
        k = s.said
        s.said += 1
        special = [self.script["special"] and bool(SPECIAL.fullmatch(w)) for w in words]
        g = pb.Generation(
            request_id=s.id,
            tokens=pb.Tokens(ids=[100 + k], logprobs=[-0.5], texts=[words[k % len(words)]], is_special=[special[k % len(words)]]),
        )
        if s.over():
            shown = [i % len(words) for i in range(s.said) if not special[i % len(words)]]
            g.generated_text.text = "".join(words[i] for i in shown)
            g.generated_text.generated_tokens = s.said
            g.generated_text.finish_reason = 1 if s.eos else 0
        return g

    def step(self, id, seqs, response):
        """One forward pass, and TGI's rule for what the next one does."""
        time.sleep(self.script["step_ms"] / 1000)
        start = time.monotonic_ns()
        out = response(total_ns=1, forward_ns=1)
        for s in seqs:
            s.computed += s.next
            if s.computed >= s.prompt:
                out.generations.append(self.generation(s))
        budget = self.max_prefill - len(seqs) + 1
        for s in reversed(seqs):
            left = max(s.prompt - s.computed, 0)
            s.next = max(min(left, budget), 1)
            budget -= s.next if left else 0
        if not all(s.over() for s in seqs):
            keep = [s for s in seqs if not (s.over() and self.script["fail_request"])]
            self.batches[id] = keep
            out.batch.CopyFrom(self.cached(id))
        out.total_ns += time.monotonic_ns() - start
        return out

    # ---- the rpcs
    def Info(self, q):
        s = self.script
        own = {"takes_input_ids": True, "vocab_size": s["vocab_size"]} if s["takes_input_ids"] else {}
        if s["task"]:
            own |= {"task": s["task"], "embed_width": 2, "hidden_size": 2}
        return self.pb.InfoResponse(
            dtype="float32",
            device_type="cpu",
            support_chunking=s["chunking"],
            use_prefix_caching=s["prefix_caching"],
            block_size=s["block_size"],
            attention_impl="none",
            takes_reasoning=self.script["takes_reasoning"],
            takes_grammars=self.script["takes_grammars"],
            takes_images=self.script["takes_images"],
            sampling_fields=self.script["sampling_fields"],
            **own,
        )

    def Health(self, q):
        return self.pb.HealthResponse()

    def ServiceDiscovery(self, q):
        return self.pb.ServiceDiscoveryResponse(urls=self.urls)

    def ClearCache(self, q):
        if q.HasField("id"):
            self.batches.pop(q.id, None)
        else:
            self.batches.clear()
        return self.pb.ClearCacheResponse()

    def FilterBatch(self, q):
        if not q.request_ids:
            raise ValueError("Batch must have at least one request")
        of = {s.id: s for s in self.take(q.batch_id)}
        self.batches[q.batch_id] = [of[i] for i in q.request_ids]
        return self.pb.FilterBatchResponse(batch=self.cached(q.batch_id))

    def Warmup(self, q):
        self.max_prefill = q.max_prefill_tokens
        held = self.script["blocks"] * self.script["block_size"]
        total = q.max_total_tokens if q.HasField("max_total_tokens") else held
        return self.pb.WarmupResponse(
            max_supported_total_tokens=held,
            max_total_tokens=total,
            max_input_tokens=q.max_input_tokens if q.HasField("max_input_tokens") else total - 1,
        )

    def Prefill(self, q):
        id, old = q.batch.id, []
        if q.HasField("cached_batch") and self.script["chunking"]:
            id = q.cached_batch.id
            old = self.take(id)
        return self.step(id, old + [Seq(r, self.script) for r in q.batch.requests], self.pb.PrefillResponse)

    def Decode(self, q):
        if not q.batches:
            raise ValueError("Must provide at least one batch")
        seqs = [s for b in q.batches for s in self.take(b.id)]
        return self.step(q.batches[0].id, seqs, self.pb.DecodeResponse)

    def Embed(self, q):
        return self.pb.EmbedResponse(values=[v for t in q.texts for v in 2 * [float(sum(t.ids))]], width=2)

    def call(self, name, q, context):
        with self.lock:
            fail = self.script["fail"].get(name)
            if self.script["lost"].get(name, 0) > 0:
                self.script["lost"][name] -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            if fail and fail[1] > 0:
                fail[1] -= 1
                context.abort(grpc.StatusCode[fail[2] if len(fail) > 2 else "INTERNAL"], fail[0])
            try:
                return getattr(self, name)(q)
            except Exception as e:  # as TGI's interceptor: whatever it was, its words go to the router
                context.abort(grpc.StatusCode.INTERNAL, str(e))


def serve(shard, path):
    """Until the process ends."""
    names = "Info Health ServiceDiscovery ClearCache FilterBatch Warmup Prefill Decode Embed".split()
    handlers = {
        n: grpc.unary_unary_rpc_method_handler(
            lambda q, c, n=n: shard.call(n, q, c),
            request_deserializer=getattr(shard.pb, n + "Request").FromString,
            response_serializer=lambda m: m.SerializeToString(),
        )
        for n in names
    }
    # the router pings shards that number their vocabulary
    options = [("grpc.http2.min_ping_interval_without_data_ms", 1000), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    print("shard ready", flush=True)
    server.wait_for_termination()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--uds-path", required=True)
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world", type=int, default=1)
    p.add_argument("--script")
    a = p.parse_args()
    script = {**DEFAULTS, **(json.load(open(a.script)) if a.script else {})}
    pb = stubs()
    serve(Shard(pb, [f"unix://{a.uds_path}-{r}" for r in range(a.world)], script), f"{a.uds_path}-{a.rank}")


if __name__ == "__main__":
    main()
