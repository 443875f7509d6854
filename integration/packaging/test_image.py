"""The image: made of programs that are already built, and run under podman as a cluster would run it.

Skipped, aloud, where Debian's buildah, podman and runc are not installed or cannot start a container."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import pytest
import requests
import yaml
from chart import one, render
from serving import DEMO, ROOT, Service, free_port, scratch, wait_for

MOST_BYTES = 40_000_000  # docs/results/operations.md says what it is made of
NEEDED = ("buildah", "podman", "runc", "catatonit")
LIMITS = '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]\n'  # else podman asks for more than some machines allow
SECURE = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp:mode=1777"]


def run(*argv, timeout=300, check=True, **more):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=timeout, **more)
    assert not check or done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def podman():
    """podman with storage of its own; its images and containers go with it."""
    if lacking := [p for p in NEEDED if not shutil.which(p)] or os.environ.get("SAN") and ["a build without sanitizers"]:
        pytest.skip(f"the image is not tested without {', '.join(lacking)}")
    root = scratch()  # pytest removes its own folders while containers run
    (root / "containers.conf").write_text(LIMITS)
    (root / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{root}/graph"\nrunroot = "{root}/run"\n')
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    env |= {"CONTAINERS_CONF": f"{root}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{root}/storage.conf"}

    def call(*argv, **more):
        return run("podman", "--runtime", "runc", *argv, env=env, **more)

    call.env, call.root = env, root
    yield call
    call("rm", "--all", "--force", check=False)
    call("pod", "rm", "--all", "--force", check=False)
    call("rmi", "--all", "--force", check=False)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def archive(podman, slim):
    """`make image-files`, whose tar podman loads."""
    run("make", "-C", ROOT, "image-files", f"SLIM_DIR={slim}", f"BUILD={podman.root}/build", "NVCC=", env=podman.env)
    (tar,) = (podman.root / "build/image").glob("*.tar")
    return tar


@pytest.fixture(scope="module")
def image(podman, archive):
    podman("rmi", "--all", "--force")
    name = re.search(r"Loaded image: (\S+)", podman("load", "--input", archive).stdout).group(1)
    probe = podman("run", "--rm", "--network", "host", name, "--version", check=False)
    if probe.returncode:
        pytest.skip(f"no container starts here: {probe.stderr.strip().splitlines()[-1]}")
    return name


class Container(Service):
    def __init__(self, podman, image, *argv, options=()):
        self.podman, self.port = podman, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        argv = ["--network", "host", *SECURE, "--env", f"PORT={self.port}", *options, image, "--hostname", "127.0.0.1", *argv]
        self.id = podman("run", "--detach", *argv).stdout.strip()
        self.wait_ready()

    def inspect(self, what):
        return self.podman("inspect", "--format", "{{%s}}" % what, self.id).stdout.strip()

    def alive(self):
        return self.inspect(".State.Running") == "true"

    @property
    def returncode(self):
        return int(self.inspect(".State.ExitCode"))

    p = property(lambda self: self)
    log = property(lambda self: self.podman("logs", self.id).stdout)

    def status(self, field):
        text = pathlib.Path(f"/proc/{self.inspect('.State.Pid')}/status").read_text()
        return re.search(rf"^{field}:\s*(.*)$", text, re.M).group(1).split()

    def end(self):
        self.podman("rm", "--force", "--time", "0", self.id)


def test_what_it_holds(podman, image, archive):
    config = json.loads(podman("image", "inspect", image).stdout)[0]
    assert config["Size"] <= MOST_BYTES, f"{config['Size']} bytes"
    assert archive.stat().st_size <= MOST_BYTES + (1 << 20)
    assert config["Healthcheck"]["Test"][:2] == ["CMD", "/usr/libexec/headrace/launcher"] and config["User"] == "10001:0"
    (layer,) = json.loads(run("tar", "-xOf", archive, "manifest.json").stdout)[0]["Layers"]
    files = run("sh", "-c", f"tar -xOf {archive} {layer} | tar -tv").stdout.splitlines()
    modes = {line.split(maxsplit=5)[5]: line.split()[0] for line in files}
    assert not [f for f in modes if re.search(r"(^|/)(sh|bash|dash|perl|apt|dpkg)$", f)], "a shell, or a package manager"
    assert not [f for f, mode in modes.items() if mode[0] == "-" and (mode[8] == "w" or "s" in mode)], "writable, or setuid"
    assert modes["tmp/"] == modes["data/"] == "drwxrwxrwt"
    for package in ("headrace/copyright", "libgrpc-dev/copyright.gz", "libabsl-dev/copyright.gz", "libc6/copyright.gz"):
        assert f"usr/share/doc/{package}" in modes


def test_the_same_programs_make_the_same_image(podman, archive, slim):
    def layers(tar):
        """Digests of what is in it; the configuration around them says how buildah was called."""
        manifest = json.loads(run("tar", "-xOf", tar, "manifest.json").stdout)[0]
        return manifest["Layers"]

    run("make", "-C", ROOT, "image-files", f"SLIM_DIR={slim}", f"BUILD={podman.root}/again", "NVCC=", env=podman.env)
    (again,) = (podman.root / "again/image").glob("*.tar")
    assert layers(again) == layers(archive)


@pytest.mark.parametrize("user", ["10001:0", "12345:0", "54321:54321"])
def test_any_user_without_capabilities_on_a_read_only_root(podman, image, user):
    s = Container(podman, image, options=["--user", user])
    try:
        answer = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}})
        assert answer.json()["generated_text"]
        assert s.status("Uid") == [user.split(":")[0]] * 4 and s.status("CapEff") == s.status("CapBnd") == ["0" * 16]
        assert s.status("NoNewPrivs") == ["1"]
        # The image's own health check asks the shard of $PORT; this server has its port from an option.
        health = ["/usr/libexec/headrace/launcher", "health", f"unix:/tmp/text-generation-server-{s.port}-0"]
        assert podman("exec", s.id, *health).returncode == 0
        assert podman("exec", s.id, *health[:2], "unix:/tmp/nobody", check=False).returncode == 1
    finally:
        s.end()


def test_a_mounted_model_and_the_health_check_of_the_image(podman, image):
    port = 3000
    if requests_answer(port):
        pytest.skip("port 3000 is taken")
    name = podman("run", "--detach", "--network", "host", *SECURE, "--volume", f"{DEMO.resolve()}:/model:ro",
                  image, "--model-id", "/model", "--hostname", "127.0.0.1").stdout.strip()  # fmt: skip
    try:
        wait_for(lambda: requests_answer(port), 60)
        assert requests.get(f"http://127.0.0.1:{port}/info", timeout=10).json()["model_id"] == "/model"
        assert podman("healthcheck", "run", name).returncode == 0
    finally:
        podman("rm", "--force", "--time", "0", name)


def requests_answer(port):
    try:
        return requests.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


def test_stop_drains(podman, image):
    s = Container(podman, image)
    try:
        events, begun = [], threading.Event()

        def read():
            body = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}
            for event in s.events("/v1/completions", body):
                events.append(event)
                begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(60)
        at = time.monotonic()
        podman("stop", "--time", "90", s.id)
        took = time.monotonic() - at
        reader.join(10)
        assert not reader.is_alive() and events[-1] == "[DONE]" and len(events) > 1500
        assert s.returncode == 0 and took < 80
    finally:
        s.end()


def test_the_pod_of_the_chart(podman, image, tmp_path):
    """The Deployment that the chart renders, run by `podman kube play`.

    Changed for podman 4.3: one replica, and no probes, which it runs as curl inside the image; they are asked from here. It runs no
    preStop and has no Secrets of this name, which are optional. The network is the host's."""
    port = free_port()
    repository, tag = image.rsplit(":", 1)
    values = {"image": {"repository": repository, "tag": tag}, "replicas": 1, "env": [{"name": "PORT", "value": str(port)}]}
    deployment = one(render(values), "Deployment")
    pod = deployment["spec"]["template"]
    (c,) = pod["spec"]["containers"]
    probes = [c.pop(name)["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    c.pop("ports"), c.pop("lifecycle")
    c["env"] = [e for e in c["env"] if "valueFrom" not in e]
    pod["spec"]["hostNetwork"] = True
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(deployment))
    podman("kube", "play", "--network", "host", tmp_path / "pod.yaml")
    try:
        (name,) = podman("ps", "--format", "{{.Names}}", "--filter", "ancestor=" + image).stdout.split()
        url = f"http://127.0.0.1:{port}"

        def ready():
            try:
                return all(requests.get(url + path, timeout=5).status_code == 200 for path in probes)
            except requests.ConnectionError:
                return False

        wait_for(ready, 60)
        answer = requests.post(url + "/generate", json={"inputs": "Once", "parameters": {"max_new_tokens": 4}}, timeout=60)
        assert answer.json()["generated_text"]
        pid = podman("inspect", "--format", "{{.State.Pid}}", name).stdout.strip()
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert re.search(r"^Uid:\s+10001\s", status, re.M) and re.search(r"^CapEff:\s+0{16}$", status, re.M)
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.M) and re.search(r"^Seccomp:\s+2$", status, re.M)
        assert podman("inspect", "--format", "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Memory}}", name).stdout.split() == ["true", str(2 << 30)]
        podman("stop", "--time", "60", name)
        assert podman("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
    finally:
        podman("kube", "down", tmp_path / "pod.yaml", check=False)
