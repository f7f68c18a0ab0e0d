/** How far the page has read the logs of a job, in the form that POST /jobs/:id/logs takes and gives. */

const STREAMS = ["stdout", "stderr", "log"];

export class LogPosition {
  constructor() {
    /** @type {Map<string, {vertex: string, subtask: number, attempt: number, offsets: number[]}>} */
    this.live = new Map();
    /** Subtasks by vertex and attempt. @type {Map<string, {vertex: string, attempt: number, subtasks: Set<number>}>} */
    this.drained = new Map();
  }

  /** Take a piece into account. @param {any} attempt an element of `attempts` of the answer */
  take(attempt) {
    const key = `${attempt.vertex} ${attempt.subtask} ${attempt.attempt}`;
    const logs = Object.entries(attempt.logs);
    const isRead = attempt.missing || logs.every(([, one]) => one["next-offset"] >= one.size);
    if (attempt.ended && isRead) {
      this.live.delete(key);
      this.drain(attempt);
      return;
    }
    const entry = this.live.get(key) ?? { vertex: attempt.vertex, subtask: attempt.subtask, attempt: attempt.attempt, offsets: STREAMS.map(() => 0) };
    for (const [stream, one] of logs) entry.offsets[STREAMS.indexOf(stream)] = one["next-offset"];
    this.live.set(key, entry);
  }

  /** @param {any} attempt */
  drain(attempt) {
    const key = `${attempt.vertex} ${attempt.attempt}`;
    const entry = this.drained.get(key) ?? { vertex: attempt.vertex, attempt: attempt.attempt, subtasks: new Set() };
    entry.subtasks.add(attempt.subtask);
    this.drained.set(key, entry);
  }

  json() {
    return {
      live: [...this.live.values()].map((one) => [one.vertex, one.subtask, one.attempt, ...one.offsets]),
      drained: [...this.drained.values()].map((one) => [one.vertex, one.attempt, ranges([...one.subtasks])]),
    };
  }
}

/** [0, 1, 2, 5] -> "0-2,5". @param {number[]} numbers */
export function ranges(numbers) {
  /** @type {[number, number][]} */
  const found = [];
  for (const one of numbers.sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && one === last[1] + 1) last[1] = one;
    else found.push([one, one]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}
