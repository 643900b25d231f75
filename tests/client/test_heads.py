"""A client keeps the head of the record that the server gave it, so that its episode can be proved later."""

from __future__ import annotations

from pathlib import Path

from proctor.client import RemoteEnv, RemoteVectorEnv
from proctor.client.env_client import GenericClient
from proctor.ledger.verify import verify
from tests.server.live_server import serving


def test_a_reset_and_a_close_bring_heads_that_prove_the_record(tmp_path: Path) -> None:
    with serving(ledger=tmp_path) as served:
        client = GenericClient(served.url).sync()
        client.reset(seed=1)
        first = client.head
        client.step({"action": 1})
        client.reset(seed=2)
        second = client.head
        client.close()
        last = client.head

    assert len({first, second, last}) == 3
    assert None not in (first, second, last)
    report = verify(tmp_path, heads=[head for head in (first, second, last) if head is not None])
    assert report.ok, report.findings
    assert report.headed


def test_gymnasiums_environments_keep_it_too(tmp_path: Path) -> None:
    with serving(ledger=tmp_path) as served:
        env, batch = RemoteEnv(served.url), RemoteVectorEnv(2, served.url)
        env.reset(seed=1)
        batch.reset(seed=1)

        heads = [env.head, batch.head]
        env.close()
        batch.close()

    assert verify(tmp_path, heads=[str(head) for head in heads]).ok


def test_where_no_ledger_is_kept_there_is_no_head() -> None:
    with serving() as served:
        client = GenericClient(served.url).sync()
        client.reset(seed=1)
        client.close()

        assert client.head is None
