"""How rows hang together: hashes, the names of chains, and heads. Pure.

Rule 1: a row's hash covers the hash before it, its number, its place in the chain and its body; the first row of a chain
    stands on the hash of the chain's name. So no row can be changed, left out, moved or renamed without a trace.
Rule 2: what is hashed or signed begins with a tag that says what it is, so that a hash of one kind is never one of another.
Rule 3: a head proves that a chain has at least these rows; as text it is `<chain>@<rows>:<hex sha256>`.

    chain              is
    <session>.<epoch>  an episode, named by the epoch of its first reset
    server.<boot>      a run of the server
    pruned.<number>    what was removed, named by the number of its first row
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct
from typing import Final

from proctor.errors import ValidationError

_FORM: Final = re.compile(r"(?P<chain>.+)@(?P<rows>[1-9][0-9]{0,18}):(?P<hash>[0-9a-f]{64})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of the last of `rows` rows of a chain."""

    chain: str
    rows: int
    hash: bytes

    def __str__(self) -> str:
        return format_head(self.chain, self.rows, self.hash)


def format_head(chain: str, rows: int, row: bytes) -> str:
    """Return a head as text."""
    return f"{chain}@{rows}:{row.hex()}"


def parse_head(text: str) -> Head:
    """Return the head that `text` says, or raise a ValidationError; blanks after it do not count."""
    found = _FORM.fullmatch(text.rstrip())  # before it they may be the beginning of a session's name
    if found is None:
        raise ValidationError("not a head of a chain", found=text, expected="<chain>@<rows>:<64 hexadecimal digits>")
    return Head(found["chain"], int(found["rows"]), bytes.fromhex(found["hash"]))


SERVER_PREFIX: Final = "server."
PRUNED_PREFIX: Final = "pruned."
REPEAT_MARK: Final = "~"
"""Before the count of a name that is there already, and before a session that is called like a chain of ours."""

_ROW: Final = b"proctor.ledger.row.1\0"
_CHAIN: Final = b"proctor.ledger.chain.1\0"
_SEAL: Final = b"proctor.ledger.seal.1\0"
_PLACE: Final = Struct(">QQ").pack


def genesis_hash(name: str) -> bytes:
    """Return what the first row of a chain stands on."""
    return sha256(_CHAIN + name.encode()).digest()


def row_hash(before: bytes, number: int, seq: int, body: bytes) -> bytes:
    """Return the hash of a row; `before` is that of the row before it in its chain, or the chain's genesis."""
    return sha256(b"".join((_ROW, before, _PLACE(number, seq), body))).digest()


def seal_message(name: str, seq: int, row: bytes) -> bytes:
    """Return what is signed: that the row with this hash is the one at `seq` in the chain."""
    return b"".join((_SEAL, _PLACE(len(name.encode()), seq), name.encode(), row))


def episode_chain_name(session: str, epoch: int) -> str:
    """Return the name of an episode's chain."""
    name = f"{session}.{epoch}"
    return REPEAT_MARK + name if name.startswith((SERVER_PREFIX, PRUNED_PREFIX, REPEAT_MARK)) else name


def is_episode_chain(name: str) -> bool:
    """Return whether a chain of this name is an episode's."""
    return not name.startswith((SERVER_PREFIX, PRUNED_PREFIX))


def session_from_chain_name(name: str) -> str:
    """Return the session whose episode has this name."""
    session = name.rpartition(".")[0]
    return session.removeprefix(REPEAT_MARK)


def epoch_from_chain_name(name: str) -> int:
    """Return the epoch of the first reset of the episode with this name; 0 if it says none."""
    epoch = name.rpartition(".")[2].partition(REPEAT_MARK)[0]
    return int(epoch) if epoch.isascii() and epoch.isdigit() else 0


def find_free_name(name: str, taken: Callable[[str], bool]) -> str:
    """Return the name, or with the first count from 2 on that is not taken: an epoch whose reply was lost comes twice."""
    count, free = 1, name
    while taken(free):
        count += 1
        free = f"{name}{REPEAT_MARK}{count}"
    return free
