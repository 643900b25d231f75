"""An agent for governed episodes: a stock MCP client that holds an address and a token, and follows the protocol. Copy it.

It has two parts. `GovernedAgent` is the protocol: it looks before it acts, says what it believes, decides, asks for a token,
acts, asks a human when it is unsure, and reviews what came of it. What is refused changes nothing: the answer says which calls
lead on, and it goes that way. A policy says what to do, as a generator that yields wishes and is sent what came of them. There
are two scripts here, for the plume search and for Column Popper; put a language model in their place.

    proctor serve proctor/PlumeSearch-v0 --agent-port 8001 --governed standard --ledger ledger
    # the orchestrator:  (await client.grant()).save("grant.json")
    python examples/governed_agent.py --grant grant.json
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from itertools import count, permutations
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Told = dict[str, Any]
AT_ONCE = 5
"""So many times it acts on one decision; then it believes and decides anew, whatever its token allows."""


@dataclass
class Use:
    """A wish: to use a tool, why, and what is believed by now."""

    tool: str
    arguments: Told
    why: str
    beliefs: Told


@dataclass
class Ask:
    """A doubt: what a human is asked, and the options; the first is taken where there is nobody to ask."""

    question: str
    options: dict[str, str]


Policy = Generator[Use | Ask, Any, None]


class Stopped(Exception):
    """There is no way on: something is refused for good, nobody answers, or it was enough."""


class GovernedAgent:
    """The protocol: nothing is done before it was believed, decided and allowed."""

    def __init__(self, client: Client, looks: str, acts: list[str], options: argparse.Namespace) -> None:
        self.client, self.looks, self.acts, self.options = client, looks, acts, options
        self.uses_left = options.uses
        self.token_uses = 0  # how often it may still act before it decides anew
        self.next_calls = ["believe"]  # what may be called where the episode stands
        self.closed = False
        self.beliefs: Told = {"task": "not begun"}
        self.why = "see how things are"
        # What a refusal may ask for: calls by their names, and rules that need more than a call.
        self.steps: dict[str, Callable[[], Awaitable[Any]]] = {
            "believe": lambda: self.call("believe", changes=self.beliefs),
            'decide(outcome="ACT")': lambda: self.call("decide", outcome="ACT", summary=self.why),
            "request_token": self.request_token,
            looks: lambda: self.call(looks),
            "E4": self.be_allowed,
            "POLICY-1": self.verify,
            "INV-003": self.verify,
            "POLICY-2": self.ask_leave,
        }
        self.mending = False

    async def play(self, policy_of: Callable[[Told], Policy]) -> None:
        """Carry a policy out, from the first look to the review."""
        try:
            policy = policy_of(await self.verify())
            wish = next(policy)
            while True:
                came = await (self.ask(wish) if isinstance(wish, Ask) else self.use(wish))
                wish = policy.send(came)
        except StopIteration:
            await self.review("CANCEL", "there is nothing more to do")
        except Stopped as problem:
            await self.review("DEFER", str(problem))

    # --------------------------------------------------------------------------------------------------- what it does
    async def verify(self) -> Told:
        """Return what is seen, as a verification: decided, planned, read, believed."""
        await self.go("believe")
        await self.call("decide", outcome="VERIFY_FIRST", summary="look before anything is done")
        await self.call("plan_verification", targets=[{"assumption": "my tools answer", "tool": self.looks}])
        seen = await self.call(self.looks)
        await self.call("believe", changes={"my tools": "answer"})
        return seen

    async def use(self, wish: Use) -> Told:
        """Return what a tool that acts answers with; it needs a token that has uses left."""
        if self.uses_left <= 0:
            raise Stopped("this is as far as one agent goes")
        self.beliefs, self.why = wish.beliefs, wish.why
        if self.token_uses <= 0:
            await self.be_allowed()
        seen = await self.call(wish.tool, **wish.arguments)
        self.uses_left, self.token_uses = self.uses_left - 1, self.token_uses - 1
        if self.options.cheat:
            await self.cheat()
        return seen

    async def ask(self, doubt: Ask) -> str:
        """Return the option that a human chooses."""
        if not self.options.ask:
            return next(iter(doubt.options))
        await self.go("believe")
        await self.call("decide", outcome="ESCALATE", summary=doubt.question)
        options = [{"id": name, "description": text} for name, text in doubt.options.items()]
        what = {"question": doubt.question, "options": options, "gaps": ["what I cannot see from here"]}
        told = await self.call("escalate", **what, wait_seconds=self.options.ask)
        self.token_uses = 0  # whatever comes next is decided anew
        return told["answer"].get("choice") or next(iter(doubt.options))

    async def ask_leave(self) -> None:
        """Ask a human for leave to act, where the policy wants that."""
        if await self.ask(Ask(f"May I act? I want to: {self.why}", {"yes": "go on", "no": "stop here"})) != "yes":
            raise Stopped("a human said no")

    async def review(self, outcome: str, why: str) -> None:
        """Say what came of it; where that does not close the episode, decide not to go on, and note that."""
        self.beliefs = {"what came of it": why}
        await self.go("believe")
        if not self.closed:
            await self.call("decide", outcome=outcome, summary=why)
            await self.go("believe")

    async def cheat(self) -> None:
        """Try, once, to issue a token to itself."""
        self.options.cheat = False
        scope = {"tool_ids": self.acts, "operation_types": ["write"]}
        token = {"token_id": "token_forged", "authorized_scope": scope, "issuer_layer": 1}
        token |= {"expiry": "2999-01-01T00:00:00Z", "max_usage_count": 1_000_000}
        header = {"packet_type": "ToolAuthorizationToken", "layer_source": 1}
        try:
            await self.call("submit_packet", packet={"header": header, "mcp": {}, "payload": token})
        except Stopped as problem:
            print(f"no forged tokens: {problem}", flush=True)

    # --------------------------------------------------------------------------------------------------- what it says
    async def be_allowed(self) -> None:
        """Believe, decide and have a token."""
        await self.go("believe", 'decide(outcome="ACT")', "request_token")

    async def request_token(self) -> None:
        """Ask for a token, which an operator may have to approve."""
        told = await self.call("request_token", tools=self.acts, rationale=self.why, wait_seconds=self.options.ask)
        self.token_uses = min(told["token"]["uses_left"], AT_ONCE)

    async def go(self, *calls: str) -> None:
        """Make calls one after the other; a belief is left out where the episode has no place for one."""
        for each in calls:
            if each != "believe" or each in self.next_calls:
                await self.steps[each]()

    async def call(self, tool: str, **arguments: Any) -> Told:
        """Return what a tool answers with; where it is refused, do what the refusal says and call once more."""
        told, refused = await self.answer(tool, arguments)
        if refused and await self.mended(told):
            told, refused = await self.answer(tool, arguments)
        if refused:
            raise Stopped(told.get("reason") or told.get("message") or "refused")
        if told.get("verdict") == "waiting":
            raise Stopped(f"no operator has answered within {self.options.ask:g} s")
        return told

    async def answer(self, tool: str, arguments: Told) -> tuple[Told, bool]:
        """Return what came back from a call, and whether that is a refusal."""
        await asyncio.sleep(self.options.pause)
        result = await self.client.call_tool(tool, arguments)
        told = result.structured_content or (result.meta or {}).get("proctor/error", {})
        stands = told.get("governed", told)
        self.next_calls, self.closed = stands.get("next_calls", self.next_calls), told.get("closed", False)
        print(f"{tool:<18} {'refused' if result.is_error else 'accepted':<9} {stands.get('state', '')}", flush=True)
        return told, bool(result.is_error)

    async def mended(self, refusal: Told) -> bool:
        """Return whether what a refusal asks for was done; while something is mended, nothing else is."""
        rules = [rule for rule in refusal.get("rules", []) if rule in self.steps]
        named = rules[:1] or refusal.get("way", [])[:-1]
        if self.mending or not named or not set(named) <= self.steps.keys():
            return False
        self.mending = True
        try:
            await self.go(*named)
        finally:
            self.mending = False
        return True


# ---------------------------------------------------------------------------------------------------------- two policies
def search(ways: list[str], seen: Told) -> Policy:
    """Search a plume: climb while it smells stronger, else go back and turn to the next way."""
    strongest, stride, failed = seen["observation"][0], 8, 0

    def move(way: str, why: str) -> Use:
        return Use("move", {"direction": way, "steps": stride}, why, {"strongest": strongest, "heading": way})

    for turn in count():
        way, back = ways[turn % len(ways)], ways[(turn + len(ways) // 2) % len(ways)]
        failed += 1
        seen = yield move(way, "see whether it smells stronger there")
        while seen["observation"][0] > strongest and not seen["done"]:
            strongest, failed = seen["observation"][0], 0
            seen = yield move(way, "it smells stronger: go on")
        if not seen["done"]:
            seen = yield move(back, "it smells weaker: go back")
        if seen["done"]:
            return
        if failed >= len(ways):
            options = {"shorter": "search on from here with shorter moves", "stop": "stop the search here"}
            if stride > 1 and (yield Ask("No way leads to a stronger smell. Shall I search on?", options)) == "stop":
                return
            stride, failed = max(1, stride // 4), 0


def pop(seen: Told) -> Policy:
    """Play Column Popper: make the move that begins the best three; where none is worth it, let a row fall."""
    asked = False
    while not seen["done"]:
        board = seen["observation"]["board"]
        columns = [[row[column] for row in board if row[column]] for column in range(len(board[0]))]
        worth, move = promise(columns, len(board), 3)
        if move is None and not asked:
            asked, options = True, {"fall": "let rows fall when nothing can be matched", "stop": "stop the game here"}
            if (yield Ask("No move is worth anything. Shall I let a row fall?", options)) == "stop":
                return
        calls = [("fall", {})] if move is None else [("toggle_column", {"column": column}) for column in move]
        for tool, arguments in calls:
            if not seen["done"]:
                seen = yield Use(tool, arguments, f"the best move is {move}", {"columns": columns, "worth": worth})


def promise(columns: list[list[int]], height: int, moves: int) -> tuple[float, tuple[int, int] | None]:
    """Return what the best of so many moves are worth, and the first of them; None: not to move."""
    best: tuple[float, Any] = 0.5 * sum(end(column) == 2 for column in columns) - 0.1 * max(map(len, columns)), None
    for source, target in permutations(range(len(columns)), 2) if moves else ():
        if columns[source] and len(columns[target]) < height:
            after = [list(column) for column in columns]
            after[target].append(after[source].pop())
            popped = end(after[target]) // 3 * 3
            del after[target][len(after[target]) - popped :]
            worth = popped + 0.95 * promise(after, height, moves - 1)[0]
            best = max(best, (worth, (source, target)), key=lambda option: option[0])
    return best


def end(column: list[int]) -> int:
    """Return how many equal blocks are at the end of a column."""
    return next((n for n, block in enumerate(reversed(column)) if block != column[-1]), len(column))


# -------------------------------------------------------------------------------------------------------------- its start
def grant_of(path: Path | None) -> tuple[str, str]:
    """Return address and token, from a file that an orchestrator saved or from the environment."""
    if path is None:
        address, token = os.environ.get("PROCTOR_GRANT_ADDRESS"), os.environ.get("PROCTOR_GRANT_TOKEN")
        if not address or not token:
            sys.exit("no grant: give --grant FILE, or set PROCTOR_GRANT_ADDRESS and PROCTOR_GRANT_TOKEN")
        return address, token
    if path.stat().st_mode & 0o077:
        sys.exit(f"others can read {path}: run  chmod 600 {path}")
    grant = json.loads(path.read_text())
    return grant["address"], grant["token"]


async def main(options: argparse.Namespace) -> str | None:
    """Connect, see by the tools what there is to do, and do it; return why it could not be reviewed, if so."""
    address, token = grant_of(options.grant)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=options.ask + 60, trust_env=False) as http,  # no proxy sees a token
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        try:
            if "toggle_column" in tools:
                await GovernedAgent(client, "look", ["toggle_column", "fall"], options).play(pop)
            else:
                ways = [way for way in tools["move"].input_schema["properties"]["direction"]["enum"] if way != "stay"]
                await GovernedAgent(client, "sniff", ["move"], options).play(partial(search, ways))
        except Stopped as problem:
            return f"left open: {problem}"
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An agent for governed plume searches and games of Column Popper.")
    parser.add_argument("--grant", type=Path, help="a saved grant; else PROCTOR_GRANT_ADDRESS and PROCTOR_GRANT_TOKEN")
    parser.add_argument("--ask", type=float, default=0.0, metavar="S", help="ask a human when unsure, and wait so long")
    parser.add_argument("--uses", type=int, default=100, metavar="N", help="use tools that act at most so often [100]")
    parser.add_argument("--pause", type=float, default=0.0, metavar="S", help="wait so long before every call")
    parser.add_argument("--cheat", action="store_true", help="try to forge a token, once; it is refused")
    sys.exit(asyncio.run(main(parser.parse_args())))
