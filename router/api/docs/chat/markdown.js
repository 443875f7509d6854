/* markdown: answers as Markdown. What a model writes is hostile: HTML in it is text, pictures are links (loading one would tell where
 * the reader is), and DOMPurify lets only known elements through. The page's policy stops what all of this would miss. */
const rich = (() => {
  const { markdownit, DOMPurify, hljs } = globalThis;
  if (!markdownit || !DOMPurify) return null;
  globalThis.shadowNode ||= { __depth: 0 }; /* 2.4.1+deb12u1 reads this name in sanitize(), where it is not declared; each node's depth is checked all the same */
  if (hljs) hljs.configure({ hideUpgradeWarningAcceptNoSupportOrSecurityUpdates: true }); /* Debian supports it; the console stays silent */
  const md = markdownit({ html: false, breaks: true, linkify: false, highlight });
  md.disable("image");
  mathRules(md);
  function highlight(code, language) {
    return hljs && code.length < 50000 && hljs.getLanguage(language) ? hljs.highlight(language, code, true).value : "";
  }
  /* Columns are aligned by a class: the policy allows no style of an element. */
  for (const rule of ["th_open", "td_open"])
    md.renderer.rules[rule] = (tokens, i, options, env, self) => {
      const style = tokens[i].attrGet("style");
      tokens[i].attrs = style ? [["class", style.replace(/.*:\s*/, "")]] : null;
      return self.renderToken(tokens, i, options);
    };
  const allowed = { ALLOWED_TAGS: "p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td a span".split(" "),
    ALLOWED_ATTR: ["href", "title", "class", "start"], ALLOWED_URI_REGEXP: /^(https?:|mailto:)/i, ALLOW_DATA_ATTR: false, RETURN_DOM_FRAGMENT: true };
  DOMPurify.addHook("afterSanitizeAttributes", e => {
    if (e.tagName === "A") { e.setAttribute("target", "_blank"); e.setAttribute("rel", "noopener noreferrer") }
  });
  return { sanitize: html => DOMPurify.sanitize(html, allowed), html: text => md.render(text) };
})();
const sanitize = html => rich.sanitize(html);

/* A bar over each code block: its language, and a button that copies it. */
function blocks(parent) {
  for (const pre of parent.querySelectorAll("pre")) {
    const code = pre.querySelector("code") || pre, box = document.createElement("div"), bar = make(box, "div", "bar"), text = code.textContent;
    box.className = "block";
    make(bar, "span", "", (/language-(\S+)/.exec(code.className) || ["", "text"])[1]);
    const b = button(bar, "Copy", () => copy(text, b), "Copy the code");
    pre.replaceWith(box);
    pre.tabIndex = 0; /* so that the keyboard can scroll it */
    box.append(pre);
  }
}
/* "[ ] text" of a list is a box. */
function tasks(parent) {
  for (const li of parent.querySelectorAll("li")) {
    const at = li.firstElementChild && li.firstElementChild.tagName === "P" ? li.firstElementChild.firstChild : li.firstChild;
    const mark = at && at.nodeType === Node.TEXT_NODE && /^\s*\[([ xX])\] /.exec(at.data);
    if (!mark) continue;
    at.data = (mark[1] === " " ? "☐ " : "☑ ") + at.data.slice(mark[0].length);
    li.classList.add("task");
  }
}
/* false: there is no such reader here, or it failed; the text stays as it was. */
function format(parent, text) {
  if (!rich) return false;
  try { parent.replaceChildren(sanitize(rich.html(text))) } catch { return false }
  blocks(parent);
  formulas(parent);
  tasks(parent);
  return true;
}
