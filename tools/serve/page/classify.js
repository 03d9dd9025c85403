// Images against labels: bars that change as one types.
import { $, el, debounce, plural } from "./dom.js";
import { latest } from "./api.js";
import { pile, onPile, pileArea, removeImage } from "./pile.js";

const ask = latest(), SHOWN = 5;
const LABELS = "dog\ncat\nbird\nfish\nperson\ncar\nhouse\ntree\nball\nfood", TEMPLATES = "a photo of a {}";
let app;

export function classifyInit(a) {
  app = a;
  const saved = (id, fallback) => { $(id).value = sessionStorage.getItem("cloob-" + id) ?? fallback; };
  saved("labels", LABELS);
  saved("templates", TEMPLATES);
  pileArea(app, "classify");
  const soon = debounce(run, 150);
  for (const id of ["labels", "templates"])
    $(id).addEventListener("input", () => { sessionStorage.setItem("cloob-" + id, $(id).value); soon(); });
  onPile(() => { cards(); if (app.state.tab === "classify") run(); });
}

export function classifyShow() {
  $("classify-some").hidden = !app.indexes.length;
  cards();
  run();
}

const lines = (id) => $(id).value.split("\n").map((l) => l.trim()).filter(Boolean);

function cards() {
  $("classify-cards").replaceChildren(...pile().map((image) => el("div", { class: "card" },
    el("img", { src: image.data, alt: image.name, title: image.name }), el("div", { class: "bars" }),
    el("button", { class: "remove", type: "button", "aria-label": "Remove " + image.name, onclick: () => removeImage(image) }, "×"))));
}

function bar(label, p, first) {
  const percent = 100 * p;
  return el("div", { class: first ? "bar win" : "bar" }, el("span", { title: label }, label),
    el("b", {}, (percent >= 9.95 || percent === 0 ? Math.round(percent) : percent.toFixed(1)) + " %"),
    el("div", {}, el("i", { vars: { width: percent + "%" } })));
}

async function run() {
  const labels = [...new Set(lines("labels"))], templates = lines("templates"), images = pile(), note = $("classify-note");
  if (!images.length) { note.textContent = "Each image gets the label whose words are most similar to it."; return; }
  if (labels.length < 2) { note.textContent = "Write two labels or more."; return; }
  if (templates.some((t) => !t.includes("{}"))) { note.textContent = "Each prompt needs {} where the label goes."; return; }
  try {
    const answer = await ask("/v1/classify", { images: images.map((i) => i.data), labels, templates: templates.length ? templates : ["{}"] });
    if (!answer) return;
    app.fail("");
    note.textContent = `${plural(images.length, "image")}, ${labels.length} labels, chance ${(100 / labels.length).toFixed(0)} %`;
    const bars = document.querySelectorAll("#classify-cards .bars");
    answer.results.forEach((r, i) => bars[i]?.replaceChildren(...r.top.slice(0, SHOWN).map((t, k) => bar(t.label, t.p, k === 0))));
  } catch (e) {
    app.fail(e.message);
  }
}
