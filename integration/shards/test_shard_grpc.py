"""A shard through a whole session of generate.v3, with a Python client made from the proto."""

import json
import math
import os
import re
import signal
import subprocess
import time

import grpc
import pytest
from google.protobuf import descriptor_pb2
from serving import BIN, DEMO, ROOT, SLOW, data
from shard import BLOCK, Router, Shards, stubs
from shard_fixtures import golden, model, shards  # noqa: F401


@pytest.fixture
def router(shards):
    shards.call("ClearCache", shards.pb.ClearCacheRequest())
    return Router(shards)


def error_of(shards, name, request):
    with pytest.raises(grpc.RpcError) as e:
        shards.call(name, request)
    return e.value.code(), e.value.details()


def test_facts(shards, model):
    pb = shards.pb
    world = len(shards.ranks)
    for rank in range(world):
        urls = shards.rpc(rank, "ServiceDiscovery", pb.ServiceDiscoveryRequest()).result().urls
        assert list(urls) == [f"unix://{shards.path}-{r}" for r in range(world)]
    info = shards.call("Info", pb.InfoRequest())
    assert (info.dtype, info.device_type, info.attention_impl) == ("torch.float32", "cpu", "paged")
    assert info.support_chunking and info.use_prefix_caching and info.takes_input_ids
    assert not info.requires_padding and info.block_size == BLOCK and info.vocab_size == 512
    assert not info.HasField("window_size") and info.max_positions == 512 and info.world_size == world
    shards.call("Health", pb.HealthRequest())


def test_warmup_says_what_fits(shards):
    w = shards.warmup()
    assert w.max_supported_total_tokens % BLOCK == 0
    block_bytes = 5 * 2 * BLOCK * 4 * 8 * 4  # layers, k and v, tokens, heads, dimensions, bytes: at most, on one rank
    assert w.max_supported_total_tokens // BLOCK * block_bytes // (2 * len(shards.ranks)) <= 64 << 20
    assert (w.max_total_tokens, w.max_input_tokens) == (512, 511)  # the model's positions
    w = shards.warmup(max_total=100)
    assert (w.max_total_tokens, w.max_input_tokens) == (100, 99)


def test_greedy_text_is_the_reference(router, golden):
    for g in golden:
        r = router.request(g["inputs"], max_new=g["max_new_tokens"])
        router.finish(router.prefill(r))
        assert router.got[r.id] == g["generated_ids"][: len(router.got[r.id])]
        last = router.last[r.id].generated_text
        assert last.text.strip() == g["generated_text"].strip()
        assert last.generated_tokens == len(router.got[r.id])
        assert router.whole[r.id].replace("</s>", "").strip() == last.text.strip()
        assert not last.HasField("seed")


def test_logprobs_of_prompt_tokens_and_alternatives(router, golden):
    for g in golden[:3]:
        for chunk in (None, 3):
            r = router.request(g["inputs"], max_new=1, prefill_logprobs=True, top_n_tokens=5, chunk=chunk)
            router.finish(router.prefill(r))
            got = router.last[r.id]
            assert list(got.prefill_tokens.ids) == g["ids"]
            assert math.isnan(got.prefill_tokens.logprobs[0])
            for lp, want in zip(got.prefill_tokens.logprobs[1:], g["prefill"][1:]):
                assert lp == pytest.approx(want["logprob"], abs=1e-3)
            assert len(got.top_tokens) == 1
            for i, (id_, lp) in enumerate(g["tokens"][0]["top5"]):
                assert got.top_tokens[0].ids[i] == id_
                assert got.top_tokens[0].logprobs[i] == pytest.approx(lp, abs=1e-3)
            assert got.tokens.logprobs[0] == pytest.approx(g["tokens"][0]["logprob"], abs=1e-3)


def test_batches_join_shrink_and_end(router, golden):
    """Three requests that come at different times and by different rpcs read as if each were alone."""
    a, b, c = (router.request(g["inputs"], max_new=n) for g, n in zip(golden, (30, 12, 25)))
    first = router.prefill(a, b)
    assert list(first.request_ids) == [a.id, b.id] and first.size == 2
    assert first.current_tokens == 2 and first.max_tokens == BLOCK * (len(a.blocks) + len(b.blocks))
    for _ in range(3):
        first = router.decode(first)
    second = router.prefill(c)
    assert second.id != first.id
    joined = router.decode(first, second)
    assert joined.id == first.id and list(joined.request_ids) == [a.id, b.id, c.id]
    router.finish(joined)
    for r, g, n in zip((a, b, c), golden, (30, 12, 25)):
        assert router.got[r.id] == g["generated_ids"][:n]
    # All stopped: the batch is gone.
    code, text = error_of(router.s, "Decode", router.pb.DecodeRequest(batches=[joined]))
    assert (code, text) == (grpc.StatusCode.INTERNAL, f"Batch ID {joined.id} not found in cache.")


