/** TaskManagers: slots and what they run, memory, Spark environments; drain and undrain. */

import { ApiError, get } from "../api.js";
import { counted, duration, number, size } from "../format.js";
import { empty, facts, gauge, id, link, row, section, state, table, time } from "../parts.js";
import { h } from "../view.js";
import { drainButton } from "./job_masters.js";
import { loadView, tabbed } from "./process_views.js";
import { maySeeAll, sparkUiLink } from "./spark_ui.js";

const HEAD = ["TaskManager", "State", "Slots", "Spark", "Environments", "Last heartbeat", "Actions"];

/** @type {import("../app.js").Page} */
export const taskManagersPage = {
  title: () => "TaskManagers",
  moves: () => true,
  load: (_, signal) => get("taskmanagers", signal),
  view({ taskmanagers }, _, app) {
    const none = ["No TaskManager is registered: ", h("code", null, "bin/taskmanager.sh start"), " starts one. Jobs wait until there is one."];
    return [h("h1", null, "TaskManagers"), table("TaskManagers", HEAD, taskmanagers.map((/** @type {any} */ one) => managerRow(one, app)), none)];
  },
};

/** @param {any} one @param {import("../app.js").App} app */
function managerRow(one, app) {
  const used = one.slotsNumber - one.freeSlots;
  return h(
    "tr",
    { key: one.incarnation },
    h("td", null, link(`ui/taskmanagers/${encodeURIComponent(one.id)}`, one.id), one.problem ? h("div", { class: "problem" }, one.problem) : null, h("div", { class: "muted" }, one.path)),
    h("td", null, state(one.state)),
    h("td", null, gauge(used, one.slotsNumber, `${used}/${one.slotsNumber}`)),
    h("td", null, spark(one)),
    h("td", null, one["spark-environments"].length || ""),
    h("td", null, time(one.timeSinceLastHeartbeat)),
    h("td", null, drainButton("taskmanagers", one.id, one.id, one.state, app)),
  );
}

/** @param {any} one */
function spark(one) {
  if (!one.spark) return h("span", { class: "muted" }, "none");
  return `${one["spark-version"]} ${one.warm ? "warm" : "warming up"}`;
}

const TABS = /** @type {[string, string][]} */ ([["", "Slots"], ["spark", "Spark"], ["logs", "Logs"], ["threads", "Threads"], ["environment", "Environment"]]);

/** @type {import("../app.js").Page} */
export const taskManagerPage = {
  title: (place) => place.parts[1] ?? "TaskManager",
  moves: () => true,
  async load(place, signal) {
    const path = `taskmanagers/${encodeURIComponent(place.parts[1] ?? "")}`;
    const [one, more, usage] = await Promise.all([get(path, signal), loadView(path, place.parts[2] ?? "", place, signal), usageOf(path, signal)]);
    return { one, more, usage };
  },
  view({ one, more, usage }, place, app) {
    const tab = place.parts[2] ?? "";
    const path = `taskmanagers/${encodeURIComponent(one.id)}`;
    return [
      h("div", { class: "title" }, h("h1", null, one.id, " ", state(one.state)), h("div", { class: "actions" }, drainButton("taskmanagers", one.id, one.id, one.state, app))),
      id(one.incarnation, "incarnation", app),
      one.problem ? h("p", { class: "problem" }, one.problem) : null,
      facts([
        ["address", one.path],
        ["last heartbeat", time(one.timeSinceLastHeartbeat)],
        ["CPU cores", String(one.hardware.cpuCores)],
        ["memory of the host", size(one.hardware.physicalMemory)],
        ["memory of tasks", size(one.memoryConfiguration.taskHeap)],
        ["Spark", spark(one)],
        ["Spark master", one["spark-master"]],
        ["Spark profile", one["spark-profile"]],
        ["labels", one["labels"].join(", ")],
        ["tenancy", one.tenancy === "namespace" ? `one namespace at a time${one.tenant ? `, now ${one.tenant}` : ""}` : "shared by namespaces"],
        ["not enforced here", one["not-enforced"].length ? h("ul", null, one["not-enforced"].map((/** @type {string} */ text) => h("li", { key: text }, text))) : ""],
        ["version", one.version],
      ]),
      tabbed(`ui/${path}`, path, TABS, tab, more, () => (tab === "spark" ? sparkTab(one, usage, app) : [section("Slots", slots(one, usage)), section("Spark environments", environments(one, app))]), place, app),
    ];
  },
};

/** What only viewers of all namespaces may ask; null for others, and while it does not answer. @param {string} path @param {AbortSignal} signal */
async function usageOf(path, signal) {
  try {
    return await get(`${path}/usage`, signal);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 403 || error.status === 503)) return null;
    throw error;
  }
}

