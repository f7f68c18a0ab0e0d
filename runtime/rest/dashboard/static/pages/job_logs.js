/** The logs of a job, live: of all attempts or one, by stream and level, searched, downloaded. */

import { send } from "../api.js";
import { size } from "../format.js";
import { LogPosition } from "../log_position.js";
import { h } from "../view.js";

const STREAMS = ["stdout", "stderr", "log"];
const LEVELS = ["", "WARN", "ERROR"];
/** A line is of the level that it names; one that names none goes on with the line before. */
const LEVEL = /\b(TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b/;
const RANK = /** @type {Record<string, number>} */ ({ TRACE: 0, DEBUG: 0, INFO: 1, WARN: 2, WARNING: 2, ERROR: 3, FATAL: 3, CRITICAL: 3 });
const READ_BYTES = 1 << 20;
const READS_AT_ONCE = 8;
const KEPT_CHARACTERS = 8 << 20;
const SHOWN_LINES = 5000;
/** A line without an end becomes several. */
const LINE_CHARACTERS = 1 << 16;
/** What a line takes beside its characters: empty lines are bounded, too. */
const LINE_COST = 16;

/** @typedef {{from: string, stream: string, text: string, rank: number}} Line */

/** What is read of the logs of one choice of attempts. */
class Reading {
  /** @param {string} jobId @param {string} choice */
  constructor(jobId, choice) {
    this.jobId = jobId;
    this.choice = choice;
    this.position = new LogPosition();
    /** @type {Line[]} */
    this.lines = [];
    /** The line whose end is not there yet and the level of the one before, by attempt and stream. @type {Map<string, {decoder: TextDecoder, rest: string, rank: number}>} */
    this.open = new Map();
    this.characters = 0;
    this.dropped = 0;
    /** @type {Map<string, string>} */
    this.missing = new Map();
    /** @type {Record<string, string>} */
    this.names = {};
    this.changes = 0;
  }

  /** Read what is new. @param {any} asked @param {AbortSignal} signal */
  async read(asked, signal) {
    for (let reads = 0; reads < READS_AT_ONCE; reads += 1) {
      const answer = await send("POST", `jobs/${encodeURIComponent(this.jobId)}/logs`, { ...asked, streams: STREAMS, position: this.position.json(), limit: READ_BYTES }, signal);
      for (const vertex of answer.vertices) this.names[vertex.id] = vertex.name;
      for (const attempt of answer.attempts) this.take(attempt);
      if (!answer.more) return;
    }
  }

  /** @param {any} attempt */
  take(attempt) {
    const from = `${this.names[attempt.vertex] ?? attempt.vertex} ${attempt.subtask}${attempt.attempt ? `#${attempt.attempt}` : ""}`;
    if (attempt.missing) this.missing.set(from, attempt.missing);
    for (const stream of STREAMS) {
      const piece = attempt.logs[stream];
      if (!piece) continue;
      if (piece.dropped) this.missing.set(`${from} ${stream}`, `${from}: ${size(piece.dropped)} of ${stream} were dropped, since a log has a limit`);
      this.add(`${attempt.vertex} ${attempt.subtask} ${attempt.attempt} ${stream}`, from, stream, piece.data, attempt.ended && piece["next-offset"] >= piece.size);
    }
    this.position.take(attempt);
    this.bound();
  }

  /** @param {string} key @param {string} from @param {string} stream @param {string} data @param {boolean} isLast */
  add(key, from, stream, data, isLast) {
    const open = this.open.get(key) ?? { decoder: new TextDecoder(), rest: "", rank: 1 };
    this.open.set(key, open);
    const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
    const parts = (open.rest + open.decoder.decode(bytes, { stream: !isLast })).split("\n");
    open.rest = overwritten(parts.pop() ?? "");
    if (open.rest && (isLast || open.rest.length > LINE_CHARACTERS)) {
      parts.push(open.rest);
      open.rest = "";
    }
    let { rank } = open;
    for (const part of parts) {
      const text = overwritten(part).replace(/\r$/, "");
      rank = rankOf(text, rank);
      this.lines.push({ from, stream, text, rank });
      this.characters += text.length + LINE_COST;
      this.changes += 1;
    }
    open.rank = rank;
  }

  bound() {
    if (this.characters <= KEPT_CHARACTERS) return;
    let gone = 0;
    while (this.characters > KEPT_CHARACTERS / 2 && gone < this.lines.length) {
      this.characters -= (this.lines[gone]?.text.length ?? 0) + LINE_COST;
      gone += 1;
    }
    this.lines.splice(0, gone);
    this.dropped += gone;
    this.changes += 1;
  }
}

/** As in a terminal: what follows a carriage return stands in the place of what was before. @param {string} text */
function overwritten(text) {
  const end = text.endsWith("\r") ? text.length - 2 : text.length;
  return end < 0 ? text : text.slice(text.lastIndexOf("\r", end) + 1);
}

/** The reading of the page that is shown; another choice begins anew. @type {Reading | null} */
let current = null;

/** @param {import("../app.js").Place} place @returns {any} */
function choiceOf(place) {
  // The address of releases before: /logs/<vertex>/<subtask>/<attempt>/<stream>
  const [, , , vertex, subtask, attempt] = place.parts;
  const number = (/** @type {string | null | undefined} */ text) => (text && /^\d+$/.test(text) ? Number(text) : null);
  return { vertex: place.query.get("vertex") ?? vertex ?? null, subtask: number(place.query.get("subtask") ?? subtask), attempt: number(place.query.get("attempt") ?? attempt) };
}

/** @type {import("./job.js").Tab} */
export const logsTab = {
  name: "logs",
  title: "Logs",
  async load(jobId, place, signal) {
    const asked = choiceOf(place);
    const choice = JSON.stringify([jobId, asked]);
    if (!current || current.choice !== choice) current = new Reading(jobId, choice);
    const reading = current;
    await reading.read(asked, signal);
    return reading;
  },
  view(job, /** @type {Reading} */ reading, place, app) {
    const asked = choiceOf(place);
    const stream = place.query.get("stream") ?? place.parts[6] ?? "";
    const level = place.query.get("level") ?? "";
    const search = place.query.get("search") ?? "";
    const isFollowed = app.kept["unfollowed"] !== true;
    const found = reading.lines.filter((one) => (!stream || one.stream === stream) && (!level || one.rank >= (RANK[level] ?? 0)) && (!search || one.text.toLowerCase().includes(search.toLowerCase())));
    const shown = found.slice(-SHOWN_LINES);
    const hasOne = asked.subtask !== null && asked.vertex !== null;
    const change = (/** @type {string} */ name) => (/** @type {Event} */ event) => app.goWith({ [name]: /** @type {HTMLInputElement} */ (event.target).value }, { replace: true });
    const follow = () => {
      app.kept["unfollowed"] = isFollowed;
      app.render();
    };
    return [
      h(
        "form",
        { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
        h("label", null, "Stream ", select(["", ...STREAMS], stream, "all", change("stream"))),
        h("label", null, "Level ", select(LEVELS, level, "all", change("level"))),
        h("label", null, "Search ", h("input", { type: "search", value: search, oninput: change("search") })),
        h("label", null, h("input", { type: "checkbox", checked: isFollowed, onchange: follow }), " Follow"),
        h("button", { type: "button", onclick: () => download(job, found) }, "Download"),
        hasOne || asked.vertex ? h("a", { href: `ui/jobs/${job.jid}/logs` }, "All attempts") : null,
      ),
      [...reading.missing].map(([key, why]) => h("p", { class: "muted", key }, why)),
      found.length > shown.length || reading.dropped ? h("p", { class: "muted" }, `The last ${shown.length} lines; Download has ${reading.dropped ? "the latest" : "all"} ${found.length}.`) : null,
      h("div", { class: "log", tabindex: 0, role: "log", "aria-label": "Log", draw: (/** @type {HTMLElement} */ node) => drawLines(node, shown, !hasOne, isFollowed) }),
    ];
  },
};

/** @param {string[]} values @param {string} chosen @param {string} none @param {(event: Event) => void} onchange */
function select(values, chosen, none, onchange) {
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

/** @param {HTMLElement} node @param {Line[]} lines @param {boolean} hasNames @param {boolean} isFollowed */
export function drawLines(node, lines, hasNames, isFollowed) {
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
  if (isFollowed && (added.length || !goesOn)) node.scrollTop = node.scrollHeight;
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

/** @param {any} job @param {Line[]} lines */
function download(job, lines) {
  const text = lines.map((one) => `${one.from} ${one.stream}: ${one.text}\n`).join("");
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${job.name.replace(/[^\w.-]+/g, "_") || job.jid}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
