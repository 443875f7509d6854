import assert from "node:assert/strict";
import { Ollama } from "ollama";
import { all, call, CITY, PERSON, says, SCHEMA, SERVER, user, weather } from "./said.ts";

const client = new Ollama({ host: SERVER });
const model = "m";
const tools = [{ type: "function", function: { name: "weather", description: "", parameters: CITY } }];

Deno.test("chat, plain and streamed, and generate", async () => {
  assert.equal((await client.chat({ model, messages: [user("Hello.")] })).message.content, "Hello.");
  const parts = await all(await client.chat({ model, messages: [user("One two.")], stream: true }));
  assert.equal(parts.map((p) => p.message.content).join(""), "One two.");
  assert.ok(parts.length > 2 && parts.at(-1)!.done);
  assert.equal((await client.generate({ model, prompt: says("Hello.") })).response, "Hello.");
});

Deno.test("a call and its result", async () => {
  const messages = [user(call("weather", { city: "Rome" }))];
  const { message } = await client.chat({ model, messages, tools });
  const made = message.tool_calls![0].function;
  assert.deepEqual([made.name, made.arguments], ["weather", { city: "Rome" }]);
  const result = { role: "tool", tool_name: "weather", content: weather({ city: "Rome" }) };
  assert.equal((await client.chat({ model, messages: [...messages, message, result], tools })).message.content, "Sunny in Rome.");
});

Deno.test("a schema, the models, an error", async () => {
  const { message } = await client.chat({ model, messages: [user(JSON.stringify(PERSON))], format: SCHEMA });
  assert.deepEqual(JSON.parse(message.content), PERSON);
  assert.equal((await client.list()).models.length, 1);
  assert.deepEqual((await client.show({ model })).capabilities!.slice(0, 2), ["completion", "tools"]);
  await assert.rejects(client.chat({ model, messages: [user("x")], options: { top_p: 7 } }), /top_p/);
});
