// The page's script over the smallest document that it needs: node page.js URL; one JSON object comes out.
const els = {}, listeners = {};
class El {
  constructor(n) { this.tagName = (n || "div").toUpperCase(); this.kids = []; this.style = { setProperty() { } }; this.attrs = {}; this.l = {}; this.value = ""; this.own = ""; this.dataset = {}; this.classList = { toggle() { } }; }
  get textContent() { return this.own + this.kids.map(k => k.textContent).join("") } set textContent(t) { this.own = String(t); this.kids = [] }
  append(e) { this.kids.push(e) } setAttribute(k, v) { this.attrs[k] = v } addEventListener(t, f) { (this.l[t] ||= []).push(f) } focus() { } click() { this.onclick() }
}
const $ = id => els[id] ||= new El(); $("mode").value = "chat"; for (const [k, v] of Object.entries({ temperature: "0.7", top_p: "1", top_k: "0", min_p: "0", max_tokens: "30", seed: "1" })) $(k).value = v;
global.document = { getElementById: $, documentElement: new El(), createElement: n => new El(n), addEventListener: (t, f) => listeners[t] = f, activeElement: new El("body"), hidden: false, querySelector: () => new El() };
global.matchMedia = () => ({ matches: false }); global.innerWidth = 800; global.innerHeight = 600;
const base = process.argv[2], real = fetch; global.fetch = (p, o) => real(new URL(p, base), o);
const wait = ms => new Promise(r => setTimeout(r, ms));
(async () => {
  const html = await (await real(base + "/", { headers: { accept: "text/html" } })).text();
  const src = html.slice(html.indexOf("<script>") + 8, html.indexOf("</script>"));
  const out = { failures: [] };
  process.on("unhandledRejection", e => out.failures.push(String(e)));
  new Function(src)();
  const until = async f => { for (let i = 0; i < 400 && !f(); i++) await wait(25) };
  const enter = () => $("say").onkeydown({ key: "Enter", preventDefault() { } });
  const lastTurn = () => $("talk").kids[$("talk").kids.length - 1];
  for (const mode of ["chat", "text"]) {
    $("mode").value = mode;
    $("say").value = mode === "chat" ? "Hello!" : "Once upon a time";
    enter();
    await until(() => $("go").textContent === "Stop");
    await until(() => $("go").textContent === "Send");
    const [body, foot] = lastTurn().kids, token = body.kids[0];
    $("talk").l.mousemove[0]({ target: token, clientX: 1, clientY: 1 });
    out[mode] = { text: body.textContent, foot: foot.textContent, token: token.info, tip: $("tip").textContent };
  }
  $("max_tokens").value = "1500";
  $("say").value = "Once";
  enter();
  await until(() => lastTurn().kids[0].kids.length > 3);
  listeners.keydown({ key: "Escape" });
  await until(() => $("go").textContent === "Send");
  out.stopped = lastTurn().kids[1].textContent;
  $("top_p").value = "7";
  $("say").value = "x";
  enter();
  await until(() => $("go").textContent === "Stop");
  await until(() => $("go").textContent === "Send");
  out.error = lastTurn().textContent;
  await until(() => $("p3").attrs.d && $("p3").attrs.d.includes("L"));
  out.state = $("state").textContent;
  out.charts = [0, 1, 2, 3].map(i => $("v" + i).textContent);
  $("new").click();
  out.turns = $("talk").kids.length;
  console.log(JSON.stringify(out));
  process.exit(0);
})();
