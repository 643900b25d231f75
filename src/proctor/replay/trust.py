"""Which records are replayed without being trusted: those of environments that are registered here.

Rule 1: a replay makes the environment that a record names, with the settings that it names. Whoever wrote the record could have named any
    command, and any file: without trust only a registered id is made, and only with settings that could be no file.
Rule 2: nothing is imported or made in order to find that out.
"""

import os
from collections.abc import Mapping
from typing import Final

from proctor.envs.settings import is_registered
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.models.events import SessionOpened
from proctor.replay.replayer import open_rows, read_opening

SHOWN: Final = 80
"""Characters of a target that are told."""


class UntrustedRecord(ValidationError):
    """A record names what is made only for who trusts it."""


def check_episode(ledger: Ledger, chain: str, *, trusting: str) -> None:
    """Raise an UntrustedRecord if a replay of the episode needs trust; `trusting` is the command that has it.

    An episode whose beginning cannot be read is another ValidationError.
    """
    with open_rows(ledger, chain) as rows:
        check_opening(read_opening(rows, chain), trusting=trusting)


def check_opening(opened: SessionOpened, *, trusting: str) -> None:
    """Raise an UntrustedRecord if the environment of a session is made only with trust."""
    if not is_registered(opened.target):
        raise UntrustedRecord(
            "to make the environment of this episode would import and run what its record names, which is no environment "
            f"that is registered here; if you trust the record: `{trusting}`",
            found=opened.target[:SHOWN],
            expected="an episode of a registered environment",
        )
    if _names_a_file(opened.settings):
        raise UntrustedRecord(
            "to make the environment of this episode would open a file that its record names; "
            f"if you trust the record: `{trusting}`",
            expected="an episode whose settings name no file",
        )


def _names_a_file(setting: object) -> bool:
    """Return whether a setting, or one inside it, could be the name of something that lies on this machine."""
    if isinstance(setting, Mapping):
        return any(map(_names_a_file, setting.values()))
    if isinstance(setting, list):
        return any(map(_names_a_file, setting))
    if not isinstance(setting, str):
        return False
    return os.sep in setting or os.path.exists(setting)  # noqa: PTH110  # a Path raises for some texts
