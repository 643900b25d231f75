"""What the demo says at its end: what happened, what was proved, and what to try next."""

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from proctor.cli.demo import DemoFolder, EpisodeProof, agent_file, print_commands, print_summary, prove_episode
from proctor.cli.demo.display import EpisodeStory
from proctor.errors import ComponentError
from proctor.ledger.verify import VerificationReport
from proctor.replay.replayer import ReplayResult
from tests.cli.episodes import CHAIN, Recorded, begun

HEAD = f"{CHAIN}@9:{'0' * 64}"


def proof() -> EpisodeProof:
    episode = SimpleNamespace(episode_id="demo")
    report = VerificationReport((), rows=9, chains=2, seals=2, unsealed=0, signed=True, headed=True, says="")
    replay = ReplayResult(CHAIN, 4, identical=True, seconds=0.5, recorded_seconds=5.0)
    return EpisodeProof(episode, HEAD, report, replay)  # type: ignore[arg-type]  # its name is what is read of it


def summary(recorded: Recorded) -> str:
    story, out = EpisodeStory(), io.StringIO()
    for row in recorded.rows:
        story.add_row(row)
    print_summary(Console(file=out, width=200, _environ={}), story, proof())
    return out.getvalue()


def commands(folder: Path, *, kept: bool) -> list[str]:
    out = io.StringIO()
    print_commands(Console(file=out, width=200, _environ={}), DemoFolder(folder), proof(), kept=kept)
    return [line.strip() for line in out.getvalue().splitlines() if line.startswith("  ")]


def test_a_good_end_is_summed_up() -> None:
    recorded = begun()
    recorded.judged("EscalationPacket", {}, "S3_DECIDE", "S8_ESCALATED", tool="escalate")
    recorded.judged("user_input", {"text": "go on"}, "S8_ESCALATED", "S3_DECIDE", who="operator")
    recorded.stepped(terminated=True, reward=1.0)
    recorded.closed()

    lines = [re.split(r" {2,}", line.strip()) for line in summary(recorded).splitlines() if line]

    assert dict(lines) == {
        "search": "found the source in 3 steps, return 1",
        "episode": "conforming, closed in S7_REVIEW: 3 packets were accepted and 1 refused",
        "cheating": "refused by GOV-1: an agent may not state this",
        "operator": "answered: go on",
        "ledger": "whole and signed: 9 rows in 2 chains; nothing up to the head in the reply to `close` is missing",
        "replay": "bit for bit the same: 4 steps in 0.50 s, 10 times as fast",
    }


def test_an_end_that_is_none_is_not_made_to_look_like_one() -> None:
    recorded = Recorded()
    recorded.opened()
    recorded.reset()

    told = summary(recorded)

    assert "did not find the source in 0 steps; try another --seed" in told
    assert "is not closed" in told
    assert "nobody tried" in told
    assert "was not asked" in told


def test_an_episode_that_was_left_open_says_so() -> None:
    recorded = begun()
    recorded.closed("open")

    assert "open, closed in" in summary(recorded)


def test_the_next_commands_have_the_real_paths_of_what_was_kept(tmp_path: Path) -> None:
    viewed, shown, verified, replayed, *_ = commands(tmp_path, kept=True)

    assert viewed.startswith(f"proctor view {tmp_path}/ledger demo ")
    assert shown.startswith(f"proctor ledger show {tmp_path}/ledger demo ")
    assert verified.startswith(
        f"proctor ledger verify {tmp_path}/ledger --key {tmp_path}/ledger-key.pub --head {HEAD} "
    )
    assert replayed.startswith(f"proctor replay {tmp_path}/ledger demo --at 2 ")


def test_without_files_the_first_command_keeps_some(tmp_path: Path) -> None:
    first, *others = commands(tmp_path, kept=False)

    assert first.startswith("proctor demo --keep demo ")
    assert not [line for line in others if str(tmp_path) in line]


def test_the_agent_is_named_as_one_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(agent_file().parents[1])
    near = commands(tmp_path, kept=True)[-1]
    monkeypatch.chdir(tmp_path)
    far = commands(tmp_path, kept=True)[-1]

    assert near.startswith("python examples/governed_agent.py --help ")
    assert far.startswith(f"python {agent_file()} --help ")


def test_a_close_without_a_head_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="no head"):
        prove_episode(DemoFolder(tmp_path), CHAIN, None)
