/*
 * The frame around every page: name, navigation, connection and theme; where pages go; what is said aloud.
 *
 * Rule 1: the frame is made once. Pages are put into <main>; announcements go into one polite live region.
 */

import { el, setAttribute, setText, svg, visible } from "./dom.js";
import { counted, number } from "./format.js";
import { mountThemeButton } from "./theme.js";

const STATUSES = {
  live: ["Live", "Connected: this page updates by itself"],
  lost: ["Connection lost", "Trying to connect again"],
  still: ["Record", "A record that does not change"],
};
const SAY_AFTER = 60; // ms: a region that is emptied and filled at once is not read out

export class Frame {
  constructor() {
    this.main = el("main", { id: "main", tabindex: "-1" });
    this.speech = el("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
    this.statusWord = el("span", {});
    const dot = el("span", { class: "dot", "aria-hidden": "true" });
    this.status = el("span", { class: "status", hidden: true }, dot, this.statusWord);
    this.server = el("span", { class: "frame-server" });
    this.countWord = el("span", {});
    this.count = el("span", { class: "count", hidden: true }, this.countWord, hiddenWord(" waiting"));
    this.links = { list: navLink("#/", "Episodes"), operator: navLink("#/operator", "Operator", this.count) };
    this.links.operator.hidden = true;
    this.nav = el("nav", { class: "frame-nav", "aria-label": "Pages", hidden: true }, Object.values(this.links));
    this.waiting = 0;
    this.pageTitle = "";
    this.fileTitle = "";
    this.name = "list";
  }

  mount(root) {
    const tools = el("div", { class: "frame-tools" }, this.server, this.status, mountThemeButton());
    const home = el("a", { class: "brand", href: "#/", "aria-label": "Proctor, all episodes" }, mark(), "Proctor");
    root.replaceChildren(
      el("a", { class: "skip", href: "#main", on: { click: (event) => this.skip(event) } }, "Skip to the content"),
      el("header", { class: "frame-head" }, home, this.nav, tools),
      this.main,
      this.speech,
    );
  }

  /** Show what the visit allows. */
  welcome(visit, canAct) {
    this.nav.hidden = false;
    this.status.hidden = false;
    this.links.operator.hidden = !canAct;
    setText(this.server, [visit.environment, visit.server && `Proctor ${visit.server}`].filter(Boolean).join(" · "));
  }

  /** A file may have a title of its own: it is what the window is called, whatever page is shown. */
  entitleFile(title) {
    this.fileTitle = title;
    setText(this.server, title);
  }

  /** Take the navigation away: nobody is in. */
  farewell() {
    this.nav.hidden = true;
    this.status.hidden = true;
  }

  /** Put a page in; `name` is its route's. */
  show(element, name, title) {
    this.main.replaceChildren(element);
    this.name = name;
    for (const [key, link] of Object.entries(this.links)) {
      setAttribute(link, "aria-current", key === name ? "page" : null);
    }
    this.entitle(title);
  }

  entitle(title) {
    this.pageTitle = title;
    const waiting = this.waiting > 0 ? `(${this.waiting}) ` : "";
    document.title = visible(waiting + [this.fileTitle || title, "Proctor"].filter(Boolean).join(" · "));
  }

  showStatus(status) {
    const [word, sentence] = STATUSES[status] ?? STATUSES.still;
    const before = this.status.dataset.status;
    this.status.dataset.status = status;
    setText(this.statusWord, word);
    setAttribute(this.status, "title", sentence);
    if (status === "lost" && before === "live") {
      this.announce("The connection to the server is lost. Trying again.");
    } else if (status === "live" && before === "lost") {
      this.announce("Connected again.");
    }
  }

  showWaiting(waiting) {
    const more = waiting.length - this.waiting;
    this.waiting = waiting.length;
    this.count.hidden = waiting.length === 0;
    setText(this.countWord, number(waiting.length, 0));
    this.entitle(this.pageTitle);
    if (more > 0) {
      this.announce(`${counted(waiting.length, "thing waits", "things wait")} for an operator.`);
    }
  }

  announce(text) {
    this.speech.textContent = "";
    clearTimeout(this.saying);
    this.saying = setTimeout(() => setText(this.speech, text), SAY_AFTER);
  }

  /** The address's fragment is the page's route, so that it cannot be the anchor as well. */
  skip(event) {
    event.preventDefault();
    this.main.focus();
    this.main.scrollIntoView();
  }
}

function hiddenWord(text) {
  return el("span", { class: "visually-hidden" }, text);
}

function navLink(href, words, ...more) {
  return el("a", { href }, el("span", {}, words), ...more);
}

/** A desk seen from above, under a watchful eye: three bars and a ring. */
function mark() {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 2, "aria-hidden": "true" },
    svg("path", { d: "M3 12s3.4-6.2 9-6.2S21 12 21 12s-3.4 6.2-9 6.2S3 12 3 12Z", "stroke-linejoin": "round" }),
    svg("circle", { cx: 12, cy: 12, r: 2.6, fill: "currentColor", stroke: "none" }),
  );
}
