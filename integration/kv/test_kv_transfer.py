"""Prefill and decode apart: one service computes a prompt, another one reads its KV blocks over TCP and generates, with the bits
of one service. Whatever is wrong with the way between them, answers are right."""

import concurrent.futures
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from serving import BIN, DEMO, Process, Service, data, scratch, seed_for, wait_for
from test_nodes import master_port

WORDS = "the a one little big red old dog cat girl boy ball tree house sun day park saw ran found had was and then went to in with".split()
ROOM = ["--max-total-tokens", 4000]


def prompt(seed, n=200):
    rng = random.Random(seed_for(seed))
    return " ".join(rng.choices(WORDS, k=n)) + "."


def ports(n):
    """The first of `n` ports that are free, below those that the system gives away itself."""
    while True:
        first = random.randrange(15000, 30000)
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


def service(model="arch/llama", num_shard=1, args=(), **kw):
    port = ports(num_shard)
    s = Service(data(model) if isinstance(model, str) else model, num_shard,
                ["--kv-transfer-address", f"127.0.0.1:{port}", *(args or ROOM)], **kw)
    s.transfer_port = port
    return s


def body(text, n=8, **more):
    return {"model": "m", "prompt": text, "max_tokens": n, "temperature": 0, "logprobs": 1, "ignore_eos": True, **more}


def complete(s, text, n=8, **more):
    r = s.post("/v1/completions", body(text, n, **more))
    assert r.status_code == 200, r.text
    return r.json()


def said(answer):
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]


# What llm-d's sidecar sends to the prefiller: pkg/sidecar/proxy/connector_nixlv2.go
ASK = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
       "remote_host": None, "remote_port": None}


def prefill(s, text, **more):
    r = s.post("/v1/completions", {**body(text, 1, **more), "stream": False, "kv_transfer_params": ASK})
    assert r.status_code == 200, r.text
    return r.json()["kv_transfer_params"]


def reads(s, outcome):
    return s.metric("tgi_kv_transfer_reads", outcome=outcome) or 0


def hits(s):
    return s.metric("prefix_hit_tokens") or 0


FAMILIES = [("llama", 1, 1), ("llama", 2, 1), ("deepseek_v2_lite", 1, 1), ("qwen3_next", 1, 1), ("gemma3_text", 2, 1),
            ("qwen3_next", 2, 2), ("gemma3_text", 4, 2)]


@pytest.mark.parametrize("model,num_shard,stages", FAMILIES)
def test_two_services_answer_as_one(model, num_shard, stages):
    """Paged layers, latent ones, recurrent state and windows; whole models, parts of them, and stages of layers."""
    args = ["--max-total-tokens", 1500, "--pipeline-parallel-size", stages]
    texts = [prompt(i) for i in range(3)]
    with Service(data("arch/" + model), num_shard, args) as s:
        want = [said(complete(s, t)) for t in texts]
    with service("arch/" + model, num_shard, args) as first, service("arch/" + model, num_shard, args) as second:
        for t, w in zip(texts, want):
            p = prefill(first, t)
            assert p["do_remote_prefill"] is True and p["remote_port"] == first.transfer_port and p["tp_size"] == num_shard
            assert len(p["remote_engine_id"]) == 32
            before = hits(second)
            got = complete(second, t, kv_transfer_params=p)
            assert said(got) == w
            n, blocks = got["usage"]["prompt_tokens"], len(p["remote_block_ids"])
            assert blocks == n // 16
            # at most the tail is computed: the last block, and where there is state, what lies behind the last snapshot
            assert n - (hits(second) - before) <= 32
            assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= n - 32
        assert reads(second, "found") == len(texts)
        assert second.metric("tgi_kv_transfer_bytes") > 0 and second.metric("tgi_kv_transfer_seconds") > 0
        assert first.metric("tgi_kv_transfer_exported") >= second.metric("tgi_kv_transfer_blocks") > 0
        second.audit()
        first.audit()


@pytest.fixture(scope="module")
def pair():
    """Two services, and what one alone says."""
    with Service(data("arch/llama"), 1, ROOM) as alone, service() as first, service() as second:
        yield alone, first, second


