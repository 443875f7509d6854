"""How the tests of a whole run share the machine: the longest files start first, so that no core is idle at the end of a run
of several workers, and shards have one thread, which none of them waits for while another test has its core. A run leaves nothing behind."""

import os

import serving

LONGEST = ["draft_model", "openapi", "restart", "windows", "pains_limits", "replicas", "hostile_http", "cuda_code", "gguf", "freeze", "models", "speculation"]
os.environ.setdefault("THREADS", "1")  # of each shard; tests of several threads say how many


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)  # stable: the order within a file stays


def pytest_sessionfinish(exitstatus):
    serving.clean_up(keep_logs=exitstatus != 0)
