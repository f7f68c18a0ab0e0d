/** Which page belongs to which address. */

import { eventsPage } from "./pages/events.js";
import { jobManagerPage } from "./pages/job_manager.js";
import { jobMasterPage, jobMastersPage } from "./pages/job_masters.js";
import { jobPage } from "./pages/job.js";
import { jobsPage } from "./pages/jobs.js";
import { overviewPage } from "./pages/overview.js";
import { sparkUiPage } from "./pages/spark_ui.js";
import { programPage, submitPage } from "./pages/submit.js";
import { taskManagerPage, taskManagersPage } from "./pages/task_managers.js";
import { MODE } from "./mode.js";
import { h } from "./view.js";

/** @typedef {import("./app.js").Page} Page */

/** @type {Page} */
const missingPage = {
  title: () => "No such page",
  load: async () => ({}),
  view: () => h("div", { class: "trouble" }, h("h1", null, "No such page"), h("p", null, "Begin with the ", h("a", { href: "ui" }, MODE ? "jobs" : "overview"), ".")),
};

/** @type {{takes: (parts: string[]) => boolean, page: Page}[]} */
const ALL = [
  { takes: (parts) => parts.length === 0, page: MODE ? jobsPage : overviewPage },
  { takes: (parts) => parts.length === 1 && parts[0] === "jobs", page: jobsPage },
  { takes: (parts) => parts.length >= 2 && parts[0] === "jobs", page: jobPage },
  { takes: (parts) => parts.length === 1 && parts[0] === "taskmanagers", page: taskManagersPage },
  { takes: (parts) => parts.length >= 2 && parts.length <= 3 && parts[0] === "taskmanagers", page: taskManagerPage },
  { takes: (parts) => parts.length === 4 && parts[0] === "taskmanagers" && parts[2] === "spark-ui", page: sparkUiPage },
  { takes: (parts) => parts.length === 1 && parts[0] === "jobmasters", page: jobMastersPage },
  { takes: (parts) => parts.length >= 2 && parts.length <= 3 && parts[0] === "jobmasters", page: jobMasterPage },
  { takes: (parts) => parts.length <= 2 && parts[0] === "jobmanager", page: jobManagerPage },
  { takes: (parts) => parts.length === 1 && parts[0] === "submit", page: submitPage },
  { takes: (parts) => parts.length === 2 && parts[0] === "submit", page: programPage },
  { takes: (parts) => parts.length <= 2 && parts[0] === "events", page: eventsPage },
  { takes: () => true, page: missingPage },
];

/** The first that takes the address shows it; the last takes all. */
export const ROUTES = ALL.filter(({ page }) => !MODE || page === jobsPage || page === jobPage || page === missingPage);
