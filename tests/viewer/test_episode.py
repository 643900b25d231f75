"""An episode shows itself in a notebook, and is saved as a page anywhere else."""

import os
import stat
from html import unescape
from pathlib import Path

import pytest

import proctor
from proctor import viewer
from proctor.errors import ValidationError
from proctor.viewer import Episode
from proctor.viewer import single_file as showing
from proctor.viewer.single_file import save_page
from tests.viewer import ledgers
from tests.viewer.pages import Page


def test_the_only_episode_needs_no_name(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 12)

    found = Episode(tmp_path)

    assert (found.summary.chain, found.steps) == (chain, 12)
    assert Episode(str(tmp_path), chain[:3]).summary == found.summary
    assert Episode(found.summary.file, found.summary.episode_id).summary == found.summary


def test_it_says_what_it_is_on_one_line(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 12)

    said = repr(Episode(tmp_path))

    assert said.startswith(f"<Episode {chain} of {ledgers.PLUME}: 12 steps, total reward ")
    assert "\n" not in said


@pytest.mark.parametrize("name", [None, "p", "nobody"])
def test_a_name_that_is_not_one_episode_lists_them(tmp_path: Path, name: str | None) -> None:
    chains = [ledgers.plume_episode(tmp_path, 3), ledgers.popper_episode(tmp_path, 3)]

    with pytest.raises(ValidationError) as refused:
        Episode(tmp_path, name)

    assert all(chain in str(refused.value) for chain in chains)


def test_of_many_episodes_some_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for session in ("a", "b", "c"):
        ledgers.plume_episode(tmp_path, 1, session=session)
    monkeypatch.setattr(showing, "MOST_NAMED", 2)

    with pytest.raises(ValidationError, match=r"found '3 episodes'; expected the name of one of a.1, b.1 and 1 more"):
        Episode(tmp_path)


def test_its_page_is_that_of_the_file(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 5)

    text = Episode(tmp_path).html(title="Mine")

    found = Page(text)
    assert found.all("title")[0][1] == "Mine"
    assert list(found.contents["episodes"]) == [chain]


def test_it_is_saved_whole_over_an_older_page(tmp_path: Path) -> None:
    ledgers.plume_episode(tmp_path / "ledger", 5)
    found, place = Episode(tmp_path / "ledger"), tmp_path / "page.html"
    place.write_text("old", "utf-8")

    path = found.save(place)

    assert path == place
    assert path.read_text("utf-8") == found.html()
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ledger", "page.html"]


@pytest.mark.parametrize("place", ["", "nowhere/page.html"], ids=["a folder", "no folder"])
def test_a_place_that_takes_no_file_is_an_error_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    with pytest.raises(ValidationError):
        save_page(tmp_path / place, "text")

    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one_and_leads_to_the_new_page(tmp_path: Path) -> None:
    place, link = tmp_path / "page.html", tmp_path / "link.html"
    place.write_text("old", "utf-8")
    link.symlink_to(place)

    path = save_page(link, "new")

    assert (path, link.is_symlink(), place.read_text("utf-8")) == (link, True, "new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.html", "page.html"]


def test_what_is_there_and_is_no_file_is_left_alone(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ValidationError, match="no file that can be replaced"):
        save_page(pipe, "text")

    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_text_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        save_page(tmp_path / "page.html", "half \ud800")

    assert list(tmp_path.iterdir()) == []


def test_a_notebook_gets_the_page_in_a_frame_without_rights(tmp_path: Path) -> None:
    chain = ledgers.forged_episode(tmp_path)
    found = Episode(tmp_path)

    shown = Page(found._repr_html_())

    ((tag, attrs),) = shown.elements
    assert tag == "iframe"
    assert attrs.pop("srcdoc") == found.html()
    assert attrs == {
        "title": chain,
        "sandbox": "allow-scripts",
        "width": "100%",
        "height": "720",
        "frameborder": "0",
    }


def test_a_page_that_is_too_large_says_how_to_save_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledgers.plume_episode(tmp_path, 5)
    monkeypatch.setattr(showing, "MOST_IN_NOTEBOOK", 1000)

    shown = Episode(tmp_path)._repr_html_()

    assert "iframe" not in shown
    assert '.save("episode.html")' in unescape(shown)


def test_it_is_offered_by_the_package_and_by_its_room() -> None:
    assert proctor.Episode is viewer.Episode is Episode
    with pytest.raises(AttributeError, match="Episodes"):
        viewer.Episodes  # noqa: B018
