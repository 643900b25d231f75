"""A part of a scene is what its type says, or it is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.drawing.raster import read_part
from proctor.errors import RenderingError


class Lamp(msgspec.Struct, frozen=True):
    watts: int


JUNK = st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
NO_LAMPS = JUNK | st.dictionaries(st.sampled_from(["frame", "watts", "more"]), JUNK | st.dictionaries(st.text(), JUNK))


@given(st.integers())
def test_a_part_that_fits_is_returned_as_its_type(watts: int) -> None:
    assert read_part({"frame": {"watts": watts, "more": []}}, "frame", Lamp, owner="lamp's") == Lamp(watts)


@given(NO_LAMPS)
def test_whatever_does_not_fit_is_a_rendering_error(scene: object) -> None:
    with pytest.raises(RenderingError, match="no lamp's scene") as refused:
        read_part(scene, "frame", Lamp, owner="lamp's")  # type: ignore[arg-type]  # from outside

    assert refused.value.found == scene


def test_the_refusal_names_the_part_that_was_expected() -> None:
    with pytest.raises(RenderingError, match="a scene with 'frame'"):
        read_part({}, "frame", Lamp, owner="lamp's")
