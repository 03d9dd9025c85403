// The search view: the query as terms, its filters, the grid of results.
import { $, el, count, plural, debounce, downloadList, dropZone, onPaste, chooser } from "./dom.js";
import { latest, post, thumbUrl, readFiles, show } from "./api.js";
import { request, storeImage, imageData } from "./state.js";
import { Grid, viewerInit, viewerShow, viewerHide } from "./grid.js";

const ask = latest();
let app, grid, sent = "", again = 0;
let excluding = false; // the words being typed are to be excluded: they do not change the query until Enter

export function searchInit(a) {
  app = a;
  grid = new Grid($("grid"), { open, like: (r) => more(r.path, 1), choose, page });
  viewerInit({ like: more, step, close: () => (app.state.open && history.state?.opened ? history.back() : app.go({ open: "" })) });
  wireQuery();
  wireFilters();
  const files = async (list) => {
    const { read, failed } = await readFiles(list);
    if (read.length) addTerms(read.map((i) => ({ kind: "image", value: storeImage(i.data), weight: 1 })));
    app.unreadable(failed);
  };
  dropZone(document.body, { onfiles: (f) => (app.state.tab === "search" ? files(f) : null), onpath: (p) => (app.state.tab === "search" ? more(p, 1) : null) });
  onPaste(() => app.state.tab === "search", files);
  chooser($("pick"), $("file"), files);
  $("csv").onclick = () => save("csv");
  $("json").onclick = () => save("json");
  $("unchoose").onclick = () => { grid.chosen.clear(); grid.repaint(); showChosen(); };
}

function wireQuery() {
  const text = $("text"), type = debounce(() => { if (!excluding) app.go({ text: text.value }, "replace"); }, 130);
  text.addEventListener("input", () => { offerExclude(); type(); });
  $("query").addEventListener("submit", (e) => { e.preventDefault(); excluding ? wordsToTerm(-1) : app.go({ text: text.value }); });
  text.addEventListener("keydown", (e) => {
    if (e.key === "Backspace" && !text.value && app.state.terms.length) app.go({ terms: app.state.terms.slice(0, -1) });
    if (e.key === "Escape" && excluding) { e.stopPropagation(); setExcluding(false); }
  });
  $("plus").onclick = () => wordsToTerm(1);
  $("minus").onclick = exclude;
  $("clear").onclick = () => { setExcluding(false); app.go({ text: "", terms: [], min: 0, folder: "", after: "", before: "" }); };
}

function wireFilters() {
  const min = $("min");
  const change = debounce(() => app.go({ min: Number(min.value) }, "replace"), 80);
  min.addEventListener("input", () => { showMin(); change(); });
  for (const name of ["folder", "after", "before"]) $(name).addEventListener("change", () => app.go({ [name]: $(name).value }));
  const toggle = $("filters-toggle");
  toggle.onclick = () => toggle.setAttribute("aria-expanded", toggle.getAttribute("aria-expanded") !== "true");
}

const hasQuery = () => app.state.terms.some((t) => t.weight > 0);

// Exclude: words next to a query are excluded from it; words alone are the query, which stays, and the next words are excluded.
function exclude() {
  const words = $("text").value.trim();
  if (words && hasQuery()) return wordsToTerm(-1);
  if (excluding) return setExcluding(false);
  setExcluding(true);
  if (words) addTerms([{ kind: "text", value: words, weight: 1 }], "");
}

function setExcluding(on) {
  const text = $("text");
  excluding = on;
  text.value = on ? "" : app.state.text;
  text.placeholder = on ? "Words to exclude" : "Describe an image, or drop one here";
  text.setAttribute("aria-label", on ? "Words to exclude" : "Describe an image");
  $("minus").setAttribute("aria-pressed", on);
  text.focus();
  offerExclude();
}

function offerExclude() { $("minus").disabled = !excluding && !hasQuery() && !$("text").value.trim(); }

function wordsToTerm(weight) {
  const value = $("text").value.trim();
  $("text").value = "";
  setExcluding(false);
  $("text").value = "";
  if (value) addTerms([{ kind: "text", value, weight }], "");
}

function addTerms(terms, text = app.state.text) {
  app.go({ tab: "search", open: "", text, terms: [...app.state.terms, ...terms] });
}

