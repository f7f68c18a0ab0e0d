/** The JobManager: who leads, the options that are set, its logs, stacks and environment. */

import { get, path } from "../api.js";
import { facts, link, row, section, table } from "../parts.js";
import { h } from "../view.js";
import { EVENT_HEAD, eventRow } from "./events.js";
import { loadView, tabbed } from "./process_views.js";

const EVENTS = 1000;
const OF_JOB_MANAGERS = ["leader-elected", "jobmanager-registered", "jobmanager-lost"];
const TABS = /** @type {[string, string][]} */ ([["", "Configuration"], ["logs", "Logs"], ["threads", "Threads"], ["environment", "Environment"], ["leaders", "Leaders"]]);

/** @type {import("../app.js").Page} */
export const jobManagerPage = {
  title: () => "JobManager",
  moves: () => true,
  async load(place, signal) {
    const tab = place.parts[1] ?? "";
    const [overview, configuration, more, events] = await Promise.all([get("overview", signal), get("jobmanager/config", signal), loadView("jobmanager", tab, place, signal), tab === "leaders" ? get(path(["events"], { limit: EVENTS }), signal) : null]);
    const leaders = events?.events.filter((/** @type {any} */ one) => OF_JOB_MANAGERS.includes(one.kind)) ?? [];
    return { overview, configuration, more, leaders };
  },
  view({ overview, configuration, more, leaders }, place, app) {
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
      tabbed("ui/jobmanager", "jobmanager", TABS, tab, more, tab === "leaders" ? history : first, place, app),
    ];
  },
};