/** @param {any} one @param {any} usage */
function slots(one, usage) {
  const used = new Map((usage?.slots ?? []).map((/** @type {any} */ slot) => [slot.index, slot]));
  const byIndex = new Map(one.allocatedSlots.map((/** @type {any} */ slot) => [slot.index, slot]));
  const cards = Array.from({ length: one.slotsNumber }, (_, index) => {
    const slot = byIndex.get(index);
    const job = slot?.jobId ? link(`ui/jobs/${slot.jobId}`, slot.jobId) : slot ? "a job that you may not see" : "free";
    return h("li", { key: index, class: `slot ${slot ? "busy" : "free"}` }, h("span", { class: "muted" }, `Slot ${index}`), h("div", null, job), memoryOf(used.get(index)), looks(used.get(index)));
  });
  return [h("p", { class: "muted" }, `${counted(one.freeSlots, "free slot")} of ${one.slotsNumber}, each with ${size(one.memoryConfiguration.taskHeap / Math.max(1, one.slotsNumber))}`), h("ul", { class: "slots" }, cards)];
}

/** The stacks and the logs of the attempt in a slot, whose id names job, vertex, subtask and more. @param {any} slot */
function looks(slot) {
  const found = /^([0-9a-f]{32})_([0-9a-f]{32})_([0-9]+)_/.exec(slot?.["attempt-id"] ?? "");
  if (!found) return null;
  const [, job, vertex, subtask] = found;
  return h("div", null, link(`ui/jobs/${job}/flamegraph?vertex=${vertex}&subtask=${subtask}`, "flame graph"), " · ", link(`ui/jobs/${job}/logs?vertex=${vertex}&subtask=${subtask}`, "logs"));
}

/** @param {any} slot */
function memoryOf(slot) {
  if (!slot?.["attempt-id"]) return null;
  return slot.limit ? gauge(slot.memory, slot.limit, `${size(slot.memory)} of ${size(slot.limit)}`) : h("div", { class: "muted" }, size(slot.memory));
}

/** @param {any} one @param {any} usage @param {import("../app.js").App} app */
function sparkTab(one, usage, app) {
  if (!one.spark) return empty("This TaskManager runs no Spark (taskmanager.spark.enabled).");
  if (!usage) return empty("What its JVMs take is shown to viewers of all namespaces, when the TaskManager answers.");
  if (!usage.jvms.length) return empty("No JVM runs now: each job has one of its own, or Spark is being started.");
  return usage.jvms.map((/** @type {any} */ jvm) => jvmSection(jvm, one, app));
}

/** @param {any} jvm @param {any} one @param {import("../app.js").App} app */
function jvmSection(jvm, one, app) {
  const name = jvm.environment || "default environment";
  const rows = Object.entries(jvm.conf).map(([key, value]) => row(key, h("code", null, key), h("code", null, String(value))));
  const told = jvm["heap-max"] < 0 ? h("p", { class: "waiting" }, "Its JVM does not answer now.") : null;
  return section(
    name,
    told ??
      facts([
        ["heap", gauge(jvm["heap-used"], jvm["heap-max"], `${size(jvm["heap-used"])} of ${size(jvm["heap-max"])}`)],
        ["heap from the system", size(jvm["heap-committed"])],
        ["beside the heap", size(jvm["non-heap-used"])],
        ["resident", jvm.resident ? size(jvm.resident) : ""],
        ["garbage collections", `${number(jvm["gc-count"])} in ${duration(jvm["gc-time"])}`],
        ["threads", number(jvm.threads)],
      ]),
    maySeeAll(app) ? h("p", null, sparkUiLink(one.id, jvm.environment)) : null,
    h("details", null, h("summary", null, `Spark conf (${rows.length})`), table(`Spark conf of ${name}`, ["Key", "Value"], rows, "None.")),
  );
}

/** @param {any} one @param {import("../app.js").App} app */
function environments(one, app) {
  const found = one["spark-environments"];
  if (!one.spark) return empty("This TaskManager runs no Spark (taskmanager.spark.enabled).");
  const rows = found.map((/** @type {any} */ environment) => h("tr", { key: environment.key }, h("td", null, h("code", null, environment.key), maySeeAll(app) ? [" ", sparkUiLink(one.id, environment.key)] : null), h("td", null, size(environment["memory-bytes"])), h("td", null, environment.users)));
  return table("Spark environments", ["Key", "Memory", "Tasks"], rows, "Only its default environment. A job with static conf of its own starts another one.");
}
