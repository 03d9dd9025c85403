// Requests to the server that sent this page. A failure throws an Error whose message is the server's.
import { $ } from "./dom.js";

const KEY = "cloob-key";
let key = sessionStorage.getItem(KEY) || "";
export const hasKey = () => key !== "";

function headers(extra) {
  return key ? { ...extra, Authorization: "Bearer " + key } : extra;
}

// Asks for a key in place, then continues when one was given. wrong: the server refused the last one.
function askKey(wrong) {
  const form = $("key-form");
  form.hidden = false;
  $("key-wrong").hidden = !wrong;
  $("key").setAttribute("aria-invalid", wrong);
  $("key").select();
  $("key").focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      key = $("key").value.trim();
      sessionStorage.setItem(KEY, key);
      form.hidden = true;
      resolve();
    }, { once: true });
  });
}

async function reason(response) {
  try {
    const body = await response.json();
    const e = body.error ?? body.message ?? body.detail;
    if (e) return typeof e === "string" ? e : e.message;
  } catch { /* no JSON: the status has to do */ }
  return "The server answered " + response.status + " " + response.statusText;
}

let asking = null;

export async function get(path, options = {}) {
  const used = key;
  const response = await fetch(path, { ...options, headers: headers(options.headers || {}) });
  if (response.status === 401) {
    if (used === key) asking = asking || askKey(used !== "").finally(() => { asking = null; });
    await asking;
    return get(path, options);
  }
  if (!response.ok) throw Object.assign(new Error(await reason(response)), { status: response.status });
  return response.json();
}

export const post = (path, body, signal) =>
  get(path, { method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// One request at a time: starting another cancels the one before, whose promise then gives null.
export function latest() {
  let running = null;
  return async (path, body) => {
    running?.abort();
    const mine = (running = new AbortController());
    try {
      return await post(path, body, mine.signal);
    } catch (e) {
      if (e.name === "AbortError" || running !== mine) return null;
      throw e;
    }
  };
}

// ---- images of an index ------------------------------------------------------------------------------

export const thumbUrl = (index, path, size) => "/v1/thumb?" + new URLSearchParams({ index, path, size });
export const imageUrl = (index, path) => "/v1/image?" + new URLSearchParams({ index, path });

// An <img> cannot send a key: then the bytes are fetched with it.
export function show(img, url) {
  if (!key) { img.src = url; return; }
  img.dataset.url = url;
  fetch(url, { headers: headers({}) }).then((r) => (r.ok ? r.blob() : Promise.reject(r)))
    .then((b) => { if (img.dataset.url === url) img.src = URL.createObjectURL(b); }).catch(() => { });
}

const asDataUrl = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(blob);
});

const SMALL_BYTES = 400000, LONG_SIDE = 1024;

// A file of the user as a data URL; fails where the browser cannot decode it. Small files are sent as they are; large ones are
// made smaller first, far above what a model looks at.
async function fileData(blob) {
  const bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" });
  if (blob.size <= SMALL_BYTES && /^image\/(png|jpeg|webp)$/.test(blob.type)) return asDataUrl(blob);
  const scale = Math.min(1, LONG_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const c = canvas.getContext("2d");
  c.fillStyle = "#fff";
  c.fillRect(0, 0, canvas.width, canvas.height);
  c.imageSmoothingQuality = "high";
  c.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.95);
}

// Files of the user: { read: [{ name, data }], failed: [name] }.
export async function readFiles(files) {
  const names = files.map((f) => f.name || "pasted image");
  const done = await Promise.allSettled(files.map(fileData));
  return {
    read: done.flatMap((d, i) => (d.status === "fulfilled" ? [{ name: names[i], data: d.value }] : [])),
    failed: names.filter((_, i) => done[i].status === "rejected"),
  };
}

export async function indexedData(index, path) {
  const response = await fetch(imageUrl(index, path), { headers: headers({}) });
  if (!response.ok) throw new Error(path + ": " + (await reason(response)));
  return fileData(await response.blob());
}
