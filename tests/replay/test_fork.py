"""Any step can be looked at again, and left in another direction."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.models.events import EpisodeStepped
from proctor.replay.fork import NOT_STORED, fork_episode, state_at
from tests.replay.recorded_ledgers import PLUME, POPPER, Play, Sitting, chains, record, rows_of

HERE = "tests.replay.environments:"
STEPS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sittings = (Sitting(PLUME), Sitting(POPPER), Sitting(PLUME, num_envs=2, plays=[Play(steps=STEPS)]))
    return record(tmp_path_factory.mktemp("forks") / "ledger", *sittings)


def actions_of(folder: Path, place: int) -> list[Any]:
    events = [row.event for row in rows_of(folder, place)]
    return [msgspec.json.decode(event.action) for event in events if isinstance(event, EpisodeStepped)]


@pytest.mark.parametrize("step", [0, 7, STEPS])
def test_the_state_at_a_step_is_that_of_an_environment_that_was_driven_there(folder: Path, step: int) -> None:
    env = gym.make(PLUME)
    env.reset(seed=1)
    for action in actions_of(folder, 0)[:step]:
        env.step(action["action"])

    with Ledger.open(folder) as ledger:
        standing = state_at(ledger, "boot0.1", step)

    search: Any = env.unwrapped
    assert standing.step == standing.state["step_count"] == step
    assert tuple(standing.state["position"]) == (search.agent_state.position.x, search.agent_state.position.y)
    assert msgspec.json.encode(standing.scene) == msgspec.json.encode(search.scene())
    assert standing.total_reward == standing.raw_total == search.agent_state.total_reward
    assert (standing.terminated, standing.truncated, standing.first) == (False, False, None)


def test_rewards_are_added_up_to_the_step(folder: Path) -> None:
    rewards = [row.event.raw_reward for row in rows_of(folder, 1) if isinstance(row.event, EpisodeStepped)]

    with Ledger.open(folder) as ledger:
        standing = state_at(ledger, "boot1.1", 10)

    assert standing.total_reward == sum(each or 0.0 for each in rewards[:10])
    assert standing.state["total_reward"] == pytest.approx(standing.raw_total)


@pytest.mark.parametrize("step", [-1, STEPS + 1, 10**9])
def test_a_step_that_was_not_is_refused_with_those_that_were(folder: Path, step: int) -> None:
    with Ledger.open(folder) as ledger, pytest.raises(ValidationError, match=f"to {STEPS}"):
        state_at(ledger, "boot0.1", step)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(step=st.integers(0, STEPS), place=st.sampled_from([0, 1]))
def test_a_branch_with_the_recorded_actions_is_the_record(folder: Path, step: int, place: int) -> None:
    with Ledger.open(folder) as ledger:
        found = fork_episode(ledger, f"boot{place}.1", step, actions_of(folder, place)[step:])

    assert found.left == 0
    assert [row.step for row in found.rows] == list(range(step + 1, STEPS + 1))
    assert all(row.branch == row.recorded for row in found.rows)


def test_a_branch_goes_where_its_actions_lead_and_the_record_stands_beside_it(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        found = fork_episode(ledger, "boot0.1", 5, [0, {"action": 0}, 2] + [1] * STEPS)

    before = found.standing.state["position"]
    assert found.rows[1].branch.metadata["agent_xy"] == [before[0], before[1] + 2]
    assert found.rows[2].branch.metadata["agent_xy"] == [before[0], before[1] + 1]
    assert found.rows[0].recorded is not None
    assert found.rows[0].recorded.action == actions_of(folder, 0)[5]
    assert [row.recorded is None for row in found.rows] == [row.step > STEPS for row in found.rows]


def test_actions_after_the_end_are_left(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=[Play(actions=[1, 1])]))

    with Ledger.open(folder) as ledger:
        found = fork_episode(ledger, "boot0.1", 1, [50, 60, 1, 2])

    assert [row.branch.terminated for row in found.rows] == [False, True]
    assert found.left == 2


@pytest.mark.parametrize("action", ["up", {"action": 99}, {"acton": 1}, None])
def test_an_action_that_is_none_is_refused(folder: Path, action: Any) -> None:
    with Ledger.open(folder) as ledger, pytest.raises(ValidationError, match="not taken"):
        fork_episode(ledger, "boot0.1", 3, [action])


def test_a_way_that_differs_from_the_record_is_said_with_the_result(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6)]))

    with Ledger.open(folder) as ledger:
        before, after = state_at(ledger, "boot0.1", 2), state_at(ledger, "boot0.1", 5)

    assert before.first is None
    assert after.first is not None
    assert after.at_step == 3


def test_a_batch_can_be_looked_at_and_left_too(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        standing = state_at(ledger, "boot2.1", 4)
        found = fork_episode(ledger, "boot2.1", 4, [[0, 1], {"actions": [2, 3]}])

    assert standing.state == {"num_envs": 2, "ended": []}
    assert (standing.step, standing.total_reward, standing.scene) == (4, [0.0, 0.0], None)
    assert [row.branch.reward for row in found.rows] == [[0.0, 0.0]] * 2
    assert found.rows[0].recorded is not None


def test_what_was_not_stored_is_not_shown_beside_a_branch(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(PLUME), observations="digest")

    with Ledger.open(folder) as ledger:
        found = fork_episode(ledger, chains(folder)[0], 3, [1])

    (row,) = found.rows
    assert row.recorded is not None
    assert row.recorded.observation == NOT_STORED
    assert row.branch.observation != NOT_STORED


def test_a_chain_that_is_no_episode_is_refused(folder: Path) -> None:
    with Ledger.open(folder) as ledger, pytest.raises(ValidationError, match="no episode"):
        state_at(ledger, "server.boot", 0)


def test_a_branch_has_pictures_where_the_record_has(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(PLUME, scenes=True), Sitting(PLUME))

    with Ledger.open(folder) as ledger:
        filmed = fork_episode(ledger, "boot0.1", 5, [0, actions_of(folder, 0)[6]])
        unseen = fork_episode(ledger, "boot1.1", 5, [0])

    first, second = filmed.rows
    assert first.recorded is not None
    assert first.branch.scene.keys() == first.recorded.scene.keys()
    assert first.branch.scene != second.branch.scene
    assert [row.branch.scene for row in unseen.rows] == [None]


def test_a_filmed_branch_with_the_recorded_actions_is_the_record(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(POPPER, scenes=True))

    with Ledger.open(folder) as ledger:
        found = fork_episode(ledger, "boot0.1", 4, actions_of(folder, 0)[4:])

    assert all(row.branch == row.recorded and row.branch.scene is not None for row in found.rows)
