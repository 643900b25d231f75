// One stream for all tabs of a browser: who listens, who is told, and what happens when a tab goes.

import assert from "node:assert/strict";
import test from "node:test";

import { Channel } from "../../../src/proctor/viewer/static/js/channel.js";

/** A browser with tabs: its lock, and what its tabs say to each other. */
class Browser {
  constructor({ hasLocks = true } = {}) {
    Object.assign(this, { hasLocks, queue: [], holder: null, radios: new Set(), streams: 0 });
  }

  tab(holds = async () => true) {
    const page = new Page();
    const tab = { told: [], page, stream: null };
    const make = (address, parts) => this.stream(tab, parts);
    const broadcast = (name) => this.radio(name);
    const locks = this.hasLocks ? { request: (...each) => this.request(...each) } : undefined;
    const parts = { locks, broadcast, place: (address) => `/viewer/${address}`, page };
    tab.channel = new Channel("events", { tell: (...each) => tab.told.push(each), holds, make, parts });
    tab.channel.open();
    return tab;
  }

  stream(tab, { tell }) {
    return {
      open: () => {
        this.streams += 1;
        tab.stream = tell;
      },
      close: () => {
        this.streams -= 1;
        tab.stream = null;
      },
    };
  }

  radio(name) {
    const radio = {
      postMessage: (data) => {
        for (const each of this.radios) if (each !== radio && each.name === name) each.onmessage({ data });
      },
      close: () => this.radios.delete(radio),
      name,
    };
    this.radios.add(radio);
    return radio;
  }

  request(name, { signal }, run) {
    return new Promise((resolve, reject) => {
      const wanted = { run, resolve };
      signal.addEventListener("abort", () => {
        this.queue = this.queue.filter((each) => each !== wanted);
        if (this.holder !== wanted) reject(signal.reason);
      });
      this.queue.push(wanted);
      this.next();
    });
  }

  async next() {
    if (this.holder !== null || this.queue.length === 0) return;
    this.holder = this.queue.shift();
    await this.holder.run();
    this.holder.resolve();
    this.holder = null;
    this.next();
  }
}

class Page extends EventTarget {
  hidden = false;

  turn(hidden) {
    this.hidden = hidden;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("however many tabs there are, one listens and all are told", () => {
  const browser = new Browser();
  const tabs = [1, 2, 3, 4, 5, 6, 7, 8].map(() => browser.tab());
  tabs[0].stream("lines", [{ chain: "a" }]);

  assert.equal(browser.streams, 1);
  for (const tab of tabs) assert.deepEqual(tab.told, [["lines", [{ chain: "a" }]]]);
});

test("who comes later is told how things stand, and not what has changed before", () => {
  const browser = new Browser();
  const first = browser.tab();
  first.stream("status", "live");
  first.stream("lines", [{ chain: "a" }]);
  first.stream("pending", [{ id: "q" }]);

  const late = browser.tab();

  assert.deepEqual(late.told, [["status", "live"], ["pending", [{ id: "q" }]]]);
});

test("when the tab that listens goes, the next one does", async () => {
  const browser = new Browser();
  const [first, second, third] = [browser.tab(), browser.tab(), browser.tab()];
  second.channel.close();
  first.channel.close();
  await settled();

  assert.equal(browser.streams, 1);
  third.stream("status", "live");
  assert.deepEqual([first.told, second.told, third.told], [[], [], [["status", "live"]]]);
});

test("that the visit has ended is told to the others", () => {
  const browser = new Browser();
  const [first, second] = [browser.tab(), browser.tab()];
  first.channel.pass("visit", null);

  assert.deepEqual([first.told, second.told], [[], [["visit", null]]]);
});

test("without locks a tab listens while it is seen", () => {
  const browser = new Browser({ hasLocks: false });
  const [seen, other] = [browser.tab(), browser.tab()];
  other.page.turn(true);
  assert.equal(browser.streams, 1);
  assert.deepEqual([seen.told, other.told], [[], [["status", "still"]]]);

  other.page.turn(false);
  other.page.turn(false);
  assert.equal(browser.streams, 2);

  other.channel.close();
  other.page.turn(false);
  assert.equal(browser.streams, 1);
});

test("where locks are refused, it is as if there were none", async () => {
  const browser = new Browser();
  browser.request = () => Promise.reject(new Error("not here"));
  const tab = browser.tab();
  await settled();

  assert.equal(browser.streams, 1);
  tab.page.turn(true);
  assert.equal(browser.streams, 0);
});

test("what was closed before it had its turn never listens", async () => {
  const browser = new Browser();
  const [first, second] = [browser.tab(), browser.tab()];
  second.channel.close();
  await settled();
  first.channel.close();
  await settled();

  assert.equal(browser.streams, 0);
});
