"""The judge against a second opinion: an independent naive model answers the same lines, one by one."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.episode import Judge, Settings
from proctor.episode.rules.catalogue import CATALOGUE
from proctor.episode.settings import Limits
from proctor.episode.transition_table import Event, ProtocolState
from proctor.episode.verdicts import Verdict
from tests.episode import naive_model
from tests.episode import stream_strategies as say
from tests.episode.naive_model import Answer, Bounds, NaiveJudge, Story
from tests.episode.scripts import everything
from tests.episode.stream_strategies import BEGIN, Pass, Said, Task, Walk, stream

Wire = dict[str, Any]


def told(verdict: Verdict) -> Answer:
    """Return a verdict in the model's words."""
    return Answer(
        verdict.accepted,
        frozenset(verdict.rules),
        frozenset(finding.rule for finding in verdict.warnings),
        [state.value for state in verdict.path],
        None if verdict.event is None else verdict.event.name,
        verdict.synthetic[0].event.name if verdict.synthetic else None,
    )


def expected(model: NaiveJudge, said: Said) -> Answer:
    if said.broken is not None:
        return model.malformed(said.correlation_id, set(said.broken))
    return model.tell(json.loads(said.line))


def met_in(judge: Judge, model: NaiveJudge, lines: Iterable[Said]) -> Counter[str]:
    """Judge `lines` twice over, find the same, and count the states, rules and events that were met."""
    met: Counter[str] = Counter()
    for number, said in enumerate(lines, 1):
        verdict = judge.apply(said.line)
        answer = expected(model, said)
        assert told(verdict) == answer, f"line {number}: {said.line.decode(errors='replace')}"
        met.update({*answer.path, *answer.rules, *answer.warnings, str(answer.event), str(answer.synthetic)})
    return met


def met_at_the_limits(seeds: int, lines: int) -> Counter[str]:
    """Judge short streams with room for little."""
    limits = Limits(open_episodes=7, packets=20, open_tasks=2, tokens=2)
    bounds = Bounds(open_episodes=7, packets=20, open_tasks=2, tokens=2)
    met: Counter[str] = Counter()
    for seed in range(seeds):
        met += met_in(Judge(limits=limits), NaiveJudge(bounds=bounds), stream(seed, lines))
    return met


def never_met(met: Counter[str]) -> list[str]:
    names = [
        *(state.value for state in ProtocolState),
        *(event.name for event in Event),
        *(one.id for one in CATALOGUE),
    ]
    print("\n".join(f"{name:20} {met[name]:>8}" for name in names))
    return [name for name in names if not met[name]]


LOOP = "see believe VERIFY_FIRST plan read succeed see integrate"
ACTING = "see believe ACT token write"
# The row of DECISIONS part D, the words said, then what the last of them gets: its path, or the rules that it breaks.
BY_HAND = [
    (1, "see believe VERIFY_FIRST", "S2 S3 S4"),
    (2, "see believe ESCALATE escalate", "S3 S8"),
    (3, "see believe DEFER believe", "S3 S7"),
    (4, "see believe ACT VERIFY_FIRST", "S3 S4"),
    (4, "see believe ACT ACT", "FSM"),
    (5, "see believe VERIFY_FIRST plan read", "S4 S4"),
    (6, LOOP, "S4 S2"),
    (6, "see believe VERIFY_FIRST plan read succeed integrate", "S4"),
    (7, "see believe VERIFY_FIRST read", "E3"),
    (9, "see believe VERIFY_FIRST plan read succeed see believe", "E3 S4"),
    (10, "see believe VERIFY_FIRST plan write", "FSM E2 E4"),
    (14, "see believe ACT token read", "FSM"),
    (15, f"{ACTING} write", "S6 S6"),
    (15, f"{ACTING} write write write", "E4"),
    (16, f"{ACTING} succeed believe", "S6 S7"),
    (16, f"{ACTING} fail believe", "S6 S2"),
    (16, f"{ACTING} fail believe see", "S7 S1"),
    (16, f"{ACTING} succeed believe ACT", "S2 S3"),
    (17, f"{ACTING} believe", "E6 S6"),
    (19, f"{ACTING} succeed succeed", "E6"),
    (20, "see believe CANCEL believe see", "S7 S1"),
    (21, "halt", "S0 S9"),
    (22, f"{ACTING} overspend", "S6 S6 S9"),
    (23, "halt believe", "S9 S9"),
    (23, "halt clear", "S9 S7"),
    (24, f"{ACTING} halt succeed", "FSM E6 E7"),
    (25, "see notice", "S1 S1"),
    (26, "see believe ESCALATE escalate answer", "S8 S3"),
    (26, "see believe ESCALATE escalate ACT", "FSM S8"),
    (27, "see believe CANCEL believe close", "S7 S0"),
    (27, "see close", "FSM"),
    (27, "see believe CANCEL believe close see", "EPISODE_CLOSED"),
    (36, "see believe see", "FSM"),
]


