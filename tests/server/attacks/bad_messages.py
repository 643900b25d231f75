"""Messages that are wrong although their frames are right: each must be answered by exactly one coded error.

Rule 1: a message here is wrong whatever the session's state is: it may change nothing, for anybody.
Rule 2: everything is drawn from the generator that is passed in, so that a run can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final

DEPTH: Final = 10_000
HUGE: Final = 100_000


@dataclass(slots=True)
class Scene:
    """What an attacker knows: its own session (None before hello), and that of someone else."""

    session: str | None
    epoch: int
    other_session: str
    other_token: str
    ids: Iterator[int]

    @classmethod
    def in_base_mode(cls, other_session: str, other_token: str) -> Scene:
        """Return the scene of a connection without hello."""
        return cls(None, 1, other_session, other_token, count(1))

    def envelope(self, kind: str, **more: Any) -> dict[str, Any]:
        """Return a message that is right so far, to be spoilt."""
        if self.session is None:
            return {"type": kind, **more}
        return {"type": kind, "id": next(self.ids), "session": self.session, "epoch": self.epoch, **more}


Maker = Callable[[Random, Scene], bytes]


def dumped(value: object) -> bytes:
    """Return JSON as a peer would write it."""
    return json.dumps(value).encode("utf-8")


def either(*choices: bytes) -> Maker:
    """Return a maker that draws one of these."""
    return lambda rng, _: rng.choice(choices)


def spoilt(kind: str, *datas: object) -> Maker:
    """Return a maker of requests of one kind with wrong data."""
    return lambda rng, scene: dumped(scene.envelope(kind, data=rng.choice(datas)))


def inserted(kind: str, *raws: bytes) -> Maker:
    """Return a maker of requests whose data is text that no dump would write."""
    return lambda rng, scene: dumped(scene.envelope(kind, data="@")).replace(b'"@"', rng.choice(raws))


def altered(kind: str, **fields: tuple[object, ...]) -> Maker:
    """Return a maker of requests of which one field beside the data is wrong."""

    def make(rng: Random, scene: Scene) -> bytes:
        name = rng.choice(sorted(fields))
        return dumped({**scene.envelope(kind, data=GOOD[kind]), name: rng.choice(fields[name])})

    return make


GOOD: Final[dict[str, Any]] = {"step": {"message": "never said"}, "reset": {}, "state": None, "close": None}

NUMBERS: Final[tuple[object, ...]] = (
    *(-1, 0, -(2**63), 2**53 + 1, 2**64, 10**400, 1.5, 1e300, "1", "", True, [], {}, [1]),
)
TEXTS: Final[tuple[object, ...]] = (7, True, [], {}, ["x"], 1.5)
UNKNOWN: Final = ("", " ", "STEP", "step ", "__class__", "__init__", "mcp", "\x00", "é" * 40, "a" * HUGE, "step\n")
RESETS: Final[tuple[object, ...]] = (
    {"seed": "1"}, {"seed": 1.5}, {"seed": []}, {"seed": {}}, {"seed": True}, {"episode_id": 7}, {"episode_id": "x" * HUGE},
    {"episode_id": []}, {"options": 7}, {"options": "x"}, {"options": {"unknown": 1}}, {"mask": [1]}, {"unknown": 1},
    {"__class__": 1}, 7, "x", [], [1], True,
)  # fmt: skip
STEPS: Final[tuple[object, ...]] = (
    {}, {"message": 7}, {"message": None}, {"message": []}, {"message": {}}, {"message": "x", "more": 1}, {"massage": "x"},
    {"action": 0}, {"__class__": "x"}, {"message": True}, {"actions": [1]}, None, 7, "x", [], [{"message": "x"}], True,
    {str(i): i for i in range(2_000)},
)  # fmt: skip
JSON_ODDITIES: Final = (
    b"", b" ", b"\n\n\n", b"null", b"true", b"false", b"0", b"-1", b"42", b"1e400", b"-1e400", b"[]", b"[1,2,3]", b'"step"', b"{}",
    b'[{"type":"state"}]', b"[null]", b"1" * HUGE, b"-", b"+1", b"01", b"1.", b".5", b"0x10", b"NaN", b"Infinity", b"-Infinity",
    b"undefined", b"None", b"{", b"}", b"[", b"]", b'"', b'"\\', b'{"type"', b'{"type":', b'{"type":"state"', b'{"type":"state",}',
    b"{'type':'state'}", b'{type:"state"}', b'{"type":"state"}}', b'{"type":"state"}{"type":"state"}', b'{"type":"state"} x',
    b'{"type":"state"}\x00', b'\xef\xbb\xbf{"type":"state"}', b"/*x*/{}", b"//x", b'{"type":"sta\nte"}', b'{"type":"\\x41"}',
    b'{"type":"\\u12"}', b'{"type":"\\ud800"}', b'{"type":"\\udc00\\ud800"}', b'{"\\ud800":1}', b'{"type":"st\\u0000ate"}',
    b'{"":""}', b'{"type":null}', b'{"type":[]}', b'{"type":{}}', b'{"type":1e400}', b"\xc2\xa0{}", b'{"data":{}}', b"<a/>",
)  # fmt: skip
DATA_ODDITIES: Final = (
    b"1e400", b"-1e400", b'{"message":1e400}', b'{"message":NaN}', b'{"message":Infinity}', b'{"message":"\\ud800"}',
    b'{"message":"a","message":"b"}', b'{"a":{"b":1,"b":2}}', b'{"message":"a","m\\u0065ssage":"b"}', b'{"message":"\n"}',
    b'{"message":"\\q"}', b'{"message":' + b"9" * HUGE + b"}", b'{"message":[' + b"1," * HUGE + b"1]}", b'{"message":"x",}',
)  # fmt: skip


def deep(rng: Random, scene: Scene) -> bytes:
    """Return nesting without an end, whole or cut off, as the message or inside of one."""
    opening, closing, core = rng.choice(((b"[", b"]", b""), (b'{"a":', b"}", b"1"), (b'[{"a":', b"}]", b"1")))
    depth = rng.choice((100, 1_000, DEPTH))
    nested = opening * depth + core + rng.choice((b"", closing * depth))
    if rng.random() < 0.5:
        return nested
    return dumped(scene.envelope("step", data="@")).replace(b'"@"', b'{"message":' + nested + b"}")


def doubled(rng: Random, scene: Scene) -> bytes:
    """Return a message that says one of its fields twice."""
    kind = rng.choice(("step", "reset", "state"))
    whole = dumped(scene.envelope(kind, data=GOOD[kind] or {}))
    again = rng.choice((b'"type":"reset"', b'"type":"step"', b'"data":{"message":"twice"}', b'"\\u0074ype":"state"'))
    return whole[:-1] + b"," + again + b"}"


def cut(rng: Random, scene: Scene) -> bytes:
    """Return the first part of a good message."""
    whole = dumped(scene.envelope("step", data=GOOD["step"]))
    return whole[: rng.randrange(len(whole))]


def noise(rng: Random, _: Scene) -> bytes:
    """Return printable noise that begins like no JSON value of ours."""
    return b"?" + bytes(rng.choices(range(32, 127), k=rng.randrange(1, 200)))


def additions(rng: Random, scene: Scene) -> bytes:
    """Return a good message with a field that does not exist."""
    name = rng.choice(("extra", "__proto__", "jsonrpc", "method", "Type", "x" * HUGE, "", "\x00"))
    return dumped({**scene.envelope("step", data=GOOD["step"]), name: rng.choice((1, None, {}, "x"))})


def crossed(rng: Random, scene: Scene) -> bytes:
    """Return a good request for a session that is another's, or nobody's."""
    stranger = rng.choice((scene.other_session, scene.other_session[:-1], scene.other_session.upper(), "x", "", "\x00"))
    kind = rng.choice(("step", "reset", "state", "close", "cancel"))
    data = {"id": 1} if kind == "cancel" else GOOD[kind]
    message = {"type": kind, "id": rng.randrange(1, 10**6), "session": stranger, "epoch": rng.randrange(5)}
    return dumped(message if data is None else {**message, "data": data})


def hostile_resume(rng: Random, scene: Scene) -> bytes:
    """Return an attempt to take the other's session over without its token."""
    token = scene.other_token
    guesses: tuple[object, ...] = (
        *("", " ", token[:-1], token + "x", token.swapcase(), token[::-1], "\x00" * 43, "é" * 43, "x" * HUGE, 7, None),
        [],
    )
    data = {"session": scene.other_session, "resume_token": rng.choice(guesses)}
    return dumped({"type": "resume", "id": rng.randrange(1, 10**6), "data": data})


