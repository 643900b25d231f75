"""The first words on a connection: `hello`, and what its answer means.

Rule 1: a server that does not know `hello` is no failure: it is spoken to as OpenEnv speaks.
Rule 2: a server that knows `hello` and refuses it, or has no room, is not spoken to at all.
"""

from typing import Final

import msgspec

from proctor import __version__
from proctor.client.address import Address
from proctor.client.problems import problem_of, read_reply, text_of
from proctor.client.settings import Settings
from proctor.errors import ConnectionFailed, RemoteError
from proctor.models.control import PROTOCOL, Code, Hello, RawReply, Welcome

NO_HELLO: Final = frozenset({Code.UNKNOWN_TYPE, Code.VALIDATION_ERROR, Code.INVALID_JSON})
"""How a server answers that does not know `hello`."""
NO_ROOM: Final = frozenset({Code.CAPACITY_REACHED, Code.FACTORY_ERROR})


def hello(settings: Settings) -> bytes:
    """Return the data of `hello`."""
    return msgspec.json.encode(Hello([PROTOCOL], f"proctor/{__version__}", settings.packed, settings.compression))


def welcome_of(reply: RawReply | None, address: Address) -> Welcome | None:
    """Return what was agreed on, None with a server that does not know `hello`; else raise."""
    if reply is None:
        raise ConnectionFailed(f"{address} did not answer hello")
    if reply.type != "error":
        return read_reply(reply, "hello", Welcome)
    problem = problem_of(reply.data)
    if problem.code in NO_HELLO:
        return None
    if problem.code in NO_ROOM:
        raise RemoteError(text_of(problem), code=problem.code)
    raise ConnectionFailed(f"{address} refused hello: {text_of(problem)}", found=problem.code)
