"""Attacks with arguments: more than there are, of other types, in texts that two readers read differently."""

from __future__ import annotations

import json
from typing import Any

from tests.server.agents.stand_in import call_of, handshake
from tests.system.attacks.book import check
from tests.system.attacks.messages import refused
from tests.system.attacks.scene import AGENTS, Scene


@AGENTS.attack
def arguments_that_mean_more(scene: Scene) -> str:
    """Give a tool arguments that it does not have, named like what an orchestrator or Python would set."""
    session = scene.agent.opened()
    names = (
        "seed", "options", "episode_id", "__class__", "__init__", "self", "cls", "reward", "terminated", "metadata", "_secrets",
        "action", "session", "epoch", "times ", "Times", "$ref", "__proto__", "constructor",
    )  # fmt: skip
    calls = [call_of("say", {"word": "x", name: value}) for name in names for value in (1, {"a": 1}, "reset")]
    calls += [call_of("look", {name: 1}) for name in names]
    found = refused(scene, *calls, session=session)

    check(found == {"VALIDATION_ERROR"}, f"an unknown argument was answered with {found}")
    return f"{len(calls)} calls: VALIDATION_ERROR"


@AGENTS.attack
def arguments_of_other_types(scene: Scene) -> str:
    """Give a tool numbers for texts, texts for numbers, numbers that are none, lists, nothing at all."""
    session = scene.agent.opened()
    texts: tuple[Any, ...] = (7, None, True, [], ["x"], {}, {"word": "x"}, 1.5)
    numbers: tuple[Any, ...] = ("1", "", None, [], {}, 1.5, 2**70, -(10**400), "NaN", [1])
    calls: list[Any] = [call_of("say", {"word": text}) for text in texts]
    calls += [call_of("say", {"word": "x", "times": number}) for number in numbers]
    calls += [call_of("say", {}), call_of("spell", {"text": "x", "backwards": "maybe"}), call_of("say", {"times": 3})]
    found = refused(scene, *calls, session=session)

    check(None not in found, f"an argument of another type was taken: {found}")
    return f"{len(calls)} calls: {sorted(map(str, found))}"


@AGENTS.attack
def arguments_that_are_no_object(scene: Scene) -> str:
    """Send arguments, params and whole messages that are lists, texts or numbers."""
    session = scene.agent.opened()
    values: tuple[Any, ...] = ([], ["x"], "word", 7, True, [["word", "x"]])
    messages: list[Any] = [{**call_of("say", {}), "params": {"name": "say", "arguments": value}} for value in values]
    messages += [{**call_of("say", {}), "params": value} for value in values]
    messages += [*values, None, {}, {"jsonrpc": "1.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0"}]
    found = refused(scene, *messages, session=session)

    check(None not in found, f"what is no object was taken: {found}")
    return f"{len(messages)} messages: {sorted(map(str, found))}"


@AGENTS.attack
def json_that_two_readers_read_differently(scene: Scene) -> str:
    """Send NaN, keys that come twice, half characters, comments, deep nesting, numbers without end."""
    session = scene.agent.opened()
    around = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":%s}}'
    bad = (
        b'{"word":NaN}', b'{"word":Infinity}', b'{"word":"x","times":1e999}', b'{"word":"\\ud800"}', b'{"word":"\xff\xfe"}',
        b'{"word":"x",}', b'{"word":"x"/*y*/}', b"{'word':'x'}", b'{"word":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b'{"word":"x","times":' + b"9" * 5_000 + b"}", b'{"word":"\x00"}',
        b'{"word":7,"word":8}', b'\xef\xbb\xbf{"word":7}',
    )  # fmt: skip
    twice = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","name":"reset","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"reset"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"word":"x","times":1,"times":"y"}}}',
    )
    found = refused(scene, *(around % each for each in bad), *twice, session=session)

    check(None not in found, f"a text that is not plain JSON was taken: {found}")
    return f"{len(bad) + len(twice)} texts: {sorted(map(str, found))}"


@AGENTS.attack
def many_messages_in_one(scene: Scene) -> str:
    """Send batches, which would pass the rate and the limits as one."""
    session = scene.agent.opened()
    call = call_of("say", {"word": "batch"})
    batches: tuple[Any, ...] = (
        [call],
        [call] * 100,
        [call, {"jsonrpc": "2.0", "id": 2, "method": "reset"}],
        [handshake(), call],
        [],
    )
    found = refused(scene, *batches, session=session)
    found |= refused(
        scene,
        json.dumps(call).encode() * 2,
        json.dumps(call).encode() + b"\n" + json.dumps(call).encode(),
        session=session,
    )

    check(found <= {-32600, -32700}, f"a batch was answered with {found}")
    return f"{sorted(map(str, found))}: one message at a time"
