"""Requests that two readers could take for different ones, at the level of bytes: framings, line ends, hosts, chunks, upgrades.
What a proxy in front may read otherwise is refused, and no answer is ever given to what was a body."""

import json
import re
import shutil
import socket
import ssl
import time

import pytest
import requests
from serving import DEMO, SLOW, Service
from test_tls import Secure, certificate

BODY = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 2}}).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


class Plain(Service):
    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port))


@pytest.fixture(scope="module")
def s():
    with Plain(DEMO) as service:
        service.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 2}})
        yield service


def post(head, body=BODY, version=b"1.1", path=b"/generate"):
    return b"POST %s HTTP/%s\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n%s" % (path, version, head, body)


def chunks(body=BODY, extension=b"", trailers=b""):
    return b"%x%s\r\n%s\r\n0\r\n%s\r\n" % (len(body), extension, body, trailers)


def send_in_pieces(c, data, pieces):
    """`pieces` sends that the server reads apart; a server that has closed is the end of it."""
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    cuts = [len(data) * k // pieces for k in range(pieces + 1)]
    try:
        for start, end in zip(cuts, cuts[1:]):
            c.sendall(data[start:end])
            time.sleep(0.002 if pieces > 1 else 0)
    except OSError:
        pass


def talk(s, data, enough=1, seconds=15, pieces=1):
    """(statuses, closed by the server): until `enough` final answers and their bodies came, or the end."""
    got, end = b"", time.monotonic() + seconds * SLOW
    with s.connect() as c:
        c.settimeout(0.3)
        send_in_pieces(c, data, pieces)
        while time.monotonic() < end:
            try:
                more = c.recv(65536)
            except TimeoutError:
                if len(statuses(got)) >= enough:
                    return statuses(got), False
                continue
            except (ConnectionResetError, ssl.SSLEOFError):
                return statuses(got), True
            if not more:
                return statuses(got), True
            got += more
    return statuses(got), False


def statuses(got):
    return [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d+) ", got)]


def serves(s):
    assert talk(s, b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[0] == [200]


def folded(head, body, fold):
    return post(head.replace(b"~", b"\r\n" + fold), body + SMUGGLED)


# Each line is folded with a blank and with a tab. The smuggled request stands where a reader that does not join lines, or
# joins them otherwise, sees the end of the body.
FOLDED = {
    "the length": (b"Content-Length:~%d\r\n" % len(BODY), BODY),
    "the length, behind a blank": (b"Content-Length: ~%d\r\n" % len(BODY), BODY),
    "the length, twice": (b"Content-Length:~~%d\r\n" % len(BODY), BODY),
    "the length, in its digits": (b"Content-Length: %d~%d\r\n" % divmod(len(BODY), 10), BODY),
    "an empty line behind the length": (b"Content-Length: %d~\r\n" % len(BODY), BODY),
    "another length behind the length": (b"Content-Length: %d~,0\r\n" % len(BODY), BODY),
    "the coding": (b"Transfer-Encoding:~chunked\r\n", chunks()),
    "the coding, in its name": (b"Transfer-Encoding: chun~ked\r\n", chunks()),
    "an empty line behind the coding": (b"Transfer-Encoding: chunked~\r\n", chunks()),
    "a second coding behind it": (b"Transfer-Encoding: chunked~,identity\r\n", chunks()),
    "length, then coding": (LENGTH + b"Transfer-Encoding:~chunked\r\n", chunks()),
    "coding, then length": (b"Transfer-Encoding:~chunked\r\n" + LENGTH, chunks()),
    "a folded length, then a coding": (b"Content-Length:~3\r\n" + CHUNKED, chunks()),
    "a coding, then a folded length": (CHUNKED + b"Content-Length:~3\r\n", chunks()),
    "both": (b"Content-Length:~3\r\nTransfer-Encoding:~chunked\r\n", chunks()),
    "both, the other way": (b"Transfer-Encoding:~chunked\r\nContent-Length:~3\r\n", chunks()),
    "a length as the rest of another header": (b"X: a~Content-Length: %d\r\n" % len(BODY), BODY),
    "a coding as the rest of another header": (b"X: a~Transfer-Encoding: chunked\r\n" + LENGTH, BODY),
    "another header": (b"X: a~b\r\n" + LENGTH, BODY),
    "the last line": (LENGTH + b"X: a~b\r\n", BODY),
    "the last line, empty": (LENGTH + b"X: a~\r\n", BODY),
    "the line before the length": (b"X:~\r\n" + LENGTH, BODY),
}
REFUSED = {
    **{f"folded: {k}, {name}": folded(*v, fold) for k, v in FOLDED.items() for name, fold in ((" ", b" "), ("tab", b"\t"))},
    "folded: all of the head": b"GET /livez HTTP/1.1\r\nHost:\r\n x\r\nX:\r\n\ty\r\n\r\n" + SMUGGLED,
    "a length with a blank behind it": post(b"Content-Length: %d \r\n" % len(BODY), BODY + SMUGGLED),
    "a length with a point": post(b"Content-Length: %d.0\r\n" % len(BODY), BODY + SMUGGLED),
    "a length with an exponent": post(b"Content-Length: 1e1\r\n", BODY + SMUGGLED),
    "a length of letters of another script": post("Content-Length: ３７\r\n".encode(), BODY + SMUGGLED),
    "a length with obs-text in its name": post(b"Content-Length\xa0: %d\r\n" % len(BODY), BODY + SMUGGLED),
    "a length with obs-text": post(b"Content-Length: \xa0%d\r\n" % len(BODY), BODY + SMUGGLED),
    "a coding with obs-text": post(b"Transfer-Encoding: \x85chunked\r\n", chunks() + SMUGGLED),
    "a coding with a parameter": post(b"Transfer-Encoding: chunked;q=1\r\n", chunks() + SMUGGLED),
    "a coding with a comma behind it": post(b"Transfer-Encoding: chunked,\r\n", chunks() + SMUGGLED),
    "chunked and gzip on two lines": post(CHUNKED + b"Transfer-Encoding: gzip\r\n", chunks() + SMUGGLED),
    "a NUL behind a length": post(b"Content-Length: %d\0\r\n" % len(BODY), BODY + SMUGGLED),
    "a NUL and more behind a length": post(b"Content-Length: %d\x001\r\n" % len(BODY), BODY + SMUGGLED),
    "a NUL before a length": post(b"Content-Length: \0%d\r\n" % len(BODY), BODY + SMUGGLED),
    "a NUL in a name": post(b"X\0Y: a\r\n" + LENGTH, BODY + SMUGGLED),
    "a NUL before the colon": post(b"Content-Length\0: %d\r\n" % len(BODY), BODY + SMUGGLED),
    "a NUL behind a coding": post(b"Transfer-Encoding: chunked\0\r\n", chunks() + SMUGGLED),
    "NULs as a line end": post(b"X: a\0\0Content-Length: 3\r\n" + LENGTH, BODY + SMUGGLED),
    "a NUL in another header": post(b"X: a\0b\r\n" + LENGTH, BODY + SMUGGLED),
    "a NUL in the target": b"GET /livez\0/x HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a bare line feed behind the length": post(LENGTH[:-2] + b"\n", BODY + SMUGGLED),
    "a bare line feed before the length": post(b"X: a\n" + LENGTH, BODY + SMUGGLED),
    "a bare line feed behind the coding": post(b"Transfer-Encoding: chunked\n", chunks() + SMUGGLED),
    "a bare carriage return behind the length": post(LENGTH[:-2] + b"\rX: a\r\n", BODY + SMUGGLED),
    "a bare carriage return behind the coding": post(b"Transfer-Encoding: chunked\rX: a\r\n", chunks() + SMUGGLED),
    "two carriage returns behind the length": post(LENGTH[:-2] + b"\r\r\n", BODY + SMUGGLED),
    "a carriage return, then the length": post(b"X: a\r" + LENGTH, BODY + SMUGGLED),
    "bare line feeds alone": post(LENGTH).replace(b"\r\n", b"\n") + SMUGGLED.replace(b"\r\n", b"\n"),
    "a bare line feed as the empty line": post(LENGTH).replace(b"\r\n\r\n", b"\r\n\n") + SMUGGLED,
    "a bare line feed behind the first line": b"GET /livez HTTP/1.1\nHost: x\r\n\r\n" + SMUGGLED,
    "a bare carriage return behind the first line": b"GET /livez HTTP/1.1\rHost: x\r\n\r\n" + SMUGGLED,
    "two blanks in the first line": b"GET  /livez HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a blank behind the version": b"GET /livez HTTP/1.1 \r\nHost: x\r\n\r\n" + SMUGGLED,
    "a tab in the first line": b"GET\t/livez HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a tab in the target": b"GET /livez\tx HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "chunks in HTTP/1.0, and a length": post(CHUNKED + LENGTH, chunks() + SMUGGLED, version=b"1.0"),
    "the whole URI and both framings": post(LENGTH + CHUNKED, chunks() + SMUGGLED, path=b"http://x/generate"),
    "a folded length under the whole URI": post(b"Content-Length:\r\n 3\r\n", BODY + SMUGGLED, path=b"http://x/generate"),
    "a length in a GET, folded": b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "a coding in a GET, folded": b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
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
    "HTTP/1.": b"GET /livez HTTP/1.\r\nHost: x\r\n\r\n",
    "HTTP/1.x": b"GET /livez HTTP/1.x\r\nHost: x\r\n\r\n",
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


@pytest.mark.parametrize("what", [w for w in REFUSED if len(REFUSED[w]) < 2000])
def test_refused_in_pieces(s, what):
    """What is read at once, and what is not, makes no difference; nor does a plain request in front on the connection."""
    first = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    for data, pieces, ahead in ((REFUSED[what], 23, []), (first + REFUSED[what], 7, [200])):
        got, closed = talk(s, data, enough=4, pieces=pieces)
        assert got[: len(ahead)] == ahead and closed, (what, got, closed)
        assert set(got[len(ahead) :]) <= {400, 413, 431, 505}, (what, got)
    serves(s)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificates")
    with Secure(*certificate(tmp_path_factory.mktemp("tls"), "hostile")) as service:
        yield service


@pytest.mark.parametrize("what", [w for w in REFUSED if w.startswith("folded")] + ["a NUL and more behind a length"])
def test_refused_through_tls(tls, what):
    got, closed = talk(tls, REFUSED[what], enough=3)
    assert got and set(got) <= {400} and closed, (what, got, closed)


def test_understood_through_tls(tls):
    for what in ("a length", "chunks", "the whole URI"):
        data, want = UNDERSTOOD[what]
        assert talk(tls, data)[0] == want


UNDERSTOOD = {
    "a length": (post(LENGTH), [200]),
    "chunks": (post(CHUNKED, chunks()), [200]),
    "codings in any case": (post(b"transfer-ENCODING: Chunked\r\n", chunks()), [200]),
    "extensions": (post(CHUNKED, chunks(extension=b';a=b;c="d"')), [200]),
    "trailers": (post(CHUNKED, chunks(trailers=b"X-T: 1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n")), [200]),
    "a length, then another request": (post(LENGTH) + SMUGGLED, [200, 404]),
    "chunks, then another request": (post(CHUNKED, chunks()) + SMUGGLED, [200]),  # closed: see below
    "blanks around values": (post(b"X:\t a b \r\nContent-Length:\t%d\r\n" % len(BODY)), [200]),
    "empty values": (post(b"X:\r\nY: \r\n" + LENGTH + b"Z:\r\n"), [200]),
    "text in any script": (post(b"X: \xe9\xff\xc3\xa9\r\n" + LENGTH), [200]),
    "cookies and arguments": (post(b'Cookie: a=b; c="d"\r\n' + LENGTH, path=b"/generate?a=b&c=%20d"), [200]),
    "long headers": (post(b"X: " + b"a" * 9000 + b"\r\n" + LENGTH), [200]),
    "many headers": (post(b"".join(b"X-%d: a\r\n" % k for k in range(60)) + LENGTH), [200]),
    "empty lines in front": (b"\r\n\r\n" + post(LENGTH), [200]),
    "100-continue": (post(LENGTH + b"Expect: 100-continue\r\n"), [100, 200]),
    "100-continue of nothing": (post(LENGTH + b"Expect: 100-continue\r\n", path=b"/nowhere"), [404]),
    "100-continue of too much": (post(b"Content-Length: 90000000\r\nExpect: 100-continue\r\n", b""), [413]),
    "HTTP/1.0": (post(LENGTH, version=b"1.0"), [200]),
    "HTTP/1.0 without a host": (b"GET /livez HTTP/1.0\r\n\r\n", [200]),
    "HTTP/1.0 that stays": (post(LENGTH + b"Connection: keep-alive\r\n", version=b"1.0"), [200]),
    "HTTP/1.0 and a stream": (post(LENGTH, version=b"1.0", path=b"/generate_stream"), [200]),
    "HTTP/1.2 is read as 1.1": (post(CHUNKED, chunks(), version=b"1.2"), [200]),
    "HTTP/1.9 stays as 1.1 does": (post(LENGTH, version=b"1.9") + SMUGGLED, [200, 404]),
    "HTTP/2.0": (b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n", [505]),
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


def test_understood_in_pieces(s):
    for what in UNDERSTOOD:
        data, want = UNDERSTOOD[what]
        if len(data) < 20_000 and 101 not in want:
            got, _ = talk(s, data, enough=len(want), pieces=29)
            assert [x for x in got if x != 100] == [x for x in want if x != 100], (what, got)
    serves(s)


def test_nothing_behind_chunks_is_a_request(s):
    """Line ends inside chunked bodies are read leniently, so that the connection ends with the answer, and says so."""
    with s.connect() as c:
        c.settimeout(20 * SLOW)
        c.sendall(post(CHUNKED, chunks()) + SMUGGLED)
        got = b""
        while more := c.recv(65536):
            got += more
    assert statuses(got) == [200] and b"\r\nconnection: close\r\n" in got.lower()


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
