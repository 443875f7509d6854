"""The Debian package, installed in a fresh Debian and run there by systemd, which podman boots: `make deb-test`.

Skipped, aloud, without a package (PACKAGE=FILE.deb), or without mmdebstrap, podman and runc."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
import requests
from serving import free_port, scratch

PACKAGE = os.environ.get("PACKAGE")
NEEDED = ("mmdebstrap", "podman", "runc", "dpkg-deb")
pytestmark = pytest.mark.skipif(not PACKAGE, reason="the package is tested by `make deb-test`")


def run(*argv, check=True, timeout=500, **more):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=timeout, **more)
    assert not check or done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout


def dependencies(deb):
    """Names of packages: of alternatives the first."""
    depends = run("dpkg-deb", "--field", deb, "Depends")
    return [re.split(r"[ |(]", d.strip())[0] for d in depends.split(",")]


class Machine:
    """A Debian with the package, booted by systemd as process 1."""

    def __init__(self, folder):
        self.root, self.port, self.id = folder / "root", free_port(), None
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "containers.conf").write_text('[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]\n')
        (folder / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
        self.env = {**os.environ, "CONTAINERS_CONF": f"{folder}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf"}

    def boot(self):
        deb, more = pathlib.Path(PACKAGE).resolve(), ["systemd", "systemd-sysv", "usr-is-merged", *dependencies(PACKAGE)]
        run("mmdebstrap", "--variant=minbase", "--include=" + ",".join(sorted(set(more))),
            "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", f"--customize-hook=copy-in {deb} /root",
            f'--customize-hook=chroot "$1" dpkg -i /root/{deb.name}', "bookworm", self.root,
            "/etc/apt/sources.list.d/debian.sources")  # fmt: skip
        default = self.root / "etc/default/headrace"
        default.write_text(default.read_text().replace("PORT=3000", f"PORT={self.port}"))
        self.id = self.podman("run", "--detach", "--network", "host", "--systemd=always", "--privileged",
                              "--rootfs", self.root, "/lib/systemd/systemd").strip()  # fmt: skip

    def wait_ready(self):
        end = time.monotonic() + 180
        while not self.answers():
            assert time.monotonic() < end, self.sh("systemctl status --no-pager --lines 40 headrace", check=False)
            time.sleep(0.5)

    def podman(self, *argv, **more):
        return run("podman", "--runtime", "runc", *argv, env=self.env, **more)

    def sh(self, line, **more):
        return self.podman("exec", self.id, "sh", "-c", line, **more)

    def show(self, what):
        return self.sh(f"systemctl show --value --property {what} headrace").strip()

    def answers(self):
        try:
            return requests.get(self.url + "/health", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def generate(self):
        body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}}
        return requests.post(self.url + "/generate", json=body, timeout=60)

    def end(self):
        if self.id:
            self.podman("rm", "--force", "--time", "0", self.id, check=False)
        run("umount", "--lazy", *self.root.parent.glob("graph/vfs-containers/*/userdata/shm"), check=False)
        shutil.rmtree(self.root.parent, ignore_errors=True)


@pytest.fixture(scope="module")
def machine():
    if lacking := [p for p in NEEDED if not shutil.which(p)]:
        pytest.skip(f"the package is not installed without {', '.join(lacking)}")
    m = Machine(scratch())  # pytest removes its own folders while containers run
    try:
        m.boot()
        m.wait_ready()
        yield m
    finally:
        m.end()


def test_it_serves_after_installation(machine):
    assert machine.show("ActiveState") == "active" and machine.show("StatusText") == "serving"
    assert machine.generate().json()["generated_text"]
    pid = machine.show("MainPID")
    status = machine.sh(f"cat /proc/{pid}/status")
    uid = machine.sh("id -u headrace").strip()
    assert re.search(rf"^Uid:\s+{uid}\s", status, re.M) and int(uid) > 0
    assert re.search(r"^CapEff:\s+0{16}$", status, re.M) and re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert re.search(r"^Seccomp:\s+2$", status, re.M)
    assert machine.sh("stat -c '%U %a' /var/lib/headrace").split()[0] == "headrace"
    assert "LISTEN" not in machine.sh("cat /proc/net/tcp") or f"00000000:{machine.port:04X}" not in machine.sh("cat /proc/net/tcp")
    exposure = re.search(r"exposure level for headrace.service: ([\d.]+)", machine.sh("systemd-analyze security --no-pager headrace.service"))
    assert float(exposure.group(1)) <= 2.0
    for file in ("/usr/bin/headrace", "/usr/bin/text-generation-launcher", "/usr/share/bash-completion/completions/headrace"):
        assert machine.sh(f"dpkg -S {file}").startswith("headrace:")
    assert machine.sh("headrace --version").startswith("headrace ")


def test_a_restart_returns_when_requests_are_served(machine):
    for _ in range(3):
        machine.sh("systemctl restart headrace")
        assert machine.generate().status_code == 200
    before = machine.show("MainPID")
    machine.sh("systemctl reload headrace")
    assert machine.generate().status_code == 200 and machine.show("MainPID") == before


def test_a_stop_drains(machine):
    lines, begun = [], threading.Event()
    body = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}

    def read():
        with requests.post(machine.url + "/v1/completions", json=body, stream=True, timeout=90) as r:
            for line in r.iter_lines():
                lines.append(line)
                begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    machine.sh("systemctl stop headrace")
    reader.join(10)
    assert [line for line in lines if line][-1] == b"data: [DONE]"
    assert machine.show("Result") == "success" and machine.show("ExecMainStatus") == "0"
    machine.sh("systemctl start headrace")
    assert machine.generate().status_code == 200


def test_a_launcher_that_hangs_is_started_again(machine):
    pid, restarts = machine.show("MainPID"), int(machine.show("NRestarts"))
    machine.sh(f"kill -{signal.SIGSTOP.value} {pid}")
    end = time.monotonic() + 120  # WatchdogSec, TimeoutAbortSec, RestartSec
    while machine.show("NRestarts") == str(restarts) and time.monotonic() < end:
        time.sleep(1)
    assert int(machine.show("NRestarts")) == restarts + 1
    machine.wait_ready()
    assert machine.show("MainPID") != pid


def test_wrong_options_are_not_tried_again(machine):
    machine.sh("sed -i 's/^HEADRACE_OPTIONS=.*/HEADRACE_OPTIONS=--no-such-option/' /etc/default/headrace")
    machine.sh("systemctl restart headrace", check=False)
    time.sleep(7)  # RestartSec and more
    assert machine.show("ActiveState") == "failed" and machine.show("ExecMainStatus") == "2"
    machine.sh("sed -i 's/^HEADRACE_OPTIONS=.*/HEADRACE_OPTIONS=/' /etc/default/headrace; systemctl restart headrace")
    assert machine.generate().status_code == 200


def test_it_goes_away(machine):
    machine.sh("dpkg --purge headrace")
    assert not machine.answers()
    left = machine.sh("ls -d /usr/libexec/headrace /usr/share/headrace /etc/default/headrace /lib/systemd/system/headrace.service", check=False)
    assert not left.strip()
