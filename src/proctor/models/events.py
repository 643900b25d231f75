"""What a session states for the record: every event, versioned, as one line of JSON and back.

Rule 1: an event is complete. A reader needs no other file to know what was served, asked, answered and paid.
Rule 2: an event says what happened, never what to do with it: where it is kept is known by a `Recorder` only.
Rule 3: `VERSION` is in every line. A field that is not described here, or another version, is refused when read.
Rule 4: a `Raw` field holds exactly one JSON value in UTF-8, and a number is finite; the session has seen to it.
"""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from proctor.errors import ComponentError, ValidationError

VERSION: Final = 1
"""Of the events' fields; it grows when a reader of the old ones would misread the new ones."""

NULL: Final = Raw(b"null")

Principal: TypeAlias = Literal["control", "agent", "operator", "system"]
"""Who caused it: the orchestrator, an agent, a human operator, or the server itself."""

ExecutorKind: TypeAlias = Literal["inline", "thread", "process"]
"""Where the environment runs: on the event loop, in a thread, or in a process of its own."""

Count: TypeAlias = Annotated[int, Meta(ge=0)]


def _tag(name: str) -> str:
    """Return the name of an event on a line: EpisodeReset is episode_reset."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _EventFields(
    Struct, frozen=True, kw_only=True, gc=False, tag_field="event", tag=_tag, forbid_unknown_fields=True
):
    """What every event says. `at` is in seconds since 1970; `request_id` is the client's, None where it gave none."""

    version: Literal[1] = VERSION
    session: str
    at: float
    principal: Principal = "control"
    request_id: int | None = None


class SessionOpened(_EventFields, frozen=True, kw_only=True, gc=False):
    """A session is there; everything that is needed to make its environment and its rewards again."""

    environment: str
    environment_version: str
    target: str
    """What was served, as it was asked for: an id, a class or `module:factory`."""
    settings: dict[str, Any] = {}
    """What the environment was made with; what is named like a secret is hidden."""
    server: str
    """The version of Proctor."""
    boot: str = ""
    """Names the run of the server."""
    num_envs: Count | None = None
    """None: a session of one environment, which is not a batch of one."""
    autoreset_mode: str | None = None
    transforms: list[dict[str, Any]] = []
    """The pipeline's specs, in order."""
    place: ExecutorKind
    tier: str = "none"
    """How strongly the environment is isolated."""
    probe: dict[str, Any] = {}
    """What of that was tried and found to hold when the server started."""
    code: str = ""
    """The digest of the environment's source (`digest_environment` in `envs/targets.py`), empty where it has none that could be read."""
    policy: dict[str, Any] | None = None
    """What governs the episodes of agents; None: they are free."""
    resume: str = ""
    """The SHA-256 of the resume token in hexadecimal digits; empty: the session cannot be resumed."""
    shared: bool = False
    packed: bool = False
    compress: bool = False
    infos: bool = False
    step_timeout: float | None = None
    python: str
    gymnasium: str
    numpy: str


class EpisodeReset(_EventFields, frozen=True, kw_only=True, gc=False):
    """An episode began: its number, what was asked and what was seen first."""

    epoch: Count
    episode_id: str
    seed: int | None = None
    """As asked for; what the environment drew for itself is in `metadata` if it says so."""
    options: Raw = NULL
    observation: Raw
    """The fields inside the observation, as on the wire."""
    metadata: Raw = NULL
    pipeline: Raw = NULL
    """What the transforms carry over from earlier episodes (`Pipeline.snapshot`), so that each can be replayed alone."""
    nth: Annotated[int, Meta(ge=1)] = 1
    """Which reset of this very environment it was: some count them and say so."""
    scene: Raw = NULL
    """What a picture of the beginning needs (`Environment.scene`); null where it was not asked for."""


class EpisodeStepped(_EventFields, frozen=True, kw_only=True, gc=False):
    """A step ran. `parts` is the change that each transform made to the reward, in their order.

    The raw reward and the parts add up to `reward`, but for rounding; without transforms the two are the same.
    """

    epoch: Count
    step: Count
    action: Raw
    """As received."""
    observation: Raw
    metadata: Raw = NULL
    raw_reward: float | None
    """As the environment gave it; None where it gave none."""
    reward: float | None
    parts: dict[str, float] = {}
    terminated: bool
    truncated: bool
    grant: str | None = None
    """By whose call, if an agent acted, and by which of its tools."""
    tool: str | None = None
    scene: Raw = NULL
    """What of the picture has changed."""


class AgentGranted(_EventFields, frozen=True, kw_only=True, gc=False):
    """An agent was given the tools of an episode. The token is not here: nobody keeps it."""

    epoch: Count
    grant: str
    agent: str = ""
    tools: list[str]
    expires_at: float | None = None
    digest: str = ""
    """The SHA-256 of the token in hexadecimal digits: enough to know it again, not enough to say it."""
    calls_per_second: float | None = None


class AgentRevoked(_EventFields, frozen=True, kw_only=True, gc=False):
    """A grant was taken back before its episode ended."""

    epoch: Count
    grant: str


