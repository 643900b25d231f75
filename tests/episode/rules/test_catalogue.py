"""The catalogue of rules: complete, in order, each with a sentence."""

from __future__ import annotations

import re

from proctor.episode.rules.catalogue import CATALOGUE, SENTENCES

IDS = [
    *("JSON", "SCHEMA", "EPISODE_CLOSED", "LIMIT-1", "LIMIT-2", "FSM", "RECORD-1", "ID-1", "ID-2", "TIME-1", "QUEUE-1"),
    *("SAFETY-1", "LAYER-1", "LAYER-2", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "S4", "S5", "S6", "S8"),
    *(f"INV-{number:03}" for number in range(1, 13)),
]
LAYERED = "warning, or error if the layer rules say so"
LEVELS = {
    **dict.fromkeys(IDS, "error"),
    **dict.fromkeys(("ID-2", "TIME-1", "QUEUE-1", "INV-012"), "warning"),
    **dict.fromkeys(("INV-010", "INV-011"), "error, warning"),
    **dict.fromkeys(("LAYER-1", "LAYER-2"), LAYERED),
}


def test_every_rule_has_its_place_and_its_level() -> None:
    assert [(rule.id, rule.level) for rule in CATALOGUE] == list(LEVELS.items())


def test_every_rule_is_one_sentence() -> None:
    assert list(SENTENCES) == list(LEVELS)
    assert all(re.fullmatch(r"[A-Z][^.]*\.", sentence) for sentence in SENTENCES.values())
