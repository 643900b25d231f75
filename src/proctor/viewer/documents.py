"""The viewer's documents: what a page gets to read about an episode.

One form for an old episode, a live one and the single file. A row is named by
its `number` in its ledger file (fast to find); people are shown its `seq` in
the chain. A value that is not known is null, and no field is ever left out.
What came as JSON and goes on as JSON is `Raw`: it is spliced in, never decoded.
Times are seconds since 1970.
"""

from typing import Final

import msgspec
from msgspec import Raw

UNSEEN = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str, most: int) -> str:
    """Return as much of a text as there is room for; a sign that does not print, or turns the writing, is replaced."""
    line = " ".join(text[: most + 1].split())
    seen = "".join(sign if sign.isprintable() else UNSEEN for sign in line)
    return seen if len(text) <= most else f"{seen[:most]}..."


MOST_ACTIONS: Final = 10_000
"""Of a fork."""


class EpisodeLine(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An episode in the list."""

    chain: str
    session: str
    epoch: int
    episode_id: str
    environment: str
    agent: str
    """The names of the granted agents; empty: there is none."""
    state: str
    """Governed: the machine's state, S0_IDLE to S9_SAFEMODE, or lost; else ready, terminated, truncated, lost or closed."""
    outcome: str | None
    """Governed: conforming, violated or open; else terminated, truncated or null."""
    reason: str | None
    """Why it was closed; empty: it is open, null: it was left without a word."""
    steps: int
    total_reward: float | None
    refusals: int | None
    tier: str
    opened_at: float
    closed_at: float | None
    last_at: float
    live: bool
    governed: bool
    num_envs: int | None
    seed: int | str | None
    """A text where a browser would round the number."""
    terminated: bool
    truncated: bool
    rows: int
    last: int
    """The number of its last row: a change of it means that there is more to fetch."""
    fork: bool = False
    """Whether it never happened: a branch of what did, and not on record."""


class EpisodeHead(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an episode's page needs before its steps."""

    line: EpisodeLine
    target: str
    settings: Raw
    policy: Raw
    transforms: list[str]
    options: Raw
    versions: dict[str, str]
    scene: Raw
    """The scene at the reset, whole; null: there is none."""
    observation: Raw
    """The first observation, null if it was not stored."""
    keeps: str
    """All, or digest where observations were not stored."""
    first: int
    """The number of the reset's row, 0 if the episode has none."""


class StepColumns(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An episode's steps as columns, all of the same length."""

    number: list[int]
    seq: list[int]
    step: list[int]
    """Counted from the reset that began the episode."""
    at: list[float]
    action: list[Raw]
    observation: list[Raw]
    """Null, as an action, where it was not stored or is large: the raw row has it."""
    reward: list[float | None]
    raw_reward: list[float | None]
    parts: dict[str, list[float | None]]
    total: list[float | None]
    """The sum of the rewards since the slice's `after`, of the steps thinned out too; null where it is not known or too large for a
    number."""
    ended: list[int]
    """0: goes on, 1: terminated, 2: truncated, 3: both."""
    scene: list[Raw]
    """The frames; of pixels only that there are some, and null of those that are large: the raw row has them."""
    tool: list[str | None]


class JudgedPacket(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A line that an agent or the operator said, with its verdict."""

    number: int
    seq: int
    step: int
    at: float
    principal: str
    kind: str
    packet_id: str | None
    judged: bool
    accepted: bool
    path: list[str]
    rules: list[str]
    pointers: list[str]
    reason: str
    warnings: list[str]
    state: str
    tool: str | None
    grant: str | None
    line: Raw


class EpisodeNote(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Whatever else happened, told in one sentence."""

    number: int
    seq: int
    step: int
    at: float | None
    """Null: nobody knows."""
    principal: str
    kind: str
    text: str


class EpisodeSlice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All rows of a chain with `after < number <= last`."""

    chain: str
    after: int
    last: int
    more: bool
    ended: bool
    thinned: int
    """Only every n-th step is in it; 1: all are."""
    steps: StepColumns
    packets: list[JudgedPacket]
    notes: list[EpisodeNote]


class RuleSentence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A rule with its sentence."""

    rule: str
    sentence: str


class Explanation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A verdict in words, with what would be legal next."""

    number: int
    accepted: bool
    headline: str
    reason: str
    pointers: list[str]
    rules: list[RuleSentence]
    state: str
    legal_next: list[str]
    way: list[str]
    obligations: list[str]
    advice: str


class EpisodeDifference(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where two episodes first differ, or that they do not."""

    one: str
    other: str
    same: bool
    step: int | None
    number_one: int | None
    number_other: int | None
    what: str
    where: str
    left: Raw
    right: Raw
    text: str
    """One sentence for people."""
    turned: str
    """The same sentence for who has the other one on the left."""


class Fork(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An episode that was left at a step and went on with other actions."""

    head: EpisodeHead
    """Its line's chain is `<chain>~fork@<step>`."""
    slice: EpisodeSlice
    """The whole of it, from the reset."""
    left: int
    difference: EpisodeDifference


class MachineState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A state of the episode's machine."""

    name: str
    label: str
    words: str
    """What it means, in one sentence."""


class MachineEdge(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A way from a state to another."""

    source: str
    """ANY: from every state."""
    target: str
    labels: list[str]
    line: str
    """Solid, dashed or dotted."""


class MachinePicture(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The machine drawn, in pixels."""

    width: float
    height: float
    boxes: dict[str, list[float]]
    """By state, and ANY: x and y of the middle, width and height."""
    paths: list[str]
    """Of the edges, in their order, as SVG says a path."""


class MachineDiagram(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The episode's machine as it is drawn."""

    states: list[MachineState]
    edges: list[MachineEdge]
    everywhere: list[str]
    """What is legal everywhere and changes nothing."""
    wide: MachinePicture
    tall: MachinePicture
    """For a narrow page."""
