// What the tests of this folder share. The model says what stands between "[[" and "]]" of the prompt (test_javascript.py).

export const SERVER = Deno.env.get("SERVER")!;
export const PERSON = { name: "Ann", age: 3 };
export const SCHEMA = {
  type: "object" as const,
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
export const CITY = { type: "object" as const, properties: { city: { type: "string" } }, required: ["city"] };

export const says = (text: string) => `Say it. [[${text}]]`;
export const user = (text: string) => ({ role: "user" as const, content: says(text) });

// A call as the model writes it: of its own accord, and where the request forces one.
const written = (name: string, args: unknown) => JSON.stringify({ name, arguments: args });
export const call = (name: string, args: unknown) => `<tool_call>\n${written(name, args)}\n</tool_call>`;
export const forced = written;

// What the tool says is what the model says next.
export const weather = ({ city }: { city: string }) => `[[Sunny in ${city}.]]`;

export async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const parts: T[] = [];
  for await (const part of stream) parts.push(part);
  return parts;
}
