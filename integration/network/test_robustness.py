"""Broken, hostile or unusual clients with the real programs. Their cost is bounded, their requests are refused with a reason, and other clients are
served meanwhile."""

import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import time
import zlib

import pytest
import requests
from serving import DEMO, SLOW, Service, scratch, wait_for

ONCE = "Once upon a time"
ROUTES = {
    "/": {"inputs": ONCE},
    "/generate": {"inputs": ONCE},
    "/generate_stream": {"inputs": ONCE},
    "/tokenize": {"inputs": ONCE},
    "/v1/completions": {"model": "m", "prompt": ONCE, "max_tokens": 2},
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
    "/v1/messages": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
}


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, args=["--json-output"]) as service:
        yield service


def idle(s):
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and s.metric("tgi_batch_current_size") == 0, 60)


def router(s):
    return next(p for p in s.children() if pathlib.Path(f"/proc/{p}/comm").read_text().strip() == "router")


def rss(s):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{router(s)}/status").read_text()).group(1)) * 1024


def raw(s, data, rcvbuf=None):
    c = socket.socket()
    if rcvbuf:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    c.settimeout(60 * SLOW)
    c.connect(("127.0.0.1", s.port))
    c.sendall(data)
    return c


def post(path, body, id="x"):
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nx-request-id: {id}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def serves(s):
    assert s.post("/generate", {"inputs": ONCE, "parameters": {"max_new_tokens": 2}}).status_code == 200


def say(s, path, text):
    data = text if isinstance(text, bytes) else text.encode()
    return requests.post(s.url + path, data=data, headers={"content-type": "application/json"}, timeout=60 * SLOW)


def test_slow_loris(s):
    """Heads that never end: closed after 30 s, one line each; other clients are served as before."""
    files = len(list(pathlib.Path(f"/proc/{router(s)}/fd").iterdir()))
    slow = [raw(s, f"GET /loris-{i} HTTP/1.1\r\nHost: x\r\n".encode()) for i in range(300)]
    start = time.monotonic()
    for c in slow:
        c.setblocking(False)
    open_ = set(slow)
    while open_ and time.monotonic() < start + 60 * SLOW:
        for c in list(open_):
            try:
                c.sendall(b"a")
                if c.recv(100) == b"":
                    open_.discard(c)
            except BlockingIOError:
                pass
            except OSError:
                open_.discard(c)
        t = time.monotonic()
        assert requests.get(s.url + "/livez", timeout=20 * SLOW).status_code == 200 and time.monotonic() - t < 10 * SLOW
        time.sleep(0.5)
    assert not open_ and time.monotonic() - start > 25
    wait_for(lambda: len(list(pathlib.Path(f"/proc/{router(s)}/fd").iterdir())) <= files + 5)
    serves(s)


def test_a_client_that_stops_reading_is_cut_off(s):
    idle(s)
    before = rss(s)
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 4, "max_tokens": 1900, "ignore_eos": True, "stream": True,
         "logprobs": True, "top_logprobs": 5}
    ).encode()  # fmt: skip
    held = [raw(s, post("/v1/chat/completions", body, f"deaf-{i}"), rcvbuf=4096) for i in range(2)]
    wait_for(lambda: s.log.count("deaf-") == 2, 120)
    idle(s)
    lines = [json.loads(x)["fields"] for x in s.log.splitlines() if "deaf-" in x]
    assert [x["message"] for x in lines] == ["Dropped"] * 2 and all(x["generated_tokens"] < 4 * 1900 for x in lines)
    assert rss(s) - before < 30e6, "2 * 1 MB unread, and what was on its way"
    for c in held:
        c.close()
    serves(s)


@pytest.mark.parametrize("path", ROUTES)
def test_bodies_of_10_mb(s, path):
    big = json.dumps({**ROUTES[path], "x": "y" * 10_000_000}).encode()
    assert say(s, path, big).status_code == 413
    chunked = requests.post(s.url + path, data=iter([big[i : i + 65536] for i in range(0, len(big), 65536)]), headers={"content-type": "application/json"}, timeout=60)
    assert chunked.status_code == 413
    serves(s)


