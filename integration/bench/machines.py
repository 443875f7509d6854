#!/usr/bin/env python3
"""One service over several machines: network namespaces of this one, whose links hold every packet back. A model is divided, or has replicas,
or its prompts are computed elsewhere. Prints a table of times, and whether answers have the bits of one machine.

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
PORT, SHARD_PORT, KV_PORT = 8080, 5000, 5600
# name, machines, shards, stages: the first of each group of equal ranks in a stage is what the others are compared with
DIVISIONS = [
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


def client(port, tokens, apart):
    """Inside of machine 0: seconds of a prompt and of each token behind it, of the best of five; and what was said."""

    def post(n, start):
        text = f"{start} {TEXT}"
        body = json.dumps({"inputs": text, "parameters": {"max_new_tokens": n, "details": True, "ignore_eos": True}}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", body, {"Content-Type": "application/json"})
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=300) as r:
            return time.monotonic() - begin, [(t["id"], t["logprob"]) for t in json.load(r)["details"]["tokens"]]

    def read(text, n, params=None, machine=1, **more):
        """The answer of that machine's service to a prompt, and its seconds."""
        address = "127.0.0.1" if machine == 1 else f"10.77.0.{machine}"
        body = {"model": "m", "prompt": text, "max_tokens": n, "temperature": 0, "logprobs": 1, "ignore_eos": True, **more}
        body |= {"kv_transfer_params": params} if params else {}
        request = urllib.request.Request(f"http://{address}:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=300) as r:
            return json.load(r), time.monotonic() - begin

    if apart:  # the prompt is computed by machine 2 and read from it; a tenant of its own computes it here
        here, there, same = [], [], True
        for i in range(5):
            text = f"{i} {TEXT * 4}"
            want, seconds = read(text, 1, cache_salt="here")
            here.append(seconds)
            first, _ = read(text, 1, {"do_remote_decode": True}, machine=2)
            got, seconds = read(text, 1, first["kv_transfer_params"])
            there.append(seconds)
            same &= got["choices"] == want["choices"]
        print(json.dumps({"here": min(here), "prompt": min(there), "same": same}))
        return

    prompts, wholes, said = [], [], []
    for i in range(5):  # other words at the start: nothing of it is in the cache
        one, _ = post(1, f"{i} one")
        all_s, text = post(tokens, f"{i} all")
        prompts.append(one)
        wholes.append(all_s)
        said += text
    print(json.dumps({"prompt": min(prompts), "token": (min(wholes) - min(prompts)) / (tokens - 1), "said": said}))


def divided(args, folder, machines, shards, stages):
    """The command of each machine."""
    common = ["launcher", "--model-id", args.model, "--num-shard", shards, "--pipeline-parallel-size", stages, "--device", "cpu", "--threads", 1]
    common += ["--hostname", "127.0.0.1", "--max-total-tokens", 1000, "--port", PORT]
    if machines > 1:
        common += ["--nnodes", machines, "--master-addr", "10.77.0.1", "--cluster-secret-file", folder / "secret"]
    return [[*common, *(["--node-rank", i] if machines > 1 else []), "--shard-uds-path", folder / f"shard-{i}"] for i in range(machines)]


def replicas(args, folder):
    """A router on one machine, the replicas on two others."""
    secret = ["--cluster-secret-file", folder / "secret"]
    hosts = [f"10.77.0.{i}:{SHARD_PORT}" for i in (2, 3)]
    router = ["router", "--tokenizer-name", args.model, "--port", PORT, "--hostname", "127.0.0.1", "--master-shard-uds-path", "", *secret]
    shard = ["model-server", "serve", args.model, "--threads", 1, "--kv-cache-memory", 0.05, *secret, "--uds-path"]
    return [[*router, "--replica-address", ",".join(hosts)], *([*shard, f"tcp://{host}"] for host in hosts)]


def apart(args, folder):
    """Two services, one of which reads the other's blocks."""
    common = ["launcher", "--model-id", args.model, "--device", "cpu", "--threads", 1, "--port", PORT, "--max-total-tokens", 2000]
    common += ["--cluster-secret-file", folder / "secret"]
    return [[*common, "--hostname", host, "--kv-transfer-address", f"10.77.0.{i + 1}:{KV_PORT}", "--shard-uds-path", folder / f"shard-{i}"]
            for i, host in enumerate(("127.0.0.1", "10.77.0.2"))]  # fmt: skip


def measure(args, commands, *of_client):
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    (folder / "secret").write_text("0123456789abcdef" * 4)
    (folder / "secret").chmod(0o600)
    running = []
    try:
        for i, (program, *more) in enumerate(commands(args, folder)):
            argv = ["ip", "netns", "exec", f"hr-{i}", Path(args.bin) / program, *more]
            running.append(subprocess.Popen([str(a) for a in argv], stdout=open(folder / f"log-{i}", "w"), stderr=subprocess.STDOUT))
        end = time.monotonic() + 120
        while sh("ip", "netns", "exec", "hr-0", "curl", "-sf", f"http://127.0.0.1:{PORT}/health", check=False).returncode:
            if time.monotonic() > end or running[0].poll() is not None:
                sys.exit((folder / "log-0").read_text()[-3000:])
            time.sleep(0.2)
        out = sh("ip", "netns", "exec", "hr-0", sys.executable, __file__, "--client", PORT, "--tokens", args.tokens, *of_client)
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
    p.add_argument("--apart", action="store_true", help="the same, and the prompt is read from machine 2")
    p.add_argument("--only", default="", help="a part of a row's name")
    args = p.parse_args()
    if args.client:
        return client(args.client, args.tokens, args.apart)
    network = Network(MACHINES)
    wanted = {}
    print("| division | round trip, ms | prompt, ms | token, ms | bits |\n|---|---|---|---|---|", flush=True)
    try:
        rows = [(n, m, s // p, lambda a, f, m=m, s=s, p=p: divided(a, f, m, s, p)) for n, m, s, p in DIVISIONS]
        rows.append(("a router, 2 replicas on 2 machines", 3, 1, replicas))
        for name, machines, ranks, commands in rows:
            if args.only not in name and machines > 1:  # what others are compared with is not left out
                continue
            for ms in args.round_trips.split(",") if machines > 1 else ["-"]:
                network.half_s = 0 if ms == "-" else float(ms) / 2000
                got = measure(args, commands)
                equal = "equal" if got["said"] == wanted.setdefault(ranks, got["said"]) else "DIFFER"
                print(f"| {name} | {ms} | {1e3 * got['prompt']:.1f} | {1e3 * got['token']:.2f} | {equal} |", flush=True)
        for ms in args.round_trips.split(","):
            network.half_s = float(ms) / 2000
            got = measure(args, apart, "--apart")
            equal = "equal" if got["same"] else "DIFFER"
            print(f"| a prompt four times as long, computed | {ms} | {1e3 * got['here']:.1f} | | |", flush=True)
            print(f"| the same, read from another machine's service | {ms} | {1e3 * got['prompt']:.1f} | | {equal} |", flush=True)
    finally:
        network.close()


if __name__ == "__main__":
    main()
