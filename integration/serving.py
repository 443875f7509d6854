"""Starts the real programs for a test and stops them afterwards.

    with Service(model, num_shard=2) as s:
        s.post("/generate", {"inputs": "Once"})

Every process gets a private folder for its sockets, a free port and a log that is shown when something fails."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import requests

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Tests and tools import helpers by their name alone, from whichever folder these are in.
sys.path += sorted({str(p.parent) for p in ROOT.glob("integration/*/test_*.py")})
BIN = pathlib.Path(os.environ.get("BIN_DIR", ROOT / "build/bin")).absolute()
# `make test` starts the one program of `make slim`, which loads fewer libraries. This is the folder of those that are linked apart.
APART = BIN.parent / "bin" if BIN.name == "slim" else BIN
DATA = pathlib.Path(os.environ.get("TEST_DATA", ROOT / "../shared/data"))
DEMO = ROOT / "models/demo"
FEW_BITS = ["--quantize", "w8a8", "--kv-cache-dtype", "int4"]  # products and attention in integers
PRELOAD = os.environ.get("PRELOAD")  # a library in every process of the programs: make jitter-service
SAN_REPORT = "ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", ": runtime error: "
SLOW = 6 if os.environ.get("SAN") or PRELOAD else 1  # sanitizers and random delays cost time, not correctness


def data(name):
    """A file or folder of the reference data; the test is skipped, aloud, where it is not there."""
    import pytest

    path = DATA / name
    if not path.exists():
        pytest.skip(f"reference data not found: {name}")
    return path


def seed_for(fixed):
    """`fixed`, so that a run is like the run before; with SEED in the environment (`make soak`) one that follows from both."""
    drawn = os.environ.get("SEED")
    return fixed if drawn is None else (int(drawn, 0) + fixed) * 0x9E3779B97F4A7C15 % 2**64 >> 32


PORTS_OF_A_PROCESS = 200
_ports = []


def claim_ports():
    """The first of 200 ports that no other process of the tests uses as long as this one lives, and the socket that says so.

    They are below those that the kernel gives to a socket that asks for any. The claim is a name in the abstract namespace: it belongs to
    the network namespace, as ports do, and ends with the process."""
    least, most = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    begin, end = (10000, least) if least > 20000 else (most + 1, 65536)
    for first in range(begin, end - PORTS_OF_A_PROCESS + 1, PORTS_OF_A_PROCESS):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ports-of-tests-{first}")
            return first, claim
        except OSError:
            claim.close()
    raise AssertionError("every port is claimed by another process of the tests")


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("", port))
            return True
        except OSError:
            return False


def free_ports(n):
    """The first of n consecutive ports that nobody has. Others get them only when this process has asked for all of its own in between."""
    if not _ports:
        _ports.extend([*claim_ports(), 0])
    for _ in range(PORTS_OF_A_PROCESS):
        at = _ports[2] if _ports[2] + n <= PORTS_OF_A_PROCESS else 0
        _ports[2] = at + n
        if all(is_free(_ports[0] + i) for i in range(at, at + n)):
            return _ports[0] + at
    raise AssertionError("every port of this process is in use")


def free_port():
    return free_ports(1)


def wait_for(what, seconds=10):
    """Until what() is true; the test fails when it is not in time."""
    end = time.monotonic() + seconds * SLOW
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def slowness():
    """How many times longer than its processor time a computation takes here and now: 1 on a machine of its own."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.05:
        pass
    return (time.monotonic() - begun) / (time.thread_time() - used)


def strict(obj):
    """An SDK's answer, validated again without the leniency that SDKs read with."""
    return type(obj).model_validate(obj.model_dump(), strict=True)


_folders, _processes, _numbers = [], [], itertools.count()


def scratch():
    """A new folder with a short path, which sockets need. A run without failures removes it at its end, one with failures keeps its logs."""
    _folders.append(pathlib.Path(tempfile.mkdtemp(prefix="it-", dir="/tmp")))
    return _folders[-1]


def clean_up(keep_logs):
    """At the end of a run: no process of a test goes on, no folder stays."""
    for p in _processes:
        if p.alive():
            p.stop(signal.SIGKILL)
    for folder in [] if keep_logs else _folders:
        shutil.rmtree(folder, ignore_errors=True)


