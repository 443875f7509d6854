"""Pipeline stages (--pipeline-parallel-size) and expert parallelism (--enable-expert-parallel) in a service: answers are bit-identical to those of
one stage, whatever happens to its ranks."""

import json
import os
import re
import signal

import pytest
from deep import deep
from serving import BIN, DEMO, SLOW, Process, Service, data, wait_for
from test_adapters import make_adapter
from test_dry_run import dry_run
from test_images import ARGS as IMAGE_ARGS, answer as picture, cases, folder, greedy
from test_nodes import cause, end_all, start, tokens, wait_end
from test_pressure import run as run_tight
from test_restart import ONCE, together

CPU = ["--device", "cpu", "--threads", 1]
STAGES = ["--pipeline-parallel-size"]
TALES = [ONCE, "Tom had a big red ball.", "One day, a dog " * 12, "She said"]


def answers(s, model="m", **more):
    """Each alone, then on from its own answer, whose keys and states are in the cache."""
    out = []
    for i, text in enumerate(TALES):
        p = {"max_new_tokens": 16, "details": True, "ignore_eos": True, "decoder_input_details": i == 1, **more}
        if i % 2:
            p |= {"do_sample": True, "temperature": 0.9, "seed": i, "repetition_penalty": 1.1}
        r = s.post("/generate", {"inputs": text, "parameters": p})
        assert r.status_code == 200, r.text
        d = r.json()["details"]
        out.append([(t["id"], t["logprob"]) for t in d["prefill"] + d["tokens"]])
    return out


