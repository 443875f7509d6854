"""A slow start: the port is open and reports progress, and nothing is reported as ready too early."""

import os
import pty
import re
import subprocess
import time

import pytest
import requests
from serving import BIN, DEMO, SLOW, Scripted, Service, free_port, wait_for
from test_nodes import Machine, end_all, master_port

BODY = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}}
ARGS = ["--device", "cpu", "--threads", 1]


@pytest.fixture
def held():
    """Machine 0 of two. Its rank waits for the other machine, for as long as the test lasts."""
    meet = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", master_port(), *ARGS, "--rendezvous-timeout", 300]
    s = Service(DEMO, 2, ["--node-rank", 0, *meet], ready=False)
    others = []
    try:
        yield s, lambda: others.append(Machine(1, [*meet, "--num-shard", 2]))
    finally:
        end_all([s, *others])


def status(s, path, **kw):
    try:
        return requests.request(kw.pop("method", "GET"), s.url + path, timeout=30, **kw).status_code
    except requests.ConnectionError:
        return None


def test_the_port_opens_first_and_says_how_far_the_start_is(held):
    s, let_go = held
    wait_for(lambda: status(s, "/livez") == 200, 60)
    wait_for(lambda: requests.get(s.url + "/health", timeout=30).json().get("phase") == "rendezvous", 60)
    r = requests.get(s.url + "/health", timeout=30)
    assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1
    assert r.json()["status"] == "loading" and r.json()["error_type"] == "healthcheck"
    wait_for(lambda: requests.get(s.url + "/health", timeout=30).json()["seconds"] > 0, 60)
    for path in ("/readyz", "/startupz", "/info", "/v1/models"):
        r = requests.get(s.url + path, timeout=30)
        assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1, path
    for path, body in (("/generate", BODY), ("/v1/completions", {"prompt": "a"}), ("/tokenize", {"inputs": "a"})):
        r = s.post(path, body)
        assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1, path
    assert s.metric("startup_phase_seconds", phase="ready") == 0
    assert s.metric("startup_phase_seconds", phase="rendezvous") > 0
    assert "All shards ready" not in s.log and "Connected" not in s.log
    s.wait_log("Waiting for shard to be ready... rank=0 at=", 60)
    assert re.search(r"Waiting for shard to be ready\.\.\. rank=\d at=\"?rendezvous", s.log), s.log[-2000:]
    let_go()
    s.wait_ready()
    s.wait_log("All shards ready")
    s.wait_log("Connected")
    assert s.post("/generate", BODY).status_code == 200
    phases = {p: s.metric("startup_phase_seconds", phase=p) for p in ("rendezvous", "tokenizer", "weights", "warm_up", "kv", "router_shards", "ready")}
    assert all(v > 0 for v in phases.values()), phases
    assert phases["ready"] >= phases["router_shards"] >= phases["weights"], phases


def test_a_start_that_is_stopped_ends_in_order(held):
    s, _ = held
    wait_for(lambda: status(s, "/livez") == 200, 60)
    assert s.stop() == 0, s.log[-3000:]
    assert status(s, "/livez") is None


def test_a_shard_that_cannot_start_ends_the_launch_under_an_open_port():
    """It is not tried again: only shards that have served are."""
    s = Service(DEMO, 1, [*ARGS, "--kv-cache-dtype", "int8", "--dtype", "float16", "--lora-adapters", "none=/nowhere"], ready=False)
    assert s.p.wait(60 * SLOW) == 1
    assert "Restarting the shards" not in s.log
    assert re.search(r"Error: (Download error of --lora-adapters|Shard cannot start): .*/nowhere", s.log), s.log[-3000:]


def test_loading_shows_a_bar_where_somebody_looks():
    ours, theirs = pty.openpty()
    p = subprocess.Popen(
        [BIN / "launcher", "--model-id", DEMO, "--port", str(free_port()), "--hostname", "127.0.0.1", "--shard-uds-path", f"/tmp/it-bar-{os.getpid()}-{free_port()}",
         *map(str, ARGS), "--nnodes", "2", "--num-shard", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", str(master_port())],
        stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    seen, end = b"", time.monotonic() + 60 * SLOW
    try:
        while b"] rendezvous" not in seen:
            assert time.monotonic() < end and p.poll() is None, seen
            seen += os.read(ours, 4096)
    finally:
        p.terminate()
        p.wait(60 * SLOW)
        os.close(ours)
    assert b"loading [" in seen and p.returncode == 0


def test_without_a_terminal_there_is_no_bar():
    with Service(DEMO, 1, ARGS) as s:
        assert "loading [" not in s.log
        assert s.metric("startup_phase_seconds", phase="ready") > 0


@pytest.mark.parametrize("call", ["ClearCache", "Info", "Warmup"])
def test_shards_that_are_lost_while_the_router_warms_them_up_are_awaited(call):
    """They had said that they are ready. What they refuse is refused at once, as before."""
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with Scripted(template, {"lost": {call: 2}}) as s:
        assert s.post("/generate", {"inputs": "[[one]]", "parameters": {"max_new_tokens": 4}}).json()["generated_text"] == "one"
        assert "Shards were lost while they started" in s.log and "Socket closed" in s.log
    with pytest.raises(AssertionError, match="no room"):
        Scripted(template, {"fail": {"Warmup": ["no room", 1]}})
