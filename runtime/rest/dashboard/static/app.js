/** The dashboard: which page is shown, what stands around it, and what a person does there. */

import { ApiError, get, send, signInBy } from "./api.js";
import { Live } from "./live.js";
import { hasPage, meta, MODE } from "./mode.js";
import { ROUTES } from "./routes.js";
import { h, patch } from "./view.js";

/** @typedef {import("./view.js").Content} Content */
/** @typedef {{parts: string[], query: URLSearchParams, href: string}} Place the path below `ui`, and its query */
/**
 * @typedef {object} Page
 * @property {(place: Place, data: any) => string} title
 * @property {(place: Place, signal: AbortSignal, known: any) => Promise<any>} load `known`: what is shown, where nothing of the cluster has changed since
 * @property {(data: any, place: Place, app: App) => Content} view
 * @property {(data: any) => boolean} [moves] true while it has numbers that move: it is loaded again every web.refresh-interval, too
 */
/** @typedef {{title: string, says: Content, verb: string, does: () => Promise<string>}} Action */

const NAVIGATION = /** @type {[string, string, string][]} */ ([
  ["ui", "Overview", ""],
  ["ui/jobs", "Jobs", "jobs"],
  ["ui/taskmanagers", "TaskManagers", "taskmanagers"],
  ["ui/jobmasters", "JobMasters", "jobmasters"],
  ["ui/jobmanager", "JobManager", "jobmanager"],
  ["ui/submit", "Submit", "submit"],
  ["ui/events", "Events", "events"],
]);
const ALL_JOBS = "../../ui/jobs";
const THEMES = ["auto", "light", "dark"];
const TOLD_MILLIS = 6000;

export class App {
  constructor() {
    this.root = /** @type {HTMLElement} */ (document.getElementById("app"));
    this.base = new URL(document.baseURI).pathname;
    this.refreshMillis = Number(meta("refresh-interval") || 3000);
    /** @type {any} */
    this.principal = null;
    /** @type {Page} */
    this.page = /** @type {Page} */ (ROUTES[0]?.page);
    /** @type {Place} */
    this.place = this.read();
    /** @type {any} */
    this.data = null;
    /** @type {Error | null} */
    this.problem = null;
    /** @type {Live | null} */
    this.live = null;
    /** @type {(Action & {problem?: string, busy?: boolean}) | null} */
    this.action = null;
    this.told = "";
    /** What a page keeps while it is shown, such as what is opened. @type {Record<string, any>} */
    this.kept = {};
  }

  start() {
    this.applyTheme(this.theme());
    document.addEventListener("click", (event) => this.onClick(event));
    window.addEventListener("popstate", () => this.open());
    void this.begin();
  }

  async begin() {
    await takeCode();
    this.open();
    try {
      this.principal = await get("principal");
      this.render();
    } catch {
      // the page tells it, with its own request
    }
  }

  /** @returns {Place} */
  read() {
    const url = new URL(location.href);
    const below = url.pathname.slice(this.base.length).split("/").filter((part) => part);
    return { parts: below.slice(1).map(decoded), query: url.searchParams, href: below.join("/") };
  }

  /** Show the page of the address. */
  open() {
    this.live?.stop();
    const place = this.read();
    const isOther = place.href !== this.place.href || this.live === null;
    this.place = place;
    const found = ROUTES.find((route) => route.takes(place.parts));
    this.page = /** @type {Page} */ (found?.page ?? ROUTES[ROUTES.length - 1]?.page);
    if (isOther) {
      this.data = null;
      this.kept = {};
    }
    this.problem = null;
    this.live = new Live({
      load: (signal, isChanged) => this.page.load(place, signal, isChanged ? null : this.data),
      show: (data) => {
        this.data = data;
        this.render();
      },
      trouble: (error) => {
        this.problem = error;
        if (error) this.render();
      },
      every: () => (this.page.moves?.(this.data) ? this.refreshMillis : 0),
    });
    this.render();
    if (isOther) window.scrollTo(0, 0);
    void this.live.run();
  }

  /** @param {string} href below the base */
  go(href, { replace = false } = {}) {
    history[replace ? "replaceState" : "pushState"](null, "", href);
    this.open();
  }

  /** The same page with other values in its query. @param {Record<string, string | null>} changes */
  goWith(changes, { replace = false } = {}) {
    const query = new URLSearchParams(this.place.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const search = query.toString();
    this.go(this.place.href + (search ? `?${search}` : ""), { replace });
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const target = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!target || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const url = new URL(/** @type {HTMLAnchorElement} */ (target).href);
    const isOurs = url.origin === location.origin && url.pathname.startsWith(this.base) && /^ui(\/|$)/.test(url.pathname.slice(this.base.length));
    if (!isOurs || target.hasAttribute("download") || target.hasAttribute("target")) return;
    event.preventDefault();
    this.go(url.href);
  }

  /** Ask before something is done, do it, and say what came of it. @param {Action} action */
  ask(action) {
    this.action = action;
    this.render();
  }

  async confirmed() {
    const action = this.action;
    if (!action || action.busy) return;
    action.busy = true;
    action.problem = "";
    this.render();
    try {
      const told = await action.does();
      if (this.action === action) this.action = null;
      this.tell(told);
      this.live?.again();
    } catch (error) {
      action.problem = error instanceof Error ? error.message : String(error);
      action.busy = false;
      if (this.action !== action) this.tell(action.problem);
    }
    this.render();
  }

  /** Say something for some seconds. @param {string} text */
  tell(text) {
    this.told = text;
    this.render();
    setTimeout(() => {
      if (this.told !== text) return;
      this.told = "";
      this.render();
    }, TOLD_MILLIS);
  }

  /** @param {string} text @param {string} what */
  copy(text, what) {
    const done = () => this.tell(`Copied the ${what}.`);
    const select = () => this.tell(`The browser does not let this page copy. The ${what} is ${text}`);
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, select);
    else select();
  }

