"""Authentication between machines: certificates or a shared secret protect a shard's TCP address and the rendezvous of its ranks."""

import contextlib
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading

import grpc
import pytest
from serving import BIN, DEMO, Process, Service, scratch, wait_for
from shard import stubs
from test_nodes import BODY, cause, end_all, master_port, start, tokens, wait_end

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
SECRET = "correct horse battery staple"
NAME = "ranks.cluster.test"
CHALLENGE, PROOF = "cluster-challenge", "cluster-proof"


# ---------------------------------------------------------------- credentials


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def authority(folder, name):
    key, cert = folder / f"{name}.ca.key", folder / f"{name}.ca.pem"
    openssl("req", "-x509", *CURVE, "-days", 2, "-subj", f"/CN={name}", "-keyout", key, "-out", cert)
    return key, cert


class Member:
    """Files of one member: certificate, key and authority."""

    def __init__(self, folder, who, authority_, name=NAME):
        ca_key, self.ca = authority_
        self.cert, self.key = folder / f"{who}.pem", folder / f"{who}.key"
        request, extra = folder / f"{who}.csr", folder / f"{who}.ext"
        extra.write_text(f"subjectAltName=DNS:{name}\n" if name else "basicConstraints=CA:FALSE\n")
        openssl("req", "-new", *CURVE, "-subj", f"/CN={who}", "-keyout", self.key, "-out", request)
        signed = ("-CA", self.ca, "-CAkey", ca_key, "-CAcreateserial", "-days", 2, "-extfile", extra)
        openssl("x509", "-req", "-in", request, *signed, "-out", self.cert)
        self.key.chmod(0o600)
        self.args = ["--cluster-cert", self.cert, "--cluster-key", self.key, "--cluster-ca", self.ca]

    def channel(self, port, ca=None):
        creds = grpc.ssl_channel_credentials((ca or self.ca).read_bytes(), self.key.read_bytes(), self.cert.read_bytes())
        return grpc.secure_channel(f"127.0.0.1:{port}", creds, [("grpc.ssl_target_name_override", NAME)])


def secret_file(folder, text=SECRET, mode=0o600, name="secret"):
    path = folder / name
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def ours(folder):
    return authority(folder, "ours")


@pytest.fixture(scope="module")
def member(folder, ours):
    return Member(folder, "member", ours)


@pytest.fixture(scope="module")
def alone():
    with Service(DEMO, 2, ["--device", "cpu", "--threads", 1]) as s:
        return tokens(s)


@contextlib.contextmanager
def two_machines(args, ready=True):
    port = master_port()
    master, others = start(2, 2, args=args, port=port)
    try:
        if ready:
            master.wait_ready()
        yield master, others[0], port
    finally:
        end_all([master, *others])


# ---------------------------------------------------------------- a stranger's calls

pb = stubs()
RPCS = [
    ("Info", pb.InfoRequest(), pb.InfoResponse),
    ("Health", pb.HealthRequest(), pb.HealthResponse),
    ("ServiceDiscovery", pb.ServiceDiscoveryRequest(), pb.ServiceDiscoveryResponse),
    ("ClearCache", pb.ClearCacheRequest(), pb.ClearCacheResponse),
    ("FilterBatch", pb.FilterBatchRequest(batch_id=1), pb.FilterBatchResponse),
    ("Warmup", pb.WarmupRequest(), pb.WarmupResponse),
    ("Prefill", pb.PrefillRequest(batch=pb.Batch(id=1, requests=[pb.Request(id=1, inputs="x")])), pb.PrefillResponse),
    ("Decode", pb.DecodeRequest(), pb.DecodeResponse),
]


def path_of(name):
    return f"/generate.v3.TextGenerationService/{name}"


def call(channel, name, request, answer, metadata=None):
    """The answer and the metadata behind it, or the RpcError."""
    method = channel.unary_unary(
        path_of(name), request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
    )
    return method.with_call(request, timeout=60, metadata=metadata)


def refused(channel, codes):
    with channel:
        for rpc in RPCS:
            with pytest.raises(grpc.RpcError) as e:
                call(channel, *rpc)
            assert e.value.code() in codes, (rpc[0], e.value)


