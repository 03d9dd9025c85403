// The page: one state, stored in the address bar; views that show it; keys.
import { $, el, count } from "./dom.js";
import { get } from "./api.js";
import { read, address } from "./state.js";
import { searchInit, searchShow, searchKey, fillFolders } from "./search.js";
import { compareInit, compareShow } from "./compare.js";
import { mapInit, mapShow, mapHide } from "./map.js";
import { runsInit, runsShow, runsHide } from "./runs.js";

const VIEWS = {
  search: { title: "Search", show: searchShow },
  classify: { title: "Classify", show: compareShow },
  compare: { title: "Compare", show: compareShow },
  map: { title: "Map", show: mapShow, hide: mapHide },
  runs: { title: "Runs", show: runsShow, hide: runsHide },
};

const app = {
  state: read(), indexes: [],
  // The index in use: as the address says, else the first.
  index() { return this.current()?.name ?? ""; },
  current() { return this.indexes.find((i) => i.name === this.state.index) ?? this.indexes[0]; },
  // Changes the state. how: "push" makes a step that Back undoes, "replace" does not.
  go(change, how = "push", note = null) {
    const next = { ...this.state, ...change }, url = address(next);
    const same = url === address(this.state);
    this.state = next;
    if (!same) history[how === "push" ? "pushState" : "replaceState"](how === "push" ? note : history.state, "", url);
    render();
  },
  // Asks which indexes there are, then shows the state again.
  async refresh() {
    try {
      this.indexes = (await get("/v1/indexes")).indexes;
    } catch (e) {
      this.fail(e.message);
    }
    showIndexes();
    render();
  },
  // Names files that cannot be read; what the others give is shown.
  unreadable(names) {
    const shown = names.length > 3 ? names.slice(0, 3).join(", ") + " and " + (names.length - 3) + " more" : names.join(", ");
    $("unreadable").hidden = !names.length;
    $("unreadable").textContent = shown + (names.length > 1 ? " are not images" : " is not an image") + " that can be read.";
  },
  fail(message) {
    $("failure").hidden = !message;
    $("failure").textContent = message;
  },
};

let shown = "";

function render() {
  const s = app.state, tab = VIEWS[s.tab] ? s.tab : "search";
  if (tab !== shown) {
    VIEWS[shown]?.hide?.();
    app.fail("");
    app.unreadable([]);
    for (const name of Object.keys(VIEWS)) $("view-" + name).hidden = name !== tab;
    for (const a of document.querySelectorAll("nav a")) a.toggleAttribute("aria-current", a.dataset.tab === tab);
    document.querySelector("nav a[aria-current]").setAttribute("aria-current", "page");
    shown = tab;
  }
  document.title = (tab === "search" && s.text ? s.text + " · " : tab === "search" ? "" : VIEWS[tab].title + " · ") + "cloob";
  VIEWS[tab].show(s);
}

function typing(e) {
  return e.target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select, [contenteditable]") !== null;
}

function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || $("viewer").open) return;
  const field = shown === "map" ? $("map-text") : $("text");
  if (e.key === "?" && !typing(e)) showKeys($("keys").hidden);
  else if (e.key === "Escape" && !$("keys").hidden) showKeys(false);
  else if (e.key === "/" && !typing(e)) {
    e.preventDefault();
    if (shown !== "map") app.go({ tab: "search" });
    field.focus();
    field.select();
  } else if (typing(e)) {
    if (e.key === "Escape") e.target.blur();
    else if (e.key === "ArrowDown" && e.target === $("text")) searchKey(e);
  } else if (shown === "search") searchKey(e);
}

function showKeys(on) {
  $("keys").hidden = !on;
  $("keys-toggle").setAttribute("aria-expanded", on);
}

function wire() {
  $("keys-toggle").onclick = () => showKeys($("keys").hidden);
  document.addEventListener("keydown", onKey);
  addEventListener("popstate", () => { app.state = read(); render(); });
  document.querySelectorAll("[data-tab]").forEach((a) => a.addEventListener("click", (e) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    app.go({ tab: a.dataset.tab, open: "" });
  }));
  $("index").addEventListener("change", () => {
    app.go({ index: $("index").value, folder: "", open: "" });
    showIndexes();
  });
  for (const zone of ["dragover", "drop"]) document.addEventListener(zone, (e) => { if (![...(e.dataTransfer?.types || [])].includes("text/plain")) e.preventDefault(); });
}

function about() {
  const i = app.current();
  const parts = i ? [i.model, count(i.images) + " images", i.device] : [];
  $("about").textContent = parts.filter(Boolean).map((p) => String(p).split("/").pop()).join(", ");
  $("about").title = i ? i.name : "";
}

function showIndexes() {
  const several = app.indexes.length > 1;
  if (several) {
    $("index").replaceChildren(...app.indexes.map((i) => el("option", { value: i.name }, i.name)));
    $("index").value = app.index();
  }
  document.querySelector(".pick-index").hidden = !several;
  about();
  fillFolders(app.current()?.folders);
}

async function start() {
  searchInit(app);
  compareInit(app);
  mapInit(app);
  runsInit(app);
  wire();
  await app.refresh();
  if (shown === "search" && matchMedia("(hover: hover)").matches) $("text").focus();
}

start();
