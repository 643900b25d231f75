/*
 * Pages that are only words: how to get in, and what went wrong with what to do about it.
 */

import { el } from "./dom.js";
import { NO_VISIT, TOO_LATE, UNREACHABLE } from "./refusal.js";

/** Return the page for who is not in. `trouble` says why a code did not work, if there was one. */
export function entrancePage(trouble = null) {
  const commands = [
    ["A server that runs here: ask it for a link, and open it in this browser.", "proctor operator link"],
    ["A ledger on disk: open it, and follow the address that is printed.", "proctor view LEDGER"],
  ];
  return words("How to get in", [
    trouble === null ? null : el("p", { class: "notice warn" }, trouble),
    el("p", {}, "This page opens with a link that works once. Whoever runs the server can make one:"),
    el("ul", {}, commands.map(([text, command]) => el("li", {}, text, el("code", { class: "command" }, command)))),
  ]);
}

/** Return the page for what went wrong; `again` tries once more. */
export function errorPage(error, again) {
  const button = el("button", { type: "button", class: "primary", on: { click: again } }, "Try again");
  return words(titleOf(error), [
    el("p", { class: "notice bad" }, error.message || String(error)),
    el("p", {}, whatToDo(error)),
    el("div", { class: "buttons" }, button, el("a", { class: "button", href: "#/" }, "All episodes")),
  ]);
}

/** Return the page for an address that means nothing. */
export function unknownPage() {
  return words("There is no such page", [
    el("p", {}, "The address is not one of ours; it may have been cut off when it was copied."),
    el("div", { class: "buttons" }, el("a", { class: "button primary", href: "#/" }, "All episodes")),
  ]);
}

function titleOf(error) {
  if (error.code === UNREACHABLE) {
    return "The server does not answer";
  }
  if (isServersFailure(error)) {
    return "The server could not do this";
  }
  return error.name === "Refusal" ? "This could not be shown" : "Something is wrong with this page";
}

function whatToDo(error) {
  if (error.code === UNREACHABLE) {
    return "Look whether it still runs, then try again. What is on record is safe.";
  }
  if (error.code === NO_VISIT) {
    return "The visit has ended. Open a new link.";
  }
  if (isServersFailure(error)) {
    return "The server failed, or is busy; what is on record is safe. Try again; if it stays so, see its own log.";
  }
  if (error.name === "Refusal") {
    return "The episode may have been removed, or its name is not right. The list shows what there is.";
  }
  return "This is a mistake in the page, not in the record. Reload it; if it happens again, please report it.";
}

function isServersFailure(error) {
  return error.code === TOO_LATE || error.status >= 500;
}

function words(title, children) {
  const element = el("div", { class: "card message" }, el("h1", { tabindex: "-1" }, title), children);
  return { element, title, close: () => {} };
}
