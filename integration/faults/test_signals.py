"""Signals in random order at random moments to launcher, router and shards, while they load, serve, stream and drain.

    SEED=1 STORMS=200 python -m pytest integration/faults/test_signals.py

Whatever comes, the launcher ends with an exit code of its own, nothing is left behind, and no stream has a wrong token."""

import contextlib
import os
import pathlib
import random
import signal
import threading
import time

import pytest
import requests
from serving import DEMO, SLOW, Service, seed_for, wait_for

CACHE = ["--kv-cache-memory", "64MiB"]
STORMS = int(os.environ.get("STORMS", 200 if "SEED" in os.environ else 8 if SLOW == 1 else 3))
ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
HARMLESS = [signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2]
# in order; lost streams; what ended the router or, while it loads, a shard (128 + a signal)
CODES = {0, 1, *(128 + s for s in ENDING)}
NO_CODE = {-s for s in (*ENDING, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)}  # before its first line: the program has not begun
GRACE_S = 60  # the default, and what else a loaded machine takes
ASK = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 400, "ignore_eos": True}}


@pytest.fixture(scope="module")
def want():
    """By the number of ranks, which changes the order of sums."""

    def said(ranks):
        with Service(DEMO, ranks, args=CACHE) as s:
            return list(s.events("/generate_stream", ASK))

    return {ranks: said(ranks) for ranks in (1, 2)}


class Client(threading.Thread):
    """Streams until the service is gone: each stream is whole, or ends with an error, or its connection does."""

    def __init__(self, s, want):
        super().__init__(daemon=True)
        self.s, self.want, self.wrong, self.over = s, want, [], False
        self.start()

    def run(self):
        while not self.over:
            got = []
            with contextlib.suppress(requests.RequestException, AssertionError):  # no connection, or a status that says why
                for event in self.s.events("/generate_stream", ASK):
                    got.append(event)
            if got and "error" in got[-1]:
                got.pop()
            self.wrong += [(a, b) for a, b in zip(got, self.want) if a != b][:1]
            time.sleep(0.02)


def processes(s):
    """The launcher, or another of its processes, each as likely."""
    return [s.p.pid, *s.children()]


def storm(s, rng):
    """Some signals that end a process, among many that do not."""
    time.sleep(rng.choice([0, 0.05, 0.3, 1]) * rng.random())
    for _ in range(rng.randrange(5, 40)):
        sig = rng.choice(HARMLESS if rng.random() < 0.8 else ENDING)
        with contextlib.suppress(OSError):  # it may be gone
            os.kill(rng.choice(processes(s)), sig)
        time.sleep(rng.choice([0, 0, 0.01, 0.1]) * rng.random())


def left(s, pids):
    """What of a launch that has ended is still there."""
    there = [pid for pid in pids if str(s.folder) in cmdline(pid)]
    there += [p.name for p in s.folder.iterdir() if not p.name.endswith(".log")]
    return there + [p.name for p in pathlib.Path("/dev/shm").glob(f"model-server-{s.p.pid}-*")]


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.mark.parametrize("number", range(STORMS))
def test_a_storm_of_signals_leaves_nothing(want, number):
    rng = random.Random(seed_for(1300 + number))
    ranks = rng.choice([1, 2])
    s = Service(DEMO, ranks, args=[*CACHE, "--max-shard-restarts", 10], ready=False)
    client = Client(s, want[ranks])
    pids = {s.p.pid}
    try:
        if rng.random() < 0.7:
            with contextlib.suppress(AssertionError):
                s.wait_ready()
        pids.update(s.children())
        storm(s, rng)
        pids.update(s.children())
        if s.alive():
            s.p.send_signal(signal.SIGTERM)
            storm(s, rng)  # while it drains
        code = s.p.wait(GRACE_S * SLOW)
        assert code in CODES or (code in NO_CODE and not s.log), f"exit code {code}\n{s.log[-4000:]}"
        wait_for(lambda: not left(s, pids), 10)
    finally:
        client.over = True
        s.stop(signal.SIGKILL)
        client.join()
    assert not client.wrong, client.wrong


def probes(s):
    """Processes that ask shards whether they are ready."""
    return [pid for pid in s.children() if "health" in cmdline(pid).split()]


@pytest.mark.parametrize("args", [[], ["--replicas", 2]])
def test_a_health_probe_that_is_killed_is_started_again(args):
    """By the kernel, if memory is short; it says nothing about its shard."""
    s = Service(DEMO, args=[*CACHE, *args], ready=False)
    try:
        wait_for(lambda: probes(s) or "Shard ready" in s.log, 30)
        for pid in probes(s):
            os.kill(pid, signal.SIGKILL)
        s.wait_ready()
        assert s.post("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 2}}).status_code == 200
        assert "A health probe is started again" in s.log
        assert s.stop() == 0
    finally:
        s.stop(signal.SIGKILL)


def test_signals_that_end_no_process_cost_no_stream(want):
    rng = random.Random(seed_for(13))
    with Service(DEMO, 2, args=CACHE) as s:
        events = s.events("/generate_stream", ASK)
        got = [next(events)]
        for _ in range(300):
            os.kill(rng.choice(processes(s)), rng.choice(HARMLESS))
        got += events
        assert got == want[2]
        assert "Restarting" not in s.log
