// The page /docs: every endpoint of /openapi.json, with types in a short notation.
import { $, el } from "./dom.js";

const MAX_WIDTH = 90;
let schemas = {};

// { text: string, top?: integer } as lines; a short one stays on its line.
function objectType(s, indent) {
  const needed = new Set(s.required || []), inner = indent + "  ";
  const parts = Object.entries(s.properties || {}).map(([name, p]) => name + (needed.has(name) ? ": " : "?: ") + type(p, inner));
  if (!parts.length) return "object";
  const line = "{ " + parts.join(", ") + " }";
  if (line.length + indent.length <= MAX_WIDTH && !line.includes("\n")) return line;
  return "{\n" + parts.map((p) => inner + p).join(",\n") + "\n" + indent + "}";
}

function type(s, indent = "") {
  if (!s || !Object.keys(s).length) return "any";
  if (s.$ref) return type(schemas[s.$ref.split("/").pop()], indent);
  if (s.anyOf) return s.anyOf.map((a) => type(a, indent)).filter((t) => t !== "null").join(" | ");
  if (s.enum) return s.enum.filter((v) => v !== null).map((v) => JSON.stringify(v)).join(" | ");
  if ("const" in s) return JSON.stringify(s.const);
  const kind = [s.type].flat().find((t) => t !== "null");
  if (kind === "array") {
    const item = type(s.items, indent);
    return (item.includes(" | ") ? "(" + item + ")" : item) + "[]";
  }
  return kind === "object" ? objectType(s, indent) : kind || "any";
}

const block = (title, text) => [el("h2", {}, title), el("pre", {}, text)];

// How to ask for it with curl.
function curl(method, path, o) {
  const kinds = Object.keys(o.requestBody?.content || {});
  const query = (o.parameters || []).filter((p) => p.in === "query" && p.required).map((p) => p.name + "=..").join("&");
  const body = kinds.includes("application/json") ? " -d '{..}'" : kinds.length ? " -F entries='{..}' -F image=@photo.jpg" : "";
  return `curl '${location.origin}${path}${query ? "?" + query : ""}'${body}`;
}

function endpoint(path, method, o) {
  const parts = [...block("Example", curl(method, path, o))];
  if (o.parameters) parts.push(...block("Parameters", o.parameters.map((p) => `${p.name}${p.required ? "" : "?"}: ${p.schema.type} (${p.in})`).join("\n")));
  for (const [kind, c] of Object.entries(o.requestBody?.content || {})) parts.push(...block("Request, " + kind, type(c.schema)));
  for (const [kind, c] of Object.entries(o.responses["200"]?.content || {})) parts.push(...block("Response, " + kind, kind === "application/json" ? type(c.schema) : "the bytes"));
  return el("details", { class: "card", id: o.operationId },
    el("summary", {}, el("b", {}, method.toUpperCase()), " ", el("code", {}, path), " ", el("span", { class: "dim" }, o.summary), " ",
      o.security ? el("span", { class: "badge" }, "without a key") : null), ...parts);
}

function find() {
  const words = $("find").value.toLowerCase().split(/\s+/);
  for (const d of document.querySelectorAll("#endpoints details")) d.hidden = !words.every((w) => d.firstChild.textContent.toLowerCase().includes(w));
}

async function start() {
  try {
    const doc = await (await fetch("/openapi.json")).json();
    schemas = doc.components.schemas;
    $("version").textContent = doc.info.version;
    $("endpoints").replaceChildren(...Object.entries(doc.paths).flatMap(([path, methods]) => Object.entries(methods).map(([m, o]) => endpoint(path, m, o))));
    $("find").addEventListener("input", find);
    const named = location.hash && $(location.hash.slice(1));
    if (named) { named.open = true; named.scrollIntoView(); }
  } catch (e) {
    $("failure").hidden = false;
    $("failure").textContent = "/openapi.json cannot be read: " + e.message;
  }
}

start();