def stages_in(log):
    """(first layer, layers) of each rank's stage."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", log)
    return sorted((int(a), int(b)) for a, b in re.findall(r"first_layer=(\d+) layers=(\d+)", log))


@pytest.mark.parametrize("name,shards", [("demo", 1), ("demo", 2), ("arch/qwen3_next", 1), ("arch/gemma3_text", 1), ("arch/deepseek_v2", 1), ("arch/mixtral", 1)])
def test_stages_answer_as_one(name, shards):
    model = DEMO if name == "demo" else data(name)
    with Service(model, shards, CPU) as s:
        want = answers(s)
    with Service(model, 2 * shards, [*CPU, *STAGES, 2]) as s:
        found = stages_in(s.log)
        assert len(found) == 2 * shards and found[0][0] == 0 and found[0] != found[-1]
        assert answers(s) == want
        assert answers(s) == want  # from the cache
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


@pytest.mark.parametrize("more", [
    ["--speculate", 4],
    ["--quantize", "int4", "--kv-cache-dtype", "int8"],
    ["--packed-cache", "FOLDER"],
    ["--kv-offload-dir", "FOLDER", "--kv-offload-size", 0.1],
    ["--draft-model-id", DEMO, "--speculate", 3],
], ids=lambda m: m[0])
def test_what_goes_with_stages(tmp_path, more):
    args = [*CPU, "--max-total-tokens", 200, *(str(tmp_path) if a == "FOLDER" else a for a in more)]
    with Service(DEMO, 1, args) as s:
        want = answers(s)
    for _ in range(2):  # the second start finds what the first has left
        with Service(DEMO, 2, [*args, *STAGES, 2]) as s:
            assert answers(s) == want


def test_blocks_are_swapped_on_every_stage():
    swap, _, moved_in = run_tight(2, "--swap-space", "0.25", *STAGES, "2")
    assert swap > 0 and moved_in > 0


def test_adapters_go_with_stages(tmp_path):
    make_adapter(tmp_path / "a", 1)
    args = [*CPU, "--lora-adapters", f"a={tmp_path / 'a'}"]
    with Service(DEMO, 1, args) as s:
        want, plain = answers(s, adapter_id="a"), answers(s)
    assert want != plain
    with Service(DEMO, 2, [*args, *STAGES, 2]) as s:
        assert answers(s, adapter_id="a") == want and answers(s) == plain


@pytest.mark.parametrize("family", ["qwen3_vl", "gemma3"])
def test_pictures_go_with_stages(family):
    with Service(folder(family), 2, [*IMAGE_ARGS, *STAGES, 2]) as s:
        for case in cases(family):
            assert greedy(picture(s, case)) == case["greedy_ids"], case["images"]


def test_streams_survive_a_rank_of_each_stage(tmp_path):
    model = deep(tmp_path / "deep", 20)
    with Service(model, 1, [*CPU, "--max-batch-size", 12]) as s:
        want = [f.result() for f in together(s)[0]]
    with Service(model, 2, [*CPU, "--max-batch-size", 12, *STAGES, 2]) as s:
        for n, which in enumerate((0, -1)):
            asked, begun = together(s)
            wait_for(lambda: len(begun) >= 6, 60)
            os.kill(s.shards()[which], signal.SIGKILL)
            assert [f.result() for f in asked] == want
            assert s.metric("tgi_shard_returns") == n + 1
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


@pytest.mark.parametrize("shards,stages", [(2, 2), (4, 2)])
def test_stages_on_two_machines(shards, stages):
    with Service(DEMO, shards // stages, CPU) as s:
        want = tokens(s)
    master, others = start(2, shards, args=[*STAGES, stages, "--max-shard-restarts", 0])
    try:
        master.wait_ready()
        assert tokens(master) == want
        assert stages_in(master.log)[0][0] == 0 and stages_in(others[0].log)[0][0] > 0, "stages are not on machines of their own"
        others[0].p.send_signal(signal.SIGKILL)
        assert wait_end(master, 20) != 0
        assert re.search(r"rank \d \(127.0.0.1\) (died|has left)|shard \d", cause(master)), master.log[-3000:]
    finally:
        end_all([master, *others])


@pytest.mark.parametrize("name", ["arch/mixtral", "arch/qwen3_moe", "arch/deepseek_v2"])
def test_experts_in_whole_give_the_same_tokens(name):
    model = data(name)
    with Service(model, 1, CPU) as s:
        want = answers(s)
    with Service(model, 2, [*CPU, "--enable-expert-parallel"]) as s:
        got = answers(s)
    for a, b in zip(got, want):
        assert [i for i, _ in a] == [i for i, _ in b]
        assert all(x == y or abs(x - y) < 1e-4 for (_, x), (_, y) in zip(a, b))
    with Service(model, 4, [*CPU, *STAGES, 2, "--enable-expert-parallel"]) as s:
        assert answers(s) == got  # of two ranks each


def test_what_each_stage_takes_is_said_before():
    whole = json.loads(dry_run(DEMO, "--json-output").stdout)["ranks"][0]
    said = dry_run(DEMO, "--num-shard", 2, *STAGES, 2, "--json-output")
    assert said.returncode == 0, said.stderr
    ranks = json.loads(said.stdout)["ranks"]
    assert [r["first_layer"] for r in ranks] == [0, ranks[0]["layers"]]
    assert sum(r["layers"] for r in ranks) == whole["layers"] == whole["layers_of_all"]
    most = max(r["weight_bytes"] for r in ranks)
    assert most < 0.75 * whole["weight_bytes"]
    assert all(r["kv_block_bytes"] < whole["kv_block_bytes"] for r in ranks)
    text = dry_run(DEMO, *STAGES, 2).stdout  # two shards, without --num-shard
    assert re.search(r"stage of \d+ layers from layer 0 on, of \d+", text) and "rank 1" in text


@pytest.mark.parametrize("model,args,words", [
    ("demo", ["--num-shard", 3], "`num_shard` (3) must be a multiple of `pipeline_parallel_size` (2)"),
    ("demo", ["--draft-heads", "/nowhere"], "`draft_heads` and `pipeline_parallel_size` do not go together"),
    ("demo", ["--task", "embed"], "--pipeline-parallel-size 2 does not go with models that give vectors or scores"),
    ("arch/gemma4_text_ple", [], "--pipeline-parallel-size 2 does not go with embeddings of each layer"),
    ("demo", ["--num-shard", 64, "--pipeline-parallel-size", 64], "cannot be cut into so many stages"),
], ids=lambda x: str(x)[:24])
def test_what_does_not_go_with_stages_is_refused(model, args, words):
    given = [*STAGES, 2] if STAGES[0] not in args else []
    p = Process([BIN / "launcher", "--model-id", DEMO if model == "demo" else data(model), "--dry-run", *CPU, *given, *args])
    assert p.p.wait(60 * SLOW) != 0
    wait_for(lambda: words in p.log)
