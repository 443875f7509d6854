"""The server as a deployment of Ray Serve: each replica is a launcher, and the queue decides how many there are.

    pip install 'ray[serve]'
    PYTHONPATH=docker/ray serve run headrace_ray:build model=/path/to/checkpoint max_replicas=4

Arguments of `build`: model, launcher (the program; text-generation-launcher), options (more of the launcher's, as on a command line),
min_replicas, max_replicas, cpus and gpus of a replica, waiting_per_replica, kv_usage.

A replica passes every request on to its launcher as it is, and the answer back as it comes. Ray takes a replica out of its list,
waits for its requests, and ends it; the launcher gets SIGTERM and drains as everywhere."""

import asyncio
import math
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import aiohttp
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
# They belong to one connection, and to the length of a body that is passed on in pieces.
OF_A_CONNECTION = {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
OF_RAY = {"x-request-id"}  # its proxy answers with it, too
SERIES = {"waiting": "tgi_queue_size", "kv_usage": "kv_usage"}
STOP_SECONDS = 120
app = FastAPI(docs_url=None, openapi_url=None)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def replicas_wanted(current, waiting, usage, waiting_per_replica, kv_usage):
    """As Kubernetes' autoscaler counts: enough replicas for the queue, and for KV caches that are as full as `kv_usage`. `waiting`
    and `usage` have one number of each replica that has answered; without any, nothing changes."""
    if not waiting:
        return current
    by_queue = math.ceil(sum(waiting) / waiting_per_replica)
    by_cache = math.ceil(current * (sum(usage) / len(usage)) / kv_usage) if usage else 0
    # A queue that is shorter than a replica's share takes no more replicas, and its replicas work.
    return max(1, by_cache, by_queue if by_queue > 1 else 0)


class Policy:
    """For Ray's AutoscalingPolicy: bounds are Ray's business, and so are delays."""

    def __init__(self, waiting_per_replica, kv_usage):
        self.waiting_per_replica, self.kv_usage = waiting_per_replica, kv_usage

    def __call__(self, context):
        of = {name: list((context.aggregated_metrics or {}).get(name, {}).values()) for name in SERIES}
        wanted = replicas_wanted(context.current_num_replicas, of["waiting"], of["kv_usage"], self.waiting_per_replica, self.kv_usage)
        return wanted, {}


@serve.deployment
@serve.ingress(app)
class Headrace:
    def __init__(self, argv, ready_seconds):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-")
        more = ["--port", str(self.port), "--hostname", "127.0.0.1", "--shard-uds-path", f"{self.folder.name}/shard"]
        # HOSTNAME, PORT and their like of Ray's own environment are no options of ours.
        env = {k: v for k, v in os.environ.items() if k not in ("HOSTNAME", "PORT")}
        self.process = subprocess.Popen([*argv, *more], env=env)
        self.client = None
        self.wait_ready(time.monotonic() + ready_seconds)

    def wait_ready(self, end):
        while True:
            self.check_health()
            try:
                with urllib.request.urlopen(self.url + "/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if time.monotonic() > end:
                    self.process.terminate()
                    raise RuntimeError("the launcher was not ready in time")
                time.sleep(0.2)

    def check_health(self):
        """Ray asks every few seconds, and replaces a replica that raises."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the launcher ended with {self.process.returncode}")

    def http(self):
        if self.client is None:  # of the loop that serves
            self.client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0))
        return self.client

    async def record_autoscaling_stats(self):
        """What Policy reads."""
        async with self.http().get(self.url + "/metrics") as answer:
            text = await answer.text()
        found = {name: re.search(rf"^{series} (\S+)$", text, re.M) for name, series in SERIES.items()}
        return {name: float(m.group(1)) for name, m in found.items() if m}

    @app.api_route("/{path:path}", methods=METHODS)
    async def forward(self, request: Request, path: str):
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in OF_A_CONNECTION]
        target = self.url + request.url.path + ("?" + request.url.query if request.url.query else "")
        answer = await self.http().request(request.method, target, headers=headers, data=await request.body(), allow_redirects=False)

        async def body():
            try:
                async for piece in answer.content.iter_any():
                    yield piece
            finally:
                answer.close()  # a client that is gone: the launcher is to stop generating

        kept = {k: v for k, v in answer.headers.items() if k.lower() not in OF_A_CONNECTION | OF_RAY}
        return StreamingResponse(body(), status_code=answer.status, headers=kept)

    async def __del__(self):
        if self.client is not None:
            await self.client.close()
        self.process.terminate()
        try:
            await asyncio.to_thread(self.process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.folder.cleanup()


def build(args):
    """The application: `serve run headrace_ray:build model=... max_replicas=...`."""
    argv = [args.get("launcher", "text-generation-launcher"), "--model-id", args["model"], *shlex.split(args.get("options", ""))]
    ready_seconds = float(args.get("ready_seconds", 1200))
    policy = {"waiting_per_replica": float(args.get("waiting_per_replica", 4)), "kv_usage": float(args.get("kv_usage", 0.8))}
    deployment = Headrace.options(
        # The launcher queues, and refuses when it is full.
        max_ongoing_requests=int(args.get("max_ongoing_requests", 256)),
        autoscaling_config={
            "min_replicas": int(args.get("min_replicas", 1)),
            "max_replicas": int(args.get("max_replicas", 1)),
            "upscale_delay_s": float(args.get("upscale_seconds", 15)),
            "downscale_delay_s": float(args.get("downscale_seconds", 300)),
            "policy": {"policy_function": Policy, "policy_kwargs": policy},
        },
        ray_actor_options={"num_cpus": float(args.get("cpus", 1)), "num_gpus": float(args.get("gpus", 0))},
        graceful_shutdown_timeout_s=STOP_SECONDS,
        health_check_period_s=5,
    )
    return deployment.bind(argv, ready_seconds)