@pytest.mark.parametrize("path", ROUTES)
def test_deep_json(s, path):
    for text in ("[" * 10_000, "[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000):
        assert say(s, path, text).status_code == 400
    deep = json.dumps(ROUTES[path])[:-1] + ',"tools":' + "[" * 900 + "]" * 900 + "}"
    assert say(s, path, deep).status_code in (200, 400, 422)
    serves(s)


@pytest.mark.parametrize("path", ROUTES)
def test_duplicate_keys_are_refused(s, path):
    """A filter in front may take the last of two, and we the first."""
    text = json.dumps(ROUTES[path])
    key, value = next(iter(ROUTES[path].items()))
    r = say(s, path, text[:-1] + f', "{key}": {json.dumps(value)}}}')
    assert r.status_code in (400, 422) and f"duplicate field `{key}`" in r.text


def test_duplicate_keys_below_the_root(s):
    r = say(s, "/generate", '{"inputs": "a", "parameters": {"seed": 1, "seed": 2}}')
    assert r.status_code == 422 and "parameters: duplicate field `seed`" in r.text
    many = '{"inputs": "a", ' + ", ".join(f'"k{i}": 1' for i in range(150_000)) + "}"  # not quadratic
    t = time.monotonic()
    assert say(s, "/generate", many).status_code == 200 and time.monotonic() - t < 5 * SLOW


@pytest.mark.parametrize("number", ["9007199254740993", "18446744073709551616", "1e400", "-1", "1.5", "4294967296", "NaN", "Infinity", "0x10", "01"])
def test_numbers_that_do_not_fit(s, number):
    for path, text in [
        ("/generate", '{"inputs": "a", "parameters": {"max_new_tokens": %s}}'),
        ("/generate", '{"inputs": "a", "parameters": {"max_new_tokens": 1, "top_n_tokens": %s}}'),
        ("/v1/completions", '{"model": "m", "prompt": [%s], "max_tokens": 1}'),
        ("/v1/completions", '{"model": "m", "prompt": "a", "max_tokens": 1, "n": %s}'),
        ("/v1/chat/completions", '{"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "logit_bias": {"%s": 1}}'),
        ("/v1/messages", '{"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": %s}'),
    ]:
        if (path, number) == ("/v1/messages", "-1"):
            continue  # as much as there is room for
        r = say(s, path, text % number)
        assert r.status_code in (400, 422), (path, number, r.text)
        assert r.json()["error"] if r.headers["content-type"] == "application/json" else r.text


def test_large_seeds_are_exact(s):
    for seed in (2**53 + 1, 2**63, 2**64 - 1):
        body = {"inputs": ONCE, "parameters": {"max_new_tokens": 1, "do_sample": True, "seed": seed, "details": True}}
        assert s.post("/generate", body).json()["details"]["seed"] == seed


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\\ud800", b"\0", b"\x01", b"\n"])
@pytest.mark.parametrize("path", ROUTES)
def test_text_that_is_none(s, path, bad):
    text = json.dumps(ROUTES[path]).encode().replace(b"Once", b"On" + bad).replace(b"Hi", b"H" + bad)
    r = say(s, path, text)
    assert r.status_code in (400, 422) and ("surrogate" in r.text) == (bad == b"\\ud800")


NUL = "On\0ce"
TALK = [
    {"role": "user", "content": NUL},
    {"role": "assistant", "content": [{"type": "text", "text": "c\0d"}]},
    {"role": "user", "content": "e"},
]


def tokens_of(s, text, special=False):
    return s.post("/tokenize", {"prompt": text, "add_special_tokens": special}).json()["tokens"]


def test_nuls_in_prompts_are_data(s):
    """An agent sends what it has read from a file, with each later request again."""
    kw = {"max_tokens": 2, "temperature": 0, "return_token_ids": True}
    shown = s.post("/apply-template", {"messages": TALK}).json()["prompt"]
    assert NUL in shown and "c\0d" in shown
    chat = s.post("/v1/chat/completions", {"messages": TALK, **kw}).json()
    assert chat["prompt_token_ids"] == tokens_of(s, shown)
    assert s.post("/v1/completions", {"prompt": NUL, **kw}).json()["choices"][0]["prompt_token_ids"] == tokens_of(s, NUL, True)
    echoed = s.post("/v1/completions", {"prompt": NUL, "echo": True, **kw}).json()["choices"][0]["text"]
    assert echoed.startswith(NUL)
    n = chat["usage"]["prompt_tokens"]
    said = s.post("/v1/messages", {"messages": TALK, "max_tokens": 2}).json()["usage"]
    assert said["input_tokens"] + said["cache_read_input_tokens"] == n
    assert s.post("/v1/responses", {"input": TALK, "max_output_tokens": 2}).json()["usage"]["input_tokens"] == n
    assert s.post("/api/chat", {"model": "m", "messages": [{**m, "content": "c\0d" if m["role"] == "assistant" else m["content"]} for m in TALK], "stream": False}).json()["prompt_eval_count"] == n
    bare = s.post("/generate", {"inputs": NUL, "parameters": {"max_new_tokens": 2, "details": True, "decoder_input_details": True}}).json()
    assert [t["id"] for t in bare["details"]["prefill"]] == tokens_of(s, NUL, True)
    mixed = s.post("/completion", {"prompt": [NUL, 7], "n_predict": 2}).json()
    assert mixed["tokens_evaluated"] == len(tokens_of(s, NUL, True)) + 1


def test_a_nul_elsewhere_is_refused(s):
    for field in ({"stop": "a\0"}, {"user": "\0"}, {"model": "m\0"}, {"tools": [{"type": "function", "function": {"name": "f\0"}}]}):
        r = s.post("/v1/chat/completions", {"messages": TALK, **field})
        assert r.status_code == 400 and "NUL" in r.text


BAD = {"type": "x"}
USER = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    "path, body, named",
    [
        ("/v1/responses", {"input": "x", "tools": [{}]}, "tools"),
        ("/v1/responses", {"input": [{"role": "user"}]}, "input"),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "schema": BAD}}}, "text"),
        ("/v1/chat/completions", {"messages": USER, "response_format": {}}, "response_format"),
        ("/v1/chat/completions", {"messages": USER, "response_format": {"type": "json_object", "schema": BAD}}, "response_format"),
        ("/v1/chat/completions", {"messages": USER, "guided_json": BAD}, "guided_json"),
        ("/v1/chat/completions", {"messages": USER, "grammar": "root ::= nope"}, "grammar"),
        ("/v1/messages", {"max_tokens": 2, "messages": USER, "system": [{}]}, "system"),
        ("/v1/messages", {"max_tokens": 2, "messages": USER, "system": [{"type": "text"}]}, "system"),
        ("/v1/messages", {"max_tokens": 2, "messages": USER, "output_format": BAD}, "output_format"),
        ("/v1/messages", {"max_tokens": 2, "messages": USER, "output_config": {"format": {"type": "json_schema", "schema": BAD}}}, "output_config"),
        ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user"}]}, "messages"),
        ("/api/chat", {"messages": [{}]}, "messages"),
        ("/api/chat", {"messages": USER, "format": BAD}, "format"),
        ("/v2/chat", {"messages": [{}]}, "messages"),
        ("/v2/chat", {"messages": USER, "response_format": {"type": "json_object", "json_schema": BAD}}, "response_format"),
    ],
)
def test_errors_name_the_field(s, path, body, named):
    r = s.post(path, body)
    assert r.status_code == 400 and f"`{named}`" in r.text, r.text
    if "param" in r.json().get("error", ""):
        assert r.json()["error"]["param"] == named


