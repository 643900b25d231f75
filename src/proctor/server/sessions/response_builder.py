"""From what happened to what is said of it: the reply's data for the client, and the event for the record.

Rule 1: pure but for the pipeline's own memory; the session decides when, and what a failure means.
Rule 2: rewards are transformed here and nowhere else; a client sees the transformed one, the record has both and every
    part.
"""

from abc import ABC, abstractmethod
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET, Raw
from numpy.typing import NDArray

from proctor.models.arrays import array_to_lists, pack_array
from proctor.models.control import BatchReply, Code, ObservationReply, Problem, Reset
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, Event, Failed
from proctor.models.wire import Encoding
from proctor.server.rewards.pipeline import Moment, Pipeline
from proctor.server.runtime.env_adapter import EMPTY_OBJECT, ResetRequest
from proctor.server.runtime.results import BatchOutcome, EnvOutcome, make_refusal

NULL: Final = Raw(b"null")
encode: Final = msgspec.json.Encoder().encode
AnyReset = EpisodeReset | BatchReset


class Caller(msgspec.Struct, frozen=True):
    """Which agent acts: by its grant, the name that it was given, and the tool that it uses."""

    grant: str
    agent: str
    tool: str


class StepContext(msgspec.Struct, frozen=True):
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


class ResponseBuilder(ABC):
    """Says what happened, to the client and to the record; `extended` is what a client that said hello understands."""

    def __init__(self, pipeline: Pipeline, *, extended: bool) -> None:
        self._pipeline = pipeline or None
        self._extended = extended

    @abstractmethod
    def build_reset(self, outcome: Any, order: ResetRequest, context: StepContext) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a reset."""

    @abstractmethod
    def build_step(self, outcome: Any, action: bytes, context: StepContext) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a step."""

    def restore_pipeline(self, carried: dict[str, Any]) -> None:
        """Have the transforms remember what they carried over into an episode on record."""
        if self._pipeline is not None:
            self._pipeline.restore(carried)

    def add_head(self, data: bytes, head: str | None) -> bytes:
        """Return the data of a reset's reply with the record's head in it, if there is one and the client knows of it."""
        return data if head is None or not self._extended else b'%b,"head":%b}' % (data[:-1], encode(head))

    def _begin_rewards(self, outcome: Any) -> Raw:
        """Begin an episode of rewards; return what the transforms carry over from earlier ones."""
        if self._pipeline is None:
            return NULL
        carried = Raw(encode(self._pipeline.snapshot()))
        self._pipeline.begin(self._make_moment(outcome))
        return carried

    @abstractmethod
    def _make_moment(self, outcome: Any) -> Moment: ...


