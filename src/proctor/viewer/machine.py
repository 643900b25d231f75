"""The episode's machine as a page draws it: states with their places, edges with their labels.

Rule 1: what there is comes from the table, through the same picture as `proctor diagram` draws; only the places are said here.
Rule 2: places are whole numbers of a grid, four across and three down. The decision stands in the middle of those that it leads to; the
    round of an episode (observe, believe, decide, act, review) runs clockwise around it.
"""

from typing import Final

from proctor.episode.diagram import EVERY, EVERYWHERE, Diagram, Edge, machine_diagram
from proctor.episode.transition_table import ProtocolState
from proctor.narration.verdicts import STATE_WORDS
from proctor.viewer.documents import MachineDiagram, MachineEdge, MachineState

PLACES: Final[dict[ProtocolState, tuple[int, int]]] = {
    ProtocolState.IDLE: (0, 0),
    ProtocolState.SENSE: (1, 0),
    ProtocolState.MODEL: (2, 0),
    ProtocolState.VERIFY: (3, 0),
    ProtocolState.REVIEW: (1, 1),
    ProtocolState.DECIDE: (2, 1),
    ProtocolState.ESCALATED: (3, 1),
    ProtocolState.SAFEMODE: (0, 2),
    ProtocolState.EXECUTE: (2, 2),
    ProtocolState.AUTHORIZE: (3, 2),
}
"""Column and row of each state."""


def build_machine() -> MachineDiagram:
    """Return the machine."""
    return machine_from_picture(machine_diagram())


def machine_from_picture(picture: Diagram) -> MachineDiagram:
    """Return a picture as a document."""
    return MachineDiagram(
        states=[_state(state) for state in picture.states],
        edges=[_edge(edge) for edge in picture.edges],
        everywhere=[line for note in picture.notes if note.node == EVERY for line in note.text if line != EVERYWHERE],
    )


def _state(state: ProtocolState) -> MachineState:
    x, y = PLACES[state]
    return MachineState(name=state.value, label=format_label(state), words=STATE_WORDS[state], x=float(x), y=float(y))


def format_label(state: ProtocolState) -> str:
    """Return a state's number and its name: S3 Decide."""
    number, _, name = state.value.partition("_")
    return f"{number} {name.capitalize()}"


def _edge(edge: Edge) -> MachineEdge:
    return MachineEdge(
        source=str(edge.source), target=str(edge.target), labels=list(edge.label), line=str(edge.line.value)
    )
