"use strict";
// Signs in without leaving the page: the answer has what the scripts of this origin send beside the cookie, which
// the browser sends to every port of this host.
const form = document.querySelector("form");
const told = document.querySelector("#told");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  told.textContent = "";
  try {
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(location.href, { method: "POST", body, headers: { accept: "application/json" } });
    const found = await answer.json();
    if (answer.ok) {
      localStorage.setItem("flinklike-csrf-token", found["csrf-token"]);
      location.reload();
    } else {
      told.textContent = found.errors.join(" ");
    }
  } catch (error) {
    told.textContent = `This did not work: ${error instanceof Error ? error.message : error}`;
  }
});
