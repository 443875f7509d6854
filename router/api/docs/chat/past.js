/* past: the list of conversations at the left. */
function list() {
  const all = allTalks(), ul = $("talks");
  ul.textContent = "";
  $("none").hidden = all.length > 0;
  for (const t of all) entry(make(ul, "li", ""), t);
}
function entry(li, t) {
  const title = t.title || "Untitled", b = button(li, title, () => visit(t.id));
  b.className = "title";
  b.title = title;
  b.dataset.id = t.id;
  if (t.id === talk.id) b.setAttribute("aria-current", "true");
  const menu = make(li, "details", "menu"), s = make(menu, "summary", "", "⋯"), box = make(menu, "div", "");
  s.setAttribute("aria-label", "Actions for " + title);
  const does = (text, f) => button(box, text, () => { menu.open = false; f() });
  does("Rename", () => rename(li, t));
  does("Export JSON", () => download(file(t) + ".json", "application/json", asJson([t])));
  does("Export Markdown", () => download(file(t) + ".md", "text/markdown", asMarkdown(t)));
  does("Delete", () => erase(t));
}
const file = t => (t.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 40) || "conversation";
function rename(li, t) {
  const input = document.createElement("input");
  input.value = t.title;
  input.maxLength = 200;
  input.setAttribute("aria-label", "Name of the conversation");
  let over = false;
  const done = (keepIt, left) => {
    if (over) return;
    over = true;
    const now = t.id === talk.id ? talk : t;
    if (keepIt && input.value.trim()) { now.title = input.value.trim(); store.set("talk." + t.id, JSON.stringify(now)) }
    list();
    if (!left) [...document.querySelectorAll("#talks .title")].find(b => b.dataset.id === t.id).focus();
  };
  input.onkeydown = e => {
    if (e.key === "Enter") done(true);
    else if (e.key === "Escape") { e.stopPropagation(); done(false) }
  };
  input.onblur = () => done(true, true);
  li.replaceChildren(input);
  input.focus();
  input.select();
}
function erase(t) {
  const shown = t.id === talk.id, held = shown ? talk : t;
  store.remove("talk." + t.id);
  if (shown) forget();
  else { list(); $("fresh").focus() }
  tell("Deleted: " + (t.title || "Untitled"), () => { store.set("talk." + held.id, JSON.stringify(held)); visit(held.id) });
}
function visit(id) {
  const t = kept(id);
  if (!t) return list();
  leave();
  talk = t;
  store.set("talk", id);
  if (opened("past")) overlay("past", false);
  render();
  list();
  $("say").focus();
}
function leave() {
  if (running) running.abort();
  answering(null);
  $("tip").hidden = true;
  $("toast").hidden = true;
  shed();
}
function forget() {
  leave();
  talk = blank();
  store.remove("talk");
  if (opened("past")) overlay("past", false);
  render();
  list();
  $("say").focus();
}
$("new").onclick = $("fresh").onclick = forget;
$("export").onclick = () => download("conversations.json", "application/json", asJson(allTalks()));
$("import").onclick = () => $("import_file").click();
$("import_file").onchange = async () => {
  const files = [...$("import_file").files], said = [];
  let n = 0;
  $("import_file").value = "";
  for (const f of files)
    try {
      const got = imported(f.name, await f.text());
      for (const t of got) keep(t);
      n += got.length;
      visit(got[0].id);
    } catch (e) { said.push(f.name + " was not imported: " + e.message + ".") }
  if (n) said.push(n + (n === 1 ? " conversation" : " conversations") + " imported.");
  tell(said.join(" "));
};
/* Another tab of this browser wrote or deleted one. */
addEventListener("storage", e => { if (e.key && e.key.startsWith("ui.talk.")) list() });
document.addEventListener("click", e => {
  for (const d of document.querySelectorAll("details.menu[open]")) if (!d.contains(e.target)) d.open = false;
});
