"""A desk guards the lifecycle of whatever it serves, and lets nothing out that an environment did not mean for a peer."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.lifecycle import AFTER_STEP, REFUSALS, EnvironmentState, LifecycleMethod
from proctor.envs.targets import AnyEnvironment, Target
from proctor.errors import ValidationError
from proctor.models.control import Code
from proctor.models.wire import PLAIN, Encoding
from proctor.server.runtime.env_adapter import EnvAdapter, ResetRequest
from proctor.server.runtime.results import EnvOutcome, RequestFailed, RequestRefused
from tests.server.environments import (
    EXCEPTIONS,
    HIDDEN_TEXT,
    PLAIN_TEXT,
    TROUBLE,
    Count,
    Counting,
    HalfLater,
    Later,
    Lying,
    Move,
    Optional,
    Paid,
    Raising,
    RaisingLater,
    diary,
)

HERE = "tests.server.environments"
SERVED: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {}),
    ("FrozenLake-v1", {}),
    ("proctor/PlumeSearch-v0", {}),
    ("proctor/ColumnPopper-v0", {}),
    ("SpecKitAI/ColumnPopper-v1", {}),
    (f"{HERE}:Counting", {}),
    (f"{HERE}:Later", {}),
    (f"{HERE}:HalfLater", {}),
    (f"{HERE}:corridor", {}),
    (f"{HERE}:Corridor-v0", {}),
]
HIDDEN = sorted(set(EXCEPTIONS) - {"validation", "state", "exit", "cancelled"})
ORDER = ResetRequest(3, "e", None)
GO = b'{"action":0}'
Result = TypeVar("Result")


def desk_of(environment: AnyEnvironment, encoding: Encoding | None = None) -> EnvAdapter:
    return EnvAdapter(environment, Encoding() if encoding is None else encoding, lambda: "incident-1")


def now(answer: Result | Awaitable[Result]) -> Result:
    """Return an answer, whether it is there or must be waited for."""

    async def awaited(later: Awaitable[Result]) -> Result:
        return await later

    return asyncio.run(awaited(answer)) if isinstance(answer, Awaitable) else answer


def refusal(call: Callable[[], Any]) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        now(call())
    return caught.value


def failure(call: Callable[[], Any]) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        now(call())
    return caught.value


def an_action(environment: AnyEnvironment) -> bytes:
    """Return an action that the environment takes."""
    spaces = environment.spaces
    return GO if spaces is None else b'{"action":%d}' % int(spaces[0].sample())


def spied(environment: AnyEnvironment, calls: list[str]) -> AnyEnvironment:
    """Return the environment; what is asked of it is noted in `calls`."""

    def noted(name: str) -> Callable[..., Any]:
        inner = getattr(environment, name)

        def call(*positional: Any, **named: Any) -> Any:
            calls.append(name)
            return inner(*positional, **named)

        return call

    for name in ("reset", "step", "close"):
        setattr(environment, name, noted(name))
    return environment


# -------------------------------------------------------------------------------------------------------- lifecycle
@pytest.mark.parametrize(("text", "settings"), SERVED)
def test_a_step_before_the_reset_is_refused_and_runs_nothing(text: str, settings: dict[str, Any]) -> None:
    calls: list[str] = []
    environment = spied(Target(text, settings).make(), calls)
    desk = desk_of(environment)

    problem = refusal(lambda: desk.step(an_action(environment))).problem

    assert (problem.code, problem.clause) == (Code.STATE_ERROR, "NO-STEP-BEFORE-RESET")
    assert calls == []
    now(desk.close())


@pytest.mark.parametrize(("text", "settings"), SERVED)
def test_nothing_runs_after_a_close(text: str, settings: dict[str, Any]) -> None:
    calls: list[str] = []
    environment = spied(Target(text, settings).make(), calls)
    desk = desk_of(environment)
    now(desk.reset(ORDER))
    now(desk.close())

    step = refusal(lambda: desk.step(an_action(environment))).problem
    reset = refusal(lambda: desk.reset(ORDER)).problem
    now(desk.close())

    assert (step.code, step.clause) == (Code.STATE_ERROR, "NO-STEP-AFTER-CLOSE")
    assert (reset.code, reset.clause) == (Code.STATE_ERROR, "NO-RESET-AFTER-CLOSE")
    assert calls == ["reset", "close"]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (f"{HERE}:Counting", {"end": 1}),
        (f"{HERE}:Counting", {"cut": 1}),
        (f"{HERE}:Later", {"end": 1}),
        ("CartPole-v1", {"max_episode_steps": 1}),
        ("proctor/PlumeSearch-v0", {"max_steps": 1}),
    ],
)
def test_a_step_after_the_end_is_refused_and_runs_nothing(text: str, settings: dict[str, Any]) -> None:
    calls: list[str] = []
    environment = spied(Target(text, settings).make(), calls)
    desk = desk_of(environment)
    now(desk.reset(ORDER))
    last = now(desk.step(an_action(environment)))

    problem = refusal(lambda: desk.step(an_action(environment))).problem

    assert last.terminated or last.truncated
    assert (problem.code, problem.clause) == (Code.STATE_ERROR, "NO-STEP-AFTER-END")
    assert calls == ["reset", "step"]
    now(desk.reset(ORDER))
    now(desk.step(an_action(environment)))
    now(desk.close())


@given(
    st.lists(st.sampled_from([LifecycleMethod.RESET, LifecycleMethod.STEP, LifecycleMethod.CLOSE]), max_size=12),
    st.booleans(),
)
def test_the_desk_moves_as_the_lifecycles_table_says(methods: list[LifecycleMethod], terminates: bool) -> None:
    environment = Counting("moves", **({"end": 2} if terminates else {"cut": 2}))
    desk = desk_of(environment)
    stands, steps, done = EnvironmentState.CREATED, 0, diary("moves").calls
    done.clear()

    for method in methods:
        before = len(done)
        row = REFUSALS.get((stands, method))
        call = {
            LifecycleMethod.RESET: lambda: desk.reset(ORDER),
            LifecycleMethod.STEP: lambda: desk.step(GO),
            LifecycleMethod.CLOSE: desk.close,
        }
        if row is not None:
            assert refusal(call[method]).problem.clause == row.rule
            assert len(done) == before
            continue
        now(call[method]())
        steps = 0 if method is LifecycleMethod.RESET else steps + (method is LifecycleMethod.STEP)
        ended = steps >= 2
        stands = {
            LifecycleMethod.RESET: EnvironmentState.READY,
            LifecycleMethod.STEP: AFTER_STEP[ended and terminates, ended and not terminates],
            LifecycleMethod.CLOSE: EnvironmentState.CLOSED,
        }[method]
        assert environment.steps == steps


# ------------------------------------------------------------------------------------------------- in and out
def test_an_outcome_is_the_observations_json_and_what_travels_beside_it() -> None:
    desk = desk_of(Counting("outcome", end=1))

    first, second = now(desk.reset(ORDER)), now(desk.step(b'{"action":4}'))

    made = diary("outcome").made
    assert first == EnvOutcome(b'{"observation":3}', b'{"instance":%d}' % made, None, False, False)
    assert second == EnvOutcome(b'{"observation":1}', b"{}", 4.0, True, False)


def test_arrays_are_written_as_was_agreed_on() -> None:
    plain, packed = (desk_of(Target("CartPole-v1").make(), Encoding(packed=packed)) for packed in (False, True))

    listed = json.loads(now(plain.reset(ORDER)).observation)["observation"]
    packed_value = json.loads(now(packed.reset(ORDER)).observation)["observation"]

    assert len(listed) == 4
    assert (packed_value["dtype"], packed_value["shape"]) == ("<f4", [4])


def test_a_reset_passes_seed_episode_and_options_on() -> None:
    desk = desk_of(Optional())

    outcome = now(desk.reset(ResetRequest(None, "mine", {"from": 7})))

    assert json.loads(outcome.observation) == {"observation": 7}
    assert json.loads(desk.state()) == {"episode_id": "mine", "step_count": 7}


def test_options_that_an_environment_does_not_know_are_refused_before_the_reset() -> None:
    desk = desk_of(Optional("unknown option"))

    problem = refusal(lambda: desk.reset(ResetRequest(None, "mine", {"to": 7}))).problem

    assert (problem.code, problem.expected) == (Code.VALIDATION_ERROR, "from")
    assert diary("unknown option").calls == []


@pytest.mark.parametrize("order", [ResetRequest([1], "e", None), ResetRequest(1, "e", None, [True])])
def test_what_is_meant_for_a_batch_is_refused(order: ResetRequest) -> None:
    desk = desk_of(Counting("no batch"))

    problem = refusal(lambda: desk.reset(order)).problem

    assert problem.code == Code.VALIDATION_ERROR
    assert diary("no batch").calls == []


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b'{"action":10}', b'{"action":"1x"}', b'{"a":1}', b"\xff"])
def test_what_is_no_action_is_refused_and_runs_nothing(data: bytes) -> None:
    desk = desk_of(Counting("no action"))
    now(desk.reset(ORDER))
    diary("no action").calls.clear()

    problem = refusal(lambda: desk.step(data)).problem

    assert problem.code == Code.VALIDATION_ERROR
    assert problem.errors
    assert diary("no action").calls == []
    assert now(desk.step(GO)).observation == b'{"observation":1}'


@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode))
def test_whatever_comes_as_an_action_is_taken_or_refused(data: bytes) -> None:
    desk = desk_of(Counting())
    now(desk.reset(ORDER))

    try:
        outcome = now(desk.step(data)).observation
    except RequestRefused as problem:
        outcome = problem.problem.code.encode()

    assert outcome in (b'{"observation":1}', b"VALIDATION_ERROR")


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
def test_a_reward_that_is_no_finite_number_is_a_failure(reward: str) -> None:
    desk = desk_of(Paid(reward))
    now(desk.reset(ORDER))

    assert failure(lambda: desk.step(GO)).problem.code == Code.EXECUTION_ERROR


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, b'"NaN"'),
        (math.inf, b'"Infinity"'),
        (-math.inf, b'"-Infinity"'),
        (None, b"null"),
        ("null", b'"null"'),
        (1.5, b"1.5"),
        ([math.nan, None], b'["NaN",null]'),
    ],
)
def test_metadata_say_what_they_hold(value: Any, written: bytes) -> None:
    class Noting(Counting):
        """Notes the value."""

        def stepped(self, action: Move) -> Count:
            return Count(observation=1, reward=0.0, metadata={"value": value})

    desk = desk_of(Noting())
    now(desk.reset(ORDER))

    assert now(desk.step(GO)).metadata == b'{"value":' + written + b"}"


def test_an_answer_that_cannot_be_written_is_a_failure_and_no_refusal() -> None:
    class Unwritable(Count):
        """Refuses to be written down, as if nothing had happened."""

        def inside(self, encoding: Encoding = PLAIN) -> bytes:
            raise ValidationError("not now")

    class Silent(Counting):
        """Answers with what cannot be written."""

        def stepped(self, action: Move) -> Count:
            return Unwritable(observation=1)

    desk = desk_of(Silent())
    now(desk.reset(ORDER))

    assert failure(lambda: desk.step(GO)).problem.code == Code.EXECUTION_ERROR


@pytest.mark.parametrize("kind", [Later, HalfLater])
def test_each_method_may_be_a_coroutine_or_not(kind: type[Counting]) -> None:
    desk = desk_of(kind(kind.__name__))

    now(desk.reset(ORDER))
    outcome = now(desk.step(GO))
    now(desk.close())

    assert outcome.observation == b'{"observation":1}'
    assert diary(kind.__name__).methods() == ["reset", "step", "close"]


# ------------------------------------------------------------------------------------------------------ exceptions
@pytest.mark.parametrize("kind", [Raising, RaisingLater])
@pytest.mark.parametrize("what", HIDDEN)
@pytest.mark.parametrize("where", ["reset", "step", "state"])
def test_an_exception_becomes_a_failure_whose_text_is_in_the_log_only(
    kind: type[Raising], what: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desk_of(kind(where, what))
    calls: dict[str, Callable[[], Any]] = {
        "reset": lambda: desk.reset(ORDER),
        "step": lambda: desk.step(b'{"action":%d}' % TROUBLE),
        "state": desk.state,
    }
    if where != "reset":
        now(desk.reset(ORDER))

    with caplog.at_level(logging.ERROR, "proctor.environment"):
        found = failure(calls[where])

    assert (found.problem.code, found.problem.incident) == (Code.EXECUTION_ERROR, "incident-1")
    assert found.problem.lost is True
    assert HIDDEN_TEXT not in msgspec.json.encode(found.problem).decode()
    assert "incident-1" in caplog.text
    assert HIDDEN_TEXT in caplog.text
    assert found.__cause__ is None


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(("kind", "what"), [(Raising, "exit"), (RaisingLater, "exit"), (RaisingLater, "cancelled")])
def test_an_exit_or_a_cancellation_inside_an_environment_is_a_failure_like_any_other(
    kind: type[Raising], what: str, where: str
) -> None:
    desk = desk_of(kind(where, what))
    if where == "step":
        now(desk.reset(ORDER))

    problem = failure(lambda: desk.reset(ORDER) if where == "reset" else desk.step(b'{"action":%d}' % TROUBLE)).problem

    assert problem.code == Code.EXECUTION_ERROR


@pytest.mark.parametrize("kind", [Raising, RaisingLater])
@pytest.mark.parametrize(("what", "code"), [("validation", Code.VALIDATION_ERROR), ("state", Code.STATE_ERROR)])
def test_a_refusal_by_an_environment_is_told_and_the_episode_goes_on(
    kind: type[Raising], what: str, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desk_of(kind("step", what))
    now(desk.reset(ORDER))

    problem = refusal(lambda: desk.step(b'{"action":%d}' % TROUBLE)).problem

    assert (problem.code, problem.message, problem.clause) == (code, PLAIN_TEXT, "ENV-STEP-P1")
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    assert not caplog.records
    assert now(desk.step(GO)).observation == b'{"observation":1}'


@pytest.mark.parametrize("where", ["reset", "step", "state"])
def test_an_answer_of_another_type_than_declared_is_a_failure(where: str, caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_of(Lying(where))
    if where != "reset":
        now(desk.reset(ORDER))
    calls: dict[str, Callable[[], Any]] = {
        "reset": lambda: desk.reset(ORDER),
        "step": lambda: desk.step(b'{"action":%d}' % TROUBLE),
        "state": desk.state,
    }

    problem = failure(calls[where]).problem

    assert problem.code == Code.EXECUTION_ERROR
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    assert "not the declared" in caplog.text


def test_a_reset_that_failed_has_not_begun_an_episode() -> None:
    desk = desk_of(Lying("reset"))
    failure(lambda: desk.reset(ORDER))

    assert refusal(lambda: desk.step(GO)).problem.clause == "NO-STEP-BEFORE-RESET"


def test_an_environment_that_fails_to_close_is_closed_once() -> None:
    desk = desk_of(Raising("close", key="fails to close"))

    with pytest.raises(RuntimeError):
        now(desk.close())
    now(desk.close())

    assert diary("fails to close").methods() == ["close"]
