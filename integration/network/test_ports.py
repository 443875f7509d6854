"""The ports of the tests themselves."""

import subprocess
import sys

from serving import ROOT

ASK = "import serving, sys; print(*(serving.free_port() for _ in range(100)), serving.free_ports(6), flush=True); sys.stdin.read()"


def test_no_two_processes_get_one_port():
    """As long as both live: a server may listen long after its port was chosen."""
    argv = [sys.executable, "-c", ASK]
    asked = [subprocess.Popen(argv, cwd=ROOT / "integration", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    try:
        got = [p for a in asked for p in map(int, a.stdout.readline().split())]
    finally:
        for a in asked:
            a.communicate("")
    assert len(got) == len(set(got)) == 6 * 101
