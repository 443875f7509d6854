"""Sparse attention (DeepSeek V3.2, GLM-5) through the real programs: the keys of the indexer lie in the blocks of the latent vectors, so that cached
prompts, preemption, lower tiers and restarts bring them with the rest. Which tokens are right: tests/golden/test_arch.c."""

import json
import random
import shutil

import numpy as np
import pytest
from serving import Service, crowd, data, seed_for, together, wait_for
from stored_made import save
from short_prompts import answer, streams_survive_a_crash
from test_kv_tiers import count, prompt, stored

HEADS, DIM = 4, 16
LIMITS = ["--max-input-tokens", 450, "--max-total-tokens", 500]
FAMILIES = [("deepseek_v32", 1), ("deepseek_v32", 2), ("glm_moe_dsa", 1)]


def sparse(folder, kind, top=24):
    """The test model of DeepSeek V3 with indexers that select `top` positions: one in each layer, or one for both."""
    model = folder / f"{kind}-{top}"
    shutil.copytree(data("arch/deepseek_v3_yarn"), model)
    c = json.loads((model / "config.json").read_text())
    c |= {"model_type": kind, "index_n_heads": HEADS, "index_head_dim": DIM, "index_topk": top}
    if kind == "glm_moe_dsa":
        c |= {"indexer_types": ["full", "shared"], "rope_scaling": None}
    (model / "config.json").write_text(json.dumps(c))
    (model / "model.safetensors").rename(model / "model-1.safetensors")
    rng, made = np.random.default_rng(5), {}
    for i in range(1 if kind == "glm_moe_dsa" else c["num_hidden_layers"]):
        at = f"model.layers.{i}.self_attn.indexer."
        made[at + "wq_b.weight"] = rng.normal(size=(HEADS * DIM, c["q_lora_rank"])).astype(np.float32)
        made[at + "wk.weight"] = rng.normal(size=(DIM, c["hidden_size"])).astype(np.float32)
        made[at + "k_norm.weight"] = np.ones(DIM, np.float32)
        made[at + "k_norm.bias"] = rng.normal(size=DIM).astype(np.float32)
        made[at + "weights_proj.weight"] = rng.normal(size=(HEADS, c["hidden_size"])).astype(np.float32)
    save(model / "model-2.safetensors", made)
    raw = (model / "model-1.safetensors").read_bytes()
    names = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    of = {n: "model-1.safetensors" for n in names if n != "__metadata__"} | dict.fromkeys(made, "model-2.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": of}))
    return model


def asked(text, i, new=24):
    p = {"max_new_tokens": new, "details": True, "ignore_eos": True}
    return {"inputs": text, "parameters": p | ({"do_sample": True, "temperature": 0.9, "seed": i} if i % 2 else {})}


def works(n, words=50):
    return [asked(prompt(i, words), i) for i in range(n)]


def selection_matters(*models):
    """Else the other tests would hold for layers without an indexer."""
    said = []
    for model in models:
        with Service(model, args=LIMITS) as s:
            said.append([answer(s, b) for b in works(4)])
    assert all(a != b for a, b in zip(*said))


def test_a_selection_matters(tmp_path):
    selection_matters(sparse(tmp_path, "deepseek_v32"), sparse(tmp_path, "deepseek_v32", 512))


def cached_as_computed(model, num_shard):
    """Answers alone and cold; then together, in chunks, with drafts, with prompts whose first half is cached. How many tokens of the longer prompts
    were cached alone, and how many then."""
    first = works(8)
    longer = [asked(b["inputs"] + " " + prompt(100 + i, 20), i) for i, b in enumerate(first)]
    with Service(model, num_shard, args=LIMITS) as s:
        want = [answer(s, b) for b in first]
    with Service(model, num_shard, args=LIMITS) as s:
        more = [answer(s, b) for b in longer]
        alone = s.metric("prefix_hit_tokens") or 0
    args = ["--max-batch-prefill-tokens", 40, "--target-inter-token-ms", 1, "--speculate", 3]
    with Service(model, num_shard, args=[*LIMITS, *args]) as s:
        assert together(s, answer, first) == want
        before = s.metric("prefix_hit_tokens") or 0
        assert together(s, answer, longer + first) == more + want
        hits = s.metric("prefix_hit_tokens") - before
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
        s.audit()
    return alone, hits


@pytest.mark.parametrize("kind,num_shard", FAMILIES)
def test_a_cached_prompt_is_as_a_computed_one(tmp_path, kind, num_shard):
    alone, hits = cached_as_computed(sparse(tmp_path, kind), num_shard)
    assert alone < 16 * 8  # nearly all of each prompt was computed
    assert hits > 1000


