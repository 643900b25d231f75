"""Request ids that are used again: in another session, in another episode, and by the next run of the server."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proctor.models.events import AgentGranted, EpisodeStepped
from tests.server.live_server import Talk
from tests.server.restarts import SHARED, Stage, staged

MOVES = 120
LATE = 40
"""More requests than replies are kept."""


@dataclass
class Asked:
    """A request, and the first reply to it."""

    message: dict[str, Any]
    reply: dict[str, Any]


@dataclass
class Walker:
    """A session whose sums no other session can have, and all that was asked in it."""

    name: str
    token: str
    base: int
    """Its sums lie from here to here plus 10."""
    asked: list[Asked] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)
    """The epoch and the action of each step that was acknowledged."""
    epoch: int = 0
    total: int = 0

    @property
    def next_id(self) -> int:
        return len(self.asked) + 1

    def reset(self, talk: Talk) -> None:
        reply = self._ask(talk, {"type": "reset", "data": {"seed": self.base}})
        self.epoch, self.total = self.epoch + 1, self.base
        assert (reply["epoch"], reply["data"]["observation"]["total"]) == (self.epoch, self.base)

    def step(self, talk: Talk) -> None:
        by = 1 if self.total < self.base + 9 else -9
        reply = self._ask(talk, {"type": "step", "data": {"by": by}, "epoch": self.epoch})
        self.total += by
        self.taken.append((self.epoch, by))
        assert (reply["epoch"], reply["data"]["observation"]["total"]) == (self.epoch, self.total)

    def _ask(self, talk: Talk, message: dict[str, Any]) -> dict[str, Any]:
        message = {**message, "id": self.next_id, "session": self.name}
        reply = ask(talk, message)
        assert (reply["id"], reply["session"]) == (message["id"], self.name)
        self.asked.append(Asked(message, reply))
        return reply

    def repeat(self, talk: Talk, before: Asked) -> None:
        """The same request again has the same reply, or a code; it is never carried out, and never another's reply."""
        reply = ask(talk, before.message)
        assert (reply["id"], reply["session"]) == (before.message["id"], self.name)
        if reply["type"] == "error":
            assert reply["data"]["code"] == "ID_REUSED"
        else:
            assert bare(reply) == bare(before.reply)

    def misuse(self, talk: Talk, before: Asked) -> None:
        """The id of another request is refused, whatever comes with it."""
        told = {"type": "step", "data": {"by": 7}, "epoch": self.epoch}
        reply = ask(talk, {**told, "id": before.message["id"], "session": self.name})
        assert reply["data"]["code"] == "ID_REUSED"


def ask(talk: Talk, message: dict[str, Any]) -> dict[str, Any]:
    return talk.ask(message["type"], **{name: value for name, value in message.items() if name != "type"})


