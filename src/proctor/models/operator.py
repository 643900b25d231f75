"""What an operator asks for and is told: the messages about governed episodes, as JSON objects.

Rule 1: a request has exactly the fields that are described here; anything else is refused.
Rule 2: what an operator does is a packet or a record of the episode: the answer (`Done`) says what the judge said of it.
Rule 3: an act names the episode that it is about, by session and epoch, and an answer the question besides. If another
    episode runs by then, or the question does not wait any more, the act is refused.
Rule 4: rows are numbered by server and never renumbered, so that whoever was cut off asks for those after the last one it
    has.
"""

from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Meta, Raw, Struct

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
Words: TypeAlias = Annotated[str, Meta(max_length=10_000)]
Amount: TypeAlias = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Severity: TypeAlias = Literal["INFO", "WARNING", "ERROR", "CRITICAL"]


class InEpisode(Protocol):
    """What belongs to one episode: a question, a row, how an episode stands, an act."""

    @property
    def session(self) -> str:
        """The session's name."""

    @property
    def epoch(self) -> int:
        """Which of the session's episodes it is."""


class NamedQuestion(InEpisode, Protocol):
    """What names one question of one episode."""

    @property
    def id(self) -> str:
        """The question's id."""


class Choice(Struct):
    """One of the things that an operator can choose."""

    option_id: str
    description: str


class Waiting(Struct):
    """Something that waits for an operator: an agent's question, or its request of a token."""

    id: str
    """Names it in `answer`, `approve` and `deny`, together with `session` and `epoch`."""
    session: str
    epoch: int
    kind: Literal["escalation", "token"]
    since: float
    """In seconds since 1970."""
    question: str
    options: list[Choice]
    """Of an escalation; a token is approved or denied."""
    packet: Raw
    """What the agent stated, whole."""
    grant: str | None = None
    """Whose agent asked."""
    agent: str = ""
    """What its grant calls that agent; empty: nothing, or the grant is forgotten."""


class Pending(Struct):
    """All that waits, the oldest first."""

    waiting: list[Waiting]


class GovernedSession(Struct):
    """How one governed episode stands."""

    session: str
    epoch: int
    episode_id: str | None
    policy: str
    state: str
    """One of the ten states, S0_IDLE to S9_SAFEMODE."""
    safe_mode: bool
    legal_next: list[str]
    obligations: list[str]
    tokens: list[str]
    """The ids of tokens that can still be used."""
    steps: int
    packets: int
    """Accepted so far."""
    refusals: int
    """Lines that were refused so far."""
    over: bool
    """The environment has ended: what still goes on is the review."""
    waiting: int
    """How many questions and requests wait for an operator."""
    agent: str = ""
    """What the grants on the episode call its agents, several with commas; empty: nothing."""


class Governed(Struct):
    """All governed episodes that run."""

    sessions: list[GovernedSession]


class JudgedRow(Struct, omit_defaults=True):
    """A line of some governed episode, and the verdict on it. `row` counts the lines of all of them, from 1."""

    row: int
    session: str
    epoch: int
    step: int
    at: float
    """In seconds since 1970."""
    principal: str
    """agent, operator or system."""
    kind: str
    accepted: bool
    judged: bool
    state: str
    """Where the episode stood afterwards."""
    line: Raw
    packet_id: str | None = None
    path: list[str] = []
    rules: list[str] = []
    reason: str = ""
    grant: str | None = None
    tool: str | None = None


class JudgedPage(Struct, omit_defaults=True):
    """Rows in order, none left out but the `missed` ones, which are no longer kept."""

    rows: list[Raw]
    """Each a `JudgedRow`."""
    last: int
    """The last row that there is: with it in `rows`, all has been read so far."""
    missed: int
    boot: str = ""
    """Names this run of the server; in another one rows count from 1 again."""


class EpisodeAct(Struct, forbid_unknown_fields=True):
    """What every act says: which episode it is about."""

    session: Name
    epoch: Amount
    """Which of the session's episodes is meant; if another one runs, the act is refused."""


class QuestionAct(EpisodeAct, forbid_unknown_fields=True):
    """What every answer says: which question of the episode it answers."""

    id: Name
    """As `QueuedItem` has it; if it does not wait any more, the act is refused."""


class Answer(QuestionAct, forbid_unknown_fields=True):
    """Answer an escalation: choose one of its options, say something, or both."""

    choice: Name | None = None
    """An option's id."""
    text: Words = ""


class Approve(QuestionAct, forbid_unknown_fields=True):
    """Issue the token that was asked for; uses and life may be less than that, never more than the policy's."""

    uses: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    life_seconds: Annotated[float, Meta(gt=0, le=10**9)] | None = None
    text: Words = ""


class Deny(QuestionAct, forbid_unknown_fields=True):
    """Do not issue the token that was asked for."""

    text: Words = ""


class RaiseAlert(EpisodeAct, forbid_unknown_fields=True):
    """State that something is wrong; CRITICAL puts the episode into safe mode at once."""

    summary: Annotated[str, Meta(min_length=1, max_length=10_000)]
    severity: Severity = "CRITICAL"


class Clear(EpisodeAct, forbid_unknown_fields=True):
    """Lift safe mode."""

    summary: Words = ""


class Withdraw(EpisodeAct, forbid_unknown_fields=True):
    """Take back a token, or an agent's whole grant; one of the two."""

    token_id: Name | None = None
    grant: Name | None = None


class ApproveBudget(EpisodeAct, forbid_unknown_fields=True):
    """Add to what may be spent in an episode."""

    token_budget: Amount = 0
    tool_call_budget: Amount = 0
    time_budget_seconds: Amount = 0
    note: Words = ""


class Link(Struct):
    """An address of the pages, good once."""

    url: str


class Done(Struct):
    """What an operator did, and what came of it."""

    session: str
    epoch: int
    accepted: bool
    """Whether the judge took it; if not, nothing has changed."""
    state: str
    packet_id: str | None = None
    rules: list[str] = []
    reason: str = ""
    question: str = ""
    """What was answered, in the words of `QueuedItem.question`; empty if the act answers no question."""


def question_name(waiting: NamedQuestion) -> str:
    """Return how people name a question: `SESSION.EPOCH.NUMBER-RUN`, or with its whole id where that says neither.

    RUN is a mark of the run of the server in which it was asked: another run may count another question with the same number.
    """
    for kind in ("pkt", "request"):
        start = f"{kind}_{waiting.session}_{waiting.epoch}_"
        if waiting.id.startswith(start):
            return f"{waiting.session}.{waiting.epoch}.{waiting.id.removeprefix(start)}"
    return f"{waiting.session}.{waiting.epoch}.{waiting.id}"
