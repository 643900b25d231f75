"""A code is good once, a visit ends by itself, a token is good for its own visit; and nothing of them can be read."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from proctor.access.credentials import Credential
from proctor.access.request_policy import (
    CODE_SECONDS,
    LONGEST,
    MOST_CODES,
    MOST_VISITS,
    VISIT_SECONDS,
    AccessPolicy,
    AccessVerdict,
    Visits,
    cookie_name,
    find_cookie,
    is_open_page,
    judge_visitor,
    policy_for,
)


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


PORT = 8000
SECRET = "the-operator-secret-0123456789"
OWN = ("origin", f"http://127.0.0.1:{PORT}")
Pairs = list[tuple[str, str]]


def policy(secret: str | None = SECRET, **more: list[str]) -> AccessPolicy:
    credential = None if secret is None else Credential.of(secret)
    return policy_for("127.0.0.1", PORT, credential, pages=True, many_tokens=secret is None, **more)


@dataclass
class Browser:
    """A browser that has been let in."""

    policy: AccessPolicy = field(default_factory=policy)
    visits: Visits = field(default_factory=lambda: Visits(clock=lambda: 0.0))

    def __post_init__(self) -> None:
        self.cookie = self.visits.enter(self.visits.code()) or ""
        self.csrf = ("x-proctor-csrf", self.visits.csrf(self.cookie))
        self.carried = ("cookie", f"{cookie_name(PORT)}={self.cookie}")

    def asks(
        self, method: str, path: str, *more: tuple[str, str], cookie: bool = True, host: str = ""
    ) -> AccessVerdict:
        pairs: Pairs = [("host", host or f"127.0.0.1:{PORT}"), *([self.carried] if cookie else []), *more]
        headers = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        return judge_visitor(self.policy, self.visits, PORT, method, path, headers)


READS = ["/viewer/visit", "/viewer/api/lines", "/viewer/events", "/operator/pending", "/operator/watch"]
POSTS = ["/viewer/leave", "/viewer/api/fork", "/operator/answer", "/operator/alert"]


@pytest.mark.parametrize("path", READS)
def test_a_visit_reads(path: str) -> None:
    assert Browser().asks("GET", path) is AccessVerdict.ALLOWED


@pytest.mark.parametrize("path", [*READS, "/viewer/nothing", "/viewer/enter"])
def test_without_a_visit_all_paths_are_alike(path: str) -> None:
    assert Browser().asks("GET", path, cookie=False) is AccessVerdict.NO_CREDENTIAL


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/viewer/"), ("HEAD", "/viewer/"), ("GET", "/viewer/static/js/main.js"), ("POST", "/viewer/enter")],
)
def test_the_page_and_its_entrance_need_no_credential(method: str, path: str) -> None:
    assert Browser().asks(method, path, cookie=False) is AccessVerdict.ALLOWED
    assert is_open_page(method, path)


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "127.0.0.1"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/viewer/"), ("POST", "/viewer/enter"), ("GET", "/viewer/visit")])
def test_a_name_that_was_made_to_point_here_opens_nothing(host: str, method: str, path: str) -> None:
    assert Browser().asks(method, path, host=host) is AccessVerdict.FOREIGN_HOST


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "nonsense"])
@pytest.mark.parametrize("path", READS)
def test_what_another_page_asks_for_is_refused_though_the_browser_sends_the_cookie(site: str, path: str) -> None:
    assert Browser().asks("GET", path, ("sec-fetch-site", site)) is AccessVerdict.FOREIGN_ORIGIN


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_what_the_page_or_a_person_asks_for_is_answered(site: str) -> None:
    assert Browser().asks("GET", "/viewer/visit", ("sec-fetch-site", site)) is AccessVerdict.ALLOWED


@pytest.mark.parametrize("path", POSTS)
def test_a_post_with_origin_and_token_is_let_in(path: str) -> None:
    browser = Browser()

    assert browser.asks("POST", path, OWN, browser.csrf) is AccessVerdict.ALLOWED


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", POSTS)
def test_whatever_is_more_than_reading_needs_the_token(method: str, path: str) -> None:
    browser = Browser()

    assert browser.asks(method, path, OWN) is AccessVerdict.NO_TOKEN
    assert browser.asks(method, path, OWN, ("x-proctor-csrf", "0" * 64)) is AccessVerdict.NO_TOKEN
    assert browser.asks(method, path, OWN, browser.csrf, browser.csrf) is AccessVerdict.NO_TOKEN


@pytest.mark.parametrize(
    "origin",
    [[], [("origin", "http://evil.example")], [("origin", "null")], [("origin", "http://127.0.0.1:3000")], [OWN] * 2],
)
def test_a_post_without_an_origin_of_our_own_is_refused(origin: Pairs) -> None:
    browser = Browser()

    verdict = browser.asks("POST", "/operator/answer", *origin, browser.csrf)

    assert verdict in {AccessVerdict.FOREIGN_ORIGIN, AccessVerdict.BAD_ORIGIN}


def test_a_page_that_may_connect_is_no_page_of_ours() -> None:
    browser = Browser(policy(allow_origins=["http://friend.example"]))
    friend = ("origin", "http://friend.example")

    assert browser.asks("GET", "/viewer/visit", friend) is AccessVerdict.FOREIGN_ORIGIN
    assert browser.asks("POST", "/operator/answer", friend, browser.csrf) is AccessVerdict.FOREIGN_ORIGIN
    assert browser.asks("GET", "/viewer/visit", friend, ("authorization", f"Bearer {SECRET}"), cookie=False).allowed


def test_a_token_of_another_visit_is_refused() -> None:
    browser = Browser()
    other = browser.visits.enter(browser.visits.code()) or ""

    assert (
        browser.asks("POST", "/viewer/leave", OWN, ("x-proctor-csrf", browser.visits.csrf(other)))
        is AccessVerdict.NO_TOKEN
    )


@pytest.mark.parametrize(("method", "path"), [*(("GET", path) for path in READS), *(("POST", path) for path in POSTS)])
def test_the_operators_credential_opens_all_of_it_and_needs_no_token(method: str, path: str) -> None:
    browser = Browser()

    assert browser.asks(method, path, ("authorization", f"Bearer {SECRET}"), cookie=False) is AccessVerdict.ALLOWED
    assert (
        browser.asks(method, path, ("authorization", "Bearer another-secret-12345"), cookie=False)
        is AccessVerdict.NO_CREDENTIAL
    )


def test_a_wrong_credential_is_not_made_good_by_a_cookie() -> None:
    assert Browser().asks("GET", "/viewer/visit", ("authorization", "Bearer wrong")) is AccessVerdict.NO_CREDENTIAL


def test_a_link_is_given_for_the_credential_and_never_for_a_cookie() -> None:
    browser = Browser()

    assert browser.asks("POST", "/operator/link", OWN, browser.csrf) is AccessVerdict.NO_CREDENTIAL
    assert browser.asks("POST", "/operator/link", ("authorization", f"Bearer {SECRET}"), cookie=False).allowed


@pytest.mark.parametrize("path", [*READS[:3], "/viewer/nothing"])
def test_where_there_is_no_credential_only_a_visit_opens_the_pages(path: str) -> None:
    browser = Browser(policy(None))

    assert browser.asks("GET", path, cookie=False) is AccessVerdict.NO_CREDENTIAL
    assert (
        browser.asks("GET", path, ("authorization", "Bearer anything-at-all-0123"), cookie=False)
        is AccessVerdict.NO_CREDENTIAL
    )
    assert browser.asks("GET", path) is AccessVerdict.ALLOWED


def test_a_cookie_that_another_port_planted_opens_nothing() -> None:
    browser = Browser()
    planted = ("cookie", f"{cookie_name(PORT)}=planted-by-another-port")

    assert browser.asks("GET", "/viewer/visit", planted, cookie=False) is AccessVerdict.NO_CREDENTIAL
    # Beside the visit's own, as a cookie for a longer path is: which of the two is meant nobody can tell.
    assert browser.asks("GET", "/viewer/visit", planted) is AccessVerdict.NO_CREDENTIAL
    assert browser.asks("GET", "/viewer/visit").allowed
    assert not browser.visits.has("planted-by-another-port")


@pytest.mark.parametrize("path", ["/viewer/visit", "/viewer/api/lines", "/viewer/events"])
def test_a_page_of_another_port_cannot_use_the_visit(path: str) -> None:
    browser = Browser()
    other = ("origin", f"http://127.0.0.1:{PORT + 1}")
    same_site = ("sec-fetch-site", "same-site")

    assert not browser.asks("GET", path, other).allowed
    assert not browser.asks("GET", path, same_site).allowed
    assert not browser.asks("POST", "/viewer/leave", other, same_site, browser.csrf).allowed


def test_a_visit_of_one_port_is_none_of_another() -> None:
    browser = Browser()
    elsewhere = ("cookie", f"{cookie_name(PORT + 1)}={browser.cookie}")

    assert browser.asks("GET", "/viewer/visit", elsewhere, cookie=False) is AccessVerdict.NO_CREDENTIAL


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["proctor_visit_8000=a"], "a"),
        (["x=1; proctor_visit_8000=a; y=2"], "a"),
        (["x=1", "proctor_visit_8000=a"], "a"),
        (["proctor_visit_8000=a; proctor_visit_8000=b"], None),
        (["proctor_visit_8000=a", "proctor_visit_8000=a"], None),
        (["proctor_visit_8001=a"], None),
        (["xproctor_visit_8000=a"], None),
        (["proctor_visit_8000"], None),
        (["x=" + "y" * 9000, "z=" + "y" * 9000 + "; proctor_visit_8000=a"], "a"),
        ([], None),
    ],
)
def test_the_one_cookie_with_our_name_is_found(lines: list[str], found: str | None) -> None:
    assert find_cookie(PORT, [(b"Cookie", line.encode()) for line in lines]) == found


NAMES = st.sampled_from(
    [b"host", b"origin", b"cookie", b"authorization", b"sec-fetch-site", b"x-proctor-csrf", b"content-type"]
)


@settings(max_examples=60, deadline=None)
@given(
    headers=st.lists(st.tuples(NAMES, st.binary(max_size=60)), max_size=8),
    method=st.sampled_from(["GET", "POST", "BREW"]),
    path=st.sampled_from([*READS, *POSTS, "/viewer/", "/viewer/enter", ""]),
)
def test_whatever_is_sent_nobody_gets_in_without_a_secret(
    headers: list[tuple[bytes, bytes]], method: str, path: str
) -> None:
    browser = Browser()
    known = [(b"host", f"127.0.0.1:{PORT}".encode()), *[each for each in headers if each[0] != b"host"]]

    for each in (headers, known):
        verdict = judge_visitor(browser.policy, browser.visits, PORT, method, path, each)
        assert not verdict.allowed or is_open_page(method, path)
