"""Streams of packets, plausible and not: a fast seeded walk over many episodes, and lines that were damaged.

Rule 1: a walk mostly says what is legal now, so that deep places are reached; what it takes for wrong it says as well,
    and then stays where it was. It guesses, it does not judge: nothing here is a verdict.
Rule 2: everything is drawn from one `random.Random`, so that a seed names a stream.
"""

import copy
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any, NamedTuple

import msgspec

Wire = dict[str, Any]
Commit = Callable[[], None]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# Almost the last moment that can be written: 9999-12-30.
LAST = float((datetime(9999, 12, 30, tzinfo=UTC) - BEGIN).total_seconds())
EAST = timezone(timedelta(hours=5, minutes=30))
TOOLS = ("search", "editor", "shell")


INTENT: Wire = {"summary": "Settle the invoice of the supplier.", "scope": "accounts payable, March"}
CALM: Wire = {
    "impact": "LOW",
    "irreversibility": "REVERSIBLE",
    "uncertainty": "LOW",
    "adversariality": "BENIGN",
    "stakes_level": "LOW",
}
MEDIUM: Wire = {**CALM, "impact": "MEDIUM", "stakes_level": "MEDIUM"}
UNSURE: Wire = {**CALM, "impact": "MEDIUM", "uncertainty": "HIGH", "stakes_level": "MEDIUM"}
GRAVE: Wire = {**CALM, "impact": "HIGH", "irreversibility": "PARTIAL", "stakes_level": "HIGH"}
DIRE: Wire = {**CALM, "impact": "CRITICAL", "irreversibility": "IRREVERSIBLE", "stakes_level": "CRITICAL"}
STAKES = (CALM, MEDIUM, UNSURE, GRAVE, DIRE)
DONE: Wire = {"text": "The invoice is paid once.", "checks": ["the ledger shows one payment"]}
PAR: Wire = {
    "quality_tier": "PAR",
    "satisficing_mode": True,
    "definition_of_done": DONE,
    "verification_requirement": "OPTIONAL",
}
SUPERB: Wire = {**PAR, "quality_tier": "SUPERB"}
SUBPAR: Wire = {**PAR, "quality_tier": "SUBPAR"}
RISK: Wire = {"envelope": "small", "max_loss": 10}
OBSERVED: Wire = {
    "status": "OBSERVED",
    "confidence": 0.9,
    "calibration_note": "seen directly",
    "freshness_class": "OPERATIONAL",
    "assumptions": [],
}
DERIVED: Wire = {**OBSERVED, "status": "DERIVED"}
GUESSED: Wire = {**OBSERVED, "status": "INFERRED", "freshness_class": "REALTIME"}
OLD_GUESS: Wire = {**OBSERVED, "status": "HYPOTHESIZED", "freshness_class": "ARCHIVAL"}
NO_EVIDENCE: Wire = {"evidence_refs": [], "evidence_absent_reason": "nothing was gathered yet"}
TOOLS_OK: Wire = {"task_class": "LOOKUP", "tools_state": "tools_ok"}
TOOLS_PARTIAL: Wire = {"task_class": "VERIFY", "tools_state": "tools_partial"}
TOOLS_DOWN: Wire = {"task_class": "SEARCH", "tools_state": "tools_down"}
CHECKED: Wire = {"constitutional_check": True, "budget_check": True, "tier_check": True}
CHANGES: list[Wire] = [{"domain": "ledger", "key": "balance", "new_value": 12, "prior_value": None}]
TARGET: Wire = {
    "target_id": "t1",
    "description": "the balance",
    "assumption_text": "the balance covers the invoice",
    "verification_method": "ask the ledger",
    "success_criteria": "the two numbers agree",
}
OPTIONS: list[Wire] = [
    {"option_id": "a", "description": "pay", "pros": ["done"], "cons": ["gone"]},
    {"option_id": "b", "description": "wait", "pros": "cheap", "cons": "late"},
]
GAPS: list[Wire] = [{"gap": "who signed", "impact_if_unknown": "it may be forged"}]
STEP: Wire = {"step": "wait", "rationale": "nothing is lost by waiting"}


def budgets(tokens: int = 10_000, calls: int = 50, seconds: int = 3600) -> Wire:
    return {"token_budget": tokens, "tool_call_budget": calls, "time_budget_seconds": seconds, "risk_budget": RISK}


AMPLE = budgets()
ENVELOPE: Wire = {
    "intent": INTENT,
    "stakes": CALM,
    "quality": PAR,
    "budgets": AMPLE,
    "epistemics": OBSERVED,
    "evidence": NO_EVIDENCE,
    "routing": TOOLS_OK,
}


def evidence(*ids: str, kind: str = "tool_output") -> Wire:
    refs = [{"ref_type": kind, "ref_id": one, "timestamp": "2026-01-01T00:00:00Z"} for one in ids]
    return {"evidence_refs": refs}


def packet(kind: str, header: Wire, payload: Wire, **sections: Wire) -> Wire:
    """Return a packet with the calm envelope, but for the sections named."""
    return {"header": {"packet_type": kind, **header}, "mcp": {**ENVELOPE, **sections}, "payload": payload}


def observation(kind: str = "tool_output") -> Wire:
    return {"observation_type": kind, "data": {"balance": 12, "currency": "EUR"}}


def belief(*integrated: str) -> Wire:
    payload: Wire = {"update_type": "revision", "belief_changes": CHANGES}
    return {**payload, "evidence_integration": list(integrated)} if integrated else payload


def decision(outcome: str, **changes: Any) -> Wire:
    return {
        "decision_outcome": outcome,
        "decision_summary": f"{outcome} it is.",
        "constraints_satisfied": CHECKED,
        **changes,
    }


