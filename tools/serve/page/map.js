// All images of an index as points: neighbours are similar. Words light up their neighbourhood, a lasso selects, hovering
// shows the image, and images replace points where they fit.
import { $, el, count, plural, debounce, token, downloadList } from "./dom.js";
import { get, latest, thumbUrl, show } from "./api.js";
import { Points } from "./points.js";
import { viewerShow } from "./grid.js";

const NEAR = 14, CELL = 84, THUMB = 56, LIT = 1000, LOADING = 8, SHOWN = 120;
const box = $("map-box"), over = $("map-over"), tip = $("map-tip");
const ask = latest();
let app, points, data = null, index = "", timer = 0, frame = 0;
let view = { x: 0, y: 0, scale: 1 }, lit = null, chosen = new Set(), lasso = null, hover = -1, cells = null;
const thumbs = new Map();
let loading = 0;

export function mapInit(a) {
  app = a;
  new ResizeObserver(() => soon()).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); soon(); });
  wirePointer();
  wireButtons();
}

export function mapShow() {
  if (!points) points = new Points($("map-points"));
  if (!app.indexes.length) { $("map-note").textContent = "The server has no index. Start it with --index FOLDER."; return; }
  if (index !== app.index()) { index = app.index(); data = null; chosen.clear(); showChosen(); load(); }
  else if (!data) load();
  soon();
}

export function mapHide() { clearTimeout(timer); tip.hidden = true; }

// ---- loading -----------------------------------------------------------------------------------------

async function load() {
  clearTimeout(timer);
  try {
    const answer = await get("/v1/map?" + new URLSearchParams({ index }));
    if (answer.state !== "ready") {
      wait(answer.progress || 0);
      timer = setTimeout(load, 700);
      return;
    }
    $("map-wait").hidden = true;
    take(answer);
  } catch (e) {
    $("map-wait").hidden = true;
    if (e.status === 429) { // the index is being made
      $("map-note").textContent = e.message;
      timer = setTimeout(load, 1500);
    } else app.fail(e.message);
  }
}

function wait(share) {
  $("map-wait").hidden = false;
  $("map-wait").querySelector("progress").value = share;
  $("map-wait").querySelector("p").textContent = `Computing the map: ${Math.round(100 * share)} %`;
}

function take(answer) {
  const n = answer.points.length, at = new Float32Array(2 * n);
  for (let i = 0; i < n; i++) { at[2 * i] = answer.points[i][0]; at[2 * i + 1] = answer.points[i][1]; }
  const number = new Map(answer.paths.map((p, i) => [p, i]));
  const folder = answer.paths.map((p) => p.split("/").slice(0, -1).join("/"));
  const names = [...new Set(folder)].sort();
  data = { n, at, paths: answer.paths, number, folder: folder.map((f) => names.indexOf(f)), names };
  points.setPositions(at);
  bins();
  fit();
  paint();
  showNote();
}

// Points by square, to find the nearest one without looking at all.
function bins() {
  const side = Math.max(1, Math.ceil(Math.sqrt(data.n / 4)));
  let low = [Infinity, Infinity], high = [-Infinity, -Infinity];
  for (let i = 0; i < 2 * data.n; i++) { low[i % 2] = Math.min(low[i % 2], data.at[i]); high[i % 2] = Math.max(high[i % 2], data.at[i]); }
  const size = Math.max(high[0] - low[0], high[1] - low[1], 1e-6) / side, list = new Map();
  for (let i = 0; i < data.n; i++) {
    const key = Math.floor((data.at[2 * i] - low[0]) / size) + 1e5 * Math.floor((data.at[2 * i + 1] - low[1]) / size);
    if (list.has(key)) list.get(key).push(i);
    else list.set(key, [i]);
  }
  cells = { low, high, size, list };
}

function nearest(x, y, reach) {
  let best = -1, least = reach * reach;
  const { low, size, list } = cells;
  for (let cy = Math.floor((y - reach - low[1]) / size); cy <= Math.floor((y + reach - low[1]) / size); cy++)
    for (let cx = Math.floor((x - reach - low[0]) / size); cx <= Math.floor((x + reach - low[0]) / size); cx++)
      for (const i of list.get(cx + 1e5 * cy) || []) {
        const dx = data.at[2 * i] - x, dy = data.at[2 * i + 1] - y, d = dx * dx + dy * dy;
        if (d < least) { least = d; best = i; }
      }
  return best;
}

