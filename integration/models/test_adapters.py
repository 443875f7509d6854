"""LoRA adapters through the real programs: named by adapter_id and by `model`, many in one batch, more than fit at a time."""

import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import time

import grpc
import openai
import pytest
import requests

import torch_made
from serving import DEMO, Service, data, free_port, wait_for
from shard import Router, Shards
from test_replicas import ready

CONFIG = json.loads((DEMO / "config.json").read_text())
WIDTHS = {  # outputs, inputs
    "self_attn.q_proj": (CONFIG["num_attention_heads"] * CONFIG["head_dim"], CONFIG["hidden_size"]),
    "self_attn.k_proj": (CONFIG["num_key_value_heads"] * CONFIG["head_dim"], CONFIG["hidden_size"]),
    "self_attn.v_proj": (CONFIG["num_key_value_heads"] * CONFIG["head_dim"], CONFIG["hidden_size"]),
    "self_attn.o_proj": (CONFIG["hidden_size"], CONFIG["num_attention_heads"] * CONFIG["head_dim"]),
    "mlp.gate_proj": (CONFIG["intermediate_size"], CONFIG["hidden_size"]),
    "mlp.up_proj": (CONFIG["intermediate_size"], CONFIG["hidden_size"]),
    "mlp.down_proj": (CONFIG["hidden_size"], CONFIG["intermediate_size"]),
}
PROMPTS = ["Once upon a time", "The little dog", "Lily and Ben went to the"]


def make_adapter(folder, seed, rank=4, targets=tuple(WIDTHS), scale=0.15, torch=False):
    """A random adapter of the demo model, as PEFT would save it; with `torch`, as PEFT did before safetensors."""
    rng, header, blob = random.Random(seed), {}, b""
    for layer in range(CONFIG["num_hidden_layers"]):
        for target in targets:
            out, inputs = WIDTHS[target]
            for which, shape in (("A", (rank, inputs)), ("B", (out, rank))):
                n = shape[0] * shape[1]
                values = struct.pack(f"<{n}f", *(rng.gauss(0, scale) for _ in range(n)))
                name = f"base_model.model.model.layers.{layer}.{target}.lora_{which}.weight"
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(blob), len(blob) + len(values)]}
                blob += values
    text = json.dumps(header).encode()
    folder.mkdir()
    if torch:
        places = {name: t["data_offsets"] for name, t in header.items()}
        torch_made.save(folder / "adapter_model.bin", {name: ("F32", t["shape"], blob[slice(*places[name])]) for name, t in header.items()})
    else:
        (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": rank, "r": rank}))
    return folder


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    made = {
        "red": make_adapter(root / "red", 1),
        "blue": make_adapter(root / "blue", 2, rank=9, torch=True),
        "green": make_adapter(root / "green", 3, rank=2, targets=("self_attn.q_proj", "mlp.down_proj"), scale=0.4),
    }
    return made, ",".join(f"{name}={folder}" for name, folder in made.items())


def ask(s, prompt, adapter=None, **more):
    parameters = {"max_new_tokens": 24, "details": True, "ignore_eos": True, **more}
    if adapter:
        parameters["adapter_id"] = adapter
    r = s.post("/generate", {"inputs": prompt, "parameters": parameters})
    assert r.status_code == 200, r.text
    return [t["id"] for t in r.json()["details"]["tokens"]]


def test_adapters_answer_alone_and_together(adapters):
    made, flag = adapters
    cases = [(p, a) for p in PROMPTS for a in (None, *made)]
    with Service(DEMO) as s:
        base = {p: ask(s, p) for p in PROMPTS}
        r = s.post("/generate", {"inputs": "x", "parameters": {"adapter_id": "red"}})
        assert r.status_code == 422 and "there is no adapter `red`" in r.json()["error"]
    with Service(DEMO, args=["--lora-adapters", flag]) as s:
        alone = {c: ask(s, *c) for c in cases}
        for p in PROMPTS:
            assert alone[p, None] == base[p]
            assert len({tuple(alone[p, a]) for a in (None, *made)}) == 4, "each says something else"
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            together = list(pool.map(lambda c: ask(s, *c), cases * 4))
        assert together == [alone[c] for c in cases * 4]
        seeded = dict(do_sample=True, seed=7, temperature=1.2)
        assert ask(s, PROMPTS[0], "red", **seeded) == ask(s, PROMPTS[0], "red", **seeded)
        r = s.post("/generate", {"inputs": "x", "parameters": {"adapter_id": "purple"}})
        assert r.status_code == 422 and "there is no adapter `purple`" in r.json()["error"]
    with Service(DEMO, num_shard=2, args=["--lora-adapters", flag]) as s:
        assert {c: ask(s, *c) for c in cases} == alone


def test_openai_clients_name_them_as_models(adapters):
    made, flag = adapters
    with Service(DEMO, args=["--lora-adapters", flag]) as s:
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="-")
        names = [m.id for m in client.models.list()]
        assert names[1:] == list(made) and client.models.retrieve("blue").id == "blue"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("purple")
        for name in (None, *made):
            r = client.completions.create(model=name or names[0], prompt=PROMPTS[0], max_tokens=12, temperature=0)
            native = s.post("/generate", {"inputs": PROMPTS[0], "parameters": {"max_new_tokens": 12, "adapter_id": name}})
            assert r.choices[0].text == native.json()["generated_text"] and r.model == (name or names[0])


