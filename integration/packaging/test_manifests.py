"""Files in docker/ except the chart (test_chart.py) and the running image (test_image.py): they parse, and the names in them exist."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import requests
import yaml
from serving import BIN, ROOT, Process, free_port, scratch, wait_for

DOCKER = ROOT / "docker"
DASHBOARD = DOCKER / "chart/dashboard.json"


def options(program):
    page = subprocess.run([BIN / program, "--help-markdown"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"`--([a-z0-9-]+)`", page)), set(re.findall(r"\| `([A-Z][A-Z0-9_]+)` \|", page))


def exprs(panels):
    for p in panels:
        for t in p.get("targets", []):
            yield p["title"], t["expr"]


def test_every_metric_of_the_dashboard_is_served(s):
    dashboard = json.loads((DASHBOARD).read_text())
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", requests.get(s.url + "/metrics", timeout=10).text, re.M))
    used = set()
    for title, expr in exprs(dashboard["panels"]):
        names = re.findall(r"([a-zA-Z_:][\w:]*)\{job=~", expr)
        assert names, (title, expr)
        assert expr.count("(") == expr.count(")")
        for name in names:
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            base = name if name in kinds else base
            assert base in kinds, f"{title}: {name} is not served"
            assert (kinds[base] == "histogram") == (name != base), f"{title}: {name} is a {kinds[base]}"
            assert ("rate(" in expr or "increase(" in expr) == (kinds[base] != "gauge"), f"{title}: {expr}"
            used.add(base)
    ids = [p["id"] for p in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    forgotten = {name for name in kinds if not name.startswith(("vllm:", "llamacpp:"))} - used  # those are the same values once more
    # those that say the same as another, or count what never happens here
    assert forgotten <= {
        "tgi_request_skipped_tokens", "tgi_batch_next_size", "tgi_batch_concat", "tgi_batch_concat_duration",
        "tgi_batch_inference_success", "tgi_batch_filter_duration", "log_lines_dropped_total",
        "tgi_queue_size", "process_virtual_memory_bytes", "process_start_time_seconds",
    }, forgotten  # fmt: skip


class Prometheus(Process):
    """Debian's Prometheus, which scrapes one server every second."""

    def __init__(self, port):
        folder = scratch()
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "llm", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}
        pathlib.Path(folder, "p.yml").write_text(yaml.safe_dump(config))
        argv = ["prometheus", f"--config.file={folder}/p.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self.url[7:]}"]
        super().__init__(argv, folder=folder)

    def ask(self, expr):
        answer = requests.get(self.url + "/api/v1/query", params={"query": expr}, timeout=20).json()
        assert answer["status"] == "success", (expr, answer)
        return answer["data"]["result"]

    def scrapes(self):
        try:
            return int(float(self.ask('count_over_time(up{job="llm"}[1h])')[0]["value"][1]))
        except (requests.RequestException, IndexError):  # it is still starting
            return 0


def test_the_dashboard_in_prometheus(s):
    """Every expression evaluates in a real Prometheus, and has series: a panel without any shows nothing."""
    if not shutil.which("prometheus"):
        pytest.skip("the dashboard is not evaluated without Debian's prometheus")
    p = Prometheus(s.port)
    try:
        wait_for(lambda: p.scrapes() >= 1, 60)
        for _ in range(3):
            s.post("/generate", {"inputs": "Once upon a time, there was a cat.", "parameters": {"max_new_tokens": 20}})
        before = p.scrapes()
        wait_for(lambda: p.scrapes() >= before + 3, 60)
        empty = set()
        for title, expr in exprs(json.loads(DASHBOARD.read_text())["panels"]):
            if not p.ask(expr.replace("$__rate_interval", "1m").replace("$job", "llm")):
                empty.add(title)
        assert empty <= {"Cells of recurrent state"}, empty  # the demo model has none
        up = p.ask('sum(increase({__name__="vllm:generation_tokens_total"}[1m]))')
        assert float(up[0]["value"][1]) > 0
    finally:
        p.stop()


def test_compose():
    doc = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    (server,) = doc["services"].values()
    _, variables = options("launcher")
    assert set(server["environment"]) - {"HF_TOKEN"} <= variables
    assert (DOCKER / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    named = {v.split(":")[0] for v in server["volumes"] if not v.startswith(("$", ".", "/"))}
    assert named == set(doc["volumes"])
    mounts = dict(re.fullmatch(r"(.+):(/\w+)(?::ro)?", v).groups()[::-1] for v in server["volumes"])
    assert server["environment"]["MODEL_ID"] == "${MODEL_ID:-/model}"  # so that MODEL_DIR alone selects a model
    demo = re.fullmatch(r"\$\{MODEL_DIR:-(.+)\}", mounts["/model"]).group(1)
    assert (DOCKER / demo / "config.json").is_file()
    row = re.search(r"`--graceful-termination-timeout`.*", (ROOT / "docs/launcher.md").read_text()).group()
    assert int(server["stop_grace_period"].rstrip("s")) > int(re.search(r"\| (\d+) \|", row).group(1))


def test_the_image_is_built_with_what_the_makefile_installs():
    (build,) = re.findall(r"--no-install-recommends \\\n(.*?)&& rm", (DOCKER / "Dockerfile").read_text(), re.S)
    deb = re.search(r"^DEB       := (.*?)(?<!\\)\n", (ROOT / "Makefile").read_text(), re.S | re.M).group(1)
    assert set(re.findall(r"\S+-dev", deb)) - {"libcmocka-dev"} <= set(build.split())
    control = (ROOT / "debian/control").read_text()
    assert set(re.findall(r"\S+-dev", deb)) - {"libcmocka-dev"} <= set(re.findall(r"^ +(\S+-dev)", control, re.M))
    version = (ROOT / "VERSION").read_text().strip()
    assert (ROOT / "debian/changelog").read_text().startswith(f"headrace ({version}) ")


def test_what_is_in_the_image(slim, tmp_path):
    """Every library of the programs is found among those of the image, by the image's own loader."""
    if not shutil.which("strip"):
        pytest.skip("no strip")
    run = subprocess.run(["sh", DOCKER / "rootfs.sh", slim, tmp_path / "root"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    root = tmp_path / "root"
    libs = root / "usr/lib/x86_64-linux-gnu"
    for program in ("launcher", "router", "model-server"):
        at = root / "usr/libexec/headrace" / program
        found = subprocess.run(
            [root / "lib64/ld-linux-x86-64.so.2", "--inhibit-cache", "--library-path", libs, "--list", at],
            capture_output=True, text=True, check=True).stdout  # fmt: skip
        paths = re.findall(r"=> (\S+) \(", found)
        assert len(paths) > 30 and all(p.startswith(str(root)) for p in paths), found
    assert not [f for f in root.rglob("*") if f.is_symlink() and not f.exists()], "a link that leads nowhere"
    config = (DOCKER / "Dockerfile").read_text()
    for path in re.findall(r"(?<=[\"=])/usr/[\w/.-]+", config):
        assert (root / path[1:]).exists(), path
