"""A draft model in addition to the served one: answers are bit-identical, whatever happens to it."""

import concurrent.futures
import os
import pathlib
import random
import signal
import threading
import time

import pytest
from deep import deep
from paced import Pair
from serving import BIN, DEMO, SLOW, Process, Service, data, free_port, wait_for, seed_for
from test_speculation import CHEAP, TIGHT, answer, bodies, crowd, skipped

LAYERS = 48  # eight times the draft's


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return deep(tmp_path_factory.mktemp("deep") / "model", LAYERS)


@pytest.fixture(scope="module")
def want(model):
    """What the model says without drafts."""
    with Service(model) as s:
        return crowd(s, work())


def work():
    return list(bodies(24))


def drafting(model, *args, num_shard=1, env=None):
    return Service(model, num_shard, args=["--draft-model-id", DEMO, "--speculate", "6", *args], env=env)


def draft_pid(s):
    """The draft model's process; None between two of its lives."""
    for pid in s.children():
        try:
            if b"shard-draft\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except (FileNotFoundError, ProcessLookupError):  # it has ended since, perhaps while it was read
            pass
    return None


def at_work(s):
    return s.metric("tgi_draft_model") == 1


def test_answers_stay_the_same_and_take_fewer_steps(model, want):
    with drafting(model, env=CHEAP) as s:
        wait_for(lambda: at_work(s), 60)
        assert crowd(s, work()) == want
        assert [answer(s, b) for b in work()] == want
        assert skipped(s) > 100  # most of them alone, where rows are cheap
        assert s.metric("tgi_draft_tokens") > 100
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


@pytest.mark.parametrize("num_shard", [1, 2])
def test_the_same_with_little_room_and_two_shards(model, want, num_shard):
    with drafting(model, *TIGHT, num_shard=num_shard) as s:
        wait_for(lambda: at_work(s), 60)
        got = [crowd(s, work())]
        while s.metric("tgi_draft_tokens") == 0 and len(got) < 10:  # a busy machine: no draft came in time
            got.append(crowd(s, work()))
        if num_shard == 2:
            with Service(model, 2) as plain:
                want = crowd(plain, work())
        assert all(answers == want for answers in got)
        assert s.metric("tgi_draft_tokens") > 0
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_it_dies_and_comes_back_while_answers_are_made(model, want):
    rng = random.Random(seed_for(3))
    over = threading.Event()
    killed = 0

    def kill():
        nonlocal killed
        while not over.is_set():
            over.wait(rng.uniform(0, 0.8))
            pid = draft_pid(s)
            if pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass

    with drafting(model, env=CHEAP) as s:
        wait_for(lambda: at_work(s), 60)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            end = time.monotonic() + 120
            while killed < 4 and time.monotonic() < end:
                assert crowd(s, work()) == want
        finally:
            over.set()
            killer.join()
        assert killed >= 4
        before = skipped(s)
        wait_for(lambda: at_work(s), 60)  # the launcher starts it again, later and later
        assert [answer(s, b) for b in work()] == want
        assert skipped(s) > before
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


def test_steps_that_wait_for_drafts_change_no_answer(tmp_path):
    """A draft model that is far faster than a step and often wrong: the demo without its last layer."""
    model, less = deep(tmp_path / "model", 288), deep(tmp_path / "less", 5)
    some = work()[:4]
    with Service(model) as s:
        want = [answer(s, b) for b in some]
    with Service(model, args=["--draft-model-id", less, "--speculate", "6"], env=CHEAP) as s:
        wait_for(lambda: at_work(s), 60)
        for _ in range(5):  # a busy machine meets fewer of them
            assert [answer(s, b) for b in some] == want
            if s.metric("tgi_draft_waits", outcome="met") > 10:
                break
        assert s.metric("tgi_draft_waits", outcome="met") > 2
        assert crowd(s, some) == want
        wait_for(lambda: s.metric("kv_blocks", state="used") == 0)


STEP_MS, TOKENS = 60, 80  # of the stand-ins; of an answer


def during(p, act):
    """An answer of the pair, and act() while its steps wait for drafts."""
    met = p.waits("met")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        said = pool.submit(p.answer, TOKENS)
        wait_for(lambda: p.waits("met") > met + 2, 30)
        act()
        start = time.monotonic()
        ids, _ = said.result()
        assert time.monotonic() - start < TOKENS * STEP_MS / 1000 * 1.3 * SLOW  # no more than all of it without drafts
        return ids