def bare(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply without what proves it: a later run proves more."""
    return {**reply, "data": {name: value for name, value in reply["data"].items() if name != "head"}}


def open_walker(talk: Talk, base: int) -> Walker:
    opened = talk.ask("open", id=1)
    return Walker(opened["session"], opened["data"]["resume_token"], base)


@contextmanager
def resumed(stage: Stage, *walkers: Walker) -> Iterator[Talk]:
    """Give a connection to the server that runs now, with these sessions resumed."""
    with Talk(stage.served, packed=False) as talk:
        for number, walker in enumerate(walkers, 1):
            told = talk.ask("resume", {"session": walker.name, "resume_token": walker.token}, id=number)
            assert (told["type"], told["epoch"]) == ("resumed", walker.epoch), told
        yield talk


def play(talk: Talk, walkers: list[Walker], chance: random.Random, moves: int) -> None:
    for _ in range(moves):
        walker = chance.choice(walkers)
        kind = chance.choices(["step", "reset", "repeat", "misuse"], [5, 1, 4, 1])[0]
        if kind == "reset":
            walker.reset(talk)
        elif kind == "step":
            walker.step(talk)
        else:
            getattr(walker, kind)(talk, chance.choice(walker.asked))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_repeated_in_whichever_session_nothing_runs_twice_and_no_reply_is_anothers(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    with staged(tmp_path) as stage:
        with Talk(stage.served, packed=False) as talk:
            walkers = [open_walker(talk, base) for base in (0, 20, 40)]
            for walker in walkers:
                walker.reset(talk)
            play(talk, walkers, chance, MOVES)
        for _ in range(2):
            stage.kill()
            with resumed(stage, *walkers) as talk:
                play(talk, walkers, chance, MOVES)
        steps = stage.of(EpisodeStepped)
        whole = stage.is_whole()

    for walker in walkers:
        own = [(event.epoch, json.loads(bytes(event.action))["by"]) for event in steps if event.session == walker.name]
        assert own == walker.taken
    assert whole


def test_an_id_that_was_refused_and_then_used_is_used_up_for_all_runs(tmp_path: Path) -> None:
    step = {"type": "step", "data": {"by": 5}, "epoch": 1, "id": 2}
    with staged(tmp_path) as stage:
        with Talk(stage.served, packed=False) as talk:
            walker = open_walker(talk, 0)
            walker.reset(talk)
            refused = ask(talk, {**step, "data": {"by": 13}, "session": walker.name})
        stage.kill()
        with resumed(stage, walker) as talk:
            taken = ask(talk, {**step, "session": walker.name})
        stage.kill()
        with resumed(stage, walker) as talk:
            for number in range(3, 3 + LATE):
                by = 1 if number % 2 else -1
                ask(talk, {**step, "id": number, "data": {"by": by}, "session": walker.name})
            again = ask(talk, {**step, "session": walker.name})
        actions = [json.loads(bytes(event.action))["by"] for event in stage.of(EpisodeStepped)]

    assert (refused["data"]["code"], taken["data"]["step"]) == ("VALIDATION_ERROR", 1)
    assert again["data"]["code"] == "ID_REUSED"
    assert actions.count(5) == 1


@pytest.mark.parametrize("granted", [True, False])
def test_a_reset_of_an_earlier_run_that_is_repeated_grants_nothing_in_a_later_episode(
    granted: bool, tmp_path: Path
) -> None:
    wish = {"grant": {"agent": "a"}}
    with staged(tmp_path, agent_port=0) as stage:
        with Talk(stage.served, packed=False) as talk:
            walker = open_walker(talk, 0)
            first = {"type": "reset", "data": {"seed": 0, **(wish if granted else {})}, "id": 1, "session": walker.name}
            ask(talk, first)
            walker.epoch = 1
        stage.kill()
        with resumed(stage, walker) as talk:
            second = ask(talk, {**first, "data": {"seed": 3}, "id": 2})
            again = ask(talk, {**first, "data": {"seed": 0, **wish}})
            free = ask(talk, {"type": "step", "data": {"by": 1}, "epoch": 2, "id": 3, "session": walker.name})
        epochs = [event.epoch for event in stage.of(AgentGranted)]

    assert second["epoch"] == 2
    assert again["data"]["code"] == "STALE_EPOCH"
    assert free["type"] == "observation"  # no grant is live
    assert epochs == ([1] if granted else [])


@pytest.mark.parametrize(
    "other",
    [{"tools": ["act"]}, {"calls_per_second": 5.0}, {"ttl_seconds": 60.0}, {"agent": "b"}],
    ids=lambda other: next(iter(other)),
)
def test_a_grant_of_an_earlier_run_is_not_given_again_to_who_asks_for_another(
    other: dict[str, Any], tmp_path: Path
) -> None:
    with staged(tmp_path, SHARED, agent_port=0) as stage:
        with Talk(stage.served, packed=False) as talk:
            walker = open_walker(talk, 0)
            walker.reset(talk)
            grant = {"type": "grant", "data": {"agent": "a", "tools": ["observe"]}, "id": 2, "epoch": 1}
            grant["session"] = walker.name
            first = ask(talk, grant)
        stage.kill()
        with resumed(stage, walker) as talk:
            refused = ask(talk, {**grant, "data": {"agent": "a", "tools": ["observe"], **other}})
            again = ask(talk, grant)

    assert first["type"] == "granted", first
    assert refused["data"].get("code") == "ID_REUSED"
    assert (again["type"], again["data"]["grant"]) == ("granted", first["data"]["grant"])