// ---- the view ----------------------------------------------------------------------------------------

function fit() {
  if (!data) return;
  const { low, high } = cells, w = box.clientWidth, h = box.clientHeight;
  view = { x: (low[0] + high[0]) / 2, y: (low[1] + high[1]) / 2,
    scale: Math.min((w - 60) / Math.max(high[0] - low[0], 1e-6), (h - 60) / Math.max(high[1] - low[1], 1e-6)) };
  soon();
}

const toMap = (px, py) => [(px - box.clientWidth / 2) / view.scale + view.x, (py - box.clientHeight / 2) / view.scale + view.y];
const toBox = (i) => [(data.at[2 * i] - view.x) * view.scale + box.clientWidth / 2, (data.at[2 * i + 1] - view.y) * view.scale + box.clientHeight / 2];

function zoom(by, px = box.clientWidth / 2, py = box.clientHeight / 2) {
  const [x, y] = toMap(px, py);
  view.scale = Math.min(Math.max(view.scale * by, 20), 4e5);
  view.x = x - (px - box.clientWidth / 2) / view.scale;
  view.y = y - (py - box.clientHeight / 2) / view.scale;
  soon();
}

function pan(dx, dy) { view.x -= dx / view.scale; view.y -= dy / view.scale; soon(); }

function soon() { if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); }

// ---- drawing -----------------------------------------------------------------------------------------

const scratch = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function rgb(name) {
  scratch.fillStyle = token(name);
  scratch.fillRect(0, 0, 1, 1);
  return [...scratch.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255);
}

const mix = (a, b, t) => a.map((v, k) => v + (b[k] - v) * t);

function paint() {
  if (!data) return;
  const look = new Float32Array(4 * data.n), ink = rgb("--accent"), dim = mix(rgb("--card"), rgb("--dim"), 0.45);
  const palette = [0, 1, 2, 3, 4, 5, 6].map((k) => mix(rgb("--card"), rgb("--c" + k), 0.8)), pick = rgb("--warm");
  const size = data.n > 20000 ? 3.2 : data.n > 3000 ? 4.5 : 6;
  for (let i = 0; i < data.n; i++) {
    const glow = lit ? lit[i] : 0;
    let color = lit ? mix(dim, ink, glow) : data.names.length > 1 ? palette[data.folder[i] % 7] : palette[0], wide = size * (lit ? 0.8 + 1.4 * glow : 1);
    if (chosen.has(i)) { color = pick; wide = size * 1.7; }
    look.set(color, 4 * i);
    look[4 * i + 3] = wide;
  }
  points.setLook(look);
}

function draw() {
  const w = box.clientWidth, h = box.clientHeight, ratio = Math.min(2, devicePixelRatio || 1);
  if (!w || !data) return;
  points.draw(view, w, h, ratio);
  if (over.width !== Math.round(w * ratio) || over.height !== Math.round(h * ratio)) { over.width = Math.round(w * ratio); over.height = Math.round(h * ratio); }
  const c = over.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  if ($("map-images").checked) drawImages(c, w, h);
  if (lasso) drawLasso(c);
  if (hover >= 0) ring(c, hover);
}

function ring(c, i) {
  const [x, y] = toBox(i);
  c.strokeStyle = token("--ink");
  c.lineWidth = 2;
  c.beginPath();
  c.arc(x, y, 7, 0, 2 * Math.PI);
  c.stroke();
}

function drawLasso(c) {
  c.beginPath();
  lasso.forEach(([x, y], k) => (k ? c.lineTo(x, y) : c.moveTo(x, y)));
  c.closePath();
  c.globalAlpha = 0.12;
  c.fillStyle = token("--accent");
  c.fill();
  c.globalAlpha = 1;
  c.strokeStyle = token("--accent");
  c.lineWidth = 1.5;
  c.stroke();
}

