/** Where this page stands: at a JobManager, at a history server, or in Airflow's pages. */

/** What the server tells the page in its head. @param {string} name */
export function meta(name) {
  return document.querySelector(`meta[name="${name}"]`)?.getAttribute("content") ?? "";
}

/** "": a cluster's own dashboard. Each other one has the pages of jobs only. */
export const MODE = /** @type {"" | "history" | "airflow"} */ (meta("mode"));

/** Is there a page at that address? @param {string} href below the base */
export function hasPage(href) {
  return !MODE || /^ui(\/jobs([/?]|$)|\?|$)/.test(href);
}
