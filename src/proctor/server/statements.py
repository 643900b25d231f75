"""What a session states for the record besides resets and steps: pure."""

import platform

import gymnasium
import msgspec
import numpy as np
from msgspec import UNSET, Raw

from proctor import __version__
from proctor.door.redaction import without_secrets
from proctor.models.control import Problem
from proctor.models.events import EpisodeStepped, Failed, SessionOpened
from proctor.models.grants import Transition
from proctor.server.accounts import Caller, Stand
from proctor.server.opening import Opening


def opened(
    session: str, at: float, opening: Opening, boot: str, *, resume: str, shared: bool, step_timeout: float | None
) -> SessionOpened:
    """Return the statement that a session is there."""
    return SessionOpened(
        session=session,
        at=at,
        environment=opening.card.name,
        environment_version=opening.card.version,
        target=opening.target.text,
        settings=without_secrets(opening.target.settings),
        server=__version__,
        boot=boot,
        num_envs=opening.num_envs,
        autoreset_mode=opening.autoreset_mode,
        transforms=opening.transforms,
        place=opening.kind,
        tier=opening.tier,
        probe=dict(opening.probe),
        code=opening.card.code,
        policy=opening.policy,
        resume=resume,
        shared=shared,
        packed=opening.encoding.packed,
        compress=opening.encoding.compress,
        infos=opening.infos,
        step_timeout=step_timeout,
        python=platform.python_version(),
        gymnasium=gymnasium.__version__,
        numpy=np.__version__,
    )


def failure(problem: Problem, request: str, stand: Stand, action: bytes) -> Failed:
    """Return the statement that a request was refused, or failed, where the session stood."""
    return Failed(
        session=stand.session,
        at=stand.at,
        principal="control" if stand.caller is None else "agent",
        request_id=stand.request_id,
        epoch=stand.epoch,
        step=stand.step,
        code=problem.code,
        request=request,
        clause=None if problem.clause is UNSET else problem.clause,
        incident=None if problem.incident is UNSET else problem.incident,
        lost=problem.lost is True,
        action=Raw(action),
        grant=None if stand.caller is None else stand.caller.grant,
    )


def row_of(number: int, event: EpisodeStepped, caller: Caller) -> bytes:
    """Return what a trainer sees of a step that an agent caused, as JSON."""
    return msgspec.json.encode(
        Transition(
            number,
            event.epoch,
            event.step,
            event.at,
            caller.grant,
            caller.agent,
            caller.tool,
            event.action,
            event.observation,
            event.raw_reward,
            event.reward,
            event.terminated,
            event.truncated,
            event.metadata,
            event.parts,
        )
    )
