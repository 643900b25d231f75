"""An environment names its types once, and they reach whoever drives it: at run time and for the type checker."""

import asyncio
import types
from collections.abc import Awaitable, Coroutine
from typing import Any, Generic, TypeVar, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.environment import ActT, Environment, ObsT, StateT
from proctor.contracts.tools import ToolPlan
from proctor.errors import ComponentError, ValidationError
from proctor.models.wire import Action, Observation, State


class Push(Action):
    force: float


class Seen(Observation):
    angle: float


class Where(State):
    angle: float = 0.0


class Plain(Environment[Push, Seen, Where]):
    """A pole that falls.

    More about it.
    """

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Seen:
        return Seen(angle=0.0)

    def step(self, action: Push) -> Seen:
        return Seen(angle=action.force, reward=1.0)

    @property
    def state(self) -> Where:
        return Where(angle=0.5)


class Async(Environment[Push, Seen, Where]):
    state = Plain.state

    async def reset(self, seed: int | None = None, episode_id: str | None = None) -> Seen:
        return Seen(angle=0.0)

    async def step(self, action: Push) -> Seen:
        return Seen(angle=action.force, reward=1.0)

    async def close(self) -> None:
        """Close."""


class Wrong(Plain):
    def step(self, action: Push) -> Where:  # type: ignore[override]  # the checker refuses another observation
        return Where()


OtherT = TypeVar("OtherT", bound=Observation)
OneT = TypeVar("OneT", bound=Action)


class Mixed:
    """Something else to inherit from."""


class Sided(Generic[OtherT]):
    """Something generic to inherit from."""


class Middle(Environment[OneT, OtherT, Where], Generic[OtherT, OneT]):
    """Names one type and swaps the others."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> OtherT | Awaitable[OtherT]:
        raise NotImplementedError

    def step(self, action: OneT) -> OtherT | Awaitable[OtherT]:
        raise NotImplementedError

    @property
    def state(self) -> Where:
        return Where()


class Lower(Mixed, Sided[Seen], Middle[Seen, Push]):
    pass


class Lowest(Lower):
    pass


TYPES = (Push, Seen, Where)


@pytest.mark.parametrize("kind", [Plain, Async, Lower, Lowest])
def test_the_types_are_found_through_every_class_between(kind: type[Environment[Any, Any, Any]]) -> None:
    made = kind()

    assert (made.action_type, made.observation_type, made.state_type) == TYPES


@given(levels=st.integers(1, 6))
def test_the_types_are_found_however_many_generic_classes_lie_between(levels: int) -> None:
    kind: Any = Environment
    for _ in range(levels):
        kind = types.new_class("Level", (kind[ActT, ObsT, StateT],))

    bottom: Any = types.new_class("Bottom", (kind[TYPES],))

    assert not hasattr(kind, "action_type")
    assert (bottom.action_type, bottom.observation_type, bottom.state_type) == TYPES


class Harder(Push):
    pass


def test_a_class_may_name_a_type_of_its_own() -> None:
    class Own(Plain):
        action_type = Harder

    class Derived(Own, Sided[Seen]):
        pass

    class Both(Middle[Seen, Push]):
        action_type = Harder

    for kind in (Own, Derived, Both):
        assert kind().action_type is Harder
        assert kind().observation_type is Seen


def test_an_instance_may_have_types_of_its_own() -> None:
    made = Plain()
    made.action_type = Harder

    assert (made.action_type, Plain().action_type) == (Harder, Push)


def test_an_environment_without_types_is_refused_when_it_is_made() -> None:
    with pytest.raises(ComponentError, match="action_type, observation_type") as caught:
        Middle[Seen, Push]()

    assert "Environment[" in str(caught.value.expected)


def test_an_environment_that_is_not_finished_cannot_be_made() -> None:
    class Unfinished(Environment[Push, Seen, Where]):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]  # the checker knows it, too


@pytest.mark.parametrize(
    "parameters",
    [(Seen, Seen, Where), (Push, Push, Where), (Push, Seen, Push), (Push, Seen, "Where"), (int, Seen, Where)],
)
def test_a_type_of_the_wrong_kind_is_refused_with_the_class(parameters: Any) -> None:
    generic: Any = Environment

    with pytest.raises(ComponentError, match="no wire type"):
        types.new_class("Odd", (generic[parameters],))


def test_options_are_refused_where_there_are_none() -> None:
    made = Plain()
    made.configure({})

    with pytest.raises(ValidationError, match="unknown reset option") as caught:
        made.configure({"wind": 1})
    assert (caught.value.found, caught.value.clause) == ("wind", "ENV-RESET-P3")


def test_an_environment_describes_itself_by_its_class() -> None:
    made = Plain()

    assert (made.name, made.description, made.version) == ("Plain", "A pole that falls.", "0")
    assert (made.spaces, made.quick, Async().description) == (None, False, "")


def test_closing_gives_nothing_to_await_unless_the_class_says_so() -> None:
    assert Plain().close() is None
    asyncio.run(Async().close())


def test_a_plain_environment_answers_at_once_and_its_types_reach_the_caller() -> None:
    made = Plain()

    assert_type(made.reset(seed=1), Seen)
    assert_type(made.step(Push(force=0.5)), Seen)
    assert_type(made.state, Where)
    assert_type(made.action_type, type[Push])
    assert made.step(Push(force=0.5)).angle == 0.5


def test_an_async_environment_is_awaited_and_its_types_reach_the_caller() -> None:
    made = Async()

    async def drive() -> Seen:
        first = made.reset(seed=1)
        awaited = await assert_type(first, Coroutine[Any, Any, Seen])
        assert_type(awaited, Seen)
        return await made.step(Push(force=0.5))

    assert asyncio.run(drive()).angle == 0.5


def test_whoever_drives_any_environment_is_told_that_it_may_be_either() -> None:
    def drive(environment: Environment[Push, Seen, Where]) -> Seen | Awaitable[Seen]:
        answer = environment.step(Push(force=0.5))
        assert_type(answer, Seen | Awaitable[Seen])
        return answer

    assert isinstance(drive(Plain()), Seen)


def test_agents_see_no_reward_and_no_metadata_unless_the_author_says_so() -> None:
    plain = Plain()

    assert (plain.agent_info, plain.shows_reward, plain.max_agents) == ((), False, 1)
    assert plain.describe_observation(Seen(angle=0.123456789, reward=77.0, metadata={"seed": 99})) == "angle: 0.123457"


def test_every_environment_has_tools() -> None:
    assert [each.name for each in Plain().toolbox().tools] == ["observe", "act"]
    assert [each.name for each in Async().toolbox().tools] == ["observe", "act"]
    assert Plain().toolbox().plan("act", b'{"force": 2}') == ToolPlan((Push(force=2.0),))
