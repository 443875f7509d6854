/* files: text files that go with a message. */
const FILE_BYTES = 1e6;
let attachments = [];
function chips() {
  $("files").textContent = "";
  $("files").hidden = !attachments.length;
  attachments.forEach((f, i) => {
    const chip = make($("files"), "span", "chip", f.name + " ");
    button(chip, "×", () => { attachments.splice(i, 1); chips(); $("say").focus() }, "Remove " + f.name);
  });
}
async function attach(all) {
  for (const f of all) {
    try {
      if (f.size > FILE_BYTES) throw new Error("it is larger than 1 MB");
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await f.arrayBuffer());
      if (text.includes("\0")) throw new Error();
      attachments.push({ name: f.name, text });
    } catch (e) { tell(f.name + " was not attached: " + (e.message && !(e instanceof TypeError) ? e.message : "it is not text")) }
  }
  chips();
}
/* What is attached, which no longer is. */
function shed() {
  const all = attachments;
  attachments = [];
  chips();
  return all;
}
$("attach").onclick = () => $("attach_file").click();
$("attach_file").onchange = async () => { await attach([...$("attach_file").files]); $("attach_file").value = ""; $("say").focus() };
document.addEventListener("dragover", e => { if (e.dataTransfer.types.includes("Files")) e.preventDefault() });
document.addEventListener("drop", e => {
  if (!e.dataTransfer.files.length) return;
  e.preventDefault();
  attach([...e.dataTransfer.files]);
});
$("say").onpaste = e => {
  if (!e.clipboardData.files.length) return;
  e.preventDefault();
  attach([...e.clipboardData.files]);
};
