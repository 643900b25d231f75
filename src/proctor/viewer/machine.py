"""The episode's machine as a page draws it: states, edges with their labels, and both drawn for a wide and for a narrow page.

Rule 1: what there is comes from the table, through the same picture as `proctor diagram` draws. Only places and bends are said here.
Rule 2: places are whole numbers of a grid, four across and three down; on a narrow page the same grid lies on its side. The decision
    stands in the middle of those that it leads to; the round of an episode (observe, believe, decide, act, review) runs clockwise around it.
Rule 3: an arrow is straight, or bent as `BENDS` says, so that it runs through no box but its own (a test looks at all of them).
"""

from math import hypot
from typing import Final, NamedTuple

from proctor.episode.diagram import EVERY, EVERYWHERE, Diagram, Edge, machine_diagram
from proctor.episode.transition_table import ProtocolState
from proctor.narration.verdicts import STATE_WORDS
from proctor.viewer.documents import MachineDiagram, MachineEdge, MachinePicture, MachineState

PLACES: Final[dict[str, tuple[int, int]]] = {
    ProtocolState.IDLE: (0, 0),
    ProtocolState.SENSE: (1, 0),
    ProtocolState.MODEL: (2, 0),
    ProtocolState.VERIFY: (3, 0),
    EVERY: (1, 2),
    ProtocolState.REVIEW: (1, 1),
    ProtocolState.DECIDE: (2, 1),
    ProtocolState.ESCALATED: (3, 1),
    ProtocolState.SAFEMODE: (0, 2),
    ProtocolState.EXECUTE: (2, 2),
    ProtocolState.AUTHORIZE: (3, 2),
}
"""Column and row of each state, and of what stands for all of them."""
BENDS: Final[dict[tuple[str, str], tuple[int, int]]] = {
    (ProtocolState.DECIDE, ProtocolState.VERIFY): (0, 24),
    (ProtocolState.DECIDE, ProtocolState.ESCALATED): (12, 12),
    (ProtocolState.DECIDE, ProtocolState.REVIEW): (0, -12),
    (ProtocolState.VERIFY, ProtocolState.SAFEMODE): (-40, 230),
    (ProtocolState.EXECUTE, ProtocolState.REVIEW): (24, 0),
    (ProtocolState.EXECUTE, ProtocolState.MODEL): (-85, -85),
    (ProtocolState.EXECUTE, ProtocolState.SAFEMODE): (60, 85),
    (ProtocolState.REVIEW, ProtocolState.SENSE): (12, 0),
    (ProtocolState.REVIEW, ProtocolState.IDLE): (-12, 0),
    (ProtocolState.SAFEMODE, ProtocolState.REVIEW): (-24, 0),
    (ProtocolState.SAFEMODE, ProtocolState.IDLE): (-40, 0),
}
"""How far an arrow leaves the straight line near its source and near its target, in pixels of the wide picture."""
HEAD: Final = 4.0
"""Between an arrow's head and its box."""


class _Layout(NamedTuple):
    """Sizes in pixels; `turned` is the grid on its side."""

    box: tuple[float, float]
    gap: tuple[float, float]
    rim: float
    turned: bool


class _Box(NamedTuple):
    """A state's box by its middle."""

    x: float
    y: float
    width: float
    height: float


WIDE: Final = _Layout((112, 46), (62, 54), 26, turned=False)
TALL: Final = _Layout((82, 42), (24, 46), 15, turned=True)


def build_machine() -> MachineDiagram:
    """Return the machine."""
    return machine_from_picture(machine_diagram())


def machine_from_picture(picture: Diagram) -> MachineDiagram:
    """Return a picture as a document."""
    return MachineDiagram(
        states=[_state(state) for state in picture.states],
        edges=[
            MachineEdge(source=str(each.source), target=str(each.target), labels=list(each.label), line=each.line.value)
            for each in picture.edges
        ],
        everywhere=[line for note in picture.notes if note.node == EVERY for line in note.text if line != EVERYWHERE],
        wide=_draw(picture, WIDE),
        tall=_draw(picture, TALL),
    )


def _state(state: ProtocolState) -> MachineState:
    number, _, name = state.value.partition("_")
    return MachineState(name=state.value, label=f"{number} {name.capitalize()}", words=STATE_WORDS[state])


def _draw(picture: Diagram, layout: _Layout) -> MachinePicture:
    """Return the boxes and the arrows, in pixels from the upper left corner."""
    names = [*map(str, picture.states), *([EVERY] if picture.everywhere else [])]
    boxes = {name: _place(name, layout) for name in names}
    return MachinePicture(
        width=max(box.x + box.width / 2 for box in boxes.values()) + layout.rim,
        height=max(box.y + box.height / 2 for box in boxes.values()) + layout.rim,
        boxes={name: list(box) for name, box in boxes.items()},
        paths=[_arrow(edge, boxes, layout) for edge in picture.edges],
    )


def _place(name: str, layout: _Layout) -> _Box:
    column, row = reversed(PLACES[name]) if layout.turned else PLACES[name]
    (width, height), (across, down) = layout.box, layout.gap
    x, y = layout.rim + width / 2 + column * (width + across), layout.rim + height / 2 + row * (height + down)
    return _Box(x, y, width - 8, 30) if name == EVERY else _Box(x, y, width, height)


def _arrow(edge: Edge, boxes: dict[str, _Box], layout: _Layout) -> str:
    """Return the path of an arrow: a loop on a corner, or a curve from rim to rim."""
    one, other = boxes[str(edge.source)], boxes[str(edge.target)]
    if one == other:
        x, y = one.x + one.width / 2, one.y - one.height / 2
        return _curve((x - 20.4, y), (x - 15.6, y - 16.8), (x + 16.8, y - 8.4), (x + 2, y + 12))
    # A grid on its side is a mirrored one.
    scale = -TALL.gap[1] / WIDE.gap[1] if layout.turned else 1.0
    first, last = (scale * bend for bend in BENDS.get((str(edge.source), str(edge.target)), (0, 0)))
    begin, end = _beside(one, other, 0.3, first), _beside(one, other, 0.7, last)
    return _curve(_rim(one, begin, 0.0), begin, end, _rim(other, end, HEAD))


def _beside(one: _Box, other: _Box, share: float, bend: float) -> tuple[float, float]:
    """Return the point at a share of the straight way, moved aside by `bend`."""
    dx, dy = other.x - one.x, other.y - one.y
    length = hypot(dx, dy)
    return one.x + dx * share - dy / length * bend, one.y + dy * share + dx / length * bend


def _rim(box: _Box, toward: tuple[float, float], margin: float) -> tuple[float, float]:
    """Return where the line from the middle of a box to a point leaves the box."""
    dx, dy = toward[0] - box.x, toward[1] - box.y
    across, down = box.width / 2 + margin, box.height / 2 + margin
    share = min(across / abs(dx) if dx else 1e9, down / abs(dy) if dy else 1e9)
    return box.x + dx * share, box.y + dy * share


def _curve(*points: tuple[float, float]) -> str:
    a, b, c, d = (f"{x:.1f},{y:.1f}" for x, y in points)
    return f"M{a} C{b} {c} {d}"
