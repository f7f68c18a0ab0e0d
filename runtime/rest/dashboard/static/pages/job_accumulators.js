/** What the code of a job has counted: of the whole job, and of each subtask of a vertex. */

import { get } from "../api.js";
import { number } from "../format.js";
import { empty, row, section, table } from "../parts.js";
import { MODE } from "../mode.js";
import { h } from "../view.js";

const SHOWN_MAX = 200;
const EMPTY = "No attempt that runs or has finished has counted anything; what failed ones have counted is left out. Tasks count with ctx.counter(name).add(n), scripts with task_counter(name).add(n).";

/** @type {import("./job.js").Tab} */
export const accumulatorsTab = {
  name: "accumulators",
  title: "Accumulators",
  async load(jobId, place, signal) {
    const job = `jobs/${encodeURIComponent(jobId)}`;
    const vertex = place.query.get("vertex");
    const of = vertex ? await get(`${job}/vertices/${encodeURIComponent(vertex)}/subtasks/accumulators`, signal) : null;
    return { all: await get(`${job}/accumulators`, signal), of };
  },
  view(job, { all, of }, place, app) {
    const rows = all["user-task-accumulators"].map((/** @type {any} */ one) => row(`${one.name} ${one.type}`, one.name, one.type, valueOf(one)));
    const left = all["left-out"] ? h("p", { class: "waiting" }, `${number(all["left-out"])} more are not shown: a job shows 1,000.`) : null;
    return [section("Of the job", table("Accumulators of the job", ["Name", "Type", "Value"], rows, EMPTY), left), rows.length && MODE !== "airflow" ? subtasks(job, of, place, app) : null];
  },
};

/**
 * @param {any} job
 * @param {any} of the answer about the subtasks of the chosen vertex, null without one
 * @param {import("../app.js").Place} place
 * @param {import("../app.js").App} app
 */
function subtasks(job, of, place, app) {
  const chosen = place.query.get("vertex") ?? "";
  const choice = h("select", { value: chosen, onchange: (/** @type {Event} */ event) => app.goWith({ vertex: /** @type {HTMLSelectElement} */ (event.target).value || null }) }, h("option", { value: "" }, "choose one"), job.vertices.map((/** @type {any} */ one) => h("option", { value: one.id }, one.name)));
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, h("label", null, "Vertex ", choice));
  return section("By subtask", form, of ? tableOf(of) : null);
}

/** @param {any} of */
function tableOf(of) {
  const each = of.subtasks.flatMap((/** @type {any} */ subtask) => subtask["user-accumulators"].map((/** @type {any} */ one) => [subtask, one]));
  if (!each.length) return empty("Nothing is shown for each subtask of it: they have counted nothing, or under too many names.");
  const rows = each.slice(0, SHOWN_MAX).map((/** @type {any} */ [subtask, one]) => row(`${subtask.subtask} ${one.name}`, String(subtask.subtask), String(subtask.attempt), one.name, valueOf(one)));
  const more = each.length > SHOWN_MAX ? h("p", { class: "muted" }, `${number(each.length - SHOWN_MAX)} more in REST.`) : null;
  return [table("Accumulators by subtask", ["Subtask", "Attempt", "Name", "Value"], rows, ""), more];
}

/** @param {any} one */
function valueOf(one) {
  const value = JSON.parse(one.value);
  if (typeof value === "number") return number(value);
  const mean = value.sum / value.count;
  return value.count === 1 ? short(value.sum) : `${number(value.count)} values, mean ${short(mean)}, from ${short(value.min)} to ${short(value.max)}`;
}

/** @param {number} value */
function short(value) {
  return String(Number(value.toPrecision(6)));
}
