"""Governance of one server: its policy, the governors of its episodes, and its operator, who reads, answers, approves, alerts, clears, revokes.

Rule 1: an operator never resets and never steps. What it does is a packet or a record of an episode, judged like any other.
Rule 2: an act is one line, judged at once, whatever call of an agent runs; who waits for it is woken.
Rule 3: an act names its episode by session and epoch, and an answer its question; it never reaches another one.
Rule 4: what cannot be done is a `RequestRefused` with a code; what the judge refuses is an answer (`Done`).
Rule 5: an operator sees a question once it is on record: a crash never leaves an answer to what nobody asked. Where a crash can
    take a question from the record again (durability), no other one ever gets its id.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from proctor.contracts.tools import Tool
from proctor.episode.packets.enums import CLEAR, Severity
from proctor.episode.packets.fields import Alert, Record
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import parse_word
from proctor.errors import ValidationError
from proctor.models.control import Code
from proctor.models.events import EpisodeClosed, PacketJudged
from proctor.models.operator import Choice, Done, GovernedSession, InEpisode, JudgedPage, NamedQuestion, Waiting
from proctor.models.wire import PLAIN
from proctor.server.governed.episode_memory import TokenDenial, TokenRequest
from proctor.server.governed.governance_tools import GOVERNANCE_TOOL_NAMES
from proctor.server.governed.governor import Governor, Registry
from proctor.server.governed.packet_builders import token_packet
from proctor.server.governed.packet_stream import OPERATOR, PacketLimits, PacketStream, StreamSettings
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.runtime.results import RequestError, make_refusal, refusal_from_error
from proctor.server.sessions.session import Session
from proctor.server.sessions.tool_results import encode_first_observation

MOST_ROWS: Final = 1000
"""Of one answer to `watch`."""
LONGEST_WAIT: Final = 60.0
METHOD: Final = "an operator's own judgment"


class Operator:
    """What an operator can do; `revoke_grant` and `agents_of` are set by whoever knows the grants."""

    def __init__(self, registry: Registry, settings: StreamSettings) -> None:
        self._registry = registry
        self._settings = settings
        self.revoke_grant: Callable[[Governor, str], Awaitable[bool]] | None = None
        """Takes a grant of the governor's session back; says whether it was live."""
        self.agents_of: Callable[[Governor], dict[str, str]] = lambda _: {}
        """What the agents of the governor's episode are called, by their grants."""

    def pending(self) -> list[Waiting]:
        """Return what waits for an operator, the oldest first."""
        found = []
        for governor in self._registry:
            waiting = list_waiting(governor.stream)
            agents = self.agents_of(governor) if waiting else {}
            found += [replace(each, agent=agents.get(each.grant or "", "")) for each in waiting]
        return sorted(found, key=lambda waiting: waiting.since)

    def sessions(self) -> list[GovernedSession]:
        """Return how every governed episode stands that runs, in the order of their beginnings."""
        found = []
        for each in self._registry:
            agents = ", ".join(dict.fromkeys(filter(None, self.agents_of(each).values())))
            found.append(replace(each.describe(len(list_waiting(each.stream))), agent=agents))
        return found

    async def watch(self, after: int = 0, wait_seconds: float = 20.0) -> JudgedPage:
        """Return the lines after row `after` (each a JudgedRow), as soon as there are some or the wait is over.

        Who has seen more rows than there are has seen another run of the server, and is told at once.
        """
        rows = self._settings.rows
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(wait_seconds, 0.0), LONGEST_WAIT)
        while True:
            page = rows.after(after, MOST_ROWS)
            left = deadline - loop.time()
            if page.rows or page.missed or left <= 0 or after > rows.last:
                return JudgedPage([Raw(row) for row in page.rows], rows.last, page.missed, self._settings.boot)
            await rows.wait_for_change(left)

    async def answer(self, asked: NamedQuestion, *, choice: str | None = None, text: str = "") -> Done:
        """Answer an escalation, by the id of one of its options, in words, or both."""
        if choice is None and not text:
            raise make_refusal(Code.VALIDATION_ERROR, "an answer says something", expected="a choice, a text, or both")
        stream = self._find_asker(asked)
        packet = stream.question
        if packet is None or packet.header.packet_id != asked.id:
            raise make_refusal(Code.VALIDATION_ERROR, "this is no escalation", expected="approve or deny, for a token")
        ids = [option.option_id for option in packet.payload.top_options]
        if choice is not None and choice not in ids:
            raise make_refusal(Code.VALIDATION_ERROR, "there is no such option", expected=f"one of {', '.join(ids)}")
        said: dict[str, object] = {"choice": choice, "text": text, "escalation": asked.id}
        return await _submit(stream, stream.record("user_input", said, "operator"), packet.compliance.intent.summary)

    async def approve(
        self, asked: NamedQuestion, *, uses: int | None = None, life_seconds: float | None = None, text: str = ""
    ) -> Done:
        """Issue the token that was asked for; `uses` and `life_seconds` may make it smaller than that."""
        stream = self._find_asker(asked)
        request = _find_request(stream, asked.id)
        question = _describe_request(stream, request)
        limits = stream.policy.tokens
        count = request.uses if uses is None else uses
        life = limits.life_seconds if life_seconds is None else life_seconds
        if count > limits.max_uses or life > limits.life_seconds:
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "the policy allows no such token",
                expected=f"at most {limits.max_uses} uses and {limits.life_seconds:g} seconds",
            )
        if text:
            request = replace(request, rationale=f"{request.rationale} (approved: {text})")
        try:
            packet = token_packet(stream, request, count, life)
        except ValidationError as problem:
            raise refusal_from_error(problem) from None
        return await _submit(stream, packet, question)

    async def deny(self, asked: NamedQuestion, *, text: str = "") -> Done:
        """Refuse the token that was asked for."""
        stream = self._find_asker(asked)
        question = _describe_request(stream, _find_request(stream, asked.id))
        _check_open(stream)
        await stream.note(TokenDenial(asked.id, text), OPERATOR)
        stream.notifier.notify()
        return _report(stream, question=question)

    async def alert(self, episode: InEpisode, severity: str, summary: str) -> Done:
        """State an IntegrityAlertPacket in the episode; CRITICAL is safe mode, and stops its agents at once."""
        return await _alert(self._find_governor(episode).stream, "operator", severity, summary)

    async def clear(self, episode: InEpisode, summary: str = "") -> Done:
        """Lift the safe mode of the episode; where there is none, that is said."""
        stream = self._find_governor(episode).stream
        if not stream.in_safe_mode:
            return _report(stream, accepted=False, reason="the episode is not in safe mode")
        return await _alert(stream, CLEAR, Severity.INFO, summary or "it is safe to go on")

    async def revoke(self, episode: InEpisode, *, token_id: str | None = None, grant: str | None = None) -> Done:
        """Take a token back, or an agent's grant; exactly one of the two is named."""
        if (token_id is None) == (grant is None):
            raise make_refusal(
                Code.VALIDATION_ERROR, "one thing is revoked at a time", expected="a token_id or a grant"
            )
        governor = self._find_governor(episode)
        stream = governor.stream
        if token_id is None:
            live = self.revoke_grant is not None and await self.revoke_grant(governor, grant or "")
            return _report(stream, accepted=live, reason="" if live else "there is no such grant that lives")
        if token_id not in stream.standing.tokens:
            known = ", ".join(stream.standing.tokens) or "nothing: no token was issued"
            raise make_refusal(Code.VALIDATION_ERROR, "there is no such token", expected=known)
        summary = f"the token {token_id} is taken back"
        return await _alert(stream, "revocation", Severity.WARNING, summary, revoked=[token_id])

    async def approve_budget(
        self,
        episode: InEpisode,
        *,
        token_budget: int = 0,
        tool_call_budget: int = 0,
        time_budget_seconds: int = 0,
        note: str = "",
    ) -> Done:
        """Add to what may be spent in the episode."""
        stream = self._find_governor(episode).stream
        if not token_budget and not tool_call_budget and not time_budget_seconds:
            raise make_refusal(Code.VALIDATION_ERROR, "nothing is added", expected="an amount above 0")
        said: dict[str, object] = {
            "token_budget": token_budget,
            "tool_call_budget": tool_call_budget,
            "time_budget_seconds": time_budget_seconds,
            **({"note": note} if note else {}),
        }
        try:
            record = stream.record("approval", said, "operator")
        except ValidationError as problem:
            raise refusal_from_error(problem) from None
        return await _submit(stream, record)

    def _find_governor(self, episode: InEpisode) -> Governor:
        """Return the governor of the episode that an act names, or refuse: another one runs, or none."""
        found = self._registry.find(episode.session)
        if found is None:
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "there is no such session with a governed episode",
                expected="one that `sessions` lists",
            )
        if found.epoch != episode.epoch:
            raise make_refusal(
                Code.STALE_EPOCH, "this is not the episode that runs in the session", expected=f"epoch {found.epoch}"
            )
        return found

    def _find_asker(self, asked: NamedQuestion) -> PacketStream:
        found = self._registry.find(asked.session)
        if found is None or found.epoch != asked.epoch or not _is_listed(found.stream, asked.id):
            raise make_refusal(
                Code.STALE_QUESTION,
                "this question does not wait: it was answered or withdrawn, or its episode is over",
                expected="one that `pending` lists",
            )
        return found.stream