def by_hand(words: str) -> list[Wire]:
    """Return the packets that the words name, complete and plain; results and references mean the latest."""
    walk = Walk("corr_hand", Random(0), 100, 0.0)
    walk.seconds = 1.0
    task, last = "pkt_none", "pkt_none"
    lines: list[Wire] = []
    for word in words.split():
        walk.at += 1.0
        lines.append(_in_words(walk, word, task, last))
        header = lines[-1].get("header", {"packet_id": ""})
        task = header["packet_id"] if word in ("read", "write") else task
        last = header["packet_id"] if word in ("see", "succeed", "fail") else last
    return lines


def _in_words(walk: Walk, word: str, task: str, last: str) -> Wire:
    if word.isupper():
        return walk.say("DecisionPacket", say.decision(word))
    if word == "close":
        return say.record("close", walk.correlation_id, walk.stamp(walk.at))
    at, token = walk.stamp(walk.at), {"tool_safety_class": "WRITE", "authorization_token_id": "token_1"}
    kind, payload, layer = {
        "see": ("ObservationPacket", say.observation(), 6),
        "answer": ("ObservationPacket", say.observation("user_input"), 1),
        "believe": ("BeliefUpdatePacket", say.belief(), 3),
        "integrate": ("BeliefUpdatePacket", say.belief(last), 3),
        "plan": ("VerificationPlanPacket", say.plan("pkt_x"), 5),
        "token": ("ToolAuthorizationToken", say.token("token_1", walk.stamp(10**6)), 5),
        "read": ("TaskDirectivePacket", say.directive("task_1", "tool_read"), 5),
        "write": ("TaskDirectivePacket", say.directive("task_1", "tool_write", **token), 5),
        "succeed": ("TaskResultPacket", say.result("task_1", task), 6),
        "fail": ("TaskResultPacket", say.result("task_1", task, "FAILURE"), 6),
        "overspend": ("TaskResultPacket", say.result("task_1", task, execution_metadata={"tokens_used": 10**6}), 6),
        "escalate": ("EscalationPacket", say.escalation(), 5),
        "notice": ("IntegrityAlertPacket", say.alert("INFO", at), "Integrity"),
        "halt": ("IntegrityAlertPacket", say.alert("CRITICAL", at), "Integrity"),
        "clear": ("IntegrityAlertPacket", say.alert("INFO", at, "clear"), "Integrity"),
    }[word]
    return walk.say(str(kind), payload, layer)  # type: ignore[arg-type]


@pytest.mark.parametrize(("row", "words", "outcome"), BY_HAND)
def test_the_model_answers_as_the_decisions_say(row: int, words: str, outcome: str) -> None:
    model = NaiveJudge()

    *before, last = [model.tell(wire) for wire in by_hand(words)]

    told_in_short = " ".join(state[:2] for state in last.path)
    assert outcome == told_in_short if last.accepted else set(outcome.split()) == last.rules
    assert all(answer.accepted for answer in before), f"D{row}"


@pytest.mark.slow
def test_judge_and_model_agree_on_a_long_stream_that_meets_every_state_rule_and_event() -> None:
    met = met_in(Judge(), NaiveJudge(), stream(11, 8_000)) + met_at_the_limits(seeds=10, lines=200)

    assert never_met(met) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_judge_and_model_agree_on_two_hundred_thousand_packets() -> None:
    met = met_in(Judge(), NaiveJudge(), stream(12, 200_000)) + met_at_the_limits(seeds=100, lines=300)

    assert never_met(met) == []


@pytest.mark.parametrize("profile", ["strict", "lenient"])
@pytest.mark.parametrize("layer_rules", ["warn", "error"])
@pytest.mark.parametrize("on_overrun", ["safemode", "escalate"])
@pytest.mark.parametrize("initial_beliefs", [False, True])
def test_judge_and_model_agree_under_every_setting(
    profile: str, layer_rules: str, on_overrun: str, initial_beliefs: bool
) -> None:
    chosen = {
        "profile": profile,
        "layer_rules": layer_rules,
        "on_overrun": on_overrun,
        "initial_beliefs": initial_beliefs,
    }
    judge = Judge(msgspec.convert(chosen, Settings))

    met = met_in(judge, NaiveJudge(chosen), stream(13, 1_000))

    assert met["S9_SAFEMODE"]


