"""Requests that two readers could take for different ones, at the level of bytes: framings, line ends, hosts, chunks, upgrades.
What a proxy in front may read otherwise is refused, and no answer is ever given to what was a body."""

import json
import re
import socket
import time

import pytest
import requests
from serving import DEMO, SLOW, Service

BODY = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 2}}).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@pytest.fixture(scope="module")
def s():
    with Service(DEMO) as service:
        service.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 2}})
        yield service


def post(head, body=BODY, version=b"1.1", path=b"/generate"):
    return b"POST %s HTTP/%s\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n%s" % (path, version, head, body)


def chunks(body=BODY, extension=b"", trailers=b""):
    return b"%x%s\r\n%s\r\n0\r\n%s\r\n" % (len(body), extension, body, trailers)


def talk(s, data, enough=1, seconds=15):
    """(statuses, closed by the server): until `enough` final answers and their bodies came, or the end."""
    got, end = b"", time.monotonic() + seconds * SLOW
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.settimeout(0.3)
        c.sendall(data)
        while time.monotonic() < end:
            try:
                more = c.recv(65536)
            except TimeoutError:
                if len(statuses(got)) >= enough:
                    return statuses(got), False
                continue
            except ConnectionResetError:
                return statuses(got), True
            if not more:
                return statuses(got), True
            got += more
    return statuses(got), False


def statuses(got):
    return [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d+) ", got)]


def serves(s):
    assert requests.get(s.url + "/livez", timeout=10 * SLOW).status_code == 200


