/** The JobManager: who leads, and the options that are set. */

import { get } from "../api.js";
import { facts, row, section, table } from "../parts.js";
import { h } from "../view.js";

/** @type {import("../app.js").Page} */
export const jobManagerPage = {
  title: () => "JobManager",
  async load(_, signal) {
    const [overview, configuration, config] = await Promise.all([get("overview", signal), get("jobmanager/config", signal), get("config", signal)]);
    return { overview, configuration, config };
  },
  view({ overview, configuration, config }) {
    const rows = configuration.map((/** @type {any} */ one) => row(one.key, h("code", null, one.key), h("code", null, one.value)));
    return [
      h("h1", null, "JobManager"),
      facts([
        ["leader", overview.leader],
        ["high availability", config["high-availability"]],
        ["version", overview["flink-version"]],
      ]),
      section("Configuration", h("p", { class: "muted" }, "Options that are set; secrets are masked. All others have their defaults."), table("Configuration", ["Option", "Value"], rows, "No option is set: all have their defaults.")),
    ];
  },
};