// The image alone for "more"; together with the rest of the query for "less".
function more(path, weight) {
  const term = { kind: "like", value: path, weight };
  scrollTo(0, 0);
  if (weight > 0) app.go({ tab: "search", open: "", text: "", terms: [term] });
  else addTerms([term]);
}

// ---- terms as chips ----------------------------------------------------------------------------------

function chip(term, i) {
  const change = (t) => app.go({ terms: app.state.terms.map((old, k) => (k === i ? t : old)) });
  const words = term.kind === "text" ? term.value : term.kind === "like" ? "like " + term.value.split("/").pop() : "this image";
  let image = null;
  if (term.kind !== "text") {
    image = el("img", { alt: "" });
    if (term.kind === "image") image.src = imageData(term.value);
    else show(image, thumbUrl(app.index(), term.value, 64));
  }
  const size = Math.abs(term.weight), sign = term.weight < 0 ? "−" : "+";
  const toggle = el("button", { type: "button", title: "Click: more or less of it. Up and down keys: how much",
    "aria-label": `${term.weight < 0 ? "less of" : "more of"} ${words}, weight ${size}. Switch between more and less`,
    onclick: () => change({ ...term, weight: -term.weight }),
    onkeydown: (e) => {
      if (e.key !== "ArrowUp" && e.key !== "ArrowDown") return;
      e.preventDefault();
      e.stopPropagation();
      const next = Math.min(3, Math.max(0.25, size + (e.key === "ArrowUp" ? 0.25 : -0.25)));
      change({ ...term, weight: Math.sign(term.weight) * next });
      $("chips").querySelectorAll(".chip")[i]?.querySelector("button").focus();
    } }, sign + " ", image, el("span", {}, words), size === 1 ? null : el("b", {}, "×" + size));
  const remove = el("button", { type: "button", "aria-label": "Remove " + words, onclick: () => { app.go({ terms: app.state.terms.filter((_, k) => k !== i) }); $("text").focus(); } }, "×");
  return el("span", { class: term.weight < 0 ? "chip less" : "chip" }, toggle, remove);
}

function showMin() { $("min-value").textContent = Number($("min").value) > 0 ? Number($("min").value).toFixed(2) : "any"; }

function showControls(s) {
  $("chips").replaceChildren(...s.terms.map(chip));
  if (!excluding && $("text").value.trim() !== s.text.trim()) $("text").value = s.text;
  offerExclude();
  $("min").value = s.min;
  showMin();
  $("after").value = s.after;
  $("before").value = s.before;
  const filters = [s.min, s.folder, s.after, s.before].filter(Boolean).length;
  $("filters-toggle").textContent = filters ? `Filters (${filters})` : "Filters";
  $("clear").hidden = !(s.text || s.terms.length || s.min || s.folder || s.after || s.before);
}

export function fillFolders(folders) {
  const names = (Array.isArray(folders) ? folders : []).map((f) => (typeof f === "string" ? { name: f } : { name: f.name ?? f.path, images: f.images ?? f.count }));
  $("folder").replaceChildren(el("option", { value: "" }, "all folders"),
    ...names.filter((f) => f.name).map((f) => el("option", { value: f.name }, f.name + (f.images ? ` (${count(f.images)})` : ""))));
  $("folder").hidden = names.length < 1;
  $("folder").value = app.state.folder;
}

// ---- asking and showing ------------------------------------------------------------------------------

export async function searchShow(s) {
  showControls(s);
  $("folder").value = s.folder;
  const body = request(s, app.index()), now = JSON.stringify(body);
  if (!app.indexes.length) return noIndex();
  if (now !== sent) {
    sent = now;
    await search(body);
  }
  showOpen(s);
}

async function search(body) {
  $("grid").setAttribute("aria-busy", "true");
  try {
    const answer = await ask("/v1/search", { ...body, limit: 120, offset: 0 });
    if (!answer) return;
    app.fail("");
    grid.reset(app.index(), answer.total, scored(answer.results, body));
    showFound(answer, body);
  } catch (e) {
    sent = "";
    grid.reset(app.index(), 0, []);
    $("found").textContent = "";
    if (e.status !== 429) return app.fail(e.message);
    $("found").textContent = e.message; // an index that is being made, or a busy server: ask again
    clearTimeout(again);
    again = setTimeout(() => app.refresh(), 1500);
  } finally {
    $("grid").removeAttribute("aria-busy");
  }
}

