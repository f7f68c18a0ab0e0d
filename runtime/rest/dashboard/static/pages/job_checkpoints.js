/** Checkpoints of a streaming job: how many, the last ones, and the position of each query in one of them. */

import { get } from "../api.js";
import { counted, duration, number, size } from "../format.js";
import { empty, facts, figure, row, section, state, table, time } from "../parts.js";
import { MODE } from "../mode.js";
import { h } from "../view.js";

const SHOWN_MAX = 200;
const NONE = "No checkpoints of this job are recorded: it has no streaming queries, or execution.checkpointing.interval is 0. Queries go on behind their last batches all the same.";
const HEAD = ["Id", "State", "Triggered", "Time", "Queries", "State size", "Savepoint, or failure"];

/** @type {import("./job.js").Tab} */
export const checkpointsTab = {
  name: "checkpoints",
  title: "Checkpoints",
  async load(jobId, place, signal) {
    const job = `jobs/${encodeURIComponent(jobId)}`;
    if (!(await get(job, signal)).checkpointing) return { all: null, config: null, details: null };
    const all = await get(`${job}/checkpoints`, signal);
    if (MODE === "airflow") return { all, config: null, details: null };
    const chosen = chosenOf(all, place);
    const isKept = [...all.history, ...Object.values(all.latest)].some((one) => one?.id === chosen);
    const [config, details] = await Promise.all([get(`${job}/checkpoints/config`, signal), isKept ? get(`${job}/checkpoints/details/${chosen}`, signal) : null]);
    return { all, config, details };
  },
  view(job, { all, config, details }, place, app) {
    if (!all) return empty(NONE);
    const chosen = chosenOf(all, place);
    const rows = all.history.map((/** @type {any} */ one) => checkpointRow(one, chosen, app));
    const shown = all.history.length;
    return [
      figures(all),
      latest(all, config),
      section(shown ? `Last ${counted(shown, "checkpoint")}` : "Last checkpoints", table("Last checkpoints", HEAD, rows, "None has begun yet.")),
      MODE === "airflow" ? null : positions(job, details, chosen),
    ];
  },
};

/** The id of the checkpoint whose positions are shown, -1 for none. @param {any} all @param {import("../app.js").Place} place */
function chosenOf(all, place) {
  return Number(place.query.get("checkpoint") ?? all.latest.completed?.id ?? -1);
}

/** @param {any} all */
function figures(all) {
  const { completed, failed, in_progress, restored } = all.counts;
  return h("div", { class: "figures" }, figure(number(completed), "completed"), figure(number(failed), "failed", undefined, failed ? "bad" : ""), figure(number(in_progress), "in progress"), figure(number(restored), "restored"));
}

/** @param {any} all @param {any} config */
function latest(all, config) {
  const { completed, failed, restored, savepoint } = all.latest;
  return facts([
    ["interval", config ? duration(config.interval) : ""],
    ["latest completed", completed ? [`${completed.id}, `, time(completed.trigger_timestamp)] : "none yet"],
    ["latest savepoint", savepoint ? [`${savepoint.id}, `, time(savepoint.trigger_timestamp), `, ${savepoint.external_path}`] : ""],
    ["latest failed", failed ? [`${failed.id}, `, time(failed.failure_timestamp)] : ""],
    ["latest restored", restored ? [restored.is_savepoint ? `savepoint ${restored.external_path}, ` : `${restored.id}, `, time(restored.restore_timestamp)] : ""],
    ["state size", completed ? size(completed.state_size) : ""],
    ["mean time", all.counts.completed ? duration(all.summary.end_to_end_duration.avg) : ""],
  ]);
}

/** Why it has failed, where it lies, or which queries it has no batch of. @param {any} one */
function note(one) {
  if (one.failure_message) return one.failure_message;
  if (one.is_savepoint) return one.external_path ?? "savepoint";
  return one.queries_without_batch ? `no batch yet of ${number(one.queries_without_batch)} of ${counted(one.num_acknowledged_subtasks, "query", "queries")}` : "";
}

/** @param {any} one @param {number} chosen @param {import("../app.js").App} app */
function checkpointRow(one, chosen, app) {
  const choose = () => app.goWith({ checkpoint: String(one.id) }, { replace: true });
  const name = MODE === "airflow" ? String(one.id) : h("button", { type: "button", class: "plain", "aria-expanded": String(one.id === chosen), "aria-label": `Checkpoint ${one.id}`, onclick: choose }, String(one.id));
  const cells = [name, state(one.status), time(one.trigger_timestamp), duration(one.end_to_end_duration), `${one.num_acknowledged_subtasks}/${one.num_subtasks}`, one.state_size < 0 ? "-" : size(one.state_size), note(one)];
  return h("tr", { key: String(one.id), class: one.id === chosen ? "chosen" : "" }, cells.map((cell) => h("td", null, cell)));
}

/** @param {any} job @param {any} details null where there is none @param {number} chosen */
function positions(job, details, chosen) {
  if (chosen < 0) return null;
  const title = `Positions of checkpoint ${chosen}`;
  if (!details) return section(title, empty("This checkpoint is not kept any more."));
  const names = new Map(job.vertices.map((/** @type {any} */ one) => [one.id, one.name]));
  const rows = details.positions.slice(0, SHOWN_MAX).map((/** @type {any} */ one) =>
    row(`${one.vertex} ${one.subtask}`, one.uid, String(one.subtask), String(names.get(one.vertex) ?? one.vertex), one["batch-id"] < 0 ? "none yet" : number(one["batch-id"]), counted(one["state-rows"], "row"), size(one["state-bytes"]), time(one.acknowledged)),
  );
  const rest = details.positions.length - rows.length;
  return section(title, table(title, ["Query", "Subtask", "Vertex", "Last committed batch", "State", "State size", "Answered"], rows, "No query has answered."), rest > 0 ? h("p", { class: "muted" }, `${number(rest)} more are in REST.`) : null);
}
