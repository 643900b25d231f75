import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.client.settings import ConnectionSettings
from proctor.errors import ValidationError

TIMES = ["connect_timeout", "request_timeout", "cancel_timeout", "ping_interval"]


@given(st.sampled_from(TIMES), st.floats(allow_nan=True))
def test_a_time_is_positive_and_finite_or_refused(name: str, value: float) -> None:
    if 0 < value < float("inf"):
        assert getattr(ConnectionSettings(**{name: value}), name) == value  # type: ignore[arg-type]
    else:
        with pytest.raises(ValidationError, match=name):
            ConnectionSettings(**{name: value})  # type: ignore[arg-type]
