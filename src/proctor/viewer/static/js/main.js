/*
 * The page's beginning: who is in, where to go, and which page is shown there. The only module that acts by itself.
 *
 * Rule 1: a one-time code leaves the address before anything else happens: it is in no history and no copied address.
 * Rule 2: a page is `open(context, ...arguments) -> {element, title, close()}`; the one before it is closed first, and
 *     what was opened too late is closed unseen. `shown()`, if it has one, is called when it is in its place.
 *     Nothing that an older turn has left behind (a timer, a dialog) reaches into a newer one.
 * Rule 3: links within the page are followed here: it also works where there is no address (a frame in a notebook).
 */

import { comparePage } from "./compare.js";
import { dismissDialogs } from "./dialog.js";
import { el } from "./dom.js";
import { episodePage } from "./episode.js";
import { Frame } from "./frame.js";
import { listPage } from "./list.js";
import { entrancePage, errorPage, unknownPage } from "./messages.js";
import { operatorPage } from "./operator.js";
import { NO_VISIT } from "./refusal.js";
import { compareAddress, entranceOf, episodeAddress, routeOf } from "./router.js";
import { fileSource, servedSource } from "./source.js";

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
    this.source = fileSource(record);
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
    this.source = servedSource();
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
