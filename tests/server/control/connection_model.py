"""What a client of the control plane must hear, by a naive model: no socket, no thread, no clock of its own.

The model is told what is sent, and when a connection breaks, time passes or a held step is let go. It says which reply
must come, to the last field. What a server may choose (an instance's number, an episode's id) is a `New`: it must be one
that nobody has seen before, and from then on it is always the same.

Rule 1: nothing here is read from the server but the names that it gives; where a broken connection leaves it open what
    arrived, `last_id` says so, as it does to a client.
Rule 2: `ran` lists every request that an environment must have been asked to carry out, no more and no less.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tests.server.witness_env import INSIDE, How

MAX_PENDING: Final = 4
GRACE: Final = 30.0
IDLE: Final = 100.0
WARN_AFTER: Final = 80.0


class New:
    """A value that the server chooses: new when it is first seen, the same ever after."""

    def __init__(self, seen: set[Any]) -> None:
        self._seen = seen
        self._value: Any = None

    def __eq__(self, found: object) -> bool:
        if self._value is None and found is not None and found not in self._seen:
            self._seen.add(found)
            self._value = found
        return self._value is not None and bool(self._value == found)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "<a new one>" if self._value is None else repr(self._value)


class Either:
    """One of several values; which one is the server's choice."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def __eq__(self, found: object) -> bool:
        return found in self._values

    def __hash__(self) -> int:
        return hash(self._values)


@dataclass(eq=False, frozen=True)
class Trouble:
    """The data of an error: its code, whether the episode is lost, and that nothing from inside is told."""

    code: str
    lost: bool = False
    clause: str | None = None
    incident: bool = False

    def __eq__(self, found: object) -> bool:
        return (
            isinstance(found, dict)
            and found.get("code") == self.code
            and found.get("lost", False) is self.lost
            and found.get("clause") == self.clause
            and ("incident" in found) is self.incident
            and INSIDE not in str(found)
        )

    def __hash__(self) -> int:
        return hash(self.code)


GONE: Final = Trouble("EPISODE_LOST", lost=True)
LOST: Final = Trouble("EPISODE_LOST", lost=True)
REUSED: Final = Trouble("ID_REUSED")
BUSY: Final = Trouble("BUSY")
STALE: Final = Trouble("STALE_EPOCH", lost=True)
INVALID: Final = Trouble("VALIDATION_ERROR")
FAILED: Final = Trouble("EXECUTION_ERROR", lost=True, incident=True)
TIMED_OUT: Final = Trouble("STEP_TIMEOUT", lost=True, incident=True)
DROPPED: Final = Trouble("CANCELLED")
GIVEN_UP: Final = Trouble("CANCELLED", lost=True)


class Stands(Enum):
    """Where an episode stands."""

    CREATED = "NO-STEP-BEFORE-RESET"
    READY = ""
    ENDED = "NO-STEP-AFTER-END"
    LOST = "lost"


@dataclass(eq=False)
class Ask:
    """One request; `expected` is the reply, None as long as there is none."""

    kind: str
    nonce: int
    how: How | None = "move"
    """None: data that is not acceptable."""
    id: int | None = None
    epoch: int | None = None
    episode_id: str | None = None
    expected: dict[str, Any] | None = None
    sent: int = 0
    heard: int = 0
    asker: Any = None
    """The connection that it was sent on last."""
    text: str | None = None
    """The reply as it came first; it may come again, but not change."""

    def message(self, session: str | None) -> dict[str, Any]:
        """Return the request as it is sent."""
        beside = {"id": self.id, "session": session, "epoch": self.epoch}
        return {"type": self.kind, "data": self.data, **{k: v for k, v in beside.items() if v is not None}}

    @property
    def data(self) -> dict[str, Any] | None:
        if self.kind == "cancel":
            return {"id": self.nonce}
        if self.kind == "step":
            return {"nonce": self.nonce, "how": self.how or "not a way"}
        if self.kind == "reset":
            episode = {} if self.episode_id is None else {"episode_id": self.episode_id}
            return {"seed": "none" if self.how is None else self.nonce, "options": {"how": self.how}, **episode}
        return None

    def says_the_same(self, other: Ask) -> bool:
        return (self.kind, self.data, self.epoch) == (other.kind, other.data, other.epoch)


