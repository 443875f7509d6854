"""generate.v2 beside generate.v3: an older router at our shards, and our router at shards that know v2 only."""

import json
import signal
from concurrent import futures

import grpc
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from serving import BIN, SLOW, Process, Service, data, free_port
from shard import Shards, stubs
from shard_fixtures import golden, model, shards  # noqa: F401


class Older:
    """The same ranks, asked by generate.v2: no blocks, no edits, prompts as text."""

    def __init__(self, shards):
        self.s, self.pb, self.got, self.last, self.n = shards, stubs("generate_v2"), {}, {}, 0

    def call(self, name, request):
        self.s.version, self.s.pb = 2, self.pb
        try:
            return self.s.call(name, request)
        finally:
            self.s.version, self.s.pb = 3, stubs()

    def request(self, prompt, max_new, **kw):
        self.n += 1
        r = self.pb.Request(id=self.n, inputs=prompt, truncate=500, **kw)
        r.parameters.CopyFrom(self.pb.NextTokenChooserParameters(temperature=1, top_p=1, typical_p=1, repetition_penalty=1))
        r.stopping_parameters.max_new_tokens = max_new
        return r

    def take(self, answer):
        for g in answer.generations:
            assert not len(UnknownFieldSet(g))
            self.got.setdefault(g.request_id, []).extend(g.tokens.ids)
            self.last[g.request_id] = g
        assert not len(UnknownFieldSet(answer)) and not len(UnknownFieldSet(answer.batch))
        return answer.batch if answer.HasField("batch") else None

    def prefill(self, *requests):
        self.n += 1
        batch = self.pb.Batch(id=self.n, requests=requests, size=len(requests), max_tokens=1000)
        return self.take(self.call("Prefill", self.pb.PrefillRequest(batch=batch)))

    def decode(self, *batches):
        return self.take(self.call("Decode", self.pb.DecodeRequest(batches=batches)))

    def finish(self, batch):
        while batch:
            batch = self.decode(batch)
            live = [i for i in batch.request_ids if not self.last[i].HasField("generated_text")] if batch else []
            if batch and len(live) < len(batch.request_ids):
                ask = self.pb.FilterBatchRequest(batch_id=batch.id, request_ids=live)
                batch = self.call("FilterBatch", ask).batch


def test_a_session_of_generate_v2(shards, golden):
    """Two requests, a third that joins, filters; then as many more as would exceed the cache if blocks were not given back."""
    v2 = Older(shards)
    pb = v2.pb
    v2.call("ClearCache", pb.ClearCacheRequest())
    v2.call("Health", pb.HealthRequest())
    info = v2.call("Info", pb.InfoRequest())
    assert (info.dtype, info.device_type, info.requires_padding) == ("torch.float32", "cpu", False)
    assert not len(UnknownFieldSet(info)), "v3's fields are left out"
    assert len(v2.call("ServiceDiscovery", pb.ServiceDiscoveryRequest()).urls) == len(shards.ranks)
    trial = pb.Batch(id=0, requests=[v2.request("_test " * 50, 10)], size=1)
    ask = pb.WarmupRequest(batch=trial, max_input_length=100, max_prefill_tokens=512, max_total_tokens=200)
    room = v2.call("Warmup", ask).max_supported_total_tokens
    assert room > 200
    a, b, c = (v2.request(g["inputs"], n) for g, n in zip(golden, (30, 12, 25)))
    first = v2.prefill(a, b)
    for _ in range(3):
        first = v2.decode(first)
    v2.finish(v2.decode(first, v2.prefill(c)))
    for r, g, n in zip((a, b, c), golden, (30, 12, 25)):
        assert v2.got[r.id] == g["generated_ids"][:n]
        assert v2.last[r.id].generated_text.generated_tokens == len(v2.got[r.id])
    g, held = golden[0], 0
    while held < 2 * room:  # each asks for a quarter of the cache, or all that a request may have
        r = v2.request(g["inputs"], 2)
        r.stopping_parameters.max_new_tokens = min(room // 4, 400)
        held += r.stopping_parameters.max_new_tokens
        v2.prefill(r)
        assert v2.got[r.id] == g["generated_ids"][:1], "room is given back"
        v2.call("ClearCache", pb.ClearCacheRequest())
    with pytest.raises(grpc.RpcError) as e:
        v2.decode(pb.CachedBatch(id=12345))
    assert e.value.details() == "Batch ID 12345 not found in cache."
    shards.warmup()


class OlderShard(grpc.GenericRpcHandler):
    """Forwards generate.v2 to a shard, and serves nothing else, as an older server does."""

    def __init__(self, channel):
        self.channel, self.asked = channel, []

    def service(self, details):
        self.asked.append(details.method)
        if not details.method.startswith("/generate.v2."):
            return None
        method = self.channel.unary_unary(details.method)
        return grpc.unary_unary_rpc_method_handler(lambda request, _: method(request, timeout=60 * SLOW))


class OlderRouter(Process):
    post, wait_ready = Service.post, Service.wait_ready

    def __init__(self, model, target, args=()):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        argv = [BIN / "router", "--tokenizer-name", model, "--port", self.port, "--hostname", "127.0.0.1"]
        super().__init__([*argv, "--master-shard-uds-path", target, *args])
        self.wait_ready()


@pytest.mark.parametrize("world", [1, 2])
def test_the_router_speaks_generate_v2_where_v3_is_unknown(model, golden, world, tmp_path):
    with Shards(model, world) as s:
        older = OlderShard(s.channels[0])
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[older])
        server.add_insecure_port(f"unix:{tmp_path}/older")
        server.start()
        limits = ["--max-input-tokens", 200, "--max-total-tokens", 400]
        router = OlderRouter(model, f"{tmp_path}/older", limits)
        try:
            assert older.asked[0].startswith("/generate.v3.") and older.asked[-1].startswith("/generate.v2.")

            def ask(g):
                body = {"inputs": g["inputs"], "parameters": {"max_new_tokens": 40, "details": True}}
                r = router.post("/generate", body)
                assert r.status_code == 200, r.text
                return [t["id"] for t in r.json()["details"]["tokens"]]

            with futures.ThreadPoolExecutor(8) as pool:  # three times each: batches join, shrink and end
                for g, got in zip(golden * 3, pool.map(ask, golden * 3)):
                    assert got == g["generated_ids"][: len(got)] and len(got) == min(40, len(g["generated_ids"]))
            r = router.post("/generate", {"inputs": "x", "parameters": {"adapter_id": "some"}})
            assert r.status_code in (404, 422), r.text
            assert router.stop() == 0
        finally:
            router.stop(signal.SIGKILL)
            server.stop(0).wait()
