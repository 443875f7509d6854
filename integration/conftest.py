"""How the tests of a whole run share the machine: the longest files start first, so that no core is idle at the end of a run
of several workers, and shards have one thread, which none of them waits for while another test has its core. Caches are small: touching
500 MB takes three times as long as everything else that a start of the demo does. A run leaves nothing behind."""

import gc
import os
import signal
import subprocess

import pytest
import serving

# By the processor time of each file with its services, or by --durations=50 of a whole run, the longest first; one that starts late has
# the end of the run for itself.
LONGEST = ["openapi", "peer_limits", "draft_model", "freeze", "replicas", "peer_problems", "speculation", "runtime_adapters", "windows", "gguf",
           "end_to_end", "parallel", "draft_heads", "restart", "stored", "invariance", "kv_transfer", "pressure", "packed_cache", "images",
           "recurrent", "lmtp", "models", "structured", "http", "kv_tiers", "adapters", "openai_fields", "hostile_http", "cuda_code"]
gc.disable()  # while tests are imported and collected, nothing becomes garbage
os.environ.setdefault("THREADS", "1")  # of each shard; tests of several threads say how many
os.environ.setdefault("KV_CACHE_MEMORY", "4e7")  # bytes: 13,000 tokens of the demo model, 1,600 of one with 48 layers
os.environ.setdefault("DRAFT_KV_CACHE_MEMORY", "4e7")
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # services inherit it: nohup ignores it, and tests send it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of numpy in each worker: more of them wait in loops


@pytest.fixture
def small_caches(monkeypatch):
    """For files that start a service for each case and ask little of it: half of the time of their shards in the kernel are pages of the cache."""
    monkeypatch.setenv("KV_CACHE_MEMORY", "2e7")


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)  # stable: the order within a file stays


def pytest_collection_finish():
    """What all the tests are made of is not searched for garbage again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def s():
    """The demo model, for files that have no service of their own."""
    with serving.Service(serving.DEMO) as service:
        yield service


@pytest.fixture
def apart(monkeypatch):
    """For tests for which gRPC has to be a library of its own."""
    monkeypatch.setattr(serving, "BIN", serving.APART)


@pytest.fixture(scope="session")
def slim():
    """The folder of `make slim`, what the image holds."""
    if os.environ.get("SAN"):
        pytest.skip("the image has no sanitizers")
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(["make", "-C", serving.ROOT, "slim"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return serving.ROOT / "build/slim"


def pytest_sessionfinish(exitstatus):
    serving.clean_up(keep_logs=exitstatus != 0)
