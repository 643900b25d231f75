"""Who may pass: only whoever presents exactly the secret."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access import credentials
from proctor.access.credentials import MOST_FILE_BYTES, read_or_make_private, read_private
from proctor.errors import ValidationError

VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
SECRETS = st.text(VISIBLE, min_size=credentials.SHORTEST, max_size=80)
SECRET = "Zm9v-Kilo_Secret.0123456789abcdef"
LOOK_ALIKES = {"a": "а", "e": "е", "o": "ο", "K": "\u212a", "S": "Ѕ", "0": "０", "i": "і", "-": "‐"}


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def bearer(secret: str) -> bytes:
    return b"Bearer " + secret.encode()


def passes(credential: credentials.Credential, *values: bytes) -> bool:
    headers = [(b"host", b"localhost"), *((b"authorization", value) for value in values)]
    return credentials.accepts(credential, credentials.read_presented_secret(headers))


@given(SECRETS)
def test_the_secret_is_accepted_as_bearer_and_as_basic(secret: str) -> None:
    credential = credentials.Credential.of(secret)

    assert passes(credential, bearer(secret))
    assert passes(credential, basic("proctor", secret))
    assert passes(credential, b"bEARER   " + secret.encode() + b" ")
    assert credentials.accepts(
        credential, credentials.read_presented_secret([(b"Authorization", b"BASIC" + basic("proctor", secret)[5:])])
    )


@given(SECRETS, SECRETS)
def test_no_other_secret_is_accepted(secret: str, other: str) -> None:
    credential = credentials.Credential.of(secret)

    assert passes(credential, bearer(other)) == (secret == other)
    assert passes(credential, basic("proctor", other)) == (secret == other)


@given(SECRETS, st.lists(st.binary(max_size=200), max_size=3))
def test_no_header_without_the_exact_secret_is_ever_accepted(secret: str, values: list[bytes]) -> None:
    accepted = passes(credentials.Credential.of(secret), *values)

    assert not accepted or (len(values) == 1 and secret in {_bearer_text(values[0]), _basic_text(values[0])})


def _bearer_text(value: bytes) -> str:
    return value.decode("latin-1").split()[-1]


def _basic_text(value: bytes) -> str:
    return base64.b64decode(value.split()[-1]).decode("latin-1").partition(":")[2]


def test_ten_thousand_forged_credentials_are_all_refused() -> None:
    rng = random.Random(4)
    credential = credentials.Credential.of(SECRET)
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
        lambda rng: [bearer(credentials.generate_secret(draw=lambda n: rng.randbytes(n).hex())[0])],
        lambda rng: [bearer(credentials.Credential.of(SECRET).digest.hex())],
        lambda rng: [b"Bearer " + b" " * credentials.MOST_HEADER_BYTES + SECRET.encode()],
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
    secrets, made = zip(*(credentials.generate_secret() for _ in range(50)), strict=True)

    crossed = [(i, j) for i, c in enumerate(made) for j, s in enumerate(secrets) if credentials.accepts(c, s)]

    assert crossed == [(i, i) for i in range(50)]


@pytest.mark.parametrize("text", [None, "", "\ud800", "é" * 40, "x" * 100_000])
def test_nothing_and_nonsense_are_refused_without_a_failure(text: str | None) -> None:
    assert not credentials.accepts(credentials.Credential.of(SECRET), text)


def test_a_header_of_more_than_four_kilobytes_is_not_read() -> None:
    assert (
        credentials.read_presented_secret([(b"authorization", b"Bearer " + b"a" * (credentials.MOST_HEADER_BYTES - 7))])
        is not None
    )
    assert (
        credentials.read_presented_secret([(b"authorization", b"Bearer " + b"a" * (credentials.MOST_HEADER_BYTES - 6))])
        is None
    )


@pytest.mark.parametrize(
    "value",
    [
        *(b"Basic !!!!", b"Basic cHJvY3Rvcjph=", b"Basic " + base64.b64encode(b"proctor:\xff\xfe")),
        *(b"Basic " + base64.b64encode(b"proctor:"), b"Basic " + base64.b64encode(b"proctor:with a space"), b"Basic"),
        *(b"Bearer ", b"Bearer a\x7fb", b"Bearer \xe9", b""),
    ],
)
def test_a_malformed_header_presents_nothing(value: bytes) -> None:
    assert credentials.read_presented_secret([(b"authorization", value)]) is None


def test_a_password_may_hold_a_colon() -> None:
    assert credentials.read_presented_secret([(b"authorization", basic("proctor", "a:b:c"))]) == "a:b:c"


@given(st.text(max_size=40) | st.text(VISIBLE, min_size=credentials.LONGEST - 1, max_size=credentials.LONGEST + 1))
def test_only_long_visible_ascii_can_be_a_secret(text: str) -> None:
    possible = credentials.SHORTEST <= len(text) <= credentials.LONGEST and all("!" <= c <= "~" for c in text)

    if possible:
        assert credentials.check_secret(text) == text
        return
    with pytest.raises(ValidationError, match="visible ASCII") as caught:
        credentials.Credential.of(text)
    assert len(text) < 4 or text not in str(caught.value)


def test_a_generated_secret_has_256_bits_from_the_given_source() -> None:
    secret, credential = credentials.generate_secret(draw=lambda n: f"{n}-bytes-for-a-test")

    assert secret == "32-bytes-for-a-test"
    assert credentials.accepts(credential, secret)
    assert len(base64.urlsafe_b64decode(credentials.generate_secret()[0] + "=")) == 32
    assert credentials.generate_secret()[0] != credentials.generate_secret()[0]


@given(SECRETS)
def test_no_repr_or_pickle_shows_a_secret(secret: str) -> None:
    credential = credentials.Credential.of(secret)
    found = credentials.ServerCredential(secret, credential, credentials.SecretSource.STATE_FILE, Path("file"))
    shown = "".join(say(value) for value in (credential, found) for say in (repr, str, format, lambda v: f"{[v]!r}"))

    assert secret not in shown
    assert repr(credential.digest) not in shown
    assert secret.encode() not in pickle.dumps(found) + pickle.dumps(credential)
    assert copy.copy(found).secret is None
    assert pickle.loads(pickle.dumps(found)) == credentials.ServerCredential(
        None, credential, credentials.SecretSource.STATE_FILE, Path("file")
    )


def private(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_the_environment_comes_before_the_file_and_the_file_before_the_state(tmp_path: Path) -> None:
    named = private(tmp_path / "named", "secret-of-the-named-file\n")
    state = private(tmp_path / "state", "secret-of-the-state-file\n")
    environment = {credentials.CONTROL.variable: "secret-of-the-environment"}

    first = credentials.find_credential(credentials.CONTROL, environment, named, state)
    second = credentials.find_credential(credentials.CONTROL, {}, named, state)
    third = credentials.find_credential(credentials.CONTROL, {}, None, state)

    assert (first.source, first.path, first.secret) == (credentials.SecretSource.ENVIRONMENT, None, None)
    assert (second.source, second.path, second.secret) == (credentials.SecretSource.FILE, named, None)
    assert (third.source, third.path, third.secret) == (credentials.SecretSource.STATE_FILE, state, None)
    assert credentials.accepts(first.credential, "secret-of-the-environment")
    assert credentials.accepts(second.credential, "secret-of-the-named-file")
    assert credentials.accepts(third.credential, "secret-of-the-state-file")


def test_a_secret_that_is_made_is_shown_once_and_survives_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state" / "proctor" / "control-token"

    first = credentials.find_credential(credentials.CONTROL, {}, None, state)
    again = credentials.find_credential(credentials.CONTROL, {}, None, state)

    assert first.secret is not None
    assert again.secret is None
    assert first.credential == again.credential
    assert credentials.accepts(again.credential, first.secret)


@pytest.mark.parametrize("source", ["environment", "file", "state", "made"])
def test_every_secret_is_told_to_whoever_hides_it(tmp_path: Path, source: str) -> None:
    hidden: list[str] = []
    environment = {credentials.CONTROL.variable: SECRET} if source == "environment" else {}
    named = private(tmp_path / "named", SECRET) if source == "file" else None
    state = private(tmp_path / "state", SECRET) if source == "state" else tmp_path / "made"

    found = credentials.find_credential(
        credentials.CONTROL, environment, named, state, hide=hidden.append, draw=lambda _: SECRET
    )

    assert hidden == [SECRET]
    assert credentials.accepts(found.credential, SECRET)


@pytest.mark.parametrize("bad", ["", "short", "with a space in it", "tab\tinside-the-secret", "nön-ascii-secret-text"])
def test_an_unacceptable_secret_is_refused_and_no_other_source_is_tried(tmp_path: Path, bad: str) -> None:
    state = tmp_path / "state"
    named = private(tmp_path / "named", bad)

    for environment, file in (({credentials.CONTROL.variable: bad}, None), ({}, named)):
        with pytest.raises(ValidationError) as caught:
            credentials.find_credential(credentials.CONTROL, environment, file, state)
        assert not bad or bad not in str(caught.value)

    assert not state.exists()


def test_an_empty_state_file_is_refused_not_replaced(tmp_path: Path) -> None:
    state = private(tmp_path / "state", "\n")

    with pytest.raises(ValidationError, match="state is not acceptable"):
        credentials.find_credential(credentials.CONTROL, {}, None, state)

    assert state.read_text(encoding="utf-8") == "\n"


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="there is no file"):
        credentials.find_credential(credentials.CONTROL, {}, tmp_path / "nowhere", tmp_path / "state")


def test_another_kind_of_credential_has_its_own_variable_and_file(tmp_path: Path) -> None:
    kind = credentials.CredentialKind("PROCTOR_OPERATOR_TOKEN", "operator-token")
    environment = {credentials.CONTROL.variable: "secret-of-the-control-plane", kind.variable: "secret-of-an-operator"}

    found = credentials.find_credential(kind, environment, None, tmp_path / "state")

    assert credentials.accepts(found.credential, "secret-of-an-operator")
    assert credentials.default_state_file({"HOME": "/people/a"}, kind).name == "operator-token"


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
    assert credentials.default_state_file(environment) == Path(path)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_there_is_no_state_file(environment: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="no home folder"):
        credentials.default_state_file(environment)


FILE_TEXT = "a-secret-for-the-tests"


def private_bytes(path: Path, content: bytes = FILE_TEXT.encode(), mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def never() -> str:
    raise AssertionError("nothing is to be made")


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_a_new_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "token"
    tmp_path.chmod(0o700)
    before = os.umask(umask)
    try:
        made = read_or_make_private(path, lambda: FILE_TEXT)
    finally:
        os.umask(before)

    assert made == (FILE_TEXT, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path.parent) == ["token"]


def test_every_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    read_or_make_private(tmp_path / "a" / "b" / "token", lambda: FILE_TEXT)

    assert [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("a", "a/b")] == [0o700, 0o700]


def test_a_file_that_is_there_is_used_again(tmp_path: Path) -> None:
    path = private_bytes(tmp_path / "token", FILE_TEXT.encode() + b"\r\n")

    assert read_or_make_private(path, never) == (FILE_TEXT, False)


@given(mode=st.integers(0, 0o777))
def test_a_file_is_read_only_if_nobody_else_can(tmp_path_factory: pytest.TempPathFactory, mode: int) -> None:
    path = private_bytes(tmp_path_factory.mktemp("modes") / "token", mode=mode | 0o400)

    if mode & 0o077 == 0:
        assert read_private(path, follow_links=False) == FILE_TEXT
        return
    with pytest.raises(ValidationError, match=f"chmod 600 {path}") as caught:
        read_private(path, follow_links=False)
    assert FILE_TEXT not in str(caught.value)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = private_bytes(tmp_path / "token")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises(ValidationError, match="another user"):
        read_private(path, follow_links=False)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_in_which_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)

    with pytest.raises(ValidationError, match=f"chmod 700 {folder}"):
        read_or_make_private(folder / "token", never)


def test_a_state_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(private_bytes(tmp_path / "token"))
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")

    for path in (link, dangling):
        with pytest.raises(ValidationError, match="symbolic link"):
            read_or_make_private(path, never)

    assert not (tmp_path / "nowhere").exists()


def test_a_named_file_may_be_a_link_and_its_target_is_judged(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(private_bytes(tmp_path / "token"))

    assert read_private(link, follow_links=True) == FILE_TEXT

    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ValidationError, match="others can read"):
        read_private(link, follow_links=True)


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir(mode=0o700)
    os.mkfifo(pipe, 0o600)

    for path in (folder, pipe):
        with pytest.raises(ValidationError, match="not a regular file"):
            read_private(path, follow_links=True)


@pytest.mark.parametrize("content", [b"a" * (MOST_FILE_BYTES + 1), "schlüssel-des-hauses".encode(), b"\xff" * 40])
def test_a_file_that_cannot_hold_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    path = private_bytes(tmp_path / "token", content)

    with pytest.raises(ValidationError, match="does not hold a secret"):
        read_private(path, follow_links=False)


def test_a_path_that_leads_through_a_file_is_refused(tmp_path: Path) -> None:
    private_bytes(tmp_path / "file")

    with pytest.raises(ValidationError, match="cannot be made"):
        read_or_make_private(tmp_path / "file" / "folder" / "token", never)
    with pytest.raises(ValidationError, match="cannot be read"):
        read_private(tmp_path / "file" / "token", follow_links=True)


def test_a_file_that_cannot_be_written_is_a_clear_refusal_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)

    with pytest.raises(ValidationError, match="could not be written"):
        read_or_make_private(tmp_path / "token", lambda: FILE_TEXT)

    assert names(tmp_path) == []


def test_whoever_comes_second_takes_the_secret_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "token"

    def overtaken() -> str:
        private_bytes(path, b"the-secret-of-the-first")
        return FILE_TEXT

    assert read_or_make_private(path, overtaken) == ("the-secret-of-the-first", False)
    assert names(tmp_path) == ["token"]


def test_a_file_that_vanishes_in_between_is_a_clear_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    monkeypatch.setattr(credentials, "_place_file", lambda *_: False)

    with pytest.raises(ValidationError, match="was removed"):
        read_or_make_private(path, lambda: FILE_TEXT)


def test_threads_that_start_at_once_end_with_one_secret(tmp_path: Path) -> None:
    barrier = Barrier(8, timeout=300)

    def start(number: int, attempt: int) -> tuple[str, bool]:
        barrier.wait()
        return read_or_make_private(tmp_path / str(attempt) / "token", lambda: f"secret-of-thread-{number}")

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            (tmp_path / str(attempt)).mkdir(mode=0o700)
            results = list(pool.map(start, range(8), [attempt] * 8))

            assert len({text for text, _ in results}) == 1
            assert sorted(made for _, made in results) == [False] * 7 + [True]


PROCESS = """
import sys
from pathlib import Path
from proctor.access.credentials import read_or_make_private
print("ready", flush=True)
sys.stdin.readline()
print(read_or_make_private(Path(sys.argv[1]), lambda: "secret-of-process-" + sys.argv[2])[0], flush=True)
"""


def test_processes_that_start_at_once_end_with_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "proctor" / "token"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    secrets = [process.communicate(timeout=300)[0] for process in processes]

    assert len(set(secrets)) == 1
    assert secrets[0].startswith("secret-of-process-")
