"""The catalogue of rules: complete, in order, each with a sentence."""

from __future__ import annotations

import re

from proctor.episode.rules.catalogue import CATALOGUE, SENTENCES

BOTH = "error, warning"
LAYERED = "warning, or error if the layer rules say so"
LEVELS = {
    "JSON": "error",
    "SCHEMA": "error",
    "EPISODE_CLOSED": "error",
    "LIMIT-1": "error",
    "LIMIT-2": "error",
    "FSM": "error",
    "RECORD-1": "error",
    "ID-1": "error",
    "ID-2": "warning",
    "TIME-1": "warning",
    "QUEUE-1": "warning",
    "SAFETY-1": "error",
    "LAYER-1": LAYERED,
    "LAYER-2": LAYERED,
    "E1": "error",
    "E2": "error",
    "E3": "error",
    "E4": "error",
    "E5": "error",
    "E6": "error",
    "E7": "error",
    "S4": "error",
    "S5": "error",
    "S6": "error",
    "S8": "error",
    "INV-001": "error",
    "INV-002": "error",
    "INV-003": "error",
    "INV-004": "error",
    "INV-005": "error",
    "INV-006": "error",
    "INV-007": "error",
    "INV-008": "error",
    "INV-009": "error",
    "INV-010": BOTH,
    "INV-011": BOTH,
    "INV-012": "warning",
}


def test_every_rule_has_its_place_and_its_level() -> None:
    assert [(rule.id, rule.level) for rule in CATALOGUE] == list(LEVELS.items())


def test_every_rule_is_one_sentence() -> None:
    assert list(SENTENCES) == list(LEVELS)
    assert all(re.fullmatch(r"[A-Z][^.]*\.", sentence) for sentence in SENTENCES.values())
