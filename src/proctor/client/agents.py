"""Agents, as the one who trains them sees them: a grant for an episode, the rows of what they do, and the episode's end.

Rule 1: following is reading. It waits in no queue, changes nothing, and is asked again after a broken connection.
Rule 2: the rows of one episode come in order and once each. Of rows that the server no longer keeps the reader is told
    (`Missed`), unless it said that it does not mind.
Rule 3: a row's end is the episode's: whoever has read all rows of an episode that broke off gets EpisodeLost, so that
    half an episode is never taken for a whole one.
Rule 4: a grant's token is shown by no `repr` and goes into no pickle; whoever wants it says `token`, `headers()` or `save()`.
Rule 5: a file with a token is its owner's alone, and appears whole or not at all.
"""

import asyncio
import dataclasses
import json
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, Generic, Literal, Self, TypeAlias

import msgspec
from msgspec import structs

from proctor.client.replies import EpisodeLoss, encode_observation, read_model, read_reply
from proctor.client.session import ClientSession
from proctor.contracts.environment import ActT, ObsT
from proctor.errors import ConnectionFailed, EpisodeLost, Missed, RequestTimeout, StateError, ValidationError
from proctor.models import control
from proctor.models.control import Ended, Granted, GrantWish, MessageKind, ObservationReply, RawReply, WaitEnd, Watch

OWNER_ONLY: Final = 0o600


@dataclass(frozen=True, slots=True)
class Grant:
    """The tools of one episode: good until its end, the next reset, `expires_at` or a revocation."""

    grant: str
    """Names it; this opens nothing."""
    address: str
    """Of the agent plane: an MCP server over streamable HTTP."""
    token: str = field(repr=False)
    tools: tuple[str, ...]
    expires_at: float | None
    """In seconds since 1970; None: with its episode."""
    episode_id: str

    @classmethod
    def of(cls, granted: Granted) -> Self:
        """Return what a server gave."""
        return cls(**{**structs.asdict(granted), "tools": tuple(granted.tools)})

    def headers(self) -> dict[str, str]:
        """Return the headers that an MCP client sends with every request."""
        return {"Authorization": f"Bearer {self.token}"}

    def save(self, path: str | Path) -> Path:
        """Write the file that `proctor mcp --grant FILE` reads, for us alone; a file that others can read is left alone."""
        path = Path(path)
        try:
            if os.path.lexists(path):
                _check_replaceable(path)
            # In ASCII, whatever an episode is called: readers of secrets take nothing else.
            _write_private(path, json.dumps(asdict(self)).encode("ascii") + b"\n")
        except OSError as problem:
            raise ValidationError(
                f"{path} could not be written ({problem.strerror})", expected="a folder in which files can be made"
            ) from None
        return path

    def __reduce__(self) -> str:
        raise TypeError("a grant holds a token and is not pickled or copied: save() keeps it in a file of its own")


def make_grant_wish(wish: GrantWish | bool | None) -> GrantWish | None:
    """Return the wish that is to be sent, None for none; what no server would take is a ValidationError."""
    if wish is None or wish is False:
        return None
    if wish is True:
        return GrantWish()
    if not isinstance(wish, GrantWish):
        raise ValidationError("not a wish for a grant", found=wish, expected="a GrantWish, True or None")
    try:
        return msgspec.convert(msgspec.to_builtins(wish), GrantWish)
    except (msgspec.ValidationError, TypeError) as problem:
        raise ValidationError(f"not a wish for a grant: {problem}", expected="as GrantWish says") from None