// One image for each square of the map plane that is in sight, that of the point nearest to its middle: the squares are
// fixed to the map, so images stay when one pans. With words it is the brightest point, and dark squares show none.
function drawImages(c, w, h) {
  const unit = 2 ** Math.round(Math.log2(CELL / view.scale)), best = new Map();
  const [x0, y0] = toMap(-THUMB, -THUMB), [x1, y1] = toMap(w + THUMB, h + THUMB);
  for (let i = 0; i < data.n; i++) {
    const x = data.at[2 * i], y = data.at[2 * i + 1];
    if (x < x0 || x > x1 || y < y0 || y > y1 || (lit && lit[i] < 0.35)) continue;
    const cx = Math.floor(x / unit), cy = Math.floor(y / unit), key = cx + 1e6 * cy, now = best.get(key);
    const off = lit ? -lit[i] : Math.max(Math.abs(x / unit - cx - 0.5), Math.abs(y / unit - cy - 0.5));
    if (now === undefined || off < now.off) best.set(key, { i, off });
  }
  const side = Math.max(34, Math.min(THUMB, 0.66 * unit * view.scale));
  for (const { i } of best.values()) {
    const img = thumb(i);
    if (!img.ready) continue;
    const [x, y] = toBox(i), crop = Math.min(img.naturalWidth, img.naturalHeight);
    c.save();
    c.beginPath();
    c.roundRect(x - side / 2, y - side / 2, side, side, 7);
    c.clip();
    c.drawImage(img, (img.naturalWidth - crop) / 2, (img.naturalHeight - crop) / 2, crop, crop, x - side / 2, y - side / 2, side, side);
    c.restore();
    c.strokeStyle = chosen.has(i) ? token("--warm") : token("--card");
    c.lineWidth = chosen.has(i) ? 2.5 : 1.5;
    c.beginPath();
    c.roundRect(x - side / 2, y - side / 2, side, side, 7);
    c.stroke();
  }
}

function thumb(i) {
  const key = index + "\n" + i;
  let img = thumbs.get(key);
  if (img) return img;
  if (loading >= LOADING) return {};
  loading++;
  img = new Image();
  const done = (ok) => { loading--; img.ready = ok; soon(); };
  img.onload = () => done(true);
  img.onerror = () => done(false);
  show(img, thumbUrl(index, data.paths[i], 128));
  thumbs.set(key, img);
  if (thumbs.size > 2000) thumbs.delete(thumbs.keys().next().value);
  return img;
}

// ---- words -------------------------------------------------------------------------------------------

async function light() {
  const text = $("map-text").value.trim();
  if (!data) return;
  if (!text) { lit = null; paint(); showNote(); soon(); return; }
  try {
    const answer = await ask("/v1/search", { index, text, limit: Math.min(LIT, data.n), offset: 0 });
    if (!answer) return;
    app.fail("");
    lit = new Float32Array(data.n);
    const scores = answer.results.map((r) => r.score), high = scores[0] ?? 1;
    // The scale is the spread of the best: the top is 1, the thousandth (or the last) is 0.
    const low = scores[Math.min(scores.length - 1, Math.max(20, Math.round(data.n / 8)))] ?? 0;
    answer.results.forEach((r) => {
      const i = data.number.get(r.path);
      if (i !== undefined) lit[i] = Math.max(0, (r.score - low) / (high - low || 1)) ** 1.3;
    });
    paint();
    showNote(text);
    soon();
  } catch (e) {
    app.fail(e.message);
  }
}

function showNote(text) {
  const folders = data && data.names.length > 1 && !text ? `, coloured by ${plural(data.names.length, "folder")}` : "";
  $("map-note").textContent = data ? plural(data.n, "image") + folders + (text ? `, the ones nearest to “${text}” are bright` : "") : "";
}

// ---- pointer, keys, buttons --------------------------------------------------------------------------

