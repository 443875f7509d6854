"""Lower KV tiers: blocks of an earlier prompt are read with the same bits after a restart or a kill, and with other services and models in the same
folder. Whatever is wrong with the folder, answers are right."""

import concurrent.futures
import os
import pathlib
import random
import signal
import time

import pytest
from serving import Service, data, seed_for, wait_for

WORDS = "the a one little big red old dog cat girl boy ball tree house sun day park saw ran found had was and then went to in with".split()


def prompt(seed, n=120):
    rng = random.Random(seed_for(seed))
    return " ".join(rng.choices(WORDS, k=n)) + "."


def answer(s, text, n=12, **more):
    r = s.post("/generate", {"inputs": text, "parameters": {"max_new_tokens": n, "details": True, "ignore_eos": True, **more}})
    assert r.status_code == 200, r.text
    return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]


def service(folder, *args, model="arch/llama", **kw):
    return Service(data(model), args=["--kv-offload-dir", folder, *args], **kw)


def count(s, name, **labels):
    return s.metric("tgi_kv_offload_" + name, **labels) or 0


def files(folder):
    return sorted(pathlib.Path(folder).rglob("*.kv"))


def stored(folder, s):
    """All that is cached lies in the folder: nothing new comes."""
    wait_for(lambda: s.metric("kv_blocks", state="used") == 0 and files(folder), 30)
    last = -1
    while last != (last := count(s, "stored") + len(files(folder))):
        time.sleep(0.4)


FAMILIES = [("llama", 1), ("llama", 2), ("qwen3_next", 1), ("granitemoehybrid", 2), ("lfm2", 1), ("deepseek_v2_lite", 1)]


@pytest.mark.parametrize("model,num_shard", FAMILIES)
def test_a_prompt_is_read_after_a_restart(tmp_path, model, num_shard):
    """Paged layers, latent ones and recurrent state, whole models and parts of them."""
    texts = [prompt(i) for i in range(3)]
    with Service(data("arch/" + model), num_shard=num_shard) as s:
        want = [answer(s, t) for t in texts]
    with service(tmp_path, model="arch/" + model, num_shard=num_shard) as s:
        assert [answer(s, t) for t in texts] == want
        stored(tmp_path, s)
    with service(tmp_path, model="arch/" + model, num_shard=num_shard) as s:
        assert [answer(s, t) for t in texts] == want
        assert count(s, "loaded") > 0 and count(s, "hits", tier="disk") > 0
        assert s.metric("prefix_hit_tokens") >= 16 * count(s, "loaded") * 0.9
        hit = s.metric("prefix_hit_tokens")
        assert answer(s, texts[0] + " And then") != [] and s.metric("prefix_hit_tokens") > hit
        assert count(s, "refused", reason="damaged") + count(s, "refused", reason="foreign") == 0


def test_windows_come_back(tmp_path):
    args = ["--max-total-tokens", 2000]
    texts = [prompt(i, 500) for i in range(2)]
    with Service(data("arch/gemma3_text"), args=args) as s:
        want = [answer(s, t) for t in texts]
    with service(tmp_path, *args, model="arch/gemma3_text") as s:
        assert [answer(s, t) for t in texts] == want
        stored(tmp_path, s)
    with service(tmp_path, *args, model="arch/gemma3_text") as s:
        assert [answer(s, t) for t in texts] == want
        assert count(s, "loaded") > 0


def test_what_the_cache_gives_up_comes_back_from_memory():
    """No folder: the host's memory alone, behind a cache that holds one prompt."""
    texts = [prompt(i) for i in range(6)]
    with Service(data("arch/llama")) as s:
        want = [answer(s, t) for t in texts]
    tight = ["--max-batch-total-tokens", 1024, "--max-total-tokens", 600]
    with Service(data("arch/llama"), args=[*tight, "--kv-offload-memory", 0.1]) as s:
        for _ in range(3):
            assert [answer(s, t) for t in texts] == want
        assert count(s, "hits", tier="memory") > 20 and count(s, "hits", tier="disk") == 0
        assert count(s, "bytes", tier="memory") > 0
        s.audit()


def test_kill_9_while_writing(tmp_path):
    """Whatever lies there then is whole or no hit."""
    texts = [prompt(i) for i in range(8)]
    with Service(data("arch/llama")) as s:
        want = [answer(s, t) for t in texts]
    for round_ in range(3):
        s = service(tmp_path)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda t: answer(s, t), texts))
            wait_for(lambda: files(tmp_path), 30)
            for pid in [s.p.pid, *s.children()]:
                os.kill(pid, signal.SIGKILL)
        s.p.wait()
    with service(tmp_path) as s:
        assert [answer(s, t) for t in texts] == want
        assert count(s, "refused", reason="damaged") == 0 and count(s, "hits", tier="disk") > 0


