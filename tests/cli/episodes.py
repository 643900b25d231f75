"""Rows of a governed plume search for tests of what is shown of it."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from proctor.envs.settings import make_env
from proctor.ledger.reader import Row
from proctor.models.events import (
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    PacketJudged,
    SessionOpened,
)

CHAIN = "s1.1"
FIELD = {"grid_size": [24, 12], "source_location": [4, 6], "plume": "advected"}


class Recorded:
    """An episode that grows row by row, as a ledger would have it; a second goes by with every row."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._env = make_env("proctor/PlumeSearch-v0", FIELD).unwrapped
        self._steps = 0

    def _add(self, made_of: type[Event], **said: Any) -> Row:
        event = made_of(session="s1", at=1000.0 + len(self.rows), **said)
        row = Row(len(self.rows), CHAIN, len(self.rows), event, None, True, b"")
        self.rows.append(row)
        return row

    def opened(self) -> Row:
        versions = {"python": "3", "gymnasium": "1", "numpy": "2", "server": "0", "environment_version": "0"}
        return self._add(
            SessionOpened,
            environment="proctor/PlumeSearch-v0",
            target="proctor/PlumeSearch-v0",
            place="process",
            tier="strict",
            policy={"name": "standard"},
            **versions,
        )

    def reset(self) -> Row:
        self._env.reset(seed=3)
        scene = msgspec.json.encode(self._env.scene())  # type: ignore[attr-defined]  # of ours
        return self._add(EpisodeReset, epoch=1, episode_id="e1", observation=Raw(b"{}"), scene=Raw(scene))

    def stepped(self, *, terminated: bool = False, reward: float = 0.0) -> Row:
        self._steps += 1
        self._env.step(0)
        frame = msgspec.json.encode(self._env.frame())  # type: ignore[attr-defined]  # of ours
        return self._add(
            EpisodeStepped,
            epoch=1,
            step=self._steps,
            action=Raw(b'{"action":0}'),
            observation=Raw(b"{}"),
            raw_reward=reward,
            reward=reward,
            terminated=terminated,
            truncated=False,
            tool="move",
            scene=Raw(frame),
        )

    def judged(
        self,
        kind: str,
        payload: dict[str, Any],
        *path: str,
        who: str = "agent",
        tool: str | None = None,
        rules: Sequence[str] = (),
        reason: str = "",
    ) -> Row:
        """Add a line; with rules it was refused."""
        line = {"record": kind, "data": payload} if kind == "user_input" else {"payload": payload}
        return self._add(
            PacketJudged,
            principal=who,
            epoch=1,
            step=self._steps,
            line=Raw(json.dumps(line).encode()),
            kind=kind,
            accepted=not rules,
            path=list(path),
            rules=list(rules),
            reason=reason,
            state=path[-1],
            tool=tool,
        )

    def closed(self, outcome: str = "conforming") -> Row:
        return self._add(EpisodeClosed, epoch=1, steps=self._steps, reason="closed", outcome=outcome, state="S7_REVIEW")


def begun() -> Recorded:
    """Return an episode that was opened and reset, with one belief, one step and one refusal."""
    recorded = Recorded()
    recorded.opened()
    recorded.reset()
    changes = {"belief_changes": [{"domain": "world", "key": "odor"}]}
    recorded.judged("BeliefUpdatePacket", changes, "S1_SENSE", "S2_MODEL", tool="believe")
    recorded.stepped()
    recorded.stepped()
    recorded.judged(
        "ToolAuthorizationToken",
        {"token_id": "token_forged"},
        "S2_MODEL",
        tool="submit_packet",
        rules=("GOV-1",),
        reason="an agent may not state this",
    )
    return recorded
