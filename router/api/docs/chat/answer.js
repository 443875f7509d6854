/* answer: one request, and the answer to it as it comes. */
let running = null, info = null;
/* `by`: what stops the answer that is being written; null: there is none. */
function answering(by) {
  running = by;
  $("go").textContent = by ? "Stop" : "Send";
  document.body.classList.toggle("answering", Boolean(by));
}
/* Nothing is changed below an answer that is being written. */
function idle() {
  if (running) tell("An answer is being written: stop it first, or wait for its end.");
  return !running;
}
const model = () => $("models").value || (info && info.model_id) || "tgi";
/* The body without what only this page wants to know. */
function request(messages, text) {
  const r = { model: model(), stream: true, temperature: number("temperature"), top_p: number("top_p"), max_tokens: number("max_tokens"),
    seed: number("seed"), top_k: number("top_k") || undefined, min_p: number("min_p") || undefined };
  if (!messages) return ["/v1/completions", { ...r, prompt: text }];
  const system = $("system").value.trim();
  return ["/v1/chat/completions", { ...r, messages: [...(system ? [{ role: "system", content: system }] : []), ...messages] }];
}
function headers() {
  const h = { "content-type": "application/json" };
  if ($("key").value) h.authorization = "Bearer " + $("key").value;
  return h;
}
/* What a person can do about a refusal. A page of a proxy in front is told by its status. */
function failure(r, text) {
  const e = new Error(/^\s*(<|$)/.test(text) ? "The server, or one in front of it, answered with status " + r.status + "." : text), wait = Number(r.headers.get("retry-after"));
  try { ({ message: e.message, code: e.code } = JSON.parse(text).error) } catch { }
  e.locked = r.status === 401;
  if (e.locked) e.message = "The API key is missing or wrong.";
  if (wait > 0) e.message = e.message.replace(/[^.]$/, "$&.") + " Try again in " + wait + " s.";
  return e;
}
async function post(path, body, signal) {
  const r = await fetch(base + path, { method: "POST", headers: headers(), signal, body: JSON.stringify(body) });
  if (r.ok) return r;
  throw failure(r, await r.text());
}
/* What a chunk of either route says: text, thought, parts of tool calls, and its tokens with their alternatives. */
function read(choice) {
  const p = choice.logprobs, d = choice.delta;
  if (!d) return { text: choice.text, thought: "", tools: [], tokens: ((p && p.tokens) || []).map((token, i) => ({ token, p: p.token_logprobs[i], top: Object.entries(p.top_logprobs[i] || {}) })) };
  const tokens = ((p && p.content) || []).map(t => ({ token: t.token, p: t.logprob, top: t.top_logprobs.map(x => [x.token, x.logprob]) }));
  return { text: d.content || "", thought: d.reasoning_content || "", tools: d.tool_calls || [], tokens };
}
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}
function clock() {
  const start = performance.now();
  let first = 0, n = 0, end = start, reading = "";
  return {
    read(p) { reading = p.processed < p.total ? "reading the prompt: " + Math.floor(100 * p.processed / p.total) + " %" : "" },
    count(more) { end = performance.now(); first = first || end; n += more },
    exactly(m) { n = m },
    text(...more) {
      const s = (end - start) / 1000, decoding = (end - first) / 1000;
      return [first ? "" : reading, first ? n + (n === 1 ? " token in " : " tokens in ") + s.toFixed(2) + " s" : "", n > 31 && decoding > 0 ? ((n - 1) / decoding).toFixed(1) + " tokens/s" : "",
        first ? "first after " + Math.round(first - start) + " ms" : "", ...more].filter(Boolean).join(" · ");
    },
  };
}
const cached = u => { const c = u && u.prompt_tokens_details && u.prompt_tokens_details.cached_tokens; return c ? c + " of " + u.prompt_tokens + " prompt tokens from the cache" : "" };

/* The turn of an answer that is being written. It is painted once a frame, however fast the tokens come, and less often where painting
 * takes long: the page stays quick to the hand that stops it. */
