"""What is said of a live episode beside another one is so far, and is put right when it has gone on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from proctor.viewer.comparison import SAME
from tests.system.viewer.browser import Windows
from tests.system.viewer.served import Site, compare_place, serving

pytestmark = pytest.mark.system
UP = {"action": 0}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "home", "proctor/PlumeSearch-v0") as site:
        yield site


def go_up(client: Any, count: int) -> str:
    for _ in range(count):
        client.step(UP)
    return f"{client.client.session.name}.1"


def test_an_episode_that_catches_up_is_the_same_in_the_end(site: Site, windows: Windows) -> None:
    with site.client() as first:
        first.reset(seed=8)
        one = go_up(first, 6)
    with site.client() as second:
        second.reset(seed=8)
        other = go_up(second, 3)
        page = site.visit().page(windows, compare_place(one, other))
        said = page.locator(".difference-text")
        expect(said).to_have_text("The right one has come as far as step 3; the left one went on.")
        go_up(second, 3)

    expect(said).to_have_text(SAME)
