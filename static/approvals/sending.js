// What becomes of a form that htmx sent and that was not accepted: the page stays as it is, and says so.
// Typed text is never lost to a server that is away, an error, or a token that is out of date.
"use strict";

(() => {
  const clear = () => document.getElementById("not-accepted")?.remove();

  function say(text) {
    clear();
    const note = Object.assign(document.createElement("p"), { id: "not-accepted", className: "note bad", textContent: text });
    note.setAttribute("role", "alert");
    (document.querySelector("main") ?? document.body).prepend(note);
    note.scrollIntoView({ block: "nearest" });
  }

  // An answer that is another page would leave nothing in the place of what was typed.
  function beforeSwap({ detail }) {
    clear();
    const wanted = detail.requestConfig.elt.closest("[hx-select]")?.getAttribute("hx-select");
    if (!detail.shouldSwap || !wanted) return;
    const answer = document.createElement("template");
    answer.innerHTML = detail.serverResponse;
    if (answer.content.querySelector(wanted)) return;
    detail.shouldSwap = false;
    say("Nothing was changed: this page was older than your sign-in. What you typed is kept; send it again.");
    document.dispatchEvent(new Event("durable:old")); // live.js fetches the parts anew, and with them the token
  }

  function noAnswer() {
    say("No answer came. What you typed is kept; see whether it was done before you send it again.");
  }

  function failed({ detail }) {
    const what = detail.xhr.status >= 500 ? "Something went wrong here." : "This was not accepted.";
    say(`${what} What you typed is kept; see whether it was done before you send it again.`);
  }

  document.addEventListener("htmx:beforeSwap", beforeSwap);
  document.addEventListener("htmx:sendError", noAnswer);
  document.addEventListener("htmx:timeout", noAnswer);
  document.addEventListener("htmx:responseError", failed);
})();