@dataclass(eq=False)
class SessionModel:
    """One session as its client must see it; `greeted` is whether its client said hello."""

    name: str
    resume_token: str
    instances: set[Any]
    episode_ids: set[Any]
    ran: Counter[int]
    greeted: bool = True
    epoch: int = 0
    step: int = 0
    total: int = 0
    stands: Stands = Stands.CREATED
    gone: bool = False
    used_at: float = 0.0
    detached_at: float | None = None
    running: Ask | None = None
    last_id: int = 0
    asks: dict[int, Ask] = field(default_factory=dict)
    waiting: deque[Ask] = field(default_factory=deque)
    replied: list[Ask] = field(default_factory=list)
    """All that have a reply, in the order in which they got it."""
    answered: list[Ask] = field(default_factory=list)
    """Carried out since it was last looked at, in order."""

    def __post_init__(self) -> None:
        self.episode_id: Any = None
        self._new_environment()

    def _new_environment(self) -> None:
        self.instance = New(self.instances)
        self.episode = 0

    @property
    def busy(self) -> bool:
        return self.running is not None

    @property
    def standing(self) -> tuple[int, int, Any, bool]:
        """What `resumed` says: epoch, step, episode and whether it is lost."""
        return self.epoch, self.step, self.episode_id, self.stands is Stands.LOST

    def submit(self, ask: Ask) -> dict[str, Any] | None:
        """Take a request of a client that said hello; return the reply that comes at once, None if it has its turn."""
        if self.gone:
            return self._error(GONE, ask)
        known = self.asks.get(ask.id or 0)
        if known is not None and ask.says_the_same(known):
            return known.expected
        if known is not None or (ask.id or 0) <= self.last_id:
            return self._error(REUSED, ask)
        if len(self.waiting) >= MAX_PENDING and ask.kind != "cancel":
            return self._error(BUSY, ask)
        self.last_id = ask.id or 0
        self.asks[self.last_id] = ask
        if ask.kind == "cancel":
            outcome: dict[str, Any] = {"id": ask.nonce}
            ask.expected = self._reply("cancelled", outcome, ask)  # before what waits goes on
            self.replied.append(ask)
            outcome["outcome"] = self._given_up(ask.nonce)
            return ask.expected
        self.enqueue(ask)
        return None

    def enqueue(self, ask: Ask) -> None:
        """Have a request carried out when its turn comes."""
        self.waiting.append(ask)
        self._carry_on()

    def still_kept(self, ask: Ask) -> bool:
        """Return whether the reply must still be there; older ones may be."""
        return ask in self.replied[-MAX_PENDING:]

    def release(self) -> int:
        """Let the held request end; return its number."""
        ask = self._stopped()
        if ask.kind == "reset":
            self._begun(ask)
        else:
            self._stepped(ask)
        self._carry_on()
        return ask.nonce

    def give_up(self, trouble: Trouble) -> None:
        """Have the held request end without an answer from its environment: the episode is lost."""
        self._lose(self._stopped(), trouble)
        self._carry_on()

    def end(self) -> None:
        """Have the session end with everything that it has."""
        self.gone = True
        self.waiting.clear()
        self.running = None

    def pass_time(self, now: float) -> None:
        """Have it end if nobody came back to it, or nobody used it; never while a request runs."""
        if self.busy or self.gone:
            return
        waited = 0.0 if self.detached_at is None else now - self.detached_at
        if waited >= GRACE or now - self.used_at >= IDLE:
            self.end()

    def _stopped(self) -> Ask:
        ask, self.running = self.running, None
        assert ask is not None
        return ask

    def _given_up(self, target: int) -> Any:
        waiting = next((each for each in self.waiting if each.id == target), None)
        if waiting is not None:
            self.waiting.remove(waiting)
            self._answer(waiting, self._error(DROPPED, waiting))
            return "dropped"
        if self.running is not None and self.running.id == target:
            self.give_up(GIVEN_UP)
            return "lost"
        if target not in self.asks:
            return "unknown"
        return "finished" if self.still_kept(self.asks[target]) else Either("finished", "unknown")

    def _carry_on(self) -> None:
        while self.waiting and self.running is None:
            self._carry_out(self.waiting.popleft())

    def _carry_out(self, ask: Ask) -> None:
        trouble = self._refusal(ask)
        if trouble is not None:
            self._answer(ask, self._error(trouble, ask))
        else:
            _DEEDS[ask.kind](self, ask)

    def _refusal(self, ask: Ask) -> Trouble | None:
        """Return why a request is refused before it reaches the environment."""
        if self.gone:
            return GONE
        if ask.epoch is not None and ask.epoch != self.epoch:
            return STALE
        if ask.kind in {"step", "state"} and self.stands is Stands.LOST:
            return LOST
        if ask.kind == "step" and self.stands is not Stands.READY:
            return Trouble("STATE_ERROR", clause=self.stands.value)
        if ask.how is None or (ask.kind == "reset" and ask.how == "refuse"):
            return INVALID
        return None

    def _reset(self, ask: Ask) -> None:
        if self.stands is Stands.LOST:
            self._new_environment()
        self.ran[ask.nonce] += 1
        if ask.how == "raise":
            self._lose(ask, FAILED)
        elif ask.how == "hold":
            self.running = ask
        else:
            self._begun(ask)

    def _do_step(self, ask: Ask) -> None:
        self.ran[ask.nonce] += 1
        if ask.how == "raise":
            self._lose(ask, FAILED)
        elif ask.how == "refuse":
            self._answer(ask, self._error(INVALID, ask))
        elif ask.how == "hold":
            self.running = ask
        else:
            self._stepped(ask)

    def _state(self, ask: Ask) -> None:
        state = {"episode_id": self.episode_id, "step_count": self.step}
        told = {**state, "instance": self.instance, "episode": self.episode}
        self._answer(ask, self._reply("state", told, ask))

    def _close(self, ask: Ask) -> None:
        self._answer(ask, self._reply("closed", {"episodes": self.epoch, "steps": self.total}, ask))
        self.gone = True

    def _begun(self, ask: Ask) -> None:
        self.epoch += 1
        self.episode += 1
        self.step = 0
        self.stands = Stands.READY
        self.episode_id = New(self.episode_ids) if ask.episode_id is None else ask.episode_id
        self._answer(ask, self._reply("observation", self._seen(ask, None), ask))

    def _stepped(self, ask: Ask) -> None:
        self.step += 1
        self.total += 1
        if ask.how in {"end", "cut"}:
            self.stands = Stands.ENDED
        self._answer(ask, self._reply("observation", self._seen(ask, float(ask.nonce)), ask))

    def _seen(self, ask: Ask, reward: float | None) -> dict[str, Any]:
        sight = {"instance": self.instance, "episode": self.episode, "step": self.step, "nonce": ask.nonce}
        seen: dict[str, Any] = {"observation": sight, "reward": reward, "done": ask.how in {"end", "cut"}}
        if self.greeted:
            flags = {"terminated": ask.how == "end", "truncated": ask.how == "cut"}
            seen |= {**flags, "step": self.step, "episode_id": self.episode_id}
        return seen

    def _lose(self, ask: Ask, trouble: Trouble) -> None:
        self.stands = Stands.LOST
        self._answer(ask, self._error(trouble, ask))

    def _answer(self, ask: Ask, expected: dict[str, Any]) -> None:
        ask.expected = expected
        self.replied.append(ask)
        self.answered.append(ask)

    def _reply(self, kind: str, data: Any, ask: Ask) -> dict[str, Any]:
        beside = {"id": ask.id, "session": self.name, "epoch": self.epoch} if self.greeted else {}
        return {"type": kind, **beside, "data": data}

    def _error(self, trouble: Trouble, ask: Ask) -> dict[str, Any]:
        return self._reply("error", trouble, ask)


_DEEDS: Final[dict[str, Callable[[SessionModel, Ask], None]]] = {
    "reset": SessionModel._reset,
    "step": SessionModel._do_step,
    "state": SessionModel._state,
    "close": SessionModel._close,
}