def test_chat_and_streams(pair):
    alone, first, second = pair
    chat = {"model": "m", "messages": [{"role": "user", "content": prompt(11)}], "temperature": 0, "ignore_eos": True}
    want = alone.post("/v1/chat/completions", {**chat, "max_tokens": 8}).json()["choices"][0]["message"]
    r = first.post("/v1/chat/completions", {**chat, "max_tokens": 1, "max_completion_tokens": 1, "kv_transfer_params": ASK})
    assert r.status_code == 200, r.text
    p = r.json()["kv_transfer_params"]
    found = reads(second, "found")
    events = list(second.events("/v1/chat/completions", {**chat, "max_tokens": 8, "stream": True, "kv_transfer_params": p}))
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]" and e["choices"])
    assert text == want["content"] and reads(second, "found") == found + 1


def test_many_at_once(pair):
    """Prompts of one beginning, through both services side by side."""
    alone, first, second = pair
    texts = [prompt(20, 60) + prompt(21 + i, 90) for i in range(12)]
    want = [said(complete(alone, t)) for t in texts]

    def through(t):
        return said(complete(second, t, kv_transfer_params=prefill(first, t)))

    loaded = second.metric("tgi_kv_transfer_blocks")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(through, texts)) == want
    assert second.metric("tgi_kv_transfer_blocks") > loaded
    first.audit()
    second.audit()


def test_a_prompt_that_was_evicted_from_memory_is_exported_again(pair):
    alone, first, second = pair
    text = prompt(40)
    want = said(complete(alone, text))
    prefill(first, text)
    assert said(complete(second, text, kv_transfer_params=prefill(first, text))) == want


def test_a_tenant_finds_no_other_ones_blocks(pair):
    alone, first, second = pair
    text = prompt(41)
    want = said(complete(alone, text))
    p = prefill(first, text, cache_salt="alice")
    found, missing = reads(second, "found"), reads(second, "missing")
    assert said(complete(second, text, kv_transfer_params=p, cache_salt="bob")) == want
    assert (reads(second, "found"), reads(second, "missing")) == (found, missing + 1)
    assert said(complete(second, text, kv_transfer_params=p, cache_salt="alice")) == want
    assert reads(second, "found") == found + 1


GOOD = {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "e", "remote_block_ids": [0, 1],
        "remote_host": "127.0.0.1", "remote_port": 5600}


@pytest.mark.parametrize("field,value", [
    ("do_remote_prefill", "yes"),
    ("do_remote_prefill", 1),
    ("do_remote_decode", "no"),
    ("do_remote_prefill", {"do_remote_decode": True}),  # both
    ("remote_block_ids", None),
    ("remote_block_ids", "0,1"),
    ("remote_block_ids", [0, "1"]),
    ("remote_block_ids", [-1]),
    ("remote_engine_id", 7),
    ("remote_host", None),
    ("remote_host", ""),
    ("remote_host", 127),
    ("remote_host", "a b"),
    ("remote_host", "/run/socket"),
    ("remote_host", "unix"),
    ("remote_host", "user@host"),
    ("remote_host", "[::1]"),
    ("remote_host", "x" * 254),
    ("remote_port", None),
    ("remote_port", 0),
    ("remote_port", 65536),
    ("remote_port", 80.5),
    ("remote_port", "80"),
    ("tp_size", 0),
])
def test_malformed_params_are_refused_by_field(pair, field, value):
    _, _, second = pair
    p = {**GOOD, **value} if isinstance(value, dict) else {**GOOD, field: value}
    r = second.post("/v1/completions", body("x", kv_transfer_params=p))
    assert r.status_code == 400 and field in r.json()["error"]["message"], r.text


def test_params_that_are_no_object_and_params_that_ask_for_nothing(pair):
    _, _, second = pair
    for p in (7, "x", [1], True):
        r = second.post("/v1/completions", body("x", kv_transfer_params=p))
        assert r.status_code == 400 and "kv_transfer_params" in r.text
    for p in (None, {}, {"do_remote_decode": False, "do_remote_prefill": None}, {"what": 1}):
        r = second.post("/v1/completions", body("x", kv_transfer_params=p))
        assert r.status_code == 200 and "kv_transfer_params" not in r.json()


def test_a_service_without_an_address_refuses(pair):
    alone, first, _ = pair
    for p in (ASK, GOOD):
        r = alone.post("/v1/completions", body("x", kv_transfer_params=p))
        assert r.status_code == 400 and "--kv-transfer-address" in r.text
    for path in ("/v1/responses", "/completion"):  # whose answers have no place for it
        r = first.post(path, {"input": "x", "prompt": "x", "model": "m", "kv_transfer_params": ASK})
        assert r.status_code == 400 and "do_remote_decode" in r.text, r.text


