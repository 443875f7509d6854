"""A model on several machines: here two launchers on one machine, each with its own ranks, connected by TCP."""

import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import time

import pytest
from deep import other_weights
from serving import BIN, DEMO, SLOW, Process, Service, free_ports, scratch, wait_for

BODY = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 24, "details": True}}


class Machine(Process):
    """A launcher that is not machine 0: ranks, and no router."""

    def __init__(self, rank, args, model=DEMO):
        folder = scratch()
        argv = [BIN / "launcher", "--model-id", model, "--node-rank", rank, "--shard-uds-path", f"{folder}/shard"]
        super().__init__([*argv, *args], folder=folder)


def start(nodes, num_shard, timeout=60, args=(), port=None, models=(), more=(), launch_others=True):
    """Machine 0, which is not waited for, and the others; `models` and `more` are theirs alone."""
    meet = ["--nnodes", nodes, "--master-addr", "127.0.0.1", "--master-port", port or master_port(), "--device", "cpu"]
    meet += ["--threads", 1, "--rendezvous-timeout", timeout, "--max-total-tokens", 256, *args]
    others = [Machine(r, [*meet, "--num-shard", num_shard, *more], *models) for r in range(1, nodes) if launch_others]
    return Service(DEMO, num_shard, ["--node-rank", 0, *meet], ready=False), others


def master_port():
    """With the ports of the ranks above it."""
    return free_ports(6)


def end_all(processes):
    for p in processes:
        if p.alive():
            p.stop(signal.SIGKILL)


def wait_end(p, timeout=30):
    try:
        return p.p.wait(timeout * SLOW)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"still there after {timeout} s:\n{p.log[-4000:]}") from None


def tokens(s):
    r = s.post("/generate", BODY)
    assert r.status_code == 200, r.text
    return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]


@pytest.fixture(scope="module")
def alone():
    """What the demo says on one machine, by number of ranks."""
    said = {}
    for n in (1, 2, 4):
        with Service(DEMO, n, ["--device", "cpu", "--threads", 1]) as s:
            said[n] = tokens(s)
    assert len(said[1]) == 24
    return said


@pytest.mark.parametrize("nodes,num_shard", [(2, 2), (2, 4)])
def test_several_machines_answer_as_one(alone, nodes, num_shard):
    master, others = start(nodes, num_shard)
    try:
        master.wait_ready()
        for _ in range(2):
            got = tokens(master)
            assert got == alone[num_shard], "not the bits of shared memory"
            assert [i for i, _ in got] == [i for i, _ in alone[1]], "not the tokens of one rank"
        # told to stop, machine 0 ends in order, and the others with it
        assert master.stop() == 0, master.log[-3000:]
        for p in others:
            assert wait_end(p) == 0, p.log[-3000:]
            assert "has left: shutting down" in p.log
    finally:
        end_all([master, *others])


def cause(p):
    """The last words of a launcher."""
    return [line for line in p.log.splitlines() if "Error:" in line][-1]


@pytest.mark.parametrize(
    "other,more,want",
    [
        ("files", [], "files of weights or configuration"),
        ("quantisation", ["--quantize", "int8"], "types of weights"),
        ("cache", ["--kv-cache-dtype", "int8"], "options: --kv-cache-dtype int8 "),
    ],
)
def test_a_machine_with_another_model_is_refused(tmp_path, other, more, want):
    model = other_weights(DEMO, tmp_path / "other") if other == "files" else DEMO
    master, others = start(2, 2, models=[model], more=more)
    try:
        assert wait_end(master) == 1, master.log[-3000:]
        assert re.search(rf"shard 1 \(\S*127.0.0.1:\d+\) and shard 0 \(\S+\) have different {want}", cause(master)), cause(master)
        wait_end(others[0])
    finally:
        end_all([master, *others])


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_without_restarts_a_lost_machine_ends_the_others_with_one_clear_line(sig):
    master, others = start(2, 2, args=["--max-shard-restarts", 0])
    try:
        master.wait_ready()
        tokens(master)
        others[0].p.send_signal(sig)
        assert wait_end(master, 20) != 0
        assert re.search(r"rank 1 \(127.0.0.1\) (died|has left)|127.0.0.1:\d+", cause(master)), master.log[-3000:]
        assert not master.children()
    finally:
        end_all([master, *others])


