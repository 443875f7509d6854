"""Clients that many people use, each with its own words on the wire. `make clients`; what is not installed skips, aloud."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, SLOW  # noqa: E402

CHAT = [{"role": "user", "content": "Hello!"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "save",
        "description": "Save a person.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]},
    },
}


@pytest.fixture(scope="module")
def answer(s):
    """What the server says to CHAT, greedily."""
    body = {"messages": CHAT, "max_tokens": 40, "temperature": 0}
    return s.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "huggingface"])
def test_litellm(s, answer, provider):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches no price list
    litellm = pytest.importorskip("litellm", reason="litellm is not installed")
    base = s.url if provider == "huggingface" else s.url + "/v1"
    kw = dict(model=f"{provider}/m", api_base=base, api_key="-", messages=CHAT, max_tokens=40, temperature=0)
    r = litellm.completion(**kw)
    assert r.choices[0].message.content == answer and r.choices[0].finish_reason == "stop" and r.usage.completion_tokens > 0
    chunks = list(litellm.completion(**kw, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == answer
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def test_litellm_tools_errors_and_text(s):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm = pytest.importorskip("litellm", reason="litellm is not installed")
    kw = dict(model="openai/m", api_base=s.url + "/v1", api_key="-", messages=CHAT, num_retries=0)
    call = litellm.completion(**kw, tools=[TOOL], tool_choice="required", temperature=0).choices[0].message.tool_calls[0]
    assert call.function.name == "save" and len(json.loads(call.function.arguments)["name"]) <= 8
    with pytest.raises(litellm.BadRequestError, match="top_p"):
        litellm.completion(**kw, top_p=3)
    text = litellm.text_completion(model="text-completion-openai/m", prompt="Once upon a time", max_tokens=8, temperature=0, api_base=s.url + "/v1", api_key="-")
    assert text.choices[0].text == s.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}}).json()["generated_text"]


def test_litellm_speaks_anthropic_and_responses(s, answer):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm = pytest.importorskip("litellm", reason="litellm is not installed")
    r = litellm.completion(model="anthropic/claude-m", api_base=s.url, api_key="-", messages=CHAT, max_tokens=40, temperature=0)
    assert r.choices[0].message.content == answer
    r = litellm.responses(model="openai/m", api_base=s.url + "/v1", api_key="-", input="Hello!", temperature=0, max_output_tokens=40)
    assert r.output[0].content[0].text == answer


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
def test_langchain(s, answer, responses):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    import pydantic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    class Person(pydantic.BaseModel):
        """A person."""

        name: str = pydantic.Field(max_length=8)
        age: int = pydantic.Field(ge=0, le=120)

    m = ChatOpenAI(base_url=s.url + "/v1", api_key="-", model="m", temperature=0, max_tokens=200, stream_usage=True, use_responses_api=responses)
    r = m.invoke("Hello!")
    assert r.text.strip() and r.usage_metadata["output_tokens"] > 0 and answer.startswith(r.text[:20])
    chunks = list(m.stream("Hello!"))
    assert "".join(c.text for c in chunks) == r.text
    assert max(c.usage_metadata["output_tokens"] for c in chunks if c.usage_metadata) == r.usage_metadata["output_tokens"]
    for method in ("function_calling", "json_schema"):
        assert isinstance(m.with_structured_output(Person, method=method).invoke("Ann is 3"), Person)
    bound = m.bind_tools([Person], tool_choice="Person").invoke("Ann is 3")
    (call,) = bound.tool_calls
    assert call["name"] == "Person" and set(call["args"]) == {"name", "age"}
    after = m.invoke([HumanMessage("Ann is 3"), bound, ToolMessage("saved", tool_call_id=call["id"])])
    assert after.usage_metadata["input_tokens"] > r.usage_metadata["input_tokens"]


def test_text_generation(s):
    pytest.importorskip("text_generation", reason="text-generation is not installed")
    from text_generation import Client
    from text_generation.errors import ValidationError

    c = Client(s.url)
    want = s.post("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 8, "details": True}}).json()
    r = c.generate("Once", max_new_tokens=8, decoder_input_details=True)
    assert r.generated_text == want["generated_text"] and r.details.generated_tokens == 8 and len(r.details.prefill) > 0
    assert [t.id for t in r.details.tokens] == [t["id"] for t in want["details"]["tokens"]]
    events = list(c.generate_stream("Once", max_new_tokens=8))
    assert [e.token.id for e in events] == [t.id for t in r.details.tokens] and events[-1].generated_text == r.generated_text
    assert c.chat(CHAT, max_tokens=8).choices[0].message.content
    with pytest.raises(ValidationError):
        c.generate("x", top_p=0.5, max_new_tokens=10**9, stop_sequences=["a"] * 9)


TASK = """task: toy
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
target_delimiter: ""
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list: [{{metric: acc}}]
"""


ROWS = [  # question, choices, label: two that the demo model gets right, two that it cannot
    ("Once upon a time", [", there was a", " xq zzv jjk", " the the of"], 0),
    ("Question: What is the capital of France?\nAnswer:", [" Rome", " Paris"], 1),
    ("Once upon a time", [" qqq xx", ", there was a"], 0),
    ("The sun is", [" zzv", " hot", " xq"], 0),
]


def likelihood(s, context, choice):
    """Sum of the log-probabilities of the choice's tokens behind the context, from TGI's prefill."""
    body = {"inputs": context + choice, "parameters": {"max_new_tokens": 1, "decoder_input_details": True}}
    prefill = s.post("/generate", body).json()["details"]["prefill"]
    n = len(s.post("/tokenize", {"inputs": context}).json())
    return sum(t["logprob"] for t in prefill[n:])


def test_lm_eval(s, tmp_path):
    """A task of multiple choice on data of our own; every likelihood that it reads from an echoed prompt is the one that /generate tells."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    data = tmp_path / "toy.jsonl"
    data.write_text("".join(json.dumps({"question": q, "choices": c, "label": n}) + "\n" for q, c, n in ROWS))
    (tmp_path / "toy.yaml").write_text(TASK.format(data=data))
    model = f"model=m,base_url={s.url}/v1/completions,tokenizer_backend=huggingface,tokenizer={DEMO},num_concurrent=2,max_length=512,add_bos_token=True"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "-", "HF_HOME": str(tmp_path / "hf")}
    argv = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--include_path", tmp_path, "--tasks", "toy", "--log_samples"]
    p = subprocess.run([*map(str, argv), "--model_args", model, "--output_path", str(tmp_path / "out")], env=env, capture_output=True, text=True, timeout=300 * SLOW)
    assert p.returncode == 0, p.stderr[-3000:]
    want = [[likelihood(s, q, c) for c in choices] for q, choices, _ in ROWS]
    samples = next((tmp_path / "out").rglob("samples*.jsonl")).read_text().splitlines()
    got = {r["doc_id"]: [float(x[0]) for x in r["filtered_resps"]] for r in map(json.loads, samples)}
    for i, row in enumerate(want):
        assert got[i] == pytest.approx(row, abs=1e-4)
    right = [max(range(len(w)), key=w.__getitem__) == label for w, (_, _, label) in zip(want, ROWS)]
    result = json.loads(next((tmp_path / "out").rglob("results*.json")).read_text())["results"]["toy"]
    assert result["acc,none"] == pytest.approx(sum(right) / len(right)) and 0 < sum(right) < len(right)
