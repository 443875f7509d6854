"""docker/ray under Ray Serve: replicas that are launchers, as many as their queues ask for."""

import collections
import json
import os
import pathlib
import signal
import sys
import threading

import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "integration"), str(ROOT / "docker/ray")]
from serving import BIN, DEMO, SLOW, free_port, wait_for  # noqa: E402

ray = pytest.importorskip("ray", reason="Ray Serve is not tried without ray[serve]")
pytest.importorskip("aiohttp")
from headrace_ray import build, replicas_wanted  # noqa: E402
from ray import serve  # noqa: E402


@pytest.mark.parametrize(
    "current, waiting, usage, wanted",
    [
        (2, [], [], 2),
        (1, [0], [0.0], 1),
        (1, [3], [0.5], 1),
        (1, [9], [0.5], 3),
        (3, [0, 0, 1], [0.1, 0.1, 0.1], 1),
        (2, [0, 0], [0.9, 0.9], 3),
        (2, [20, 0], [0.2, 0.2], 5),
    ],
)
def test_how_many_replicas(current, waiting, usage, wanted):
    assert replicas_wanted(current, waiting, usage, 4, 0.8) == wanted


@pytest.fixture(scope="module")
def url():
    """One replica, and two at most; a queue of two requests is enough for the second."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT / "docker/ray")}})
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    args = {"launcher": str(BIN / "launcher"), "model": str(DEMO), "options": "--max-batch-size 1 --max-concurrent-requests 64", "max_replicas": "2",
            "waiting_per_replica": "1", "upscale_seconds": "1", "downscale_seconds": "3600", "cpus": "0.1", "ready_seconds": "120"}  # fmt: skip
    serve.run(build(args), name="headrace")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


def launchers():
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = p.read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[0] == str(BIN / "launcher").encode() and b"headrace-" in b" ".join(argv) and b"health" not in argv:
            found.append(int(p.parent.name))
    return found


def stream(url, tokens):
    body = {"prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    with requests.post(url + "/v1/completions", json=body, stream=True, timeout=300) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
        return [line[6:] for line in r.iter_lines() if line.startswith(b"data: ")]


def test_requests_pass_as_they_are(url):
    assert requests.get(url + "/health", timeout=30).status_code == 200
    lines = stream(url, 20)
    assert lines[-1] == b"[DONE]" and json.loads(lines[0])["choices"]
    wrong = requests.post(url + "/v1/completions?x=1", json={"prompt": 3.5}, headers={"x-request-id": "mine"}, timeout=30)
    assert wrong.status_code == 400 and wrong.json()["error"] and wrong.headers["x-request-id"] == "mine"
    assert requests.get(url + "/nowhere", timeout=30).status_code == 404


def test_the_queue_makes_a_second_replica(url):
    assert len(launchers()) == 1
    stop, failed, served = threading.Event(), [], collections.Counter()

    def client():
        while not stop.is_set():
            try:
                served[stream(url, 200)[-1]] += 1
            except Exception as e:  # noqa: BLE001
                failed.append(e)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for t in threads:
        t.start()
    try:
        wait_for(lambda: len(launchers()) == 2, 120 * SLOW)
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not failed and set(served) == {b"[DONE]"}


def test_a_replica_that_dies_is_replaced(url):
    before = launchers()
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: before[0] not in launchers() and len(launchers()) == len(before), 120)

    def answers():
        return all(requests.post(url + "/generate", json={"inputs": "x", "parameters": {"max_new_tokens": 1}}, timeout=60).ok for _ in range(6))

    wait_for(answers, 60)
