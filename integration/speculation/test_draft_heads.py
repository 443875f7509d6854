"""Draft heads of a checkpoint: bit-identical tokens, log-probabilities and texts in fewer steps."""

import concurrent.futures
import os
import signal

import pytest
from draft_heads import eagle3, medusa, with_mtp
from serving import DEMO, Service, data, wait_for
from test_speculation import CHEAP, TIGHT, answer, bodies, crowd, skipped

SPECULATE = ["--speculate", "4"]
RECURRENT = [("arch/qwen3_next", "qwen"), ("arch/qwen3_5_text", "qwen")]


def widened(tmp_path_factory):
    """The demo with weights in fp32, as the models with heads are stored."""
    import shutil

    from heads import _save, _tensors

    folder = tmp_path_factory.mktemp("heads") / "plain"
    shutil.copytree(DEMO, folder)
    _save(folder, _tensors(DEMO))
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return widened(tmp_path_factory)


@pytest.fixture(scope="module")
def model(plain):
    return with_mtp(plain.parent / "mtp", plain)


@pytest.fixture(scope="module")
def want(plain):
    work = list(bodies(24))
    with Service(plain) as s:
        return work, [answer(s, b) for b in work]


@pytest.fixture(scope="module")
def of_two(plain, want):
    """The same of two shards, whose sums have last bits of their own."""
    with Service(plain, 2) as s:
        return want[0], [answer(s, b) for b in want[0]]


@pytest.mark.parametrize("num_shard", [1, 2])
@pytest.mark.parametrize("room", ["wide", "tight"])
def test_no_draft_of_a_head_changes_a_bit(model, want, of_two, num_shard, room):
    work, answers = want if num_shard == 1 else of_two
    with Service(model, num_shard, args=[*SPECULATE, *(TIGHT if room == "tight" else [])], env=CHEAP) as s:
        assert s.log.count("draft head kind=mtp") == num_shard
        assert crowd(s, work) == answers
        assert [answer(s, b) for b in work] == answers  # prompts from the cache
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_medusa_heads_change_nothing(plain, want):
    work, answers = want
    heads = medusa(plain.parent / "medusa", plain)
    with Service(plain, args=["--draft-heads", heads], env=CHEAP) as s:
        assert crowd(s, work) == answers
        assert [answer(s, b) for b in work] == answers


@pytest.mark.parametrize("num_shard", [1, 2])
def test_an_eagle3_head_changes_nothing(plain, want, of_two, tmp_path, num_shard):
    work, answers = want if num_shard == 1 else of_two
    heads = eagle3(tmp_path / "eagle3", plain)
    with Service(plain, num_shard, args=["--draft-heads", heads], env=CHEAP) as s:
        assert s.log.count("draft head kind=eagle3") == num_shard
        assert crowd(s, work) == answers
        assert [answer(s, b) for b in work] == answers
        assert skipped(s) > 100


def test_a_head_that_is_measured_changes_nothing(model, want):
    """Rows are kept at times, and at times not: what a step takes decides."""
    work, answers = want
    with Service(model, args=SPECULATE) as s:
        for _ in range(2):
            assert crowd(s, work) == answers
        assert [answer(s, b) for b in work] == answers


BAD = {
    "names a token outside": lambda c, t: t["d2t"].__setitem__(-1, 1 << 40),
    "a whole number for each row": lambda c, t: t.__setitem__("d2t", t["d2t"][1:]),
    "`d2t` is missing": lambda c, t: t.pop("d2t"),
    "a draft head of 2 layers": lambda c, t: c.__setitem__("num_hidden_layers", 2),
    "wide, those of the model": lambda c, t: c.__setitem__("hidden_size", 2 * c["hidden_size"]),
    "3 numbers": lambda c, t: c["eagle_config"].__setitem__("eagle_aux_hidden_state_layer_ids", [0, 1, 77]),
    "`use_aux_hidden_state`": lambda c, t: c["eagle_config"].__setitem__("use_aux_hidden_state", False),
    "hidden_norm": lambda c, t: t.pop("midlayer.hidden_norm.weight"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_broken_eagle3_head_is_refused(plain, tmp_path, why):
    import json

    from safetensors.numpy import load_file, save_file

    heads = eagle3(tmp_path / "eagle3", plain)
    config, tensors = json.loads((heads / "config.json").read_text()), load_file(heads / "model.safetensors")
    BAD[why](config, tensors)
    (heads / "config.json").write_text(json.dumps(config))
    save_file(tensors, heads / "model.safetensors")
    with pytest.raises(AssertionError, match=why):
        with Service(plain, args=["--draft-heads", heads]):
            pass


def test_a_killed_shard_goes_on_with_its_drafts(model, want):
    work, answers = want
    with Service(model, args=[*SPECULATE, "--max-shard-restarts", "3"], env=CHEAP) as s:
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            asked = [pool.submit(answer, s, b) for b in work]
            wait_for(lambda: (s.metric("tgi_request_skipped_tokens_count") or 0) > 3, 60)
            os.kill(s.shards()[0], signal.SIGKILL)
            got = [f.result() for f in asked]
        assert got == answers


@pytest.mark.parametrize("name,form", RECURRENT)
def test_a_recurrent_state_goes_back(tmp_path, name, form):
    greedy = {"max_new_tokens": 60, "details": True, "ignore_eos": True, "top_n_tokens": 2}
    drawn = [greedy | {"do_sample": True, "temperature": t, "seed": seed} for t, seed in ((0.3, 1), (0.7, 2))]
    work = [{"inputs": t, "parameters": p} for t in ("Once upon", "1 2 3 4", "hello hello hello") for p in (greedy, *drawn)]
    plain = data(name)
    from heads import _save, _tensors
    import shutil

    wide = tmp_path / "plain"
    shutil.copytree(plain, wide)
    _save(wide, _tensors(plain))
    with Service(wide) as s:
        want = [answer(s, b) for b in work]
    with Service(with_mtp(tmp_path / "mtp", wide, form), args=SPECULATE, env=CHEAP) as s:
        assert [answer(s, b) for b in work] == want
        assert skipped(s) > 0  # of requests alone it does not depend on time
        for _ in range(2):
            assert crowd(s, work) == want


def test_a_folder_without_heads_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="no draft heads|no model.safetensors"):
        with Service(DEMO, args=["--draft-heads", tmp_path]):
            pass
