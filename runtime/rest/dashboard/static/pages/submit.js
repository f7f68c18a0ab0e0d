/** Programs: upload one, run it with arguments and conf, delete it. A run leads to the page of its job. */

import { ApiError, get, path, send } from "../api.js";
import { size } from "../format.js";
import { empty, facts, id, link, section, table, time } from "../parts.js";
import { h } from "../view.js";

const HEAD = ["Program", "Size", "Uploaded", "By", "Actions"];
const ENDINGS = ".py,.zip,.whl,.egg,.jar";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../view.js").Content} Content */

/** @type {import("../app.js").Page} */
export const submitPage = {
  title: () => "Submit",
  load: (_, signal) => get("jars", signal),
  view({ files }, _, app) {
    const none = ["No program is here yet. ", app.may("submitter") ? "Upload one above, or submit from a shell: " : "Submit from a shell: ", h("code", null, "flinklike run etl.py")];
    return [
      h("h1", null, "Submit"),
      app.may("submitter") ? uploadForm(app) : empty("Uploading and running programs takes the role submitter."),
      section("Programs", table("Programs", HEAD, files.map((/** @type {any} */ one) => programRow(one, app)), none)),
    ];
  },
};

/** @param {App} app */
function uploadForm(app) {
  const { problem, busy } = app.kept;
  return h(
    "form",
    { key: "upload", class: "entry-form", onsubmit: (/** @type {SubmitEvent} */ event) => void upload(event, app) },
    h("label", null, `A script, archive, wheel or jar (${ENDINGS.replaceAll(",", ", ")})`, h("input", { type: "file", name: "jarfile", accept: ENDINGS, required: true })),
    problem ? h("p", { class: "problem", role: "alert" }, problem) : null,
    h("div", { class: "buttons" }, h("button", { class: "primary", disabled: Boolean(busy) }, busy ? "Uploading…" : "Upload")),
  );
}

/** @param {SubmitEvent} event @param {App} app */
async function upload(event, app) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const { kept } = app;
  if (kept["busy"]) return;
  Object.assign(kept, { busy: true, problem: "" });
  app.render();
  try {
    const answer = await send("POST", "jars/upload", new FormData(form));
    form.reset();
    if (app.kept === kept) app.go(`ui/submit/${encodeURIComponent(answer.filename.split("/").pop())}`);
  } catch (error) {
    kept["problem"] = told(error);
  }
  kept["busy"] = false;
  app.render();
}

/** @param {any} one @param {App} app */
function programRow(one, app) {
  const namespace = one.namespace === "default" ? "" : ` in ${one.namespace}`;
  return h(
    "tr",
    { key: one.id },
    h("td", null, one.problem ? [one.name, h("div", { class: "problem" }, one.problem)] : link(`ui/submit/${encodeURIComponent(one.id)}`, one.name)),
    h("td", null, size(one.size)),
    h("td", null, one.uploaded ? time(one.uploaded) : ""),
    h("td", null, one.problem ? "" : `${one.uploader || "admin"}${namespace}`),
    h("td", null, deleteButton(one, app)),
  );
}

/** @param {any} one @param {App} app */
function deleteButton(one, app) {
  const isOwn = one.uploader === app.principal?.name;
  if (!app.may("operator") && !(app.may("submitter") && isOwn)) return null;
  const does = async () => {
    await send("DELETE", path(["jars", one.id]));
    if (app.place.parts[1] === one.id) app.go("ui/submit");
    return `${one.name} is deleted.`;
  };
  const says = "It is not listed any more, and cannot be run. Jobs that run it go on.";
  return h("button", { type: "button", "aria-label": `Delete ${one.name}`, onclick: () => app.ask({ title: `Delete ${one.name}?`, says, verb: "Delete", does }) }, "Delete");
}

/** @type {import("../app.js").Page} */
export const programPage = {
  title: (_, data) => data?.one.name ?? "Submit",
  async load(place, signal) {
    const { files } = await get("jars", signal);
    const one = files.find((/** @type {any} */ file) => file.id === place.parts[1]);
    if (!one) throw new ApiError(404, "This program is not here any more, or is of another namespace. The page Submit lists those that are.");
    return { one };
  },
  view({ one }, _, app) {
    return [
      h("div", { class: "title" }, h("h1", null, one.name), h("div", { class: "actions" }, deleteButton(one, app))),
      id(one.id, "program id", app),
      facts([
        ["size", size(one.size)],
        ["uploaded", one.uploaded ? time(one.uploaded) : ""],
        ["by", one.uploader || "admin"],
        ["namespace", one.namespace],
      ]),
      app.may("submitter") ? section("Run it", runForm(one, app)) : empty("To run it takes the role submitter."),
      app.kept["plan"] ? section("Plan", plan(app.kept["plan"])) : null,
    ];
  },
};

