"""A GGUF file served like the folder that it was made from: the same tokens, templates and answers."""

import json
import re
import subprocess

import pytest
import requests
from serving import BIN, DEMO, Service, data

pytest.importorskip("gguf", reason="llama.cpp's Python module writes the files: pip install gguf")
from gguf_families import ARCH, FAMILIES, MADE, TEXT_SIDES, family_folder, write_family  # noqa: E402
from gguf_keys import deepseek  # noqa: E402
import gguf  # noqa: E402
import numpy as np  # noqa: E402
from gguf_made import HALVES, name_of, paired, random_model, tensors, write  # noqa: E402
from test_adapters import make_adapter  # noqa: E402

pytestmark = pytest.mark.usefixtures("small_caches")
CHAT = {"model": "m", "max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
GENERATE = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 32, "details": True, "decoder_input_details": True}}


def answers(service):
    """A chat, a completion with the log-probabilities of its prompt, the ids of a text."""
    chat = service.post("/v1/chat/completions", CHAT).json()
    made = service.post("/generate", GENERATE).json()
    tokens = service.post("/tokenize", {"inputs": "Hello, wörld! 12 <|x|>  \n"}).json()
    return (
        chat["choices"][0]["message"]["content"], chat["usage"], chat["choices"][0]["finish_reason"],
        made["generated_text"], made["details"]["prefill"], made["details"]["tokens"], tokens,
    )


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO) as s:
        return answers(s)


@pytest.mark.parametrize("num_shard", [1, 2])
def test_the_demo_model_answers_the_same(tmp_path, demo, num_shard):
    path = write(DEMO, tmp_path / "demo.gguf", "BF16")
    if num_shard > 1:  # sums of ranks have last bits of their own
        with Service(DEMO, num_shard) as s:
            demo = answers(s)
    with Service(path, num_shard) as s:
        assert answers(s) == demo
        info = requests.get(s.url + "/info", timeout=10).json()
        assert info["model_id"] == str(path) and info["model_dtype"] == "torch.bfloat16"


# Nemotron's random norms lose bits where the converter adds 1 to them; those of released files have few.
CASES = [(m, False) for m in (*FAMILIES, *MADE) if m != "nemotron"] + [(m, True) for m in FAMILIES if m.startswith("deepseek_")]


# Numbers that are changed lose their last bits: rates of decay, stored as what they come to, and norms to which 1 is added.
RATES = ("granitemoehybrid", "nemotron_h", "qwen3_next", "qwen3_5", "mamba", "falcon_mamba", "jamba", "plamo2", "kimi_linear", "kimi_k3", "bailing_hybrid", "step3p5", "glm5_next")


def near(a, b, most):
    """The same but for numbers, which differ by no more than `most`."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(near(a[k], b[k], most) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(near(x, y, most) for x, y in zip(a, b))
    return abs(a - b) <= most if isinstance(a, float) and isinstance(b, float) else a == b


@pytest.mark.parametrize("model, newer", CASES)
def test_families_answer_as_their_folders(tmp_path, model, newer):
    folder = family_folder(model, tmp_path)
    asked = {"inputs": "hello there, who are you? " * 4, "parameters": {"max_new_tokens": 24, "details": True, "decoder_input_details": True, "ignore_eos": True}}
    with Service(folder) as s:
        want = s.post("/generate", asked).json()
    with Service(write_family(folder, tmp_path / "m.gguf", newer)) as s:
        assert near(s.post("/generate", asked).json(), want, 1e-3 if model.startswith(RATES) else 0)


def test_the_text_side_of_deepseek_ocr(tmp_path):
    """DeepSeek's first experts, whose q and k keep the order of their rows."""
    folder = family_folder("deepseek_moe", tmp_path)
    with Service(folder) as s:
        want = s.post("/generate", GENERATE).json()
    with Service(write_family(folder, tmp_path / "m.gguf", model=(ARCH.DEEPSEEK2OCR, deepseek))) as s:
        assert s.post("/generate", GENERATE).json() == want


@pytest.mark.parametrize("model", TEXT_SIDES)
def test_the_text_side_of_vision_models(tmp_path, model):
    folder = data(model.partition(":")[2])
    with Service(folder) as s:
        want = s.post("/generate", GENERATE).json()
    with Service(write_family(folder, tmp_path / "m.gguf", model=model)) as s:
        assert s.post("/generate", GENERATE).json() == want


