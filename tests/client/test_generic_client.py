from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proctor.client.env_client import GenericClient, JsonAction, JsonObservation, JsonState
from tests.client.conftest import QUICK
from tests.server.live_server import serving

LEAVES = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text()
OBJECTS = st.dictionaries(st.text(), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3)), max_size=5)


@given(OBJECTS)
def test_an_action_is_its_fields_on_the_wire(fields: dict[str, Any]) -> None:
    action = JsonAction(fields=fields)

    assert json.loads(action.model_dump_json()) == fields


@given(OBJECTS)
def test_an_observation_keeps_what_it_does_not_know(fields: dict[str, Any]) -> None:
    beside = {"reward": 1.5, "terminated": True, "truncated": False, "metadata": {"a": 1}}
    inside = {key: value for key, value in fields.items() if key not in beside and key != "fields"}
    seen = JsonObservation.model_validate_json(json.dumps({**inside, **beside}))

    assert seen.fields == inside
    assert (seen.reward, seen.done, seen.metadata) == (1.5, True, {"a": 1})
    assert all(seen[name] == value for name, value in inside.items())


def test_a_state_keeps_what_it_does_not_know() -> None:
    state = JsonState.model_validate_json('{"episode_id":"e","step_count":3,"score":7}')

    assert (state.episode_id, state.step_count, state["score"]) == ("e", 3, 7)


def test_any_server_is_driven_without_its_models() -> None:
    async def main(url: str) -> list[Any]:
        async with GenericClient(url) as client:
            first = await client.reset(seed=1)
            second = await client.step({"by": 2})
            third = await client.step(JsonAction(fields={"by": 3}))
            return [first["total"], second["total"], third["total"], (await client.state())["total"]]

    with serving(QUICK) as there:
        awaited = asyncio.run(main(there.url))
        with GenericClient.blocking(there.url) as client:
            blocked = [client.reset(seed=1)["total"], client.step({"by": 2})["total"]]

    assert awaited == [1, 3, 6, 6]
    assert blocked == [1, 3]
