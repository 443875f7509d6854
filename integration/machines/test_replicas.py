"""Several groups of shards behind one router: routing, and streams when a group is lost."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import time

import pytest
import requests
from deep import deep, other_weights
from serving import BIN, DEMO, SLOW, Process, Service, data, free_port, scratch, wait_for

ONCE = "Once upon a time"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Slow enough that a test finds its requests still running."""
    return deep(tmp_path_factory.mktemp("replicas") / "deep", 24)


def asks(n, tokens=80):
    texts = [ONCE, "The cat", "A boy", "She said", "One day " * 40]
    sampled = {"do_sample": True, "temperature": 1.1}
    return [
        {"inputs": texts[i % 5] + " and" * (i // 5), "parameters": {"max_new_tokens": tokens, "ignore_eos": True, "details": True, **(sampled if i % 3 else {}), "seed": i}}
        for i in range(n)
    ]


def said(events):
    return [(e["token"]["id"], e["token"]["logprob"], e["token"]["text"]) if "token" in e else e for e in events]


def streams(s, bodies):
    """All at once: what each says, and a number for each that has begun."""
    begun = []

    def one(body):
        events = s.events("/generate_stream", body)
        first = next(events)
        begun.append(1)
        return said([first, *events])

    pool = concurrent.futures.ThreadPoolExecutor(len(bodies))
    return [pool.submit(one, b) for b in bodies], begun


def replicas(s):
    return requests.get(s.url + "/info", timeout=10).json()["replicas"]


def ready(s):
    return sum(r["state"] == "ready" for r in replicas(s))


def series(s, name):
    lines = requests.get(s.url + "/metrics", timeout=10).text.splitlines()
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(name + "{")}


@pytest.fixture(scope="module")
def alone(model):
    """What one group says."""
    with Service(model, args=["--threads", 1]) as s:
        return [f.result() for f in streams(s, asks(32))[0]]


def busy_shard(s):
    """The pid of a shard that has requests, of two."""
    of = series(s, "replica_batch_current_size")
    name = max(of, key=of.get).removeprefix("unix:").removesuffix("-0")
    for pid in s.shards():
        if name in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            return pid
    raise AssertionError(f"no process serves {name}")


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_no_stream_notices_that_a_replica_is_lost(model, alone, sig):
    with Service(model, args=["--replicas", 2, "--threads", 1]) as s:
        wait_for(lambda: ready(s) == 2, 60)
        asked, begun = streams(s, asks(32))
        wait_for(lambda: len(begun) == 32, 60)
        os.kill(busy_shard(s), sig)
        got = [f.result() for f in asked]
        assert got == alone  # 0 lost, and every token and log-probability is the same
        assert s.metric("tgi_replica_handovers") > 0
        wait_for(lambda: ready(s) == 2, 60)
        sent = series(s, "replica_requests_total")
        assert [f.result() for f in streams(s, asks(32))[0]] == alone
        now = series(s, "replica_requests_total")
        assert all(now[r] > sent[r] for r in now)  # it takes requests again
        assert s.log.count("Starting Webserver") == 1 and len(s.shards()) == 2
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
        assert s.audit()["scheduler"]["queued"] == 0


def test_cores_are_dealt_out(model):
    cores = sorted(os.sched_getaffinity(0))
    with Service(model, args=["--replicas", 2]) as s:
        wait_for(lambda: ready(s) == 2, 60)
        each = [sorted(os.sched_getaffinity(p)) for p in s.shards()]
        if len(cores) < 2:
            assert each == [cores, cores]
        else:
            assert sorted(sum(each, [])) == cores


def shared_prefix(s, groups, each, words):
    """Chats of `groups` system prompts, in turn: tokens that were in the cache, of those asked for."""
    for turn in range(each):
        for g in range(groups):
            prompt = f"{g} " + " ".join(f"word{g} {i * g}" for i in range(words)) + f" {turn}"
            r = s.post("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 1}})
            assert r.status_code == 200, r.text
    return s.metric("prefix_hit_tokens"), s.metric("prefix_query_tokens")


def test_prefixes_stay_where_they_are():
    """Nine beginnings, of which a cache holds six: a replica has four or five of them, or all nine in turn."""
    hits = {}
    args = ["--replicas", 2, "--max-total-tokens", 1024, "--max-input-tokens", 1000, "--max-batch-total-tokens", 5000, "--max-batch-prefill-tokens", 1000]
    for policy in ("prefix", "round-robin"):
        with Service(DEMO, args=[*args, "--replica-policy", policy]) as s:
            wait_for(lambda: ready(s) == 2, 60)
            hits[policy], asked = shared_prefix(s, 9, 5, 140)
    assert hits["prefix"] >= 1.8 * hits["round-robin"], (hits, asked)
    assert hits["prefix"] > 0.6 * asked


class Shard(Process):
    """A group of one rank that this launcher did not start, at a TCP port."""

    def __init__(self, model, port, *args):
        super().__init__([BIN / "model-server", "serve", model, "--uds-path", f"tcp://127.0.0.1:{port}", "--threads", 1, "--kv-cache-memory", "5e7", *args])


class Router(Process):
    def __init__(self, model, *args, wait=True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__([BIN / "router", "--tokenizer-name", model, "--port", self.port, "--hostname", "127.0.0.1", "--master-shard-uds-path", "", *args])
        if wait:
            Service.wait_ready(self)

    events, post, metric, audit = Service.events, Service.post, Service.metric, Service.audit


@pytest.fixture()
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef0123456789abcdef")
    path.chmod(0o600)
    return ["--cluster-secret-file", path]


def test_replicas_at_addresses_with_a_secret(model, alone, secret):
    ports = [free_port(), free_port()]
    shards = [Shard(model, p, *secret) for p in ports]
    wrong = None
    try:
        at = ",".join(f"127.0.0.1:{p}" for p in ports)
        r = Router(model, "--replica-address", at, "--shard-return-timeout", 60, *secret)
        wait_for(lambda: ready(r) == 2, 60)
        asked, begun = streams(r, asks(32))
        wait_for(lambda: len(begun) == 32, 60)
        shards[1].stop(signal.SIGKILL)
        assert [f.result() for f in asked] == alone
        wrong = Shard(model, ports[1])  # one that does not know the secret takes no place
        wrong.wait_log("shard ready")
        assert ready(r) == 1
        wrong.stop(signal.SIGKILL)
        shards[1] = Shard(model, ports[1], *secret)
        wait_for(lambda: ready(r) == 2, 60)
        assert r.stop() == 0
    finally:
        for p in [*shards, wrong]:
            if p and p.alive():
                p.stop(signal.SIGKILL)


def test_other_weights_take_no_place(model, tmp_path):
    """A stream that moved there would go on as another model's."""
    shards = [Shard(m, free_port()) for m in (model, other_weights(model, tmp_path / "other"))]
    ports = [s.argv[s.argv.index("--uds-path") + 1].rpartition(":")[2] for s in shards]
    try:
        r = Router(model, "--replica-address", ",".join(f"127.0.0.1:{p}" for p in ports), "--shard-return-timeout", 60)
        r.wait_log("its files of weights or configuration differ")
        assert ready(r) == 1
        assert r.stop() == 0
    finally:
        for p in shards:
            p.stop(signal.SIGKILL)


def test_other_options_take_no_place(model):
    """The same files, and other answers."""
    ports = [free_port() for _ in range(3)]
    shards = [Shard(model, ports[0])]
    try:
        r = Router(model, "--replica-address", ",".join(f"127.0.0.1:{p}" for p in ports), "--shard-return-timeout", 60)
        shards.append(Shard(model, ports[1], "--kv-cache-dtype", "int8"))
        shards.append(Shard(model, ports[2], "--rope-scaling", "linear", "--rope-factor", 2))
        for words in ("why=\"its options are `--kv-cache-dtype int8 ", "--rope-scaling linear --rope-factor 2`, and those of the others `--kv-cache-dtype"):
            r.wait_log(words)
        assert ready(r) == 1
        assert r.stop() == 0
    finally:
        for p in shards:
            p.stop(signal.SIGKILL)


def test_a_second_router_waits_until_the_first_has_ended(model, alone):
    """Both would number the same blocks, and each would overwrite the other's: a rolling update of routers does that."""
    ports = [free_port(), free_port()]
    shards = [Shard(model, p) for p in ports]
    args = ["--replica-address", ",".join(f"127.0.0.1:{p}" for p in ports), "--shard-return-timeout", 60]
    first = second = None
    try:
        first = Router(model, *args)
        wait_for(lambda: ready(first) == 2, 60)
        asked, begun = streams(first, asks(8))
        wait_for(lambda: len(begun) == 8, 60)
        second = Router(model, *args, wait=False)
        assert [f.result() for f in asked] == alone[:8]
        second.wait_log("another router uses this shard")
        time.sleep(8)  # one that has nothing to do keeps its shards, too
        assert ready(first) == 2 and second.alive() and "Replica ready" not in second.log
        assert [f.result() for f in streams(first, asks(8))[0]] == alone[:8]
        first.stop(signal.SIGKILL)
        Service.wait_ready(second)
        wait_for(lambda: ready(second) == 2, 60)
        assert [f.result() for f in streams(second, asks(8))[0]] == alone[:8]
        assert second.stop() == 0
    finally:
        for p in [*shards, first, second]:
            if p and p.alive():
                p.stop(signal.SIGKILL)


@contextlib.contextmanager
def two_elsewhere(model):
    """A router with two replicas that no launcher watches, and the process of the first. That one continues afterwards, and comes back."""
    ports = [free_port(), free_port()]
    shards = [Shard(model, p) for p in ports]
    try:
        r = Router(model, "--replica-address", ",".join(f"127.0.0.1:{p}" for p in ports), "--shard-return-timeout", 60)
        wait_for(lambda: ready(r) == 2, 60)
        yield r, shards[0].p
        shards[0].p.send_signal(signal.SIGCONT)
        wait_for(lambda: ready(r) == 2, 60)
        assert r.stop() == 0
    finally:
        for p in shards:
            p.p.send_signal(signal.SIGCONT)
            p.stop(signal.SIGKILL)


def test_a_frozen_replica_elsewhere_is_noticed_by_the_router(model, alone):
    """No launcher watches it."""
    with two_elsewhere(model) as (r, frozen):
        asked, begun = streams(r, asks(32))
        wait_for(lambda: len(begun) == 32, 60)
        frozen.send_signal(signal.SIGSTOP)
        assert [f.result() for f in asked] == alone


def test_no_text_waits_for_a_frozen_replica():
    """Embeddings: those that were sent there go to the other one."""
    bodies = [{"model": "m", "input": [f"text {i} {k}" for k in range(200)]} for i in range(40)]

    def vectors(body):
        answer = r.post("/v1/embeddings", body)
        assert answer.status_code == 200, answer.text
        return [d["embedding"] for d in answer.json()["data"]]

    with two_elsewhere(data("embed/bert_mean")) as (r, frozen):
        want = [vectors(b) for b in bodies]
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            asked = [pool.submit(vectors, b) for b in bodies]
            wait_for(lambda: all(x["running"] + x["waiting"] for x in replicas(r)))  # else a slow client sends all to the other one
            frozen.send_signal(signal.SIGSTOP)
            assert [f.result(60 * SLOW) for f in asked] == want
        assert r.metric("tgi_replica_handovers") > 0


def test_a_file_names_replicas(model, alone, tmp_path):
    """One is added, the other drained under its streams."""
    ports = [free_port(), free_port()]
    shards = [Shard(model, p) for p in ports]
    listed = tmp_path / "replicas"

    def name(*which):
        new = tmp_path / "new"
        new.write_text("# replicas\n" + "".join(f"127.0.0.1:{p}\n" for p in which))
        new.rename(listed)

    try:
        name(ports[0])
        r = Router(model, "--replica-discovery", f"file:{listed}", "--shard-return-timeout", 60)
        assert ready(r) == 1
        for _ in range(4):  # written in place, and read meanwhile
            text = listed.read_text()
            listed.write_text("")
            time.sleep(0.2)
            listed.write_text(text)
            time.sleep(0.6)
        assert "Draining replica" not in r.log and ready(r) == 1
        asked, begun = streams(r, asks(32))
        wait_for(lambda: len(begun) == 32, 60)
        name(*ports)
        wait_for(lambda: ready(r) == 2, 60)
        name(ports[1])
        wait_for(lambda: ready(r) == 1)
        assert requests.get(r.url + "/health", timeout=10).status_code == 200
        assert [f.result() for f in asked] == alone
        wait_for(lambda: len(replicas(r)) == 1)
        assert [f.result() for f in streams(r, asks(32))[0]] == alone
        assert r.metric("tgi_replica_handovers") == 0
        assert r.stop() == 0
    finally:
        for p in shards:
            p.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    "args,words",
    [
        (["--replicas", 0], "no other one is named"),
        (["--replicas", 2, "--draft-model-id", DEMO], "take no draft model"),
        (["--replicas", 2, "--nnodes", 2, "--num-shard", 2], "do not go together"),
        (["--replica-address", "10.0.0.1:80"], "is not a loopback address"),
    ],
)
def test_what_does_not_fit_is_refused(args, words):
    p = Process([BIN / "launcher", "--model-id", DEMO, "--port", free_port(), *args], folder=scratch())
    assert p.p.wait(20) == 78
    assert words in p.log
