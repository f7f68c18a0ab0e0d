/** Lines of logs on a page: filtered by level and text, followed, and drawn so that those that are there stay. */

import { h } from "../view.js";

export const SHOWN_LINES = 5000;
const LEVELS = ["", "INFO", "WARN", "ERROR"];
/** A line is of the level that it names; one that names none goes on with the line before. */
const LEVEL = /\b(TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b/;
const RANK = /** @type {Record<string, number>} */ ({ TRACE: 0, DEBUG: 0, INFO: 1, WARN: 2, WARNING: 2, ERROR: 3, FATAL: 3, CRITICAL: 3 });

/** @typedef {{from: string, stream: string, text: string, rank: number}} Line */
/** @typedef {import("../app.js").App} App */
/** @typedef {import("../app.js").Place} Place */

/** Those of a stream, or of all, that the level and the text in the address leave. @param {Line[]} lines @param {Place} place @param {string} [stream] */
export function chosenLines(lines, place, stream = "") {
  const least = RANK[place.query.get("level") ?? ""] ?? 0;
  const search = (place.query.get("search") ?? "").toLowerCase();
  return lines.filter((one) => (!stream || one.stream === stream) && one.rank >= least && (!search || one.text.toLowerCase().includes(search)));
}

/** Puts what a person chooses into the address. @param {App} app @param {string} name */
export function changer(app, name) {
  return (/** @type {Event} */ event) => app.goWith({ [name]: /** @type {HTMLInputElement} */ (event.target).value }, { replace: true });
}

/** @param {App} app */
export function isFollowed(app) {
  return app.kept["unfollowed"] !== true;
}

/** Level, search and follow. @param {Place} place @param {App} app */
export function logControls(place, app) {
  const follow = () => {
    app.kept["unfollowed"] = isFollowed(app);
    app.render();
  };
  return [
    h("label", null, "Level ", select(LEVELS, place.query.get("level") ?? "", "all", changer(app, "level"))),
    searchField(place, app),
    h("label", null, h("input", { type: "checkbox", checked: isFollowed(app), onchange: follow }), " Follow"),
  ];
}

/** @param {Place} place @param {App} app */
export function searchField(place, app) {
  return h("label", null, "Search ", h("input", { type: "search", value: place.query.get("search") ?? "", oninput: changer(app, "search") }));
}

/** @param {Line[]} lines @param {boolean} hasNames @param {boolean} follows */
export function logBox(lines, hasNames, follows) {
  return h("div", { class: "log", tabindex: 0, role: "log", "aria-label": "Log", draw: (/** @type {HTMLElement} */ node) => drawLines(node, lines, hasNames, follows) });
}

/** @param {string[]} values @param {string} chosen @param {string} none @param {(event: Event) => void} onchange */
export function select(values, chosen, none, onchange) {
  return h("select", { onchange, value: chosen }, values.map((value) => h("option", { value }, value || none)));
}

/** Lines that are there already stay. @type {WeakMap<HTMLElement, {lines: Line[], names: boolean}>} */
const drawn = new WeakMap();

/** The rank of a line by the level that it names; one that goes on with the line before has that one's. @param {string} text @param {number} before */
export function rankOf(text, before) {
  const found = LEVEL.exec(text.slice(0, 120));
  if (found) return RANK[found[1] ?? ""] ?? 1;
  return /^\s|^Traceback|^Caused by/.test(text) ? before : 1;
}

/** @param {HTMLElement} node @param {Line[]} lines @param {boolean} hasNames @param {boolean} follows */
function drawLines(node, lines, hasNames, follows) {
  const before = drawn.get(node);
  const gone = before?.names === hasNames && lines[0] ? before.lines.indexOf(lines[0]) : -1;
  const kept = before && gone >= 0 ? before.lines.slice(gone) : [];
  const goesOn = kept.length > 0 && kept.every((line, index) => line === lines[index]);
  const from = goesOn ? kept.length : 0;
  if (!goesOn) node.replaceChildren();
  else if (gone > 0) dropLines(node, gone);
  const added = lines.slice(from).map((line) => lineNode(line, hasNames));
  if (lines.length) node.append(...added);
  else node.append(Object.assign(document.createElement("p"), { className: "muted", textContent: "No lines." }));
  drawn.set(node, { lines, names: hasNames });
  if (follows && (added.length || !goesOn)) node.scrollTop = node.scrollHeight;
}

/** The first lines go, and who reads further below stays there. @param {HTMLElement} node @param {number} count */
function dropLines(node, count) {
  const { scrollTop, scrollHeight } = node;
  for (let gone = 0; gone < count; gone += 1) node.firstChild?.remove();
  node.scrollTop = Math.max(0, scrollTop - (scrollHeight - node.scrollHeight));
}

/** @param {Line} line @param {boolean} hasName */
function lineNode(line, hasName) {
  const node = document.createElement("div");
  node.className = `line ${line.stream}${line.rank >= 3 ? " bad" : line.rank === 2 ? " warn" : ""}`;
  if (hasName) {
    const name = document.createElement("span");
    name.className = "from";
    name.textContent = line.from;
    node.append(name, " ");
  }
  node.append(line.text);
  return node;
}

/** A file of the browser's person. @param {string} name @param {BlobPart[]} parts */
export function save(name, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
