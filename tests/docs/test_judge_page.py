"""What docs/judge.md and docs/packets.md say of the judge is what it does."""

import json
import re
import typing
from pathlib import Path

import msgspec
import pytest
import typer

from proctor.cli.judge import VerdictJson, judge
from proctor.cli.main import main
from proctor.episode.diagram import draw_machine
from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.fields import OpeningSettings
from proctor.episode.rules.catalogue import CATALOGUE
from proctor.episode.settings import Limits, Settings
from proctor.episode.transition_table import ProtocolState
from tests.docs.tables import page, table

PAGE = page("judge.md")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def words(cell: str) -> list[str]:
    """Return what stands in a cell in the letters of code."""
    return re.findall(r"`([^`]+)`", cell)


def options() -> set[str]:
    alone = typer.Typer(add_completion=False)
    alone.command()(judge)
    return {name for each in typer.main.get_command(alone).params for name in each.opts if name.startswith("--")}


def test_both_pages_show_the_machine_as_the_table_has_it() -> None:
    assert blocks("mermaid") == [draw_machine()]
    assert draw_machine() in page("episode-table.md")


def test_the_page_tells_every_state() -> None:
    assert [row[0] for row in table(PAGE, "| state |")] == list(ProtocolState)


def test_the_page_tells_every_key_of_a_verdict() -> None:
    keys = [key for row in table(PAGE, "| key |") for key in words(row[0])]
    always = [field.name for field in msgspec.structs.fields(VerdictJson) if field.required]
    sometimes = [field.name for field in msgspec.structs.fields(VerdictJson) if not field.required]

    assert keys == always
    assert all(f"`{name}`" in PAGE for name in sometimes)


def test_the_page_tells_every_option_of_the_command() -> None:
    switches = {row[0].strip("`") for row in table(PAGE, "| option | setting |")}
    others = {row[0].strip("`") for row in table(PAGE, "| option | meaning |")}

    assert switches | others == options()


def test_the_page_tells_every_setting_with_its_default_first() -> None:
    rows = {words(row[1])[0]: words(row[2]) for row in table(PAGE, "| option | setting |")}
    kinds = typing.get_type_hints(Settings)

    assert list(rows) == [field.name for field in msgspec.structs.fields(Settings)]
    for name, values in rows.items():
        if kinds[name] is not bool:
            assert values == list(kinds[name])
            assert values[0] == getattr(Settings(), name)


def test_the_page_tells_every_record_and_what_an_opening_states() -> None:
    rows = {words(row[0])[0]: words(row[1]) for row in table(PAGE, "| record |")}

    assert list(rows) == list(RecordKind)
    assert rows["open"] == [field.name for field in msgspec.structs.fields(OpeningSettings)]


def test_the_page_tells_every_limit() -> None:
    assert all(f"{field.name}=" in PAGE for field in msgspec.structs.fields(Limits))


def test_the_verdict_on_the_page_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "judge.md", "exec"), {})  # writes episode.jsonl, as a reader would

    assert main(["judge", "episode.jsonl", "--json"]) == 1
    printed = capsysbinary.readouterr().out.splitlines()
    (shown,) = blocks("json")
    assert json.loads(shown) == json.loads(printed[1])


def test_the_page_of_rules_has_every_rule() -> None:
    assert [row[0] for row in table(page("episode-rules.md"), "| rule |")] == [rule.id for rule in CATALOGUE]


def test_the_page_of_packets_has_every_kind() -> None:
    assert [row[0] for row in table(page("packets.md"), "| packet |")] == list(PacketKind)
