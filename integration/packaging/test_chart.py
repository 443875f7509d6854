"""The Helm chart: rendered by Helm's code with many values, checked against Kubernetes' schemas and our options."""

import json
import re
import shutil
import subprocess

import pytest
import requests
import yaml
from chart import CHART, helm, one, render
from serving import BIN, DEMO, ROOT, Service

VERSIONS = ("1.30.0", "1.33.0", "1.37.0")
FULL = {
    "gpu": {"enabled": True, "runtimeClassName": "nvidia"},
    "model": {"id": "org/m", "revision": "r", "servedName": "m"},
    "shards": 2,
    "args": ["--max-concurrent-requests=256"],
    "env": [{"name": "LOG_LEVEL", "value": "debug"}],
    "imagePullSecrets": [{"name": "pull"}],
    "cache": {"kind": "claim", "storageClass": "fast"},
    "secrets": {"apiKey": "k", "hfToken": "t"},
    "tls": {"secretName": "cert"},
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "monitoring": {"podMonitor": True, "rules": True, "dashboard": True, "labels": {"release": "p"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]},
    "inferencePool": {"enabled": True, "route": {"enabled": True}},
    "podAnnotations": {"x": "y"},
    "podLabels": {"x": "y"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "extraVolumes": [{"name": "models", "hostPath": {"path": "/models"}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
}
SEVERAL = {"enabled": True, "size": 3, "clusterSecret": "ranks"}
VARIANTS = {
    "as it stands": {},
    "everything": FULL,
    "an existing claim and secret": {"cache": {"kind": "existingClaim", "existingClaim": "hub"}, "secrets": {"existing": "mine"}},
    "hpa": {"autoscaling": {"kind": "hpa"}},
    "keda": {"autoscaling": {"kind": "keda"}},
    "little": {
        "disruption": {"enabled": False}, "serviceAccount": {"create": False}, "spread": False,
        "monitoring": {"annotations": False}, "networkPolicy": {"enabled": True},
    },
    "several machines": {"multiNode": SEVERAL, "networkPolicy": {"enabled": True}, "autoscaling": {"kind": "hpa"}},
    "several machines, everything": {**FULL, "multiNode": SEVERAL},
}  # fmt: skip
# Not Kubernetes' own: no schema of theirs is on PyPI. docs/results/operations.md says what they were held against.
FOREIGN = {"PodMonitor", "PrometheusRule", "ScaledObject", "LeaderWorkerSet", "InferencePool", "HTTPRoute"}


@pytest.fixture(params=VARIANTS)
def docs(request):
    return render(VARIANTS[request.param])


def pods(docs):
    for d in docs:
        if d["kind"] == "Deployment":
            yield d["spec"]["template"]
        if d["kind"] == "LeaderWorkerSet":
            yield d["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
            yield d["spec"]["leaderWorkerTemplate"]["workerTemplate"]


def options():
    page = subprocess.run([BIN / "launcher", "--help-markdown"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"`--([a-z0-9-]+)`", page)), set(re.findall(r"\| `([A-Z][A-Z0-9_]+)` \|", page))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_it(docs, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="no schemas without kubernetes-validate")
    checked = 0
    for d in docs:
        if d["kind"] not in FOREIGN:
            kubernetes_validate.validate(d, version, strict=True)
            checked += 1
    assert checked >= 2
    # The pods of foreign objects are pods nevertheless.
    for p in pods(docs):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **p["metadata"]}, "spec": p["spec"]}
        kubernetes_validate.validate(pod, version, strict=True)


def test_the_schemas_find_what_is_wrong():
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="no schemas without kubernetes-validate")
    for break_ in (lambda c: c.update(livenesProbe={}), lambda c: c.update(image=3), lambda c: c["lifecycle"]["preStop"].update(slep={})):
        d = one(render(), "Deployment")
        break_(d["spec"]["template"]["spec"]["containers"][0])
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(d, VERSIONS[0], strict=True)


def test_pods_are_whole(docs):
    known, variables = options()
    for p in pods(docs):
        spec, (c,) = p["spec"], p["spec"]["containers"]
        assert {a[2:].split("=")[0] for a in c["args"]} <= known
        names = [e["name"] for e in c["env"]]
        assert set(names) - {"HF_TOKEN"} <= variables and len(names) == len(set(names))
        volumes = [v["name"] for v in spec["volumes"]]
        assert sorted(volumes) == sorted(m["name"] for m in c["volumeMounts"])
        finish = int(next(a for a in c["args"] if "graceful" in a).split("=")[1])
        sleep = c["lifecycle"]["preStop"]["sleep"]["seconds"]
        serves = "readinessProbe" in c
        assert spec["terminationGracePeriodSeconds"] >= sleep + 10 + (finish if serves else 0)
        loading = int(next(a for a in c["args"] if "startup" in a).split("=")[1])
        if serves:
            assert c["startupProbe"]["periodSeconds"] * c["startupProbe"]["failureThreshold"] >= loading
            assert [x for x in c["ports"] if x["name"] == "http" and x["containerPort"] == 3000]
        assert spec["enableServiceLinks"] is spec["automountServiceAccountToken"] is False
        assert c["securityContext"]["readOnlyRootFilesystem"] and c["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert spec["securityContext"]["runAsNonRoot"] and c["resources"]["limits"]["memory"]
        text = json.dumps(p)
        assert '"k"' not in text.replace('"key": "k"', "") and "hf-token" in text, "a secret's value is not in the pod"


def test_selectors_find_pods(docs):
    server = next(pods(docs))["metadata"]["labels"]
    if any(d["kind"] == "LeaderWorkerSet" for d in docs):
        server = {**server, "leaderworkerset.sigs.k8s.io/worker-index": "0"}  # the operator's
    found = 0
    for d in docs:
        spec = d.get("spec", {})
        for key in ("selector", "podSelector"):
            if key in spec:
                chosen = spec[key].get("matchLabels", spec[key])
                assert chosen and chosen.items() <= server.items(), d["kind"]
                found += 1
    assert found >= 1
    names = [(d["kind"], d["metadata"]["name"]) for d in docs]
    assert len(names) == len(set(names))


def test_workers_of_a_group_answer_nobody():
    docs = render(VARIANTS["several machines, everything"])
    leader, worker = pods(docs)
    (w,) = worker["spec"]["containers"]
    assert not {"readinessProbe", "livenessProbe", "startupProbe"} & set(w)
    assert "API_KEY" not in [e["name"] for e in w["env"]] and "annotations" in worker["metadata"]
    env = {e["name"]: e.get("value") for e in leader["spec"]["containers"][0]["env"]}
    assert env["NUM_SHARD"] == "6" and env["NNODES"] == "$(LWS_GROUP_SIZE)"
    # The worker stays until the leader's requests have ended.
    drain = leader["spec"]["containers"][0]
    finish = int(next(a for a in drain["args"] if "graceful" in a).split("=")[1])
    assert w["lifecycle"]["preStop"]["sleep"]["seconds"] >= drain["lifecycle"]["preStop"]["sleep"]["seconds"] + finish


def test_what_autoscaling_and_alerts_ask_for_is_served():
    with Service(DEMO) as s:
        text = requests.get(s.url + "/metrics", timeout=10).text
        for path in ("/startupz", "/readyz", "/livez", "/metrics"):
            assert requests.get(s.url + path, timeout=10).status_code == 200, path
    served = set(re.findall(r"^([a-z_:]+)[ {]", text, re.M))
    hpa = one(render(VARIANTS["hpa"]), "HorizontalPodAutoscaler")
    assert {m["pods"]["metric"]["name"] for m in hpa["spec"]["metrics"]} <= served
    scaled = one(render(VARIANTS["keda"]), "ScaledObject")
    queries = [t["metadata"]["query"] for t in scaled["spec"]["triggers"]]
    rules = one(render(FULL), "PrometheusRule")["spec"]["groups"][0]["rules"]
    names = {n for e in queries + [r["expr"] for r in rules] for n in re.findall(r"([a-z_]+)\{", e)}
    assert len(names) >= 6 and names <= served, names - served
    assert "replicas" not in one(render(VARIANTS["hpa"]), "Deployment")["spec"], "the autoscaler's number would be overwritten"


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 3},
        {"autoscaling": {"kind": "vpa"}},
        {"cache": {"kind": "existingClaim"}},
        {"autoscaling": {"kind": "hpa", "min": 0}},
        {"multiNode": {"enabled": True, "size": 1, "clusterSecret": "s"}},
        {"multiNode": {"enabled": True}},
        {"drain": {"finishSeconds": "60"}},
    ],
    ids=json.dumps,
)
def test_wrong_values_are_refused(values):
    with pytest.raises(helm().HelmError):
        render(values)


