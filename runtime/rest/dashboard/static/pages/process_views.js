/** What all processes show of themselves: log files as they are written, stacks when asked for, environment. */

import { ApiError, bytes, get } from "../api.js";
import { size } from "../format.js";
import { empty, facts, row, section, table, time } from "../parts.js";
import { h } from "../view.js";
import { SHOWN_LINES, changer, chosenLines, isFollowed, logBox, logControls, rankOf, save, searchField } from "./log_view.js";

const TAIL_BYTES = 64 * 1024;
const READ_BYTES = 1 << 20;
const READS_AT_ONCE = 4;
const KEPT_LINES = 20_000;

/** @typedef {import("../view.js").Content} Content */
/** @typedef {import("../app.js").App} App */
/** @typedef {import("../app.js").Place} Place */

/** What has been read of one log file. */
class Tail {
  /** @param {string} path */
  constructor(path) {
    this.path = path;
    this.decoder = new TextDecoder();
    this.offset = -TAIL_BYTES;
    this.rest = "";
    /** @type {{from: string, stream: string, text: string, rank: number}[]} */
    this.lines = [];
    this.size = 0;
  }

  /** Read on. @param {AbortSignal} signal */
  async read(signal) {
    for (let reads = 0; reads < READS_AT_ONCE; reads += 1) {
      const piece = await bytes(`${this.path}?offset=${this.offset}&limit=${READ_BYTES}`, signal);
      if (piece.headers.get("x-restarted") === "true") {
        this.lines = [];
        this.rest = "";
        this.decoder = new TextDecoder();
      }
      this.offset = Number(piece.headers.get("x-next-offset"));
      this.size = Number(piece.headers.get("x-size"));
      this.add(this.decoder.decode(piece.data, { stream: true }));
      if (this.offset >= this.size) return;
    }
  }

  /** @param {string} read */
  add(read) {
    const parts = (this.rest + read).split("\n");
    this.rest = parts.pop() ?? "";
    let rank = this.lines[this.lines.length - 1]?.rank ?? 1;
    for (const line of parts) {
      rank = rankOf(line, rank);
      this.lines.push({ from: "", stream: "log", text: line, rank });
    }
    if (this.lines.length > KEPT_LINES) this.lines = this.lines.slice(-KEPT_LINES / 2);
  }
}

/** @type {Tail | null} */
let tail = null;
/** The stacks of one process at one moment: a dump costs the process something, so it is taken when a person asks. @type {{path: string, at: number, dump: any} | null} */
let taken = null;

/**
 * What a tab shows beside the first one.
 * @param {string} path of the process below REST, such as `taskmanagers/<id>`
 * @param {string} tab
 * @param {Place} place
 * @param {AbortSignal} signal
 */
export async function loadView(path, tab, place, signal) {
  try {
    if (tab === "logs") return await loadLogs(path, place, signal);
    if (tab === "threads") {
      if (taken?.path !== path) taken = { path, at: Date.now(), dump: await get(`${path}/thread-dump`, signal) };
      return taken;
    }
    if (tab === "environment") return await get(`${path}/environment`, signal);
    return null;
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) return { refused: error.message };
    throw error;
  }
}

/** @param {string} path @param {Place} place @param {AbortSignal} signal */
async function loadLogs(path, place, signal) {
  const { logs } = await get(`${path}/logs`, signal);
  const file = place.query.get("file") ?? logs.find((/** @type {any} */ one) => one.name.endsWith(".log"))?.name ?? logs[0]?.name;
  if (!file) return { logs, file: "", tail: null };
  const wanted = `${path}/logs/${encodeURIComponent(file)}`;
  if (tail?.path !== wanted) tail = new Tail(wanted);
  await tail.read(signal);
  return { logs, file, tail };
}

