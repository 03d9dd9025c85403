// Small helpers around the document. Styles are set through the object model: the content policy allows no style attributes.
export const $ = (id) => document.getElementById(id);

// el("button", { class: "main", onclick: f, "aria-label": "x", vars: { "--v": 3 } }, "text", child)
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "vars") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && !name.includes("-") && name !== "list" && name !== "role") node[name === "class" ? "className" : name] = value;
    else node.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

export const cosine = (v) => (v <= -0.005 ? "−" : "") + Math.abs(v).toFixed(2);
export const count = (n) => n.toLocaleString("en");
export const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");

export function debounce(f, ms) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => f(...args), ms); };
}

// A colour or length of the stylesheet.
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const quoted = (v) => (/[",\n\r]/.test(v) ? '"' + v.replaceAll('"', '""') + '"' : v);

// A list of images as a file, in the order shown.
export function downloadList(format, images) {
  const rows = images.map((r) => ({ path: r.path, score: r.score ?? null, width: r.width ?? null, height: r.height ?? null, date: r.date ?? null }));
  if (format === "json") return download("images.json", "application/json", JSON.stringify(rows, null, 1) + "\n");
  const lines = rows.map((r) => [r.path, r.score, r.width, r.height, r.date].map((v) => quoted(String(v ?? ""))).join(","));
  download("images.csv", "text/csv", "path,score,width,height,date\n" + lines.map((l) => l + "\n").join(""));
}

// ---- images that a person drops, pastes or chooses; a drag from the grid carries the image's path -------

export const PATH_TYPE = "application/x-cloob-path";

const imagesOf = (list) => [...list].filter((f) => f.type.startsWith("image/"));

// zone: where drops count. onfiles(files), onpath(path) for images of the index.
export function dropZone(zone, { onfiles, onpath }) {
  const ours = (e) => e.dataTransfer && ([...e.dataTransfer.types].includes("Files") || [...e.dataTransfer.types].includes(PATH_TYPE));
  let depth = 0;
  zone.addEventListener("dragenter", (e) => { if (ours(e)) { depth++; zone.classList.add("over"); e.preventDefault(); } });
  zone.addEventListener("dragover", (e) => { if (ours(e)) e.preventDefault(); });
  zone.addEventListener("dragleave", () => { depth = Math.max(0, depth - 1); if (!depth) zone.classList.remove("over"); });
  zone.addEventListener("drop", (e) => {
    depth = 0;
    zone.classList.remove("over");
    if (!ours(e)) return;
    e.preventDefault();
    const path = e.dataTransfer.getData(PATH_TYPE);
    if (path) onpath(path);
    else onfiles(imagesOf(e.dataTransfer.files));
  });
}

// Pasting works anywhere on the page while `active()`.
export function onPaste(active, onfiles) {
  document.addEventListener("paste", (e) => {
    const files = imagesOf(e.clipboardData?.files || []);
    if (!active() || !files.length) return;
    e.preventDefault();
    onfiles(files);
  });
}

export function chooser(button, input, onfiles) {
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => { onfiles(imagesOf(input.files)); input.value = ""; });
}
