/*
 * Packets as people read them: who said what, what became of it, which of them to show, and which one is meant. Pure.
 *
 * Rule 1: a step can have many packets, and the cursor only knows steps: the one chosen by hand is meant as long as
 *     the cursor stays.
 */

import { countWhile } from "./dom.js";

const WHO = { agent: "agent", operator: "operator", system: "proctor", control: "control" };
const RECORDS = new Set(["open", "close", "user_input", "approval", "safemode"]);
const VARIANTS = {
  DecisionPacket: ["payload", "decision_outcome"],
  TaskDirectivePacket: ["payload", "tool_safety_class"],
  TaskResultPacket: ["payload", "result_status"],
  IntegrityAlertPacket: ["payload", "severity"],
  ObservationPacket: ["payload", "observation_type"],
};

export const FILTERS = [
  { name: "all", label: "All", keeps: () => true },
  { name: "refused", label: "Refused", keeps: (packet) => !packet.accepted },
  { name: "agent", label: "Agent", keeps: (packet) => packet.principal === "agent" },
  { name: "operator", label: "Operator", keeps: (packet) => packet.principal === "operator" },
];

/** Returns who said it: the server itself speaks as the proctor. */
export function who(packet) {
  return Object.hasOwn(WHO, packet.principal) ? WHO[packet.principal] : String(packet.principal);
}

/** Returns "Task directive" for TaskDirectivePacket, "User input record" for user_input; a strange kind stays. */
export function kindWords(kind) {
  const text = String(kind);
  if (text === "") return "Unreadable line";
  if (/^[a-z_]+$/.test(text)) return capital(text.replaceAll("_", " ")) + (RECORDS.has(text) ? " record" : "");
  if (!/^[A-Z][A-Za-z]+$/.test(text)) return text;
  return capital(
    text
      .replace(/Packet$/, "")
      .replace(/([a-z])([A-Z])/g, "$1 $2")
      .toLowerCase(),
  );
}

/** Returns the one word of a packet's content that its kind turns on, as ACT for a decision; else nothing. */
export function variant(packet) {
  const keys = Object.hasOwn(VARIANTS, packet.kind) ? VARIANTS[packet.kind] : null;
  const value = keys?.reduce((inner, key) => inner?.[key], packet.line);
  return typeof value === "string" ? value.slice(0, 40) : "";
}

/** Returns {word, tone}: what became of the packet. */
export function verdict(packet) {
  if (!packet.accepted) return { word: "refused", tone: "bad" };
  if (!packet.judged) return { word: "noted", tone: "quiet" };
  return packet.warnings.length > 0 ? { word: "warned", tone: "warn" } : { word: "accepted", tone: "good" };
}

/** Returns "S3" for S3_DECIDE; other names stay. */
export function shortState(state) {
  const found = /^(S\d+)_/.exec(String(state));
  return found === null ? String(state) : found[1];
}

/** Returns the states that a packet led through, as "S2 → S3 → S4", or where it stayed. */
export function stateChange(packet) {
  const path = packet.accepted ? packet.path.filter((state, at) => at === 0 || state !== packet.path[at - 1]) : [];
  return path.length > 1 ? path.map(shortState).join(" → ") : shortState(packet.state);
}

/** Returns one sentence for screen readers and titles. */
export function sentence(packet) {
  const said = [kindWords(packet.kind), variant(packet)].filter(Boolean).join(" ");
  const rules = packet.accepted ? "" : `, ${packet.rules.join(", ")}`;
  const tool = packet.tool ? ` by ${packet.tool}` : "";
  return `Step ${packet.step}, ${who(packet)}: ${said}${tool}, ${verdict(packet).word}${rules}, ${stateChange(packet)}`;
}

/** Keeps the positions of the packets that pass a filter; reads only what is new. */
export class Kept {
  constructor(keeps) {
    this.keeps = keeps;
    this.positions = [];
    this.read = 0;
  }

  extend(packets) {
    for (; this.read < packets.length; this.read += 1) {
      if (this.keeps(packets[this.read])) this.positions.push(this.read);
    }
  }

  get length() {
    return this.positions.length;
  }

  /** Returns the place in this list of the last packet at or before `position`, -1 if there is none. */
  placeOf(position) {
    return countWhile(this.length, (at) => this.positions[at] <= position) - 1;
  }
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

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
