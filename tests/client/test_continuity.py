from hypothesis import given
from hypothesis import strategies as st

from proctor.client.continuity import EpisodeLoss, EpisodePosition, LossReason

NUMBERS = st.integers(0, 5)
SOME = st.none() | NUMBERS
LOSS = EpisodeLoss("gone", LossReason.WRONG_EPISODE)


@given(NUMBERS, NUMBERS, SOME, SOME)
def test_only_the_next_step_of_this_epoch_is_a_step(
    epoch: int, step: int, said: int | None, counted: int | None
) -> None:
    place = EpisodePosition(epoch, step)

    assert (place.wrong_step(said, counted) is None) == ((said, counted) == (epoch, step + 1))


@given(NUMBERS, NUMBERS, SOME, SOME)
def test_only_the_next_epoch_at_step_0_is_a_reset(epoch: int, step: int, said: int | None, counted: int | None) -> None:
    place = EpisodePosition(epoch, step)

    assert (place.wrong_reset(said, counted) is None) == ((said, counted) == (epoch + 1, 0))


@given(NUMBERS, SOME, SOME)
def test_after_a_loss_any_later_epoch_at_step_0_is_a_reset(epoch: int, said: int | None, counted: int | None) -> None:
    place = EpisodePosition(epoch, loss=LOSS)

    assert (place.wrong_reset(said, counted) is None) == (said is not None and said > epoch and counted == 0)


@given(NUMBERS, SOME)
def test_another_epoch_is_wrong_and_none_says_nothing(epoch: int, said: int | None) -> None:
    assert (EpisodePosition(epoch).wrong_epoch(said) is None) == (said is None or said == epoch)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_a_session_comes_back_where_it_was_or_where_its_last_request_led(
    epoch: int, step: int, said: int, counted: int, resets: bool, steps: bool
) -> None:
    wrong = EpisodePosition(epoch, step).wrong_return(said, counted, resets=resets, steps=steps)
    here = (said, counted) == (epoch, step)
    stepped = steps and (said, counted) == (epoch, step + 1)
    begun = resets and (said, counted) == (epoch + 1, 0)

    assert (wrong is None) == (here or stepped or begun)


@given(NUMBERS, NUMBERS, SOME, SOME)
def test_where_agents_act_a_step_may_come_later_but_never_earlier(
    epoch: int, step: int, said: int | None, counted: int | None
) -> None:
    place = EpisodePosition(epoch, step, agents=True)

    assert (place.wrong_step(said, counted) is None) == (said == epoch and counted is not None and counted > step)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_where_agents_act_a_session_comes_back_there_or_further_on(
    epoch: int, step: int, said: int, counted: int, resets: bool, steps: bool
) -> None:
    wrong = EpisodePosition(epoch, step, agents=True).wrong_return(said, counted, resets=resets, steps=steps)
    further = said == epoch and counted >= step
    begun = resets and (said, counted) == (epoch + 1, 0)

    assert (wrong is None) == (further or begun)


@given(NUMBERS, NUMBERS)
def test_an_episode_begins_without_agents_and_after_the_rows_that_were_read(step: int, rows: int) -> None:
    place = EpisodePosition(1, step, agents=True, rows=rows)
    place.begin(2, ended=False)

    assert (place.agents, place.earlier_rows, place.rows) == (False, rows, rows)


@given(NUMBERS, SOME)
def test_a_step_leads_to_the_next_number_or_to_the_one_that_was_told(step: int, told: int | None) -> None:
    place = EpisodePosition(1, step)
    place.advance(ended=True, to=told)

    assert (place.step, place.ended) == (step + 1 if told is None else told, True)


@given(st.lists(st.sampled_from(["begin", "advance", "lose"]), max_size=20))
def test_only_a_beginning_ends_a_loss_and_the_first_reason_stays(moves: list[str]) -> None:
    place = EpisodePosition()
    lost: str | None = None
    for number, move in enumerate(moves):
        if move == "begin":
            place.begin(place.epoch + 1, ended=False)
            lost = None
        elif move == "advance":
            place.advance(ended=False)
        else:
            place.lose(EpisodeLoss(str(number), LossReason.NO_ANSWER))
            lost = lost or str(number)

        assert (None if place.loss is None else place.loss.message) == lost


def test_a_loss_is_a_new_exception_every_time() -> None:
    first, second = LOSS.exception(), LOSS.exception()

    assert first is not second
    assert (first.message, first.code) == ("gone", "WRONG_EPISODE")
