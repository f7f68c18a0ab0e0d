/** Why a job failed or restarted: the root cause first. */

import { get } from "../api.js";
import { empty, facts, link, sentenceOf, time } from "../parts.js";
import { h } from "../view.js";

const SHOWN_MAX = 50;
/** A frame of Python's tracebacks. */
const FRAME = /^ {2}File "(.*)", line (\d+), in (.*)$/;
const LIBRARY = /site-packages|dist-packages|\/lib\/python3|\/pyspark\/|\/runtime\/taskexecutor\//;

/** @type {import("./job.js").Tab} */
export const exceptionsTab = {
  name: "exceptions",
  title: "Exceptions",
  load: (jobId, _, signal) => get(`jobs/${encodeURIComponent(jobId)}/exceptions?maxExceptions=${SHOWN_MAX}`, signal),
  view(job, exceptions) {
    const { entries, truncated } = exceptions.exceptionHistory;
    if (!entries.length) return empty("No task of this job has failed.");
    return [entries.map((/** @type {any} */ one, /** @type {number} */ index) => entry(one, index, job)), truncated ? h("p", { class: "muted" }, `Only the latest ${entries.length} are shown.`) : null];
  },
};

/** @param {any} one @param {number} index @param {any} job */
function entry(one, index, job) {
  const others = one.concurrentExceptions ?? [];
  return h(
    "article",
    { class: "failure", key: `${one.timestamp} ${index}` },
    h("h2", null, one.taskName ?? "The job", " ", h("span", { class: "muted" }, time(one.timestamp))),
    h("p", { class: "problem" }, summary(one)),
    userLine(one.stacktrace),
    facts([
      ["TaskManager", one.taskManagerId ? link(`ui/taskmanagers/${encodeURIComponent(one.taskManagerId)}`, one.taskManagerId) : ""],
      ["endpoint", one.endpoint ?? ""],
      ...Object.entries(one.failureLabels ?? {}).map(([name, value]) => /** @type {[string, string]} */ ([name, String(value)])),
    ]),
    h("details", { open: index === 0 }, h("summary", null, "Stack trace"), h("pre", { tabindex: 0, role: "region", "aria-label": "Stack trace" }, one.stacktrace)),
    others.length ? h("details", null, h("summary", null, `${others.length} more at the same time`), others.map((/** @type {any} */ other, /** @type {number} */ at) => entry({ ...other, concurrentExceptions: [] }, at + 1, job))) : null,
  );
}

/** The last line of a traceback says what happened. @param {any} one */
function summary(one) {
  const lines = String(one.stacktrace).trimEnd().split("\n");
  const last = lines.findLast((line) => line && !line.startsWith(" ")) ?? "";
  const name = one.exceptionName ?? "";
  if (name && last.startsWith(`${name}: `)) return sentenceOf(name, last.slice(name.length + 2));
  return last.includes(name) ? last : sentenceOf(name, last);
}

/** The user's own line: the deepest frame that is of no library. @param {string} trace */
function userLine(trace) {
  const lines = String(trace).split("\n");
  const at = lines.findLastIndex((line) => FRAME.test(line) && !LIBRARY.test(line));
  const found = FRAME.exec(lines[at] ?? "");
  if (!found) return null;
  const code = lines[at + 1]?.trim() ?? "";
  return h("p", { class: "user-line" }, `${found[1]}, line ${found[2]}, in ${found[3]}`, code ? h("code", null, code) : null);
}
