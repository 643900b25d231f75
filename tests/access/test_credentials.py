"""Who may pass: only whoever presents exactly the secret."""

from __future__ import annotations

import base64
import copy
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.credentials import (
    CONTROL,
    LONGEST,
    MOST_HEADER_BYTES,
    SHORTEST,
    Credential,
    CredentialKind,
    SecretSource,
    ServerCredential,
    accepts,
    check_secret,
    default_state_file,
    find_credential,
    generate_secret,
    read_presented_secret,
)
from proctor.errors import ValidationError

VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
SECRETS = st.text(VISIBLE, min_size=SHORTEST, max_size=80)
SECRET = "Zm9v-Kilo_Secret.0123456789abcdef"
LOOK_ALIKES = {"a": "а", "e": "е", "o": "ο", "K": "\u212a", "S": "Ѕ", "0": "０", "i": "і", "-": "‐"}


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def bearer(secret: str) -> bytes:
    return b"Bearer " + secret.encode()


def passes(credential: Credential, *values: bytes) -> bool:
    headers = [(b"host", b"localhost"), *((b"authorization", value) for value in values)]
    return accepts(credential, read_presented_secret(headers))


@given(SECRETS)
def test_the_secret_is_accepted_as_bearer_and_as_basic(secret: str) -> None:
    credential = Credential.of(secret)

    assert passes(credential, bearer(secret))
    assert passes(credential, basic("proctor", secret))
    assert passes(credential, b"bEARER   " + secret.encode() + b" ")
    assert accepts(credential, read_presented_secret([(b"Authorization", b"BASIC" + basic("proctor", secret)[5:])]))


@given(SECRETS, SECRETS)
def test_no_other_secret_is_accepted(secret: str, other: str) -> None:
    credential = Credential.of(secret)

    assert passes(credential, bearer(other)) == (secret == other)
    assert passes(credential, basic("proctor", other)) == (secret == other)


@given(SECRETS, st.lists(st.binary(max_size=200), max_size=3))
def test_no_header_without_the_exact_secret_is_ever_accepted(secret: str, values: list[bytes]) -> None:
    accepted = passes(Credential.of(secret), *values)

    assert not accepted or (len(values) == 1 and secret in {_bearer_text(values[0]), _basic_text(values[0])})


def _bearer_text(value: bytes) -> str:
    return value.decode("latin-1").split()[-1]


def _basic_text(value: bytes) -> str:
    return base64.b64decode(value.split()[-1]).decode("latin-1").partition(":")[2]


def test_ten_thousand_forged_credentials_are_all_refused() -> None:
    rng = random.Random(4)
    credential = Credential.of(SECRET)
    forgeries = _forgeries(rng)

    refused = [passes(credential, *next(forgeries)) for _ in range(10_000)]

    assert refused == [False] * 10_000
    assert passes(credential, bearer(SECRET))


def _forgeries(rng: random.Random) -> Iterator[list[bytes]]:
    """Yield the headers of one forged request after the other, every kind in turn."""
    kinds: list[Callable[[random.Random], list[bytes]]] = [
        lambda rng: [bearer(SECRET[: rng.randrange(len(SECRET))])],
        lambda rng: [bearer(SECRET + rng.choice("aZ0-_=.\x00"))] if rng.random() < 0.5 else [bearer("x" + SECRET)],
        lambda rng: [bearer(_swapped_case(rng))],
        lambda rng: [bearer(_changed(rng))],
        lambda rng: [basic("proctor", _changed(rng))],
        lambda rng: [bearer(_look_alike(rng))],
        lambda rng: [basic("proctor", _look_alike(rng))],
        lambda rng: [bearer(SECRET), bearer(rng.choice([SECRET, _changed(rng)]))],
        lambda rng: [bearer(SECRET) + b", " + bearer(SECRET)],
        lambda rng: [rng.choice([b"Token ", b"Digest ", b"", b"Bearer", b"Bearer\t", b"Bearer:"]) + SECRET.encode()],
        lambda rng: [basic(rng.choice(["", "Proctor", "admin", "proctor ", "proctor\x00", "рroctor"]), SECRET)],
        lambda rng: [b"Basic " + base64.b64encode(SECRET.encode())],
        lambda rng: [basic("proctor", SECRET)[: -rng.randrange(1, 20)]],
        lambda rng: [b"Bearer " + base64.b64encode(SECRET.encode())],
        lambda rng: [b"Basic " + SECRET.encode()],
        lambda rng: [b"Bearer proctor:" + SECRET.encode()],
        lambda rng: [bearer(generate_secret(draw=lambda n: rng.randbytes(n).hex())[0])],
        lambda rng: [bearer(Credential.of(SECRET).digest.hex())],
        lambda rng: [b"Bearer " + b" " * MOST_HEADER_BYTES + SECRET.encode()],
        lambda rng: [bearer(f'"{SECRET}"'), bearer(SECRET).replace(b"0", b"%30")][:1],
        lambda rng: [rng.randbytes(rng.randrange(60))],
        lambda rng: [],
    ]
    while True:
        for kind in kinds:
            yield kind(rng)