def plan(decision_id: str) -> Wire:
    return {
        "plan_id": "plan-1",
        "triggering_decision_id": decision_id,
        "plan_summary": "ask the ledger",
        "targets": [TARGET],
        "max_verification_time_seconds": 60,
        "max_tool_calls": 3,
    }


def token(token_id: str, expiry: str, *, tools: tuple[str, ...] = TOOLS, **changes: Any) -> Wire:
    return {
        "token_id": token_id,
        "authorized_scope": {"tool_ids": list(tools), "operation_types": ["read", "write"]},
        "expiry": expiry,
        "max_usage_count": 3,
        "issuer_layer": 5,
        **changes,
    }


def directive(task_id: str, task_type: str, *, tool: str | None = "search", method: str = "tool", **more: Any) -> Wire:
    way: Wire = {"method": method} if tool is None else {"method": method, "tool_id": tool}
    return {"task_id": task_id, "task_type": task_type, "execution_method": way, **more}


def result(task_id: str, directive_id: str, status: str = "SUCCESS", **more: Any) -> Wire:
    payload: Wire = {"task_id": task_id, "directive_packet_id": directive_id, "result_status": status, **more}
    return {**payload, "error_details": {"error_code": "E1"}} if status == "FAILURE" else payload


def escalation(**changes: Any) -> Wire:
    return {
        "escalation_trigger": "user_override_required",
        "top_options": OPTIONS,
        "evidence_gaps": GAPS,
        "recommended_next_step": STEP,
        **changes,
    }


def alert(severity: str, at: str, kind: str = "drift", **changes: Any) -> Wire:
    return {
        "alert_id": "alert-1",
        "alert_type": kind,
        "severity": severity,
        "summary": "something drifts",
        "detected_at": at,
        "detection_method": "comparison",
        **changes,
    }


def record(kind: str, correlation_id: str, at: str, by: str = "operator", data: Wire | None = None) -> Wire:
    line: Wire = {"record": kind, "correlation_id": correlation_id, "at": at, "by": by}
    return line if data is None else {**line, "data": data}


class Task(NamedTuple):
    """A directive that waits for its result, as the walk remembers it."""

    packet_id: str
    task_id: str
    by_tool: bool


class Pass(NamedTuple):
    """A token as the walk remembers it."""

    payload: Wire
    expiry: float


class Said(NamedTuple):
    """A line of a stream; `broken` names the rules that a malformed line breaks by its making, None if well-formed."""

    line: bytes
    broken: frozenset[str] | None = None
    correlation_id: str | None = None


NOTHING_VERIFIED = {"planned": False, "read": False, "succeeded": False, "saw": False}


