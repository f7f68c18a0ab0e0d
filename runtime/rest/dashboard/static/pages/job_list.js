/** A job as the row of a list. */

import { id, link, progress, spent, state, time } from "../parts.js";
import { MODE } from "../mode.js";
import { h } from "../view.js";

export const JOB_HEAD = ["Job", "State", "Subtasks", "Started", "Time", MODE === "history" ? "Cluster" : "Submitter"];

/** @param {any} job a row of /jobs/overview @param {import("../app.js").App} app */
export function jobRow(job, app) {
  const why = job["pending-reason"] ? h("div", { class: "muted why" }, job["pending-reason"]) : null;
  const namespace = job.namespace === "default" ? "" : ` in ${job.namespace}`;
  return h(
    "tr",
    { key: job.jid },
    h("td", null, link(`ui/jobs/${job.jid}`, job.name || "(no name)"), id(job.jid, "job id", app), why),
    h("td", null, state(job.state)),
    h("td", null, progress(job.tasks)),
    h("td", null, time(job["start-time"], "not yet")),
    h("td", null, spent(job["start-time"], job["end-time"], Date.now())),
    h("td", null, MODE === "history" ? `${job.cluster}${namespace}` : `${job.submitter || "admin"}${namespace}`),
  );
}
