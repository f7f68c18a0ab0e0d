/** What has happened to the cluster, and for admins who has changed what. */

import { ApiError, get, path } from "../api.js";
import { counted } from "../format.js";
import { empty, id, link, row, section, table, time } from "../parts.js";
import { h } from "../view.js";

const SHOWN = 200;
const MOST = 1000;

/** The look of a kind of event: what it means. @type {Record<string, string>} */
const LOOKS = {
  "leader-elected": "warn",
  "jobmanager-registered": "good",
  "jobmanager-lost": "bad",
  "jobmaster-requested": "good",
  "jobmaster-start-failed": "bad",
  "jobmaster-released": "good",
  "jobmaster-registered": "good",
  "jobmaster-lost": "bad",
  "jobmaster-draining": "warn",
  "jobmaster-undrained": "good",
  "taskmanager-requested": "good",
  "taskmanager-start-failed": "bad",
  "taskmanager-released": "good",
  "taskmanager-registered": "good",
  "taskmanager-lost": "bad",
  "taskmanager-dead": "bad",
  "taskmanager-draining": "warn",
  "taskmanager-undrained": "good",
  "taskmanager-troubled": "bad",
  "taskmanager-recovered": "good",
  "store-full": "bad",
  "store-has-room": "good",
  "history-away": "bad",
  "history-back": "good",
  "job-taken-over": "warn",
  "job-cancelled": "off",
};

/** @param {any} event */
export function eventRow(event) {
  const what = event.job ? [event.message, " ", link(`ui/jobs/${event.job}`, "job")] : event.message;
  return row(event.id, time(event.timestamp), h("span", { class: `state ${LOOKS[event.kind] ?? "off"}` }, event.kind), what);
}

export const EVENT_HEAD = ["Time", "Event", "What"];

/** @type {import("../app.js").Page} */
export const eventsPage = {
  title: () => "Events",
  async load(place, signal) {
    const tab = place.parts[1] ?? "";
    if (tab === "audit") return { tab, audit: await auditLines(signal) };
    const limit = place.query.get("all") ? MOST : SHOWN;
    return { tab, limit, events: (await get(path(["events"], { limit }), signal)).events };
  },
  view(data, place, app) {
    const tabs = /** @type {[string, string][]} */ ([["", "Cluster"], ["audit", "Audit log"]]);
    const links = tabs.map(([name, title]) => h("a", { key: name || "first", href: name ? `ui/events/${name}` : "ui/events", "aria-current": name === data.tab ? "page" : null }, title));
    return [h("h1", null, "Events"), h("nav", { class: "tabs", "aria-label": "Kinds of events" }, links), h("div", { key: data.tab || "first", class: "tab" }, data.tab === "audit" ? audit(data.audit, app) : events(data, place, app))];
  },
};

/** @param {any} data @param {import("../app.js").Place} place @param {import("../app.js").App} app */
function events(data, place, app) {
  const kind = place.query.get("kind") ?? "";
  const search = (place.query.get("search") ?? "").toLowerCase();
  const kinds = [...new Set(data.events.map((/** @type {any} */ one) => one.kind))].sort();
  if (kind && !kinds.includes(kind)) kinds.push(kind);
  const found = data.events.filter((/** @type {any} */ one) => (!kind || one.kind === kind) && (!search || `${one.message} ${one.subject}`.toLowerCase().includes(search)));
  const change = (/** @type {string} */ name) => (/** @type {Event} */ event) => app.goWith({ [name]: /** @type {HTMLInputElement} */ (event.target).value }, { replace: true });
  const none = kind || search ? "No event has that text and kind." : "Nothing has happened yet: processes that come and go, changes of the leader and jobs that move appear here.";
  return [
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("label", null, "Event ", h("select", { value: kind, onchange: change("kind") }, h("option", { value: "" }, "all"), kinds.map((one) => h("option", { value: one }, one)))),
      h("label", null, "Search ", h("input", { type: "search", value: search, oninput: change("search") })),
      h("span", { class: "muted" }, counted(found.length, "event")),
    ),
    table("Events", EVENT_HEAD, found.slice().reverse().map(eventRow), none),
    data.events.length >= data.limit && data.limit < MOST ? h("p", null, link("ui/events?all=1", "All that are kept")) : null,
  ];
}

/** @param {AbortSignal} signal */
async function auditLines(signal) {
  try {
    return { lines: (await get(path(["audit"], { limit: SHOWN }), signal)).lines, refused: "" };
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) return { lines: [], refused: error.message };
    throw error;
  }
}

/** @param {any} data @param {import("../app.js").App} app */
function audit(data, app) {
  if (data.refused) return empty(`${data.refused}.`);
  const lines = data.lines.slice().reverse();
  const rows = lines.map((/** @type {any} */ one, /** @type {number} */ at) => row(`${lines.length - at} ${one.time}`, time(Date.parse(one.time)), one.action, one.outcome, one.principal, one.forwarded_for ?? one.address, one.object ? id(String(one.object), "object", app) : "", one.reason ?? ""));
  return section("Audit log", h("p", { class: "muted" }, `The last ${SHOWN} lines of the JobManager that leads. Each JobManager writes a file of its own; older lines are in the files.`), table("Audit log", ["Time", "Action", "Outcome", "Who", "From", "Object", "Reason"], rows, "Nobody has changed anything yet."));
}