def test_certificates_between_machines(alone, folder, ours, member):
    with two_machines(member.args) as (master, other, port):
        assert tokens(master) == alone, "encrypted sums have other bits"
        assert "Connections between machines: mutual TLS" in master.log and "mutual TLS" in other.log
        down = [grpc.StatusCode.UNAVAILABLE]
        rank_1 = port + 2
        refused(grpc.insecure_channel(f"127.0.0.1:{rank_1}"), down)
        no_cert = grpc.ssl_channel_credentials(member.ca.read_bytes())
        refused(grpc.secure_channel(f"127.0.0.1:{rank_1}", no_cert, [("grpc.ssl_target_name_override", NAME)]), down)
        stranger = Member(folder, "stranger", authority(folder, "another"))
        refused(stranger.channel(rank_1, member.ca), down)
        namesake = Member(folder, "namesake", ours, name="printer.cluster.test")
        refused(namesake.channel(rank_1), [grpc.StatusCode.UNAUTHENTICATED])
        with member.channel(rank_1) as channel:  # the control: a member may
            assert call(channel, *RPCS[0])[0].world_size == 2
        assert tokens(master) == alone
        assert master.stop() == 0, master.log[-3000:]
        assert wait_end(other) == 0, other.log[-3000:]
        assert "has left: shutting down" in other.log


def proof(secret, nonce, name, request, number, caller=b"sixteen bytes id"):
    def mac(label, *parts):
        h = hmac.new(secret.encode(), digestmod=hashlib.sha256)
        for part in (label, *parts):
            h.update(struct.pack("<Q", len(part)) + part)
        return h.digest()

    parts = caller, struct.pack(">Q", number), hashlib.sha256(request.SerializeToString()).digest()
    return (b"".join(parts) + mac(b"call", nonce, path_of(name).encode(), *parts)).hex()


def test_a_secret_between_machines(alone, folder):
    path = secret_file(folder)
    with two_machines(["--cluster-secret-file", path]) as (master, other, port):
        assert tokens(master) == alone
        assert "authenticated by the shared secret, and not encrypted" in other.log
        no = [grpc.StatusCode.UNAUTHENTICATED]
        rank_1 = f"127.0.0.1:{port + 2}"
        refused(grpc.insecure_channel(rank_1), no)
        with grpc.insecure_channel(rank_1) as channel:
            with pytest.raises(grpc.RpcError) as e:
                call(channel, *RPCS[0])
            nonce = bytes.fromhex(dict(e.value.trailing_metadata())[CHALLENGE])
            info, clear = RPCS[0], RPCS[3]

            def proved(text, rpc=info):
                return call(channel, *rpc, metadata=[(PROOF, text)])

            good = proof(SECRET, nonce, "Info", info[1], 1)
            answer, done = proved(good)  # the control: with the secret it may
            assert answer.world_size == 2 and len(dict(done.trailing_metadata())[PROOF]) == 64
            for text, rpc in [
                (good, info),  # again
                (proof("wrong " + SECRET, nonce, "Info", info[1], 2), info),
                (proof(SECRET, bytes(32), "Info", info[1], 3), info),  # for another server
                (proof(SECRET, nonce, "Info", info[1], 4), clear),  # for another method
                (proof(SECRET, nonce, "ClearCache", pb.ClearCacheRequest(id=7), 5), clear),  # for another message
                ("", info),
                ("00" * 88, info),
                ("x" * 1000, info),
            ]:
                with pytest.raises(grpc.RpcError) as e:
                    proved(text, rpc)
                assert e.value.code() == no[0], text
            assert proved(proof(SECRET, nonce, "Info", info[1], 9))[0].world_size == 2
            proved(proof(SECRET, nonce, "Info", info[1], 8))  # calls may overtake each other
            with pytest.raises(grpc.RpcError):
                proved(proof(SECRET, nonce, "Info", info[1], 8))
        assert tokens(master) == alone
        assert master.stop() == 0, master.log[-3000:]
        assert wait_end(other) == 0, other.log[-3000:]


# ---------------------------------------------------------------- the ranks' port


class Crowd:
    """Connections to a port that prove nothing: silent ones, kept at `n`, and some that talk nonsense."""

    def __init__(self, port, n):
        self.port, self.n, self.over = port, n, threading.Event()
        self.silent, self.most = [], 0
        self.thread = threading.Thread(target=self.run)

    def connect(self):
        s = socket.socket()
        s.settimeout(5)
        s.connect(("127.0.0.1", self.port))
        return s

    def gone(self, s):
        try:
            s.setblocking(False)
            while s.recv(4096):
                pass
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True

    def run(self):
        words = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 40, os.urandom(4096), b"\x16\x03\x01\x02\x00" + bytes(600)]
        while not self.over.wait(0.01):
            with contextlib.suppress(OSError):
                while len(self.silent) < self.n and not self.over.is_set():
                    self.silent.append(self.connect())
                self.most = max(self.most, len(self.silent))
                with self.connect() as s:
                    s.sendall(words[len(self.silent) % len(words)])
            self.silent = [s for s in self.silent if not self.gone(s)]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for s in self.silent:
            s.close()


