"""What the table is told of an episode's settings."""

from __future__ import annotations

from itertools import product

from proctor.episode.settings import OnOverrun, Profile, Settings
from proctor.episode.table import OPTIONS, Option


def test_every_setting_has_its_options_and_there_are_no_others() -> None:
    every = [Settings(profile=profile, initial_beliefs=beliefs) for profile, beliefs in product(Profile, (False, True))]

    assert [settings.options for settings in every] == [
        (Option.STRICT,),
        (Option.STRICT, Option.INITIAL_BELIEFS),
        (Option.LENIENT,),
        (Option.LENIENT, Option.INITIAL_BELIEFS),
    ]
    assert sorted(OPTIONS) == sorted(settings.options for settings in every)


def test_the_other_settings_are_no_matter_of_the_table() -> None:
    assert {Settings(on_overrun=policy).options for policy in OnOverrun} == {(Option.STRICT,)}
