"""Frameworks for agents, each in its own way with the same server: a model that says what stands between "[[" and "]]" of the prompt.

`make clients`; what is not installed skips, aloud. Each talks, streams, calls a tool and answers by a schema as far as it can."""

import asyncio
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, Scripted, Service, data  # noqa: E402

os.environ |= {"OPENAI_API_KEY": "-", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
# Tools first: their texts have brackets. What a tool said is what the model says next.
TEMPLATE = (
    "{%- if tools %}{{ tools | tojson }}{% endif %}{%- for m in messages %}{{ '\n' ~ m.role ~ ': ' ~ m.content }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '\nassistant:' }}{% endif %}{# <tool_call></tool_call> #}"
)
PERSON = json.dumps({"name": "Ann", "age": 3})
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}


def call(tool, **arguments):
    return "<tool_call>\n" + json.dumps({"name": tool, "arguments": arguments}) + "\n</tool_call>"


def forced(tool):
    """Where there must be a call, the answer is nothing but its JSON."""
    return json.dumps({"name": tool, "arguments": json.loads(PERSON)})


def says(text):
    return f"Say it. [[{text}]]"


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE) as service:
        yield service


def need(*modules):
    return [pytest.importorskip(m, reason=f"{m} is not installed") for m in modules]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"[[Sunny in {city}.]]"


def test_openai_agents(s):
    agents, openai = need("agents", "openai")
    agents.set_tracing_disabled(True)
    tool = agents.function_tool(weather)

    async def talk(kind):
        client = openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="-")
        agent = agents.Agent(name="a", instructions="Be brief.", model=kind(model="m", openai_client=client), tools=[tool])
        assert (await agents.Runner.run(agent, says("Hello."))).final_output == "Hello."
        assert (await agents.Runner.run(agent, says(call("weather", city="Rome")))).final_output == "Sunny in Rome."
        run = agents.Runner.run_streamed(agent, says(call("weather", city="Oslo")))
        kinds = {e.type async for e in run.stream_events()}
        assert run.final_output == "Sunny in Oslo." and "run_item_stream_event" in kinds

    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        asyncio.run(talk(kind))


def test_pydantic_ai(s):
    need("pydantic_ai")
    from pydantic import BaseModel
    from pydantic_ai import Agent, NativeOutput, PromptedOutput
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    class Person(BaseModel):
        name: str
        age: int

    provider = OpenAIProvider(base_url=s.url + "/v1", api_key="-")
    import anthropic

    theirs = AnthropicProvider(anthropic_client=anthropic.AsyncAnthropic(base_url=s.url, api_key="-"))
    for model in (OpenAIChatModel("m", provider=provider), OpenAIResponsesModel("m", provider=provider), AnthropicModel("m", provider=theirs)):
        agent = Agent(model, tools=[weather])
        assert agent.run_sync(says("Hello.")).output == "Hello."
        assert agent.run_sync(says(call("weather", city="Rome"))).output == "Sunny in Rome."
        structured = Agent(model, output_type=Person)
        assert structured.run_sync(says(forced("final_result"))).output == Person(name="Ann", age=3)

        async def streamed(agent=agent):
            async with agent.run_stream(says("One two three.")) as r:
                return [t async for t in r.stream_text(delta=True, debounce_by=None)]

        parts = asyncio.run(streamed())
        assert "".join(parts) == "One two three." and len(parts) > 1
    chat = OpenAIChatModel("m", provider=provider)
    for how in (NativeOutput, PromptedOutput):
        assert Agent(chat, output_type=how(Person)).run_sync(says(PERSON)).output == Person(name="Ann", age=3)


