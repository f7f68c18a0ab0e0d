/** The subtasks of each vertex: attempts, where they run, times, rows and memory; skew at a glance. */

import { get } from "../api.js";
import { duration, number, size } from "../format.js";
import { empty, link, section, state, table, time } from "../parts.js";
import { h } from "../view.js";

const SHOWN_MAX = 100;
const HEAD = ["Subtask", "State", "Attempt", "TaskManager", "Slot", "Started", "Time", "Rows in", "Rows out", "CPU", "Memory peak", "Logs"];

/** @type {import("./job.js").Tab} */
export const subtasksTab = {
  name: "subtasks",
  title: "Subtasks",
  load: (jobId, _, signal) => get(`jobs/${encodeURIComponent(jobId)}/attempts`, signal),
  view(job, attempts, place, app) {
    const chosen = place.query.get("vertex");
    const vertices = attempts.vertices.filter((/** @type {any} */ one) => !chosen || one.id === chosen);
    const filter = h(
      "form",
      { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("label", null, "Vertex ", h("select", { value: chosen ?? "", onchange: (/** @type {Event} */ event) => app.goWith({ vertex: /** @type {HTMLSelectElement} */ (event.target).value, all: null }) }, h("option", { value: "" }, "all"), attempts.vertices.map((/** @type {any} */ one) => h("option", { value: one.id }, one.name)))),
    );
    if (!vertices.length) return [filter, empty("The job has no such vertex.")];
    return [filter, vertices.map((/** @type {any} */ vertex) => vertexSection(vertex, attempts.now, job, place, app))];
  },
};

/**
 * @param {any} vertex
 * @param {number} now
 * @param {any} job
 * @param {import("../app.js").Place} place
 * @param {import("../app.js").App} app
 */
function vertexSection(vertex, now, job, place, app) {
  const sorted = [...vertex.attempts].sort((a, b) => urgency(a) - urgency(b) || a.subtask - b.subtask || b.attempt - a.attempt);
  const shown = place.query.get("all") ? sorted : sorted.slice(0, SHOWN_MAX);
  const most = Math.max(1, ...sorted.map((one) => spentBy(one, now)));
  const rows = shown.map((one) => attemptRow(one, now, most, vertex, job));
  const rest = sorted.length - shown.length;
  return section(vertex.name, skew(vertex.attempts, now), table(vertex.name, HEAD, rows, "Nothing has been deployed yet."), rest > 0 ? h("button", { type: "button", onclick: () => app.goWith({ all: "1" }) }, `Show ${rest} more attempts`) : null);
}

/** Failed first, then running ones. @param {any} attempt */
function urgency(attempt) {
  return ["FAILED", "RUNNING", "INITIALIZING", "DEPLOYING", "SCHEDULED"].includes(attempt.status) ? (attempt.status === "FAILED" ? 0 : 1) : 2;
}

/** @param {any} attempt @param {number} now */
function spentBy(attempt, now) {
  return attempt["start-time"] < 0 ? 0 : (attempt["end-time"] >= 0 ? attempt["end-time"] : now) - attempt["start-time"];
}

/** @param {any[]} attempts @param {number} now */
function skew(attempts, now) {
  const times = attempts.filter((one) => one["start-time"] >= 0).map((one) => spentBy(one, now)).sort((a, b) => a - b);
  if (times.length < 2) return null;
  const median = times[Math.floor(times.length / 2)] ?? 0;
  const longest = times[times.length - 1] ?? 0;
  const factor = median > 0 ? longest / median : 1;
  return h("p", { class: factor > 3 ? "waiting" : "muted" }, `Median ${duration(median)}, longest ${duration(longest)}`, factor > 3 ? `: the longest takes ${factor.toFixed(1)} times the median` : "");
}

/** @param {any} one @param {number} now @param {number} most @param {any} vertex @param {any} job */
function attemptRow(one, now, most, vertex, job) {
  const spent = spentBy(one, now);
  const logs = `ui/jobs/${job.jid}/logs?vertex=${encodeURIComponent(vertex.id)}&subtask=${one.subtask}&attempt=${one.attempt}`;
  return h(
    "tr",
    { key: one["attempt-id"] },
    h("td", null, one.subtask),
    h("td", null, state(one.status)),
    h("td", null, one.attempt),
    h("td", null, one["taskmanager-id"] ? link(`ui/taskmanagers/${encodeURIComponent(one["taskmanager-id"])}`, one["taskmanager-id"]) : ""),
    h("td", null, one.slot >= 0 ? one.slot : ""),
    h("td", null, time(one["start-time"])),
    h("td", { class: "bar-cell" }, h("span", { class: "length", style: { "--part": spent / most } }), duration(one["start-time"] < 0 ? -1 : spent)),
    h("td", null, number(one.metrics["read-records"])),
    h("td", null, number(one.metrics["write-records"])),
    h("td", null, duration(one.metrics["accumulated-busy-time"])),
    h("td", null, one["memory-bytes-peak"] ? size(one["memory-bytes-peak"]) : ""),
    h("td", null, one["taskmanager-id"] ? link(logs, "logs") : ""),
  );
}