# ---------------------------------------------------------------- what goes wrong on the way


class Way:
    """A TCP proxy. `change(n, data)` gets each piece of what the server sends, behind n bytes; None: nothing comes any more, and
    b"" closes the connection."""

    def __init__(self, to, change=None, port=0):
        self.to, self.change, self.sockets = to, change, []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self.sockets += [client, server]
            threading.Thread(target=self.pump, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, self.change), daemon=True).start()

    def pump(self, source, to, change):
        n = 0
        try:
            while piece := source.recv(4096):
                out = piece if change is None else change(n, piece)
                n += len(piece)
                if out is None:
                    continue
                if not out:
                    break
                to.sendall(out)
        except OSError:
            pass
        for s in (source, to):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in (self.listener, *self.sockets):
            s.close()


@pytest.mark.parametrize("num_shard", [1, 2])
def test_the_first_service_is_killed_in_the_middle(num_shard):
    text = prompt(50, 400)
    with Service(data("arch/llama"), num_shard, ROOM) as s:
        want = said(complete(s, text))
    first = service(num_shard=num_shard)
    killed = []

    def change(n, piece):
        if n < 20000:
            return piece
        if not killed:
            killed.append(True)
            for pid in [first.p.pid, *first.children()]:
                os.kill(pid, signal.SIGKILL)
        return b""

    with service(num_shard=num_shard) as second, contextlib.ExitStack() as ways:
        p = prefill(first, text)
        port = ports(num_shard)
        for rank in range(num_shard):  # the last rank's way is the one that breaks
            last = rank == num_shard - 1
            ways.enter_context(Way(first.transfer_port + rank, change if last else None, port + rank))
        got = complete(second, text, kv_transfer_params={**p, "remote_port": port})
        assert said(got) == want
        assert reads(second, "found") == 0 and killed
        assert reads(second, "unreachable") + reads(second, "late") == 1
        got = complete(second, prompt(51), kv_transfer_params=p)  # the other service has ended
        assert got["usage"]["completion_tokens"] == 8
        second.audit()
    first.p.wait()


def test_a_way_that_changes_bytes_changes_no_answer(pair):
    alone, first, second = pair
    rng = random.Random(seed_for(3))
    texts = [prompt(60 + i, 300) for i in range(6)]
    want = [said(complete(alone, t)) for t in texts]
    whole = reads(second, "found")
    for t, w in zip(texts, want):
        at = rng.randrange(2000, 60000)

        def change(n, piece, at=at):
            if not n <= at < n + len(piece):
                return piece
            raw = bytearray(piece)
            raw[at - n] ^= 1 << rng.randrange(8)
            return bytes(raw)

        p = prefill(first, t)
        with Way(first.transfer_port, change) as way:
            assert said(complete(second, t, kv_transfer_params={**p, "remote_port": way.port})) == w
    assert reads(second, "found") == whole
    second.audit()


def test_a_way_that_says_nothing_costs_a_bounded_time(pair):
    alone, first, second = pair
    text = prompt(70, 300)
    want = said(complete(alone, text))
    p = prefill(first, text)
    with Way(first.transfer_port, lambda n, piece: None) as way:
        assert said(complete(second, text, kv_transfer_params={**p, "remote_port": way.port})) == want
    assert reads(second, "late") + reads(second, "unreachable") > 0


def test_another_model_and_another_number_of_ranks_compute_themselves():
    text = prompt(80)
    with service() as first:
        for kw in ({"model": "arch/mistral"}, {"num_shard": 2}, {"args": [*ROOM, "--kv-cache-dtype", "int8"]}):
            with service(**kw) as second:
                fresh = said(complete(second, text, cache_salt="control"))
                assert said(complete(second, text, kv_transfer_params=prefill(first, text))) == fresh
                assert reads(second, "refused") == 1 and reads(second, "found") == 0
                assert second.log.count("KV blocks of a peer are computed instead") >= 1


def test_a_copy_of_the_checkpoint_elsewhere_is_the_same_model(tmp_path):
    text = prompt(81)
    copy = tmp_path / "copy"
    shutil.copytree(data("arch/llama"), copy)
    for f in copy.iterdir():
        os.utime(f, (10**9, 10**9))
    with service() as first, service(copy) as second:
        want = said(complete(second, text, cache_salt="control"))
        assert said(complete(second, text, kv_transfer_params=prefill(first, text))) == want
        assert reads(second, "found") == 1


