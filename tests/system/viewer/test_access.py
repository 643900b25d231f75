"""For everybody: axe finds nothing serious, nothing is cut off at 360 pixels, and every control is reached by keys."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from proctor.client import GrantWish
from tests.system.viewer.browser import NARROW, WIDE, Windows, serious_problems, sideways
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Site, Visit, compare_place, episode_place, serving
from tests.system.viewer.test_episode import ready

pytestmark = pytest.mark.system
NAMES = ("plume", "popper", "governed", "pixels", "unknown", "batch", "forged")
LOOKS = [(size, theme) for size in (WIDE, NARROW) for theme in ("light", "dark")]
look = pytest.mark.parametrize(("size", "theme"), LOOKS, ids=[f"{size[0]}-{theme}" for size, theme in LOOKS])
REACHABLE = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((each) => !each.disabled && each.checkVisibility({ checkVisibilityCSS: true }) && each.tabIndex >= 0)
  .filter((each) => !(each.type === "radio" && !each.checked))
  .map((each, place) => { each.dataset.reach = place; return place; })"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A governed episode that waits for an operator."""
    home = tmp_path_factory.mktemp("access") / "home"
    options = ("--governed", "standard", "--agent-port", "0")
    with serving(home, "proctor/PlumeSearch-v0", *options) as site, site.client() as client:
        client.reset(seed=1, grant=GrantWish(agent="reference"))
        yield site


@pytest.fixture(scope="module")
def operator(site: Site) -> Visit:
    return site.visit()


def shown(page: Page) -> Page:
    expect(page.locator("main h1").first).to_be_visible()
    return page


def scanned(page: Page) -> None:
    expect(page.locator('[role="img"][aria-label=""]')).to_have_count(0)  # a picture is named when it is drawn
    assert serious_problems(page) == []


@look
def test_axe_finds_nothing_serious_in_the_list(
    viewer: Visit, windows: Windows, size: tuple[int, int], theme: str
) -> None:
    page = shown(viewer.page(windows, size=size, theme=theme))

    scanned(page)


@look
def test_axe_finds_nothing_serious_on_an_episodes_page(
    viewer: Visit, gallery: Gallery, windows: Windows, size: tuple[int, int], theme: str
) -> None:
    page = shown(viewer.episode(windows, gallery["governed"], size=size, theme=theme))
    ready(page)
    page.keyboard.press("]")
    expect(page.get_by_role("article", name="The selected packet")).to_contain_text("refused")
    for fold in page.locator("main details:not([open]) > summary").all():
        if fold.is_visible():
            fold.click()

    scanned(page)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "governed"])
def test_axe_finds_nothing_serious_in_any_kind_of_picture(
    name: str, viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = shown(viewer.episode(windows, gallery[name]))
    ready(page)

    scanned(page)


@look
def test_axe_finds_nothing_serious_side_by_side(
    viewer: Visit, gallery: Gallery, windows: Windows, size: tuple[int, int], theme: str
) -> None:
    page = shown(viewer.page(windows, compare_place(gallery["plume"], gallery["other"]), size=size, theme=theme))
    expect(page.locator("canvas").first).to_be_visible()

    scanned(page)


@look
def test_axe_finds_nothing_serious_on_the_operators_page(
    operator: Visit, windows: Windows, size: tuple[int, int], theme: str
) -> None:
    page = shown(operator.page(windows, "#/operator", size=size, theme=theme))
    page.get_by_text("Raise an alert, or lift safe mode").click()

    scanned(page)
    page.get_by_label("What is wrong, or why it is safe").fill("it runs in circles")
    page.get_by_role("button", name="Raise alert").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    scanned(page)
    assert sideways(page) == 0


@pytest.mark.parametrize("name", NAMES)
def test_no_episode_is_wider_than_a_narrow_window(name: str, viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = shown(viewer.episode(windows, gallery[name], size=NARROW))
    ready(page)
    page.keyboard.press("End")
    for fold in page.locator("main details:not([open]) > summary").all():
        if fold.is_visible():
            fold.click()

    assert sideways(page) == 0


def test_no_comparison_is_wider_than_a_narrow_window(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = shown(viewer.page(windows, compare_place(gallery["plume"], gallery["other"]), size=NARROW))
    expect(page.locator("canvas").first).to_be_visible()

    assert sideways(page) == 0


@pytest.mark.parametrize("place", ["list", "episode", "compare"])
def test_tab_reaches_every_control(place: str, viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    address = {
        "list": "#/",
        "episode": episode_place(gallery["governed"]),
        "compare": compare_place(gallery["plume"], gallery["other"]),
    }[place]
    page = shown(viewer.page(windows, address, reduced_motion="reduce"))
    expect(page.get_by_role("slider").first.or_(page.get_by_role("searchbox"))).to_be_visible()
    if place == "episode":
        expect(page.get_by_role("article", name="The selected packet")).to_contain_text("Legal now")
    wanted = set(page.evaluate(REACHABLE))

    page.evaluate("document.activeElement?.blur()")
    reached = set()
    for _ in range(3 * len(wanted)):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement?.dataset.reach ?? null"))

    assert wanted - {int(each) for each in reached if each is not None} == set()


def test_a_control_that_has_the_focus_shows_it(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = shown(viewer.episode(windows, gallery["governed"]))
    page.get_by_role("slider").first.wait_for()

    unseen = []
    for _ in range(25):
        page.keyboard.press("Tab")
        unseen += page.evaluate(
            """() => {
              const active = document.activeElement;
              const box = active instanceof SVGElement ? active.querySelector("rect") : active;
              const style = getComputedStyle(box);
              const drawn = active instanceof SVGElement && Number.parseFloat(style.strokeWidth) >= 2;
              const seen = drawn || style.outlineStyle !== "none" || style.boxShadow !== "none";
              return seen || active === document.body ? [] : [active.outerHTML.slice(0, 120)];
            }"""
        )

    assert unseen == []


def test_with_reduced_motion_nothing_moves_by_itself(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = shown(viewer.episode(windows, gallery["popper"], reduced_motion="reduce"))
    ready(page)

    moving = page.evaluate(
        """() => document.getAnimations().filter((each) => each.playState === "running"
          && each.effect.getComputedTiming().duration > 50).length"""
    )

    assert moving == 0


def test_the_theme_can_be_chosen_and_is_kept(viewer: Visit, windows: Windows) -> None:
    page = shown(viewer.page(windows, theme="light"))
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)

    button = page.get_by_role("button").filter(has_text="heme").or_(page.get_by_label("heme"))
    for _ in range(3):
        button.first.click()
        if page.evaluate(ground) != before:
            break
    chosen = page.evaluate(ground)
    page.reload()
    shown(page)

    assert chosen != before
    assert page.evaluate(ground) == chosen