def test_instructor(s):
    instructor, openai = need("instructor", "openai")
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    client = openai.OpenAI(base_url=s.url + "/v1", api_key="-", max_retries=0)
    said = {instructor.Mode.TOOLS: forced("Person"), instructor.Mode.JSON: PERSON, instructor.Mode.JSON_SCHEMA: PERSON, instructor.Mode.MD_JSON: f"```json\n{PERSON}\n```"}
    for mode, text in said.items():
        made = instructor.from_openai(client, mode=mode).chat.completions.create(model="m", response_model=Person, max_retries=0, messages=[{"role": "user", "content": says(text)}])
        assert made.model_dump() == json.loads(PERSON), mode


def test_langchain(s):
    need("langchain_openai", "langchain_anthropic")
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    models = [ChatOpenAI(base_url=s.url + "/v1", api_key="-", model="m", use_responses_api=r) for r in (False, True)]
    for m in [*models, ChatAnthropic(base_url=s.url, api_key="-", model_name="m", max_tokens=100)]:
        check_langchain(m, HumanMessage, ToolMessage)


def text_of(message):
    c = message.content
    return c if isinstance(c, str) else "".join(p.get("text", "") for p in c if p.get("type") == "text")


def check_langchain(m, human, tool):
    assert text_of(m.invoke(says("Hello."))) == "Hello."
    chunks = list(m.stream(says("One two three.")))
    assert "".join(map(text_of, chunks)) == "One two three." and len(chunks) > 1
    bound = m.bind_tools([weather])
    asked = human(says(call("weather", city="Rome")))
    answer = bound.invoke([asked])
    (made,) = answer.tool_calls
    assert (made["name"], made["args"]) == ("weather", {"city": "Rome"})
    assert text_of(bound.invoke([asked, answer, tool(content=weather("Rome"), tool_call_id=made["id"])])) == "Sunny in Rome."


def test_langchain_ollama(s):
    need("langchain_ollama")
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_ollama import ChatOllama

    m = ChatOllama(base_url=s.url, model="m")
    check_langchain(m, HumanMessage, ToolMessage)
    made = m.with_structured_output(SCHEMA).invoke(says(PERSON))
    assert made == json.loads(PERSON)


def test_ollama(s):
    (ollama,) = need("ollama")
    client = ollama.Client(host=s.url)
    assert [m.model for m in client.list().models] and client.show("m").capabilities[:2] == ["completion", "tools"]
    asked = {"role": "user", "content": says(call("weather", city="Rome"))}
    answer = client.chat("m", [asked], tools=[weather])
    (made,) = answer.message.tool_calls
    assert (made.function.name, dict(made.function.arguments)) == ("weather", {"city": "Rome"})
    result = {"role": "tool", "tool_name": "weather", "content": weather("Rome")}
    assert client.chat("m", [asked, answer.message, result], tools=[weather]).message.content == "Sunny in Rome."
    parts = [c.message.content for c in client.chat("m", [{"role": "user", "content": says("One two.")}], stream=True)]
    assert "".join(parts) == "One two." and len(parts) > 2
    assert client.generate("m", says("Hello.")).response == "Hello."
    assert json.loads(client.chat("m", [{"role": "user", "content": says(PERSON)}], format=SCHEMA).message.content) == json.loads(PERSON)
    with pytest.raises(ollama.ResponseError, match="top_p"):
        client.chat("m", [asked], options={"top_p": 7})


def test_llama_index(s):
    need("llama_index.llms.openai_like", "llama_index.llms.ollama")
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.ollama import Ollama
    from llama_index.llms.openai_like import OpenAILike

    tool = FunctionTool.from_defaults(weather)
    for m in (OpenAILike(model="m", api_base=s.url + "/v1", api_key="-", is_chat_model=True, is_function_calling_model=True), Ollama(model="m", base_url=s.url, context_window=2000)):
        assert m.chat([ChatMessage(role="user", content=says("Hello."))]).message.content == "Hello."
        assert [r.delta for r in m.stream_chat([ChatMessage(role="user", content=says("One two."))])][0]
        r = m.chat_with_tools([tool], user_msg=says(call("weather", city="Rome")))
        (made,) = m.get_tool_calls_from_response(r)
        assert (made.tool_name, made.tool_kwargs) == ("weather", {"city": "Rome"})