def test_one_that_freezes_or_dies_while_a_step_waits_for_it():
    with Pair(STEP_MS) as plain:
        want, _ = plain.answer(TOKENS)
    with Pair(STEP_MS, draft=(16, 0.6)) as p:
        assert p.answer(TOKENS)[0] == want
        missed = []

        def freeze():
            missed.append(p.waits("missed"))  # a busy machine may have made some before
            p.draft.p.send_signal(signal.SIGSTOP)

        assert during(p, freeze) == want
        assert p.waits("missed") <= missed[0] + 1  # waits are off at once
        met = p.waits("met")
        p.draft.p.send_signal(signal.SIGCONT)
        for _ in range(3):  # and on again once it has answered a while
            assert p.answer(TOKENS)[0] == want
        assert p.waits("met") > met
        assert during(p, p.draft.p.kill) == want
        assert not p.drafts()
        assert p.answer(TOKENS)[0] == want
        p.start_draft()
        wait_for(p.drafts, 30)
        wait_for(lambda: p.answer(TOKENS)[0] == want and p.waits("met") > met + 10, 60)


def test_one_that_freezes_holds_nobody_up(model, want):
    with drafting(model) as s:
        wait_for(lambda: at_work(s), 60)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = pool.submit(crowd, s, work())
            time.sleep(0.3)
            pid = draft_pid(s)
            os.kill(pid, signal.SIGSTOP)
            assert answers.result() == want
        assert crowd(s, work()) == want
        wait_for(lambda: not os.path.exists(f"/proc/{pid}") and at_work(s), 60)  # the launcher has started another one
        assert crowd(s, work()) == want


@pytest.mark.parametrize("far", [False, True])
def test_it_may_come_in_the_middle_of_an_answer(model, far):
    """As three programs, without the launcher; also as if on another machine."""
    port = free_port()
    there = f"tcp://127.0.0.1:{free_port()}" if far else f"/tmp/d{port}"
    target = Process([BIN / "model-server", "serve", model, "--uds-path", f"/tmp/t{port}", "--speculate", "4", "--threads", "1"])
    argv = [BIN / "router", "--tokenizer-name", model, "--port", port, "--hostname", "127.0.0.1"]
    argv += ["--master-shard-uds-path", f"/tmp/t{port}-0", "--draft-shard-uds-path", there if far else f"{there}-0"]
    router = Process(argv)
    s = Service.__new__(Service)
    s.url = f"http://127.0.0.1:{port}"
    draft = None
    try:
        router.wait_log("Connected", 60)
        body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 500, "ignore_eos": True, "details": True}}
        events = s.events("/generate_stream", body)
        first = [next(events) for _ in range(20)]
        os.kill(target.p.pid, signal.SIGSTOP)  # a fast one would be through before the other is there
        draft = Process([BIN / "model-server", "serve", DEMO, "--uds-path", there, "--threads", "1"])
        router.wait_log("Drafting", 60)
        drafted = s.metric("tgi_draft_tokens")
        os.kill(target.p.pid, signal.SIGCONT)
        rest = list(events)
        assert s.metric("tgi_draft_tokens") > drafted + 50
        again = list(s.events("/generate_stream", body))
        assert again == first + rest
    finally:
        for p in (router, draft, target):
            if p:
                p.stop()


def test_one_with_another_vocabulary_is_refused_and_nobody_is_hurt(model, want):
    other = data("models/stories260K")
    with Service(model, args=["--draft-model-id", other]) as s:
        s.wait_log("its vocabulary is another one", 30)
        assert crowd(s, work()) == want
        assert s.metric("tgi_draft_tokens") == 0 and not at_work(s)


def test_without_requests_it_rests(model):
    def cpu(pid):
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(words[11]) + int(words[12])

    with drafting(model) as s:
        wait_for(lambda: at_work(s), 60)
        crowd(s, work()[:4])
        pid = draft_pid(s)

        def rests():  # after a while: at first it touches the memory of its cache
            before = cpu(pid)
            time.sleep(2)
            return cpu(pid) - before <= 0.02 * SLOW * os.sysconf("SC_CLK_TCK")

        def still():
            drafted = s.metric("tgi_draft_tokens")
            return rests() and rests() and s.metric("tgi_draft_tokens") == drafted

        wait_for(still, 60)
        drafted = s.metric("tgi_draft_tokens")
        crowd(s, work()[:4])
        assert s.metric("tgi_draft_tokens") > drafted
