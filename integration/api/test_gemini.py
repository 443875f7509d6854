"""Google's Gemini API in the shapes that google-genai, Gemini CLI and LiteLLM send: answers, streams, calls and their results."""

import base64
import json

import pytest
import requests
from serving import DEMO, Scripted, Service, data
from test_image_inputs import SCRIPT, SMALL, b64, part, saw, text, where
from test_image_inputs import TEMPLATE as IMAGE_TEMPLATE
from tool_talk import CALL, TEMPLATE

HELLO = [{"role": "user", "parts": [{"text": "Hello!"}]}]
PARAMETERS = {
    "type": "OBJECT",
    "properties": {"city": {"type": "STRING", "enum": ["Rome", "Oslo"]}, "days": {"type": "INTEGER", "minimum": 1, "maximum": 5}},
    "required": ["city", "days"],
}
TOOLS = [{"functionDeclarations": [{"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}]}]
ARGUMENTS = {"city": "Rome", "days": 2}


@pytest.fixture(scope="module")
def demo():
    with Service(DEMO, args=["--served-model-name", "demo", "--api-key", "sesame"]) as service:
        yield service


@pytest.fixture(scope="module")
def s():
    with Scripted(TEMPLATE) as service:
        yield service


def ask(s, action="generateContent", model="demo", version="v1beta", **body):
    return s.post(f"/{version}/models/{model}:{action}", {"contents": HELLO, **body}, headers={"x-goog-api-key": "sesame"})


def answer(s, **body):
    r = ask(s, **body)
    assert r.status_code == 200, r.text
    return r.json()


def items(s, **body):
    r = ask(s, "streamGenerateContent?alt=sse", **body)
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream"), r.text
    return [json.loads(e.removeprefix("data: ")) for e in r.text.split("\n\n") if e]


def parts(a, i=0):
    return a["candidates"][i]["content"].get("parts", [])


def said(*answers, thoughts=False, i=0):
    return "".join(p.get("text", "") for a in answers for p in parts(a, i) if p.get("thought", False) == thoughts)


def script(words):
    return [{"role": "user", "parts": [{"text": f"[[{words}]]"}]}]


def openai(demo, **body):
    body = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, **body}
    return demo.post("/v1/chat/completions", body, headers={"authorization": "Bearer sesame"}).json()


def test_an_answer(demo):
    a, want = answer(demo, generationConfig={"temperature": 0, "maxOutputTokens": 60}), openai(demo, max_tokens=60)
    (c,) = a["candidates"]
    assert said(a) == want["choices"][0]["message"]["content"] and c["content"]["role"] == "model"
    assert (c["finishReason"], c["index"], a["modelVersion"]) == ("STOP", 0, "demo") and a["responseId"]
    u, w = a["usageMetadata"], want["usage"]
    assert (u["promptTokenCount"], u["candidatesTokenCount"], u["totalTokenCount"]) == (
        w["prompt_tokens"],
        w["completion_tokens"],
        w["total_tokens"],
    )
    # snake case, the path of v1, a content that is no list, a system instruction as text
    short = {"generation_config": {"temperature": 0, "max_output_tokens": 3}, "contents": HELLO[0]}
    b = answer(demo, version="v1", **short)
    assert said(a).startswith(said(b)) and b["candidates"][0]["finishReason"] == "MAX_TOKENS"
    word = said(a).split()[1]
    cut = answer(demo, generationConfig={"temperature": 0, "maxOutputTokens": 60, "stopSequences": [word]})
    assert said(cut) == said(a)[: said(a).index(word)] and cut["candidates"][0]["finishReason"] == "STOP"


def test_streams(demo):
    config = {"temperature": 0, "maxOutputTokens": 40, "candidateCount": 2}
    whole, events = answer(demo, generationConfig=config), items(demo, generationConfig=config)
    r = ask(demo, "streamGenerateContent", generationConfig=config)
    assert r.headers["content-type"] == "application/json"
    for got in (events, r.json()):
        for i in range(2):
            own = [{**e, "candidates": [c]} for e in got for c in e["candidates"] if c["index"] == i]
            assert said(*own) == said(whole, i=i)
            assert ["finishReason" in e["candidates"][0] for e in own] == [False] * (len(own) - 1) + [True]
        assert got[-1]["usageMetadata"] | {"cachedContentTokenCount": 0} == whole["usageMetadata"] | {"cachedContentTokenCount": 0}


def test_sampling(demo):
    def draw(**config):
        return said(answer(demo, generationConfig={"maxOutputTokens": 40, "temperature": 2, **config}))

    greedy = said(answer(demo, generationConfig={"maxOutputTokens": 40, "temperature": 0}))
    assert draw(seed=7) == draw(seed=7) and len({draw(seed=i) for i in range(4)}) > 1
    assert draw(seed=5, topK=1) == draw(topP=0) == greedy
    for name in ("frequencyPenalty", "presencePenalty"):
        assert any(draw(seed=i, **{name: 2}) != draw(seed=i) for i in range(12)), name


def test_logprobs(demo):
    want = openai(demo, max_tokens=6, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    config = {"temperature": 0, "maxOutputTokens": 6, "responseLogprobs": True, "logprobs": 2}
    for got in ([answer(demo, generationConfig=config)], items(demo, generationConfig=config)):
        results = [a["candidates"][0]["logprobsResult"] for a in got]
        chosen = [t for r in results for t in r["chosenCandidates"]]
        assert [(t["token"], t["logProbability"]) for t in chosen] == [(t["token"], t["logprob"]) for t in want]
        tops = [[t["token"] for t in c["candidates"]] for r in results for c in r["topCandidates"]]
        assert tops == [[t["token"] for t in w["top_logprobs"]] for w in want]


def test_formats(demo):
    def write(mime, **config):
        config = {"temperature": 0, "maxOutputTokens": 200, "responseMimeType": mime, **config}
        return said(answer(demo, generationConfig=config))

    given = {
        "type": "OBJECT",
        "properties": {
            "list": {"type": "ARRAY", "items": {"type": "STRING", "nullable": True, "enum": ["a", "b"]}, "minItems": "2", "max_items": 2},
            "n": {"any_of": [{"type": "INTEGER"}, {"type": "BOOLEAN"}]},
        },
        "required": ["list", "n"],
        "property_ordering": ["n", "list"],
    }
    got = json.loads(write("application/json", responseSchema=given))
    assert list(got) == ["n", "list"] and isinstance(got["n"], int) and len(got["list"]) == 2 and set(got["list"]) <= {"a", "b", None}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"], "$defs": {"n": {"type": "null"}}}
    assert json.loads(write("application/json", responseJsonSchema=schema)) == {"x": None}
    assert write("application/json").lstrip()[0] in "{["
    assert write("text/x.enum", responseSchema={"type": "STRING", "enum": ["yes", "no"]}) in ("yes", "no")


def test_a_call_and_its_result(s):
    asked = script(f"<think>Hm.</think>Wait.{CALL}")
    thinking = {"thinkingConfig": {"includeThoughts": True}}
    for got in ([answer(s, contents=asked, tools=TOOLS, generationConfig=thinking)], items(s, contents=asked, tools=TOOLS, generationConfig=thinking)):
        assert said(*got, thoughts=True) == "Hm." and said(*got) == "Wait." and got[-1]["candidates"][0]["finishReason"] == "STOP"
        (call,) = [p["functionCall"] for a in got for p in parts(a) if "functionCall" in p]
        assert call["name"] == "get_weather" and call["args"] == ARGUMENTS and call["id"]
    assert said(answer(s, contents=asked, tools=TOOLS), thoughts=True) == "" and said(answer(s, contents=asked, tools=TOOLS)) == "Wait."
    # Gemini CLI sends the turn back with the thought and its signature, and results without ids
    model = {"role": "model", "parts": [*parts(got[0]), {"functionCall": {"name": "get_weather", "args": ARGUMENTS}, "thoughtSignature": "x"}]}
    result = {"functionResponse": {"name": "get_weather", "response": {"output": "[[Sunny.]]"}}}
    assert said(answer(s, contents=[*HELLO, model, {"role": "user", "parts": [result]}], tools=TOOLS)) == "Sunny."


def test_a_history_as_the_template_gets_it():
    call = {"functionCall": {"name": "f", "args": {"a": 1.5}}}
    other = {"functionCall": {"name": "g", "id": "own"}}
    results = [
        {"functionResponse": {"name": "g", "id": "own", "response": {"error": "no"}}},
        {"functionResponse": {"name": "f", "response": {"a": [1], "b": None}}},
        {"text": "And now?"},
        {"inlineData": {"mimeType": "text/x-c", "data": base64.b64encode(b"int a;").decode()}},
    ]
    contents = [{"parts": [{"text": "Hi"}, {"text": "!"}]}, {"role": "model", "parts": [{"text": "Hm", "thought": True}, {"text": "On it."}, call, other]}]
    body = {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": [*contents, {"role": "user", "parts": results}], "tools": TOOLS}
    body["tools"] = [*TOOLS, {"googleSearch": {}}]
    with Scripted("[[{% for m in messages %}{{ m | tojson if m.tool_calls or m }}{% endfor %}]]{{ tools }}", {"said_in_prompt": 100000}) as t:
        r = ask(t, **body)
    assert "googleSearch" in r.headers["warning"], r.headers
    shown = said(r.json())
    assert shown.index('"Be brief."') < shown.index('"Hi!"') < shown.index('"Hm"')
    assert '"content": "On it."' in shown and '"reasoning_content": "Hm"' in shown and '"arguments": {"a": 1.5}' in shown
    at = [shown.index(x) for x in ('"Error: no"', '{\\"a\\":[1],\\"b\\":null}', "And now?", "int a;")]
    assert at == sorted(at), shown
    assert '"tool_call_id": "own"' in shown and shown.count('"call00000"') == 2, shown


@pytest.mark.parametrize("mode, calls", [("ANY", True), ("NONE", False)])
def test_modes(demo, mode, calls):
    config = {"functionCallingConfig": {"mode": mode, **({"allowedFunctionNames": ["get_weather"]} if calls else {})}}
    a = answer(demo, tools=TOOLS, toolConfig=config, generationConfig={"temperature": 0, "maxOutputTokens": 90})
    got = [p["functionCall"]["args"] for p in parts(a) if "functionCall" in p]
    assert bool(got) == calls and all(g["city"] in ("Rome", "Oslo") and 1 <= g["days"] <= 5 and len(g) == 2 for g in got)


@pytest.mark.parametrize("budget, shown", [(0, "False"), (1024, "True"), (-1, "")])
def test_thinking_reaches_the_template(budget, shown):
    with Scripted(TEMPLATE.replace("{{ ' thinks:' ~ enable_thinking }}", "[[{{ enable_thinking }}]]")) as t:
        assert said(answer(t, contents=script(""), generationConfig={"thinkingConfig": {"thinkingBudget": budget}})) == shown


def test_levels_of_thinking():
    shows = TEMPLATE.replace("{%- if add_generation_prompt %}", "[[{{ reasoning_effort | default('none said') }}]]{%- if add_generation_prompt %}")
    with Scripted(shows) as t:
        for level, effort in (("LOW", "low"), ("high", "high"), ("THINKING_LEVEL_UNSPECIFIED", "none said"), (None, "none said")):
            assert said(answer(t, generationConfig={"thinkingConfig": {"thinkingLevel": level}})) == effort
        r = ask(t, generationConfig={"thinkingConfig": {"thinkingLevel": "x" * 40}})
        assert r.status_code == 400 and "thinkingLevel" in r.json()["error"]["message"]


def test_images():
    with Scripted(IMAGE_TEMPLATE, SCRIPT, takes_images=True) as t:
        urlsafe = b64(SMALL).replace("+", "-").replace("/", "_")
        shown = {"role": "user", "parts": [{"text": "What?"}, {"inlineData": {"mimeType": "image/png", "data": urlsafe}}]}
        a = answer(t, contents=[shown], generationConfig={"maxOutputTokens": 9})
        assert said(a) == saw(where(t, [{"role": "user", "content": [text("What?"), part(SMALL)]}])[0], 4, SMALL)


def test_counts_and_models(demo):
    n = answer(demo, generationConfig={"maxOutputTokens": 1})["usageMetadata"]["promptTokenCount"]
    assert ask(demo, "countTokens").json() == {"totalTokens": n}
    wrapped = {"generateContentRequest": {"model": "models/demo", "contents": HELLO}}
    assert demo.post("/v1beta/models/demo:countTokens?key=sesame", wrapped).json() == {"totalTokens": n}
    asked = {"x-goog-api-key": "sesame"}
    for version in ("v1beta", "v1"):
        (m,) = requests.get(f"{demo.url}/{version}/models", headers=asked).json()["models"]
        assert m["name"] == "models/demo" and "generateContent" in m["supportedGenerationMethods"] and m["inputTokenLimit"] > 0
        assert requests.get(f"{demo.url}/{version}/{m['name']}", headers=asked).json() == m
    assert requests.get(f"{demo.url}/v1/models").json()["object"] == "list"


WRONG = [
    ({"contents": []}, "contents"),
    ({"contents": [{"role": "robot", "parts": [{"text": "x"}]}]}, "role"),
    ({"contents": [{"parts": [{"text": "x"}, {"video": 1}]}]}, "contents[0].parts[1]"),
    ({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]}]}, "images"),
    ({"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": "iVBO"}}]}]}, "only text"),
    ({"contents": [{"role": "model", "parts": [{"functionCall": {"args": {}}}]}]}, "name"),
    ({"generationConfig": {"temperature": "hot"}}, "temperature"),
    ({"generationConfig": {"candidateCount": 0}}, "candidateCount"),
    ({"generationConfig": {"responseMimeType": "image/png"}}, "responseMimeType"),
    ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "responseModalities"),
    ({"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "properties": 3}}}, "responseSchema"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "ANY"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "SOME"}}, "tools": TOOLS}, "mode"),
    ({"cachedContent": "cachedContents/1"}, "cachedContent"),
]


@pytest.mark.parametrize("body, word", WRONG)
def test_errors(demo, body, word):
    r = ask(demo, **body)
    e = r.json()["error"]
    assert r.status_code == e["code"] == 400 and e["status"] == "INVALID_ARGUMENT" and word in e["message"], r.text


def test_refusals(demo):
    for r, code, status in [
        (demo.post("/v1beta/models/demo:generateContent", {"contents": HELLO}), 401, "UNAUTHENTICATED"),
        (ask(demo, "batchGenerateContent"), 404, "NOT_FOUND"),
        (requests.get(f"{demo.url}/v1beta/models/other"), 404, "NOT_FOUND"),
    ]:
        assert r.status_code == r.json()["error"]["code"] == code and r.json()["error"]["status"] == status, r.text
    # the query's key is Google's alone
    assert demo.post("/v1/chat/completions?key=sesame", {"messages": []}).status_code == 401


def test_a_failure_ends_the_stream():
    with Scripted(TEMPLATE, {"fail_request": "its own fault"}) as t:
        assert ask(t).json()["error"]["status"] == "INTERNAL"
        for r in (ask(t, "streamGenerateContent?alt=sse"), ask(t, "streamGenerateContent")):
            assert "its own fault" in r.text, r.text


def test_vectors():
    texts = ["A man walks.", "Someone is walking.", "It rains."]
    with Service(data("embed/qwen3_embedding"), args=["--served-model-name", "vectors"]) as q:
        want = [d["embedding"] for d in q.post("/v1/embeddings", {"input": texts}).json()["data"]]
        contents = [{"parts": [{"text": t[:3]}, {"text": t[3:]}]} for t in texts]

        def vectors(action, body, path="/v1beta/models/vectors"):
            r = q.post(f"{path}:{action}", body)
            assert r.status_code == 200, r.text
            return r.json()

        assert vectors("embedContent", {"content": contents[0]}) == {"embedding": {"values": want[0]}}
        body = {"requests": [{"model": "models/vectors", "content": c} for c in contents]}
        assert [e["values"] for e in vectors("batchEmbedContents", body)["embeddings"]] == want
        vertex = "/v1beta1/projects/p/locations/l/publishers/google/models/vectors"
        said = vectors("predict", {"instances": [{"content": t} for t in texts]}, vertex)["predictions"]
        assert [p["embeddings"]["values"] for p in said] == want
        assert all(p["embeddings"]["statistics"]["token_count"] > 1 for p in said)
        # fewer numbers, beside the content or apart; the model's prompt for a question
        short = {"embeddings": [{"values": q.post("/v1/embeddings", {"input": texts[0], "dimensions": 8}).json()["data"][0]["embedding"]}]}
        for how in ({"outputDimensionality": 8}, {"output_dimensionality": 8}, {"embedContentConfig": {"outputDimensionality": 8}}):
            assert vectors("batchEmbedContents", {"requests": [{"content": contents[0], **how}]}) == short
        query = q.post("/embed", {"inputs": texts[0], "prompt_name": "query"}).json()
        assert vectors("embedContent", {"content": contents[0], "taskType": "RETRIEVAL_QUERY"})["embedding"]["values"] == query[0] != want[0]
        (m,) = requests.get(q.url + "/v1beta/models", timeout=60).json()["models"]
        assert m["supportedGenerationMethods"] == ["embedContent"]
        for bad, why in (
            ({}, "content"),
            ({"content": {"parts": [{"inlineData": {}}]}}, "text"),
            ({"content": {"parts": []}}, "no text"),
            ({"content": contents[0], "outputDimensionality": 9999}, "outputDimensionality"),
        ):
            r = q.post("/v1beta/models/vectors:embedContent", bad)
            assert r.status_code == 400 and why in r.json()["error"]["message"], r.text
        different = {"requests": [{"content": contents[0]}, {"content": contents[1], "taskType": "RETRIEVAL_QUERY"}]}
        assert q.post("/v1beta/models/vectors:batchEmbedContents", different).status_code == 400
        assert q.post("/v1beta/models/vectors:batchEmbedContents", {"requests": []}).status_code == 400


def test_paths_of_vertex(demo):
    for version in ("v1", "v1beta1"):
        path = f"/{version}/projects/my-project/locations/global/publishers/google/models/demo"
        body = {"contents": HELLO, "generationConfig": {"temperature": 0, "maxOutputTokens": 8}}
        r = demo.post(f"{path}:generateContent", body, headers={"authorization": "Bearer sesame"})
        assert r.status_code == 200 and said(r.json()) == said(answer(demo, **body))
        assert demo.post(f"{path}:generateContent", body).status_code == 401
    for path in ("/v1/projects//locations/l/publishers/google/models/demo", "/v1/projects/p/q/locations/l/publishers/google/models/demo"):
        assert demo.post(f"{path}:generateContent", body, headers={"authorization": "Bearer sesame"}).status_code == 404
    # a model that does not embed
    r = ask(demo, "embedContent", content=HELLO[0])
    assert r.status_code == 400 and r.json()["error"]["status"] == "INVALID_ARGUMENT"
