"""Every sign is drawn at every size, and no two look alike."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.drawing.raster import STROKES, Canvas, apply_ink, text_ink, text_mask, write_text

SIGNS = "".join(sign for sign in STROKES if sign != " ")


@given(st.text(alphabet="".join(STROKES), max_size=12), st.integers(5, 60))
def test_a_mask_covers_pixels_partly_and_is_as_high_as_was_asked(text: str, height: int) -> None:
    mask = text_mask(text, height)

    assert mask.shape[0] == height + 2
    assert mask.min() >= 0.0
    assert mask.max() <= 1.0
    assert (mask.max() > 0.5) == bool(text.strip())


@given(st.text(alphabet="0123456789", min_size=1, max_size=8), st.integers(5, 60))
def test_numbers_of_equally_many_figures_are_equally_wide(text: str, height: int) -> None:
    assert text_mask(text, height).shape == text_mask("0" * len(text), height).shape


@pytest.mark.parametrize("height", [7, 10, 40])
def test_no_two_signs_look_alike(height: int) -> None:
    masks = {sign: text_mask(sign, height) for sign in SIGNS if sign != "O"}  # the letter looks like the figure
    alike = [
        (one, other)
        for one, other in combinations(masks, 2)
        if masks[one].shape == masks[other].shape
        and np.abs(masks[one] - masks[other]).sum() < 0.05 * height * height / 4
    ]

    assert alike == []


def test_small_letters_are_written_as_capitals_and_unknown_signs_as_blanks() -> None:
    assert (text_mask("score", 10) == text_mask("SCORE", 10)).all()
    assert (text_mask("€", 10) == text_mask(" ", 10)).all()


def test_a_shared_mask_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        text_mask("1", 10)[:] = 0.0


@given(st.text(alphabet=SIGNS, min_size=1, max_size=3), st.integers(0, 5), st.integers(0, 5))
def test_ink_and_writing_leave_the_same_picture(text: str, left: int, top: int) -> None:
    mask = text_mask(text, 10)
    written = np.full((20, 60, 3), 30, np.uint8)
    inked = written.copy()
    write_text(written, mask, left, top, (200, 90, 255))
    apply_ink(inked, text_ink(Canvas(60, 20), mask, left, top, (200, 90, 255)))

    assert (written != 30).any()
    assert np.abs(written.astype(int) - inked).max() <= 1