REFUSED = {
    "both framings": post(LENGTH + CHUNKED, chunks() + SMUGGLED),
    "both, the other way": post(CHUNKED + LENGTH, chunks() + SMUGGLED),
    "a length of 3 in front of chunks": post(b"Content-Length: 3\r\n" + CHUNKED, chunks() + SMUGGLED),
    "two lengths": post(LENGTH + LENGTH, BODY + SMUGGLED),
    "two lengths that differ": post(LENGTH + b"Content-Length: 3\r\n", BODY + SMUGGLED),
    "a list of lengths": post(b"Content-Length: %d, %d\r\n" % (len(BODY), len(BODY)), BODY + SMUGGLED),
    "a signed length": post(b"Content-Length: +%d\r\n" % len(BODY), BODY + SMUGGLED),
    "a negative length": post(b"Content-Length: -1\r\n", BODY + SMUGGLED),
    "a hexadecimal length": post(b"Content-Length: 0x10\r\n", BODY + SMUGGLED),
    "a length and a letter": post(b"Content-Length: %dz\r\n" % len(BODY), BODY + SMUGGLED),
    "an empty length": post(b"Content-Length: \r\n", BODY + SMUGGLED),
    "a length past 64 bits": post(b"Content-Length: 99999999999999999999999\r\n", BODY + SMUGGLED),
    "a tab behind a name": post(b"Content-Length\t: %d\r\n" % len(BODY), BODY + SMUGGLED),
    "a blank behind a name": post(b"Transfer-Encoding : chunked\r\n", chunks() + SMUGGLED),
    "identity": post(b"Transfer-Encoding: identity\r\n" + LENGTH, BODY + SMUGGLED),
    "an unknown coding": post(b"Transfer-Encoding: xchunked\r\n", chunks() + SMUGGLED),
    "two codings": post(b"Transfer-Encoding: gzip, chunked\r\n", chunks() + SMUGGLED),
    "chunked, but not last": post(b"Transfer-Encoding: chunked, identity\r\n", chunks() + SMUGGLED),
    "chunked twice": post(CHUNKED + CHUNKED, chunks() + SMUGGLED),
    "an empty coding": post(b"Transfer-Encoding: \r\n" + LENGTH, BODY + SMUGGLED),
    "a quoted coding": post(b'Transfer-Encoding: "chunked"\r\n', chunks() + SMUGGLED),
    "a vertical tab before a coding": post(b"Transfer-Encoding: \x0bchunked\r\n", chunks() + SMUGGLED),
    "a coding on the next line": post(b"Transfer-Encoding:\r\n chunked\r\n", chunks() + SMUGGLED),
    "chunks in HTTP/1.0": post(CHUNKED, chunks() + SMUGGLED, version=b"1.0"),
    "a carriage return in a value": post(b"X: a\rTransfer-Encoding: chunked\r\n" + LENGTH, BODY + SMUGGLED),
    "an escape in a value": post(b"X: \x1b[31m\r\n" + LENGTH, BODY + SMUGGLED),
    "a blank in front of the first name": b"POST /generate HTTP/1.1\r\n Host: x\r\n" + LENGTH + b"\r\n" + BODY + SMUGGLED,
    "a header without a colon": post(b"garbage\r\n" + LENGTH, BODY + SMUGGLED),
    "a header without a name": post(b": x\r\n" + LENGTH, BODY + SMUGGLED),
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "chunk sizes with 0x": post(CHUNKED, b"0x%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY) + SMUGGLED),
    "chunk sizes with +": post(CHUNKED, b"+%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY) + SMUGGLED),
    "negative chunks": post(CHUNKED, b"-1\r\n%s\r\n0\r\n\r\n" % BODY + SMUGGLED),
    "chunks past 64 bits": post(CHUNKED, b"FFFFFFFFFFFFFFFF1\r\n%s\r\n0\r\n\r\n" % BODY + SMUGGLED),
    "a chunk without a size": post(CHUNKED, b"\r\n%s\r\n0\r\n\r\n" % BODY + SMUGGLED),
    "a chunk longer than its size": post(CHUNKED, b"5\r\n%s\r\n0\r\n\r\n" % BODY + SMUGGLED),
    "a chunk without its line end": post(CHUNKED, b"%x\r\n%s0\r\n\r\n" % (len(BODY), BODY) + SMUGGLED),
    "a line end in an extension": post(CHUNKED, chunks(extension=b";a\nb") + SMUGGLED),
    "20,000 trailers": post(CHUNKED, chunks(trailers=b"X-T: 1\r\n" * 20_000)),
    "HTTP/0.9": b"GET /livez\r\n",
    "HTTP/1.10": b"GET /livez HTTP/1.10\r\nHost: x\r\n\r\n",
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a NUL in the path": b"GET /livez%00.html HTTP/1.1\r\nHost: x\r\n\r\n",
    "a WebSocket without a key": b"GET /lmtp HTTP/1.1\r\n" + UPGRADE + b"\r\n",
    "a WebSocket with half a key": b"GET /lmtp HTTP/1.1\r\n" + UPGRADE + b"Sec-WebSocket-Key: x\r\n\r\n",
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_and_closed(s, what):
    got, closed = talk(s, REFUSED[what], enough=3)  # libmicrohttpd says the head of some refusals twice
    assert got and set(got) <= {400, 413, 431, 505} and closed, (what, got, closed)
    serves(s)


UNDERSTOOD = {
    "a length": (post(LENGTH), [200]),
    "chunks": (post(CHUNKED, chunks()), [200]),
    "codings in any case": (post(b"transfer-ENCODING: Chunked\r\n", chunks()), [200]),
    "extensions": (post(CHUNKED, chunks(extension=b';a=b;c="d"')), [200]),
    "trailers": (post(CHUNKED, chunks(trailers=b"X-T: 1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n")), [200]),
    "chunks, then another request": (post(CHUNKED, chunks()) + SMUGGLED, [200, 404]),
    "100-continue": (post(LENGTH + b"Expect: 100-continue\r\n"), [100, 200]),
    "100-continue of nothing": (post(LENGTH + b"Expect: 100-continue\r\n", path=b"/nowhere"), [404]),
    "100-continue of too much": (post(b"Content-Length: 90000000\r\nExpect: 100-continue\r\n", b""), [413]),
    "HTTP/1.0": (post(LENGTH, version=b"1.0"), [200]),
    "HTTP/1.0 without a host": (b"GET /livez HTTP/1.0\r\n\r\n", [200]),
    "HTTP/1.0 that stays": (post(LENGTH + b"Connection: keep-alive\r\n", version=b"1.0"), [200]),
    "HTTP/1.0 and a stream": (post(LENGTH, version=b"1.0", path=b"/generate_stream"), [200]),
    "100-continue in HTTP/1.0": (post(LENGTH + b"Expect: 100-continue\r\n", version=b"1.0"), [200]),
    "the whole URI": (b"GET http://x/livez HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "an escaped path": (b"GET /live%7a HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "a path that climbs": (b"GET /../livez HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "a path that climbs, escaped": (b"GET /%2e%2e/livez HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "bad escapes": (b"GET /%zz% HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "line ends in a path": (b"GET /v1/models/%0d%0aX:1 HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "an asterisk": (b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "bytes that are no text": (b"GET /l\xffivez HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "h2c is not spoken": (b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", [200]),
    "a WebSocket where none is": (post(LENGTH + UPGRADE[9:] + KEY), [200]),
    "an old WebSocket": (b"GET /lmtp HTTP/1.1\r\n" + UPGRADE.replace(b"13", b"8") + KEY + b"\r\n", [426]),
    "a WebSocket by POST": (b"POST /lmtp HTTP/1.1\r\n" + UPGRADE + KEY + b"Content-Length: 0\r\n\r\n", [405]),
    "a request behind an upgrade": (b"GET /lmtp HTTP/1.1\r\n" + UPGRADE + KEY + b"\r\n" + SMUGGLED, [101]),
}


@pytest.mark.parametrize("what", UNDERSTOOD)
def test_understood(s, what):
    data, want = UNDERSTOOD[what]
    got, _ = talk(s, data, enough=len(want))
    assert got == want, (what, got)
    serves(s)


def test_half_closed_is_gone(s):
    """Who closes its side while it waits is taken to have left; a short answer that is made already is sent."""
    for data, want in [(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", [200]), (post(LENGTH), []), (post(LENGTH)[:-5], [])]:
        with socket.create_connection(("127.0.0.1", s.port)) as c:
            c.settimeout(20 * SLOW)
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
            got = b""
            while more := c.recv(65536):
                got += more
        assert statuses(got) in (want, [200]), (data, got)
    serves(s)


def test_a_line_of_chunks_that_never_ends_is_cut_off(s):
    """An extension longer than the room for heads: what follows is not read, and the connection ends with the body's time."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.settimeout(100 * SLOW)
        c.sendall(post(CHUNKED, b"5;" + b"a" * 50_000))
        try:
            while c.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert time.monotonic() - start < 80 * SLOW
    serves(s)


def test_errors_are_text(s):
    """Messages quote what was sent; cut in the middle of a character they would be no UTF-8."""
    for k in range(3):
        for grammar in ({"type": "a" * k + "é" * 60, "value": 1}, {"type": "a\r\nX: y", "value": 1}):
            r = s.post("/generate", {"inputs": "a", "parameters": {"grammar": grammar}})
            assert r.status_code == 422 and "unknown variant" in r.content.decode() and "\n" not in r.text
