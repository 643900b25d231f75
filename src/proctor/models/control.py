"""The control plane's messages: OpenEnv's as the base, and what Proctor adds once `hello` was answered.

Rule 1: a message is `{"type", "data"}`; `id`, `session` and `epoch` travel beside them only after `hello`.
Rule 2: this file says what a message looks like; when it may come is said by `server/control/protocol.py`.
Rule 3: a field that is not described here is refused, so that nothing is misread in silence.
Rule 4: an agent's token is in `Granted` and nowhere else; a grant's name opens nothing.
Rule 5: rows that are watched are numbered by session and never renumbered, so that whoever was cut off asks for those after
    the last one it has.
"""

from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

PROTOCOL: Final = 1
"""The version of what Proctor adds; a server answers `hello` with the highest one that both sides know."""
MOST_ENVS: Final = 65536
"""Environments of one batch."""


class MessageKind(StrEnum):
    """The requests."""

    HELLO = "hello"
    OPEN = "open"
    RESUME = "resume"
    RESET = "reset"
    STEP = "step"
    STATE = "state"
    CANCEL = "cancel"
    GRANT = "grant"
    REVOKE = "revoke"
    WATCH = "watch"
    WAIT_END = "wait_end"
    CLOSE = "close"
    METADATA = "metadata"
    SCHEMA = "schema"


class Code(StrEnum):
    """What an error says to a program; the first seven are OpenEnv's own."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"

    STATE_ERROR = "STATE_ERROR"
    """The call is not legal now: a step before the reset, or after the end. Nothing ran."""
    PROTOCOL_ERROR = "PROTOCOL_ERROR"
    """The message is well formed but may not come now, or lacks what it needs after `hello`."""
    UNSUPPORTED_PROTOCOL = "UNSUPPORTED_PROTOCOL"
    EPISODE_LOST = "EPISODE_LOST"
    """Continuity is broken: a reset begins a new episode, nothing else helps."""
    STALE_EPOCH = "STALE_EPOCH"
    """The request speaks of another episode than the one that runs. Nothing ran."""
    ID_REUSED = "ID_REUSED"
    """The id belongs to an earlier request that said something else, or whose reply is no longer kept."""
    STEP_TIMEOUT = "STEP_TIMEOUT"
    """The environment did not answer in time: the episode is lost."""
    CANCELLED = "CANCELLED"
    BUSY = "BUSY"
    """Too many requests wait in this session, in number or in bytes. Nothing ran; send it again later, with a new id."""
    RATE_LIMITED = "RATE_LIMITED"
    TOO_LARGE = "TOO_LARGE"
    TOO_DEEP = "TOO_DEEP"
    RECORDING_FAILED = "RECORDING_FAILED"
    """What happened could not be put on record: the episode is lost."""
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    """One step puts more on record than a step may: the episode is lost."""
    EPISODE_FULL = "EPISODE_FULL"
    """The episode has put as much on record as it may, or its refused calls have: it is lost."""
    DISK_LOW = "DISK_LOW"
    """The disk that holds the record is nearly full: no session is opened, and an episode that runs is lost."""
    SHUTTING_DOWN = "SHUTTING_DOWN"

    GRANT_LIVE = "GRANT_LIVE"
    """An agent holds a grant on this episode, and the session is not shared. Nothing ran."""
    GRANTS_TAKEN = "GRANTS_TAKEN"
    """So many agents hold grants on this episode as the environment allows."""
    NO_AGENT_PLANE = "NO_AGENT_PLANE"
    """This server listens for no agents, or this session cannot have any."""
    STALE_QUESTION = "STALE_QUESTION"
    """Said to operators: no such question waits in this episode. It was answered or withdrawn. Nothing was done."""
    ENDED = "ENDED"
    """Said to agents: the episode is over, and only the orchestrator can begin another."""


LOSSES: Final = frozenset(
    {
        Code.EPISODE_LOST,
        Code.STALE_EPOCH,
        Code.STEP_TIMEOUT,
        Code.RECORDING_FAILED,
        Code.RECORD_TOO_LARGE,
        Code.EPISODE_FULL,
    }
)
"""The codes after which a client cannot go on with its episode."""


class Request(Struct, forbid_unknown_fields=True):
    """What a client sends; `data` is read later, by the one who knows its type."""

    type: str
    data: Raw = Raw(b"")
    id: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    session: Annotated[str, Meta(max_length=64)] | None = None
    epoch: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class Reply(Struct, omit_defaults=True):
    """What a server sends."""

    type: str
    data: Any = UNSET
    id: int | None = None
    session: str | None = None
    epoch: int | None = None


class RawReply(Reply, omit_defaults=True):
    """A reply as a client reads it first: `data` is read by the one who asked."""

    data: Raw = Raw(b"")


class Hello(Struct, forbid_unknown_fields=True):
    """What a client can speak; `packed` asks for arrays as bytes, `compression` for large ones to be made smaller."""

    protocols: Annotated[list[int], Meta(min_length=1, max_length=16)]
    client: Annotated[str, Meta(max_length=200)] = ""
    packed: bool = False
    compression: bool = False


class Welcome(Struct):
    """What was agreed on.

    `boot` names this run of the server; `address` is the WebSocket address of the very worker that answers, where a
    client that was cut off finds its sessions again (None: the address it used).
    """

    protocol: int
    server: str
    boot: str
    environment: str
    address: str | None
    packed: bool
    compression: bool
    max_message_bytes: int
    max_pending: int


class Open(Struct, forbid_unknown_fields=True):
    """A session of one environment, or of `num_envs` in a batch that steps them with one message."""

    num_envs: Annotated[int, Meta(ge=1, le=MOST_ENVS)] | None = None
    autoreset_mode: str | None = None
    """For batches: next_step (default), same_step or disabled, as Gymnasium names them."""
    infos: bool = False
    """For batches: send every info, not only what a learner needs of an ended episode."""
    step_timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Shorter than the server's own, or the server's own."""
    shared: bool = False
    """Whether the orchestrator may step, too, while an agent holds a grant."""


