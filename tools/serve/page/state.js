// What the address bar holds: the tab, the index, and the query. Dropped images are too long for an address, which names
// them by a number; their bytes are in the session's storage.
const images = new Map();
let next = Number(sessionStorage.getItem("cloob-images") || 0);

export function storeImage(data) {
  const id = String(++next);
  images.set(id, data);
  try {
    sessionStorage.setItem("cloob-images", id);
    sessionStorage.setItem("cloob-image-" + id, data);
  } catch { /* storage is full: Back still works, a reload does not */ }
  return id;
}

export const imageData = (id) => images.get(id) ?? sessionStorage.getItem("cloob-image-" + id);

const TERM = /^([+-])(\d*\.?\d*)(text|like|image):(.*)$/s;

// "+text:on the beach", "-0.5like:a/b.jpg", "+image:3"
const termText = (t) => (t.weight < 0 ? "-" : "+") + (Math.abs(t.weight) === 1 ? "" : Math.abs(t.weight)) + t.kind + ":" + t.value;

function termOf(text) {
  const m = TERM.exec(text);
  if (!m) return null;
  if (m[3] === "image" && !imageData(m[4])) return null;
  return { kind: m[3], value: m[4], weight: (m[1] === "-" ? -1 : 1) * (m[2] ? Number(m[2]) : 1) };
}

export function read() {
  const p = new URLSearchParams(location.search);
  return {
    tab: p.get("tab") || "search", index: p.get("index") || "", text: p.get("q") || "",
    terms: p.getAll("term").map(termOf).filter(Boolean), min: Number(p.get("min")) || 0,
    folder: p.get("folder") || "", after: p.get("after") || "", before: p.get("before") || "", open: p.get("open") || "",
    runs: p.getAll("run"),
  };
}

export function address(s) {
  const p = new URLSearchParams();
  if (s.tab !== "search") p.set("tab", s.tab);
  if (s.index) p.set("index", s.index);
  if (s.text) p.set("q", s.text);
  for (const t of s.terms) p.append("term", termText(t));
  if (s.min > 0) p.set("min", s.min.toFixed(2));
  for (const name of ["folder", "after", "before", "open"]) if (s[name]) p.set(name, s[name]);
  for (const r of s.runs) p.append("run", r);
  const query = p.toString();
  return "/" + (query ? "?" + query : "");
}

// What the server is asked. Terms of weight 0 would say nothing.
export function request(s, index) {
  const terms = s.terms.map((t) => (t.kind === "image" ? { image: imageData(t.value), weight: t.weight } : { [t.kind]: t.value, weight: t.weight }));
  const body = { index };
  if (s.text.trim()) body.text = s.text.trim();
  if (terms.length) body.terms = terms;
  if (s.min > 0) body.threshold = s.min;
  for (const name of ["folder", "after", "before"]) if (s[name]) body[name] = s[name];
  return body;
}