class Walk:
    """One episode on its way: what it has said, and where it thinks it stands."""

    def __init__(self, correlation_id: str, rng: Random, length: int, wrong: float) -> None:
        self.correlation_id = correlation_id
        self.rng = rng
        self.left = length
        self.wrong = wrong
        self.place = "IDLE"
        self.seconds = float(rng.randrange(10_000))
        self.at = self.seconds
        self.count = 0
        self.ids: list[str] = []
        self.lenient = self.initial_beliefs = self.layers_fixed = self.escalates = False
        self.decision_id = f"pkt_{correlation_id[5:]}_0"
        self.tasks: list[Task] = []
        self.tokens: dict[str, Pass] = {}
        self.used: dict[str, int] = {}
        self.planned = self.read = self.succeeded = self.saw = False
        self.evidence: list[str] = []
        self.spent = [0, 0, 0.0]
        self.allowed = [0, 0, 0]
        self.approved = [0, 0, 0]
        self.begun = False
        self.tools_ok = True
        self.commit: Commit | None = None

    # ------------------------------------------------------------------------------------------ saying things

    def stamp(self, seconds: float) -> str:
        moment = BEGIN + timedelta(seconds=min(seconds, LAST))
        return moment.isoformat() if seconds % 7 else moment.astimezone(EAST).isoformat()

    def say(self, kind: str, payload: Wire, layer: int | str = 5, **sections: Wire) -> Wire:
        self.count += 1
        header: Wire = {
            "packet_id": f"pkt_{self.correlation_id[5:]}_{self.count}",
            "created_at": self.stamp(self.at),
            "layer_source": layer,
            "correlation_id": self.correlation_id,
        }
        if self.ids and self.count % 3:
            header["previous_packet_id"] = self.ids[-1]
        return packet(kind, header, payload, **sections)

    def go(self, place: str) -> None:
        """Stand at `place` if what was said is accepted."""
        self.commit = lambda: self._arrive(place)

    def will(self, **changes: Any) -> None:
        """Change these attributes if what was said is accepted."""
        self.commit = lambda: vars(self).update(changes)

    def _arrive(self, place: str) -> None:
        if place == "SAFEMODE" and self.place != place:
            self.halt()
        self.place = place

    def halt(self) -> None:
        self.tasks.clear()
        self.tokens.clear()

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # ------------------------------------------------------------------------------------------ packets by kind

    def observe(self) -> Wire:
        kind = "user_input" if self.chance(0.2) else self.rng.choice(("tool_output", "market_signal"))
        place = self.place if self.place in ("VERIFY", "EXECUTE") else "SENSE"
        status = DERIVED if self.chance(0.15) else OBSERVED
        wire = self.say("ObservationPacket", observation(kind), 6, epistemics=status)

        def commit() -> None:
            self.place = place
            self.saw = self.saw or status is OBSERVED
            self.evidence.append(wire["header"]["packet_id"])

        self.commit = commit
        return wire

    def believe(self) -> Wire:
        target = {
            "SENSE": "MODEL",
            "MODEL": "MODEL",
            "DECIDE_DEFER": "REVIEW",
            "DECIDE_CANCEL": "REVIEW",
            "VERIFY": "MODEL",
            "EXECUTE": "SETTLE",
        }.get(self.place, self.place)
        if self.place == "EXECUTE" and self.tasks:
            return self.conclude()
        if self.place == "VERIFY" and self.evidence:
            last = self.rng.choice(self.evidence)
            wire = (
                self.say("BeliefUpdatePacket", belief(), 3, evidence=evidence(last))
                if self.chance(0.5)
                else self.say("BeliefUpdatePacket", belief(last), 3)
            )
        else:
            wire = self.say(
                "BeliefUpdatePacket", belief(), 3, epistemics=self.rng.choice((OBSERVED, OLD_GUESS, DERIVED))
            )
        complete = self.evidence and self.read and (self.planned or self.lenient) and not self.tasks
        proven = (self.succeeded and self.saw) or not self.tools_ok
        if self.place != "VERIFY" or (complete and proven):
            self.go(target)
        return wire

    def decide(self, outcome: str | None = None) -> Wire:
        if outcome is None:
            outcome = self.rng.choice(
                ("VERIFY_FIRST", "VERIFY_FIRST", "ACT", "ACT", "ACT", "ESCALATE", "DEFER", "CANCEL")
            )
        given = self.budget()
        stakes = self.rng.choice(STAKES) if self.chance(0.2) else CALM
        quality = SUPERB if stakes in (GRAVE, DIRE) else PAR
        wire = self.say("DecisionPacket", decision(outcome), 5, budgets=given, stakes=stakes, quality=quality)
        allowed = [given["token_budget"], given["tool_call_budget"], given["time_budget_seconds"]]
        if outcome == "ACT" and self.overrun(allowed):
            return wire

        place, decision_id = "VERIFY" if outcome == "VERIFY_FIRST" else f"DECIDE_{outcome}", wire["header"]["packet_id"]
        self.will(place=place, decision_id=decision_id, allowed=allowed, evidence=[], **NOTHING_VERIFIED)
        return wire

    def budget(self) -> Wire:
        if self.chance(0.75):
            return AMPLE
        rng = self.rng
        return budgets(rng.choice((0, 100, 1000, 2**52)), rng.choice((0, 1, 2, 5)), rng.choice((0, 5, 60, 10**15)))

    def overrun(self, allowed: list[int]) -> bool:
        tokens, calls, seconds = (own + more for own, more in zip(allowed, self.approved, strict=True))
        return self.spent[0] > tokens or self.spent[1] > calls or self.spent[2] > seconds * 1000

    def present_plan(self) -> Wire:
        self.will(planned=True)
        return self.say("VerificationPlanPacket", plan(self.decision_id), 5)

    def issue(self) -> Wire:
        if self.tokens and self.chance(0.2):
            known = self.rng.choice(list(self.tokens.values()))
            same = {"usage_count": 0, "revoked": False, **known.payload, "rationale": None}
            wire = self.say("ToolAuthorizationToken", same if self.chance(0.3) else known.payload, 5)
            if self.alive(known.payload["token_id"]):
                self.go(self.place if self.place in ("VERIFY", "IDLE") else "AUTHORIZE")
            return wire
        token_id = f"token_{self.count}"
        expiry = self.at + self.rng.choice((2, 30, 600, 100_000))
        changes: Wire = {"max_usage_count": self.rng.choice((1, 2, 3, 10))}
        if changes["max_usage_count"] == 3:
            changes["usage_count"] = 2
        if self.chance(0.1):
            changes["issuer_layer"] = 1
        payload = token(token_id, self.stamp(expiry), **changes)
        wire = self.say("ToolAuthorizationToken", payload, 5)
        place = self.place if self.place in ("VERIFY", "IDLE") else "AUTHORIZE"

        def commit() -> None:
            self.place = place
            self.tokens[token_id] = Pass(payload, expiry)
            self.used[token_id] = changes.get("usage_count", 0)

        self.commit = commit
        return wire

    def alive(self, token_id: str) -> bool:
        known = self.tokens[token_id]
        return self.at < known.expiry and self.used[token_id] < known.payload["max_usage_count"]

    def revoke(self) -> Wire:
        if not self.tokens:
            return self.notice()
        token_id = self.rng.choice(list(self.tokens))
        if self.chance(0.3):
            ids = [token_id, "token_unheard_of"] if self.chance(0.3) else [token_id]
            payload = alert("WARNING", self.stamp(self.at), revoked_token_ids=ids)
            wire = self.say("IntegrityAlertPacket", payload, "Integrity")
        else:
            payload = {**self.tokens[token_id].payload, "revoked": True}
            wire = self.say("ToolAuthorizationToken", payload, "Integrity")

        def commit() -> None:
            del self.tokens[token_id]

        self.commit = commit
        return wire

    def affordable(self) -> bool:
        waiting = sum(task.by_tool for task in self.tasks)
        return self.spent[1] + waiting + 1 <= self.allowed[1] + self.approved[1]

    def act(self) -> Wire:
        """Give out a task if anything is left to spend and to write with; else go the way that remains."""
        writes = self.place == "AUTHORIZE" or (bool(self.tokens) and self.chance(0.4))
        if writes and not any(map(self.alive, self.tokens)) and self.chance(0.8):
            return self.issue() if self.place == "AUTHORIZE" else self.believe()
        if not self.affordable() and self.place == "EXECUTE" and self.chance(0.8):
            return self.believe()
        return self.direct(writes=writes)

    def direct(self, *, writes: bool = False) -> Wire:
        token_id = self.rng.choice(list(self.tokens)) if self.tokens and (writes or self.chance(0.1)) else None
        method = "tool" if self.chance(0.8) else "code"
        more: Wire = {"timeout_seconds": self.rng.choice((1, 10, 10**12))} if self.chance(0.2) else {}
        if token_id is not None:
            more["authorization_token_id"] = token_id
        elif writes:
            more["authorization_token_id"] = "token_unheard_of"
        if writes:
            kind = "tool_write"
            more["tool_safety_class"] = "MIXED" if self.chance(0.2) else "WRITE"
        else:
            kind = self.rng.choice(("tool_read", "verification", "memory_lookup", "computation"))
            if self.chance(0.6):
                more["tool_safety_class"] = "READ"
        task_id = f"task_{self.count % 4}"
        payload = directive(task_id, kind, method=method, tool=self.rng.choice(TOOLS), **more)
        given = budgets(seconds=self.rng.choice((0, 3, 60, 10**15))) if self.chance(0.3) else AMPLE
        wire = self.say("TaskDirectivePacket", payload, 5, budgets=given)
        place = "VERIFY" if self.place == "VERIFY" else "EXECUTE"
        if method == "tool" and not self.affordable():
            return wire
        if (writes or token_id is not None) and (token_id is None or not self.alive(token_id)):
            return wire
        if place == "VERIFY" and not self.planned and not self.lenient:
            return wire

        def commit() -> None:
            self.place = place
            self.read = True
            self.tasks.append(Task(wire["header"]["packet_id"], task_id, method == "tool"))
            if token_id is not None:
                self.used[token_id] += 1

        self.commit = commit
        return wire

    def conclude(self) -> Wire:
        """Give the result of one open task."""
        if not self.tasks:
            return self.act()
        task = self.rng.choice(self.tasks)
        status = self.rng.choice(("FAILURE", "CANCELLED")) if self.chance(0.25) else "SUCCESS"
        wire = self.say("TaskResultPacket", result(task.task_id, task.packet_id, status, **self.metadata()), 6)
        said = wire["payload"].get("execution_metadata", {})
        cost = (
            said.get("tokens_used", 0),
            said.get("tool_calls_used", int(task.by_tool)),
            said.get("execution_time_ms", 0),
        )

        def commit() -> None:
            self.tasks.remove(task)
            self.succeeded = self.succeeded or status == "SUCCESS"
            self.evidence.append(wire["header"]["packet_id"])
            self.spent = [was + more for was, more in zip(self.spent, cost, strict=True)]
            if self.overrun(self.allowed):
                self.exceed()

        self.commit = commit
        return wire

    def metadata(self) -> Wire:
        draw = self.rng.random()
        if draw < 0.5:
            return {}
        if draw < 0.9:
            return {"execution_metadata": {"tokens_used": 40, "tool_calls_used": 1, "execution_time_ms": 250.5}}
        excess: tuple[Wire, ...] = (
            {"tokens_used": 20_000},
            {"tool_calls_used": 51},
            {"execution_time_ms": 3_600_001},
            {"execution_time_ms": 5000},
            {"tokens_used": 100},
            {"execution_time_ms": 1e15},
            {"tokens_used": 2**53 - 1},
        )
        return {"execution_metadata": self.rng.choice(excess)}

    def exceed(self) -> None:
        self.tasks.clear()
        if self.escalates:
            self.place = "ESCALATE_DUE"
        else:
            self.halt()
            self.place = "SAFEMODE"

    def escalate(self) -> Wire:
        wire = self.say("EscalationPacket", escalation(), 5)
        self.go("ESCALATED")
        return wire

    def answer(self) -> Wire:
        self.will(place="DECIDE_AFRESH", spent=[0, 0, 0.0])
        if self.chance(0.5):
            by = self.rng.choice(("operator", "system"))
            return record("user_input", self.correlation_id, self.stamp(self.at), by)
        return self.say("ObservationPacket", observation("user_input"), 1)

    def notice(self) -> Wire:
        severity = self.rng.choice(("INFO", "WARNING", "ERROR"))
        kind = "clear" if self.place != "SAFEMODE" and self.chance(0.2) else "drift"
        wire = self.say("IntegrityAlertPacket", alert(severity, self.stamp(self.at), kind), "Integrity")
        self.go(self.place)
        return wire

    def critical(self) -> Wire:
        if self.chance(0.3):
            wire = record("safemode", self.correlation_id, self.stamp(self.at), data={"reason": "stop"})
        else:
            kind = "clear" if self.chance(0.2) else "drift"
            wire = self.say("IntegrityAlertPacket", alert("CRITICAL", self.stamp(self.at), kind), "Integrity")
        self.go("SAFEMODE")
        return wire

    def clear(self) -> Wire:
        layer = self.rng.choice(("Integrity", 1))
        wire = self.say("IntegrityAlertPacket", alert("INFO", self.stamp(self.at), "clear"), layer)
        self.go("REVIEW")
        return wire

    def clear_from_afar(self) -> Wire:
        """Say "clear" from a layer that may not: a notice at best."""
        return self.say("IntegrityAlertPacket", alert("INFO", self.stamp(self.at), "clear"), 3)

    def queue(self) -> Wire:
        wire = self.say("QueueUpdatePacket", {"length": 3}, 2)
        if self.place != "SAFEMODE":
            self.go(self.place)
        return wire

    def approve(self) -> Wire:
        calls = self.rng.choice((0, 1, 10))
        data = {"token_budget": 100, "tool_call_budget": calls, "note": "go on"} if self.chance(0.8) else None
        by = "system" if self.chance(0.2) else "operator"
        wire = record("approval", self.correlation_id, self.stamp(self.at), by, data)

        if by == "operator" and data is not None:
            self.will(approved=[self.approved[0] + 100, self.approved[1] + calls, self.approved[2]])
        return wire

    def close(self) -> Wire:
        by = "operator" if self.place == "SAFEMODE" else self.rng.choice(("operator", "system"))
        wire = record("close", self.correlation_id, self.stamp(self.at), by)
        self.go("CLOSED")
        return wire

    def open(self) -> Wire:
        data: Wire = {}
        if self.chance(0.4):
            data["profile"] = self.rng.choice(("strict", "lenient"))
        if self.chance(0.5):
            data["layer_rules"] = self.rng.choice(("warn", "error", "error"))
        if self.chance(0.7):
            data["on_overrun"] = self.rng.choice(("escalate", "escalate", "safemode"))
        if self.chance(0.1):
            data["clock"] = self.rng.choice(("event", "wall"))
        if self.chance(0.3):
            data["initial_beliefs"] = self.rng.choice((True, False, [], ["the ledger is right"]))

        self.will(
            lenient=data.get("profile") == "lenient",
            layers_fixed=data.get("layer_rules") == "error",
            escalates=data.get("on_overrun") == "escalate",
            initial_beliefs=bool(data.get("initial_beliefs")),
        )
        return record("open", self.correlation_id, self.stamp(self.at), "system", data or None)

    # -------------------------------------------------------------------------------------------- what comes next

    def next(self) -> Said:
        """Return the next line of this episode."""
        self.left -= 1
        self.at = self.seconds + self.pause()
        self.commit = None
        draw = self.rng.random()
        if draw < self.wrong * 0.15:
            return self.broken()
        if draw < self.wrong * (3 if self.place in SELDOM else 1):
            wire = self.mistake()
        else:
            wire = self.proper()
            if self.chance(0.12):
                twist(self, wire)
        self.settle(wire)
        return Said(msgspec.json.encode(wire))

    def settle(self, wire: Wire) -> None:
        """Remember what was said, if it should be accepted."""
        if self.commit is None or self.place == "CLOSED":
            return
        self.commit()
        self.seconds = max(self.seconds, self.at)
        if "header" in wire:
            self.ids.append(wire["header"]["packet_id"])
            self.tools_ok = wire["mcp"]["routing"]["tools_state"] == "tools_ok"

    def pause(self) -> float:
        draw = self.rng.random()
        if draw < 0.9:
            return float(self.rng.randrange(3))
        if draw < 0.94:
            return -float(self.rng.randrange(1, 100))
        if draw < 0.9995:
            return self.rng.choice((0.25, 10.0, 61.0, 700.0, 5000.0, 200_000.0))
        return LAST

    def proper(self) -> Wire:
        """Say something that should be legal here."""
        if not self.begun:
            self.begun = True
            return self.open() if self.chance(0.6) else self.observe()
        if self.chance(0.06):
            return self.rng.choice(ANYWHERE)(self)
        if self.place == "VERIFY":
            return self.verify()
        if self.place == "SENSE" and self.initial_beliefs and self.chance(0.4):
            return self.decide()
        if self.place == "IDLE" and self.lenient and self.chance(0.3):
            return self.issue()
        return self.rng.choice(PROPER[self.place])(self)

    def verify(self) -> Wire:
        """Go on with the verification: plan, directive, result, observation, belief; at times in another order."""
        if self.lenient and self.chance(0.1) and not self.evidence and not self.planned:
            return self.issue()
        if self.chance(0.15):
            return self.rng.choice((Walk.observe, Walk.direct, Walk.present_plan, Walk.believe))(self)
        if not self.planned and not (self.lenient and self.chance(0.5)):
            return self.present_plan()
        if self.tasks:
            return self.conclude()
        if not self.affordable() and self.chance(0.5):
            return self.critical()
        if not self.read or not self.succeeded:
            return self.direct()
        return self.believe() if self.saw else self.observe()

    def mistake(self) -> Wire:
        """Say something wrong: the right thing spoilt, or a right thing in the wrong place."""
        step = self.rng.choice(ANYTHING)
        place = self.place
        aside = self.chance(0.5)
        wire = step(self) if aside else self.proper()
        if aside and step not in PROPER.get(place, ()) and step not in ANYWHERE:
            self.commit = None
        spoilers = SPOILERS.get(wire["header"]["packet_type"], ()) if "header" in wire else _record_spoilers(self, wire)
        if spoilers and self.chance(0.2 if aside else 0.8):
            self.commit = None
            self.rng.choice(spoilers)(self, wire)
        elif self.ids and "header" in wire and self.chance(0.1 if aside else 0.5):
            self.commit = None
            wire["header"]["packet_id"] = self.rng.choice(self.ids)
        return wire

    def broken(self) -> Said:
        """Say something that is no packet, with the rules that it breaks."""
        line, rules, known = self.rng.choice(BREAKAGES)(self)
        self.commit = None
        return Said(line, frozenset(rules), self.correlation_id if known else None)


