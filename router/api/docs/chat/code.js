/* code: the same from a program. */
/* A picture's URL is as long as the picture. */
const short = (k, v) => typeof v === "string" && v.length > 200 && v.startsWith("data:") ? v.slice(0, 60) + "…" : v;
const quote = s => "'" + s.replace(/'/g, "'\\''") + "'";
function snippets() {
  const typed = $("say").value.trim(), asked = path().filter(m => m.role === "user").pop(), text = typed || (asked && asked.content) || ideas[$("mode").value][0];
  const talked = typed || !asked ? [...messages(talk.at), { role: "user", content: text }] : messages(asked.id);
  const [route, body] = request($("mode").value === "text" ? null : talked, text), chat = route !== "/v1/completions", { stream, top_k, min_p, ...known } = body;
  const key = $("key").value ? " \\\n  -H \"authorization: Bearer $API_KEY\"" : "", own = JSON.stringify({ top_k, min_p });
  const python = Object.entries(known).filter(([, v]) => v !== undefined).map(([k, v]) => "    " + k + "=" + JSON.stringify(v, short) + ",\n").join("");
  $("curl").textContent = "curl -N " + location.origin + route + " -H 'content-type: application/json'" + key + " \\\n  -d " + quote(JSON.stringify(body, short, 2));
  $("python").textContent = (key ? "import os\n" : "") + "from openai import OpenAI\n\nclient = OpenAI(base_url=\"" + location.origin + base + "/v1\", api_key=" + (key ? "os.environ[\"API_KEY\"]" : "\"-\"") +
    ")\nstream = client." + (chat ? "chat." : "") + "completions.create(\n    stream=True,\n" + python + (own === "{}" ? "" : "    extra_body=" + own + ",\n") +
    ")\nfor chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0]." + (chat ? "delta.content or \"\"" : "text") + ", end=\"\", flush=True)\nprint()\n";
}
$("code").onclick = () => { snippets(); $("use").showModal() };
for (const k of ["curl", "python"]) $("copy_" + k).onclick = () => copy($(k).textContent, $("copy_" + k));

