/* math: TeX's formulas as MathML, which browsers draw. Elements are made one by one and have text alone, so a hostile formula is text, too.
 * What is not understood stays as it was written. */
const tex = (() => {
  const MOST = 4000, DEEP = 40;
  const words = text => Object.assign(Object.create(null), Object.fromEntries(text.trim().split(/\s+/).map(w => w.split(":"))));
  const letters = words(`alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ nu:ν
    xi:ξ pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ
    Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ ell:ℓ hbar:ℏ partial:∂ nabla:∇ emptyset:∅ varnothing:∅ Re:ℜ Im:ℑ aleph:ℵ
    top:⊤ bot:⊥ angle:∠ degree:° imath:ı jmath:ȷ`);
  const signs = words(`times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ otimes:⊗ le:≤ leq:≤ leqslant:≤ ge:≥ geq:≥ geqslant:≥
    ne:≠ neq:≠ ll:≪ gg:≫ approx:≈ equiv:≡ cong:≅ sim:∼ simeq:≃ propto:∝ to:→ rightarrow:→ leftarrow:← leftrightarrow:↔ Rightarrow:⇒ implies:⟹
    Leftarrow:⇐ impliedby:⟸ Leftrightarrow:⇔ iff:⟺ mapsto:↦ uparrow:↑ downarrow:↓ longrightarrow:⟶ in:∈ notin:∉ ni:∋ subset:⊂ subseteq:⊆
    supset:⊃ supseteq:⊇ cup:∪ cap:∩ setminus:∖ land:∧ wedge:∧ lor:∨ vee:∨ neg:¬ lnot:¬ forall:∀ exists:∃ nexists:∄ mid:∣ parallel:∥ perp:⊥
    therefore:∴ because:∵ ldots:… dots:… cdots:⋯ vdots:⋮ ddots:⋱ prime:′ langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉
    lvert:| rvert:| vert:| lVert:‖ rVert:‖ Vert:‖ lbrace:{ rbrace:} models:⊨ vdash:⊢ dagger:† triangle:△ square:□ blacksquare:■ checkmark:✓`);
  signs.colon = ":";
  const large = words("sum:∑ prod:∏ coprod:∐ bigcup:⋃ bigcap:⋂ bigoplus:⨁ bigotimes:⨂ bigvee:⋁ bigwedge:⋀"),
    integrals = words("int:∫ iint:∬ iiint:∭ oint:∮");
  const accents = words("hat:^ widehat:^ bar:¯ overline:¯ vec:→ overrightarrow:→ tilde:~ widetilde:~ dot:˙ ddot:¨ overbrace:⏞");
  const under = words("underline:_ underbrace:⏟"), spaces = { __proto__: null, ",": .17, ":": .22, ";": .28, " ": .28, "!": -.17, quad: 1, qquad: 2 };
  const names = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker deg gcd hom arg Pr min max sup inf lim limsup liminf argmin argmax".split(" ")),
    below = new Set("min max sup inf lim limsup liminf argmin argmax det gcd Pr".split(" "));
  const fonts = { __proto__: null, mathbf: [0x1d400, 0x1d41a, 0x1d7ce], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce], bm: [0x1d468, 0x1d482, 0x1d7ce], mathbb: [0x1d538, 0x1d552, 0x1d7d8],
    mathcal: [0x1d49c, 0x1d4b6], mathscr: [0x1d49c, 0x1d4b6], mathfrak: [0x1d504, 0x1d51e], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2], mathtt: [0x1d670, 0x1d68a, 0x1d7f6] };
  const older = words(`𝔺:ℂ 𝔿:ℍ 𝕅:ℕ 𝕇:ℙ 𝕈:ℚ 𝕉:ℝ 𝕑:ℤ 𝒝:ℬ 𝒠:ℰ 𝒡:ℱ 𝒣:ℋ 𝒤:ℐ 𝒧:ℒ 𝒨:ℳ 𝒭:ℛ 𝒺:ℯ 𝒼:ℊ 𝓄:ℴ 𝔆:ℭ 𝔋:ℌ 𝔌:ℑ 𝔕:ℜ 𝔝:ℨ`); /* Unicode had these before */
  const fences = { __proto__: null, matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"], cases: ["{", ""], array: ["", ""], smallmatrix: ["", ""] };
  const lines = new Set("aligned align align* alignat split gathered gather gather* equation equation* eqnarray eqnarray*".split(" "));
  const skipped = new Set("displaystyle textstyle scriptstyle limits nolimits nonumber notag big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr hfill allowbreak hline".split(" "));
  const texts = new Set("text mathrm textrm textit textbf textsf texttt mbox operatorname hbox".split(" "));

  function el(name, ...kids) {
    const e = document.createElementNS("http://www.w3.org/1998/Math/MathML", name);
    e.append(...kids);
    return e;
  }
  const set = (e, name, value) => { e.setAttribute(name, value); return e };
  const row = kids => kids.length === 1 ? kids[0] : el("mrow", ...kids);
  const fence = c => set(el("mo", c), "stretchy", "true");
  function styled(font, c) {
    const [A, a, zero] = fonts[font], at = c >= "A" && c <= "Z" ? A + c.charCodeAt() - 65 : c >= "a" && c <= "z" ? a + c.charCodeAt() - 97 : c >= "0" && c <= "9" && zero ? zero + c.charCodeAt() - 48 : 0;
    const own = at ? String.fromCodePoint(at) : c;
    return older[own] || own;
  }

  return (source, display) => {
    if (source.length > MOST) throw new Error("long");
    const tokens = source.match(/\\(?:[a-zA-Z]+\*?|[^])|[0-9]+(?:[.,][0-9]+)*|[^]/gu) || [];
    let at = 0, depth = 0;
    const blank = () => { while (at < tokens.length && /^\s$/.test(tokens[at])) at++ };
    const peek = () => { blank(); return tokens[at] };
    function expect(t) {
      if (peek() !== t) throw new Error(t);
      at++;
    }
    /* The text of a group, as it is written. */
    function raw() {
      expect("{");
      let open = 1, text = "";
      for (; open; at++) {
        if (at >= tokens.length) throw new Error("}");
        open += (tokens[at] === "{") - (tokens[at] === "}");
        if (open) text += tokens[at];
      }
      return text;
    }
    function argument() {
      const t = peek();
      if (t === undefined || t === "}") throw new Error("argument");
      return t === "{" ? group() : /^[0-9]./.test(t) ? digit() : atom();
    }
    function digit() { /* x^12 is x to the one, two */
      const t = tokens[at];
      tokens.splice(at, 1, t[0], t.slice(1));
      return atom();
    }
    function group() {
      expect("{");
      const kids = list(t => t === "}");
      expect("}");
      return row(kids);
    }
    function delimiter() {
      const t = peek();
      at++;
      if (t === undefined) throw new Error("delimiter");
      return t === "." ? "" : t === "\\|" ? "‖" : t[0] === "\\" ? signs[t.slice(1)] || t.slice(1) : t;
    }
    function table(name) {
      if (name.startsWith("array") || name === "alignat") raw();
      const rows = [[]], end = t => t === "&" || t === "\\\\" || t === "\\end";
      for (;;) {
        rows.at(-1).push(el("mtd", ...list(end)));
        const t = tokens[at++];
        if (t === "\\\\") rows.push([]);
        else if (t !== "&") break;
      }
      if (rows.length > 1 && rows.at(-1).length === 1 && !rows.at(-1)[0].childNodes.length) rows.pop();
      if (raw() !== name) throw new Error(name);
      const t = el("mtable", ...rows.map(r => el("mtr", ...r)));
      t.setAttribute("class", lines.has(name) ? "lines" : name === "cases" ? "cases" : "");
      if (lines.has(name)) set(t, "displaystyle", "true");
      const [left, right] = fences[name] || ["", ""];
      return row([...left ? [fence(left)] : [], t, ...right ? [fence(right)] : []]);
    }
    function command(name) {
      if (letters[name]) return el("mi", letters[name]);
      if (signs[name]) return el("mo", signs[name]);
      if (large[name]) return Object.assign(el("mo", large[name]), { below: display });
      if (integrals[name]) return el("mo", integrals[name]);
      if (names.has(name)) return Object.assign(el("mi", name), { below: display && below.has(name), name: true });
      if (spaces[name] !== undefined) return set(el("mspace"), "width", spaces[name] + "em");
      if (accents[name]) return set(el("mover", argument(), set(el("mo", accents[name]), "stretchy", String(/^(wide|over)/.test(name)))), "accent", "true");
      if (under[name]) return Object.assign(el("munder", argument(), el("mo", under[name])), { below: true });
      if (fonts[name]) return row([...raw()].filter(c => c.trim()).map(c => el("mi", styled(name, c))));
      if (texts.has(name)) {
        const e = name === "operatorname" ? el("mi", raw()) : el("mtext", raw().replace(/^ | $/g, "\u00a0"));
        return name === "textbf" ? set(e, "class", "bold") : e;
      }
      switch (name) {
        case "operatorname*": return Object.assign(el("mi", raw()), { below: display });
        case "frac": case "dfrac": case "tfrac": case "cfrac": return el("mfrac", argument(), argument());
        case "binom": return row([fence("("), set(el("mfrac", argument(), argument()), "linethickness", "0"), fence(")")]);
        case "sqrt": {
          if (peek() !== "[") return el("msqrt", argument());
          at++;
          const root = row(list(t => t === "]"));
          expect("]");
          return el("mroot", argument(), root);
        }
        case "left": {
          const left = delimiter(), kids = list(t => t === "\\right");
          expect("\\right");
          const right = delimiter();
          return row([...left ? [fence(left)] : [], ...kids, ...right ? [fence(right)] : []]);
        }
        case "middle": return fence(delimiter());
        case "begin": {
          const env = raw();
          if (!fences[env] && !lines.has(env)) throw new Error(env);
          return table(env);
        }
        case "overset": case "stackrel": { const over = argument(); return el("mover", argument(), over) }
        case "underset": { const low = argument(); return el("munder", argument(), low) }
        case "boxed": return set(el("mrow", argument()), "class", "boxed");
        case "not": { const e = argument(); e.append("\u0338"); return e }
        case "pmod": return row([el("mo", "("), el("mi", "mod"), set(el("mspace"), "width", ".3em"), argument(), el("mo", ")")]);
        case "bmod": case "mod": return el("mo", "mod");
        case "tag": return el("mtext", "\u2003(" + raw() + ")");
        case "\\": return set(el("mspace"), "linebreak", "newline");
        case "|": return el("mo", "‖");
      }
      if (/^[{}$%&#_]$/.test(name)) return el(/[{}]/.test(name) ? "mo" : "mtext", name);
      throw new Error(name);
    }
    function atom() {
      const t = peek();
      at++;
      if (t[0] === "\\") return command(t.slice(1));
      if (/^[0-9]/.test(t)) return el("mn", t);
      if (/^\p{L}$/u.test(t)) return el("mi", t);
      const sign = set(el("mo", t === "-" ? "−" : t === "*" ? "∗" : t), "stretchy", "false");
      return t === "|" ? set(set(sign, "lspace", "0"), "rspace", "0") : sign; /* which side it is on is not known */
    }
    function scripts(base) {
      let low, high, t;
      while ((t = peek()) === "^" || t === "_" || t === "'") {
        at++;
        if (t === "'") high = high ? el("mrow", high, el("mo", "′")) : el("mo", "′");
        else if (t === "^") { const e = argument(); high = high ? el("mrow", high, e) : e }
        else if (low) throw new Error("_");
        else low = argument();
      }
      if (!low && !high) return base;
      const [both, one, two] = base.below ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
      return low && high ? el(both, base, low, high) : low ? el(one, base, low) : el(two, base, high);
    }
    function list(end) {
      const kids = [];
      if (++depth > DEEP) throw new Error("deep");
      for (let t; (t = peek()) !== undefined && !end(t);) {
        if (t === "}" || t === "&" || t === "\\right" || t === "\\end") throw new Error(t);
        if (t[0] === "\\" && skipped.has(t.slice(1))) { at++; continue }
        const base = t === "^" || t === "_" || t === "'" ? el("mrow") : t === "{" ? group() : atom(), e = scripts(base);
        kids.push(e);
        if (base.name && peek() !== undefined && !/^[(\[{^_)\]}&,]|^\\(left|right|end|\\|[,;!])/.test(peek())) kids.push(set(el("mspace"), "width", ".17em"));
      }
      depth--;
      return kids;
    }
    const kids = list(() => false);
    return set(el("math", ...kids), "display", display ? "block" : "inline");
  };
})();

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
/* Draws the formulas that mathRules() marked. */
function formulas(parent) {
  for (const span of parent.querySelectorAll("span.math")) {
    const text = span.textContent, n = text.startsWith("$") && !text.startsWith("$$") ? 1 : 2;
    try { span.replaceChildren(tex(text.slice(n, -n), span.classList.contains("alone"))) } catch { continue }
    span.title = text;
  }
}