# Where walks come by so seldom that they are wrong there more often.
SELDOM = ("ESCALATE_DUE", "ESCALATED", "DECIDE_ESCALATE", "DECIDE_DEFER", "DECIDE_CANCEL", "DECIDE_AFRESH", "SETTLE")
PROPER: dict[str, tuple[Callable[[Walk], Wire], ...]] = {
    "IDLE": (Walk.observe,),
    "SENSE": (Walk.observe, Walk.believe, Walk.believe),
    "MODEL": (Walk.believe, Walk.decide, Walk.decide, Walk.decide),
    "DECIDE_ACT": (Walk.issue, Walk.issue, Walk.direct, Walk.direct, lambda walk: walk.decide("VERIFY_FIRST")),
    "DECIDE_ESCALATE": (Walk.escalate,),
    "DECIDE_DEFER": (Walk.believe,),
    "DECIDE_CANCEL": (Walk.believe,),
    "DECIDE_AFRESH": (Walk.decide,),
    "AUTHORIZE": (Walk.issue, Walk.act, Walk.act, Walk.act),
    "EXECUTE": (Walk.act, Walk.observe, *[Walk.believe] * 2, *[Walk.conclude] * 2),
    "SETTLE": (Walk.believe, Walk.observe, Walk.decide, Walk.decide, Walk.close),
    "REVIEW": (Walk.believe, Walk.observe, Walk.observe, Walk.close),
    "ESCALATE_DUE": (Walk.escalate,),
    "ESCALATED": (Walk.escalate, Walk.answer, Walk.answer),
    "SAFEMODE": (Walk.believe, Walk.notice, Walk.critical, Walk.clear, Walk.clear, Walk.clear_from_afar, Walk.close),
    "CLOSED": (Walk.observe, Walk.close, Walk.open, Walk.notice),
}
ANYWHERE = (Walk.notice, *[Walk.revoke] * 3, *[Walk.queue] * 2, *[Walk.approve] * 2, Walk.critical)
ANYTHING: tuple[Callable[[Walk], Wire], ...] = (
    *(Walk.observe, Walk.believe, Walk.decide, Walk.decide),
    lambda walk: walk.decide(walk.rng.choice(("VERIFY_FIRST", "ESCALATE", "DEFER", "CANCEL"))),
    *(Walk.present_plan, Walk.issue, Walk.revoke, Walk.critical, Walk.direct),
    lambda walk: walk.direct(writes=True),
    Walk.conclude,
    lambda walk: walk.say("TaskResultPacket", result("task_1", walk.decision_id), 6),
    *(Walk.escalate, Walk.answer, Walk.answer, Walk.clear, Walk.clear_from_afar, Walk.approve),
    *(Walk.close, Walk.close, Walk.open, Walk.queue),
)


