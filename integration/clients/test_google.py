"""google-genai, Google's SDK: answers, streams, chats, calls that it runs itself, schemas of Pydantic, errors. `make clients`."""

import asyncio
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Scripted, Service, data  # noqa: E402
from tool_talk import TEMPLATE  # noqa: E402

genai = pytest.importorskip("google.genai")
credentials = pytest.importorskip("google.oauth2.credentials")
pydantic = pytest.importorskip("pydantic")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
COLD = {"temperature": 0, "max_output_tokens": 40}


clients = []  # one that is collected is closed, also for its models


def client_of(service, key="sesame"):
    clients.append(genai.Client(api_key=key, http_options={"base_url": service.url}))
    return clients[-1]


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO, args=["--served-model-name", "demo", "--api-key", "sesame"]) as service:
        yield service


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE) as service:
        yield service


def test_answers(demo):
    c = client_of(demo)
    a = c.models.generate_content(model="demo", contents="Hello!", config=COLD)
    assert a.text and a.candidates[0].finish_reason.value in ("STOP", "MAX_TOKENS") and a.usage_metadata.total_token_count
    assert "".join(x.text for x in c.models.generate_content_stream(model="demo", contents="Hello!", config=COLD)) == a.text

    async def again():
        return [x.text async for x in await c.aio.models.generate_content_stream(model="demo", contents="Hello!", config=COLD)]

    assert "".join(asyncio.run(again())) == a.text
    assert c.models.count_tokens(model="demo", contents="Hello!").total_tokens == a.usage_metadata.prompt_token_count
    assert [m.name for m in c.models.list()] == ["models/demo"] and c.models.get(model="demo").input_token_limit
    chat = c.chats.create(model="demo", config=COLD)
    assert chat.send_message("Hello!").text == a.text and chat.send_message("And?").text and len(chat.get_history()) == 4


def test_schemas(demo):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=9)
        age: int | None
        kind: str = pydantic.Field(max_length=5)

    config = {**COLD, "max_output_tokens": 200, "response_mime_type": "application/json", "response_schema": list[Person]}
    a = client_of(demo).models.generate_content(model="demo", contents="Hello!", config=config)
    assert isinstance(a.parsed, list) and all(isinstance(p, Person) for p in a.parsed), a.text


def test_it_runs_calls(s):
    ran = []

    def weather(city: str) -> str:
        """The weather.

        Args:
            city: Where."""
        ran.append(city)
        return "[[Sunny.]]"

    a = client_of(s).models.generate_content(model="m", contents=f"[[{CALL}]]", config={"tools": [weather]})
    assert ran == ["Rome"] and a.text == "Sunny."


def test_calls_in_a_stream(s):
    config = {"tools": [{"function_declarations": [{"name": "weather"}]}], "thinking_config": {"include_thoughts": True}}
    got = list(client_of(s).models.generate_content_stream(model="m", contents=f"[[<think>Hm.</think>Wait.{CALL}]]", config=config))
    parts = [p for x in got for p in x.candidates[0].content.parts or []]
    assert "".join(p.text for p in parts if p.thought) == "Hm." and "".join(p.text for p in parts if p.text and not p.thought) == "Wait."
    assert [(p.function_call.name, p.function_call.args) for p in parts if p.function_call] == [("weather", {"city": "Rome"})]


def test_errors(demo):
    with pytest.raises(genai.errors.ClientError, match="UNAUTHENTICATED"):
        client_of(demo, "other").models.generate_content(model="demo", contents="Hello!")
    with pytest.raises(genai.errors.ClientError, match="contents"):
        client_of(demo).models.generate_content(model="demo", contents="Hello! " * 9999)


def test_litellm(demo):
    litellm = pytest.importorskip("litellm")
    asked = dict(model="gemini/demo", api_key="sesame", api_base=f"{demo.url}/v1beta/models/demo", messages=[{"role": "user", "content": "Hello!"}])
    a = litellm.completion(**asked, temperature=0, max_tokens=20)
    assert a.choices[0].message.content and a.usage.prompt_tokens
    text = "".join(x.choices[0].delta.content or "" for x in litellm.completion(**asked, temperature=0, max_tokens=20, stream=True))
    assert text == a.choices[0].message.content
    schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    b = litellm.completion(**asked, tools=[tool], tool_choice="required", temperature=0, max_tokens=60)
    assert isinstance(json.loads(b.choices[0].message.tool_calls[0].function.arguments)["x"], bool)


def test_vectors():
    with Service(data("embed/qwen3_embedding"), args=["--served-model-name", "vectors"]) as q:
        c = client_of(q)
        want = [d["embedding"] for d in q.post("/v1/embeddings", {"input": ["One.", "Two."], "dimensions": 8}).json()["data"]]
        got = c.models.embed_content(model="vectors", contents=["One.", "Two."], config={"output_dimensionality": 8})
        assert [e.values for e in got.embeddings] == want
        # Vertex AI's paths: predict, and embedContent for models with Google's names
        key = credentials.Credentials("sesame")
        v = genai.Client(vertexai=True, project="p", location="l", credentials=key, http_options={"base_url": q.url})
        clients.append(v)
        for model in ("vectors", "gemini-embedding-2"):
            got = v.models.embed_content(model=model, contents="One.", config={"output_dimensionality": 8})
            assert [e.values for e in got.embeddings] == want[:1]


def test_paths_of_vertex(demo):
    key = credentials.Credentials("sesame")
    v = genai.Client(vertexai=True, project="p", location="l", credentials=key, http_options={"base_url": demo.url})
    clients.append(v)
    a = v.models.generate_content(model="demo", contents="Hello!", config=COLD)
    assert a.text == client_of(demo).models.generate_content(model="demo", contents="Hello!", config=COLD).text
    assert "".join(x.text for x in v.models.generate_content_stream(model="demo", contents="Hello!", config=COLD)) == a.text