def test_little_memory_takes_turns():
    """A prompt of which memory holds a part: read, loaded and read on."""
    text = prompt(82, 1200)
    args = ["--max-total-tokens", 5000, "--max-batch-prefill-tokens", 512]
    with service(args=[*args, "--kv-offload-memory", 1]) as first, service(args=[*args, "--kv-offload-memory", 0.02]) as second:
        want = said(complete(second, text, cache_salt="control"))
        p = prefill(first, text)
        got = complete(second, text, kv_transfer_params=p)
        assert said(got) == want
        assert reads(second, "full") > 0
        assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= got["usage"]["prompt_tokens"] - 32


# ---------------------------------------------------------------- who may read


def test_a_secret_is_asked_for(tmp_path):
    text = prompt(90)
    secrets = {}
    for name, words in (("good", "correct horse battery staple"), ("bad", "another secret of many bytes")):
        secrets[name] = tmp_path / name
        secrets[name].write_text(words)
        secrets[name].chmod(0o600)
    with service(args=[*ROOM, "--cluster-secret-file", secrets["good"]]) as first:
        p = prefill(first, text)
        for way, outcome in (("good", "found"), ("bad", "refused"), (None, "refused")):
            args = [*ROOM, *(["--cluster-secret-file", secrets[way]] if way else [])]
            with service(args=args) as second:
                want = said(complete(second, text, cache_salt="control"))
                assert said(complete(second, text, kv_transfer_params=p)) == want
                assert reads(second, outcome) == 1 and second.metric("tgi_kv_transfer_blocks") == (
                    len(p["remote_block_ids"]) if way == "good" else 0)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
def test_certificates_are_asked_for(tmp_path):
    from test_cluster import Member, authority

    ours = authority(tmp_path, "ours")
    member, other = Member(tmp_path, "member", ours), Member(tmp_path, "other", authority(tmp_path, "theirs"))
    with service(args=[*ROOM, *member.args]) as first:
        for m, found in ((member, True), (other, False)):
            with service(args=[*ROOM, *m.args]) as second:
                for attempt in range(12):  # a handshake may take longer than computing the prompt
                    time.sleep(0.1 * attempt)
                    text = prompt(91 + attempt)
                    p = prefill(first, text)
                    want = said(complete(second, text, cache_salt="control"))
                    assert said(complete(second, text, kv_transfer_params=p)) == want
                    if reads(second, "found"):
                        break
                assert (reads(second, "found") > 0) == found


@contextlib.contextmanager
def on_two_machines(model, num_shard, port, ports_of=(0, 0)):
    """A service of two launchers, at 127.0.0.1 and 127.0.0.2."""
    meet = ["--model-id", model, "--num-shard", num_shard, "--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", master_port(),
            "--device", "cpu", "--threads", 1, "--rendezvous-timeout", 60, *ROOM]
    folder = scratch()
    other = Process([BIN / "launcher", *meet, "--node-rank", 1, "--shard-uds-path", f"{folder}/shard",
                     "--kv-transfer-address", f"127.0.0.2:{port + ports_of[1]}"], folder=folder)
    try:
        with Service(model, num_shard, ["--node-rank", 0, *meet[4:], "--kv-transfer-address", f"127.0.0.1:{port}"], ready=ports_of[1] == 0) as s:
            yield s
    finally:
        if other.alive():
            other.stop(signal.SIGKILL)


def test_services_on_two_machines_each():
    """Each rank reads from the machine of the same rank; a service of one machine has other parts of the model in each rank."""
    model, text = data("arch/llama"), prompt("two machines")
    with service("arch/llama", 4) as alone:
        want = said(complete(alone, text))
    first_port, second_port = ports(4), ports(4)
    with on_two_machines(model, 4, first_port) as first, on_two_machines(model, 4, second_port) as second:
        p = prefill(first, text)
        assert p["remote_host"] == "127.0.0.1,127.0.0.2" and p["remote_port"] == first_port and p["tp_size"] == 4
        assert said(complete(second, text, kv_transfer_params=p)) == want
        assert reads(second, "found") == 1 and second.metric("tgi_kv_transfer_bytes") > 0
        for hosts, outcome in (("127.0.0.1", "unreachable"), ("127.0.0.2,127.0.0.1", "unreachable"), ("127.0.0.1,127.0.0.2,127.0.0.1", "refused")):
            before, text = reads(second, outcome), prompt(hosts)
            p = {**prefill(first, text), "remote_host": hosts}
            assert said(complete(second, text, kv_transfer_params=p)) == said(complete(first, text))
            assert reads(second, outcome) == before + 1, second.get("/metrics").text
            time.sleep(2.1)  # an unreachable peer is not used for so long
        for hosts in ("127.0.0.1,", ",127.0.0.1", "127.0.0.1,/tmp/x", "a,unix", "a," * 600 + "a"):
            r = second.post("/v1/completions", body(text, kv_transfer_params={**p, "remote_host": hosts}))
            assert r.status_code == 400 and "remote_host" in r.text, hosts