@pytest.mark.parametrize("way", ["open", "secret", "certificates"])
def test_a_crowd_at_the_ranks_port_keeps_nobody_out(way, folder, member):
    args = {"open": [], "secret": ["--cluster-secret-file", secret_file(folder)], "certificates": member.args}[way]
    port = master_port()
    master, others = start(2, 2, args=args, port=port, timeout=120)
    late = others.pop()  # comes when the crowd is there
    late.stop()
    try:
        wait_for(lambda: listens(port), 60)
        with Crowd(port, 200) as crowd:
            wait_for(lambda: crowd.most >= 200, 60)
            others.append(Process(late.argv))
            master.wait_ready()
        assert re.search("Connection dropped: it did not prove to be a rank", master.log)
        assert master.stop() == 0, master.log[-3000:]
        assert wait_end(others[0]) == 0
    finally:
        end_all([master, *others])


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("what", ["another secret", "no secret", "a certificate", "another authority"])
def test_a_machine_that_does_not_belong_says_so(what, folder, ours, member):
    port = master_port()
    good = ["--cluster-secret-file", secret_file(folder)]
    bad = {
        "another secret": ["--cluster-secret-file", secret_file(folder, "x" * 20, name="other")],
        "no secret": [],
        "a certificate": member.args,
        "another authority": Member(folder, "outsider", authority(folder, "third")).args,
    }[what]
    words = {
        "another secret": "the shared secret (--cluster-secret-file) is another one there",
        "no secret": "this rank by nothing",
        "a certificate": "this rank by certificates (--cluster-cert)",
        "another authority": "TLS: ",
    }[what]
    if what == "another authority":
        good = member.args
    master, others = start(2, 2, args=good, port=port)
    end_all(others)
    stranger = Process([a for a in others[0].argv if a not in map(str, good)] + [str(a) for a in bad])
    try:
        assert wait_end(stranger) == (78 if what in ("no secret", "a certificate") else 1)
        assert words in cause(stranger), stranger.log[-3000:]
        assert master.alive(), "the meeting goes on without the stranger"
        again = Process(others[0].argv)
        others.append(again)
        master.wait_ready()
    finally:
        end_all([master, stranger, *others])


# ---------------------------------------------------------------- real addresses


class Network:
    """Two machines' network namespaces, joined by a cable; skipped where this user may make none."""

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "-n", "sleep", "600"]) for _ in range(2)]
        mine = os.readlink("/proc/self/ns/net")
        try:
            for h in self.holders:
                wait_for(lambda h=h: h.poll() is not None or os.readlink(f"/proc/{h.pid}/ns/net") != mine)
                if h.poll() is not None:
                    pytest.skip("network namespaces are not permitted")
            ends = [f"v{end}{self.holders[0].pid}" for end in "ab"]
            if self.ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1]):
                pytest.skip("veth devices are not permitted")
            for i, (h, end) in enumerate(zip(self.holders, ends)):
                assert not self.ip("link", "set", end, "netns", str(h.pid))
                address = ["addr", "add", f"10.77.0.{i + 1}/24", "dev", end]
                for args in (["link", "set", "lo", "up"], address, ["link", "set", end, "up"]):
                    subprocess.run([*self.inside(i), "ip", *args], check=True)
        except BaseException:
            self.close()
            raise

    def ip(self, *args):
        return subprocess.run(["ip", *args], capture_output=True).returncode

    def inside(self, i):
        return ["nsenter", "-t", str(self.holders[i].pid), "-n"]

    def close(self):
        for h in self.holders:  # the cable goes with the namespaces
            h.kill()
            h.wait()


