"""Shards without launcher and router, and a client that speaks generate.v3 as a router does.

    with Shards(model) as s:
        pb = s.pb
        s.call("Warmup", pb.WarmupRequest(...))"""

import importlib
import pathlib
import shutil
import sys
import tempfile
import time

import grpc
from serving import BIN, ROOT, SLOW, Process, scratch

BLOCK = 16
_stubs = {}


def stubs(name="generate"):
    """The Python messages, made from proto/ by protoc into a temporary folder."""
    if not _stubs:
        import grpc_tools
        from grpc_tools import protoc

        out = tempfile.mkdtemp(prefix="stubs-")
        files = sorted((ROOT / "proto").glob("*.proto"))
        std = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        args = ["protoc", f"-I{ROOT}/proto", f"-I{std}", f"--python_out={out}", *map(str, files)]
        assert protoc.main(args) == 0
        sys.path.insert(0, out)
        for f in files:
            _stubs[f.stem] = importlib.import_module(f"{f.stem}_pb2")
        sys.path.remove(out)
        shutil.rmtree(out)
    return _stubs[name]


class Shards:
    """All ranks of one model. `call` sends an rpc to every rank and returns rank 0's answer."""

    version = 3

    def __init__(self, model, world=1, args=(), env=None):
        self.pb = stubs()
        self.folder = scratch()
        self.path = f"{self.folder}/s"
        self.ranks = []
        for rank in range(world):
            argv = [BIN / "model-server", "serve", model, "--uds-path", self.path, "--threads", 1]
            argv += ["--kv-cache-memory", 64 << 20, *args] + (["--sharded"] if world > 1 else [])
            ranked = {"RANK": str(rank), "WORLD_SIZE": str(world), **(env or {})}
            self.ranks.append(Process(argv, ranked, self.folder))
        for p in self.ranks:
            p.wait_log("shard ready")
        self.channels = [grpc.insecure_channel(f"unix:{self.path}-{r}") for r in range(world)]

    def rpc(self, rank, name, request, timeout=60):
        name_of = {"ServiceDiscovery": "ServiceDiscoveryResponse"}
        answer = getattr(self.pb, name_of.get(name, name + "Response"))
        method = self.channels[rank].unary_unary(
            f"/generate.v{self.version}.TextGenerationService/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return method.future(request, timeout=timeout * SLOW)

    def call(self, name, request, timeout=60):
        waiting = [self.rpc(r, name, request, timeout) for r in range(len(self.ranks))]
        answers = [w.result() for w in waiting]
        for a in answers[1:]:
            if hasattr(a, "generations"):
                assert not a.generations, "only rank 0 answers with text"
                assert a.batch == answers[0].batch
        return answers[0]

    def warmup(self, max_prefill=512, max_total=None):
        pb = self.pb
        request = pb.Request(inputs="_test " * 100, truncate=100, add_special_tokens=True, top_n_tokens=20)
        request.input_chunks.chunks.add(text="_test " * 100)
        request.input_chunks.chunks.add(image=pb.Image(data=b"png", mimetype="image/jpeg;base64"))
        request.parameters.CopyFrom(
            pb.NextTokenChooserParameters(
                temperature=0.9, top_k=10, top_p=0.9, typical_p=0.9, repetition_penalty=1.2, watermark=True
            )
        )
        request.stopping_parameters.CopyFrom(pb.StoppingCriteriaParameters(max_new_tokens=1, ignore_eos_token=True))
        batch = pb.Batch(id=0, requests=[request], size=1)
        return self.call(
            "Warmup", pb.WarmupRequest(batch=batch, max_prefill_tokens=max_prefill, max_total_tokens=max_total)
        )

    def stop(self):
        return [p.stop() for p in self.ranks]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for c in self.channels:
            c.close()
        codes = self.stop()
        if kind is None:
            assert codes == [0] * len(codes), self.ranks[0].log[-4000:]
        else:
            print(self.ranks[0].log[-4000:])
        shutil.rmtree(self.folder, ignore_errors=True)


class Router:
    """The smallest thing that acts like one: hands out blocks, collects what each request gets."""

    def __init__(self, shards):
        self.s, self.pb = shards, shards.pb
        self.block, self.next_id, self.next_batch = 1, 0, 0
        self.got, self.last, self.whole = {}, {}, {}

    def request(self, prompt, max_new=20, chunk=None, stops=(), ignore_eos=False, cache=None, **kw):
        """`prompt`: text or ids. Returns a Request with blocks of its own (or those of `cache`)."""
        pb = self.pb
        r = pb.Request(id=self.next_id, add_special_tokens=True)
        self.next_id += 1
        chooser = dict(temperature=1.0, top_p=1.0, typical_p=1.0, repetition_penalty=1.0)
        top = {k: kw.pop(k) for k in ("top_n_tokens", "prefill_logprobs", "truncate") if k in kw}
        for k, v in top.items():
            setattr(r, k, v)
        r.parameters.CopyFrom(pb.NextTokenChooserParameters(**{**chooser, **kw}))
        r.stopping_parameters.CopyFrom(
            pb.StoppingCriteriaParameters(
                max_new_tokens=max_new, stop_sequences=list(stops), ignore_eos_token=ignore_eos
            )
        )
        if isinstance(prompt, str):
            r.inputs = prompt
            r.input_chunks.chunks.add(text=prompt)
        else:
            r.input_ids.extend(prompt)
        n = -(-(len(prompt) + 2 + max_new) // BLOCK)
        r.blocks.extend(range(self.block, self.block + n))
        self.block += n
        if cache:
            blocks, length = cache
            r.blocks[: len(blocks)] = blocks
            r.cache_len = length
        r.slots.extend(b * BLOCK + o for b in r.blocks for o in range(BLOCK))
        if chunk:
            r.chunk_len = chunk
        return r

    def batch(self, *requests):
        b = self.pb.Batch(id=self.next_batch, requests=requests, size=len(requests))
        self.next_batch += 1
        return b

    def take(self, answer):
        for g in answer.generations:
            assert not g.error, g.error
            assert len(g.tokens.ids) == len(g.tokens.logprobs) == len(g.tokens.texts) == 1
            self.got.setdefault(g.request_id, []).append(g.tokens.ids[0])
            self.last[g.request_id] = g
            self.whole[g.request_id] = self.whole.get(g.request_id, "") + g.tokens.texts[0]
        return answer.batch if answer.HasField("batch") else None

    def prefill(self, *requests, cached=None):
        return self.take(self.s.call("Prefill", self.pb.PrefillRequest(batch=self.batch(*requests), cached_batch=cached)))

    def decode(self, *batches):
        return self.take(self.s.call("Decode", self.pb.DecodeRequest(batches=batches)))

    def filter(self, batch, ids):
        return self.s.call("FilterBatch", self.pb.FilterBatchRequest(batch_id=batch.id, request_ids=ids)).batch

    def finish(self, batch):
        """Decode until every request of `batch` has stopped, filtering as a router does."""
        end = time.monotonic() + 120 * SLOW
        while batch:
            assert time.monotonic() < end
            batch = self.decode(batch)
            if batch:
                live = [i for i in batch.request_ids if not self.done(i)]
                if len(live) < len(batch.request_ids):
                    batch = self.filter(batch, live)

    def done(self, i):
        return i in self.last and self.last[i].HasField("generated_text")

    def text(self, i):
        return self.last[i].generated_text.text
