"""Which session a client gets: as it wishes within what is served, or as the record says that it had it."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from proctor.contracts.recorder import Recorder
from proctor.door.redaction import without_secrets
from proctor.envs.targets import MODES
from proctor.models.control import Code, Open
from proctor.models.events import SessionOpened
from proctor.models.wire import Encoding
from proctor.server.accounts import Account, BatchAccount, SingleAccount
from proctor.server.answers import refused
from proctor.server.opening import Opening, kind_for
from proctor.server.session import Session
from proctor.server.settings import ServerSettings
from proctor.server.transforms import Pipeline, Plan

NAME_BYTES: Final = 8
"""Of a session's name, which opens nothing; it is typed on command lines, so it never begins with a dash."""


@dataclass(frozen=True, slots=True)
class Made:
    """A session that is still to be opened, or taken up, and how it accounts for what happens."""

    session: Session
    account: Account
    pipeline: Pipeline


class Openings:
    """Makes the sessions of one server; their environments are made when they are opened."""

    def __init__(
        self,
        settings: ServerSettings,
        opening: Opening,
        plan: Plan,
        recorder: Recorder,
        *,
        boot: str,
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._opening = opening
        self._plan = plan
        self._recorder = recorder
        self._boot = boot
        self._wall = wall

    def wished(self, wish: Open, encoding: Encoding, resume: str) -> Session:
        """Return a session for a client that said hello, or refuse what is not served; `resume` is its token's digest."""
        opening = self._opening_for(wish, encoding)
        session = self._made(secrets.token_hex(NAME_BYTES), opening, self._timeout(wish), resume=resume).session
        session.shared = wish.shared
        return session

    def plain(self) -> Session:
        """Return a session for a client without hello."""
        opening = self._opening_for(Open(), Encoding())
        return self._made(
            secrets.token_hex(NAME_BYTES), opening, self._settings.step_timeout_seconds, resume=""
        ).session

    def recorded(self, opened: SessionOpened) -> Made:
        """Return a session as it was when it was opened, with what is served now."""
        wish = Open(num_envs=opened.num_envs, autoreset_mode=opened.autoreset_mode, infos=opened.infos)
        opening = self._opening_for(wish, Encoding(opened.packed, opened.compress))
        made = self._made(opened.session, opening, opened.step_timeout, resume=opened.resume)
        made.session.shared = opened.shared
        return made

    def left(self, opened: SessionOpened) -> Session:
        """Return a session that is of no use but to state the end of the one that was opened."""
        return self._made(opened.session, self._opening, None, resume=opened.resume).session

    def changed(self, opened: SessionOpened) -> str | None:
        """Return what is served otherwise than when the session was opened; None: nothing is."""
        now = self._opening
        pairs = {
            "another target": (opened.target, now.target.text),
            "other settings": (opened.settings, without_secrets(now.target.settings)),
            "another environment": (opened.environment, now.card.name),
            "another version of the environment": (opened.environment_version, now.card.version),
            "other transforms": (opened.transforms, now.transforms),
            "another policy": (opened.policy, now.policy),
        }
        what = next((what for what, (was, is_now) in pairs.items() if was != is_now), None)
        return None if what is None else f"the server has {what} now"

    def _timeout(self, wish: Open) -> float | None:
        own, asked = self._settings.step_timeout_seconds, wish.step_timeout_seconds
        return own if asked is None else asked if own is None else min(own, asked)

    def _opening_for(self, wish: Open, encoding: Encoding) -> Opening:
        opening = self._opening
        if wish.num_envs is None:
            return replace(opening, encoding=encoding)
        if not opening.card.can_batch:
            raise refused(Code.VALIDATION_ERROR, "this environment cannot be batched", expected="no num_envs")
        if wish.autoreset_mode is not None and wish.autoreset_mode not in MODES:
            raise refused(Code.VALIDATION_ERROR, "unknown autoreset mode", expected=f"one of {', '.join(MODES)}")
        wanted = None if self._settings.place == "auto" else self._settings.place
        sandboxed = opening.nest is not None
        return replace(
            opening,
            kind="process" if sandboxed else kind_for(opening.target, opening.card, wanted, wish.num_envs),
            encoding=encoding,
            num_envs=wish.num_envs,
            autoreset_mode=wish.autoreset_mode or "next_step",
            infos=wish.infos or self._plan.looks,
        )

    def _made(self, name: str, opening: Opening, timeout: float | None, *, resume: str) -> Made:
        pipeline = self._plan.pipeline(
            opening.num_envs, packed=opening.encoding.packed, space=opening.card.observation_space
        )
        account: Account = (
            SingleAccount(pipeline, extended=bool(resume))
            if opening.num_envs is None
            else BatchAccount(pipeline, opening.encoding)
        )
        session = Session(
            name,
            opening,
            account,
            self._recorder,
            clock=self._wall,
            boot=self._boot,
            step_timeout=timeout,
            kept_bytes=int(self._settings.watch_mb * 2**20),
            resume=resume,
        )
        return Made(session, account, pipeline)
