"""What a step of Column Popper is worth: a table of weights, and the presets.

Rule 1: a reward is the sum of its parts, one for each row of the table, added in the table's order; `info` shows them.
Rule 2: `pair` and `crowding` are worth what they change: the weight times the difference between after and before, where a
    game that is lost counts as an empty board. So no loop of moves earns anything by them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from proctor.contracts.arguments import parse_number
from proctor.errors import ValidationError

LARGEST: Final = 1e9  # no weight is larger, so that no sum leaves the finite numbers


@dataclass(frozen=True, slots=True)
class RewardTable:
    """What each event of a step is worth; a row that is not named is worth nothing."""

    valid_action: float = 0.0  # a pick, a placement, a put-back or a manual fall
    popped_cell: float = 0.0  # each cell that pops
    step: float = 0.0  # every step
    invalid_action: float = 0.0  # a pick on an empty column
    full_drop: float = 0.0  # a placement on a full column
    overflow: float = 0.0  # a fall for which there is no room
    time_up: float = 0.0  # the end by the clock
    pair: float = 0.0  # each column more, or less, whose two last blocks are equal
    crowding: float = 0.0  # the change of the longest column's length, as a share of the height


PARTS: Final = tuple(field.name for field in fields(RewardTable))

_CONTRACT: Final = RewardTable(
    valid_action=1.0, popped_cell=3.0, step=-0.01, invalid_action=-0.1, full_drop=-1.0, overflow=-1.0, time_up=-0.5
)
_POPS: Final = replace(_CONTRACT, valid_action=0.0)

PRESETS: Final[Mapping[str, RewardTable]] = {
    "contract": _CONTRACT,
    "pops": _POPS,
    "dense": replace(_POPS, pair=1.0, crowding=-2.0),
}


def parse_reward_table(preset: Any) -> RewardTable:
    """Return the table that `preset` means (a name, a mapping or a table), or raise a ValidationError."""
    if isinstance(preset, str) and preset in PRESETS:
        return PRESETS[preset]
    if isinstance(preset, RewardTable):
        preset = asdict(preset)
    if not isinstance(preset, Mapping) or not all(name in PARTS for name in preset):
        raise ValidationError(
            "not a reward preset",
            found=preset,
            expected=f"{', '.join(PRESETS)}, or a table with rows of {', '.join(PARTS)}",
            clause="POP-INIT-P6",
        )
    return RewardTable(
        **{
            name: parse_number(f"the reward of {name}", weight, least=-LARGEST, most=LARGEST, clause="POP-INIT-P6")
            for name, weight in preset.items()
        }
    )
