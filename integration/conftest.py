"""Starts the longest files first, so that no core is idle at the end of a run of several workers."""

LONGEST = ["test_gpu_stand_in.py", "test_restart.py", "test_draft_model.py", "test_http.py", "test_hostile_http.py", "test_lmtp.py", "test_speculation.py"]


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.name
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)  # stable: the order within a file stays
