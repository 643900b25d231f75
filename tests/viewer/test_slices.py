"""A chain's rows as columns, packets and notes; slices fit together wherever they are cut."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.models.arrays import SOME_PIXELS, pack_array
from proctor.models.events import (
    AgentGranted,
    AgentRevoked,
    BatchStepped,
    Event,
    PacketJudged,
    SessionResumed,
    encode_event,
)
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.documents import EpisodeSlice, StepColumns
from proctor.viewer.slices import (
    MOST_BYTES,
    MOST_FRAME,
    MOST_REWARDS,
    MOST_SLICE,
    NOTE_SENTENCES,
    SliceBuilder,
    StepCount,
    mean_of_array,
)
from tests.ledger.session_events import (
    NOON,
    batch_reset,
    batch_step,
    closed,
    failure,
    opened,
    reset,
    step,
    written,
)
from tests.memory import measured_memory


class Values:
    """Values by their hashes."""

    def __init__(self, found: dict[str, bytes]) -> None:
        self.found = found
        self.asked: list[str] = []

    def values(self, digests: Iterable[str], most: int | None = None) -> dict[str, bytes]:
        asked = list(digests)
        self.asked += asked
        there = {digest: value for digest, value in self.found.items() if digest in asked}
        return {digest: value for digest, value in there.items() if most is None or len(value) <= most}


def body(event: Event, digest: str = "", scene: str = "") -> bytes:
    said = [b'"digest":"%b"' % digest.encode()] if digest else []
    said.append(b'"event":%b' % encode_event(event))
    said += [b'"scene":"%b"' % scene.encode()] if scene else []
    return b"{%b}" % b",".join(said)


def gathered(*bodies: bytes, values: Values | None = None, **how: Any) -> EpisodeSlice:
    gathering = SliceBuilder(values or Values({}), **how)
    for number, each in enumerate(bodies, start=1):
        gathering.take(number, number - 1, each)
    return gathering.slice("s.1", 0, len(bodies), more=False, ended=False)


def judged(step: int, **changed: Any) -> PacketJudged:
    fields: dict[str, Any] = {"session": "s", "at": NOON, "epoch": 1, "line": Raw(b'{"x":1}'), "kind": "DECISION"}
    return PacketJudged(step=step, **({"accepted": True} | fields | changed))


# ------------------------------------------------------------------------------------------------------------ the columns
def test_steps_come_as_columns() -> None:
    found = gathered(
        body(opened()),
        body(reset()),
        body(step(number=1, reward=0.5, raw_reward=1.0, parts={"scale": -0.5}, tool="move", scene=Raw(b'{"at":1}'))),
        body(step(number=2, reward=None, raw_reward=None, terminated=True)),
        body(step(number=3, reward=0.25, raw_reward=0.25, truncated=True, parts={"cost": 0.0})),
    ).steps

    assert found == StepColumns(
        number=[3, 4, 5],
        seq=[2, 3, 4],
        step=[1, 2, 3],
        at=[NOON + 1 + n / 1000 for n in (1, 2, 3)],
        action=[Raw(b'{"action":3}')] * 3,
        observation=[Raw(b'{"observation":[0.%d]}' % n) for n in (1, 2, 3)],
        reward=[0.5, None, 0.25],
        raw_reward=[1.0, None, 0.25],
        parts={"scale": [-0.5, None, None], "cost": [None, None, 0.0]},
        total=[0.5, 0.5, 0.75],
        ended=[0, 1, 2],
        scene=[Raw(b'{"at":1}'), Raw(b"null"), Raw(b"null")],
        tool=["move", None, None],
    )


def test_a_slice_without_steps_has_empty_columns() -> None:
    found = gathered(body(opened()), body(reset()))

    assert {name: len(getattr(found.steps, name)) for name in StepColumns.__struct_fields__} == dict.fromkeys(
        StepColumns.__struct_fields__, 0
    )
    assert (found.packets, found.notes) == ([], [])


def test_values_that_are_elsewhere_are_put_in_and_large_ones_are_not() -> None:
    values = Values({"aa": b"[1]", "bb": b'"' + b"x" * MOST_BYTES + b'"', "cc": b'{"frame":1}'})
    null = Raw(b"null")

    found = gathered(
        body(step(number=1, observation=null), "aa", "cc"),
        body(step(number=2, observation=null), "bb", "dd"),
        body(step(number=3, action=Raw(b'"' + b"x" * MOST_BYTES + b'"')), "ee"),
        values=values,
    ).steps

    assert [bytes(each) for each in found.observation] == [b"[1]", b"null", b'{"observation":[0.3]}']
    assert [bytes(each) for each in found.scene] == [b'{"frame":1}', b"null", b"null"]
    assert [bytes(each) for each in found.action[1:]] == [b'{"action":3}', b"null"]


def test_pixels_are_never_in_a_slice() -> None:
    values = Values({"aa": b'{"pixels":{}}'})

    drawn = gathered(body(step(), "", "aa"), body(step(scene=Raw(b'{"pixels":{}}'))), body(step()), values=values)
    known = gathered(body(step(), "", "aa"), body(step(scene=Raw(b'{"pixels":{}}'))), values=Values({}), pixels=True)

    assert drawn.steps.scene == [SOME_PIXELS, SOME_PIXELS, Raw(b"null")]
    assert known.steps.scene == [SOME_PIXELS, SOME_PIXELS]


def test_of_pixels_that_are_known_to_be_there_none_is_looked_for() -> None:
    values = Values({})
    gathered(body(step(), "", "aa"), values=values, pixels=True)

    assert values.asked == []


def test_a_row_that_cannot_be_read_hides_no_other() -> None:
    found = gathered(body(step(number=1)), b"{", b"\xff", b'{"event":{"event":"strange"}}', body(step(number=2)))

    assert found.steps.step == [1, 2]
    assert [(note.kind, note.number, note.step) for note in found.notes] == [("unreadable", n, 1) for n in (2, 3, 4)]


# ---------------------------------------------------------------------------------------------------------------- batches
def test_of_a_batch_the_mean_is_told() -> None:
    packed = Raw(msgspec.json.encode(pack_array(np.array([1.0, 2.0], np.float32))))
    one = msgspec.structs.replace(batch_step(number=1), rewards=Raw(b"[1,2]"), parts={"clip": Raw(b"[0.5,0.5]")})
    other = msgspec.structs.replace(batch_step(number=2), rewards=packed, raw_rewards=packed)

    found = gathered(body(opened(num_envs=2)), body(batch_reset()), body(one), body(other)).steps

    assert (found.reward, found.raw_reward, found.total) == ([1.5, 1.5], [0.0, 1.5], [1.5, 3.0])
    assert found.parts == {"clip": [0.5, None]}
    assert (found.ended, [bytes(each) for each in found.scene]) == ([0, 0], [b"null"] * 2)


@pytest.mark.parametrize(
    "said", [b"[]", b'["NaN",1]', b"null", b"{}", b"7", b'["x"]', b"[[1],[1,2]]", b"[", b'{"a":1}']
)
def test_what_has_no_mean_has_none(said: bytes) -> None:
    assert mean_of_array(Raw(said)) is None


@pytest.mark.parametrize("compress", [True, False])
def test_rewards_of_more_environments_than_a_batch_has_are_not_unpacked(compress: bool) -> None:
    said = Raw(msgspec.json.encode(pack_array(np.zeros(8 * MOST_REWARDS, np.uint8), compress=compress)))

    with measured_memory() as peak:
        found = mean_of_array(said)

    assert found is None
    assert peak() < MOST_REWARDS


def test_a_large_batch_is_left_to_whoever_asks_for_it() -> None:
    large = Raw(b"[%b]" % b",".join([b"1"] * MOST_BYTES))
    one: BatchStepped = msgspec.structs.replace(batch_step(), actions=large, observations=large)

    found = gathered(body(one)).steps

    assert (found.action, found.observation) == ([Raw(b"null")], [Raw(b"null")])


# ------------------------------------------------------------------------------------------------------ packets and notes
def test_packets_and_notes_know_their_step() -> None:
    granted = AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent="fox", tools=["move"])
    found = gathered(
        body(opened()),
        body(reset()),
        body(granted),
        body(step(number=1)),
        body(judged(1, accepted=False, rules=["FSM"], pointers=["/a"], reason="no", state="S1_SENSE", grant="g")),
        body(AgentRevoked(session="s", at=NOON, epoch=1, grant="g")),
        body(failure(epoch=1, step=1, request="step")),
        body(closed(steps=1)),
    )

    assert [(note.kind, note.step, note.number) for note in found.notes] == [
        ("granted", 0, 3),
        ("revoked", 1, 6),
        ("failed", 1, 7),
        ("closed", 1, 8),
    ]
    (packet,) = found.packets
    assert (packet.number, packet.seq, packet.step, packet.accepted, packet.line) == (5, 4, 1, False, Raw(b'{"x":1}'))
    assert (packet.rules, packet.pointers, packet.reason, packet.state) == (["FSM"], ["/a"], "no", "S1_SENSE")


def test_a_batchs_later_resets_are_notes_and_its_first_is_not() -> None:
    found = gathered(
        body(opened(num_envs=2)), body(batch_reset()), body(batch_step()), body(batch_reset(mask=b"[true,false]"))
    )

    assert [(note.kind, note.number) for note in found.notes] == [("reset", 4)]


def test_the_step_before_is_asked_for_only_where_a_note_needs_it() -> None:
    asked: list[int] = []
    revoked = body(AgentRevoked(session="s", at=NOON, epoch=1, grant="g"))

    def before() -> int:
        asked.append(1)
        return 41

    gathered(body(step(number=1)), revoked, step_before=before)
    found = gathered(revoked, revoked, step_before=before)

    assert [note.step for note in found.notes] == [41, 41]
    assert asked == [1]


# --------------------------------------------------------------------------------------------------------------- thinning
@given(count=st.integers(0, 40), thin=st.integers(1, 12))
@settings(max_examples=40)
def test_of_every_few_steps_the_last_is_kept_and_the_end_always(count: int, thin: int) -> None:
    bodies = [body(step(number=n, reward=float(n))) for n in range(1, count + 1)]

    found = gathered(*bodies, body(judged(count)), thin=thin)

    kept = sorted({*range(thin, count + 1, thin), *({count} if count else ())})
    assert found.steps.step == kept
    assert found.steps.total == [n * (n + 1) / 2 for n in kept]
    assert (found.thinned, len(found.packets)) == (thin, 1)


# ------------------------------------------------------------------------------------------------------------- cut points
@pytest.fixture(scope="module")
def mingled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain with everything in it, among the rows of others."""
    frame = b'{"frame":"%b"}' % (b"x" * 300)
    story: list[Event] = [opened(), reset(scene=Raw(frame)), opened("t"), reset("t")]
    story.append(AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent="fox", tools=["move"]))
    for n in range(1, 13):
        parts = {"late": 0.5} if n > 8 else {}
        story += [step(number=n, reward=n / 4, raw_reward=1.0, parts=parts, scene=Raw(frame)), step("t", number=n)]
        story += [judged(n, accepted=n % 2 == 0)] if n % 3 == 0 else []
        story += [AgentRevoked(session="s", at=NOON, epoch=1, grant=str(n))] * (n % 4 == 0)
    story += [failure(epoch=1, step=12), closed(steps=12)]
    return written(tmp_path_factory.mktemp("mingled"), story)


