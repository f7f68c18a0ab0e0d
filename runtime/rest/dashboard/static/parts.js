/** The parts that pages are made of. */

import { duration, exact, moment, percent } from "./format.js";
import { hasPage } from "./mode.js";
import { h, svg } from "./view.js";

/** @typedef {import("./view.js").Content} Content */

/** The class of a state: what it means, for its colour. @type {Record<string, string>} */
const MEANING = {
  FINISHED: "good",
  COMPLETE: "good",
  COMPLETED: "good",
  IN_PROGRESS: "busy",
  ACTIVE: "busy",
  PENDING: "wait",
  RUNNING: "busy",
  INITIALIZING: "busy",
  DEPLOYING: "wait",
  SCHEDULED: "wait",
  CREATED: "wait",
  RESTARTING: "warn",
  RECONCILING: "warn",
  FAILED: "bad",
  FAILING: "bad",
  CANCELED: "off",
  CANCELING: "off",
  CANCELLING: "off",
  SUSPENDED: "warn",
  ready: "good",
  draining: "warn",
  drained: "off",
  disconnected: "bad",
};

/** The order in which states of subtasks stand in a bar. */
const STATES = ["FINISHED", "RUNNING", "INITIALIZING", "DEPLOYING", "SCHEDULED", "CREATED", "RECONCILING", "CANCELING", "CANCELED", "FAILED"];

/** @param {string} name */
export function meaning(name) {
  return MEANING[name] ?? "off";
}

/** A state in words and colour. @param {string} name */
export function state(name) {
  return h("span", { class: `state ${meaning(name)}` }, name);
}

/** A moment, with the exact one on hover. @param {number} millis @param {string} [none] */
export function time(millis, none = "") {
  if (millis <= 0) return none;
  return h("time", { datetime: new Date(millis).toISOString(), title: exact(millis) }, moment(millis));
}

/** A link within the dashboard; the text alone where there is no such page. @param {string} href @param {...Content} children */
export function link(href, ...children) {
  if (!hasPage(href)) return h("span", null, ...children);
  return h("a", { href }, ...children);
}

/** An id that one click copies. @param {string} text @param {string} what @param {import("./app.js").App} app */
export function id(text, what, app) {
  const copy = () => app.copy(text, what);
  return h("span", { class: "id" }, h("code", { title: text }, text), h("button", { class: "quiet", type: "button", title: `Copy the ${what}`, "aria-label": `Copy the ${what}`, onclick: copy }, copyIcon()));
}

function copyIcon() {
  return svg("svg", { viewBox: "0 0 16 16", width: 13, height: 13, "aria-hidden": "true", class: "icon" }, svg("rect", { x: 5.5, y: 5.5, width: 8, height: 9, rx: 1.5 }), svg("path", { d: "M10.5 3.5v-1a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v8a1 1 0 0 0 1 1h1" }));
}

/** Parts of a whole as a bar, with its text for readers of screens. @param {Record<string, number>} tasks by state */
export function progress(tasks) {
  const counts = STATES.map((name) => /** @type {[string, number]} */ ([name, tasks[name] ?? tasks[name.toLowerCase()] ?? 0])).filter(([, count]) => count > 0);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  const told = counts.map(([name, count]) => `${count} ${name.toLowerCase()}`).join(", ");
  const parts = counts.map(([name, count]) => h("span", { class: meaning(name), style: { "flex-grow": count } }));
  const done = counts.find(([name]) => name === "FINISHED")?.[1] ?? 0;
  return h("span", { class: "progress", title: told }, h("span", { class: "bar", role: "img", "aria-label": told || "no subtasks" }, parts), h("span", { class: "numbers" }, `${done}/${total}`));
}

/** How much of something is used. @param {number} used @param {number} total @param {string} text */
export function gauge(used, total, text) {
  const fraction = total > 0 ? Math.min(1, used / total) : 0;
  const look = fraction > 0.9 ? "bad" : fraction > 0.7 ? "warn" : "busy";
  return h("span", { class: "progress", title: percent(fraction) }, h("span", { class: "bar", role: "img", "aria-label": text }, h("span", { class: look, style: { "flex-grow": fraction } }), h("span", { style: { "flex-grow": 1 - fraction } })), h("span", { class: "numbers" }, text));
}

/**
 * A table that scrolls in a narrow window. A column without a head has a name for readers of screens only.
 * @param {string} name
 * @param {Content[]} head
 * @param {Content[]} rows
 * @param {Content} [none] what to show when there are no rows
 */
export function table(name, head, rows, none) {
  if (!rows.length) return h("div", { class: "empty" }, none ?? "Nothing.");
  const cells = head.map((one) => h("th", { scope: "col" }, one));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, h("table", null, h("thead", null, h("tr", null, cells)), h("tbody", null, rows)));
}

/** @param {string} key @param {...Content} cells */
export function row(key, ...cells) {
  return h("tr", { key }, cells.map((one) => h("td", null, one)));
}

/**
 * Names and values.
 * @param {[string, Content][]} pairs those without a value are left out
 */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))));
}

/** Exceptions that wrap the cause, which their message names. */
const WRAPPERS = ["Py4JError", "Py4JJavaError", "PythonException"];

/** A failure in one sentence, as flinklike run ends with it: the class without its module. @param {string} name @param {string} message */
export function sentenceOf(name, message) {
  const short = name.slice(name.lastIndexOf(".") + 1);
  if (!message) return short;
  if (WRAPPERS.includes(short)) return message;
  return /^\([^()]+, line \d+\)$/.test(message) ? `${short} ${message}` : `${short}: ${message}`;
}

/** @param {string} title @param {...Content} children */
export function section(title, ...children) {
  return h("section", { key: `section ${title}` }, h("h2", null, title), ...children);
}

/** What there is not, and how to get it. @param {...Content} children */
export function empty(...children) {
  return h("div", { class: "empty" }, ...children);
}

/** @param {number} start @param {number} end @param {number} now */
export function spent(start, end, now) {
  return start < 0 ? "" : duration((end >= 0 ? end : now) - start);
}

/** A big number with its name. @param {Content} value @param {string} name @param {string} [href] @param {string} [look] */
export function figure(value, name, href, look = "") {
  const inner = [h("span", { class: "value" }, value), h("span", { class: "name" }, name)];
  return href ? h("a", { class: `figure ${look}`, href, key: name }, inner) : h("div", { class: `figure ${look}`, key: name }, inner);
}

/** A line of values over time, newest at the right. @param {number[]} values @param {string} name @param {(value: number) => string} say */
export function sparkline(values, name, say) {
  const last = values.length ? values[values.length - 1] ?? 0 : 0;
  return h("div", { class: "spark", key: name }, h("span", { class: "name" }, name), sparks(values, `${name}: ${say(last)}`), h("span", { class: "value" }, say(last)));
}

const WIDE = 160;
const HIGH = 36;

/** @param {number[]} values @param {string} label */
function sparks(values, label) {
  const most = Math.max(...values, 1e-9);
  const step = values.length > 1 ? WIDE / (values.length - 1) : WIDE;
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(HIGH - 2 - (value / most) * (HIGH - 4)).toFixed(1)}`);
  const area = points.length ? `0,${HIGH} ${points.join(" ")} ${WIDE},${HIGH}` : "";
  return svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "sparkline", role: "img", "aria-label": label, preserveAspectRatio: "none" }, svg("polygon", { points: area }), svg("polyline", { points: points.join(" ") }));
}

