"""A live server in the strict sandbox, attacked by agents that hold a grant, and by the code of environments.

Every attack must fail to reach the control plane, the host and its neighbours, and must leave a trace.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.attacks.agent_side import AGENTS
from tests.system.attacks.arena import Arena, arena
from tests.system.attacks.inside import CONFIG, WORKERS, stage_of
from tests.system.attacks.neighbour import Neighbour
from tests.system.attacks.scene import scene_of
from tests.system.attacks.victim import Victim

pytestmark = pytest.mark.system
ENOUGH = 40
VAULT = "tests.system.attacks.vault:Vault"
HOSTILE = "tests.system.attacks.hostile:Hostile"


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
    with arena(tmp_path_factory.mktemp("enemies"), HOSTILE, config=CONFIG) as served:
        yield served


@pytest.fixture
def neighbour(enemies: Arena) -> Iterator[Neighbour]:
    with enemies.session() as session:
        yield Neighbour(session)


@pytest.mark.parametrize("name", list(AGENTS))
def test_an_agent_gets_no_further_than_its_tools(vaults: Arena, victim: Victim, name: str) -> None:
    with scene_of(vaults, victim) as scene:
        how = AGENTS.attacks[name].run(scene)
        print(name, "->", how)

        scene.check()


@pytest.mark.parametrize("name", list(WORKERS))
def test_an_environment_gets_no_further_than_its_sandbox(enemies: Arena, neighbour: Neighbour, name: str) -> None:
    with stage_of(enemies, neighbour) as stage:
        how = WORKERS.attacks[name].run(stage)
        print(name, "->", how)

        stage.check()