def test_a_stream_without_its_refused_lines_is_judged_the_same() -> None:
    judge = Judge()
    kept = [
        (said.line, everything(verdict)) for said in stream(14, 5_000) if (verdict := judge.apply(said.line)).accepted
    ]

    again = Judge()

    assert [everything(again.apply(line)) for line, _ in kept] == [verdict for _, verdict in kept]


SECTIONS = {
    "stakes": st.fixed_dictionaries(
        {
            "impact": st.sampled_from(("LOW", "MEDIUM", "HIGH", "CRITICAL")),
            "irreversibility": st.sampled_from(("REVERSIBLE", "PARTIAL", "IRREVERSIBLE")),
            "uncertainty": st.sampled_from(("LOW", "MEDIUM", "HIGH")),
            "adversariality": st.sampled_from(("BENIGN", "CONTESTED", "HOSTILE")),
            "stakes_level": st.sampled_from(("LOW", "MEDIUM", "HIGH", "CRITICAL")),
        }
    ),
    "quality": st.sampled_from((say.PAR, say.SUPERB, say.SUBPAR)),
    "routing": st.sampled_from((say.TOOLS_OK, say.TOOLS_PARTIAL, say.TOOLS_DOWN)),
    "budgets": st.builds(say.budgets, *(3 * (st.sampled_from((0, 1, 2, 10, 1000, 2**52)),))),
    "epistemics": st.builds(
        lambda status, freshness: {**say.OBSERVED, "status": status, "freshness_class": freshness},
        st.sampled_from(("OBSERVED", "DERIVED", "REMEMBERED", "INFERRED", "HYPOTHESIZED", "UNKNOWN")),
        st.sampled_from(("REALTIME", "OPERATIONAL", "STRATEGIC", "ARCHIVAL")),
    ),
}
LAYERS = st.sampled_from((1, 2, 3, 4, 5, 6, "Integrity"))
SECONDS = st.sampled_from((0, 0, 1, 2, 10, 100, 5000, -1, -100))
SPENDING = st.fixed_dictionaries(
    {},
    optional={
        "tokens_used": st.sampled_from((0, 1, 10, 2000)),
        "tool_calls_used": st.sampled_from((0, 1, 2, 11)),
        "execution_time_ms": st.sampled_from((0, 999.5, 1000, 10_001, 1e9)),
    },
)


def in_step(walk: Walk, story: Story) -> None:
    """Tell a walk where its episode really stands."""
    last = naive_model.clock(story)
    walk.seconds = walk.seconds if last is None else (last - BEGIN).total_seconds()
    walk.place = naive_model.position(story)
    walk.ids = naive_model.packet_ids(story)
    walk.lenient, walk.initial_beliefs = story.profile == "lenient", story.initial_beliefs
    walk.tasks = [
        Task(task.wire["header"]["packet_id"], task.wire["payload"]["task_id"], naive_model.by_tool(task))
        for task in naive_model.open_tasks(story)
    ]
    known = naive_model.token_ids(story)
    walk.used = {one: naive_model.uses(story, one) for one in known}
    walk.tokens = {one: _pass(story, one) for one in sorted(known) if not naive_model.revoked(story, one)}
    in_the_loop(walk, naive_model.loop(story) or [])
    decision = naive_model.governing(story)
    walk.spent = list(naive_model.spent(story))
    walk.approved = naive_model.approved(story)
    walk.allowed = [0, 0, 0] if decision is None else [decision["mcp"]["budgets"][name] for name in naive_model.BUDGETS]


def _pass(story: Story, token_id: str) -> Pass:
    payload = naive_model.issued(story, token_id) or {}
    return Pass(payload, (naive_model.moment(payload["expiry"]) - BEGIN).total_seconds())


def in_the_loop(walk: Walk, entries: list[naive_model.Entry]) -> None:
    walk.planned = naive_model.planned(entries)
    walk.read = any(entry.event == "READ" for entry in entries)
    walk.succeeded = any(e.event == "RESULT" and e.wire["payload"]["result_status"] == "SUCCESS" for e in entries)
    walk.saw = any(e.event == "OBSERVATION" and e.wire["mcp"]["epistemics"]["status"] == "OBSERVED" for e in entries)
    seen = ("OBSERVATION", "USER_INPUT", "RESULT")
    walk.evidence = [entry.wire["header"]["packet_id"] for entry in entries if entry.event in seen]


