"""A target becomes a desk: the environment is made, and what goes wrong is told as far as a peer may know.

Rule: what a factory raises, an exit too, is logged with an incident's number; a peer learns the number and no more.
"""

import logging
from collections.abc import Callable
from typing import Final

from proctor.envs.targets import AnyEnvironment, Target, is_async
from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.answers import RAISED, refused
from proctor.server.batch_desk import BatchDesk
from proctor.server.desk import Desk
from proctor.server.places import AnyDesk

LOG: Final = logging.getLogger("proctor.environment")


def made_desk(
    target: Target,
    encoding: Encoding,
    incident: Callable[[], str],
    *,
    num_envs: int | None,
    autoreset_mode: str | None,
    infos: bool,
    scenes: bool = False,
    coroutines: bool | None = None,
) -> AnyDesk:
    """Return a desk with a new environment, or raise a refusal; `coroutines` says what its steps must be, if anything."""
    try:
        if num_envs is None:
            return Desk(_checked(target.make(), coroutines), encoding, incident, scenes=scenes)
        return BatchDesk(target.make_batch(num_envs, autoreset_mode), encoding, incident, infos=infos)
    except RAISED as problem:
        number = incident()
        LOG.error("an environment could not be made, incident %s", number, exc_info=problem)
        raise refused(Code.FACTORY_ERROR, "the environment could not be made", incident=number) from None


def _checked(environment: AnyEnvironment, coroutines: bool | None) -> AnyEnvironment:
    if coroutines is not None and is_async(environment) != coroutines:
        raise ComponentError("this factory makes different kinds of environments", found=type(environment).__name__)
    return environment
