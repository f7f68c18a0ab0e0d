/** When each attempt ran: bars by vertex and subtask on one axis of time, with the stages of Spark inside. */

import { ApiError, get } from "../api.js";
import { duration, moment } from "../format.js";
import { meaning } from "../parts.js";
import { empty } from "../parts.js";
import { h } from "../view.js";

const ROW = 18;
const HEAD = 26;
const NAMES = 180;
const LEAST_BAR = 2;
const STAGE = 3;
const PADDING = 20;
const TICKS = 6;
/** The browser limits the height of a canvas; what is beyond is said. */
const ROWS_MAX = 1500;

/** @typedef {{y: number, x1: number, x2: number, attempt: any, vertex: any, stages: any[]}} Bar */
/** @typedef {{vertex: any, attempt: any, stages: any[]}} Entry */

/** @type {import("./job.js").Tab} */
export const timelineTab = {
  name: "timeline",
  title: "Timeline",
  async load(jobId, _, signal) {
    const job = `jobs/${encodeURIComponent(jobId)}`;
    const [attempts, spark] = await Promise.all([get(`${job}/attempts`, signal), sparkOf(job, signal)]);
    return { ...attempts, spark };
  },
  view(job, attempts, _, app) {
    const entries = entriesOf(attempts);
    if (!entries.length) return empty("Nothing has been deployed yet.");
    const shown = entries.slice(0, ROWS_MAX);
    const told = `Timeline of ${entries.length} attempts; the tab Subtasks has them as a table`;
    const draw = (/** @type {HTMLCanvasElement} */ node) => drawTimeline(node, shown, attempts.now, job, app);
    const problems = attempts.spark.problems.map((/** @type {string} */ one) => h("p", { class: "problem", key: one }, one));
    return [
      problems,
      h("div", { class: "timeline" }, h("canvas", { draw, role: "img", "aria-label": told }), h("div", { class: "tip", hidden: true, draw: () => undefined })),
      entries.length > shown.length ? h("p", { class: "muted" }, `The first ${shown.length} of ${entries.length} attempts.`) : null,
    ];
  },
};

/** The stages are an addition: without them the bars are shown all the same, and why. @param {string} job @param {AbortSignal} signal */
async function sparkOf(job, signal) {
  try {
    return await get(`${job}/spark`, signal);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 401) throw error;
    return { attempts: [], problems: [`The stages of Spark are not known: ${error.message}`] };
  }
}

/** @param {any} attempts @returns {Entry[]} */
function entriesOf(attempts) {
  const stages = new Map(attempts.spark.attempts.map((/** @type {any} */ one) => [one["attempt-id"], one.stages]));
  return attempts.vertices.flatMap((/** @type {any} */ vertex) =>
    vertex.attempts
      .filter((/** @type {any} */ one) => one["start-time"] >= 0)
      .sort((/** @type {any} */ a, /** @type {any} */ b) => a.subtask - b.subtask || a.attempt - b.attempt)
      .map((/** @type {any} */ attempt) => ({ vertex, attempt, stages: stages.get(attempt["attempt-id"]) ?? [] })),
  );
}

/**
 * @param {HTMLCanvasElement} node
 * @param {Entry[]} entries
 * @param {number} now
 * @param {any} job
 * @param {import("../app.js").App} app
 */
function drawTimeline(node, entries, now, job, app) {
  const wide = Math.max(300, (node.parentElement?.clientWidth ?? 800) - PADDING);
  const high = HEAD + entries.length * ROW + 6;
  const scale = window.devicePixelRatio || 1;
  node.width = wide * scale;
  node.height = high * scale;
  node.style.setProperty("width", `${wide}px`);
  node.style.setProperty("height", `${high}px`);
  const context = node.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  const names = wide < 600 ? 90 : NAMES;
  const first = Math.min(...entries.map((one) => one.attempt["start-time"]));
  const last = Math.max(first + 1, ...entries.map((one) => (one.attempt["end-time"] >= 0 ? one.attempt["end-time"] : now)));
  const at = (/** @type {number} */ millis) => names + ((millis - first) / (last - first)) * (wide - names - 8);
  const colours = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => colours.getPropertyValue(`--${name}`).trim();
  context.font = "12px system-ui, sans-serif";
  ticks(context, first, last, at, high, colour);
  const bars = entries.map((entry, index) => bar(context, entry, index, now, at, names, colour, entries[index - 1]));
  const tip = /** @type {HTMLElement | null} */ (node.nextElementSibling);
  node.onmousemove = (event) => showTip(tip, barAt(bars, event, node), now, event, node);
  node.onmouseleave = () => tip?.setAttribute("hidden", "");
  node.onclick = (event) => {
    const found = barAt(bars, event, node);
    if (found) app.go(`ui/jobs/${job.jid}/logs?vertex=${encodeURIComponent(found.vertex.id)}&subtask=${found.attempt.subtask}&attempt=${found.attempt.attempt}`);
  };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} first
 * @param {number} last
 * @param {(millis: number) => number} at
 * @param {number} high
 * @param {(name: string) => string} colour
 */
