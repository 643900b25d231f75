"""A client's side of a session: its requests in order, its replies, and which connection they go to.

Rule 1: requests are carried out one at a time, in the order in which they came; `cancel` and `revoke` alone overtake.
Rule 2: a quick environment with an empty queue answers at once, without a task.
Rule 3: a reply belongs to the request, not to the connection: a request that runs while the connection breaks is
    finished, and its reply is kept for the one who resumes.
Rule 4: a connection is sent the replies to what it asked itself. Two clients that hold one token may use one id for two
    requests: who resumes gets the reply to a request that runs only by repeating that request.
Rule 5: requests that wait for what agents do run beside the queue, change nothing and are not kept. Whoever asks again gets what it
    would have got; who names an epoch is answered at once if another one runs.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final, Protocol

from msgspec import UNSET, Raw

from proctor.access.credentials import Credential
from proctor.models import control
from proctor.models.control import Code, MessageKind, Notice, Problem, Request
from proctor.server.control.protocol import Admission, ReplyCache, RequestRule, decode_data, encode_reply
from proctor.server.control.recovery import REUSED, RecordedReplies
from proctor.server.governed.governor import find_governor
from proctor.server.grants import GrantService
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.results import RequestError, RequestRefused, log_internal_error, make_refusal
from proctor.server.sessions.session import EpisodeConclusion, Session

LOG: Final = logging.getLogger("proctor.control")
NORMAL, ABUSE = 1000, 1008
MOST_WAITING_BYTES: Final = 16 * 2**20
"""Of requests that wait in one session, unless it is a single one."""
DROPPED: Final = Problem("this request was given up before it ran", Code.CANCELLED)
GIVEN_UP: Final = Problem("this request was given up while it ran", Code.CANCELLED, lost=True)
BUSY: Final = Problem("too many requests wait in this session", Code.BUSY)
STOPPING: Final = Problem("the server is stopping", Code.SHUTTING_DOWN)
ENDS: Final = (MessageKind.RESET, MessageKind.CLOSE)
BEGINS: Final = (MessageKind.RESET, MessageKind.STEP)
"""What a server that stops does not begin any more."""
GONE: Final = Problem("there is no such session: it ended, or it never was", Code.EPISODE_LOST, lost=True)


QueuedItem = tuple[Request, RequestRule] | bytes | None
"""What waits: a request, or, without hello, an answer whose turn has not come yet (None: the end of the connection)."""


def _find_size(waiting: QueuedItem) -> int:
    return 0 if waiting is None else len(waiting) if isinstance(waiting, bytes) else len(waiting[0].data)


class Outlet(Protocol):
    """Where replies go: a connection."""

    async def send(self, message: bytes) -> None:
        """Send a reply."""

    def post(self, message: bytes) -> None:
        """Send without waiting."""

    def end(self, code: int, reason: str) -> None:
        """Close the connection without waiting."""

    def forget(self, session: str) -> None:
        """Let go of a session that has ended."""


async def wait_for_rows(session: Session, wish: control.Watch, epoch: int | None) -> control.Watched:
    """Return the rows after `wish.after`, as soon as there are some, another episode begins, or the wait is over."""
    loop = asyncio.get_running_loop()
    deadline, asked = loop.time() + wish.wait_seconds, session.epoch if epoch is None else epoch
    while True:
        page = session.rows.after(wish.after, wish.most)
        left = deadline - loop.time()
        if page.rows or page.missed or session.over or session.epoch != asked or left <= 0:
            return control.Watched([Raw(row) for row in page.rows], session.rows.last, page.missed, session.over)
        await session.rows.wait_for_change(left)


async def wait_for_end(session: Session, wish: control.WaitEnd, epoch: int | None) -> control.Ended:
    """Return how the episode stands, as soon as it is over, another one has begun, or the wait is over."""
    loop = asyncio.get_running_loop()
    deadline, asked = loop.time() + wish.wait_seconds, session.epoch if epoch is None else epoch
    while not _over(session) and session.epoch == asked and deadline > loop.time():
        await session.rows.wait_for_change(deadline - loop.time())
    standing = session.standing
    governor = find_governor(session)
    said = governor.conclusion if governor is not None and session.concluded else None
    said = EpisodeConclusion() if said is None else said
    return control.Ended(
        _over(session),
        session.epoch,
        session.episode_id,
        session.step_count,
        standing.terminated,
        standing.truncated,
        session.loss is not None or (session.closed and not standing.ended),
        standing.total_reward,
        said.outcome,
        said.state,
        list(said.obligations),
    )


def _over(session: Session) -> bool:
    """Return whether nothing more will come from the episode: of a governed one the packets are closed, too."""
    if not session.over:
        return False
    governor = find_governor(session)
    return governor is None or session.concluded or session.loss is not None or session.closed


class SessionChannel:
    """The queue, the kept replies and the connection of one session.

    `prepare` makes the session ready before its first request; `ended` is told when the client has closed it. `past` knows
    what an earlier run of the server has answered; such a session has no connection (`outlet`) until it is resumed.
    """

    def __init__(
        self,
        session: Session,
        outlet: Outlet | None,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        credential: Credential | None,
        granting: GrantService,
        max_pending: int,
        ended: Callable[["SessionChannel"], Awaitable[None]],
        prepare: Callable[[], Awaitable[None]] | None = None,
        past: RecordedReplies | None = None,
    ) -> None:
        self.session: Final = session
        self.credential: Final = credential
        self.outlet = outlet
        self.detached_at = clock() if outlet is None else None
        self.used_at = clock()
        self.warned = False
        self.seen_calls = 0
        """How many of the agents' calls were taken for a use of the session."""
        self.readers = 0
        """Requests that wait for agents."""
        self.closed = False
        self.stopping = False
        self._metrics = metrics
        self._clock = clock
        self._granting = granting
        self._ended = ended
        self._prepare = prepare
        self._observed = "observation" if session.spec.num_envs is None else "batch"
        # One runs while so many wait: the reply to each is kept for whoever comes back for it.
        self.replies: Final = ReplyCache(max_pending + 1)
        self._past = past
        if past is not None:
            self.replies.restore(past.last_id, past.unspent)
        self._max_pending = max_pending
        self._queue: deque[QueuedItem] = deque()
        self._running: Request | None = None
        self._askers: dict[int, Outlet | None] = {}
        """Who asked last for each reply that is still to come."""
        self._given_up = False
        self._leaving = False
        self._drainer: asyncio.Task[None] | None = None

    @property
    def resumable(self) -> bool:
        """Whether the client can come back to it after a broken connection."""
        return self.credential is not None

    @property
    def busy(self) -> bool:
        """Whether a request runs or waits, or an agent's call does."""
        return self._running is not None or self._drainer is not None or self.session.callers > 0

    @property
    def pending(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    async def take(self, request: Request, rule: RequestRule) -> bytes | None:
        """Return the reply to a request if there is one now; else it is sent when its turn has come."""
        asker = self.outlet
        answer = await self._take(request, rule)
        if answer is None:
            return None
        if self.outlet is asker:
            # A refusal of the same id with other content leaves the reply that is still to come to who asked for it.
            if not self.replies.is_running(request.id or 0):
                self._askers.pop(request.id or 0, None)
            return answer
        # Another connection has the session by now, and may have repeated the request while it ran.
        await self._send_to_asker(answer, request)
        return None

    async def _take(self, request: Request, rule: RequestRule) -> bytes | None:
        if self.closed:
            return self._error(GONE, request)
        self.used_at = self._clock()
        self.warned = False
        if request.id is not None:
            if self._past is not None and (recalled := await self._recall(request, self._past)) is not None:
                return recalled
            known = self._find_reply(request)
            if known is not None:
                return known or None
            if rule.kind is MessageKind.CANCEL:
                answer = await self._overtake(request, rule)
                self.replies.keep(request.id, answer, light=True)
                return answer
        if self.stopping and rule.kind in BEGINS:
            return self._keep(request, self._error(STOPPING, request))
        if rule.kind is MessageKind.REVOKE:
            return self._keep(request, await self._overtake(request, rule))
        if rule.kind is not MessageKind.CLOSE and self._is_free:
            async with self.session.turn:
                return self._keep(request, await self._perform(request, rule))
        self._enqueue((request, rule))
        return None

    async def wait(self, request: Request, rule: RequestRule) -> bytes:
        """Return the reply to a request that waits for agents; it is carried out beside all others."""
        self.warned = False
        self.readers += 1
        try:
            if self.session.spec.num_envs is not None:
                # No agent ever acts in it, and it has no one end.
                message = "a batch has no agents"
                raise make_refusal(Code.NO_AGENT_PLANE, message, expected="a session of one environment")
            if rule.kind is MessageKind.WATCH:
                seen = await wait_for_rows(self.session, decode_data(request, control.Watch), request.epoch)
                return self._reply("watched", seen, request)
            end = await wait_for_end(self.session, decode_data(request, control.WaitEnd), request.epoch)
            return self._reply("ended", end, request)
        except RequestError as problem:
            return self._error(problem.problem, request)
        except Exception as problem:  # noqa: BLE001  # whatever is wrong in the server, the client is answered
            return self._error(log_internal_error(problem), request)
        finally:
            self.readers -= 1
            self.used_at = self._clock()

    @property
    def _is_free(self) -> bool:
        """Whether a request can be carried out at once: nothing waits or runs, and the environment is quick."""
        # Not only whether the turn is taken: whoever waits for it may not have been woken yet.
        if self._drainer is not None or self._running is not None or self.session.callers:
            return False
        return self.session.immediate

    def warn(self, notice: Notice) -> None:
        """Push a notice to a client that understands it."""
        if self.outlet is not None and self.resumable:
            self.outlet.post(encode_reply("warning", notice, session=self.session.name, epoch=self.session.epoch))

    async def stop(self) -> None:
        """Drop what waits and give up what runs; nothing is answered any more."""
        self._queue.clear()
        self._claim()
        drainer = self._drainer
        if drainer is not None and drainer is not asyncio.current_task():
            drainer.cancel()
            await asyncio.wait([drainer])

    def _find_reply(self, request: Request) -> bytes | None:
        """Return the reply to a request that came before (empty while it runs), None for a new one."""
        number = request.id or 0
        is_new = number > self.replies.last_id and request.type != MessageKind.CANCEL
        if is_new and self._queue and self._is_full(len(request.data)):
            return self._error(BUSY, request)
        admission = self.replies.admit(number, hash((request.type, bytes(request.data), request.epoch)))
        if isinstance(admission, bytes):
            return admission
        if admission is Admission.REUSED:
            return self._error(REUSED, request)
        self._askers[number] = self.outlet
        return None if admission is Admission.NEW else b""

    async def _recall(self, request: Request, past: RecordedReplies) -> bytes | None:
        """Return the reply to a request that an earlier run of the server has carried out; None: it has not."""
        number = request.id or 0
        if number > past.last_id and self.replies.is_full:
            # New replies have filled the memory.
            self._past = None
        if number not in past:
            return None
        try:
            return await past.reply(request)
        except RequestError as problem:
            return self._error(problem.problem, request)

    def _keep(self, request: Request, answer: bytes) -> bytes:
        if request.id is not None:
            self.replies.keep(request.id, answer)
        return answer

    def follow(self, answer: bytes | None) -> bool:
        """Send an answer (None: close the connection) after those that are still to come; False if there are none."""
        if self._drainer is None:
            return False
        self._enqueue(answer)
        return True

    def _is_full(self, size: int) -> bool:
        if not self._queue:
            return False
        waiting = sum(map(_find_size, self._queue))
        return len(self._queue) >= self._max_pending or bool(waiting and waiting + size > MOST_WAITING_BYTES)

    def _enqueue(self, waiting: QueuedItem) -> None:
        if self._queue and self._is_full(_find_size(waiting)):
            # Only without hello: there replies come in the order of requests, so that none can be refused early.
            if self.outlet is not None:
                self.outlet.end(ABUSE, "too many requests wait")
            return
        self._queue.append(waiting)
        if isinstance(waiting, tuple) and waiting[1].kind in ENDS:
            self._claim()
        if self._drainer is None:
            self._drainer = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Carry out what waits, one by one; until its turn comes, a request can be given up."""
        try:
            if self._prepare is not None and not await self._make_ready(self._prepare):
                return
            while self._queue:
                if not isinstance(self._queue[0], tuple):
                    await self._send_in_order(self._queue.popleft())
                    continue
                async with self.session.turn:
                    if not self._queue or not isinstance(waiting := self._queue[0], tuple):
                        continue
                    self._queue.popleft()
                    request, rule = waiting
                    if rule.kind in ENDS:
                        self._claim()
                    answer = await self._perform(request, rule)
                    if request.id is not None:
                        self.replies.keep(request.id, answer)
                asker = self.outlet if request.id is None else self._askers.pop(request.id, None)
                if asker is not None and asker is self.outlet:
                    await asker.send(answer)
                if self._leaving:
                    await self._leave()
        finally:
            self._drainer = None

    def _claim(self) -> None:
        """Tell agents' calls whether a request waits that will end their episode."""
        self.session.claims = sum(isinstance(each, tuple) and each[1].kind in ENDS for each in self._queue)

    async def _send_in_order(self, answer: Any) -> None:
        """Send an answer, or close the connection, after the replies that were to come before."""
        if self.outlet is not None and answer is None:
            self.outlet.end(NORMAL, "closed")
        elif self.outlet is not None:
            await self.outlet.send(answer)

    async def _send_to_asker(self, answer: bytes, request: Request) -> None:
        """Send a reply, unless the connection of now has not asked for it: it is kept then."""
        asker = self.outlet if request.id is None else self._askers.pop(request.id, None)
        if asker is not None and asker is self.outlet:
            await asker.send(answer)

    async def _leave(self) -> None:
        """End the session that its client has closed; what waited behind the close is told so."""
        late = [waiting[0] for waiting in self._queue if isinstance(waiting, tuple)]
        await self._ended(self)
        for request in late:
            await self._send_to_asker(self._error(GONE, request), request)

    async def _make_ready(self, prepare: Callable[[], Awaitable[None]]) -> bool:
        """Return whether the session is ready; if it cannot be made so, the client is told and sent away."""
        try:
            await prepare()
        except RequestError as refusal:
            problem = refusal.problem
        except Exception as error:  # noqa: BLE001  # as in `_perform`: the client is answered
            problem = log_internal_error(error)
        else:
            self._prepare = None
            return True
        self._metrics.count_error(problem.code)
        self._queue.clear()
        if self.outlet is not None:
            await self.outlet.send(encode_reply("error", problem))
        if self.outlet is not None:
            self.outlet.end(NORMAL, problem.code)
        return False

    async def _perform(self, request: Request, rule: RequestRule) -> bytes:
        """Return the reply to a request after carrying it out; the turn is ours."""
        self._running = request
        try:
            kind, data = await self._answer(request, rule)
            return self._reply(kind, data, request)
        except RequestError as problem:
            self._metrics.count_error(problem.problem.code)
            return self._error(problem.problem, request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._given_up or task is None:
                raise
            # Not the end of this task: a `cancel` gave up the request that ran in it.
            self._given_up = False
            task.uncancel()
            return self._error(GIVEN_UP, request)
        except Exception as problem:  # noqa: BLE001  # whatever is wrong in the server, the client is answered
            self.session.lose(Code.SESSION_ERROR, "the server failed")
            return self._error(log_internal_error(problem, lost=True), request)
        finally:
            self._running = None
            self.used_at = self._clock()

    async def _answer(self, request: Request, rule: RequestRule) -> tuple[str, object]:
        session = self.session
        if self.closed:
            raise RequestRefused(GONE)
        if request.epoch is not None and request.epoch != session.epoch:
            raise make_refusal(
                Code.STALE_EPOCH, "this request speaks of another episode", expected=f"epoch {session.epoch}", lost=True
            )
        if rule.kind is MessageKind.STEP:
            self._granting.check_step(session)
            begun = perf_counter()
            answer = await session.step(bytes(request.data) or b"{}", request.id)
            self._metrics.count_steps(perf_counter() - begun, session.spec.num_envs or 1)
            return self._observed, Raw(answer)
        if rule.kind is MessageKind.RESET:
            return self._observed, await self._granting.reset(session, decode_data(request, control.Reset), request.id)
        if rule.kind is MessageKind.STATE:
            return "state", Raw(await session.state(request.id))
        if rule.kind is MessageKind.GRANT:
            return "granted", await self._granting.grant(session, decode_data(request, control.GrantWish), request.id)
        self._leaving = True
        await session.conclude("closed")
        return "closed", control.Closed(
            session.epoch, session.total_steps, UNSET if session.head is None else session.head
        )

    async def _overtake(self, request: Request, rule: RequestRule) -> bytes:
        """Give another request up, or take a grant back, at once, whatever runs or waits."""
        try:
            if rule.kind is MessageKind.CANCEL:
                target = decode_data(request, control.Cancel).id
                return self._reply("cancelled", control.Cancelled(target, self._give_up(target)), request)
            revoked = await self._granting.revoke(self.session, decode_data(request, control.Revoke), request.id)
            return self._reply("revoked", revoked, request)
        except RequestError as problem:
            return self._error(problem.problem, request)

    def _give_up(self, target: int) -> str:
        waiting = next((each for each in self._queue if isinstance(each, tuple) and each[0].id == target), None)
        if waiting is not None:
            self._queue.remove(waiting)
            self._claim()
            answer = self._keep(waiting[0], self._error(DROPPED, waiting[0]))
            if self.outlet is not None and self._askers.pop(target, None) is self.outlet:
                self.outlet.post(answer)
            return "dropped"
        if self._running is not None and self._running.id == target and self._drainer is not None:
            self._given_up = True
            # At once: an environment may swallow the cancellation and answer all the same.
            self.session.lose(GIVEN_UP.code, GIVEN_UP.message)
            self._drainer.cancel()
            return "lost"
        known = self.replies.keeps(target) or (self._past is not None and target in self._past)
        return "finished" if known else "unknown"

    def _reply(self, kind: str, data: object, request: Request) -> bytes:
        if request.id is None:
            return encode_reply(kind, data)
        return encode_reply(kind, data, request.id, self.session.name, self.session.epoch)

    def _error(self, problem: Problem, request: Request) -> bytes:
        return self._reply("error", problem, request)
