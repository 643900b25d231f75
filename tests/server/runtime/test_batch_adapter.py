"""A batch is guarded as one environment is, and says of every sub-environment what a learner needs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from proctor.envs.targets import Target
from proctor.models.arrays import unpack_array
from proctor.models.control import Code, Problem
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import BatchAdapter, ResetRequest
from proctor.server.runtime.results import BatchOutcome, RequestFailed, RequestRefused
from tests.server.environments import HIDDEN_TEXT, diary

CORRIDOR = "tests.server.environments:Corridor"
PACKED = Encoding(packed=True)
NO_ACTIONS = [
    b'{"actions":%b}' % value
    for value in (b"[0]", b"[0,0,0]", b"[0,2]", b"[0,-1]", b"[0,0.5]", b'["0",0]', b"null", b"[0,1e400]")
]
MODES = ["next_step", "same_step", "disabled"]


def desk_of(
    text: str = CORRIDOR,
    num_envs: int = 2,
    mode: str = "next_step",
    *,
    infos: bool = False,
    encoding: Encoding | None = None,
    **keywords: Any,
) -> BatchAdapter:
    vector = Target(text, keywords).make_batch(num_envs, mode)
    return BatchAdapter(vector, Encoding() if encoding is None else encoding, lambda: "incident-1", infos=infos)


def order(
    seed: int | list[int] | None = 1, mask: list[bool] | None = None, options: dict[str, Any] | None = None
) -> ResetRequest:
    return ResetRequest(seed, "e", options, mask)


def actions(*values: int) -> bytes:
    return msgspec.json.encode({"actions": values})


def refusal(call: Callable[[], Any]) -> Problem:
    with pytest.raises(RequestRefused) as caught:
        call()
    return caught.value.problem


def failure(call: Callable[[], Any]) -> Problem:
    with pytest.raises(RequestFailed) as caught:
        call()
    return caught.value.problem


def flags(outcome: BatchOutcome) -> tuple[list[bool], list[bool]]:
    assert outcome.terminations is not None
    assert outcome.begins is not None
    return outcome.terminations.tolist(), outcome.begins.tolist()


@pytest.mark.parametrize("text", [CORRIDOR, "CartPole-v1", "proctor/PlumeSearch-v0", "proctor/ColumnPopper-v0"])
def test_a_step_before_the_reset_or_after_the_close_is_refused(text: str) -> None:
    desk = desk_of(text)

    before = refusal(lambda: desk.step(actions(0, 0)))
    desk.close()
    after = refusal(lambda: desk.step(actions(0, 0)))
    again = refusal(lambda: desk.reset(order()))

    assert (before.code, before.clause) == (Code.STATE_ERROR, "NO-STEP-BEFORE-RESET")
    assert (after.code, after.clause) == (Code.STATE_ERROR, "NO-STEP-AFTER-CLOSE")
    assert (again.code, again.clause) == (Code.STATE_ERROR, "NO-RESET-AFTER-CLOSE")


def test_what_is_refused_calls_no_environment() -> None:
    desk = desk_of(key="refused batch")
    calls = diary("refused batch").calls

    refusal(lambda: desk.step(actions(0, 0)))
    refusal(lambda: desk.reset(order([1])))
    assert calls == []
    desk.reset(order())
    calls.clear()
    refusal(lambda: desk.step(actions(0, 2)))

    assert calls == []


def test_closing_twice_closes_every_environment_once() -> None:
    desk = desk_of(key="closed batch")

    desk.close()
    desk.close()

    assert diary("closed batch").methods() == ["close", "close"]


@pytest.mark.parametrize("text", [CORRIDOR, "proctor/PlumeSearch-v0"])
def test_with_autoreset_disabled_a_step_waits_for_the_reset_of_those_that_ended(text: str) -> None:
    settings: dict[str, Any] = {"length": 1} if text == CORRIDOR else {"max_steps": 1}
    desk = desk_of(text, mode="disabled", **settings)
    desk.reset(order())
    desk.step(actions(1, 1))

    problem = refusal(lambda: desk.step(actions(1, 1)))
    desk.reset(order(mask=[True, True]))

    assert (problem.code, problem.clause) == (Code.STATE_ERROR, "NO-STEP-AFTER-END")
    assert flags(desk.step(actions(0, 0)))[1] == [False, False]


def test_in_same_step_the_last_observation_is_told_beside_the_first_of_the_next_episode() -> None:
    desk = desk_of(mode="same_step", length=2)
    desk.reset(order())
    desk.step(actions(1, 0))

    outcome = desk.step(actions(1, 0))

    infos = json.loads(outcome.infos)
    assert flags(outcome) == ([True, False], [True, False])
    assert json.loads(outcome.observations) == [[0.0], [0.0]]
    assert infos["final_obs"] == {"index": [0], "values": [[2.0]]}
    assert infos["final_info"]["at"] == [2, 0]
    assert set(infos) == {"final_obs", "final_info", "_final_obs", "_final_info"}
    assert json.loads(desk.state()) == {"num_envs": 2, "ended": []}


def test_in_disabled_a_mask_says_which_begin() -> None:
    desk = desk_of(mode="disabled", length=1)
    desk.reset(order())
    desk.step(actions(1, 1))
    assert json.loads(desk.state()) == {"num_envs": 2, "ended": [0, 1]}

    outcome = desk.reset(order(mask=[False, True]))

    assert outcome.begins is not None
    assert outcome.begins.tolist() == [False, True]
    assert json.loads(desk.state())["ended"] == [0]
    assert refusal(lambda: desk.step(actions(0, 0))).clause == "NO-STEP-AFTER-END"


@settings(max_examples=40)
@given(st.data(), st.sampled_from(MODES), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_who_begins_and_who_has_ended_follow_from_the_mode(data: st.DataObject, mode: str, lengths: list[int]) -> None:
    size, length = len(lengths), lengths[0]
    desk = desk_of(num_envs=size, mode=mode, length=length)
    desk.reset(order())
    at, over = [0] * size, [False] * size

    for _ in range(12):
        if mode == "disabled" and any(over):
            desk.reset(order(mask=over))
            at, over = [0 if each else x for x, each in zip(at, over, strict=True)], [False] * size
        moves = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        outcome = desk.step(actions(*moves))
        skipped = over if mode == "next_step" else [False] * size
        at = [0 if skip else x + move for x, move, skip in zip(at, moves, skipped, strict=True)]
        ended = [x >= length for x in at]
        begins = {"next_step": skipped, "same_step": ended, "disabled": [False] * size}[mode]
        if mode == "same_step":
            at = [0 if end else x for x, end in zip(at, ended, strict=True)]
        over = [False] * size if mode == "same_step" else ended
        assert flags(outcome) == (ended, begins)
        assert json.loads(outcome.observations) == [[float(x)] for x in at]
        assert json.loads(desk.state())["ended"] == [index for index, each in enumerate(over) if each]


@pytest.mark.parametrize("mask", [[], [True], [False, False], [True, False, True]])
def test_a_mask_that_does_not_fit_is_refused(mask: list[bool]) -> None:
    desk = desk_of(mode="disabled")
    desk.reset(order())

    assert refusal(lambda: desk.reset(order(mask=mask))).code == Code.VALIDATION_ERROR


def test_the_first_reset_resets_all() -> None:
    desk = desk_of(mode="disabled")

    partial = refusal(lambda: desk.reset(order(mask=[True, False])))

    assert partial.code == Code.STATE_ERROR
    assert desk.reset(order(mask=[True, True])).begins is not None


@pytest.mark.parametrize("text", [CORRIDOR, "CartPole-v1", "proctor/PlumeSearch-v0"])
def test_a_mask_resets_those_that_it_names_or_is_refused(text: str) -> None:
    desk = desk_of(text, mode="next_step")
    desk.reset(order())
    before = [json.loads(desk.step(actions(1, 1)).observations) for _ in range(3)][-1]

    try:
        after = json.loads(desk.reset(order(7, mask=[True, False])).observations)
    except RequestRefused:
        after = before

    assert after[1] == before[1]


@pytest.mark.parametrize("text", [CORRIDOR, "CartPole-v1", "proctor/PlumeSearch-v0"])
@pytest.mark.parametrize("seed", [[1], [1, 2, 3], -1, [-1, 2], 2**70, 2**64 - 1])
def test_seeds_that_do_not_fit_are_refused_and_nothing_is_lost(text: str, seed: int | list[int]) -> None:
    desk = desk_of(text)
    desk.reset(order())

    problem = refusal(lambda: desk.reset(order(seed)))

    assert problem.code == Code.VALIDATION_ERROR
    desk.step(actions(0, 0))


@pytest.mark.parametrize("mask", [[True, False], "all", None])
@pytest.mark.parametrize("text", [CORRIDOR, "CartPole-v1", "proctor/PlumeSearch-v0"])
def test_a_mask_among_the_options_is_no_way_round(text: str, mask: Any) -> None:
    desk = desk_of(text, mode="next_step")
    desk.reset(order())

    problem = refusal(lambda: desk.reset(order(options={"reset_mask": mask})))

    assert problem.code == Code.VALIDATION_ERROR


@pytest.mark.parametrize("data", [b"", b"null", b"[0,0]", b"{}", b'{"actions":[0,0],"more":1}', b"\xff", *NO_ACTIONS])
@pytest.mark.parametrize("text", [CORRIDOR, "CartPole-v1"])
def test_what_is_no_actions_is_refused_and_nothing_moves(text: str, data: bytes) -> None:
    desk = desk_of(text)
    first = desk.reset(order())

    problem = refusal(lambda: desk.step(data))

    assert problem.code == Code.VALIDATION_ERROR
    assert problem.lost is UNSET
    assert desk.reset(order()).observations == first.observations


@settings(max_examples=50)
@given(
    st.binary(max_size=30) | st.recursive(st.none() | st.integers() | st.floats(), st.lists).map(msgspec.json.encode)
)
def test_whatever_comes_as_actions_is_taken_or_refused(raw: bytes) -> None:
    desk = desk_of()
    desk.reset(order())

    try:
        taken = desk.step(b'{"actions":' + raw + b"}").rewards is not None
    except RequestRefused as problem:
        taken = problem.problem.code == Code.VALIDATION_ERROR

    assert taken


def test_packed_arrays_say_the_same_as_lists() -> None:
    plain, packed = desk_of("CartPole-v1", infos=True), desk_of("CartPole-v1", infos=True, encoding=PACKED)

    first, second = plain.reset(order()), packed.reset(order())

    listed = np.array(json.loads(first.observations), np.float32)
    assert np.array_equal(unpack_array(json.loads(second.observations)), listed)


def test_packed_actions_are_taken() -> None:
    desk = desk_of(encoding=PACKED)
    desk.reset(order())
    one = {"dtype": "<i8", "shape": [2], "data": "AQAAAAAAAAAAAAAAAAAAAA=="}

    outcome = desk.step(msgspec.json.encode({"actions": one}))

    assert unpack_array(json.loads(outcome.observations)).tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize("encoding", [Encoding(), PACKED])
def test_infos_are_told_when_asked_for_and_what_json_cannot_say_is_null(encoding: Encoding) -> None:
    desk = desk_of(infos=True, encoding=encoding)

    infos = json.loads(desk.reset(order()).infos)

    at = infos["at"] if not encoding.packed else unpack_array(infos["at"]).tolist()
    assert at == [0, 0]
    assert infos["word"] == ["start", "start"]
    assert infos["odd"] == [None, None]
    assert infos["pair"] == [[1, 0.5], [1, 0.5]]


def test_without_infos_only_seeds_and_ends_are_told() -> None:
    corridor, ours = desk_of(), desk_of("proctor/PlumeSearch-v0")

    assert corridor.reset(order()).infos == b"{}"
    assert set(json.loads(ours.reset(order()).infos)) == {"seed", "_seed"}
    assert corridor.step(actions(0, 0)).infos == b"{}"
    assert ours.step(actions(0, 0)).infos == b"{}"


def test_an_exception_becomes_a_failure_whose_text_is_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_of(fails_at=1)
    desk.reset(order())

    with caplog.at_level(logging.ERROR, "proctor.environment"):
        problem = failure(lambda: desk.step(actions(0, 0)))

    assert (problem.code, problem.incident, problem.lost) == (Code.EXECUTION_ERROR, "incident-1", True)
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    assert "incident-1" in caplog.text
    assert HIDDEN_TEXT in caplog.text


@pytest.mark.parametrize("reward", ["nan", "inf"])
def test_a_reward_that_is_no_finite_number_is_a_failure(reward: str) -> None:
    desk = desk_of(reward=reward)
    desk.reset(order())

    assert failure(lambda: desk.step(actions(0, 0))).code == Code.EXECUTION_ERROR


def test_a_refusal_by_our_own_engine_is_told() -> None:
    desk = desk_of("proctor/PlumeSearch-v0")

    problem = refusal(lambda: desk.reset(order(options={"nonsense": 1})))

    assert problem.code == Code.VALIDATION_ERROR
    assert problem.clause == "ENV-RESET-P3"
