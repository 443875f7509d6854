// The page's script over the smallest document that it needs: node page.js URL; one JSON object comes out.
// (clients/test_page_*.py try the page for real, where there is a browser.)
const els = {}, listeners = {};
const nothing = () => { };
const listen = (type, f) => (listeners[type] ||= []).push(f);
class El {
  constructor(n) {
    Object.assign(this, { tagName: (n || "div").toUpperCase(), children: [], style: { setProperty: nothing }, attrs: {}, l: {}, value: "", own: "", dataset: {}, className: "",
      hidden: false, options: [{}, {}], validity: {}, labels: [{ textContent: "" }], min: "", max: "", step: "any", isConnected: true });
    this.classList = { toggle: nothing, add: nothing, remove: nothing };
  }
  get textContent() { return this.own + this.children.map(k => k.textContent).join("") }
  set textContent(t) { this.own = String(t); this.children = [] }
  append(e) { e.remove(); this.children.push(e); e.parent = this }
  before(e) { e.remove(); this.parent.children.splice(this.parent.children.indexOf(this), 0, e); e.parent = this.parent }
  remove() { if (this.parent) this.parent.children = this.parent.children.filter(k => k !== this) }
  setAttribute(k, v) { this.attrs[k] = v }
  getAttribute(k) { return this.attrs[k] }
  addEventListener(t, f) { (this.l[t] ||= []).push(f) }
  focus() { }
  click() { this.onclick() }
  find(cls) { return this.children.find(k => k.className.split(" ").includes(cls)) }
}
const $ = id => els[id] ||= new El();
const limits = { temperature: ["0.7", "0", "5"], top_p: ["1", "0.01", "1"], top_k: ["0", "0"], min_p: ["0", "0", "0.99"], max_tokens: ["30", "1"], seed: ["1", "0"] };
$("mode").value = "chat";
for (const [k, [value, min, max]] of Object.entries(limits)) Object.assign($(k), { value, min, max: max || "" });
$("talk").append($("hello"));
Object.assign(global, {
  document: { getElementById: $, documentElement: new El(), body: new El("body"), createElement: n => new El(n), addEventListener: listen, activeElement: new El("body"), hidden: false, querySelector: () => null, querySelectorAll: () => [] },
  location: { pathname: "/", origin: process.argv[2] }, matchMedia: () => ({ matches: false }), innerWidth: 800, innerHeight: 600, requestAnimationFrame: f => setTimeout(f, 5), Option: class extends El { }, addEventListener: listen, getComputedStyle: () => ({}),
});
const base = process.argv[2], real = fetch; global.fetch = (p, o) => real(new URL(p, base), o);
const wait = ms => new Promise(r => setTimeout(r, ms));
(async () => {
  const html = await (await real(base + "/", { headers: { accept: "text/html" } })).text();
  const scripts = [...html.matchAll(/^<script( data-library="[^"]+")?>\n([^]*?)^<\/script>$/gm)], own = scripts.filter(s => !s[1]).map(s => s[2]);
  const out = { failures: [], own: own.length };
  process.on("unhandledRejection", e => out.failures.push(String(e && e.stack || e)));
  new Function(own.join(""))();
  const until = async f => { for (let i = 0; i < 400 && !f(); i++) await wait(25) };
  const answered = async text => {
    $("say").value = text;
    $("say").onkeydown({ key: "Enter", preventDefault: nothing });
    await until(() => $("go").textContent === "Stop");
  };
  const end = () => until(() => $("go").textContent === "Send");
  const lastTurn = () => $("talk").children.at(-1), body = () => lastTurn().find("text"), foot = () => lastTurn().find("foot").textContent;
  for (const mode of ["chat", "text"]) {
    $("mode").value = mode;
    await answered(mode === "chat" ? "Hello!" : "Once upon a time");
    await end();
    const token = body().children[0];
    $("talk").l.mousemove[0]({ target: token, clientX: 1, clientY: 1 });
    out[mode] = { text: body().textContent, foot: foot(), tokens: token.info, tip: $("tip").textContent };
  }
  $("max_tokens").value = "1500";
  await answered("Once");
  await until(() => body().children.length > 3);
  $("tip").hidden = true;
  for (const f of listeners.keydown) f({ key: "Escape" });
  await end();
  out.stopped = foot();
  $("top_p").value = "7";
  $("say").value = "x";
  $("say").onkeydown({ key: "Enter", preventDefault: nothing });
  out.wrong = $("wrong").textContent;
  out.refused = $("go").textContent === "Send" && $("say").value === "x"; /* nothing was sent */
  $("top_p").max = "9";
  await answered("x");
  await end();
  out.error = lastTurn().textContent;
  await until(() => $("p3").attrs.d && $("p3").attrs.d.includes("L") && $("state").textContent === "ready");
  out.state = $("state").textContent;
  out.charts = [0, 1, 2, 3].map(i => $("v" + i).textContent);
  out.listed = $("talks").children.length;
  $("new").click();
  out.turns = $("talk").children.length - 1;
  console.log(JSON.stringify(out));
  process.exit(0);
})();