class Opened(Struct):
    """The session is there; `resume_token` is the only way back to it after a broken connection."""

    resume_token: str
    grace_seconds: float
    step_timeout_seconds: float | None
    idle_timeout_seconds: float | None
    num_envs: int | None
    autoreset_mode: str | None


class Resume(Struct, forbid_unknown_fields=True):
    """Take a session over on this connection; the one that held it is closed."""

    session: Annotated[str, Meta(max_length=64)]
    resume_token: Annotated[str, Meta(max_length=200)]


class Resumed(Struct):
    """Where the session stands: `last_id` is the last request that was begun, its reply is kept."""

    episode_id: str | None
    step: int
    last_id: int
    lost: bool
    num_envs: int | None
    autoreset_mode: str | None


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


class Reset(Struct, forbid_unknown_fields=True):
    """Begin an episode. A batch takes one seed for all (sub-environment i gets seed + i), or one for each."""

    seed: int | list[int] | None = None
    episode_id: Annotated[str, Meta(max_length=200)] | None = None
    options: Raw = Raw(b"null")
    mask: Raw = Raw(b"null")
    """For batches with autoreset disabled: which sub-environments to reset."""
    grant: GrantWish | None = None
    """Give an agent the tools of this episode at once; after hello only."""


class StepBatch(Struct, forbid_unknown_fields=True):
    """One action for every sub-environment: a list, or one packed array (see `spaces`)."""

    actions: Raw


class Cancel(Struct, forbid_unknown_fields=True):
    """Give up the request with this id: one that waits is dropped; one that runs takes its episode with it."""

    id: Annotated[int, Meta(ge=1, le=2**53)]


class Cancelled(Struct):
    """`outcome`: what became of the request.

    dropped: it never ran. lost: it ran, and the episode is lost. finished: it had ended, and its reply is kept. unknown:
    it never came, or it ended long ago.
    """

    id: int
    outcome: str


class ObservationReply(Struct, omit_defaults=True):
    """What an environment answered. The fields after `metadata` are sent only after `hello`."""

    observation: Raw
    reward: float | None
    done: bool
    metadata: Raw | UnsetType = UNSET
    terminated: bool | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    step: int | UnsetType = UNSET
    episode_id: str | UnsetType = UNSET
    grant: Granted | UnsetType = UNSET
    """If the reset asked for one."""
    head: str | UnsetType = UNSET
    """Of a reset, where a ledger is kept: what proves that the record up to here is whole."""


class BatchReply(Struct, omit_defaults=True):
    """What a batch answered: arrays over its sub-environments, as lists or packed.

    `infos` is Gymnasium's vector info as an object: numeric arrays and the masks `_key` as lists or packed, other arrays
    as lists with null where there is nothing, objects inside alike. It has every key if the session was opened with
    `infos`; a reset and an episode that begins by itself always report `seed`. In mode same_step, where an episode has
    ended, it always has `final_info` and `final_obs`: the latter is `{"index": [i, ...], "values": [value, ...]}`, the
    single observations of the sub-environments that ended, each in its space's form.
    """

    observations: Raw
    step: int
    rewards: Raw | UnsetType = UNSET
    terminations: Raw | UnsetType = UNSET
    truncations: Raw | UnsetType = UNSET
    infos: Raw | UnsetType = UNSET
    episode_id: str | UnsetType = UNSET
    head: str | UnsetType = UNSET


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


class Closed(Struct, omit_defaults=True):
    """The session is over; what it amounted to."""

    episodes: int
    steps: int
    head: str | UnsetType = UNSET
    """Of its last episode, where a ledger is kept."""


class Metadata(Struct):
    """Who serves what."""

    name: str
    description: str
    version: str
    server: str
    protocols: list[int]
    num_envs: bool
    """Whether batch sessions can be opened."""


class Schemas(Struct):
    """JSON Schemas of the wire types; `spaces` says the Gymnasium spaces where the environment has some."""

    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]
    spaces: dict[str, Any] | None = None


class Problem(Struct, omit_defaults=True):
    """A coded error: `message` is for people, never an exception's text from inside."""

    message: str
    code: str
    errors: list[dict[str, Any]] | UnsetType = UNSET
    clause: str | UnsetType = UNSET
    expected: str | UnsetType = UNSET
    incident: str | UnsetType = UNSET
    """Finds the entry in the server's log."""
    lost: bool | UnsetType = UNSET
    """The episode cannot go on."""
    active_sessions: int | UnsetType = UNSET
    max_sessions: int | UnsetType = UNSET
    retry_after_seconds: float | UnsetType = UNSET


class Notice(Struct):
    """Pushed by a server: IDLE (this session will be closed) or SHUTTING_DOWN."""

    code: str
    message: str
    seconds_left: float
