/* files: text files, and pictures where the model takes them, that go with a message. */
const FILE_BYTES = 1e6, PICTURE_BYTES = 3e5, PICTURE_SIDE = 1280, PICTURES = 8, PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+=*$/;
let attachments = [];
function chips() {
  $("files").textContent = "";
  $("files").hidden = !attachments.length;
  attachments.forEach((f, i) => {
    const chip = make($("files"), "span", "chip");
    if (f.image) thumbnail(chip, f);
    chip.append(f.name + " ");
    button(chip, "×", () => { attachments.splice(i, 1); chips(); $("say").focus() }, "Remove " + f.name);
  });
}
function thumbnail(parent, f) {
  const i = make(parent, "img", "thumb");
  i.alt = f.name;
  i.src = f.image;
}
const asUrl = blob => new Promise((good, bad) => {
  const r = new FileReader();
  r.onload = () => good(r.result);
  r.onerror = () => bad(new Error("it cannot be read"));
  r.readAsDataURL(blob);
});
/* Small pictures go as they are. Larger ones are made smaller: the browser's storage keeps them with the conversation. */
async function picture(f) {
  if (attachments.filter(a => a.image).length >= PICTURES) throw new Error("a message has at most " + PICTURES + " pictures");
  let url = f.size <= PICTURE_BYTES ? await asUrl(f) : "";
  if (PICTURE.test(url)) return url;
  const seen = await createImageBitmap(f).catch(() => { throw new Error("it is no picture that this browser knows") });
  const scale = Math.min(1, PICTURE_SIDE / Math.max(seen.width, seen.height)), c = document.createElement("canvas"), on = c.getContext("2d");
  c.width = Math.max(1, Math.round(seen.width * scale));
  c.height = Math.max(1, Math.round(seen.height * scale));
  on.fillStyle = "#fff";
  on.fillRect(0, 0, c.width, c.height);
  on.drawImage(seen, 0, 0, c.width, c.height);
  return c.toDataURL("image/jpeg", 0.85);
}
async function attach(all) {
  for (const f of all) {
    try {
      if (f.type.startsWith("image/") && sees()) { attachments.push({ name: f.name || "picture", image: await picture(f) }); continue }
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
