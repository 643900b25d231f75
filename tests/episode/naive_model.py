"""The judge once more, as plainly as the text says it: a second opinion that shares no code with the first.

Rule 1: an episode is the list of what was accepted in it, and every question is answered by reading that list again.
Rule 2: packets and records are plain dicts as `json.loads` makes them; they are taken to be schema-valid.
Rule 3: nothing here imports the judge; slow is fine, clever is not.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Wire = dict[str, Any]

IDLE, SENSE, MODEL, VERIFY, AUTHORIZE, EXECUTE = "IDLE", "SENSE", "MODEL", "VERIFY", "AUTHORIZE", "EXECUTE"
DECIDE_ACT, DECIDE_ESCALATE, DECIDE_DEFER = "DECIDE_ACT", "DECIDE_ESCALATE", "DECIDE_DEFER"
DECIDE_CANCEL, DECIDE_AFRESH = "DECIDE_CANCEL", "DECIDE_AFRESH"
SETTLE, REVIEW, ESCALATE_DUE, ESCALATED, SAFEMODE = "SETTLE", "REVIEW", "ESCALATE_DUE", "ESCALATED", "SAFEMODE"
CLOSED = "CLOSED"

STATE = {
    IDLE: "S0_IDLE",
    SENSE: "S1_SENSE",
    MODEL: "S2_MODEL",
    DECIDE_ACT: "S3_DECIDE",
    DECIDE_ESCALATE: "S3_DECIDE",
    DECIDE_DEFER: "S3_DECIDE",
    DECIDE_CANCEL: "S3_DECIDE",
    DECIDE_AFRESH: "S3_DECIDE",
    VERIFY: "S4_VERIFY",
    AUTHORIZE: "S5_AUTHORIZE",
    EXECUTE: "S6_EXECUTE",
    REVIEW: "S7_REVIEW",
    ESCALATE_DUE: "S8_ESCALATED",
    ESCALATED: "S8_ESCALATED",
    SAFEMODE: "S9_SAFEMODE",
    CLOSED: "S0_IDLE",
}

DECISIONS = ("VERIFY_FIRST", "ACT", "ESCALATE", "DEFER", "CANCEL")
OBSERVATIONS = ("OBSERVATION", "USER_INPUT")
DIRECTIVES = ("READ", "WRITE")
ALERTS = ("ALERT", "CRITICAL", "CLEAR")
CLOSES = ("CLOSE", "OPERATOR_CLOSE")
RECORD_EVENTS: dict[str, str | None] = {
    "open": None,
    "user_input": "ANSWER",
    "approval": "APPROVAL",
    "safemode": "HALT",
}

RANKS = {
    "impact": ("LOW", "MEDIUM", "HIGH", "CRITICAL"),
    "irreversibility": ("REVERSIBLE", "PARTIAL", "IRREVERSIBLE"),
    "uncertainty": ("LOW", "MEDIUM", "HIGH"),
    "adversariality": ("BENIGN", "CONTESTED", "HOSTILE"),
}
BUDGETS = ("token_budget", "tool_call_budget", "time_budget_seconds")


@dataclass(frozen=True)
class Answer:
    """What the model says about one line."""

    accepted: bool
    rules: frozenset[str]
    warnings: frozenset[str]
    path: list[str]
    event: str | None = None
    synthetic: str | None = None


@dataclass
class Entry:
    """One accepted line, or a synthetic transition: when, and from where to where."""

    event: str
    wire: Wire
    now: datetime
    before: str
    after: str


@dataclass
class Story:
    """One episode: its settings, and everything that was accepted in it, in order."""

    profile: str = "strict"
    layer_rules: str = "warn"
    clock: str = "event"
    on_overrun: str = "safemode"
    initial_beliefs: bool = False
    log: list[Entry] = field(default_factory=list)
    opened_at: datetime | None = None


@dataclass
class Bounds:
    """How much one judge keeps."""

    open_episodes: int = 10**9
    packets: int = 10**9
    open_tasks: int = 10**9
    tokens: int = 10**9


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def event_of(wire: Wire) -> str | None:
    """Return what the table sees of a line, from its content alone; an `open` is no event."""
    if "record" in wire:
        return _record_event(wire)
    payload = wire["payload"]
    kind = wire["header"]["packet_type"]
    if kind == "ObservationPacket":
        return "USER_INPUT" if payload["observation_type"] == "user_input" else "OBSERVATION"
    if kind == "DecisionPacket":
        return str(payload["decision_outcome"])
    if kind == "ToolAuthorizationToken":
        return "REVOCATION" if payload.get("revoked") else "TOKEN"
    if kind == "TaskDirectivePacket":
        return _directive_event(payload)
    if kind == "IntegrityAlertPacket":
        return _alert_event(wire)
    return {
        "BeliefUpdatePacket": "BELIEF",
        "VerificationPlanPacket": "PLAN",
        "TaskResultPacket": "RESULT",
        "EscalationPacket": "ESCALATION",
        "QueueUpdatePacket": "QUEUE",
    }[kind]


def _record_event(wire: Wire) -> str | None:
    if wire["record"] == "close":
        return "OPERATOR_CLOSE" if wire["by"] == "operator" else "CLOSE"
    return RECORD_EVENTS[wire["record"]]


def _directive_event(payload: Wire) -> str:
    said = payload.get("tool_safety_class")
    writes = payload["task_type"] == "tool_write"
    if said is None:
        return "WRITE" if writes else "READ"
    if said in ("WRITE", "MIXED"):
        return "WRITE"
    return "WRITE" if writes else "READ"  # READ for a tool_write is a conflict: the careful reading is WRITE


def _alert_event(wire: Wire) -> str:
    if wire["payload"]["severity"] == "CRITICAL":
        return "CRITICAL"
    if wire["payload"]["alert_type"] == "clear" and wire["header"]["layer_source"] in ("Integrity", 1):
        return "CLEAR"
    return "ALERT"


def position(story: Story) -> str:
    return story.log[-1].after if story.log else IDLE


def clock(story: Story) -> datetime | None:
    return story.log[-1].now if story.log else story.opened_at


def packets(story: Story) -> list[Entry]:
    return [entry for entry in story.log if "header" in entry.wire]


def packet_ids(story: Story) -> list[str]:
    return [entry.wire["header"]["packet_id"] for entry in packets(story)]


def beliefs_seen(story: Story) -> bool:
    return story.initial_beliefs or any(entry.event == "BELIEF" for entry in story.log)


def voids(entry: Entry) -> bool:
    """Say whether this entry ends everything that was under way: safe mode, or an overrun that escalates."""
    entered = entry.after == SAFEMODE and (entry.before != SAFEMODE or entry.event in ("CRITICAL", "HALT"))
    return entered or entry.event == "OVERRUN_ESCALATE"


def since_void(story: Story) -> list[Entry]:
    for index in range(len(story.log) - 1, -1, -1):
        if voids(story.log[index]):
            return story.log[index + 1 :]
    return story.log


def governing(story: Story) -> Wire | None:
    for entry in reversed(since_void(story)):
        if entry.event in DECISIONS:
            return entry.wire
    return None


def loop(story: Story) -> list[Entry] | None:
    """Return what was accepted since the VERIFY_FIRST whose verification is not decided anew yet, else None."""
    entries = since_void(story)
    for index in range(len(entries) - 1, -1, -1):
        if entries[index].event in DECISIONS:
            return entries[index + 1 :] if entries[index].event == "VERIFY_FIRST" else None
    return None


def integrated(entries: list[Entry]) -> bool:
    return any(entry.before == VERIFY and entry.event == "BELIEF" for entry in entries)


def open_tasks(story: Story) -> list[Entry]:
    """Return the directives without a result."""
    waiting: list[Entry] = []
    for entry in since_void(story):
        if entry.event in DIRECTIVES:
            waiting.append(entry)
        if entry.event == "RESULT":
            waiting = [task for task in waiting if not _belongs(entry.wire, task)]
    return waiting


def _belongs(result: Wire, task: Entry) -> bool:
    same_packet = result["payload"]["directive_packet_id"] == task.wire["header"]["packet_id"]
    return bool(same_packet and result["payload"]["task_id"] == task.wire["payload"]["task_id"])


def by_tool(task: Entry) -> bool:
    return bool(task.wire["payload"]["execution_method"]["method"] == "tool")


def issued(story: Story, token_id: str | None) -> Wire | None:
    """Return the payload under which a token was issued first."""
    for entry in story.log:
        if entry.event == "TOKEN" and entry.wire["payload"]["token_id"] == token_id:
            return dict(entry.wire["payload"])
    return None


def token_ids(story: Story) -> set[str]:
    return {entry.wire["payload"]["token_id"] for entry in story.log if entry.event == "TOKEN"}


def uses(story: Story, token_id: str) -> int:
    payload = issued(story, token_id) or {}
    named = [
        e for e in story.log if e.event in DIRECTIVES and e.wire["payload"].get("authorization_token_id") == token_id
    ]
    return int(payload.get("usage_count") or 0) + len(named)


def revoked(story: Story, token_id: str) -> bool:
    known = False
    for entry in story.log:
        if entry.event == "TOKEN" and entry.wire["payload"]["token_id"] == token_id:
            known = True
        if known and (_takes_back(entry, token_id) or entry.after == SAFEMODE):
            return True
    return False


def _takes_back(entry: Entry, token_id: str) -> bool:
    if entry.event == "REVOCATION":
        return bool(entry.wire["payload"]["token_id"] == token_id)
    if entry.event in ALERTS:
        return token_id in (entry.wire["payload"].get("revoked_token_ids") or [])
    return False


def live(story: Story, token_id: str, now: datetime) -> bool:
    payload = issued(story, token_id)
    if payload is None or revoked(story, token_id):
        return False
    return now < moment(payload["expiry"]) and uses(story, token_id) < payload["max_usage_count"]


def spent(story: Story) -> tuple[int, int, float]:
    """Return tokens, calls and milliseconds of all results since a human answered last."""
    tokens, calls, milliseconds = 0, 0, 0.0
    for index, entry in enumerate(story.log):
        if entry.before == ESCALATED and entry.event in ("USER_INPUT", "ANSWER"):
            tokens, calls, milliseconds = 0, 0, 0.0
        if entry.event == "RESULT":
            more = cost(entry.wire, story.log[:index])
            tokens, calls, milliseconds = tokens + more[0], calls + more[1], milliseconds + more[2]
    return tokens, calls, milliseconds


def cost(result: Wire, before: list[Entry]) -> tuple[int, int, float]:
    said = result["payload"].get("execution_metadata") or {}
    calls = said.get("tool_calls_used")
    if calls is None:
        tasks = [entry for entry in before if entry.event in DIRECTIVES and _belongs(result, entry)]
        calls = 1 if by_tool(tasks[-1]) else 0
    return said.get("tokens_used") or 0, calls, said.get("execution_time_ms") or 0


def approved(story: Story) -> list[int]:
    given = [entry.wire.get("data") or {} for entry in story.log if entry.event == "APPROVAL"]
    return [sum(data.get(name) or 0 for data in given) for name in BUDGETS]


def allowance(story: Story, decision: Wire) -> list[int]:
    own = decision["mcp"]["budgets"]
    return [own[name] + more for name, more in zip(BUDGETS, approved(story), strict=True)]


def over(used: tuple[int, int, float], allowed: list[int]) -> bool:
    return used[0] > allowed[0] or used[1] > allowed[1] or used[2] > allowed[2] * 1000


def tools_ok(story: Story) -> bool:
    said = packets(story)
    return not said or said[-1].wire["mcp"]["routing"]["tools_state"] == "tools_ok"


def all_succeeded(story: Story) -> bool:
    """Say whether every result since S6 was entered was a SUCCESS."""
    for entry in reversed(story.log):
        if entry.event == "RESULT" and entry.after == EXECUTE and entry.wire["payload"]["result_status"] != "SUCCESS":
            return False
        if entry.after == EXECUTE and entry.before != EXECUTE:
            return True
    return True


def shown(story: Story, place: str) -> str:
    if place == SETTLE:
        return "S7_REVIEW" if all_succeeded(story) else "S2_MODEL"
    return STATE[place]


def move(place: str, event: str, story: Story) -> list[str] | None:
    """Return the positions passed through, the new one last, or None where the packet is not legal."""
    if event in ("CRITICAL", "HALT"):
        return [SAFEMODE]
    if event in ("ALERT", "APPROVAL"):
        return [place]
    if event == "CLEAR":
        return [REVIEW] if place == SAFEMODE else [place]
    if place == SAFEMODE:
        return {"BELIEF": [SAFEMODE], "OPERATOR_CLOSE": [CLOSED]}.get(event)
    if event in ("QUEUE", "REVOCATION"):
        return [place]
    if event in CLOSES:
        return [CLOSED] if place in (REVIEW, SETTLE) else None
    if event in DECISIONS:
        return _decide(place, event, story)
    if event in DIRECTIVES:
        return _direct(place, event)
    if event in OBSERVATIONS:
        return _observe(place, event)
    return _others(place, event, story)


def _decide(place: str, event: str, story: Story) -> list[str] | None:
    target = VERIFY if event == "VERIFY_FIRST" else "DECIDE_" + event
    if place in (MODEL, SETTLE) or (place == SENSE and story.initial_beliefs):
        return [DECIDE_AFRESH, VERIFY] if target == VERIFY else [target]
    if place == DECIDE_AFRESH or (place == DECIDE_ACT and target == VERIFY):
        return [target]
    return None


def _direct(place: str, event: str) -> list[str] | None:
    if place == EXECUTE:
        return [EXECUTE]
    if event == "READ":
        return {DECIDE_ACT: [EXECUTE], VERIFY: [VERIFY]}.get(place)
    return [EXECUTE] if place == AUTHORIZE else None


def _observe(place: str, event: str) -> list[str] | None:
    if place in (IDLE, SENSE, REVIEW, SETTLE):
        return [SENSE]
    if place in (VERIFY, EXECUTE):
        return [place]
    return [DECIDE_AFRESH] if place == ESCALATED and event == "USER_INPUT" else None


def _others(place: str, event: str, story: Story) -> list[str] | None:
    rows = {
        (SENSE, "BELIEF"): MODEL,
        (MODEL, "BELIEF"): MODEL,
        (DECIDE_DEFER, "BELIEF"): REVIEW,
        (DECIDE_CANCEL, "BELIEF"): REVIEW,
        (VERIFY, "BELIEF"): MODEL,
        (EXECUTE, "BELIEF"): SETTLE,
        (SETTLE, "BELIEF"): SETTLE,
        (REVIEW, "BELIEF"): REVIEW,
        (VERIFY, "PLAN"): VERIFY,
        (VERIFY, "RESULT"): VERIFY,
        (EXECUTE, "RESULT"): EXECUTE,
        (DECIDE_ACT, "TOKEN"): AUTHORIZE,
        (AUTHORIZE, "TOKEN"): AUTHORIZE,
        (DECIDE_ESCALATE, "ESCALATION"): ESCALATED,
        (ESCALATE_DUE, "ESCALATION"): ESCALATED,
        (ESCALATED, "ESCALATION"): ESCALATED,
        (ESCALATED, "ANSWER"): DECIDE_AFRESH,
    }
    if story.profile == "lenient":
        rows[VERIFY, "TOKEN"], rows[IDLE, "TOKEN"] = VERIFY, IDLE
    target = rows.get((place, event))
    return None if target is None else [target]


def start_shown(story: Story, place: str, event: str) -> str:
    """Return the state before: what comes next resolves the set {S7, S2}."""
    if place == SETTLE and event in DECISIONS:
        return "S2_MODEL"
    if place == SETTLE and event in (*OBSERVATIONS, *CLOSES):
        return "S7_REVIEW"
    return shown(story, place)


@dataclass(frozen=True)
class Case:
    """One line about to be judged."""

    wire: Wire
    event: str
    now: datetime
    stated: datetime
    place: str
    story: Story
    bounds: Bounds

    @property
    def is_packet(self) -> bool:
        return "header" in self.wire

    @property
    def payload(self) -> Wire:
        payload: Wire = self.wire.get("payload") or {}
        return payload


Found = Iterator[tuple[str, str]]
ERROR, WARNING = "error", "warning"


def fsm(case: Case) -> Found:
    if move(case.place, case.event, case.story) is None:
        yield ERROR, "FSM"


def identity(case: Case) -> Found:
    if not case.is_packet:
        return
    known = packet_ids(case.story)
    if case.wire["header"]["packet_id"] in known:
        yield ERROR, "ID-1"
    previous = case.wire["header"].get("previous_packet_id")
    if previous is not None and previous not in known:
        yield WARNING, "ID-2"


def clocks(case: Case) -> Found:
    last = clock(case.story)
    if case.is_packet and last is not None and case.stated < last and case.story.clock != "wall":
        yield WARNING, "TIME-1"


def queue(case: Case) -> Found:
    if case.event == "QUEUE":
        yield WARNING, "QUEUE-1"


def safety(case: Case) -> Found:
    if case.event not in DIRECTIVES or case.payload.get("tool_safety_class") is None:
        return
    says_write = case.payload["tool_safety_class"] in ("WRITE", "MIXED")
    if says_write != (case.payload["task_type"] == "tool_write"):
        yield ERROR, "SAFETY-1"


def layers(case: Case) -> Found:
    level = ERROR if case.story.layer_rules == "error" else WARNING
    issuers = (
        {case.payload.get("issuer_layer"), case.wire["header"]["layer_source"]} if case.event == "TOKEN" else set()
    )
    if not issuers <= {1, 5}:
        yield level, "LAYER-1"
    takes_back = case.event in ALERTS and case.payload.get("revoked_token_ids")
    if (takes_back or case.event == "REVOCATION") and case.wire["header"]["layer_source"] != "Integrity":
        yield level, "LAYER-1"
    if case.place == SAFEMODE and case.event == "ALERT" and case.payload["alert_type"] == "clear":
        yield level, "LAYER-2"


def e1(case: Case) -> Found:
    if case.event in DECISIONS and not beliefs_seen(case.story):
        yield ERROR, "E1"


def e2(case: Case) -> Found:
    if case.event not in DIRECTIVES:
        return
    decision = governing(case.story)
    outcome = None if decision is None else decision["payload"]["decision_outcome"]
    reads = case.event == "READ" and case.place == VERIFY
    if outcome != "ACT" and not (outcome == "VERIFY_FIRST" and reads):
        yield ERROR, "E2"


def planned(entries: list[Entry]) -> bool:
    return any(entry.event == "PLAN" for entry in entries)


def missing(case: Case, entries: list[Entry]) -> dict[str, bool]:
    """Return which parts of a verification are missing for the belief that would end it."""
    waived = not tools_ok(case.story)
    results = [e for e in entries if e.event == "RESULT" and e.wire["payload"]["result_status"] == "SUCCESS"]
    seen = [e for e in entries if e.event in OBSERVATIONS and e.wire["mcp"]["epistemics"]["status"] == "OBSERVED"]
    evidence = {e.wire["header"]["packet_id"] for e in entries if e.event in (*OBSERVATIONS, "RESULT")}
    named = {ref["ref_id"] for ref in case.wire["mcp"]["evidence"]["evidence_refs"]}
    named |= set(case.payload.get("evidence_integration") or [])
    return {
        "plan": not planned(entries),
        "read": not any(entry.event == "READ" for entry in entries),
        "success": not results and not waived,
        "observed": not seen and not waived,
        "reference": not (named & evidence),
    }


def e3(case: Case) -> Found:
    entries = loop(case.story)
    level = WARNING if case.story.profile == "lenient" else ERROR
    if case.event in CLOSES and entries is not None:
        yield ERROR, "E3"
    if case.place != VERIFY or entries is None:
        return
    if case.event in DIRECTIVES and not planned(entries):
        yield level, "E3"
    if case.event == "BELIEF":
        lacks = missing(case, entries)
        if lacks["plan"]:
            yield level, "E3"
        if lacks["read"] or lacks["success"] or lacks["reference"]:
            yield ERROR, "E3"
    begun = any(entry.event in ("PLAN", "RESULT", "TOKEN", *DIRECTIVES, *OBSERVATIONS) for entry in entries)
    if case.event == "TOKEN" and case.story.profile == "lenient" and begun:
        yield ERROR, "E3"


def s4(case: Case) -> Found:
    entries = loop(case.story)
    if case.place != VERIFY or case.event != "BELIEF" or entries is None:
        return
    lacks = missing(case, entries)
    if lacks.pop("plan"):
        yield WARNING if case.story.profile == "lenient" else ERROR, "S4"
    if any(lacks.values()):
        yield ERROR, "S4"


def e4(case: Case) -> Found:
    if case.event not in DIRECTIVES:
        return
    token_id = case.payload.get("authorization_token_id")
    if token_id is None:
        if case.event == "WRITE":
            yield ERROR, "E4"
    elif not live(case.story, token_id, case.now):
        yield ERROR, "E4"


def plain_token(payload: Wire) -> Wire:
    """Return a token's payload with its defaults filled in, so that equal tokens look equal."""
    filled = {"usage_count": 0, "revoked": False} | {k: v for k, v in payload.items() if v is not None}
    filled["expiry"] = moment(payload["expiry"])
    filled["authorized_scope"] = {k: v for k, v in payload["authorized_scope"].items() if v is not None}
    return filled