def joined(slices: list[EpisodeSlice]) -> EpisodeSlice:
    """Put slices together, as a page does."""
    columns: dict[str, Any] = {name: [] for name in StepColumns.__struct_fields__ if name not in ("parts", "total")}
    parts: dict[str, list[float | None]] = {}
    totals: list[float | None] = []
    for each in slices:
        base, count = (totals[-1] if totals else 0.0) or 0.0, len(totals)
        for name, column in columns.items():
            column += getattr(each.steps, name)
        totals += [base + (total or 0.0) for total in each.steps.total]
        for name in {**parts, **each.steps.parts}:
            new: list[float | None] = [None] * len(each.steps.number)
            parts.setdefault(name, [None] * count).extend(each.steps.parts.get(name, new))
    last = slices[-1]
    return EpisodeSlice(
        chain=last.chain,
        after=slices[0].after,
        last=last.last,
        more=last.more,
        ended=last.ended,
        thinned=1,
        steps=StepColumns(**columns, parts=parts, total=totals),
        packets=[packet for each in slices for packet in each.packets],
        notes=[note for each in slices for note in each.notes],
    )


@settings(max_examples=25, deadline=None)
@given(most=st.lists(st.integers(1, 12), min_size=40, max_size=40))
def test_slices_put_together_are_the_one_slice_of_everything(mingled: Path, most: list[int]) -> None:
    shelf = EpisodeCatalog(mingled)
    slices = [shelf.slice("s.1", most=most[0])]
    while slices[-1].more:
        slices.append(shelf.slice("s.1", after=slices[-1].last, most=most[len(slices)]))
    whole = shelf.slice("s.1")
    shelf.close()

    assert all(one.last == other.after for one, other in pairwise(slices))
    assert joined(slices) == whole
    assert (whole.more, whole.ended, len(whole.steps.number)) == (False, True, 12)


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(0, 60))
def test_a_slice_may_begin_after_any_number(mingled: Path, cut: int) -> None:
    """Also one that belongs to another chain."""
    shelf = EpisodeCatalog(mingled)
    whole, rest = shelf.slice("s.1"), shelf.slice("s.1", after=cut)
    shelf.close()

    assert rest.steps.number == [number for number in whole.steps.number if number > cut]
    assert rest.packets == [packet for packet in whole.packets if packet.number > cut]
    assert rest.notes == [note for note in whole.notes if note.number > cut]
    assert rest.last == max(whole.last, cut)


