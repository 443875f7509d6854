"""The launcher with small stand-ins for its children: their command lines, log lines and cleanup."""
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from serving import free_port

BIN = Path(os.environ.get("BIN_DIR", "build/bin")).resolve()
LIMIT = 60

# Stand-ins read a behaviour from the environment and write what they were given to $SEEN/<name>.json.
COMMON = """\
#!{python}
import json, os, signal, sys, time
from pathlib import Path
def seen(name):
    (Path(os.environ["SEEN"]) / f"{{name}}.tmp").write_text(json.dumps({{"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}}))
    (Path(os.environ["SEEN"]) / f"{{name}}.tmp").rename(Path(os.environ["SEEN"]) / f"{{name}}.json")
def line(level, message, **fields):
    print(json.dumps({{"timestamp": "t", "level": level, "fields": {{"message": message, **fields}}, "target": "x"}}), flush=True)
signal.signal(signal.SIGTERM, lambda *_: (Path(os.environ["SEEN"]) / f"{{NAME}}.term").write_text(str(time.time())) and sys.exit(0))
"""
SHARD = COMMON + """\
if sys.argv[1] == "download-weights":
    NAME = "download"
    seen(NAME)
    if os.environ.get("DOWNLOAD") == "slow":
        time.sleep(8)
    if os.environ.get("DOWNLOAD") == "fail":
        line("ERROR", "no such repository")
        sys.exit(3)
    sys.exit(0)
rank = os.environ["RANK"]
NAME = f"shard-{{rank}}"
seen(NAME)
how = os.environ.get(f"SHARD_{{rank}}", "")
if how == "early":
    line("ERROR", "cannot open model.safetensors")
    sys.exit(66)
if how in ("killed", "killed once") and not (how == "killed once" and (Path(os.environ["SEEN"]) / "again").exists()):
    (Path(os.environ["SEEN"]) / "again").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
if how == "file":
    Path(sys.argv[sys.argv.index("--uds-path") + 1] + f"-{{rank}}").write_text("")
if how in ("mute", "file"):
    time.sleep(600)
import contextlib, grpc, socket
from concurrent import futures
server = grpc.server(futures.ThreadPoolExecutor(2))
def answer(request, context):
    if how == "breaks off" and not (Path(os.environ["SEEN"]) / "again").exists():
        (Path(os.environ["SEEN"]) / "again").write_text("")
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                socket.socket(fileno=os.dup(int(fd))).shutdown(socket.SHUT_RDWR)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return b""
health = grpc.unary_unary_rpc_method_handler(answer)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("generate.v3.TextGenerationService", {{"Health": health}}),))
path = sys.argv[sys.argv.index("--uds-path") + 1]
server.add_insecure_port(f"unix:{{path}}-{{rank}}")
line("INFO", "model loaded", tensors=31)
print("half a line, ", end="", flush=True)
time.sleep(0.1)
print("and the rest", flush=True)
server.start()
if how == "crash":
    while not (Path(os.environ["SEEN"]) / "go").exists():
        time.sleep(0.05)
    print("free(): invalid pointer", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    time.sleep(60)
"""
ROUTER = COMMON + """\
NAME = "router"
seen(NAME)
line("INFO", "Connected")
how = os.environ.get("ROUTER", "")
if how == "exit":
    while not (Path(os.environ["SEEN"]) / "shard-0.json").exists():
        time.sleep(0.05)
    line("ERROR", "no tokenizer in the model folder")
    sys.exit(1)
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(Path(os.environ["SEEN"]) / "router.up").write_text("")
while True:
    time.sleep(60)
"""


