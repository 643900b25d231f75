"""A call of an environment's tool in a governed episode: a directive that was accepted, and what comes of it.

Rule 1: nothing runs before its directive is accepted and on record, and nothing runs once safe mode has voided it, also if
    that was lifted since.
Rule 2: every directive that ran gets one result, and what was seen becomes an observation where the table has room for one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

from proctor.contracts.tools import ToolSafety
from proctor.episode.kinds import ResultStatus
from proctor.episode.packets import AnyPacket
from proctor.episode.payloads import ErrorDetails
from proctor.episode.states import Position
from proctor.errors import ValidationError
from proctor.models.control import Problem
from proctor.server.governed import wording
from proctor.server.governed.judging import Judging
from proctor.server.governed.replies import Teller, Tools
from proctor.server.governed.stream import PROCTOR, Bar, Stream, Voice
from proctor.server.governed.tokens import token_for
from proctor.server.telling import Told, refusal

MOST_STATED: Final = 16 * 1024
"""Bytes of an observation that a packet repeats; a longer one is named by its digest, and is on record with its step."""
DIRECTIVE: Final = "_directive"
CUT_SHORT: Final = "CUT_SHORT"
"""The error of a call that was not carried out to its end, because its agent or the orchestrator did not want that."""
OBSERVED_IN: Final = (Position.EXECUTE, Position.VERIFY)


@dataclass(frozen=True, slots=True)
class Errand:
    """A directive that was accepted: what is to be carried out, for whom, and since when."""

    tool: str
    arguments: bytes
    packet: AnyPacket
    voice: Voice
    teller: Teller
    began: float
    submitted: bool = False
    """Whether the agent wrote the directive itself."""


class Errands:
    """What an environment's tools do in one episode; `clock` counts seconds."""

    def __init__(self, stream: Stream, judging: Judging, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._judging = judging
        self._clock = clock

    async def directed(self, tool: str, arguments: bytes, voice: Voice, tools: Tools) -> Errand | Told:
        """Return the errand that a call is, or what the agent is told if it may not be."""
        teller = Teller(self._stream, tools)
        try:
            params = msgspec.json.decode(arguments, type=dict[str, Any])
            packet = self._directive(tool, tools[tool], params)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await self._judging.barred(tool, (Bar("SCHEMA", "the arguments are no JSON object"),), voice, teller)
        except ValidationError as problem:
            return await self._judging.barred(tool, (Bar("SCHEMA", problem.message),), voice, teller)
        return await self.accepted(packet, voice, teller)

    async def accepted(
        self, packet: AnyPacket, voice: Voice, teller: Teller, *, submitted: bool = False
    ) -> Errand | Told:
        """Return the errand that a directive is, or what the agent is told if it is refused."""
        method = packet.payload.execution_method
        told = await self._judging.judged(packet, voice, teller, tried=method.tool_id)
        if isinstance(told, Told):
            return told
        arguments = msgspec.json.encode(method.tool_params or {})
        errand = Errand(method.tool_id, arguments, packet, voice, teller, self._clock(), submitted)
        if self.goes_on(errand):
            return errand
        # An operator was quicker than the recorder: nothing has run.
        await self._stream.safe()
        return teller.stopped()

    def goes_on(self, errand: Errand) -> bool:
        """Return whether the directive still waits for its result."""
        return errand.packet.header.packet_id in self._stream.standing.tasks

    async def done(self, errand: Errand, told: Told, *, inside: bool, cut: str = "") -> Told:
        """State that an errand was carried out, or cut short as `cut` says; return what the agent is told of it.

        The result of a directive that safe mode has voided is refused by the judge, and on record as such.
        """
        status, error = ResultStatus.SUCCESS, None
        if cut:
            status, error = ResultStatus.CANCELLED, ErrorDetails(CUT_SHORT, cut)
        if not await self._resulted(errand, status, error):
            return errand.teller.stopped(f"{told.text} ")
        if self._stream.position in OBSERVED_IN:
            seen = wording.observation(
                self._stream, data_of(told.structured), errand.tool, {DIRECTIVE: errand.packet.header.packet_id}
            )
            await self._stream.declare(seen)
        return (
            errand.teller.result(told, errand.packet) if errand.submitted else errand.teller.beside(told, inside=inside)
        )

    async def failed(self, errand: Errand, problem: Problem) -> Told:
        """State that an errand was not carried out to its end; return what the agent is told."""
        error = ErrorDetails(str(problem.code), problem.message, is_transient=False, retry_recommended=False)
        if not await self._resulted(errand, ResultStatus.FAILURE, error):
            return errand.teller.stopped(f"{problem.message}. ")
        told = refusal(problem)
        return Told(f"{told.text} {errand.teller.place()}", told.structured, is_error=True)

    async def cancel(self) -> None:
        """Close the directives whose end nobody knows, after a restart of the server."""
        for task in list(self._stream.standing.tasks.values()):
            await self._stream.declare(wording.cancellation(self._stream, task.packet_id, task.task_id))

    def _directive(self, tool: str, safety: ToolSafety, params: dict[str, Any]) -> AnyPacket:
        named = token_for(tool, safety, self._stream.standing, self._stream.now())
        return wording.directive(self._stream, tool, safety, params, named)

    async def _resulted(self, errand: Errand, status: ResultStatus, error: ErrorDetails | None = None) -> bool:
        """State how an errand ended; return whether its directive stood until then."""
        took = round(max(0.0, self._clock() - errand.began) * 1000, 3)
        result = wording.result(self._stream, errand.packet, status, took, error)
        if self.goes_on(errand):
            await self._stream.declare(result)
            return True
        await self._stream.state(result, PROCTOR)
        return False


def data_of(structured: bytes) -> dict[str, Any]:
    """Return what a tool answered as the content of an observation; what is long is named by its digest."""
    if len(structured) > MOST_STATED:
        return {"sha256": sha256(structured).hexdigest(), "bytes": len(structured)}
    data: dict[str, Any] = msgspec.json.decode(structured, type=dict[str, Any])
    return data or {"answer": {}}
