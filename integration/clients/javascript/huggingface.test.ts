import assert from "node:assert/strict";
import { InferenceClient } from "@huggingface/inference";
import { all, call, CITY, says, SERVER, user } from "./said.ts";

const client = new InferenceClient("-", { endpointUrl: SERVER });
const tools = [{ type: "function" as const, function: { name: "weather", parameters: CITY } }];

// With an address of an endpoint this client sends texts to `/v1/completions` and passes the chunks on as they are.
Deno.test("text generation", async () => {
  const { generated_text } = await client.textGeneration({ inputs: says("Hello."), parameters: { max_new_tokens: 20 } });
  assert.equal(generated_text, "Hello.");
  const chunks: unknown[] = await all(client.textGenerationStream({ inputs: says("One two."), parameters: { max_new_tokens: 20 } }));
  assert.equal(chunks.map((c) => (c as { choices: { text: string }[] }).choices[0].text).join(""), "One two.");
});

Deno.test("the Messages API", async () => {
  const { choices } = await client.chatCompletion({ messages: [user(call("weather", { city: "Rome" }))], tools });
  assert.deepEqual(JSON.parse(choices[0].message.tool_calls![0].function.arguments), { city: "Rome" });
  const chunks = await all(client.chatCompletionStream({ messages: [user("One two.")] }));
  assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? "").join(""), "One two.");
});