def test_without_restarts_machine_0_killed_ends_the_others():
    master, others = start(2, 2, args=["--max-shard-restarts", 0])
    try:
        master.wait_ready()
        master.p.kill()
        assert wait_end(others[0], 20) == 1
        assert "rank 0 (127.0.0.1) died" in cause(others[0]), others[0].log[-3000:]
    finally:
        end_all([master, *others])


# ---------------------------------------------------------------- ranks that come back

LONG = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 220, "seed": 7, "do_sample": True, "details": True}}


@contextlib.contextmanager
def streams(master, n=4):
    """Requests that are running inside, and have the tokens that they have without a loss when it ends."""
    want = master.post("/generate", LONG).json()
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        asked = [pool.submit(master.post, "/generate", LONG) for _ in range(n)]
        wait_for(lambda: master.metric("tgi_batch_current_size"))
        yield
        for a in asked:
            assert a.result().status_code == 200 and a.result().json()["details"]["tokens"] == want["details"]["tokens"]


@pytest.mark.parametrize("nodes, at", [(2, 0), (2, 1), (4, 2)])
def test_streams_go_on_when_a_rank_is_lost(nodes, at):
    master, others = start(nodes, nodes)
    try:
        master.wait_ready()
        with streams(master):
            os.kill([master, *others][at].shards()[0], signal.SIGKILL)
        assert all("Restarting the shards" in p.log for p in (master, *others))
        assert master.stop() == 0
        assert [wait_end(p) for p in others] == [0] * len(others)
    finally:
        end_all([master, *others])


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_streams_go_on_when_a_machine_is_replaced(sig):
    master, others = start(4, 4)
    try:
        master.wait_ready()
        with streams(master):
            others[0].p.send_signal(sig)
            wait_end(others[0])
            master.wait_log("Restarting the shards")
            others.append(Process(others.pop(0).argv))
        assert master.stop() == 0
        assert [wait_end(p) for p in others] == [0, 0, 0]
    finally:
        end_all([master, *others])


def test_machines_wait_for_machine_0():
    port = master_port()
    master, others = start(2, 2, port=port)
    try:
        master.wait_ready()
        want = tokens(master)
        master.p.kill()
        others[0].wait_log("Restarting the shards")
        master = start(1 + len(others), 2, port=port, launch_others=False)[0]
        master.wait_ready()
        assert tokens(master) == want
        assert master.stop() == 0 and wait_end(others[0]) == 0
    finally:
        end_all([master, *others])


def test_a_machine_that_does_not_come_back_is_named():
    master, others = start(2, 2, timeout=3, args=["--max-shard-restarts", 2])
    try:
        master.wait_ready()
        others[0].p.kill()
        assert wait_end(master, 30) == 1
        assert "rank 1 of machine 1 did not come within 3 s" in cause(master), master.log[-3000:]
        assert master.log.count("Restarting the shards") == 2
    finally:
        end_all([master, *others])


def test_a_machine_that_does_not_come_is_named_in_time():
    master, others = start(3, 3, timeout=6)
    others.pop().stop(signal.SIGKILL)
    try:
        begin = time.monotonic()
        for p in (master, others[0]):
            assert wait_end(p) == 1
            assert "rank 2 of machine 2 did not come within 6 s" in cause(p), p.log[-3000:]
        assert time.monotonic() - begin < 30 * SLOW
    finally:
        end_all([master, *others])


def test_machines_that_disagree_say_so_on_both():
    port = master_port()
    meet = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", port, "--device", "cpu"]
    both = [Service(DEMO, 2, meet, ready=False), Machine(1, [*meet, "--num-shard", 4])]
    try:
        for p in both:
            assert wait_end(p) in (1, 78)  # whose rank said it, or whose rank saw the other go
            # of the two ranks of the second machine, the other one may only see that there is no group
            assert "says 4 ranks on 2 machines, rank 0 says 2 on 2" in p.log, p.log[-3000:]
    finally:
        end_all(both)


def test_flags_that_cannot_be_are_refused_at_once():
    for args, words in [
        (["--nnodes", 2, "--num-shard", 3], "`num_shard` (3) must be a multiple of `nnodes` (2)"),
        (["--nnodes", 2, "--node-rank", 2], "`node_rank` (2) must be < `nnodes` (2)"),
    ]:
        p = Process([BIN / "launcher", "--model-id", DEMO, *args])
        assert wait_end(p) == 78
        assert words in p.log
