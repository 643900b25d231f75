/*
 * The page: who is in, where to go, which page is shown, and the frame around it. The only module that acts by itself.
 *
 * Rule 1: a one-time code leaves the address before anything else happens: it is in no history and no copied address.
 * Rule 2: a page is `open(context, ...arguments) -> {element, title, close()}`; the one before it is closed first, and
 *     what was opened too late is closed unseen. `shown()`, if it has one, is called when it is in its place.
 *     Nothing that an older turn has left behind (a timer, a dialog) reaches into a newer one.
 * Rule 3: links within the page are followed here: it also works where there is no address (a frame in a notebook).
 * Rule 4: the frame is made once. Announcements go into one polite live region.
 */

import { dismissDialogs } from "./acting.js";
import { mountThemeButton } from "./canvas.js";
import { comparePage } from "./compare.js";
import { button, el, messagePage, setAttribute, setText, svg, visible } from "./dom.js";
import { episodePage } from "./episode.js";
import { counted, number } from "./format.js";
import { listPage } from "./list.js";
import { operatorPage } from "./operator.js";
import { compareAddress, entranceOf, episodeAddress, routeOf } from "./router.js";
import { FileSource } from "./single_file.js";
import { NO_VISIT, ServedSource, TOO_LATE, UNREACHABLE } from "./source.js";

const STATUSES = {
  live: ["Live", "Connected: this page updates by itself"],
  lost: ["Connection lost", "Trying to connect again"],
  still: ["Record", "A record that does not change"],
};
const SAY_AFTER = 60; // ms: a region that is emptied and filled at once is not read out

class Frame {
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

/** Return the page for who is not in. `trouble` says why a code did not work, if there was one. */
function entrancePage(trouble = null) {
  const commands = [
    ["A server that runs here: ask it for a link, and open it in this browser.", "proctor operator link"],
    ["A ledger on disk: open it, and follow the address that is printed.", "proctor view LEDGER"],
  ];
  return messagePage("How to get in", [
    trouble === null ? null : el("p", { class: "notice warn" }, trouble),
    el("p", {}, "This page opens with a link that works once. Whoever runs the server can make one:"),
    el("ul", {}, commands.map(([text, command]) => el("li", {}, text, el("code", { class: "command" }, command)))),
  ]);
}

/** Return the page for what went wrong; `again` tries once more. */
function errorPage(error, again) {
  const pressed = button("Try again", again, { class: "primary" });
  return messagePage(titleOf(error), [
    el("p", { class: "notice bad" }, error.message || String(error)),
    el("p", {}, whatToDo(error)),
    el("div", { class: "buttons" }, pressed, el("a", { class: "button", href: "#/" }, "All episodes")),
  ]);
}

/** Return the page for an address that means nothing. */
function unknownPage() {
  return messagePage("There is no such page", [
    el("p", {}, "The address is not one of ours; it may have been cut off when it was copied."),
    el("div", { class: "buttons" }, el("a", { class: "button primary", href: "#/" }, "All episodes")),
  ]);
}

function titleOf(error) {
  if (error.code === UNREACHABLE) {
    return "The server does not answer";
  }
  if (isServersFailure(error)) {
    return "The server could not do this";
  }
  return error.name === "Refusal" ? "This could not be shown" : "Something is wrong with this page";
}

function whatToDo(error) {
  if (error.code === UNREACHABLE) {
    return "Look whether it still runs, then try again. What is on record is safe.";
  }
  if (error.code === NO_VISIT) {
    return "The visit has ended. Open a new link.";
  }
  if (isServersFailure(error)) {
    return "The server failed, or is busy; what is on record is safe. Try again; if it stays so, see its own log.";
  }
  if (error.name === "Refusal") {
    return "The episode may have been removed, or its name is not right. The list shows what there is.";
  }
  return "This is a mistake in the page, not in the record. Reload it; if it happens again, please report it.";
}

function isServersFailure(error) {
  return error.code === TOO_LATE || error.status >= 500;
}

const PAGES = {
  list: listPage,
  episode: episodePage,
  compare: comparePage,
  operator: operatorPage,
  unknown: unknownPage,
};
const LOADING_AFTER = 200; // ms
const ENDED = "The visit has ended: the server was started again, or it was too long ago.";
const USED = "That link has been used already, or is too old. Ask for a new one.";
const RECORD = { csrf: "", server: "", environment: null, can_act: false, can_fork: false, live: false };

class App {
  constructor() {
    this.frame = new Frame();
    this.page = null;
    this.turn = 0;
    this.waiting = null; // the timer that says that it is loading
    this.isFirst = true;
    this.hasAddress = location.protocol !== "about:";
    this.address = this.hasAddress ? location.hash : "";
  }

