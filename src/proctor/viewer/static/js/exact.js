// JSON read to the last digit: a browser rounds integers beyond 2^53 and writes 1.0 as 1; a record is shown as it is.
//
// Rule 1: a number that a browser would write otherwise is kept as its text, and goes back into JSON as that text.
// Rule 2: in a browser that cannot (none since 2025), numbers are read as ever.

/** Returns the value of a JSON text, in which such numbers are texts of their own kind. */
export function exactly(text) {
  const canKeep = typeof JSON.rawJSON === "function";
  return JSON.parse(text, canKeep ? kept : undefined);
}

/** Returns the text of a number that was kept as one, null for every other value. */
export function numeral(value) {
  return JSON.isRawJSON?.(value) ? value.rawJSON : null;
}

function kept(key, value, context) {
  return typeof value === "number" && String(value) !== context.source ? JSON.rawJSON(context.source) : value;
}
