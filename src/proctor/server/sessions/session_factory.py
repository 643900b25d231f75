"""Which session a client gets: as it wishes within what is served, or as the record says that it had it."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proctor.access.redaction import hide_secrets
from proctor.contracts.recorder import Recorder
from proctor.envs.targets import MODES
from proctor.models.control import Code, Open
from proctor.models.events import SessionOpened
from proctor.models.wire import Encoding
from proctor.server.rewards.pipeline import Plan
from proctor.server.runtime.results import make_refusal
from proctor.server.sessions.response_builder import BatchResponseBuilder, ResponseBuilder, SingleResponseBuilder
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_spec import SessionSpec, choose_executor_kind
from proctor.server.settings import ServerSettings

NAME_BYTES: Final = 8
"""Of a session's name, which opens nothing; it is typed on command lines, so it never begins with a dash."""


class SessionFactory:
    """Makes the sessions of one server; their environments are made when they are opened."""

    def __init__(
        self,
        settings: ServerSettings,
        spec: SessionSpec,
        plan: Plan,
        recorder: Recorder,
        *,
        boot: str,
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._plan = plan
        self._recorder = recorder
        self._boot = boot
        self._wall = wall

    def create(self, wish: Open, encoding: Encoding, resume: str = "") -> Session:
        """Return a session, or refuse what is not served; `resume` is its token's digest, empty without hello."""
        spec = self._opening_for(wish, encoding)
        own, asked = self._settings.step_timeout_seconds, wish.step_timeout_seconds
        timeout = own if asked is None else asked if own is None else min(own, asked)
        session = self._make(secrets.token_hex(NAME_BYTES), spec, timeout, resume=resume)
        session.shared = wish.shared
        return session

    def recreate(self, opened: SessionOpened) -> Session:
        """Return a session as it was when it was opened, with what is served now."""
        wish = Open(num_envs=opened.num_envs, autoreset_mode=opened.autoreset_mode, infos=opened.infos)
        spec = self._opening_for(wish, Encoding(opened.packed, opened.compress))
        session = self._make(opened.session, spec, opened.step_timeout, resume=opened.resume)
        session.shared = opened.shared
        return session

    def create_for_end(self, opened: SessionOpened) -> Session:
        """Return a session that is of no use but to state the end of the one that was opened."""
        return self._make(opened.session, self._spec, None, resume=opened.resume)

    def find_change(self, opened: SessionOpened) -> str | None:
        """Return what is served otherwise than when the session was opened; None: nothing is."""
        now = self._spec
        pairs = {
            "another target": (opened.target, now.target.text),
            "other settings": (opened.settings, hide_secrets(now.target.settings)),
            "another environment": (opened.environment, now.card.name),
            "another version of the environment": (opened.environment_version, now.card.version),
            "other transforms": (opened.transforms, now.transforms),
            "another policy": (opened.policy, now.policy),
        }
        what = next((what for what, (was, is_now) in pairs.items() if was != is_now), None)
        return None if what is None else f"the server has {what} now"

    def _opening_for(self, wish: Open, encoding: Encoding) -> SessionSpec:
        spec = self._spec
        if wish.num_envs is None:
            return replace(spec, encoding=encoding)
        if not spec.card.can_batch:
            raise make_refusal(Code.VALIDATION_ERROR, "this environment cannot be batched", expected="no num_envs")
        if wish.autoreset_mode is not None and wish.autoreset_mode not in MODES:
            raise make_refusal(Code.VALIDATION_ERROR, "unknown autoreset mode", expected=f"one of {', '.join(MODES)}")
        wanted = None if self._settings.place == "auto" else self._settings.place
        sandboxed = spec.nest is not None
        return replace(
            spec,
            kind="process" if sandboxed else choose_executor_kind(spec.target, spec.card, wanted, wish.num_envs),
            encoding=encoding,
            num_envs=wish.num_envs,
            autoreset_mode=wish.autoreset_mode or "next_step",
            infos=wish.infos or self._plan.reads_outputs,
        )

    def _make(self, name: str, spec: SessionSpec, timeout: float | None, *, resume: str) -> Session:
        pipeline = self._plan.pipeline(spec.num_envs, packed=spec.encoding.packed, space=spec.card.observation_space)
        response_builder: ResponseBuilder = (
            SingleResponseBuilder(pipeline, extended=bool(resume))
            if spec.num_envs is None
            else BatchResponseBuilder(pipeline, spec.encoding)
        )
        return Session(
            name,
            spec,
            response_builder,
            self._recorder,
            clock=self._wall,
            boot=self._boot,
            step_timeout=timeout,
            kept_bytes=int(self._settings.watch_mb * 2**20),
            resume=resume,
        )