class BatchReset(_EventFields, frozen=True, kw_only=True, gc=False):
    """The sub-environments in `mask` (null: all) began an episode each; arrays are over all of them, listed or packed."""

    epoch: Count
    episode_id: str
    seed: int | list[int | None] | None = None
    options: Raw = NULL
    mask: Raw = NULL
    observations: Raw
    infos: Raw = NULL
    pipeline: Raw = NULL
    nth: Annotated[int, Meta(ge=1)] = 1


class BatchStepped(_EventFields, frozen=True, kw_only=True, gc=False):
    """A step of every sub-environment ran; every Raw field is an array over them, listed or packed."""

    epoch: Count
    step: Count
    actions: Raw
    observations: Raw
    infos: Raw = NULL
    raw_rewards: Raw
    rewards: Raw
    parts: dict[str, Raw] = {}
    terminations: Raw
    truncations: Raw


class PacketJudged(_EventFields, frozen=True, kw_only=True, gc=False):
    """A line of a governed episode's stream, a packet or a record, and the verdict on it.

    The lines of an episode in their order, piped through `proctor judge`, get the same verdicts again; but for those that
    the judge never saw (`judged` is false): what an agent may not say at all or the policy forbids, and requests for tokens
    with what became of them.
    """

    epoch: Count
    step: Count
    line: Raw
    """The packet or the record, whole; of an agent's own text, as far as it can be said as JSON."""
    kind: str
    """The packet's type, or the record's kind; empty where it could not be read."""
    packet_id: str | None = None
    judged: bool = True
    accepted: bool
    path: list[str] = []
    rules: list[str] = []
    pointers: list[str] = []
    reason: str = ""
    warnings: list[str] = []
    state: str = ""
    """Where the episode stood afterwards."""
    grant: str | None = None
    tool: str | None = None
    """Which of the agent's tools said it."""


class EpisodeClosed(_EventFields, frozen=True, kw_only=True, gc=False):
    """Nothing more will come from this episode; of a governed one, what the judge says of it."""

    epoch: Count
    steps: Count
    reason: str
    """reset (the next one begins), closed, lost, or why the session ended."""
    outcome: str | None = None
    """conforming, violated or open; None where nobody judged."""
    state: str | None = None
    obligations: list[str] = []
    """What was still open."""


class SessionResumed(_EventFields, frozen=True, kw_only=True, gc=False):
    """A run of the server that found the session in the ledger goes on with it, or says why it cannot."""

    epoch: Count
    step: Count
    boot: str
    server: str
    lost: str | None = None
    """Why the episode cannot go on; None: it was rebuilt, and every digest is as it was."""


class Failed(_EventFields, frozen=True, kw_only=True, gc=False):
    """A request was refused (nothing ran) or failed; `lost` says that the episode cannot go on.

    `epoch` and `step` are where the session stood when the request came.
    """

    epoch: Count
    step: Count
    code: str
    """One of `control.Code`."""
    request: str = ""
    """The kind of the request; empty where the server failed by itself."""
    clause: str | None = None
    incident: str | None = None
    """Finds the entry in the server's log."""
    lost: bool = False
    action: Raw = NULL
    """What was being done when a step failed, so that it can be tried again; null for a refusal, and where it is too much for the record."""
    grant: str | None = None
    """Whose call it was, if an agent made it."""


class SessionClosed(_EventFields, frozen=True, kw_only=True, gc=False):
    """The session is over: why, and what it amounted to."""

    reason: str
    episodes: Count
    steps: Count


Event: TypeAlias = (
    SessionOpened
    | EpisodeReset
    | EpisodeStepped
    | AgentGranted
    | AgentRevoked
    | BatchReset
    | BatchStepped
    | PacketJudged
    | Failed
    | EpisodeClosed
    | SessionResumed
    | SessionClosed
)


class _Head(Struct):
    """The part of an event that every version has."""

    version: int


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_HEAD: Final = msgspec.json.Decoder(_Head)


def encode_event(event: Event) -> bytes:
    """Return the event as JSON on one line, without the line's end; a ComponentError if it has no JSON form."""
    try:
        line = _ENCODER.encode(event)
        if b"\n" in line or b"\r" in line:
            # A client may break its lines wherever JSON allows a blank; never inside a string.
            line = msgspec.json.format(line, indent=-1)
    # ValueError: text that is no UTF-8, or a Raw that is no JSON; RecursionError: settings that hold themselves.
    except (TypeError, ValueError, RecursionError) as problem:
        raise ComponentError(
            "an event has no JSON form", found=type(event).__name__, expected="JSON values"
        ) from problem
    return line


def decode_event(line: bytes) -> Event:
    """Return the event on a line, or raise a ValidationError that says what is wrong with it.

    Its Raw fields point into `line`, which must not be changed.
    """
    try:
        version = _HEAD.decode(line).version
        if version == VERSION:
            return _DECODER.decode(line)
    # A line from a file may nest deeper than anything that was ever stated, or be no text.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ValidationError(f"not an event: {problem}", expected=f"an event of version {VERSION}") from problem
    raise ValidationError("an event of another version", found=version, expected=f"version {VERSION}")