  /** May the person who is signed in do that? @param {"viewer" | "submitter" | "operator" | "admin"} role */
  may(role) {
    if (MODE === "history") return false; // nothing of what has ended changes
    const roles = ["viewer", "submitter", "operator", "admin"];
    return roles.indexOf(this.principal?.role ?? "viewer") >= roles.indexOf(role);
  }

  theme() {
    try {
      return localStorage.getItem("flinklike-theme") ?? "auto";
    } catch {
      return "auto"; // the browser keeps nothing for this page
    }
  }

  /** @param {string} name */
  applyTheme(name) {
    document.documentElement.dataset["theme"] = name;
    try {
      localStorage.setItem("flinklike-theme", name);
    } catch {
      // it holds until the page is left
    }
    this.render();
  }

  render() {
    const title = this.page.title(this.place, this.data);
    document.title = title ? `${title} - flinklike` : "flinklike";
    patch(this.root, [this.header(), this.banner(), h("main", { id: "main", tabindex: -1 }, this.content()), this.dialog(), this.toast()]);
  }

  /** @returns {Content} */
  header() {
    const isHere = (/** @type {string} */ part) => (this.place.parts[0] ?? "") === part || (MODE !== "" && part === "jobs" && !this.place.parts.length);
    const links = NAVIGATION.filter(([href, , part]) => hasPage(href) && (part || !MODE)).map(([href, name, part]) =>
      h("a", { href, key: href, "aria-current": isHere(part) ? "page" : null }, name),
    );
    const isOfTask = MODE === "airflow" && this.place.parts.length > 1; // its address is below that of the task
    const theme = this.theme();
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
    return h(
      "header",
      { key: "header" },
      h("a", { class: "skip", href: "#main", onclick: (/** @type {Event} */ event) => this.skip(event) }, "Skip to content"),
      h("a", { class: "brand", href: isOfTask ? ALL_JOBS : "ui" }, "flinklike"),
      h("nav", { "aria-label": "Pages" }, isOfTask ? h("a", { href: ALL_JOBS }, "All jobs") : links),
      MODE === "history" ? h("span", { class: "muted" }, "History server: jobs that have ended, of all clusters whose histories it reads") : null,
      h(
        "div",
        { class: "who" },
        this.principal ? h("span", { title: `role ${this.principal.role}, namespace ${this.principal.namespace || "all"}` }, this.principal.name) : null,
        h("button", { type: "button", class: "quiet", title: `Colours: ${theme}. Change to ${next}`, onclick: () => this.applyTheme(next) }, theme),
        meta("signed-in-by") === "cookie" ? h("form", { method: "post", action: "ui" }, h("button", { class: "quiet", name: "sign-out", value: "1" }, "Sign out")) : null,
      ),
    );
  }

  /** @param {Event} event */
  skip(event) {
    event.preventDefault();
    document.getElementById("main")?.focus();
  }

  /** @returns {Content} */
  banner() {
    if (!this.problem || !this.data) return null;
    const again = () => this.live?.again();
    return h("div", { class: "banner", role: "status", key: "banner" }, `${this.problem.message} What is below may be old; this page goes on by itself.`, h("button", { type: "button", onclick: again }, "Try now"));
  }

  /** @returns {Content} */
  content() {
    if (this.data) return this.page.view(this.data, this.place, this);
    if (!this.problem) return h("p", { class: "loading", role: "status" }, "Loading…");
    const isGone = this.problem instanceof ApiError && this.problem.status === 401;
    const signIn = isGone ? h("form", { method: "post", action: this.place.href }, h("button", { class: "primary", name: "sign-out", value: "1" }, "Sign in again")) : null;
    return h("div", { class: "trouble", role: "alert" }, h("h1", null, isGone ? "Not signed in" : "This page cannot be shown"), h("p", null, this.problem.message), signIn);
  }

  /** @returns {Content} */
  dialog() {
    const action = this.action;
    if (!action) return null;
    const close = () => {
      this.action = null;
      this.render();
    };
    return h(
      "dialog",
      { key: "dialog", "aria-labelledby": "dialog-title", onclose: close, oncancel: close, draw: (/** @type {HTMLDialogElement} */ node) => this.drawDialog(node, action, close) },
    );
  }

  /**
   * @param {HTMLDialogElement} node
   * @param {Action & {problem?: string, busy?: boolean}} action
   * @param {() => void} close
   */
  drawDialog(node, action, close) {
    patch(node, [
      h("h2", { id: "dialog-title" }, action.title),
      h("p", null, action.says),
      action.problem ? h("p", { class: "problem", role: "alert" }, action.problem) : null,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Back"), h("button", { type: "button", class: "primary", disabled: action.busy, onclick: () => void this.confirmed() }, action.busy ? "…" : action.verb)),
    ]);
    if (!node.open) node.showModal();
  }

  /** @returns {Content} */
  toast() {
    return h("div", { class: "toast", role: "status", "aria-live": "polite", key: "toast", hidden: !this.told }, this.told);
  }

  /** @param {string} method @param {string} path @param {any} [body] */
  async change(method, path, body) {
    return send(method, path, body);
  }
}

/**
 * A code of `flinklike open` leaves the address. It counts for whom REST does not know: a link of somebody else with a
 * code of theirs changes nothing for who has signed in.
 */
async function takeCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await get("principal");
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) await signInBy(code);
  }
}

/** A part of the address; one that is no text of a link of ours stays as it is. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

new App().start();
