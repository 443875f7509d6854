/* hands: keys, and the beginning. */
const grow = () => { const s = $("say"); s.style.height = "auto"; s.style.height = s.scrollHeight + "px" };
$("say").oninput = () => { grow(); store.set("draft", $("say").value) };
$("talk").onscroll = () => below();
$("latest").onclick = () => { toEnd(); $("say").focus() };
$("ask").onsubmit = e => { e.preventDefault(); running ? running.abort() : say() };
$("say").onkeydown = e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); say() }
  else if (e.key === "ArrowUp" && !$("say").value) {
    const last = path().filter(m => m.role === "user").pop();
    if (last) { e.preventDefault(); $("say").value = last.content; grow() }
  }
};
document.addEventListener("keydown", e => {
  const writing = /^(TEXTAREA|INPUT|SELECT)$/.test(document.activeElement.tagName);
  if ($("use").open) return;
  if (e.key === "Escape" && !$("tip").hidden) { $("tip").hidden = true; point(null) }
  else if (e.key === "Escape" && document.querySelector("details.menu[open]")) document.querySelector("details.menu[open]").open = false;
  else if (e.key === "Escape" && opened("panel")) overlay("panel", false);
  else if (e.key === "Escape" && opened("past")) overlay("past", false);
  else if (e.key === "Escape" && running) running.abort();
  else if (e.altKey && e.code === "KeyN") { e.preventDefault(); forget() }
  else if (e.key === "/" && !writing && !e.ctrlKey && !e.metaKey) { e.preventDefault(); $("say").focus() }
});

const was = store.get("talk"), before_reload = was && kept(was);
if (before_reload) talk = before_reload;
tint(store.get("tint") === "1");
render();
$("say").value = store.get("draft") || "";
grow();
list();
look();
