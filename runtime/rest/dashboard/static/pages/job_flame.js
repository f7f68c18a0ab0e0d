/** Where a running task is: its Python stacks, looked at when a person asks, as a flame graph. */

import { get } from "../api.js";
import { moment, number } from "../format.js";
import { empty } from "../parts.js";
import { h } from "../view.js";

const ROW = 20;
const LEAST = 2;
const TEXT_LEAST = 40;
const ROWS_MAX = 70;
/** What REST puts above threads in which no code of users has begun: they are one box. */
const OF_CLUSTER = "threads of the cluster, beside the task";
const TYPES = [["FULL", "all threads"], ["ON_CPU", "on a CPU"], ["OFF_CPU", "waiting"]];
const EMPTY = "Nothing of this vertex runs now. A flame graph shows where the Python code of a running task is; of Spark's JVM the page of its TaskManager has the threads.";

/** @typedef {{name: string, value: number, children: Node[]}} Node */
/** @typedef {{x: number, y: number, wide: number, node: Node}} Box */

/** What was looked at last: a look costs the task a little, so it is taken when a person asks. @type {{path: string, graph: any} | null} */
let taken = null;

/** @type {import("./job.js").Tab} */
export const flameTab = {
  name: "flamegraph",
  title: "Flame graph",
  async load(jobId, place, signal) {
    const path = pathOf(jobId, place);
    if (path && taken?.path !== path) taken = { path, graph: await get(path, signal) };
    return path ? taken?.graph : null;
  },
  view(job, graph, place, app) {
    const path = pathOf(job.jid, place);
    const again = () => {
      taken = null;
      app.live?.again();
    };
    const form = h(
      "form",
      { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      choice("Vertex", "vertex", [["", "choose one"], ...job.vertices.map((/** @type {any} */ one) => [one.id, one.name])], place, app),
      choice("Threads", "type", TYPES, place, app),
      choice("Subtask", "subtask", subtasksOf(job, place), place, app),
      path ? h("button", { type: "button", onclick: again }, "Look again") : null,
    );
    if (!path) return [form, empty("Choose a vertex: its first running subtask on each TaskManager is looked at for two seconds.")];
    if (!graph?.data?.value) return [form, empty(EMPTY)];
    const told = `Flame graph of ${number(graph.data.value)} stacks`;
    const draw = (/** @type {HTMLCanvasElement} */ node) => drawFlames(node, graph.data);
    return [form, h("p", { class: "muted" }, `${told}, seen until ${moment(graph.endTimestamp)}. The code that a task has called first is on top.`), h("div", { class: "timeline" }, h("canvas", { draw, role: "img", "aria-label": told }), h("div", { class: "tip", hidden: true, draw: () => undefined })), deepest(graph.data)];
  },
};

/** @param {string} jobId @param {import("../app.js").Place} place */
function pathOf(jobId, place) {
  const vertex = place.query.get("vertex");
  if (!vertex) return "";
  const subtask = place.query.get("subtask");
  const query = `type=${encodeURIComponent(place.query.get("type") || "FULL")}${subtask ? `&subtaskindex=${encodeURIComponent(subtask)}` : ""}`;
  return `jobs/${encodeURIComponent(jobId)}/vertices/${encodeURIComponent(vertex)}/flamegraph?${query}`;
}

/** @param {any} job @param {import("../app.js").Place} place @returns {string[][]} */
function subtasksOf(job, place) {
  const vertex = job.vertices.find((/** @type {any} */ one) => one.id === place.query.get("vertex"));
  return [["", "any"], ...Array.from({ length: Math.max(vertex?.parallelism ?? 0, 0) }, (_, index) => [String(index), String(index)])];
}

/**
 * @param {string} title
 * @param {string} name
 * @param {string[][]} options
 * @param {import("../app.js").Place} place
 * @param {import("../app.js").App} app
 */
function choice(title, name, options, place, app) {
  const onchange = (/** @type {Event} */ event) => app.goWith({ [name]: /** @type {HTMLSelectElement} */ (event.target).value || null });
  return h("label", null, `${title} `, h("select", { value: place.query.get(name) ?? options[0]?.[0] ?? "", onchange }, options.map(([value, text]) => h("option", { value }, text))));
}

/** The innermost code that was seen most often, for readers of screens too. @param {Node} root */
function deepest(root) {
  /** @type {Map<string, number>} */
  const own = new Map();
  const stack = [root];
  for (let node = stack.pop(); node; node = stack.pop()) {
    const below = node.children.reduce((sum, one) => sum + one.value, 0);
    if (node !== root && node.value > below) own.set(node.name, (own.get(node.name) ?? 0) + node.value - below);
    stack.push(...node.children.filter((one) => one.name !== OF_CLUSTER));
  }
  const most = [...own].sort(([, a], [, b]) => b - a).slice(0, 10);
  return h("ol", { class: "innermost", "aria-label": "Innermost code" }, most.map(([name, count]) => h("li", { key: name, title: name }, h("code", null, shortened(name)), ` ${number((100 * count) / root.value)} %`)));
}

/** @param {HTMLCanvasElement} node @param {Node} root */
function drawFlames(node, root) {
  const wide = Math.max(300, (node.parentElement?.clientWidth ?? 800) - ROW);
  const rows = Math.min(ROWS_MAX, depthOf(root));
  const high = rows * ROW;
  const scale = window.devicePixelRatio || 1;
  node.width = wide * scale;
  node.height = high * scale;
  node.style.setProperty("width", `${wide}px`);
  node.style.setProperty("height", `${high}px`);
  const context = node.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  const colours = getComputedStyle(document.documentElement);
  /** @type {Box[]} */
  const boxes = [];
  place(root, 0, 0, wide / root.value, boxes);
  for (const box of boxes) {
    context.fillStyle = colours.getPropertyValue(box.y % 2 ? "--busy" : "--wait").trim();
    context.fillRect(box.x, box.y * ROW, Math.max(1, box.wide - 1), ROW - 1);
    if (box.wide < TEXT_LEAST) continue;
    context.fillStyle = colours.getPropertyValue("--card").trim();
    context.fillText(fitted(context, shortened(box.node.name), box.wide - 8), box.x + 4, box.y * ROW + 14);
  }
  const tip = /** @type {HTMLElement | null} */ (node.nextElementSibling);
  node.onmousemove = (event) => {
    const at = node.getBoundingClientRect();
    const [x, y] = [event.clientX - at.left, Math.floor((event.clientY - at.top) / ROW)];
    const found = boxes.find((one) => one.y === y && one.x <= x && x < one.x + one.wide);
    tip?.toggleAttribute("hidden", !found);
    if (!tip || !found) return;
    tip.textContent = `${found.node.name}: ${number((100 * found.node.value) / root.value)} %`;
    tip.style.setProperty("left", `${Math.min(x + 12, Math.max(0, at.width - 280))}px`);
    tip.style.setProperty("top", `${event.clientY - at.top + 14}px`);
  };
  node.onmouseleave = () => tip?.setAttribute("hidden", "");
}

/** @param {Node} node @returns {number} */
function depthOf(node) {
  return node.name === OF_CLUSTER ? 1 : 1 + Math.max(0, ...node.children.map(depthOf));
}

/** @param {Node} node @param {number} x @param {number} y @param {number} unit @param {Box[]} boxes */
function place(node, x, y, unit, boxes) {
  const wide = node.value * unit;
  if (wide < LEAST || y >= ROWS_MAX) return;
  boxes.push({ x, y, wide, node });
  if (node.name === OF_CLUSTER) return;
  let next = x;
  for (const child of node.children) {
    place(child, next, y + 1, unit, boxes);
    next += child.value * unit;
  }
}

/** With the last two parts of the path: those before are the same for much code, and the tip has all. @param {string} name */
function shortened(name) {
  return name.replace(/\([^()]*\/([^/()]+\/[^/()]+)\)$/, "($1)");
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} wide */
function fitted(context, text, wide) {
  let cut = text;
  while (cut.length > 4 && context.measureText(cut).width > wide) cut = `${cut.slice(0, -4)}…`;
  return cut;
}
