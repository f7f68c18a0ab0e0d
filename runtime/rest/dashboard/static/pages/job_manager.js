/** The JobManager: who leads, the options that are set, its logs, stacks and environment, and the store. */

import { ApiError, get, path } from "../api.js";
import { size } from "../format.js";
import { empty, facts, gauge, link, row, section, table, time } from "../parts.js";
import { h } from "../view.js";
import { EVENT_HEAD, eventRow } from "./events.js";
import { loadView, tabbed } from "./process_views.js";

const EVENTS = 1000;
const OF_JOB_MANAGERS = ["leader-elected", "jobmanager-registered", "jobmanager-lost"];
const TABS = /** @type {[string, string][]} */ ([["", "Configuration"], ["logs", "Logs"], ["threads", "Threads"], ["environment", "Environment"], ["leaders", "Leaders"], ["store", "Store"]]);
const MEMBER_HEAD = ["Endpoint", "State", "Version", "Size", "Answers in"];

/** @type {import("../app.js").Page} */
export const jobManagerPage = {
  title: () => "JobManager",
  moves: () => true,
  async load(place, signal) {
    const tab = place.parts[1] ?? "";
    const [overview, configuration, more, events, store] = await Promise.all([get("overview", signal), get("jobmanager/config", signal), loadView("jobmanager", tab, place, signal), tab === "leaders" ? get(path(["events"], { limit: EVENTS }), signal) : null, tab === "store" ? storeOf(signal) : null]);
    const leaders = events?.events.filter((/** @type {any} */ one) => OF_JOB_MANAGERS.includes(one.kind)) ?? [];
    return { overview, configuration, more, leaders, store };
  },
  view({ overview, configuration, more, leaders, store }, place, app) {
    const rows = configuration.map((/** @type {any} */ one) => row(one.key, h("code", null, one.key), h("code", null, one.value)));
    const first = () => section("Configuration", h("p", { class: "muted" }, "Options that are set; secrets are masked. All others have their defaults."), table("Configuration", ["Option", "Value"], rows, "No option is set: all have their defaults."));
    const tab = place.parts[1] ?? "";
    const history = () => section("Leaders", h("p", { class: "muted" }, "JobManagers that have led, stood by and ended, newest first. ", link("ui/events", "All events")), table("Leaders", EVENT_HEAD, leaders.slice().reverse().map(eventRow), "No change of the leader is kept."));
    return [
      h("h1", null, "JobManager"),
      facts([
        ["leader", overview.leader],
        ["stand-bys", overview["stand-bys"].join(", ")],
        ["high availability", overview["high-availability"]],
        ["version", overview["flink-version"]],
      ]),
      tabbed("ui/jobmanager", "jobmanager", TABS, tab, more, { leaders: history, store: () => storeTab(store) }[tab] ?? first, place, app),
    ];
  },
};

/** What only viewers of all namespaces may ask. @param {AbortSignal} signal */
async function storeOf(signal) {
  try {
    return await get("jobmanager/store", signal);
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) return { refused: error.message };
    throw error;
  }
}

/** @param {any} store */
function storeTab(store) {
  if (!store) return empty("It is being asked.");
  if (store.refused) return empty(`${store.refused}.`);
  const { kind, figures, members } = store;
  const shown = figures
    ? facts([
        ["kind", kind],
        ["size against its quota", gauge(figures["size-bytes"], figures["quota-bytes"], `${size(figures["size-bytes"])} of ${size(figures["quota-bytes"])}`)],
        ["of it in use", size(figures["used-bytes"])],
        ["version", figures.version],
        ["last answer", time(figures["looked-at"])],
      ])
    : empty("It has not answered yet.");
  const rows = members.map((/** @type {any} */ one) => row(one.endpoint, one.endpoint, one.problem ? h("span", { class: "problem" }, one.problem) : one.leader ? "leader" : "follower", one.version, one.problem ? "" : size(one["size-bytes"]), one.problem ? "" : `${one["answer-millis"]} ms`));
  const none = kind === "none" ? "Jobs are kept in the memory of this JobManager (high-availability.type: none): a restart forgets them." : "No endpoint is configured.";
  return section("Store", shown, table("Endpoints of the store", MEMBER_HEAD, rows, none));
}
