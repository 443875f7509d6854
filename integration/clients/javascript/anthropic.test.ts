import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { all, call, CITY, PERSON, SCHEMA, SERVER, user, weather } from "./said.ts";

const client = new Anthropic({ baseURL: SERVER, apiKey: "-", maxRetries: 0 });
const common = { model: "m", max_tokens: 100 };
const tools = [{ name: "weather", input_schema: CITY }];

Deno.test("messages, plain and streamed", async () => {
  const { content, stop_reason } = await client.messages.create({ ...common, messages: [user("Hello.")] });
  assert.deepEqual([content, stop_reason], [[{ type: "text", text: "Hello." }], "end_turn"]);
  const stream = client.messages.stream({ ...common, messages: [user("One two.")] });
  const parts: string[] = [];
  stream.on("text", (delta) => parts.push(delta));
  const message = await stream.finalMessage();
  assert.equal(parts.join(""), "One two.");
  assert.ok(parts.length > 1 && message.usage.output_tokens >= parts.length);
});

Deno.test("a call, its input in parts, and its result", async () => {
  const messages = [user(call("weather", { city: "Rome" }))];
  const stream = client.messages.stream({ ...common, messages, tools });
  const parts: string[] = [];
  stream.on("inputJson", (delta) => parts.push(delta));
  const { content, stop_reason } = await stream.finalMessage();
  const made = content.find((block) => block.type === "tool_use")!;
  assert.deepEqual([made.name, made.input, stop_reason], ["weather", { city: "Rome" }, "tool_use"]);
  assert.deepEqual(JSON.parse(parts.join("")), { city: "Rome" });
  const result = { role: "user" as const, content: [{ type: "tool_result" as const, tool_use_id: made.id, content: weather({ city: "Rome" }) }] };
  const answer = await client.messages.create({ ...common, messages: [...messages, { role: "assistant", content }, result], tools });
  assert.deepEqual(answer.content, [{ type: "text", text: "Sunny in Rome." }]);
});

Deno.test("an answer by a schema", async () => {
  const output_config = { format: { type: "json_schema" as const, schema: SCHEMA } };
  const { parsed_output } = await client.messages.parse({ ...common, messages: [user(JSON.stringify(PERSON))], output_config });
  assert.deepEqual(parsed_output, PERSON);
});

Deno.test("counts, models, betas, errors", async () => {
  assert.ok((await client.messages.countTokens({ model: "m", messages: [user("Hello.")] })).input_tokens > 3);
  assert.deepEqual((await all(client.models.list())).map((m) => m.type), ["model"]);
  const beta = await client.beta.messages.create({ ...common, betas: ["context-management-2025-06-27"], messages: [user("Hello.")] });
  assert.deepEqual(beta.content, [{ type: "text", text: "Hello." }]);
  await assert.rejects(client.messages.create({ ...common, messages: [{ role: "nobody" as "user", content: "x" }] }), Anthropic.BadRequestError);
});