# ---------------------------------------------------------------------------------------------- batches, sizes, times
MASKED = [
    body(opened(num_envs=2)),
    body(batch_reset()),
    *(body(batch_step(number=number)) for number in (1, 2, 3)),
    body(batch_reset(mask=b"[true,false]")),
    *(body(batch_step(number=number)) for number in (1, 2)),
    body(closed(steps=2)),
]


def test_steps_of_a_batch_are_counted_on_where_some_of_it_are_reset() -> None:
    found = gathered(*MASKED, batch=True)

    assert found.steps.step == [1, 2, 3, 4, 5]
    assert [(note.kind, note.step) for note in found.notes] == [("reset", 3), ("closed", 5)]
    assert "after 5 steps" in found.notes[-1].text


def test_slices_of_a_masked_batch_fit_together(tmp_path: Path) -> None:
    events: list[Event] = [opened(num_envs=2), batch_reset(), *(batch_step(number=number) for number in (1, 2, 3))]
    events += [batch_reset(mask=b"[true,false,false,false,false,false,false,false]")]
    events += [batch_step(number=number) for number in (1, 2)]
    shelf = EpisodeCatalog(written(tmp_path, events))
    try:
        (line,) = shelf.lines()
        whole = shelf.slice("s.1")
        parts: list[int] = []
        after = 0
        while after < whole.last:
            part = shelf.slice("s.1", after=after, most=1)
            parts += part.steps.step
            after = part.last
    finally:
        shelf.close()

    assert (whole.steps.step, parts, line.steps) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 5)


