/*
 * Where the agent of a plume search looks.
 *
 * Rule 1: where an environment's agents turn, the heading is on record. Where they move in any direction without
 *     turning, the recorded heading says nothing, and the last move is what is shown.
 * Rule 2: that they do not turn is seen by a move that is not along the heading.
 */

import { placeOf } from "./plume_trail.js";

const ASIDE = 50; // degrees; a move along a heading is rounded to cells, and stopped by walls
const LOOKED_AT = 400; // steps
const seen = new WeakMap();

/** Return the heading to show at an index, in degrees. */
export function headingAt(track, index) {
  const own = track.frame(index)?.agent?.heading ?? 0;
  return turns(track) ? own : lastMove(track, index) ?? own;
}

/** Say whether the moves are along the headings; of steps that are thinned out nobody can tell. */
function turns(track) {
  const known = seen.get(track) ?? { next: 1, turns: true };
  const end = track.stride > 1 ? 0 : Math.min(track.length, LOOKED_AT);
  while (known.turns && known.next < end) {
    known.turns = isAlong(track, known.next);
    known.next += 1;
  }
  seen.set(track, known);
  return known.turns;
}

function isAlong(track, index) {
  const moved = moveAt(track, index);
  const heading = track.frame(index)?.agent?.heading;
  if (moved === null || !Number.isFinite(heading)) {
    return true;
  }
  const apart = Math.abs(moved - heading) % 360;
  return Math.min(apart, 360 - apart) <= ASIDE;
}

function lastMove(track, index) {
  for (let i = index; i > Math.max(0, index - LOOKED_AT); i -= 1) {
    const moved = moveAt(track, i);
    if (moved !== null) {
      return moved;
    }
  }
  return null;
}

/** Return the direction of the move to an index, in degrees; null: it stayed. */
function moveAt(track, index) {
  const [from, to] = [placeOf(track.frame(index - 1)), placeOf(track.frame(index))];
  if (from === null || to === null || (from[0] === to[0] && from[1] === to[1])) {
    return null;
  }
  return ((Math.atan2(to[1] - from[1], to[0] - from[0]) * 180) / Math.PI + 360) % 360;
}
