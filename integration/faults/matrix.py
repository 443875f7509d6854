"""Every fault in every phase of a service, on the demo model: what clients get, how it ends, what is left. `make faults`.

    python integration/faults/matrix.py [--write docs/results/faults.md] [--only WORD]

One launch for each cell: two shards, a model on demand (two more), a draft model, the router. A cell is good when each request was
answered as without the fault, or ended with its protocol's error, or, where the router itself is the victim, with its connection; when
every later request is served, or the service has ended with the exit code that says so; and when nothing is left."""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Service

FAULTS = [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]
VICTIMS = ["shard 0", "shard 1", "on demand", "draft", "router", "launcher"]
PHASES = ["loading", "idle", "prefill", "decode", "draining"]
PATIENCE_S = 60  # after which something is frozen
FIRST = ("/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 500, "ignore_eos": True}})
OTHER = ("/v1/completions", {"model": "one", "prompt": "The cat", "stream": True, "ignore_eos": True, "max_tokens": 500, "temperature": 0})
PROMPT = "One day the cat went to the river. " * 60


def prompts():
    """Long prompts, short answers."""
    for i in range(3):
        yield "/generate_stream", {"inputs": f"{i} {PROMPT}", "parameters": {"max_new_tokens": 20, "ignore_eos": True}}
        yield "/v1/completions", {**OTHER[1], "prompt": f"{i} {PROMPT}", "max_tokens": 20}


def text_of(event):
    return event["choices"][0]["text"] if "choices" in event else event["token"]["text"]


class Stream(threading.Thread):
    """One request; afterwards `end` is "served", "error: ...", "closed", "refused" or "frozen"."""

    def __init__(self, s, ask):
        super().__init__(daemon=True)
        self.url, self.body = s.url + ask[0], ask[1]
        self.text, self.pause, self.end, self.n = "", 0, "frozen", 0
        self.start()

    def run(self):
        try:
            self.end = self.read()
        except requests.Timeout:
            pass
        except requests.ConnectionError:
            self.end = "closed" if self.n else "refused"
        except (requests.RequestException, OSError):
            self.end = "closed"

    def read(self):
        last, over = time.monotonic(), False
        with requests.post(self.url, json=self.body, stream=True, timeout=PATIENCE_S) as r:
            if r.status_code != 200:
                return f"error: {r.status_code} {self.kind(r.json())}"
            for line in r.iter_lines():
                if not line.startswith(b"data:"):
                    continue
                self.pause, last = max(self.pause, time.monotonic() - last), time.monotonic()
                if line[5:].strip() == b"[DONE]":
                    return "served"
                event = json.loads(line[5:])
                if "error" in event:
                    return f"error: {self.kind(event)}"
                self.text += text_of(event)
                self.n += 1
                over = over or bool(event.get("generated_text"))
        return "served" if over else "closed"

    @staticmethod
    def kind(event):
        e = event["error"]
        return event.get("error_type") or (e.get("type") if isinstance(e, dict) else str(e)[:40])


def wait(what, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Cell:
    def __init__(self, folder, victim, fault, phase, want):
        self.victim, self.fault, self.phase, self.want = victim, fault, phase, want
        self.bad, self.said = [], []
        args = ["--models-folder", folder, "--draft-model-id", DEMO, "--kv-cache-memory", "5e7", "--draft-kv-cache-memory", "5e7"]
        args += ["--threads", 1, "--graceful-termination-timeout", 20]
        self.seen = set()
        self.s = Service(DEMO, 2, args=args, ready=False)

    # ------------------------------------------------------------ processes
    def find(self):
        for pid in self.s.children():
            self.seen.add(pid)
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                rank = next((v[5:] for v in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if v.startswith(b"RANK=")), b"")
                name = pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name
                at = words[words.index(b"--uds-path") + 1].decode() if b"--uds-path" in words else ""
                who = {"shard": f"shard {rank.decode()}", "shard-m0": "on demand", "shard-draft": "draft"}.get(pathlib.Path(at).name)
                who = "router" if name == "router" else who
                if who == self.victim and (who != "on demand" or rank == b"1"):
                    return pid
        return self.s.p.pid if self.victim == "launcher" else None

    def strike(self):
        if not wait(self.find):
            self.bad.append(f"no {self.victim}")
            return
        self.struck = self.find()
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(self.struck, self.fault)

    # ------------------------------------------------------------ phases
    def ready(self):
        def up():
            with contextlib.suppress(requests.RequestException):
                return requests.get(self.s.url + "/health", timeout=2).status_code == 200
            return not self.s.alive()

        return wait(up) and self.s.alive()

    def warm(self):
        """Everything is loaded, and drafts are made."""
        if not self.ready():
            self.bad.append("not ready")
        self.ask([OTHER])
        self.drafts()
        self.find()

    def drafts(self):
        def works():
            with contextlib.suppress(requests.RequestException):
                return self.s.metric("tgi_draft_model") == 1
            return True

        return wait(works)

    def ask(self, what):
        """Streams that have begun."""
        streams = [Stream(self.s, a) for a in what]
        if not wait(lambda: all(x.n or not x.is_alive() for x in streams)):
            self.bad.append("no first token")
        return streams

    def loading(self):
        if self.victim == "on demand":
            self.ready()
            streams = [Stream(self.s, OTHER)]
            self.strike()
        else:
            wait(lambda: self.s.children())
            self.strike()
            if self.victim == "launcher" and self.fault == signal.SIGSTOP:
                time.sleep(2)  # no other request would start the rest
                os.kill(self.s.p.pid, signal.SIGCONT)
            streams = [Stream(self.s, FIRST)] if self.ready() else []
        return streams

    def idle(self):
        self.warm()
        self.strike()
        return []

    def prefill(self):
        self.warm()
        streams = [Stream(self.s, a) for a in prompts()]
        wait(lambda: (self.s.metric("tgi_queue_size") or 0) + (self.s.metric("tgi_batch_current_size") or 0) > 0 or not any(x.is_alive() for x in streams), 5)
        self.strike()
        return streams

    def decode(self):
        self.warm()
        streams = self.ask([FIRST, OTHER])
        self.strike()
        return streams

    def draining(self):
        self.warm()
        streams = self.ask([FIRST, OTHER])
        self.s.p.send_signal(signal.SIGTERM)
        self.s.wait_log("Terminating webserver")
        self.strike()
        return streams

    def reference(self):
        """What everybody is to be told."""
        self.warm()
        streams = self.ask([FIRST, OTHER, *prompts()])
        self.judge(streams)
        assert not self.bad and self.said[0] == "served", (self.bad, self.said)
        self.s.stop()

    # ------------------------------------------------------------ verdict
    def run(self):
        try:
            streams = getattr(self, self.phase)()
            self.judge(streams)
            self.afterwards()
            self.finish()
        finally:
            for pid in [self.s.p.pid, *self.seen]:
                if pid != self.s.p.pid and not self.ours(pid):
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.s.p.wait()
            shutil.rmtree(self.s.folder, ignore_errors=True)

    def ours(self, pid):
        with contextlib.suppress(OSError):
            return str(self.s.folder).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def stands(self, pid):
        """Is it there, and stopped?"""
        with contextlib.suppress(OSError):
            return self.ours(pid) and pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
        return False

    def judge(self, streams):
        for x in streams:
            x.join(PATIENCE_S + 5)
        ends = [x.end for x in streams]
        for x in streams:
            key = json.dumps(x.body, sort_keys=True)
            if x.end == "served" and x.text != (self.want.setdefault(key, x.text) if self.phase == "reference" else self.want[key]):
                self.bad.append("another text")
            if x.end == "frozen" or (x.end == "closed" and self.victim not in ("router", "launcher")):
                self.bad.append(x.end)
        for end in sorted(set(ends)):
            n = ends.count(end)
            self.said.append(end + (f" ({n} of {len(ends)})" if n < len(ends) else ""))
        pauses = [x.pause for x in streams if x.end == "served"]
        if pauses and max(pauses) >= 0.5:
            self.said.append(f"pause {max(pauses):.1f} s")

    def over_soon(self):
        """Does the service end by this?"""
        if self.phase == "draining" or (self.victim in ("router", "launcher") and self.fault != signal.SIGSTOP):
            return True
        return not self.s.alive()

    def afterwards(self):
        """A new request is served, unless the service ends."""
        stopped = self.victim == "launcher" and self.fault == signal.SIGSTOP
        if not self.over_soon():
            if self.fault == signal.SIGSTOP and not stopped and not wait(lambda: not self.stands(self.struck) or not self.s.alive()):
                self.bad.append("still frozen")
            # a start that failed ends the service a moment later
            if not wait(lambda: not self.s.alive(), 1):
                self.served()
        if stopped:
            os.kill(self.s.p.pid, signal.SIGCONT)

    def served(self):
        again = [Stream(self.s, FIRST), Stream(self.s, OTHER)]
        for x in again:
            x.join(PATIENCE_S + 5)
        ends = [x.end for x in again]
        if ends != ["served", "served"]:
            if not self.s.alive():
                return
            self.bad.append(f"afterwards: {', '.join(ends)}")
        if self.victim == "draft" and not self.drafts():
            self.bad.append("no drafts afterwards")
        self.said.append("then served")

    def finish(self):
        ended = self.over_soon()
        if not ended and self.s.alive():
            self.s.p.send_signal(signal.SIGTERM)
        if not wait(lambda: not self.s.alive()):
            self.bad.append("does not end")
            return
        code = self.s.p.returncode
        lost = any(w.startswith(("error", "closed")) for w in self.said)
        if ended or code:
            self.said.append(f"exit {code}" if code >= 0 else "")
        if code == 0 and lost and self.phase != "loading" or (code and not ended):
            self.bad.append(f"exit code {code}")
        if not wait(lambda: not any(self.ours(p) for p in self.seen), 10):
            self.bad.append("processes left")
        self.leftovers()

    def leftovers(self):
        memory = [p.name for p in pathlib.Path("/dev/shm").glob(f"model-server-{self.s.p.pid}-*")]
        sockets = [p.name for p in self.s.folder.iterdir() if p.name.startswith("shard-")]
        if self.victim == "launcher" and self.fault == signal.SIGKILL:
            self.reuse()
        elif sockets or memory:
            self.bad.append(f"left: {', '.join(sockets + memory)}")

    def reuse(self):
        """Its sockets were not removed: the next launch takes them over, without a wait."""
        log = open(self.s.folder / "again.log", "wb")
        begin = time.monotonic()
        self.s.p = subprocess.Popen(self.s.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if self.ready():
            self.said.append(f"next start {time.monotonic() - begin:.1f} s")
        else:
            self.bad.append("no next start")
        self.find()
        self.s.p.send_signal(signal.SIGTERM)
        self.s.p.wait(PATIENCE_S)


def table(rows):
    out = ["| fault | " + " | ".join(PHASES) + " |", "|---" * (len(PHASES) + 1) + "|"]
    for name, cells in rows.items():
        out.append(f"| {name} | " + " | ".join(cells.get(p, "") for p in PHASES) + " |")
    return "\n".join(out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--write", help="the page between whose `<!-- table -->` lines the table goes")
    p.add_argument("--only", default="", help="cells whose `victim signal phase` holds this")
    a = p.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    (folder / "one").symlink_to(DEMO)
    want, rows, n_bad, n = {}, {}, 0, 0
    Cell(folder, "nobody", 0, "reference", want).reference()
    for victim in VICTIMS:
        for fault in FAULTS:
            for phase in PHASES:
                name = f"{fault.name} of {victim}"
                if a.only not in f"{name} {phase}":
                    continue
                begin = time.monotonic()
                cell = Cell(folder, victim, fault, phase, want)
                try:
                    cell.run()
                except Exception as e:  # a cell that cannot be judged is no good cell
                    cell.bad.append(f"{type(e).__name__}: {e}"[:200])
                text = ", ".join(w for w in cell.said if w) + "".join(f" **{b}**" for b in cell.bad)
                rows.setdefault(name, {})[phase] = text or "nothing to say"
                n, n_bad = n + 1, n_bad + bool(cell.bad)
                print(f"{name:24} {phase:9} {time.monotonic() - begin:5.1f} s  {text}", flush=True)
    shutil.rmtree(folder)
    print(f"{n} cells, {n_bad} not as they should be")
    if a.write:
        page = pathlib.Path(a.write)
        parts = page.read_text().split("<!-- table -->\n")
        for line in parts[1].splitlines()[2:] if a.only else []:  # the rest stays as it was
            name, *cells = [c.strip() for c in line.strip("|").split("|")]
            rows[name] = dict(zip(PHASES, cells)) | rows.get(name, {})
        rows = {n: rows[n] for n in (f"{f.name} of {v}" for v in VICTIMS for f in FAULTS) if n in rows}
        parts[1] = table(rows) + "\n"
        page.write_text("<!-- table -->\n".join(parts))
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