def _changed(rng: random.Random) -> str:
    place = rng.randrange(len(SECRET))
    return (
        SECRET[:place]
        + chr(rng.choice([c for c in range(0x21, 0x7F) if chr(c) != SECRET[place]]))
        + SECRET[place + 1 :]
    )


def _swapped_case(rng: random.Random) -> str:
    letters = [i for i, c in enumerate(SECRET) if c.isalpha()]
    some = set(rng.sample(letters, rng.randrange(1, len(letters))))
    return "".join(c.swapcase() if i in some else c for i, c in enumerate(SECRET))


def _look_alike(rng: random.Random) -> str:
    plain = rng.choice([c for c in SECRET if c in LOOK_ALIKES])
    return SECRET.replace(plain, LOOK_ALIKES[plain], 1)


def test_a_secret_of_another_session_or_of_an_earlier_one_is_refused() -> None:
    secrets, credentials = zip(*(generate_secret() for _ in range(50)), strict=True)

    crossed = [(i, j) for i, c in enumerate(credentials) for j, s in enumerate(secrets) if accepts(c, s)]

    assert crossed == [(i, i) for i in range(50)]


@pytest.mark.parametrize("text", [None, "", "\ud800", "é" * 40, "x" * 100_000])
def test_nothing_and_nonsense_are_refused_without_a_failure(text: str | None) -> None:
    assert not accepts(Credential.of(SECRET), text)


def test_a_header_of_more_than_four_kilobytes_is_not_read() -> None:
    assert read_presented_secret([(b"authorization", b"Bearer " + b"a" * (MOST_HEADER_BYTES - 7))]) is not None
    assert read_presented_secret([(b"authorization", b"Bearer " + b"a" * (MOST_HEADER_BYTES - 6))]) is None


@pytest.mark.parametrize(
    "value",
    [
        b"Basic !!!!",
        b"Basic cHJvY3Rvcjph=",
        b"Basic " + base64.b64encode(b"proctor:\xff\xfe"),
        b"Basic " + base64.b64encode(b"proctor:"),
        b"Basic " + base64.b64encode(b"proctor:with a space"),
        b"Basic",
        b"Bearer ",
        b"Bearer a\x7fb",
        b"Bearer \xe9",
        b"",
    ],
)
def test_a_malformed_header_presents_nothing(value: bytes) -> None:
    assert read_presented_secret([(b"authorization", value)]) is None


def test_a_password_may_hold_a_colon() -> None:
    assert read_presented_secret([(b"authorization", basic("proctor", "a:b:c"))]) == "a:b:c"


@given(st.text(max_size=40) | st.text(VISIBLE, min_size=LONGEST - 1, max_size=LONGEST + 1))
def test_only_long_visible_ascii_can_be_a_secret(text: str) -> None:
    possible = SHORTEST <= len(text) <= LONGEST and all("!" <= c <= "~" for c in text)

    if possible:
        assert check_secret(text) == text
        return
    with pytest.raises(ValidationError, match="visible ASCII") as caught:
        Credential.of(text)
    assert len(text) < 4 or text not in str(caught.value)


def test_a_generated_secret_has_256_bits_from_the_given_source() -> None:
    secret, credential = generate_secret(draw=lambda n: f"{n}-bytes-for-a-test")

    assert secret == "32-bytes-for-a-test"
    assert accepts(credential, secret)
    assert len(base64.urlsafe_b64decode(generate_secret()[0] + "=")) == 32
    assert generate_secret()[0] != generate_secret()[0]


@given(SECRETS)
def test_no_repr_or_pickle_shows_a_secret(secret: str) -> None:
    credential = Credential.of(secret)
    found = ServerCredential(secret, credential, SecretSource.STATE_FILE, Path("file"))
    shown = "".join(say(value) for value in (credential, found) for say in (repr, str, format, lambda v: f"{[v]!r}"))

    assert secret not in shown
    assert repr(credential.digest) not in shown
    assert secret.encode() not in pickle.dumps(found) + pickle.dumps(credential)
    assert copy.copy(found).secret is None
    assert pickle.loads(pickle.dumps(found)) == ServerCredential(
        None, credential, SecretSource.STATE_FILE, Path("file")
    )


