// A small line chart on a canvas: several series, a linear or logarithmic axis, values under the pointer.
import { el, token } from "./dom.js";

const LEFT = 52, BOTTOM = 22, TOP = 6, RIGHT = 8;

export function short(v) {
  const size = Math.abs(v);
  if (v === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return (+v.toPrecision(3)).toExponential().replace("e+", "e");
  return String(+v.toPrecision(4));
}

// At 1, 2 or 5 times a power of ten; powers of ten on a logarithmic axis.
function ticks(low, high, wanted, log) {
  const list = [];
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), every = Math.max(1, Math.ceil((last - first) / wanted));
    for (let e = first; e <= last; e += every) list.push(10 ** e);
    return list.length > 1 ? list : ticks(low, high, wanted, false);
  }
  const raw = (high - low || Math.abs(high) || 1) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) list.push(k * step);
  return list;
}

export class Lines {
  constructor(title) {
    this.canvas = el("canvas", { role: "img" });
    this.value = el("output", {});
    this.node = el("figure", { class: "chart" }, el("figcaption", {}, el("span", {}, title), this.value), this.canvas);
    this.title = title;
    this.series = [];
    this.hover = null;
    this.canvas.addEventListener("pointermove", (e) => { this.hover = e.offsetX; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // series: [{ name, color (a token), points: [[x, y], ...] by x, faint }]
  set(series, log) {
    this.series = series;
    this.log = log && series.every((s) => s.points.every((p) => p[1] > 0));
    const last = series.filter((s) => !s.faint).map((s) => s.name + " " + short(s.points[s.points.length - 1][1]));
    this.canvas.setAttribute("aria-label", `${this.title}: last values: ${last.join(", ")}`);
    this.draw();
  }

  range() {
    const xs = this.series.flatMap((s) => [s.points[0][0], s.points[s.points.length - 1][0]]);
    let low = Infinity, high = -Infinity;
    for (const s of this.series) for (const [, y] of s.points) { if (y < low) low = y; if (y > high) high = y; }
    const pad = this.log ? 0 : (high - low || Math.abs(high) || 1) * 0.05;
    Object.assign(this, { x0: Math.min(...xs), x1: Math.max(...xs), y0: low - pad, y1: high + pad });
    if (this.x1 === this.x0) this.x1 = this.x0 + 1;
  }

  draw() {
    const w = this.canvas.clientWidth, h = this.canvas.clientHeight, ratio = Math.min(2, devicePixelRatio || 1);
    if (!w || !this.series.length) return;
    this.canvas.width = Math.round(w * ratio);
    this.canvas.height = Math.round(h * ratio);
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    this.range();
    const scale = (v) => (this.log ? Math.log10(v) : v), y0 = scale(this.y0), y1 = scale(this.y1) === y0 ? y0 + 1 : scale(this.y1);
    const X = (x) => LEFT + ((x - this.x0) / (this.x1 - this.x0)) * (w - LEFT - RIGHT);
    const Y = (y) => h - BOTTOM - ((scale(y) - y0) / (y1 - y0)) * (h - BOTTOM - TOP);
    this.axes(c, X, Y, w, h);
    for (const s of this.series) this.line(c, s, X, Y);
    this.readout(c, X, Y, h);
  }

  axes(c, X, Y, w, h) {
    c.font = "11px ui-monospace, monospace";
    c.strokeStyle = token("--line");
    c.fillStyle = token("--dim");
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const t of ticks(this.y0, this.y1, 4, this.log)) {
      const y = Y(t);
      if (y < TOP - 2 || y > h - BOTTOM + 2) continue;
      c.beginPath();
      c.moveTo(LEFT, y);
      c.lineTo(w - RIGHT, y);
      c.stroke();
      c.fillText(short(t), LEFT - 6, y);
    }
    c.textAlign = "center";
    c.textBaseline = "alphabetic";
    for (const t of ticks(this.x0, this.x1, Math.max(2, Math.floor(w / 90)), false)) c.fillText(short(t), Math.min(X(t), w - 18), h - 6);
  }

  line(c, s, X, Y) {
    c.strokeStyle = c.fillStyle = token(s.color);
    c.lineWidth = s.faint ? 1 : 1.8;
    c.globalAlpha = s.faint ? 0.3 : 1;
    c.lineJoin = "round";
    c.beginPath();
    s.points.forEach(([x, y], i) => (i ? c.lineTo(X(x), Y(y)) : c.moveTo(X(x), Y(y))));
    c.stroke();
    if (s.points.length < 30) for (const [x, y] of s.points) { c.beginPath(); c.arc(X(x), Y(y), 2.4, 0, 7); c.fill(); }
    c.globalAlpha = 1;
  }

  readout(c, X, Y, h) {
    const main = this.series.filter((s) => !s.faint);
    const at = (s) => {
      if (this.hover === null) return s.points[s.points.length - 1];
      return s.points.reduce((a, b) => (Math.abs(X(b[0]) - this.hover) < Math.abs(X(a[0]) - this.hover) ? b : a));
    };
    const found = main.map(at);
    this.value.textContent = (this.hover !== null ? short(found[0][0]) + ": " : "") + found.slice(0, 3).map((p) => short(p[1])).join("  ");
    if (this.hover === null) return;
    c.strokeStyle = token("--dim");
    c.beginPath();
    c.moveTo(X(found[0][0]), TOP);
    c.lineTo(X(found[0][0]), h - BOTTOM);
    c.stroke();
    found.forEach(([x, y], k) => { c.fillStyle = token(main[k].color); c.beginPath(); c.arc(X(x), Y(y), 3.5, 0, 7); c.fill(); });
  }
}