def _rush_back(walk: Walk, wire: Wire) -> None:
    walk.at = walk.seconds
    wire["header"]["created_at"] = walk.stamp(walk.seconds - 50)


def _forget_before(_walk: Walk, wire: Wire) -> None:
    wire["header"]["previous_packet_id"] = "pkt_unheard_of"


def _misjudge_stakes(_walk: Walk, wire: Wire) -> None:
    if wire["header"]["packet_type"] != "DecisionPacket":
        wire["mcp"]["stakes"] = {**CALM, "stakes_level": "HIGH"}


def _tools_partial(_walk: Walk, wire: Wire) -> None:
    wire["mcp"]["routing"] = TOOLS_PARTIAL


def _tools_down(_walk: Walk, wire: Wire) -> None:
    if wire["mcp"]["stakes"] not in (GRAVE, DIRE):
        wire["mcp"]["routing"] = TOOLS_DOWN


def _note(_walk: Walk, wire: Wire) -> None:
    wire["_note"] = {"seen": [1, 2]}


def _wrong_issuer(walk: Walk, wire: Wire) -> None:
    payload = wire["payload"]
    if "issuer_layer" in payload and not payload.get("revoked") and payload["token_id"] not in walk.tokens:
        payload["issuer_layer"] = 4
    elif payload.get("revoked") or payload.get("revoked_token_ids"):
        wire["header"]["layer_source"] = 2
    else:
        return
    if walk.layers_fixed:
        walk.commit = None