/**
 * The tabs of a process and the chosen one.
 * @param {string} base of the page, such as `ui/taskmanagers/<id>`
 * @param {string} path of the process below REST
 * @param {[string, string][]} tabs name in the address and title, the first one is the page itself
 * @param {string} chosen
 * @param {any} data of `loadView`
 * @param {() => Content} first
 * @param {Place} place
 * @param {App} app
 * @returns {Content}
 */
export function tabbed(base, path, tabs, chosen, data, first, place, app) {
  const links = tabs.map(([name, title]) => h("a", { key: name || "first", href: name ? `${base}/${name}` : base, "aria-current": name === chosen ? "page" : null }, title));
  return [h("nav", { class: "tabs", "aria-label": "Parts of the process" }, links), h("div", { key: chosen || "first", class: "tab" }, body(path, chosen, data, first, place, app))];
}

/**
 * @param {string} path
 * @param {string} chosen
 * @param {any} data
 * @param {() => Content} first
 * @param {Place} place
 * @param {App} app
 * @returns {Content}
 */
function body(path, chosen, data, first, place, app) {
  if (data?.refused) return empty(`${data.refused}.`);
  switch (chosen) {
    case "logs":
      return logs(data, place, app);
    case "threads":
      return threads(path, data, place, app);
    case "environment":
      return environment(data);
    default:
      return first();
  }
}

/** @param {any} data @param {Place} place @param {App} app */
function logs(data, place, app) {
  if (!data.tail) return empty("The process has no log files.");
  const shown = chosenLines(data.tail.lines, place).slice(-SHOWN_LINES);
  return [
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("label", null, "File ", h("select", { value: data.file, onchange: changer(app, "file") }, data.logs.map((/** @type {any} */ one) => h("option", { value: one.name }, `${one.name} (${size(one.size)})`)))),
      logControls(place, app),
      h("button", { type: "button", onclick: () => void download(data.tail.path, data.file, app) }, "Download"),
    ),
    h("p", { class: "muted" }, `From the last ${size(TAIL_BYTES)} on; the file has ${size(data.tail.size)}.`),
    logBox(shown, false, isFollowed(app)),
  ];
}

/** The whole file, of a large one the last 32 MiB: a link would have no CSRF token. @param {string} path @param {string} name @param {App} app */
async function download(path, name, app) {
  try {
    save(name, [(await bytes(path)).data]);
  } catch (error) {
    app.tell(error instanceof Error ? error.message : String(error));
  }
}

/** @param {string} path @param {any} data @param {Place} place @param {App} app */
function threads(path, data, place, app) {
  const search = (place.query.get("search") ?? "").toLowerCase();
  const found = data.dump.threadInfos.filter((/** @type {any} */ one) => !search || `${one.threadName}${one.stringifiedThreadInfo}`.toLowerCase().includes(search));
  const again = () => {
    if (taken?.path === path) taken = null;
    app.live?.again();
  };
  return [
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      searchField(place, app),
      h("button", { type: "button", onclick: again }, "Take another"),
      h("span", { class: "muted" }, "Taken at ", time(data.at)),
    ),
    found.length ? found.map((/** @type {any} */ one, /** @type {number} */ at) => h("details", { key: `${one.threadName} ${at}`, open: Boolean(search) }, h("summary", null, one.threadName), h("pre", { class: "stack", tabindex: 0, role: "region", "aria-label": one.threadName }, one.stringifiedThreadInfo))) : empty("No stack has that text."),
  ];
}

/** @param {any} data */
function environment(data) {
  const options = data.jvm.options.map((/** @type {string} */ one, /** @type {number} */ at) => row(String(at), h("code", null, one)));
  const places = data.classpath.map((/** @type {string} */ one, /** @type {number} */ at) => row(String(at), h("code", null, one)));
  return [
    facts([
      ["Python", data.jvm.version],
      ["machine", data.jvm.arch],
    ]),
    section("Command line", table("Command line", ["Argument"], options)),
    section("Places of modules", table("Places of modules", ["Directory"], places)),
  ];
}
