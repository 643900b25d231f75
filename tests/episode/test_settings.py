"""What the table is told of an episode's settings."""

from __future__ import annotations

from itertools import product

from proctor.episode.settings import OnOverrun, Profile, Settings
from proctor.episode.transition_table import OPTIONS, TableOption


def test_every_setting_has_its_options_and_there_are_no_others() -> None:
    every = [Settings(profile=profile, initial_beliefs=beliefs) for profile, beliefs in product(Profile, (False, True))]

    assert [settings.options for settings in every] == [
        (TableOption.STRICT,),
        (TableOption.STRICT, TableOption.INITIAL_BELIEFS),
        (TableOption.LENIENT,),
        (TableOption.LENIENT, TableOption.INITIAL_BELIEFS),
    ]
    assert sorted(OPTIONS) == sorted(settings.options for settings in every)


def test_the_other_settings_are_no_matter_of_the_table() -> None:
    assert {Settings(on_overrun=policy).options for policy in OnOverrun} == {(TableOption.STRICT,)}
