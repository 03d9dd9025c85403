// The images that Classify and Compare look at: dropped once, seen by both.
import { $ } from "./dom.js";
import { fileData, indexedData } from "./api.js";
import { dropZone, onPaste, chooser } from "./drop.js";
import { someImages } from "./search.js";

const MOST = 64;
let images = [];
const listeners = [];

export const pile = () => images;
export const onPile = (f) => listeners.push(f);

function change(next) {
  images = next.slice(0, MOST);
  for (const f of listeners) f();
}

export const removeImage = (image) => change(images.filter((i) => i !== image));

// prefix: of the ids of the drop area and its buttons.
export function pileArea(app, prefix) {
  const active = () => app.state.tab === prefix;
  const fail = (e) => app.fail(e.message || "This file is not an image the browser can read.");
  const add = async (jobs) => {
    app.fail("");
    const done = await Promise.allSettled(jobs);
    done.filter((d) => d.status === "rejected").forEach((d) => fail(d.reason));
    change([...images, ...done.filter((d) => d.status === "fulfilled").map((d) => d.value)]);
  };
  const files = (list) => add(list.map(async (f) => ({ name: f.name || "pasted image", data: await fileData(f) })));
  const paths = (list) => add(list.map(async (p) => ({ name: p, data: await indexedData(app.index(), p) })));
  dropZone($("view-" + prefix), { onfiles: files, onpath: (p) => paths([p]) });
  onPaste(active, files);
  chooser($(prefix + "-pick"), $(prefix + "-file"), files);
  $(prefix + "-some").onclick = () => someImages(6).then(paths, fail);
  $(prefix + "-clear").onclick = () => change([]);
  onPile(() => { $(prefix + "-clear").hidden = !images.length; });
}