  async begin() {
    this.frame.mount(document.getElementById("app"));
    document.addEventListener("click", (event) => this.clicked(event));
    addEventListener("hashchange", () => this.changed());
    const record = document.getElementById("proctor-episodes");
    try {
      await (record === null ? this.beginServed() : this.beginFile(JSON.parse(record.textContent)));
    } catch (error) {
      this.kept(error);
    }
  }

  // ------------------------------------------------------------------------------------------------ beginnings
  beginFile(record) {
    this.source = new FileSource(record);
    this.enter({ ...RECORD });
    this.frame.entitleFile(record.title ?? "");
    const chains = record.lines.map((line) => line.chain);
    if (routeOf(this.address).name === "list" && chains.length <= 2 && chains.length > 0) {
      this.address = chains.length === 1 ? episodeAddress(chains[0]) : compareAddress(...chains);
      this.readdress();
    }
    return this.go();
  }

  /** The address says what is seen, so that Back comes here again; a frame without one goes on without. */
  readdress() {
    if (this.hasAddress) {
      history.replaceState(null, "", this.address);
    }
  }

  async beginServed() {
    this.source = new ServedSource();
    this.source.subscribe("visit", () => this.out(ENDED));
    this.enter(await this.visit(this.takenCode()));
    await this.go();
  }

  /** A code that does not work does no harm to who is in already. */
  async visit(code) {
    if (code === null) {
      return this.source.visit();
    }
    try {
      return await this.source.enter(code);
    } catch (refusal) {
      return this.source.visit().catch(() => {
        throw refusal;
      });
    }
  }

  enter(visit) {
    this.context = {
      source: this.source,
      visit,
      announce: (text) => this.frame.announce(text),
      navigate: (address) => this.navigate(address),
    };
    this.frame.welcome(visit, this.source.canAct);
    this.source.subscribe("status", (status) => this.frame.showStatus(status));
    if (this.source.canAct) {
      this.source.subscribe("pending", (waiting) => this.frame.showWaiting(waiting));
    }
    if (visit.live) {
      this.source.listen();
    }
  }

  /** Nobody is in: say how to get in, or what else is the matter. */
  kept(error) {
    const isOut = error.code === NO_VISIT || error.status === 403 || error.status === 400;
    if (isOut) {
      this.out(this.hadCode ? USED : null);
    } else {
      this.put(errorPage(error, () => location.reload()), "error");
    }
  }

  out(trouble) {
    this.turned();
    this.source.close();
    this.frame.farewell();
    this.put(entrancePage(trouble), "entrance");
  }

  takenCode() {
    const entrance = entranceOf(this.address);
    this.hadCode = entrance !== null;
    if (entrance === null) {
      return null;
    }
    history.replaceState(null, "", `${location.pathname}${location.search}${entrance.address}`);
    this.address = entrance.address;
    return entrance.code;
  }

  // -------------------------------------------------------------------------------------------------- going on
  changed() {
    this.address = location.hash;
    if (entranceOf(this.address) !== null) {
      // A link that was opened in this very tab: as if the page had just been opened.
      this.source.close();
      this.beginServed().catch((error) => this.kept(error));
    } else if (this.context) {
      this.go();
    }
  }

  navigate(address) {
    if (this.hasAddress && address !== location.hash) {
      location.hash = address;
    } else {
      this.address = address;
      this.go();
    }
  }

  clicked(event) {
    const link = event.target.closest?.("a[href^='#/']");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (link && isPlain && !event.defaultPrevented) {
      event.preventDefault();
      this.navigate(link.getAttribute("href"));
    }
  }

  /** Begin a new turn, and end what the one before it still had under way. */
  turned() {
    clearTimeout(this.waiting);
    dismissDialogs();
    return (this.turn += 1);
  }

  async go() {
    const route = routeOf(this.address);
    const turn = this.turned();
    this.waiting = setTimeout(() => this.put(loading(), route.name), LOADING_AFTER);
    const page = await this.opened(route);
    if (turn !== this.turn) {
      page.close();
    } else {
      clearTimeout(this.waiting);
      this.put(page, route.name);
    }
  }

  async opened(route) {
    try {
      return await PAGES[route.name](this.context, ...route.arguments);
    } catch (error) {
      if (error.name !== "Refusal") {
        console.error(error);
      }
      if (error.code === NO_VISIT) {
        this.out(ENDED);
      }
      return errorPage(error, () => this.go());
    }
  }

  /**
   * Show a page. Whoever came by a link hears its heading, unless the page has a better place to begin; at the
   * beginning the browser reads from the top.
   */
  put(page, name) {
    this.page?.close();
    this.page = page;
    this.frame.show(page.element, name, page.title);
    scrollTo(0, 0);
    page.shown?.();
    if (!this.isFirst && !page.element.contains(document.activeElement)) {
      page.element.querySelector("h1")?.focus({ preventScroll: true });
    }
    this.isFirst = false;
  }
}

function loading() {
  return { element: el("p", { class: "loading", role: "status" }, "Loading…"), title: "Loading", close: () => {} };
}

new App().begin();
