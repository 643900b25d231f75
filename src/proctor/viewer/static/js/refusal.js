/*
 * What could not be done, with its code and a sentence. Thrown by every source; shown by every page.
 */

export const UNREACHABLE = "UNREACHABLE";
export const TOO_LATE = "TOO_LATE";
export const NO_VISIT = "NO_VISIT";
export const NO_TOKEN = "NO_TOKEN"; // as the server calls it
export const NOT_HERE = "NOT_HERE";

export class Refusal extends Error {
  constructor(code, message, status = 0) {
    super(message);
    this.name = "Refusal";
    this.code = code;
    this.status = status;
  }
}

/** Return the refusal that an answer with this status and body means. */
export function refusalOf(status, body) {
  const said = typeof body === "object" && body !== null ? body : {};
  const message = typeof said.message === "string" && said.message ? said.message : `The server answered ${status}.`;
  return new Refusal(status === 401 ? NO_VISIT : String(said.code ?? status), message, status);
}
