import pytest

from proctor.ledger.audit import StatementChecker
from proctor.ledger.chain import ChainWalk, format_head
from proctor.ledger.rows import ChainEnded, ChainOpened, LedgerStatement, RunBegan, RunEnded, Tombstone

HASH = bytes(range(32))
KEY = bytes(32)


def link_at(name: str, seq: int = 1, sealed: int = 1) -> ChainWalk:
    link = ChainWalk(1, name, None)
    link.stands, link.number, link.sealed = [(seq, HASH)], 9, sealed
    return link


def began(**changed: object) -> RunBegan:
    fields: dict[str, object] = {"boot": "b", "server": "1", "schema": 1, "worker": 0, "durability": "full"}
    return RunBegan(**({"at": 0.0, "public": KEY.hex(), "previous": None} | fields | changed))  # type: ignore[arg-type]


def ended(rows: int = 2, **changed: object) -> ChainEnded:
    fields: dict[str, object] = {"steps": 0, "total_reward": None, "terminated": False, "truncated": False}
    return ChainEnded(at=0.0, chain="s.1", head=format_head("s.1", rows, HASH), **(fields | changed))  # type: ignore[arg-type]


def stone(rows: int = 2) -> Tombstone:
    head = format_head("s.1", rows, HASH)
    return Tombstone(at=0.0, chain="s.1", first=1, rows=rows, head=head, opened_at=0.0, closed_at=None, why="")


def findings(*said: LedgerStatement, episode: ChainWalk | None = None, public: bytes | None = None) -> list[str]:
    found: list[str] = []
    server, pruned = link_at("server.b"), link_at("pruned.9")
    links = {link.name: link for link in (server, pruned, *(() if episode is None else (episode,)))}
    claims = StatementChecker(links, public, lambda what, chain, seq, number: found.append(what))
    for own in (began(), *said):
        claims.check_statement(pruned if isinstance(own, Tombstone) else server, 20, own)
    claims.check_missing_chains()
    return found


def test_what_stands_there_is_as_it_is_spoken_of() -> None:
    assert findings(ended(), RunEnded(at=1.0), episode=link_at("s.1"), public=KEY) == []


@pytest.mark.parametrize(
    ("own", "what"),
    [
        (ended(rows=4), "the rows 2 to 3 of the chain are missing"),
        (ended(rows=1), "another head"),
        (ended(steps=3), "steps and rewards"),
        (ChainOpened(at=0.0, chain="s.1", head=format_head("s.1", 2, KEY)), "another head"),
        (stone(), "has a tombstone"),
    ],
)
def test_what_is_spoken_of_otherwise_is_found(own: LedgerStatement, what: str) -> None:
    (found,) = findings(own, episode=link_at("s.1"))

    assert what in found


def test_a_chain_that_is_not_there_needs_a_tombstone_of_the_same_head() -> None:
    assert findings(ended(), stone()) == []
    assert "is missing" in findings(ended())[0]
    assert "another head" in findings(ended(), stone(rows=3))[0]


def test_a_signed_run_seals_what_it_ends() -> None:
    assert findings(ended(), episode=link_at("s.1", sealed=0)) == ["its seal is missing"]
    assert findings(RunEnded(at=1.0), episode=link_at("s.1", sealed=0)) == ["its seal is missing"]


def test_the_place_where_a_chain_is_said_to_end_is_remembered() -> None:
    episode, server = link_at("s.1"), link_at("server.b")
    claims = StatementChecker({"s.1": episode}, None, lambda *_: None)

    claims.check_statement(server, 20, ended())
    claims.check_statement(server, 21, RunEnded(at=1.0))
    episode.stands = [(5, HASH)]
    claims.check_statement(server, 22, ended(rows=6))

    assert (episode.end, server.end) == ((1, 20), (1, 21))


def test_a_run_goes_on_from_the_one_before_and_signs_with_the_key_that_was_given() -> None:
    found = findings(began(previous=format_head("server.b", 3, HASH)), public=HASH)

    assert ["signed by another key" in each or "run before" in each for each in found] == [True, True, True]


def test_a_statement_is_in_a_chain_of_its_kind() -> None:
    found: list[str] = []
    episode = link_at("s.1")
    claims = StatementChecker({"s.1": episode}, None, lambda what, chain, seq, number: found.append(what))

    claims.check_statement(episode, 5, RunEnded(at=0.0))

    assert "does not belong" in found[0]
