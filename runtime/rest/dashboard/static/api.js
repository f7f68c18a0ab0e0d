/** Requests to the cluster: relative to the page's base, so that the page works behind the path of a proxy. */

import { MODE } from "./mode.js";

const ASKED = { "": "JobManager", history: "history server", airflow: "API server of Airflow" }[MODE];

export class ApiError extends Error {
  /**
   * @param {number} status 0: there was no answer
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const KEPT = "flinklike-csrf-token";
let csrf = csrfToken();

/** What the sign-in has kept for the pages of this origin: the cookie is worth nothing without it. */
function csrfToken() {
  try {
    return localStorage.getItem(KEPT) ?? "";
  } catch {
    return ""; // the browser keeps nothing for this page: REST refuses, and the page says so
  }
}

/** A code that was used or is too old changes nothing: the page goes on as who has signed in. @param {string} code */
export async function signInBy(code) {
  const body = new URLSearchParams({ code });
  const answer = await fetch(location.href, { method: "POST", body, headers: { accept: "application/json" } }).catch(() => null);
  if (!answer?.ok) return;
  csrf = (await answer.json())["csrf-token"];
  localStorage.setItem(KEPT, csrf);
}

/**
 * @param {string} method
 * @param {string} path without a slash in front
 * @param {{body?: any, signal?: AbortSignal, headers?: Record<string, string>}} [more]
 * @returns {Promise<Response>}
 */
async function request(method, path, more = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", "x-requested-with": "flinklike", ...more.headers };
  if (csrf) headers["x-csrf-token"] = csrf;
  const isForm = more.body instanceof FormData; // the browser names its type, with the boundary
  if (more.body !== undefined && !isForm) headers["content-type"] = "application/json";
  const body = more.body === undefined || isForm ? more.body : JSON.stringify(more.body);
  try {
    return await fetch(path, { method, headers, body, signal: more.signal ?? null, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, `The ${ASKED} does not answer.`);
  }
}

/**
 * @param {Response} answer
 * @returns {Promise<any>}
 */
async function bodyOf(answer) {
  const body = await answer.json().catch((error) => {
    if (!answer.ok) return null;
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, `The answer of the ${ASKED} broke off.`);
  });
  if (answer.ok) return body;
  const told = Array.isArray(body?.errors) ? body.errors.join(" ") : `${answer.status} ${answer.statusText}`;
  throw new ApiError(answer.status, told);
}

/** @type {Map<string, {etag: string, body: any}>} */
const remembered = new Map();
const REMEMBERED_MAX = 40;

/**
 * GET of JSON. An answer with an ETag is asked for again with it, and not sent a second time while it holds.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  const before = remembered.get(path);
  const answer = await request("GET", path, { signal, headers: before ? { "if-none-match": before.etag } : {} });
  if (answer.status === 304 && before) return before.body;
  const body = await bodyOf(answer);
  const etag = answer.headers.get("etag");
  remembered.delete(path);
  if (etag) remembered.set(path, { etag, body });
  if (remembered.size > REMEMBERED_MAX) remembered.delete(/** @type {string} */ (remembered.keys().next().value));
  return body;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, signal) {
  return bodyOf(await request(method, path, { body, signal }));
}

/**
 * GET of bytes, with the headers of the answer.
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function bytes(path, signal) {
  const answer = await request("GET", path, { signal, headers: { accept: "text/plain" } });
  if (!answer.ok) await bodyOf(answer);
  return { data: await answer.arrayBuffer(), headers: answer.headers };
}

/**
 * A path of parts, each encoded, with a query of what is not empty.
 * @param {(string | number)[]} parts
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function path(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return parts.map((part) => encodeURIComponent(part)).join("/") + (search ? `?${search}` : "");
}