def private(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_the_environment_comes_before_the_file_and_the_file_before_the_state(tmp_path: Path) -> None:
    named = private(tmp_path / "named", "secret-of-the-named-file\n")
    state = private(tmp_path / "state", "secret-of-the-state-file\n")
    environment = {CONTROL.variable: "secret-of-the-environment"}

    first = find_credential(CONTROL, environment, named, state)
    second = find_credential(CONTROL, {}, named, state)
    third = find_credential(CONTROL, {}, None, state)

    assert (first.source, first.path, first.secret) == (SecretSource.ENVIRONMENT, None, None)
    assert (second.source, second.path, second.secret) == (SecretSource.FILE, named, None)
    assert (third.source, third.path, third.secret) == (SecretSource.STATE_FILE, state, None)
    assert accepts(first.credential, "secret-of-the-environment")
    assert accepts(second.credential, "secret-of-the-named-file")
    assert accepts(third.credential, "secret-of-the-state-file")


def test_a_secret_that_is_made_is_shown_once_and_survives_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state" / "proctor" / "control-token"

    first = find_credential(CONTROL, {}, None, state)
    again = find_credential(CONTROL, {}, None, state)

    assert first.secret is not None
    assert again.secret is None
    assert first.credential == again.credential
    assert accepts(again.credential, first.secret)


@pytest.mark.parametrize("source", ["environment", "file", "state", "made"])
def test_every_secret_is_told_to_whoever_hides_it(tmp_path: Path, source: str) -> None:
    hidden: list[str] = []
    environment = {CONTROL.variable: SECRET} if source == "environment" else {}
    named = private(tmp_path / "named", SECRET) if source == "file" else None
    state = private(tmp_path / "state", SECRET) if source == "state" else tmp_path / "made"

    found = find_credential(CONTROL, environment, named, state, hide=hidden.append, draw=lambda _: SECRET)

    assert hidden == [SECRET]
    assert accepts(found.credential, SECRET)


@pytest.mark.parametrize("bad", ["", "short", "with a space in it", "tab\tinside-the-secret", "nön-ascii-secret-text"])
def test_an_unacceptable_secret_is_refused_and_no_other_source_is_tried(tmp_path: Path, bad: str) -> None:
    state = tmp_path / "state"
    named = private(tmp_path / "named", bad)

    for environment, file in (({CONTROL.variable: bad}, None), ({}, named)):
        with pytest.raises(ValidationError) as caught:
            find_credential(CONTROL, environment, file, state)
        assert not bad or bad not in str(caught.value)

    assert not state.exists()


def test_an_empty_state_file_is_refused_not_replaced(tmp_path: Path) -> None:
    state = private(tmp_path / "state", "\n")

    with pytest.raises(ValidationError, match="state is not acceptable"):
        find_credential(CONTROL, {}, None, state)

    assert state.read_text(encoding="utf-8") == "\n"


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="there is no file"):
        find_credential(CONTROL, {}, tmp_path / "nowhere", tmp_path / "state")


def test_another_kind_of_credential_has_its_own_variable_and_file(tmp_path: Path) -> None:
    kind = CredentialKind("PROCTOR_OPERATOR_TOKEN", "operator-token")
    environment = {CONTROL.variable: "secret-of-the-control-plane", kind.variable: "secret-of-an-operator"}

    found = find_credential(kind, environment, None, tmp_path / "state")

    assert accepts(found.credential, "secret-of-an-operator")
    assert default_state_file({"HOME": "/people/a"}, kind).name == "operator-token"


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"XDG_STATE_HOME": "/s", "HOME": "/people/a"}, "/s/proctor/control-token"),
        ({"XDG_STATE_HOME": "", "HOME": "/people/a"}, "/people/a/.local/state/proctor/control-token"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/people/a"}, "/people/a/.local/state/proctor/control-token"),
        ({"HOME": "/people/a"}, "/people/a/.local/state/proctor/control-token"),
    ],
)
def test_the_state_file_lies_where_xdg_says(environment: dict[str, str], path: str) -> None:
    assert default_state_file(environment) == Path(path)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_there_is_no_state_file(environment: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="no home folder"):
        default_state_file(environment)