@pytest.mark.parametrize("encoding", ["br", "zstd, gzip", "gzip, identity"])
def test_compressed_bodies_are_refused_by_name(s, encoding):
    body = gzip.compress(json.dumps(ROUTES["/v1/chat/completions"]).encode())
    for data in (body, json.dumps(ROUTES["/v1/chat/completions"]).encode()):
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        r = requests.post(s.url + "/v1/chat/completions", data=data, headers=headers, timeout=60)
        assert r.status_code == 415 and "Content-Encoding" in r.json()["error"]["message"] and r.headers["accept-encoding"] == "gzip, deflate, zstd"
    headers["Content-Encoding"] = "identity"
    assert requests.post(s.url + "/v1/chat/completions", data=data, headers=headers, timeout=60).status_code == 200


def deflated(data, window):
    c = zlib.compressobj(wbits=window)
    return c.compress(data) + c.flush()


def zstd_of(data):
    """One frame with one raw block (RFC 8878): what no library has to make."""
    assert len(data) < 1 << 17
    return b"\x28\xb5\x2f\xfd" + b"\xa0" + len(data).to_bytes(4, "little") + (len(data) << 3 | 1).to_bytes(3, "little") + data


def gzip_bomb(n):
    """One member of n blanks: the blocks of a mebibyte again and again. Its sum at the end is wrong, which only who inflates it all notices."""
    c = zlib.compressobj(9, zlib.DEFLATED, 31)
    begin = c.compress(b"") + c.flush(zlib.Z_FULL_FLUSH)
    block = c.compress(b" " * (1 << 20)) + c.flush(zlib.Z_FULL_FLUSH)
    return begin + block * (n >> 20) + c.flush()