def test_lmtp_names_them_too(adapters, tmp_path):
    made, flag = adapters
    port = free_port()
    with Service(DEMO, args=["--lora-adapters", flag, "--lmtp-listen", f"127.0.0.1:{port}", "--models-folder", tmp_path]) as s:
        ids = [t["id"] for t in s.post("/tokenize", {"inputs": PROMPTS[0]}).json()]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            lines = line.makefile("rw")
            for n, name in enumerate(made):
                body = {"stream_id": n, "model": name, "prompt": ids, "max_tokens": 12, "temperature": 0}
                lines.write(f"GENERATE {json.dumps(body)}\n")
                lines.flush()
                tokens, over = [], False
                while not over:
                    items = json.loads(lines.readline().split(" ", 1)[1])
                    tokens += [i["token"] for i in items]
                    over = items[-1]["finish_reason"] is not None
                assert tokens[:12] == ask(s, PROMPTS[0], name, max_new_tokens=12)
            r = s.post("/v1/completions", {"model": "red", "prompt": ids, "max_tokens": 3})
            assert r.status_code == 200, r.text


def test_prefixes_are_not_shared_between_adapters(adapters):
    _, flag = adapters
    prompt = "Once upon a time there was a little girl named Lily. " * 4
    with Service(DEMO, args=["--lora-adapters", flag]) as s:
        def cached(model):
            r = s.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 1})
            return r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert [cached("red"), cached("blue"), cached("tgi")] == [0, 0, 0]
        assert min(cached("red"), cached("blue"), cached("tgi")) > 16


def test_routers_in_front_see_who_uses_what(adapters):
    """vLLM's vllm:lora_requests_info, as llm-d reads it."""
    _, flag = adapters

    def info(s):
        text = requests.get(s.url + "/metrics", timeout=10).text
        (line,) = [line for line in text.splitlines() if line.startswith("vllm:lora_requests_info{")]
        assert abs(float(line.split()[-1]) - time.time()) < 60
        return dict(re.findall(r'(\w+)="([^"]*)"', line))

    with Service(DEMO, args=["--lora-adapters", flag, "--max-batch-size", 1]) as s:
        assert info(s) == {"max_lora": "3", "running_lora_adapters": "", "waiting_lora_adapters": ""}
        long = {"inputs": PROMPTS[0], "parameters": {"max_new_tokens": 1900, "ignore_eos": True, "adapter_id": "red"}}
        stream = s.events("/generate_stream", long)
        next(stream)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            with s.held():
                blue = pool.submit(ask, s, PROMPTS[1], "blue")
                wait_for(lambda: info(s)["waiting_lora_adapters"] == "blue")
                assert info(s)["running_lora_adapters"] == "red"
            blue.result()
            list(stream)
        wait_for(lambda: info(s)["running_lora_adapters"] == "")