def test_a_large_frame_is_left_out() -> None:
    large = b'"' + b"x" * MOST_FRAME + b'"'
    values = Values({"aa": large, "bb": b'{"frame":1}'})

    found = gathered(
        body(step(number=1), scene="aa"),
        body(step(number=2), scene="bb"),
        body(step(number=3, scene=Raw(large))),
        values=values,
    )

    assert found.steps.scene == [Raw(b"null"), Raw(b'{"frame":1}'), Raw(b"null")]


def test_a_gathering_is_full_when_what_it_holds_is_large() -> None:
    frame = b'"' + b"x" * (MOST_FRAME - 2) + b'"'
    room = MOST_SLICE // MOST_FRAME - 2  # there is more to a step than its frame
    gathering = SliceBuilder(Values({f"{n:04x}": frame for n in range(room + 3)}))
    full = []
    for number in range(room + 3):
        full.append(gathering.is_full)
        gathering.take(number, number, body(step(number=number + 1), scene=f"{number:04x}"))

    assert (any(full[:room]), gathering.is_full) == (False, True)


def test_of_a_row_that_cannot_be_read_nobody_knows_the_time() -> None:
    assert [note.at for note in gathered(b"no", body(step()), b"no").notes] == [None, None]


def test_a_sum_that_is_no_number_is_null() -> None:
    found = gathered(*(body(step(number=n, reward=1e308)) for n in (1, 2)))

    assert found.steps.total == [1e308, None]


