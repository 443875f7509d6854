"""A router with stand-ins for shards whose speed and acceptance are given (paced_shard.py)."""

import pathlib
import sys
import time

from serving import BIN, DEMO, ROOT, Process, Service, free_port, scratch, wait_for


class Pair:
    """`draft`: how many draft tokens take as long as a step, and the share that is right; None: no draft model."""

    post, events, metric = Service.post, Service.events, Service.metric

    def __init__(self, step_ms, row_ms=0, draft=None):
        self.folder = folder = scratch()
        shard = [sys.executable, ROOT / "integration/shards/paced_shard.py", "--uds-path"]
        served = [folder / "s", "--step-ms", step_ms, "--row-ms", row_ms, "--speculate", 8]
        self.parts = [Process([*shard, *served], folder=folder)]
        port = free_port()
        argv = [BIN / "router", "--tokenizer-name", DEMO, "--port", port, "--hostname", "127.0.0.1"]
        argv += ["--master-shard-uds-path", folder / "s-0"]
        if draft:
            self.draft_argv = [*shard, folder / "d", "--step-ms", step_ms / draft[0], "--right", draft[1]]
            self.start_draft()
            argv += ["--draft-shard-uds-path", folder / "d-0"]
        self.parts[0].wait_log("shard ready")
        self.router = Process(argv, folder=folder)
        self.parts.insert(0, self.router)
        self.url = f"http://127.0.0.1:{port}"
        self.router.wait_log("Connected")
        if draft:
            wait_for(self.drafts, 30)

    def start_draft(self):
        self.draft = Process(self.draft_argv, folder=self.folder)
        self.draft.wait_log("shard ready")
        self.parts.append(self.draft)

    def drafts(self):
        return self.metric("tgi_draft_model") == 1

    def waits(self, outcome):
        return self.metric("tgi_draft_waits", outcome=outcome) or 0

    def between_calls(self):
        """Seconds from an answer of the draft model to the next call: what its calls cost beside its own time."""
        return float(self.draft.log.rpartition("between calls: ")[2].split()[0]) / 1000

    def answer(self, tokens):
        """Its tokens, and tokens/s from the first to the last."""
        body = {"inputs": "Once", "parameters": {"max_new_tokens": tokens, "details": True, "ignore_eos": True}}
        ids, times = [], []
        for e in self.events("/generate_stream", body):
            ids.append(e["token"]["id"])
            times.append(time.monotonic())
        return ids, (len(times) - 1) / (times[-1] - times[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.parts:
            if p.alive():
                p.stop()
