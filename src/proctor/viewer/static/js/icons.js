/*
 * The signs on the player's buttons, as small SVG pictures in the colour of the text.
 */

import { svg } from "./dom.js";

const PATHS = {
  start: "M4 4h2v12H4zM16 4v12L7 10z",
  backTen: "M10 4v12L2 10zM18 4v12l-8-6z",
  back: "M14 4v12L5 10z",
  play: "M5 3l12 7-12 7z",
  pause: "M5 4h4v12H5zM11 4h4v12h-4z",
  forth: "M6 4l9 6-9 6z",
  forthTen: "M10 4l8 6-8 6zM2 4l8 6-8 6z",
  end: "M14 4h2v12h-2zM4 4l9 6-9 6z",
  refusedBefore: "M11 5v10L4 10zM13 4h3v8h-3zM13 14h3v2h-3z",
  refusedAfter: "M9 5v10l7-5zM4 4h3v8H4zM4 14h3v2H4z",
};

/** Return a new icon, hidden from screen readers: the button has a name. */
export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name], fill: "currentColor" }),
  );
}

/** Show another sign. */
export function setIcon(node, name) {
  node.querySelector("path").setAttribute("d", PATHS[name]);
}