class Process:
    """One program in its own session, its output in a file."""

    def __init__(self, argv, env=None, folder=None):
        self.folder = pathlib.Path(folder or scratch())
        self.log_path = self.folder / f"{pathlib.Path(argv[0]).name}-{next(_numbers)}.log"
        self.argv = [str(a) for a in argv]
        given = {**os.environ, **({"LD_PRELOAD": PRELOAD} if PRELOAD else {}), **(env or {})}
        with open(self.log_path, "wb") as log:
            self.p = self.begin(log, given)
        _processes.append(self)

    def begin(self, log, env):
        return subprocess.Popen(self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def alive(self):
        return self.p.poll() is None

    def children(self):
        """pids of all processes below the launcher."""
        out, todo = [], [self.p.pid]
        while todo:
            pid = todo.pop()
            with contextlib.suppress(OSError):  # the process may end meanwhile, or one of its threads
                for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                    with contextlib.suppress(OSError):
                        kids = [int(k) for k in task.read_text().split()]
                        out += kids
                        todo += kids
        return out

    def shards(self):
        """pids of those that live; they may be gone when this returns."""
        out = []
        for pid in self.children():
            with contextlib.suppress(OSError):
                if pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name == "model-server":
                    out.append(pid)
        return sorted(out)

    def stop(self, sig=signal.SIGTERM, timeout=20):
        """Signal and wait; the exit code (negative: killed by that signal)."""
        if self.alive():
            self.p.send_signal(sig)
        try:
            code = self.p.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            raise AssertionError(f"{self.argv[0]} did not stop within {timeout} s\n{self.log[-4000:]}")
        self.check_sanitizers()
        return code

    def check_sanitizers(self):
        """No process reported anything: a shard that a report ends is started again, so that answers do not show it."""
        for report in SAN_REPORT if os.environ.get("SAN") else ():
            at = self.log.find(report)
            assert at < 0, f"{self.argv[0]}:\n{self.log[max(at - 200, 0) : at + 4000]}"

    def wait_log(self, text, timeout=30):
        end = time.monotonic() + timeout * SLOW
        while text not in self.log:
            assert self.alive() and time.monotonic() < end, f"no {text!r} in the log:\n{self.log[-4000:]}"
            time.sleep(0.02)


class Service(Process):
    """launcher + shards + router, ready to answer."""

    def __init__(self, model, num_shard=1, args=(), env=None, ready=True, port=None):
        folder = scratch()
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        argv = [BIN / "launcher", "--model-id", model, "--num-shard", num_shard, "--port", self.port]
        argv += ["--shard-uds-path", f"{folder}/shard", "--hostname", "127.0.0.1", *args]
        super().__init__(argv, env, folder)
        if ready:
            self.wait_ready()

    def wait_ready(self, timeout=60):
        end = time.monotonic() + timeout * SLOW
        while True:
            assert self.alive(), f"exited with {self.p.returncode}:\n{self.log[-4000:]}"
            try:
                if requests.get(self.url + "/health", timeout=5).status_code == 200:
                    return
            except (requests.ConnectionError, requests.Timeout):
                pass
            assert time.monotonic() < end, f"not ready after {timeout} s:\n{self.log[-4000:]}"
            time.sleep(0.05)

    def post(self, path, body, **kw):
        return requests.post(self.url + path, json=body, timeout=120 * SLOW, **kw)

    def events(self, path, body):
        """The JSON of every `data:` line of a stream, in order ([DONE] as the string)."""
        with self.post(path, body, stream=True) as r:
            assert r.status_code == 200, r.text
            for line in r.iter_lines():
                if line.startswith(b"data:"):
                    text = line[5:].strip()
                    yield text.decode() if text == b"[DONE]" else json.loads(text)

    def metric(self, name, **labels):
        """Value of one Prometheus series; None when it is not there."""
        want = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        for line in requests.get(self.url + "/metrics", timeout=10).text.splitlines():
            if line.startswith(want + " "):
                return float(line.split()[-1])
        return None

    def audit(self):
        """/debug/audit; what sequences hold is what is in use, whatever goes on."""
        a = requests.get(self.url + "/debug/audit", timeout=20 * SLOW).json()
        assert a["scheduler"] is None or a["scheduler"]["balanced"], a
        return a

    def kill_shard(self):
        """SIGKILL for the first shard; returns when the launcher has started another."""
        victim = self.shards()[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: self.shards() and victim not in self.shards(), 30)

    @contextlib.contextmanager
    def held(self):
        """With shards that stand still: every request waits, however fast the machine is. For moments, not for minutes.

        The launcher stands still as well: it kills shards that do."""
        pids = [self.p.pid, *self.shards()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def __enter__(self):
        return self

    def check_accounting(self):
        """Whatever the test did: each block in use is held by a sequence. Of services that answer, and to us."""
        with contextlib.suppress(requests.RequestException):
            r = requests.get(self.url + "/debug/audit", timeout=5 * SLOW)
            if r.status_code == 200:
                of = [r.json()["scheduler"], *(m["scheduler"] for m in r.json()["models"].values())]
                assert all(q is None or q["balanced"] for q in of), r.text

    def __exit__(self, kind, *_):
        if kind is None and self.alive():
            self.check_accounting()
        code = self.stop(timeout=30)
        if kind is None:
            assert code == 0, f"launcher exited with {code}:\n{self.log[-4000:]}"


VISION_TOKENS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")


def give_vision(folder):
    """The demo's text side with the placeholders and the preprocessing of Qwen2.5-VL: a token for 28 x 28 pixels, at least 4."""
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    ids = {t: 2048 + i for i, t in enumerate(VISION_TOKENS)}
    for t, i in ids.items():
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokenizer["added_tokens"].append({"id": i, "content": t, **flags, "special": True})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((DEMO / "config.json").read_text())
    config |= {"model_type": "qwen2_5_vl", "vocab_size": 2051, "vision_start_token_id": 2048, "image_token_id": 2049}
    config |= {"vision_end_token_id": 2050, "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}}
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {"min_pixels": 3136, "max_pixels": 37632, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
    kind = {"image_processor_type": "Qwen2VLImageProcessor", "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps({**sizes, **kind}))


def together(s, say, bodies, clients=None):
    """What say(s, body) returns for each of `bodies`, sent by so many clients; by one each if that is left out."""
    with concurrent.futures.ThreadPoolExecutor(clients or len(bodies)) as pool:
        return list(pool.map(lambda b: say(s, b), bodies))


def crowd(s, say, bodies):
    """What say(s, body) returns for each of `bodies`: the first runs when the last has arrived, however busy the machine is."""

    def arrived():
        return requests.get(s.url + "/debug/audit", timeout=5 * SLOW).json()["scheduler"]["known"] == len(bodies)

    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        with s.held():
            asked = [pool.submit(say, s, b) for b in bodies]
            wait_for(arrived)
        return [a.result() for a in asked]


def check_preempted_and_killed(s, say, bodies, want):
    """Each of `bodies` says what it says alone (`want`) when the cache holds a few of them, and when a shard is killed meanwhile."""
    assert crowd(s, say, bodies) == want
    assert s.metric("tgi_preemption_count", method="recompute") > 0
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        asked = [pool.submit(say, s, b) for b in bodies]
        wait_for(lambda: s.metric("tgi_batch_current_size"))
        s.kill_shard()
        assert [a.result() for a in asked] == want


class Scripted(Process):
    """A router before a shard without a model (fake_shard.py), with the demo model's tokenizer and a template of one's own.

    `template` shows messages any way it likes; what the model "says" stands in the prompt: see said_in_prompt. `takes_images`: it is a
    model of Qwen2.5-VL's kind, whose shard takes images."""

    post, events, metric = Service.post, Service.events, Service.metric

    def __init__(self, template, script=None, args=(), takes_images=False):
        folder = scratch()
        model = folder / "model"
        model.mkdir()
        if takes_images:
            give_vision(model)
        else:
            for name in ("tokenizer.json", "config.json"):
                (model / name).symlink_to(DEMO / name)
        config = json.loads((DEMO / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
        (folder / "script.json").write_text(json.dumps({"said_in_prompt": 3, "takes_input_ids": False, **(script or {})}))
        shard = [sys.executable, ROOT / "integration/shards/fake_shard.py", "--uds-path", folder / "s"]
        self.shard = Process([*shard, "--script", folder / "script.json"], folder=folder)
        self.shard.wait_log("shard ready")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        argv = [BIN / "router", "--tokenizer-name", model, "--port", self.port, "--hostname", "127.0.0.1"]
        super().__init__([*argv, "--master-shard-uds-path", folder / "s-0", *args], folder=folder)
        Service.wait_ready(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        code = self.stop()
        self.shard.stop(signal.SIGKILL)
        if kind is None:
            assert code == 0, f"router exited with {code}:\n{self.log[-4000:]}"
