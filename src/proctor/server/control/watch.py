"""Requests that wait for what agents do: they run beside the session's queue, change nothing and are not kept.

Rule 1: whoever asks again after a broken connection gets what it would have got; rows have numbers, and an end stays an end.
Rule 2: who names an epoch asks for that episode, and is answered at once if another one runs.
Rule 3: a governed episode has ended when its packets are closed, which may be a while after its environment's end. Its outcome
    is told once it is on record, and not before.
"""

import asyncio

from msgspec import Raw

from proctor.models.control import Code
from proctor.models.grants import Ended, WaitEnd, Watch, Watched
from proctor.server.governed.governor import find_governor
from proctor.server.runtime.results import make_refusal
from proctor.server.sessions.session import Session


def check_watchable(session: Session) -> None:
    """Refuse a batch, in which no agent ever acts, and which has no one end."""
    if session.spec.num_envs is not None:
        raise make_refusal(Code.NO_AGENT_PLANE, "a batch has no agents", expected="a session of one environment")


async def wait_for_rows(session: Session, wish: Watch, epoch: int | None) -> Watched:
    """Return the rows after `wish.after`, as soon as there are some, another episode begins, or the wait is over."""
    loop = asyncio.get_running_loop()
    deadline, asked = loop.time() + wish.wait_seconds, session.epoch if epoch is None else epoch
    while True:
        page = session.rows.after(wish.after, wish.most)
        left = deadline - loop.time()
        if page.rows or page.missed or session.over or session.epoch != asked or left <= 0:
            return Watched([Raw(row) for row in page.rows], session.rows.last, page.missed, session.over)
        await session.rows.wait_for_change(left)


async def wait_for_end(session: Session, wish: WaitEnd, epoch: int | None) -> Ended:
    """Return how the episode stands, as soon as it is over, another one has begun, or the wait is over."""
    loop = asyncio.get_running_loop()
    deadline, asked = loop.time() + wish.wait_seconds, session.epoch if epoch is None else epoch
    while not _over(session) and session.epoch == asked and deadline > loop.time():
        await session.rows.wait_for_change(deadline - loop.time())
    standing = session.standing
    governor = find_governor(session)
    said = governor.conclusion if governor is not None and session.concluded else None
    return Ended(
        _over(session),
        session.epoch,
        session.episode_id,
        session.step_count,
        standing.terminated,
        standing.truncated,
        session.loss is not None or (session.closed and not standing.ended),
        standing.total_reward,
        None if said is None else said.outcome,
        None if said is None else said.state,
        [] if said is None else list(said.obligations),
    )


def _over(session: Session) -> bool:
    """Return whether nothing more will come from the episode: of a governed one the packets are closed, too."""
    if not session.over:
        return False
    governor = find_governor(session)
    return governor is None or session.concluded or session.loss is not None or session.closed
