"""A small interpreter for classic BPF, as far as seccomp filters use it: it says what the kernel would answer."""

import struct
from collections.abc import Sequence

LOAD, RETURN, EQUAL, AT_LEAST, ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45


def verdict(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Return the action for a call; every jump must stay inside the program and every path must end."""
    told = struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    rows: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", program))
    accumulator, place = 0, 0
    while True:
        code, yes, no, constant = rows[place]
        place += 1
        if code == RETURN:
            return constant
        if code == LOAD:
            assert constant % 4 == 0
            (accumulator,) = struct.unpack_from("<I", told, constant)
        else:
            place += yes if _holds(code, accumulator, constant) else no


def _holds(code: int, accumulator: int, constant: int) -> bool:
    if code == EQUAL:
        return accumulator == constant
    if code == AT_LEAST:
        return accumulator >= constant
    assert code == ANY_BIT
    return bool(accumulator & constant)
