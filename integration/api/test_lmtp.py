"""LMTP with lmql's own client classes and queries, against the real programs."""

import asyncio
import json
import math
import os
import signal
import socket
import subprocess

import aiohttp
import numpy as np
import pytest
import websockets
from deep import deep
from lmql.models.lmtp.errors import LMTPStreamError
from lmql.models.lmtp.lmtp_client import LMTPWebSocketClient
from serving import BIN, DEMO, SLOW, Service, data, wait_for


def stories(**kw):
    model = data("models/stories260K")
    prompts = json.loads((model / "golden.json").read_text())["prompts"]
    return Service(model, args=["--dtype", "float32", *kw.pop("args", [])], **kw), prompts


class Client:
    """lmql's client on one connection."""

    def __init__(self, service, path=""):
        self.url, self.model = service.url + path, str(service.argv[service.argv.index("--model-id") + 1])

    async def __aenter__(self):
        self.session = aiohttp.ClientSession()
        self.ws = await self.session.ws_connect(self.url)
        client = LMTPWebSocketClient(self.model, self.ws)
        client.connect()
        return client

    async def __aexit__(self, *_):
        await self.ws.close()
        await self.session.close()


async def all_of(stream):
    return [item async for item in stream]


async def ids_of(stream):
    return [item["token"] async for item in stream]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120 * SLOW))