def test_damaged_and_foreign_files_are_no_hits(tmp_path):
    texts = [prompt(i) for i in range(4)]
    with service(tmp_path) as s:
        want = [answer(s, t) for t in texts]
        stored(tmp_path, s)
    rng = random.Random(seed_for(1))
    all_files = files(tmp_path)
    for i, f in enumerate(all_files):
        raw = bytearray(f.read_bytes())
        how = i % 5
        if how == 0:
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        elif how == 1:
            raw = raw[: rng.randrange(len(raw))]
        elif how == 2:
            raw = bytearray(rng.randbytes(len(raw)))
        elif how == 3:
            raw = bytearray(all_files[i - 1].read_bytes())  # whole, but of another block
        f.write_bytes(raw)
    with service(tmp_path) as s:
        assert [answer(s, t) for t in texts] == want
        assert count(s, "refused", reason="damaged") + count(s, "refused", reason="foreign") > 0
        assert s.log.count("is passed over") == 1
    with service(tmp_path, model="arch/mistral") as s:  # another model, the same folder
        answer(s, texts[0])
        assert count(s, "hits", tier="disk") == 0


def test_other_formats_share_a_folder_and_no_block(tmp_path):
    text = prompt(1)
    for args in ([], ["--kv-cache-dtype", "int8"], ["--dtype", "bfloat16"]):
        with Service(data("arch/llama"), args=args) as s:
            want = answer(s, text)
        with service(tmp_path, *args) as s:
            assert answer(s, text) == want
            assert count(s, "hits", tier="disk") == 0
            stored(tmp_path, s)
        with service(tmp_path, *args) as s:
            assert answer(s, text) == want
            assert count(s, "hits", tier="disk") > 0


def test_a_read_only_folder_is_read(tmp_path):
    text = prompt(2)
    with service(tmp_path) as s:
        want = answer(s, text)
        stored(tmp_path, s)
    for d, _, _ in os.walk(tmp_path):
        os.chmod(d, 0o500)
    try:
        with service(tmp_path) as s:
            assert answer(s, text) == want and count(s, "hits", tier="disk") > 0
            answer(s, prompt(3))
    finally:
        for d, _, _ in os.walk(tmp_path):
            os.chmod(d, 0o700)


def test_a_folder_that_is_no_folder(tmp_path):
    nowhere = tmp_path / "a file"
    nowhere.write_text("")
    with service(nowhere) as s:
        for i in range(2):
            assert answer(s, prompt(i)) == answer(s, prompt(i))
        wait_for(lambda: answer(s, prompt(9)) and count(s, "refused", reason="write") > 0)
        assert s.log.count("a KV block cannot be written") == 1


def test_salts_keep_tenants_apart(tmp_path):
    ids = list(range(40, 240))

    def ask(s, salt):
        body = {"model": "m", "prompt": ids, "max_tokens": 4, "temperature": 0, **({"cache_salt": salt} if salt else {})}
        r = s.post("/v1/completions", body)
        assert r.status_code == 200, r.text
        return r.json()["choices"][0]["text"]

    with service(tmp_path) as s:
        want = ask(s, "alice")
        stored(tmp_path, s)
    with service(tmp_path) as s:
        for other in (None, "bob"):
            assert ask(s, other) == want
            assert count(s, "hits", tier="disk") == 0
        assert ask(s, "alice") == want
        assert count(s, "hits", tier="disk") > 0


def test_several_services_in_one_folder(tmp_path):
    """Four at once, a limit that is too small for what they write: answers are right, the folder stays small."""
    texts = [prompt(i) for i in range(12)]
    with Service(data("arch/llama")) as s:
        want = {t: answer(s, t) for t in texts}
        each = 4 << 20
    args = ["--kv-offload-size", each / 2**30]
    services = [service(tmp_path, *args) for _ in range(3)]
    try:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = [(s, t) for t in texts for s in services] * 2
            for (_, t), got in zip(asked, pool.map(lambda x: answer(*x), asked)):
                assert got == want[t]
        for s in services:
            s.check_accounting()
    finally:
        for s in services:
            s.stop()
    assert sum(f.stat().st_size for f in files(tmp_path)) <= each * 1.5


def test_cancelled_while_it_waits(tmp_path):
    with service(tmp_path) as s:
        answer(s, prompt(1))
        stored(tmp_path, s)
    with service(tmp_path) as s:
        for _ in range(10):
            with s.post("/generate_stream", {"inputs": prompt(1), "parameters": {"max_new_tokens": 50}}, stream=True) as r:
                next(r.iter_lines())
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)
        s.audit()


def test_shards_that_die_come_back_with_the_folder(tmp_path):
    texts = [prompt(4), prompt(5)]
    with service(tmp_path) as s:
        want = [answer(s, t) for t in texts]
        stored(tmp_path, s)
        for pid in s.shards():
            os.kill(pid, signal.SIGKILL)
        assert [answer(s, t) for t in texts] == want  # the first may have come before the loss was seen
        assert count(s, "hits", tier="disk") > 0
