/*
 * Who wants to be told of what, by kind.
 *
 * Rule 1: a listener that throws does not keep the others from being told.
 */

export class Listeners {
  constructor() {
    this.byKind = new Map();
  }

  /** Add a listener; returns what takes it away again. */
  add(kind, listener) {
    const found = this.byKind.get(kind) ?? new Set();
    this.byKind.set(kind, found.add(listener));
    return () => found.delete(listener);
  }

  /** Tell all listeners of a kind. */
  tell(kind, value) {
    for (const listener of [...(this.byKind.get(kind) ?? [])]) {
      try {
        listener(value);
      } catch (error) {
        console.error(error);
      }
    }
  }
}