def s5(case: Case) -> Found:
    if case.event not in ("TOKEN", "REVOCATION"):
        return
    token_id = case.payload["token_id"]
    first = issued(case.story, token_id)
    if case.event == "REVOCATION":
        if first is None:
            yield ERROR, "S5"
        return
    if moment(case.payload["expiry"]) <= case.now:
        yield ERROR, "S5"
    if (case.payload.get("usage_count") or 0) >= case.payload["max_usage_count"]:
        yield ERROR, "S5"
    if first is not None:
        same = plain_token(first) == plain_token(case.payload)
        if not same or not live(case.story, token_id, case.now):
            yield ERROR, "S5"


def e6(case: Case) -> Found:
    tasks = open_tasks(case.story)
    if case.event == "RESULT" and not any(_belongs(case.wire, task) for task in tasks):
        yield ERROR, "E6"
    if tasks and case.event == "BELIEF" and case.place in (VERIFY, EXECUTE):
        yield ERROR, "E6"
    if tasks and case.event in CLOSES:
        yield ERROR, "E6"


def s6(case: Case) -> Found:
    if case.event == "BELIEF" and case.place == EXECUTE and open_tasks(case.story):
        yield ERROR, "S6"


def e7(case: Case) -> Found:
    if case.place == SAFEMODE and case.is_packet and case.event not in ("BELIEF", *ALERTS):
        yield ERROR, "E7"