def test_more_adapters_than_fit_take_turns(tmp_path):
    """A pool for a few of twelve; every answer is what it is with room for all."""
    made = {f"a{i}": make_adapter(tmp_path / f"a{i}", 100 + i, rank=2 + i % 3) for i in range(12)}
    flag = ",".join(f"{name}={folder}" for name, folder in made.items())
    cases = [(p, a) for a in made for p in PROMPTS]
    with Service(DEMO, args=["--lora-adapters", flag]) as s:
        want = [ask(s, *c) for c in cases]
    available = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable")) * 1024
    share = ["--adapter-memory-fraction", f"{1.2e6 / available:.9f}"]
    with Service(DEMO, args=["--lora-adapters", flag, *share]) as s:
        fields = next(line for line in s.log.splitlines() if "pages_of_all" in line)
        pages, of_all = (int(fields.split(k)[1].lstrip('=: ').split()[0].strip(',}"')) for k in ("pages=", "pages_of_all="))
        assert pages < of_all / 2, fields
        with concurrent.futures.ThreadPoolExecutor(36) as pool:
            assert list(pool.map(lambda c: ask(s, *c), cases)) == want
    s = Service(DEMO, args=["--lora-adapters", flag, "--adapter-memory-fraction", "0"], ready=False)
    assert s.p.wait(60) != 0 and "raise `--adapter-memory-fraction`" in s.log


def test_bad_adapters_are_refused_by_name(tmp_path):
    good = make_adapter(tmp_path / "good", 5)

    def broken(name, change):
        folder = make_adapter(tmp_path / name, 6)
        change(folder)
        return folder

    def config(**fields):
        return lambda f: (f / "adapter_config.json").write_text(json.dumps({"lora_alpha": 8, **fields}))

    def evil(f):
        (f / "adapter_model.safetensors").unlink()
        torch_made.save(f / "adapter_model.bin", {}, pickle=b"cposix\nsystem\n(X\2\0\0\0lstR.")

    small = dict(WIDTHS)
    cases = [
        (f"x={tmp_path / 'nowhere'}", "no such folder or GGUF file, and no name of a repository"),
        (f"x={good},x={good}", "two adapters are called `x`"),
        (f"x={good}@a@b", "Invalid LoRA adapter format"),
        (f"x={broken('dora', config(use_dora=True))}", "`use_dora` is not supported"),
        (f"x={broken('ia3', lambda f: (f / 'adapter_config.json').write_text(json.dumps({'peft_type': 'IA3'})))}", "only LORA is supported"),
        (f"x={broken('pissa', config(init_lora_weights='pissa_niter_4'))}", "`init_lora_weights` is `pissa_niter_4`"),
        (f"x={broken('alpha', config(lora_alpha='much'))}", "`lora_alpha` is no number"),
        (f"x={broken('pickle', evil)}", "adapter_model.bin: byte 14 of its pickle: it names `posix.system`"),
        (f"x={broken('empty', lambda f: (f / 'adapter_model.safetensors').unlink())}", "adapter_model.safetensors is missing"),
    ]
    WIDTHS["self_attn.q_proj"] = (WIDTHS["self_attn.q_proj"][0], 96)
    cases.append((f"x={make_adapter(tmp_path / 'shape', 7)}", "has shape [4, 96]; this model means [4, 128]"))
    WIDTHS.update(small)
    WIDTHS["self_attn.w_proj"] = (8, 8)
    cases.append((f"x={make_adapter(tmp_path / 'name', 8, targets=tuple(WIDTHS))}", "w_proj.lora_A.weight` is of no matrix of this model"))
    del WIDTHS["self_attn.w_proj"]
    for flag, word in cases:
        s = Service(DEMO, args=["--lora-adapters", flag], ready=False)
        assert s.p.wait(60) != 0 and word in s.log, s.log


