/** Rescales of a streaming job whose parallelism follows its slots: subtasks over time, and the pause of each. */

import { get } from "../api.js";
import { counted, duration, number } from "../format.js";
import { empty, facts, figure, row, section, sparkline, state, table, time } from "../parts.js";
import { h } from "../view.js";

const NONE = "This job keeps its parallelism: a streaming job is rescaled where jobmanager.scheduler is Adaptive, or scheduler-mode is reactive, when it is submitted.";
const HEAD = ["No.", "Cause", "State", "Begun", "Time", "Pause of queries", "Subtasks", "States"];
const POINTS = 120;

/** @param {any} job */
export function isRescaled(job) {
  return job["job-type"] === "STREAMING" && job.schedulerType === "Adaptive";
}

/** @type {import("./job.js").Tab} */
export const rescalesTab = {
  name: "rescales",
  title: "Rescales",
  async load(jobId, _, signal) {
    const job = `jobs/${encodeURIComponent(jobId)}`;
    if (!isRescaled(await get(job, signal))) return { bounds: null };
    const [bounds, overview, summary, history, config] = await Promise.all([
      get(`${job}/resource-requirements`, signal),
      get(`${job}/rescales/overview`, signal),
      get(`${job}/rescales/summary`, signal),
      get(`${job}/rescales/history`, signal),
      get(`${job}/rescales/config`, signal),
    ]);
    return { bounds, overview, summary, history, config };
  },
  view(job, { bounds, overview, summary, history, config }) {
    if (!bounds) return empty(NONE);
    const end = job["end-time"] >= 0 ? job["end-time"] : Date.now();
    const vertices = job.vertices.map((/** @type {any} */ one) => vertexRow(one, bounds[one.id]?.parallelism, history, end));
    const title = history.length ? `Last ${counted(history.length, "rescale")}` : "Last rescales";
    return [
      figures(overview.rescalesCounts, summary.pauseStatsInMillis),
      facts([
        ["mode", config.schedulerExecutionMode === "REACTIVE" ? "reactive" : ""],
        ["cooldown", duration(config.executingCooldownTimeoutInMillis)],
        ["stabilization", duration(config.executingResourceStabilizationTimeoutInMillis)],
      ]),
      section("Subtasks", table("Subtasks", ["Vertex", "Subtasks", "Bounds", "Over time"], vertices)),
      section(title, table("Rescales", HEAD, history.map(rescaleRow), "None has begun yet.")),
    ];
  },
};

/** @param {any} counts @param {any} pauses */
function figures(counts, pauses) {
  return h(
    "div",
    { class: "figures" },
    figure(number(counts.completed), "completed"),
    figure(number(counts.failed), "failed", undefined, counts.failed ? "bad" : ""),
    figure(number(counts.inProgress), "in progress"),
    figure(typeof pauses.max === "number" ? duration(pauses.max) : "-", "longest pause"),
  );
}

/** @param {any} vertex @param {any} bounds @param {any[]} history @param {number} end */
function vertexRow(vertex, bounds, history, end) {
  const said = !bounds ? "" : bounds.lowerBound === bounds.upperBound ? String(bounds.upperBound) : `${bounds.lowerBound} to ${bounds.upperBound}`;
  const line = sparkline(subtasksOver(vertex, history, end), "", (value) => counted(value, "subtask"));
  return row(vertex.id, vertex.name, number(vertex.parallelism), said, line);
}

/** How many subtasks a vertex had at evenly spaced moments, from the first rescale that is kept. @param {any} vertex @param {any[]} history @param {number} end */
function subtasksOver(vertex, history, end) {
  const steps = [...history].reverse().flatMap((one) => {
    const of = one.vertices[vertex.id];
    if (!of) return [];
    const begun = { at: one.startTimestampInMillis, count: of.preRescaleParallelism ?? 0 };
    return one.terminalState === "COMPLETED" ? [begun, { at: one.endTimestampInMillis, count: of.postRescaleParallelism }] : [begun];
  });
  const first = steps[0];
  if (!first) return [vertex.parallelism, vertex.parallelism];
  const moments = Array.from({ length: POINTS }, (_, index) => first.at + ((end - first.at) * index) / (POINTS - 1));
  return moments.map((moment) => steps.reduce((count, step) => (step.at <= moment ? step.count : count), first.count));
}

/** @param {any} one */
function rescaleRow(one) {
  const subtasks = Object.values(one.vertices).map((of) => `${of.jobVertexName}: ${of.preRescaleParallelism ?? 0} to ${of.postRescaleParallelism}`);
  const states = one.schedulerStates.map((/** @type {any} */ span) => (span.durationInMillis === null ? span.state : `${span.state} ${duration(span.durationInMillis)}`));
  return row(
    one.rescaleUuid,
    String(one.rescaleAttemptId),
    sentence(one.triggerCause),
    state(one.terminalState ?? "IN_PROGRESS"),
    time(one.startTimestampInMillis),
    one.endTimestampInMillis === null ? "" : duration(one.endTimestampInMillis - one.startTimestampInMillis),
    one.pauseInMillis === null ? "-" : duration(one.pauseInMillis),
    subtasks.join(", "),
    states.join(", "),
  );
}

/** INITIAL_SCHEDULE as words. @param {string} name */
function sentence(name) {
  return name.toLowerCase().replaceAll("_", " ");
}
