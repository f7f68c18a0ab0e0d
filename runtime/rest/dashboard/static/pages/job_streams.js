/** What the streaming queries of a job do: the last batch of each, its rates, state and backlog, and how they went. */

import { get } from "../api.js";
import { counted, duration, number, size } from "../format.js";
import { empty, row, section, sparkline, state, table, time } from "../parts.js";
import { h } from "../view.js";

const SHOWN_MAX = 200;
const CHARTS_MAX = 6;
const VALUES_MAX = 120;
const HEAD = ["Query", "Subtask", "State", "Batch", "Rows", "Rows/s in", "Rows/s processed", "Batch time", "State size", "Backlog", "Watermark", "Last batch"];
const EMPTY = "No streaming query has told of itself yet. A query is told of once it runs, and after each of its batches.";
const NO_QUERIES = "This job runs no streaming queries.";

/** What this page has seen of each run, oldest first. @type {Map<string, any[]>} */
const seen = new Map();

/** Does the job run streaming queries, or has it run some? @param {any} job the body of GET /jobs/:id */
export function hasStreams(job) {
  return job["job-type"] === "STREAMING" || job.vertices.some((/** @type {any} */ one) => one.streams);
}

/** The queries of a vertex in one line. @param {any} sums */
export function streamsInWords(sums) {
  if (!sums.queries) return "no query has told of itself yet";
  const backlog = sums.backlog < 0 ? "" : `, backlog ${number(sums.backlog)}`;
  return `${counted(sums.queries, "query", "queries")}, ${counted(sums.batches, "batch", "batches")}, ${counted(sums.rows, "row")}; ${number(sums["input-rows-per-second"])} rows/s in, ${number(sums["processed-rows-per-second"])} processed${backlog}`;
}

/** @type {import("./job.js").Tab} */
export const streamsTab = {
  name: "streams",
  title: "Streams",
  load: (jobId, _, signal) => get(`jobs/${encodeURIComponent(jobId)}/streams`, signal),
  view(job, streams) {
    if (!streams.vertices.length) return empty(hasStreams(job) ? EMPTY : NO_QUERIES);
    const each = streams.vertices.flatMap((/** @type {any} */ vertex) => vertex.subtasks.flatMap((/** @type {any} */ subtask) => queriesOf(vertex, subtask)));
    const told = each.filter((/** @type {any} */ one) => one.query);
    remember(told);
    const rows = each.slice(0, SHOWN_MAX).map((/** @type {any} */ one) => queryRow(one, streams.now));
    const rest = each.length - rows.length;
    return [
      section("Queries", table("Streaming queries", HEAD, rows, EMPTY), rest > 0 ? h("p", { class: "muted" }, `${number(rest)} more are in REST.`) : null),
      told.slice(0, CHARTS_MAX).map(chartsOf),
      told.length > CHARTS_MAX ? h("p", { class: "muted" }, `Lines of the first ${CHARTS_MAX} queries only.`) : null,
    ];
  },
};

/** @param {any} vertex @param {any} subtask */
function queriesOf(vertex, subtask) {
  const name = vertex.uid || vertex.name;
  if (!subtask.queries.length) return [{ name, subtask, query: null, key: `${vertex.id} ${subtask.subtask}` }];
  return subtask.queries.map((/** @type {any} */ query) => {
    const named = vertex.uid ? name : query.name || name; // a script starts several
    return { name: named, subtask, query, key: query["run-id"] || `${vertex.id} ${subtask.subtask}` };
  });
}

/** A value is kept once for each batch, so that the lines say how batches went. @param {any[]} told */
function remember(told) {
  for (const { query, key } of told) {
    const values = seen.get(key) ?? [];
    const last = values[values.length - 1];
    if (!last || last["batch-id"] !== query["batch-id"] || last.progressed !== query.progressed) values.push(query);
    seen.delete(key);
    seen.set(key, values.slice(-VALUES_MAX));
  }
  while (seen.size > SHOWN_MAX) seen.delete(/** @type {string} */ (seen.keys().next().value));
}

/** @param {any} one @param {number} now */
function queryRow({ name, subtask, query, key }, now) {
  const cells = [name, String(subtask.subtask), state(subtask.status)];
  if (!query) return row(key, ...cells, "none yet", ...HEAD.slice(4).map(() => ""));
  return row(
    key,
    ...cells,
    query["batch-id"] < 0 ? "none yet" : number(query["batch-id"]),
    number(query.rows),
    number(query["input-rows-per-second"]),
    number(query["processed-rows-per-second"]),
    [duration(query["trigger-millis"]), late(query)],
    query["state-bytes"] ? `${size(query["state-bytes"])}, ${counted(query["state-rows"], "row")}` : "",
    query.backlog < 0 ? "" : number(query.backlog),
    query.watermark > 0 ? [time(query.watermark), ` (${duration(Math.max(0, now - query.watermark))} behind)`] : "",
    [time(query.progressed, "none yet"), query.idle ? " idle" : "", stalled(subtask, query, now)],
  );
}

/** Of a query whose batches take longer than the interval of its trigger. @param {any} query */
function late(query) {
  if (!query["back-pressured"]) return "";
  return h("span", { class: "state bad", title: "Back pressure: the last batch has taken longer than the interval of its trigger" }, ` late, trigger ${duration(query["interval-millis"])}`);
}

/** What a query that does not get on is in. @param {any} subtask @param {any} query @param {number} now */
function stalled(subtask, query, now) {
  if (!subtask.stalled || !query["busy-since"]) return "";
  const tasks = subtask["tasks-total"] ? `, ${number(subtask["tasks-completed"])} of ${counted(subtask["tasks-total"], "task")} of Spark` : "";
  const place = [query.stage, query.thread].filter(Boolean).join(", ");
  return [
    h("span", { class: "state bad", title: "In one trigger for longer than execution.streaming.stall-timeout" }, ` stalled for ${duration(Math.max(0, now - query["busy-since"]))}${tasks}`),
    place ? h("p", { class: "muted" }, `In ${place}`) : null,
  ];
}

/** @param {any} one */
function chartsOf({ name, subtask, query, key }) {
  const values = seen.get(key) ?? [];
  const drawn = values.length === 1 ? [...values, ...values] : values; // one value is a level, no slope
  const of = (/** @type {string} */ field) => drawn.map((one) => one[field]);
  const phases = Object.entries(query.phases).sort(([, a], [, b]) => b - a);
  return section(
    `${name} ${subtask.subtask}`,
    sparkline(of("processed-rows-per-second"), "rows per second processed", number),
    sparkline(of("input-rows-per-second"), "rows per second in", number),
    sparkline(of("trigger-millis"), "time of a batch", duration),
    query.backlog < 0 ? null : sparkline(of("backlog").map((one) => Math.max(0, one)), "backlog", number),
    query["state-bytes"] ? sparkline(of("state-bytes"), "state", size) : null,
    h("p", { class: "muted" }, "Query ", h("code", null, query["query-id"]), phases.length ? `. Last batch: ${phases.map(([phase, millis]) => `${phase} ${duration(millis)}`).join(", ")}.` : "."),
  );
}