def _narrow_scope(walk: Walk, wire: Wire) -> None:
    """Let a new token open one tool only, or one kind of operation: legal, and soon not enough."""
    if "authorized_scope" in wire["payload"] and wire["payload"]["token_id"] not in walk.tokens:
        operations = walk.rng.choice((["read"], ["delete"], ["modify", "read"]))
        wire["payload"]["authorized_scope"] = {"tool_ids": ["search"], "operation_types": operations}


def _unsure_and_partial(_walk: Walk, wire: Wire) -> None:
    if wire["payload"].get("decision_outcome") == "ACT":
        wire["mcp"] = {**wire["mcp"], "stakes": UNSURE, "quality": PAR, "routing": TOOLS_PARTIAL}
    else:
        _narrow_scope(_walk, wire)


TWISTS = (
    *(_wrong_issuer, _unsure_and_partial, _narrow_scope, _rush_back, _forget_before, _misjudge_stakes),
    *(_tools_partial, _tools_down, _note, _wrong_issuer),
)


def twist(walk: Walk, wire: Wire) -> None:
    """Change a packet a little, so that it is still legal but for a warning."""
    if "header" not in wire:
        return
    about_tokens = "token_id" in wire["payload"] or "revoked_token_ids" in wire["payload"]
    change = _wrong_issuer if about_tokens and walk.chance(0.5) else walk.rng.choice(TWISTS)
    change(walk, wire)


def by_somebody_else(_walk: Walk, wire: Wire) -> None:
    wire["by"] = "system"


def _record_spoilers(walk: Walk, wire: Wire) -> tuple[Callable[[Walk, Wire], None], ...]:
    """Return how a record can be spoilt here: only some of them mind who speaks."""
    minds = wire["record"] == "approval" or (wire["record"] == "close" and walk.place == "SAFEMODE")
    return (by_somebody_else,) if minds else ()


def _section(name: str, value: Wire) -> Callable[[Walk, Wire], None]:
    def spoil(_walk: Walk, wire: Wire) -> None:
        wire["mcp"][name] = value

    return spoil


def _field(name: str, value: Any) -> Callable[[Walk, Wire], None]:
    def spoil(_walk: Walk, wire: Wire) -> None:
        wire["payload"] = {**wire["payload"], name: value}

    return spoil


def _act(*spoilers: Callable[[Walk, Wire], None]) -> Callable[[Walk, Wire], None]:
    def spoil(walk: Walk, wire: Wire) -> None:
        wire["payload"] = {**wire["payload"], "decision_outcome": "ACT"}
        for one in spoilers:
            one(walk, wire)

    return spoil


