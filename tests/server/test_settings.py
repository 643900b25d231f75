"""Settings that make no sense are refused when they are made, with the place and a reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.limits import RequestLimits
from proctor.errors import ValidationError
from proctor.ledger.storage_limits import StorageLimits
from proctor.server.settings import LimitSettings, ServerSettings, parse_settings, read_settings_file

SECONDS = ["wait_seconds", "grace_seconds", "idle_seconds", "warn_seconds", "step_timeout_seconds", "drain_seconds"]


def made(**values: Any) -> ServerSettings:
    return parse_settings({"target": "CartPole-v1", **values})


def nested(path: str, value: object) -> dict[str, Any]:
    *outer, last = path.split(".")
    tree: dict[str, Any] = {last: value}
    for name in reversed(outer):
        tree = {name: tree}
    return tree


def test_a_target_is_all_that_is_needed() -> None:
    settings = made()

    assert settings.target == "CartPole-v1"
    assert settings.host == "127.0.0.1"
    assert not settings.insecure
    assert settings.limits.limits() == RequestLimits()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        made().port = 1  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("target", None),
        ("port", -1),
        ("port", 65536),
        ("port", "http"),
        ("workers", 0),
        ("workers", 65),
        ("max_sessions", 0),
        ("max_waiting", -1),
        ("max_connections", 0),
        ("max_pending", 0),
        ("max_pending", 1025),
        ("wait_seconds", -1),
        ("grace_seconds", -0.1),
        ("warn_seconds", 0),
        ("drain_seconds", -1),
        ("place", "moon"),
        ("log_level", "loud"),
        ("transforms", {}),
        ("transforms", ["clip"]),
        ("settings", []),
        ("nonsense", 1),
        ("limits.max_depth", 0),
        ("limits.max_depth", 513),
        ("limits.max_message_bytes", 0),
        ("limits.max_message_bytes", 2**31),
        ("limits.max_body_bytes", 2**31),
        ("limits.requests_per_second", 0),
        ("limits.requests_per_second", math.inf),
        ("limits.burst", 0),
        ("limits.burst", 2 * 10**9),
        ("limits.nonsense", 1),
        *((name, value) for name in SECONDS for value in (math.nan, math.inf)),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_place(place: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_settings({"target": "CartPole-v1", **nested(place, value)})

    assert place.rpartition(".")[2] in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "example.org"])  # nobody listens there
def test_a_server_without_a_credential_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(ValidationError, match="without a credential") as caught:
        made(insecure=True, host=host)

    assert caught.value.found == host
    assert made(host=host).host == host


@pytest.mark.parametrize("values", [{"host": "127.0.0.1"}, {"host": "::1"}, {"host": "localhost"}])
def test_on_loopback_a_server_may_go_without_a_credential(values: dict[str, Any]) -> None:
    assert made(insecure=True, **values).insecure


@pytest.mark.parametrize("sandbox", ["auto", "none", "process", "bwrap", "strict"])
def test_only_containers_have_a_network_because_only_theirs_does_not_lead_to_loopback(sandbox: str) -> None:
    with pytest.raises(ValidationError, match="loopback") as caught:
        made(network=True, sandbox=sandbox)

    assert "--sandbox docker" in str(caught.value)
    assert made(network=True, sandbox="docker").network


@pytest.mark.parametrize("sandbox", ["auto", "strict", "docker"])
def test_environments_with_a_network_are_not_beside_a_server_without_a_credential(sandbox: str) -> None:
    with pytest.raises(ValidationError, match="without a credential") as caught:
        made(network=True, insecure=True, sandbox=sandbox)

    assert caught.value.found == "--network with --insecure"


def test_a_unix_socket_may_go_without_a_credential(tmp_path: Path) -> None:
    assert made(insecure=True, host="0.0.0.0", unix_socket=tmp_path / "socket").insecure  # not bound


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"record": "a.jsonl", "ledger": "folder"}, "two records"),
        ({"governed": "open"}, "no agents"),
        ({"governed": "open", "agent_port": 0, "workers": 2}, "one worker"),
        ({"agent_port": 0, "agent_url": "http://a:1/mcp", "workers": 2}, "one agent_url for several workers"),
        ({"agent_port": 0, "agent_url": "http://a:1/mcp", "workers": 2, "host": "::"}, "one agent_url for several"),
        ({"agent_port": 0, "workers": 2, "host": "0.0.0.0"}, "expected a host that agents can reach"),
        ({"agent_port": 0, "host": "0.0.0.0"}, "expected agent_url"),
    ],
)
def test_what_only_together_makes_no_sense_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        parse_settings({"target": "CartPole-v1", **values})


@pytest.mark.parametrize(
    ("idle", "warn", "after"), [(None, 60.0, None), (3600.0, 60.0, 3540.0), (60.0, 60.0, 30.0), (10.0, 2.0, 8.0)]
)
def test_a_client_is_warned_in_time(idle: float | None, warn: float, after: float | None) -> None:
    assert made(idle_seconds=idle, warn_seconds=warn).warn_after == after


@given(st.floats(0.001, 10**9), st.floats(0.001, 10**9))
def test_a_client_is_always_warned_before_the_end(idle: float, warn: float) -> None:
    after = made(idle_seconds=idle, warn_seconds=warn).warn_after

    assert after is not None
    assert idle / 2 <= after < idle


@given(
    st.builds(
        LimitSettings,
        max_message_bytes=st.integers(1, 2**20),
        max_depth=st.integers(1, 512),
        requests_per_second=st.none() | st.floats(0.1, 1000),
        burst=st.integers(1, 1000),
    )
)
def test_limits_reach_the_door_as_they_are(limits: LimitSettings) -> None:
    found = limits.limits()

    assert (found.max_message_bytes, found.max_depth) == (limits.max_message_bytes, limits.max_depth)
    assert (found.requests_per_second, found.burst) == (limits.requests_per_second, limits.burst)


# ------------------------------------------------------------------------------------------------------------ the file
def test_a_file_says_what_a_program_could_say(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(
        'target = "CartPole-v1"\nport = 0\nrecord = "events.jsonl"\n'
        '[settings]\nsutton_barto_reward = true\n[limits]\nmax_depth = 8\n[[transforms]]\ntype = "scale"\nfactor = 2.0\n'
    )

    settings = parse_settings(read_settings_file(path))

    assert settings == made(
        port=0,
        record="events.jsonl",
        settings={"sutton_barto_reward": True},
        limits={"max_depth": 8},
        transforms=[{"type": "scale", "factor": 2.0}],
    )


@pytest.mark.parametrize("content", [None, b"target = ", b"\xff", b"a = 1\na = 2\n"])
def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "serve.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ValidationError, match=r"cannot read .*serve\.toml"):
        read_settings_file(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cannot read"):
        read_settings_file(tmp_path)


@pytest.mark.parametrize("name", ["idle_seconds", "step_timeout_seconds"])
def test_zero_seconds_are_no_limit_because_a_file_has_no_word_for_nothing(name: str) -> None:
    assert getattr(parse_settings({"target": "CartPole-v1", name: 0}), name) is None


def test_storage_has_limits_unless_they_are_said_to_be_none() -> None:
    usual = made().storage
    none = made(storage={"max_step_bytes": 0, "max_episode_bytes": 0}).storage

    assert usual.storage_limits() == StorageLimits(16 * 2**20, 2**30)
    assert (usual.max_packet_bytes, usual.max_refused_bytes, usual.min_free_bytes) == (2**16, 2**24, None)
    assert none.storage_limits() == StorageLimits(None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_step_bytes", -1),
        ("max_episode_bytes", -1),
        ("max_packet_bytes", 0),
        ("max_refused_bytes", 10),
        ("min_free_bytes", -1),
        ("other", 1),
    ],
)
def test_a_limit_of_storage_that_makes_no_sense_is_named(name: str, value: int) -> None:
    with pytest.raises(ValidationError, match=f"storage.{name}"):
        made(storage={name: value})