def list_waiting(stream: PacketStream) -> list[Waiting]:
    """Return what waits for an operator in one episode and is on record."""
    found = []
    asked = stream.question
    if asked is not None and _is_listed(stream, asked.header.packet_id):
        found.append(
            Waiting(
                id=asked.header.packet_id,
                session=stream.session.name,
                epoch=stream.epoch,
                kind="escalation",
                since=asked.header.created_at.timestamp(),
                question=asked.compliance.intent.summary,
                options=[Choice(option.option_id, option.description) for option in asked.payload.top_options],
                packet=Raw(asked.line()),
                grant=stream.memory.asker,
            )
        )
    found += [
        Waiting(
            id=request.id,
            session=stream.session.name,
            epoch=stream.epoch,
            kind="token",
            since=request.since,
            question=_describe_request(stream, request),
            options=[],
            packet=Raw(msgspec.json.encode(request)),
            grant=request.grant,
        )
        for request in stream.memory.requests.values()
        if _is_listed(stream, request.id)
    ]
    return found


def _is_listed(stream: PacketStream, name: str) -> bool:
    return stream.waits(name) and name not in stream.unrecorded


def _describe_request(stream: PacketStream, request: TokenRequest) -> str:
    why = f": {request.rationale}" if request.rationale else ""
    shared = ", by any agent of the episode" if stream.session.spec.card.max_agents > 1 else ""
    return f"{' and '.join(request.operations)} with {', '.join(request.tools)}, {request.uses} times{shared}{why}"


