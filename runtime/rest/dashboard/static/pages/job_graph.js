/** The graph of a job, live: vertices with state and progress, rows and bytes on the edges, chains opened on click. */

import { layout } from "../graph_layout.js";
import { counted, duration, number, size } from "../format.js";
import { empty, facts, link, meaning, progress, spent, state } from "../parts.js";
import { h, svg } from "../view.js";
import { streamsInWords } from "./job_streams.js";

const WIDE = 230;
const HIGH = 84;
const GAP_X = 110;
const GAP_Y = 26;
const EDGE = 12;

/** @type {import("./job.js").Tab} */
export const graphTab = {
  name: "graph",
  title: "Graph",
  load: async () => null,
  view(job, _, place, app) {
    if (!job.vertices.length) return empty("The job has no vertices yet.");
    const chosen = place.query.get("vertex") ?? "";
    return [picture(job, chosen, app), list(job, chosen, app), chosen ? details(job, chosen) : null];
  },
};

/** @param {any} job */
function plan(job) {
  const nodes = job.plan.nodes.map((/** @type {any} */ node) => ({ id: node.id, inputs: (node.inputs ?? []).map((/** @type {any} */ one) => one.id) }));
  return nodes.reverse();
}

/** @param {any} job @param {string} chosen @param {import("../app.js").App} app */
function picture(job, chosen, app) {
  const spots = layout(plan(job));
  const at = (/** @type {string} */ id) => {
    const spot = spots.get(id) ?? { layer: 0, place: 0 };
    return { x: EDGE + spot.layer * (WIDE + GAP_X), y: EDGE + spot.place * (HIGH + GAP_Y) };
  };
  const every = [...spots.values()];
  const width = 2 * EDGE + (Math.max(0, ...every.map((one) => one.layer)) + 1) * (WIDE + GAP_X) - GAP_X;
  const height = 2 * EDGE + (Math.max(0, ...every.map((one) => one.place)) + 1) * (HIGH + GAP_Y) - GAP_Y;
  const byId = new Map(job.vertices.map((/** @type {any} */ one) => [one.id, one]));
  const edges = job.plan.nodes.flatMap((/** @type {any} */ node) => (node.inputs ?? []).map((/** @type {any} */ input) => edge(input, node, at, byId.get(input.id))));
  const boxes = job.vertices.map((/** @type {any} */ vertex) => box(vertex, at(vertex.id), vertex.id === chosen, app));
  const label = `Graph of ${counted(job.vertices.length, "vertex", "vertices")}; the table below says the same`;
  return h("div", { class: "scroll graph", tabindex: 0, role: "region", "aria-label": "Graph" }, svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label }, edges, boxes));
}

/**
 * @param {any} input
 * @param {any} node
 * @param {(id: string) => {x: number, y: number}} at
 * @param {any} source
 */
function edge(input, node, at, source) {
  const from = at(input.id);
  const to = at(node.id);
  const x1 = from.x + WIDE;
  const y1 = from.y + HIGH / 2;
  const y2 = to.y + HIGH / 2;
  const bend = Math.max(40, (to.x - x1) / 2);
  const metrics = source?.metrics;
  const told = metrics && (metrics["write-records"] || metrics["write-bytes"]) ? `${number(metrics["write-records"])} rows` : "";
  const more = metrics?.["write-bytes"] ? size(metrics["write-bytes"]) : "";
  return svg(
    "g",
    { key: `${input.id} ${node.id} ${input.num}`, class: "edge" },
    svg("path", { d: `M${x1},${y1} C${x1 + bend},${y1} ${to.x - bend},${y2} ${to.x},${y2}` }),
    svg("text", { x: x1 + 8, y: y1 - 6 }, told || input.ship_strategy.toLowerCase()),
    more ? svg("text", { x: x1 + 8, y: y1 + 14 }, more) : null,
  );
}

