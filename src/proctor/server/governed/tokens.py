"""Tokens: which one a call uses, and whether what an agent asks for is within the policy. Pure.

Rule: a call uses the latest token that opens its tool. Where none does, it names the one that comes nearest, so that the judge can say
what is wrong with it.
"""

from collections.abc import Sequence
from datetime import datetime

from proctor.contracts.tools import ToolSafety
from proctor.episode.governing import POLICY_3
from proctor.episode.history import Episode, Permit
from proctor.episode.invariants import ALLOWING
from proctor.episode.states import Event
from proctor.server.governed.policy import GovernancePolicy, Issuer
from proctor.server.governed.replies import Permission
from proctor.server.governed.stream import Bar
from proctor.server.governed.wording import NO_TOKEN


def token_for(tool: str, safety: ToolSafety, episode: Episode, now: datetime) -> str | None:
    """Return the id of the token that a call of `tool` names; none for a tool that only reads."""
    if safety is ToolSafety.READ:
        return None
    permits = list(reversed(episode.tokens.values()))
    live = [permit for permit in permits if permit.live(now)]
    fitting = [permit for permit in live if opens(permit, tool)]
    return next((permit.token_id for permit in (*fitting, *live, *permits)), NO_TOKEN)


def opens(permit: Permit, tool: str) -> bool:
    """Return whether a token is for this tool, and for acting with it."""
    return tool in permit.tool_ids and not ALLOWING[Event.WRITE].isdisjoint(permit.operations)


def excess(
    tools: Sequence[str], operations: Sequence[str], uses: int, known: Sequence[str], policy: GovernancePolicy
) -> tuple[Bar, ...]:
    """Return why the policy does not let a token be issued; nothing if it does."""
    limits = policy.tokens
    if limits.issuer is Issuer.NEVER:
        return (Bar(POLICY_3, "this policy issues no tokens: tools that act cannot be used here"),)
    bars = []
    unknown = [tool for tool in tools if tool not in known]
    if unknown:
        reason = f"there is no such tool: {unknown[0][:64]}; the tools are {', '.join(known)}"
        bars.append(Bar(POLICY_3, reason, "/tools"))
    if uses > limits.max_uses:
        bars.append(Bar(POLICY_3, f"a token is good for {limits.max_uses} uses at most", "/uses"))
    surplus = sorted(set(operations) - set(limits.operations))
    if surplus:
        allowed = ", ".join(sorted(limits.operations))
        bars.append(Bar(POLICY_3, f"a token allows {allowed}, not {', '.join(surplus)}", "/operations"))
    return tuple(bars)


def permission(permit: Permit, now: datetime) -> Permission:
    """Return what an agent is told of its token."""
    return Permission(
        permit.token_id,
        list(permit.tool_ids),
        [str(operation) for operation in permit.operations],
        permit.limit - permit.used,
        permit.expiry.isoformat(timespec="seconds"),
        max(0, round((permit.expiry - now).total_seconds())),
    )