def _find_request(stream: PacketStream, name: str) -> TokenRequest:
    asked = stream.memory.requests.get(name)
    if asked is None:
        raise make_refusal(Code.VALIDATION_ERROR, "this is no request of a token", expected="answer, for an escalation")
    return asked


def _check_open(stream: PacketStream) -> None:
    if stream.closing:
        raise make_refusal(Code.ENDED, "this episode is closed", expected="one that `sessions` lists")


async def _alert(
    stream: PacketStream, kind: str, severity: str, summary: str, *, revoked: list[str] | None = None
) -> Done:
    try:
        payload = Alert(
            alert_id=stream.new_id("alert"),
            alert_type=kind,
            severity=parse_word(Severity, severity, "/payload/severity"),
            summary=summary,
            detected_at=stream.now(),
            detection_method=METHOD,
            revoked_token_ids=revoked,
        )
        packet = stream.packet(payload)
    except ValidationError as problem:
        raise refusal_from_error(problem) from None
    return await _submit(stream, packet)


async def _submit(stream: PacketStream, said: AnyPacket | Record, question: str = "") -> Done:
    """State what an operator says; `question` is what it answers."""
    _check_open(stream)
    verdict = await stream.state(said, OPERATOR)
    stream.notifier.notify()
    done = _report(stream, accepted=verdict.accepted, reason=verdict.reason, question=question)
    done.packet_id, done.rules = verdict.packet_id, list(verdict.rules)
    return done


