/** The whole cluster at a glance. */

import { get, path } from "../api.js";
import { counted, size } from "../format.js";
import { facts, figure, gauge, link, row, section, sparkline, table, time } from "../parts.js";
import { h } from "../view.js";
import { EVENT_HEAD, eventRow } from "./events.js";
import { jobRow, JOB_HEAD } from "./job_list.js";

const QUEUE_HEAD = ["Queue", "Slots", "Share", "Jobs that run", "Jobs that wait", "Weight", "Min", "Max"];
const WORKER_HEAD = ["Process", "Label", "Profile", "State", "Since", "Why"];
/** @type {Record<string, string>} */
const KINDS = { taskmanager: "TaskManager", jobmaster: "JobMaster process" };
const SHOWN = 15;
const LATEST_FAILURES = 5;
const LATEST_EVENTS = 5;

/** @type {import("../app.js").Page} */
export const overviewPage = {
  title: () => "Overview",
  moves: () => true,
  async load(_, signal, known) {
    const paths = ["overview", "overview/history", "queues", "resourcemanager"];
    const [overview, history, shares, made, lists] = await Promise.all([...paths.map((one) => get(one, signal)), known ?? listsOf(signal)]);
    return { ...lists, overview, history, shares, made };
  },
  view({ overview, history, shares, made, running, failed, events }, _, app) {
    const used = overview["slots-total"] - overview["slots-available"];
    const more = overview["jobs-running"] - running.length;
    return [
      h("h1", null, "Overview"),
      h(
        "div",
        { class: "figures" },
        figure(overview["jobs-running"], "unfinished jobs", "ui/jobs?state=unfinished", "busy"),
        figure(overview["jobs-finished"], "finished", "ui/jobs?state=FINISHED", "good"),
        figure(overview["jobs-failed"], "failed", "ui/jobs?state=FAILED", overview["jobs-failed"] ? "bad" : ""),
        figure(overview["jobs-cancelled"], "canceled", "ui/jobs?state=CANCELED"),
        figure(overview["taskmanagers"], starting("TaskManagers", overview["taskmanagers-pending"]), "ui/taskmanagers", overview["taskmanagers"] ? "" : "bad"),
        figure(overview["jobmasters"], starting("JobMaster processes", overview["jobmasters-pending"]), "ui/jobmasters", overview["jobmasters"] ? "" : "bad"),
      ),
      h("div", { class: "columns" }, h("div", { class: "card" }, h("h2", null, "Slots"), gauge(used, overview["slots-total"], `${used} of ${overview["slots-total"]} used`), cluster(overview)), h("div", { class: "card" }, h("h2", null, "Last minutes"), sparks(history))),
      section(
        "Unfinished jobs",
        table("Unfinished jobs", JOB_HEAD, running.map((/** @type {any} */ job) => jobRow(job, app)), ["No job is running. ", h("code", null, "flinklike run"), " starts one, or a task of Airflow."]),
        more > 0 ? h("p", null, link("ui/jobs?state=unfinished", `and ${counted(more, "more job")}`)) : null,
      ),
      workers(made),
      queues(shares),
      section("Latest failures", table("Latest failures", JOB_HEAD, failed.map((/** @type {any} */ job) => jobRow(job, app)), "No failed job is shown.")),
      section("Latest events", table("Latest events", EVENT_HEAD, events.slice().reverse().map(eventRow), "Nothing has happened yet."), h("p", null, link("ui/events", "All events"))),
    ];
  },
};

/** What is another only after the cluster has changed. @param {AbortSignal} signal */
async function listsOf(signal) {
  const [running, failed, latest] = await Promise.all([
    get(path(["jobs", "overview"], { state: "unfinished", limit: SHOWN }), signal),
    get(path(["jobs", "overview"], { state: "FAILED", limit: LATEST_FAILURES }), signal),
    get(path(["events"], { limit: LATEST_EVENTS }), signal),
  ]);
  return { running: running.jobs, failed: failed.jobs, events: latest.events };
}

/** @param {any} overview */
function cluster(overview) {
  return [
    facts([
      ["leader", overview["leader"]],
      ["high availability", overview["high-availability"]],
      ["stand-bys", overview["stand-bys"].join(", ") || (overview["high-availability"] === "none" ? "" : "none: a loss of the leader stops the cluster until it is started again")],
      ["version", overview["flink-version"]],
      ["store", store(overview)],
    ]),
    overview["delegation-tokens"].map((/** @type {any} */ one) =>
      h("p", { key: one.provider, class: one.failures ? "problem" : "muted" }, `Delegation tokens of ${one.provider}: `, one.failures ? one.failure : ["valid until ", time(one["valid-until"], "they are obtained")]),
    ),
  ];
}

/** @param {string} what @param {number} count */
function starting(what, count) {
  return count ? `${what}, ${count} starting` : what;
}

/** What the driver starts and releases now; nothing where all of it serves. @param {any} made */
function workers({ kinds, workers: found }) {
  const rows = found
    .filter((/** @type {any} */ one) => one.state !== "registered")
    .map((/** @type {any} */ one) => row(one.id, KINDS[one.kind] ?? one.kind, one.id, one.profile ?? "", one.state, time(one.since), one.reason));
  const problems = kinds
    .filter((/** @type {any} */ one) => one.problem)
    .map((/** @type {any} */ one) => h("p", { key: one.kind, class: "problem" }, `No ${KINDS[one.kind] ?? one.kind} comes up: ${one.problem}`));
  if (!rows.length && !problems.length) return null;
  return section("Started by the driver", problems, table("Started by the driver", WORKER_HEAD, rows, "Nothing starts or ends now."));
}

/** How the slots are shared; nothing where there is nobody to share them with. @param {any} shares */
function queues({ queues: found, problem }) {
  if (found.length < 2) return null;
  const rows = found.map((/** @type {any} */ one) =>
    row(one.name, one.name, ...[one["slots-held"], Number(one["share"].toPrecision(4)), one["jobs-running"], one["jobs-waiting"], one["weight"], one["min-slots"] || "", one["max-slots"] ?? ""].map(String)),
  );
  return section("Queues", problem ? h("p", { class: "problem" }, problem) : null, table("Queues", QUEUE_HEAD, rows, ""));
}

const SILENT_MILLIS = 45_000;

/** The store, which is asked every ten seconds. @param {any} overview */
function store(overview) {
  const { store: found, "high-availability": kind } = overview;
  if (!found) return "";
  const used = gauge(found["size-bytes"], found["quota-bytes"], `${size(found["size-bytes"])} of ${size(found["quota-bytes"])}`);
  const isSilent = Date.now() - found["looked-at"] > SILENT_MILLIS;
  return [link("ui/jobmanager/store", kind === "none" ? "memory of the JobManager" : `${kind} ${found.version}`), " ", used, isSilent ? h("div", { class: "problem" }, "It has not answered since ", time(found["looked-at"])) : null];
}

/** @param {any} history */
function sparks(history) {
  const rate = (/** @type {number} */ value) => (value >= 10 || value === 0 ? String(Math.round(value)) : value.toFixed(1));
  return [
    sparkline(history["jobs-per-second"], "jobs ended per second", rate),
    sparkline(history["tasks-per-second"], "tasks ended per second", rate),
    sparkline(history["slots-used"], "slots used", rate),
    sparkline(history["jobs-unfinished"], "unfinished jobs", rate),
  ];
}