def bad_hello(rng: Random, _: Scene) -> bytes:
    """Return a hello that comes too late, or that no server can answer."""
    protocols: object = rng.choice(([], [0], [99], [-1], ["1"], [1.5], [1] * 17, 1, None, "1", {}, [[1]]))
    return dumped({"type": "hello", "id": 1, "data": {"protocols": protocols}})


def bad_open(rng: Random, scene: Scene) -> bytes:
    """Return an `open` that asks for what there is not."""
    datas: tuple[object, ...] = (
        {"num_envs": 0}, {"num_envs": -1}, {"num_envs": 65_537}, {"num_envs": 10**30}, {"num_envs": "2"}, {"num_envs": 1.5},
        {"autoreset_mode": 7}, {"num_envs": 2, "autoreset_mode": "never"}, {"step_timeout_seconds": 0},
        {"step_timeout_seconds": -1}, {"step_timeout_seconds": "1"}, {"infos": 1}, {"unknown": 1}, 7, [], "x",
    )  # fmt: skip
    return dumped({"type": "open", "id": next(scene.ids), "data": rng.choice(datas)})


ANYWHERE: Final[dict[str, Maker]] = {
    "odd JSON": either(*JSON_ODDITIES),
    "odd data": inserted("step", *DATA_ODDITIES),
    "odd reset": inserted("reset", b"1e400", b'{"seed":1e400}', b'{"seed":1,"seed":2}', b'{"options":' + b"[" * DEPTH),
    "depth": deep,
    "said twice": doubled,
    "cut off": cut,
    "noise": noise,
    "unknown type": lambda rng, scene: dumped(scene.envelope(rng.choice(UNKNOWN))),
    "type of another type": altered("step", type=(*TEXTS, None)),
    "bad reset": spoilt("reset", *RESETS),
    "bad step": spoilt("step", *STEPS),
    "additional field": additions,
    "bad id": altered("step", id=NUMBERS),
    "bad epoch": altered("step", epoch=tuple(number for number in NUMBERS if number != 0)),
    "bad session": altered("step", session=(*TEXTS, "x" * 65, "x" * HUGE)),
    "hello too late or wrong": bad_hello,
}
"""Wrong in base mode and after hello alike; the connection is neither fresh nor without a session."""

