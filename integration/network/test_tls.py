"""HTTPS: the same server through libmicrohttpd's TLS: replies, event streams, WebSockets, renewal of the certificate."""

import concurrent.futures
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
import warnings

import pytest
import requests
from deep import deep
from serving import BIN, DEMO, SLOW, Service, free_port, wait_for

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
BODY = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20, "ignore_eos": True}}


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


def certificate(folder, name, days=2):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", days),
        *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert),
    )
    return cert, key


class Secure(Service):
    def __init__(self, cert, key, args=(), model=DEMO):
        self.cert = cert
        super().__init__(model, args=["--tls-cert", cert, "--tls-key", key, *args], ready=False)
        self.url = f"https://127.0.0.1:{self.port}"
        self.trust(cert)
        end = time.monotonic() + 60 * SLOW
        while True:
            assert self.alive() and time.monotonic() < end, self.log[-4000:]
            try:
                if self.session.get(self.url + "/health", timeout=5).status_code == 200:
                    return
            except requests.exceptions.SSLError:
                raise
            except (requests.ConnectionError, requests.Timeout):
                pass
            time.sleep(0.05)

    def trust(self, cert):
        self.session = requests.Session()
        self.session.trust_env = False  # a bundle named in the environment would win
        self.session.verify = str(cert)

    def post(self, path, body, **kw):
        return requests.post(self.url + path, json=body, timeout=120 * SLOW, verify=str(self.cert), **kw)

    def metric(self, name, **labels):
        want = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        for line in self.session.get(self.url + "/metrics", timeout=10).text.splitlines():
            if line.startswith(want + " "):
                return float(line.split()[-1])

    def context(self):
        return ssl.create_default_context(cafile=str(self.cert))

    def connect(self):
        c = socket.create_connection(("127.0.0.1", self.port), timeout=20 * SLOW)
        return self.context().wrap_socket(c, server_hostname="127.0.0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def s(folder):
    with Secure(*certificate(folder, "first")) as service:
        yield service


@pytest.fixture(scope="module")
def slow(folder):
    """Slow enough that a test finds its requests still running, on any machine."""
    with Secure(*certificate(folder, "slow"), model=deep(folder / "deep", 60)) as service:
        yield service


def test_replies_and_streams(s):
    whole = s.post("/generate", BODY).json()["generated_text"]
    assert s.connect().version() == "TLSv1.3"

    def stream(_):
        return list(s.events("/generate_stream", BODY))[-1]["generated_text"]

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert set(pool.map(stream, range(72))) == {whole}


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"])
def test_versions(s, version):
    """RFC 8996: nothing below 1.2, though the client offers it with all the ciphers it has."""
    context = s.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    raw = socket.create_connection(("127.0.0.1", s.port), timeout=20 * SLOW)
    if version >= "TLSv1_2":
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as c:
            assert c.version() == version.replace("_", ".")
        return
    with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):  # the server's end, not a client that does not ask
        context.wrap_socket(raw, server_hostname="127.0.0.1")
    raw.close()


@pytest.mark.parametrize("offered", ["h2 http/1.1", "http/1.0", "h2", "acme-tls/1"])
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_protocols(s, version, offered):
    """RFC 7301: HTTP/1 is chosen of what a client offers; where it is not offered, no connection."""
    context = s.context()
    context.maximum_version = ssl.TLSVersion[version]
    context.set_alpn_protocols(offered.split())
    raw = socket.create_connection(("127.0.0.1", s.port), timeout=20 * SLOW)
    if "http/1" in offered:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as c:
            assert c.selected_alpn_protocol() == offered.split()[-1]
            c.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert c.recv(65536).startswith(b"HTTP/1.1 200 ")
        return
    with pytest.raises(ssl.SSLError):  # libmicrohttpd closes without an alert
        context.wrap_socket(raw, server_hostname="127.0.0.1")
    raw.close()


def test_an_sdk(s):
    import httpx
    import openai

    client = openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0, http_client=httpx.Client(verify=s.context()))
    kw = dict(model="m", messages=[{"role": "user", "content": "Hi"}], temperature=0, max_tokens=12)
    whole = client.chat.completions.create(**kw).choices[0].message.content
    parts = [x.choices[0].delta.content or "" for x in client.chat.completions.create(**kw, stream=True) if x.choices]
    assert "".join(parts) == whole


def test_large_bodies_and_pipelines(s):
    long = {"inputs": "the little cat " * 120000, "parameters": {"max_new_tokens": 1}}  # 1.8 MB in many records
    assert s.post("/generate", long).status_code == 422
    c = s.connect()
    c.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 50)  # one record: nothing else will wake the socket
    got = b""
    while got.count(b"HTTP/1.1 200 OK") < 50:
        more = c.recv(65536)
        assert more, got[-300:]
        got += more
    c.close()


