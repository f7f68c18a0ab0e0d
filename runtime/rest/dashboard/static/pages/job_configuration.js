/** Parameters and Spark conf of a job. */

import { get } from "../api.js";
import { facts, row, section, table } from "../parts.js";
import { h } from "../view.js";

/** @type {import("./job.js").Tab} */
export const configurationTab = {
  name: "configuration",
  title: "Configuration",
  load: (jobId, _, signal) => get(`jobs/${encodeURIComponent(jobId)}/config`, signal),
  view(_, config) {
    const of = config["execution-config"];
    const settings = Object.entries(of["user-config"]).sort(([a], [b]) => a.localeCompare(b));
    const rows = settings.map(([key, value]) => row(key, h("code", null, key), h("code", null, String(value))));
    return [
      facts([
        ["restart strategy", of["restart-strategy"]],
        ["failures of user code", of["user-failures"]],
        ["parallelism", String(of["job-parallelism"])],
      ]),
      section("Parameters and Spark conf", table("Parameters and Spark conf", ["Name", "Value"], rows, "The job has no parameters and no Spark conf.")),
    ];
  },
};
