/** All jobs that the cluster shows: found by state, name, label and time, sorted, in pages. */

import { get, path } from "../api.js";
import { counted } from "../format.js";
import { table } from "../parts.js";
import { MODE } from "../mode.js";
import { h } from "../view.js";
import { JOB_HEAD, jobRow } from "./job_list.js";

const PAGE_ROWS = 50;
/** What the cluster itself says of a failure; plug-ins say more. */
const KINDS = ["type=USER", "type=SYSTEM", "type=RESOURCE"];
const NONE = {
  "": () => ["No jobs yet: ", h("code", null, "flinklike run"), " starts one, or a task of Airflow."],
  history: () => ["No job has ended yet in the histories that this server reads: historyserver.archive.fs.dir names them."],
  airflow: () => ["No job is shown of the DAGs that you may read. A task with an operator of flinklike starts one."],
};
const ENDED = ["", "FINISHED", "FAILED", "CANCELED"];
const STATES = MODE === "history" ? ENDED : ["", "unfinished", "RUNNING", "FINISHED", "FAILED", "CANCELED", "RESTARTING", "CREATED", "INITIALIZING"];
const SORTS = /** @type {[string, string][]} */ ([["", "newest first"], ["oldest", "oldest first"], ["longest", "longest first"], ["name", "by name"]]);

/** @type {import("../app.js").Page} */
export const jobsPage = {
  title: () => "Jobs",
  load(place, signal) {
    const asked = { state: place.query.get("state"), name: place.query.get("name"), sort: place.query.get("sort"), after: place.query.get("after"), since: place.query.get("since"), until: place.query.get("until"), label: place.query.get("label") };
    return get(path(["jobs", "overview"], { ...asked, limit: PAGE_ROWS }), signal);
  },
  view(data, place, app) {
    const chosen = place.query.get("state") ?? "";
    const name = place.query.get("name") ?? "";
    const isFiltered = chosen || name || place.query.get("since") || place.query.get("until") || place.query.get("label");
    const none = isFiltered ? ["No job is like that. ", h("a", { href: "ui/jobs" }, "Show all")] : NONE[MODE]();
    return [
      h("h1", null, "Jobs"),
      (data.problems ?? []).map((/** @type {string} */ one) => h("p", { class: "problem", role: "status", key: one }, one)),
      h(
        "form",
        { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
        h("label", null, "Name or id ", h("input", { type: "search", value: name, oninput: (/** @type {Event} */ event) => search(event, app) })),
        h("label", null, "State ", options("state", STATES.map((one) => [one, one || "all"]), chosen, app)),
        h("label", null, "Order ", options("sort", SORTS, place.query.get("sort") ?? "", app)),
        MODE !== "airflow" ? [h("label", null, "From ", day("since", 0, place, app)), h("label", null, "To ", day("until", 1, place, app)), label(place, app)] : null,
        h("span", { class: "muted" }, data.total === undefined ? "" : counted(data.total, "job")),
      ),
      table("Jobs", JOB_HEAD, data.jobs.map((/** @type {any} */ job) => jobRow(job, app)), none),
      h(
        "nav",
        { class: "pages", "aria-label": "Pages of jobs" },
        place.query.get("after") ? h("button", { type: "button", onclick: () => app.goWith({ after: null }) }, "First page") : null,
        data.next ? h("button", { type: "button", onclick: () => app.goWith({ after: data.next }) }, "Next page") : null,
      ),
    ];
  },
};

/** @param {string} name @param {[string, string][]} values @param {string} chosen @param {import("../app.js").App} app */
function options(name, values, chosen, app) {
  const change = (/** @type {Event} */ event) => app.goWith({ [name]: /** @type {HTMLSelectElement} */ (event.target).value, after: null });
  return h("select", { onchange: change, value: chosen }, values.map(([value, text]) => h("option", { value }, text)));
}

/**
 * A day, of which the address has the beginning, or the end, in milliseconds.
 * @param {string} name @param {number} days to add to the one that is shown
 * @param {import("../app.js").Place} place @param {import("../app.js").App} app
 */
function day(name, days, place, app) {
  const millis = Number(place.query.get(name));
  const shown = millis ? moved(new Date(millis), -days) : null;
  const value = shown ? `${shown.getFullYear()}-${String(shown.getMonth() + 1).padStart(2, "0")}-${String(shown.getDate()).padStart(2, "0")}` : "";
  const change = (/** @type {Event} */ event) => {
    const input = /** @type {HTMLInputElement} */ (event.target).value;
    const chosen = input ? moved(new Date(`${input}T00:00`), days).getTime() : NaN;
    app.goWith({ [name]: chosen > 0 ? String(chosen) : null, after: null });
  };
  return h("input", { type: "date", value, onchange: change });
}

/** A label of the failure, typed or chosen. @param {import("../app.js").Place} place @param {import("../app.js").App} app */
function label(place, app) {
  const change = (/** @type {Event} */ event) => app.goWith({ label: /** @type {HTMLInputElement} */ (event.target).value.trim(), after: null });
  return h("label", null, "Label of the failure ", h("input", { list: "labels", value: place.query.get("label") ?? "", placeholder: "type=USER", autocomplete: "off", size: 14, onchange: change }), h("datalist", { id: "labels" }, KINDS.map((one) => h("option", { key: one, value: one }))));
}

/** @param {Date} date @param {number} days */
function moved(date, days) {
  date.setDate(date.getDate() + days);
  return date;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let typed;

/** Search when the typing pauses. @param {Event} event @param {import("../app.js").App} app */
function search(event, app) {
  const value = /** @type {HTMLInputElement} */ (event.target).value;
  clearTimeout(typed);
  const { href } = app.place;
  typed = setTimeout(() => {
    if (app.place.href === href) app.goWith({ name: value, after: null }, { replace: true });
  }, 250);
}