def test_responses_over_a_secure_websocket(s):
    from websockets.sync.client import connect

    with connect(f"wss://127.0.0.1:{s.port}/v1/responses", ssl=s.context(), max_size=None) as ws:
        for text in ("Once", "Once upon a time. " * 200, "Once"):  # one through libmicrohttpd's small buffers
            ws.send(json.dumps({"type": "response.create", "input": text, "max_output_tokens": 20}))
            kinds = []
            while not kinds or kinds[-1] not in ("response.completed", "response.incomplete", "error"):
                kinds.append(json.loads(ws.recv(timeout=30 * SLOW))["type"])
            assert kinds[0] == "response.created" or len(text) > 20, kinds
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_lmtp_over_a_secure_websocket(s):
    from websockets.sync.client import connect

    with connect(f"wss://127.0.0.1:{s.port}/lmtp", ssl=s.context(), max_size=None) as ws:
        for stream in range(8):
            ws.send("GENERATE " + json.dumps({"prompt": [1, 30, 31], "max_tokens": 40, "stream_id": stream, "model": str(DEMO)}))
        done, tokens = set(), 0
        while len(done) < 8:
            word, _, rest = ws.recv(timeout=30 * SLOW).partition(" ")
            assert word == "TOKEN"
            for item in json.loads(rest):
                assert "error" not in item, item
                tokens += 1
                if item["finish_reason"]:
                    done.add(item["stream_id"])
        assert tokens >= 8
        big = "GENERATE " + json.dumps({"prompt": [5] * 200000, "max_tokens": 1, "stream_id": 99, "model": str(DEMO)})
        ws.send(big)  # through libmicrohttpd's small buffers
        assert "error" in json.loads(ws.recv(timeout=30 * SLOW).partition(" ")[2])[0]
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
@pytest.mark.parametrize("way", ["close", "reset", "say goodbye"])
def test_whoever_leaves_frees_his_blocks(slow, path, way):
    s = slow
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
    body = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 1500, "ignore_eos": True}}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    c = s.connect()
    steps = s.metric("tgi_batch_inference_count", method="decode") or 0
    c.sendall(head.encode() + body)
    wait_for(lambda: s.metric("kv_blocks", state="used") > 0)
    if way == "reset":
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if way == "say goodbye":
        c.settimeout(0.2)
        try:
            c.unwrap()
        except OSError:
            pass
    c.close()
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
    assert (s.metric("tgi_batch_inference_count", method="decode") or 0) - steps < 1400  # not computed to its end


def test_who_does_not_speak_tls_is_turned_away(s):
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{s.port}/health", timeout=10)
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(b"\x16\x03\x01\xff\xff" + b"\0" * 100)
    c.settimeout(10 * SLOW)
    c.recv(100)
    c.close()
    silent = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(50)]  # and never begin
    assert s.session.get(s.url + "/health", timeout=10).status_code == 200
    for c in silent:
        c.close()


def serial(port):
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))


def test_renewal(folder):
    cert, key = certificate(folder, "old")
    new_cert, new_key = certificate(folder, "new")
    with Secure(cert, key) as s:
        before = serial(s.port)
        body = {"inputs": "Once", "parameters": {"max_new_tokens": 600, "ignore_eos": True}}
        events = s.events("/generate_stream", body)
        next(events)
        key.write_text(new_key.read_text())  # only one of the two: not a pair
        s.p.send_signal(signal.SIGHUP)
        s.wait_log("the certificate was not renewed")
        assert "does not belong" in s.log and serial(s.port) == before
        for round in range(3):
            a, b = certificate(folder, f"round{round}") if round < 2 else (new_cert, new_key)
            cert.write_text(a.read_text())
            key.write_text(b.read_text())
            s.p.send_signal(signal.SIGHUP)
            wait_for(lambda: serial(s.port) == ssl.PEM_cert_to_DER_cert(a.read_text()))
        assert len(list(events)) == 599, "a stream that ran all the while"
        s.session.close()
        s.trust(new_cert)
        assert s.session.get(s.url + "/health", timeout=10).status_code == 200


def refusal(*args, code=78):
    argv = [BIN / "router", "--tokenizer-name", DEMO, "--port", str(free_port()), *map(str, args)]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=30 * SLOW)
    assert p.returncode == code
    return p.stderr.strip()


def test_bad_files_are_refused_by_name(folder):
    cert, key = certificate(folder, "good")
    _, other = certificate(folder, "other")
    garbage = folder / "garbage"
    garbage.write_text("no PEM\n")
    locked = folder / "locked.key"
    openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:x")
    assert refusal("--tls-cert", cert).endswith("`tls_cert` and `tls_key`: one is missing, HTTPS needs both")
    assert f"{folder}/none" in refusal("--tls-cert", folder / "none", "--tls-key", key, code=66)
    assert f"{folder}/none" in refusal("--tls-cert", cert, "--tls-key", folder / "none", code=66)
    assert f"--tls-cert {garbage}: no certificate in PEM" in refusal("--tls-cert", garbage, "--tls-key", key)
    assert f"--tls-key {garbage}: no private key in PEM" in refusal("--tls-cert", cert, "--tls-key", garbage)
    assert "does not belong to the certificate" in refusal("--tls-cert", cert, "--tls-key", other)
    assert "the key is encrypted" in refusal("--tls-cert", cert, "--tls-key", locked)
