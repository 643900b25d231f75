"""What governs agents besides the machine has its sentences, its advice, and its settings on record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.rules.catalogue import SENTENCES as CATALOGUE
from proctor.episode.rules.governance import ADVICE, SENTENCES, advice_for, context_from_policy, governance_settings
from proctor.episode.settings import LayerRules, OnOverrun, Profile
from proctor.episode.verdicts import JudgingContext
from proctor.errors import ValidationError


def test_every_rule_has_one_sentence_of_its_own() -> None:
    assert {"GOV-1", "GOV-2", "GOV-3", "POLICY-1", "POLICY-2", "POLICY-3"} <= SENTENCES.keys()
    assert not SENTENCES.keys() & CATALOGUE.keys()
    assert all(sentence.endswith(".") for sentence in (*SENTENCES.values(), *ADVICE.values()))
    assert set(ADVICE) <= set(SENTENCES) | set(CATALOGUE)


@given(st.lists(st.sampled_from(sorted(ADVICE)) | st.text(max_size=5), max_size=4))
def test_advice_is_that_of_the_first_rule_that_has_some(rules: list[str]) -> None:
    known = [rule for rule in rules if rule in ADVICE]

    assert advice_for(rules) == (ADVICE[known[0]] if known else "")


@given(
    profile=st.sampled_from(Profile),
    on_overrun=st.sampled_from(OnOverrun),
    initial_beliefs=st.booleans(),
    more=st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)
def test_a_recorded_policy_says_how_its_episodes_are_judged(
    profile: Profile, on_overrun: OnOverrun, initial_beliefs: bool, more: dict[str, Any]
) -> None:
    said = {"profile": profile.value, "on_overrun": on_overrun.value, "initial_beliefs": initial_beliefs}

    found = context_from_policy({**more, **said, "rules": "OURS: BeliefUpdatePacket before DecisionPacket"})

    assert found.settings == governance_settings(profile, on_overrun, initial_beliefs=initial_beliefs)
    assert found.settings.layer_rules is LayerRules.ERROR
    assert [rule.id for rule in found.house_rules] == ["OURS"]


def test_a_policy_that_says_nothing_of_it_is_judged_as_usual() -> None:
    assert context_from_policy({}) == JudgingContext(
        governance_settings(Profile.STRICT, OnOverrun.SAFEMODE, initial_beliefs=False)
    )


@pytest.mark.parametrize(
    "said", [{"profile": "sloppy"}, {"rules": "none at all"}, {"rules": 7}, {"initial_beliefs": "no"}]
)
def test_a_policy_that_cannot_be_read_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        context_from_policy(said)
