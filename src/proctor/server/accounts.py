"""From an outcome to what is said of it: the reply's data for the client, and the event for the record.

Rule 1: pure but for the pipeline's own memory; the session decides when, and what a failure means.
Rule 2: rewards are transformed here and nowhere else; a client sees the transformed one, the record has both and every
    part.
"""

from typing import Any, Final, Protocol

import msgspec
import numpy as np
from msgspec import UNSET, Raw
from numpy.typing import NDArray

from proctor.models.arrays import listed, packed_array
from proctor.models.control import Seen, SeenBatch
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, Event
from proctor.models.wire import Encoding
from proctor.server.answers import BatchOutcome, Outcome
from proctor.server.desk import NOTHING, ResetOrder
from proctor.server.transforms import Moment, Pipeline

NULL: Final = Raw(b"null")
encode: Final = msgspec.json.Encoder().encode


class Caller(msgspec.Struct, frozen=True):
    """Which agent acts: by its grant, the name that it was given, and the tool that it uses."""

    grant: str
    agent: str
    tool: str


class Stand(msgspec.Struct, frozen=True):
    """Where a session stands after an outcome: which episode, which step, at what time, by whose request."""

    session: str
    epoch: int
    step: int
    episode_id: str
    at: float
    request_id: int | None
    caller: Caller | None = None
    """The agent that acted; None: the orchestrator."""
    nth: int = 1
    """Which reset of its environment the episode began with."""


class Account(Protocol):
    """Says what happened, to the client and to the record."""

    def begun(self, outcome: Any, order: ResetOrder, stand: Stand) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a reset."""
        ...

    def stepped(self, outcome: Any, action: bytes, stand: Stand) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a step."""
        ...

    def headed(self, data: bytes, head: str | None) -> bytes:
        """Return the data of a reset's reply with the record's head in it, if there is one and the client knows of it."""
        ...


class SingleAccount:
    """For a session of one environment; `extended` is what a client that said hello understands."""

    def __init__(self, pipeline: Pipeline, *, extended: bool) -> None:
        self._pipeline = pipeline
        self._extended = extended

    def begun(self, outcome: Outcome, order: ResetOrder, stand: Stand) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a reset."""
        carried = encode(self._pipeline.snapshot()) if self._pipeline else b"null"
        if self._pipeline:
            self._pipeline.begin(_moment(outcome))
        event = EpisodeReset(
            session=stand.session,
            at=stand.at,
            request_id=stand.request_id,
            epoch=stand.epoch,
            episode_id=stand.episode_id,
            seed=order.seed if isinstance(order.seed, int) else None,
            options=NULL if order.options is None else Raw(encode(order.options)),
            observation=Raw(outcome.observation),
            metadata=Raw(outcome.metadata),
            pipeline=Raw(carried),
            nth=stand.nth,
            scene=Raw(outcome.scene),
        )
        return self._data(outcome, outcome.reward, stand), event

    def stepped(self, outcome: Outcome, action: bytes, stand: Stand) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a step."""
        reward, parts = self._rewarded(outcome) if self._pipeline else (outcome.reward, {})
        caller = stand.caller
        event = EpisodeStepped(
            session=stand.session,
            principal="control" if caller is None else "agent",
            at=stand.at,
            request_id=stand.request_id,
            epoch=stand.epoch,
            step=stand.step,
            action=Raw(action),
            observation=Raw(outcome.observation),
            metadata=Raw(outcome.metadata),
            raw_reward=outcome.reward,
            reward=reward,
            parts=parts,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            grant=None if caller is None else caller.grant,
            tool=None if caller is None else caller.tool,
            scene=Raw(outcome.scene),
        )
        return self._data(outcome, reward, stand), event

    def headed(self, data: bytes, head: str | None) -> bytes:
        """Return the data with the head in it."""
        return _headed(data, head) if self._extended else data

    def _rewarded(self, outcome: Outcome) -> tuple[float | None, dict[str, float]]:
        if outcome.reward is None:
            return None, {}
        rewarded = self._pipeline.apply(_moment(outcome))
        return float(rewarded.rewards[0]), {name: float(part[0]) for name, part in rewarded.parts.items()}

    def _data(self, outcome: Outcome, reward: float | None, stand: Stand) -> bytes:
        seen = Seen(
            Raw(outcome.observation),
            reward,
            outcome.terminated or outcome.truncated,
            UNSET if outcome.metadata == NOTHING else Raw(outcome.metadata),
        )
        if self._extended:
            seen.terminated = outcome.terminated
            seen.truncated = outcome.truncated
            seen.step = stand.step
            seen.episode_id = stand.episode_id
        return encode(seen)