def test_chunked_prefill_beside_decodes(router, golden):
    long, short = golden[6], golden[0]
    a = router.request(short["inputs"], max_new=40)
    batch = router.prefill(a)
    router.s.call("Warmup", router.pb.WarmupRequest(max_prefill_tokens=8))  # 7 tokens of prefill beside one decode
    batch = router.prefill(a := router.request(short["inputs"], max_new=40))
    b = router.request(long["inputs"], max_new=20, chunk=5)
    batch = router.prefill(b, cached=batch)
    assert list(batch.request_ids) == [a.id, b.id]
    assert batch.current_tokens == 1 + 7
    steps = 1
    while b.id not in router.got:
        batch = router.decode(batch)
        steps += 1
    assert steps == 1 + math.ceil((35 - 5) / 7)
    router.finish(batch)
    assert router.got[a.id] == short["generated_ids"][:40]
    assert router.got[b.id] == long["generated_ids"][:20]
    router.s.warmup()


def test_a_cached_prefix_changes_nothing(router, golden):
    g = golden[6]
    a = router.request(g["inputs"], max_new=10)
    router.finish(router.prefill(a))
    b = router.request(g["inputs"], max_new=10, cache=(a.blocks[:2], 32))
    assert list(b.blocks[:2]) == list(a.blocks[:2]) and b.cache_len == 32
    router.finish(router.prefill(b))
    assert router.got[b.id] == router.got[a.id] == g["generated_ids"][:10]


SAMPLED = dict(temperature=0.9, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2, do_sample=True)


def test_a_seeded_answer_depends_on_nothing_else(router, golden):
    prompts = [g["inputs"] for g in golden[:4]]

    def request(i):
        return router.request(prompts[i], max_new=24, seed=1000 + i, **SAMPLED)

    alone = []
    for i in range(4):
        router.finish(router.prefill(r := request(i)))
        alone.append(router.got[r.id])
        assert router.last[r.id].generated_text.seed == 1000 + i
    router.finish(router.prefill(again := router.request(prompts[0], max_new=24, seed=7, **SAMPLED)))
    assert router.got[again.id] != alone[0], "another seed, another answer"

    rs = [request(i) for i in range(4)]
    batch = router.prefill(rs[0], rs[1])
    for _ in range(4):
        batch = router.decode(batch)
    other = router.prefill(rs[2])
    batch = router.decode(batch, other)
    batch = router.prefill(rs[3], cached=batch)
    batch = router.filter(batch, [rs[3].id, rs[0].id, rs[2].id])
    router.finish(batch)
    for i in (0, 2, 3):
        assert router.got[rs[i].id] == alone[i], "the same in company"
    assert router.got[rs[1].id] == alone[1][: len(router.got[rs[1].id])]


def test_stop_sequences(router, golden):
    g = golden[0]  # ", there was a little girl named Lily. She loved ..."
    for stop, text in [
        ("girl", ", there was a little girl"),
        ("little gi", ", there was a little gi"),
        ("w", ", there w"),
        (". She l", ", there was a little girl named Lily. She l"),
    ]:
        r = router.request(g["inputs"], max_new=60, stops=["never said", stop])
        router.finish(router.prefill(r))
        last = router.last[r.id].generated_text
        assert last.text.strip() == text.strip(), stop
        assert last.finish_reason == router.pb.FINISH_REASON_STOP_SEQUENCE
        assert router.whole[r.id].strip() == text.strip()


def test_tokenizing_on_the_server(router, golden):
    g = golden[6]
    by_text = router.request(g["inputs"], max_new=5)
    by_ids = router.request(g["ids"], max_new=5)
    cut = router.request(g["inputs"], max_new=5, truncate=10)
    by_cut_ids = router.request([g["ids"][0], *g["ids"][-9:]], max_new=5)
    for r in (by_text, by_ids, cut, by_cut_ids):
        router.finish(router.prefill(r))
    assert router.got[by_text.id] == router.got[by_ids.id] == g["generated_ids"][:5]
    assert router.got[cut.id] == router.got[by_cut_ids.id]


