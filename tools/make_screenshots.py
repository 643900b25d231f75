"""Takes the pictures of the viewer in docs/images: real ledgers, a real server, a real browser, two widths, both themes.

Rule 1: what is to be seen is played anew, with the same seeds every time; only ages and ids differ.
Rule 2: a picture that is too large for a repository gets coarser colours.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tests' own servers and ledgers are what is shown

from proctor.client import GrantWish  # noqa: E402
from tests.server.live_server import until  # noqa: E402
from tests.system.viewer.browser import Windows, launched  # noqa: E402
from tests.system.viewer.served import Site, Visit, apart, compare_place, episode_place, serving  # noqa: E402
from tests.viewer import ledgers  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
AGENT: Final = ROOT / "examples" / "governed_agent.py"
SIZES: Final = {"narrow": (360, 780), "wide": (1440, 900), "widest": (1920, 1080)}
THEMES: Final = ("light", "dark")
MOST_BYTES: Final = 160_000
GRAINS: Final = (1, 3, 5, 7)
"""Steps of the levels of red, green and blue; a palette would show bands in the plume."""
MINUTE: Final = 60.0
SETTLED: Final = "Promise.all([document.fonts.ready, new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))])"
Pose = Callable[[Page], None]


@dataclass(frozen=True)
class Picture:
    """One page in one pose, taken at these sizes and in both themes."""

    name: str
    place: str
    pose: Pose
    sizes: tuple[str, ...] = ("narrow", "wide")


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="proctor-screenshots-") as folder, _staged(Path(folder)) as (site, chains):
        visit = site.visit()
        with launched() as browser:
            for picture in _pictures(chains):
                _taken(Windows(browser), visit, picture)


@contextmanager
def _staged(folder: Path) -> Iterator[tuple[Site, dict[str, str]]]:
    """Serve a ledger with finished episodes, a live one, and an agent that waits for an operator."""
    chains = apart(_recorded, folder / "home" / "ledger")
    options = ("--governed", "strict", "--agent-port", "0", *_field())
    with serving(folder / "home", ledgers.PLUME, *options) as site, site.client() as client:
        client.reset(seed=ledgers.ASKS, grant=GrantWish(agent="governed_agent.py"))
        given = {"PROCTOR_GRANT_ADDRESS": client.granted.address, "PROCTOR_GRANT_TOKEN": client.granted.token}
        process = subprocess.Popen(
            [sys.executable, str(AGENT), "--ask", "290"], env={**os.environ, **given}, stdout=subprocess.DEVNULL
        )
        try:
            until(site.operator.pending)
            yield site, chains
        finally:
            process.terminate()
            process.wait()


def _field() -> list[str]:
    said = (f"{key}={value}".replace(" ", "") for key, value in ledgers.FIELD.items())
    return [part for each in said for part in ("--set", each)]


def _recorded(folder: Path) -> dict[str, str]:
    now = time.time()
    search = partial(ledgers.plume_episode, folder, agent="run_tumble", transforms=ledgers.SHAPED)
    return {
        "unknown": ledgers.unknown_episode(folder, session="c41fe203aa90", begun=now - 2900 * MINUTE),
        "pixels": ledgers.pixels_episode(folder, session="77d0a1f3b2c4", begun=now - 1500 * MINUTE),
        "batch": ledgers.batch_episode(folder, session="b93e5520c1d7", begun=now - 640 * MINUTE),
        "popper": ledgers.popper_episode(folder, 480, session="5ae20c96fd18", agent="greedy", begun=now - 190 * MINUTE),
        "other": search(session="e08b64d3379f", turns_at=30, begun=now - 75 * MINUTE),
        "plume": search(session="1f7c9a52be60", begun=now - 48 * MINUTE),
        "governed": ledgers.governed_episode(folder, session="94d2e8b7031a", begun=now - 12 * MINUTE),
    }


def _pictures(chains: dict[str, str]) -> list[Picture]:
    return [
        Picture("list", "#/", _listed),
        Picture("plume", episode_place(chains["plume"]), _at(0.7), ("narrow", "wide", "widest")),
        Picture("governed", episode_place(chains["governed"]), _refused),
        Picture("popper", episode_place(chains["popper"]), _at(0.5)),
        Picture("compare", compare_place(chains["plume"], chains["other"]), _at(0.6)),
        Picture("operator", "#/operator", _asked),
    ]


# ---------------------------------------------------------------------------------------------------------------- poses
def _listed(page: Page) -> None:
    page.get_by_role("table", name="Episodes").locator("tbody tr").first.wait_for()


def _at(share: float) -> Pose:
    """Go to a moment of an episode."""

    def pose(page: Page) -> None:
        slider = page.get_by_role("slider").first
        slider.wait_for()
        page.locator("canvas").first.wait_for()
        slider.evaluate(
            "(slider, share) => { slider.value = Math.round(slider.max * share);"
            " slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            share,
        )

    return pose


def _refused(page: Page) -> None:
    """Open the refusal of a directive that came too early."""
    page.get_by_role("slider").first.wait_for()
    packets = page.get_by_role("region", name="Packets and verdicts")
    packets.get_by_text("Refused", exact=True).first.click()
    packets.get_by_role("option").filter(has_text="FSM").click()
    packets.get_by_text("The shortest way there").wait_for()
    packets.evaluate("(panel) => scrollTo(0, panel.getBoundingClientRect().top + scrollY - 70)")


def _asked(page: Page) -> None:
    page.get_by_role("button", name="Approve").first.wait_for()


# --------------------------------------------------------------------------------------------------------------- taking
def _taken(windows: Windows, visit: Visit, picture: Picture) -> None:
    for size in picture.sizes:
        for theme in THEMES:
            page = visit.page(windows, picture.place, SIZES[size], theme, reduced_motion="reduce")
            picture.pose(page)
            page.evaluate(SETTLED)
            _keep(page.screenshot(), IMAGES / f"viewer-{picture.name}-{size}-{theme}.png")
            windows.check()
            windows.close()
            windows.opened.clear()


def _keep(png: bytes, file: Path) -> None:
    """Write a picture, as coarse as is needed to be small; one that is still too large is a mistake."""
    whole, size = Image.open(io.BytesIO(png)).convert("RGB"), 0
    for grain in GRAINS:
        whole.point([min(255, round(level / grain) * grain) for level in range(256)] * 3).save(file, optimize=True)
        if (size := file.stat().st_size) <= MOST_BYTES:
            print(f"{file.relative_to(ROOT)}  {size:,} bytes")
            return
    sys.exit(f"{file} has {size:,} bytes, more than {MOST_BYTES:,}")


if __name__ == "__main__":
    main()
