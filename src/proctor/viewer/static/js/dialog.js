/*
 * Questions that must be answered before something is done.
 *
 * Rule 1: nothing is done by closing: Esc, Cancel and a click outside all mean no.
 * Rule 2: a question does not outlive its page: whoever goes elsewhere has said no.
 * Rule 3: the browser's own modal <dialog> keeps the focus inside and gives it back afterwards.
 */

import { el } from "./dom.js";

const count = { made: 0 };

/** Ask; true only if the action's button was pressed. `body` is a node, a string or a list of them. */
export function confirmed({ title, body, action, danger = false }) {
  const { dialog, cancel } = question(title, body, action, danger);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    dialog.showModal();
    cancel.focus();
  });
}

/** Close every dialog that is open; a question is answered with no. */
export function dismissDialogs() {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close("no"));
}

function question(title, body, action, danger) {
  const id = `dialog-${(count.made += 1)}`;
  const cancel = el("button", { type: "button", on: { click: () => dialog.close("no") } }, "Cancel");
  const go = el(
    "button",
    { type: "button", class: danger ? "primary danger" : "primary", on: { click: () => dialog.close("yes") } },
    action,
  );
  const dialog = el(
    "dialog",
    { class: "question", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-body` },
    el("h2", { id: `${id}-title` }, title),
    el("div", { id: `${id}-body`, class: "question-body" }, body),
    el("div", { class: "question-buttons" }, cancel, go),
  );
  dialog.addEventListener("click", (event) => isOutside(dialog, event) && dialog.close("no"));
  return { dialog, cancel };
}

/** A click on the backdrop is one on the dialog itself, beside its box; a key's click on a button is at 0, 0. */
function isOutside(dialog, event) {
  if (event.target !== dialog) {
    return false;
  }
  const box = dialog.getBoundingClientRect();
  const across = event.clientX < box.left || event.clientX > box.right;
  return across || event.clientY < box.top || event.clientY > box.bottom;
}
