"""What docker/ holds, as far as it can be checked without a container engine: it parses, and what it names exists."""

import json
import re
import subprocess

import pytest
import requests
import yaml
from serving import BIN, DEMO, ROOT, Service

DOCKER = ROOT / "docker"


@pytest.fixture(scope="module")
def s():
    with Service(DEMO) as service:
        yield service


def options(program):
    page = subprocess.run([BIN / program, "--help-markdown"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"`--([a-z0-9-]+)`", page)), set(re.findall(r"\| `([A-Z][A-Z0-9_]+)` \|", page))


def exprs(panels):
    for p in panels:
        for t in p.get("targets", []):
            yield p["title"], t["expr"]


def test_every_metric_of_the_dashboard_is_served(s):
    dashboard = json.loads((DOCKER / "grafana/dashboard.json").read_text())
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
    forgotten = {name for name in kinds if not name.startswith("vllm:")} - used  # those are the same values once more
    # those that say the same as another, or count what never happens here
    assert forgotten <= {
        "tgi_request_skipped_tokens", "tgi_batch_next_size", "tgi_batch_concat", "tgi_batch_concat_duration",
        "tgi_batch_inference_success", "tgi_batch_filter_duration", "log_lines_dropped_total",
    }, forgotten  # fmt: skip


def test_kubernetes_manifests(s):
    docs = [d for f in sorted((DOCKER / "kubernetes").glob("*.yaml")) for d in yaml.safe_load_all(f.read_text())]
    assert sorted(d["kind"] for d in docs) == ["Deployment", "PodDisruptionBudget", "Service"]
    pod = next(d for d in docs if d["kind"] == "Deployment")["spec"]["template"]
    (c,) = pod["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert requests.get(s.url + c[probe]["httpGet"]["path"], timeout=10).status_code == 200, probe
        assert c[probe]["httpGet"]["port"] in [p["name"] for p in c["ports"]]
    known, _ = options("launcher")
    assert {a[2:] for a in c["args"] if a.startswith("--")} <= known
    grace = int(c["args"][c["args"].index("--graceful-termination-timeout") + 1])
    sleep = int(c["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] >= grace + sleep + 10
    labels = pod["metadata"]["labels"]
    for d in docs:
        selector = d["spec"]["selector"]
        assert (selector.get("matchLabels") or selector).items() <= labels.items()
    mounts = {m["name"] for m in c["volumeMounts"]}
    assert mounts == {v["name"] for v in pod["spec"]["volumes"]}
    assert c["resources"]["requests"] and c["resources"]["limits"]


def test_compose():
    doc = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    (server,) = doc["services"].values()
    _, variables = options("launcher")
    assert set(server["environment"]) - {"HF_TOKEN"} <= variables
    assert (DOCKER / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    named = {v.split(":")[0] for v in server["volumes"] if not v.startswith(("$", ".", "/"))}
    assert named == set(doc["volumes"])
    row = re.search(r"`--graceful-termination-timeout`.*", (ROOT / "docs/launcher.md").read_text()).group()
    assert int(server["stop_grace_period"].rstrip("s")) > int(re.search(r"\| (\d+) \|", row).group(1))


def test_the_image_has_the_libraries_that_the_programs_need():
    text = (DOCKER / "Dockerfile").read_text()
    build, run = re.findall(r"--no-install-recommends \\\n(.*?)&& rm", text, re.S)
    needed = subprocess.run(["ldd", BIN / "router"], capture_output=True, text=True, check=True).stdout
    direct = subprocess.run(["objdump", "-p", BIN / "router"], capture_output=True, text=True, check=True).stdout
    assert "libgnutls.so.30" in direct and "not found" not in needed
    table = {"libgrpc.so": "libgrpc29", "libprotobuf-c.so": "libprotobuf-c1", "libmicrohttpd.so": "libmicrohttpd12",
             "libgnutls.so": "libgnutls30", "libwslay.so": "libwslay1", "libcjson.so": "libcjson1",
             "libpcre2-8.so": "libpcre2-8-0", "libutf8proc.so": "libutf8proc2", "libsqlite3.so": "libsqlite3-0", "libgpr.so": "libgrpc29"}  # fmt: skip
    for lib in re.findall(r"NEEDED\s+(\S+?\.so)", direct):
        if lib not in ("libc.so", "libm.so", "ld-linux-x86-64.so"):
            assert table[lib] in run, f"{lib} is missing from the image"
    deb = re.search(r"^DEB       := (.*?)(?<!\\)\n", (ROOT / "Makefile").read_text(), re.S | re.M).group(1)
    assert set(re.findall(r"\S+-dev", deb)) - {"libcmocka-dev"} <= set(build.split())