def _outside_scope(walk: Walk, wire: Wire) -> None:
    method = {k: v for k, v in wire["payload"]["execution_method"].items() if k != "tool_id"}
    tool = walk.rng.choice(("rocket", None))
    if walk.tokens:
        wire["payload"]["authorization_token_id"] = walk.rng.choice(list(walk.tokens))
    wire["payload"]["execution_method"] = method if tool is None else {**method, "tool_id": tool}


def _wrong_class(walk: Walk, wire: Wire) -> None:
    said = walk.rng.choice(
        (("READ", "tool_write"), ("WRITE", "tool_read"), ("MIXED", "verification"), (None, "tool_write"))
    )
    if walk.tokens and walk.chance(0.8):
        wire["payload"]["authorization_token_id"] = walk.rng.choice(list(walk.tokens))
    wire["payload"]["tool_safety_class"], wire["payload"]["task_type"] = said
    if said[0] in ("WRITE", "MIXED"):
        wire["payload"].setdefault("authorization_token_id", "token_unheard_of")


def _old_token(walk: Walk, wire: Wire) -> None:
    """Name any token that this episode ever knew: used up, revoked or expired as it may be."""
    if walk.used:
        wire["payload"]["authorization_token_id"] = walk.rng.choice(list(walk.used))


def _expired(walk: Walk, wire: Wire) -> None:
    wire["payload"] = {**wire["payload"], "expiry": walk.stamp(walk.seconds - walk.rng.choice((0, 5)))}


def _no_evidence_for_a_guess(walk: Walk, wire: Wire) -> None:
    wire["mcp"]["epistemics"] = GUESSED
    wire["mcp"]["evidence"] = walk.rng.choice((NO_EVIDENCE, evidence("note-7", kind="memory_item")))


def _old_evidence(walk: Walk, wire: Wire) -> None:
    """Refer to what came before the verification, or to nothing at all; where that is legal, say an id twice."""
    if walk.place == "VERIFY":
        wire["payload"] = belief(*walk.ids[:1])
        wire["mcp"]["evidence"] = evidence(walk.decision_id, "pkt_unheard_of")
    else:
        wire["header"]["packet_id"] = walk.ids[0] if walk.ids else wire["header"]["packet_id"]


SPOILERS: dict[str, tuple[Callable[[Walk, Wire], None], ...]] = {
    "BeliefUpdatePacket": (_no_evidence_for_a_guess, _old_evidence, _old_evidence),
    "DecisionPacket": (
        _act(_section("quality", SUBPAR)),
        _act(_section("stakes", GRAVE), _section("quality", PAR)),
        _act(
            _section("stakes", DIRE),
            _section("quality", SUPERB),
            _field("load_bearing_assumptions", [{"assumption": "it is paid", "verified": False}]),
        ),
        _act(_field("constraints_satisfied", {**CHECKED, "constitutional_check": False})),
        _act(_field("constraints_satisfied", {**CHECKED, "budget_check": False})),
        _act(_section("stakes", GRAVE), _section("quality", SUPERB), _section("routing", TOOLS_DOWN)),
        _act(_section("budgets", budgets(0, 0, 0))),
    ),
    "ToolAuthorizationToken": (
        _expired,
        _field("usage_count", 10),
        _field("max_usage_count", 7),
        _field("revoked", True),
        _field("issuer_layer", 3),
        _expired,
    ),
    "TaskDirectivePacket": (_outside_scope, _wrong_class, _wrong_class, _old_token, _old_token),
    "TaskResultPacket": (_field("task_id", "task_unheard_of"), _field("directive_packet_id", "pkt_unheard_of")),
}


Breakage = tuple[bytes, set[str], bool]


def _schema(wire: Wire, *rules: str) -> Breakage:
    return msgspec.json.encode(wire), {"SCHEMA", *rules}, True


def _without(wire: Wire, *path: str) -> Wire:
    whole: Wire = copy.deepcopy(wire)
    part = whole
    for key in path[:-1]:
        part = part[key]
    part.pop(path[-1], None)
    return whole


def _cut(walk: Walk) -> Breakage:
    line = msgspec.json.encode(walk.observe())
    return line[: walk.rng.randrange(1, len(line))], {"JSON"}, False


def _not_text(_walk: Walk) -> Breakage:
    return b'{"header": "\xff\xfe"}', {"JSON"}, False


def _one_option(walk: Walk) -> Breakage:
    return _schema(walk.say("EscalationPacket", escalation(top_options=OPTIONS[:1])), "E5", "S8", "INV-009")


def _no_gaps(walk: Walk) -> Breakage:
    return _schema(walk.say("EscalationPacket", escalation(evidence_gaps=[])), "E5", "S8", "INV-009")


def _no_step(walk: Walk) -> Breakage:
    wire = walk.say("EscalationPacket", escalation())
    return _schema(_without(wire, "payload", "recommended_next_step"), "E5", "S8", "INV-009")


def _half_an_envelope(walk: Walk) -> Breakage:
    section = walk.rng.choice(list(ENVELOPE))
    return _schema(_without(walk.decide(), "mcp", section), "INV-001")


def _half_an_envelope_elsewhere(walk: Walk) -> Breakage:
    return _schema(_without(walk.observe(), "mcp", "stakes"))


def _no_reason(walk: Walk) -> Breakage:
    wire = walk.say("TaskDirectivePacket", directive("task_1", "tool_read"), evidence={"evidence_refs": []})
    return _schema(wire, "INV-001")


def _write_without_token(walk: Walk) -> Breakage:
    wire = walk.say("TaskDirectivePacket", directive("task_1", "tool_write", tool_safety_class="WRITE"))
    return _schema(wire, "E4")