// Without a question there is nothing to be similar to: no scores.
const scored = (results, body) => (asks(body) ? results : results.map((r) => ({ ...r, score: undefined })));

async function page(offset, limit) {
  try {
    const body = request(app.state, app.index());
    return scored((await post("/v1/search", { ...body, limit, offset })).results, body);
  } catch (e) {
    app.fail(e.message);
    return null;
  }
}

const asks = (b) => b.text || b.terms;

function showFound(answer, body) {
  const filtered = body.threshold || body.folder || body.after || body.before;
  $("found").textContent = plural(answer.total, "image") + (asks(body) && typeof answer.took_ms === "number" ? `, ${answer.took_ms < 10 ? answer.took_ms.toFixed(1) : Math.round(answer.took_ms)} ms` : "");
  const empty = $("nothing");
  empty.hidden = answer.total > 0;
  if (answer.total === 0) {
    const why = body.threshold ? `No image has a similarity of ${body.threshold.toFixed(2)} or more. Lower the threshold, or ask for something else.`
      : filtered ? "No image passes the filters. Take a longer span of time or all folders." : "The index holds no images.";
    empty.replaceChildren(why);
  }
  showChosen();
}

function noIndex() {
  grid.reset("", 0, []);
  $("nothing").hidden = false;
  $("nothing").replaceChildren("The server has no index to search. Start it with one: ", el("kbd", {}, "cloob serve --checkpoint MODEL --index FOLDER"),
    ". Classify and Compare work without.");
}

// ---- open, walk, select ------------------------------------------------------------------------------

function open(i) {
  const r = grid.items[i];
  grid.mark(i);
  if (r) app.go({ open: r.path }, app.state.open ? "replace" : "push", { opened: true });
}

function step(by) {
  const i = grid.items.findIndex((r) => r && r.path === app.state.open) + by;
  if (grid.items[i]) open(i);
}

function showOpen(s) {
  if (!s.open) {
    viewerHide();
    return;
  }
  const r = grid.items.find((x) => x && x.path === s.open) || { path: s.open };
  viewerShow(app.index(), r);
}

function choose(i) {
  const r = grid.items[i];
  if (!r) return;
  if (!grid.chosen.delete(r.path)) grid.chosen.set(r.path, r);
  grid.repaint();
  showChosen();
}

function showChosen() {
  const n = grid.chosen.size;
  $("chosen").textContent = n ? plural(n, "image") + " selected" : "";
  $("unchoose").hidden = !n;
  for (const id of ["csv", "json"]) {
    $(id).hidden = !grid.total && !n;
    $(id).title = n ? `Download the ${plural(n, "selected image")} as ${id.toUpperCase()}` : `Download all results as ${id.toUpperCase()}`;
    $(id).setAttribute("aria-label", $(id).title);
  }
}

const MOST = 10000;

async function save(format) {
  let list = [...grid.chosen.values()];
  for (let offset = 0; !grid.chosen.size && offset < Math.min(grid.total, MOST); offset += 500) {
    const results = await page(offset, 500);
    if (!results || !results.length) break;
    list = list.concat(results);
    if (results.length < 500) offset += results.length - 500; // the server gives fewer a page
  }
  downloadList(format, list);
}

// Keys outside of text fields.
export function searchKey(e) {
  if (grid.key(e)) return;
  const inside = grid.node.contains(document.activeElement), r = grid.items[grid.current];
  if (e.key === "m" && inside && r) more(r.path, 1);
  else if (e.key === "x" && inside && r) choose(grid.current);
  else if (e.key === "Escape" && (app.state.text || app.state.terms.length)) history.length > 1 ? history.back() : app.go({ text: "", terms: [] });
}

export const someImages = async (n) => {
  const answer = await post("/v1/search", { index: app.index(), limit: n, offset: 0, ...(app.state.text ? { text: app.state.text } : {}) });
  return answer.results.map((r) => r.path);
};
