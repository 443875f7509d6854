"""A whole service on the stand-in of CUDA: the launcher, a shard whose kernels run on the CPU, the router. Tokens are those of the CPU backend,
whatever other requests run (make unit T=cuda builds the stand-in)."""

import concurrent.futures
import time

import grpc
import pytest
import requests
from serving import DEMO, ROOT, SLOW, Service, data
from shard import Router, Shards
from test_adapters import make_adapter

DOUBLE = ROOT / "build/tests/cuda-double.so"
SMALL = ["--dtype", "float32", "--max-input-tokens", "100", "--max-total-tokens", "160", "--max-batch-prefill-tokens", "32"]
SEEDED = {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1}


def asked():
    """Greedy and seeded, short and longer than a chunk, with alternatives, a grammar (masks come from the host)."""
    tale = "Once upon a time, there was a little girl named Lily. She had a big red ball and a cat."
    grammar = {"type": "regex", "value": "[a-z]{3,6} [0-9]{2}"}
    yield {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 6}}
    yield {"inputs": tale + tale[:60], "parameters": {"max_new_tokens": 3, "top_n_tokens": 3}}
    yield {"inputs": "Tom and", "parameters": {"max_new_tokens": 6, "seed": 1, **SEEDED}}
    yield {"inputs": "One day", "parameters": {"max_new_tokens": 5, "seed": 2, **SEEDED, "typical_p": 0.9}}
    yield {"inputs": "She said", "parameters": {"max_new_tokens": 6, "grammar": grammar}}
    for kind in ({}, SEEDED | {"seed": 3}):
        again = {"max_new_tokens": 24, "grammar": {"type": "regex", "value": "( one two){5}"}, **kind}
        yield {"inputs": "one two one two", "parameters": again}


def tokens(s, body):
    """Ids, alternatives, how the stream ended, log-probabilities."""
    body["parameters"]["details"] = True
    events = list(s.events("/generate_stream", body))
    assert all("token" in e for e in events), events
    top = [[t["id"] for t in e.get("top_tokens", [])] for e in events]
    logprobs = [e["token"]["logprob"] for e in events]
    return [e["token"]["id"] for e in events], top, events[-1]["details"]["finish_reason"], logprobs


def same(got, want):
    assert got[:3] == want[:3]
    assert got[3] == pytest.approx(want[3], abs=1e-4)


@pytest.fixture(scope="module")
def wanted():
    with Service(DEMO, args=["--device", "cpu", *SMALL]) as s:
        yield [tokens(s, b) for b in asked()], stopped(s)


@pytest.fixture(scope="module", params=["plain", "speculating"])
def service(request):
    if not DOUBLE.exists():
        pytest.skip("the stand-in of CUDA was not built: make unit T=cuda")
    env = {"BACKEND_CUDA": str(DOUBLE), "SPECULATE_ROW_COST": "0.02"}  # as of a GPU
    more = ["--speculate", "3"] if request.param == "speculating" else []
    with Service(DEMO, args=["--device", "cuda", *SMALL, *more], env=env) as s:
        assert "CUDA double (no GPU)" in s.log
        yield s
        assert (s.metric("tgi_request_skipped_tokens_sum") > 10) == bool(more)


def stopped(s):
    """The answer to a stop sequence in the middle of what is said without it."""
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 6, "details": True}}
    said = s.post("/generate", body).json()["generated_text"]
    body["parameters"]["stop"] = [said.split()[1]]
    r = s.post("/generate", body).json()
    assert r["details"]["finish_reason"] == "stop_sequence" and r["details"]["generated_tokens"] < 6
    return r["generated_text"]


def test_tokens_alone_and_together_are_those_of_the_cpu(service, wanted):
    for body, want in zip(asked(), wanted[0]):
        same(tokens(service, body), want)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for got, want in zip(pool.map(lambda b: tokens(service, b), asked()), wanted[0]):
            same(got, want)


def test_a_stop_sequence_ends_a_stream(service, wanted):
    assert stopped(service) == wanted[1]


def test_who_leaves_makes_room_and_disturbs_nobody(service, wanted):
    def leave():
        body = {"inputs": "The cat", "parameters": {"max_new_tokens": 60, "ignore_eos": True}}
        with service.post("/generate_stream", body, stream=True) as r:
            next(r.iter_lines())

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        left = pool.submit(leave)
        same(tokens(service, list(asked())[2]), wanted[0][2])
        left.result()
    end = time.monotonic() + 10 * SLOW
    while service.metric("tgi_batch_current_size"):
        assert time.monotonic() < end, "a stream that was left still computes"
        time.sleep(0.05)
    assert requests.get(service.url + "/health", timeout=10).status_code == 200


