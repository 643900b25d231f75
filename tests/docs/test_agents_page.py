"""docs/agents.md says of limits, refusals and configurations what the code says."""

import json
import re

from mcp.types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from proctor.access.request_policy import AccessVerdict
from proctor.cli.mcp import DesktopClient, configuration
from proctor.models.control import Code
from proctor.server.agents import plane
from proctor.server.agents.fair_use import MOST_REQUESTS, MOST_SESSIONS, OTHERS_AT_ONCE, OTHERS_PER_SECOND
from proctor.server.agents.mcp_messages import ERROR_KEY
from proctor.server.agents.mcp_server import IDLE_SECONDS, LAST_WORDS_SECONDS
from tests.docs.tables import page, table

PAGE = page("agents.md")
ELSEWHERE = {406, 500}
"""Said by the library, and when something broke."""


def test_the_page_states_the_limits() -> None:
    rows = {row[0]: row[1] for row in table(PAGE, "| what |")}

    others = rows["other requests of one grant (handshakes, lists, pings)"]
    assert others == f"{OTHERS_PER_SECOND:.0f} a second, {OTHERS_AT_ONCE} at once"
    assert rows["requests of one grant at the same time"].startswith(f"{MOST_REQUESTS},")
    assert rows["MCP sessions of one grant"].startswith(f"{MOST_SESSIONS};")
    assert f"{IDLE_SECONDS:.0f} seconds" in rows["an MCP session that nobody uses"]
    assert f"{LAST_WORDS_SECONDS:.0f} seconds" in rows["what a dead grant's sessions were asked before"]


def test_the_page_names_every_status_that_a_request_is_refused_with() -> None:
    named = {int(row[0]) for row in table(PAGE, "| status |")}

    refusals = {each.status for each in vars(plane).values() if isinstance(each, plane.AgentRefusal)}
    verdicts = {verdict.status for verdict in AccessVerdict if not verdict.allowed}
    assert named == refusals | verdicts | ELSEWHERE


def test_the_codes_on_the_page_are_codes() -> None:
    named = {row[0].strip("`") for row in table(PAGE, "| code |")}

    assert named <= {code.value for code in Code}
    assert f"({INVALID_PARAMS})" in PAGE
    assert str(INTERNAL_ERROR) in PAGE
    assert f'_meta["{ERROR_KEY}"]' in PAGE


def test_the_configuration_on_the_page_is_one_that_the_command_prints() -> None:
    blocks = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
    words = ["/opt/venv/bin/proctor", "mcp", "--grant", "/srv/grant.json"]

    assert configuration(DesktopClient.CLAUDE, words) in blocks


def test_the_revisions_on_the_page_are_those_that_the_library_speaks() -> None:
    named = re.findall(r"\d{4}-\d{2}-\d{2}", PAGE)

    assert named == [HANDSHAKE_PROTOCOL_VERSIONS[0], HANDSHAKE_PROTOCOL_VERSIONS[-1], *MODERN_PROTOCOL_VERSIONS]
