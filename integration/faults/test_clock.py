"""The wall clock is set back while streams run, as by NTP or after a virtual machine was moved: nothing waits for the time to come again."""

import os
import platform
import shutil
import subprocess
import threading
import time

import pytest
import requests
from serving import DEMO, ROOT, SLOW, Service, scratch, wait_for

ASK = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 150, "ignore_eos": True}}


@pytest.mark.skipif(not shutil.which("cc") or platform.machine() != "x86_64" or "SAN" in os.environ, reason="needs a preloaded library, which is compiled here")
def test_a_clock_that_is_set_back_holds_up_nothing():
    folder = scratch()
    library, jump = folder / "clock_jump.so", folder / "jump"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, ROOT / "integration/faults/clock_jump.c", "-ldl"], check=True)
    with Service(DEMO, 2, env={"LD_PRELOAD": str(library), "CLOCK_JUMP": str(jump)}) as s:
        want = s.post("/generate", ASK).json()
        for change in (jump.touch, jump.unlink):  # back, and forward again
            got = []
            streams = [threading.Thread(target=lambda: got.append(requests.post(s.url + "/generate", json=ASK, timeout=20 * SLOW).json())) for _ in range(4)]
            for t in streams:
                t.start()
            wait_for(lambda: s.metric("tgi_batch_current_size"))
            change()
            for t in streams:
                t.join()
            assert got == [want] * 4
            begun = time.monotonic()
            assert requests.post(s.url + "/generate", json=ASK, timeout=20 * SLOW).json() == want
            assert time.monotonic() - begun < 10 * SLOW