def _report(stream: PacketStream, *, accepted: bool = True, reason: str = "", question: str = "") -> Done:
    return Done(stream.session.name, stream.epoch, accepted, stream.standing.state, reason=reason, question=question)


class _ResetReply(Struct):
    """The part of a reset's reply that an agent may know."""

    observation: Raw


class Governance:
    """What governs the episodes of one server; `boot` names this run of it, `wall` tells the time, `clock` counts seconds."""

    def __init__(
        self,
        policy: GovernancePolicy,
        *,
        boot: str | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        packet_limits: PacketLimits | None = None,
    ) -> None:
        self.policy: Final = policy
        self.settings: Final = StreamSettings(
            policy=policy,
            boot=secrets.token_hex(8) if boot is None else boot,
            wall=wall,
            clock=clock,
            packet_limits=PacketLimits() if packet_limits is None else packet_limits,
        )
        self.registry: Final = Registry()
        self.operator: Final = Operator(self.registry, self.settings)

    def check(self, tools: Iterable[Tool]) -> None:
        """Raise a ValidationError if an environment with these tools cannot be governed by this policy."""
        self.policy.check(tools, GOVERNANCE_TOOL_NAMES)

    def check_grant(self, session: Session, names: Sequence[str] | None) -> None:
        """Refuse a grant of these tools (None: of all) with which an agent could come to where nothing leads on."""
        if session.spec.num_envs is not None:
            return
        tools = [tool for tool in session.spec.card.tools if names is None or tool.name in names]
        if not self.policy.lets_go_on(tools):
            raise make_refusal(
                Code.VALIDATION_ERROR,
                f"under the policy {self.policy.name} an agent needs a tool that only reads: without one it could not go on",
                expected="such a tool among the tools of the grant",
            )

    async def begin(self, session: Session, reply: bytes) -> None:
        """Govern the episode that a reset has begun; `reply` is the data of the reset's reply. A batch has no agents."""
        if session.spec.num_envs is None:
            plain = session.spec.encoding == PLAIN
            observation = msgspec.json.decode(reply, type=_ResetReply).observation if plain else None
            governor = Governor(session, self.registry, self.settings)
            await governor.begin(encode_first_observation(observation, session.standing))

    def restore_governor(
        self, session: Session, events: Sequence[PacketJudged], closed: EpisodeClosed | None = None
    ) -> Governor:
        """Return the governor of an episode that another run of the server began; nothing is put on record.

        `events` are the PacketJudged of the session's latest episode in order, `closed` is its EpisodeClosed if there is one;
        the session's epoch is set before. Once the resumption is on record, await `Governor.resume`.
        """
        governor = Governor(session, self.registry, self.settings)
        governor.restore(events, closed)
        return governor

    async def sweep(self) -> None:
        """Close the episodes whose environments have ended and whose time to be reviewed has passed."""
        for governor in self.registry:
            turn = governor.session.turn
            if not turn.locked():  # whoever has it will be done before the next look
                async with turn:
                    # What cannot be recorded has lost that one episode; the others have their turn all the same.
                    with suppress(RequestError):
                        await governor.wrap_up()
