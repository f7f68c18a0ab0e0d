/** JobMaster processes: their jobs and load; drain, undrain, and move a job. */

import { get } from "../api.js";
import { counted, percent, size } from "../format.js";
import { facts, gauge, id, link, section, state, table, time } from "../parts.js";
import { h } from "../view.js";
import { loadView, tabbed } from "./process_views.js";

const HEAD = ["JobMaster process", "State", "Jobs", "CPU", "Memory", "Jobs so far", "Last heartbeat", "Actions"];

/** @type {import("../app.js").Page} */
export const jobMastersPage = {
  title: () => "JobMasters",
  moves: () => true,
  async load(place, signal) {
    const moved = place.query.get("move");
    const [found, job] = await Promise.all([get("jobmasters", signal), moved ? get(`jobs/${encodeURIComponent(moved)}`, signal) : null]);
    return { masters: found.jobmasters, job };
  },
  view({ masters, job }, _, app) {
    const none = ["No JobMaster process is registered: ", h("code", null, "bin/start-jobmaster.sh"), " starts one."];
    const rows = masters.map((/** @type {any} */ one) => masterRow(one, job, app));
    const moves = job ? h("p", { class: "waiting" }, `Where shall ${job.name} go? Its tasks run on while its JobMaster moves. `, link(`ui/jobs/${job.jid}`, "Back to the job")) : null;
    return [h("h1", null, "JobMaster processes"), moves, table("JobMaster processes", HEAD, rows, none)];
  },
};

/** @param {any} one @param {any} job @param {import("../app.js").App} app */
function masterRow(one, job, app) {
  const isHere = job?.["jobmaster-id"] === one.id;
  const move = () =>
    app.ask({
      title: `Move ${job.name} to ${one.address}?`,
      says: "Its JobMaster ends there and begins here. Tasks run on and do not notice.",
      verb: "Move the job",
      does: async () => {
        await app.change("POST", `jobs/${job.jid}/move`, { to: one.id });
        app.go(`ui/jobs/${job.jid}`);
        return `${job.name} moves to ${one.address}.`;
      },
    });
  const button = isHere ? h("span", { class: "muted" }, "it is here") : h("button", { type: "button", onclick: move }, "Move here");
  return h(
    "tr",
    { key: one.id },
    h("td", null, link(`ui/jobmasters/${one.id}`, one.address || one.id), id(one.id, "id of the process", app)),
    h("td", null, state(one.state)),
    h("td", null, gauge(one["jobs-running"], one.capacity, `${one["jobs-running"]}/${one.capacity}`)),
    h("td", null, percent(one["cpu-fraction"])),
    h("td", null, size(one["memory-bytes"])),
    h("td", null, one["jobs-assigned"]),
    h("td", null, time(one["last-heartbeat"])),
    h("td", null, job ? button : drainButton("jobmasters", one.id, one.address, one.state, app)),
  );
}

/**
 * Drain what serves, and let serve what is drained.
 * @param {"jobmasters" | "taskmanagers"} kind
 * @param {string} name
 * @param {string} shown
 * @param {string} now its state
 * @param {import("../app.js").App} app
 */
export function drainButton(kind, name, shown, now, app) {
  if (!app.may("operator") || now === "disconnected") return null;
  const isDraining = now !== "ready";
  const says = {
    jobmasters: isDraining ? "It takes jobs again." : "Its jobs move to other processes, whose tasks run on; it takes no more jobs, and can then be stopped.",
    taskmanagers: isDraining ? "It gives away its slots again." : "Its slots take no more tasks. Those that run go on elsewhere or end first; it can be stopped when it is drained.",
  }[kind];
  const verb = isDraining ? "Undrain" : "Drain";
  const ask = () =>
    app.ask({
      title: `${verb} ${shown}?`,
      says,
      verb,
      does: async () => {
        await app.change("POST", `${kind}/${encodeURIComponent(name)}/${verb.toLowerCase()}`);
        return isDraining ? `${shown} serves again.` : `${shown} is draining.`;
      },
    });
  return h("button", { type: "button", onclick: ask }, verb);
}

const TABS = /** @type {[string, string][]} */ ([["", "Jobs"], ["logs", "Logs"], ["threads", "Threads"], ["environment", "Environment"]]);

/** @type {import("../app.js").Page} */
export const jobMasterPage = {
  title: (_, data) => data?.one.address ?? "JobMaster",
  moves: () => true,
  async load(place, signal) {
    const path = `jobmasters/${encodeURIComponent(place.parts[1] ?? "")}`;
    const [one, more] = await Promise.all([get(path, signal), loadView(path, place.parts[2] ?? "", place, signal)]);
    return { one, more };
  },
  view({ one, more }, place, app) {
    const rows = one.jobs.map((/** @type {any} */ job) => h("tr", { key: job.jid }, h("td", null, link(`ui/jobs/${job.jid}`, job.name)), h("td", null, state(job.state)), h("td", null, app.may("operator") ? link(`ui/jobmasters?move=${job.jid}`, "Move") : "")));
    const first = () => section("Jobs", table("Jobs", ["Job", "State", "Actions"], rows, "It runs no job that you may see."));
    return [
      h("div", { class: "title" }, h("h1", null, one.address || one.id, " ", state(one.state)), h("div", { class: "actions" }, drainButton("jobmasters", one.id, one.address, one.state, app))),
      id(one.id, "id of the process", app),
      facts([
        ["jobs", `${one["jobs-running"]} of ${one.capacity}`],
        ["so far", counted(one["jobs-assigned"], "job")],
        ["CPU", percent(one["cpu-fraction"])],
        ["memory", size(one["memory-bytes"])],
        ["last heartbeat", time(one["last-heartbeat"])],
        ["version", one.version],
      ]),
      tabbed(`ui/jobmasters/${one.id}`, `jobmasters/${one.id}`, TABS, place.parts[2] ?? "", more, first, place, app),
    ];
  },
};
