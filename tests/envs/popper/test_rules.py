"""Settings are checked once, and every refusal names its clause."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.errors import ValidationError
from tests.envs.popper.games import settings_of_a_game

REFUSED: list[tuple[str, Any, str]] = [
    ("number_pool", (), "POP-INIT-P1"),
    ("number_pool", (0,), "POP-INIT-P1"),
    ("number_pool", (10,), "POP-INIT-P1"),
    ("number_pool", (1, 1), "POP-INIT-P1"),
    ("number_pool", (1.0,), "POP-INIT-P1"),
    ("number_pool", (True,), "POP-INIT-P1"),
    ("number_pool", "123", "POP-INIT-P1"),
    ("number_pool", 3, "POP-INIT-P1"),
    ("number_pool", {1, 2}, "POP-INIT-P1"),
    ("strict_invalid", 1, "POP-INIT-P2"),
    ("strict_invalid", None, "POP-INIT-P2"),
    ("include_time_left_norm", "yes", "POP-INIT-P2"),
    ("duration_ms", 0, "POP-INIT-P3"),
    ("action_ms", 0.5, "POP-INIT-P3"),
    ("fall_curve", [(5, 5)], "POP-INIT-P4"),
    ("manual_fall", "slow", "POP-INIT-P5"),
    ("manual_fall", [], "POP-INIT-P5"),
    ("manual_fall", np.array(["one_row", "b"]), "POP-INIT-P5"),
    ("reward_preset", "gold", "POP-INIT-P6"),
    ("height", 0, "POP-INIT-P7"),
    ("height", 65, "POP-INIT-P7"),
    ("columns", 17, "POP-INIT-P7"),
    ("columns", 2.0, "POP-INIT-P7"),
    ("render_mode", "braille", "ENV-INIT-P6"),
]


@pytest.mark.parametrize(("name", "value", "clause"), REFUSED)
def test_a_bad_value_is_refused_by_its_clause(name: str, value: Any, clause: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ColumnPopperEnv(**{name: value})

    assert caught.value.clause == clause


@given(settings_of_a_game())
def test_the_rules_say_what_was_set(settings: dict[str, Any]) -> None:
    rules = ColumnPopperEnv(**settings).rules

    for name in set(settings) - {"reward_preset", "number_pool", "fall_curve"}:
        assert getattr(rules, name) == settings[name]
    assert list(rules.number_pool) == settings["number_pool"]
    assert list(rules.fall_curve) == settings["fall_curve"]


def test_numpy_values_are_as_good_as_pythons() -> None:
    settings: dict[str, Any] = {
        "number_pool": np.array([2, 5]),
        "strict_invalid": np.True_,
        "duration_ms": np.int64(900),
        "height": np.int8(4),
    }
    rules = ColumnPopperEnv(**settings).rules

    assert (rules.number_pool, rules.strict_invalid, rules.duration_ms, rules.height) == ((2, 5), True, 900, 4)
