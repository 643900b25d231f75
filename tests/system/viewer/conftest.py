"""What tests of the pages share: a browser for each module, and a ledger to look at that nobody changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.system.viewer.browser import PATIENCE, Windows, launched
from tests.system.viewer.served import Visit, apart, viewing, visit_by
from tests.viewer import ledgers

expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Gallery:
    """A finished ledger with an episode of every kind, by name."""

    folder: Path
    chains: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.chains[name]


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    folder = tmp_path_factory.mktemp("gallery") / "ledger"
    return Gallery(folder, apart(_recorded, folder))


def _recorded(folder: Path) -> dict[str, str]:
    return {
        "plume": ledgers.plume_episode(folder, agent="searcher", transforms=ledgers.SHAPED),
        "other": ledgers.plume_episode(folder, session="other", turns_at=30, transforms=ledgers.SHAPED),
        "popper": ledgers.popper_episode(folder),
        "governed": ledgers.governed_episode(folder),
        "hostile": ledgers.hostile_episode(folder),
        "forged": ledgers.forged_episode(folder),
        "poisoned": ledgers.poisoned_episode(folder),
        "pixels": ledgers.pixels_episode(folder),
        "unknown": ledgers.unknown_episode(folder),
        "batch": ledgers.batch_episode(folder),
    }


@pytest.fixture(scope="session")
def viewer(gallery: Gallery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """Somebody who was let in to `proctor view` over the gallery."""
    with viewing(tmp_path_factory.mktemp("view"), gallery.folder) as link:
        yield visit_by(link)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: as long as a browser is driven, no other test can run an event loop."""
    with launched() as browser:
        yield browser


@pytest.fixture
def windows(browser: Browser) -> Iterator[Windows]:
    windows = Windows(browser)
    try:
        yield windows
        windows.check()
    finally:
        windows.close()