def test_sentencepiece_tokens(tmp_path):
    model = data("models/stories260K")
    with Service(model) as s:
        want = s.post("/generate", GENERATE).json()
    folder = tmp_path / "folder"  # that holds nothing else
    folder.mkdir()
    write(model, folder / "stories.gguf", "F32")
    (folder / "mmproj-stories.gguf").write_bytes(b"GGUF")
    with Service(folder) as s:
        assert s.post("/generate", GENERATE).json() == want


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q5_1", "Q4_0"])
def test_packed_weights_are_close(tmp_path, demo, quant):
    """The same greedy beginning; log-probabilities of the prompt as near as the packing is fine."""
    path = write(DEMO, tmp_path / f"demo-{quant}.gguf", quant)
    with Service(path) as s:
        got, log = answers(s), s.log
    errors = [abs(a["logprob"] - b["logprob"]) for a, b in zip(got[4][1:], demo[4][1:])]
    assert [t["id"] for t in got[4]] == [t["id"] for t in demo[4]]
    assert ("weights stay packed" in log) == (quant != "F16")
    assert max(errors) < {"F16": 0.05, "Q8_0": 0.1, "Q5_1": 1, "Q4_0": 2}[quant], errors
    if quant in ("F16", "Q8_0"):
        assert got[0] == demo[0]


def numbers(path, num_shard, *args):
    """Log-probabilities of a prompt and of what follows it, with alternatives, as they come."""
    with Service(path, num_shard, args=["--kv-cache-dtype", "float32", "--activations", "exact", *args]) as s:
        p = {"max_new_tokens": 20, "details": True, "decoder_input_details": True, "top_n_tokens": 5, "ignore_eos": True}
        d = s.post("/generate", {"inputs": "abc xyz hello", "parameters": p}).json()["details"]
        return d["prefill"], d["tokens"], d["top_tokens"]


@pytest.mark.parametrize("quant, num_shard", [*((q, 1) for q in HALVES), ("Q4_K Q6_K", 1), ("Q4_K Q8_0", 1), ("Q8_0 Q4_1", 2), ("Q4_0", 2)])
def test_packed_weights_are_served_as_the_numbers_that_they_are(tmp_path, quant, num_shard):
    """In exact arithmetic nothing is rounded but sums: the bits of a model in fp32 in a fraction of its memory."""
    path = random_model(tmp_path / "m.gguf", *quant.split())
    assert numbers(path, num_shard) == numbers(path, num_shard, "--dtype", "float32")


def test_queries_and_gates_of_a_head_side_by_side_stay_packed(tmp_path):
    """Each is a matrix of as many pieces as there are heads. A layer's two matrices of gates of the state are numbers by choice."""
    path = write_family(family_folder("qwen3_5_text", tmp_path), tmp_path / "m.gguf", model="qwen3_5_text", packed="Q8_0")
    with Service(path) as s:
        kept = re.search(r'packed matrices kept="([^"]*)"', s.log)[1]
    layers, full = 4, 1
    want = (layers - full) * 3 + full * 4 + layers * 3 + 1  # qkv, z, out; q (once), k, v, out; the MLP; the head
    assert kept == f"q8_0 {want + full}, widened to bfloat16 {2 * (layers - full)}"  # q's gates are a matrix of their own


def test_a_tensor_may_have_a_scale_of_all_of_it(tmp_path):
    paths = [random_model(tmp_path / f"{d}.gguf", "NVFP4", doubled=d) for d in ("blocks", "tensors", None)]
    want, got, single = (numbers(p, 1) for p in paths)
    assert got == want and got != single
    assert numbers(paths[1], 1, "--dtype", "float32") == want


def test_blocks_that_ranks_would_cut_are_served_in_16_bits(tmp_path):
    path = random_model(tmp_path / "m.gguf", "Q4_K", "Q6_K")
    whole, halves = numbers(path, 1), numbers(path, 2)
    assert max(abs(a["logprob"] - b["logprob"]) for a, b in zip(whole[0][1:], halves[0][1:])) < 0.1


@pytest.mark.parametrize("quant, word, num_shard", [("Q8_0", "w8a8", 1), ("Q4_0", "int4", 2)])
def test_quantised_once_more(tmp_path, quant, word, num_shard):
    path = write(DEMO, tmp_path / "demo.gguf", quant)
    with Service(path, num_shard, args=["--quantize", word]) as s:
        assert requests.get(s.url + "/info", timeout=10).json()["quantize"] == word
        assert "weights stay packed" not in s.log
        assert s.post("/generate", GENERATE).json()["generated_text"].strip()


def test_more_models_by_their_files(tmp_path, demo):
    write(DEMO, tmp_path / "other.gguf", "BF16")
    with Service(DEMO, args=["--models-folder", tmp_path]) as s:
        assert "other.gguf" in [m["id"] for m in requests.get(s.url + "/v1/models", timeout=10).json()["data"]]
        chat = s.post("/v1/chat/completions", {**CHAT, "model": "other.gguf"}).json()
        assert chat["choices"][0]["message"]["content"] == demo[0]


