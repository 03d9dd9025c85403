// Thousands of images in one scroll: only the rows in sight are in the document. Pages of results are asked for as they come
// into sight; a place without its result yet is a grey cell, so nothing jumps.
import { $, el, cosine, count, PATH_TYPE } from "./dom.js";
import { imageUrl, thumbUrl, show } from "./api.js";

const GAP = 12, CAPTION = 28, OVERSCAN = 2, PAGE = 120;

export class Grid {
  // on: { open(i), like(result), choose(i), page(offset, limit) -> Promise<results> }
  constructor(node, on) {
    this.node = node;
    this.on = on;
    this.cells = new Map();
    this.chosen = new Map();
    this.reset("", 0, []);
    this.draw = this.draw.bind(this);
    addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon()).observe(node);
  }

  reset(index, total, results) {
    this.index = index;
    this.total = total;
    this.items = results.slice();
    this.asked = new Set();
    this.current = 0;
    this.turn = (this.turn || 0) + 1;
    for (const cell of this.cells.values()) cell.remove();
    this.cells.clear();
    this.soon();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  measure() {
    const width = this.node.clientWidth, least = width < 480 ? 104 : 160, gap = width < 480 ? 6 : GAP;
    const columns = Math.max(1, Math.floor((width + gap) / (least + gap)));
    const side = (width - gap * (columns - 1)) / columns;
    Object.assign(this, { columns, side, gap, step: side + CAPTION + gap });
  }

  draw() {
    if (!this.node.clientWidth) return;
    this.measure();
    const rows = Math.ceil(this.total / this.columns);
    this.node.style.height = Math.max(0, rows * this.step - this.gap) + "px";
    const top = -this.node.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / this.step) - OVERSCAN) * this.columns;
    const last = Math.min(this.total, (Math.ceil((top + innerHeight) / this.step) + OVERSCAN) * this.columns);
    for (const [i, cell] of this.cells) if ((i < first || i >= last) && i !== this.current) { cell.remove(); this.cells.delete(i); }
    for (let i = first; i < last; i++) this.place(i);
    if (this.total) this.place(this.current);
    this.need(first, last);
  }

  place(i) {
    let cell = this.cells.get(i);
    if (!cell || (cell.pending && this.items[i])) {
      const focused = cell?.contains(document.activeElement);
      cell?.remove();
      cell = this.make(i);
      this.cells.set(i, cell);
      this.node.append(cell);
      if (focused) cell.querySelector(".open")?.focus({ preventScroll: true });
    }
    const s = cell.style;
    s.width = this.side + "px";
    s.height = this.side + CAPTION + "px";
    s.transform = `translate(${(i % this.columns) * (this.side + this.gap)}px, ${Math.floor(i / this.columns) * this.step}px)`;
  }

  make(i) {
    const r = this.items[i];
    const cell = el("div", { class: "cell", role: "listitem", "aria-setsize": this.total, "aria-posinset": i + 1 });
    if (!r) { cell.pending = true; return cell; }
    const name = r.path.split("/").pop(), scored = typeof r.score === "number";
    const img = el("img", { alt: r.path, loading: "lazy", decoding: "async", draggable: true });
    show(img, r.thumb || thumbUrl(this.index, r.path, 320));
    const why = scored ? `cosine similarity to the query: ${r.score.toFixed(3)}, rank ${count(i + 1)} of ${count(this.total)}` : "";
    const open = el("button", { class: "open", type: "button", tabIndex: i === this.current ? 0 : -1, onclick: () => this.on.open(i),
      "aria-label": r.path + (scored ? ", similarity " + cosine(r.score) : "") + ". Open", onfocus: () => this.mark(i) }, img);
    const like = el("button", { class: "like", type: "button", tabIndex: -1, onclick: () => this.on.like(r), "aria-label": "More like " + r.path }, "more like this");
    const choose = el("button", { class: "choose", type: "button", tabIndex: -1, onclick: () => this.on.choose(i) });
    cell.append(open, el("div", { class: "cap" }, el("span", { title: r.path }, name), scored ? el("b", { title: why }, cosine(r.score)) : null), like, choose);
    cell.addEventListener("dragstart", (e) => { e.dataTransfer.setData(PATH_TYPE, r.path); e.dataTransfer.effectAllowed = "copy"; });
    this.paint(cell, r);
    return cell;
  }

  paint(cell, r) {
    const on = this.chosen.has(r.path), box = cell.querySelector(".choose");
    cell.classList.toggle("chosen", on);
    box.textContent = on ? "✓" : "";
    box.setAttribute("aria-pressed", on);
    box.setAttribute("aria-label", (on ? "Deselect " : "Select ") + r.path);
  }

  repaint() { for (const [i, cell] of this.cells) if (this.items[i] && !cell.pending) this.paint(cell, this.items[i]); }

  async need(first, last) {
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) {
      const offset = page * PAGE;
      let missing = false;
      for (let i = offset; i < Math.min(offset + PAGE, last) && !missing; i++) missing = !this.items[i];
      if (!missing || this.asked.has(page)) continue;
      this.asked.add(page);
      const turn = this.turn;
      const results = await this.on.page(offset, PAGE);
      if (turn !== this.turn) return;
      if (!results) { this.asked.delete(page); continue; }
      results.forEach((r, k) => { this.items[offset + k] = r; });
      this.soon();
    }
  }

  // ---- keyboard ----

  mark(i) {
    const before = this.cells.get(this.current)?.querySelector(".open");
    if (before) before.tabIndex = -1;
    this.current = i;
    const now = this.cells.get(i)?.querySelector(".open");
    if (now) now.tabIndex = 0;
  }

  focus(i) {
    i = Math.max(0, Math.min(this.total - 1, i));
    if (i < 0) return;
    this.mark(i);
    this.measure();
    this.place(i);
    const top = this.node.getBoundingClientRect().top + scrollY + Math.floor(i / this.columns) * this.step;
    if (top < scrollY + 70) scrollTo(0, top - 70);
    else if (top + this.step > scrollY + innerHeight) scrollTo(0, top + this.step - innerHeight + 8);
    const cell = this.cells.get(i);
    (cell.querySelector(".open") || cell).focus({ preventScroll: true });
  }

  key(e) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity,
      PageDown: this.columns * 4, PageUp: -this.columns * 4 };
    if (!(e.key in steps) || !this.total) return false;
    const inside = this.node.contains(document.activeElement);
    if (!inside && !["ArrowDown", "ArrowRight"].includes(e.key)) return false;
    e.preventDefault();
    if (inside && e.key === "ArrowUp" && this.current < this.columns) { $("text").focus(); return true; }
    this.focus(inside ? this.current + steps[e.key] : this.current);
    return true;
  }
}

// ---- one image large, with what is known about it ---------------------------------------------------------

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
  const when = r.taken || r.date; // the camera's, else the file's
  if (when) facts.push([r.taken ? "taken" : "file date", when.replace("T", " ").slice(0, 16)]);
  $("viewer-facts").replaceChildren(...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  if (!dialog.open) dialog.showModal();
}

export function viewerHide() {
  if (dialog.open) dialog.close();
  dialog.path = "";
}
