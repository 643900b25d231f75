"""The check of names finds what it is there for."""

from pathlib import Path

import pytest

from tools import check_names


@pytest.mark.parametrize(
    "name", ["_taken_down", "told_time", "left", "episode_closed", "_swept", "answered", "rows_kept", "_found_in_order"]
)
def test_a_function_that_is_called_by_a_participle_is_found(name: str) -> None:
    assert check_names.is_named_by_participle(name)


@pytest.mark.parametrize(
    "name",
    ["take_down", "is_closed", "_set_limits", "seed", "read_form", "on_closed", "put", "split_words", "__init__"],
)
def test_a_verb_a_predicate_and_a_callback_are_not(name: str) -> None:
    assert not check_names.is_named_by_participle(name)


def test_a_property_is_a_fact_and_a_method_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_names, "SOURCE", tmp_path)
    path = tmp_path / "door.py"
    path.write_text("class Door:\n    @property\n    def closed(self): ...\n    def opened(self): ...\n", "utf-8")

    assert [function.key for function in check_names.functions(path)] == ["door.py:opened"]


def test_two_public_classes_of_one_name_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_names, "SOURCE", tmp_path)
    paths = [tmp_path / name for name in ("one.py", "two.py", "three.py")]
    for path, name in zip(paths, ("Line", "Line", "_Line"), strict=True):
        path.write_text(f"class {name}: ...\n", "utf-8")

    assert check_names.same_names(paths) == {"Line": ["one.py:1", "two.py:1"]}


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("", "`opened` is a participle"),
        ("door.py:opened\n", "has no reason"),
        ("door.py:opened  # the field's word\ndoor.py:gone  # it was\n", "door.py:gone is not there"),
        ("door.py:opened  # the field's word\n", "1 functions, at most 0"),
    ],
)
def test_an_exception_is_listed_with_its_reason_and_exists_and_there_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], listed: str, expected: str
) -> None:
    (tmp_path / "door.py").write_text("def opened(): ...\n", "utf-8")
    (tmp_path / "listed.txt").write_text(listed, "utf-8")
    monkeypatch.setattr(check_names, "SOURCE", tmp_path)
    monkeypatch.setattr(check_names, "ALLOWED", tmp_path / "listed.txt")

    assert check_names.main([]) == 1
    assert expected in capsys.readouterr().out