def s8(case: Case) -> Found:
    if case.place in (ESCALATED, ESCALATE_DUE) and case.event in DECISIONS:
        yield ERROR, "S8"
    if case.place == ESCALATE_DUE and case.event in ("USER_INPUT", "ANSWER"):
        yield ERROR, "S8"


def inv_act(case: Case) -> Found:
    """INV-002, 003, 006 and 010: what an ACT must say."""
    if case.event != "ACT":
        return
    stakes, tier = case.wire["mcp"]["stakes"], case.wire["mcp"]["quality"]["quality_tier"]
    tools = case.wire["mcp"]["routing"]["tools_state"]
    high = stakes["stakes_level"] in ("HIGH", "CRITICAL")
    verified = all(one["verified"] for one in case.payload.get("load_bearing_assumptions") or [])
    if tier == "SUBPAR":
        yield ERROR, "INV-002"
    if high and not (tier == "SUPERB" and verified):
        yield ERROR, "INV-003"
    checks = case.payload["constraints_satisfied"]
    if not (checks["constitutional_check"] and checks["budget_check"]):
        yield ERROR, "INV-006"
    if high and tools == "tools_down":
        yield ERROR, "INV-010"
    if tools == "tools_partial" and stakes["stakes_level"] == "MEDIUM" and stakes["uncertainty"] == "HIGH":
        yield WARNING, "INV-010"


