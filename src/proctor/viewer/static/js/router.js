/*
 * Addresses of the page's views, in the fragment; and the step that is seen in it, so that it can be copied and
 * reloaded.
 *
 *     #/                                list
 *     #/episode/<chain>[?step=N]        episode
 *     #/compare/<one>/<other>[?step=N]  compare
 *     #/operator                        operator
 *     #code=<code>[&to=<path>]          the entrance: traded once, and taken out of the address at once
 *
 * Rule: the step is written where the cursor rests, never while it plays, and replaces the address: the way back is as
 *     long as it was.
 */

/** Return `{name, arguments}` of an address; what cannot be read is `{name: "unknown"}`. */
export function routeOf(hash) {
  const [path, query] = String(hash ?? "").replace(/^#/, "").split("?", 2);
  const parts = path.split("/").slice(1);
  try {
    return read(parts.map(decodeURIComponent), new URLSearchParams(query ?? ""));
  } catch {
    return unknown();
  }
}

/** Return `{code, address}` of a link that lets somebody in, and where it leads; null if it is none. */
export function entranceOf(hash) {
  const found = /^#code=([^&]+)(?:&to=([^&]*))?/.exec(String(hash ?? ""));
  if (found === null) {
    return null;
  }
  const to = decoded(found[2] ?? "");
  return { code: decoded(found[1]), address: to.startsWith("/") ? `#${to}` : "#/" };
}

/** Return the address of an episode's page, at a step if one is given. */
export function episodeAddress(chain, step = null) {
  return `#/episode/${encodeURIComponent(chain)}${step === null ? "" : `?step=${step}`}`;
}

/** Return the address of two episodes side by side. */
export function compareAddress(one, other) {
  return `#/compare/${encodeURIComponent(one)}/${encodeURIComponent(other)}`;
}

function read(parts, query) {
  const [name = "", ...rest] = parts;
  if (name === "" && rest.length === 0) {
    return { name: "list", arguments: [] };
  }
  if (name === "episode" && rest.length === 1 && rest[0] !== "") {
    return { name, arguments: [rest[0], stepOf(query.get("step"))] };
  }
  if (name === "compare" && rest.length === 2 && !rest.includes("")) {
    return { name, arguments: [...rest, stepOf(query.get("step"))] };
  }
  return name === "operator" && rest.length === 0 ? { name, arguments: [] } : unknown();
}

function stepOf(text) {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function unknown() {
  return { name: "unknown", arguments: [] };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const RESTS_AFTER = 400; // ms; browsers allow some hundred changes in half a minute

/**
 * Follow a player. `isHere(route)` says whether the address is still this page's, `address(follows)` gives the new one.
 * Returns `{settle(), close()}`: `settle()` takes where the cursor is now as what the address says.
 */
export function keepAddress(player, { isHere, address }) {
  const kept = { place: placeOf(player), timer: null };
  const write = () => {
    kept.place = placeOf(player);
    if (isHere(routeOf(location.hash))) {
      readdress(address(player.follow));
    }
  };
  const end = player.subscribe(() => {
    clearTimeout(kept.timer);
    if (!player.playing && placeOf(player) !== kept.place) {
      kept.timer = setTimeout(write, RESTS_AFTER);
    }
  });
  const settle = () => {
    kept.place = placeOf(player);
  };
  const close = () => {
    clearTimeout(kept.timer);
    end();
  };
  return { settle, close };
}

/** Change the page's address without going anywhere; a page without one stays without. */
export function readdress(address) {
  try {
    if (address !== location.hash) {
      history.replaceState(null, "", address);
    }
  } catch {
    // A frame in a notebook has no address.
  }
}

function placeOf(player) {
  return player.follow ? "end" : player.index;
}
