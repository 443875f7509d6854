import assert from "node:assert/strict";
import OpenAI from "openai";
import { all, call, CITY, forced, PERSON, says, SCHEMA, SERVER, user, weather } from "./said.ts";

const client = new OpenAI({ baseURL: SERVER + "/v1", apiKey: "-", maxRetries: 0 });
const model = "m";
const tools = [{ type: "function" as const, function: { name: "weather", parameters: CITY } }];

Deno.test("chat, plain and streamed", async () => {
  const answer = await client.chat.completions.create({ model, messages: [user("Hello.")] });
  assert.equal(answer.choices[0].message.content, "Hello.");
  const stream = await client.chat.completions.create({ model, messages: [user("One two.")], stream: true, stream_options: { include_usage: true } });
  const chunks = await all(stream);
  assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? "").join(""), "One two.");
  assert.ok(chunks.length > 3 && chunks.at(-1)!.usage!.completion_tokens > 1);
});

Deno.test("a call, its arguments in parts, and its result", async () => {
  const messages = [user(call("weather", { city: "Rome" }))];
  const stream = client.chat.completions.stream({ model, messages, tools });
  const made: unknown[] = [];
  stream.on("tool_calls.function.arguments.done", (e) => made.push(JSON.parse(e.arguments)));
  const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
  assert.deepEqual([made, finish_reason], [[{ city: "Rome" }], "tool_calls"]);
  const result = { role: "tool" as const, tool_call_id: message.tool_calls![0].id, content: weather({ city: "Rome" }) };
  const answer = await client.chat.completions.create({ model, messages: [...messages, message, result], tools });
  assert.equal(answer.choices[0].message.content, "Sunny in Rome.");
});

Deno.test("the runner of tools", async () => {
  const runner = client.chat.completions.runTools({
    model,
    messages: [user(call("weather", { city: "Oslo" }))],
    tools: [{ type: "function", function: { name: "weather", description: "", parameters: CITY, parse: JSON.parse, function: weather } }],
  });
  assert.equal(await runner.finalContent(), "Sunny in Oslo.");
});

Deno.test("an answer by a schema", async () => {
  const format = { name: "person", strict: true, schema: SCHEMA };
  const messages = [user(JSON.stringify(PERSON))];
  const chat = await client.chat.completions.parse({ model, messages, response_format: { type: "json_schema", json_schema: format } });
  assert.deepEqual(chat.choices[0].message.parsed, PERSON);
  const response = await client.responses.parse({ model, input: messages, text: { format: { type: "json_schema", ...format } } });
  assert.deepEqual(response.output_parsed, PERSON);
});

Deno.test("responses: streamed, with a call and its result", async () => {
  const stream = client.responses.stream({ model, input: says("One two.") });
  const kinds = new Set((await all(stream)).map((e) => e.type));
  assert.ok(kinds.has("response.created") && kinds.has("response.output_text.delta") && kinds.has("response.completed"));
  assert.equal((await stream.finalResponse()).output_text, "One two.");
  const input = [user(call("weather", { city: "Rome" }))];
  const responseTools = [{ type: "function" as const, name: "weather", parameters: CITY, strict: false }];
  const { output } = await client.responses.create({ model, input, tools: responseTools });
  const made = output.find((item) => item.type === "function_call")!;
  assert.deepEqual(JSON.parse(made.arguments), { city: "Rome" });
  const result = { type: "function_call_output" as const, call_id: made.call_id, output: weather({ city: "Rome" }) };
  const answer = await client.responses.create({ model, input: [...input, made, result], tools: responseTools });
  assert.equal(answer.output_text, "Sunny in Rome.");
});

Deno.test("a forced call, completions, models", async () => {
  const { choices } = await client.chat.completions.create({ model, messages: [user(forced("weather", { city: "Rome" }))], tools, tool_choice: "required" });
  const made = choices[0].message.tool_calls![0];
  assert.ok(made.type === "function" && made.function.name === "weather");
  const text = await client.completions.create({ model, prompt: [says("Hello."), says("Bye.")] });
  assert.deepEqual(text.choices.map((c) => c.text), ["Hello.", "Bye."]);
  assert.equal((await all(client.models.list())).length, 1);
});

Deno.test("errors name the field; an aborted stream ends", async () => {
  await assert.rejects(client.chat.completions.create({ model, messages: [user("x")], temperature: -3 }), (e) => {
    return e instanceof OpenAI.BadRequestError && e.param === "temperature";
  });
  const stream = await client.chat.completions.create({ model, messages: [user("One two three four.")], stream: true });
  for await (const _ of stream) stream.controller.abort();
  assert.ok(stream.controller.signal.aborted);
});
