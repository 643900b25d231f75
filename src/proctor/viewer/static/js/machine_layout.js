// Where the states of the machine stand on the picture, and how its arrows run.
//
// Rule 1: pure: the machine's table in, boxes and paths out; no DOM, no colours.
// Rule 2: the server's grid says who is beside whom; a narrow page lays the same grid on its side.
// Rule 3: what holds in every state is drawn once, as one box of its own.

import { loopOf, pathOf } from "./curves.js";
import { routes } from "./machine_routes.js";

export const EVERY = "ANY";
export const EVERY_LABEL = "every state";

const SHAPES = {
  wide: { width: 112, height: 46, across: 62, down: 54, rim: 26 },
  tall: { width: 82, height: 42, across: 24, down: 46, rim: 15 },
};

/** Returns {width, height, boxes: [{name, x, y, width, height}], arrows: [{key, edge, path, loop}]}. */
export function layout(machine, tall) {
  const shape = tall ? SHAPES.tall : SHAPES.wide;
  const boxes = placed(machine.states, shape, tall);
  if (machine.edges.some((edge) => edge.source === EVERY)) boxes.push(everyBox(machine, boxes, shape));
  const frame = framed(boxes, shape.rim);
  return { ...frame, boxes, arrows: arrows(machine.edges, boxes, frame) };
}

/** Returns the name of an arrow between two states. */
export function keyOf(source, target) {
  return `${source}>${target}`;
}

function placed(states, shape, tall) {
  const spots = states.map(({ name, x, y }) => (tall ? { name, x: y, y: x } : { name, x, y }));
  const stepX = spacing(spots, "x", "y", shape.width + shape.across);
  const stepY = spacing(spots, "y", "x", shape.height + shape.down);
  return spots.map(({ name, x, y }) => ({
    name,
    x: x * stepX,
    y: y * stepY,
    width: shape.width,
    height: shape.height,
  }));
}

/** Returns how long a unit of the grid must be so that neighbours on one line are `needed` apart. */
function spacing(spots, axis, other, needed) {
  let least = Infinity;
  for (const one of spots) {
    for (const two of spots) {
      const gap = two[axis] - one[axis];
      if (gap > 0 && Math.abs(two[other] - one[other]) < 0.01) least = Math.min(least, gap);
    }
  }
  return least === Infinity ? needed : needed / least;
}

/** Returns the box that stands for every state: the free place nearest to where its arrow leads. */
function everyBox(machine, boxes, shape) {
  const edge = machine.edges.find(({ source }) => source === EVERY);
  const target = boxes.find(({ name }) => name === edge.target) ?? boxes[0];
  const size = { name: EVERY, width: shape.width - 8, height: 30 };
  const down = (shape.height + size.height) / 2 + shape.down * 0.62;
  const across = shape.width + shape.across * 0.75;
  const places = [
    [0, down],
    [0, -down],
    [across, 0],
    [-across, 0],
  ].map(([x, y]) => ({
    ...size,
    x: target.x + x,
    y: target.y + y,
  }));
  const free = places.filter((place) => boxes.every((box) => apart(place, box, 12)));
  const outer = bounds(boxes);
  return free.find((place) => within(place, outer, 2)) ?? free[0] ?? places[0];
}

function apart(one, two, gap) {
  return (
    Math.abs(one.x - two.x) >= (one.width + two.width) / 2 + gap ||
    Math.abs(one.y - two.y) >= (one.height + two.height) / 2 + gap
  );
}

function within(box, outer, slack) {
  return (
    box.x - box.width / 2 >= outer.left - slack &&
    box.x + box.width / 2 <= outer.right + slack &&
    box.y - box.height / 2 >= outer.top - slack &&
    box.y + box.height / 2 <= outer.bottom + slack
  );
}

function bounds(boxes) {
  return {
    left: Math.min(...boxes.map((box) => box.x - box.width / 2)),
    right: Math.max(...boxes.map((box) => box.x + box.width / 2)),
    top: Math.min(...boxes.map((box) => box.y - box.height / 2)),
    bottom: Math.max(...boxes.map((box) => box.y + box.height / 2)),
  };
}

/** Moves the boxes so that the picture begins at 0, 0, and returns its size. */
function framed(boxes, rim) {
  const outer = bounds(boxes);
  for (const box of boxes) {
    box.x += rim - outer.left;
    box.y += rim - outer.top;
  }
  return { width: outer.right - outer.left + 2 * rim, height: outer.bottom - outer.top + 2 * rim };
}

function arrows(edges, boxes, frame) {
  const box = new Map(boxes.map((each) => [each.name, each]));
  const known = edges.filter((edge) => box.has(edge.source) && box.has(edge.target));
  const links = known.filter((edge) => edge.source !== edge.target);
  const curves = routes(
    links.map((edge) => ({ source: box.get(edge.source), target: box.get(edge.target) })),
    boxes,
    frame,
  );
  return known.map((edge) => {
    const loop = edge.source === edge.target;
    const path = loop ? loopOf(box.get(edge.source)) : pathOf(curves[links.indexOf(edge)]);
    return { key: keyOf(edge.source, edge.target), edge, loop, path };
  });
}
