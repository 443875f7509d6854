/* tokens: how likely each of an answer was. */
function token(parent, text, tokens) {
  const s = make(parent, "span", "tok", text), known = tokens.filter(t => t.p !== null);
  if (!known.length) return;
  s.style.setProperty("--doubt", (0.6 * (1 - Math.exp(Math.min(...known.map(t => t.p))))).toFixed(3));
  s.info = known;
}
const percent = p => (100 * Math.exp(p)).toFixed(p > -7 ? 2 : 5) + " %";
function explain(tokens, x, y, below) {
  const tip = $("tip");
  tip.textContent = "";
  for (const t of tokens) {
    make(tip, "div", "", "chosen " + JSON.stringify(t.token) + ", log-probability " + t.p.toFixed(3).replace(/^-(0\.0+)$/, "$1"));
    const table = make(tip, "table", ""), top = t.top.some(([s]) => s === t.token) ? t.top : [...t.top, [t.token, t.p]];
    for (const [s, p] of top) {
      const row = make(table, "tr", s === t.token ? "is" : "");
      make(row, "td", "", percent(p));
      make(make(row, "td", ""), "i", "").style.width = (4 * Math.exp(p)).toFixed(2) + "rem";
      make(row, "td", "", JSON.stringify(s));
    }
  }
  tip.hidden = false;
  tip.style.left = Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = (below + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 6 : below) + "px";
}
let pointed = null;
function point(e) {
  if (pointed) pointed.classList.remove("at");
  pointed = e;
  if (!e) return;
  e.classList.add("at");
  e.scrollIntoView({ block: "nearest" });
  const r = e.getClientRects()[0];
  explain(e.info, r.left, r.top, r.bottom + 6);
}
$("talk").addEventListener("mousemove", e => {
  if (e.target.info) explain(e.target.info, e.clientX + 12, e.clientY - 2, e.clientY + 18);
  else if (!pointed) $("tip").hidden = true;
});
$("talk").addEventListener("mouseleave", () => { if (!pointed) $("tip").hidden = true });
$("talk").addEventListener("keydown", e => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key], all = [...$("talk").querySelectorAll(".tok")].filter(t => t.info && t.getClientRects().length);
  if (!step || !all.length) return;
  e.preventDefault();
  const at = all.indexOf(pointed), lastTurn = all.findIndex(t => t.closest(".turn") === all[all.length - 1].closest(".turn"));
  point(all[Math.max(0, Math.min(all.length - 1, at < 0 ? lastTurn : at + step))]);
});
$("talk").addEventListener("blur", () => { point(null); $("tip").hidden = true });