def preempted_as_alone(model, method, more):
    """A cache for a few of the requests."""
    work = [asked(b["inputs"], i, 120) for i, b in enumerate(works(12, 20))]
    with Service(model, args=LIMITS) as s:
        want = [answer(s, b) for b in work]
    tight = ["--max-batch-total-tokens", 700, "--max-input-tokens", 250, "--max-total-tokens", 400]
    with Service(model, args=[*tight, *more]) as s:
        assert crowd(s, answer, work) == want
        assert s.metric("tgi_preemption_count", method=method) > 0


@pytest.mark.parametrize("method,more", [("recompute", []), ("swap", ["--swap-space", 0.05])])
def test_preemption_changes_nothing(tmp_path, method, more):
    preempted_as_alone(sparse(tmp_path, "deepseek_v32"), method, more)


def read_from_a_folder(model, num_shard, folder, work):
    """Answers of a first start, of one that stores, and of one that loads what was stored. The first ones; how many tokens the last start found
    cached, and how many blocks it loaded."""
    args = [*LIMITS, "--kv-offload-dir", folder]
    with Service(model, num_shard, args=LIMITS) as s:
        want = [answer(s, b) for b in work]
    with Service(model, num_shard, args=args) as s:
        assert [answer(s, b) for b in work] == want
        stored(folder, s)
    with Service(model, num_shard, args=args) as s:
        assert [answer(s, b) for b in work] == want
        loaded = count(s, "loaded")
        assert loaded > 0 and count(s, "hits", tier="disk") > 0
        assert count(s, "refused", reason="damaged") + count(s, "refused", reason="foreign") == 0
        return want, s.metric("prefix_hit_tokens"), loaded


@pytest.mark.parametrize("kind,num_shard", FAMILIES)
def test_lower_tiers_bring_the_keys_of_the_indexer(tmp_path, kind, num_shard):
    """From a folder after a restart, and from memory behind a cache that holds one prompt."""
    model = sparse(tmp_path, kind)
    work = works(6)
    want, hits, loaded = read_from_a_folder(model, num_shard, tmp_path / "kv", work)
    assert hits >= 16 * loaded * 0.9
    tight = ["--max-batch-total-tokens", 600, "--kv-offload-memory", 0.1]
    with Service(model, num_shard, args=[*LIMITS, *tight]) as s:
        for _ in range(3):
            assert [answer(s, b) for b in work] == want
        assert count(s, "hits", tier="memory") > 10 and count(s, "hits", tier="disk") == 0


def test_other_selections_share_no_block(tmp_path):
    """Another model's blocks in the same folder are no hits."""
    folder = ["--kv-offload-dir", tmp_path / "kv"]
    work = works(2)
    with Service(sparse(tmp_path, "deepseek_v32"), args=LIMITS) as s:
        want = [answer(s, b) for b in work]
    with Service(sparse(tmp_path, "deepseek_v32", 512), args=[*LIMITS, *folder]) as s:
        assert all(answer(s, b) != w for b, w in zip(work, want))
        stored(tmp_path / "kv", s)
    with Service(tmp_path / "deepseek_v32-24", args=[*LIMITS, *folder]) as s:
        assert [answer(s, b) for b in work] == want


def test_streams_go_on_when_their_shard_is_killed(tmp_path):
    with Service(sparse(tmp_path, "glm_moe_dsa"), args=LIMITS) as s:
        streams_survive_a_crash(s, 8)


class CellsAndBlocks:
    """The tests of a family which selects, and whose states are in cells: `made(folder)` is a model, `made(folder, n)` one that selects n."""

    def test_a_selection_matters(self, tmp_path):
        selection_matters(self.made(tmp_path), self.made(tmp_path, 500))

    @pytest.mark.parametrize("num_shard", [1, 2])
    def test_a_cached_prompt_is_as_a_computed_one(self, tmp_path, num_shard):
        assert cached_as_computed(self.made(tmp_path), num_shard)[1] > 0

    def test_preemption_changes_nothing(self, tmp_path):
        preempted_as_alone(self.made(tmp_path), "recompute", [])

    @pytest.mark.parametrize("num_shard", [1, 2])
    def test_lower_tiers_bring_states(self, tmp_path, num_shard):
        """From a folder after a restart."""
        read_from_a_folder(self.made(tmp_path), num_shard, tmp_path / "kv", works(6))

    def test_streams_go_on_when_their_shard_is_killed(self, tmp_path):
        with Service(self.made(tmp_path), args=LIMITS) as s:
            streams_survive_a_crash(s, 8)
