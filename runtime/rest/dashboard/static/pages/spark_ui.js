/** Spark's own pages of an environment: this page only leads there, as they are another origin with a sign-in of its own. */

import { send } from "../api.js";
import { h } from "../view.js";

const DEFAULT = "default";

/** @param {string} taskManager @param {string} key of the environment, "" for the default one */
export function sparkUiLink(taskManager, key) {
  const href = `ui/taskmanagers/${encodeURIComponent(taskManager)}/spark-ui/${encodeURIComponent(key || DEFAULT)}`;
  return h("a", { href, target: "_blank", rel: "noopener" }, "Spark UI");
}

/** Spark's pages show jobs of all namespaces. @param {import("../app.js").App} app */
export function maySeeAll(app) {
  return app.principal?.namespace === "*";
}

/** @type {import("../app.js").Page} */
export const sparkUiPage = {
  title: () => "Spark UI",
  async load(place, signal) {
    const [, taskManager = "", , key = ""] = place.parts;
    const path = `taskmanagers/${encodeURIComponent(taskManager)}/spark-ui`;
    const told = await send("POST", path, { environment: key === DEFAULT ? "" : key }, signal);
    const origin = told.address || `${location.protocol}//${location.hostname}:${told.port}`;
    location.replace(`${origin}/#code=${encodeURIComponent(told.code)}`);
    return {};
  },
  view: () => h("p", { class: "loading", role: "status" }, "Opens Spark's own pages…"),
};
