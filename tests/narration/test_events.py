"""Events are told in words: who did what, and what came of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.envs.plume.tools import EIGHT, FOUR
from proctor.envs.popper.rules import CONTRACT_BOARD
from proctor.ledger.reader import Ledger, Row
from proctor.models.arrays import pack_array
from proctor.models.events import AgentRevoked, BatchStepped, Event, SessionClosed, SessionResumed
from proctor.narration.events import (
    MOST_DECODED_BYTES,
    NOT_KEPT,
    PLUME_ACTIONS,
    POPPER_COLUMNS,
    UNREADABLE_PACKET,
    Narrator,
    ResultTone,
    TimelineEntry,
    action_describer,
    describe_observation,
    describe_packet,
    format_path,
    timeline_entries,
)
from tests.cli.recordings import NOON, batch, closed, free, governed, opened, played, reset, stepped, written
from tests.cli.streams import conforming
from tests.memory import measured_memory


def rows(events: Iterable[Event], *, values: bool = True) -> list[Row]:
    return [Row(number, "s.1", number, event, None, values, b"") for number, event in enumerate(events)]


def told(events: Iterable[Event], **options: Any) -> list[TimelineEntry]:
    return list(timeline_entries(rows(events), Narrator(), **options))


def test_an_orchestrators_episode_is_told() -> None:
    began, up, right, over, _ = told(free())

    assert (began.who, began.what, began.step, began.remark) == ("control", "reset seed=7", "0", "[0]")
    assert (up.step, up.what, up.result, up.at) == ("1-2", "up x2", "reward 1", 0.25)
    assert (right.step, right.result, right.tone) == ("3", "reward 1, terminated", ResultTone.ENDED)
    assert (over.who, over.what, over.at) == ("system", "episode over (closed)", 10.0)


def test_an_agent_has_its_name_its_tool_and_what_it_did() -> None:
    story = {entry.what: entry for entry in told(played())}

    assert story["move north x3"].who == "agent walker"
    assert story["move north x3"].result == "reward 1.5"
    assert story["reset seed=99 (drawn)"].who == "control"
    assert story["call"].result == "refused: VALIDATION_ERROR"
    assert story["taken up after a restart"].result == "rebuilt, every digest as it was"
    assert story["grant to agent walker"].result == "2 tools"


def test_every_step_can_have_its_line() -> None:
    assert [entry.step for entry in told(free(), folded=False)][1:4] == ["1", "2", "3"]


def test_steps_are_told_apart_by_actor_tool_action_and_end() -> None:
    steps = [
        stepped("s", 1),
        stepped("s", 2, principal="agent", grant="g", tool="move"),
        stepped("s", 3, principal="agent", grant="g", tool="go"),
        stepped("s", 4, principal="agent", grant="g", tool="go", action=1, truncated=True),
        stepped("s", 5, principal="agent", grant="g", tool="go", action=1),
    ]

    assert [entry.step for entry in told(steps)] == ["1", "2", "3", "4", "5"]


def test_only_the_rows_that_are_wanted_are_told_with_what_came_before_them() -> None:
    (only,) = told(played(), wanted=range(3, 5))

    assert (only.who, only.step, only.at) == ("agent walker", "1-2", 0.25)


def test_packets_tell_their_kind_and_the_verdict() -> None:
    story = [(entry.who, entry.what, entry.result) for entry in told(governed())]

    assert ("agent walker", "ObservationPacket tool_output", "accepted S0>S1") in story
    assert ("agent walker", "TaskDirectivePacket heater", "accepted S5>S6") in story
    assert ("system", "record close", "accepted S7>S0") in story
    refused = next(entry for entry in told(governed()) if entry.result.startswith("refused by FSM, E1: "))
    assert (refused.what, refused.tone, refused.whole) == ("DecisionPacket ACT decided: ACT", ResultTone.BAD, True)


def test_a_judgement_is_told_when_the_episode_is_over() -> None:
    over = closed("s", 3, outcome="open", state="S6_EXECUTE", obligations=["task t1"], reason="reset")

    (entry,) = told([over])

    assert entry.result == "open, in S6, still open: task t1"
    assert told([closed("s", 0, reason="lost")])[0].tone is ResultTone.BAD


def test_other_events_are_told_too() -> None:
    lost = SessionResumed(session="s", at=NOON, epoch=1, step=2, boot="b", server="0", lost="a digest differs")
    revoked = AgentRevoked(session="s", at=NOON, epoch=1, grant="g7")
    over = SessionClosed(session="s", at=NOON, reason="idle", episodes=2, steps=9)

    assert [(entry.what, entry.result) for entry in told([lost, revoked, over])] == [
        ("taken up after a restart", "lost: a digest differs"),
        ("revoke agent g7", "revoked"),
        ("session over: idle", "2 episodes"),
    ]


def test_a_batch_is_told_in_sums() -> None:
    began, step, *_ = told(batch())

    assert began.what == "reset batch seed=3"
    assert (step.what, step.result) == ("step of 2", "reward 1 in all, 1 terminated")


def test_what_was_not_kept_is_said() -> None:
    first, *_ = timeline_entries(rows(free(), values=False), Narrator())

    assert first.remark == NOT_KEPT


def test_a_packed_array_is_told_by_its_shape() -> None:
    text = Raw(b'{"observation":{"a":{"dtype":"<f4","shape":[2,3],"data":"AAAA"}}}')

    assert describe_observation(text, True) == "{a: <f4 of shape [2, 3]}"


LONG = Raw(b"[" + b"[]," * (MOST_DECODED_BYTES // 3) + b"[]]")
ZIPPED = Raw(msgspec.json.encode(pack_array(np.zeros(MOST_DECODED_BYTES), compress=True)))
"""A few bytes that say some mebibytes of rewards."""


def test_of_a_long_value_only_the_size_is_told() -> None:
    size = f"{len(bytes(LONG)):,} bytes"
    with measured_memory() as peak:
        began, step = told(
            [
                reset("s", seed=None, metadata=LONG, options=LONG, observation=LONG),
                replace(stepped("s", 1), action=LONG, observation=LONG),
            ]
        )
        packet = describe_packet("DecisionPacket", LONG)

    assert (began.what, began.remark) == (f"reset seed=drawn options={size}", size)
    assert (step.what, step.remark) == (size, size)
    assert packet == "DecisionPacket"
    assert peak() < 4 * MOST_DECODED_BYTES


@pytest.mark.parametrize(
    "said",
    [
        Raw(b"5"),
        Raw(b"null"),
        Raw(b"[[1],[2]]"),
        Raw(b'["x"]'),
        Raw(b'{"a":1}'),
        Raw(b"[1" + b"0" * 400 + b"]"),
        LONG,
        ZIPPED,
    ],
)
def test_rewards_and_flags_of_a_batch_that_are_no_numbers_are_said_to_be_unreadable(said: Raw) -> None:
    step = next(event for event in batch() if isinstance(event, BatchStepped))

    with measured_memory() as peak:
        (entry,) = told([replace(step, rewards=said, truncations=said)])

    assert entry.what == "step of the batch"
    assert entry.result == "the rewards cannot be read, who is truncated cannot be read, 1 terminated"
    assert peak() < 4 * MOST_DECODED_BYTES


def test_rewards_that_json_has_no_number_for_are_added_up() -> None:
    step = next(event for event in batch() if isinstance(event, BatchStepped))

    (entry,) = told([replace(step, rewards=Raw(b'["Infinity",1]'))])

    assert entry.result == "reward inf in all, 1 terminated"


def test_a_step_without_a_reward_says_so() -> None:
    (entry,) = told([stepped("s", 1, reward=None, raw_reward=None)])

    assert entry.result == "no reward"


def test_actions_are_called_as_the_environments_call_them() -> None:
    assert PLUME_ACTIONS["discrete_grid"] == FOUR
    assert PLUME_ACTIONS["eight_direction_stay"] == EIGHT
    assert CONTRACT_BOARD[1] == POPPER_COLUMNS


@pytest.mark.parametrize(
    ("said", "action", "words"),
    [
        ({}, 3, "left"),
        ({"settings": {"action": "eight_direction_stay"}}, 8, "stay"),
        ({"settings": {"action": {"type": "oriented_grid"}}}, 1, "turn left"),
        ({"settings": {"action": {"type": "continuous"}}}, [0.5, -1.0], "[0.5, -1]"),
        ({"settings": {"config": "some.toml"}}, 1, "1"),
        ({"settings": {"action": 7}}, 1, "1"),
        ({"environment": "proctor/ColumnPopper-v0"}, 2, "column 2"),
        ({"environment": "proctor/ColumnPopper-v0", "settings": {"columns": 4}}, 4, "fall"),
        ({"environment": "CartPole-v1"}, 1, "1"),
        ({"num_envs": 2}, [0, 1], "[0, 1]"),
        ({}, 99, "99"),
    ],
)
def test_an_action_has_its_name_where_the_record_tells_it(said: dict[str, Any], action: object, words: str) -> None:
    event = stepped("s", 1, action=action)

    assert action_describer(opened("s", **said))(event.action) == words


def test_columns_have_names_however_many_a_record_says_there_are() -> None:
    columns = 2 * 10**6
    with measured_memory() as peak:
        words = action_describer(opened("s", environment="proctor/ColumnPopper-v0", settings={"columns": columns}))
        told = [words(Raw(str(action).encode())) for action in (0, columns - 1, columns, columns + 1, -1)]

    assert told == ["column 0", f"column {columns - 1}", "fall", f"{columns + 1}", "-1"]
    assert peak() < MOST_DECODED_BYTES


def test_an_action_that_no_number_of_python_can_be_is_told_by_its_size() -> None:
    assert action_describer(None)(Raw(b"1" * 5000)) == "5,000 bytes"


def test_an_action_of_a_typed_environment_is_told_as_it_is() -> None:
    assert action_describer(None)(Raw(b'{"speed":2,"turn":"left"}')) == "{speed: 2, turn: left}"


def test_every_packet_of_an_episode_says_what_matters() -> None:
    words = [
        describe_packet(str(getattr(each, "record", None) or each.kind), Raw(each.line())) for each in conforming()
    ]

    assert words[1] == "BeliefUpdatePacket world.warm"
    assert words[2].startswith("DecisionPacket VERIFY_FIRST")
    assert words[4] == "TaskDirectivePacket thermometer"
    assert words[5] == "TaskResultPacket SUCCESS"
    assert words[9].startswith("ToolAuthorizationToken heater token_")
    assert words[-1] == "record close"


@given(st.binary(max_size=40), st.sampled_from(["", "DecisionPacket", "open"]))
def test_whatever_a_packet_holds_it_has_words(line: bytes, kind: str) -> None:
    assert describe_packet(kind, Raw(line)).removeprefix("record ").startswith(kind or UNREADABLE_PACKET)


def test_an_operators_answer_is_told_by_what_was_chosen() -> None:
    line = Raw(b'{"record":"user_input","data":{"choice":"wait","text":"not yet","escalation":"pkt_1"}}')

    assert describe_packet("user_input", line) == "record user_input wait not yet"


def test_many_names_are_counted() -> None:
    line = Raw(b'{"payload":{"token_id":"t","authorized_scope":{"tool_ids":["a","b","c","d","e"]}}}')

    assert describe_packet("ToolAuthorizationToken", line) == "ToolAuthorizationToken a, b, c and 2 more t"


def test_states_are_told_by_their_numbers() -> None:
    assert format_path(["S2_MODEL", "S2_MODEL", "S3_DECIDE", "S2_MODEL"]) == "S2>S3>S2"


def test_the_rows_of_the_stories_are_the_rows_of_a_ledger(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", played())) as ledger:
        real = list(timeline_entries(ledger.rows("played.1"), Narrator()))

    assert real == told(played())
