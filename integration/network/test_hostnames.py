"""--hostname: one address, both of localhost, or both families on one socket."""

import os
import resource
import socket
import subprocess
import time

import pytest
import requests
from serving import BIN, DEMO, SLOW, Service, free_port, wait_for


def has_v6():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


V6 = pytest.mark.skipif(not has_v6(), reason="this machine has no ::1")


def answers(host, port):
    try:
        r = requests.post(f"http://{host}:{port}/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}, timeout=60 * SLOW)
    except requests.ConnectionError:
        return False
    return r.status_code == 200


@V6
@pytest.mark.parametrize(
    "hostname,four,six",
    [("localhost", True, True), ("::", True, True), ("[::]", True, True), ("[::1]", False, True), ("127.0.0.1", True, False), ("0.0.0.0", True, False)],
)
def test_families(hostname, four, six):
    with Service(DEMO, args=["--hostname", hostname], ready=False) as s:
        if not four:
            s.url = f"http://[::1]:{s.port}"
        s.wait_ready()
        assert answers("127.0.0.1", s.port) == four and answers("[::1]", s.port) == six
        assert "WARN" not in s.log, "nothing to warn of"


def test_a_name_listens_everywhere():
    """As in TGI: Kubernetes sets HOSTNAME to the pod's name."""
    with Service(DEMO, args=["--hostname", "pod-7f4"]) as s:
        assert answers("127.0.0.1", s.port)
        assert "--hostname pod-7f4 is neither an IP address nor localhost: listening on 0.0.0.0" in s.log


@V6
def test_both_addresses_of_localhost_must_be_free(tmp_path):
    with socket.socket(socket.AF_INET6) as taken:
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        port = free_port()
        taken.bind(("::1", port))
        taken.listen()
        argv = [BIN / "launcher", "--model-id", DEMO, "--hostname", "localhost", "--port", str(port), "--shard-uds-path", f"{tmp_path}/s"]
        p = subprocess.run(argv, capture_output=True, text=True, timeout=60 * SLOW, env={**os.environ})
        assert p.returncode != 0 and f"cannot listen on ::1 port {port}" in p.stdout + p.stderr


@V6
def test_without_descriptors_both_addresses_wait():
    """The queue of ::1 is no reason to run: connections wait there until others end."""
    with Service(DEMO, args=["--hostname", "localhost"]) as s:
        (router,) = [p for p in s.children() if os.readlink(f"/proc/{p}/exe").endswith("/router")]
        cpu = lambda: sum(map(int, open(f"/proc/{router}/stat").read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        open_now = len(os.listdir(f"/proc/{router}/fd"))
        resource.prlimit(router, resource.RLIMIT_NOFILE, (open_now + 3, open_now + 3))
        held = [socket.create_connection(("::1", s.port)) for _ in range(8)]
        time.sleep(1)
        before = cpu()
        time.sleep(2)
        assert cpu() - before < 0.5
        for c in held:
            c.close()
        wait_for(lambda: answers("[::1]", s.port), 20)
