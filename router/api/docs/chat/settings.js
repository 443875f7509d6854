/* settings: the form at the right, what is wrong in it, and how the page looks. */
const fields = ["mode", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "system", "key"];
for (const f of fields) {
  const was = store.get(f);
  if (was !== null) $(f).value = was;
  $(f).addEventListener("change", () => { store.set(f, $(f).value); greet() });
  $(f).addEventListener("input", () => wrong());
}
const number = id => { const v = $(id).value.trim(); return v === "" ? undefined : Number(v) };

/* The first number that no server would take, in words and at its place; null: all can be sent. */
function problem() {
  for (const f of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
    const e = $(f), v = number(f), name = e.labels[0].textContent.trim(), { min, max, step } = e, whole = step === "1";
    const bad = e.validity.badInput || v !== undefined && (Number.isNaN(v) || v < Number(min) || max !== "" && v > Number(max) || whole && !Number.isSafeInteger(v));
    if (bad) return { e, text: name + ": " + (whole ? "a whole number" : "a number") + (max === "" ? ", " + min + " or more" : " from " + min + " to " + max) };
  }
  return null;
}
function wrong() {
  const p = problem();
  for (const f of fields) $(f).setAttribute("aria-invalid", Boolean(p && p.e === $(f)));
  $("wrong").textContent = p ? p.text : "";
  return p;
}
/* Before something is sent: is the form in order? Else the hand is led to what is not. */
function inOrder() {
  const p = wrong();
  if (!p) return true;
  lead(p.e);
  return false;
}
function lead(e) {
  if (getComputedStyle($("panel")).display === "none") overlay("panel", true);
  e.focus();
}

$("knobs").onsubmit = e => e.preventDefault();
$("defaults").onclick = () => {
  const key = $("key").value;
  $("knobs").reset();
  $("key").value = key;
  if ($("mode").options[0].disabled) $("mode").value = "text"; /* the model cannot chat */
  for (const f of fields) store.set(f, $(f).value);
  tint(false);
  wrong();
  greet();
};
function tint(on) {
  $("tint").checked = on;
  $("talk").classList.toggle("tint", on);
  store.set("tint", on ? "1" : "");
}
$("tint").onchange = () => { tint($("tint").checked); if (!running) render() };
const theme = t => { if (t) document.documentElement.dataset.theme = t };
theme(store.get("theme"));
$("theme").onclick = () => {
  const dark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  theme(dark ? "light" : "dark");
  store.set("theme", dark ? "light" : "dark");
};

/* ---- where there is no room for three columns, two of them lie over the third */
const over = { panel: "more", past: "list" };
const opened = id => $(over[id]).getAttribute("aria-expanded") === "true";
function overlay(id, open) {
  for (const other in over) if (other !== id && opened(other)) overlay(other, false);
  $(id).classList.toggle("open", open);
  $(over[id]).setAttribute("aria-expanded", open);
  (open ? id === "panel" ? $("mode") : $("fresh") : $(over[id])).focus();
}
for (const id in over) $(over[id]).onclick = () => overlay(id, !opened(id));
