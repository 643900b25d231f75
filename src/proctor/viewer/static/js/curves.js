// Cubic curves as four points {x, y}, and as paths that SVG draws.
//
// Rule 1: pure geometry; what is drawn and why is known elsewhere.

/** Returns `count` + 1 points of a curve, from its start to its end. */
export function sampled(curve, count = 24) {
  const points = [];
  for (let at = 0; at <= count; at += 1) points.push(pointOn(curve, at / count));
  return points;
}

/** Returns the point of a curve at a share of its way. */
export function pointOn([a, b, c, d], t) {
  const s = 1 - t;
  const [w, x, y, z] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
  return { x: w * a.x + x * b.x + y * c.x + z * d.x, y: w * a.y + x * b.y + y * c.y + z * d.y };
}

/** Returns the part of a curve between two shares of its way. */
export function part(curve, start, end) {
  const [, right] = split(curve, start);
  const [left] = split(right, (end - start) / (1 - start));
  return left;
}

/** Returns the point between two others, at a share of the way. */
export function between(a, b, share) {
  return { x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share };
}

/** Says whether a point lies in a box {x, y: its middle, width, height} that is `margin` larger on each side. */
export function inside(point, box, margin = 0) {
  return Math.abs(point.x - box.x) < box.width / 2 + margin && Math.abs(point.y - box.y) < box.height / 2 + margin;
}

/** Returns the path of a curve. */
export function pathOf(curve) {
  const [a, b, c, d] = curve.map(({ x, y }) => `${round(x)},${round(y)}`);
  return `M${a} C${b} ${c} ${d}`;
}

/** Returns the path of a loop on the upper right corner of a box. */
export function loopOf(box, size = 12) {
  const [x, y] = [box.x + box.width / 2, box.y - box.height / 2];
  return pathOf([
    { x: x - size * 1.7, y },
    { x: x - size * 1.3, y: y - size * 1.4 },
    { x: x + size * 1.4, y: y - size * 0.7 },
    { x: x + 2, y: y + size },
  ]);
}

function split([a, b, c, d], share) {
  const [ab, bc, cd] = [between(a, b, share), between(b, c, share), between(c, d, share)];
  const [abc, bcd] = [between(ab, bc, share), between(bc, cd, share)];
  const middle = between(abc, bcd, share);
  return [
    [a, ab, abc, middle],
    [middle, bcd, cd, d],
  ];
}

function round(value) {
  return Math.round(value * 10) / 10;
}
