"""Compares the output of `launcher --dry-run` with an actual start."""

import json
import re
import subprocess

import pytest
import requests
from serving import BIN, DEMO, SLOW, Service, data, wait_for


def dry_run(model, *args):
    argv = [BIN / "launcher", "--model-id", model, "--dry-run", "--device", "cpu", *args]
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120 * SLOW)


def logged(log, words, key):
    """The numbers under a key in the lines with these words, one for each rank."""
    return [int(n) for n in re.findall(rf"{words}.*?\b(?:{key})=(\d+)", log)]


@pytest.mark.parametrize("num_shard, args", [
    (1, []),
    (2, []),
    (1, ["--quantize", "int4", "--kv-cache-dtype", "int8", "--kv-cache-memory", 30000000]),
    (2, ["--kv-cache-memory", 20000000, "--max-total-tokens", 512, "--max-batch-prefill-tokens", 1024]),
])
def test_a_start_takes_what_was_said(num_shard, args):
    said = dry_run(DEMO, "--num-shard", num_shard, "--json-output", *args)
    assert said.returncode == 0, said.stderr
    plan = json.loads(said.stdout)
    assert plan["fits"] and [r["rank"] for r in plan["ranks"]] == list(range(num_shard))
    with Service(DEMO, num_shard, ["--device", "cpu", *args]) as s:
        info = requests.get(s.url + "/info", timeout=30).json()
        for words in ("KV cache", "shard ready"):  # a line may come later than the answer of a probe
            wait_for(lambda words=words: len(logged(re.sub(r"\x1b\[[0-9;]*m", "", s.log), words, "bytes|weight_bytes")) >= num_shard, 30)
        s.wait_log(" Connected ")
        log = re.sub(r"\x1b\[[0-9;]*m", "", s.log)
    weights, caches = logged(log, "shard ready", "weight_bytes"), logged(log, "KV cache", "bytes")
    assert len(weights) == len(caches) == num_shard, log
    for rank, w, kv in zip(plan["ranks"], sorted(weights), caches):
        assert rank["weight_bytes"] == pytest.approx(w, rel=0.03)
        assert rank["kv_bytes"] == pytest.approx(kv, rel=0.03)
    first = plan["ranks"][0]
    assert info["max_total_tokens"] == first["max_total_tokens"]
    assert info["max_input_tokens"] == first["max_input_tokens"]
    assert logged(log, "Connected", "max_batch_total_tokens")[0] == pytest.approx(first["max_batch_total_tokens"], rel=0.03)


def test_the_vision_tower_is_counted():
    model = data("vision/gemma3")
    said = dry_run(model, "--json-output")
    assert said.returncode == 0, said.stderr
    tower = json.loads(said.stdout)["ranks"][0]["tower_bytes"]
    with Service(model, 1, ["--device", "cpu"]) as s:
        weights = logged(re.sub(r"\x1b\[[0-9;]*m", "", s.log), "pictures are taken", "bytes")
    assert len(weights) == 1 and tower > weights[0] > 0
    assert "vision tower" in dry_run(model).stdout
    assert json.loads(dry_run(DEMO, "--json-output").stdout)["ranks"][0]["tower_bytes"] == 0


def test_what_does_not_fit_is_said_by_the_exit_code_with_bytes_and_flags():
    args = ["--kv-cache-memory", 200000, "--max-total-tokens", 2000]
    said = dry_run(DEMO, *args)
    plan = json.loads(dry_run(DEMO, "--json-output", *args).stdout)["ranks"][0]
    most = plan["largest_total_tokens"]
    assert 0 < most < 2000 and f"at most {most} tokens fit" in said.stdout
    assert said.returncode == 78, said.stdout + said.stderr
    assert re.search(r"does not fit: .*\d+ bytes are left for the cache \(--kv-cache-memory\)", said.stdout)
    assert said.stdout.strip().endswith("it does not fit")
    real = Service(DEMO, 1, ["--device", "cpu", *args], ready=False)
    assert real.p.wait(60 * SLOW) == 78
    last = real.log.strip().splitlines()[-1]
    assert re.search(rf"Error:.*bytes are left for the cache \(--kv-cache-memory\), a request of 2000 tokens takes \d+ bytes .*at most {most} tokens fit", last), last
    assert "weights loaded" not in real.log, "before they are read"
    with Service(DEMO, 1, ["--device", "cpu", *args[:3], most]) as s:
        assert requests.get(s.url + "/info", timeout=30).json()["max_total_tokens"] == most


def test_what_cannot_be_said_is_no_verdict(tmp_path):
    said = dry_run(tmp_path / "nothing")
    assert said.returncode == 1 and "no such folder or GGUF file" in said.stderr
    assert dry_run(DEMO, "--port", "many").returncode == 2


def test_the_command_lines_are_those_of_a_start():
    said = dry_run(DEMO, "--num-shard", 2, "--api-key", "secret-of-mine")
    assert said.returncode == 0, said.stderr
    lines = [x.split() for x in said.stdout.splitlines() if x.startswith("  model-server") or x.startswith("  router")]
    assert [x[0] for x in lines] == ["model-server", "model-server", "router"]
    assert "--sharded" in lines[0] and "--dry-run" not in lines[0]
    assert "secret-of-mine" not in said.stdout


@pytest.mark.parametrize("name", ["arch/mixtral", "arch/gpt2", "arch/gpt_neox", "quant/gptq_g32", "quant/awq_gemm_g32"])
def test_other_shapes_and_formats_are_measured(name, tmp_path):
    """Mixtures, transposed and interleaved matrices, packed weights: a few rows of each stand for the whole."""
    model = data(name)
    said = dry_run(model, "--json-output")
    assert said.returncode == 0, said.stderr
    p = subprocess.Popen(
        [BIN / "model-server", "serve", model, "--json-output", "--device", "cpu", "--threads", "1", "--uds-path", tmp_path / "s"],
        stdout=subprocess.PIPE, text=True)
    try:
        ready = next(json.loads(x) for x in p.stdout if "shard ready" in x)
    finally:
        p.kill()
        p.wait()
    assert json.loads(said.stdout)["ranks"][0]["weight_bytes"] == pytest.approx(ready["fields"]["weight_bytes"], rel=0.03)


def test_replicas_are_planned_each_with_its_share():
    said = dry_run(DEMO, "--replicas", 2, "--json-output")
    assert said.returncode == 0, said.stderr
    plan = json.loads(said.stdout)
    assert [r["name"] for r in plan["ranks"]] == ["replica 0 rank 0", "replica 1 rank 0"]
    assert [c[0] for c in plan["commands"]] == ["model-server", "model-server", "router"]
    sockets = [c[c.index("--uds-path") + 1] for c in plan["commands"][:2]]
    assert len(set(sockets)) == 2 and "--replica-address" in plan["commands"][2]
    one = json.loads(dry_run(DEMO, "--json-output").stdout)["ranks"][0]
    assert plan["ranks"][0]["kv_bytes"] <= one["kv_bytes"]


def test_replicas_that_fit_alone_may_not_fit_together():
    free = json.loads(dry_run(DEMO, "--json-output").stdout)["ranks"][0]["free_bytes"]
    said = dry_run(DEMO, "--replicas", 2, "--swap-space", free * 0.6 / 2**30)
    assert said.returncode == 78, said.stdout + said.stderr
    assert re.search(r"does not fit: all replicas together take \d+ bytes, and \d+ are free: fewer --replicas", said.stdout)