class Launch:
    def __init__(self, tmp: Path, *args: str, env: dict | None = None, port: int | None = None, model: str | None = None, before=()):
        self.seen = tmp / "seen"
        self.seen.mkdir(exist_ok=True)
        bins, model_dir = tmp / "bin", tmp / "model"
        bins.mkdir(exist_ok=True), model_dir.mkdir(exist_ok=True)
        (model_dir / "config.json").write_text("{}")
        for name, text in (("model-server", SHARD), ("router", ROUTER)):
            (bins / name).write_text(textwrap.dedent(text).format(python=sys.executable))
            (bins / name).chmod(stat.S_IRWXU)
        self.out = ""  # read so far
        self.port = port or free_port()
        self.uds = str(tmp / "s")
        self.p = subprocess.Popen(
            [*before, str(BIN / "launcher"), "--model-id", model or str(model_dir), "--port", str(self.port), "--shard-uds-path", self.uds, *args],
            env={**os.environ, "LAUNCHER_BIN_DIR": str(bins), "SEEN": str(self.seen), **(env or {})},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for(self, name: str) -> None:
        end = time.time() + LIMIT
        while not (self.seen / name).exists():
            assert self.p.poll() is None, self.p.stdout.read()
            assert time.time() < end, f"{name} never appeared"
            time.sleep(0.02)

    def until(self, text: str) -> None:
        """Reads the log up to the line that has this text."""
        while text not in self.out:
            line = self.p.stdout.readline()
            assert line, self.out
            self.out += line

    def up(self) -> None:
        """Until all shards are ready, and the router is there."""
        self.until("All shards ready")
        self.wait_for("router.up")

    def let_crash(self) -> None:
        """Shards that are to crash do so once all were ready."""
        self.up()
        (self.seen / "go").write_text("")

    def said(self, name: str) -> dict:
        return json.loads((self.seen / f"{name}.json").read_text())

    def pids(self) -> list[int]:
        return [json.loads(f.read_text())["pid"] for f in self.seen.glob("*.json")]

    def end(self) -> str:
        out, _ = self.p.communicate(timeout=LIMIT)
        return self.out + out


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def none_left(pids: list[int]) -> bool:
    end = time.time() + 10  # no process would end by itself
    while any(map(alive, pids)) and time.time() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.fixture
def launch(tmp_path):
    started = []

    def start(*args, **kw):
        started.append(Launch(tmp_path, *args, **kw))
        return started[-1]

    yield start
    for s in started:
        if s.p.poll() is None:
            s.p.kill()
        s.p.wait()


def test_serves_and_drains_on_sigterm(launch):
    s = launch("--num-shard", "2", "--max-input-tokens", "100", "--max-total-tokens", "200", "--quantize", "gptq", env={"API_KEY": "secret", "HOSTNAME": "pod-7"})
    s.up()
    pids = s.pids()
    shard, router = s.said("shard-1"), s.said("router")
    assert shard["argv"][1:3] == ["serve", shard["argv"][2]] and "--sharded" in shard["argv"]
    assert shard["argv"][shard["argv"].index("--max-input-tokens") + 1] == "100"
    assert shard["argv"][shard["argv"].index("--quantize") + 1] == "gptq"
    assert (shard["env"]["RANK"], shard["env"]["WORLD_SIZE"], shard["env"]["MAX_TOTAL_TOKENS"]) == ("1", "2", "200")
    assert shard["env"]["SHARD_GROUP"] == s.said("shard-0")["env"]["SHARD_GROUP"]
    assert router["argv"][router["argv"].index("--master-shard-uds-path") + 1] == s.uds + "-0"
    assert router["argv"][router["argv"].index("--hostname") + 1] == "0.0.0.0"
    assert "secret" not in " ".join(router["argv"] + shard["argv"]) and router["env"]["API_KEY"] == "secret"
    s.p.terminate()
    out = s.end()
    assert s.p.returncode == 0, out
    assert none_left(pids)
    router_end, shard_end = (float((s.seen / f"{n}.term").read_text()) for n in ("router", "shard-0"))
    assert router_end < shard_end, "the router goes first"
    assert "half a line, and the rest" in out, "a line that came in two reads is one line"
    assert "model loaded tensors=31" in out and "Shard ready rank=1" in out
    assert [w for w in ("shard-0:", "shard-1:", "router:") if w not in out] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_shard_that_cannot_start_is_named_with_its_reason(launch, rank):
    s = launch("--num-shard", "2", env={f"SHARD_{rank}": "early"})
    out = s.end()
    assert s.p.returncode == 66
    last = out.strip().splitlines()[-1]
    assert "ERROR" in last and f"Shard cannot start: rank {rank} exited with code 66: cannot open model.safetensors" in last
    assert "Restarting" not in out and none_left(s.pids())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_shard_that_dies_takes_the_service_down(launch, rank):
    s = launch("--num-shard", "2", "--max-shard-restarts", "0", env={f"SHARD_{rank}": "crash"})
    s.let_crash()
    out = s.end()
    assert s.p.returncode == 139
    assert f"Shard {rank} crashed" in out and "Restarting" not in out
    last = out.strip().splitlines()[-1]
    assert f"Shard failed: rank {rank} was killed by signal 11 (Segmentation fault): free(): invalid pointer" in last
    assert none_left(s.pids()) and (s.seen / f"shard-{1 - rank}.term").exists()


def test_shards_that_die_are_started_again_but_not_for_ever(launch):
    s = launch("--num-shard", "2", "--max-shard-restarts", "2", "--startup-timeout", "77", env={"SHARD_1": "crash"})
    s.let_crash()
    out = s.end()
    assert s.p.returncode == 139
    # the last times perhaps before a probe had an answer
    assert out.count("Shard 1 crashed") + out.count("Shard 1 failed to start") == 3 and out.count("Restarting the shards") == 2
    assert out.count("Starting shard rank=0") == 3 and out.count("Starting Webserver") == 1
    assert ": rank 1 was killed by signal 11" in out.strip().splitlines()[-1]
    router = s.said("router")["argv"]
    assert router[router.index("--shard-return-timeout") + 1] == "77"
    assert none_left(s.pids())


def test_a_shard_that_breaks_off_the_probe_is_the_cause(launch):
    s = launch("--num-shard", "2", env={"SHARD_1": "breaks off"})
    s.up()
    s.p.send_signal(signal.SIGTERM)
    out = s.end()
    assert s.p.returncode == 0 and out.count("Restarting the shards") == 1 and "health probe" not in out


def test_a_first_load_that_the_kernel_ends_is_tried_once_more(launch):
    s = launch("--num-shard", "2", env={"SHARD_1": "killed once"})
    s.up()
    s.p.send_signal(signal.SIGTERM)
    out = s.end()
    assert s.p.returncode == 0 and out.count("Restarting the shards") == 1 and out.count("Starting Webserver") == 1
    s = launch("--num-shard", "2", env={"SHARD_1": "killed"})
    out = s.end()
    assert s.p.returncode == 137 and out.count("Restarting the shards") == 1
    assert "Shard cannot start: rank 1 was killed by signal 9 (Killed; the kernel does this when memory runs out)" in out.strip().splitlines()[-1]
    assert none_left(s.pids())


def test_a_router_that_exits_takes_the_shards_down(launch):
    s = launch(env={"ROUTER": "exit"})
    out = s.end()
    assert s.p.returncode == 1
    assert "Webserver Crashed" in out
    assert "Webserver failed: router exited with code 1: no tokenizer in the model folder" in out.strip().splitlines()[-1]
    assert none_left(s.pids()) and (s.seen / "shard-0.term").exists()


def test_a_router_that_is_killed_while_it_serves_is_the_cause(launch):
    s = launch()
    s.up()
    os.kill(s.said("router")["pid"], signal.SIGKILL)
    out = s.end()
    assert s.p.returncode == 137 and "Webserver failed: router was killed by signal 9" in out.strip().splitlines()[-1], out
    assert none_left(s.pids())


def test_a_router_that_is_stopped_is_continued(launch):
    s = launch()
    s.up()
    os.kill(s.said("router")["pid"], signal.SIGSTOP)
    s.until("continuing a stopped process")
    s.p.terminate()
    out = s.end()
    assert s.p.returncode == 0 and "killing" not in out


def test_a_child_that_is_continued_in_time_goes_on(launch):
    s = launch()
    s.up()
    pid = s.said("shard-0")["pid"]
    for who in (s.p.pid, pid):  # the launcher too: however slow this machine is, it finds a child that goes on
        os.kill(who, signal.SIGSTOP)
    while "T" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]:
        time.sleep(0.01)
    for who in (pid, s.p.pid):
        os.kill(who, signal.SIGCONT)
    s.until("continued")
    s.p.terminate()
    out = s.end()
    assert s.p.returncode == 0 and "frozen" not in out


