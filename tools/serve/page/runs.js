// Training runs below --logs, live: curves of the runs that are ticked, numbers for what has one point only.
import { $, el, token, count } from "./dom.js";
import { get } from "./api.js";
import { Lines, short } from "./lines.js";

const EVERY = 2000, ORDER = ["train/loss", "val/loss", "lr", "train/lr"];
let app, timer = 0, list = [], read = new Map();
const charts = new Map();

export function runsInit(a) {
  app = a;
  $("smooth").addEventListener("input", () => { $("smooth-value").textContent = Number($("smooth").value) ? Number($("smooth").value).toFixed(2) : "none"; drawAll(); });
  $("log-scale").addEventListener("change", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
}

export function runsShow() { poll(); }
export function runsHide() { clearTimeout(timer); }

const nameOf = (r) => (typeof r === "string" ? r : r.name);
const ticked = () => { const asked = app.state.runs.filter((n) => list.some((r) => nameOf(r) === n)); return asked.length ? asked : list.slice(0, 1).map(nameOf); };
const colorOf = (name) => "--c" + (list.findIndex((r) => nameOf(r) === name) % 8);

async function poll() {
  clearTimeout(timer);
  try {
    list = (await get("/v1/runs")).runs || [];
    showList();
    const names = ticked();
    const all = await Promise.all(names.map((n) => get("/v1/runs/" + encodeURIComponent(n))));
    read = new Map(names.map((n, i) => [n, all[i]]));
    app.fail("");
    $("runs-note").textContent = list.length ? "" : "No runs yet. They appear here when a training writes below the --logs folder.";
    drawAll();
  } catch (e) {
    if (e.status === 404) $("runs-note").textContent = "Start the server with --logs DIR to watch trainings here.";
    else app.fail(e.message);
  }
  if (app.state.tab === "runs") timer = setTimeout(poll, EVERY);
}

function showList() {
  const names = new Set(ticked()), key = JSON.stringify([list, [...names]]);
  if (key === $("run-list").dataset.key) return;
  $("run-list").dataset.key = key;
  const focused = document.activeElement?.value;
  $("run-list").replaceChildren(...list.map((r) => {
    const name = nameOf(r), box = el("input", { type: "checkbox", value: name, checked: names.has(name), onchange: tick });
    return el("label", {}, box, el("i", { vars: names.has(name) ? { background: token(colorOf(name)) } : {} }), el("span", { title: name }, name),
      r.live ? el("span", { class: "badge ok" }, "live") : el("span", { class: "dim small" }, r.epoch !== undefined ? "epoch " + r.epoch : ""));
  }));
  if (focused) $("run-list").querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
}

function tick() {
  const names = [...$("run-list").querySelectorAll("input:checked")].map((i) => i.value);
  app.go({ runs: names }, "replace");
}

function smoothed(points, weight) {
  let mean = 0, norm = 0;
  return points.map(([x, y]) => {
    mean = weight * mean + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return [x, mean / norm];
  });
}

// Series by key over the runs that are ticked, those of several points first.
function collect() {
  const keys = new Map();
  for (const [run, d] of read)
    for (const [key, points] of Object.entries(d.series || {})) {
      const good = points.filter((p) => Number.isFinite(p[0]) && Number.isFinite(p[1]));
      if (good.length) keys.set(key, [...(keys.get(key) || []), { run, points: good }]);
    }
  const rank = (k) => { const i = ORDER.indexOf(k); return i < 0 ? ORDER.length : i; };
  return [...keys].sort((a, b) => rank(a[0]) - rank(b[0]) || a[0].localeCompare(b[0]));
}

function drawAll() {
  const weight = Number($("smooth").value), all = collect();
  const many = all.filter(([, s]) => s.some((r) => r.points.length > 1)), single = all.filter(([, s]) => s.every((r) => r.points.length === 1));
  for (const [key, chart] of charts) if (!many.some(([k]) => k === key)) { chart.node.remove(); charts.delete(key); }
  for (const [key, runs] of many) {
    if (!charts.has(key)) { charts.set(key, new Lines(key)); $("charts").append(charts.get(key).node); }
    const series = runs.flatMap(({ run, points }) => {
      const color = colorOf(run);
      return weight && points.length > 20 ? [{ name: run, color, points, faint: true }, { name: run, color, points: smoothed(points, weight) }] : [{ name: run, color, points }];
    });
    charts.get(key).set(series, $("log-scale").checked && /loss/.test(key));
  }
  $("tiles").replaceChildren(...single.flatMap(([key, runs]) => runs.map(({ run, points }) => el("div", { class: "tile" }, el("b", {}, short(points[0][1])), el("span", {}, key + (read.size > 1 ? ", " + run : ""))))));
  showParams();
}

function showParams() {
  const first = [...read.values()][0], params = Object.entries(first?.params || {});
  $("run-params").hidden = !params.length;
  $("run-params").querySelector("summary").textContent = `Settings of ${[...read.keys()][0]} (${count(params.length)})`;
  $("run-params").querySelector("tbody").replaceChildren(...params.map(([k, v]) => el("tr", {}, el("th", { scope: "row" }, k), el("td", {}, String(v)))));
}