class SingleResponseBuilder(ResponseBuilder):
    """For a session of one environment."""

    def build_reset(self, outcome: EnvOutcome, order: ResetRequest, context: StepContext) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a reset."""
        event = EpisodeReset(
            session=context.session,
            at=context.at,
            request_id=context.request_id,
            epoch=context.epoch,
            episode_id=context.episode_id,
            seed=order.seed if isinstance(order.seed, int) else None,
            options=NULL if order.options is None else Raw(encode(order.options)),
            observation=Raw(outcome.observation),
            metadata=Raw(outcome.metadata),
            pipeline=self._begin_rewards(outcome),
            nth=context.nth,
            scene=Raw(outcome.scene),
        )
        return self._encode_reply(outcome, outcome.reward, context), event

    def build_step(self, outcome: EnvOutcome, action: bytes, context: StepContext) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a step."""
        reward, parts = outcome.reward, dict[str, float]()
        if self._pipeline is not None and reward is not None:
            rewarded = self._pipeline.apply(self._make_moment(outcome))
            reward = float(rewarded.rewards[0])
            parts = {name: float(part[0]) for name, part in rewarded.parts.items()}
        caller = context.caller
        event = EpisodeStepped(
            session=context.session,
            principal="control" if caller is None else "agent",
            at=context.at,
            request_id=context.request_id,
            epoch=context.epoch,
            step=context.step,
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
        return self._encode_reply(outcome, reward, context), event

    def _make_moment(self, outcome: EnvOutcome) -> Moment:
        return Moment(
            rewards=np.array([outcome.reward or 0.0]),
            terminations=np.array([outcome.terminated]),
            truncations=np.array([outcome.truncated]),
            raw_observation=outcome.observation,
            raw_metadata=outcome.metadata,
        )

    def _encode_reply(self, outcome: EnvOutcome, reward: float | None, context: StepContext) -> bytes:
        seen = ObservationReply(
            Raw(outcome.observation),
            reward,
            outcome.terminated or outcome.truncated,
            UNSET if outcome.metadata == EMPTY_OBJECT else Raw(outcome.metadata),
        )
        if self._extended:
            seen.terminated = outcome.terminated
            seen.truncated = outcome.truncated
            seen.step = context.step
            seen.episode_id = context.episode_id
        return encode(seen)


class BatchResponseBuilder(ResponseBuilder):
    """For a session of many, whose client has always said hello."""

    def __init__(self, pipeline: Pipeline, encoding: Encoding) -> None:
        super().__init__(pipeline, extended=True)
        self._encoding = encoding

    def build_reset(self, outcome: BatchOutcome, order: ResetRequest, context: StepContext) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a reset."""
        event = BatchReset(
            session=context.session,
            at=context.at,
            request_id=context.request_id,
            epoch=context.epoch,
            episode_id=context.episode_id,
            seed=None if order.seed is None else order.seed if isinstance(order.seed, int) else list(order.seed),
            options=NULL if order.options is None else Raw(encode(order.options)),
            mask=NULL if order.mask is None else Raw(encode(order.mask)),
            observations=Raw(outcome.observations),
            infos=Raw(outcome.infos),
            pipeline=self._begin_rewards(outcome),
            nth=context.nth,
        )
        return self._encode_reply(outcome, context), event

    def build_step(self, outcome: BatchOutcome, action: bytes, context: StepContext) -> tuple[bytes, Event]:
        """Return the reply's data and the event of a step."""
        rewards = raw_rewards = self._encode_array(outcome.rewards)
        parts: dict[str, Raw] = {}
        if self._pipeline is not None:
            rewarded = self._pipeline.apply(self._make_moment(outcome))
            rewards = self._encode_array(rewarded.rewards)
            parts = {name: self._encode_array(part) for name, part in rewarded.parts.items()}
        event = BatchStepped(
            session=context.session,
            at=context.at,
            request_id=context.request_id,
            epoch=context.epoch,
            step=context.step,
            actions=Raw(action),
            observations=Raw(outcome.observations),
            infos=Raw(outcome.infos),
            raw_rewards=raw_rewards,
            rewards=rewards,
            parts=parts,
            terminations=self._encode_array(outcome.terminations),
            truncations=self._encode_array(outcome.truncations),
        )
        return self._encode_reply(outcome, context, event), event

    def _make_moment(self, outcome: BatchOutcome) -> Moment:
        none = np.zeros(len(outcome.begins if outcome.begins is not None else ()), np.bool_)
        return Moment(
            rewards=np.zeros(len(none)) if outcome.rewards is None else outcome.rewards,
            terminations=none if outcome.terminations is None else outcome.terminations,
            truncations=none if outcome.truncations is None else outcome.truncations,
            raw_observation=outcome.observations,
            raw_metadata=outcome.infos,
            begins=outcome.begins,
        )

    def _encode_reply(self, outcome: BatchOutcome, context: StepContext, stepped: BatchStepped | None = None) -> bytes:
        reply = BatchReply(Raw(outcome.observations), context.step, episode_id=context.episode_id)
        if stepped is not None:
            reply.rewards, reply.terminations = stepped.rewards, stepped.terminations
            reply.truncations = stepped.truncations
        if outcome.infos != EMPTY_OBJECT:
            reply.infos = Raw(outcome.infos)
        return encode(reply)

    def _encode_array(self, array: NDArray[Any] | None) -> Raw:
        if array is None:
            return NULL
        packed = self._encoding.packed
        return Raw(encode(pack_array(array, self._encoding.compress) if packed else array_to_lists(array)))


def make_failed_event(problem: Problem, request: str, context: StepContext, action: bytes) -> Failed:
    """Return the statement that a request was refused, or failed, where the session stood."""
    return Failed(
        session=context.session,
        at=context.at,
        principal="control" if context.caller is None else "agent",
        request_id=context.request_id,
        epoch=context.epoch,
        step=context.step,
        code=problem.code,
        request=request,
        clause=None if problem.clause is UNSET else problem.clause,
        incident=None if problem.incident is UNSET else problem.incident,
        lost=problem.lost is True,
        action=Raw(action),
        grant=None if context.caller is None else context.caller.grant,
    )


def parse_reset(reset: Reset, episode_id: str) -> ResetRequest:
    """Return what a request asks for, or refuse what is no options or no mask; `episode_id` is for one that names none."""
    try:
        options = msgspec.json.decode(reset.options, type=dict | None)
        mask = msgspec.json.decode(reset.mask, type=list[bool] | None)
    except msgspec.DecodeError as problem:
        raise make_refusal(Code.VALIDATION_ERROR, f"not a reset: {problem}", expected="options and a mask") from None
    return ResetRequest(reset.seed, episode_id if reset.episode_id is None else reset.episode_id, options or None, mask)


def reset_from_event(event: AnyReset) -> ResetRequest:
    """Return what a reset on record had asked for."""
    seed: Any = event.seed  # a batch's seeds came from a request, where none of them is None
    mask = msgspec.json.decode(event.mask) if isinstance(event, BatchReset) else None
    return ResetRequest(seed, event.episode_id, msgspec.json.decode(event.options), mask)
