"""download-weights with a small local hub (hub.py), and together with huggingface_hub in one cache."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

import huggingface_hub
import pytest

from hub import Hub, git_sha1
from serving import BIN, DEMO, SLOW, Process, Service, wait_for
from test_adapters import make_adapter

BIG = bytes(range(256)) * 20000  # 5 MB
SHARDED = {
    ".gitattributes": b"x",
    "README.md": b"# hi",
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "pytorch_model.bin": b"never fetched",
    "training_args.bin": b"never fetched",
    "modeling_evil.py": b"never fetched",
    "onnx/model.onnx": b"never fetched",
    "consolidated.safetensors": b"the same weights once more",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors"}}).encode(),
    "m-1.safetensors": BIG,
    "m-2.safetensors": BIG[::-1],
}
WANTED = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json", "m-1.safetensors", "m-2.safetensors"}
SINGLE = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": BIG}
ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"lora", "README.md": b""}


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def environment(hub, cache, **more):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "WEIGHTS_")) and "proxy" not in k.lower()}
    return {**keep, "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9", "no_proxy": "127.0.0.1", "HF_HOME": str(cache / "home"), "HF_HUB_CACHE": str(cache), "HUB_RETRY_WAIT": "1", **more}


def download(hub, cache, repo="org/name", *args, timeout=60, **env):
    r = subprocess.run(
        [str(BIN / "model-server"), "download-weights", repo, *args],
        env=environment(hub, cache, **env), capture_output=True, text=True, timeout=timeout * SLOW,
    )
    return r.returncode, r.stdout + r.stderr


def snapshot(cache, repo="org/name", commit="c" * 40):
    return cache / ("models--" + repo.replace("/", "--")) / "snapshots" / commit


def test_layout_is_huggingface_hubs_own(cache):
    with Hub({"org/name": SHARDED}) as hub:
        rc, log = download(hub, cache)
        assert rc == 0, log
        folder = cache / "models--org--name"
        assert {p.name for p in snapshot(cache).iterdir()} == WANTED
        for name in WANTED:
            p, data = snapshot(cache) / name, SHARDED[name]
            etag = hashlib.sha256(data).hexdigest() if name.endswith(".safetensors") else git_sha1(data)
            assert os.readlink(p) == f"../../blobs/{etag}" and p.read_bytes() == data
        assert (folder / "refs/main").read_bytes() == b"c" * 40
        assert not list(folder.glob("blobs/*.incomplete"))
        assert "never" not in "".join(p.read_text(errors="replace")[:40] for p in folder.glob("blobs/*"))

        # Python's own reader finds all of it, and nothing it would call broken.
        for name in WANTED:
            got = huggingface_hub.hf_hub_download("org/name", name, cache_dir=cache, local_files_only=True)
            assert open(got, "rb").read() == SHARDED[name]
        assert huggingface_hub.snapshot_download("org/name", cache_dir=cache, local_files_only=True) == str(snapshot(cache))
        scan = huggingface_hub.scan_cache_dir(cache)
        assert not scan.warnings and [r.repo_id for r in scan.repos] == ["org/name"]
        assert {f.file_name for r in scan.repos for v in r.revisions for f in v.files} == WANTED

        n = len(hub.requests)
        rc, log = download(hub, cache)
        assert rc == 0 and "Files are already present on the host. Skipping download." in log
        assert len(hub.requests) == n


@pytest.mark.parametrize(
    "weights",
    [
        {"pytorch_model.bin": BIG},
        {"pytorch_model.bin.index.json": json.dumps({"weight_map": {"a": "p-1.bin", "b": "p-2.bin"}}).encode(), "p-1.bin": BIG, "p-2.bin": BIG[::-1]},
    ],
)
def test_what_torch_saved_is_fetched_where_there_is_nothing_else(cache, weights):
    files = {"config.json": b"{}", "tokenizer.json": b"{ }", **weights}
    with Hub({"org/name": {**files, "training_args.bin": b"never fetched"}}) as hub:
        rc, log = download(hub, cache)
        assert rc == 0, log
        assert {p.name: p.read_bytes() for p in snapshot(cache).iterdir()} == files
        rc, log = download(hub, cache)
        assert rc == 0 and "Skipping download" in log


def test_modules_of_sentence_transformers_come_along(cache):
    """Folders with a number in front, and of these the two files that are read."""
    more = {
        "modules.json": b"[]", "1_Pooling/config.json": b"{}", "2_Dense/config.json": b"{}",
        "2_Dense/model.safetensors": b"dense", "2_Dense/pytorch_model.bin": b"no", "onnx/config.json": b"{}",
    }
    with Hub({"org/name": {**SINGLE, **more}}) as hub:
        code, text = download(hub, cache)
        assert code == 0, text
        got = {str(p.relative_to(snapshot(cache))) for p in snapshot(cache).rglob("*") if p.is_file()}
        assert got == set(SINGLE) | {"modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"}
        assert (snapshot(cache) / "2_Dense/model.safetensors").read_bytes() == b"dense"
        found = huggingface_hub.hf_hub_download("org/name", "2_Dense/model.safetensors", cache_dir=cache, local_files_only=True)
        assert open(found, "rb").read() == b"dense"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_we_read_what_huggingface_hub_wrote(cache, name):
    with Hub({"org/name": SINGLE}) as hub:
        code = f"import huggingface_hub as h; h.hf_hub_download('org/name', {name!r}, revision='v1')"
        subprocess.run([sys.executable, "-c", code], check=True, env=environment(hub, cache, HF_HUB_DISABLE_XET="1"))
        n = len(hub.of("cdn", "GET"))
        rc, log = download(hub, cache, "org/name", "--revision", "v1")
        assert rc == 0, log
        # what was there is linked, not fetched again
        assert len(hub.of("cdn", "GET")) == (n if name == "model.safetensors" else n + 1)
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG
        assert (cache / "models--org--name/refs/v1").read_text() == hub.commit
        assert not (cache / "models--org--name/refs/main").exists()


def test_broken_connections_are_resumed(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.break_after["model.safetensors"] = len(BIG) // 3
        rc, log = download(hub, cache)
        assert rc == 0, log
        starts = [int(h["Range"][6:-1]) if "Range" in h else 0 for _, _, _, h in hub.of("cdn", "GET")]
        assert len(starts) >= 3 and starts[0] == 0 and starts == sorted(set(starts)), starts
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG


def test_a_server_without_ranges_starts_over(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.no_ranges = True
        blobs = cache / "models--org--name/blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{hashlib.sha256(BIG).hexdigest()}.incomplete").write_bytes(b"x" * 1000)
        rc, log = download(hub, cache)
        assert rc == 0 and hub.of("cdn", "GET")[0][3]["Range"] == "bytes=1000-", log
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG


def test_wrong_bytes_are_not_kept(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.wrong["model.safetensors"] = 1
        rc, log = download(hub, cache)
        assert rc == 0 and "do not match their digest" in log and "Retrying in 1 second (1/4)" in log
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG


def test_a_partial_file_with_other_bytes(cache):
    with Hub({"org/name": SINGLE}) as hub:
        blobs = cache / "models--org--name/blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{hashlib.sha256(BIG).hexdigest()}.incomplete").write_bytes(b"x" * len(BIG))
        rc, log = download(hub, cache)
        assert rc == 0 and "do not match" in log, log
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG


def test_the_fifth_try_is_the_last(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.wrong["model.safetensors"] = 100
        t = time.monotonic()
        rc, log = download(hub, cache)
        assert rc == 1 and log.count("Retrying in") == 4 and time.monotonic() - t >= 4
        assert len(hub.of("cdn", "GET")) == 5
        assert not (snapshot(cache) / "model.safetensors").exists() and not (cache / "models--org--name/refs/main").exists()
        rc, log = download(None, cache, HF_HUB_OFFLINE="1")
        assert rc == 1 and "HF_HUB_OFFLINE" in log


def test_a_busy_hub_is_asked_again(cache):
    with Hub({"org/name": ADAPTER}) as hub:
        hub.busy = 1
        rc, log = download(hub, cache, HUB_RETRY_WAIT="")  # not set: 5 s
        assert rc == 0 and "429" in log and "Retrying in 5 seconds (1/4)" in log
        assert {p.name for p in snapshot(cache).iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_the_token_goes_to_the_hub_only(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.token = "hf_secret"
        rc, log = download(hub, cache)
        assert rc == 1 and "set HF_TOKEN" in log and len(hub.requests) == 1  # no use in trying again
        for env in ({"HF_TOKEN": "hf_secret"}, {"HUGGING_FACE_HUB_TOKEN": "hf_secret\n"}):
            rc, log = download(hub, cache, **env)
            assert rc == 0, log
            assert "hf_secret" not in log
        assert hub.of("cdn") and not [h for _, _, _, h in hub.of("cdn") if "Authorization" in h]
        assert {h["User-Agent"].split("/")[0] for _, _, _, h in hub.requests} == {"model-server"}


def test_the_token_of_a_file(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.token = "hf_file"
        (cache / "home").mkdir(parents=True)
        (cache / "home/token").write_text("hf_file\n")
        rc, log = download(hub, cache)
        assert rc == 0, log


@pytest.mark.parametrize(
    "repo, args, gated, words",
    [
        ("org/none", [], False, "org/none is not at http"),
        ("org/name", ["--revision", "v9"], False, "org/name has no revision v9"),
        ("org/name", [], True, "org/name is gated: accept its conditions at http"),
        ("org/pickles", [], False, "flax_model.pt is not read here"),
        ("./nowhere", [], False, "no such folder or GGUF file, and no name of a repository"),
        ("org/name", ["--revision", "../x"], False, "`../x` is not a branch, tag or commit"),
        ("org/name", ["--extension", ".bin"], False, "only .safetensors"),
    ],
)
def test_refusals_are_one_clear_line(cache, repo, args, gated, words):
    with Hub({"org/name": SINGLE, "org/pickles": {"config.json": b"{}", "flax_model.pt": b""}}) as hub:
        hub.gated = gated
        rc, log = download(hub, cache, repo, *args)
        assert rc == 1 and words in log, log
        assert len([x for x in log.splitlines() if "ERROR" in x]) == 1 and "Retrying" not in log
        assert not cache.joinpath("models--org--pickles").exists()


def test_hostile_names_stay_in_the_cache(cache):
    index = json.dumps({"weight_map": {"a": "../../../../evil.safetensors"}}).encode()
    with Hub({"org/name": {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors.index.json": index}}) as hub:
        rc, log = download(hub, cache)
        assert rc == 1 and "weight_map names no file" in log
        assert not list(cache.parent.rglob("evil*"))


def test_sigterm_stops_at_once_and_the_next_start_goes_on(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.hold.clear()
        p = Process([BIN / "model-server", "download-weights", "org/name"], env=environment(hub, cache), folder=cache.parent)
        assert hub.held.wait(20 * SLOW), p.log
        wait_for(lambda: any(f.stat().st_size for f in cache.glob("models--org--name/blobs/*.incomplete")))
        assert p.stop() == 1, p.log  # the hub would never end
        assert "stopped by a signal" in p.log
        partial = list(cache.glob("models--org--name/blobs/*.incomplete"))
        assert len(partial) == 1 and partial[0].stat().st_size > 0
        hub.hold.set()
        rc, log = download(hub, cache)
        assert rc == 0 and "Resuming a partial download" in log
        assert any("Range" in h for _, _, _, h in hub.of("cdn", "GET"))
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG


def test_two_processes_download_once(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.hold.clear()
        two = [Process([BIN / "model-server", "download-weights", "org/name"], env=environment(hub, cache), folder=cache.parent) for _ in range(2)]
        assert hub.held.wait(20 * SLOW)
        end = time.monotonic() + 20 * SLOW
        while not any("Waiting for another process" in p.log for p in two) and time.monotonic() < end:
            time.sleep(0.05)
        hub.hold.set()
        assert [p.p.wait(30 * SLOW) for p in two] == [0, 0], [p.log for p in two]
        assert len(hub.of("cdn", "GET")) == 1
        assert any("Waiting for another process" in p.log for p in two)


def test_no_room_is_said_before_the_download(cache):
    cache.mkdir()
    mount = f"mount -t tmpfs -o size=3m none {cache} && "
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount + "true"], capture_output=True).returncode:
        pytest.skip("may not mount a small file system here")
    with Hub({"org/name": SINGLE}) as hub:
        command = mount + f"exec {BIN / 'model-server'} download-weights org/name"
        r = subprocess.run(["unshare", "-rm", "sh", "-c", command], env=environment(hub, cache), capture_output=True, text=True)
        log = r.stdout + r.stderr
        assert r.returncode == 1 and "model.safetensors needs 6 MB and" in log and "Retrying" not in log, log
        assert not hub.of("cdn")


def test_a_server_that_falls_silent_is_left(cache):
    with Hub({"org/name": SINGLE}) as hub:
        hub.hold.clear()
        p = Process([BIN / "model-server", "download-weights", "org/name"], env=environment(hub, cache, HF_HUB_DOWNLOAD_TIMEOUT="2"), folder=cache.parent)
        p.wait_log("Operation too slow")
        hub.hold.set()
        assert p.p.wait(30 * SLOW) == 0, p.log
        assert (snapshot(cache) / "model.safetensors").read_bytes() == BIG


def test_a_write_error_is_not_tried_again(cache):
    with Hub({"org/name": SINGLE}) as hub:
        limit = f"ulimit -f 2000; exec {BIN / 'model-server'} download-weights org/name"  # blocks of 1 KiB
        r = subprocess.run(["bash", "-c", "trap '' XFSZ; " + limit], env=environment(hub, cache), capture_output=True, text=True)
        log = r.stdout + r.stderr
        assert r.returncode == 1 and "cannot write model.safetensors" in log and "Retrying" not in log, log


def test_an_unreachable_hub(cache):
    t = time.monotonic()
    rc, log = download(None, cache)
    assert rc == 1 and "cannot reach the hub" in log and log.count("Retrying in") == 4 and time.monotonic() - t >= 4


def test_https(cache, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key], check=True, capture_output=True,
    )
    with Hub({"org/name": SINGLE}, api_tls=(cert, key), cdn_tls=(cert, key)) as hub:
        rc, log = download(hub, cache)
        assert rc == 1 and "certificate" in log and "Retrying" not in log, log
        rc, log = download(hub, cache, SSL_CERT_FILE=str(cert), HF_TOKEN="hf_secret")
        assert rc == 0, log
        assert not [h for _, _, _, h in hub.of("cdn") if "Authorization" in h]
    with Hub({"org/name": SINGLE}, api_tls=(cert, key)) as hub:
        rc, log = download(hub, tmp_path / "second", SSL_CERT_FILE=str(cert))
        assert rc == 1 and not hub.of("cdn") and "Retrying" not in log, log  # from https only to https


def test_weights_cache_override(cache):
    rc, log = download(None, cache, "org/any", WEIGHTS_CACHE_OVERRIDE=str(DEMO))
    assert rc == 0 and "already present" in log


def test_the_launcher_serves_what_it_downloaded(cache):
    files = {p.name: p.read_bytes() for p in DEMO.iterdir() if p.is_file()}
    with Hub({"org/demo": files}) as hub:
        env = environment(hub, cache)
        env.pop("HF_HUB_CACHE")  # the flag must reach all of them
        args = ["--huggingface-hub-cache", cache]
        with Service("org/demo", args=args, env=env) as s:
            assert "Successfully downloaded weights for org/demo" in s.log
            r = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}})
            assert r.status_code == 200 and r.json()["generated_text"]
        with Service("org/demo", args=args, env={**env, "HF_HUB_OFFLINE": "1"}) as s:
            assert "Files are already present on the host" in s.log


def test_the_launcher_downloads_adapters(cache, tmp_path):
    lora = {p.name: p.read_bytes() for p in make_adapter(tmp_path / "lora", 1).iterdir()}
    with Hub({"org/red": lora, "org/blue": lora}) as hub:
        args = ["--lora-adapters", "org/red@v1,b=org/blue"]
        with Service(DEMO, args=args, env=environment(hub, cache)) as s:
            body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}}
            plain = s.post("/generate", body).json()["generated_text"]
            for name in ("org/red", "b"):
                body["parameters"]["adapter_id"] = name
                r = s.post("/generate", body)
                assert r.status_code == 200 and r.json()["generated_text"] != plain, r.text
        assert (snapshot(cache, "org/red").parent.parent / "refs/v1").exists()


GGUF = {
    "README.md": b"# hi",
    "config.json": b"{}",
    "m-Q4_K_M.gguf": b"GGUF four",
    "m-Q8_0-00001-of-00002.gguf": b"GGUF eight, one",
    "m-Q8_0-00002-of-00002.gguf": b"GGUF eight, two",
    "mmproj-m-Q8_0.gguf": b"GGUF of images in fewer bits",
    "mmproj-m-f16.gguf": b"GGUF of images",
    "BF16/m-BF16.gguf": b"GGUF in a folder",
}


def files(cache):
    return {p.name for p in snapshot(cache).iterdir()} if snapshot(cache).exists() else set()


@pytest.mark.parametrize(
    "packing, wanted",
    [
        ("", {"m-Q4_K_M.gguf"}),
        (":Q4_K_M", {"m-Q4_K_M.gguf"}),
        (":q8_0", {"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"}),
    ],
)
def test_the_one_gguf_model_that_is_meant(cache, packing, wanted):
    with Hub({"org/name": GGUF}) as hub:
        rc, log = download(hub, cache, "org/name" + packing)
        wanted = wanted | {"mmproj-m-f16.gguf"}  # one vision tower comes with each model, in 16 bits
        assert rc == 0 and files(cache) == wanted, log
        n = len(hub.requests)
        rc, log = download(hub, cache, "org/name" + packing)
        assert rc == 0 and len(hub.requests) == n and "already present" in log
        rc, log = download(hub, cache, "org/name:Q4_K_M")  # beside what is there
        assert rc == 0 and files(cache) == wanted | {"m-Q4_K_M.gguf"}, log
        for name in files(cache):
            assert (snapshot(cache) / name).read_bytes() == GGUF[name]


def test_a_part_that_is_missing_is_fetched(cache):
    with Hub({"org/name": GGUF}) as hub:
        rc, log = download(hub, cache, "org/name:Q8_0")
        assert rc == 0, log
        (snapshot(cache) / "m-Q8_0-00002-of-00002.gguf").unlink()
        rc, log = download(hub, cache, "org/name:Q8_0")
        assert rc == 0 and "m-Q8_0-00002-of-00002.gguf" in files(cache), log


def test_what_cannot_be_meant_is_named(cache):
    with Hub({"org/name": GGUF, "org/two": {"a-Q5_0.gguf": b"GGUF", "b-Q5_0.gguf": b"GGUF"}}) as hub:
        rc, log = download(hub, cache, "org/name:Q2_K")
        assert rc == 1 and "no single one of Q2_K GGUF file is meant; there are: m-Q4_K_M.gguf, m-Q8_0-00001-of-00002.gguf" in log
        rc, log = download(hub, cache, "org/two")
        assert rc == 1 and "it is not said which GGUF file is meant; there are: a-Q5_0.gguf, b-Q5_0.gguf" in log
        assert not files(cache)


def test_a_gguf_repository_is_served(cache, tmp_path):
    pytest.importorskip("gguf", reason="llama.cpp's Python module writes the file: pip install gguf")
    from gguf_made import write

    model = write(DEMO, tmp_path / "demo-Q8_0.gguf", "Q8_0")
    with Hub({"org/demo-GGUF": {"demo-Q8_0.gguf": model.read_bytes(), "demo-Q4_K_M.gguf": b"not this one"}}) as hub:
        with Service("org/demo-GGUF:Q8_0", env=environment(hub, cache)) as s:
            r = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}})
            assert r.status_code == 200 and r.json()["generated_text"].strip(), r.text