class JudgeAndModel(RuleBasedStateMachine):
    """One or two episodes, told to both; what one says the other must say too."""

    @initialize(
        chosen=st.fixed_dictionaries(
            {},
            optional={
                "profile": st.sampled_from(("strict", "lenient")),
                "layer_rules": st.sampled_from(("warn", "error")),
                "on_overrun": st.sampled_from(("safemode", "escalate")),
                "initial_beliefs": st.booleans(),
                "clock": st.sampled_from(("event", "wall")),
            },
        ),
        episodes=st.integers(1, 2),
    )
    def begin(self, chosen: Wire, episodes: int) -> None:
        self.wall = BEGIN
        self.judge = Judge(msgspec.convert(chosen, Settings), now=lambda: self.wall)
        self.model = NaiveJudge(chosen, wall=lambda: self.wall)
        self.walks = [Walk(f"corr_{name}", Random(0), 10**6, 0.06) for name in range(episodes)]

    def tell(self, said: Said) -> None:
        before = self.judge.snapshot()
        foretold = everything(self.judge.check(said.line))
        assert self.judge.snapshot() == before

        verdict = self.judge.apply(said.line)

        assert everything(verdict) == foretold
        assert told(verdict) == expected(self.model, said)

    def walk(self, number: int) -> Walk:
        walk = self.walks[number % len(self.walks)]
        in_step(walk, self.model.stories.get(walk.correlation_id) or Story(**self.model.settings))
        return walk

    @rule(number=st.integers(0, 1), seed=st.integers(0, 2**32), steps=st.integers(1, 12))
    def go_on(self, number: int, seed: int, steps: int) -> None:
        """Go on with a walk for some steps: the way to the deep places."""
        rng = Random(seed)
        for _ in range(steps):
            walk = self.walk(number)
            walk.rng = rng
            self.tell(walk.next())

    @precondition(lambda self: any(self.model.place(walk.correlation_id) == "CLOSED" for walk in self.walks))
    @rule()
    def begin_another(self) -> None:
        for number, walk in enumerate(self.walks):
            if self.model.place(walk.correlation_id) == "CLOSED":
                self.walks[number] = Walk(f"{walk.correlation_id}_next", walk.rng, 10**6, walk.wrong)

    @rule(
        number=st.integers(0, 1),
        sections=st.fixed_dictionaries({}, optional=SECTIONS),
        layer=LAYERS,
        seconds=SECONDS,
        again=st.sampled_from((None, None, None, 0, -1)),
        choices=st.data(),
    )
    def say(
        self, number: int, sections: Wire, layer: int | str, seconds: int, again: int | None, choices: st.DataObject
    ) -> None:
        """Say a packet of any kind and any content."""
        walk = self.walk(number)
        walk.at = walk.seconds + seconds
        kind, payload = choices.draw(st.sampled_from(KINDS))(walk, choices)
        if choices.draw(st.booleans()):
            names = choices.draw(st.lists(st.sampled_from([*walk.ids[-6:], "pkt_x"]), max_size=2))
            sections = (
                {**sections, "evidence": say.evidence(*names, kind=choices.draw(EVIDENCE))} if names else sections
            )
        wire = walk.say(kind, payload, layer, **sections)
        if again is not None and walk.ids:
            wire["header"]["packet_id"] = walk.ids[again]
        self.tell(Said(msgspec.json.encode(wire)))

    @rule(
        number=st.integers(0, 1),
        kind=st.sampled_from(("approval", "approval", "user_input", "user_input", "close", "open", "safemode")),
        by=st.sampled_from(("operator", "system")),
        seconds=SECONDS,
        calls=st.sampled_from((None, 0, 1, 5)),
    )
    def put_down(self, number: int, kind: str, by: str, seconds: int, calls: int | None) -> None:
        walk = self.walk(number)
        data = {"tool_call_budget": calls} if kind == "approval" and calls is not None else None
        wire = say.record(kind, walk.correlation_id, walk.stamp(walk.seconds + seconds), by, data)
        self.tell(Said(msgspec.json.encode(wire)))

    @rule(seconds=SECONDS)
    def let_time_pass(self, seconds: int) -> None:
        self.wall += timedelta(seconds=seconds)

    @precondition(lambda self: self.model.stories)
    @rule()
    def stop_and_start_again(self) -> None:
        kept = self.judge.snapshot()
        self.judge = Judge.restore(kept, now=lambda: self.wall)

        assert self.judge.snapshot() == kept

    @invariant()
    def outcomes_agree(self) -> None:
        for name in {*self.model.stories, *self.model.refusals}:
            assert self.judge.outcome(name).value == self.model.outcome(name)


EVIDENCE = st.sampled_from(("tool_output", "user_observation", "memory_item", "derived_calc"))
Drawn = tuple[str, Wire]


