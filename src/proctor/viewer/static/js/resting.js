/*
 * The page's address names the step that is seen, so that it can be copied, and a reload comes back to it.
 *
 * Rule 1: it is written where the cursor rests, never while it plays; one who follows has no step in it.
 * Rule 2: it replaces the address: the way back is as long as it was.
 * Rule 3: it is left alone when another page is on its way already, and where there is none (a frame in a notebook).
 */

import { routeOf } from "./router.js";

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
