"""Processes that are stopped under live requests: the launcher kills them, and every answer is the one that it would have been."""

import concurrent.futures
import contextlib
import os
import signal
import time

import pytest
import requests
from serving import DEMO, SLOW, Service, wait_for

BODY = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 1500, "ignore_eos": True, "details": True}}
CACHE = ["--kv-cache-memory", "1e8", "--threads", 1]


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


def longest_pause(events):
    """The events, and the longest time between two of them."""
    out, worst, last = [], 0, time.monotonic()
    for e in events:
        worst, last = max(worst, time.monotonic() - last), time.monotonic()
        out.append(e)
    return out, worst


@pytest.mark.parametrize("num_shard,which", [(1, 0), (2, 1)])
def test_a_frozen_rank_costs_no_stream(num_shard, which):
    with Service(DEMO, num_shard, args=CACHE) as s:
        want = list(s.events("/generate_stream", BODY))
        events = s.events("/generate_stream", BODY)
        first = [next(events)]
        frozen = s.shards()[which]
        stop(frozen)
        rest, pause = longest_pause(events)
        assert first + rest == want
        assert not os.path.exists(f"/proc/{frozen}") and s.metric("tgi_shard_returns") == 1
        assert "no heartbeat" in s.log and f"rank {which} was frozen" in s.log
        print("longest pause", pause)