/** @param {any} one @param {App} app */
function runForm(one, app) {
  const { problem, busy } = app.kept;
  const first = one.entry[0]?.name ?? "";
  const isScript = one.name.toLowerCase().endsWith(".py");
  const hint = one.name.toLowerCase().endsWith(".jar") ? "Main class" : isScript ? "Entry: empty for the script itself, or module:pipeline" : "Entry: a script of the archive, or module:pipeline";
  return h(
    "form",
    { key: "run", class: "entry-form", onsubmit: (/** @type {SubmitEvent} */ event) => void run(event, one, app) },
    h("label", null, hint, h("input", { name: "entry", list: "entries", placeholder: isScript ? one.name : first || "module:pipeline", autocomplete: "off" })),
    h("datalist", { id: "entries" }, one.entry.map((/** @type {any} */ entry) => h("option", { key: entry.name, value: entry.name }))),
    h("label", null, "Arguments, as in a shell (of a pipeline: name=value)", h("input", { name: "args", autocomplete: "off" })),
    h("label", null, "Parallelism, for a function that takes it", h("input", { name: "parallelism", type: "number", min: 1, max: 32768 })),
    h("label", null, "Spark conf: one key=value a line", h("textarea", { name: "conf", rows: 3, placeholder: "spark.sql.shuffle.partitions=8" })),
    problem ? h("p", { class: "problem", role: "alert" }, problem) : null,
    (app.kept["warnings"] ?? []).map((/** @type {string} */ one) => h("p", { key: one, class: "problem", role: "alert" }, one)),
    app.kept["started"] ? h("p", null, "The job runs: ", link(`ui/jobs/${app.kept["started"]}`, app.kept["started"])) : null,
    h(
      "div",
      { class: "buttons" },
      h("button", { class: "primary", name: "run", value: "run", disabled: Boolean(busy) }, busy ? "…" : "Run"),
      h("button", { name: "plan", value: "plan", disabled: Boolean(busy) }, "Show the plan"),
    ),
  );
}

/** @param {SubmitEvent} event @param {any} one @param {App} app */
async function run(event, one, app) {
  event.preventDefault();
  const { kept } = app;
  if (kept["busy"]) return;
  const isPlan = event.submitter?.getAttribute("name") === "plan";
  kept["jobId"] ??= newId();
  if (kept["started"]) kept["jobId"] = newId();
  Object.assign(kept, { busy: true, problem: "", plan: null, warnings: [], started: "" });
  app.render();
  try {
    const asked = { ...bodyOf(new FormData(/** @type {HTMLFormElement} */ (event.target))), jobId: kept["jobId"] };
    const answer = await send("POST", path(["jars", one.id, isPlan ? "plan" : "run"]), asked);
    kept["warnings"] = answer.warnings ?? [];
    if (isPlan) kept["plan"] = answer.plan;
    else if (kept["warnings"].length) kept["started"] = answer.jobid;
    else if (app.kept === kept) app.go(`ui/jobs/${answer.jobid}`);
  } catch (error) {
    kept["problem"] = told(error);
    if (isRefused(error)) kept["jobId"] = newId();
  }
  kept["busy"] = false;
  app.render();
}

/** The body of a run. @param {FormData} form */
function bodyOf(form) {
  const field = (/** @type {string} */ name) => String(form.get(name) ?? "").trim();
  /** @type {Record<string, string>} */
  const conf = {};
  for (const line of field("conf").split("\n").map((one) => one.trim()).filter((one) => one)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Spark conf: "${line}" is no key=value.`);
    conf[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return { entryClass: field("entry") || null, programArgs: field("args"), parallelism: Number(field("parallelism")) || null, flinkConfiguration: conf };
}

/** @param {any} found */
function plan(found) {
  const nodes = [...found.nodes].reverse();
  const name = new Map(nodes.map((node) => [node.id, node.description.replaceAll("<br/>", " ")]));
  const rows = nodes.map((node) =>
    h("tr", { key: node.id }, h("td", null, name.get(node.id)), h("td", null, node.parallelism), h("td", null, (node.inputs ?? []).map((/** @type {any} */ one) => `${name.get(one.id)} (${one.ship_strategy})`).join(", "))),
  );
  return table(`Plan of ${found.name}`, ["Vertex", "Parallelism", "Inputs"], rows);
}

/** 32 hex digits, with which a repeated request is recognised. */
function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Is there surely no job with that id? One whose graph is still being built (503), or whose answer was lost, is asked for
 * again with the same id: it is not run twice.
 * @param {unknown} error
 */
function isRefused(error) {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

/** @param {unknown} error */
function told(error) {
  return error instanceof Error ? error.message : String(error);
}