def test_one_bad_request_fails_alone(router, golden):
    pb = router.pb
    good = router.request(golden[0]["inputs"], max_new=6)
    beyond = router.request([1, 5000], max_new=6)
    nothing = router.request([], max_new=6)
    nothing.add_special_tokens = False
    outside = router.request([1, 2], max_new=6)
    outside.blocks[0] = 1 << 30
    small = router.request([1] * 40, max_new=6)
    del small.blocks[1:]
    prefix = router.request([1, 2, 3], max_new=6)
    prefix.cache_len = 3
    slots = router.request([1, 2, 3], max_new=6)
    slots.slots[1] = 0
    hot = router.request([1, 2, 3], max_new=6, temperature=-1.0)
    grammar = router.request([1, 2, 3], max_new=6, grammar="a(", grammar_type=pb.GRAMMAR_TYPE_REGEX)
    bad = {
        beyond.id: "token id 5000",
        nothing.id: "no tokens",
        outside.id: "outside the KV cache",
        small.id: "cannot hold",
        prefix.id: "Prefix 3 vs input 3",
        slots.id: "slot 0",
        hot.id: "temperature",
        grammar.id: "a group without end",
    }
    requests = [beyond, nothing, good, outside, small, prefix, slots, hot, grammar]
    answer = router.s.call("Prefill", pb.PrefillRequest(batch=router.batch(*requests)))
    errors = {g.request_id: g.error for g in answer.generations if g.error}
    assert errors.keys() == bad.keys()
    for i, word in bad.items():
        assert word in errors[i]
    assert list(answer.batch.request_ids) == [good.id]
    router.take(pb.PrefillResponse(generations=[g for g in answer.generations if not g.error]))
    router.finish(answer.batch)
    assert router.got[good.id] == golden[0]["generated_ids"][:6]
    only = router.s.call("Prefill", pb.PrefillRequest(batch=router.batch(router.request([1, 5000]))))
    assert only.generations[0].error and not only.HasField("batch")


def test_constrained_answers(router, golden):
    """Greedy and sampled, alone and beside a free request: the text is of its language to the last byte."""
    pb = router.pb
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 3, "maximum": 42},
            "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
        },
        "required": ["name", "age", "tags"],
    }
    regex = r"(Once|Twice) upon a [a-z]{3,9}, \d{4}\."
    cases = [(json.dumps(schema), pb.GRAMMAR_TYPE_JSON), (regex, pb.GRAMMAR_TYPE_REGEX)]
    texts = {}
    for together in (False, True):
        asked = []
        for text, kind in cases:
            for sampling in ({}, {"do_sample": True, "seed": 7, "temperature": 1.5}):
                asked.append(router.request(golden[0]["inputs"], 300, grammar=text, grammar_type=kind, **sampling))
        free = router.request(golden[1]["inputs"], max_new=20)
        if together:
            router.finish(router.prefill(*asked, free))
            assert router.got[free.id] == golden[1]["generated_ids"][:20]
        else:
            for r in asked:
                router.finish(router.prefill(r))
        texts[together] = [router.last[r.id].generated_text.text for r in asked]
        assert all(router.last[r.id].generated_text.finish_reason == pb.FINISH_REASON_EOS_TOKEN for r in asked)
    assert texts[False] == texts[True]
    for text in texts[True][:2]:
        value = json.loads(text)
        assert list(value) == ["name", "age", "tags"]
        assert len(value["name"]) <= 12 and 3 <= value["age"] <= 42
        assert len(value["tags"]) <= 2 and set(value["tags"]) <= {"red", "blue"}
    for text in texts[True][2:]:
        assert re.fullmatch(regex, text)


def test_a_constraint_begins_behind_reasoning(router, golden):
    """An answer that has thought already goes on as its schema says; one that has not is free until then."""
    pb, ids = router.pb, golden[0]["ids"]
    thought = router.request(ids, 40, grammar="so</think>", grammar_type=pb.GRAMMAR_TYPE_REGEX)
    router.finish(router.prefill(thought))
    said = [i for i in router.got[thought.id] if i > 2]  # without the end of text
    assert router.last[thought.id].generated_text.text == "so</think>"
    schema = {"grammar": json.dumps({"enum": ["red", "blue"]}), "grammar_type": pb.GRAMMAR_TYPE_JSON}
    for how in (pb.GRAMMAR_REASONING_OPEN, pb.GRAMMAR_REASONING_NONE):
        r = router.request(ids + said, 60, grammar_reasoning=how, **schema)
        r.generated_len = len(said)
        answer = router.s.call("Prefill", pb.PrefillRequest(batch=router.batch(r)))
        if how == pb.GRAMMAR_REASONING_NONE:
            assert answer.generations[0].error, "the thought is no instance of the schema"
            continue
        router.take(answer)
        router.finish(answer.batch)
        text = router.last[r.id].generated_text.text
        assert text.startswith("so</think>") and json.loads(text.removeprefix("so</think>")) in ("red", "blue")
    free, inside = router.request(ids, 25), router.request(ids, 25, grammar_reasoning=pb.GRAMMAR_REASONING_OPEN, **schema)
    router.finish(router.prefill(free, inside))
    assert router.got[free.id] == router.got[inside.id], "a mask of the reasoning forbids none of the model's choices"


