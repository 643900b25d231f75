"""What the guards of the table mean: each is a question to the history of an episode.

Rule 1: `HOLDS` answers for every guard. What is legal next is read off the guards; a packet is judged by the rules, which
    also see its content. That both say the same is shown by a walk through every state, event and value of the guards.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from proctor.episode.history import Episode
from proctor.episode.table import Guard


def planned(episode: Episode) -> bool:
    """Return whether the verification has a plan."""
    return episode.loop is not None and episode.loop.planned


def unverified(episode: Episode, *, plan: bool) -> tuple[str, ...]:
    """Return what the verification still lacks, as words; the plan only where `plan` is required.

    While tools are not all right, neither success nor observed evidence is asked for.
    """
    loop = episode.loop
    if loop is None:
        return ("a verification",)
    if loop.planned and loop.read and loop.succeeded and loop.observed:
        return ()
    lacking = []
    if plan and not loop.planned:
        lacking.append("a VerificationPlanPacket")
    if not loop.read:
        lacking.append("a READ directive")
    if episode.tools_ok and not loop.succeeded:
        lacking.append("a result with SUCCESS")
    if episode.tools_ok and not loop.observed:
        lacking.append("an observation with status OBSERVED")
    return tuple(lacking)


def unbegun(episode: Episode) -> bool:
    """Return whether nothing of the verification has come yet."""
    return episode.loop is not None and not episode.loop.begun


def any_live(episode: Episode, now: datetime) -> bool:
    """Return whether a token of the episode can be used."""
    return any(token.live(now) for token in episode.tokens.values())


# Under a profile that does not require the plan, VERIFIED is asked with `plan=False`.
HOLDS: Final[dict[Guard, Callable[[Episode, bool], bool]]] = {
    Guard.PLANNED: lambda episode, plan: planned(episode),
    Guard.VERIFIED: lambda episode, plan: not unverified(episode, plan=plan),
    Guard.UNBEGUN: lambda episode, plan: unbegun(episode),
    Guard.TASK_OPEN: lambda episode, plan: bool(episode.tasks),
    Guard.TASKS_CLOSED: lambda episode, plan: not episode.tasks,
    Guard.TOKEN_KNOWN: lambda episode, plan: bool(episode.tokens),
    Guard.TOKEN_LIVE: lambda episode, plan: any_live(episode, episode.clock),
    Guard.LOOP_CLOSED: lambda episode, plan: episode.loop is None,
}
