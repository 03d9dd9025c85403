// Images that a person drops, pastes or chooses. A drag from our own grid carries the image's path.
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
