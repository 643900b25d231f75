// Which packet is meant: the one chosen by hand, as long as the cursor stays where that led; else the cursor's.
//
// Rule 1: a step can have many packets, and the cursor only knows steps: what is between is kept here, for each player.

const held = new WeakMap();

/** Chooses the packet at `position` of the track's list: the cursor goes to its step, and whoever listens is told. */
export function choosePacket(track, player, position) {
  const index = track.indexOfNumber(track.packets[position].number);
  held.set(player, { position, index });
  player.follow = false; // the choice would be gone with the next step
  player.pause();
  player.seek(index);
  player.refresh();
}

/** Returns how many packets lie before what is meant: the chosen one, or the first of the cursor's step. */
export function packetsPassed(track, player) {
  const seen = packetsSeen(track, player);
  if (held.has(player)) return seen - 1;
  return player.index === 0 ? 0 : track.packetsBefore(player.index - 1);
}

/** Returns how many packets lie at or before what is meant. */
export function packetsSeen(track, player) {
  const choice = held.get(player);
  if (choice !== undefined && choice.index === player.index) return choice.position + 1;
  held.delete(player);
  return track.packetsBefore(player.index);
}
