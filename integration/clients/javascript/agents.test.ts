import assert from "node:assert/strict";
import { Agent, Runner, tool } from "@openai/agents-core";
import { OpenAIProvider } from "@openai/agents-openai";
import { z } from "zod";
import { all, call, PERSON, says, SERVER, weather } from "./said.ts";

const tools = [tool({ name: "weather", description: "", parameters: z.object({ city: z.string() }), execute: async (input) => weather(input) })];
const outputType = z.object({ name: z.string(), age: z.number().int() });

for (const useResponses of [false, true]) {
  const runner = new Runner({ modelProvider: new OpenAIProvider({ baseURL: SERVER + "/v1", apiKey: "-", useResponses }), tracingDisabled: true });
  const route = useResponses ? "responses" : "chat";

  Deno.test(`${route}: a call and its result, plain and streamed`, async () => {
    const agent = new Agent({ name: "a", model: "m", instructions: "Be brief.", tools });
    assert.equal((await runner.run(agent, says(call("weather", { city: "Rome" })))).finalOutput, "Sunny in Rome.");
    const stream = await runner.run(agent, says(call("weather", { city: "Oslo" })), { stream: true });
    assert.ok((await all(stream)).length > 3);
    assert.equal(stream.finalOutput, "Sunny in Oslo.");
  });

  Deno.test(`${route}: a typed answer`, async () => {
    const agent = new Agent({ name: "a", model: "m", outputType });
    assert.deepEqual((await runner.run(agent, says(JSON.stringify(PERSON)))).finalOutput, PERSON);
  });
}
