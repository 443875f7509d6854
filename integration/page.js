// The page's script over the smallest document that it needs: node page.js URL; one JSON object comes out.
// (clients/test_page_browser.py tries the page for real, where there is a browser.)
const els = {}, listeners = {};
const nothing = () => { };
class El {
  constructor(n) { Object.assign(this, { tagName: (n || "div").toUpperCase(), children: [], style: { setProperty: nothing }, attrs: {}, l: {}, value: "", own: "", dataset: {}, className: "" });
    this.classList = { toggle: nothing, add: nothing, remove: nothing } }
  get textContent() { return this.own + this.children.map(k => k.textContent).join("") } set textContent(t) { this.own = String(t); this.children = [] }
  append(e) { e.remove(); this.children.push(e); e.parent = this } insertBefore(e, at) { this.append(e); this.children.splice(this.children.indexOf(at), 0, this.children.pop()) }
  remove() { if (this.parent) this.parent.children = this.parent.children.filter(k => k !== this) }
  setAttribute(k, v) { this.attrs[k] = v } getAttribute(k) { return this.attrs[k] } addEventListener(t, f) { (this.l[t] ||= []).push(f) }
  focus() { } click() { this.onclick() } find(cls) { return this.children.find(k => k.className === cls) }
}
const $ = id => els[id] ||= new El();
$("mode").value = "chat"; for (const [k, v] of Object.entries({ temperature: "0.7", top_p: "1", top_k: "0", min_p: "0", max_tokens: "30", seed: "1" })) $(k).value = v;
$("talk").append($("hello"));
Object.assign(global, { document: { getElementById: $, documentElement: new El(), createElement: n => new El(n), addEventListener: (t, f) => listeners[t] = f, activeElement: new El("body"), hidden: false },
  matchMedia: () => ({ matches: false }), innerWidth: 800, innerHeight: 600, requestAnimationFrame: f => setTimeout(f, 5), Option: class extends El { } });
const base = process.argv[2], real = fetch; global.fetch = (p, o) => real(new URL(p, base), o);
const wait = ms => new Promise(r => setTimeout(r, ms));
(async () => {
  const html = await (await real(base + "/", { headers: { accept: "text/html" } })).text();
  const src = html.slice(html.indexOf("<script>") + 8, html.indexOf("</script>"));
  const out = { failures: [] };
  process.on("unhandledRejection", e => out.failures.push(String(e)));
  new Function(src)();
  const until = async f => { for (let i = 0; i < 400 && !f(); i++) await wait(25) };
  const answered = async text => {
    $("say").value = text;
    $("say").onkeydown({ key: "Enter", preventDefault: nothing });
    await until(() => $("go").textContent === "Stop");
  };
  const end = () => until(() => $("go").textContent === "Send");
  const lastTurn = () => $("talk").children.at(-1), body = () => lastTurn().find(""), foot = () => lastTurn().find("foot").textContent;
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
  listeners.keydown({ key: "Escape" });
  await end();
  out.stopped = foot();
  $("top_p").value = "7";
  await answered("x");
  await end();
  out.error = lastTurn().textContent;
  await until(() => $("p3").attrs.d && $("p3").attrs.d.includes("L") && $("state").textContent === "ready");
  out.state = $("state").textContent;
  out.charts = [0, 1, 2, 3].map(i => $("v" + i).textContent);
  $("new").click();
  out.turns = $("talk").children.length - 1;
  console.log(JSON.stringify(out));
  process.exit(0);
})();
