"""What a show tells: folded from rows, whoever reads them and whenever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cli.demo.story import AgentMove, EpisodeStory, JudgedLine, LineKind
from tests.cli.episodes import Recorded, begun


def told(recorded: Recorded) -> EpisodeStory:
    story = EpisodeStory()
    for row in recorded.rows:
        story.add_row(row)
    return story


def test_a_packet_is_told_by_who_said_it_where_it_led_and_when() -> None:
    said = told(begun()).said[0]

    assert said == JudgedLine(1.0, "agent", "believe", "BeliefUpdatePacket world.odor", "S1>S2", LineKind.ACCEPTED, "")


def test_a_refusal_says_rule_and_reason_and_moves_nothing() -> None:
    story = told(begun())

    assert [said.why for said in story.refusals] == ["GOV-1: an agent may not state this"]
    assert story.state == "S2_MODEL"


def test_steps_move_the_picture_and_leave_a_trail() -> None:
    recorded = Recorded()
    story = EpisodeStory()
    story.add_row(recorded.opened())
    story.add_row(recorded.reset())
    before = story.scene

    moved = [story.add_row(recorded.stepped()), story.add_row(recorded.stepped(terminated=True, reward=1.0))]

    assert moved == [AgentMove(1.0, 1, "move"), AgentMove(2.0, 2, "move")]
    assert before is not None
    assert story.scene is not None
    assert len(before["frame"]["trail"]) == 1
    assert len(story.scene["frame"]["trail"]) == 3
    assert story.scene["static"] == before["static"]
    assert (story.step, story.total_reward, story.terminated) == (2, 1.0, True)


def test_a_question_waits_until_a_human_has_answered() -> None:
    recorded = begun()
    recorded.judged("EscalationPacket", {}, "S3_DECIDE", "S8_ESCALATED", tool="escalate")
    asking = told(recorded)
    recorded.judged("user_input", {"text": "go on"}, "S8_ESCALATED", "S3_DECIDE", who="operator")
    answered = told(recorded)

    assert asking.asks
    assert asking.said[-1].kind is LineKind.QUESTION
    assert not answered.asks
    assert [said.who for said in answered.answers] == ["operator"]


def test_the_end_is_told_with_its_outcome() -> None:
    recorded = begun()
    recorded.closed("open")

    story = told(recorded)

    assert story.closed is not None
    assert story.closed.outcome == "open"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["step", "belief", "refusal", "nothing"]), max_size=12))
def test_a_story_counts_every_line_and_every_step_once(happens: list[str]) -> None:
    recorded = Recorded()
    recorded.opened()
    recorded.reset()
    for each in happens:
        if each == "step":
            recorded.stepped()
        elif each == "nothing":
            recorded.opened()
        else:
            rules = ("E1",) if each == "refusal" else ()
            recorded.judged("BeliefUpdatePacket", {}, "S1_SENSE", rules=rules)

    story = told(recorded)

    assert story.step == happens.count("step")
    assert len(story.said) == happens.count("belief") + happens.count("refusal")
    assert len(story.refusals) == happens.count("refusal")