def _check_replaceable(path: Path) -> None:
    """Raise if what is there is not to be replaced."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise ValidationError(f"{path} is not a file of ours", expected="a regular file, or none")
    if found.st_mode & 0o077:
        raise ValidationError(
            f"others can read {path}",
            found=f"mode {stat.S_IMODE(found.st_mode):04o}",
            expected=f"mode 0600: run  chmod 600 {path}",
        )


def _write_private(path: Path, text: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(draft, flags, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)  # whatever the umask takes away
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class Transition(Generic[ActT, ObsT]):
    """What was done and what it led to; `observation` is complete, with the reward that the agent is trained on."""

    row: int
    """Counts the steps of all agents in the session, from 1."""
    epoch: int
    step: int
    """Counts the steps of the episode, from 1, those of the orchestrator too."""
    at: float
    """In seconds since 1970."""
    grant: str
    agent: str
    tool: str
    """By which the agent acted."""
    action: ActT
    observation: ObsT
    raw_reward: float | None
    """As the environment gave it, before transforms."""
    parts: dict[str, float]
    """The change that each transform made to the reward."""

    @property
    def reward(self) -> float | None:
        """What the step was rewarded with, after transforms."""
        return self.observation.reward

    @property
    def terminated(self) -> bool:
        """Whether the environment came to its end with this step."""
        return self.observation.terminated

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut with this step."""
        return self.observation.truncated

    @property
    def done(self) -> bool:
        """Whether the episode ended with this step, one way or the other."""
        return self.observation.done


def read_transition(
    action_type: type[ActT], observation_type: type[ObsT], row: control.WatchedStep
) -> Transition[ActT, ObsT]:
    """Return a row in the client's models, or raise a ValidationError."""
    done = row.terminated or row.truncated
    seen = ObservationReply(row.observation, row.reward, done, row.metadata, row.terminated, row.truncated)
    fields = {each.name: getattr(row, each.name) for each in dataclasses.fields(Transition)}
    fields["action"] = read_model(action_type, row.action, "action")
    fields["observation"] = read_model(observation_type, encode_observation(seen), "observation")
    return Transition(**fields)


WAIT_SECONDS: Final = 20.0
"""How long a server waits for news before it says that there is none; the client then asks again."""

BROKEN_OFF: Final = EpisodeLoss("the episode broke off while agents acted", control.Code.EPISODE_LOST)
OnMissed: TypeAlias = Literal["raise", "skip"]
_ROW: Final = msgspec.json.Decoder(control.WatchedStep).decode


class WatchedEpisode:
    """The episode that a session is in when this is made, whatever becomes of the session."""

    def __init__(self, session: ClientSession[ObservationReply]) -> None:
        self.epoch: Final = session.running_epoch()
        self._session = session
        self._name = session.name

    @property
    def is_latest(self) -> bool:
        """Whether the client has begun no other since."""
        return self._session.name == self._name and self._session.position.epoch == self.epoch

    def loss(self) -> EpisodeLost:
        """Return what is raised where this episode broke off."""
        known = self._session.position.loss if self.is_latest else None
        return (BROKEN_OFF if known is None else known).exception()

    async def outcome(self, wait_seconds: float) -> Ended:
        """Return how the session's latest episode stands, which may be another one; waits for its end for so long."""
        reply = await self.poll(MessageKind.WAIT_END, WaitEnd(wait_seconds), wait_seconds)
        told = read_reply(reply, "ended", Ended)
        if told.over and told.epoch == self.epoch and self.is_latest:
            self._session.position.ended = True
            if told.lost:
                self._session.position.lose(BROKEN_OFF)
        return told

    async def end(self, seconds: float | None) -> Ended:
        """Return how the episode ended, or raise RequestTimeout if it goes on for longer than so many seconds."""
        if seconds is not None and not seconds >= 0:
            raise ValidationError("not a time", found=seconds, expected="a number of seconds, or None")
        now = asyncio.get_running_loop().time
        until = inf if seconds is None else now() + seconds
        while True:
            told = await self.outcome(max(0.0, min(WAIT_SECONDS, until - now())))
            if told.epoch != self.epoch:
                raise StateError("another episode has begun meanwhile", expected="no reset while one waits for the end")
            if told.over:
                return told
            if now() >= until:
                raise RequestTimeout(f"the episode has not ended within {seconds:g} seconds", expected="more time")

    async def poll(self, kind: MessageKind, order: Watch | WaitEnd, seconds: float) -> RawReply:
        """Return the reply to a question about this episode; raise if it is over because its session is another."""
        if self._session.name != self._name:
            raise self.loss()
        return await self._session.poll(kind, msgspec.json.encode(order), self.epoch, seconds)


