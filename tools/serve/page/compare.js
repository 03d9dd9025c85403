// Images against sentences: the matrix of similarities, as CLIP sees it and after Hopfield retrieval as CLOOB does.
import { $, el, cosine, debounce } from "./dom.js";
import { latest } from "./api.js";
import { pile, onPile, pileArea, removeImage } from "./pile.js";

const ask = latest();
const SENTENCES = "a dog on the beach\na person riding a bicycle\nsomething red\na house in the snow";
let app;

export function compareInit(a) {
  app = a;
  $("sentences").value = sessionStorage.getItem("cloob-sentences") ?? SENTENCES;
  pileArea(app, "compare");
  const soon = debounce(run, 150);
  $("sentences").addEventListener("input", () => { sessionStorage.setItem("cloob-sentences", $("sentences").value); soon(); });
  $("hopfield").addEventListener("change", run);
  $("scale").addEventListener("input", () => { $("scale-value").textContent = $("scale").value; soon(); });
  onPile(() => { if (app.state.tab === "compare") run(); });
}

export function compareShow() {
  $("compare-some").hidden = !app.indexes.length;
  $("hopfield").disabled = !app.indexes.length;
  run();
}

const texts = () => $("sentences").value.split("\n").map((l) => l.trim()).filter(Boolean);

async function run() {
  const images = pile(), sentences = texts(), note = $("compare-note");
  if (!images.length || !sentences.length) {
    $("matrices").replaceChildren();
    note.textContent = images.length ? "Write a sentence." : "Each cell is the cosine of an image and a sentence.";
    return;
  }
  const hopfield = $("hopfield").checked ? { scale: Number($("scale").value), index: app.index() } : null;
  try {
    const answer = await ask("/v1/similarity", { images: images.map((i) => i.data), texts: sentences, hopfield });
    if (!answer) return;
    app.fail("");
    note.textContent = "A frame marks the sentence that fits an image best.";
    const tables = [matrix("Similarity of embeddings", answer.similarity, images, sentences)];
    if (answer.retrieved) tables.push(matrix("After Hopfield retrieval over " + app.index().split("/").pop(), answer.retrieved, images, sentences));
    $("matrices").replaceChildren(...tables);
  } catch (e) {
    app.fail(e.message);
  }
}

function matrix(title, values, images, sentences) {
  const all = values.flat(), low = Math.min(...all), high = Math.max(...all), span = high - low || 1;
  const head = el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "image")), ...sentences.map((s) => el("th", { scope: "col" }, s)));
  const rows = values.map((row, i) => {
    const best = Math.max(...row);
    return el("tr", {}, el("th", { scope: "row" }, el("img", { src: images[i].data, alt: images[i].name, title: images[i].name }),
      el("button", { type: "button", "aria-label": "Remove " + images[i].name, onclick: () => removeImage(images[i]) }, "×")),
      ...row.map((v, j) => el("td", { class: v === best ? "best" : "", title: `${images[i].name} and “${sentences[j]}”: ${v.toFixed(4)}`, vars: { "--v": (4 + 46 * (v - low) / span).toFixed(1) } }, cosine(v))));
  });
  return el("div", { class: "wide", tabIndex: 0, role: "region", "aria-label": title },
    el("table", { class: "sim", vars: { "--columns": sentences.length } }, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...rows)));
}
