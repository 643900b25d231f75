"""A code is good once, a visit ends by itself, a token is good for its own visit; and nothing of them can be read."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from proctor.access.browser_visits import CODE_SECONDS, LONGEST, MOST_CODES, MOST_VISITS, VISIT_SECONDS, Visits


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def visits(clock: Clock) -> Visits:
    return Visits(clock=clock)


def entered(visits: Visits) -> str:
    cookie = visits.enter(visits.code())
    assert cookie is not None
    return cookie


# --------------------------------------------------------------------------------------------------------------- codes
def test_a_code_is_good_once(visits: Visits) -> None:
    code = visits.code()

    first, second = visits.enter(code), visits.enter(code)

    assert first is not None
    assert second is None
    assert len(visits) == 1


@pytest.mark.parametrize(
    ("later", "good"), [(CODE_SECONDS - 1, True), (CODE_SECONDS, False), (CODE_SECONDS * 9, False)]
)
def test_a_code_is_good_for_an_hour(visits: Visits, clock: Clock, later: float, good: bool) -> None:
    code = visits.code()
    clock.now += later

    assert (visits.enter(code) is not None) is good


@pytest.mark.parametrize("wrong", ["", "x", "x" * 100_000, "\udcff", "\x00", "é" * 50])
def test_what_is_no_code_opens_nothing(visits: Visits, wrong: str) -> None:
    visits.code()

    assert visits.enter(wrong) is None
    assert len(visits) == 0


def test_a_code_with_something_after_it_is_none(visits: Visits) -> None:
    code = visits.code()

    assert visits.enter(code + "x") is None
    assert visits.enter(code.ljust(LONGEST + 1, "x")) is None


def test_of_too_many_codes_the_oldest_goes(visits: Visits) -> None:
    codes = [visits.code() for _ in range(MOST_CODES + 1)]

    assert visits.enter(codes[0]) is None
    assert visits.enter(codes[1]) is not None


def test_codes_and_cookies_have_256_bits_and_are_never_the_same() -> None:
    asked: list[int] = []

    def draw(size: int) -> str:
        asked.append(size)
        return f"secret-{len(asked)}"

    visits = Visits(clock=lambda: 0.0, draw=draw)
    code = visits.code()

    assert visits.enter(code) != code
    assert asked == [32, 32, 32]


# -------------------------------------------------------------------------------------------------------------- visits
@pytest.mark.parametrize(("later", "good"), [(VISIT_SECONDS - 1, True), (VISIT_SECONDS, False)])
def test_a_visit_ends_after_twelve_hours_however_often_it_is_used(
    visits: Visits, clock: Clock, later: float, good: bool
) -> None:
    cookie = entered(visits)
    for _ in range(4):
        clock.now += later / 4
        visits.has(cookie)

    assert visits.has(cookie) is good
    assert visits.accepts(cookie, visits.csrf(cookie)) is good
    assert len(visits) == good


def test_of_too_many_visits_the_oldest_goes(visits: Visits) -> None:
    cookies = [entered(visits) for _ in range(MOST_VISITS + 1)]

    assert [visits.has(cookie) for cookie in cookies] == [False] + [True] * MOST_VISITS


def test_who_has_left_is_out_and_others_are_not(visits: Visits) -> None:
    mine, yours = entered(visits), entered(visits)

    assert visits.leave(mine)
    assert not visits.leave(mine)
    assert (visits.has(mine), visits.has(yours)) == (False, True)


def test_no_cookie_and_an_empty_one_are_nobodys(visits: Visits) -> None:
    entered(visits)

    assert not visits.has(None)
    assert not visits.has("")
    assert not visits.accepts(None, visits.csrf(""))


# -------------------------------------------------------------------------------------------------------------- tokens
def test_a_token_is_good_for_its_own_visit_only(visits: Visits) -> None:
    mine, yours = entered(visits), entered(visits)

    assert visits.accepts(mine, visits.csrf(mine))
    assert not visits.accepts(mine, visits.csrf(yours))
    assert not visits.accepts(mine, None)
    assert not visits.accepts(mine, "")
    assert not visits.accepts(mine, visits.csrf(mine) + "0")


def test_a_token_of_another_run_is_good_for_nothing(visits: Visits, clock: Clock) -> None:
    cookie = entered(visits)
    other = Visits(clock=clock)

    assert not visits.accepts(cookie, other.csrf(cookie))


# ------------------------------------------------------------------------------------------------------ what is not told
def test_nothing_of_a_secret_can_be_read(visits: Visits) -> None:
    code, cookie = visits.code(), entered(visits)

    shown = repr(visits) + str(visits) + repr({name: getattr(visits, name) for name in visits.__slots__})

    assert code not in shown
    assert cookie not in shown
    assert visits.csrf(cookie) not in shown


def test_visits_are_neither_copied_nor_pickled(visits: Visits) -> None:
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        pickle.dumps(visits)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        copy.copy(visits)


# ----------------------------------------------------------------------------------------------------- in whatever order
class Comings(RuleBasedStateMachine):
    """Codes, visits and time in whatever order, against a list of who should be in."""

    codes = Bundle("codes")
    cookies = Bundle("cookies")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.visits = Visits(clock=self.clock)
        self.good: dict[str, float] = {}
        self.inside: dict[str, float] = {}
        self.spent: set[str] = set()

    @rule(target=codes)
    def code(self) -> str:
        code = self.visits.code()
        self.good[code] = self.clock.now + CODE_SECONDS
        self.good = dict(list(self.good.items())[-MOST_CODES:])
        return code

    @rule(target=cookies, code=codes)
    def enter(self, code: str) -> object:
        expected = self.clock.now < self.good.pop(code, 0.0)
        cookie = self.visits.enter(code)

        assert (cookie is not None) is expected
        self.spent.add(code)
        if cookie is None:
            return multiple()
        self.inside[cookie] = self.clock.now + VISIT_SECONDS
        return cookie

    @rule(cookie=consumes(cookies))
    def leave(self, cookie: str) -> None:
        expected = self.clock.now < self.inside.pop(cookie, 0.0)

        assert self.visits.leave(cookie) is expected

    @rule(seconds=st.sampled_from([1.0, CODE_SECONDS / 2, CODE_SECONDS, VISIT_SECONDS / 3, VISIT_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.good = {code: end for code, end in self.good.items() if self.clock.now < end}
        self.inside = {cookie: end for cookie, end in self.inside.items() if self.clock.now < end}

    @rule(one=cookies, other=cookies)
    def post(self, one: str, other: str) -> None:
        expected = one == other and one in self.inside

        assert self.visits.accepts(one, self.visits.csrf(other)) is expected

    @invariant()
    def those_inside_are_those_who_came_and_neither_left_nor_stayed_too_long(self) -> None:
        assert len(self.visits) == len(self.inside)
        assert all(self.visits.has(cookie) for cookie in self.inside)
        assert not any(self.visits.has(code) for code in self.spent)


Comings.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestComings = Comings.TestCase