def _observation(_walk: Walk, choices: st.DataObject) -> Drawn:
    return "ObservationPacket", say.observation(choices.draw(st.sampled_from(("user_input", "tool_output"))))


def _belief(walk: Walk, choices: st.DataObject) -> Drawn:
    named = choices.draw(st.lists(st.sampled_from([*walk.ids[-6:], "pkt_x"]), max_size=2))
    return "BeliefUpdatePacket", say.belief(*named)


def _decision(_walk: Walk, choices: st.DataObject) -> Drawn:
    outcome = choices.draw(st.sampled_from(("VERIFY_FIRST", "ACT", "ACT", "ESCALATE", "DEFER", "CANCEL")))
    checks = st.sampled_from((True, True, True, False))
    constraints = {name: choices.draw(checks) for name in ("constitutional_check", "budget_check", "tier_check")}
    verified = choices.draw(st.lists(st.sampled_from((True, True, False)), max_size=2))
    assumptions = [{"assumption": "it holds", "verified": one} for one in verified]
    payload = say.decision(outcome, constraints_satisfied=constraints, load_bearing_assumptions=assumptions)
    return "DecisionPacket", payload


def _plan(walk: Walk, _choices: st.DataObject) -> Drawn:
    return "VerificationPlanPacket", say.plan(walk.decision_id)


def _token(walk: Walk, choices: st.DataObject) -> Drawn:
    changes: Wire = choices.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "usage_count": st.integers(0, 3),
                "max_usage_count": st.integers(1, 3),
                "issuer_layer": LAYERS,
                "revoked": st.booleans(),
            },
        )
    )
    scope = {
        "tool_ids": choices.draw(st.sampled_from((["search"], ["search", "editor"]))),
        "operation_types": choices.draw(st.sampled_from((["read"], ["write"], ["read", "modify"], ["delete"]))),
    }
    token_id = choices.draw(st.sampled_from(("token_1", "token_2")))
    expiry = walk.stamp(walk.seconds + choices.draw(st.sampled_from((-1, 0, 5, 1000, 10**6))))
    return "ToolAuthorizationToken", say.token(token_id, expiry, authorized_scope=scope, **changes)


def _directive(walk: Walk, choices: st.DataObject) -> Drawn:
    said = choices.draw(st.sampled_from((None, "READ", "READ", "WRITE", "MIXED")))
    kind = choices.draw(st.sampled_from(("tool_read", "tool_write", "verification", "memory_lookup", "computation")))
    named = choices.draw(st.sampled_from((None, "token_1", *walk.used)))
    if named is None and said in ("WRITE", "MIXED"):
        named = "token_2"
    more: Wire = {"tool_safety_class": said, "authorization_token_id": named}
    more["timeout_seconds"] = choices.draw(st.sampled_from((None, 1, 100)))
    tool = choices.draw(st.sampled_from((None, "search", "editor", "rocket")))
    method = choices.draw(st.sampled_from(("tool", "tool", "code", "llm_call", "memory_query")))
    return "TaskDirectivePacket", say.directive(f"task_{walk.count % 2}", kind, tool=tool, method=method, **more)


def _result(walk: Walk, choices: st.DataObject) -> Drawn:
    task = choices.draw(st.sampled_from([*walk.tasks, *walk.tasks, Task("pkt_x", "task_0", True)]))
    status = choices.draw(st.sampled_from(("SUCCESS", "SUCCESS", "FAILURE", "CANCELLED")))
    spending = choices.draw(st.none() | SPENDING)
    task_id = choices.draw(st.sampled_from((task.task_id, task.task_id, "task_1")))
    return "TaskResultPacket", say.result(task_id, task.packet_id, status, execution_metadata=spending)


def _escalation(_walk: Walk, _choices: st.DataObject) -> Drawn:
    return "EscalationPacket", say.escalation()


def _alert(walk: Walk, choices: st.DataObject) -> Drawn:
    severity = choices.draw(st.sampled_from(("INFO", "WARNING", "ERROR", "CRITICAL")))
    kind = choices.draw(st.sampled_from(("clear", "clear", "drift")))
    revoked = choices.draw(st.none() | st.lists(st.sampled_from(("token_1", "token_2", *walk.used)), max_size=2))
    return "IntegrityAlertPacket", say.alert(severity, walk.stamp(walk.seconds), kind, revoked_token_ids=revoked)


def _queue(_walk: Walk, _choices: st.DataObject) -> Drawn:
    return "QueueUpdatePacket", {"anything": [1]}


KINDS = (_observation, _belief, _decision, _plan, _token, _directive, _result, _escalation, _alert, _queue)

TestJudgeAndModel = JudgeAndModel.TestCase
TestJudgeAndModel.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
