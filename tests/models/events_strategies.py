"""Random events of every kind, for the tests of whoever keeps or reads them."""

import json
from typing import Any, get_args

from hypothesis import strategies as st
from msgspec import Raw

from proctor.models.events import (
    AgentGranted,
    AgentRevoked,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    PacketJudged,
    SessionClosed,
    SessionOpened,
    SessionResumed,
)

KINDS: tuple[type[Event], ...] = get_args(Event)
"""Every event, as the union has them."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
raws = st.builds(
    lambda value, indent, ascii_only: Raw(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()),
    values,
    st.none() | st.just(1),
    st.booleans(),
)
tables = st.dictionaries(texts, values, max_size=3)
counts = st.integers(0, 2**40)
seeds = st.integers(0, 2**31)
heads: dict[str, st.SearchStrategy[Any]] = {
    "session": texts,
    "at": finite,
    "principal": st.sampled_from(["control", "agent", "operator", "system"]),
    "request_id": st.none() | counts,
}
FIELDS: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
    SessionOpened: {
        **dict.fromkeys(("environment", "environment_version", "target", "server", "boot"), texts),
        **dict.fromkeys(("python", "gymnasium", "numpy"), texts),
        "settings": tables,
        "num_envs": st.none() | counts,
        "autoreset_mode": st.none() | texts,
        "transforms": st.lists(tables, max_size=2),
        "place": st.sampled_from(["inline", "thread", "process"]),
        "tier": texts,
        "probe": tables,
        **dict.fromkeys(("code", "resume"), texts),
        "policy": st.none() | tables,
        **dict.fromkeys(("shared", "packed", "compress", "infos"), st.booleans()),
        "step_timeout": st.none() | finite,
    },
    EpisodeReset: {
        "epoch": counts,
        "episode_id": texts,
        "seed": st.none() | seeds,
        **dict.fromkeys(("options", "observation", "metadata", "pipeline", "scene"), raws),
        "nth": st.integers(1, 2**40),
    },
    EpisodeStepped: {
        **dict.fromkeys(("epoch", "step"), counts),
        **dict.fromkeys(("action", "observation", "metadata", "scene"), raws),
        **dict.fromkeys(("raw_reward", "reward"), st.none() | finite),
        "parts": st.dictionaries(texts, finite, max_size=2),
        **dict.fromkeys(("terminated", "truncated"), st.booleans()),
        **dict.fromkeys(("grant", "tool"), st.none() | texts),
    },
    AgentGranted: {
        "epoch": counts,
        **dict.fromkeys(("grant", "agent"), texts),
        "tools": st.lists(texts, max_size=3),
        "expires_at": st.none() | finite,
        "digest": texts,
        "calls_per_second": st.none() | finite,
    },
    AgentRevoked: {"epoch": counts, "grant": texts},
    BatchReset: {
        "epoch": counts,
        "episode_id": texts,
        "seed": st.none() | seeds | st.lists(st.none() | seeds, max_size=3),
        **dict.fromkeys(("options", "mask", "observations", "infos", "pipeline"), raws),
        "nth": st.integers(1, 2**40),
    },
    BatchStepped: {
        **dict.fromkeys(("epoch", "step"), counts),
        **dict.fromkeys(("actions", "observations", "infos", "raw_rewards", "rewards"), raws),
        "parts": st.dictionaries(texts, raws, max_size=2),
        **dict.fromkeys(("terminations", "truncations"), raws),
    },
    PacketJudged: {
        **dict.fromkeys(("epoch", "step"), counts),
        "line": raws,
        **dict.fromkeys(("kind", "reason", "state"), texts),
        **dict.fromkeys(("packet_id", "grant", "tool"), st.none() | texts),
        **dict.fromkeys(("judged", "accepted"), st.booleans()),
        **dict.fromkeys(("path", "rules", "pointers", "warnings"), st.lists(texts, max_size=2)),
    },
    EpisodeClosed: {
        **dict.fromkeys(("epoch", "steps"), counts),
        "reason": texts,
        **dict.fromkeys(("outcome", "state"), st.none() | texts),
        "obligations": st.lists(texts, max_size=2),
    },
    SessionResumed: {
        **dict.fromkeys(("epoch", "step"), counts),
        **dict.fromkeys(("boot", "server"), texts),
        "lost": st.none() | texts,
    },
    Failed: {
        **dict.fromkeys(("epoch", "step"), counts),
        **dict.fromkeys(("code", "request"), texts),
        **dict.fromkeys(("clause", "incident"), st.none() | texts),
        "lost": st.booleans(),
        "action": raws,
        "grant": st.none() | texts,
    },
    SessionClosed: {"reason": texts, **dict.fromkeys(("episodes", "steps"), counts)},
}


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Return events of one kind, with every field drawn."""
    return st.builds(kind, **heads, **FIELDS[kind])


events: st.SearchStrategy[Event] = st.one_of([events_of(kind) for kind in KINDS])
