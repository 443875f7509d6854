/* view: the branch that is shown, message by message. */
const heard = new WeakMap(); /* of answers of this visit: their tokens, as [text, tokens] */
const asTokens = new WeakSet(); /* of these, the ones that are shown so */
const inTokens = m => heard.has(m) && (m.text || !rich || asTokens.has(m) || $("tint").checked);

/* ---- where one reads: the page follows an answer only for who is at its end */
const distance = () => { const t = $("talk"); return t.scrollHeight - t.scrollTop - t.clientHeight };
const atEnd = () => distance() < 40;
const below = () => { $("latest").hidden = distance() < 200 };
function toEnd() {
  $("talk").scrollTop = $("talk").scrollHeight;
  below();
}

let silence = 0;
function render() {
  const t = $("talk");
  if (t.children.length > 1) { /* what was there before is not read aloud again */
    t.setAttribute("aria-live", "off");
    clearTimeout(silence);
    silence = setTimeout(aloud, 500);
  }
  for (const e of [...$("talk").children].slice(1)) e.remove();
  const all = path(), start = all.findIndex(m => m.id === talk.from);
  all.forEach((m, i) => {
    if (start > 0 && i === start) cut();
    show(m);
  });
  greet();
  gauge();
  below();
}
const aloud = () => $("talk").setAttribute("aria-live", "polite");
function cut() {
  const line = make($("talk"), "div", "turn cut");
  make(line, "span", "", "The messages above are no longer sent.");
  button(line, "Send them again", () => { talk.from = null; keep(); render() });
}
function show(m) {
  const turn = make($("talk"), "article", "turn " + m.role);
  turn.setAttribute("aria-label", m.role === "user" ? "You" : "Answer");
  $("hello").hidden = true;
  for (const f of m.files || []) f.image ? thumbnail(turn, f) : folded(turn, "file", f.name, f.text);
  if (m.thought) folded(turn, "think", "Reasoning", m.thought);
  const body = make(turn, "div", "text"), foot = make(turn, "div", "foot");
  fill(body, m);
  complete(m, turn, body, foot);
  toEnd();
  return { turn, body, foot };
}
/* What stands below a message that is complete. */
function complete(m, turn, body, foot) {
  for (const c of m.tools || []) folded(turn, "tool", "Tool call: " + c.name, c.args);
  if (m.error) {
    const e = make(turn, "div", "error", m.error + " ");
    e.setAttribute("role", "alert");
    if (m.locked) button(e, "Enter the key", () => lead($("key")));
  }
  turn.append(foot);
  finish(m, turn, body, foot);
}
function folded(parent, cls, title, text) {
  const d = make(parent, "details", "fold " + cls);
  make(d, "summary", "", title);
  make(d, "div", "inside", text);
  return d;
}
function fill(body, m) {
  body.textContent = "";
  body.className = "text";
  if (inTokens(m)) for (const [text, tokens] of heard.get(m)) token(body, text, tokens);
  else if (m.role === "assistant" && !m.text && format(body, m.content)) body.className = "text rich";
  else body.textContent = m.content;
}
/* What can be done with it. */
function finish(m, turn, body, foot) {
  foot.textContent = "";
  if (m.note) make(foot, "span", "note", m.note);
  const all = versions(m), at = all.indexOf(m);
  if (all.length > 1) {
    const box = make(foot, "span", "versions"), go = step => () => { if (idle()) turnTo(all[at + step], turn, step) };
    const back = button(box, "‹", go(-1), "Previous version"), where = make(box, "span", "", at + 1 + "/" + all.length), on = button(box, "›", go(1), "Next version");
    where.setAttribute("aria-label", "Version " + (at + 1) + " of " + all.length);
    back.className = on.className = "waits";
    back.disabled = at === 0;
    on.disabled = at === all.length - 1;
  }
  const change = (text, does, label) => { button(foot, text, does, label).className = "waits" }; /* not below an answer that is being written */
  if (m.role === "user") { change("Edit", () => edit(m, turn, body)); return }
  if (m.content) { const b = button(foot, "Copy", () => copy(m.content, b)) }
  if (heard.has(m) && rich && !m.text) {
    const b = button(foot, "Tokens", () => {
      asTokens.has(m) ? asTokens.delete(m) : asTokens.add(m);
      b.setAttribute("aria-pressed", asTokens.has(m));
      fill(body, m);
    }, "Show the tokens and how likely they were");
    b.setAttribute("aria-pressed", asTokens.has(m));
  }
  change("Again", () => again(m), "Answer again");
  if (m.content && !m.text) change("Edit", () => edit(m, turn, body));
}
/* Show another version; the hand stays where it was. */
function turnTo(m, turn, step) {
  const place = [...$("talk").querySelectorAll(".turn:not(.cut)")].indexOf(turn);
  choose(m);
  keep();
  render();
  const [back, on] = $("talk").querySelectorAll(".turn:not(.cut)")[place].querySelectorAll(".versions button");
  (step < 0 && !back.disabled || on.disabled ? back : on).focus();
}
/* A changed message is a new version; the old one, and what followed it, stays. */
function edit(m, turn, body) {
  if (!idle()) return;
  const box = make(turn, "form", "edit"), input = make(box, "textarea", ""), foot = make(box, "div", "");
  const close = () => { box.remove(); body.hidden = false };
  body.hidden = true;
  input.value = m.content;
  input.rows = Math.min(15, m.content.split("\n").length + 2);
  input.setAttribute("aria-label", "Edit the message");
  const save = make(foot, "button", "main", m.role === "user" ? "Send" : "Save");
  save.type = "submit";
  button(foot, "Cancel", () => { close(); $("say").focus() });
  box.onsubmit = e => {
    e.preventDefault();
    if (running || !input.value.trim() || m.role === "user" && !inOrder()) return;
    const { files, text } = m, next = add(m.role, input.value, m.parent, { ...(files && { files }), ...(text && { text }) });
    keep();
    render();
    if (m.role === "user") respond(next);
    $("say").focus();
  };
  input.onkeydown = e => {
    if (e.key === "Escape") { e.stopPropagation(); close(); $("say").focus() }
    else if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); box.requestSubmit() }
  };
  body.after(box);
  input.focus();
}

/* ---- how much of the context the branch takes */
const most = () => (info && info.max_total_tokens) || 0;
function gauge() {
  const last = path().filter(m => m.used).pop(), used = last ? last.used : 0, full = most() && (used >= 0.8 * most() || path().some(m => m.full));
  $("room").hidden = !full;
  $("room_text").textContent = !full ? "" : path().some(m => m.full) || used >= most() ? "The context is full." : "The context is almost full: " + used + " of " + most() + " tokens.";
}
$("trim").onclick = () => trim();
