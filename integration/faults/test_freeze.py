"""Processes that are stopped under live requests, and processes that end while the service shuts down: who goes on, who is told what,
what the exit code says, what is left."""

import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import time

import pytest
import requests
from serving import BIN, DEMO, SLOW, Process, Service, free_port, wait_for

LONG = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 1500, "ignore_eos": True, "details": True}}
CACHE = ["--kv-cache-memory", "5e7", "--threads", 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("models")
    (top / "one").symlink_to(DEMO)
    return top


def other(model="one", **kw):
    return "/v1/completions", {"model": model, "prompt": "The cat", "stream": True, "ignore_eos": True, "max_tokens": 1500, "temperature": 0, **kw}


def texts(events):
    return [e["choices"][0]["text"] if isinstance(e, dict) else e for e in events]


def router(s):
    return next(p for p in s.children() if os.readlink(f"/proc/{p}/exe").endswith("/router"))


def gone(pids):
    return not any(os.path.exists(f"/proc/{p}") for p in pids)


def left(s):
    """Sockets, locks and shared memory of a service that is over."""
    memory = [p.name for p in pathlib.Path("/dev/shm").glob(f"model-server-{s.p.pid}-*")]
    return [p.name for p in s.folder.iterdir() if p.name.startswith("shard-")] + memory


@pytest.mark.parametrize("num_shard,which", [(1, 0), (2, 1)])
def test_a_frozen_rank_costs_no_stream(num_shard, which):
    with Service(DEMO, num_shard, args=CACHE) as s:
        want = list(s.events("/generate_stream", LONG))
        events = s.events("/generate_stream", LONG)
        first = [next(events)]
        frozen = s.shards()[which]
        os.kill(frozen, signal.SIGSTOP)
        assert first + list(events) == want
        assert gone([frozen]) and s.metric("tgi_shard_returns") == 1
        assert f"rank {which} was frozen (no heartbeat) and was killed" in s.log
    assert not left(s)


def test_a_pause_of_all_processes_is_no_silence_of_the_shards():
    """As of a paused container, for longer than a shard may listen without an answer, while the router seeks the shards again."""
    with Service(DEMO, args=CACHE) as s:
        want = list(s.events("/generate_stream", LONG))
        events = s.events("/generate_stream", LONG)
        first, old = [next(events)], s.shards()
        os.kill(s.p.pid, signal.SIGSTOP)  # it would find the shard frozen before the router is
        os.kill(old[0], signal.SIGKILL)
        listens = Process(["python3", "-c", SILENT, s.folder / "shard-0"])
        listens.wait_log("listens")
        time.sleep(0.5 * SLOW)
        os.kill(router(s), signal.SIGSTOP)
        time.sleep(16)
        os.kill(router(s), signal.SIGCONT)
        time.sleep(1)
        listens.stop(signal.SIGKILL)
        os.kill(s.p.pid, signal.SIGCONT)
        assert first + list(events) == want
        assert s.metric("tgi_shard_returns") == 1


# a socket that is connected to, and says nothing
SILENT = """
import os, socket, sys, time
if os.path.exists(sys.argv[1]): os.unlink(sys.argv[1])
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1]); s.listen(100); print("listens", flush=True)
while True: time.sleep(1)
"""


class StoppedThread:
    """One thread of a process stands still while it computes, and the others go on, as in a deadlock: it is traced by who makes this."""

    CONT, SEIZE, INTERRUPT, WALL = 7, 0x4206, 0x4207, 0x40000000

    def __init__(self, tid):
        self.tid, self.libc = tid, ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.ask(self.SEIZE)
        end = time.time() + 10 * SLOW
        while time.time() < end:
            self.ask(self.INTERRUPT)
            os.waitpid(tid, self.WALL)
            if pathlib.Path(f"/proc/{tid}/syscall").read_text().startswith("-1"):
                return  # not in a call, where it may wait for work
            self.ask(self.CONT)
            time.sleep(0.003)
        raise TimeoutError("the thread computes nothing")

    def ask(self, request):
        if self.libc.ptrace(request, self.tid, None, None) != 0:
            pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")

    def reap(self):
        """Of a process that ends: until its tracer waits for it, its parent gets no signal."""
        with contextlib.suppress(ChildProcessError):
            while not os.WIFEXITED(status := os.waitpid(self.tid, self.WALL)[1]) and not os.WIFSIGNALED(status):
                pass


def busiest_thread(pid):
    """Since the process began: a fast machine computes a whole answer in less time than a difference would need."""
    tasks = {int(t): pathlib.Path(f"/proc/{pid}/task/{t}/stat").read_text() for t in os.listdir(f"/proc/{pid}/task")}
    return max(tasks, key=lambda t: sum(map(int, tasks[t].rpartition(")")[2].split()[11:13])))


def test_an_engine_that_is_stuck_costs_no_stream():
    """Its process lives and its heart beats: health says so soon, it ends by itself, and is started again."""
    with Service(DEMO, args=[*CACHE, "--stall-timeout", "6"]) as s:
        want = list(s.events("/generate_stream", LONG))
        (shard,) = s.shards()
        engine = busiest_thread(shard)
        events = s.events("/generate_stream", LONG)
        first = [next(events)]
        thread = StoppedThread(engine)
        for path, code in (("/livez", 200), ("/metrics", 200), ("/info", 200), ("/v1/models", 200), ("/debug/audit", 200)):
            assert requests.get(s.url + path, timeout=10 * SLOW).status_code == code, "no such route waits for the engine"
        wait_for(lambda: requests.get(s.url + "/health", timeout=10 * SLOW).status_code == 503, 5)
        assert "stuck:" not in s.log, "before its process ends"
        s.wait_log("stuck: this process cannot serve any more")
        thread.reap()
        assert first + list(events) == want
        assert gone([shard]) and s.metric("tgi_shard_returns") == 1
    assert not left(s)


def test_a_frozen_model_on_demand_costs_no_stream(folder):
    with Service(DEMO, args=[*CACHE, "--models-folder", folder]) as s:
        path, body = other()
        want = texts(s.events(path, body))
        here = texts(s.events(path, {**body, "model": "tgi"}))
        first, frozen = s.shards()
        asked = s.events(path, {**body, "model": "tgi"})
        events = s.events(path, body)
        got = texts([next(events)])
        os.kill(frozen, signal.SIGSTOP)
        assert got + texts(events) == want and texts(asked) == here
        assert gone([frozen]) and first in s.shards() and len(s.shards()) == 2
        assert texts(s.events(path, body)) == want
    assert not left(s)


def test_a_router_that_is_stopped_is_continued():
    """The service would end with it, and every stream. While it starts, too, and again."""
    with Service(DEMO, args=CACHE, ready=False) as s:
        wait_for(lambda: any(os.readlink(f"/proc/{p}/exe").endswith("/router") for p in s.children()))
        os.kill(router(s), signal.SIGSTOP)
        s.wait_ready()
        want = list(s.events("/generate_stream", LONG))
        for _ in range(2):
            events = s.events("/generate_stream", LONG)
            got = [next(events)]
            os.kill(router(s), signal.SIGSTOP)
            assert got + list(events) == want
        assert s.log.count("continuing a stopped process") == 3 and s.metric("tgi_shard_returns") == 0


def test_a_router_that_freezes_ends_the_service():
    """Not by a signal, but by a control group, as of a paused container: version 1, as root."""
    group = pathlib.Path(f"/sys/fs/cgroup/freezer/it-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group that freezes can be made here")
    s = Service(DEMO, args=[*CACHE, "--heartbeat-timeout", 1])
    try:
        pids = s.children()
        (group / "cgroup.procs").write_text(str(router(s)))
        (group / "freezer.state").write_text("FROZEN")
        s.wait_log("killing a frozen process", 60)
        (group / "freezer.state").write_text("THAWED")  # a frozen process dies when it thaws
        assert s.p.wait(30 * SLOW) == 137
        assert "Webserver failed: router was frozen" in s.log.strip().splitlines()[-1]
        assert gone(pids) and not left(s)
    finally:
        s.stop()
        group.rmdir()


def test_a_load_that_freezes_is_tried_once_more():
    with Service(DEMO, num_shard=2, args=CACHE, ready=False) as s:
        wait_for(lambda: len(s.shards()) == 2)
        os.kill(s.shards()[1], signal.SIGSTOP)
        s.wait_ready()
        assert "rank 1 was frozen" in s.log and s.log.count("Restarting the shards") == 1
        assert s.post("/generate", LONG).status_code == 200
    assert not left(s)


def test_a_shard_that_freezes_while_it_loads_is_named():
    s = Service(DEMO, num_shard=2, args=[*CACHE, "--max-shard-restarts", 0], ready=False)
    try:
        wait_for(lambda: len(s.shards()) == 2)
        os.kill(s.shards()[1], signal.SIGSTOP)
        assert s.p.wait(30 * SLOW) == 137
        assert "was frozen" in s.log.strip().splitlines()[-1]
        assert not left(s)
    finally:
        s.stop()


def test_sigterm_ends_what_is_frozen_within_the_grace_time():
    """Also where frozen processes are not looked for."""
    s = Service(DEMO, num_shard=2, args=[*CACHE, "--graceful-termination-timeout", 4, "--heartbeat-timeout", 0])
    try:
        events = s.events("/generate_stream", LONG)
        next(events)
        pids = s.children()
        os.kill(s.shards()[1], signal.SIGSTOP)
        begin = time.monotonic()
        s.p.send_signal(signal.SIGTERM)
        last = list(events)[-1]
        assert last["error_type"] == "generation" and "shutting down" in last["error"]
        assert s.p.wait(30 * SLOW) == 1
        assert time.monotonic() - begin < 4 + 2 * SLOW  # with what a busy machine needs for the end of a process
        assert gone(pids) and not left(s)
    finally:
        s.stop()


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_a_shard_that_is_lost_while_draining_cuts_its_own_streams_only(folder, sig):
    s = Service(DEMO, args=[*CACHE, "--models-folder", folder])
    try:
        path, body = other()
        want = texts(s.events(path, body))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            mine, theirs = s.events("/generate_stream", LONG), s.events(path, body)
            got = texts([next(theirs)])
            next(mine)
            s.p.send_signal(signal.SIGTERM)
            s.wait_log("signal received, starting graceful shutdown")
            s.wait_log("Terminating webserver")
            os.kill(s.shards()[0], sig)
            rest = pool.submit(lambda: texts(theirs))
            last = list(mine)[-1]
            whole = "generated_text" in last and last["generated_text"] is not None
            assert whole or last["error_type"] == "generation", last
            assert got + rest.result() == want
        assert s.p.wait(60 * SLOW) == (0 if whole else 1)
        assert not left(s)
    finally:
        s.stop()


def test_a_router_that_is_killed_while_draining_is_no_success():
    s = Service(DEMO, args=CACHE)
    try:
        events = s.events("/generate_stream", LONG)
        next(events)
        os.kill(s.shards()[0], signal.SIGSTOP)  # the router cannot be done yet
        s.p.send_signal(signal.SIGTERM)
        s.wait_log("Terminating webserver")
        os.kill(router(s), signal.SIGKILL)
        assert s.p.wait(30 * SLOW) == 137
        assert "Webserver failed while it shut down: router was killed by signal 9" in s.log.strip().splitlines()[-1]
        events.close()
    finally:
        s.stop()


def test_a_second_signal_ends_a_routers_streams_with_an_error(tmp_path):
    shard = Process([BIN / "model-server", "serve", DEMO, "--uds-path", tmp_path / "s", *map(str, CACHE)])
    shard.wait_log("shard ready")
    s = Service.__new__(Service)
    s.port = free_port()
    s.url = f"http://127.0.0.1:{s.port}"
    r = Process([BIN / "router", "--tokenizer-name", DEMO, "--master-shard-uds-path", tmp_path / "s-0", "--port", s.port])
    try:
        r.wait_log("Connected")
        events = s.events("/generate_stream", LONG)
        next(events)
        os.kill(shard.p.pid, signal.SIGSTOP)  # however fast it is, it does not end before the signals
        r.p.send_signal(signal.SIGTERM)
        r.wait_log("starting graceful shutdown")
        time.sleep(0.6)  # sooner it would be an echo of the first
        again = time.monotonic()
        r.p.send_signal(signal.SIGTERM)
        last = list(events)[-1]
        assert last["error_type"] == "generation" and "shutting down" in last["error"], json.dumps(last)
        assert r.p.wait(30 * SLOW) == 1 and time.monotonic() - again < SLOW
    finally:
        r.stop()
        os.kill(shard.p.pid, signal.SIGCONT)
        shard.stop()
