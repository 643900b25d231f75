// What the keys of a page do to its player.

import { showKeys } from "./keys.js";

/** Returns the acts that every page with a player has, for `listenForKeys`. */
export function playerKeys(player) {
  return {
    toggle: () => player.toggle(),
    back: (event) => player.step(event.shiftKey ? -10 : -1),
    forth: (event) => player.step(event.shiftKey ? 10 : 1),
    start: () => player.seek(0),
    end: () => player.seek(player.length - 1),
    faster: () => player.shiftSpeed(1),
    slower: () => player.shiftSpeed(-1),
    help: showKeys,
  };
}
