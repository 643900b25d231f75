"""The tiers, and what the settings say of mounts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.server.sandbox.tiers import ABOUT, Mount, SandboxRequest, Tier


def test_the_tiers_are_in_order_and_each_has_a_sentence() -> None:
    ranks = [tier.rank for tier in (Tier.NONE, Tier.PROCESS, Tier.BWRAP, Tier.STRICT, Tier.DOCKER)]

    assert ranks == sorted(set(ranks))
    assert all(ABOUT[tier] == tier.about for tier in Tier)


def test_a_mount_is_read_only_unless_it_says_so(tmp_path: Path) -> None:
    assert Mount.parse(str(tmp_path)) == Mount(tmp_path)
    assert Mount.parse(f"{tmp_path}:rw") == Mount(tmp_path, writable=True)


@pytest.mark.parametrize(
    "text", ["", "relative", "/", "/usr/..", "/nowhere/at/all", ":rw", "/:rw", "/\0", "/" + 999 * "x"]
)
def test_what_cannot_be_mounted_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Mount.parse(text)


@given(st.text(max_size=40) | st.text("/.ab:rw\0", max_size=40))
def test_a_text_is_a_mount_of_something_that_is_there_or_is_refused(text: str) -> None:
    try:
        mount = Mount.parse(text)
    except ValidationError:
        return

    assert mount.path.is_absolute()
    assert mount.path.exists()


def test_a_mount_is_seen_at_its_own_place_or_at_another() -> None:
    path, inside = Path("/there"), Path("/here")

    assert (Mount(path).place, Mount(path, inside).place) == (path, inside)


def test_a_wish_without_words_is_auto_without_network_and_mounts() -> None:
    wish = SandboxRequest()

    assert (wish.tier, wish.mounts, wish.network) == (None, (), False)