def test_calls_in_an_answer_are_kept_to_their_schemas(router, golden):
    """Free until the model begins a call; then its arguments are those that the function takes, and the text is free again."""
    pb, ids = router.pb, golden[0]["ids"]
    call = {
        "type": "object",
        "properties": {"name": {"const": "save"}, "arguments": {"type": "object", "properties": {"n": {"enum": [17, 18]}}, "required": ["n"], "additionalProperties": False}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    spec = {"grammar": json.dumps({"open": "<tool_call>", "close": "</tool_call>", "schema": call}), "grammar_type": pb.GRAMMAR_TYPE_CALLS}
    free, kept = router.request(ids, 25), router.request(ids, 25, **spec)
    router.finish(router.prefill(free, kept))
    assert router.got[free.id] == router.got[kept.id], "none of the model's choices is forbidden"
    begun = router.request(ids, 40, grammar="Well. <tool_call>", grammar_type=pb.GRAMMAR_TYPE_REGEX)
    router.finish(router.prefill(begun))
    said = [i for i in router.got[begun.id] if i > 2]  # without the end of text
    for how in ({}, {"temperature": 1.3, "seed": 5, "do_sample": True}):
        r = router.request(ids + said, 90, **spec, **how)
        r.generated_len = len(said)
        router.finish(router.prefill(r))
        text = router.last[r.id].generated_text.text
        inside, close, _ = text.partition("<tool_call>")[2].partition("</tool_call>")
        assert close and json.loads(inside) in [{"name": "save", "arguments": {"n": n}} for n in (17, 18)], text


def test_errors_of_whole_calls(router, golden):
    pb, s = router.pb, router.s
    internal = grpc.StatusCode.INTERNAL
    assert error_of(s, "Decode", pb.DecodeRequest()) == (internal, "Must provide at least one batch")
    lost = pb.CachedBatch(id=99)
    missing = (internal, "Batch ID 99 not found in cache.")
    assert error_of(s, "Decode", pb.DecodeRequest(batches=[lost])) == missing
    assert error_of(s, "FilterBatch", pb.FilterBatchRequest(batch_id=99, request_ids=[1])) == missing
    r = router.request(golden[0]["inputs"], max_new=8)
    assert error_of(s, "Prefill", pb.PrefillRequest(batch=router.batch(r), cached_batch=lost)) == missing
    batch = router.prefill(r)
    assert error_of(s, "FilterBatch", pb.FilterBatchRequest(batch_id=batch.id)) == (
        internal,
        "Batch must have at least one request",
    )
    assert error_of(s, "FilterBatch", pb.FilterBatchRequest(batch_id=batch.id, request_ids=[r.id, r.id]))[0] == internal
    assert error_of(s, "Decode", pb.DecodeRequest(batches=[batch, lost])) == missing
    assert error_of(s, "Decode", pb.DecodeRequest(batches=[batch, batch]))[0] == internal
    router.finish(batch)  # nothing of this has touched it
    assert router.got[r.id] == golden[0]["generated_ids"][:8]
    s.call("ClearCache", pb.ClearCacheRequest(id=12345))  # unknown: fine
    with pytest.raises(grpc.RpcError) as e:
        s.channels[0].unary_unary("/generate.v3.TextGenerationService/Nonsense")(b"", timeout=10)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError) as e:
        s.channels[0].unary_unary("/generate.v3.TextGenerationService/Decode")(b"\x0a\xff\xff", timeout=10)
    assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_standard_services(shards):
    health_pb2, reflection_pb2 = stubs("health"), stubs("reflection")
    c = shards.channels[0]

    def check(service):
        method = c.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return method(health_pb2.HealthCheckRequest(service=service), timeout=10).status

    assert check("") == check("generate.v3.TextGenerationService") == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as e:
        check("nonsense")
    assert e.value.code() == grpc.StatusCode.NOT_FOUND

    ask = reflection_pb2.ServerReflectionRequest
    asked = [
        ask(list_services=""),
        ask(file_containing_symbol="generate.v3.TextGenerationService"),
        ask(file_by_filename="proto/health.proto"),
        ask(file_containing_symbol="generate.v9.X"),
    ]
    for version in ("v1", "v1alpha"):
        method = c.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=ask.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        listed, file, health, missing = method(iter(asked), timeout=10)
        names = [s.name for s in listed.list_services_response.service]
        assert "generate.v3.TextGenerationService" in names and "grpc.health.v1.Health" in names
        for answer, name in ((file, "proto/generate.proto"), (health, "proto/health.proto")):
            found = descriptor_pb2.FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
            assert found.name == name
        assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        assert missing.original_request == asked[3]


def test_the_router_s_health_probe(router):
    pb = router.pb
    probe = pb.Request(id=2**64 - 1, inputs="liveness", truncate=1, blocks=[0], slots=[0], add_special_tokens=False)
    probe.input_chunks.chunks.add(text="liveness")
    probe.parameters.temperature = 1
    probe.stopping_parameters.max_new_tokens = 1
    batch = pb.Batch(id=2**64 - 1, requests=[probe], size=1, max_tokens=2, max_blocks=1)
    answer = router.s.call("Prefill", pb.PrefillRequest(batch=batch))
    assert answer.generations[0].request_id == 2**64 - 1 and not answer.HasField("batch")
    assert answer.generations[0].generated_text.generated_tokens == 1


def test_a_lost_rank_ends_the_others(model, golden):
    """A call that waits for the lost rank fails within a second; the best of three."""
    took = []
    for _ in range(3):
        s = Shards(model, 2)
        s.warmup()
        router = Router(s)
        batch = router.prefill(router.request(golden[0]["inputs"], max_new=100))
        batch = router.decode(batch)
        s.ranks[1].stop(signal.SIGKILL)
        t0 = time.monotonic()
        with pytest.raises(grpc.RpcError) as e:  # INTERNAL; after the loss was seen between two calls, UNAVAILABLE
            for _ in range(3):  # what was run ahead is still answered
                s.rpc(0, "Decode", s.pb.DecodeRequest(batches=[batch])).result()
        took.append(time.monotonic() - t0)
        assert e.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
        assert s.ranks[0].p.wait(30 * SLOW) == 1
        for c in s.channels:
            c.close()
    assert min(took) < SLOW, took


def test_startup_faults(model, tmp_path):
    def run(*args, env=None):
        argv = [BIN / "model-server", *map(str, args)]
        r = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
        return r.returncode, r.stdout + r.stderr

    path = tmp_path / "s"
    for args, word, want in [
        (["/nowhere"], "/nowhere: no such folder", 66),
        (["org/not-there"], "neither a folder nor in the cache", 66),
        ([tmp_path], "tokenizer.json", 66),
        ([model, "--quantize", "awq"], "--quantize awq", 78),
        ([model, "--lora-adapters", "a,b"], "a (revision main) is neither a folder nor in the cache", 66),
        ([model, "--sharded"], "RANK must be set when sharded is True", 78),
        ([model, "--uds-path", "/tmp/" + "x" * 150], "107 bytes", 78),
    ]:
        code, out = run("serve", *args, *([] if "--uds-path" in args else ["--uds-path", path]))
        assert code == want and word in out, (code, out)
    with Shards(model) as s:
        code, out = run("serve", model, "--uds-path", s.path)
        assert code == 1 and "another server is listening" in out

    hub = tmp_path / "hub"
    (hub / "models--org--name/refs").mkdir(parents=True)
    (hub / "models--org--name/refs/main").write_text("abc123\n")
    (hub / "models--org--name/snapshots").mkdir()
    (hub / "models--org--name/snapshots/abc123").symlink_to(model.resolve())
    env = {"HUGGINGFACE_HUB_CACHE": str(hub)}
    code, out = run("download-weights", "org/name", env=env)
    assert code == 0 and "Files are already present on the host. Skipping download." in out
    assert run("download-weights", model)[0] == 0
    assert run("download-weights", "org/other", env=env)[0] == 1
    with Shards("org/name", env=env):
        pass


def test_the_demo_model_is_served():
    if not (DEMO / "config.json").exists():
        pytest.skip("models/demo is not there")
    with Shards(DEMO) as s:
        s.warmup()
        router = Router(s)
        router.finish(router.prefill(r := router.request("Hello", max_new=10)))
        assert router.done(r.id)


def test_the_printed_page_is_the_one_in_docs():
    argv = [BIN / "model-server", "serve", "--help-markdown"]
    page = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert page == (ROOT / "docs/model-server.md").read_text(), "model-server serve --help-markdown > docs/model-server.md"
