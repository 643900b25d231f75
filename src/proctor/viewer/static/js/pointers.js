// JSON pointers (RFC 6901): where in a value they lead, also if the last keys are not there.
//
// Rule 1: pure. A pointer that cannot be read leads to the whole value.

/** Returns the keys of a pointer. */
export function keysOf(pointer) {
  const text = String(pointer);
  if (!text.startsWith("/")) return [];
  return text
    .slice(1)
    .split("/")
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Returns the pointer of a key below another pointer. */
export function below(pointer, key) {
  return `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** Returns {found, missing}: the longest pointer that exists in `value`, and the keys that do not. */
export function resolved(value, pointer) {
  const keys = keysOf(pointer);
  let [found, here] = ["", value];
  for (let at = 0; at < keys.length; at += 1) {
    if (!holds(here, keys[at])) return { found, missing: keys.slice(at) };
    here = here[keys[at]];
    found = below(found, keys[at]);
  }
  return { found, missing: [] };
}

/** Returns {marked: Map(pointer -> missing keys joined, "" if none), opened: Set of pointers on the way}. */
export function marks(value, pointers) {
  const marked = new Map();
  const opened = new Set();
  for (const { found, missing } of pointers.map((pointer) => resolved(value, pointer))) {
    marked.set(found, missing.join("/"));
    const keys = keysOf(found);
    let way = "";
    opened.add(way);
    for (const key of missing.length > 0 ? keys : keys.slice(0, -1)) opened.add((way = below(way, key)));
  }
  return { marked, opened };
}

function holds(value, key) {
  return typeof value === "object" && value !== null && Object.hasOwn(value, key);
}
