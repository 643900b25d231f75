"""An episode of a ledger, for notebooks and scripts: it shows itself, or becomes a page that is one file.

    from proctor.viewer import Episode

    Episode("ledger")                                  # in a notebook: the player
    Episode("ledger", "a1b2").save("episode.html")     # opens from disk

Rule 1: it holds a path and a summary, never an open file: every page is read anew.
Rule 2: what a notebook gets is a page inside a frame of its own, without the rights of the notebook: its scripts can reach
    neither the notebook nor the network.
"""

from html import escape
from pathlib import Path
from typing import Final

from proctor.errors import ValidationError
from proctor.ledger.reader import EpisodeSummary, Ledger
from proctor.viewer.single_file import build_page, save_page

HEIGHT: Final = 720
MOST: Final = 25_000_000
"""How large a page may be, in bytes, to be put into a notebook."""
MOST_NAMED: Final = 20


class Episode:
    """One episode of the ledger at `ledger`, a folder, a file or a bundle.

    `name` is its chain, its episode_id, or how one of them begins; it may be left out where there is only one. If that names
    none or several, it is a ValidationError that lists them.
    """

    def __init__(self, ledger: Path | str, name: str | None = None) -> None:
        self._ledger: Final = Path(ledger)
        with Ledger.open(self._ledger) as opened:
            self.summary: Final = find_episode(opened, name)
            """What was known of it when this object was made."""

    @property
    def steps(self) -> int:
        """How many steps it had when this object was made."""
        return self.summary.steps

    def html(self, *, title: str | None = None) -> str:
        """Return the page, as it can be opened from disk."""
        with Ledger.open(self._ledger) as opened:
            return build_page(opened, [self.summary.chain], title=title)

    def save(self, path: Path | str, *, title: str | None = None) -> Path:
        """Write the page to a file, over an older one, and return its path."""
        return save_page(path, self.html(title=title))

    def __repr__(self) -> str:
        return (
            f"<Episode {self.summary.chain} of {self.summary.environment}: "
            f"{self.steps:,} steps, total reward {_format_reward(self.summary)}, {_describe_state(self.summary)}>"
        )

    def _repr_html_(self) -> str:
        """Return the player for a notebook, or, of a page that is too large for one, how to save it."""
        text = self.html()
        size = len(text.encode())
        if size > MOST:
            return (
                f"<p>{escape(repr(self))}</p><p>Its page has {size / 1e6:,.0f} MB, which is too much for a notebook: "
                "save it with <code>.save(&quot;episode.html&quot;)</code> and open that.</p>"
            )
        return (
            f'<iframe title="{escape(self.summary.chain)}" sandbox="allow-scripts" width="100%" height="{HEIGHT}" '
            f'frameborder="0" srcdoc="{escape(text)}"></iframe>'
        )


def find_episode(ledger: Ledger, name: str | None) -> EpisodeSummary:
    """Return the episode of this name, or the only one; else a ValidationError that lists what there is."""
    if name is not None:
        return ledger.find(name)
    episodes = ledger.episodes()
    if len(episodes) == 1:
        return episodes[0]
    names = ", ".join(each.chain for each in episodes[:MOST_NAMED])
    more = f" and {len(episodes) - MOST_NAMED:,} more" if len(episodes) > MOST_NAMED else ""
    raise ValidationError(
        "which episode?",
        found=f"{len(episodes):,} episodes",
        expected=f"the name of one of {names}{more}" if episodes else "a ledger with episodes",
    )


def _format_reward(summary: EpisodeSummary) -> str:
    return "unknown" if summary.total_reward is None else f"{summary.total_reward:g}"


def _describe_state(summary: EpisodeSummary) -> str:
    words = {"terminated": summary.terminated, "truncated": summary.truncated, "open": summary.reason == ""}
    said = [word for word, holds in words.items() if holds]
    return summary.outcome or " and ".join(said) or summary.reason or "ended"
