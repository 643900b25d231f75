"""What a sensor gives, in words: how each of our sensors is told to a language model.

Rule: a telling is found once for a sensor, by its type. The numbers of a sensor that is not ours are told as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from proctor.envs.plume.sensors import (
    AntennaePair,
    BinaryHitSensor,
    ConcentrationSensor,
    DictSensor,
    HistorySensor,
    PoissonHitSensor,
    WindSensor,
)

Telling: TypeAlias = Callable[[Any], str]
"""Turns what a sensor gave, a row of numbers or several by their names, into text."""


def telling_of(sensor: Any) -> Telling:
    """Return how what `sensor` gives is told."""
    return TELLINGS.get(type(sensor), _of_stranger)(sensor)


def _of_stranger(sensor: Any) -> Telling:
    return lambda seen: _named(seen) if isinstance(seen, Mapping) else f"The sensor reads {_numbers(seen)}."


def _named(seen: Mapping[str, Sequence[float]]) -> str:
    return " ".join(f"{name}: {_numbers(reading)}." for name, reading in seen.items())


def _of_concentration(sensor: ConcentrationSensor) -> Telling:
    return lambda seen: f"Concentration {seen[0]:.6g}, on a scale from 0 to 1."


def _of_hit(sensor: BinaryHitSensor) -> Telling:
    return lambda seen: "There is odor here." if seen[0] else "There is no odor here."


def _of_hits(sensor: PoissonHitSensor) -> Telling:
    return lambda seen: f"Odor hits in this step: {seen[0]:g}, of at most {sensor.most}."


def _of_antennae(sensor: AntennaePair) -> Telling:
    return lambda seen: (
        f"Concentration {seen[0]:.6g} at the left antenna, {seen[1]:.6g} at the right one, on a scale from 0 to 1."
    )


def _of_wind(sensor: WindSensor) -> Telling:
    return lambda seen: f"The wind blows {seen[0]:.6g} cells a step to the right (+x), {seen[1]:.6g} up (+y)."


def _of_history(sensor: HistorySensor) -> Telling:
    def told(seen: Sequence[float]) -> str:
        width = len(seen) // sensor.length
        rows = [_numbers(seen[start : start + width]) for start in range(0, len(seen), width)]
        return f"The last {sensor.length} readings, oldest first: {'; '.join(rows)}."

    return told


def _of_several(sensor: DictSensor) -> Telling:
    tellings = {name: telling_of(part) for name, part in sensor.sensors.items()}
    return lambda seen: " ".join(f"{name}: {tellings[name](reading)}" for name, reading in seen.items())


def _numbers(row: Sequence[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in row)


TELLINGS: Final[Mapping[type, Callable[[Any], Telling]]] = {
    ConcentrationSensor: _of_concentration,
    BinaryHitSensor: _of_hit,
    PoissonHitSensor: _of_hits,
    AntennaePair: _of_antennae,
    WindSensor: _of_wind,
    HistorySensor: _of_history,
    DictSensor: _of_several,
}
