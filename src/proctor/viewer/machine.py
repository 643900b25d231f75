"""The episode's machine as a page draws it: states with their places, edges with their labels.

Rule 1: what there is comes from the table, through the same picture as `proctor diagram` draws; only the places are said here.
Rule 2: places are whole numbers of a grid, four across and three down. The decision stands in the middle of those that it leads to; the
    round of an episode (observe, believe, decide, act, review) runs clockwise around it.
"""

from typing import Final

from proctor.episode.diagram import EVERY, EVERYWHERE, Edge, Picture, machine_picture
from proctor.episode.states import State
from proctor.episode.verdict_words import STATE_WORDS
from proctor.viewer.documents import Machine, MachineEdge, MachineState

PLACES: Final[dict[State, tuple[int, int]]] = {
    State.IDLE: (0, 0),
    State.SENSE: (1, 0),
    State.MODEL: (2, 0),
    State.VERIFY: (3, 0),
    State.REVIEW: (1, 1),
    State.DECIDE: (2, 1),
    State.ESCALATED: (3, 1),
    State.SAFEMODE: (0, 2),
    State.EXECUTE: (2, 2),
    State.AUTHORIZE: (3, 2),
}
"""Column and row of each state."""


def machine() -> Machine:
    """Return the machine."""
    return drawn(machine_picture())


def drawn(picture: Picture) -> Machine:
    """Return a picture as a document."""
    return Machine(
        states=[_state(state) for state in picture.states],
        edges=[_edge(edge) for edge in picture.edges],
        everywhere=[line for note in picture.notes if note.node == EVERY for line in note.text if line != EVERYWHERE],
    )


def _state(state: State) -> MachineState:
    x, y = PLACES[state]
    return MachineState(name=state.value, label=label_of(state), words=STATE_WORDS[state], x=float(x), y=float(y))


def label_of(state: State) -> str:
    """Return a state's number and its name: S3 Decide."""
    number, _, name = state.value.partition("_")
    return f"{number} {name.capitalize()}"


def _edge(edge: Edge) -> MachineEdge:
    return MachineEdge(
        source=str(edge.source), target=str(edge.target), labels=list(edge.label), line=str(edge.line.value)
    )
