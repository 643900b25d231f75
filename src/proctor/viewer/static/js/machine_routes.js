// Ways of arrows between the boxes of a picture: curves that keep out of the boxes and out of each other's way.
//
// Rule 1: pure: boxes in, curves out, no DOM; the same boxes give the same curves.
// Rule 2: many bends are tried against the boxes, the few best ones against the other curves; the cheapest stays.
// Rule 3: where every bend hits a box, the best ones are pushed about until they do not.

import { between, inside, part, pointOn, sampled } from "./curves.js";

const BENDS = [0, 20, -20, 42, -42, 70, -70, 105, -105, 150, -150, 210, -210];
const COARSE = 12;
const FINE = 26;
const MARGIN = 8;
const NEAR = 9;
const KEPT = 14;
const CLIMBED = 6;
const MOVES = [
  [-16, 0],
  [16, 0],
  [0, -16],
  [0, 16],
  [-5, 0],
  [5, 0],
  [0, -5],
  [0, 5],
];
const COSTS = { box: 12, near: 9, cross: 30, outside: 12, bend: 0.3, twist: 0.12 };

/** Returns one curve for each of `links` ({source, target}: boxes {x, y, width, height} by their middle). */
export function routes(links, boxes, frame) {
  const order = links.map((link, index) => ({ index, choices: choices(link, boxes, frame), length: distance(link) }));
  order.sort((a, b) => a.length - b.length || a.index - b.index);
  const chosen = new Array(links.length).fill(null);
  for (let pass = 0; pass < 3; pass += 1) {
    for (const { index, choices: known } of order) {
      const others = chosen.filter((choice, at) => choice !== null && at !== index);
      chosen[index] = cheapest(known, others);
    }
  }
  return chosen.map(({ curve }) => curve);
}

/** Returns the few curves that are best with respect to the boxes alone. */
function choices(link, boxes, frame) {
  const strangers = boxes.filter((box) => box !== link.source && box !== link.target);
  const price = (whole, count) =>
    placesPrice(sampled(trimmed(whole, link), count), strangers, frame) + bendPrice(whole);
  const ranked = [...bent(link)].map((whole) => ({ whole, price: price(whole, FINE) }));
  ranked.sort((a, b) => a.price - b.price);
  const kept = ranked.slice(0, KEPT);
  if (kept[0].price > bendPrice(kept[0].whole))
    kept.unshift(...kept.slice(0, CLIMBED).map(({ whole }) => climbed(whole, link, price)));
  return kept.map(({ whole, price: cost }) => {
    const curve = trimmed(whole, link);
    const line = sampled(curve, COARSE);
    return { curve, price: cost, line, extent: extentOf(line) };
  });
}

/** Yields curves from middle to middle, each end bent to either side. */
function* bent({ source, target }) {
  const length = distance({ source, target }) || 1;
  const side = { x: -(target.y - source.y) / length, y: (target.x - source.x) / length };
  for (const first of BENDS) {
    for (const last of BENDS) {
      yield [
        spot(source),
        aside(source, target, 0.3, side, first),
        aside(source, target, 0.7, side, last),
        spot(target),
      ];
    }
  }
}

function aside(from, to, share, side, bend) {
  const { x, y } = between(from, to, share);
  return { x: x + side.x * bend, y: y + side.y * bend };
}

/** Pushes the four points of a curve about while that makes it cheaper; its ends stay inside their boxes. */
function climbed(whole, link, price) {
  let best = { whole, price: price(whole, FINE) };
  for (let round = 0; round < 30; round += 1) {
    const before = best.price;
    for (let at = 0; at < 4; at += 1) {
      for (const [x, y] of MOVES) best = better(best, moved(best.whole, at, x, y, link), price);
    }
    if (best.price === before) break;
  }
  return best;
}

function better(best, whole, price) {
  const cost = price(whole, FINE);
  return cost < best.price ? { whole, price: cost } : best;
}

function moved(whole, at, x, y, { source, target }) {
  const next = [...whole];
  next[at] = { x: whole[at].x + x, y: whole[at].y + y };
  if (at === 0) next[0] = held(next[0], source);
  if (at === 3) next[3] = held(next[3], target);
  return next;
}

