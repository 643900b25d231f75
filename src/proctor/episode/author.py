"""Whole packets from a few words: what the caller says, and a policy's defaults for all the rest.

Rule 1: every method returns a packet that is complete and valid, or raises a ValidationError that names the field.
Rule 2: an author writes what it is told, in any order: whether it is legal is the judge's to say.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack

from msgspec.structs import replace

from proctor.episode.packets import enums, fields
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.packets.writer import PacketFields, PacketWriter, encode_raw, encode_values, parse_word
from proctor.errors import ValidationError

_Payload = TypeVar("_Payload")

_CHECKED: Final = fields.ConstraintsSatisfied(constitutional_check=True, budget_check=True, tier_check=True)
_FAILED: Final = fields.ErrorDetails(error_code="failed", error_message="the task failed")
_UNDERSTOOD: Final = {"understood": True}


class Author(PacketWriter):
    """Writes the packets of one episode.

    Ids and times are counted (`PacketWriter`). Every method takes what a packet can say besides its payload: `layer`, `at`,
    `packet_id`, `previous`, `campaign_id`, the sections of the envelope (`intent`, `stakes`, `quality`, `budgets`,
    `epistemics`, `evidence`, `routing`) and `notes` (keys that begin with an underscore). `evidence` may be the packets
    that it rests on. A payload with rarer fields goes whole into `packet`.

    Example:
        >>> from datetime import UTC, datetime
        >>> author = Author("corr_demo", at=datetime(2025, 1, 1, tzinfo=UTC))
        >>> seen = author.observation({"temperature": 21})
        >>> known = author.belief({"warm": True}, evidence=[seen])
        >>> decided = author.decision("ACT", "ask the second thermometer too")
        >>> asked = author.directive("thermometer")
        >>> told = author.result(asked, data={"temperature": 22})
        >>> learned = author.belief({"warm": True}, evidence=[told])
        >>> closed = author.record("close")
        >>> learned.header.packet_id, learned.header.created_at.second
        ('pkt_demo_6', 5)
    """

    _decision_id: str | None = None

    def observation(
        self,
        data: Mapping[str, object],
        *,
        type: str = "tool_output",  # noqa: A002  # the packet's own word
        tool: str | None = None,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.ObservationPayload]:
        """Return a packet that says what was seen; `type="user_input"` is what a human said."""
        payload = fields.ObservationPayload(
            observation_type=parse_word(enums.ObservationType, type, "/payload/observation_type"),
            data=encode_values(data, "/payload/data"),
            source_tool=tool,
        )
        return self.packet(payload, **said)

    def belief(
        self,
        changes: Mapping[str, object] | Iterable[fields.BeliefChange] = _UNDERSTOOD,
        *,
        domain: str = "world",
        type: str = "new_belief",  # noqa: A002  # the packet's own word
        integrates: Iterable[AnyPacket | str] | None = None,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.BeliefUpdate]:
        """Return a packet that says what is believed now; unless said, it integrates the packets that are evidence."""
        grounds = said.get("evidence", ())
        if not isinstance(grounds, fields.Evidence):
            # Read twice: here, and for the envelope.
            said["evidence"] = grounds = list(grounds)
        if integrates is None:
            integrates = (
                () if isinstance(grounds, fields.Evidence) else [each for each in grounds if isinstance(each, Packet)]
            )
        if isinstance(changes, Mapping):
            # New values in one domain, with nothing believed before.
            changes = [
                fields.BeliefChange(
                    domain, key, encode_raw(value, f"/payload/belief_changes/{index}/new_value"), fields.NULL
                )
                for index, (key, value) in enumerate(changes.items())
            ]
        payload = fields.BeliefUpdate(
            update_type=parse_word(enums.UpdateType, type, "/payload/update_type"),
            belief_changes=list(changes),
            evidence_integration=[_packet_id(packet) for packet in integrates] or None,
        )
        return self.packet(payload, **said)

    def decision(
        self,
        outcome: str,
        summary: str | None = None,
        *,
        constraints: fields.ConstraintsSatisfied = _CHECKED,
        assumptions: Mapping[str, bool] | None = None,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.Decision]:
        """Return a packet that says what was decided; `assumptions` bear the load, and say whether they are verified."""
        payload = fields.Decision(
            decision_outcome=parse_word(enums.DecisionOutcome, outcome, "/payload/decision_outcome"),
            decision_summary=f"decided: {outcome}" if summary is None else summary,
            constraints_satisfied=constraints,
            load_bearing_assumptions=None
            if assumptions is None
            else [fields.LoadBearingAssumption(*item) for item in assumptions.items()],
        )
        packet = self.packet(payload, **said)
        self._decision_id = packet.header.packet_id
        return packet

    def plan(
        self,
        targets: Iterable[str | fields.VerificationTarget] = ("what was believed still holds",),
        *,
        decision: Packet[fields.Decision] | str | None = None,
        summary: str = "verify before acting",
        seconds: int = 60,
        tool_calls: int = 3,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.VerificationPlan]:
        """Return a packet that says what will be verified, for `decision` or else the latest one of this author."""
        trigger = self._decision_id if decision is None else _packet_id(decision)
        if trigger is None:
            raise ValidationError("/payload/triggering_decision_id is not known", expected="a decision before the plan")
        payload = fields.VerificationPlan(
            plan_id=self.next_id("plan"),
            triggering_decision_id=trigger,
            plan_summary=summary,
            targets=[
                each
                if isinstance(each, fields.VerificationTarget)
                else fields.VerificationTarget(
                    target_id=f"target_{number}",
                    description=f"verify: {each}",
                    assumption_text=each,
                    verification_method="read it again",
                    success_criteria="it is seen again",
                )
                for number, each in enumerate(targets, 1)
            ],
            max_verification_time_seconds=seconds,
            max_tool_calls=tool_calls,
        )
        return self.packet(payload, **said)

    def token(
        self,
        tool_ids: Iterable[str] | str,
        *,
        operations: Iterable[str] = ("write",),
        uses: int = 1,
        used: int = 0,
        expiry: datetime | None = None,
        issuer: fields.Layer = 5,
        token_id: str | None = None,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.Token]:
        """Return a packet that permits `operations` with `tool_ids`, `uses` times; it lives as long as the policy says."""
        if expiry is None:
            issued = said.get("at", self.now)
            try:
                expiry = issued + self.policy.token_life
            except OverflowError as problem:
                raise ValidationError("/payload/expiry is after the end of time", found=issued) from problem
        payload = fields.Token(
            token_id=self.next_id("token") if token_id is None else token_id,
            authorized_scope=fields.AuthorizedScope(
                tool_ids=[tool_ids] if isinstance(tool_ids, str) else list(tool_ids),
                operation_types=[
                    parse_word(enums.OperationType, operation, f"/payload/authorized_scope/operation_types/{index}")
                    for index, operation in enumerate(operations)
                ],
            ),
            expiry=expiry,
            max_usage_count=uses,
            issuer_layer=issuer,
            usage_count=used,
        )
        return self.packet(payload, **said)

    def revocation(self, token: Packet[fields.Token], **said: Unpack[PacketFields]) -> Packet[fields.Token]:
        """Return a packet by which Integrity takes `token` back."""
        payload = _require_payload(fields.Token, token, "/payload/token_id")
        said.setdefault("layer", "Integrity")
        return self.packet(replace(payload, revoked=True), **said)

    def directive(
        self,
        tool_id: str | None,
        *,
        safety: str | None = "READ",
        token: Packet[fields.Token] | str | None = None,
        task_type: str | None = None,
        method: str = "tool",
        params: Mapping[str, object] | None = None,
        timeout: int | None = None,
        task_id: str | None = None,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.Directive]:
        """Return a packet that gives a task out; `safety=None` states no class, and `task_type` follows the class."""
        if task_type is None:
            task_type = (
                enums.TaskType.TOOL_READ if safety in (None, enums.SafetyClass.READ) else enums.TaskType.TOOL_WRITE
            )
        payload = fields.Directive(
            task_id=self.next_id("task") if task_id is None else task_id,
            task_type=parse_word(enums.TaskType, task_type, "/payload/task_type"),
            execution_method=fields.ExecutionMethod(
                method=parse_word(enums.MethodKind, method, "/payload/execution_method/method"),
                tool_id=tool_id,
                tool_params=None if params is None else encode_values(params, "/payload/execution_method/tool_params"),
            ),
            tool_safety_class=None
            if safety is None
            else parse_word(enums.SafetyClass, safety, "/payload/tool_safety_class"),
            authorization_token_id=None if token is None else _token_id(token, "/payload/authorization_token_id"),
            timeout_seconds=timeout,
        )
        return self.packet(payload, **said)

    def result(
        self,
        directive: Packet[fields.Directive],
        status: str = "SUCCESS",
        *,
        data: object = None,
        error: fields.ErrorDetails | None = None,
        cost: fields.ExecutionMetadata | None = None,
        observation: AnyPacket | str | None = None,
        **said: Unpack[PacketFields],
    ) -> Packet[fields.TaskResult]:
        """Return a packet that says how the task of `directive` ended, and at what `cost`."""
        task = _require_payload(fields.Directive, directive, "/payload/task_id")
        result_status = parse_word(enums.ResultStatus, status, "/payload/result_status")
        payload = fields.TaskResult(
            task_id=task.task_id,
            directive_packet_id=directive.header.packet_id,
            result_status=result_status,
            result_data=encode_raw(data, "/payload/result_data"),
            error_details=_FAILED if error is None and result_status is enums.ResultStatus.FAILURE else error,
            execution_metadata=cost,
            observation_packet_id=None if observation is None else _packet_id(observation),
        )
        return self.packet(payload, **said)

    def escalation(
        self,
        options: Iterable[str | fields.EscalationOption] = ("go on", "stop"),
        *,
        gaps: Iterable[str | fields.EvidenceGap] = ("what a human would choose",),
        recommended: str = "choose one of the options",
        rationale: str = "it is not the author's to choose",
        trigger: str = "user_override_required",
        **said: Unpack[PacketFields],
    ) -> Packet[fields.Escalation]:
        """Return a packet that asks a human to choose one of two or three `options`."""
        payload = fields.Escalation(
            escalation_trigger=parse_word(enums.EscalationTrigger, trigger, "/payload/escalation_trigger"),
            top_options=[
                each
                if isinstance(each, fields.EscalationOption)
                else fields.EscalationOption(f"option_{number}", each, ["it is possible"], ["it is not certain"])
                for number, each in enumerate(options, 1)
            ],
            evidence_gaps=[
                each if isinstance(each, fields.EvidenceGap) else fields.EvidenceGap(each, "the choice may be wrong")
                for each in gaps
            ],
            recommended_next_step=fields.RecommendedStep(step=recommended, rationale=rationale),
            blocking_decision_packet_id=self._decision_id,
        )
        return self.packet(payload, **said)

    def alert(
        self,
        severity: str,
        summary: str = "something is wrong",
        *,
        type: str = "anomaly",  # noqa: A002  # the packet's own word
        revokes: Iterable[Packet[fields.Token] | str] = (),
        **said: Unpack[PacketFields],
    ) -> Packet[fields.Alert]:
        """Return a packet about the machine itself; CRITICAL halts the episode, `revokes` takes tokens back."""
        payload = fields.Alert(
            alert_id=self.next_id("alert"),
            alert_type=type,
            severity=parse_word(enums.Severity, severity, "/payload/severity"),
            summary=summary,
            detected_at=said.get("at", self.now),
            detection_method="stated by the author",
            revoked_token_ids=[_token_id(token, "/payload/revoked_token_ids") for token in revokes] or None,
        )
        return self.packet(payload, **said)

    def clear(self, summary: str = "it is safe to go on", **said: Unpack[PacketFields]) -> Packet[fields.Alert]:
        """Return the alert that lifts safe mode."""
        return self.alert("INFO", summary, type=enums.CLEAR, **said)


def _packet_id(packet: AnyPacket | str) -> str:
    return packet.header.packet_id if isinstance(packet, Packet) else packet


def _require_payload(payload: type[_Payload], packet: Any, pointer: str) -> _Payload:
    found = packet.payload if isinstance(packet, Packet) else packet
    if not isinstance(found, payload):
        expected = f"the packet of a {payload.__name__}"
        raise ValidationError(f"{pointer} is not known", found=type(found).__name__, expected=expected)
    return found


def _token_id(token: Packet[fields.Token] | str, pointer: str) -> str:
    return token if isinstance(token, str) else _require_payload(fields.Token, token, pointer).token_id
