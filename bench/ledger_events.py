"""Events as a session of plume search states them, for what is measured without a server."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from proctor.models.events import EpisodeReset, EpisodeStepped, SessionOpened

NOON: Final = 1_800_000_000.0
OBSERVATION: Final = Raw(b'{"observation":[0.00004385059583000839]}')


def opened(session: str) -> SessionOpened:
    """A session is there."""
    return SessionOpened(
        session=session,
        at=NOON,
        environment="proctor/PlumeSearch-v0",
        environment_version="0",
        target="proctor/PlumeSearch-v0",
        server="0",
        place="inline",
        code="0" * 64,
        resume="0" * 64,
        python="3.11.7",
        gymnasium="1.2.0",
        numpy="2.0.0",
    )


def begun(session: str) -> EpisodeReset:
    """Its first episode began."""
    return EpisodeReset(
        session=session, at=NOON, request_id=1, epoch=1, episode_id=f"{session}.1", seed=0, observation=OBSERVATION
    )


def stepped(session: str) -> EpisodeStepped:
    """A step ran."""
    return EpisodeStepped(
        session=session,
        at=NOON,
        request_id=2,
        epoch=1,
        step=1,
        action=Raw(b'{"action":3}'),
        observation=OBSERVATION,
        metadata=Raw(
            b'{"step_count":1,"total_reward":0.0,"goal_reached":false,"agent_xy":[13,47],'
            b'"distance_to_source":53.75872022286245}'
        ),
        raw_reward=0.0,
        reward=0.0,
        terminated=False,
        truncated=False,
        scene=Raw(
            b'{"step":1,"total_reward":0.0,"state":"ready","agent":{"at":[13,47],"heading":0.0},'
            b'"field":null,"wind":null}'
        ),
    )
