"""How a server's environments are kept apart: what was asked for, what this host enforces, and where they come from.

Rule 1: a weaker tier than the one asked for is refused, with the reason; "auto" takes what is enforced, and says what that is.
Rule 2: in every tier but none the environment's code runs in its sandbox only: it is made there even to be asked its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proctor.envs.imports import search_here
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ValidationError
from proctor.server.cards import Card, card_of
from proctor.server.opening import Nest
from proctor.server.sandbox import docker, nest
from proctor.server.sandbox.findings import refusal, strongest
from proctor.server.sandbox.probe import quick_report
from proctor.server.sandbox.tiers import Tier
from proctor.server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Isolation:
    """What was chosen; `nest` is None where environments run in the server itself."""

    tier: Tier
    card: Card
    nest: Nest | None = None
    probe: Mapping[str, Any] = field(default_factory=dict)


def isolated(settings: ServerSettings, target: Target) -> Isolation:
    """Return where the target's environments will run, or raise why they cannot; this may take some seconds."""
    if ":" in target.text:
        # A sandbox shows a user's own module by its place, which is looked up here.
        search_here()
    wish = settings.sandbox_wish()
    if wish.tier is Tier.NONE:
        return Isolation(Tier.NONE, card_of(target))
    if wish.tier is Tier.DOCKER:
        containers = docker.DockerNest.started(target, wish, settings.image)
        return _in_nest(Tier.DOCKER, containers, msgspec.to_builtins(containers.report))
    report = quick_report(wish)
    reason = refusal(wish, report)
    if reason is not None:
        raise ValidationError(reason, found=wish.tier, expected="a tier that this host enforces; see `proctor doctor`")
    tier = wish.tier or strongest(report)
    found = report.of(tier)
    probe = {} if found is None else {str(each.probe): str(each.verdict) for each in found.findings}
    if tier is Tier.NONE:
        return Isolation(tier, card_of(target), probe=probe)
    return _in_nest(tier, nest.Nest.started(target, wish, tier), probe)


def _in_nest(tier: Tier, made: Any, probe: dict[str, Any]) -> Isolation:
    try:
        card = msgspec.msgpack.decode(made.card(), type=Card)
    except BaseException as problem:
        made.end()
        if isinstance(problem, msgspec.DecodeError):
            raise ComponentError("the environment says nothing sensible of itself", found=str(problem)) from None
        raise
    return Isolation(tier, card, made, probe)
