"""Whatever sessions do, and whatever the disk does, the ledger has what was acknowledged and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec import Raw

from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger
from proctor.ledger.verify import verify
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import Event, encode_event
from tests.ledger.damage import LONG
from tests.ledger.session_events import SIGNER, closed, failure, left, opened, reset, step, writer

sessions = st.sampled_from(["a", "b", "c"])


class Life:
    """What the model knows of a session that is open."""

    def __init__(self) -> None:
        self.epoch = 0
        self.steps = 0
        self.chain: str | None = None


class Sessions(RuleBasedStateMachine):
    """A ledger beside a model: chains as lists of lines."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-"))
        self.lives: dict[str, Life] = {}
        self.chains: dict[str, list[bytes]] = {}
        self.loose: list[bytes] = []
        self.heads: list[str] = []
        self.born = self.boots = 0
        self.broken = False
        self.into = self.started()

    def started(self) -> LedgerWriter:
        self.boots += 1
        return writer(self.folder, boot=str(self.boots))

    def recorded(self, event: Event) -> bool:
        """Record; the model goes on only if the ledger says that it has it."""
        if not self.broken:
            assert self.into.record(event) is None
            return True
        with pytest.raises(ComponentError):
            self.into.record(event)
        return False

    @rule(base=sessions)
    def open(self, base: str) -> None:
        self.born += 1
        name = f"{base}{self.born}"
        event = opened(name)
        if self.recorded(event):
            self.lives[name] = Life()
            self.loose.append(encode_event(event))

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.lives)))

    @rule(data=st.data(), value=st.sampled_from([b"1", LONG]))
    @precondition(lambda self: self.lives)
    def reset(self, data: st.DataObject, value: bytes) -> None:
        name = self.pick(data)
        life = self.lives[name]
        event = reset(name, life.epoch + 1, value)
        if self.recorded(event):
            life.epoch += 1
            life.steps = 0
            life.chain = f"{name}.{life.epoch}"
            self.chains[life.chain] = [encode_event(opened(name)), encode_event(event)]

    @rule(data=st.data(), value=st.sampled_from([b"2", LONG]))
    @precondition(lambda self: self.lives)
    def step(self, data: st.DataObject, value: bytes) -> None:
        name = self.pick(data)
        life = self.lives[name]
        event = step(name, life.epoch, life.steps + 1, observation=Raw(value)) if life.chain else failure(name)
        if self.recorded(event):
            life.steps += 1
            (self.chains[life.chain] if life.chain else self.loose).append(encode_event(event))

    @rule(data=st.data(), whole=st.booleans())
    @precondition(lambda self: self.lives)
    def close(self, data: st.DataObject, whole: bool) -> None:
        name = self.pick(data)
        life = self.lives[name]
        if whole:
            event: Event = left(name, life.epoch)
            if self.recorded(event):
                del self.lives[name]
                self.loose.append(encode_event(event))
        elif life.chain is not None and self.recorded(closed(name, life.epoch, life.steps)):
            self.chains[life.chain].append(encode_event(closed(name, life.epoch, life.steps)))
            life.chain = None

    @rule()
    def break_or_mend(self) -> None:
        self.broken = not self.broken
        self.into._committer._connection.execute(f"PRAGMA query_only = {int(self.broken)}")

    @rule(data=st.data())
    @precondition(lambda self: self.lives)
    def remember_a_head(self, data: st.DataObject) -> None:
        head = self.into.head(self.pick(data))
        if head is not None:
            self.heads.append(head)

    @rule(killed=st.booleans())
    @precondition(lambda self: not self.broken)
    def stop_and_go_on(self, killed: bool) -> None:
        if killed:
            copy = Path(tempfile.mkdtemp(prefix="ledger-"))
            for path in self.folder.iterdir():
                if path.suffix != ".lock" and not path.name.endswith("-shm"):
                    shutil.copy(path, copy)
            self.into.close()
            shutil.rmtree(self.folder)
            self.folder = copy
        else:
            self.into.close()
        self.into = self.started()
        found = {each.opened.session: each for each in self.into.unfinished()}
        assert set(found) == set(self.lives)
        for name, life in self.lives.items():
            assert found[name].all_epochs == life.epoch
            if life.chain is not None:
                assert [encode_event(event) for event in found[name].events] == self.chains[life.chain][1:]

    @invariant()
    def the_ledger_has_what_was_acknowledged_and_nothing_else(self) -> None:
        chains: dict[str, list[bytes]] = {}
        loose: list[bytes] = []
        with Ledger.open(self.folder) as ledger:
            for row in ledger.all_rows():
                if hasattr(row.event, "session"):
                    into = loose if row.chain.startswith("server.") else chains.setdefault(row.chain, [])
                    into.append(encode_event(row.event))  # type: ignore[arg-type]
        assert chains == self.chains
        assert loose == self.loose

    def teardown(self) -> None:
        if self.broken:
            self.break_or_mend()
        self.into.close()
        assert verify(self.folder, public=SIGNER.public, heads=self.heads).findings == ()
        shutil.rmtree(self.folder)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_sessions() -> None:
    run_state_machine_as_test(Sessions, settings=settings(max_examples=400, stateful_step_count=50, deadline=None))
