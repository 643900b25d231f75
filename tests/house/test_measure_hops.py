"""Hops are counted on both sides, the same each time, and a path that grows long again is noticed."""

from __future__ import annotations

from collections import Counter

import pytest

from tools import measure_hops

pytestmark = pytest.mark.anyio
MOST: dict[str, tuple[int, int]] = {"step": (110, 28), "governed": (820, 75)}
"""Calls and files that each way may take."""


@pytest.mark.parametrize("way", list(MOST))
async def test_a_way_has_both_sides_in_it_and_stays_short(way: str) -> None:
    hops = await measure_hops.measure_way(way)
    listed = measure_hops.format_functions(hops)

    assert "sessions/session.py" in listed
    assert ("client/session.py" in listed) == (way == "step")
    assert (hops.calls, hops.files) <= MOST[way]
    assert hops.files <= MOST[way][1]


def test_the_table_has_a_line_for_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    measure_hops.main(["--list", "step"])
    assert "EnvAdapter.step" in capsys.readouterr().out

    hops = measure_hops.Hops(Counter({test_the_table_has_a_line_for_each_way.__code__: 3}))
    assert measure_hops.format_table({"step": hops}).splitlines()[1].split() == ["step", "3", "1", "1"]
