/*
 * Who draws what: a painter for every kind of scene, and one for whatever else there is.
 *
 * A painter is `{name, fits(head), series(head), describe(frame, scene, observation, {track, index}), open(given)}`:
 *   series   -> [{name, label, group?, value(frame, observation, scene)}], what it adds to the charts
 *   describe -> what is seen, in words, for those who do not see the canvas
 *   open     -> {element, draw(index), close()}, and `redraw()` where colours or sizes matter;
 *               where things are seen later than drawn, `words(index)`, and it tells `given.onShown()`
 *
 * Rule 1: a painter says by `fits` whether it can draw the scene at all; what no other can, `unknown` shows as values.
 */

import { pixels } from "./pixels.js";
import { plume } from "./plume.js";
import { popper } from "./popper.js";
import { unknown } from "./unknown.js";

const PAINTERS = [plume, popper, pixels];

/** Return the painter for an episode's head. */
export function painterOf(head) {
  return PAINTERS.find((painter) => fits(painter, head)) ?? unknown;
}

function fits(painter, head) {
  try {
    return painter.fits(head) === true;
  } catch {
    return false; // a scene that is stranger than its painter thought
  }
}
