"""Every refusal is explained: what was refused, by which rule, what was legal there, and what to do."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.episode.judge import Judge
from proctor.episode.rules.governance import SENTENCES
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.models.events import EpisodeReset, PacketJudged
from proctor.server.governed.policy import GovernancePolicy
from proctor.viewer.documents import Explanation
from proctor.viewer.explanations import Explainer, explain_line, explain_refusals
from tests.server.governed.governed_sessions import BELIEF, DECISION, Agent, Hall, packet, policy_with
from tests.viewer import ledgers


async def played(hall: Hall, agent: Agent) -> None:
    """Break a rule of each sort, one after the other."""
    await agent.use("move", direction="up")
    await agent.submit(packet(hall.policy, "ToolAuthorizationToken", {}, layer=1))
    await agent.submit({"header": {"packet_type": "BeliefUpdatePacket", "layer_source": 3}, "mcp": {}, "payload": {}})
    await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, header={"correlation_id": "corr_other_1"}))
    await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, stakes={"stakes_level": "LOW"}))
    await agent.believe()
    await agent.decide("ACT")
    await agent.use("request_token", tools=["fly"], rationale="to see")
    await agent.use("move", direction="up")


def recorded(folder: Path, judged_by: GovernancePolicy, scenario: Callable[[Hall, Agent], Any], **opening: Any) -> str:
    """Record a governed episode under its policy; return its chain."""
    hall = Hall(policy=judged_by)
    ledgers.record_events(folder, hall, partial(scenario, hall), **opening)
    return "s.1"


def explained(
    folder: Path,
    scenario: Callable[[Hall, Agent], Any] = played,
    judged_by: GovernancePolicy | None = None,
    **opening: Any,
) -> dict[str, Explanation]:
    """Return what is said of the refused lines of an episode, by their first rules."""
    chain = recorded(folder, judged_by or policy_with(), scenario, **opening)
    with Ledger.open(folder) as ledger:
        found = explain_refusals(ledger, chain)
    return {each.rules[0].rule: each for each in reversed(found.values())}


def test_a_directive_that_nothing_covers_is_explained_with_the_way_to_it(tmp_path: Path) -> None:
    found = explained(tmp_path)["FSM"]

    assert found.headline == (
        "A WRITE directive was refused: no decision to act stands behind it and no live token covers it."
    )
    assert not found.accepted
    assert [each.rule for each in found.rules] == ["FSM", "E2", "E4"]
    assert all(each.sentence for each in found.rules)
    assert found.way == [
        "BeliefUpdatePacket",
        "DecisionPacket(ACT)",
        "ToolAuthorizationToken",
        "TaskDirectivePacket(WRITE)",
    ]
    assert found.legal_next[:2] == ["ObservationPacket", "BeliefUpdatePacket"]
    assert found.state == "S1_SENSE"
    assert "/header/packet_type" in found.pointers
    assert "is not legal in S1_SENSE" in found.reason
    assert found.advice.startswith("Call believe")


def test_a_line_of_which_the_first_errors_are_on_record_is_judged_again_as_it_was(tmp_path: Path) -> None:
    async def scenario(hall: Hall, agent: Agent) -> None:
        wrong = packet(hall.policy, "EscalationPacket", {})
        wrong["mcp"]["evidence"]["evidence_refs"] = [{}] * 50
        told = await agent.submit(wrong)
        every = Judge().apply(bytes(hall.lines[-1].line)).rules
        assert len(told.rules) < len(every)  # those of the fields that come later
        await agent.use("move", direction="up")

    assert explained(tmp_path, scenario)["FSM"].way


@pytest.mark.parametrize(
    ("rule", "headline"),
    [
        ("GOV-1", "A token was refused: an agent may not state this."),
        (
            "GOV-2",
            "A belief update was refused: a packet belongs to this episode and no other: leave correlation_id out",
        ),
        ("GOV-3", "A belief update was refused: LOW is below what the policy says, MEDIUM."),
        ("POLICY-3", "A call of request_token was refused: there is no such tool: fly."),
        ("SCHEMA", "A belief update was refused: its fields are not as they must be."),
    ],
)
def test_what_the_judge_never_saw_is_explained_by_its_rule(tmp_path: Path, rule: str, headline: str) -> None:
    found = explained(tmp_path)[rule]

    assert found.headline.startswith(headline)
    assert found.rules[0].sentence == SENTENCES.get(rule, found.rules[0].sentence) != ""
    assert found.legal_next
    assert found.advice


async def verifies_late(hall: Hall, agent: Agent) -> None:
    await agent.believe()
    await agent.decide("ACT")


def test_a_policy_that_wants_a_verification_is_explained_with_the_way_to_it(tmp_path: Path) -> None:
    policy = policy_with(quality={"verification_requirement": "VERIFY_ONE"})

    found = explained(tmp_path, verifies_late, policy)["POLICY-1"]

    assert found.headline.startswith("A decision to act was refused: the policy asks for VERIFY_ONE")
    assert found.way == [
        "DecisionPacket(VERIFY_FIRST)",
        "VerificationPlanPacket",
        "TaskDirectivePacket(READ)",
        "BeliefUpdatePacket",
        "DecisionPacket(ACT)",
    ]
    assert (found.state, "DecisionPacket" in found.legal_next) == ("S2_MODEL", True)


async def acts_gravely(hall: Hall, agent: Agent) -> None:
    await agent.believe()
    quality, stakes = {"quality_tier": "SUPERB"}, {"impact": "HIGH", "stakes_level": "HIGH"}
    await agent.submit(packet(hall.policy, "DecisionPacket", DECISION, stakes=stakes, quality=quality))
    await agent.decide("ACT")
    await agent.use("request_token", tools=["move"], rationale="r")


def test_a_policy_that_wants_a_human_is_explained_with_the_way_to_the_human(tmp_path: Path) -> None:
    policy = policy_with(escalation={"when": ["act at HIGH stakes", "write at MEDIUM stakes"]})
    chain = recorded(tmp_path, policy, acts_gravely)

    with Ledger.open(tmp_path) as ledger:
        first, second = explain_refusals(ledger, chain).values()

    asked = ["DecisionPacket(ESCALATE)", "EscalationPacket", "user_input record", "DecisionPacket(ACT)"]
    assert first.way == asked
    assert second.way[-5:] == [*asked, "ToolAuthorizationToken"]
    assert second.way[:-5]  # from S3 nothing leads to a human at once
    assert {each.rules[0].sentence for each in (first, second)} == {SENTENCES["POLICY-2"]}


async def hurries(hall: Hall, agent: Agent) -> None:
    await agent.decide("ACT")
    await agent.believe()
    await agent.decide("CANCEL")


def test_a_rule_of_the_house_is_explained_in_its_own_words(tmp_path: Path) -> None:
    policy = policy_with(rules="ASK-FIRST: approval record before DecisionPacket(CANCEL)")

    found = explained(tmp_path, hurries, policy)["ASK-FIRST"]

    assert (
        found.headline == "A decision to cancel was refused: DecisionPacket(CANCEL) comes before any approval record."
    )
    assert found.rules[0].sentence == "ASK-FIRST: approval record before DecisionPacket(CANCEL)"
    assert found.advice == "Send one of the packets that are legal now."


async def is_stopped(hall: Hall, agent: Agent) -> None:
    await agent.believe()
    await hall.operator.alert(hall.episode, "CRITICAL", "stop at once")
    await agent.use("move", direction="up")


def test_a_call_in_safe_mode_is_explained(tmp_path: Path) -> None:
    found = explained(tmp_path, is_stopped)["E7"]

    assert found.headline == "A call of move was refused: the episode is in safe mode."
    assert found.state == "S9_SAFEMODE"
    assert any("IntegrityAlertPacket" in each for each in found.legal_next)
    assert any(each.startswith("escalation") for each in found.obligations)


@pytest.mark.parametrize("policy", [{"profile": "sloppy"}, {"rules": "no rule at all"}], ids=str)
def test_under_a_policy_that_cannot_be_read_a_row_speaks_for_itself(tmp_path: Path, policy: dict[str, Any]) -> None:
    found = explained(tmp_path, policy=policy)["FSM"]

    assert found.headline.startswith("A WRITE directive was refused: no decision to act stands behind it")
    assert found.reason.startswith("TaskDirectivePacket(WRITE) is not legal in S1_SENSE")
    assert [each.rule for each in found.rules] == ["FSM", "E2", "E4"]
    assert (found.legal_next, found.way, found.obligations) == ([], [], [])
    assert found.state == "S1_SENSE"


def test_from_the_line_on_that_is_judged_differently_now_rows_speak_for_themselves(tmp_path: Path) -> None:
    stricter = {"rules": "NEVER: approval record before BeliefUpdatePacket"}
    chain = recorded(tmp_path, policy_with(), played, policy=stricter)
    with Ledger.open(tmp_path) as ledger:
        found = list(explain_refusals(ledger, chain).values())

    assert found[0].legal_next
    assert found[-1].legal_next == []
    assert found[-1].headline.startswith("A WRITE directive was refused: no live token covers it")


def test_accepted_lines_are_explained_one_by_one(tmp_path: Path) -> None:
    chain = ledgers.governed_episode(tmp_path)

    with Ledger.open(tmp_path) as ledger:
        lines = [row for row in ledger.rows(chain) if isinstance(row.event, PacketJudged)]
        found = [explain_line(ledger, chain, row.number) for row in lines[:12]]
        refused = explain_refusals(ledger, chain)

    assert found[0].headline == "The opening of the episode was accepted: the episode stays in S0_IDLE."
    assert found[1].headline == "An observation was accepted: the episode went from S0_IDLE to S1_SENSE."
    assert found[2] == refused[lines[2].number]
    assert "the episode went from S2_MODEL to S3_DECIDE to S4_VERIFY" in found[4].headline
    assert [each.advice for each in found if each.accepted] == [""] * 11
    assert set(refused) == {row.number for row in lines if not row.event.accepted}  # type: ignore[union-attr]


def test_a_request_that_waits_for_an_operator_is_told_as_what_it_is(tmp_path: Path) -> None:
    async def asks(hall: Hall, agent: Agent) -> None:
        await agent.permitted("move", wait_seconds=0)

    chain = recorded(tmp_path, policy_with(tokens={"issuer": "human"}), asks)
    with Ledger.open(tmp_path) as ledger:
        lines = [row for row in ledger.rows(chain) if isinstance(row.event, PacketJudged)]
        found = explain_line(ledger, chain, lines[-1].number)

    assert found.headline == "An agent asked for a token, and an operator decides about it."
    assert found.accepted


def test_hostile_words_stay_words_and_leave_the_headline_readable(tmp_path: Path) -> None:
    chains = [ledgers.hostile_episode(tmp_path), ledgers.forged_episode(tmp_path)]

    with Ledger.open(tmp_path) as ledger:
        found = [each for chain in chains for each in explain_refusals(ledger, chain).values()]

    assert len(found) == 4
    assert all(each.headline.isprintable() and len(each.headline) < 400 for each in found)
    assert found[-1].rules[0].rule == found[-1].reason == ledgers.HOSTILE


@pytest.mark.parametrize("number", [-1, 0, 1, 4, 10**12])
def test_a_row_that_is_no_judged_line_is_refused(tmp_path: Path, number: int) -> None:
    chain = ledgers.governed_episode(tmp_path)

    with Ledger.open(tmp_path) as ledger, pytest.raises(ValidationError, match="no judged line"):
        explain_line(ledger, chain, number)


def test_a_chain_that_is_no_episode_is_refused(tmp_path: Path) -> None:
    ledgers.governed_episode(tmp_path)

    with Ledger.open(tmp_path) as ledger:
        with pytest.raises(ValidationError, match="no episode"):
            explain_refusals(ledger, "server.boot")
        with pytest.raises(ValidationError, match="no such chain"):
            explain_refusals(ledger, "nobody.1")


texts = st.text(max_size=12)
lines = st.builds(
    PacketJudged,
    session=st.just("s"),
    at=st.just(1.0),
    epoch=st.just(1),
    step=st.just(0),
    line=st.one_of(texts, st.dictionaries(texts, texts, max_size=3)).map(lambda said: Raw(msgspec.json.encode(said))),
    kind=st.sampled_from(["", "DecisionPacket", "close", "token_request", "move"]) | texts,
    judged=st.booleans(),
    accepted=st.booleans(),
    path=st.lists(texts, max_size=3),
    rules=st.lists(st.sampled_from(["FSM", "E4", "GOV-1", "POLICY-1", "POLICY-2"]) | texts, max_size=3),
    pointers=st.lists(texts, max_size=2),
    reason=texts,
    warnings=st.lists(texts, max_size=2),
    state=texts,
    tool=st.none() | texts,
)


@settings(max_examples=20, deadline=None)
@given(said=st.lists(lines, min_size=1, max_size=6), policy=st.none() | st.dictionaries(texts, texts, max_size=2))
def test_whatever_is_on_record_is_explained(said: list[PacketJudged], policy: dict[str, Any] | None) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with ledgers.writing(folder, ledgers.Clock(1e9)) as writer:
            writer.record(ledgers.opened("s", 1.0, policy=policy))
            writer.record(EpisodeReset(session="s", at=1.0, epoch=1, episode_id="e", observation=Raw(b"{}")))
            for event in said:
                writer.record(event)
        with Ledger.open(folder) as ledger:
            found = explain_refusals(ledger, "s.1")

    assert len(found) == sum(not event.accepted for event in said)
    assert all(each.headline.endswith(".") and each.headline.isprintable() for each in found.values())


# -------------------------------------------------------------------------------------------------- rows that cannot be read
def spoiled(folder: Path, number: int, body: bytes = b'packet_judged "no') -> None:
    connection = sqlite3.connect(folder / "worker-0.ledger")
    connection.execute("UPDATE rows SET body = ? WHERE number = ?", (body, number))
    connection.commit()
    connection.close()


def test_a_line_that_cannot_be_read_is_passed_over_and_later_ones_speak_for_themselves(tmp_path: Path) -> None:
    chain = recorded(tmp_path, policy_with(), played)
    with Ledger.open(tmp_path) as ledger:
        before = explain_refusals(ledger, chain)
    numbers = sorted(before)
    spoiled(tmp_path, numbers[1])

    with Ledger.open(tmp_path) as ledger:
        after = explain_refusals(ledger, chain)
        with pytest.raises(ValidationError, match="no judged line"):
            explain_line(ledger, chain, numbers[1])

    assert sorted(after) == [number for number in numbers if number != numbers[1]]
    assert after[numbers[0]] == before[numbers[0]]
    assert all(after[number].legal_next == [] for number in numbers[2:])
    assert all(after[number].headline == before[number].headline for number in numbers[2:])


def test_under_an_opening_that_cannot_be_read_rows_speak_for_themselves(tmp_path: Path) -> None:
    chain = recorded(tmp_path, policy_with(), played)
    with Ledger.open(tmp_path) as ledger:
        first = ledger.find_chain(chain)[1].first
    spoiled(tmp_path, first, b"no")

    with Ledger.open(tmp_path) as ledger:
        found = explain_refusals(ledger, chain)

    assert found
    assert all(each.legal_next == [] for each in found.values())


# ------------------------------------------------------------------------------------------------------- one after the other
def test_who_asks_for_one_line_after_the_other_judges_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = recorded(tmp_path, policy_with(), played)
    judged: list[bytes] = []
    apply = Judge.apply

    def counted(judge: Judge, line: bytes) -> Any:
        judged.append(line)
        return apply(judge, line)

    monkeypatch.setattr(Judge, "apply", counted)
    explainer = Explainer()
    with Ledger.open(tmp_path) as ledger:
        alone = explain_refusals(ledger, chain)
        once = len(judged)
    judged.clear()

    found = {}
    for number in sorted(alone):
        with Ledger.open(tmp_path) as ledger:
            found[number] = explainer.explain(ledger, chain, number)
            assert explainer.explain(ledger, chain, min(alone)) == alone[min(alone)]

    assert found == alone
    assert len(judged) <= once


def test_of_an_episode_that_is_too_long_to_remember_the_beginning_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.viewer.explanations.MOST_HELD", 1)
    chain = recorded(tmp_path, policy_with(), played)
    explainer = Explainer()

    with Ledger.open(tmp_path) as ledger:
        alone = explain_refusals(ledger, chain)
        found = {number: explainer.explain(ledger, chain, number) for number in sorted(alone, reverse=True)}

    assert found == alone