def inv_004(case: Case) -> Found:
    if case.event != "BELIEF":
        return
    epistemics = case.wire["mcp"]["epistemics"]
    guessed = epistemics["status"] in ("INFERRED", "HYPOTHESIZED", "UNKNOWN")
    fresh = epistemics["freshness_class"] in ("REALTIME", "OPERATIONAL")
    refs = case.wire["mcp"]["evidence"]["evidence_refs"]
    if guessed and fresh and not any(ref["ref_type"] in ("tool_output", "user_observation") for ref in refs):
        yield ERROR, "INV-004"


def inv_005(case: Case) -> Found:
    if case.event == "ACT" and over(spent(case.story), allowance(case.story, case.wire)):
        yield ERROR, "INV-005"
    decision = governing(case.story)
    if case.event in DIRECTIVES and decision is not None and over(spent(case.story), allowance(case.story, decision)):
        yield ERROR, "INV-005"
    if case.event in DIRECTIVES and decision is not None and case.payload["execution_method"]["method"] == "tool":
        waiting = sum(by_tool(task) for task in open_tasks(case.story))
        if spent(case.story)[1] + waiting + 1 > allowance(case.story, decision)[1]:
            yield ERROR, "INV-005"


def inv_007(case: Case) -> Found:
    if case.event not in DIRECTIVES:
        return
    token = issued(case.story, case.payload.get("authorization_token_id"))
    if token is None:
        return
    scope = token["authorized_scope"]
    needed = {"read"} if case.event == "READ" else {"write", "modify", "delete"}
    if case.payload["execution_method"].get("tool_id") not in scope["tool_ids"]:
        yield ERROR, "INV-007"
    if not needed & set(scope["operation_types"]):
        yield ERROR, "INV-007"


