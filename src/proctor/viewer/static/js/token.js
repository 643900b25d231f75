/*
 * The visit's token, which goes with every post. It is told once, when the code is traded.
 *
 * Rule 1: it is kept where this page's origin keeps things, which has a port: a cookie goes to every port of a host.
 * Rule 2: where nothing can be kept, it lasts as long as the page.
 */

const KEY = "proctor.token";
const memory = { token: "" };

export function keepToken(token) {
  memory.token = token;
  try {
    localStorage.setItem(KEY, token);
  } catch {
    // No storage here: see rule 2.
  }
}

/** Return the token, as the last of this origin's pages that came in has it; empty if there is none. */
export function keptToken() {
  try {
    return localStorage.getItem(KEY) ?? memory.token;
  } catch {
    return memory.token;
  }
}