function writer(m) {
  const { turn, body, foot } = show(m), time = clock(), pieces = [], plain = m.text || !rich || $("tint").checked;
  let think = null, painted = 0, waiting = false, over = false, cost = 0, saved = performance.now();
  turn.classList.add("busy");
  turn.setAttribute("aria-busy", "true");
  foot.textContent = "…";
  function thoughts() {
    if (!think) {
      think = folded(turn, "think", "Reasoning", "");
      body.before(think);
      think.open = true;
    }
    think.children[1].textContent = m.thought;
    if (m.content && !think.ended) { think.ended = true; think.open = false } /* folded away once the answer begins */
  }
  function paint() {
    const start = performance.now(), low = atEnd();
    waiting = false;
    if (over) return;
    if (m.thought) thoughts();
    if (plain) for (; painted < pieces.length; painted++) token(body, ...pieces[painted]);
    else if (format(body, m.content)) body.className = "text rich";
    foot.textContent = time.text();
    if (low) toEnd();
    if (start - saved > 1000) { saved = start; keep() } /* a reload in mid-answer loses a second of it */
    cost = performance.now() - start;
  }
  return {
    turn, time, pieces, paint,
    soon() {
      if (waiting) return;
      waiting = true;
      document.hidden || cost > 20 ? setTimeout(paint, 250) : requestAnimationFrame(paint);
    },
    end() {
      const low = atEnd(); /* who reads further up stays there */
      over = true;
      if (pieces.length) heard.set(m, pieces);
      aloud();
      turn.classList.remove("busy");
      complete(m, turn, body, foot);
      turn.setAttribute("aria-busy", "false"); /* now it is read aloud; the turns before it stay as they are, or they would be as well */
      gauge();
      low ? toEnd() : below();
    },
  };
}
/* A tool call comes in parts: its name first, then its arguments piece by piece. */
function collect(m, parts) {
  m.tools = m.tools || [];
  for (const { index, function: f } of parts) {
    const c = m.tools[index] = m.tools[index] || { name: "", args: "" };
    c.name += (f && f.name) || "";
    c.args += (f && f.arguments) || "";
  }
}
async function stream(m, body, path, signal, w) {
  const more = path === "/v1/completions" ? { logprobs: 4 } : { logprobs: true, top_logprobs: 4 };
  let held = [], usage = null, cutBy = "";
  for await (const e of events(await post(path, { ...body, ...more, return_progress: true, stream_options: { include_usage: true } }, signal))) {
    if (e.error) throw new Error(e.error.message);
    if (e.prompt_progress) { w.time.read(e.prompt_progress); w.soon(); continue }
    if (e.usage) usage = e.usage;
    const c = e.choices && e.choices[0];
    if (!c) continue;
    const { text, thought, tools, tokens } = read(c);
    w.time.count(tokens.length || (text || thought || tools.length ? 1 : 0));
    held.push(...tokens); /* a letter may be of several tokens */
    if (tools.length) collect(m, tools);
    if (thought) { m.thought = (m.thought || "") + thought; held = [] }
    if (text) { m.content += text; w.pieces.push([text, held.splice(0)]) }
    if (c.finish_reason === "length") cutBy = "cut at max tokens";
    w.soon();
  }
  if (usage) { w.time.exactly(usage.completion_tokens); m.used = usage.total_tokens }
  if (cutBy && most() && m.used >= most()) cutBy = "cut where the context ends";
  return w.time.text(cutBy, cached(usage));
}
/* Answer a message of the user's. `cap` bounds the answer where a trimmed prompt left little room. */
async function respond(user, cap) {
  const [path, body] = request(user.text ? null : messages(user.id), user.content), of = talk, mine = new AbortController();
  if (cap) body.max_tokens = Math.min(cap, body.max_tokens || cap);
  const m = add("assistant", "", user.id, user.text ? { text: true } : {}), w = writer(m);
  answering(mine);
  keep();
  try {
    m.note = await stream(m, body, path, mine.signal, w);
  } catch (e) {
    m.note = w.time.text(e.name === "AbortError" ? "stopped" : "");
    if (e.name !== "AbortError") m.error = e instanceof TypeError ? "The server does not answer, or no longer." : e.message;
    if (e.code === "context_length_exceeded") m.full = true;
    if (e.locked) m.locked = true;
  }
  w.paint();
  if (of.list.includes(m)) keep(of); /* unless it was deleted meanwhile */
  if (running === mine) answering(null);
  if (w.turn.isConnected) w.end();
  list();
}
function send(text) {
  const files = shed(), flag = $("mode").value === "text" ? { text: true } : {};
  respond(showNew(add("user", text, talk.at, { ...flag, ...(files.length && { files }) })));
}
const showNew = m => { show(m); return m };
function again(m) {
  if (!idle() || !inOrder()) return;
  const user = find(m.parent);
  if (!m.content) drop(m); /* an error is no version */
  talk.at = user.id;
  render();
  respond(user);
  $("say").focus();
}
function say() {
  const text = $("say").value;
  if (running || !text.trim() && !attachments.length || !inOrder()) return;
  $("say").value = "";
  store.remove("draft");
  grow();
  send(text);
}

/* ---- a prompt that is too long */
/* Leave out as few of the oldest exchanges as will do, by the server's own count of tokens, and answer the last message again. */
async function trim() {
  const all = path().filter(m => !m.text), users = all.filter(m => m.role === "user" && said(m).length), last = all[all.length - 1], was = talk.from;
  if (!idle() || !users.length) return;
  const failed = last.role === "assistant" && last.full, want = Math.min(number("max_tokens") || most(), Math.floor(most() / 4));
  const size = async from => {
    talk.from = from.id;
    const [, body] = request(messages(failed ? last.parent : last.id)), r = await post("/chat_tokenize", { ...body, stream: false, max_tokens: undefined });
    return (await r.json()).tokenize_response.length;
  };
  try {
    let low = users.findIndex(m => m.id === was) + 1, high = users.length - 1; /* the first that fits lies between them */
    low = Math.min(low || 1, high);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (await size(users[middle]) + want <= most()) high = middle; else low = middle + 1;
    }
    const used = await size(users[low]);
    if (used >= most()) throw new Error("the last message alone is longer than the context");
    last.full = false;
    last.used = used;
    keep();
    render();
    if (!failed) return;
    drop(last);
    render();
    respond(users[users.length - 1], most() - used);
  } catch (e) {
    talk.from = was;
    tell("It cannot be trimmed: " + e.message);
  }
}