def inv_008(case: Case) -> Found:
    entries = loop(case.story)
    if case.event in (*DECISIONS, *CLOSES) and entries is not None and not integrated(entries):
        yield ERROR, "INV-008"


def inv_011(case: Case) -> Found:
    tasks = open_tasks(case.story)
    if tasks and case.event in CLOSES:
        yield ERROR, "INV-011"
    if not case.is_packet:
        return
    for task in tasks:
        answers = case.event == "RESULT" and _belongs(case.wire, task)
        limits = [task.wire["mcp"]["budgets"]["time_budget_seconds"], task.wire["payload"].get("timeout_seconds")]
        for seconds in limits:
            late = seconds is not None and after(case.now, task, seconds)
            told = late and any(after(entry.now, task, seconds) for entry in packets(case.story))
            if late and (answers or not told):
                yield WARNING, "INV-011"


def after(now: datetime, task: Entry, seconds: int) -> bool:
    return (now - task.now).total_seconds() > seconds


def inv_012(case: Case) -> Found:
    if not case.is_packet:
        return
    stakes = case.wire["mcp"]["stakes"]
    ranks = {name: words.index(stakes[name]) for name, words in RANKS.items()}
    worst = max(ranks.values())
    level = RANKS["impact"].index(stakes["stakes_level"])
    if not max(ranks["impact"], worst - 1) <= level <= worst:
        yield WARNING, "INV-012"


