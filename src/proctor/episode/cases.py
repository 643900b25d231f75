"""An episode as the judge keeps it: open, in a snapshot, or as what is left of it.

Rule 1: a case counts what was refused and warned of; what the episode itself remembers is in `history.py`.
"""

from msgspec import Struct

from proctor.episode.history import Episode
from proctor.episode.machine import Machine
from proctor.episode.rulebook import Rule
from proctor.episode.settings import Settings
from proctor.episode.states import Position, State
from proctor.episode.verdicts import Obligation, Outcome, Verdict, obligations_of


class Summary(Struct, frozen=True):
    """What is left of an episode, or what is known of it so far."""

    correlation_id: str
    outcome: Outcome
    state: State
    packets: int
    refusals: int
    warnings: int
    broken: dict[str, int]
    campaign_id: str | None = None
    obligations: tuple[Obligation, ...] = ()


class Case:
    """An episode and what is counted about it; `bar` is the rule by which there can be none."""

    __slots__ = ("bar", "begun", "broken", "campaign_id", "episode", "machine", "refusals", "warnings")

    def __init__(self, episode: Episode, machine: Machine, bar: Rule | None = None) -> None:
        self.episode = episode
        self.machine = machine
        self.bar = bar
        # Whether anything was accepted in it.
        self.begun = False
        self.refusals = 0
        self.warnings = 0
        self.broken: dict[str, int] = {}
        self.campaign_id: str | None = None

    @property
    def outcome(self) -> Outcome:
        """What is to be said of the episode so far."""
        if self.refusals:
            return Outcome.VIOLATED
        return Outcome.CONFORMING if self.episode.position is Position.CLOSED else Outcome.OPEN

    def summary(self) -> Summary:
        """Return what is known of the episode; a closed one owes nothing."""
        closed = self.episode.position is Position.CLOSED
        return Summary(
            self.episode.correlation_id,
            self.outcome,
            self.episode.state,
            self.episode.packets,
            self.refusals,
            self.warnings,
            self.broken,
            self.campaign_id,
            () if closed else obligations_of(self.episode, self.machine.context),
        )

    def kept(self) -> "Kept":
        """Return the case for a snapshot."""
        settings = self.machine.context.settings
        return Kept(self.episode, settings, self.refusals, self.warnings, self.broken, self.campaign_id)


class Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """A case in a snapshot."""

    episode: Episode
    settings: Settings
    refusals: int
    warnings: int
    broken: dict[str, int]
    campaign_id: str | None

    def case(self, machine: Machine) -> Case:
        """Return the case that was kept."""
        case = Case(self.episode, machine)
        case.begun = True
        case.refusals, case.warnings = self.refusals, self.warnings
        case.broken, case.campaign_id = self.broken, self.campaign_id
        return case


def counted(broken: dict[str, int], verdict: Verdict) -> dict[str, int]:
    """Return how often each rule was broken, the verdict counted in."""
    return broken | {rule: broken.get(rule, 0) + 1 for rule in verdict.rules}
