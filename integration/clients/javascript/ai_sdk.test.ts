import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { all, call, forced, PERSON, says, SERVER, weather } from "./said.ts";

const at = { baseURL: SERVER + "/v1", apiKey: "-" };
const schema = z.object({ name: z.string(), age: z.number().int() });
const tools = { weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async (input) => weather(input) }) };
const fail = ({ error }: { error: unknown }) => {
  throw error;
};
const models = {
  "openai-compatible": createOpenAICompatible({ ...at, name: "x", includeUsage: true, supportsStructuredOutputs: true })("m"),
  "openai, chat": createOpenAI(at).chat("m"),
  "openai, responses": createOpenAI(at).responses("m"),
  anthropic: createAnthropic(at)("m"),
};

for (const [name, model] of Object.entries(models)) {
  Deno.test(`${name}: a text, plain and streamed`, async () => {
    const { text, finishReason, usage } = await generateText({ model, prompt: says("Hello.") });
    assert.deepEqual([text, finishReason], ["Hello.", "stop"]);
    assert.ok(usage.inputTokens! > 3 && usage.outputTokens! > 1);
    const stream = streamText({ model, prompt: says("One two."), onError: fail });
    const parts = await all(stream.textStream);
    assert.equal(parts.join(""), "One two.");
    assert.ok(parts.length > 1 && (await stream.usage).outputTokens! >= parts.length);
  });

  // The provider of OpenAI's chat route reads no reasoning. That of the other one reads summaries.
  const ignore = name === "openai, chat";
  Deno.test({ name: `${name}: a reasoning before the text`, ignore, fn: async () => {
    const providerOptions = { openai: { forceReasoning: true, reasoningSummary: "auto" } };
    const stream = streamText({ model, prompt: says("<think>Hm hm.</think>Yes."), providerOptions, onError: fail });
    const parts = await all(stream.fullStream);
    assert.ok(parts.some((p) => p.type === "reasoning-delta"), JSON.stringify(parts.map((p) => p.type)));
    assert.deepEqual([(await stream.reasoningText)!.trim(), (await stream.text).trim()], ["Hm hm.", "Yes."]);
  } });

  Deno.test(`${name}: calls in steps, forced and streamed`, async () => {
    const steps = { model, tools, stopWhen: stepCountIs(3) };
    assert.equal((await generateText({ ...steps, prompt: says(call("weather", { city: "Rome" })) })).text, "Sunny in Rome.");
    const stream = streamText({ ...steps, prompt: says(call("weather", { city: "Oslo" })), onError: fail });
    assert.ok((await all(stream.fullStream)).some((p) => p.type === "tool-input-delta"));
    assert.equal(await stream.text, "Sunny in Oslo.");
    const { toolCalls } = await generateText({ model, tools, toolChoice: "required", prompt: says(forced("weather", { city: "Bonn" })) });
    assert.equal(toolCalls[0].toolName, "weather");
  });

  Deno.test(`${name}: an object, plain and streamed`, async () => {
    // The provider of Anthropic's route forces a call of its own tool.
    const prompt = says(name === "anthropic" ? forced("json", PERSON) : JSON.stringify(PERSON));
    assert.deepEqual((await generateObject({ model, schema, prompt })).object, PERSON);
    const stream = streamObject({ model, schema, prompt, onError: fail });
    await all(stream.partialObjectStream);
    assert.deepEqual(await stream.object, PERSON);
  });
}
