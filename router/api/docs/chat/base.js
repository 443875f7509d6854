"use strict";
/* base: elements, and what the browser keeps. */
const $ = id => document.getElementById(id);

/* Behind a proxy the page may lie below a prefix. */
const base = location.pathname.replace(/\/+$/, "");
for (const a of document.querySelectorAll('a[href^="/"]')) a.setAttribute("href", base + a.getAttribute("href"));

function make(parent, name, cls, text) {
  const e = document.createElement(name);
  e.className = cls;
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}
function button(parent, text, does, label) {
  const b = make(parent, "button", "", text);
  b.type = "button";
  b.onclick = does;
  if (label) { b.setAttribute("aria-label", label); b.title = label }
  return b;
}

/* Where the browser forbids its storage, things live as long as the page. The key of the API never reaches the disk. */
const memory = new Map();
const store = {
  in(k) { return k === "key" || k === "talk" || k === "draft" ? sessionStorage : localStorage },
  get(k) { try { return this.in(k).getItem("ui." + k) } catch { return memory.has(k) ? memory.get(k) : null } },
  /* false: it is not kept */
  set(k, v) { try { this.in(k).setItem("ui." + k, v); return true } catch { memory.set(k, v); return false } },
  remove(k) { memory.delete(k); try { this.in(k).removeItem("ui." + k) } catch { } },
  keys() { try { return Object.keys(localStorage).filter(k => k.startsWith("ui.")).map(k => k.slice(3)) } catch { return [...memory.keys()] } },
};

async function copy(text, b) {
  const old = b.textContent;
  try {
    await navigator.clipboard.writeText(text);
    b.textContent = "Copied";
  } catch { /* a page from another machine without HTTPS has no clipboard */
    b.textContent = "The browser forbids it";
  }
  setTimeout(() => { b.textContent = old }, 1500);
}

/* A line at the bottom that goes by itself; `undo`, where given, is a button in it. */
let told = 0;
function tell(text, undo) {
  const t = $("toast");
  t.textContent = text;
  if (undo) button(t, "Undo", () => { t.hidden = true; undo() });
  t.hidden = false;
  clearTimeout(told);
  told = setTimeout(() => { t.hidden = true }, 8000);
}
function download(name, type, text) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob([text], { type }));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}
