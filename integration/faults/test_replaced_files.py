"""Files of a model that are replaced or shortened at a bad moment: no answer mixes the old ones with the new ones."""

import contextlib
import os
import pathlib
import shutil
import signal
import time

import pytest
from deep import deep, other_weights
from serving import DEMO, SLOW, Service, wait_for
from test_adapters import ask, make_adapter


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Large enough that its load can be stopped half way."""
    return deep(tmp_path_factory.mktemp("replaced") / "deep", 40)


def rank_of(pid):
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(w[5:]) for w in words if w.startswith(b"RANK="))


def stop_while_it_reads(s, rank):
    """Stops the shard of `rank` as soon as it has mapped the weights; its pid."""
    end = time.monotonic() + 30 * SLOW
    while time.monotonic() < end:
        for pid in s.shards():
            with contextlib.suppress(OSError, StopIteration):
                if rank_of(pid) == rank and "model.safetensors" in pathlib.Path(f"/proc/{pid}/maps").read_text():
                    os.kill(pid, signal.SIGSTOP)
                    return pid
    raise AssertionError("never seen to read\n" + s.log)


def test_weights_that_are_replaced_while_a_rank_reads_them_are_not_served(model, tmp_path):
    """One rank has the old file, the other one may have either: both find the new one when they identify what they read."""
    served = tmp_path / "served"
    shutil.copytree(model, served)
    s = Service(served, 2, ready=False, args=["--heartbeat-timeout", 60])
    try:
        pid = stop_while_it_reads(s, 1)
        served.rename(tmp_path / "old")
        other_weights(model, served)
        os.kill(pid, signal.SIGCONT)
        assert s.p.wait(60 * SLOW) == 1
        assert "its files were changed while they were read" in s.log.splitlines()[-1], s.log
    finally:
        s.stop()


def overwrite(path):
    """In place, as `cp` and `rsync --inplace` do it: other numbers of the same size."""
    with open(path, "r+b") as f:
        whole = f.read()
        f.seek(0)
        f.write(bytes(len(whole) // 2))


def shorten(path):
    os.truncate(path, 4096)


@pytest.mark.parametrize("spoil", [overwrite, shorten])
def test_packed_weights_that_are_spoilt_while_served_cost_no_stream(tmp_path, spoil):
    """They are mapped. The shard ends before it answers with what it computed from them, and the next one packs the weights anew."""
    args = ["--packed-cache", tmp_path]
    ask = "/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 120, "ignore_eos": True}}
    with Service(DEMO, 2, args=args) as s:
        want = list(s.events(*ask))
        wait_for(lambda: s.log.count("packed weights written") == 2, 30)
    with Service(DEMO, 2, args=args) as s:
        assert s.log.count("packed weights from cache") == 2
        events = s.events(*ask)
        got = [next(events)]
        files = sorted(tmp_path.glob("*.packed"))
        for path in files:
            spoil(path)
        got += events
        assert got == want, s.log
        assert "packed weights were overwritten while in use: " in s.log or "a mapped file was shortened" in s.log
        assert any(str(path) in line for path in files for line in s.log.splitlines() if "Shard failed" in line), s.log
        assert list(s.events(*ask)) == want


@pytest.mark.parametrize("kind", ["first", "replica", "on demand"])
def test_a_folder_that_is_away_when_shards_restart_costs_no_stream(tmp_path, kind):
    """A network file system that is mounted again, a volume that is replaced: the load fails, and the next ones wait for 2, 4, 8 ... s."""
    served = tmp_path / "models" / "one"
    shutil.copytree(DEMO, served)
    args = {"first": [], "replica": ["--replicas", 2], "on demand": ["--models-folder", served.parent]}[kind]
    ask = "/v1/completions", {"model": "one", "prompt": "Once upon a time", "stream": True, "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    with Service(DEMO if kind == "on demand" else served, args=args) as s:
        if kind == "replica":
            wait_for(lambda: s.log.count("launcher: Replica ready") == 2)
        first = s.shards()
        want = [e["choices"][0]["text"] for e in s.events(*ask) if e != "[DONE]"]
        events = s.events(*ask)
        got = [next(events)]
        served.rename(tmp_path / "away")
        os.kill(([p for p in s.shards() if p not in first] or first)[0], signal.SIGKILL)
        s.wait_log("in_ms=2000")
        (tmp_path / "away").rename(served)
        got += events
        assert [e["choices"][0]["text"] for e in got if e != "[DONE]"] == want, s.log
        if kind == "replica":
            wait_for(lambda: s.log.count("launcher: Replica ready") == 3)


@pytest.mark.parametrize("spoil", [overwrite, shorten])
def test_an_adapter_that_is_spoilt_while_served_is_served_no_longer(tmp_path, spoil):
    """Its file is mapped until its first request. That request fails; the base model and other adapters are served on."""
    flag = ",".join(f"{name}={make_adapter(tmp_path / name, seed)}" for seed, name in enumerate(("red", "blue")))
    stream = "/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 300, "ignore_eos": True}}
    red = {"inputs": "The cat", "parameters": {"max_new_tokens": 8, "adapter_id": "red"}}
    file = tmp_path / "red" / "adapter_model.safetensors"
    with Service(DEMO, 2, args=["--lora-adapters", flag]) as s:
        want = list(s.events(*stream)), ask(s, "The cat", "blue")
        events = s.events(*stream)
        got = [next(events)]
        spoil(file)
        lost = s.post("/generate", red)
        assert lost.status_code == 424 and "there is no adapter `red`" in lost.json()["error"], lost.text
        got += events
        assert (got, ask(s, "The cat", "blue")) == want
        assert s.post("/generate", red).status_code == 422
        assert f"adapter `red`: {file} was overwritten while in use" in s.log, s.log
