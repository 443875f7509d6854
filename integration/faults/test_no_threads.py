"""A thread cannot be started (tests/nothread.c), by us or by gRPC: a process that serves also ends, and one that cannot serve says why."""

import subprocess
import time

import pytest
from serving import DEMO, ROOT, SLOW, Service, wait_for

ASK = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20}}
STOP_S = 25  # ten may be spent on freeing memory
pytestmark = pytest.mark.usefixtures("apart")  # tests/nothread.c looks at which library starts a thread


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("nothread") / "nothread.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", path, ROOT / "tests/nothread.c"], check=True)
    return path


def start(library, what):
    return Service(DEMO, 2, args=["--kv-cache-memory", "64MiB"], env={"LD_PRELOAD": library, "NOTHREAD": what}, ready=False)


@pytest.mark.parametrize("program", ["router", "model-server"])
def test_a_thread_that_grpc_lacks_does_not_hold_the_end(library, program):
    """One of its pool's: it counts it as running, and waits for it when the last channel is destroyed."""
    with Service(DEMO, 2, args=["--kv-cache-memory", "64MiB"]) as s:
        want = s.post("/generate", ASK).json()
    waited = 0
    for k in (3, 4, 5):
        s = start(library, f"{program}:libgpr:{k}")
        s.wait_ready()
        assert s.post("/generate", ASK).json() == want
        begun = time.monotonic()
        assert s.stop(timeout=STOP_S) == 0, s.log[-2000:]
        assert time.monotonic() - begun < STOP_S * SLOW
        waited += "Waiting for thread pool to idle" in s.log
    assert waited, "gRPC lacked no thread of its pool: other numbers are to be tried"


@pytest.mark.parametrize("what, words", [("model-server::-6", "cannot start"), ("router::-6", "cannot start"), ("model-server::2", "heartbeat's thread")])
def test_a_process_without_threads_says_so(library, what, words):
    s = start(library, what)
    wait_for(lambda: not s.alive(), 60)
    assert s.p.returncode == 1 and words in s.log.splitlines()[-1], s.log[-2000:]
