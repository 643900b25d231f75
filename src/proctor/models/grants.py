"""Grants, and what a trainer sees of what its agents do: the control plane's messages about agents.

Rule 1: a token is in `Granted` and nowhere else; a grant's name opens nothing.
Rule 2: rows are numbered by session and never renumbered, so that whoever was cut off asks for those after the last one it
    has.
"""

from typing import Annotated

from msgspec import Meta, Raw, Struct


class GrantWish(Struct, forbid_unknown_fields=True):
    """Give an agent the tools of the episode that runs."""

    agent: Annotated[str, Meta(max_length=100)] = ""
    """What the agent is called in the record and in what a trainer watches."""
    ttl_seconds: Annotated[float, Meta(gt=0, le=10**9)] | None = None
    """How long the grant lives at most; None: as long as its episode."""
    calls_per_second: Annotated[float, Meta(gt=0, le=10**6)] | None = None
    """How often the agent may call; the server's own limit, if it is lower, holds."""
    tools: Annotated[list[str], Meta(min_length=1, max_length=1000)] | None = None
    """Which of the environment's tools; None: all. In a governed episode the governance tools come besides."""


class Granted(Struct):
    """An agent's way in: the address of the agent plane and a token that is good for this episode's tools only."""

    grant: str
    """Names the grant; it opens nothing."""
    address: str
    token: str
    tools: list[str]
    expires_at: float | None
    """In seconds since 1970; None: with its episode."""
    episode_id: str

    def __repr__(self) -> str:
        return f"Granted(grant={self.grant!r}, address={self.address!r}, tools={self.tools!r})"


class Revoke(Struct, forbid_unknown_fields=True):
    """Take a grant back at once."""

    grant: Annotated[str, Meta(max_length=64)]


class Revoked(Struct):
    """There is no such grant that lives; `live` says whether there was."""

    grant: str
    live: bool


class Watch(Struct, forbid_unknown_fields=True):
    """What agents did after row `after`; if there is nothing yet, the reply waits for it, up to `wait_seconds`."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    most: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 20.0


class WatchedStep(Struct, omit_defaults=True):
    """One step that an agent caused. `row` counts the steps of all agents in the session, from 1."""

    row: int
    epoch: int
    step: int
    at: float
    """In seconds since 1970."""
    grant: str
    agent: str
    tool: str
    action: Raw
    observation: Raw
    raw_reward: float | None
    reward: float | None
    terminated: bool
    truncated: bool
    metadata: Raw = Raw(b"{}")
    parts: dict[str, float] = {}


class Watched(Struct):
    """Rows in order, none left out but the `missed` ones, which are no longer kept."""

    rows: list[Raw]
    """Each a `WatchedStep`."""
    last: int
    """The last row that there is: with it in `rows`, all has been read so far."""
    missed: int
    over: bool
    """No episode runs: nothing will follow before the next reset."""


class WaitEnd(Struct, forbid_unknown_fields=True):
    """Wait, up to `wait_seconds`, until the episode has ended."""

    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 20.0


class Ended(Struct, omit_defaults=True):
    """How the episode stands; `over` says whether it has ended, `lost` that it broke off."""

    over: bool
    epoch: int
    episode_id: str | None
    steps: int
    terminated: bool
    truncated: bool
    lost: bool
    total_reward: float
    """The sum of what each step was rewarded with, after transforms."""
    outcome: str | None = None
    """Of a governed episode that is closed: conforming, or open if it was not brought to its review."""
    state: str | None = None
    """Where the governed episode stood when it was closed."""
    obligations: list[str] = []
    """What was still open then."""