def log_softmax(logits):
    x = np.asarray(logits, dtype=np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


@pytest.fixture(scope="module")
def served():
    service, prompts = stories(args=["--max-batch-prefill-tokens", "256", "--max-concurrent-requests", "512"])
    with service as s:
        yield s, prompts


def test_greedy_tokens_and_logprobs_are_the_golden_ones(served):
    async def body(s, prompts):
        async with Client(s) as c:
            for p in prompts:
                items = await all_of(c.generate(p["ids"], max_tokens=p["max_new_tokens"], top_logprobs=5))
                want = p["tokens"][: len(items)]
                assert [i["token"] for i in items] == [t["id"] for t in want]
                assert len(items) == p["max_new_tokens"] or items[-1]["finish_reason"] == "stop"
                for item, token in zip(items, want):
                    assert item["logprob"] == pytest.approx(token["logprob"], abs=2e-3)
                    assert next(iter(item["top_logprobs"])) == str(item["token"])
                    got, top = item["top_logprobs"], dict(token.get("top5", []))
                    assert len(got) == 5
                    for k, v in got.items():
                        if int(k) in top:  # ties at the fifth place may fall either way
                            assert v == pytest.approx(top[int(k)], abs=2e-3)

    run(body(*served))


def test_scores_are_the_golden_prompt_logprobs(served):
    async def body(s, prompts):
        async with Client(s, "/lmtp") as c:
            for p in prompts:
                want = [t["logprob"] for t in p["prefill"]]
                for cut in {0, 1, len(want) - 1}:
                    items = await all_of(c.score(p["ids"][:cut], p["ids"][cut:]))
                    assert [i["token"] for i in items] == p["ids"][cut:]
                    assert [i["finish_reason"] for i in items] == [None] * (len(items) - 1) + ["stop"]
                    for item, logprob in zip(items, want[cut:]):
                        assert item["logprob"] == pytest.approx(logprob or 0, abs=2e-3)
                        assert "top_logprobs" not in item

    run(body(*served))


def test_bias_is_added_to_the_logits_before_anything_else(served):
    async def body(s, prompts):
        p = prompts[0]
        n = len(p["last_logits"])
        allow, logits = 400, np.array(p["last_logits"])
        forbid = {str(t): -100 for t in range(n) if t not in (allow, allow + 1)}
        async with Client(s) as c:
            for bias in ({str(allow): 3.5, "432": -2}, {str(allow): 100}, forbid):
                shifted = logits.copy()
                for t, v in bias.items():
                    shifted[int(t)] += v
                want = log_softmax(shifted)
                for kw in ({}, {"temperature": 0.7, "seed": 5}, {"temperature": 1.3, "seed": 6, "top_k": 2}):
                    (item,) = await all_of(c.generate(p["ids"], max_tokens=1, top_logprobs=4, logit_bias=bias, **kw))
                    # temperature and filters choose, but what is reported is the same distribution
                    for k, v in item["top_logprobs"].items():
                        assert v == pytest.approx(max(want[int(k)], -1e30), abs=2e-3)
                    if not kw:
                        assert item["token"] == int(np.argmax(shifted))
            (item,) = await all_of(c.generate(p["ids"], max_tokens=1, logit_bias=forbid, temperature=1.0))
            assert item["token"] in (allow, allow + 1)

    run(body(*served))


def mixed(prompts):
    """32 streams that differ in everything that could leak from one to another."""
    for i in range(32):
        ids = prompts[i % len(prompts)]["ids"][: 2 + i % 3] if i % 5 else prompts[0]["ids"]
        if i % 8 == 7:
            yield "score", (ids, prompts[0]["generated_ids"][: 5 + i]), {}
            continue
        kw = {"max_tokens": 3 + 2 * i, "top_logprobs": 1 + i % 4}
        if i % 2:
            kw |= {"temperature": 0.3 + i / 20, "seed": i}
        if i % 3 == 0:
            kw |= {"logit_bias": {str(t): -100 for t in range(i, 500, 7)}}
        if i % 4 == 1:
            kw |= {"top_p": 0.9, "repetition_penalty": 1.2}
        yield "generate", (ids,), kw


def test_32_interleaved_streams_get_exactly_what_each_gets_alone(served):
    def plain(items):
        return [{k: v for k, v in i.items() if k != "stream_id"} for i in items]

    async def body(s, prompts):
        work = list(mixed(prompts))
        async with Client(s) as c:
            alone = [plain(await all_of(getattr(c, name)(*args, **kw))) for name, args, kw in work]
            streams = [all_of(getattr(c, name)(*args, **kw)) for name, args, kw in work]
            together = [plain(items) for items in await asyncio.gather(*streams)]
        assert together == alone
        for (name, _, kw), items in zip(work, alone):
            assert (
                len(items) == kw.get("max_tokens", len(items)) or items[-1]["finish_reason"] == "stop"
            ), "exactly what was asked for"

    run(body(*served))


def test_a_continuation_computes_one_token(served):
    """lmql sends the whole prompt again for every chunk: all but its last token is in the cache."""

    async def body(s, prompts):
        ids = prompts[0]["ids"] + prompts[0]["generated_ids"][:45]
        async with Client(s) as c:
            ids = ids + await ids_of(c.generate(ids, max_tokens=16))
            for _ in range(3):
                before = s.metric("tgi_request_input_length_sum"), s.metric("prefix_hit_tokens") or 0
                answer = await ids_of(c.generate(ids, max_tokens=16))
                wait_for(lambda: s.metric("tgi_request_input_length_sum") - before[0] == len(ids))
                assert s.metric("prefix_hit_tokens") - before[1] == len(ids) - 1
                ids = ids + answer

    run(body(*served))


def test_scores_share_the_prompt_they_have_in_common(served):
    async def body(s, prompts):
        ids = prompts[0]["ids"] + prompts[0]["generated_ids"][:60]
        async with Client(s) as c:
            alone = [await all_of(c.score(ids[:60], [t, t + 1, t + 2])) for t in (300, 301, 302)]
            await ids_of(c.generate(ids[:60], max_tokens=1))
            before = s.metric("prefix_hit_tokens") or 0
            again = await asyncio.gather(*(all_of(c.score(ids[:60], [t, t + 1, t + 2])) for t in (300, 301, 302)))
            # the last prompt token is computed again: its logits say how likely the first scored one is
            assert s.metric("prefix_hit_tokens") - before == 3 * 59
        for a, b in zip(alone, again):
            assert [i["logprob"] for i in a] == [i["logprob"] for i in b]

    run(body(*served))


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """The demo model, slow enough that a test finds its streams still running, on any machine."""
    return deep(tmp_path_factory.mktemp("lmtp") / "deep", 60)


def test_cancel_reaches_lmqls_client(slow):
    async def body(s):
        async with Client(s) as c:
            stream = c.generate([1, 5], max_tokens=1500, logit_bias={"1": -100})
            first = await stream.__anext__()
            reply = await c.request("CANCEL", {"stream_id": first["stream_id"]})
            assert reply["message"] == "cancel requested"
            with pytest.raises(LMTPStreamError, match="lmtp.cancelled"):
                async for _ in stream:
                    pass

    with Service(slow) as s:
        run(body(s))


def test_info_and_errors_reach_lmqls_client(served):
    async def body(s, prompts):
        async with Client(s) as c:
            info = (await c.request("MODEL_INFO", {"model": c.model_identifier}))["model_info"]
            assert info["vocab_size"] == 512 and info["max_input_tokens"] > 0
            for kw in ({"max_tokens": 0}, {"logit_bias": {"-1": 1}}, {"logit_bias": {"512": 1}}, {"top_logprobs": 0}):
                with pytest.raises(LMTPStreamError):
                    await all_of(c.generate([1], **kw))
            with pytest.raises(LMTPStreamError, match="vocabulary"):
                await all_of(c.generate([512]))
            with pytest.raises(LMTPStreamError, match="scored"):
                await all_of(c.score([1], []))
            c.model_identifier = "another"
            with pytest.raises(LMTPStreamError, match="another"):
                await all_of(c.generate([1]))
            assert "another" in (await c.request("MODEL_INFO", {}))["error"]

    run(body(*served))


def test_a_query_with_constraints():
    """The high-level API: tokenizer in the client, masks as biases, chunks, scores."""
    import lmql

    with Service(DEMO) as s:
        model = lmql.model(str(DEMO), endpoint=f"127.0.0.1:{s.port}", tokenizer=str(DEMO))

        @lmql.query(model=model)
        async def story():
            """lmql
            "Once upon a time there was a [ANIMAL]" where ANIMAL in [" cat", " dog", " bear"]
            " and [REST]" where len(TOKENS(REST)) < 25
            return ANIMAL, REST
            """

        async def body():
            animal, rest = await story()
            assert animal in (" cat", " dog", " bear")
            scores = await model.score("Once upon a time there was a", [" cat", " dog", " bear"])
            assert np.isfinite(scores.scores()).all() and (scores.scores() < 0).all()
            return rest

        assert run(body()).strip()


def test_beam_search_finds_what_greedy_misses():
    """Many streams with alternatives and nearly the same prompt, by lmql's own decoder; then scores of what it found."""
    import lmql

    with Service(DEMO) as s:
        model = lmql.model(str(DEMO), endpoint=f"127.0.0.1:{s.port}", tokenizer=str(DEMO))

        @lmql.query(model=model, decoder="beam", n=3, max_len=64)
        async def beams():
            """lmql
            "Once upon a time there was a[REST]" where len(TOKENS(REST)) < 12
            return REST
            """

        @lmql.query(model=model, decoder="argmax", max_len=64)
        async def greedy():
            """lmql
            "Once upon a time there was a[REST]" where len(TOKENS(REST)) < 12
            return REST
            """

        async def body():
            found, plain = await beams(), await greedy()
            scores = (await model.score("Once upon a time there was a", [*found, plain])).scores()
            assert len(set(found)) == 3 and max(scores[:3]) > scores[3] - 1e-4

        run(body())


def test_decoders_and_constraints_of_lmql():
    """Each decoder asks for other streams, alternatives and biases. Afterwards the server holds nothing."""
    import lmql

    decoders = [("sample", {"n": 3, "temperature": 1.2}, 3), ("beam_var", {"n": 2}, 2), ("best_k", {"k": 2, "budget": 8}, 1), ("beam_sample", {"n": 2}, 2), ("var", {"n": 2}, 2)]
    with Service(DEMO) as s:
        model = lmql.model(str(DEMO), endpoint=f"127.0.0.1:{s.port}", tokenizer=str(DEMO))

        async def said(query, **kw):
            found = await lmql.run(query, model=model, max_len=40, **kw)
            return [r.variables["X"] for r in (found if isinstance(found, list) else [found])]

        async def body():
            for decoder, kw, n in decoders:
                texts = await said('"Once upon a time [X]" where len(TOKENS(X)) < 10', decoder=decoder, **kw)
                assert len(texts) == n and all(t.strip() for t in texts), (decoder, texts)
            (digits,) = await said('"A: [X]" where REGEX(X, r"[0-9][0-9]")', decoder="argmax")
            (number,) = await said('"N: [X]" where INT(X) and len(TOKENS(X)) < 4', decoder="argmax")
            assert digits.isdigit() and len(digits) == 2 and isinstance(number, int)

        run(body())
        wait_for(lambda: not s.audit()["scheduler"]["sequences"])


async def raw(s):
    return await websockets.connect(f"ws://127.0.0.1:{s.port}/", max_size=None)


async def ask(ws, kind, **fields):
    await ws.send(kind + " " + json.dumps(fields))


def test_a_dead_shard_ends_every_stream_with_an_error(slow):
    async def body(s):
        async with await raw(s) as a, await raw(s) as b:
            for ws in (a, b):
                for i in range(4):
                    await ask(ws, "GENERATE", prompt=[1], max_tokens=1500, logit_bias={"1": -100}, stream_id=i)
                await ws.recv()
            for pid in s.shards():
                os.kill(pid, signal.SIGKILL)
            for ws in (a, b):
                failed = set()
                try:
                    async for frame in ws:
                        failed |= {i["stream_id"] for i in json.loads(frame.split(" ", 1)[1]) if "error" in i}
                except websockets.ConnectionClosedError:
                    pass
                assert failed == {0, 1, 2, 3}

    s = Service(slow, args=["--max-shard-restarts", 0])
    run(body(s))
    s.stop()


def test_sigterm_lets_streams_finish_and_says_goodbye(slow):
    async def body(s):
        async with await raw(s) as busy, await raw(s) as idle:
            await ask(busy, "GENERATE", prompt=[1, 5], max_tokens=100, logit_bias={"1": -100}, stream_id=1)
            n = len(json.loads((await busy.recv()).split(" ", 1)[1]))
            s.p.send_signal(signal.SIGTERM)
            last = None
            async for frame in busy:
                items = json.loads(frame.split(" ", 1)[1])
                n += len(items)
                last = items[-1]
            assert last["finish_reason"] == "length" and n == 100
            assert busy.close_code == 1001
            async for _ in idle:
                pass
            assert idle.close_code == 1001

    s = Service(slow)
    run(body(s))
    assert s.stop() == 0


def test_keys_and_aliases():
    async def body(s):
        with pytest.raises(websockets.InvalidStatus) as e:
            await raw(s)
        assert e.value.response.status_code == 401
        headers = {"Authorization": "Bearer secret"}
        async with websockets.connect(f"ws://127.0.0.1:{s.port}/", additional_headers=headers) as ws:
            await ask(ws, "GENERATE", model="gpt2", prompt=[1], max_tokens=1, stream_id=1)
            assert "logprob" in await ws.recv()

    with Service(DEMO, args=["--lmtp-model-alias", "gpt2"], env={"API_KEY": "secret"}) as s:
        run(body(s))


def test_lines_on_a_unix_socket(tmp_path):
    path = tmp_path / "lmtp"
    with Service(DEMO, args=["--lmtp-listen", f"unix:{path}"]) as s:
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(path))
            c.sendall(b'GENERATE {"prompt": [1, 9], "max_tokens": 5, "stream_id": 1}\n')
            c.shutdown(socket.SHUT_WR)
            items = []
            for line in c.makefile():
                kind, body = line.split(" ", 1)
                assert kind == "TOKEN"
                items += json.loads(body)
            assert len(items) == 5 and items[-1]["finish_reason"] == "length"
            assert all(math.isfinite(i["logprob"]) for i in items)
    assert not path.exists()


