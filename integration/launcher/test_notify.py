"""The launcher under a service manager: its messages to NOTIFY_SOCKET (sd_notify), which no child can send."""

import os
import pathlib
import signal
import socket
import time

import pytest
import requests
from serving import DEMO, SLOW, Service, wait_for


class Manager:
    """A socket that keeps what was sent, with the time of each message."""

    def __init__(self, path):
        self.env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(2_000_000 * SLOW)}
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.s.bind(str(path))
        self.s.setblocking(False)
        self.said = []

    def read(self):
        while True:
            try:
                self.said.append((time.monotonic(), self.s.recv(4096).decode()))
            except BlockingIOError:
                return self.said

    def heard(self, line):
        return any(line in text.split("\n") for _, text in self.read())


@pytest.fixture
def manager(tmp_path):
    return Manager(tmp_path / "notify")


def test_ready_is_sent_when_requests_are_served(manager):
    with Service(DEMO, env=manager.env, ready=False) as s:
        wait_for(lambda: manager.heard("READY=1") or not s.alive(), 60)
        assert requests.get(s.url + "/readyz", timeout=5).status_code == 200
        assert manager.heard("STATUS=loading") and manager.heard("STATUS=serving")
        for child in pathlib.Path(f"/proc/{s.p.pid}/task/{s.p.pid}/children").read_text().split():
            env = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            assert not [e for e in env if e.startswith((b"NOTIFY_", b"WATCHDOG_"))], "a child could speak for the service"
        assert s.stop() == 0
    assert manager.heard("STOPPING=1")
    assert [text.split("\n")[0] for _, text in manager.said if "=1" in text and "WATCHDOG" not in text] == ["READY=1", "STOPPING=1"]


def test_the_watchdog_hears_of_a_launcher_that_hangs(manager):
    def beats():
        return sum(text == "WATCHDOG=1" for _, text in manager.read())

    with Service(DEMO, env=manager.env) as s:
        have = beats()
        wait_for(lambda: beats() >= have + 3)
        times = [t for t, text in manager.said if text == "WATCHDOG=1"]
        assert max(b - a for a, b in zip(times, times[1:])) < 2 * SLOW
        os.kill(s.p.pid, signal.SIGSTOP)
        try:
            have = beats()
            time.sleep(1.5 * SLOW)
            assert beats() == have, "a frozen launcher has no beat"
        finally:
            os.kill(s.p.pid, signal.SIGCONT)
        wait_for(lambda: beats() > have)


def test_a_reload_is_not_a_stop(manager):
    with Service(DEMO, env=manager.env) as s:
        os.kill(s.p.pid, signal.SIGHUP)
        s.wait_log("no certificate to reload")
        assert requests.get(s.url + "/readyz", timeout=5).status_code == 200 and not manager.heard("STOPPING=1")
    with Service(DEMO) as s:  # on a terminal that is gone
        os.kill(s.p.pid, signal.SIGHUP)
        assert s.p.wait(30 * SLOW) == 0
