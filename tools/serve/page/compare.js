// Classify and Compare: images against labels, and images against sentences. Both look at the same images, which are dropped once.
import { $, el, cosine, debounce, plural, dropZone, onPaste, chooser } from "./dom.js";
import { latest, readFiles, indexedData } from "./api.js";
import { someImages } from "./search.js";

const MOST = 64;
const LABELS = "dog\ncat\nbird\nfish\nperson\ncar\nhouse\ntree\nball\nfood", TEMPLATES = "a photo of a {}";
const SENTENCES = "a dog on the beach\na person riding a bicycle\nsomething red\na house in the snow";
const views = { classify: showClasses, compare: showCosines };
let app, images = [], refused = []; // { name, data }; names of files that the browser could not read, of the last ones added

const lines = (id) => $(id).value.split("\n").map((l) => l.trim()).filter(Boolean);

// ---- images ------------------------------------------------------------------------------------------

function setImages(next) {
  images = next.slice(0, MOST);
  for (const tab of Object.keys(views)) $(tab + "-clear").hidden = !images.length;
  cards();
  views[app.state.tab]?.();
}

const remove = (image) => el("button", { class: "remove", type: "button", "aria-label": "Remove " + image.name, onclick: () => setImages(images.filter((i) => i !== image)) }, "×");

// Adds what can be read, and names what cannot.
function addImages({ read, failed }) {
  refused = failed;
  app.unreadable(refused);
  setImages([...images, ...read]);
}

function wireArea(tab) {
  const files = (list) => readFiles(list).then(addImages);
  const paths = (list) => Promise.allSettled(list.map((p) => indexedData(app.index(), p))).then((done) => addImages({
    read: done.flatMap((d, i) => (d.status === "fulfilled" ? [{ name: list[i], data: d.value }] : [])),
    failed: list.filter((_, i) => done[i].status === "rejected"),
  }));
  dropZone($("view-" + tab), { onfiles: files, onpath: (p) => paths([p]) });
  onPaste(() => app.state.tab === tab, files);
  chooser($(tab + "-pick"), $(tab + "-file"), files);
  $(tab + "-some").onclick = () => someImages(6).then(paths, (e) => app.fail(e.message));
  $(tab + "-clear").onclick = () => { refused = []; app.unreadable(refused); setImages([]); };
}

// A text field whose words stay for the session.
function savedField(id, fallback, onchange) {
  $(id).value = sessionStorage.getItem("cloob-" + id) ?? fallback;
  $(id).addEventListener("input", () => { sessionStorage.setItem("cloob-" + id, $(id).value); onchange(); });
}

export function compareInit(a) {
  app = a;
  for (const tab of Object.keys(views)) wireArea(tab);
  const classes = debounce(showClasses, 150), cosines = debounce(showCosines, 150);
  savedField("labels", LABELS, classes);
  savedField("templates", TEMPLATES, classes);
  savedField("sentences", SENTENCES, cosines);
  $("hopfield").addEventListener("change", showCosines);
  $("scale").addEventListener("input", () => { $("scale-value").textContent = $("scale").value; cosines(); });
}

export function compareShow(s) {
  for (const tab of Object.keys(views)) $(tab + "-some").hidden = !app.indexes.length;
  $("hopfield").disabled = !app.indexes.length;
  cards();
  views[s.tab]();
}

// Asks with all images; the answer marks those that the server cannot read, which are then named.
async function ask(send, path, body, show) {
  const asked = images;
  try {
    const answer = await send(path, { images: asked.map((i) => i.data), errors: "skip", ...body });
    if (!answer || asked !== images) return;
    app.fail("");
    show(answer);
    app.unreadable([...refused, ...asked.filter((_, i) => answer.errors?.[i]).map((i) => i.name)]);
  } catch (e) {
    app.fail(e.message);
  }
}

// ---- classify: bars that change as one types -----------------------------------------------------------

const askClasses = latest(), SHOWN = 5;

function cards() {
  $("classify-cards").replaceChildren(...images.map((image) => el("div", { class: "card" },
    el("img", { src: image.data, alt: image.name, title: image.name }), el("div", { class: "bars" }), remove(image))));
}

function bar(label, p, first) {
  const percent = 100 * p;
  return el("div", { class: first ? "bar win" : "bar" }, el("span", { title: label }, label),
    el("b", {}, (percent >= 9.95 || percent === 0 ? Math.round(percent) : percent.toFixed(1)) + " %"),
    el("div", {}, el("i", { vars: { width: percent + "%" } })));
}

function showClasses() {
  const labels = [...new Set(lines("labels"))], templates = lines("templates"), note = $("classify-note");
  if (!images.length) { note.textContent = "Each image gets the label whose words are most similar to it."; return; }
  if (labels.length < 2) { note.textContent = "Write two labels or more."; return; }
  if (templates.some((t) => !t.includes("{}"))) { note.textContent = "Each prompt needs {} where the label goes."; return; }
  ask(askClasses, "/v1/classify", { labels, templates: templates.length ? templates : ["{}"] }, (answer) => {
    note.textContent = `${plural(images.length, "image")}, ${labels.length} labels, chance ${(100 / labels.length).toFixed(0)} %`;
    const bars = document.querySelectorAll("#classify-cards .bars");
    answer.results.forEach((r, i) => bars[i]?.replaceChildren(...(answer.errors?.[i] ? [el("p", { class: "warn" }, answer.errors[i])]
      : r.top.slice(0, SHOWN).map((t, k) => bar(t.label, t.p, k === 0)))));
  });
}

// ---- compare: the matrix of cosines, of the embeddings and after Hopfield retrieval -----------------------

const askCosines = latest();

function showCosines() {
  const sentences = lines("sentences"), note = $("compare-note");
  if (!images.length || !sentences.length) {
    $("matrices").replaceChildren();
    note.textContent = images.length ? "Write a sentence." : "Each cell is the cosine of an image and a sentence.";
    return;
  }
  const hopfield = $("hopfield").checked ? { scale: Number($("scale").value), index: app.index() } : null;
  ask(askCosines, "/v1/similarity", { texts: sentences, hopfield }, (answer) => {
    note.textContent = "A frame marks the sentence that fits an image best.";
    const tables = [matrix("Similarity of embeddings", answer.similarity, sentences)];
    if (answer.retrieved) tables.push(matrix("After Hopfield retrieval over " + app.index().split("/").pop(), answer.retrieved, sentences));
    $("matrices").replaceChildren(...tables);
  });
}

function matrix(title, values, sentences) {
  const all = values.flat().filter((v) => v !== null), low = Math.min(...all), high = Math.max(...all), span = high - low || 1;
  const head = el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "image")), ...sentences.map((s) => el("th", { scope: "col" }, s)));
  const rows = values.map((row, i) => {
    const image = images[i], best = row && Math.max(...row);
    const name = el("th", { scope: "row" }, el("img", { src: image.data, alt: image.name, title: image.name }), remove(image));
    if (!row) return el("tr", {}, name, el("td", { colSpan: sentences.length, class: "unread" }, "cannot be read"));
    return el("tr", {}, name, ...row.map((v, j) => el("td", { class: v === best ? "best" : "", title: `${image.name} and “${sentences[j]}”: ${v.toFixed(4)}`,
      vars: { "--v": (4 + 46 * (v - low) / span).toFixed(1) } }, cosine(v))));
  });
  return el("div", { class: "wide", tabIndex: 0, role: "region", "aria-label": title },
    el("table", { class: "sim", vars: { "--columns": sentences.length } }, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...rows)));
}
