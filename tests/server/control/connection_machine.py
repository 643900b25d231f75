"""Drives a real server over real WebSockets beside a naive model, and compares every message that comes.

Only time is not real: the sessions' clock and the event loop's are moved by the machine, so that grace, idleness and
time-outs come when they are told to, and in no time.

Rule 1: after every rule all that must come has come, and whatever is held is held: what a rule finds depends on the rules
    before it alone, never on who was faster.
Rule 2: the server is looked into only to wait for it, or to let its time pass. What is checked came over a socket, or is in
    the environments' own ledger.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final, NamedTuple
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proctor.server import app
from proctor.server.runtime.executors import abandoned_threads
from tests.server.control.connection_model import (
    GONE,
    GRACE,
    IDLE,
    MAX_PENDING,
    TIMED_OUT,
    WARN_AFTER,
    Ask,
    SessionModel,
    Stands,
    Trouble,
)
from tests.server.control.lines import Line, Owed
from tests.server.control.outlets import Clock
from tests.server.live_server import Served, serving, until
from tests.server.witness_env import LEDGER, How

STEP_TIMEOUT: Final = 100.0
MOST_LINES, MOST_SESSIONS, MOST_PLAIN = 3, 3, 1
NORMAL, GOING_AWAY, IDLED, SUPERSEDED = 1000, 1001, 1008, 4000


class Deed(NamedTuple):
    """A request, drawn before it is known of whom it is asked."""

    kind: str
    how: How | None
    epoch: int | None
    """How far from the right one; None: not said, where that is possible."""
    gap: int


STEPS = st.builds(
    Deed,
    st.just("step"),
    st.sampled_from(["move", "move", "move", "end", "cut", "hold", "hold", "raise", "refuse", None]),
    st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, -1]),
    st.integers(1, 3),
)
RESETS = st.builds(
    Deed,
    st.just("reset"),
    st.sampled_from(["move", "move", "move", "move", "hold", "raise", "refuse", None]),
    st.sampled_from([None, None, None, 0, 1, -1]),
    st.integers(1, 3),
)
LOOKS = st.builds(Deed, st.just("state"), st.just("move"), st.sampled_from([None, 0, -1]), st.integers(1, 3))
HOWS = st.sampled_from(["move", "move", "move", "hold", "hold", "end", "raise"])
DEEDS = st.one_of(STEPS, STEPS, STEPS, RESETS, RESETS, LOOKS)
WHICH = st.integers(0, 11)
"""One of those that there are, whatever their number."""
PLANS = st.lists(st.tuples(WHICH, DEEDS), max_size=3)


def _answers(message: dict[str, Any], number: int) -> bool:
    """Return whether this is the reply to a request that names no session."""
    named = message["type"] not in {"opened", "resumed"} and "session" in message
    return message.get("id") == number and not named


class ConnectionMachine(RuleBasedStateMachine):
    """Requests, duplicates, broken connections, resumes, time-outs and restarts in any order."""

    target = "tests.server.witness_env:Witness"
    can_hold = True

    def __init__(self) -> None:
        super().__init__()
        LEDGER.clear()
        self.clock = Clock()
        self.lines: list[Line] = []
        self.sessions: list[SessionModel] = []
        self.holders: dict[str, Line] = {}
        self.plain: dict[Line, SessionModel] = {}
        self.ran: Counter[int] = Counter()
        self.maybe: set[int] = set()
        self.seen: tuple[set[Any], set[Any]] = (set(), set())
        self.nonces = itertools.count(1)
        self.restarted = False
        self.unheard: list[SessionModel] = []
        """Those that carried out what a connection asked that is no more: no reply tells when that is done."""
        self.unused: set[str] = set()
        """The sessions that may have been warned."""
        self.stack = ExitStack()
        self.served: Served = self._start()

    # ------------------------------------------------------------------------------------------------ the server
    def _start(self) -> Served:
        # A hundred seconds that pass at once would be longer than any client may take to answer a ping.
        self.stack.enter_context(mock.patch.object(app, "PING_SECONDS", None))
        served = self.stack.enter_context(
            serving(
                self.target,
                clock=self.clock,
                max_pending=MAX_PENDING,
                grace_seconds=GRACE,
                idle_seconds=IDLE,
                warn_seconds=IDLE - WARN_AFTER,
                step_timeout_seconds=STEP_TIMEOUT,
                drain_seconds=0.0,
            )
        )
        self.offset = 0.0
        served.loop.time = lambda: time.monotonic() + self.offset  # type: ignore[method-assign]  # see `times_out`
        return served

    def _channels(self) -> int:
        found: int = self.served.on_loop(lambda: len(self.served.server.sessions.channels))
        return found

    def _wait_for_server(self) -> None:
        """Wait until the server knows which connections and sessions there are."""
        alive = sum(not session.gone for session in (*self.sessions, *self.plain.values()))
        until(lambda: self.served.on_loop(lambda: len(self.served.server.plane.connections)) == len(self._all_lines()))
        until(lambda: self._channels() == alive)

    def _all_lines(self) -> list[Line]:
        return [*self.lines, *self.plain]

    # ------------------------------------------------------------------------------------------- what was answered
    def _owe(self, session: SessionModel) -> None:
        """Note what was carried out: whoever holds the session must hear of it, if it asked for that itself."""
        holder = self.holders.get(session.name)
        for ask in session.answered:
            assert ask.expected is not None
            if holder is not None and ask.asker is holder:
                holder.owed.append(Owed(session.name, (ask.expected,), ask, in_order=True))
            elif holder is not None:
                self.unheard.append(session)
        session.answered.clear()
        session.used_at = self.clock.now

    def _pump(self) -> None:
        """Hear everything that must come, on every line, and wait for what must be held."""
        for line in self._all_lines():
            while line.owed:
                self._judge(line, line.hear())
        for session in (*self.sessions, *self.plain.values()):
            if session.running is not None:
                self._wait_until_held(session.running.nonce)
        while self.unheard:
            self._wait_until_quiet(self.unheard.pop())

    def _wait_until_held(self, nonce: int) -> None:
        until(lambda: nonce in LEDGER.holding)

    def _judge(self, line: Line, text: str) -> None:
        message = json.loads(text)
        if message["type"] == "warning":
            self._judge_warning(line, message)
            return
        candidates = line.owed if line.greeted else line.owed[:1]
        owed = next((each for each in candidates if each.fits(message)), None)
        assert owed is not None, f"nobody asked for {message}"
        before = line.owed[: line.owed.index(owed)]
        assert not (owed.in_order and any(each.in_order and each.session == owed.session for each in before))
        line.owed.remove(owed)
        if owed.ask is not None and message["data"].get("code") != "ID_REUSED":
            self._note(owed.ask, text)

    def _note(self, ask: Ask, text: str) -> None:
        ask.heard += 1
        assert ask.heard <= ask.sent, f"answered more often than asked: {text}"
        ask.text = ask.text or text
        assert ask.text == text

    def _judge_warning(self, line: Line, message: dict[str, Any]) -> None:
        assert line.greeted
        assert message["session"] in self.unused
        assert message["data"]["code"] == "IDLE"
        assert message["data"]["seconds_left"] <= IDLE - WARN_AFTER

    # ------------------------------------------------------------------------------------------------------ asking
    def _ask(self, session: SessionModel, deed: Deed, number: int | None = None) -> Ask:
        how: How | None = "move" if deed.how == "hold" and not self.can_hold else deed.how
        nonce = next(self.nonces)
        named = f"episode {nonce}" if deed.kind == "reset" and nonce % 2 else None
        ask = Ask(deed.kind, nonce, how, episode_id=named)
        if session.greeted:
            ask.id = session.last_id + deed.gap if number is None else number
            wanted = 0 if deed.epoch is None and deed.kind == "step" else deed.epoch
            ask.epoch = None if wanted is None else abs(session.epoch + wanted)
        return ask

    def _send(self, session: SessionModel, ask: Ask, line: Line) -> None:
        ask.sent += 1
        ask.asker = line
        line.send(ask.message(session.name if session.greeted else None))

    def _submit(self, session: SessionModel, ask: Ask) -> None:
        """Send a request on the line that holds the session, and note what must come of it."""
        line = self.holders[session.name]
        self._send(session, ask, line)
        if not session.greeted:
            session.enqueue(ask)
        else:
            told = session.submit(ask)
            if told is not None:
                admitted = session.asks.get(ask.id or 0) is ask
                line.owed.append(Owed(session.name, (told,), ask if admitted else None))
        self._owe(session)

    def _held(self) -> list[SessionModel]:
        return [session for session in self.sessions if session.name in self.holders and not session.gone]

    def _one_held(self, which: int) -> SessionModel:
        """Return a session that can be asked; a new one in its first episode if there is none."""
        if not self._held():
            if not self.lines:
                self.connect()
            self.open_a_session(which)
            self._submit(self.sessions[-1], self._ask(self.sessions[-1], Deed("reset", "move", None, 1)))
            self._pump()
        held = self._held()
        return held[which % len(held)]

    @precondition(lambda self: len(self.lines) < MOST_LINES)
    @rule()
    def connect(self) -> None:
        self.lines.append(Line(self.served))
        assert self.lines[-1].welcome["data"]["max_pending"] == MAX_PENDING

    @precondition(lambda self: self.lines and sum(not each.gone for each in self.sessions) < MOST_SESSIONS)
    @rule(which=WHICH)
    def open_a_session(self, which: int) -> None:
        line = self.lines[which % len(self.lines)]
        number = line.request("open", {})
        message = self._heard(line, number)
        assert message["type"] == "opened"
        session = SessionModel(message["session"], message["data"]["resume_token"], *self.seen, self.ran)
        assert message["epoch"] == 0
        assert message["data"]["grace_seconds"] == GRACE
        assert message["data"]["step_timeout_seconds"] == STEP_TIMEOUT
        session.used_at = self.clock.now
        self.sessions.append(session)
        self.holders[session.name] = line

    def _heard(self, line: Line, number: int) -> dict[str, Any]:
        """Return the reply to a request that names no session."""
        while True:
            text = line.hear()
            message: dict[str, Any] = json.loads(text)
            if _answers(message, number):
                return message
            self._judge(line, text)

    @rule(which=WHICH, hows=st.lists(HOWS, min_size=1, max_size=3))
    def play(self, which: int, hows: list[How]) -> None:
        """Go on with an episode, or begin one."""
        session = self._one_held(which)
        if session.stands is not Stands.READY:
            self._submit(session, self._ask(session, Deed("reset", "move", None, 1)))
        for how in hows:
            self._submit(session, self._ask(session, Deed("step", how, 0, 1)))
        self._pump()

    @rule(plan=st.lists(st.tuples(WHICH, DEEDS), min_size=1, max_size=MAX_PENDING))
    def ask(self, plan: list[tuple[int, Deed]]) -> None:
        for which, deed in plan:
            session = self._one_held(which)
            self._submit(session, self._ask(session, deed))
        self._pump()

    @precondition(lambda self: any(session.busy for session in self._held()))
    @rule(deeds=st.lists(DEEDS, min_size=MAX_PENDING, max_size=MAX_PENDING + 2))
    def crowd(self, deeds: list[Deed]) -> None:
        """Ask for more than may wait behind a held request."""
        session = next(session for session in self._held() if session.busy)
        for deed in deeds:
            self._submit(session, self._ask(session, deed))
        self._pump()

    @rule(which=WHICH, epoch=st.sampled_from([None, None, 0, 1]), after=st.lists(DEEDS, max_size=2))
    def close_a_session(self, which: int, epoch: int | None, after: list[Deed]) -> None:
        """Close it, and ask for more before the `close` is answered."""
        session = self._one_held(which)
        for deed in (Deed("close", "move", epoch, 1), *after):
            ask = self._ask(session, deed)
            if session.gone:
                ask.id = session.last_id = session.last_id + deed.gap
            self._submit(session, ask)
        self._pump()

    @precondition(lambda self: self.lines and any(session.gone for session in self.sessions))
    @rule(which=WHICH, other=WHICH, deed=DEEDS)
    def ask_a_session_that_is_gone(self, which: int, other: int, deed: Deed) -> None:
        gone = [session for session in self.sessions if session.gone]
        self._ask_in_vain(gone[which % len(gone)], self.lines[other % len(self.lines)], deed)

    @rule(which=WHICH, other=WHICH)
    def repeat(self, which: int, other: int) -> None:
        session = self._one_held(which)
        asks = list(session.asks.values())
        if asks:
            self._repeat(session, asks[-1 - other % len(asks)])
            self._pump()

    def _repeat(self, session: SessionModel, ask: Ask) -> None:
        line = self.holders[session.name]
        self._send(session, ask, line)
        told = session.submit(ask)
        session.used_at = self.clock.now
        if told is None:
            return
        reused = {**told, "type": "error", "epoch": session.epoch, "data": Trouble("ID_REUSED")}
        line.owed.append(Owed(session.name, (told,) if session.still_kept(ask) else (told, reused), ask))

    @rule(which=WHICH, other=WHICH, deed=DEEDS)
    def use_an_id_again(self, which: int, other: int, deed: Deed) -> None:
        session = self._one_held(which)
        if session.last_id:
            ask = self._ask(session, deed, 1 + other % session.last_id)
            known = session.asks.get(ask.id or 0)
            if known is not None and known.says_the_same(ask):
                self._repeat(session, known)
            else:
                self._submit(session, ask)
            self._pump()

    @rule(which=WHICH, other=WHICH, gap=st.integers(1, 3))
    def cancel(self, which: int, other: int, gap: int) -> None:
        """Give up what runs or waits; else what has ended, or never was."""
        session = self._one_held(which)
        pending = [] if session.running is None else [session.running, *session.waiting]
        numbers = [each.id or 0 for each in pending] or [*session.asks, session.last_id + 10]
        self._submit(session, Ask("cancel", numbers[other % len(numbers)], id=session.last_id + gap))
        self._pump()

    @precondition(lambda self: len(self.lines) > 1 and self._held())
    @rule(which=WHICH, other=WHICH, deed=DEEDS)
    def ask_on_a_line_that_does_not_hold_the_session(self, which: int, other: int, deed: Deed) -> None:
        session = self._one_held(which)
        others = [line for line in self.lines if line is not self.holders[session.name]]
        self._ask_in_vain(session, others[other % len(others)], deed)

    def _ask_in_vain(self, session: SessionModel, line: Line, deed: Deed) -> None:
        ask = self._ask(session, deed)
        self._send(session, ask, line)
        refusal = {"type": "error", "id": ask.id, "session": session.name, "data": GONE}
        line.owed.append(Owed(session.name, (refusal,)))
        self._pump()

    # ------------------------------------------------------------------------------------------------ held requests
    @precondition(lambda self: any(session.busy for session in self.sessions))
    @rule(which=WHICH)
    def let_go(self, which: int) -> None:
        busy = [session for session in self.sessions if session.busy]
        self._let_go(busy[which % len(busy)])
        self._pump()

    def _let_go(self, session: SessionModel) -> None:
        LEDGER.release(session.release())
        self._owe(session)
        self._settle([session])

    def _settle(self, sessions: list[SessionModel]) -> None:
        """Wait for those whom nobody holds; a session that was only not ended because it was busy may end now."""
        alone = [session for session in sessions if session.name not in self.holders]
        for session in alone:
            self._wait_until_quiet(session)
        if alone:
            self._sweep()

    @precondition(lambda self: any(session.busy for session in (*self.sessions, *self.plain.values())))
    @rule()
    def times_out(self) -> None:
        """Move the event loop's own time: every request that is held has taken too long now."""

        def pass_time() -> None:
            self.offset += STEP_TIMEOUT

        self.served.on_loop(pass_time)
        late = [session for session in (*self.sessions, *self.plain.values()) if session.busy]
        for session in late:
            session.give_up(TIMED_OUT)
            self._owe(session)
        self._settle(late)
        self._pump()

    @precondition(lambda self: bool(LEDGER.holding))
    @rule()
    def strays_come_home(self) -> None:
        """Let go of what was given up long ago: nobody may notice."""
        running = {each.running.nonce for each in (*self.sessions, *self.plain.values()) if each.running is not None}
        for nonce in LEDGER.holding - running:
            LEDGER.release(nonce)

    def _wait_until_quiet(self, session: SessionModel) -> None:
        """Wait until a session that nobody holds has done what it was asked to."""
        if session.running is not None:
            self._wait_until_held(session.running.nonce)
            return
        channels = self.served.server.sessions.channels
        until(lambda: self.served.on_loop(lambda: session.name not in channels or not channels[session.name].busy))

    # ------------------------------------------------------------------------------------------- broken connections
    @precondition(lambda self: self.lines)
    @rule(which=WHICH, deeds=PLANS, politely=st.booleans())
    def cut(self, which: int, deeds: list[tuple[int, Deed]], politely: bool) -> None:
        """Send requests and leave before they are answered."""
        line = self.lines[which % len(self.lines)]
        unheard = self._sent_unheard(line, deeds)
        self._leave(line, politely)
        self._wait_for_server()
        for session, asks in unheard.items():
            self._arrive(session, asks)
            self._wait_until_quiet(session)

    @rule(which=WHICH, deeds=PLANS, politely=st.booleans(), lost=PLANS)
    def cut_and_resume_at_once(
        self, which: int, deeds: list[tuple[int, Deed]], politely: bool, lost: list[tuple[int, Deed]]
    ) -> None:
        """Leave, come back before the server has noticed, and repeat what was not heard, or never arrived."""
        session = self._one_held(which)
        line = self.holders[session.name]
        unheard = self._sent_unheard(line, deeds)
        self._leave(line, politely)
        new = Line(self.served)
        self.lines.append(new)
        message = self._resumed(session, new)
        mine = unheard.pop(session)
        stands = [session.standing]
        for ask in mine:
            self._arrive(session, [ask])
            stands.append(session.standing)
        self._check_resumed(session, message, stands)
        self.holders[session.name] = new
        self._wait_for_server()
        for other, asks in unheard.items():
            self._arrive(other, asks)
            self._wait_until_quiet(other)
        for ask in mine:
            if ask.id in session.asks:
                self._repeat(session, ask)
        for _, deed in lost:
            self._submit(session, self._ask(session, deed))
        self._pump()

    def _sent_unheard(self, line: Line, deeds: list[tuple[int, Deed]]) -> dict[SessionModel, list[Ask]]:
        """Return what was sent and has arrived; whatever was answered is not listened to."""
        unheard: dict[SessionModel, list[Ask]] = {
            session: [] for session in self._held() if self.holders[session.name] is line
        }
        held = list(unheard)
        for which, deed in deeds if held else []:
            session = held[which % len(held)]
            asks = unheard[session]
            ask = self._ask(session, deed, ((asks[-1].id or 0) if asks else session.last_id) + deed.gap)
            asks.append(ask)
            self._send(session, ask, line)
        number = line.request("metadata", None)
        while not _answers(json.loads(line.hear()), number):
            pass
        return unheard

    def _leave(self, line: Line, politely: bool) -> None:
        (line.close if politely else line.abort)()
        self._forget(line)

    def _forget(self, line: Line) -> None:
        """Note that a connection is no more: its sessions wait for their client."""
        self.lines.remove(line)
        for session in self.sessions:
            if self.holders.get(session.name) is line:
                del self.holders[session.name]
                session.detached_at = self.clock.now

    def _arrive(self, session: SessionModel, asks: list[Ask]) -> None:
        """Have the model take requests whose client has gone."""
        for ask in asks:
            session.submit(ask)
            self._owe(session)

    def _resumed(self, session: SessionModel, line: Line, token: str | None = None) -> dict[str, Any]:
        wish = {"session": session.name, "resume_token": session.resume_token if token is None else token}
        return self._heard(line, line.request("resume", wish))

    def _check_resumed(
        self, session: SessionModel, message: dict[str, Any], stands: list[tuple[int, int, Any, bool]]
    ) -> None:
        assert message["type"] == "resumed", message
        data = message["data"]
        assert message["session"] == session.name
        assert any(
            (epoch, step, lost) == (message["epoch"], data["step"], data["lost"]) and episode == data["episode_id"]
            for epoch, step, episode, lost in stands
        )
        assert data["last_id"] == session.last_id
        session.detached_at = None
        session.used_at = self.clock.now

    @precondition(lambda self: self.sessions and self.lines)
    @rule(which=WHICH, other=WHICH, repeat=st.booleans())
    def resume(self, which: int, other: int, repeat: bool) -> None:
        session = self.sessions[which % len(self.sessions)]
        line = self.lines[other % len(self.lines)]
        holder = self.holders.get(session.name)
        message = self._resumed(session, line)
        if session.gone:
            assert message["data"] == Trouble("EPISODE_LOST", lost=True)
            return
        self._check_resumed(session, message, [session.standing])
        if holder is not None and holder is not line:
            self._superseded(holder)
        self.holders[session.name] = line
        session.detached_at = None
        if repeat:
            for ask in [*session.replied[-MAX_PENDING:], *session.waiting]:
                self._repeat(session, ask)
        self._pump()

    def _superseded(self, holder: Line) -> None:
        code, texts = holder.closed_with()
        assert code == SUPERSEDED
        for text in texts:
            self._judge(holder, text)
        self._forget(holder)
        self._wait_for_server()

    @precondition(lambda self: self.sessions and self.lines)
    @rule(which=WHICH, other=WHICH, another=WHICH)
    def resume_with_a_wrong_token(self, which: int, other: int, another: int) -> None:
        session, thief = (self.sessions[each % len(self.sessions)] for each in (which, another))
        token = thief.resume_token if thief is not session else session.resume_token[:-1]

        message = self._resumed(session, self.lines[other % len(self.lines)], token)

        assert message["data"] == Trouble("EPISODE_LOST", lost=True)

    # ----------------------------------------------------------------------------------------- without a greeting
    @precondition(lambda self: len(self.plain) < MOST_PLAIN)
    @rule(deed=RESETS)
    def connect_without_hello(self, deed: Deed) -> None:
        line = Line(self.served, greeted=False)
        session = SessionModel(f"plain {next(self.nonces)}", "", *self.seen, self.ran, greeted=False)
        self.plain[line] = session
        self.holders[session.name] = line
        self._submit(session, self._ask(session, deed))
        self._pump()

    @precondition(lambda self: self.plain)
    @rule(deeds=st.lists(DEEDS, min_size=1, max_size=MAX_PENDING))
    def ask_without_hello(self, deeds: list[Deed]) -> None:
        ((_, session),) = self.plain.items()
        if len(session.waiting) < MAX_PENDING:
            for deed in deeds[: MAX_PENDING - len(session.waiting)]:
                self._submit(session, self._ask(session, deed))
            self._pump()

    @precondition(lambda self: any(session.busy for session in self.plain.values()))
    @rule()
    def let_go_without_hello(self) -> None:
        ((_, session),) = self.plain.items()
        self._let_go(session)
        self._pump()

    @precondition(lambda self: self.plain)
    @rule(deeds=st.lists(DEEDS, max_size=2), politely=st.booleans())
    def cut_without_hello(self, deeds: list[Deed], politely: bool) -> None:
        ((line, session),) = self.plain.items()
        # One more than may wait ends the connection as well.
        for deed in deeds[: MAX_PENDING - len(session.waiting) + 1]:
            ask = self._ask(session, deed)
            self.maybe.add(ask.nonce)
            self._send(session, ask, line)
        (line.close if politely else line.abort)()
        self._end_plain(line)
        self._wait_for_server()

    @precondition(lambda self: any(not session.busy for session in self.plain.values()))
    @rule()
    def close_without_hello(self) -> None:
        ((line, _),) = self.plain.items()
        line.send({"type": "close"})

        assert line.closed_with() == (NORMAL, [])

        self._end_plain(line)
        self._wait_for_server()

    def _end_plain(self, line: Line) -> None:
        session = self.plain.pop(line)
        del self.holders[session.name]
        session.end()

    # ------------------------------------------------------------------------------------------- time and restarts
    @rule(seconds=st.sampled_from([GRACE / 2, GRACE / 2, GRACE, GRACE, WARN_AFTER, IDLE]))
    def pass_time(self, seconds: float) -> None:
        self._wait_for_server()
        self._sweep(seconds)

    def _sweep(self, seconds: float = 0.0) -> None:
        """Let time pass and the server look at its sessions; it also does so by itself, whenever it likes."""

        async def sweep() -> None:
            self.clock.now += seconds
            await self.served.server.sessions.sweep()

        self.served.on_loop(sweep)
        for session in self.sessions:
            if not session.busy and self.clock.now - session.used_at >= WARN_AFTER:
                self.unused.add(session.name)
            session.pass_time(self.clock.now)
        for line, session in list(self.plain.items()):
            session.pass_time(self.clock.now)
            if session.gone:
                assert line.closed_with() == (IDLED, [])
                self._end_plain(line)
        self._wait_for_server()

    @precondition(lambda self: not self.restarted)
    @rule()
    def restart(self) -> None:
        self.restarted = True
        lines = self._all_lines()
        self.stack.close()
        for line in lines:
            code, texts = line.closed_with()
            assert code == GOING_AWAY
            assert {json.loads(text)["data"]["code"] for text in texts} <= {"SHUTTING_DOWN", "IDLE"}
        for session in (*self.sessions, *self.plain.values()):
            session.end()
        self.lines.clear()
        self.plain.clear()
        self.holders.clear()
        self.served = self._start()

    # --------------------------------------------------------------------------------------------- what must hold
    @invariant()
    def the_environments_did_what_was_asked_and_nothing_twice(self) -> None:
        asked = Counter(LEDGER.asked)
        for nonce in self.maybe:
            assert asked.pop(nonce, 0) <= 1
        assert asked == self.ran

    def teardown(self) -> None:
        try:
            for line in list(self.lines):
                self._heard(line, line.request("metadata", None))
                assert line.owed == []
        finally:
            for line in self._all_lines():
                line.close()
            self.stack.close()
        sessions = self.served.server.sessions
        LEDGER.release_all()
        until(lambda: LEDGER.closed.keys() == LEDGER.made)
        until(lambda: not abandoned_threads)
        assert set(LEDGER.closed.values()) <= {1}
        assert (len(sessions.channels), sessions.slots.taken, sessions.slots.waiting) == (0, 0, 0)