def test_dspy(s):
    (dspy,) = need("dspy")
    lm = dspy.LM("openai/m", api_base=s.url + "/v1", api_key="-", cache=False)
    assert lm(says("Hello.")) == ["Hello."]
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        assert dspy.Predict("question -> answer")(question=says('{"answer": "42"}')).answer == "42"


def test_outlines(s):
    outlines, openai = need("outlines", "openai")
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    m = outlines.from_openai(openai.OpenAI(base_url=s.url + "/v1", api_key="-"), "m")
    assert m(says("Hello.")) == "Hello."
    assert json.loads(m(says(PERSON), Person)) == json.loads(PERSON)
    v = outlines.from_vllm(openai.OpenAI(base_url=s.url + "/v1", api_key="-"), "m")
    assert v(says("yes"), outlines.types.Regex("yes|no")) == "yes"


def test_smolagents(s):
    (smolagents,) = need("smolagents")
    m = smolagents.OpenAIServerModel(model_id="m", api_base=s.url + "/v1", api_key="-")
    agent = smolagents.ToolCallingAgent(tools=[], model=m, max_steps=2)
    assert agent.run(says(call("final_answer", answer="42"))) == "42"


def test_haystack(s):
    need("haystack")
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret

    g = OpenAIChatGenerator(api_key=Secret.from_token("-"), api_base_url=s.url + "/v1", model="m")
    assert g.run([ChatMessage.from_user(says("Hello."))])["replies"][0].text == "Hello."


def test_strands(s):
    strands, pydantic = need("strands", "pydantic")
    from strands.models.anthropic import AnthropicModel
    from strands.models.openai import OpenAIModel

    class Person(pydantic.BaseModel):
        name: str
        age: int

    tool = strands.tool(weather)
    for model in (
        OpenAIModel(client_args={"base_url": s.url + "/v1", "api_key": "-"}, model_id="m"),
        AnthropicModel(client_args={"base_url": s.url, "api_key": "-"}, model_id="m", max_tokens=200),
    ):
        agent = strands.Agent(model=model, tools=[tool], callback_handler=None)
        assert str(agent(says(call("weather", city="Rome")))).strip() == "Sunny in Rome."
        plain = strands.Agent(model=model, callback_handler=None)
        got = plain(says(call("Person", name="Ann", age=3)), structured_output_model=Person).structured_output
        assert got == Person(name="Ann", age=3)


def test_agno(s):
    need("agno")
    from agno.agent import Agent
    from agno.models.openai.like import OpenAILike

    agent = Agent(model=OpenAILike(id="m", base_url=s.url + "/v1", api_key="-"), tools=[weather], telemetry=False)
    assert agent.run(says(call("weather", city="Rome"))).content == "Sunny in Rome."
    events = agent.run(says(call("weather", city="Oslo")), stream=True)
    assert "".join(e.content or "" for e in events if getattr(e, "event", "") == "RunContent") == "Sunny in Oslo."


def test_semantic_kernel(s):
    _, openai = need("semantic_kernel", "openai")
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Tools:
        @kernel_function(name="weather", description="The weather of a city.")
        def weather(self, city: str) -> str:
            return weather(city)

    async def talk():
        client = openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="-")
        service = OpenAIChatCompletion(ai_model_id="m", async_client=client)
        agent = ChatCompletionAgent(service=service, name="a", instructions="Be brief.", plugins=[Tools()])
        assert str((await agent.get_response(says(call("Tools-weather", city="Rome")))).content) == "Sunny in Rome."
        parts = [str(x.content) async for x in agent.invoke_stream(says(call("Tools-weather", city="Oslo")))]
        assert "".join(parts) == "Sunny in Oslo."

    asyncio.run(talk())


