"""Any order of calls keeps the environment beside a naive model of the game and of the lifecycle."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.errors import StateError, ValidationError
from tests.envs.popper.games import boards
from tests.envs.popper.model import Model

HEIGHT, COLUMNS = 5, 3


class PopperMachine(RuleBasedStateMachine):
    """A player with a short clock on a low board, so that every end comes about."""

    env: ColumnPopperEnv
    model: Model | None

    @initialize(strict=st.booleans(), pool=st.sampled_from([(1, 2, 3), (4, 9), (7,)]))
    def create(self, strict: bool, pool: tuple[int, ...]) -> None:
        self.env = ColumnPopperEnv(
            height=HEIGHT,
            columns=COLUMNS,
            number_pool=pool,
            strict_invalid=strict,
            duration_ms=4_000,
            fall_curve=((0, 900), (2_000, 400)),
        )
        self.model = None
        self.state = "created"
        self.score = 0

    @precondition(lambda self: self.state != "closed")
    @rule(seed=st.integers(0, 2**31 - 1))
    def reset(self, seed: int) -> None:
        observation, info = self.env.reset(seed=seed)
        self.model = Model(observation["board"], self.env)
        self.state = "ready"

        assert self.model.spawned_cells == COLUMNS
        assert (info["score"], info["seed"]) == (0, seed)

    @precondition(lambda self: self.state != "closed")
    @rule(data=st.data())
    def reset_on_a_board(self, data: st.DataObject) -> None:
        pool = self.env.rules.number_pool
        board = data.draw(boards(HEIGHT, COLUMNS, pool))
        observation, _ = self.env.reset(seed=1, options={"board": board})
        self.model = Model(board, self.env)
        self.state = "ready"

        assert observation["board"].tolist() == board.tolist()

    @precondition(lambda self: self.state == "ready")
    @rule(action=st.integers(0, COLUMNS))
    def step(self, action: int) -> None:
        assert self.model is not None
        observation, reward, terminated, truncated, info = self.env.step(action)
        expected = self.model.play(action, observation["board"][0].tolist())
        self.state = "terminated" if terminated else "truncated" if truncated else "ready"

        assert reward == pytest.approx(expected["reward"])
        assert (terminated, truncated) == (expected["fault"] is not None, expected["late"])
        assert (info["pops_this_step"], info["fault"]) == (expected["popped"], expected["fault"])
        assert info["score"] == 3 * self.model.popped_cells
        assert info["fall_interval"] == self.model.interval() / 1000
        assert info["action_mask"].tolist() == self.model.mask
        assert observation["board"].tolist() == self.model.board
        assert observation["selection"].tolist() == self.model.selection

    @precondition(lambda self: self.state != "ready")
    @rule(action=st.integers(0, COLUMNS))
    def step_where_none_is_legal(self, action: int) -> None:
        with pytest.raises(StateError):
            self.env.step(action)

    @precondition(lambda self: self.state == "ready")
    @rule(action=st.sampled_from([-1, COLUMNS + 1, None, 1.5, True]))
    def step_with_no_action(self, action: Any) -> None:
        with pytest.raises(ValidationError):
            self.env.step(action)

    @precondition(lambda self: self.state not in ("created", "closed"))
    @rule()
    def close(self) -> None:
        self.env.close()
        self.state = "closed"

    @invariant()
    def states_agree(self) -> None:
        if hasattr(self, "env"):
            assert str(self.env.state) == self.state


TestPopperMachine = PopperMachine.TestCase
TestPopperMachine.settings = settings(max_examples=60, stateful_step_count=60)
