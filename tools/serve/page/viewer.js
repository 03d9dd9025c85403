// One image large, with what is known about it.
import { $, el, cosine } from "./dom.js";
import { imageUrl, thumbUrl, show } from "./api.js";

const dialog = $("viewer");
let on = {};

// on: { like(path, weight), step(by), close() }
export function viewerInit(handlers) {
  on = handlers;
  $("viewer-like").onclick = () => on.like(dialog.path, 1);
  $("viewer-less").onclick = () => on.like(dialog.path, -1);
  $("viewer-prev").onclick = () => on.step(-1);
  $("viewer-next").onclick = () => on.step(1);
  $("viewer-close").onclick = () => on.close();
  dialog.addEventListener("cancel", (e) => { e.preventDefault(); on.close(); });
  dialog.addEventListener("keydown", (e) => {
    if (e.key === "ArrowRight") on.step(1);
    else if (e.key === "ArrowLeft") on.step(-1);
    else if (e.key === "m") on.like(dialog.path, 1);
  });
}

export function viewerShow(index, r) {
  const image = $("viewer-image");
  dialog.path = r.path;
  $("viewer-name").textContent = r.path;
  image.alt = r.path;
  show(image, r.thumb || thumbUrl(index, r.path, 320)); // at once; the full image replaces it
  const full = new Image();
  full.onload = () => { if (dialog.path === r.path) image.src = full.src; };
  show(full, r.image || imageUrl(index, r.path));
  $("viewer-full").href = r.image || imageUrl(index, r.path);
  const facts = [];
  if (typeof r.score === "number") facts.push(["similarity", cosine(r.score)]);
  if (r.width) facts.push(["size", r.width + " × " + r.height]);
  if (r.date) facts.push(["date", String(r.date).replace("T", " ").slice(0, 16)]);
  $("viewer-facts").replaceChildren(...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  if (!dialog.open) dialog.showModal();
}

export function viewerHide() {
  if (dialog.open) dialog.close();
  dialog.path = "";
}