def as_gguf(folder, path, kind="F32", alpha=None):
    """An adapter of PEFT as llama.cpp's convert_lora_to_gguf.py writes it: rows of q and k of B in pairs."""
    heads = json.loads((DEMO / "config.json").read_text())
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_type("adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", json.loads((folder / "adapter_config.json").read_text())["lora_alpha"] if alpha is None else alpha)
    for file, v in tensors(folder, file="adapter_model.safetensors"):
        name, which = file.removeprefix("base_model.model.").split(".lora_")
        if which[0] == "B" and name.endswith(("q_proj", "k_proj")):
            v = paired(v, heads["num_attention_heads" if name.endswith("q_proj") else "num_key_value_heads"])
        to = gguf.GGMLQuantizationType[kind if v.shape[1] % 32 == 0 else "F16" if kind == "Q8_0" else kind]
        w.add_tensor(f"{name_of(name + '.weight')}.lora_{which[0].lower()}", gguf.quants.quantize(np.ascontiguousarray(v, np.float32), to), raw_dtype=to)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_adapters_of_llama_cpp(tmp_path):
    """The same bits as PEFT's files: of a folder's model and of a GGUF file's, on one rank and on two."""
    red = make_adapter(tmp_path / "red", 1)
    unscaled = make_adapter(tmp_path / "unscaled", 2, rank=1)  # alpha is 1, which is what files without it mean
    files = {f"{f.name}-{kind}": as_gguf(f, tmp_path / f"{f.name}-{kind}.gguf", kind, alpha)
             for f, kind, alpha in ((red, "F32", None), (red, "F16", None), (red, "Q8_0", None), (unscaled, "F32", 0.0))}
    flag = ",".join(f"{name}={path}" for name, path in ({"red": red, "unscaled": unscaled} | files).items())

    def asked(s, adapter):
        p = {"max_new_tokens": 24, "details": True, "ignore_eos": True, "adapter_id": adapter}
        r = s.post("/generate", {"inputs": "Once upon a time", "parameters": p})
        assert r.status_code == 200, r.text
        return [(t["id"], t["logprob"]) for t in r.json()["details"]["tokens"]]

    for model, ranks in (DEMO, 1), (DEMO, 2), (write(DEMO, tmp_path / "demo.gguf", "BF16"), 1):
        with Service(model, ranks, args=["--lora-adapters", flag]) as s:
            want = asked(s, "red")
            assert asked(s, "red-F32") == want and asked(s, "unscaled-F32") == asked(s, "unscaled") != want
            for kind in "F16", "Q8_0":  # as near as their rounding
                assert max(abs(a[1] - b[1]) for a, b in zip(asked(s, f"red-{kind}")[:1], want)) < 0.2


def test_adapters_that_are_none(tmp_path):
    other = write(DEMO, tmp_path / "model.gguf", "F16")
    wide = as_gguf(make_adapter(tmp_path / "wide", 1), tmp_path / "wide.gguf")
    wide.write_bytes(wide.read_bytes().replace(b"blk.0.attn_q.weight.lora_", b"blk.0.attn_x.weight.lora_"))
    for path, says in (other, "an adapter has `adapter` and `lora`"), (wide, "is of no matrix of this model that an adapter can change"):
        s = Service(DEMO, args=["--lora-adapters", f"x={path}"], ready=False)
        assert s.p.wait(60) != 0 and says in s.log, s.log
    assert "no model: it is an adapter" in refused(as_gguf(tmp_path / "wide", tmp_path / "adapter.gguf"))


def refused(path):
    s = Service(path, ready=False)
    assert s.p.wait(60) != 0
    return s.log


def test_what_is_no_model_is_refused_with_the_reason(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 16)
    assert "do not fit into a file of 24 bytes" in refused(tmp_path / "bad.gguf")
    write(DEMO, tmp_path / "good.gguf", "F16")
    assert "several GGUF models" in refused(tmp_path)
    (tmp_path / "bad.gguf").unlink()
    cut = (tmp_path / "good.gguf").read_bytes()
    (tmp_path / "good.gguf").write_bytes(cut[: len(cut) // 2])
    assert "are outside the" in refused(tmp_path)


def test_download_weights_knows_files(tmp_path):
    path = write(DEMO, tmp_path / "demo.gguf", "F16")
    for model in (path, tmp_path):
        r = subprocess.run([BIN / "model-server", "download-weights", model], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and "already present" in r.stdout + r.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    r = subprocess.run([BIN / "model-server", "download-weights", empty], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0 and "no .gguf file" in r.stdout + r.stderr
