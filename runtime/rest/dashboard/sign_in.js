"use strict";
// Signs in without leaving the page: the answer has what the scripts of this origin send beside the cookie, which
// the browser sends to every port of this host.
const form = document.querySelector("form");
const told = document.querySelector("#told");

async function signIn(fields) {
  told.textContent = "";
  try {
    const body = new URLSearchParams(fields);
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
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void signIn(new FormData(form));
});

// `flinklike open` names a code behind the #, which no browser sends to a server.
const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  void signIn({ code });
}
