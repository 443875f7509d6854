"""A small Hugging Face hub on a local port: repositories from a dictionary, and its ways of failing.

    with Hub({"org/name": {"config.json": b"..."}}) as hub:
        env = {"HF_ENDPOINT": hub.url}

Large files ("*.safetensors", "*.gguf") are redirected to a second port, as the hub redirects to its CDN. Every request is kept."""

import hashlib
import http.server
import json
import ssl
import threading
import urllib.parse

LARGE = (".safetensors", ".gguf")


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


class Hub:
    def __init__(self, repos, commit="c" * 40, api_tls=None, cdn_tls=None):
        self.repos, self.commit = repos, commit
        self.tls = {"api": api_tls, "cdn": cdn_tls}  # (certificate, key) of each
        self.token = None  # a request without it gets 401
        self.gated = False
        self.requests = []  # (server, method, path, headers)
        self.break_after = {}  # file -> how many bytes each answer of the CDN may have
        self.wrong = {}  # file -> how many answers have a wrong byte
        self.no_ranges = False
        self.busy = 0  # so many requests of the API get 429
        self.hold = threading.Event()  # while clear, bodies of the CDN stop half way
        self.hold.set()
        self.held = threading.Event()

    def __enter__(self):
        self.api = _Server(("127.0.0.1", 0), self._handler("api"))
        self.cdn = _Server(("127.0.0.1", 0), self._handler("cdn"))
        for name, s in (("api", self.api), ("cdn", self.cdn)):
            if self.tls[name]:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*self.tls[name])
                s.socket = context.wrap_socket(s.socket, server_side=True)
        self.url = f"http{'s' * bool(self.tls['api'])}://127.0.0.1:{self.api.server_port}"
        self.cdn_url = f"http{'s' * bool(self.tls['cdn'])}://127.0.0.1:{self.cdn.server_port}"
        for s in (self.api, self.cdn):
            threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.hold.set()
        for s in (self.api, self.cdn):
            s.shutdown()
            s.server_close()

    def of(self, server, method=None):
        return [r for r in self.requests if r[0] == server and method in (None, r[1])]

    def _handler(hub, server):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for k, v in headers.items():
                    self.send_header(k.replace("_", "-"), v)
                if "Content_Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def refused(self):
                if hub.gated:
                    self.answer(403, X_Error_Code="GatedRepo", X_Error_Message="Access to it is restricted")
                elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                    self.answer(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
                else:
                    return False
                return True

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                hub.requests.append((server, self.command, self.path, dict(self.headers)))
                path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path).strip("/")
                getattr(self, server)(path)

            def api(self, path):
                if self.refused():
                    return
                if path.startswith("api/models/"):
                    if hub.busy:
                        hub.busy -= 1
                        return self.answer(429)
                    repo, _, revision = path.removeprefix("api/models/").partition("/revision/")
                    if repo not in hub.repos:
                        return self.answer(404, X_Error_Code="RepoNotFound")
                    if revision not in ("main", "v1", hub.commit):
                        return self.answer(404, X_Error_Code="RevisionNotFound")
                    names = [{"rfilename": n} for n in hub.repos[repo]]
                    return self.answer(200, json.dumps({"id": repo, "sha": hub.commit, "siblings": names}).encode())
                repo, _, rest = path.partition("/resolve/")
                name = rest.partition("/")[2]
                if repo not in hub.repos or name not in hub.repos[repo]:
                    return self.answer(404, X_Error_Code="EntryNotFound")
                data = hub.repos[repo][name]
                common = {"X_Repo_Commit": hub.commit}
                if name.endswith(LARGE):
                    sha = hashlib.sha256(data).hexdigest()
                    where = f"{hub.cdn_url}/{repo}/{name}?signature=x"
                    return self.answer(302, Location=where, X_Linked_Etag=f'"{sha}"', X_Linked_Size=str(len(data)), **common)
                self.answer(200, data, ETag=f'"{git_sha1(data)}"', **common)

            def cdn(self, path):
                repo = next(r for r in sorted(hub.repos, key=len, reverse=True) if path.startswith(f"{r}/"))
                name = path.removeprefix(f"{repo}/")
                data, start, status, extra = hub.repos[repo][name], 0, 200, {}
                if hub.wrong.get(name, 0) > 0:
                    hub.wrong[name] -= 1
                    data = b"?" + data[1:]
                asked = self.headers.get("Range")
                if asked and not hub.no_ranges:
                    start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
                    extra["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                body = data[start:]
                self.answer(status, Content_Length=str(len(body)), ETag='"of-the-cdn"', **extra)
                if self.command == "HEAD":
                    return
                limit = hub.break_after.get(name, len(body))
                self.wfile.write(body[: min(limit, len(body) // 2)])
                if not hub.hold.is_set():
                    hub.held.set()
                    hub.hold.wait()
                self.wfile.write(body[min(limit, len(body) // 2) : limit])
                if limit < len(body):
                    self.close_connection = True

        return Handler