function held(point, box) {
  const across = box.width * 0.36;
  const down = box.height * 0.3;
  return {
    x: Math.min(box.x + across, Math.max(box.x - across, point.x)),
    y: Math.min(box.y + down, Math.max(box.y - down, point.y)),
  };
}

/** Returns the part of a curve between the rims of its boxes; the head of the arrow keeps a little distance. */
function trimmed(whole, { source, target }) {
  const start = leaving(whole, source, 0, 1);
  const end = leaving(whole, target, 4, -1);
  return start < end ? part(whole, start, end) : whole;
}

function leaving(curve, box, margin, direction) {
  for (let at = 0; at <= 40; at += 1) {
    const share = direction > 0 ? at / 40 : 1 - at / 40;
    if (!inside(pointOn(curve, share), box, margin)) return refined(curve, box, margin, share, direction);
  }
  return direction > 0 ? 0 : 1;
}

/** Halves the last step until the rim is met. */
function refined(curve, box, margin, share, direction) {
  let [out, within] = [share, share - direction / 40];
  for (let round = 0; round < 5; round += 1) {
    const middle = (out + within) / 2;
    if (inside(pointOn(curve, middle), box, margin)) within = middle;
    else out = middle;
  }
  return out;
}

function bendPrice([a, b, c, d]) {
  const [first, last] = [bow(a, d, b), bow(a, d, c)];
  return (Math.abs(first) + Math.abs(last)) * COSTS.bend + Math.abs(first - last) * COSTS.twist;
}

/** Returns how far a point lies beside the line from `a` to `d`. */
function bow(a, d, point) {
  const length = Math.hypot(d.x - a.x, d.y - a.y) || 1;
  return ((d.x - a.x) * (point.y - a.y) - (d.y - a.y) * (point.x - a.x)) / length;
}

function placesPrice(points, strangers, frame) {
  let cost = 0;
  for (const at of points) {
    for (const box of strangers) cost += depth(at, box) * COSTS.box;
    if (frame) cost += beyond(at.x, frame.width) + beyond(at.y, frame.height);
  }
  return cost;
}

/** Returns how deep a point lies in a box and its margin, 0 outside. */
function depth(at, box) {
  const across = box.width / 2 + MARGIN - Math.abs(at.x - box.x);
  const down = box.height / 2 + MARGIN - Math.abs(at.y - box.y);
  return across > 0 && down > 0 ? Math.min(across, down) : 0;
}

function beyond(value, limit) {
  return Math.max(0, 4 - value, value - limit + 4) * COSTS.outside;
}

function cheapest(known, others) {
  let best = null;
  for (const choice of known) {
    let price = choice.price;
    for (const other of others) if (best === null || price < best.price) price += meetingPrice(choice, other);
    if (best === null || price < best.price) best = { price, choice };
  }
  return best.choice;
}

function meetingPrice(one, other) {
  if (!touching(one.extent, other.extent)) return 0;
  let cost = 0;
  for (const at of one.line) {
    if (other.line.some((point) => Math.abs(point.x - at.x) + Math.abs(point.y - at.y) < NEAR)) cost += COSTS.near;
  }
  return cost + crossings(one.line, other.line) * COSTS.cross;
}

function extentOf(line) {
  const [xs, ys] = [line.map(({ x }) => x), line.map(({ y }) => y)];
  return { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
}

function touching(one, two) {
  return (
    one.left - NEAR < two.right &&
    two.left - NEAR < one.right &&
    one.top - NEAR < two.bottom &&
    two.top - NEAR < one.bottom
  );
}

function crossings(one, other) {
  let count = 0;
  for (let i = 1; i < one.length; i += 1) {
    for (let j = 1; j < other.length; j += 1) if (cross(one[i - 1], one[i], other[j - 1], other[j])) count += 1;
  }
  return count;
}

function cross(a, b, c, d) {
  return turn(a, b, c) * turn(a, b, d) < 0 && turn(c, d, a) * turn(c, d, b) < 0;
}

function turn(a, b, c) {
  return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

function distance({ source, target }) {
  return Math.hypot(target.x - source.x, target.y - source.y);
}

function spot({ x, y }) {
  return { x, y };
}
