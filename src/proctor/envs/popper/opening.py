"""The reset options of Column Popper: a board and a selection that somebody asks for, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.arguments import is_choice
from proctor.envs.popper.board import NOBODY
from proctor.envs.popper.rules import PopperRules
from proctor.errors import ValidationError


def checked_cells(board: Any, rules: PopperRules) -> NDArray[np.int32]:
    """Return the option `board` as fresh cells, or raise a ValidationError."""
    try:
        cells: NDArray[Any] = np.asarray(board)
    except ValueError:  # a ragged list
        raise _no_board(board, rules) from None
    allowed = (0, *rules.number_pool)
    if (
        cells.shape != (rules.height, rules.columns)
        or cells.dtype.kind not in "iu"
        or not np.isin(cells, allowed).all()
    ):
        raise _no_board(board, rules)
    if ((cells[1:] > 0) & (cells[:-1] == 0)).any():
        raise ValidationError(
            "a board with a hole", found=board, expected="columns that hang from the top", clause="POP-RESET-P1"
        )
    return cells.astype(np.int32, order="C")


def checked_held(selection: Any, stacks: Sequence[Sequence[int]]) -> int:
    """Return the column that the option `selection` holds: a column, or [is_selected, value] as it is observed."""
    if selection is None:
        return NOBODY
    if is_choice(selection, len(stacks)) and stacks[int(selection)]:
        return int(selection)
    pair = selection.tolist() if isinstance(selection, np.ndarray) else selection
    pair = list(pair) if isinstance(pair, tuple | list) else None
    if pair == [0, 0]:
        return NOBODY
    if isinstance(pair, list) and len(pair) == 2 and pair[0] == 1:
        # An observation does not tell the column; the first one that fits is as good as any.
        fitting = [column for column, stack in enumerate(stacks) if stack and stack[-1] == pair[1]]
        if fitting:
            return fitting[0]
    raise ValidationError(
        "not a selection",
        found=selection,
        expected="a column with a block, or [1, value] with the value of a column's last block, or [0, 0], or None",
        clause="POP-RESET-P2",
    )


def _no_board(board: object, rules: PopperRules) -> ValidationError:
    return ValidationError(
        "not a board",
        found=board,
        expected=f"{rules.height} rows of {rules.columns} integers, 0 or one of {rules.number_pool}",
        clause="POP-RESET-P1",
    )