def limit_2(case: Case) -> Found:
    if case.is_packet and len(packets(case.story)) >= case.bounds.packets:
        yield ERROR, "LIMIT-2"
    if case.event in DIRECTIVES and len(open_tasks(case.story)) >= case.bounds.open_tasks:
        yield ERROR, "LIMIT-2"
    known = token_ids(case.story)
    if case.event == "TOKEN" and case.payload["token_id"] not in known and len(known) >= case.bounds.tokens:
        yield ERROR, "LIMIT-2"


def record_1(case: Case) -> Found:
    if case.event == "APPROVAL" and case.wire["by"] != "operator":
        yield ERROR, "RECORD-1"


RULES: tuple[Callable[[Case], Found], ...] = (
    *(fsm, identity, clocks, queue, safety, layers),
    *(e1, e2, e3, s4, e4, s5, e6, s6, e7, s8),
    *(inv_act, inv_004, inv_005, inv_007, inv_008, inv_011, inv_012, limit_2, record_1),
)


class NaiveJudge:
    """Judges lines of many episodes, one after the other."""

    def __init__(
        self, settings: Wire | None = None, bounds: Bounds | None = None, wall: Callable[[], datetime] | None = None
    ) -> None:
        self.settings = dict(settings or {})
        self.bounds = bounds or Bounds()
        self.wall = wall
        self.stories: dict[str, Story] = {}
        self.refusals: Counter[str] = Counter()

    def tell(self, wire: Wire) -> Answer:
        """Judge a line, and keep it if it is accepted."""
        answer, entries, story = self._weigh(wire)
        if not answer.accepted:
            self.refusals[_correlation(wire)] += 1
        else:
            self.stories[_correlation(wire)] = story
            story.log.extend(entries)
        return answer

    def malformed(self, correlation: str | None, rules: set[str]) -> Answer:
        """Answer for a line that is no packet: refused, and nothing moves."""
        if correlation is not None:
            self.refusals[correlation] += 1
        story = self.stories.get(correlation or "")
        if story is None:
            return Answer(False, frozenset(rules), frozenset(), [])
        if position(story) == CLOSED:
            rules = {"EPISODE_CLOSED"}
        return Answer(False, frozenset(rules), frozenset(), [shown(story, position(story))])

    def outcome(self, correlation: str) -> str:
        if self.refusals[correlation]:
            return "violated"
        return "conforming" if self.place(correlation) == CLOSED else "open"

    def place(self, correlation: str) -> str:
        return position(self.stories[correlation]) if correlation in self.stories else IDLE

    def _weigh(self, wire: Wire) -> tuple[Answer, list[Entry], Story]:
        known = self.stories.get(_correlation(wire))
        story = known or self._begun_by(wire)
        event = event_of(wire)
        turned_away = self._turned_away(event, known, story)
        if turned_away is not None:
            return (
                Answer(False, frozenset({turned_away}), frozenset(), [shown(story, position(story))], event),
                [],
                story,
            )
        if event is None:
            return Answer(True, frozenset(), frozenset(), ["S0_IDLE"]), [], story
        return *self._judge(wire, event, story), story

    def _begun_by(self, wire: Wire) -> Story:
        """Return the episode that this line would begin."""
        if wire.get("record") != "open":
            return Story(**self.settings)
        said = {name: value for name, value in (wire.get("data") or {}).items() if value is not None}
        if "initial_beliefs" in said:
            said["initial_beliefs"] = bool(said["initial_beliefs"])
        story = Story(**{**self.settings, **said}, opened_at=moment(wire["at"]))
        if story.clock == "wall" and self.wall is not None:
            story.opened_at = self.wall()
        return story

    def _turned_away(self, event: str | None, known: Story | None, story: Story) -> str | None:
        """Return the rule by which a line is refused before the machine looks at it."""
        if position(story) == CLOSED:
            return "EPISODE_CLOSED"
        if event is None and (known is not None or (story.clock == "wall" and self.wall is None)):
            return "RECORD-1"
        if known is not None:
            return None
        running = sum(position(one) != CLOSED for one in self.stories.values())
        return "LIMIT-1" if running >= self.bounds.open_episodes else None

    def _judge(self, wire: Wire, event: str, story: Story) -> tuple[Answer, list[Entry]]:
        stated = moment(wire["header"]["created_at"] if "header" in wire else wire["at"])
        last = clock(story)
        reads = stated if self.wall is None or story.clock == "event" else self.wall()
        now = reads if last is None else max(reads, last)
        place = position(story)
        case = Case(wire, event, now, stated, place, story, self.bounds)
        found = [finding for rule in RULES for finding in rule(case)]
        if event in ("CRITICAL", "HALT"):
            # Nothing but a name that is taken holds up an emergency.
            found = [(level if name == "ID-1" else WARNING, name) for level, name in found]
        errors = frozenset(name for level, name in found if level == ERROR)
        warnings = frozenset(name for level, name in found if level == WARNING)
        if errors:
            return Answer(False, errors, warnings, [shown(story, place)], event), []
        steps = move(place, event, story)
        assert steps is not None
        entries = [Entry(event, wire, now, place, steps[-1]), *_overrun(case, steps[-1])]
        path = [start_shown(story, place, event), *(shown(story, step) for step in steps)]
        path += [STATE[entry.after] for entry in entries[1:]]
        synthetic = entries[1].event if len(entries) > 1 else None
        return Answer(True, errors, warnings, path, event, synthetic), entries


def _overrun(case: Case, place: str) -> list[Entry]:
    """Return the synthetic transition after a result that spends more than is allowed."""
    decision = governing(case.story)
    if case.event != "RESULT" or decision is None:
        return []
    before, more = spent(case.story), cost(case.wire, case.story.log)
    used = (before[0] + more[0], before[1] + more[1], before[2] + more[2])
    if not over(used, allowance(case.story, decision)):
        return []
    if case.story.on_overrun == "safemode":
        return [Entry("OVERRUN_HALT", {}, case.now, place, SAFEMODE)]
    return [Entry("OVERRUN_ESCALATE", {}, case.now, place, ESCALATE_DUE)]


def _correlation(wire: Wire) -> str:
    return str(wire["header"]["correlation_id"] if "header" in wire else wire["correlation_id"])