class TransitionReader(Generic[ActT, ObsT]):
    """The rows of the episode that runs now, those after row `after`; read by one reader, once."""

    def __init__(
        self,
        session: ClientSession[ObservationReply],
        read: Callable[[control.WatchedStep], Transition[ActT, ObsT]],
        *,
        after: int = 0,
        follow: bool = True,
        on_missed: OnMissed = "raise",
    ) -> None:
        if type(after) is not int or after < 0:
            raise ValidationError("not a row number", found=after, expected="an integer >= 0")
        if on_missed not in ("raise", "skip"):
            raise ValidationError("not a way to take missed rows", found=on_missed, expected="'raise' or 'skip'")
        self._episode = WatchedEpisode(session)
        self._session = session
        self._read = read
        self._follow = follow
        self._skip = on_missed == "skip"
        self._after = max(after, session.position.earlier_rows)
        self._done = self._over = False

    async def iterate(self) -> AsyncIterator[Transition[ActT, ObsT]]:
        """Yield each row."""
        while rows := await self.more():
            for row in rows:
                yield row

    def iterate_blocking(
        self, run: Callable[[Coroutine[Any, Any, list[Transition[ActT, ObsT]]]], list[Transition[ActT, ObsT]]]
    ) -> Iterator[Transition[ActT, ObsT]]:
        """Yield each row; `run` runs a coroutine elsewhere."""
        while rows := run(self.more()):
            yield from rows

    async def more(self) -> list[Transition[ActT, ObsT]]:
        """Return the next rows, as many as there are; none when the episode is over and all were read.

        One that does not `follow` the episode gets none as soon as it has all that there are.
        """
        while not self._over:
            wait_seconds = WAIT_SECONDS if self._follow else 0.0
            order = Watch(self._after, wait_seconds=wait_seconds)
            reply = await self._episode.poll(MessageKind.WATCH, order, wait_seconds)
            told = read_reply(reply, "watched", control.Watched)
            rows = self._decode_rows(told)
            missed = self._count_gaps(told, rows)
            if missed and not self._skip:
                self._after += told.missed  # whoever goes on gets those that are left
                raise Missed(f"{missed} rows are no longer kept", missed=missed, next_row=rows[0].row)
            own = self._take_own_rows(told, rows, reply.epoch)
            if own:
                return [self._read(row) for row in own]
            if not self._follow and not rows and not self._over:
                return []
        if not self._done:
            # One that broke off is no end; one that a reset gave up, or that we ended, is.
            ended = await self._episode.outcome(0.0)
            self._done = True
            if ended.epoch == self._episode.epoch and ended.lost:
                raise self._episode.loss()
        return []

    def _decode_rows(self, told: control.Watched) -> list[control.WatchedStep]:
        try:
            rows = [_ROW(row) for row in told.rows]
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConnectionFailed("the server sent a row that cannot be read") from None
        numbers = [row.row for row in rows]
        first = self._after + told.missed + 1
        if told.missed < 0 or numbers != list(range(first, first + len(rows))):
            raise ConnectionFailed("the server's rows are not in order", found=numbers[:3], expected=f"row {first}")
        return rows

    def _count_gaps(self, told: control.Watched, rows: list[control.WatchedStep]) -> int:
        """Return how many rows of this episode are gone; rows of earlier ones may be among those that are missed."""
        epoch = self._episode.epoch
        if not told.missed or not rows or rows[0].epoch < epoch:
            return 0
        return told.missed if rows[0].epoch > epoch else min(told.missed, rows[0].step - 1)

    def _take_own_rows(
        self, told: control.Watched, rows: list[control.WatchedStep], session_epoch: int | None
    ) -> list[control.WatchedStep]:
        """Return the rows of this episode, and note how far it was read and whether it is over."""
        epoch = self._episode.epoch
        own = [row for row in rows if row.epoch == epoch]
        self._after += told.missed + len(rows)
        if own:
            self._done = own[-1].terminated or own[-1].truncated
            if self._episode.is_latest:
                place = self._session.position
                place.rows = max(place.rows, own[-1].row)
                place.ended = place.ended or self._done
        all_read = self._after >= told.last and (told.over or session_epoch != epoch)
        self._over = self._done or all_read or any(row.epoch > epoch for row in rows)
        return own