def test_the_command_line_client(tmp_path):
    def client(address, lines, *args):
        argv = [BIN / "launcher", "lmtp", address, "--model-id", DEMO, *args]
        return subprocess.run(argv, input=lines, capture_output=True, text=True, timeout=60 * SLOW)

    path = tmp_path / "lmtp"
    with Service(DEMO, args=["--lmtp-listen", f"unix:{path}"]) as s:
        body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20}}
        want = s.post("/generate", body).json()["generated_text"]
        for address in (f"127.0.0.1:{s.port}", f"unix:{path}"):
            r = client(address, "Once upon a time max_tokens=20\n\nOnce upon a time max_tokens=20 temperature=null")
            assert (r.returncode, r.stdout) == (0, want + "\n" + want + "\n"), r.stderr
        again = [client(address, "Hello temperature=1.2 seed=7 max_tokens=9\n").stdout for _ in range(2)]
        assert again[0] == again[1]
        r = client(address, "Solve x=.5\nSolve x=+5\nSolve x=0x5\n")  # not JSON's numbers: part of the text
        assert r.returncode == 0 and not r.stderr, r.stderr
        r = client(address, "Once upon a time\t there was\nOnce upon a time\t xylophone\n", "--score")
        likely, unlikely = map(float, r.stdout.split())
        assert unlikely < likely < 0
        text = [str(BIN / "launcher"), "lmtp", f"unix:{path}"]  # the server's tokenizer
        r = subprocess.run(text, input="Once upon a time max_tokens=20\n", capture_output=True, text=True, timeout=60)
        assert (r.returncode, r.stdout) == (0, want + "\n"), r.stderr
        r2 = subprocess.run([*text, "--score"], input="Once upon a time\t there was\n", capture_output=True, text=True)
        assert float(r2.stdout) == likely, r2.stderr
        r = client(address, "Hello max_tokens=0\nHello max_tokens=2\n", "--logprobs")
        assert r.returncode == 1 and "max_tokens" in r.stderr and len(r.stdout.splitlines()) == 2
    r = client(address, "Hello\n")
    assert r.returncode == 1 and r.stderr.startswith("launcher lmtp: ")


