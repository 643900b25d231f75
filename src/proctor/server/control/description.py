"""What a server says of itself and of its environment, the same on the WebSocket and on HTTP."""

from dataclasses import dataclass

from proctor import __version__
from proctor.models.control import PROTOCOL, Metadata, Schemas
from proctor.server.cards import Card


@dataclass(frozen=True, slots=True)
class Description:
    """Metadata and schemas, made once."""

    metadata: Metadata
    schemas: Schemas


def description_of(card: Card) -> Description:
    """Return what to say of the environment that a target makes."""
    metadata = Metadata(
        card.name, card.description, card.version, f"proctor/{__version__}", [PROTOCOL], num_envs=card.can_batch
    )
    return Description(metadata, card.schemas)
