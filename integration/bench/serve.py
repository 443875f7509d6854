#!/usr/bin/env python3
"""Starts a server, times it from exec to ready, puts load on it, stops it, and prints one JSON object.

    serve.py [--clients N --prompt N --new N --processes N --rounds N] DIALECT WARM-FILE COMMAND... with {port} in it

WARM-FILE is read once before, so that the weights come from the page cache; --clients 0: only the start is timed.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import load


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ready(port):
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        c.request("GET", "/health")
        return c.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def family(pid):
    """pid and all its descendants."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for p in found:
        found += children.get(p, [])
    return found


def peak_rss(pid):
    """Sum of the largest resident sizes of a family's processes, in bytes."""
    total = 0
    for p in family(pid):
        for line in pathlib.Path(f"/proc/{p}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1]) * 1024
    return total


def warm(path):
    with open(path, "rb") as f:
        while f.read(1 << 24):
            pass


def stop(server):
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--clients", type=int, default=0)
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--new", type=int, default=64)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--processes", type=int, default=1, help="of the clients")
    p.add_argument("--rounds", type=int, default=1, help="of the load; the last one's figures are printed")
    p.add_argument("dialect", choices=["ours", "llama_server", "openai"])
    p.add_argument("warm")
    p.add_argument("argv", nargs=argparse.REMAINDER)
    o = p.parse_args()
    warm(o.warm)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the server is stopped too
    port = free_port()
    log = open(os.environ.get("BENCH_SERVER_LOG", os.devnull), "w")
    begin = time.perf_counter()
    server = subprocess.Popen(
        [a.replace("{port}", str(port)) for a in o.argv], stdout=log, stderr=log, start_new_session=True
    )
    try:
        while not ready(port):
            if server.poll() is not None:
                sys.exit(f"the server ended with status {server.returncode} before it was ready")
            time.sleep(0.01)
        out = {"ready_s": time.perf_counter() - begin}
        if o.clients:
            dialect = getattr(load, o.dialect)
            load.run(port, dialect, 1, 16, 4, o.seed + 1)  # the first request is no figure
            for i in range(o.rounds):
                out |= load.run(port, dialect, o.clients, o.prompt, o.new, o.seed + 2 * i, o.processes)
        out["peak_rss_bytes"] = peak_rss(server.pid)
    finally:
        stop(server)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
