/* talks: conversations as data. A conversation is a list of messages, each after its parent; messages with one parent are versions of
 * each other, and `at` is the last message of the branch that is shown. A conversation is one entry of the browser's storage. */
const ROLES = ["user", "assistant"], TALK_BYTES = 20e6;
const fresh = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
let talk = blank();

function blank() { return { id: fresh(), title: "", changed: Date.now(), list: [], at: null, from: null } }
const find = id => talk.list.find(m => m.id === id);
const versions = m => talk.list.filter(x => x.parent === m.parent && x.role === m.role);
/* The messages from the first one to `id`. */
function path(id = talk.at, t = talk) {
  const byId = new Map(t.list.map(m => [m.id, m])), out = [];
  for (let m = byId.get(id); m; m = byId.get(m.parent)) out.unshift(m);
  return out;
}
function add(role, content, parent, more) {
  const m = { id: fresh(), parent, role, content, ...more };
  talk.list.push(m);
  talk.at = m.id;
  return m;
}
/* The branch that goes through a message ends at the newest message after it. */
function choose(m) {
  for (let next = m; next; next = talk.list.filter(x => x.parent === m.id).pop()) m = next;
  talk.at = m.id;
}
function drop(m) {
  talk.list = talk.list.filter(x => x !== m);
  talk.at = m.parent;
}

/* ---- what is kept */
const unreadable = t => !t || typeof t.id !== "string" || !Array.isArray(t.list);
function keep(t = talk) {
  if (!t.list.length) return;
  t.changed = Date.now();
  if (!t.title) t.title = (t.list[0].content || (t.list[0].files || [{}])[0].name || "").trim().replace(/\s+/g, " ").slice(0, 60);
  if (!store.set("talk." + t.id, JSON.stringify(t))) tell("The browser's storage is full or forbidden: this conversation ends with the page.");
  store.set("talk", t.id);
}
function kept(id) {
  try {
    const t = JSON.parse(store.get("talk." + id));
    return unreadable(t) ? null : t;
  } catch { return null }
}
/* The newest first. */
const allTalks = () => store.keys().filter(k => k.startsWith("talk.")).map(k => kept(k.slice(5))).filter(Boolean).sort((a, b) => b.changed - a.changed);

/* ---- what the model is sent */
/* A fence that no line of the text closes. */
const fence = text => "`".repeat(Math.max(3, ...(text.match(/`+/g) || []).map(s => s.length + 1)));
const attached = f => f.image ? "" : f.name + ":\n" + fence(f.text) + "\n" + f.text.replace(/\n?$/, "\n") + fence(f.text) + "\n\n";
const whole = m => (m.files || []).map(attached).join("") + m.content;
/* Pictures come before the words about them. */
const said = m => {
  const pictures = (m.files || []).filter(f => f.image);
  return pictures.length ? [...pictures.map(f => ({ type: "image_url", image_url: { url: f.image } })), ...(whole(m) ? [{ type: "text", text: whole(m) }] : [])] : whole(m);
};
/* The branch up to `id`, from where it was trimmed. Texts that were continued are no part of it, nor is a message without an answer. */
function messages(id) {
  const all = path(id), start = Math.max(0, all.findIndex(m => m.id === talk.from)), out = [];
  for (const m of all.slice(start)) {
    if (m.text) continue;
    if (m.role === "user" && out.length && out[out.length - 1].role === "user") out.pop();
    if (m.role === "user" || m.content) out.push({ role: m.role, content: said(m) });
  }
  return out;
}

/* ---- in and out of the browser */
const asJson = talks => JSON.stringify({ format: "conversations", version: 1, talks }, null, 1);
const MARK = /^(\\*)(<!-- (user|assistant) -->)$/gm;
function asMarkdown(t) {
  const part = m => "<!-- " + m.role + " -->\n## " + (m.role === "user" ? "User" : "Assistant") + "\n\n" + ((m.files || []).filter(f => f.image).map(f => "[picture: " + f.name + "]\n\n").join("") + whole(m)).replace(MARK, "\\$1$2");
  return "# " + (t.title || "Conversation") + "\n\n" + path(t.at, t).map(part).join("\n\n") + "\n";
}
function fromMarkdown(text) {
  const title = /^# (.*)/.exec(text), out = { ...blank(), title: title ? title[1].slice(0, 200) : "" };
  const parts = text.replace(/\r\n/g, "\n").split(/^<!-- (user|assistant) -->\n## .*\n\n?/m);
  for (let i = 1, parent = null; i + 1 < parts.length; i += 2) {
    const content = parts[i + 1].replace(/\n+$/, "").replace(MARK, (_, slashes, mark) => slashes.slice(1) + mark), id = fresh();
    out.list.push({ id, parent, role: parts[i], content });
    out.at = parent = id;
  }
  if (!out.list.length) throw new Error("there is no message in it");
  return out;
}
const string = (v, most) => typeof v === "string" ? v.slice(0, most) : "";
/* A file may say anything: each field is looked at, names are made anew, and a parent is an earlier message or none. */
function checked(t) {
  if (!t || typeof t !== "object") throw new Error("it holds no conversations");
  const from = Array.isArray(t.list) ? t.list : t.messages, out = { ...blank(), title: string(t.title, 200) }, names = new Map();
  if (!Array.isArray(from)) throw new Error("it holds no conversations");
  for (const m of from) {
    if (!m || !ROLES.includes(m.role)) continue;
    const parent = Array.isArray(t.list) ? names.get(m.parent) || null : out.at, id = fresh(), files = Array.isArray(m.files) ? m.files : [];
    out.list.push({ id, parent, role: m.role, content: string(m.content), ...(m.text === true && { text: true }), ...(m.thought && { thought: string(m.thought) }),
      ...(m.note && { note: string(m.note, 500) }), ...(files.length && { files: files.map(f => ({ name: string(f && f.name, 200), ...(f && PICTURE.test(f.image) ? { image: f.image } : { text: string(f && f.text) }) })) }),
      ...(Array.isArray(m.tools) && { tools: m.tools.map(c => ({ name: string(c && c.name, 200), args: string(c && c.args) })) }) });
    if (m.id !== undefined) names.set(m.id, id);
    out.at = id;
  }
  if (!out.list.length) throw new Error("there is no message in it");
  out.at = names.get(t.at) || out.at;
  out.from = names.get(t.from) || null;
  return out;
}
/* Conversations of a file of ours, or one of OpenAI's shape: {"messages": [...]}. */
function imported(name, text) {
  if (text.length > TALK_BYTES) throw new Error("it is too large");
  if (/\.(md|markdown)$/i.test(name)) return [fromMarkdown(text)];
  let j;
  try { j = JSON.parse(text) } catch { throw new Error("it is not JSON") }
  return (Array.isArray(j && j.talks) ? j.talks : [j]).map(checked);
}