def test_readiness_is_an_answer_not_a_file(launch, tmp_path):
    s = launch("--startup-timeout", "3", env={"SHARD_0": "file"})
    out = s.end()
    assert s.p.returncode == 1 and "All shards ready" not in out
    assert "Shard cannot start" in out.strip().splitlines()[-1] and "rank 0" in out.strip().splitlines()[-1]
    assert none_left(s.pids())


def test_the_router_is_there_before_the_shards_are(launch):
    s = launch(env={"SHARD_0": "mute"})
    s.wait_for("router.up")
    s.wait_for("shard-0.json")
    router = s.said("router")["argv"]
    assert int(router[router.index("--shard-connect-timeout") + 1]) == 600, "as long as shards may take"
    assert "--startup-fd" in router and "--startup-fd" in s.said("shard-0")["argv"]
    s.p.terminate()
    assert "All shards ready" not in s.end() and s.p.returncode == 0


def test_signal_while_loading(launch):
    s = launch(env={"SHARD_0": "mute"})
    s.wait_for("shard-0.json")
    s.p.send_signal(signal.SIGINT)
    out = s.end()
    assert s.p.returncode == 0 and "All shards ready" not in out, out
    assert none_left(s.pids())


SUPERVISED = ["sh", "-c", """trap '' CHLD HUP; exec "$@" 0<&- >&-""", "sh"]