def _failure_without_details(walk: Walk) -> Breakage:
    wire = walk.say("TaskResultPacket", result("task_1", "pkt_1", "FAILURE"))
    return _schema(_without(wire, "payload", "error_details"))


def _unknown_key(walk: Walk) -> Breakage:
    return _schema({**walk.observe(), "more": 1})


def _naive_time(walk: Walk) -> Breakage:
    wire = walk.observe()
    wire["header"]["created_at"] = "2026-01-01T00:00:00"
    return _schema(wire)


def _bad_record(walk: Walk) -> Breakage:
    return _schema({**walk.close(), "extra": 1})


BREAKAGES: tuple[Callable[[Walk], Breakage], ...] = (
    *(_cut, _not_text, _one_option, _no_gaps, _no_step, _half_an_envelope, _half_an_envelope_elsewhere),
    *(_no_reason, _write_without_token, _failure_without_details, _unknown_key, _naive_time, _bad_record),
)


# How often a walk says something wrong: some never do.
CARE = (0.0, 0.06, 0.15, 0.15, 0.3, 0.3)


def stream(seed: int, count: int, *, at_once: int = 6, length: int = 70) -> Iterator[Said]:
    """Yield `count` lines of several interleaved episodes; a new one begins where one has ended."""
    rng = Random(seed)
    begun = 0
    walks: list[Walk] = []
    for _ in range(count):
        while len(walks) < at_once:
            begun += 1
            walks.append(Walk(f"corr_{seed}_{begun}", rng, rng.randrange(length // 2, length * 2), rng.choice(CARE)))
        index = rng.randrange(len(walks))
        walk = walks[index]
        yield walk.next()
        if walk.left <= 0 or (walk.place == "CLOSED" and rng.random() < 0.3):
            walks.pop(index)


STRANGE: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**63, 2**64, 10**30, 1.5, 1e308),
    *("", " ", "pkt_", "corr_x", "x" * 300, "\x00", "é", "𝄞"),
    *([], [[]], {}, {"": {}}),
    *("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00", "9999-12-31T23:59:59-23:59"),
    *("0001-01-01T00:00:00+23:59", "2026-01-01T00:00:00.123456789Z", "2026-01-01"),
    *("Integrity", "clear", "CRITICAL"),
)
SNIPPETS = (
    *(b"", b"{", b"}", b"null", b"[]", b"{}", b"true", b'"packet"', b"1e999", b"NaN", b"\xef\xbb\xbf{}", b"\xff"),
    *(
        b'{"header": {}, "mcp": {}, "payload": {}}',
        b'{"record": "close"}',
        b'{"record": 1, "header": 2}',
        b'{"header": {"packet_id": "\\ud800"}}',
    ),
    *(b"[" * 100_000, b'{"a":' * 100_000, b'{"header": ' + b"9" * 5000 + b"}"),
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of a JSON value."""
    if here:
        yield here
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*here, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths(item, (*here, index))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _drop(rng: Random, wire: Wire) -> bytes:
    path = rng.choice(list(paths(wire)))
    del _at(wire, path[:-1])[path[-1]]
    return json.dumps(wire).encode()


def _alter(rng: Random, wire: Wire) -> bytes:
    path = rng.choice(list(paths(wire)))
    _at(wire, path[:-1])[path[-1]] = rng.choice(STRANGE)
    return json.dumps(wire, ensure_ascii=rng.random() < 0.5).encode()


def _reorder(rng: Random, wire: Wire) -> bytes:
    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}

    return json.dumps(shuffled(wire), indent=rng.choice((None, 1))).replace("\n", " ").encode()


def _twice(rng: Random, wire: Wire) -> bytes:
    """Say one key twice, with the same or another value."""
    key = rng.choice(list(wire))
    value = wire[key] if rng.random() < 0.5 else rng.choice(STRANGE)
    text = json.dumps(wire)
    return f'{{"{key}": {json.dumps(value)}, {text[1:]}'.encode()


def _add(rng: Random, wire: Wire) -> bytes:
    inner = [path for path in paths(wire) if isinstance(_at(wire, path), dict)]
    place = _at(wire, rng.choice(inner)) if inner and rng.random() < 0.7 else wire
    place[rng.choice(("_note", "extra", "", "packet_id", "data"))] = rng.choice(STRANGE)
    return json.dumps(wire).encode()


def _truncate(rng: Random, wire: Wire) -> bytes:
    line = json.dumps(wire).encode()
    return line[: rng.randrange(1, len(line))]


def _flip(rng: Random, wire: Wire) -> bytes:
    line = bytearray(json.dumps(wire).encode())
    for _ in range(rng.randrange(1, 4)):
        line[rng.randrange(len(line))] ^= 1 << rng.randrange(8)
    return bytes(line).replace(b"\n", b" ")


def _snippet(rng: Random, _wire: Wire) -> bytes:
    return rng.choice(SNIPPETS)


MUTATIONS = (_drop, _drop, _alter, _alter, _alter, _reorder, _twice, _add, _truncate, _flip, _flip, _snippet)


def mutate(rng: Random, line: bytes) -> bytes:
    """Return `line` damaged in one way; sometimes it is still a packet."""
    try:
        wire = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(wire, dict) or not wire:
        return line
    return rng.choice(MUTATIONS)(rng, wire)


def mutated_stream(seed: int, count: int, share: float = 0.15, *, at_once: int = 6) -> Iterator[bytes]:
    """Yield the lines of a stream, a share of them damaged, said twice or said out of order."""
    rng = Random(seed + 1)
    held: bytes | None = None
    for said in stream(seed, count, at_once=at_once):
        line = said.line
        draw = rng.random()
        if draw < share:
            line = mutate(rng, line)
        elif draw < share + 0.01:
            line, held = held or line, line
        yield line or b"{"
