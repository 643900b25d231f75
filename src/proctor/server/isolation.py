"""How a server's environments are kept apart: what was asked for, what this host enforces, and where they come from.

Rule 1: a weaker tier than the one asked for is refused, with the reason; "auto" takes the strongest that is enforced. Tier
    `none` is only taken by name.
Rule 2: in every tier but none the environment's code runs in its sandbox only: it is made there even to be asked its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proctor.envs.settings import add_working_directory
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ValidationError
from proctor.server.runtime.env_adapter import EnvDescription, describe_target
from proctor.server.sandbox.pool import container_pool, worker_pool
from proctor.server.sandbox.probe import explain_shortcoming, quick_report, refusal, strongest
from proctor.server.sandbox.tiers import Tier
from proctor.server.sessions.session_spec import AnyWorkerPool
from proctor.server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Isolation:
    """What was chosen; `pool` is None where environments run in the server itself."""

    tier: Tier
    card: EnvDescription
    pool: AnyWorkerPool | None = None
    probe: Mapping[str, Any] = field(default_factory=dict)


def choose_isolation(settings: ServerSettings, target: Target) -> Isolation:
    """Return where the target's environments will run, or raise why they cannot; this may take some seconds."""
    if ":" in target.text:
        # A sandbox shows a user's own module by its place, which is looked up here.
        add_working_directory()
    wish = settings.sandbox_wish()
    if wish.tier is Tier.NONE:
        return Isolation(Tier.NONE, describe_target(target))
    if wish.tier is Tier.DOCKER:
        containers = container_pool.ContainerPool.start(target, wish, settings.image)
        return _make_isolation(Tier.DOCKER, containers, msgspec.to_builtins(containers.report))
    report = quick_report(wish)
    reason = refusal(wish, report)
    if reason is not None:
        raise ValidationError(reason, found=wish.tier, expected="a tier that this host enforces; see `proctor doctor`")
    tier = wish.tier or strongest(report)
    if tier is Tier.NONE:
        weakest = report.of(Tier.PROCESS)
        raise ValidationError(
            "this host enforces no sandbox" + ("" if weakest is None else f": {explain_shortcoming(weakest)}"),
            expected="`--sandbox none` for code that you trust: it runs in the server itself; see `proctor doctor`",
        )
    found = report.of(tier)
    probe = {} if found is None else {str(each.probe): str(each.verdict) for each in found.findings}
    return _make_isolation(tier, worker_pool.WorkerPool.start(target, wish, tier), probe)


def _make_isolation(tier: Tier, made: Any, probe: dict[str, Any]) -> Isolation:
    try:
        card = msgspec.msgpack.decode(made.card(), type=EnvDescription)
    except BaseException as problem:
        made.end()
        if isinstance(problem, msgspec.DecodeError):
            raise ComponentError("the environment says nothing sensible of itself", found=str(problem)) from None
        raise
    return Isolation(tier, card, made, probe)
