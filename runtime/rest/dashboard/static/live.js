/**
 * Keeps a page up to date: it is loaded, and loaded again when the cluster says that something has changed.
 *
 * One long poll waits for the change. A page of moving numbers has `every` beside it, and need not ask again for what
 * changes with the cluster only. A hidden tab asks nothing. When no JobManager answers, the page stays as it is, says so,
 * and asks again until one does.
 */

import { ApiError, get, path } from "./api.js";

const WAIT_SECONDS = 20;
const REST_MILLIS = 500;
const AGAIN_MILLIS = 2000;

/** @typedef {{load: (signal: AbortSignal, isChanged: boolean) => Promise<any>, show: (data: any) => void, trouble: (error: Error | null) => void, every: () => number}} Subject */

export class Live {
  /** @param {Subject} subject */
  constructor(subject) {
    this.subject = subject;
    this.control = new AbortController();
    this.revision = "";
    /** @type {(() => void) | null} */
    this.wake = null;
    this.isDue = false;
    /** Has the cluster changed since the load before? */
    this.isChanged = true;
  }

  /** Load and show until `stop`. */
  async run() {
    const { signal } = this.control;
    while (!signal.aborted) {
      await visible(signal);
      const isChanged = this.isChanged || this.isDue;
      this.isChanged = this.isDue = false;
      try {
        const data = await this.subject.load(signal, isChanged);
        if (signal.aborted) return;
        this.subject.trouble(null);
        this.subject.show(data);
        await this.rest(REST_MILLIS);
        if (!this.isDue) await this.change();
      } catch (error) {
        if (signal.aborted) return;
        this.revision = "";
        this.isChanged = true;
        this.subject.trouble(/** @type {Error} */ (error));
        await this.rest(passes(error) ? AGAIN_MILLIS : 4 * AGAIN_MILLIS);
      }
    }
  }

  /** Load again now, or when the present load is there. */
  again() {
    this.isDue = true;
    this.wake?.();
  }

  stop() {
    this.control.abort();
    this.wake?.();
  }

  /** @param {number} millis */
  async rest(millis) {
    if (this.isDue) return;
    /** @type {() => void} */
    let wake = () => undefined;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      wake = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
      this.wake = wake;
    });
    if (this.wake === wake) this.wake = null; // a later rest has its own
  }

  /** Until something has changed, `every` is over, or somebody has called `again`. */
  async change() {
    if (this.control.signal.aborted) return;
    const poll = new AbortController();
    const wait = this.subject.every() / 1000 || WAIT_SECONDS; // a poll that is over by itself keeps its connection
    const asked = get(path(["changes"], { since: this.revision, wait }), poll.signal);
    const told = asked.then(
      (body) => {
        this.isChanged = body.revision !== this.revision;
        this.revision = body.revision;
        return null;
      },
      (error) => error,
    );
    const over = () => poll.abort();
    this.control.signal.addEventListener("abort", over);
    const hidden = until(() => document.hidden, poll.signal);
    const problem = await Promise.race([told, hidden, this.rest(2 * wait * 1000)]);
    this.control.signal.removeEventListener("abort", over);
    poll.abort(); // what listens for it ends, too
    this.wake?.();
    if (problem instanceof Error) throw problem;
  }
}

/** Another try may be answered otherwise. @param {unknown} error */
export function passes(error) {
  return error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 502);
}

/** @param {AbortSignal} signal */
function visible(signal) {
  return until(() => !document.hidden, signal);
}

/**
 * @param {() => boolean} holds of the visibility of the page
 * @param {AbortSignal} signal
 * @returns {Promise<null>}
 */
function until(holds, signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (!holds() && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve(null);
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    if (holds()) look();
  });
}
