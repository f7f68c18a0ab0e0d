/** One job: what stands on top of all its tabs, and the choice of the tab. */

import { get } from "../api.js";
import { counted } from "../format.js";
import { facts, id, link, sentenceOf, spent, state, time } from "../parts.js";
import { hasPage, MODE } from "../mode.js";
import { h } from "../view.js";
import { accumulatorsTab } from "./job_accumulators.js";
import { checkpointsTab } from "./job_checkpoints.js";
import { configurationTab } from "./job_configuration.js";
import { exceptionsTab } from "./job_exceptions.js";
import { flameTab } from "./job_flame.js";
import { graphTab } from "./job_graph.js";
import { logsTab } from "./job_logs.js";
import { isRescaled, rescalesTab } from "./job_rescales.js";
import { sparkTab } from "./job_spark.js";
import { hasStreams, streamsTab } from "./job_streams.js";
import { subtasksTab } from "./job_subtasks.js";
import { timelineTab } from "./job_timeline.js";

/** @typedef {import("../view.js").Content} Content */
/** @typedef {import("../app.js").App} App */
/** @typedef {import("../app.js").Place} Place */
/**
 * A tab. `load` finds what it needs beside the job; `job` is the body of GET /jobs/:id.
 * @typedef {object} Tab
 * @property {string} name in the address
 * @property {string} title
 * @property {(jobId: string, place: Place, signal: AbortSignal) => Promise<any>} load
 * @property {(job: any, more: any, place: Place, app: App) => Content} view
 */

const ALL_TABS = [graphTab, streamsTab, checkpointsTab, rescalesTab, timelineTab, subtasksTab, exceptionsTab, logsTab, sparkTab, flameTab, accumulatorsTab, configurationTab];
/** A history has no task that runs, and Airflow's pages take no stacks and no rescales. */
const TABS = ALL_TABS.filter((tab) => !MODE || (tab !== flameTab && (MODE !== "airflow" || tab !== rescalesTab)));
/** A job without streaming queries has nothing to show there. @type {Tab[]} */
const OF_STREAMS = [streamsTab, checkpointsTab, rescalesTab];
const RESULT_OPEN_CHARACTERS = 200;
const ENDED = ["FINISHED", "FAILED", "CANCELED"];

/** @param {string} name */
function tabOf(name) {
  return TABS.find((tab) => tab.name === name) ?? graphTab;
}

/** @param {any} job */
export function hasEnded(job) {
  return ENDED.includes(job.state);
}

/** @type {import("../app.js").Page} */
export const jobPage = {
  title: (_, data) => data?.job.name ?? "Job",
  moves: ({ job }) => !hasEnded(job),
  async load(place, signal) {
    const jobId = place.parts[1] ?? "";
    const tab = tabOf(place.parts[2] ?? "");
    const [job, more] = await Promise.all([get(`jobs/${encodeURIComponent(jobId)}`, signal), tab.load(jobId, place, signal)]);
    const result = hasEnded(job) ? await get(`jobs/${encodeURIComponent(jobId)}/execution-result`, signal) : null;
    return { job, more, result: result?.["job-execution-result"] };
  },
  view({ job, more, result }, place, app) {
    const chosen = tabOf(place.parts[2] ?? "");
    const suits = (/** @type {Tab} */ tab) => (tab === rescalesTab ? isRescaled(job) : hasStreams(job));
    const tabs = TABS.filter((tab) => tab === chosen || !OF_STREAMS.includes(tab) || suits(tab)).map((tab) => {
      const failures = tab === exceptionsTab && result?.["failure-cause"] ? " •" : "";
      return h("a", { key: tab.name, href: `ui/jobs/${job.jid}/${tab.name}`, "aria-current": tab === chosen ? "page" : null }, tab.title, failures);
    });
    return [head(job, result, app), h("nav", { class: "tabs", "aria-label": "Parts of the job" }, tabs), h("div", { key: chosen.name, class: "tab" }, chosen.view(job, more, place, app))];
  },
};

/** @param {any} job @param {any} result @param {App} app */
function head(job, result, app) {
  return h(
    "div",
    { class: "head", key: "head" },
    h("div", { class: "title" }, h("h1", null, job.name || "(no name)", " ", state(job.state)), actions(job, app)),
    id(job.jid, "job id", app),
    job["pending-reason"] ? h("p", { class: "waiting" }, job["pending-reason"]) : null,
    result?.["failure-cause"] ? h("p", { class: "problem" }, link(`ui/jobs/${job.jid}/exceptions`, sentenceOf(result["failure-cause"].class, firstLine(result["failure-cause"].message)))) : null,
    facts([
      ["kind", job["job-type"] === "STREAMING" ? "streaming, without an end" : ""],
      ["started", time(job["start-time"], "not yet")],
      ["ended", time(job["end-time"])],
      ["time", spent(job["start-time"], job["end-time"], Date.now())],
      ["submitted by", job.submitter || "admin"],
      ["submitted with", job.client],
      ["namespace", job.namespace],
      ["cluster", job.cluster],
      ["JobMaster process", job["jobmaster-id"] ? link(`ui/jobmasters/${job["jobmaster-id"]}`, job.jobmaster) : ""],
      ["trace", job["trace-id"] ? id(job["trace-id"], "trace id", app) : ""],
      ["takeovers", job.takeovers.length ? h("details", null, h("summary", null, counted(job.takeovers.length, "takeover")), h("ul", null, job.takeovers.map(takeover))) : ""],
    ]),
    resultOf(job, result),
  );
}

/** @param {any} job @param {any} result */
function resultOf(job, result) {
  if (!result || job.state !== "FINISHED" || result.result === null || result.result === undefined) return null;
  const text = JSON.stringify(result.result, null, 2);
  const pre = h("pre", { class: "result", tabindex: 0, role: "region", "aria-label": "Result" }, text);
  return h("details", { open: text.length < RESULT_OPEN_CHARACTERS }, h("summary", null, "Result"), pre);
}

/** @param {any} one */
function takeover(one) {
  return h("li", { key: `${one.timestamp}` }, time(one.timestamp), ` from ${one.from} to ${one.to}, because ${one.reason}`);
}

/** @param {string} text */
function firstLine(text) {
  const line = (text ?? "").split("\n")[0] ?? "";
  return line.length > 300 ? `${line.slice(0, 300)}…` : line;
}

/** @param {any} job @param {App} app */
function actions(job, app) {
  if (hasEnded(job)) return null;
  const cancel = () =>
    app.ask({
      title: `Cancel ${job.name}?`,
      says: "Its running tasks are stopped, tasks that wait are not started, and its result is CANCELED. This cannot be undone.",
      verb: "Cancel the job",
      does: async () => {
        await app.change("PATCH", `jobs/${job.jid}?mode=cancel`);
        return `${job.name} is being cancelled.`;
      },
    });
  return h("div", { class: "actions" }, app.may("submitter") && job["may-cancel"] !== false ? h("button", { type: "button", class: "danger", onclick: cancel }, "Cancel job") : null, app.may("operator") && job["jobmaster-id"] && hasPage("ui/jobmasters") ? h("a", { class: "button", href: `ui/jobmasters?move=${job.jid}` }, "Move") : null);
}