def test_lint_and_version():
    report = helm().lint(str(CHART))
    assert not report["errors"] and all(m["severity"] <= 1 for m in report["messages"]), report
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == (ROOT / "VERSION").read_text().strip()
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.fixture
def rules(tmp_path):
    if not shutil.which("promtool"):
        pytest.skip("alerts are not evaluated without promtool (prometheus)")
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(one(render(FULL), "PrometheusRule")["spec"]))
    return path


def promtool(*argv):
    done = subprocess.run(["promtool", *map(str, argv)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def series(name, values, **labels):
    pod = {"namespace": "prod", "pod": "demo-headrace-1", **labels}
    return {"series": name + "{" + ",".join(f'{k}="{v}"' for k, v in pod.items()) + "}", "values": values}


def test_alerts(rules, tmp_path):
    """Each alert on its own trouble, and none on a server that works."""
    promtool("check", "rules", rules)
    calm = [
        series("tgi_request_failure", "0x60", err="generation"),
        series("tgi_request_failure", "0+1x60", err="validation"),
        series("tgi_request_failure", "0x60", err="overloaded"),
        series("tgi_request_count", "0+100x60"),
        series("tgi_queue_size", "0 20 0 20 0x56"),
        series("tgi_request_first_token_duration_bucket", "0+100x60", le="1"),
        series("tgi_request_first_token_duration_bucket", "0+100x60", le="20"),
        series("tgi_request_first_token_duration_bucket", "0+100x60", le="+Inf"),
        series("tgi_preemption_count", "0+1x60", method="swap"),
        series("tgi_shard_returns", "0x60"),
    ]
    trouble = {
        "HeadraceRequestsFail": series("tgi_request_failure", "0+1x60", err="generation"),
        "HeadraceOverloaded": series("tgi_request_failure", "0+10x60", err="overloaded"),
        "HeadraceQueueGrows": series("tgi_queue_size", "9x60"),
        "HeadraceSlowFirstToken": series("tgi_request_first_token_duration_bucket", "0+10x60", le="1"),
        "HeadracePreempts": series("tgi_preemption_count", "0+60x60", method="swap"),
        "HeadraceShardsRestart": series("tgi_shard_returns", "0x10 1x10 2x40"),
    }
    names = {r["alert"]: r for g in yaml.safe_load(rules.read_text())["groups"] for r in g["rules"]}
    assert set(names) == set(trouble)

    def firing(alert, data, expected):
        return {"interval": "1m", "input_series": data, "alert_rule_test": [{"eval_time": "50m", "alertname": alert, "exp_alerts": expected}]}

    tests = [firing(a, calm, []) for a in names]
    for alert, bad in trouble.items():
        data = [bad] + [s for s in calm if s["series"] != bad["series"]]
        labels = {"severity": names[alert]["labels"]["severity"]}
        text = names[alert]["annotations"]["summary"]
        by = re.search(r"by \(([^)]*)\)", names[alert]["expr"])
        kept = [] if "histogram" in names[alert]["expr"] else by.group(1).split(", ") if by else []
        if not by and "sum(" not in names[alert]["expr"]:
            kept = ["namespace", "pod"]
        known = {"namespace": "prod", "pod": "demo-headrace-1", "err": "generation"}
        for k in kept:
            labels[k] = known[k]
        for k, v in known.items():
            text = text.replace("{{ $labels.%s }}" % k, v)
        tests.append(firing(alert, data, [{"exp_labels": labels, "exp_annotations": {"summary": text}}]))
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", file)
