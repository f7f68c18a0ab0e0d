/** The JobManager: who leads, the options that are set, its logs, stacks and environment. */

import { get } from "../api.js";
import { facts, row, section, table } from "../parts.js";
import { h } from "../view.js";
import { loadView, tabbed } from "./process_views.js";

const TABS = /** @type {[string, string][]} */ ([["", "Configuration"], ["logs", "Logs"], ["threads", "Threads"], ["environment", "Environment"]]);

/** @type {import("../app.js").Page} */
export const jobManagerPage = {
  title: () => "JobManager",
  moves: true,
  async load(place, signal) {
    const tab = place.parts[1] ?? "";
    const [overview, configuration, config, more] = await Promise.all([get("overview", signal), get("jobmanager/config", signal), get("config", signal), loadView("jobmanager", tab, place, signal)]);
    return { overview, configuration, config, more };
  },
  view({ overview, configuration, config, more }, place, app) {
    const rows = configuration.map((/** @type {any} */ one) => row(one.key, h("code", null, one.key), h("code", null, one.value)));
    const first = () => section("Configuration", h("p", { class: "muted" }, "Options that are set; secrets are masked. All others have their defaults."), table("Configuration", ["Option", "Value"], rows, "No option is set: all have their defaults."));
    return [
      h("h1", null, "JobManager"),
      facts([
        ["leader", overview.leader],
        ["high availability", config["high-availability"]],
        ["version", overview["flink-version"]],
      ]),
      tabbed("ui/jobmanager", "jobmanager", TABS, place.parts[1] ?? "", more, first, place, app),
    ];
  },
};
