// The reader of Markdown as the page holds it, without a browser: node page_markdown.js PAGE TEXT; the HTML before it is sanitised comes out.
const fs = require("fs"), vm = require("vm");
const [, , page, text] = process.argv;
const html = fs.readFileSync(page, "utf8"), scripts = [...html.matchAll(/^<script( data-library="[^"]+")?>\n([^]*?)^<\/script>$/gm)];
const world = { DOMPurify: { addHook() { } }, console };
world.window = world.globalThis = world;
vm.createContext(world);
for (const [, library, source] of scripts)
  if (library && !library.includes("dompurify")) vm.runInContext(source, world);
const own = scripts.find(s => !s[1])[2], start = own.indexOf("function mathRules"), end = own.indexOf("\nconst sanitize");
vm.runInContext(own.slice(start, end) + "\nglobalThis.out = rich && rich.html(" + JSON.stringify(text) + ")", world);
process.stdout.write(JSON.stringify(world.out));