# ----------------------------------------------- what happened besides steps and packets is told in one sentence
def resumed(lost: str | None) -> SessionResumed:
    return SessionResumed(session="s", at=NOON, epoch=1, step=3, boot="b", server="1", lost=lost)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            failure(request="step", clause="ENV-STEP-P1"),
            "failed",
            "The request step was refused by ENV-STEP-P1: VALIDATION_ERROR.",
        ),
        (
            failure(code="EXECUTION_ERROR", lost=True, incident="i7"),
            "failed",
            "The server failed and the episode was lost: EXECUTION_ERROR, incident i7.",
        ),
        (
            AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent="fox", tools=["move", "sniff"]),
            "granted",
            "The agent fox was granted tools: move, sniff.",
        ),
        (
            AgentGranted(session="s", at=NOON, epoch=1, grant="g", tools=[]),
            "granted",
            "An agent without a name was granted tools: none.",
        ),
        (AgentRevoked(session="s", at=NOON, epoch=1, grant="g"), "revoked", "The grant g was taken back."),
        (resumed(None), "resumed", "Another run of the server took the session up and rebuilt the episode."),
        (
            resumed("it differs"),
            "resumed",
            "Another run of the server took the session up, and the episode could not go on: it differs.",
        ),
        (batch_reset(mask=b"[true,false]"), "reset", "Some of the batch began another episode."),
        (reset(), "reset", "Another episode began."),
        (closed(steps=1), "closed", "The episode was closed (closed) after 1 step."),
        (
            closed(steps=2, outcome="open", state="S6_EXECUTE", obligations=["a token", "a report"]),
            "closed",
            "The episode was closed (closed) after 2 steps, judged open in S6_EXECUTE; still owed: a token, a report.",
        ),
    ],
)
def test_every_kind_of_note_has_its_sentence(event: Event, kind: str, text: str) -> None:
    named, sentence = NOTE_SENTENCES[type(event)]

    assert (named, sentence(event)) == (kind, text)


# ----------------------------------------------------------- steps are counted from the reset that began a chain
def test_steps_go_on_where_a_batch_begins_anew() -> None:
    steps = StepCount()
    found = [steps.count_step(own) for own in (1, 2, 3)]
    steps.restart()

    assert [*found, steps.count_step(1), steps.count_step(2)] == [1, 2, 3, 4, 5]


def test_a_step_whose_row_is_missing_counts_as_far_as_that_can_be_seen() -> None:
    steps = StepCount()

    assert [steps.count_step(own) for own in (1, 3, 4, 1, 2)] == [1, 3, 4, 5, 6]


def test_who_begins_in_the_middle_counts_on() -> None:
    steps = StepCount(7, None)

    assert [steps.count_step(own) for own in (3, 4)] == [8, 9]
