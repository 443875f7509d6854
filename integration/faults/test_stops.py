"""Launches that are stopped at random moments: by signals, a terminal, or a parent that dies.

    SEED=1 STOPS=300 python -m pytest integration/faults/test_stops.py

Each ends within its grace time with the documented exit code, leaves nothing, and cuts no stream that it may finish."""

import contextlib
import ctypes
import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import termios
import threading
import time

import pytest
import requests
from serving import DEMO, SLOW, Service, seed_for, wait_for
from test_signals import left

STOPS = int(os.environ.get("STOPS", 300 if "SEED" in os.environ else 9))
GRACE_S = 60  # a loaded machine needs some of it
CACHE = ["--kv-cache-memory", "64MiB", "--graceful-termination-timeout", GRACE_S]
ASK = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 300, "ignore_eos": True}}
TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
SUBREAPER = 36  # prctl(): a launcher without a parent becomes our child, so that its exit code is known


class Adopted:
    """As Popen, for a process that another one started."""

    returncode = None

    def __init__(self, pid, parent):
        self.pid, self.parent = pid, parent

    def poll(self):
        with contextlib.suppress(ChildProcessError):  # its parent lives
            if self.returncode is None and (status := os.waitpid(self.pid, os.WNOHANG))[0]:
                self.returncode = os.waitstatus_to_exitcode(status[1])
        return self.returncode

    def wait(self, timeout):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("launcher", timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, sig):
        os.kill(self.pid, sig)

    kill = lambda self: self.send_signal(signal.SIGKILL)


class OfShell(Service):
    """Started by a process that can be killed."""

    def begin(self, log, env):
        sh = subprocess.Popen(["sh", "-c", '"$@" >&2 & echo $!; exec sleep 1000', "sh", *self.argv], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, env=env)
        return Adopted(int(sh.stdout.readline()), sh)

    def lose_parent(self):
        self.p.parent.kill()
        self.p.parent.wait()


class OnTerminal(Service):
    """In the foreground of a terminal of its own, which its output goes to."""

    def begin(self, log, env):
        self.terminal, slave = os.openpty()
        modes = termios.tcgetattr(slave)
        modes[3] &= ~termios.ECHO  # a key that is pressed before the program begins is none of its output
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        self.over = False
        self.copier = threading.Thread(target=self.copy, daemon=True)
        take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        p = subprocess.Popen(self.argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True, preexec_fn=take)
        os.close(slave)
        self.copier.start()
        return p

    def copy(self):
        with open(self.log_path, "ab") as log, contextlib.suppress(OSError):
            while not self.over:
                if select.select([self.terminal], [], [], 0.05)[0]:
                    log.write(os.read(self.terminal, 65536))
                    log.flush()

    def hang_up(self):
        self.over = True
        self.copier.join()
        os.close(self.terminal)

    def press(self, key):
        os.write(self.terminal, key)


def send(*signals):
    def way(s, rng):
        for at, sig in enumerate(signals):
            time.sleep(rng.choice([0, 0.01, 0.3, 2]) * rng.random() if at else 0)
            with contextlib.suppress(ProcessLookupError):
                s.p.send_signal(sig)

    return way


def lose_parent(s, rng):
    """A service goes on without who started it."""
    s.lose_parent()
    time.sleep(rng.random())
    assert s.p.poll() is None, s.log
    s.p.send_signal(TERM)


WAYS = {  # how it is started, how it is stopped, whether streams may be cut
    "SIGTERM": (Service, send(TERM), False),
    "SIGINT": (Service, send(INT), False),
    "SIGHUP": (Service, send(HUP), False),
    "SIGTERM twice": (Service, send(TERM, TERM), True),
    "SIGINT, SIGTERM": (Service, send(INT, TERM), True),
    "SIGTERM, SIGINT, SIGTERM": (Service, send(TERM, INT, TERM), True),
    "the parent dies": (OfShell, lose_parent, False),
    "Control-C": (OnTerminal, lambda s, rng: s.press(b"\x03"), False),
    "the terminal hangs up": (OnTerminal, lambda s, rng: s.hang_up(), False),
}


class Client(threading.Thread):
    """One stream; how it ended: "whole", "error", "closed", or None if it was refused."""

    def __init__(self, s):
        super().__init__(daemon=True)
        self.s, self.end = s, None
        self.start()

    def run(self):
        with contextlib.suppress(requests.RequestException, AssertionError):  # not served
            for event in self.s.events("/generate_stream", ASK):
                self.end = "whole" if event.get("generated_text") is not None else "error" if "error" in event else "closed"


@pytest.fixture(scope="module", autouse=True)
def subreaper():
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    yield
    ctypes.CDLL(None).prctl(SUBREAPER, 0, 0, 0, 0)


def test_a_stop_while_a_port_is_awaited_leaves_nothing():
    """Another launch may be about to give it back, which is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        s = Service(DEMO, port=other.getsockname()[1], ready=False)
        wait_for(lambda: any(p.suffix == ".lock" for p in s.folder.iterdir()))
        time.sleep(0.2)
        assert s.stop(TERM) == 1 and "Address already in use" in s.log
        assert not left(s, [])


@pytest.mark.parametrize("number", range(STOPS))
def test_a_stop_at_any_moment_is_in_order(number):
    rng = random.Random(seed_for(7100 + number))
    name = list(WAYS)[number % len(WAYS)]
    kind, way, cuts = WAYS[name]
    s = kind(DEMO, rng.choice([1, 2]), args=CACHE, ready=False)
    clients, pids = [], {s.p.pid}
    try:
        if rng.random() < 0.5:
            time.sleep(rng.choice([0.02, 0.2, 0.6]) * rng.random())
        else:
            s.wait_ready()
            clients = [Client(s) for _ in range(rng.choice([0, 3]))]
            time.sleep(0.3 * rng.random())
        pids.update(s.children())
        way(s, rng)
        pids.update(s.children())
        begun = time.monotonic()
        code = s.p.wait((GRACE_S + 10) * SLOW)
        took = time.monotonic() - begun
        for c in clients:
            c.join(10)
        ends = [c.end for c in clients]
        where = f"{name}: exit code {code} after {took:.1f} s, streams {ends}\n{s.log[-3000:]}"
        if code < 0:  # before its first line: the program has not begun
            assert -code in (TERM, INT, HUP) and not s.log, where
        else:
            assert code == 0 or (cuts and code == 1 and {"error", "closed"} & set(ends)), where
            assert cuts or not {"error", "closed"} & set(ends), where
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not left(s, pids), 5)
        assert not (there := left(s, pids)), f"left: {there}\n{where}"
    finally:
        s.stop(signal.SIGKILL)