async def items_of(ws, stream_id):
    """TOKEN items of one stream until its last one."""
    out = []
    while not out or (out[-1].get("finish_reason") is None and "error" not in out[-1]):
        kind, body = (await ws.recv()).split(" ", 1)
        out += [i for i in json.loads(body) if kind == "TOKEN" and i["stream_id"] == stream_id]
    return out


def test_text_buffers_and_time_outs():
    async def body(s):
        want = s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 40, "details": True}})
        want = want.json()
        async with await raw(s) as ws:
            await ask(ws, "GENERATE", text="Once upon a time", max_tokens=40, stream_id=1)
            items = await items_of(ws, 1)
            assert "".join(i["text"] for i in items) == want["generated_text"]
            assert [i["token"] for i in items] == [t["id"] for t in want["details"]["tokens"]]

            # the same in two halves, the second of which sends no token at all
            await ask(ws, "GENERATE", text="Once upon a time", max_tokens=20, save="story", stream_id=2)
            first = await items_of(ws, 2)
            before = s.metric("prefix_hit_tokens") or 0
            await ask(ws, "GENERATE", buffer="story", max_tokens=20, save="story", stream_id=3)
            second = await items_of(ws, 3)
            assert [i["token"] for i in first + second] == [i["token"] for i in items]
            assert s.metric("prefix_hit_tokens") > before
            await ask(ws, "BUFFER", buffer="story", save="copy", stream_id=4)
            n = len(s.post("/tokenize", {"inputs": "Once upon a time"}).json())
            assert json.loads((await ws.recv()).split(" ", 1)[1])[0]["n_tokens"] == n + 40

            await ask(ws, "GENERATE", prompt=[1], max_tokens=1900, logit_bias={"1": -100}, timeout=0.05, stream_id=5)
            items = await items_of(ws, 5)
            assert items[-1] == {"stream_id": 5, "error": "lmtp.timeout"} and len(items) < 1900

    with Service(DEMO) as s:
        run(body(s))


