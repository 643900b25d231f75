"""Whether what a server says belongs to the episode that its client is in: judged here, by numbers alone.

Rule 1: a client knows its epoch and its step; a reply that speaks of others is not about this episode, whatever it says.
Rule 2: a doubt is a loss: once lost, nothing but a reply to a reset ends it.
Rule 3: where agents act as well, an episode moves on between two requests; it never moves back.
Rule 4: this file knows numbers, never sockets or messages; a judgement is None or a sentence that says what is wrong.
"""

from dataclasses import dataclass
from enum import StrEnum

from proctor.errors import EpisodeLost


class LossReason(StrEnum):
    """Why a client by itself gives an episode up; a server's own reasons are in `models.control.LOSSES`."""

    WRONG_EPISODE = "WRONG_EPISODE"
    """A reply spoke of another epoch or step."""
    UNREADABLE = "UNREADABLE"
    """A reply could not be read, so nobody knows what it said."""
    UNHEARD = "UNHEARD"
    """The step or reset took place, but its caller had gone."""
    NO_ANSWER = "NO_ANSWER"
    """A request came to no end and could not be taken back."""
    CONNECTION_LOST = "CONNECTION_LOST"
    """The connection broke and the session could not be found again in time, or never can be (no `hello`)."""
    SERVER_RESTARTED = "SERVER_RESTARTED"
    """Another run of the server answers, and it has not taken the session up."""
    SUPERSEDED = "SUPERSEDED"
    """Another connection has resumed the session."""


@dataclass(frozen=True, slots=True)
class EpisodeLoss:
    """Why an episode is lost."""

    message: str
    code: str

    def exception(self) -> EpisodeLost:
        """Return a new exception that says so."""
        return EpisodeLost(self.message, code=self.code)


@dataclass(slots=True)
class EpisodePosition:
    """Where a session stands as far as its client knows; `ended` is for servers that do not guard the lifecycle."""

    epoch: int = 0
    step: int = 0
    ended: bool = False
    loss: EpisodeLoss | None = None
    agents: bool = False
    """Whether somebody was given a grant on this episode, so that not every step is the client's own."""
    rows: int = 0
    """The last row of what agents did that was read in this session."""
    earlier_rows: int = 0
    """As many of them, at least, belong to earlier episodes."""

    def lose(self, loss: EpisodeLoss) -> EpisodeLoss:
        """Note that the episode is lost, and return the reason; the first reason stays."""
        if self.loss is None:
            self.loss = loss
        return self.loss

    def begin(self, epoch: int, *, ended: bool) -> None:
        """Note that a reset has succeeded."""
        self.epoch, self.step, self.ended, self.loss = epoch, 0, ended, None
        self.agents, self.earlier_rows = False, self.rows

    def advance(self, *, ended: bool, to: int | None = None) -> None:
        """Note that a step has succeeded; `to` is its number, where the server tells it."""
        self.step = self.step + 1 if to is None else to
        self.ended = ended

    def wrong_reset(self, epoch: object, step: object) -> str | None:
        """Judge the numbers in the reply to a reset; after a loss any later epoch will do."""
        if step != 0:
            return f"the reply to a reset says step {step}"
        if not isinstance(epoch, int) or epoch <= self.epoch or (self.loss is None and epoch != self.epoch + 1):
            return f"the reply to a reset says epoch {epoch} after epoch {self.epoch}"
        return None

    def wrong_step(self, epoch: object, step: object) -> str | None:
        """Judge the numbers in the reply to a step."""
        if epoch != self.epoch or not (step == self.step + 1 or self._beyond(step, self.step + 1)):
            return f"the reply says epoch {epoch}, step {step}, after epoch {self.epoch}, step {self.step}"
        return None

    def wrong_epoch(self, epoch: object) -> str | None:
        """Judge the epoch of any other reply; one that says none says nothing wrong."""
        if epoch is not None and epoch != self.epoch:
            return f"the reply says epoch {epoch} in epoch {self.epoch}"
        return None

    def wrong_return(self, epoch: object, step: object, *, resets: bool, steps: bool) -> str | None:
        """Judge where a resumed session stands, when a reset or a step may have been carried out unheard."""
        legal = {(self.epoch, self.step)}
        if resets:
            legal.add((self.epoch + 1, 0))
        if steps:
            legal.add((self.epoch, self.step + 1))
        if (epoch, step) not in legal and not (epoch == self.epoch and self._beyond(step, self.step)):
            return f"the session stands at epoch {epoch}, step {step}, not at epoch {self.epoch}, step {self.step}"
        return None

    def _beyond(self, step: object, least: int) -> bool:
        """Return whether agents can have led the episode from `least` to this step."""
        return self.agents and isinstance(step, int) and step >= least