def test_autogen(s):
    need("autogen_agentchat", "autogen_ext")
    pydantic = pytest.importorskip("pydantic")
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    class Person(pydantic.BaseModel):
        name: str
        age: int

    can = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True}
    client = OpenAIChatCompletionClient(model="m", base_url=s.url + "/v1", api_key="-", model_info=can)

    async def talk():
        kw = {"model_client": client, "tools": [weather], "reflect_on_tool_use": True}
        ran = await AssistantAgent("a", **kw).run(task=says(call("weather", city="Rome")))
        assert ran.messages[-1].content == "Sunny in Rome."
        streamed = AssistantAgent("b", **kw, model_client_stream=True).run_stream(task=says(call("weather", city="Oslo")))
        last = [m async for m in streamed][-1]
        assert last.messages[-1].content == "Sunny in Oslo."
        typed = AssistantAgent("c", model_client=client, output_content_type=Person)
        assert (await typed.run(task=says(PERSON))).messages[-1].content == Person(name="Ann", age=3)

    asyncio.run(talk())


def test_browser_use(s, monkeypatch):
    monkeypatch.setenv("ANONYMIZED_TELEMETRY", "false")
    browser_use, pydantic = need("browser_use", "pydantic")
    from browser_use.llm.messages import SystemMessage, UserMessage

    class Person(pydantic.BaseModel):
        name: str
        age: int

    async def talk():
        clients = [(browser_use.ChatOpenAI(model="m", base_url=s.url + "/v1", api_key="-"), PERSON)]
        clients.append((browser_use.ChatAnthropic(model="m", base_url=s.url, api_key="-"), forced("Person")))
        for client, answer in clients:
            plain = await client.ainvoke([SystemMessage(content="Be brief."), UserMessage(content=says("Hello."))])
            assert plain.completion == "Hello." and plain.usage.completion_tokens > 0
            typed = await client.ainvoke([UserMessage(content=says(answer))], output_format=Person)
            assert typed.completion == Person(name="Ann", age=3)

    asyncio.run(talk())


def test_guidance():
    """By its classes for OpenAI, vLLM and SGLang, whose grammars are in llguidance's notation, with the demo model."""
    guidance, pydantic = need("guidance", "pydantic")
    from guidance.models.experimental import SglangModel, VLLMModel

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=9)
        age: int

    def ask(kind, part):
        model = kind("demo", base_url=demo.url + "/v1", api_key="-", echo=False)
        with guidance.user():
            model += "Say a number."
        with guidance.assistant():
            model += part
        return model["it"] if "it" in model else str(model)

    with Service(DEMO) as demo:
        assert len(ask(guidance.models.OpenAI, guidance.gen("it", max_tokens=9))) > 3
        assert Person.model_validate_json(ask(guidance.models.OpenAI, guidance.json("it", schema=Person)))
        sentence = ask(VLLMModel, guidance.gen("it", suffix=".") + "#")
        assert sentence and "." not in sentence and "#" not in sentence
        for kind in (VLLMModel, SglangModel):
            assert ask(kind, guidance.select(["red", "green"], name="it")) in ("red", "green")
            assert ask(kind, guidance.gen("it", regex=r"\d{3}")).isdigit()
            many = ask(kind, guidance.one_or_more(guidance.gen("it", regex="[ab]", list_append=True) + ","))
            assert many and set(many) <= {"a", "b"}


def test_anthropic_tool_runner(s):
    """From 2.14 on it starts a thread on the server unasked, and goes on without one where the error says so."""
    (anthropic,) = need("anthropic")
    if not hasattr(anthropic, "beta_tool"):
        pytest.skip("anthropic has no runner of tools")
    tool = anthropic.beta_tool(weather)
    client = anthropic.Anthropic(base_url=s.url, api_key="-", max_retries=0)
    ask = says(call("weather", city="Rome"))
    runner = client.beta.messages.tool_runner(model="m", max_tokens=99, messages=[{"role": "user", "content": ask}], tools=[tool])
    seen = [m.content[0] for m in runner]
    assert seen[0].type == "tool_use" and seen[0].input == {"city": "Rome"} and seen[-1].text == "Sunny in Rome."


