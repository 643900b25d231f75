/*
 * An episode fetched piece by piece: what is there at once, the rest in the background, then what comes while it lives.
 *
 * Rule 1: the first slice is small, so that something is seen; a later one is as large as is parsed without a pause.
 * Rule 2: a live episode is asked for at most four times a second, and thinned: a slow page falls behind in detail,
 *     never in time.
 * Rule 3: the next piece is on its way while the last one is taken in and drawn.
 * Rule 4: what is told of the episode while it is still loaded is not lost: who listens does so from the beginning.
 * Rule 5: after `stop()` nothing is fetched and nobody is told.
 */

import { Track, roomFor } from "./track.js";

export const FIRST_STEPS = 400;
const PIECE_CHARACTERS = 700_000;
const LEAST_PIECE = 100;
const MOST_PIECE = 4_000;
const MOST_WHOLE = 20_000; // steps in one slice of a long episode; the server gives no more
const LONG_LIVE = 5_000; // steps of a live one, whose newest step is wanted at once
const LIVE_STEPS = 500; // at most, in one fetch
const BETWEEN_FETCHES = 250; // ms
const AFTER_A_FAILURE = 2_000; // ms

/** Return how many steps make a piece, from what the steps so far weigh. */
export function pieceOf(slice) {
  const count = slice.steps.number.length;
  if (count === 0) {
    return LEAST_PIECE;
  }
  const last = count - 1;
  const sample = [slice.steps.scene[last], slice.steps.observation[last], slice.steps.action[last]];
  const weight = 150 + JSON.stringify(sample).length;
  return Math.max(LEAST_PIECE, Math.min(MOST_PIECE, Math.floor(PIECE_CHARACTERS / weight)));
}

/** Return how many steps of such an episode there is room for; a longer one is shown thinned. */
function roomOf(slice, live) {
  const last = slice.steps.number.length - 1;
  return live ? LONG_LIVE : roomFor(slice.steps.scene[last], slice.steps.observation[last]);
}

/**
 * Fetch the head and the first slice; go on in the background. `onGrow({track, complete})` after every piece, and when
 * the episode's line changed; `onTrouble(error)` when a later piece failed (it is asked for again after `patience` ms).
 */
export function loadEpisode(context, chain, listeners = {}) {
  const asked = { onGrow: () => {}, onTrouble: () => {}, patience: AFTER_A_FAILURE, ...listeners };
  return new Loading(context.source, chain, asked).begin();
}

class Loading {
  #source;
  #chain;
  #onGrow;
  #onTrouble;
  #patience; // ms before what failed is asked for again
  #stopped = false;
  #unsubscribe = () => {};
  #timer = null;
  #isComplete = false;
  #busy = true; // something is on its way; at first the episode itself
  #line = null; // the newest line that was told before the head was there
  #known = 0; // the number of the last row that the server told of
  #fetched = -Infinity;

  constructor(source, chain, { onGrow, onTrouble, patience }) {
    this.#source = source;
    this.#chain = chain;
    this.#onGrow = onGrow;
    this.#onTrouble = onTrouble;
    this.#patience = patience;
  }

  async begin() {
    this.#unsubscribe = this.#source.subscribe("lines", (lines) => this.#told(lines));
    try {
      return await this.#begun();
    } catch (error) {
      this.#stop();
      throw error;
    }
  }

  async #begun() {
    const [head, first] = await Promise.all([
      this.#source.head(this.#chain),
      this.#source.slice(this.#chain, 0, FIRST_STEPS, false),
    ]);
    this.head = head;
    this.track = new Track(head);
    const rest = this.#firstOf(first);
    this.#known = Math.max(this.#known, head.line.last, this.track.last);
    if (this.#line !== null && this.#line.last >= head.line.last) {
      head.line = this.#line;
    }
    this.#goOn(rest);
    return { head, track: this.track, stop: () => this.#stop() };
  }

  /** A long episode is loaded whole and thinned instead; its first slice would make its beginning too dense. */
  #firstOf(first) {
    const { steps, live } = this.head.line;
    const isLong = steps > roomOf(first, live) && first.more;
    if (!isLong) {
      this.track.append(first);
    }
    const piece = pieceOf(first);
    return isLong ? () => this.#whole(Math.max(2_000, Math.min(piece * 5, MOST_WHOLE))) : () => this.#pieces(piece);
  }

  async #goOn(rest) {
    await breath();
    await rest();
    if (!this.#stopped) {
      performance.mark("proctor:track-complete");
      this.#isComplete = true;
      this.#busy = false;
      this.#onGrow({ track: this.track, complete: true });
      this.#soon();
    }
  }

  async #pieces(most) {
    let coming = this.track.more ? this.#piece(this.track.last, most) : null;
    while (coming !== null && !this.#stopped) {
      const slice = await coming;
      if (slice === null) {
        await breath(this.#patience);
        coming = this.#piece(this.track.last, most);
      } else {
        coming = slice.more ? this.#piece(slice.last, most) : null;
        this.#grow(slice);
        await breath();
      }
    }
  }

  /** Returns what follows `after`; null if it could not be had, which was told. */
  async #piece(after, most) {
    if (this.#stopped) return null;
    try {
      return await this.#source.slice(this.#chain, after, most, false);
    } catch (error) {
      if (!this.#stopped) {
        this.#onTrouble(error);
      }
      return null;
    }
  }

  async #whole(most) {
    while (this.track.last === 0 && !this.#stopped) {
      await breath(await this.#took(most, true));
    }
  }

  /** Fetch what follows and take it in; return how long to wait before the next one. */
  async #took(most, thin) {
    try {
      this.#grow(await this.#source.slice(this.#chain, this.track.last, most, thin));
      return 0;
    } catch (error) {
      if (!this.#stopped) {
        this.#onTrouble(error);
      }
      return this.#patience;
    }
  }

  #grow(slice) {
    if (!this.#stopped && this.track.append(slice)) {
      this.#onGrow({ track: this.track, complete: false });
    }
  }

  #told(lines) {
    const line = lines.find((each) => each.chain === this.#chain);
    if (line === undefined || this.#stopped) {
      return;
    }
    this.#known = Math.max(this.#known, line.last);
    if (this.track === undefined) {
      this.#line = line;
    } else {
      this.#changed(line);
      this.#soon();
    }
  }

  #changed(line) {
    const isOther = line.state !== this.head.line.state || line.live !== this.head.line.live;
    this.head.line = line;
    if (isOther && line.last <= this.track.last) {
      this.#onGrow({ track: this.track, complete: this.#isComplete });
    }
  }

  /** Fetch what is new, now or as soon as enough time has passed. */
  #soon(wait = BETWEEN_FETCHES) {
    const isNeeded = this.#known > this.track.last && this.#timer === null && !this.#busy && !this.#stopped;
    if (isNeeded) {
      const passed = performance.now() - this.#fetched;
      this.#timer = setTimeout(() => this.#fetch(), Math.max(0, wait - passed));
    }
  }

  async #fetch() {
    this.#timer = null;
    this.#busy = true;
    this.#fetched = performance.now();
    const pause = await this.#took(LIVE_STEPS, true);
    this.#busy = false;
    this.#soon(Math.max(BETWEEN_FETCHES, pause));
  }

  #stop() {
    this.#stopped = true;
    this.#unsubscribe();
    clearTimeout(this.#timer);
  }
}

/** Let the page draw and answer before the next piece. */
function breath(pause = 0) {
  return new Promise((resolve) => setTimeout(resolve, pause));
}
