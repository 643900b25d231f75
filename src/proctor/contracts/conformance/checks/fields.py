"""The checks of the field's clauses: a field as it is, or the first instants of a plume that varies.

The grid is the subject's own, so make it small: all cells are looked at up to `MOST_CELLS`, then the rim and a lattice.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Chance
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, expect_refusal, shorten
from proctor.contracts.conformance.samples import is_identical, iterate_cells
from proctor.contracts.spatial import Coordinates, GridSize

MOST_CELLS: Final = 1024
INSTANTS: Final = 4
SEEDS: Final = (0, 1)


def _varies(plume: Any) -> bool:
    return hasattr(plume, "begin") and hasattr(plume, "advance")


def _instants(plume: Any, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield (words, field) for a field, or for the first instants of a plume."""
    if not _varies(plume):
        yield "the field", plume
        return
    chance = Chance(seed)
    field = plume.begin(chance)
    yield f"seed {seed}, step 0", field
    for step in range(1, INSTANTS):
        field = plume.advance(field, chance, step)
        yield f"seed {seed}, step {step}", field


def _each(probe: CheckProbe, problem: Callable[[Any], str | None]) -> Outcome:
    plume = probe.make()
    for seed in SEEDS if _varies(plume) else SEEDS[:1]:
        for words, field in _instants(plume, seed):
            probe.doing = words
            found = problem(field)
            if found is not None:
                return probe.broken(found)
    return KEPT


def _iterate_inspected_cells(grid: GridSize) -> Iterator[Coordinates]:
    """Yield all cells of a small grid, the rim and a lattice of a large one."""
    if grid.total_cells() <= MOST_CELLS:
        yield from iterate_cells(grid)
        return
    columns = sorted({0, grid.width - 1, *range(0, grid.width, -(-grid.width // 16))})
    rows = sorted({0, grid.height - 1, *range(0, grid.height, -(-grid.height // 16))})
    yield from (Coordinates(x, y) for y in rows for x in columns)


def the_field_is_a_float64_array_of_the_grid(probe: CheckProbe) -> Outcome:
    """FIELD-1."""

    def problem(field: Any) -> str | None:
        values, grid = field.field_array, field.grid_size
        if not isinstance(values, np.ndarray) or values.dtype != np.float64:
            return f"field_array is {shorten(values)}, no float64 array"
        expected = (grid.height, grid.width)
        return None if values.shape == expected else f"field_array has the shape {values.shape}, expected {expected}"

    return _each(probe, problem)


def all_values_lie_between_0_and_1(probe: CheckProbe) -> Outcome:
    """FIELD-2."""

    def problem(field: Any) -> str | None:
        values = np.asarray(field.field_array)
        # A NaN compares false with everything.
        outside = np.argwhere(~((values >= 0.0) & (values <= 1.0)))
        return f"[{', '.join(map(str, outside[0]))}] is {values[tuple(outside[0])]}" if len(outside) else None

    return _each(probe, problem)


def the_array_is_read_only(probe: CheckProbe) -> Outcome:
    """FIELD-3."""
    return _each(probe, lambda field: "field_array is writeable" if field.field_array.flags.writeable else None)


def a_sample_is_what_the_array_holds(probe: CheckProbe) -> Outcome:
    """FIELD-4."""

    def problem(field: Any) -> str | None:
        values = field.field_array
        for cell in _iterate_inspected_cells(field.grid_size):
            sampled, held = field.sample(cell), values[cell.y, cell.x]
            if not isinstance(sampled, float) or sampled != held:
                return (
                    f"sample at ({cell.x}, {cell.y}) is {shorten(sampled)}, field_array[{cell.y}, {cell.x}] is {held}"
                )
        return None

    return _each(probe, problem)


def looking_changes_nothing(probe: CheckProbe) -> Outcome:
    """FIELD-5."""

    def problem(field: Any) -> str | None:
        before = np.array(field.field_array)
        once = [field.sample(cell) for cell in _iterate_inspected_cells(field.grid_size)]
        again = [field.sample(cell) for cell in _iterate_inspected_cells(field.grid_size)]
        if not is_identical(once, again):
            return "a second sample of the same cells differs"
        return None if is_identical(np.array(field.field_array), before) else "field_array changed after sampling"

    return _each(probe, problem)


def _plumes(probe: CheckProbe) -> tuple[Any, Any]:
    plume = probe.make()
    if not _varies(plume):
        raise CannotTell("the field does not vary: it has no `begin` and `advance`")
    return plume, probe.make()


def the_same_seed_gives_the_same_plume(probe: CheckProbe) -> Outcome:
    """FIELD-6."""
    plume, twin = _plumes(probe)
    for seed in SEEDS:
        for (words, one), (_, other) in zip(_instants(plume, seed), _instants(twin, seed), strict=True):
            probe.doing = words
            if not is_identical(np.asarray(one.field_array), np.asarray(other.field_array)):
                return probe.broken("two plumes of the kind differ")
    return KEPT


def advancing_leaves_its_start_as_it_was(probe: CheckProbe) -> Outcome:
    """FIELD-7."""
    plume, _ = _plumes(probe)
    for seed in SEEDS:
        chance, field = Chance(seed), plume.begin(Chance(seed))
        for step in range(1, INSTANTS):
            probe.doing = f"seed {seed}, advance to step {step}"
            before = np.array(field.field_array)
            after, again = (plume.advance(field, chance, step) for _ in range(2))
            if not is_identical(np.array(field.field_array), before):
                return probe.broken("changes the field that it was given")
            if not is_identical(np.asarray(after.field_array), np.asarray(again.field_array)):
                return probe.broken("done twice from the same field, it gives two different fields")
            field = after
    return KEPT


def every_instant_covers_the_grid(probe: CheckProbe) -> Outcome:
    """FIELD-8."""
    plume, _ = _plumes(probe)

    def problem(field: Any) -> str | None:
        return None if field.grid_size == plume.grid_size else f"covers {field.grid_size}, not {plume.grid_size}"

    return _each(probe, problem)


def a_sample_off_the_grid_is_an_index_error(probe: CheckProbe) -> Outcome:
    """FIELD-SAMPLE-P1."""

    def problem(field: Any) -> str | None:
        width, height = field.grid_size.width, field.grid_size.height
        for x, y in ((-1, 0), (0, -1), (width, 0), (0, height), (-1, -1), (width, height)):
            found = expect_refusal((IndexError,), field.sample, Coordinates(x, y))
            if found is not None:
                return f"sample at ({x}, {y}) {found}"
        return None

    return _each(probe, problem)


CHECKS: Final[dict[str, Check]] = {
    "FIELD-1": the_field_is_a_float64_array_of_the_grid,
    "FIELD-2": all_values_lie_between_0_and_1,
    "FIELD-3": the_array_is_read_only,
    "FIELD-4": a_sample_is_what_the_array_holds,
    "FIELD-5": looking_changes_nothing,
    "FIELD-6": the_same_seed_gives_the_same_plume,
    "FIELD-7": advancing_leaves_its_start_as_it_was,
    "FIELD-8": every_instant_covers_the_grid,
    "FIELD-SAMPLE-P1": a_sample_off_the_grid_is_an_index_error,
}