class InNetwork(Process):
    """A launcher there; curl, there too, asks its router."""

    def __init__(self, network, node, args):
        folder = scratch()
        argv = [*network.inside(node), BIN / "launcher", "--model-id", DEMO, "--num-shard", 2, "--nnodes", 2]
        argv += ["--node-rank", node, "--master-addr", "10.77.0.1", "--shard-uds-path", f"{folder}/s", "--port", 3000]
        self.inside = network.inside(node)
        super().__init__([*argv, "--device", "cpu", "--threads", 1, "--max-total-tokens", 256, *args], folder=folder)

    def curl(self, path, *args):
        url = f"http://127.0.0.1:3000{path}"
        return subprocess.run([*self.inside, "curl", "-sf", *args, url], capture_output=True, text=True)


@pytest.mark.parametrize("way", ["secret", "certificates"])
def test_machines_with_addresses_of_their_own(way, alone, folder, member):
    args = {"secret": ["--cluster-secret-file", secret_file(folder)], "certificates": member.args}[way]
    network = Network()
    machines = []
    try:
        machines = [InNetwork(network, i, args) for i in range(2)]
        master = machines[0]
        wait_for(lambda: not master.alive() or master.curl("/health").returncode == 0, 60)
        assert master.alive(), master.log[-3000:]
        r = master.curl("/generate", "-H", "content-type: application/json", "-d", json.dumps(BODY))
        assert [(t["id"], t["logprob"]) for t in json.loads(r.stdout)["details"]["tokens"]] == alone
        assert master.stop() == 0, master.log[-3000:]
        assert wait_end(machines[1]) == 0, machines[1].log[-3000:]
    finally:
        end_all(machines)
        network.close()


# ---------------------------------------------------------------- what is refused at start


def last_line(argv, code=78):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60)
    assert r.returncode == code, r.stdout + r.stderr
    return [line for line in (r.stdout + r.stderr).splitlines() if line.strip()][-1]


def test_without_credentials_only_loopback_is_served(folder):
    nodes = ["--nnodes", 2, "--num-shard", 2, "--master-addr"]
    serve = [BIN / "model-server", "serve", DEMO]
    for argv in [
        [BIN / "launcher", "--model-id", DEMO, *nodes, "10.1.2.3"],
        [BIN / "launcher", "--model-id", DEMO, *nodes, "node0"],
        [BIN / "launcher", "--model-id", DEMO, "--speculate", 2, "--draft-shard-uds-path", "tcp://10.1.2.3:99"],
        [*serve, "--nnodes", 2, "--world-size", 2, "--master-addr", "10.1.2.3"],
        [*serve, "--uds-path", "tcp://0.0.0.0:0"],
        [*serve, "--uds-path", "tcp://[::]:0"],
        [BIN / "router", "--tokenizer-name", DEMO, "--port", 0, "--master-shard-uds-path", "tcp://10.1.2.3:99"],
    ]:
        said = last_line(argv)
        for flag in ("--cluster-cert", "--cluster-key", "--cluster-ca", "--cluster-secret-file"):
            assert flag in said, (argv, said)


def test_files_that_protect_nothing_are_refused(folder, ours, member):
    serve = [BIN / "model-server", "serve", DEMO, "--uds-path", folder / "s"]
    other = Member(folder, "other", authority(folder, "somebody"))
    nameless = Member(folder, "nameless", ours, name=None)
    loose_key = Member(folder, "loose", ours)
    loose_key.key.chmod(0o644)
    for args, words in [
        (["--cluster-secret-file", secret_file(folder, mode=0o644, name="loose")], "others may use it (mode 644)"),
        (["--cluster-secret-file", secret_file(folder, "short", name="short")], "5 bytes, a secret has 16 to 4096"),
        (["--cluster-secret-file", folder / "missing"], "No such file"),
        (["--cluster-cert", member.cert], "all three are needed"),
        ([*member.args, "--cluster-secret-file", secret_file(folder, name="third")], "give one of them"),
        ([*member.args[:4], "--cluster-ca", other.ca], "--cluster-ca"),
        ([*member.args[:2], "--cluster-key", other.key, *member.args[4:]], "--cluster-key"),
        (nameless.args, "no DNS name"),
        (loose_key.args, "others may use it (mode 644)"),
    ]:
        assert words in last_line([*serve, *args], 66 if words == "No such file" else 78), args


def test_a_group_may_read_the_secret(folder):
    path = secret_file(folder, mode=0o640, name="group")
    p = Process([BIN / "model-server", "serve", DEMO, "--uds-path", "tcp://127.0.0.1:0", "--cluster-secret-file", path])
    p.wait_log("shard ready")
    p.stop()