class BatchAccount:
    """For a session of many."""

    def __init__(self, pipeline: Pipeline, encoding: Encoding) -> None:
        self._pipeline = pipeline
        self._encoding = encoding

    def begun(self, outcome: BatchOutcome, order: ResetOrder, stand: Stand) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a reset."""
        carried = encode(self._pipeline.snapshot()) if self._pipeline else b"null"
        if self._pipeline:
            self._pipeline.begin(_batch_moment(outcome))
        event = BatchReset(
            session=stand.session,
            at=stand.at,
            request_id=stand.request_id,
            epoch=stand.epoch,
            episode_id=stand.episode_id,
            seed=None if order.seed is None else order.seed if isinstance(order.seed, int) else list(order.seed),
            options=NULL if order.options is None else Raw(encode(order.options)),
            mask=NULL if order.mask is None else Raw(encode(order.mask)),
            observations=Raw(outcome.observations),
            infos=Raw(outcome.infos),
            pipeline=Raw(carried),
            nth=stand.nth,
        )
        data = SeenBatch(
            Raw(outcome.observations), stand.step, infos=_unless_empty(outcome.infos), episode_id=stand.episode_id
        )
        return encode(data), event

    def stepped(self, outcome: BatchOutcome, action: bytes, stand: Stand) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a step."""
        raw_rewards = self._said(outcome.rewards)
        rewards, parts = self._rewarded(outcome) if self._pipeline else (raw_rewards, {})
        terminations, truncations = self._said(outcome.terminations), self._said(outcome.truncations)
        event = BatchStepped(
            session=stand.session,
            at=stand.at,
            request_id=stand.request_id,
            epoch=stand.epoch,
            step=stand.step,
            actions=Raw(action),
            observations=Raw(outcome.observations),
            infos=Raw(outcome.infos),
            raw_rewards=raw_rewards,
            rewards=rewards,
            parts=parts,
            terminations=terminations,
            truncations=truncations,
        )
        data = SeenBatch(
            Raw(outcome.observations),
            stand.step,
            rewards,
            terminations,
            truncations,
            _unless_empty(outcome.infos),
            stand.episode_id,
        )
        return encode(data), event

    def headed(self, data: bytes, head: str | None) -> bytes:
        """Return the data with the head in it."""
        return _headed(data, head)

    def _rewarded(self, outcome: BatchOutcome) -> tuple[Raw, dict[str, Raw]]:
        rewarded = self._pipeline.apply(_batch_moment(outcome))
        return self._said(rewarded.rewards), {name: self._said(part) for name, part in rewarded.parts.items()}

    def _said(self, array: NDArray[Any] | None) -> Raw:
        if array is None:
            return NULL
        packed = self._encoding.packed
        return Raw(encode(packed_array(array, self._encoding.compress) if packed else listed(array)))


def _headed(data: bytes, head: str | None) -> bytes:
    return data if head is None else b'%b,"head":%b}' % (data[:-1], encode(head))


def _unless_empty(infos: bytes) -> Any:
    return UNSET if infos == NOTHING else Raw(infos)


def _moment(outcome: Outcome) -> Moment:
    return Moment(
        rewards=np.array([outcome.reward or 0.0]),
        terminations=np.array([outcome.terminated]),
        truncations=np.array([outcome.truncated]),
        raw_observation=outcome.observation,
        raw_metadata=outcome.metadata,
        begins=None,
    )


def _batch_moment(outcome: BatchOutcome) -> Moment:
    none = np.zeros(len(outcome.begins if outcome.begins is not None else ()), np.bool_)
    return Moment(
        rewards=np.zeros(len(none)) if outcome.rewards is None else outcome.rewards,
        terminations=none if outcome.terminations is None else outcome.terminations,
        truncations=none if outcome.truncations is None else outcome.truncations,
        raw_observation=outcome.observations,
        raw_metadata=outcome.infos,
        begins=outcome.begins,
    )
