/*
 * The odor fields of a plume's scene as numbers, at any resolution: a row per kind of field, as in `envs/plume/drawing/picture.py`.
 *
 * Rule 1: the same numbers as there (a test compares them); values lie in [0, 1], rows ascend with y.
 * Rule 2: pure: no document, no canvas.
 */

const TONE = 80;

/* Concentration from none to full: the anchors of `envs/plume/drawing/picture.py`. */
const ANCHORS = [
  [0.0, [13, 14, 30]],
  [0.15, [36, 24, 74]],
  [0.35, [96, 32, 122]],
  [0.55, [176, 48, 116]],
  [0.75, [240, 104, 84]],
  [0.9, [253, 184, 116]],
  [1.0, [255, 240, 196]],
];

const KINDS = {
  gaussian: (field, frame, source, xs, ys) => gaussian(field, source, xs, ys),
  advected: (field, frame, source, xs, ys) => advected(field, source, xs, ys),
  puffs: (field, frame, source, xs, ys) => puffs(frame, xs, ys),
  image: (field, frame, source, xs, ys) => image(frame ?? field, xs, ys),
};

/** Return whether this kind of field can be painted. */
export function isKnownField(field) {
  return Object.hasOwn(KINDS, field?.kind);
}

/** Return the field's values row by row, `ys.length * xs.length` of them, at continuous cell coordinates. */
export function paint(field, frame, source, xs, ys) {
  if (!isKnownField(field)) {
    throw new RangeError(`unknown kind of field: ${String(field?.kind)}`);
  }
  const values = KINDS[field.kind](field, frame, source, xs, ys);
  return values.map((value) => Math.min(Math.max(value, 0), 1));
}

/** Return the concentration at one place; NaN where the field is of a kind that is not known. Quick: once per step. */
export function concentrationAt(field, frame, source, [x, y]) {
  if (field.kind === "gaussian") {
    return Math.exp(-((x - source[0]) ** 2 + (y - source[1]) ** 2) / (2 * field.sigma ** 2));
  }
  if (field.kind === "puffs") {
    return Math.min(1, (frame?.puffs ?? []).reduce((sum, puff) => sum + puffAt(puff, x, y), 0));
  }
  return isKnownField(field) ? paint(field, frame, source, [x], [y])[0] : NaN;
}

function puffAt([left, low, spread, strength], x, y) {
  return strength * Math.exp(-((x - left) ** 2 + (y - low) ** 2) / (2 * spread * spread));
}

/** Return how bright a concentration looks, in [0, 1]: low ones are lifted, so that a faint plume is seen. */
export function tone(concentration) {
  return Math.log1p(TONE * concentration) / Math.log1p(TONE);
}

/** The 256 colours, as bytes red, green, blue. */
export const PALETTE = Uint8Array.from({ length: 768 }, (_, i) => shade(Math.floor(i / 3) / 255, i % 3));

/** Return concentrations as bytes red, green, blue, opaque; `flip` puts the last row on top. */
export function tinted(values, columns, rows, flip = true) {
  const pixels = new Uint8ClampedArray(4 * columns * rows);
  for (let row = 0; row < rows; row += 1) {
    tintRow(pixels, values, columns, row, flip ? rows - 1 - row : row);
  }
  return pixels;
}

function tintRow(pixels, values, columns, from, to) {
  for (let column = 0; column < columns; column += 1) {
    const level = 3 * Math.floor(tone(values[from * columns + column]) * 255 + 0.5);
    const at = 4 * (to * columns + column);
    pixels[at] = PALETTE[level];
    pixels[at + 1] = PALETTE[level + 1];
    pixels[at + 2] = PALETTE[level + 2];
    pixels[at + 3] = 255;
  }
}

function shade(bright, channel) {
  const above = Math.max(1, ANCHORS.findIndex(([stop]) => stop >= bright));
  const [[low, from], [high, to]] = [ANCHORS[above - 1], ANCHORS[above]];
  const share = (bright - low) / (high - low);
  return halfEven(from[channel] + share * (to[channel] - from[channel]));
}

/** Round as numpy does: a half goes to the even neighbour. */
function halfEven(value) {
  const low = Math.floor(value);
  const rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
}

function bell(at, centre, scale) {
  return Float64Array.from(at, (each) => Math.exp(-((each - centre) ** 2) / scale));
}

function gaussian(field, source, xs, ys) {
  const scale = 2 * field.sigma ** 2;
  return added(new Float64Array(xs.length * ys.length), 1, bell(xs, source[0], scale), bell(ys, source[1], scale));
}

/** Add `strength` times the outer product to `total`, in place. */
function added(total, strength, across, up) {
  const columns = across.length;
  for (let row = 0; row < up.length; row += 1) {
    const factor = strength * up[row];
    if (factor > 1e-12) {
      for (let column = 0, at = row * columns; column < columns; column += 1, at += 1) {
        total[at] += factor * across[column];
      }
    }
  }
  return total;
}

function advected(field, source, xs, ys) {
  const [u, v] = field.wind;
  const speed = Math.hypot(u, v);
  const [cos, sin] = [u / speed, v / speed];
  const values = new Float64Array(xs.length * ys.length);
  for (let row = 0, at = 0; row < ys.length; row += 1) {
    const dy = ys[row] - source[1];
    for (let column = 0; column < xs.length; column += 1, at += 1) {
      const dx = xs[column] - source[0];
      values[at] = downwind(field, dx * cos + dy * sin, dy * cos - dx * sin);
    }
  }
  return values;
}

function downwind(field, along, across) {
  const width = field.spread + field.growth * Math.max(along, 0);
  const upwind = Math.min(along, 0);
  return (field.spread / width) * Math.exp(-(across * across + upwind * upwind) / (2 * width * width));
}

function puffs(frame, xs, ys) {
  const total = new Float64Array(xs.length * ys.length);
  for (const [x, y, spread, strength] of frame?.puffs ?? []) {
    const scale = 2 * spread * spread;
    added(total, strength, bell(xs, x, scale), bell(ys, y, scale));
  }
  return total;
}

/** Return a thumbnail at continuous coordinates, bilinear between its cells. */
function image(picture, xs, ys) {
  if (picture?.levels === undefined) {
    return new Float64Array(xs.length * ys.length); // a movie before its first frame
  }
  const [columns, rows] = picture.size;
  const [width, height] = picture.covers;
  const levels = Uint8Array.from(atob(picture.levels), (letter) => letter.charCodeAt(0));
  const across = Array.from(xs, (x) => between(x, columns, width));
  const values = new Float64Array(xs.length * ys.length);
  let at = 0;
  for (const y of ys) {
    const { low, high, share } = between(y, rows, height);
    for (const each of across) {
      const bottom = mixed(levels[low * columns + each.low], levels[low * columns + each.high], each.share);
      const top = mixed(levels[high * columns + each.low], levels[high * columns + each.high], each.share);
      values[at] = mixed(bottom, top, share) / 255;
      at += 1;
    }
  }
  return values;
}

function between(at, cells, covered) {
  const place = Math.min(Math.max(((at + 0.5) * cells) / covered - 0.5, 0), cells - 1);
  const low = Math.floor(place);
  return { low, high: Math.min(low + 1, cells - 1), share: place - low };
}

function mixed(one, other, share) {
  return one * (1 - share) + other * share;
}