def test_who_waits_is_told_its_place():
    async def body(s):
        async with await raw(s) as ws:
            told = {i: [] for i in range(4)}
            done = 0

            async def receive():
                nonlocal done
                kind, items = (await ws.recv()).split(" ", 1)
                for item in json.loads(items):
                    if kind == "MSG":
                        assert item["status"] == "queued"
                        told[item["stream_id"]].append(item["position"])
                    else:
                        done += item["finish_reason"] is not None

            long = {"prompt": [1], "max_tokens": 1200, "logit_bias": {"1": -100}, "status": True}
            with s.held():
                sent = s.metric("tgi_batch_inference_count", method="prefill") or 0
                await ask(ws, "GENERATE", stream_id=0, **long)
                wait_for(lambda: s.metric("tgi_batch_inference_count", method="prefill") == sent + 1)
                for i in range(1, 4):
                    await ask(ws, "GENERATE", stream_id=i, **long)
                while not told[3]:
                    await receive()
            while done < 4:
                await receive()
            assert told[0] == []  # it never waited
            for i in range(1, 4):  # nearer and nearer; a step that lasts less than the interval is not told
                assert told[i] == sorted(told[i], reverse=True) and told[i][0] == i

    with Service(DEMO, args=["--max-batch-size", "1"]) as s:
        run(body(s))


def test_a_stream_survives_its_connection():
    async def body(s):
        want = {"prompt": [1, 5], "max_tokens": 400, "logit_bias": {"1": -100}}
        async with await raw(s) as ws:
            await ask(ws, "GENERATE", stream_id=1, **want)
            alone = await items_of(ws, 1)
        ws = await raw(s)
        await ask(ws, "GENERATE", stream_id=1, session="5eb1c0de", **want)
        got = json.loads((await ws.recv()).split(" ", 1)[1])
        ws.transport.abort()  # as when a cable is pulled
        while len(got) < 400:  # and again, in the middle
            async with await raw(s) as ws:
                await ask(ws, "RESUME", stream_id=1, session="5eb1c0de", **{"from": len(got)})
                for _ in range(3):
                    if len(got) < 400:
                        got += json.loads((await ws.recv()).split(" ", 1)[1])
        assert got == alone

    with Service(DEMO) as s:
        run(body(s))