def zstd_bomb(n):
    """A frame with a window of 1 MiB and blocks that repeat one byte 131,072 times: 4 bytes each."""
    size = 1 << 17
    blocks = [(size << 3 | 1 << 1 | (i == n // size - 1)).to_bytes(3, "little") + b" " for i in range(n // size)]
    return b"\x28\xb5\x2f\xfd\x00\x50" + b"".join(blocks)


def test_compressed_bodies(s):
    """gzip, of several members too, deflate with zlib's header and without, and zstd."""
    for path, body in ROUTES.items():
        plain = json.dumps({**body, "pad": " " * 5000}).encode()
        forms = {"gzip": [gzip.compress(plain), gzip.compress(plain[:9]) + gzip.compress(plain[9:])], "deflate": [zlib.compress(plain), deflated(plain, -15)], "zstd": [zstd_of(plain)]}
        for encoding, bodies in forms.items():
            for data in bodies:
                headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
                assert requests.post(s.url + path, data=data, headers=headers, timeout=60).status_code == 200, (path, encoding)


def test_compressed_bodies_that_are_broken_or_a_bomb(s):
    plain = json.dumps(ROUTES["/v1/chat/completions"]).encode()
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    packed = gzip.compress(plain)
    for data in (packed[:-9], packed[:4], b"", plain, packed[:20] + b"????" + packed[24:]):
        r = requests.post(s.url + "/v1/chat/completions", data=data, headers=headers, timeout=60)
        assert r.status_code == 400 and "decompress" in r.json()["error"]["message"], r.text
    bombs = {"gzip": gzip_bomb(1 << 30), "zstd": zstd_bomb(1 << 30)}  # 1 MB and 32 KB that would be 1 GB
    for coding, bomb in bombs.items():
        assert len(bomb) < 2_000_000
        before = rss(s)
        for path, body in (("/v1/chat/completions", lambda r: r.json()["error"]["code"] == "request_too_large"), ("/generate", lambda r: "length limit" in r.text)):
            r = requests.post(s.url + path, data=bomb, headers={**headers, "Content-Encoding": coding}, timeout=60)
            assert r.status_code == 413 and body(r), r.text
        assert rss(s) - before < 200 << 20


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW", "get", "A" * 2000, "G(T"])
def test_methods_that_are_none(s, method):
    c = raw(s, f"{method} /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
    assert re.match(rb"HTTP/1\.[01] (400|405|501) ", c.recv(1000))
    c.close()
    serves(s)


def test_pipelines_of_generations(s):
    body = json.dumps({"inputs": ONCE, "parameters": {"max_new_tokens": 3}}).encode()
    c = raw(s, post("/generate", body) * 5 + post("/generate_stream", body) + post("/generate", b"{") + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    got = b""
    while not got.endswith(b"\r\n\r\n") or got.count(b"HTTP/1.1 ") < 8:
        more = c.recv(65536)
        assert more, got
        got += more
    assert [int(x) for x in re.findall(rb"HTTP/1\.1 (\d+)", got)] == [200] * 6 + [400, 200]
    c.close()


def test_heads_that_are_too_large(s):
    for head in (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"\r\n" * 50_000):  # fmt: skip
        c = raw(s, b"")
        try:
            c.sendall(head)
            c.shutdown(socket.SHUT_WR)
            got = c.recv(100)
            assert got == b"" or re.match(rb"HTTP/1\.[01] (4\d\d|5\d\d) ", got), got
        except OSError:
            pass  # cut off while sending
        c.close()
    serves(s)


def websocket(s, rcvbuf):
    key = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    c = raw(s, key.encode(), rcvbuf)
    assert c.recv(4096).startswith(b"HTTP/1.1 101")
    return c


def frame(opcode, text=""):
    data = text.encode()
    assert len(data) < 126
    return bytes([0x80 | opcode, 0x80 | len(data), 0, 0, 0, 0]) + data


def repeat_unread(c, data, most):
    """Sends until the server takes no more or ends the connection."""
    sent = 0
    c.settimeout(2 * SLOW)
    try:
        while sent < most:
            c.sendall(data)
            sent += len(data)
    except OSError:
        pass


def test_a_websocket_that_is_not_read_has_bounded_memory(s):
    """Answers to empty pings, and items that are asked for again."""
    idle(s)
    before = rss(s)
    with websocket(s, 4096) as c:
        repeat_unread(c, frame(0x9) * 10_000, 20_000_000)
        assert rss(s) - before < 30e6
    with websocket(s, 65536) as c:
        ask = '"stream_id":1,"session":"a","prompt":[1],"max_tokens":900,"logit_bias":{"1":-100},"top_logprobs":9'
        c.sendall(frame(0x1, f"GENERATE {{{ask}}}"))
        tail = b""
        while b'"length"' not in tail:
            more = c.recv(1 << 20)
            assert more
            tail = (tail + more)[-2000:]
        repeat_unread(c, frame(0x1, 'RESUME {"stream_id":1,"session":"a","from":0}'), 100_000)
        assert rss(s) - before < 60e6
    serves(s)


def test_signals_for_other_daemons_end_nothing():
    """Tools that rotate logs send them: the default action would end the process."""
    with Service(DEMO, 2) as s:
        before = sorted(s.children())
        events = s.events("/generate_stream", {"inputs": ONCE, "parameters": {"max_new_tokens": 200, "ignore_eos": True}})
        got = [next(events)]
        for pid in [s.p.pid, *before]:
            for _ in range(100):
                os.kill(pid, signal.SIGUSR1)
                os.kill(pid, signal.SIGUSR2)
        got += events
        assert got[-1]["generated_text"] and sorted(s.children()) == before


@pytest.mark.parametrize("replicas", [1, 2])
def test_sockets_whose_folder_was_removed_cost_no_stream(replicas):
    """As by a cleaner of temporary files: connections go on, and shards that restart make the folder again."""
    ask = "/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 300, "ignore_eos": True}}
    sockets = scratch() / "sockets"
    sockets.mkdir()
    with Service(DEMO, args=["--replicas", replicas, "--shard-uds-path", sockets / "s"]) as s:
        want = list(s.events(*ask))
        wait_for(lambda: s.log.count("launcher: Replica ready") == (replicas if replicas > 1 else 0))
        events = s.events(*ask)
        got = [next(events)]
        shutil.rmtree(sockets)
        before = s.shards()
        os.kill(before[0], signal.SIGKILL)
        got += events
        assert got == want, s.log
        wait_for(lambda: len(s.shards()) == replicas and s.shards() != before)
        wait_for(lambda: os.listdir(sockets))
        assert list(s.events(*ask)) == want
