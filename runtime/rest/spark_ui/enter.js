"use strict";
// Opens the pages of a Spark environment by the code behind the #, which no browser sends to a server.
const told = document.querySelector("#told");

async function enter(code) {
  try {
    localStorage.clear(); // pages of another environment, with scripts of its jobs, may have left something
  } catch {
    // the browser keeps nothing for this page
  }
  try {
    const headers = { "content-type": "application/json", accept: "application/json" };
    const answer = await fetch("/open", { method: "POST", headers, body: JSON.stringify({ code }) });
    const found = await answer.json();
    if (answer.ok) location.replace(found.path);
    else told.textContent = found.errors.join(" ");
  } catch (error) {
    told.textContent = `This did not work: ${error instanceof Error ? error.message : error}`;
  }
}

const code = new URLSearchParams(location.hash.slice(1)).get("code");
history.replaceState(null, "", location.pathname);
if (code) void enter(code);
else told.textContent = "Open Spark's pages from the dashboard: from the page of a TaskManager, or the Spark tab of a job.";
