"""What tests of commands share: a command that runs in this process, and what it said."""

import io
import sys

import pytest

from proctor.cli.main import main
from tests.cli.said import Run, Said


@pytest.fixture
def run_command(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `proctor` in this process, with `stdin` as its standard input."""

    def call(*arguments: object, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(list(map(str, arguments)))
        captured = capsysbinary.readouterr()
        return Said(code, captured.out.decode(), captured.err.decode())

    return call
