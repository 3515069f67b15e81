// Keeps an open page true. A page works without this; with it, what changes is fetched again, piece by piece.
//
// A part is an element with `data-part` and `data-version` (database time, in microseconds). The socket says what
// changed and carries no data; the parts concerned are fetched from the page's own address. An answer that is older
// than what is shown is dropped, so that parts may arrive in any order. All parts are also fetched when the socket
// (re)opens, when the page comes back into view, and every so often: every message may be lost.
"use strict";

(() => {
  const POLL_SECONDS = 15, POLL_WITHOUT_SOCKET_SECONDS = 5, TIMES_SECONDS = 30;
  const REST_MS = 200; // between two requests for one part
  const ANSWER_MS = 15_000;
  const LONGEST_RETRY_MS = 30_000;
  const SIGNED_OUT = 401, CLOSED_SIGNED_OUT = 4401;

  // --- parts ---------------------------------------------------------------------------------------------

  const parts = () => [...document.querySelectorAll("[data-part]")];
  const part = (name) => document.querySelector(`[data-part="${CSS.escape(name)}"]`);
  const version = (element) => Number(element.dataset.version) || 0;
  const asked = new Map(); // part name -> "now", or "again" when one more request is to follow

  function refresh(topics) {
    for (const element of parts()) {
      const wanted = (element.dataset.topic ?? "").split(/\s+/).filter(Boolean);
      if (!topics || !wanted.length || wanted.some((topic) => topics.includes(topic))) request(element.dataset.part);
    }
  }

  async function request(name) {
    if (asked.has(name)) {
      asked.set(name, "again");
      return;
    }
    do {
      asked.set(name, "now");
      try {
        await fetchPart(name);
      } catch {
        // no answer: the next round asks again
      }
      await new Promise((done) => setTimeout(done, REST_MS));
    } while (asked.get(name) === "again");
    asked.delete(name);
  }

  async function fetchPart(name) {
    const shown = part(name);
    if (!shown || isTypedIn(shown)) return;
    const address = new URL(location.pathname + location.search, location.origin);
    address.searchParams.set("part", name);
    const answer = await fetch(address, {
      headers: { "HX-Request": "true" }, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (answer.type === "opaqueredirect" || answer.status === SIGNED_OUT) {
      signedOut();
      return;
    }
    if (answer.ok || answer.status === 404) signedIn();
    if (answer.status === 200 && isPage(answer)) take(name, await answer.text());
  }

  // Never the bytes of a file that somebody gave: they could be written as a part.
  const isPage = (answer) => answer.headers.get("content-type")?.startsWith("text/html");

  function take(name, text) {
    const holder = document.createElement("template");
    holder.innerHTML = text;
    const fresh = holder.content.querySelector(`[data-part="${CSS.escape(name)}"]`), shown = part(name);
    if (!fresh || !shown || version(fresh) < version(shown) || isTypedIn(shown)) return;
    learnTime(fresh);
    learnToken(fresh);
    [shown, fresh].forEach(showTimes);
    if ("rows" in shown.dataset) takeRows(shown, fresh);
    else if (!isSame(shown, fresh)) swap(shown, fresh);
    countInTitle();
  }

  // Whoever signed in again, perhaps in another tab, has another token: forms that are never fetched anew get it too.
  function learnToken(fresh) {
    const token = fresh.querySelector("input[name=csrfmiddlewaretoken]")?.getAttribute("value");
    if (!token) return;
    document.querySelectorAll("main input[name=csrfmiddlewaretoken]").forEach((input) => input.setAttribute("value", token));
  }

  // Somebody's words are in there: nothing may replace them.
  function isTypedIn(element) {
    return [...element.querySelectorAll("input, textarea, select")].some((field) => {
      if (field.type === "hidden") return false;
      if (field.tagName === "SELECT") return [...field.options].some((o) => o.selected !== o.defaultSelected);
      return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
    });
  }

  // Whether nothing would change; forms get the newer token all the same.
  function isSame(shown, fresh) {
    const tokens = (element) => [...element.querySelectorAll("input[name=csrfmiddlewaretoken]")];
    const old = tokens(shown), now = tokens(fresh);
    if (old.length !== now.length) return false;
    const values = now.map((input) => input.getAttribute("value"));
    const newer = fresh.dataset.version;
    now.forEach((input, i) => input.setAttribute("value", old[i].getAttribute("value")));
    if (newer !== undefined) fresh.dataset.version = shown.dataset.version;
    const same = shown.isEqualNode(fresh);
    now.forEach((input, i) => input.setAttribute("value", values[i]));
    if (same) old.forEach((input, i) => input.setAttribute("value", values[i]));
    if (newer !== undefined) (same ? shown : fresh).dataset.version = newer;
    return same;
  }

  // --- replacing, and keeping what is the reader's ----------------------------------------------------------

  function swap(shown, fresh) {
    const restore = keep(shown);
    shown.replaceWith(fresh);
    restore(fresh);
    window.htmx?.process(fresh);
  }

  const keyed = (element) => [...element.querySelectorAll("[id], [data-key]")];

  // How to find an element again. Never a near miss: focus must not move from one decision to another.
  function nameOf(element) {
    if (element.id) return `#${CSS.escape(element.id)}`;
    if (element.localName === "summary") return `${nameOf(element.parentElement)} > summary`;
    const told = ["data-key", "name", "value", "href"].filter((name) => element.getAttribute(name) !== null);
    return element.localName + told.map((name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`).join("");
  }

  function find(within, name) {
    const found = [within, ...within.querySelectorAll("*")].filter((element) => element.matches(name));
    return found.length === 1 ? found[0] : null;
  }

  // Remembers focus, selection, open details and inner scrolling; the function it returns brings them back.
  function keep(shown) {
    const active = shown.contains(document.activeElement) ? document.activeElement : null;
    const focus = active && { name: nameOf(active), from: active.selectionStart, to: active.selectionEnd };
    const open = new Map(), scrolled = new Map();
    for (const element of keyed(shown)) {
      if (element.localName === "details") open.set(nameOf(element), element.open);
      const { scrollLeft: left, scrollTop: top } = element;
      if (left || top) scrolled.set(nameOf(element), [left, top]);
    }
    const selected = selection(shown);
    return (fresh) => {
      for (const [name, isOpen] of open) find(fresh, name)?.toggleAttribute("open", isOpen);
      for (const [name, [left, top]] of scrolled) find(fresh, name)?.scrollTo(left, top);
      if (focus) refocus(fresh, focus);
      if (selected) reselect(fresh, selected);
    };
  }

  function refocus(fresh, { name, from, to }) {
    const found = find(fresh, name);
    if (!found) fresh.tabIndex = -1; // what had it is gone: the keyboard goes on from here, not from the top
    (found || fresh).focus({ preventScroll: true });
    if (found && from !== null && from !== undefined) found.setSelectionRange(from, to);
  }

  // Selected text, as the way from the part to both its ends.
  function selection(shown) {
    const now = getSelection();
    if (!now || now.isCollapsed || !shown.contains(now.anchorNode) || !shown.contains(now.focusNode)) return null;
    const way = (node) => {
      const steps = [];
      for (; node !== shown; node = node.parentNode) steps.unshift([...node.parentNode.childNodes].indexOf(node));
      return steps;
    };
    return [way(now.anchorNode), now.anchorOffset, way(now.focusNode), now.focusOffset, now.toString()];
  }

  function reselect(fresh, [anchor, from, focus, to, text]) {
    const follow = (steps) => steps.reduce((node, step) => node?.childNodes[step], fresh);
    const now = getSelection();
    try {
      now.setBaseAndExtent(follow(anchor), from, follow(focus), to);
    } catch {
      return; // that text is gone
    }
    if (now.toString() !== text) now.removeAllRanges();
  }

  // --- lists: rows change in place and never move --------------------------------------------------------------

  const rowsIn = (element) => new Map([...element.querySelectorAll("li[id]")].map((row) => [row.id, row]));
  let waiting = null; // the newest answer, while it holds rows that are not shown

  function takeRows(shown, fresh) {
    const here = rowsIn(shown), there = rowsIn(fresh);
    if (!here.size && there.size) { // nothing is there that could move
      swap(shown, fresh);
      return;
    }
    for (const [id, row] of here) {
      const newer = there.get(id);
      if (!newer) sayGone(row, shown.dataset.goneText);
      else if (!isTypedIn(row) && !isSame(row, newer)) swap(row, newer.cloneNode(true));
    }
    shown.dataset.version = fresh.dataset.version;
    if (fresh.dataset.titleCount !== undefined) shown.dataset.titleCount = fresh.dataset.titleCount;
    announce(shown, fresh, [...there.keys()].filter((id) => !here.has(id)).length);
  }

  function sayGone(row, text) {
    if (row.classList.contains("gone")) return;
    row.classList.add("gone");
    if (text) row.append(Object.assign(document.createElement("small"), { textContent: text }));
  }

  function announce(shown, fresh, count) {
    const banner = document.getElementById("rows-news");
    if (!banner) return;
    waiting = count ? { name: shown.dataset.part, fresh } : null;
    banner.hidden = !count;
    const control = banner.querySelector("a, button") ?? banner;
    const text = `${count} new: show ${count === 1 ? "it" : "them"}`;
    if (count && control.textContent !== text) control.textContent = text;
  }

  function showNews(event) {
    if (!waiting || !event.target.closest?.("#rows-news :is(a, button)")) return;
    event.preventDefault();
    const { name, fresh } = waiting, shown = part(name);
    if (!shown) return;
    const before = rowsIn(shown);
    swap(shown, fresh);
    announce(fresh, fresh, 0);
    const first = [...rowsIn(fresh)].find(([id]) => !before.has(id));
    if (first) focusRow(first[1]);
  }

  // --- times, in the server's words and by its clock -------------------------------------------------------------

  const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  let skew = 0; // how far this machine's clock is ahead, in ms

  function learnTime(element) {
    if (version(element)) skew = Date.now() - version(element) / 1000;
  }

  function amount(seconds) {
    const [size, unit] = UNITS.find(([size]) => seconds >= 2 * size || size === 1);
    const count = Math.max(Math.floor(seconds / size), 1);
    return `${count} ${unit}${count === 1 ? "" : "s"}`;
  }

  function relative(seconds) {
    if (seconds > -1 && seconds < 5) return "just now";
    return seconds > 0 ? `${amount(seconds)} ago` : `in ${amount(-seconds)}`;
  }

  function showTimes(within) {
    for (const time of within.querySelectorAll("time[data-relative]")) {
      const at = Date.parse(time.dateTime), text = relative((Date.now() - skew - at) / 1000);
      if (!Number.isNaN(at) && time.textContent !== text) time.textContent = text;
    }
  }

  // --- what the reader is told -------------------------------------------------------------------------------------

  function say(text) {
    const status = document.getElementById("live-status");
    if (status && status.textContent !== text) status.textContent = text;
  }

  function countInTitle() {
    const counted = document.querySelector("[data-title-count]");
    if (!counted) return;
    const count = counted.dataset.titleCount, plain = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = Number.parseInt(count) ? `(${count}) ${plain}` : plain;
  }

  let isSignedOut = false;

  function signedOut() {
    if (isSignedOut) return;
    isSignedOut = true;
    say("");
    const note = Object.assign(document.createElement("p"), { id: "signed-out", className: "note warn" });
    note.setAttribute("role", "alert");
    // This page's own address leads over the sign-in page back here; what was typed stays, beside it.
    const link = Object.assign(document.createElement("a"), { href: location.href, textContent: "Sign in again" });
    link.className = "go";
    if (isTypedIn(document.body)) Object.assign(link, { target: "_blank", rel: "noopener" });
    note.append("You were signed out. ", link);
    (document.querySelector("main") ?? document.body).prepend(note);
    socket?.close();
  }

  function signedIn() {
    if (!isSignedOut) return;
    isSignedOut = false;
    document.getElementById("signed-out")?.remove();
    connect();
  }

  // --- the socket ----------------------------------------------------------------------------------------------------

  let socket = null, failures = 0, retry = 0;
  let isLive = false;

  function connect() {
    clearTimeout(retry);
    const topics = (document.body.dataset.live ?? "").split(/\s+/).filter(Boolean);
    if (!topics.length || isSignedOut || (socket && socket.readyState <= WebSocket.OPEN)) return;
    const mine = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`);
    socket = mine;
    mine.addEventListener("open", () => mine.send(JSON.stringify({ topics })));
    mine.addEventListener("message", (event) => hear(JSON.parse(event.data)));
    mine.addEventListener("close", ({ code }) => {
      if (socket === mine) lost();
      if (code === CLOSED_SIGNED_OUT) refresh(); // the answer says so
    });
  }

  function hear({ joined, changed }) {
    if (joined) {
      isLive = true;
      failures = 0;
      say("live");
      refresh(); // whatever happened between the page and its socket
    }
    if (changed) refresh(changed);
  }

  function lost() {
    isLive = false;
    if (isSignedOut) return;
    say("reconnecting…");
    const longest = Math.min(LONGEST_RETRY_MS, 500 * 2 ** failures++);
    retry = setTimeout(connect, longest * (0.5 + Math.random() / 2)); // not all pages at once
  }

  // --- keys: never while somebody types, nor where somebody switched them off -------------------------------------------------------------------------------

  let lastKey = "";

  function onKey(event) {
    if (document.querySelector(".rail")?.dataset.keys === "off") return;
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (isTyping || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("input[type=search]"), home = document.querySelector(".rail .brand");
    const before = lastKey;
    lastKey = event.key;
    if (event.key === "j" || event.key === "k") moveBy(event.key === "j" ? 1 : -1);
    else if (event.key === "/" && search) search.focus();
    else if (before === "g" && event.key === "i" && home) home.click();
    else return;
    event.preventDefault();
  }

  function moveBy(step) {
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.indexOf(document.activeElement?.closest("[data-row]") ?? null);
    const next = rows[at < 0 ? 0 : at + step];
    if (next) focusRow(next);
  }

  // The row's link, so that Enter opens it as it always does.
  function focusRow(row) {
    const target = row.matches("a, button, [tabindex]") ? row : row.querySelector("a, button");
    target?.focus();
  }

  // --- the start ---------------------------------------------------------------------------------------------------

  function comeBack() {
    if (document.hidden) return;
    failures = 0;
    refresh();
    connect();
  }

  let seconds = 0;

  function everySecond() {
    seconds += 1;
    if (document.hidden || isSignedOut) return;
    if (seconds % TIMES_SECONDS === 0) showTimes(document);
    if (seconds % (isLive ? POLL_SECONDS : POLL_WITHOUT_SOCKET_SECONDS) === 0) refresh();
  }

  parts().forEach(learnTime);
  countInTitle();
  document.addEventListener("click", showNews);
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", comeBack);
  document.addEventListener("htmx:afterSettle", countInTitle);
  document.addEventListener("durable:old", () => refresh()); // from sending.js
  addEventListener("online", comeBack);
  addEventListener("pageshow", (event) => event.persisted && comeBack());
  setInterval(everySecond, 1000);
  connect();
})();
