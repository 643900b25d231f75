"""All that a server logs goes to standard error, in the form that was asked for and without its secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from proctor.access.redaction import HIDDEN, Redactor
from proctor.server.logs import QUIET, set_up_logs
from proctor.server.settings import ServerSettings

SECRET = "q7-Tz_W0.kL9-v4R4-xY8"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in QUIET}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def set_up(*, json_lines: bool = False, level: str = "info") -> None:
    redactor = Redactor()
    redactor.hide(SECRET)
    settings = ServerSettings.model_validate({"target": "x", "log_json": json_lines, "log_level": level})
    set_up_logs(settings, redactor)


@pytest.mark.parametrize("json_lines", [False, True])
def test_no_secret_reaches_the_log(json_lines: bool, capsys: pytest.CaptureFixture[str]) -> None:
    set_up(json_lines=json_lines)

    try:
        raise RuntimeError(f"inside {SECRET}")
    except RuntimeError:
        logging.getLogger("proctor.session").exception(
            "failed with %s", SECRET, extra={"session": SECRET, "token": "a-b-c-d"}
        )

    seen = capsys.readouterr()
    assert SECRET not in seen.err
    assert "a-b-c-d" not in seen.err
    assert HIDDEN in seen.err
    assert "RuntimeError" in seen.err
    assert seen.out == ""


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up(json_lines=True)

    logging.getLogger("proctor.session").info("opened\nor so", extra={"session": "s"})
    logging.getLogger("proctor.session").warning("closed")

    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["level"], first["event"], first["fields"]) == ("info", "opened\nor so", {"session": "s"})
    assert (second["level"], second["event"], "fields" in second) == ("warning", "closed", False)


def test_plain_lines_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    set_up()

    logging.getLogger("proctor.session").info("opened", extra={"session": "s"})

    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("proctor.session: opened session=s")


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_what_is_below_the_level_is_not_written(level: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    set_up(level=level)

    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("proctor.session").log(each, "said")

    assert len(capsys.readouterr().err.splitlines()) == count


@pytest.mark.parametrize("name", [*QUIET, "uvicorn.asgi", "websockets.server"])
def test_libraries_that_write_down_what_a_peer_sent_are_quiet(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up(level="debug")

    logging.getLogger(name).error("GET /%s", SECRET)

    assert capsys.readouterr().err == ""


def test_setting_up_twice_writes_everything_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_up()
    set_up()

    logging.getLogger("proctor.session").info("said")

    assert len(capsys.readouterr().err.splitlines()) == 1
