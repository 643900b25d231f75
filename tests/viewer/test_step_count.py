"""Steps are counted from the reset that began a chain."""

from proctor.viewer.slices import StepCount


def test_steps_go_on_where_a_batch_begins_anew() -> None:
    steps = StepCount()
    found = [steps.count_step(own) for own in (1, 2, 3)]
    steps.restart()

    assert [*found, steps.count_step(1), steps.count_step(2)] == [1, 2, 3, 4, 5]


def test_a_step_whose_row_is_missing_counts_as_far_as_that_can_be_seen() -> None:
    steps = StepCount()

    assert [steps.count_step(own) for own in (1, 3, 4, 1, 2)] == [1, 3, 4, 5, 6]


def test_who_begins_in_the_middle_counts_on() -> None:
    steps = StepCount(7, None)

    assert [steps.count_step(own) for own in (3, 4)] == [8, 9]
