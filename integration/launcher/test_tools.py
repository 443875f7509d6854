"""The commands of model-server other than serve: bench, logits and quality."""

import json
import subprocess

import pytest
from serving import BIN, DEMO, ROOT, data


def tool(*args, ok=True):
    p = subprocess.run([BIN / "model-server", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert (p.returncode == 0) == ok, p.stderr
    return p.stdout if ok else p.stderr


SHAPE = {  # a mixture of experts with a head of its own: nothing of it is a multiple of 16
    "model_type": "qwen3_moe",
    "hidden_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "intermediate_size": 40,
    "vocab_size": 333,
    "max_position_embeddings": 512,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}


@pytest.fixture
def shape(tmp_path):
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(SHAPE))
    return path


def test_bench_json(shape):
    args = ["--prefill", "20,600", "--decode", "4", "--batch", "1,3", "--depth", "0,40", "--repeat", "3"]
    j = json.loads(tool("bench", "--shape", shape, *args, "--threads", "2", "--json"))
    assert j["schema"] == 1 and j["random"] and j["model"] == str(shape) and j["threads"] == 2
    assert (j["dtype"], j["quantize"], j["kv_cache_dtype"]) == ("bfloat16", "none", "bfloat16")

    attention = 72 * (6 + 2 + 2) * 12 + 6 * 12 * 72
    experts = 8 * 3 * 72 * 24
    matrices = 2 * 333 * 72 + 2 * (attention + experts)
    fp32 = 2 * (8 * 72 + 2 * 72 + 2 * 12) + 72  # the experts' router and the norms
    assert j["memory"]["weight_bytes"] == pytest.approx(
        2 * matrices + 4 * fp32, rel=0.1
    )  # in panels of 16 rows
    assert 0 < j["memory"]["kv_bytes"] and j["memory"]["rest_bytes"] < j["memory"]["rss_bytes"]
    assert j["memory"]["load_peak_bytes"] > 0 and j["load_s"] > 0
    assert j["limits"]["read_bytes_per_s"] > 1e8

    cases = [(r["test"], r["tokens"], r["batch"], r["depth"]) for r in j["results"]]
    decode = [("decode", 4, b, d) for d in (0, 40) for b in (1, 3)]
    assert cases == [("prefill", 20, 1, 0), ("prefill", 600, 1, 0), *decode]
    for r in j["results"]:
        assert r["rounds"] == 3
        assert 0 < r["worst_tokens_per_s"] <= r["tokens_per_s"] <= r["best_tokens_per_s"]
    one = j["results"][2]  # a token multiplies with all but the embedding and the experts it did not choose
    token = 2 * (333 * 72 + 2 * (attention + experts // 4) + fp32) + 4 * 2 * 6 * 12 * 2.5
    assert one["flop_per_s"] / one["tokens_per_s"] == pytest.approx(token, rel=1e-3)
    read = 2 * 333 * 72 + 2 * 2 * (attention + experts // 4) + 4 * fp32
    assert one["read_bytes_per_s"] / one["tokens_per_s"] == pytest.approx(read, rel=0.1)


def test_bench_table_of_a_checkpoint():
    out = tool("bench", DEMO, "--prefill", "16", "--decode", "2", "--repeat", "1", "--dtype", "float32")
    assert "float32 weights" in out and "| prefill 16 |" in out and "| decode, batch 1, depth 0 |" in out


@pytest.mark.parametrize(
    "args, says",
    [
        ([], "the folder of a model is missing"),
        ([DEMO, "--shape", "tiny-60m"], "only one of the two"),
        (["--shape", "help"], "there are tiny-60m, "),
        (["--shape", "no/such.json"], "no/such.json"),
        ([DEMO, "--prefill", "12,x"], "--prefill: `x` is no number"),
        ([DEMO, "--prefill", "0", "--decode", "0"], "nothing to time"),
    ],
)
def test_bench_refuses(args, says):
    assert says in tool("bench", *args, ok=False)


def test_random_weights_are_the_same_every_time(shape):
    def logits(*args):
        return json.loads(tool("logits", "--shape", shape, "--ids", "5,6,7", *args))["last_logits"]

    first = logits("--threads", "1")
    assert first == logits("--threads", "3") and len(set(first)) > 300
    assert max(map(abs, first)) < 10


TEXT = ROOT / "tests/data/stories.txt"


def quality(*args, ok=True):
    out = tool("quality", *args, "--text", TEXT, "--limit", "700", "--json", ok=ok)
    return json.loads(out) if ok else out


def test_quality_of_the_exact_model_is_perfect():
    j = quality(DEMO, "--kv-cache-dtype", "float32")
    assert (j["relative_error"], j["divergence"], j["agreement"], j["tokens"]) == (0, 0, 1, 700)
    assert j["perplexity"] == j["exact_perplexity"] and j["quantize"] == "none"


def test_quality_finds_what_each_scheme_costs():
    model = data("models/stories260K")
    runs = [quality(model, "--quantize", q) for q in ("eetq", "w8a8", "int4")]
    errors = [j["relative_error"] for j in runs]
    assert 1e-3 < errors[0] < errors[1] < errors[2] < 0.2, runs
    assert [j["exact_perplexity"] for j in runs] == [pytest.approx(runs[0]["exact_perplexity"])] * 3
    assert runs[0]["exact_perplexity"] < 9, "the model knows such stories"
    assert runs[1]["perplexity"] == pytest.approx(runs[1]["exact_perplexity"], rel=0.02)


def test_schemes_of_fewer_bits_take_less_memory():
    """Of a model whose rows fill blocks of 256 columns."""
    few = ("--device", "cpu", "--prefill", "0", "--decode", "1", "--repeat", "1", "--json")
    runs = [
        json.loads(tool("bench", "--shape", "tiny-60m", "--quantize", q, *few))
        for q in ("eetq", "w8a8", "int4")
    ]
    sizes = [j["memory"]["weight_bytes"] for j in runs]
    assert sizes[0] == sizes[1] > sizes[2]


def test_quality_in_pieces():
    """Every piece begins from nothing: a short context holds less."""
    model = data("models/stories260K")
    long, short = (quality(model, "--dtype", "float16", "--context", n) for n in (512, 16))
    assert short["exact_perplexity"] > 1.2 * long["exact_perplexity"]


def test_quality_refuses():
    assert "no/such.txt" in tool("quality", DEMO, "--text", "no/such.txt", ok=False)
    assert "--quantize gptq: this checkpoint is not stored quantised" in quality(DEMO, "--quantize", "gptq", ok=False)
