"""A limit of memory that is reached: the kernel kills a process of the control group, each of them in turn.

Streams of a lost shard go on; the launcher names the cause and the limit."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import requests
from serving import DEMO, Service, scratch, wait_for

CACHE = ["--kv-cache-memory", "64MiB"]
ASK = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 400, "ignore_eos": True}}
# The one program of `make slim` ends so slowly that the kernel, which does not wait, kills what takes memory as well.
pytestmark = pytest.mark.usefixtures("apart")
# takes memory, a little at a time, until the kernel has killed a process for it
HOG = """
import pathlib, sys
kills = lambda: pathlib.Path(sys.argv[1], "memory.oom_control").read_text().split()[-1]
before, held = kills(), []
while kills() == before:
    held.append(b"x" * (1 << 20))
"""


class Group:
    """A control group of version 1 with a limit of memory. Processes that are started inside `with` are in it."""

    def __init__(self, limit):
        own = [line.split(":")[2] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.split(":")[1] == "memory"]
        self.home = pathlib.Path("/sys/fs/cgroup/memory" + (own or ["/none"])[0])
        self.at = self.home / scratch().name
        try:
            self.at.mkdir()
            (self.at / "memory.limit_in_bytes").write_text(str(limit))
        except OSError:
            pytest.skip("no control group of version 1 with a limit of memory can be made here")
        if "oom_kill " not in (self.at / "memory.oom_control").read_text():
            pytest.skip("this kernel does not count kills for lack of memory")

    def __enter__(self):
        (self.at / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        (self.home / "cgroup.procs").write_text(str(os.getpid()))

    def run_out(self, victim):
        """Until the kernel has killed `victim`, which is made the first that it chooses."""
        pathlib.Path(f"/proc/{victim}/oom_score_adj").write_text("1000")
        with self:
            hog = subprocess.Popen([sys.executable, "-c", HOG, self.at])
        assert hog.wait(60) in (0, -signal.SIGKILL)  # a victim that ends slowly is not waited for
        wait_for(lambda: not pathlib.Path(f"/proc/{victim}/exe").exists(), 20)

    def remove(self):
        for pid in (self.at / "cgroup.procs").read_text().split():  # of a test that failed
            os.kill(int(pid), signal.SIGKILL)
        wait_for(lambda: not (self.at / "cgroup.procs").read_text(), 20)
        self.at.rmdir()


@pytest.fixture
def group():
    g = Group(1 << 30)
    yield g
    g.remove()


def named(s, name):
    return [pid for pid in s.children() if pathlib.Path(f"/proc/{pid}/exe").resolve().name == name][0]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_shard_that_is_killed_costs_no_stream(group, ranks):
    with group:
        s = Service(DEMO, ranks, args=CACHE)
    with s:
        want = list(s.events("/generate_stream", ASK))
        events = s.events("/generate_stream", ASK)
        got = [next(events)]
        group.run_out(s.shards()[-1])
        assert got + list(events) == want
        assert f"rank {ranks - 1} was killed by signal 9 (Killed; by the kernel, because memory ran out)" in s.log
        assert f"limit_bytes={1 << 30}" in s.log
        os.kill(s.shards()[0], signal.SIGKILL)  # by another: no cause is invented
        s.wait_log("rank 0 was killed by signal 9 (Killed; the kernel does this when memory runs out)")
        s.wait_ready()


def test_a_router_that_is_killed_is_named(group):
    with group:
        s = Service(DEMO, args=CACHE)
    with contextlib.suppress(requests.RequestException):
        events = s.events("/generate_stream", ASK)
        next(events)
        group.run_out(named(s, "router"))
        list(events)
    assert s.p.wait(20) == 128 + signal.SIGKILL
    assert "Webserver failed: router was killed by signal 9 (Killed; by the kernel, because memory ran out)" in s.log.splitlines()[-1]


def test_a_launcher_that_is_killed_leaves_nothing(group):
    with group:
        s = Service(DEMO, 2, args=CACHE)
    pids = s.children()
    group.run_out(s.p.pid)
    assert s.p.wait(20) == -signal.SIGKILL
    wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), 5)


def test_a_shard_that_is_killed_while_it_loads_is_loaded_again(group):
    with group:
        s = Service(DEMO, args=CACHE, ready=False)
    with s:
        wait_for(s.shards)
        group.run_out(s.shards()[0])
        s.wait_ready()
        assert s.post("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 2}}).status_code == 200
