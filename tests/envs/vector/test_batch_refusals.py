"""What cannot be batched is refused with a way out, and records hold what they are given."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.vector.batched_env import batch_error, no_batch_form_error, pack_record

PAIR = np.dtype([("whole", np.int64), ("real", np.float64), ("unset", np.int32)])


def test_a_refusal_names_the_part_what_is_known_and_what_to_do_instead() -> None:
    error = no_batch_form_error(3.5, (int, str))

    assert (error.found, error.expected) == ("float", "one of int, str")
    assert "vectorization_mode='sync'" in str(error)
    assert "because" in str(batch_error("because", found=1, expected="2"))


@given(whole=st.integers(-(2**63), 2**63 - 1), real=st.floats(allow_nan=False))
def test_a_record_holds_the_values_by_name_and_zero_elsewhere(whole: int, real: float) -> None:
    record = pack_record(PAIR, {"real": real, "whole": whole})

    assert record.shape == (1,)
    assert record[0].item() == (whole, real, 0)
