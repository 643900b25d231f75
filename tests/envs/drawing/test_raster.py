"""Sketches are smooth and lie on any ground, figures are equally wide, and a part of a scene is what its type says or is refused."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from proctor.envs.drawing.raster import Sketch, load_font, read_part
from proctor.errors import RenderingError

RED = (255, 0, 0)


@pytest.mark.parametrize(("opacity", "line", "inside"), [(1.0, 0.0, 255), (0.5, 0.0, 128), (1.0, 2.0, 0)])
def test_a_slab_fills_its_box_or_draws_its_outline_and_nothing_beyond(opacity: float, line: float, inside: int) -> None:
    sketch = Sketch(24, 18)
    sketch.slab((4.0, 3.0, 20.0, 15.0), 3.0, RED, opacity, line)
    cover = np.array(sketch.image)[..., 3]

    assert cover[9, 12] == inside
    assert cover[9, 4] == round(255 * opacity)
    assert ((cover[3:6, 4:7] > 0) & (cover[3:6, 4:7] < 250 * opacity)).any()
    assert not cover[:3].any()
    assert not cover[:, 20:].any()


def test_marks_lie_one_over_the_other() -> None:
    sketch = Sketch(24, 18)
    sketch.slab((0.0, 0.0, 24.0, 18.0), 0.0, RED)
    sketch.polygon([(6.0, 3.0), (18.0, 3.0), (12.0, 15.0)], (0, 0, 255))
    sketch.lines([(0.0, 16.0, 24.0, 16.0)], (0, 255, 0), 0.5, 2.0)
    shown = np.array(sketch.image).astype(int)

    assert shown[6, 12].tolist() == [0, 0, 255, 255]
    assert shown[10, 1].tolist() == [255, 0, 0, 255]
    assert np.abs(shown[16, 5] - (127, 128, 0, 255)).max() <= 2


@given(st.sampled_from("0123456789"), st.integers(5, 60))
def test_figures_are_equally_wide_and_as_high_as_was_asked(figure: str, height: int) -> None:
    font = load_font(height)
    _, top, _, bottom = font.getbbox(figure, anchor="ls")

    assert font.getlength(figure) == font.getlength("0")
    assert abs(bottom - top - height) <= 2


@pytest.mark.parametrize("height", [7, 10, 40])
def test_no_two_figures_look_alike(height: int) -> None:
    masks = {bytes(load_font(height).getmask(figure)) for figure in "0123456789"}

    assert len(masks) == 10


def test_text_is_written_in_the_middle_of_what_has_been_drawn() -> None:
    sketch = Sketch(40, 40)
    sketch.slab((0.0, 0.0, 40.0, 40.0), 0.0, (0, 0, 0))
    sketch.text((20.0, 20.0), "8", 16, (255, 255, 255))
    written = np.argwhere(np.array(Image.Image.convert(sketch.image, "L")) > 128)

    assert np.abs(written.mean(axis=0) + 0.5 - 20.0).max() < 1.5
    assert np.ptp(written[:, 0]) == pytest.approx(16, abs=2)


class Lamp(msgspec.Struct, frozen=True):
    watts: int


JUNK = st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
NO_LAMPS = JUNK | st.dictionaries(st.sampled_from(["frame", "watts", "more"]), JUNK | st.dictionaries(st.text(), JUNK))


@given(st.integers())
def test_a_part_that_fits_is_returned_as_its_type(watts: int) -> None:
    assert read_part({"frame": {"watts": watts, "more": []}}, "frame", Lamp, owner="lamp's") == Lamp(watts)


@given(NO_LAMPS)
def test_whatever_does_not_fit_is_a_rendering_error_that_names_the_part(scene: object) -> None:
    with pytest.raises(RenderingError, match="no lamp's scene") as refused:
        read_part(scene, "frame", Lamp, owner="lamp's")  # type: ignore[arg-type]  # from outside

    assert refused.value.found == scene
    assert "a scene with 'frame'" in str(refused.value)
