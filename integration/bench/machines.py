#!/usr/bin/env python3
"""One model over several machines: network namespaces of this one, whose links hold every packet back. Prints a table of times, and whether
answers have the bits of one machine.

    sudo integration/bench/machines.py --bin build/bin --model models/demo --round-trips 0,0.3,5

A process plays the network: namespaces have a TUN device each, and a packet goes on to another one half a round trip later (kernels without
netem). Nothing listens outside of the namespaces."""

import argparse
import fcntl
import heapq
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

MACHINES = 3
TEXT = "Once upon a time there was a little dog who had a big red ball. " * 12
# name, machines, shards, stages: the first of each group of equal ranks in a stage is what the others are compared with
SHAPES = [
    ("one machine, 1 rank", 1, 1, 1),
    ("2 machines, 2 stages", 2, 2, 2),
    ("3 machines, 3 stages", 3, 3, 3),
    ("one machine, 2 ranks", 1, 2, 1),
    ("2 machines, 2 ranks (tensor parallel)", 2, 2, 1),
    ("2 machines, 2 stages of 2 ranks", 2, 4, 2),
]


def sh(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True)


class Network(threading.Thread):
    """Namespaces hr-0 ... with addresses 10.77.0.1 ..., until close()."""

    def __init__(self, n):
        super().__init__(daemon=True)
        self.half_s, self.tuns, self.over = 0.0, [], False
        for i in range(n):
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"hr-tun%d" % i, 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
            self.tuns.append(tun)
            sh("ip", "netns", "add", f"hr-{i}")
            sh("ip", "link", "set", f"hr-tun{i}", "netns", f"hr-{i}")
            sh("ip", "-n", f"hr-{i}", "addr", "add", f"10.77.0.{i + 1}/24", "dev", f"hr-tun{i}")
            sh("ip", "-n", f"hr-{i}", "link", "set", f"hr-tun{i}", "up", "mtu", 9000)
            sh("ip", "-n", f"hr-{i}", "link", "set", "lo", "up")
        self.start()

    def run(self):
        held, n = [], 0
        while not self.over:
            wait = max(0.0, held[0][0] - time.monotonic()) if held else 0.1
            ready, _, _ = select.select(self.tuns, [], [], wait)
            for tun in ready:
                packet = os.read(tun, 65536)
                if packet[0] >> 4 == 4 and 1 <= packet[19] <= len(self.tuns):
                    n += 1
                    heapq.heappush(held, (time.monotonic() + self.half_s, n, self.tuns[packet[19] - 1], packet))
            while held and held[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(held)
                os.write(to, packet)

    def close(self):
        self.over = True
        self.join()
        for i, tun in enumerate(self.tuns):
            os.close(tun)
            sh("ip", "netns", "del", f"hr-{i}", check=False)


def client(port, tokens):
    """Inside of machine 0: seconds of a prompt and of each token behind it, of the best of five; and what was said."""

    def post(n, start):
        text = f"{start} {TEXT}"
        body = json.dumps({"inputs": text, "parameters": {"max_new_tokens": n, "details": True, "ignore_eos": True}}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", body, {"Content-Type": "application/json"})
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=300) as r:
            return time.monotonic() - begin, [(t["id"], t["logprob"]) for t in json.load(r)["details"]["tokens"]]

    prompts, wholes, said = [], [], []
    for i in range(5):  # other words at the start: nothing of it is in the cache
        one, _ = post(1, f"{i} one")
        all_s, text = post(tokens, f"{i} all")
        prompts.append(one)
        wholes.append(all_s)
        said += text
    print(json.dumps({"prompt": min(prompts), "token": (min(wholes) - min(prompts)) / (tokens - 1), "said": said}))


def measure(args, machines, shards, stages):
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    (folder / "secret").write_text("0123456789abcdef" * 4)
    (folder / "secret").chmod(0o600)
    common = ["--model-id", args.model, "--num-shard", shards, "--pipeline-parallel-size", stages, "--device", "cpu", "--threads", 1, "--hostname", "127.0.0.1"]
    common += ["--max-total-tokens", 1000, "--port", 8080]
    if machines > 1:
        common += ["--nnodes", machines, "--master-addr", "10.77.0.1", "--cluster-secret-file", folder / "secret"]
    running = []
    try:
        for i in range(machines):
            more = ["--node-rank", i] if machines > 1 else []
            argv = ["ip", "netns", "exec", f"hr-{i}", Path(args.bin) / "launcher", *common, *more, "--shard-uds-path", folder / f"shard-{i}"]
            running.append(subprocess.Popen([str(a) for a in argv], stdout=open(folder / f"log-{i}", "w"), stderr=subprocess.STDOUT))
        end = time.monotonic() + 120
        while sh("ip", "netns", "exec", "hr-0", "curl", "-sf", "http://127.0.0.1:8080/health", check=False).returncode:
            if time.monotonic() > end or running[0].poll() is not None:
                sys.exit((folder / "log-0").read_text()[-3000:])
            time.sleep(0.2)
        out = sh("ip", "netns", "exec", "hr-0", sys.executable, __file__, "--client", "8080", "--tokens", args.tokens)
        return json.loads(out.stdout)
    finally:
        for p in running:
            p.terminate()
        for p in running:
            p.wait()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", default="build/bin")
    p.add_argument("--model", default="models/demo")
    p.add_argument("--round-trips", default="0,0.3,5", help="milliseconds")
    p.add_argument("--tokens", type=int, default=100)
    p.add_argument("--client", help="a port: what runs inside of machine 0")
    args = p.parse_args()
    if args.client:
        return client(args.client, args.tokens)
    network = Network(MACHINES)
    wanted = {}
    print("| division | round trip, ms | prompt, ms | token, ms | bits |\n|---|---|---|---|---|", flush=True)
    try:
        for name, machines, shards, stages in SHAPES:
            for ms in args.round_trips.split(",") if machines > 1 else ["-"]:
                network.half_s = 0 if ms == "-" else float(ms) / 2000
                got = measure(args, machines, shards, stages)
                want = wanted.setdefault(shards // stages, got["said"])
                equal = "equal" if got["said"] == want else "DIFFER"
                print(f"| {name} | {ms} | {1e3 * got['prompt']:.1f} | {1e3 * got['token']:.2f} | {equal} |", flush=True)
    finally:
        network.close()


if __name__ == "__main__":
    main()