/** @param {any} vertex @param {{x: number, y: number}} place @param {boolean} isChosen @param {import("../app.js").App} app */
function box(vertex, place, isChosen, app) {
  const total = vertex.parallelism > 0 ? vertex.parallelism : "?";
  const done = vertex.tasks.FINISHED ?? 0;
  const choose = () => app.goWith({ vertex: isChosen ? null : vertex.id }, { replace: true });
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  };
  const text = vertex.progress.text || (vertex.restarts ? counted(vertex.restarts, "restart") : `${vertex.status.toLowerCase()} ${duration(vertex.duration)}`);
  const chosen = vertex.parallelism > 0 ? (vertex["parallelism-decision"] ?? "") : "parallelism is chosen when its inputs are finished";
  const label = `${vertex.name}, ${vertex.status}, ${done} of ${total} subtasks finished${chosen && `; ${chosen}`}`;
  return svg(
    "g",
    { key: vertex.id, class: `vertex ${meaning(vertex.status)}${isChosen ? " chosen" : ""}`, transform: `translate(${place.x},${place.y})`, tabindex: 0, role: "button", "aria-label": label, "aria-pressed": String(isChosen), onclick: choose, onkeydown },
    svg("title", null, label),
    svg("rect", { class: "frame", width: WIDE, height: HIGH, rx: 8 }),
    svg("rect", { class: "stripe", width: 6, height: HIGH, rx: 3 }),
    svg("text", { class: "name", x: 18, y: 26 }, cut(vertex.name, 27)),
    svg("text", { class: "more", x: 18, y: 46 }, cut(text, 32)),
    svg("rect", { class: "rail", x: 18, y: 60, width: WIDE - 84, height: 8, rx: 4 }),
    svg("rect", { class: "fill", x: 18, y: 60, width: Math.max(0, (WIDE - 84) * fraction(vertex)), height: 8, rx: 4 }),
    svg("text", { class: "more", x: WIDE - 58, y: 69 }, `${done}/${total}`),
  );
}

/** Of the subtasks done, and of those that run how far they say they are. @param {any} vertex */
function fraction(vertex) {
  const done = (vertex.tasks.FINISHED ?? 0) / Math.max(vertex.parallelism, 1);
  return Math.min(1, Math.max(done, vertex.progress.fraction || 0));
}

/** @param {string} text @param {number} most */
function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** @param {any} job @param {string} chosen @param {import("../app.js").App} app */
function list(job, chosen, app) {
  const rows = job.vertices.map((/** @type {any} */ one) =>
    h(
      "tr",
      { key: one.id, class: one.id === chosen ? "chosen" : "" },
      h("td", null, h("button", { type: "button", class: "plain", "aria-expanded": String(one.id === chosen), onclick: () => app.goWith({ vertex: one.id === chosen ? null : one.id }, { replace: true }) }, one.name)),
      h("td", null, state(one.status)),
      h("td", null, progress(one.tasks)),
      h("td", null, number(one.metrics["read-records"])),
      h("td", null, number(one.metrics["write-records"])),
      h("td", null, one.restarts || ""),
      h("td", null, spent(one["start-time"], one["end-time"], Date.now())),
      h("td", null, one.progress.text),
    ),
  );
  const heads = ["Vertex", "State", "Subtasks", "Rows in", "Rows out", "Restarts", "Time", "Says"].map((one) => h("th", { scope: "col" }, one));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Vertices" }, h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, rows)));
}

/** @param {any} job @param {string} chosen */
function details(job, chosen) {
  const vertex = job.vertices.find((/** @type {any} */ one) => one.id === chosen);
  const node = job.plan.nodes.find((/** @type {any} */ one) => one.id === chosen);
  if (!vertex || !node) return empty("The job has no such vertex.");
  const chain = node.description.split("<br/>").map((/** @type {string} */ one) => one.replace(/^\+- /, "")).filter((/** @type {string} */ one) => one);
  const stages = vertex.progress["spark-tasks-total"] ? `${counted(vertex.progress["spark-stages-active"], "active stage")}, ${number(vertex.progress["spark-tasks-completed"])} of ${number(vertex.progress["spark-tasks-total"])} tasks` : "";
  return h(
    "section",
    { key: "details" },
    h("h2", null, vertex.name),
    facts([
      ["chain", chain.length > 1 ? h("ol", { class: "chain" }, chain.map((/** @type {string} */ one, /** @type {number} */ at) => h("li", { key: at }, one))) : ""],
      ["vertex", h("code", null, vertex.id)],
      ["slot sharing group", vertex["slot-sharing-group"]],
      ["read", `${number(vertex.metrics["read-records"])} rows, ${size(vertex.metrics["read-bytes"])}`],
      ["written", `${number(vertex.metrics["write-records"])} rows, ${size(vertex.metrics["write-bytes"])}`],
      ["CPU", duration(vertex.metrics["accumulated-busy-time"])],
      ["Spark", stages],
      ["streaming", vertex.streams ? link(`ui/jobs/${job.jid}/streams`, streamsInWords(vertex.streams)) : ""],
    ]),
    h("p", null, link(`ui/jobs/${job.jid}/subtasks?vertex=${encodeURIComponent(chosen)}`, "Subtasks"), " · ", link(`ui/jobs/${job.jid}/logs?vertex=${encodeURIComponent(chosen)}`, "Logs")),
  );
}