def test_langchain_for_other_apis(s):
    """Hugging Face's, Mistral's and Cohere's classes. The last two do not join the parts of a streamed call, as they give each an id of its own."""
    need("langchain_huggingface", "langchain_mistralai", "langchain_cohere")
    from langchain_cohere import ChatCohere
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_huggingface import ChatHuggingFace, HuggingFaceEndpoint
    from langchain_mistralai import ChatMistralAI

    endpoint = HuggingFaceEndpoint(endpoint_url=s.url, task="text-generation", huggingfacehub_api_token="-")
    models = [ChatHuggingFace(llm=endpoint, model_id="m"), ChatMistralAI(endpoint=s.url + "/v1", api_key="-", model_name="m"), ChatCohere(base_url=s.url, cohere_api_key="-", model="m")]
    for m in models:
        check_langchain(m, HumanMessage, ToolMessage)


def test_qwen_agent(s):
    """With the calls in the text, as it has them by default, and with OpenAI's."""
    need("qwen_agent")
    from qwen_agent.agents import Assistant
    from qwen_agent.tools.base import BaseTool

    class Weather(BaseTool):
        name = "weather"
        description = "The weather of a city."
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

        def call(self, params, **_):
            return weather(**json.loads(params))

    for raw in (False, True):
        llm = {"model": "m", "model_server": s.url + "/v1", "api_key": "-", "generate_cfg": {"use_raw_api": raw}}
        bot = Assistant(llm=llm, function_list=[Weather()])
        for text, want in (("Hello.", "Hello."), (call("weather", city="Rome"), "Sunny in Rome.")):
            *_, last = bot.run(messages=[{"role": "user", "content": says(text)}])
            assert last[-1]["content"] == want, (raw, last)


def test_mirascope(s):
    need("mirascope")
    from mirascope import llm
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    llm.register_provider("openai", scope="openai/", api_key="-", base_url=s.url + "/v1")
    for model in ("openai/m:completions", "openai/m:responses"):
        talk = llm.call(model)(lambda text: text)
        assert talk(says("Hello.")).text() == "Hello."
        assert "".join(talk.stream(says("One two three.")).text_stream()).strip() == "One two three."
        asked = llm.call(model, tools=[llm.tool(weather)])(lambda text: text)(says(call("weather", city="Rome")))
        assert asked.resume(asked.execute_tools()).text() == "Sunny in Rome."
        for mode, text in (("strict", PERSON), ("json", PERSON), ("tool", forced("__mirascope_formatted_output_tool__"))):
            typed = llm.call(model, format=llm.format(Person, mode=mode))(lambda text: text)
            assert typed(says(text)).parse() == Person(name="Ann", age=3), (model, mode)


def test_mem0(tmp_path, monkeypatch):
    """Facts of a conversation are found by their vectors, of a second server. Its instructions are 17,000 tokens long."""
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path / "home"))
    (mem0,) = need("mem0")
    with Scripted(TEMPLATE, script={"blocks": 4096}) as chat, Service(data("embed/bert_mean")) as vectors:
        width = len(vectors.post("/v1/embeddings", {"input": "x"}).json()["data"][0]["embedding"])
        memory = mem0.Memory.from_config({
            "llm": {"provider": "openai", "config": {"model": "m", "openai_base_url": chat.url + "/v1", "api_key": "-"}},
            "embedder": {"provider": "openai", "config": {"model": "m", "openai_base_url": vectors.url + "/v1", "api_key": "-", "embedding_dims": width}},
            "vector_store": {"provider": "qdrant", "config": {"path": str(tmp_path / "q"), "embedding_model_dims": width}},
        })  # fmt: skip
        fact = json.dumps({"memory": [{"text": "Likes tea"}]})
        memory.add([{"role": "user", "content": says(fact)}], user_id="u")
        (found,) = memory.search("tea", filters={"user_id": "u"})["results"]
        assert found["memory"] == "Likes tea"