AFTER_HELLO: Final[dict[str, Maker]] = {
    "another's session": crossed,
    "another's token": hostile_resume,
    "bad open": bad_open,
    "bad cancel": spoilt(
        "cancel", {}, {"id": 0}, {"id": -1}, {"id": "1"}, {"id": 1.5}, {"id": 10**30}, None, 7, [], {"ids": [1]}
    ),
    "without an id": lambda _, scene: dumped({"type": "state", "session": scene.session}),
    "without a session": lambda rng, scene: dumped({"type": rng.choice(("step", "state")), "id": next(scene.ids)}),
    "without an epoch": lambda _, scene: dumped(
        {"type": "step", "id": next(scene.ids), "session": scene.session, "data": GOOD["step"]}
    ),
    "an epoch that is not": lambda rng, scene: dumped(
        {**scene.envelope("step", data=GOOD["step"]), "epoch": rng.choice((0, 2, 2**53))}
    ),
}

BEFORE_HELLO: Final[dict[str, Maker]] = {
    "what needs hello": lambda rng, scene: dumped({"type": rng.choice(("open", "resume", "cancel")), "data": {}}),
    "fields of later": lambda rng, _: dumped({"type": "step", "data": GOOD["step"], rng.choice(("id", "epoch")): 1}),
}