def test_what_is_ignored_or_closed_at_the_start_changes_nothing(tmp_path):
    """As under nohup and some supervisors."""
    s = Launch(tmp_path, before=SUPERVISED)
    s.wait_for("router.up")
    s.wait_for("shard-0.json")
    s.p.send_signal(signal.SIGHUP)  # the terminal is closed
    assert [f.stat().st_size for f in tmp_path.glob("*.lock")] == [0], "no log line in a file that has the number of stdout"
    time.sleep(0.3)
    assert s.p.poll() is None and not (s.seen / "router.term").exists()
    s.p.terminate()
    s.end()
    assert s.p.returncode == 0 and none_left(s.pids())


def test_grace_is_bounded(launch):
    s = launch("--graceful-termination-timeout", "1", env={"ROUTER": "stubborn", "SHARD_0": "stubborn"})
    s.up()
    start = time.time()
    s.p.send_signal(signal.SIGHUP)
    s.end()
    # they would stay for ever, and by default for 90 s; a process that had to be killed may have lost something
    assert s.p.returncode == 137 and 0.5 < time.time() - start < 15
    assert none_left(s.pids())


def test_second_signal_is_immediate(launch):
    s = launch(env={"ROUTER": "stubborn"})
    s.up()
    s.p.terminate()
    s.p.terminate()  # an echo within half a second is the same request
    time.sleep(1)
    assert s.p.poll() is None
    start = time.time()
    s.p.terminate()
    s.end()
    assert time.time() - start < 15 and none_left(s.pids())  # the grace is 90 s


def test_no_orphans_after_kill_9(launch):
    s = launch("--num-shard", "2")
    s.up()
    pids = s.pids()
    assert len(pids) == 3 and all(map(alive, pids))
    s.p.kill()
    s.p.wait()
    assert none_left(pids)


def test_restart_after_kill_9(launch):
    first = launch()
    first.up()
    first.p.kill()
    first.p.wait()
    (first.seen / "router.up").unlink()
    second = launch(port=first.port)
    second.up()
    second.p.terminate()
    assert "stale" not in second.end() and second.p.returncode == 0


def test_occupied_port(launch):
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen()
        port = s.getsockname()[1]
        started = launch(port=port)
        out = started.end()
    assert started.p.returncode == 1
    assert out.strip().splitlines()[-1].endswith(f"cannot listen on 0.0.0.0 port {port}: Address already in use")
    assert not started.pids()


