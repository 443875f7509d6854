"""Packed weights in a file: the next start maps it, with the same bits. If anything is wrong with the folder, the model is packed as usual."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from draft_heads import _save, _tensors, medusa, with_mtp
from serving import DEMO, Service, data, wait_for

pytestmark = pytest.mark.usefixtures("small_caches")
TEXT = "Once upon a time there was a little dog"
WRITTEN, MAPPED = "packed weights written", "packed weights from cache"


def answer(s, **more):
    r = s.post("/generate", {"inputs": TEXT, "parameters": {"max_new_tokens": 12, "details": True, "ignore_eos": True, **more}})
    assert r.status_code == 200, r.text
    return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]


def service(folder, *args, model=DEMO, **kw):
    return Service(model, args=["--packed-cache", str(folder), *args], **kw)


def files(folder):
    return sorted(p.name for p in pathlib.Path(folder).glob("*.packed"))


def written(s, n=1):
    wait_for(lambda: s.log.count(WRITTEN) == n, 30)


def first_start(folder, *args, **kw):
    """Its answer; the files are complete."""
    with service(folder, *args, **kw) as s:
        out = answer(s)
        written(s, kw.get("num_shard", 1))
        assert MAPPED not in s.log
    return out


def mapped(folder, *args, **kw):
    """The answer of a start that maps every file and writes none."""
    before = {p: (folder / p).stat().st_ino for p in files(folder)}
    with service(folder, *args, **kw) as s:
        out = answer(s)
        assert s.log.count(MAPPED) == kw.get("num_shard", 1), s.log[-3000:]
        time.sleep(0.3)
        assert WRITTEN not in s.log
    assert before == {p: (folder / p).stat().st_ino for p in files(folder)}
    return out


@pytest.fixture(scope="module")
def want():
    with Service(DEMO) as s:
        return answer(s)


@pytest.mark.parametrize("num_shard", [1, 2])
@pytest.mark.parametrize("flags", [[], ["--quantize", "eetq"], ["--quantize", "int4"], ["--dtype", "float32"], ["--dtype", "bfloat16"]], ids=" ".join)
def test_the_next_start_gives_the_same_bits(tmp_path, flags, num_shard):
    with Service(DEMO, num_shard, args=flags) as s:
        want = answer(s)
    assert first_start(tmp_path, *flags, num_shard=num_shard) == want
    assert len(files(tmp_path)) == num_shard
    assert mapped(tmp_path, *flags, num_shard=num_shard) == want


FAMILIES = ["arch/mixtral", "arch/deepseek_v3_noq", "arch/qwen3_next", "arch/granitemoehybrid", "arch/gpt2", "arch/gemma3_text", "arch/llama_tied_bias"]


@pytest.mark.parametrize("model", FAMILIES)
def test_families(tmp_path, model):
    """Experts, latent attention, recurrent layers, fused and tied matrices. What a start without the folder says is compared above."""
    model = data(model)
    want = first_start(tmp_path, model=model)
    assert mapped(tmp_path, model=model) == want


def quantised():
    folder = pathlib.Path(os.environ.get("TEST_DATA", "")) / "quant"
    return sorted(p.name for p in folder.iterdir() if (p / "config.json").exists()) if folder.is_dir() else ["none"]


@pytest.mark.parametrize("model", quantised())
def test_stored_formats(tmp_path, model):
    model = data("quant/" + model)
    want = first_start(tmp_path, model=model)
    assert mapped(tmp_path, model=model) == want


def test_draft_heads(tmp_path):
    """They are loaded where drafts are asked for alone, and those of a folder count as part of the model."""
    plain, model, folder = tmp_path / "plain", tmp_path / "mtp", tmp_path / "cache"
    shutil.copytree(DEMO, plain)
    _save(plain, _tensors(DEMO))
    with_mtp(model, plain)
    want = first_start(folder, model=model)
    assert first_start(folder, "--speculate", "4", model=model) == want
    assert mapped(folder, model=model) == mapped(folder, "--speculate", "4", model=model) == want
    heads = [str(medusa(tmp_path / f"heads{i}", plain, heads=i)) for i in (2, 3)]
    for h in heads:
        assert first_start(folder, "--speculate", "4", "--draft-heads", h, model=plain) == want
    assert mapped(folder, "--speculate", "4", "--draft-heads", heads[1], model=plain) == want


def test_other_models_and_options_have_files_of_their_own(tmp_path, want):
    other = tmp_path / "other"
    shutil.copytree(DEMO, other)
    folder = tmp_path / "cache"
    assert first_start(folder) == want
    first_start(folder, "--dtype", "float32")
    first_start(folder, "--quantize", "eetq")
    assert first_start(folder, model=other) == want
    assert len(files(folder)) == 4
    assert mapped(folder) == want


def test_a_model_that_changed_is_packed_anew(tmp_path):
    model, folder = tmp_path / "model", tmp_path / "cache"
    shutil.copytree(DEMO, model)
    before = first_start(folder, model=model)
    (weights,) = model.glob("*.safetensors")
    raw = bytearray(weights.read_bytes())
    head = int.from_bytes(raw[:8], "little")
    tensors = json.loads(raw[8 : 8 + head])
    begin, end = next(v["data_offsets"] for k, v in tensors.items() if "mlp" in k and k.endswith("weight"))
    raw[8 + head + begin : 8 + head + end] = bytes(end - begin)  # one matrix is zero now
    weights.write_bytes(raw)
    with Service(model) as s:
        want = answer(s)
    assert want != before
    assert first_start(folder, model=model) == want
    assert len(files(folder)) == 1, "the old contents of the same model are gone"


@pytest.mark.parametrize("damage", ["a bit", "the end", "nothing left", "another file"])
def test_a_damaged_file_is_written_anew(tmp_path, want, damage):
    first_start(tmp_path)
    (name,) = files(tmp_path)
    raw = bytearray((tmp_path / name).read_bytes())
    if damage == "a bit":
        raw[len(raw) // 3] ^= 4
    elif damage == "the end":
        raw = raw[:-4096]
    elif damage == "nothing left":
        raw = b""
    else:
        raw = os.urandom(len(raw))
    (tmp_path / name).write_bytes(raw)
    with service(tmp_path) as s:
        assert answer(s) == want
        assert "it is damaged" in s.log
        written(s)
    assert mapped(tmp_path) == want


def test_a_writer_that_was_killed_leaves_nothing_that_is_used(tmp_path, want):
    first_start(tmp_path)
    (name,) = files(tmp_path)
    (tmp_path / name).rename(tmp_path / (name + ".tmp"))  # as a file that is half written
    with service(tmp_path) as s:
        assert answer(s) == want and MAPPED not in s.log
        written(s)
    assert files(tmp_path) == [name] and not list(tmp_path.glob("*.tmp"))


def test_a_folder_that_takes_nothing_costs_a_line_of_the_log(tmp_path, want):
    (tmp_path / "file").write_text("")
    with service(tmp_path / "file") as s:
        assert answer(s) == want
        wait_for(lambda: "packed weights are not kept for the next start" in s.log)
    with service(tmp_path / "small", "--packed-cache-size", "0.00001") as s:
        assert answer(s) == want
        wait_for(lambda: "more than --packed-cache-size allows" in s.log)
    assert not files(tmp_path / "small")


@pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode, reason="no mount namespace here")
def test_a_full_disk_costs_a_line_of_the_log(tmp_path, want):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        with service(disk) as s:
            assert answer(s) == want
            wait_for(lambda: "packed weights are not kept for the next start" in s.log)
            assert "No space left" in s.log
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_two_services_share_a_folder(tmp_path, want):
    with service(tmp_path) as a, service(tmp_path) as b:
        assert answer(a) == answer(b) == want
        wait_for(lambda: files(tmp_path))
    with service(tmp_path) as a, service(tmp_path) as b:
        assert MAPPED in a.log and MAPPED in b.log
        assert answer(a) == answer(b) == want


def test_a_shard_that_dies_comes_back_from_the_file(tmp_path, want):
    first_start(tmp_path)
    with service(tmp_path) as s:
        assert answer(s) == want
        shard = next(p for p in s.children() if "model-server" in pathlib.Path(f"/proc/{p}/cmdline").read_text())
        os.kill(shard, signal.SIGKILL)
        wait_for(lambda: s.log.count(MAPPED) == 2, 30)
        s.wait_ready()
        assert answer(s) == want
        if "SAN" not in os.environ:  # sanitizers end in their own way
            file = tmp_path / files(tmp_path)[0]
            os.truncate(file, 4096)  # while it is mapped
            assert answer(s) == want
            s.wait_log(f"(Bus error): a mapped file was shortened or cannot be read: {file}")


def test_a_dry_run_writes_nothing(tmp_path):
    from serving import BIN

    subprocess.run([BIN / "launcher", "--model-id", DEMO, "--packed-cache", tmp_path / "c", "--dry-run"], check=True, capture_output=True)
    assert not (tmp_path / "c").exists()
