"""A live server in the strict sandbox, attacked by agents that hold a grant, and by the code of environments.

Every attack must fail to reach the control plane, the host and its neighbours, and must leave a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.server.commands import Command, serve
from tests.system.attacks.agent_side import AGENTS
from tests.system.attacks.arena import CONTROL_SECRET, Arena, arena
from tests.system.attacks.book import table
from tests.system.attacks.inside import WORKERS
from tests.system.attacks.neighbour import Neighbour
from tests.system.attacks.scene import scene_of
from tests.system.attacks.stage import CONFIG, TOKEN_FILE, stage_of
from tests.system.attacks.starts import FORGER, IMPORT_SECONDS, SLOW, STARTS, TREACHEROUS, refused_to_start
from tests.system.attacks.victim import Victim

pytestmark = pytest.mark.system
ENOUGH = 40
VAULT = "tests.system.attacks.vault:Vault"
HOSTILE = "tests.system.attacks.hostile:Hostile"
STARTING = ("--port", "0", "--sandbox", "strict", "--json", "--log-json")


@pytest.fixture(scope="module")
def stopped(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Note how each attack was stopped; a table of them is printed at the end, and none may be missing."""
    found: dict[str, str] = {}
    yield found
    asked = sum("stopped" in getattr(item, "fixturenames", ()) for item in request.session.items)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{table(found)}\n{len(found)} of {asked} attacks were stopped")
    assert len(found) == asked


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("vaults"), VAULT) as served:
        yield served


@pytest.fixture(scope="module")
def victim(vaults: Arena) -> Iterator[Victim]:
    with vaults.session() as session:
        yield Victim(vaults, session)


@pytest.fixture(scope="module")
def enemies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    home = tmp_path_factory.mktemp("enemies")
    token_file = home / TOKEN_FILE
    token_file.write_text(CONTROL_SECRET)
    token_file.chmod(0o600)
    with arena(home, HOSTILE, "--token-file", str(token_file), config=CONFIG) as served:
        yield served


@pytest.fixture
def neighbour(enemies: Arena) -> Iterator[Neighbour]:
    with enemies.session() as session:
        yield Neighbour(session)


@pytest.fixture(scope="module")
def traitors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("traitors"), TREACHEROUS, config=CONFIG) as served:
        yield served


@pytest.fixture(scope="module", autouse=True)
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Start what takes a minute to be given up before everything else."""
    with ExitStack() as stack:
        yield stack.enter_context(serve(tmp_path_factory.mktemp("slow"), SLOW, *STARTING))


@pytest.mark.parametrize("name", list(AGENTS))
def test_an_agent_gets_no_further_than_its_tools(
    vaults: Arena, victim: Victim, stopped: dict[str, str], name: str
) -> None:
    with scene_of(vaults, victim) as scene:
        how = AGENTS.attacks[name].run(scene)

        scene.check()
    stopped[name] = how


@pytest.mark.parametrize("name", list(WORKERS))
def test_an_environment_gets_no_further_than_its_sandbox(
    enemies: Arena, neighbour: Neighbour, stopped: dict[str, str], name: str
) -> None:
    with stage_of(enemies, neighbour) as stage:
        how = WORKERS.attacks[name].run(stage)

        stage.check()
    stopped[name] = how


@pytest.mark.parametrize("name", list(STARTS))
def test_code_that_runs_at_import_reaches_neither_host_nor_server(
    traitors: Arena, stopped: dict[str, str], name: str
) -> None:
    how = STARTS.attacks[name].run(traitors)

    stopped[name] = how


def test_an_import_without_end_is_given_up(slow: Command, stopped: dict[str, str]) -> None:
    stopped["hangs_in_import"] = refused_to_start(slow, "not ready within", IMPORT_SECONDS)


def test_tools_named_like_the_orchestrators_words_are_refused(
    tmp_path_factory: pytest.TempPathFactory, stopped: dict[str, str]
) -> None:
    with serve(tmp_path_factory.mktemp("forger"), FORGER, *STARTING) as command:
        how = refused_to_start(command, "reserved name", IMPORT_SECONDS)

    stopped["forged_tools"] = how


def test_without_an_attack_there_is_no_trace(vaults: Arena, victim: Victim) -> None:
    with scene_of(vaults, victim) as scene:
        scene.steps = 1
        scene.agent.call("say", {"word": "peace"}, session=scene.agent.opened())

        victim.check()
        # The count of refusals that an attack before had too many of may come now.
        assert [line for line in scene.traces() if "more refusals" not in line["event"]] == []


def test_there_are_enough_attacks() -> None:
    names = [*AGENTS, *WORKERS, *STARTS]

    assert len(names) == len(set(names)) >= ENOUGH