def test_occupied_socket(launch, tmp_path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s-0"))
        s.listen()
        started = launch()
        out = started.end()
    assert started.p.returncode == 1 and "s-0 is in use" in out and not started.pids()


@pytest.mark.parametrize("same", ["socket", "port"])
def test_of_two_launchers_that_start_together_one_serves(launch, tmp_path, same):
    """The first has neither its port nor its sockets yet when the second starts: it downloads."""
    first = launch(model="org/model", env={"DOWNLOAD": "slow"})
    first.wait_for("download.json")
    other = tmp_path if same == "socket" else tmp_path / "other"
    other.mkdir(exist_ok=True)
    second = Launch(other, port=None if same == "socket" else first.port, env={"SEEN": str(tmp_path / "none")})
    out = second.end()
    assert second.p.returncode == 1, out
    assert {"socket": f"{second.uds} is in use: another launcher", "port": f"port {first.port}: Address already in use"}[same] in out
    first.up()
    first.p.terminate()
    assert first.p.wait(LIMIT) == 0, first.end()
    assert not list(tmp_path.glob("s*.lock")), "nothing is left"


def test_download_runs_first_and_only_for_hub_names(launch):
    s = launch("--revision", "main", model="org/model")
    s.up()
    assert s.said("download")["argv"][1:3] == ["download-weights", "org/model"]
    assert s.said("router")["argv"][s.said("router")["argv"].index("--revision") + 1] == "main"
    s.p.terminate()
    s.end()


def test_failed_download(launch):
    s = launch(model="org/missing", env={"DOWNLOAD": "fail"})
    out = s.end()
    assert s.p.returncode == 3 and not (s.seen / "shard-0.json").exists()
    assert "Download error: model-server download-weights exited with code 3: no such repository" in out.strip().splitlines()[-1]


def test_json_output(launch):
    s = launch("--json-output")
    s.up()
    s.p.terminate()
    lines = [json.loads(x) for x in s.end().strip().splitlines()]
    assert any(x["target"] == "shard-0" and x["fields"] == {"message": "model loaded", "tensors": 31} for x in lines)
    assert all({"timestamp", "level", "fields", "target"} <= set(x) for x in lines)


@pytest.mark.parametrize("args, code, words", [
    (["--bogus"], 2, "unexpected argument '--bogus' found"),
    (["--port", "many"], 2, "--port: `many` is not a number"),
    (["--quantize", "magic"], 2, "is not one of"),
    (["--num-shard", "1", "--sharded", "true"], 78, "Invalid argument: `sharded` is true but `num_shard` <= 1"),
    (["--validation-workers", "0"], 78, "Invalid argument: `validation_workers` must be > 0"),
    (["--max-total-tokens", "9", "--max-batch-total-tokens", "8"], 78, "`max_total_tokens` must be <= `max_batch_total_tokens`. Given: 9 and 8"),
    (["--help"], 0, "--graceful-termination-timeout"),
    (["--version"], 0, "launcher "),
    (["--env"], 0, "Usable cores"),
])
def test_words_on_the_command_line(launch, args, code, words):
    s = launch(*args)
    out = s.end()
    assert s.p.returncode == code and words in out and not s.pids()


def test_a_missing_program_is_one_clear_line(launch, tmp_path):
    s = launch(env={"LAUNCHER_BIN_DIR": str(tmp_path / "nowhere")})
    out = s.end()
    assert s.p.returncode == 66
    assert f"Webserver cannot start: cannot run {tmp_path}/nowhere/router: No such file or directory" in out.strip().splitlines()[-1]


def test_the_printed_page_is_the_one_in_docs():
    page = subprocess.run([BIN / "launcher", "--help-markdown"], capture_output=True, text=True, check=True).stdout
    assert page == (Path(__file__).parents[2] / "docs/launcher.md").read_text(), "launcher --help-markdown > docs/launcher.md"


def test_a_folder_without_a_model_is_named_before_anything_starts(tmp_path):
    for more in ([], ["--dry-run"]):
        p = subprocess.run([BIN / "launcher", "--model-id", tmp_path, *more], capture_output=True, text=True, timeout=60)
        assert p.returncode == 66
        assert f"{tmp_path} is no model: it has neither config.json nor a GGUF file" in p.stdout + p.stderr
        assert "Starting" not in p.stdout


def test_a_folder_named_like_the_model_does_not_matter_if_weights_are_elsewhere(launch, tmp_path):
    (tmp_path / "named").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text("{}")
    s = launch(model=str(tmp_path / "named"), env={"WEIGHTS_CACHE_OVERRIDE": str(tmp_path / "weights"), "SHARD_0": "early"})
    assert "is no model" not in s.end() and s.p.returncode == 66