@pytest.mark.parametrize("name,args", [("demo", ["--pipeline-parallel-size", "2"]), ("arch/mixtral", ["--enable-expert-parallel"])])
def test_stages_and_whole_experts_answer_as_on_the_cpu(name, args):
    if not DOUBLE.exists():
        pytest.skip("the stand-in of CUDA was not built: make unit T=cuda")
    model = DEMO if name == "demo" else data(name)
    bodies = [b for b in asked() if len(b["inputs"]) < 40 and "grammar" not in b["parameters"]]  # of any tokenizer
    with Service(model, args=["--device", "cpu", *SMALL]) as s:
        want = [tokens(s, b) for b in bodies]
    env = {"BACKEND_CUDA": str(DOUBLE), "CUDA_SHARE_GPU": "1", "NCCL_LIBRARY": str(DOUBLE)}
    with Service(model, 2, ["--device", "cuda", *SMALL, *args], env=env) as s:
        for body, w in zip(bodies, want):
            same(tokens(s, body), w)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for got, w in zip(pool.map(lambda b: tokens(s, b), bodies), want):
                same(got, w)


def test_a_lost_device_ends_the_shard_and_its_streams_go_on(tmp_path, wanted):
    """An error that stays (an illegal address, an uncorrectable memory error): only a new process can use the device again."""
    if not DOUBLE.exists():
        pytest.skip("the stand-in of CUDA was not built: make unit T=cuda")
    lost = tmp_path / "lost"
    body = list(asked())[5]
    with Service(DEMO, args=["--device", "cuda", *SMALL], env={"BACKEND_CUDA": str(DOUBLE), "CUDA_DOUBLE_LOST": str(lost)}) as s:
        body["parameters"]["details"] = True
        events = s.events("/generate_stream", body)
        got = [next(events)]
        lost.touch()
        got += list(events)
        assert [e["token"]["id"] for e in got if "token" in e] == wanted[0][5][0], got
        assert "the device is lost: shutting down" in s.log
        assert s.metric("tgi_shard_returns") == 1 and not lost.exists()


@pytest.mark.parametrize("name", ["Prefill", "copy", "Decode", "swap", "KvStore", "KvLoad"])
def test_whichever_call_finds_that_the_device_is_lost_has_the_status_of_a_lost_shard(name, tmp_path):
    """With any other status a stream may get the device's error, if the router looks at the shard before that has ended."""
    if not DOUBLE.exists():
        pytest.skip("the stand-in of CUDA was not built: make unit T=cuda")
    lost = tmp_path / "lost"
    env = {"BACKEND_CUDA": str(DOUBLE), "CUDA_DOUBLE_LOST": str(lost)}
    s = Shards(DEMO, args=["--device", "cuda", "--dtype", "float32", "--kv-offload-memory", 0.02, "--swap-space", 0.02], env=env)
    try:
        s.warmup()
        r, pb = Router(s), s.pb
        batch = r.prefill(r.request("Once upon a time", 20))
        place = pb.KvBlock(key=bytes(32), block=1)
        fresh = r.batch(r.request("The cat", 5))
        out = pb.Edits(out=pb.BlockMoves(blocks=[1], slots=[1]))
        asked = {
            "Prefill": ("Prefill", pb.PrefillRequest(batch=fresh)),
            "copy": ("Prefill", pb.PrefillRequest(batch=fresh, kv_copies=[pb.KvCopy(source=1, target=60)])),
            "Decode": ("Decode", pb.DecodeRequest(batches=[batch])),
            "swap": ("Decode", pb.DecodeRequest(batches=[batch], edits=out)),
            "KvStore": ("KvStore", pb.KvStoreRequest(blocks=[place])),
            "KvLoad": ("KvLoad", pb.KvLoadRequest(id=7, blocks=[place])),
        }
        lost.touch()
        with pytest.raises(grpc.RpcError) as told:
            s.call(*asked[name])
        assert told.value.code() == grpc.StatusCode.UNAVAILABLE, told.value
        assert s.ranks[0].p.wait(30 * SLOW) == 1 and "lost the device" in s.ranks[0].log
    finally:
        s.ranks[0].stop()


def test_adapters_answer_as_on_the_cpu(tmp_path):
    """Alone, beside each other and beside none, on one rank and on two."""
    if not DOUBLE.exists():
        pytest.skip("the stand-in of CUDA was not built: make unit T=cuda")
    made = {"red": make_adapter(tmp_path / "red", 1), "blue": make_adapter(tmp_path / "blue", 2, rank=9)}
    args = [*SMALL, "--lora-adapters", ",".join(f"{k}={v}" for k, v in made.items())]
    bodies = [
        {"inputs": text, "parameters": {"max_new_tokens": 5, "adapter_id": name}}
        for text in ("Once upon a time", "The little dog")
        for name in (None, *made)
    ]
    with Service(DEMO, args=["--device", "cpu", *args]) as s:
        want = [tokens(s, b) for b in bodies]
    assert len({tuple(w[0]) for w in want[:3]}) == 3, "each says something else"
    env = {"BACKEND_CUDA": str(DOUBLE), "CUDA_SHARE_GPU": "1", "NCCL_LIBRARY": str(DOUBLE)}
    with Service(DEMO, args=["--device", "cuda", *args], env=env) as s:
        for body, w in zip(bodies, want):
            same(tokens(s, body), w)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for got, w in zip(pool.map(lambda b: tokens(s, b), bodies), want):
                same(got, w)
    with Service(DEMO, num_shard=2, args=["--device", "cuda", *args], env=env) as s:
        for body, w in zip(bodies[1:3], want[1:3]):
            same(tokens(s, body), w)
