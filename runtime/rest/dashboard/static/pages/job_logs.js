/** The logs of a job, live: of all attempts or one, by stream and level, searched, downloaded. */

import { send } from "../api.js";
import { size } from "../format.js";
import { LogPosition } from "../log_position.js";
import { h } from "../view.js";
import { SHOWN_LINES, changer, chosenLines, isFollowed, logBox, logControls, rankOf, save, select } from "./log_view.js";

const STREAMS = ["stdout", "stderr", "log"];
const READ_BYTES = 1 << 20;
const READS_AT_ONCE = 8;
const KEPT_CHARACTERS = 8 << 20;
/** A line without an end becomes several. */
const LINE_CHARACTERS = 1 << 16;
/** What a line takes beside its characters: empty lines are bounded, too. */
const LINE_COST = 16;

/** @typedef {import("./log_view.js").Line} Line */

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
    const found = chosenLines(reading.lines, place, stream);
    const shown = found.slice(-SHOWN_LINES);
    const hasOne = asked.subtask !== null && asked.vertex !== null;
    return [
      h(
        "form",
        { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
        h("label", null, "Stream ", select(["", ...STREAMS], stream, "all", changer(app, "stream"))),
        logControls(place, app),
        h("button", { type: "button", onclick: () => download(job, found) }, "Download"),
        hasOne || asked.vertex ? h("a", { href: `ui/jobs/${job.jid}/logs` }, "All attempts") : null,
      ),
      [...reading.missing].map(([key, why]) => h("p", { class: "muted", key }, why)),
      found.length > shown.length || reading.dropped ? h("p", { class: "muted" }, `The last ${shown.length} lines; Download has ${reading.dropped ? "the latest" : "all"} ${found.length}.`) : null,
      logBox(shown, !hasOne, isFollowed(app)),
    ];
  },
};

/** @param {any} job @param {Line[]} lines */
function download(job, lines) {
  const text = lines.map((one) => `${one.from} ${one.stream}: ${one.text}\n`).join("");
  save(`${job.name.replace(/[^\w.-]+/g, "_") || job.jid}.log`, [text]);
}