function wirePointer() {
  const down = new Map();
  let pinch = 0, moved = 0;
  const at = (e) => { const r = box.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
  box.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(-e.deltaY * 0.0015), ...at(e)); }, { passive: false });
  box.addEventListener("pointerdown", (e) => {
    box.setPointerCapture(e.pointerId);
    down.set(e.pointerId, at(e));
    moved = 0;
    if (down.size === 1 && (e.shiftKey || $("lasso").getAttribute("aria-pressed") === "true")) lasso = [at(e)];
    pinch = 0;
  });
  box.addEventListener("pointermove", (e) => {
    const [x, y] = at(e), before = down.get(e.pointerId);
    if (!before) { if (e.pointerType === "mouse") point(x, y); return; }
    down.set(e.pointerId, [x, y]);
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (down.size === 2) {
      const [a, b] = [...down.values()], d = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (pinch) zoom(d / pinch, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
      pinch = d;
      lasso = null;
    } else if (lasso) { lasso.push([x, y]); soon(); }
    else { box.classList.add("dragging"); tip.hidden = true; pan(x - before[0], y - before[1]); }
  });
  const up = (e) => {
    box.classList.remove("dragging");
    if (!down.delete(e.pointerId)) return;
    if (lasso) { if (e.type === "pointerup") select(lasso); lasso = null; soon(); }
    else if (moved < 5 && e.type === "pointerup") tap(...at(e), e.pointerType);
  };
  box.addEventListener("pointerup", up);
  box.addEventListener("pointercancel", up);
  box.addEventListener("pointerleave", () => { hover = -1; tip.hidden = true; soon(); });
}

function point(x, y) {
  if (!data) return;
  const i = nearest(...toMap(x, y), NEAR / view.scale);
  if (i === hover) { if (i >= 0) placeTip(x, y); return; }
  hover = i;
  tip.hidden = i < 0;
  if (i >= 0) {
    show(tip.querySelector("img"), thumbUrl(index, data.paths[i], 320));
    tip.querySelector("figcaption").textContent = data.paths[i];
    placeTip(x, y);
  }
  soon();
}

function placeTip(x, y) {
  const w = box.clientWidth, h = box.clientHeight;
  tip.style.left = (x + 190 > w ? Math.max(0, x - 186) : x + 16) + "px";
  tip.style.top = Math.max(4, Math.min(y - 40, h - 230)) + "px";
}

function tap(x, y, kind) {
  if (!data) return;
  const i = nearest(...toMap(x, y), (kind === "mouse" ? NEAR : 30) / view.scale);
  if (i >= 0) viewerShow(index, { path: data.paths[i] });
  box.focus({ preventScroll: true });
}

function inside(polygon, x, y) {
  let odd = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [xi, yi] = polygon[i], [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) odd = !odd;
  }
  return odd;
}

function select(polygon) {
  if (!data || polygon.length < 3) return;
  chosen = new Set();
  for (let i = 0; i < data.n; i++) if (inside(polygon, ...toBox(i))) chosen.add(i);
  showChosen();
  paint();
}

function showChosen() {
  const list = [...chosen];
  $("map-chosen").hidden = !list.length;
  $("map-count").textContent = plural(list.length, "image") + (list.length > SHOWN ? `, ${SHOWN} shown` : "");
  $("map-list").replaceChildren(...list.slice(0, SHOWN).map((i) => {
    const img = el("img", { alt: data.paths[i], loading: "lazy" });
    show(img, thumbUrl(index, data.paths[i], 128));
    return el("div", { role: "listitem" }, el("button", { type: "button", "aria-label": "Open " + data.paths[i], onclick: () => viewerShow(index, { path: data.paths[i] }) }, img));
  }));
}

function wireButtons() {
  $("fit").onclick = fit;
  $("zoom-in").onclick = () => zoom(1.6);
  $("zoom-out").onclick = () => zoom(1 / 1.6);
  $("map-images").addEventListener("change", soon);
  $("lasso").onclick = () => {
    const on = $("lasso").getAttribute("aria-pressed") !== "true";
    $("lasso").setAttribute("aria-pressed", on);
    box.classList.toggle("drawing", on);
  };
  $("map-form").addEventListener("submit", (e) => { e.preventDefault(); light(); });
  $("map-text").addEventListener("input", debounce(light, 180));
  $("map-none").onclick = () => { chosen.clear(); showChosen(); paint(); soon(); };
  const list = () => [...chosen].map((i) => ({ path: data.paths[i] }));
  $("map-csv").onclick = () => downloadList("csv", list());
  $("map-json").onclick = () => downloadList("json", list());
  box.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
    if (move) { e.preventDefault(); pan(...move); }
    else if (e.key === "+" || e.key === "=") zoom(1.4);
    else if (e.key === "-") zoom(1 / 1.4);
    else if (e.key === "0") fit();
    else if (e.key === "Enter" && data) tap(box.clientWidth / 2, box.clientHeight / 2, "key");
  });
}
