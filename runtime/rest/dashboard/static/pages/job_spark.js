/** What Spark does and has done for a job: by attempt its stages, shuffle, spill, and the plans of its queries. */

import { get } from "../api.js";
import { duration, number, size } from "../format.js";
import { MODE } from "../mode.js";
import { empty, facts, link, section, spent, state, table, time } from "../parts.js";
import { h } from "../view.js";
import { maySeeAll, sparkUiLink } from "./spark_ui.js";

const SHOWN_MAX = 50;
const HEAD = ["Stage", "State", "Tasks", "Started", "Time", "Task time", "GC", "Read", "Written", "Shuffle read", "Shuffle written", "Spilled"];
const EMPTY = "No attempt of the job has used Spark that its TaskManager tells of. Java applications have a JVM of their own, and are not shown.";

/** @type {import("./job.js").Tab} */
export const sparkTab = {
  name: "spark",
  title: "Spark",
  load: (jobId, _, signal) => get(`jobs/${encodeURIComponent(jobId)}/spark?plans=true`, signal),
  view(job, spark, _, app) {
    const attempts = [...spark.attempts].sort((a, b) => b.total["run-time"] - a.total["run-time"]);
    const problems = spark.problems.map((/** @type {string} */ one) => h("p", { class: "problem", key: one }, one));
    if (!attempts.length) return [problems, empty(EMPTY)];
    const shown = attempts.slice(0, SHOWN_MAX);
    const rest = attempts.length - shown.length;
    return [
      problems,
      sums(attempts),
      shown.map((one) => attemptSection(job, one, spark.now, app)),
      rest > 0 ? h("p", { class: "muted" }, `${number(rest)} more attempts, which have taken less time, are in REST.`) : null,
      spark["left-out"] ? h("p", { class: "waiting" }, `${number(spark["left-out"])} running attempts are not shown: at most 100 are asked.`) : null,
    ];
  },
};

/** @param {any[]} attempts */
function sums(attempts) {
  const all = (/** @type {string} */ name) => attempts.reduce((found, one) => found + one.total[name], 0);
  const stages = attempts.reduce((found, one) => found + one["stages-total"], 0);
  return facts([
    ["stages", number(stages)],
    ["tasks", number(all("tasks-completed"))],
    ["failed tasks", all("tasks-failed") ? number(all("tasks-failed")) : ""],
    ["task time", duration(all("run-time"))],
    ["of it CPU", duration(all("cpu-time"))],
    ["of it GC", duration(all("gc-time"))],
    ["shuffle written", size(all("shuffle-write-bytes"))],
    ["spilled to disk", all("spilled-disk-bytes") ? size(all("spilled-disk-bytes")) : ""],
  ]);
}

/** @param {any} job @param {any} one @param {number} now @param {import("../app.js").App} app */
function attemptSection(job, one, now, app) {
  const logs = `ui/jobs/${job.jid}/logs?vertex=${encodeURIComponent(one.vertex)}&subtask=${one.subtask}&attempt=${one.attempt}`;
  const kept = one["stages-total"] > one.stages.length ? h("p", { class: "muted" }, `The ${one.stages.length} longest of ${number(one["stages-total"])} stages.`) : null;
  const hasPages = one.environment !== null && maySeeAll(app) && !MODE;
  const failed = one["jobs-failed"] ? `, ${one["jobs-failed"]} of them failed` : "";
  const name = `${one["vertex-name"]} ${one.subtask}${one.attempt ? `, attempt ${one.attempt}` : ""}`;
  return section(
    name,
    h("p", null, state(one.status), ` ${number(one.jobs)} Spark jobs${failed}. `, link(logs, "logs"), hasPages ? [" ", sparkUiLink(one["taskmanager-id"], one.environment)] : null),
    table(`Stages of ${name}`, HEAD, one.stages.map((/** @type {any} */ stage) => stageRow(stage, now)), "No stage yet."),
    kept,
    one.queries.map((/** @type {any} */ query) => queryOf(query, now)),
  );
}

/** @param {any} stage @param {number} now */
function stageRow(stage, now) {
  const of = stage.counts;
  const tasks = `${number(of["tasks-completed"])}/${number(of["tasks-total"])}${of["tasks-failed"] ? `, ${number(of["tasks-failed"])} failed` : ""}`;
  const cells = [`${stage.id} ${stage.name}`, state(stage.status), tasks, time(stage["start-time"]), spent(stage["start-time"], stage["end-time"], now), duration(of["run-time"]), duration(of["gc-time"]), bytes(of["read-bytes"]), bytes(of["write-bytes"]), bytes(of["shuffle-read-bytes"]), bytes(of["shuffle-write-bytes"]), bytes(of["spilled-disk-bytes"])];
  return h("tr", { key: `${stage.id} ${stage.attempt}` }, cells.map((one) => h("td", null, one)));
}

/** @param {number} count */
function bytes(count) {
  return count ? size(count) : "";
}

/** @param {any} query @param {number} now */
function queryOf(query, now) {
  const head = `Query ${query.id}: ${query.description || "of a call that Spark does not name"}, ${spent(query["start-time"], query["end-time"], now)}`;
  return h("details", { key: `query ${query.id}` }, h("summary", null, head), h("pre", { class: "result", tabindex: 0, role: "region", "aria-label": `Plan of query ${query.id}` }, query.plan));
}