def test_peft_adapters_greedy_tokens(tmp_path):
    """The reference adapters, served together: the tokens that PEFT generates."""
    base = data("arch/llama")
    folders = {name: data(f"lora/{name}") for name in ("attn_r4", "mlp_r8")}
    flag = ",".join(f"{k}={v}" for k, v in folders.items())
    with Service(base, args=["--lora-adapters", flag]) as s:
        for name, folder in folders.items():
            for p in json.loads((folder / "golden.json").read_text())["prompts"].values():
                body = {"model": name, "prompt": p["ids"], "max_tokens": len(p["greedy_ids"]), "temperature": 0, "ignore_eos": True, "logprobs": 1}
                r = s.post("/v1/completions", body)
                assert r.status_code == 200, r.text
                got = r.json()["choices"][0]["logprobs"]["token_logprobs"]
                assert got == pytest.approx(p["greedy_logprobs"], abs=2e-4)


def test_patterns_name_modules_as_the_file_does(tmp_path):
    """alpha_pattern names modules of the model that PEFT saw, which may have another prefix than this family's. A scale that is
    written in one place or the other gives the same tokens."""

    def adapter(name, prefix, **config):
        folder = make_adapter(tmp_path / name, 5, scale=0.1)
        file = folder / "adapter_model.safetensors"
        raw = file.read_bytes()
        n = struct.unpack("<Q", raw[:8])[0]
        header = raw[8 : 8 + n].replace(b"base_model.model.model.", b"base_model.model." + prefix)
        file.write_bytes(struct.pack("<Q", len(header)) + header + raw[8 + n :])
        (folder / "adapter_config.json").write_text(json.dumps({"lora_alpha": 4, "r": 4, **config}))
        return f"{name}={folder}"

    module = "layers.0.self_attn.q_proj"
    inner = b"model.language_model."
    made = [
        adapter("none", b"model."),
        adapter("last", b"model.", alpha_pattern={module: 64}),
        adapter("whole", b"model.", alpha_pattern={"^model." + module: 64}),
        adapter("outer", inner, alpha_pattern={"language_model." + module: 64}),
        adapter("all", inner, alpha_pattern={"^model.language_model." + module: 64}),
        adapter("part", b"model.", alpha_pattern={"^" + module: 64, "ayers.0.self_attn.q_proj": 64}),
    ]
    with Service(DEMO, args=["--lora-adapters", ",".join(made)]) as s:
        got = {name: [ask(s, p, name) for p in PROMPTS] for name in (m.split("=")[0] for m in made)}
    assert got["none"] != got["last"]
    assert got["last"] == got["whole"] == got["outer"] == got["all"]
    assert got["part"] == got["none"]


def answer(s, adapter=None, prompt=PROMPTS[0]):
    router = Router(s)
    s.call("ClearCache", s.pb.ClearCacheRequest())
    r = router.request(prompt, max_new=24, ignore_eos=True)
    if adapter:
        r.adapter_id = adapter
    reply = s.call("Prefill", s.pb.PrefillRequest(batch=router.batch(r)))
    if reply.generations[0].error:
        return reply.generations[0].error
    router.finish(router.take(reply))
    return router.got[r.id]