def test_two_machines_with_two_ports():
    with pytest.raises(AssertionError, match="on one machine and"):  # the launcher's exit code is not 0
        with on_two_machines(data("arch/llama"), 2, ports(4), (0, 1)) as s:
            wait_for(lambda: not s.alive())


@pytest.mark.parametrize("args,words", [
    (["--kv-transfer-address", "10.1.2.3:5600"], "--cluster-secret-file"),
    (["--kv-transfer-address", "127.0.0.1"], "expected host:port"),
    (["--kv-transfer-address", "127.0.0.1:65535", "--num-shard", 2], "2 ports are needed from 65535 on"),
    (["--kv-transfer-address", "127.0.0.1:5600", "--replicas", 2], "replicas are services of their own"),
])
def test_flags_that_cannot_be(args, words):
    r = subprocess.run([str(x) for x in (BIN / "launcher", "--model-id", DEMO, "--device", "cpu", *args)], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0 and words in r.stdout + r.stderr


# ---------------------------------------------------------------- real addresses


class Machine(Process):
    """A service in a network namespace of its own; curl, there too, asks it."""

    def __init__(self, network, i, args):
        folder = scratch()
        self.inside = network.inside(i)
        argv = [*self.inside, BIN / "launcher", "--model-id", DEMO, "--shard-uds-path", f"{folder}/s", "--port", 3000]
        address = ["--kv-transfer-address", f"10.77.0.{i + 1}:5600"]
        super().__init__([*argv, *address, "--device", "cpu", "--max-total-tokens", 2000, *args], folder=folder)

    def curl(self, path, *args):
        argv = [*self.inside, "curl", "-sf", *args, f"http://127.0.0.1:3000{path}"]
        return subprocess.run(argv, capture_output=True, text=True)

    def complete(self, text, n=8, **more):
        r = self.curl("/v1/completions", "-H", "content-type: application/json", "-d", json.dumps(body(text, n, **more)))
        assert r.returncode == 0, r
        return json.loads(r.stdout)

    def reads(self, outcome):
        want = f'tgi_kv_transfer_reads{{outcome="{outcome}"}} '
        return next(float(x.split()[-1]) for x in self.curl("/metrics").stdout.splitlines() if x.startswith(want))


@pytest.mark.skipif(not shutil.which("curl"), reason="curl asks from inside of the namespace")
def test_between_two_networks_addresses(tmp_path):
    """By addresses that are not loopback, with a secret; then the cable is drawn."""
    from test_cluster import Network

    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple")
    secret.chmod(0o600)
    network, machines = Network(), []
    try:
        machines = [Machine(network, i, ["--cluster-secret-file", secret]) for i in range(2)]
        for m in machines:
            wait_for(lambda m=m: m.alive() and m.curl("/health").returncode == 0, 60)
        first, second = machines
        for i, cable in enumerate((True, False)):
            text = prompt(100 + i)
            want = said(second.complete(text, cache_salt="control"))
            p = first.complete(text, 1, kv_transfer_params=ASK)["kv_transfer_params"]
            assert (p["remote_host"], p["remote_port"]) == ("10.77.0.1", 5600)
            if not cable:
                down = "ip -o link | grep -o 'v[ab][0-9]*' | head -1 | xargs -I X ip link set X down"
                subprocess.run([*network.inside(0), "sh", "-c", down], check=True)
            assert said(second.complete(text, kv_transfer_params=p)) == want
            if cable:
                assert second.reads("found") == 1, second.log[-3000:]
            else:
                assert second.reads("late") + second.reads("unreachable") == 1
        assert [m.stop() for m in machines] == [0, 0]
    finally:
        for m in machines:
            if m.alive():
                m.stop(signal.SIGKILL)
        network.close()
