/*
 * Many numbers on few pixels: the least and the greatest of every pixel column. Pure.
 *
 * Rule 1: no peak is lost: every finite number lies between its column's two ends.
 * Rule 2: what is not a number (NaN) is a gap.
 */

const ROUNDED = 1e-12; // of a number; a sum of many differs by so much from what it is

/** Return `{low, high}`, `width` numbers each, over the first `length` of `values`; NaN where a column has none. */
export function envelope(values, length, width) {
  const [low, high] = [new Float64Array(width).fill(NaN), new Float64Array(width).fill(NaN)];
  for (let column = 0; column < width; column += 1) {
    const from = Math.floor((column * length) / width);
    const until = Math.floor(((column + 1) * length) / width);
    let [least, most] = [Infinity, -Infinity];
    for (let i = from; i < until; i += 1) {
      const value = values[i];
      if (value < least) {
        least = value;
      }
      if (value > most) {
        most = value;
      }
    }
    if (least <= most) {
      low[column] = least;
      high[column] = most;
    }
  }
  return { low, high };
}

/** Return a range with a little room around it; a range without width, but for what rounding left of it, gets one. */
export function roomy([low, high]) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= size * ROUNDED) {
    const reach = size * 0.1 || 1;
    return [low - reach, high + reach];
  }
  const reach = (high - low) * 0.06;
  return [low - reach, high + reach];
}

/** Return the range that holds all of these, `null` among them counting for nothing; null if there is none. */
export function unionOf(ranges) {
  const known = ranges.filter((range) => range !== null);
  const [lows, highs] = [known.map(([low]) => low), known.map(([, high]) => high)];
  return known.length === 0 ? null : [Math.min(...lows), Math.max(...highs)];
}