@pytest.mark.parametrize("world", [1, 2])
def test_adapters_come_and_go_while_shards_serve(adapters, world, tmp_path):
    made, listed = adapters
    with Shards(DEMO, world, ["--lora-adapters", listed]) as s:
        s.warmup()
        want = {name: answer(s, name) for name in [None, *made]}
        with pytest.raises(grpc.RpcError) as e:
            s.call("LoadAdapter", s.pb.LoadAdapterRequest(name="more", path=str(made["red"])))
        assert e.value.code() == grpc.StatusCode.FAILED_PRECONDITION and "--max-runtime-adapters" in e.value.details()
        s.call("UnloadAdapter", s.pb.UnloadAdapterRequest(name="red"))  # as a router does when its files were replaced
    assert len({tuple(v) for v in want.values()}) == 4

    def load(name, path):
        return s.call("LoadAdapter", s.pb.LoadAdapterRequest(name=name, path=str(path)))

    def refused(code, rpc, **fields):
        with pytest.raises(grpc.RpcError) as e:
            s.call(rpc, getattr(s.pb, rpc + "Request")(**fields))
        assert e.value.code() == code, e.value
        return e.value.details()

    no = grpc.StatusCode
    with Shards(DEMO, world, ["--lora-adapters", f"red={made['red']}", "--max-runtime-adapters", 2]) as s:
        assert load("early", made["green"]).adapter.pages > 0  # before warm-up has reserved any
        s.warmup()
        assert answer(s) == want[None] and answer(s, "red") == want["red"] and answer(s, "early") == want["green"]
        assert "unknown adapter" in str(answer(s, "blue")) or "blue" in str(answer(s, "blue"))
        loaded = load("blue", made["blue"]).adapter
        assert {a.name: a.pages for a in s.call("Info", s.pb.InfoRequest()).adapters}["blue"] == loaded.pages
        assert answer(s, "blue") == want["blue"] and answer(s, "red") == want["red"] and answer(s) == want[None]
        assert "no place" in refused(no.INVALID_ARGUMENT, "LoadAdapter", name="more", path=str(made["green"]))
        refused(no.ALREADY_EXISTS, "LoadAdapter", name="blue", path=str(made["green"]))
        refused(no.NOT_FOUND, "UnloadAdapter", name="yellow")
        refused(no.NOT_FOUND, "UnloadAdapter", name="")
        # one that is in use stays; then it goes, and another may have its name and place
        router = Router(s)
        r = router.request(PROMPTS[0], max_new=24, ignore_eos=True)
        r.adapter_id = "blue"
        batch = router.prefill(r)
        assert "in use by 1 requests" in refused(no.FAILED_PRECONDITION, "UnloadAdapter", name="blue")
        router.finish(batch)
        assert router.got[r.id] == want["blue"]
        for name in ("blue", "red"):
            s.call("UnloadAdapter", s.pb.UnloadAdapterRequest(name=name))
        assert "blue" in str(answer(s, "blue"))
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken/adapter_config.json").write_text("{}")
        refused(no.INVALID_ARGUMENT, "LoadAdapter", name="broken", path=str(tmp_path / "broken"))
        refused(no.NOT_FOUND, "LoadAdapter", name="broken", path=str(tmp_path / "missing"))
        refused(no.INVALID_ARGUMENT, "LoadAdapter", name="", path=str(made["green"]))
        load("blue", made["red"])
        assert answer(s, "blue") == want["red"], "the name means what was loaded last"
        load("red", made["green"])
        assert answer(s, "red") == want["green"] and answer(s) == want[None]
        assert [a.name for a in s.call("Info", s.pb.InfoRequest()).adapters].count("red") == 1


def test_a_replica_that_lost_an_adapter_is_sent_no_requests_for_it(tmp_path):
    """Other files are in its folder when a replica's shard comes back. The other replica still has what was read at the start."""
    red, blue = make_adapter(tmp_path / "red", 1), make_adapter(tmp_path / "blue", 2)
    with Service(DEMO, args=["--replicas", 2, "--replica-policy", "round-robin", "--lora-adapters", f"red={red},blue={blue}"]) as s:
        wait_for(lambda: ready(s) == 2, 30)
        want = {a: ask(s, PROMPTS[0], a) for a in (None, "red", "blue")}
        shutil.rmtree(red)
        make_adapter(red, 3)
        os.kill(s.shards()[0], signal.SIGKILL)
        wait_for(lambda: s.log.count("files were replaced") == 1 and ready(s) == 2, 30)
        for a in ("red", "red", "red", None, "red", "blue", "blue"):
            assert ask(s, PROMPTS[0], a) == want[a]
        os.kill(s.shards()[0], signal.SIGKILL)  # now no replica has it
        wait_for(lambda: s.log.count("files were replaced") == 2 and ready(s) == 2, 30)
        r = s.post("/generate", {"inputs": "x", "parameters": {"adapter_id": "red"}})
        assert r.status_code == 404, r.text
        assert ask(s, PROMPTS[0], "blue") == want["blue"]
