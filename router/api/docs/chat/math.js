/* math: TeX's formulas as MathML, which browsers draw without fonts of ours. KaTeX makes the elements one by one, after DOMPurify; with
 * `trust` false they hold text and sizes alone. What it does not understand stays as it was written. */
/* Formulas in Markdown: $..$ and \(..\) in a line, $$..$$ and \[..\] by themselves. Until a formula has ended it is text. */
function mathRules(md) {
  const pairs = [["$$", "$$"], ["\\[", "\\]"], ["\\(", "\\)"], ["$", "$"]];
  const escape = md.utils.escapeHtml;
  const element = (tokens, i) => `<span class="math${tokens[i].markup === "$$" || tokens[i].markup === "\\[" ? " alone" : ""}">${escape(tokens[i].content)}</span>`;
  /* Where the formula that begins at `from` ends; less than `from`: it does not. A dollar may be money. */
  function end_of(s, from, [open, close]) {
    let at = s.indexOf(close, from);
    if (open !== "$") return at;
    while (at > from && s[at - 1] === "\\") at = s.indexOf("$", at + 1);
    return /^\s|\n\n|\s$/.test(s.slice(from, at)) || /^[0-9]/.test(s.slice(at + 1)) ? -1 : at;
  }
  md.inline.ruler.before("escape", "math", (state, silent) => {
    const s = state.src, pair = pairs.find(([open]) => s.startsWith(open, state.pos));
    if (!pair) return false;
    const from = state.pos + pair[0].length;
    const at = end_of(s, from, pair);
    if (at <= from || at + pair[1].length > state.posMax) return false;
    if (!silent) Object.assign(state.push("math", "", 0), { content: s.slice(state.pos, at + pair[1].length), markup: pair[0] });
    state.pos = at + pair[1].length;
    return true;
  });
  md.block.ruler.before("fence", "math", (state, start, end, silent) => {
    const line = n => state.src.slice(state.bMarks[n] + state.tShift[n], state.eMarks[n]);
    const pair = pairs.slice(0, 2).find(([open]) => line(start).startsWith(open));
    if (!pair || state.sCount[start] - state.blkIndent >= 4) return false;
    let text = line(start).slice(2), next = start;
    while (!text.includes(pair[1]) && ++next < end && state.sCount[next] >= state.blkIndent) text += "\n" + line(next);
    const at = text.indexOf(pair[1]);
    if (at < 0 || next >= end || text.slice(at + 2).trim()) return false;
    if (silent) return true;
    state.line = next + 1;
    Object.assign(state.push("math", "", 0), { block: true, content: pair[0] + text.slice(0, at + 2), markup: pair[0], map: [start, next + 1] });
    return true;
  }, { alt: ["paragraph", "reference", "blockquote", "list"] });
  md.renderer.rules.math = element;
}
/* Letters of other alphabets by their own characters: browsers read no `mathvariant` but `normal` (MathML Core, 3.2.2). */
const alphabets = { __proto__: null, "double-struck": [0x1d538, 0x1d552, 0x1d7d8], script: [0x1d49c, 0x1d4b6], fraktur: [0x1d504, 0x1d51e],
  bold: [0x1d400, 0x1d41a, 0x1d7ce], "bold-italic": [0x1d468, 0x1d482], "sans-serif": [0x1d5a0, 0x1d5ba, 0x1d7e2], monospace: [0x1d670, 0x1d68a, 0x1d7f6] };
const older = { __proto__: null }; /* those that Unicode had before */
for (const [holes, own] of [["𝔺𝔿𝕅𝕇𝕈𝕉𝕑", "ℂℍℕℙℚℝℤ"], ["𝒝𝒠𝒡𝒣𝒤𝒧𝒨𝒭𝒺𝒼𝓄", "ℬℰℱℋℐℒℳℛℯℊℴ"], ["𝔆𝔋𝔌𝔕𝔝", "ℭℌℑℜℨ"]])
  [...holes].forEach((c, i) => older[c] = [...own][i]);
function lettered(parent) {
  for (const e of parent.querySelectorAll("[mathvariant]")) {
    const [A, a, zero] = alphabets[e.getAttribute("mathvariant")] || [];
    if (!A || e.childElementCount) continue;
    e.textContent = e.textContent.replace(/[A-Za-z0-9]/g, c => {
      const from = c >= "a" ? a - 97 : c >= "A" ? A - 65 : zero - 48, own = from ? String.fromCodePoint(from + c.charCodeAt()) : c;
      return older[own] || own;
    });
  }
}
/* Draws the formulas that mathRules() marked. */
function formulas(parent) {
  const { katex } = globalThis;
  for (const span of katex ? parent.querySelectorAll("span.math") : []) {
    const text = span.textContent, n = text.startsWith("$") && !text.startsWith("$$") ? 1 : 2, drawn = document.createElement("span");
    try {
      katex.render(text.slice(n, -n), drawn, { output: "mathml", displayMode: span.classList.contains("alone"), trust: false, strict: false, maxSize: 20, maxExpand: 300 });
    } catch { continue }
    lettered(drawn);
    span.replaceChildren(drawn);
    span.title = text;
  }
}
