/** A job as the row of a list. */

import { id, progress, spent, state, time } from "../parts.js";
import { MODE } from "../mode.js";
import { h } from "../view.js";

export const JOB_HEAD = ["Job", "State", "Subtasks", "Started", "Time", { "": "Submitter", history: "Cluster", airflow: "Task" }[MODE]];

/** @param {any} job a row of /jobs/overview @param {import("../app.js").App} app */
export function jobRow(job, app) {
  const why = job["pending-reason"] ? h("div", { class: "muted why" }, job["pending-reason"]) : null;
  const cause = job.failure ? h("div", { class: "problem why" }, job.failure, labels(job["failure-labels"])) : null;
  return h(
    "tr",
    { key: job.jid },
    h("td", null, h("a", { href: job.href ?? `ui/jobs/${job.jid}` }, job.name || "(no name)"), id(job.jid, "job id", app), why, cause),
    h("td", null, state(job.state)),
    h("td", null, progress(job.tasks)),
    h("td", null, time(job["start-time"], "not yet")),
    h("td", null, spent(job["start-time"], job["end-time"], Date.now())),
    h("td", null, whose(job)),
  );
}

/** What failure enrichers say of the cause; each leads to the jobs with the same. @param {Record<string, string>} found */
function labels(found) {
  return Object.entries(found ?? {}).map(([name, value]) => {
    const text = `${name}=${value}`;
    return [" ", MODE === "airflow" ? h("span", { class: "label" }, text) : h("a", { class: "label", href: `ui/jobs?label=${encodeURIComponent(text)}` }, text)];
  });
}

/** @param {any} job */
function whose(job) {
  if (MODE === "airflow") return [job.task, h("div", { class: "muted" }, job.run)];
  const namespace = job.namespace === "default" ? "" : ` in ${job.namespace}`;
  return `${MODE === "history" ? job.cluster : job.submitter || "admin"}${namespace}`;
}
