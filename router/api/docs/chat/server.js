/* server: which model there is, and how it fares. */
const ideas = { chat: ["Hello! Who are you?", "What is the capital of France?", "Tell me a story about a rabbit."], text: ["Once upon a time", "The capital of France is"] };
function greet() {
  const text = $("mode").value === "text";
  $("hello").hidden = $("talk").children.length > 1;
  $("say").placeholder = text ? "The beginning of a text" : "Say something";
  offer();
  $("ideas").textContent = "";
  for (const idea of ideas[$("mode").value]) button($("ideas"), idea, () => { if (!running && inOrder()) send(idea) });
}
/* A folder by its last name; all of it for who points there. */
function name(id) {
  $("model").textContent = $("name").textContent = document.title = id.startsWith("/") ? id.replace(/\/+$/, "").split("/").pop() : id;
  $("model").title = $("name").title = id;
}
/* Does the model that is chosen take pictures? */
let served = [];
const sees = () => ((served.find(m => m.id === model()) || info || {}).input_modalities || []).includes("image") && $("mode").value === "chat";
function offer() {
  const what = sees() ? "Attach pictures or text files" : "Attach text files";
  $("attach").title = what;
  $("attach").setAttribute("aria-label", what);
}
async function introduce() {
  info = await (await fetch(base + "/info")).json();
  const facts = [(info.model_dtype || "").replace("torch.", ""), info.quantize !== "none" && info.quantize, info.model_device_type, info.max_total_tokens + " tokens of context"];
  name(info.model_id);
  $("max_tokens").max = info.max_total_tokens;
  wrong();
  await template();
  const { data } = await (await fetch(base + "/v1/models")).json(); /* adapters, and models that are loaded on demand */
  served = data;
  if (data.length > 1) choice(data);
  offer();
  $("facts").textContent = facts.filter(Boolean).join(" · ");
}
function choice(data) {
  for (const m of data) $("models").append(new Option(m.id.startsWith("/") ? m.id.split("/").pop() : m.id, m.id));
  $("models").hidden = false;
  $("model").hidden = true;
  $("models").onchange = () => { name($("models").value); offer() };
}

/* A model that was never taught to chat continues texts. */
async function template() {
  const r = await fetch(base + "/tokenizer_info", { headers: headers() });
  if (!r.ok || (await r.json()).chat_template) return;
  $("mode").value = "text";
  $("mode").options[0].disabled = true;
  $("no_template").hidden = false;
  greet();
}

/* ---- once a second while the page is looked at */
const recent = [[], [], [], []];
let before = null;
function draw(i, v, label, top) {
  const h = recent[i], y = v => (38 - 35 * v / max).toFixed(1);
  h.push(v);
  if (h.length > 60) h.shift();
  const max = top || Math.max(1, ...h), x0 = 120 - 2 * (h.length - 1);
  $("p" + i).setAttribute("d", "M" + (x0 - 1) + " 42L" + h.map((v, x) => (x0 + 2 * x) + " " + y(v)).join("L") + "L121 " + y(v) + "L121 42");
  $("v" + i).textContent = label;
}
function state(is, text) {
  if ($("state").dataset.is === is) return; /* said aloud at every change, and only then */
  $("state").dataset.is = is;
  $("state").textContent = $("state").title = text;
}
async function look() {
  if (!document.hidden) try {
    const text = await (await fetch(base + "/metrics")).text(), m = {};
    for (const line of text.split("\n")) {
      const at = line.lastIndexOf(" ");
      if (line[0] !== "#" && at > 0) m[line.slice(0, at)] = Number(line.slice(at + 1));
    }
    const used = m['kv_blocks{state="used"}'] || 0, all = used + (m['kv_blocks{state="cached"}'] || 0) + (m['kv_blocks{state="free"}'] || 0);
    const now = { t: performance.now(), n: (m.tgi_request_skipped_tokens_count || 0) + (m.tgi_request_skipped_tokens_sum || 0) }; /* one a step, and those speculation added */
    const rate = before ? Math.max(0, (now.n - before.n) / (now.t - before.t) * 1000) : 0;
    before = now;
    draw(0, m.tgi_queue_size || 0, m.tgi_queue_size || 0);
    draw(1, m.tgi_batch_current_size || 0, m.tgi_batch_current_size || 0);
    draw(2, all ? used / all : 0, all ? (100 * used / all).toFixed(used && used < all / 10 ? 1 : 0) + " %" : "–", 1);
    draw(3, rate, rate.toFixed(0));
    const ready = (await fetch(base + "/readyz")).ok;
    state(ready ? "ready" : "wait", ready ? "ready" : "not ready");
    if (!info && ready) await introduce();
  } catch { state("gone", "does not answer") }
  setTimeout(look, 1000);
}