function ticks(context, first, last, at, high, colour) {
  context.strokeStyle = colour("line");
  context.fillStyle = colour("muted");
  for (let tick = 0; tick <= TICKS; tick += 1) {
    const millis = first + ((last - first) * tick) / TICKS;
    const x = at(millis);
    context.beginPath();
    context.moveTo(x, HEAD - 6);
    context.lineTo(x, high);
    context.stroke();
    const text = tick === 0 ? moment(first) : `+${duration(millis - first)}`;
    context.textAlign = tick === TICKS ? "right" : tick === 0 ? "left" : "center";
    context.fillText(text, x, 14);
  }
  context.textAlign = "left";
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Entry} entry
 * @param {number} index
 * @param {number} now
 * @param {(millis: number) => number} at
 * @param {number} names
 * @param {(name: string) => string} colour
 * @param {Entry | undefined} before
 * @returns {Bar}
 */
function bar(context, { vertex, attempt, stages }, index, now, at, names, colour, before) {
  const y = HEAD + index * ROW;
  const x1 = at(attempt["start-time"]);
  const x2 = Math.max(x1 + LEAST_BAR, at(attempt["end-time"] >= 0 ? attempt["end-time"] : now));
  context.fillStyle = colour(meaning(attempt.status));
  context.fillRect(x1, y + 3, x2 - x1, ROW - 6);
  const running = attempt.timestamps?.RUNNING;
  if (running > attempt["start-time"]) {
    context.fillStyle = colour("wait");
    context.fillRect(x1, y + 3, Math.max(0, Math.min(at(running), x2) - x1), ROW - 6);
  }
  for (const stage of stages) {
    if (stage["start-time"] < 0) continue;
    const from = Math.max(x1, at(stage["start-time"]));
    const to = Math.min(x2, at(stage["end-time"] >= 0 ? stage["end-time"] : now));
    context.fillStyle = colour(stage.status === "FAILED" ? "bad" : "text");
    context.fillRect(from, y + ROW - 7, Math.max(1, to - from - 1), STAGE);
  }
  const isFirst = before?.vertex !== vertex;
  context.fillStyle = colour(isFirst ? "text" : "muted");
  const number = `${attempt.subtask}${attempt.attempt ? `, attempt ${attempt.attempt}` : ""}`;
  context.fillText(fitted(context, isFirst ? `${vertex.name} ${number}` : `  ${number}`, names - 8), 0, y + 13);
  return { y, x1, x2, attempt, vertex, stages };
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} wide */
function fitted(context, text, wide) {
  let cut = text;
  while (cut.length > 4 && context.measureText(cut).width > wide) cut = `${cut.slice(0, -4)}…`;
  return cut;
}

/** @param {Bar[]} bars @param {MouseEvent} event @param {HTMLCanvasElement} node */
function barAt(bars, event, node) {
  const y = event.clientY - node.getBoundingClientRect().top;
  return bars[Math.floor((y - HEAD) / ROW)];
}

/**
 * @param {HTMLElement | null} tip
 * @param {Bar | undefined} found
 * @param {number} now
 * @param {MouseEvent} event
 * @param {HTMLCanvasElement} node
 */
function showTip(tip, found, now, event, node) {
  if (!tip) return;
  tip.toggleAttribute("hidden", !found);
  if (!found) return;
  const { attempt, vertex, stages } = found;
  const end = attempt["end-time"] >= 0 ? attempt["end-time"] : now;
  tip.textContent = `${vertex.name} ${attempt.subtask}, attempt ${attempt.attempt}: ${attempt.status}, ${duration(end - attempt["start-time"])} on ${attempt["taskmanager-id"]}${stages.length ? `, ${stages.length} Spark stages` : ""}`;
  const place = node.getBoundingClientRect();
  tip.style.setProperty("left", `${Math.min(event.clientX - place.left + 12, Math.max(0, place.width - 280))}px`);
  tip.style.setProperty("top", `${event.clientY - place.top + 14}px`);
}
